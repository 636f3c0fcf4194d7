#!/usr/bin/python3
"""Checks a bandwidth file with stem, a reader that is not ours.

usage: check_v3bw.py FILE      (Debian: apt-get install python3-stem)

Prints a line and exits with 0 if the file is what stem and bandwidth-file-spec expect.
"""

import calendar
import sys

import stem
from stem.descriptor.bandwidth_file import BandwidthFile

INTEGER_KEYS = {
    "bw", "bw_mean", "bw_median", "consensus_bandwidth", "desc_bw_avg", "desc_bw_bur",
    "desc_bw_obs_last", "error_misc", "rtt", "success", "under_min_report", "vote",
    "relay_recent_measurement_attempt_count",
}
DATES = ("earliest_bandwidth", "latest_bandwidth", "created_at", "generated_at")
COUNTS = ("consensus_size", "eligible_count", "eligible_percent", "min_count", "min_percent")


def problems(document):
    """Yields what is wrong with a parsed file."""
    if document.software != "flashflow" or not document.software_version:
        yield f"made by {document.software} {document.software_version}"
    for name in DATES + COUNTS:
        if getattr(document, name) is None:
            yield f"no {name} that stem could read"
    if calendar.timegm(document.latest_bandwidth.timetuple()) != calendar.timegm(
        document.timestamp.timetuple()
    ):
        yield "latest_bandwidth is not the timestamp"
    measured = [line for line in document.measurements.values() if line.get("unmeasured") != "1"]
    if document.eligible_count != len(measured):
        yield f"{len(measured)} relays, but {document.eligible_count} eligible ones"
    for fingerprint, line in document.measurements.items():
        for key in INTEGER_KEYS & line.keys():
            if not line[key].isdigit():
                yield f"{fingerprint}: {key} is {line[key]}"
        if int(line["bw"]) < 1:
            yield f"{fingerprint}: bw is {line['bw']}"
        if len(line["master_key_ed25519"]) != 43:
            yield f"{fingerprint}: master_key_ed25519 is {line['master_key_ed25519']}"
    under_minimum = document.eligible_count < document.min_count
    withheld = [line for line in measured if line.get("vote") == "0"]
    if len(withheld) != (len(measured) if under_minimum else 0):
        yield f"{len(withheld)} relays are withheld"


def main():
    """Checks the file named on the command line."""
    with open(sys.argv[1], "rb") as file:
        document = BandwidthFile(file.read(), validate=True)
    found = list(problems(document))
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"stem {stem.__version__}: {len(document.measurements)} relays, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
