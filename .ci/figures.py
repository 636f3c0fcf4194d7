"""Makes lines `figure: CLAIM | BOUND | VALUE | SPREAD` of what programs print; .ci/measure calls it. A fifth cell, `holds` or
`broken`, is a row's own verdict; without one it has that of its command.

    figures.py link         of `ff-lab link check --json`
    figures.py mobile       of `ff-perf lab mobile --json`
    figures.py tortoise     of `ff-perf lab tortoise --json`
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

    def verdict(is_wrong):
        # If the emulator was late, nothing holds and nothing is broken.
        return ("broken" if is_wrong else "holds",) if found["emulator_is_in_time"] else ()

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
        is_wrong = any(one.startswith(f"{profile} ") and "figure 8" not in one for one in found["wrong"])
        cells = f"download over {profile}", "the paper's order and near the rate", value, spread
        yield cells + verdict(is_wrong)
        mean, is_wrong = row["mean_secs"], any("figure 8" in one for one in found["wrong"])
        if profile == "edge-lossy" and quartiles is not None:
            ends = f"{quartiles[0]:.0f} to {quartiles[-1]:.0f} s, 275 to 537 in the paper; {count}"
            is_judged = row["whole"] >= 10 and found["size_bytes"] == 5 << 20
            told = verdict(is_wrong) if is_judged else ()
            yield "mean download over edge-lossy, as over the paper's EDGE", "381 s within 10 %", f"{mean:.0f} s", ends, *told
    for row in found["starts"]:
        for who in "client", "service":
            secs, kbytes = row[f"{who}_secs"], row[f"{who}_bytes"] / 1e3
            value = "not reached" if secs is None else f"{secs:.2f} s"
            what = "client's start without documents" if who == "client" else "onion service's start"
            slower = "start of a client is" if who == "client" else "start of an onion service is"
            is_missing = secs is None and who == "client"
            is_wrong = is_missing or any(one.startswith(slower) for one in found["wrong"])
            yield f"{what} over {row['profile']}", "-", value, f"{kbytes:.0f} kB on the link", *verdict(is_wrong)
    for row in found["links"]:
        one, two = row["one_link"], row["two_links"]
        medians = "; ".join(
            f"{name}: " + ("-" if of["median_secs"] is None else f"{of['median_secs']:.2f} s of {of['whole']}")
            for name, of in (("one link", one), ("two", two))
        )
        value = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        what = f"two downloads at once with {row['loss']:.0%} lost: two links / one"
        is_wrong = any(one.startswith(f"{row['loss'] * 100:g} % lost") for one in found["wrong"])
        yield what, "..1" if row["loss"] else "-", value, medians, *verdict(is_wrong)


def tortoise(text):
    """Limited links, attempts to evade the limit, and experiments that must agree with the model."""
    found = json.loads(text)

    def verdict(value, low, high):
        # A busy machine makes nothing hold and nothing broken.
        is_within = value is not None and low <= value <= (high if high is not None else value)
        return () if found["is_machine_busy"] else ("holds" if is_within else "broken",)

    def text_of(value):
        return "-" if value is None else f"{value:.4g}"

    for row in found["links"]:
        least, greatest = row["spread"]
        spread = f"{least:.4g}..{greatest:.4g} of {row['samples']}" if row["samples"] > 1 else "-"
        what, value = f"{row['figure']}, {row['unit']}", row["value"]
        if row["bounds"] is None:
            yield what, "-", text_of(value), spread, "holds"
        else:
            low, high = row["bounds"]
            yield (what, f"{low:.4g}..{high:.4g}", text_of(value), spread, *verdict(value, low, high))
    for row in found["cheats"]:
        value, low, high = row["times_the_limit"], row["low"], row["high"]
        bound = f"{low:.4g}..{text_of(high) if high is not None else ''}"
        yield (f"{row['cheat']}, times the limit", bound, text_of(value), "-", *verdict(value, low, high))
    for row in found["cells"]:
        if row["is_within"] is not None:
            value = text_of(row["lab_to_model"])
            what = f"mean client of {row['tor']}, {row['experiment']}, lab / model"
            # Other tors are there to compare; their buckets lose a part of the rate.
            if row["tor"] == "ours":
                yield (what, "0.85..1.15", value, "-", *verdict(row["lab_to_model"], 0.85, 1.15))
            else:
                yield what, "-", value, "-", "holds"
    for error in found["errors"]:
        yield ("a part of the run", "no failure", " ".join(error.split())[:200], "-", *verdict(None, 0, 0))


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
readers = {"link": link, "mobile": mobile, "tortoise": tortoise, "measurer": measurer, "bench": bench, "truth": truth}
readers["distance"] = distance
rows = list(readers[sys.argv[1]](text))
if not rows:
    sys.exit("this output has no figures")
for cells in rows:
    print("figure: " + " | ".join(cell.replace("|", "/") for cell in cells))
