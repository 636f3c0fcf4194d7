#!/usr/bin/python3
"""What many circuits at once cost, what ff-perf's own code costs beside Arti's, and whether memory stays as it is.

    load.py FF_PERF LAB [ROUNDS [COUNT]]

LAB is as compare.py has it. In turns COUNT circuits (2,000) are built 10 and 1,000 at a time by Arti; it prints medians of
CPU ms per circuit and their ratio. Then 60,000 circuits, of which it prints the resident memory when so many are kept; and, if
perf is there, the share of samples that are in functions of this project or in what only it uses (JSON).
"""

import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from compare import run, write_paths

OPTIONS = "--client arti --rtt 0 --share-builds --per-guard 100000 --rate 100000"
KEPT = 5_000, 10_000, 20_000, 60_000
OWN = re.compile(r"\bff_\w+::|serde_json|serde::|schedule::Scheduler")


def command(program, lab, paths, out, count, in_flight):
    numbers = ["--count", str(count), "--in-flight", str(in_flight)]
    return [program, "circuits", "run", "--network", lab, "--path-file", paths, "--out", out, *OPTIONS.split(), *numbers]


def kept(out):
    return sum(file.read_bytes().count(b"\n") for file in out.glob("circuits-*.jsonl"))


def resident_kb(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])


def at_once(words, folder, rounds, count):
    cpu_ms = {10: [], 1000: []}
    for number in range(rounds):
        for in_flight, values in cpu_ms.items():
            own, _, _ = run(command(*words, folder / f"{in_flight}-{number}", count, in_flight), None)
            values.append(own * 1000 / count)
    for in_flight, values in cpu_ms.items():
        few, many = min(values), max(values)
        print(f"{in_flight:5} at once: {statistics.median(values):.3f} ms a circuit  ({few:.3f} .. {many:.3f})")
    print(f"ratio {statistics.median(cpu_ms[1000]) / statistics.median(cpu_ms[10]):.3f}")


def memory(words, folder):
    out = folder / "memory"
    process = subprocess.Popen(command(*words, out, KEPT[-1] + 200, 100), stdout=subprocess.DEVNULL)
    for wanted in KEPT:
        while kept(out) < wanted:
            assert process.poll() is None, "ended before"
            time.sleep(0.05)
        print(f"{kept(out):6} circuits kept: VmRSS {resident_kb(process.pid)} kB")
    assert process.wait() == 0


def own_share(words, folder, count):
    data = folder / "perf.data"
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-o", data, "--"]
    subprocess.run([*record, *command(*words, folder / "own", count, 10)], check=True, capture_output=True)
    report = ["perf", "report", "-i", data, "--stdio", "--sort", "symbol", "--percent-limit", "0"]
    lines = subprocess.run(report, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^\s*([\d.]+)%\s+\[(.)\]\s+(.*)$", lines, re.MULTILINE)
    own = sum(float(percent) for percent, _, symbol in found if OWN.search(symbol))
    kernel = sum(float(percent) for percent, place, _ in found if place == "k")
    print(f"of samples {own:.2f} % in own functions, {kernel:.1f} % in the kernel for all")


def main():
    program, lab = sys.argv[1], pathlib.Path(sys.argv[2])
    rounds, count = [int(word) for word in [*sys.argv[3:], *["5", "2000"][len(sys.argv) - 3:]]]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        paths = folder / "paths"
        write_paths(lab, paths, count)
        words = program, lab, paths
        at_once(words, folder, rounds, count)
        memory(words, folder)
        own_share(words, folder, 10 * count)


main()
