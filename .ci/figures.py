"""Makes lines `figure: CLAIM | BOUND | VALUE | SPREAD` of what programs print; .ci/measure calls it. A fifth cell, `holds` or
`broken`, is a row's own verdict; without one it has that of its command.

    figures.py link         of `ff-lab link check --json`
    figures.py mobile       of `ff-perf lab mobile --json`
    figures.py measurer     of `ff-measurer bench --json`
    figures.py bench        of `cargo bench … -- --output-format bencher`
    figures.py truth        of the ground truth's table
    figures.py distance     of the table of `ground-truth distance`

It reads standard input, and shows it again on standard error.
"""

import json
import re
import sys


def link(text):
    """What was set on emulated links, and what came of it."""
    for row in json.loads(text)["rows"]:
        late = f"late by {row['lateness']['p99_us']:.0f} µs at p99"
        verdict = "holds" if row["is_within"] else "broken"
        yield row["what"], f"{row['at_least']:.5g}..{row['at_most']:.5g}", f"{row['measured']:.5g}", late, verdict


def mobile(text):
    """Times of downloads over mobile links."""
    found = json.loads(text)
    for row in found["rows"]:
        profile, quartiles = row["profile"], row["quartiles_secs"]
        count = f"{row['whole']} whole, {row['failed']} failed"
        value, spread = "-", count
        if quartiles is not None:
            _, first, median, third, _ = quartiles
            value, spread = f"{median:.2f} s", f"quartiles {first:.2f} and {third:.2f} s; {count}"
        if row["of_wire"] is not None:
            value += f", {row['of_wire']:.3f} of the least time at the link's rate"
        # Each of these sentences begins with the profile that it is about.
        is_wrong = any(one.startswith(f"{profile} ") for one in found["wrong"])
        cells = f"download over {profile}", "the paper's order and near the rate", value, spread
        # If the emulator was late, nothing holds and nothing is broken.
        yield cells + (("broken" if is_wrong else "holds",) if found["emulator_is_in_time"] else ())


def measurer(text):
    """What a core measures, compared with TLS."""
    for record in json.loads(text)["records"]:
        what = f"measurer / raw TLS, {record['cells_per_record']} cells a record"
        own = record["measurer"]
        cost = f"{own['gbit_per_core']:.2f} Gbit/s a core, {own['cpu_s_per_gb']:.3f} CPU s/GB"
        yield what, "-", f"{record['measurer_vs_raw_tls']:.3f}", cost


def bench(text):
    """Times of criterion's benchmarks."""
    for name, time, spread in re.findall(r"^test (\S.*?) \.\.\. bench:\s+([\d,.]+) ns/iter \(\+/- ([\d,.]+)\)", text, re.M):
        yield name, "-", f"{time} ns", f"+- {spread} ns"


def table(text):
    """The rows of a table, their cells by the names above them."""
    names = None
    for line in text.splitlines():
        if not line.startswith("| "):
            continue
        cells = [cell.strip() for cell in line.strip("| \n").split("|")]
        if names is None:
            names = cells
        # Several tables may follow each other.
        if cells == names:
            continue
        # Of columns with the same name, the first.
        yield dict(zip(reversed(names), reversed(cells)))


# Where an estimate of a relay lies over a path that does not limit it, by the rate of the relay.
LEAST, MOST = 0.93, 1.05


def distance(text):
    """Estimates over emulated links by the relay's rate."""
    for row in table(text):
        spread = f"{row['single runs']}: {row['verdicts']}, {row['links']} links, {row['CPU s']} CPU s"
        cells = f"estimate / rate: {row['case']}", f"{LEAST}..{MOST} or path_limited", row["estimate / rate"], spread
        yield cells + distance_verdict(row)


def distance_verdict(row):
    """The verdict on a case; none where the table does not tell which run had which verdict."""
    names = {one.split(" ")[1] for one in row["verdicts"].split(", ")}
    if names == {"path_limited"}:
        return ("holds",)
    if names == {"conclusive"} and row["single runs"] != "-":
        runs = [float(one) for one in row["single runs"].split("..")]
        return ("holds" if LEAST <= min(runs) and max(runs) <= MOST else "broken",)
    return () if names == {"conclusive", "path_limited"} else ("broken",)


def truth(text):
    """Estimates by what was forwarded."""
    for row in table(text):
        what = f"{row['what by what']}: {row['relay']}, {row['limit']}, {row['sockets']} sockets"
        yield what, "-", row["ratio"], row["single rounds"]


text = sys.stdin.read()
sys.stderr.write(text)
readers = {"link": link, "mobile": mobile, "measurer": measurer, "bench": bench, "truth": truth, "distance": distance}
rows = list(readers[sys.argv[1]](text))
if not rows:
    sys.exit("this output has no figures")
for cells in rows:
    print("figure: " + " | ".join(cell.replace("|", "/") for cell in cells))
