#!/usr/bin/env python3
"""Makes schedule-vectors.json: the schedule of PROTOCOL.md section 11, by Python's standard library and no
code of this project. `python3 schedule_vectors.py > schedule-vectors.json`."""

import hashlib
import hmac
import json
import random
from fractions import Fraction

MIN_GUESS = 12_500


def demand(guess):
    """f z0 with f = 2.25 * 1.05 / 0.80, rounded to the nearest integer; all numbers here are exact in
    binary."""
    product = Fraction(2.25 * (1.0 + 0.05) / (1.0 - 0.20)) * max(guess, MIN_GUESS)
    return int(product + Fraction(1, 2))


def draw(seed, relay, coordinator, counter, count):
    digest = hashlib.sha256(seed + relay + coordinator + counter.to_bytes(4, "big")).digest()
    return int.from_bytes(digest[:8], "big") * count >> 64


def schedule(relays, teams, slots, seed, new_guess):
    teams = sorted(teams)
    left = [[capacity] * slots for _, capacity in teams]
    most = max(capacity for _, capacity in teams)
    places = {}
    old = [(-demand(z), name) for name, z in relays if z is not None]
    for need, name in sorted(old):
        need = -need
        if need > most:
            continue
        taken = []
        for team, (coordinator, _) in enumerate(teams):
            with_room = sorted((room, slot) for slot, room in enumerate(left[team]) if room >= need)
            slot, counter = None, 0
            while any(candidate not in taken for _, candidate in with_room):
                slot = with_room[draw(seed, name, coordinator, counter, len(with_room))][1]
                counter += 1
                if slot not in taken:
                    break
            else:
                slot = None
            if slot is not None:
                left[team][slot] -= need
            taken.append(slot)
        places[name.hex()] = taken
    for name, z in relays:
        need = demand(new_guess)
        if z is not None or need > most:
            continue
        taken = []
        for team in range(len(teams)):
            free = (s for s in range(slots) if left[team][s] >= need and s not in taken)
            slot = next(free, None)
            if slot is not None:
                left[team][slot] -= need
            taken.append(slot)
        places[name.hex()] = taken
    return places


def hkdf(salt, secret, info):
    key = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(key, info + b"\x01", hashlib.sha256).digest()


def main():
    rng = random.Random(316)
    cases = []
    for relays, slots, capacities in [(5, 4, [10**8]), (60, 3, [2 * 10**8, 15 * 10**7]),
                                      (200, 30, [375_000_000, 500_000_000, 250_000_000])]:
        listed = []
        for number in range(relays):
            estimate = None if rng.random() < 0.2 else int(rng.paretovariate(1.1) * 10**6)
            listed.append((rng.randbytes(20), estimate))
        teams = [(rng.randbytes(32), capacity) for capacity in capacities]
        seed, new_guess = rng.randbytes(32), 6_375_000
        places = schedule(listed, teams, slots, seed, new_guess)
        cases.append({
            "seed": seed.hex(), "slots": slots, "new_guess": new_guess,
            "teams": [{"coordinator": c.hex(), "capacity": a} for c, a in teams],
            "relays": [{"fingerprint": n.hex(), "estimate": z} for n, z in listed],
            "places": places,
        })
    shared_random, secret, period = rng.randbytes(32), b"a secret of the coordinators", 20_600
    seed = hkdf(shared_random, secret, b"flashflow-schedule-1" + period.to_bytes(8, "big"))
    print(json.dumps({
        "seed": {"shared_random": shared_random.hex(), "secret": secret.hex(), "period": period,
                 "seed": seed.hex()},
        "cases": cases,
    }, indent=1))


main()
