#!/usr/bin/python3
"""Prints `FINGERPRINT BW` for each relay of a bandwidth file, as stem reads it.

usage: read_v3bw.py FILE      (Debian: apt-get install python3-stem)
"""

import sys

from stem.descriptor.bandwidth_file import BandwidthFile

with open(sys.argv[1], "rb") as file:
    document = BandwidthFile.from_str(file.read().decode("utf-8"))
for fingerprint, line in document.measurements.items():
    print(fingerprint, line["bw"])
