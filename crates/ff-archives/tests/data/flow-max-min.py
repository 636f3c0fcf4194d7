"""Writes flow-max-min.json: small networks and their max-min rates by scipy's linear programs.

Max-min by its definition: raise the least rate of all that may still rise as far as a linear program can; find
by one program a flow which of them cannot rise further; fix those; go on. Run with scipy 1.17 and Python 3.11:
    python flow-max-min.py > flow-max-min.json
"""

import json
import random

from scipy.optimize import linprog


def solve(relays, paths, caps):
    """The max-min rates."""
    count, fixed = len(paths), {}
    rows = [[1.0 if r in p else 0.0 for p in paths] + [0.0] for r in range(len(relays))]

    def program(goal, more_rows, more_limits, bounds):
        found = linprog(goal, A_ub=rows + more_rows, b_ub=relays + more_limits, bounds=bounds, method="highs")
        assert found.status == 0, found.message
        return found

    while len(fixed) < count:
        free = [f for f in range(count) if f not in fixed]
        bounds = [(fixed[f], fixed[f]) if f in fixed else (0, caps[f]) for f in range(count)] + [(0, None)]
        lower = [[-1.0 if f == g else 0.0 for g in range(count)] + [1.0] for f in free]
        level = program([0.0] * count + [-1.0], lower, [0.0] * len(free), bounds).x[count]
        floor = [(fixed[f], fixed[f]) if f in fixed else (max(0, level - 1e-9), caps[f]) for f in range(count)]
        stuck = []
        for f in free:
            goal = [-1.0 if f == g else 0.0 for g in range(count)] + [0.0]
            if program(goal, [], [], floor + [(0, None)]).x[f] < level + 1e-6:
                stuck.append(f)
        assert stuck
        for f in stuck:
            fixed[f] = level
    return [round(fixed[f], 9) for f in range(count)]


rng, vectors = random.Random(14), []
for _ in range(60):
    relays = [round(rng.uniform(1, 50), 2) for _ in range(rng.randint(1, 6))]
    paths = [rng.sample(range(len(relays)), rng.randint(1, min(3, len(relays)))) for _ in range(rng.randint(1, 10))]
    caps = [round(rng.choice([rng.uniform(0.5, 10), 1000]), 2) for _ in paths]
    vectors.append({"capacities": relays, "paths": paths, "caps": caps, "rates": solve(relays, paths, caps)})
print("[" + ",\n".join(json.dumps(v) for v in vectors) + "]")
