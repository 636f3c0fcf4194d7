#!/usr/bin/python3
"""CPU time per circuit: Arti in ff-perf, tor driven by ff-perf, tor driven by stem; in turns, through the same paths.

    compare.py FF_PERF LAB [ROUNDS [COUNT [IN_FLIGHT]]]

LAB is the directory of a private network of ff-lab's with a client `client0`; python3-stem has to be there. It prints
CPU ms per circuit of each part, and the ratios, each the median of the rounds'. The relays' CPU time is not in it.
"""

import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def tor_cpu_secs(pid):
    if pid is None:
        return 0
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_paths(lab, path, count):
    relays = {"middle": [], "exit": []}
    for node in sorted(lab.iterdir()):
        fingerprint = node / "fingerprint"
        kind = node.name.rstrip("0123456789")
        if kind in relays and fingerprint.exists():
            relays[kind].append(fingerprint.read_text().split()[1])
    draw = random.Random(1)
    lines = []
    while len(lines) < count:
        line = [*draw.sample(relays["middle"], 2), draw.choice(relays["exit"])]
        lines.append(",".join(line))
    path.write_text("\n".join(lines) + "\n")


def run(command, tor_pid):
    before, tor = os.times(), tor_cpu_secs(tor_pid)
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = os.times()
    own = after.children_user + after.children_system - before.children_user - before.children_system
    return own, tor_cpu_secs(tor_pid) - tor, output


def main():
    ff_perf, lab = sys.argv[1], pathlib.Path(sys.argv[2])
    rounds, count, in_flight = [int(word) for word in [*sys.argv[3:], *["5", "1000", "10"][len(sys.argv) - 3:]]]
    socket = lab / "client0" / "control"
    pids = [pid for pid in os.listdir("/proc") if pid.isdigit()]
    argument = f"{lab}/client0/torrc".encode()
    pid = next(pid for pid in pids if argument in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    cpu_ms = {"arti": [], "tor by ff-perf": [], "ff-perf for tor": [], "tor and stem": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        paths = folder / "paths"
        write_paths(lab, paths, count)
        for number in range(rounds):
            for client in "arti", "tor":
                options = f"--network {lab} --client {client} --count {count} --in-flight {in_flight} --rtt 0 --json"
                options += f" --share-builds --per-guard 100000 --rate 100000 --path-file {paths}"
                command = [ff_perf, "circuits", "run", *options.split(), "--out", folder / f"{client}{number}"]
                own, tor, output = run(command, pid)
                assert json.loads(output)["built"] == count, output
                if client == "arti":
                    cpu_ms["arti"].append(own * 1000 / count)
                else:
                    cpu_ms["tor by ff-perf"].append(tor * 1000 / count)
                    cpu_ms["ff-perf for tor"].append(own * 1000 / count)
            stem = [HERE / "stem_baseline.py", socket, paths, str(count), str(in_flight)]
            own, tor, output = run(stem, pid)
            assert output.split() == [str(count), "0"], output
            cpu_ms["tor and stem"].append((own + tor) * 1000 / count)
    for name, values in cpu_ms.items():
        print(f"{name:16} {statistics.median(values):7.3f} ms a circuit  ({min(values):.3f} .. {max(values):.3f})")
    for one, other in ("arti", "tor and stem"), ("arti", "tor by ff-perf"), ("ff-perf for tor", "tor by ff-perf"):
        # Of one round each: a machine that is slower for a while is so for both.
        ratios = [a / b for a, b in zip(cpu_ms[one], cpu_ms[other])]
        name = f"{one} / ({other})"
        print(f"{name:34}  {statistics.median(ratios):.3f}  ({min(ratios):.3f} .. {max(ratios):.3f})")


if __name__ == "__main__":
    main()
