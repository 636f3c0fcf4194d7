#!/usr/bin/env python3
"""Eq. 1-7 of the paper the plain way, for tests of ff-sim's analysis to compare with.

    analysis_reference.py ADVERTISED.csv[.xz] 1d,7d,30d STEP_HOURS LEAST_SHARE [WEIGHTS.csv[.xz]] > FIGURES.csv

It shares nothing with the Rust but the definitions in analysis.rs: windows are (t - p, t], relays count at the times at
which they are listed, means of relays leave out windows of which data cover less than LEAST_SHARE. Tables have to be
good ones. Standard library only.

Lines: "network", time, window, share, sum of capacities, NCE, NWE;
       "relay", fingerprint, window, times of RCE, means of RCE, RSD(A), RWE, RSD(W). A blank is none.
"""

import bisect
import datetime
import itertools
import lzma
import math
import sys


def read(path, number):
    """The times of a table, and for each relay {index of a time: value}."""
    opened = lzma.open(path, "rt") if path.endswith(".xz") else open(path)
    times, relays = None, {}
    with opened as lines:
        for line in lines:
            if line.startswith("#"):
                continue
            first, *cells = line.strip("\n").split(",")
            if len(first) != 40:
                if times is None:
                    utc = (datetime.datetime.fromisoformat(cell + "+00:00") for cell in cells)
                    times = [int(one.timestamp()) for one in utc]
                continue
            row, last = {}, None
            for index, cell in enumerate(cells):
                if cell:
                    last = last if cell == "=" else number(cell)
                    row[index] = last
            relays[first] = row
    return times, relays


def shares(times, length, step):
    """Which part of the window before each time data cover."""
    covered = [(max(a, b - step), b) for a, b in zip(times, times[1:])]
    return [
        sum(max(0, min(end, t) - max(begin, t - length)) for begin, end in covered) / length
        for t in times
    ]


def deviation(values):
    """The deviation of all values in parts of their mean; nothing if all are 0."""
    mean = math.fsum(values) / len(values)
    if mean == 0:
        return None
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)) / mean


def windowed(row, times, length):
    """For each time at which a relay is listed: the index, and where its values in the window begin and end."""
    indexes = sorted(row)
    listed = [times[index] for index in indexes]
    for place, index in enumerate(indexes):
        yield index, bisect.bisect_right(listed, times[index] - length), place + 1


def analyse(times, relays, weights, totals, name, length, step, least):
    """Prints all figures of one window."""
    share = shares(times, length, step)
    with_weights = [index for index, total in enumerate(totals) if total]
    share_of_weights = shares([times[index] for index in with_weights], length, step)
    share_of_weights = dict(zip(with_weights, share_of_weights))
    capacities, rce, rsd, rsdw = {}, {}, {}, {}
    sum_a, sum_c = [0] * len(times), [0] * len(times)
    sum_w, sum_wc = [0.0] * len(times), [0] * len(times)
    for relay, row in relays.items():
        values = [row[index] for index in sorted(row)]
        sums = [0, *itertools.accumulate(values)]
        squares = [0, *itertools.accumulate(value * value for value in values)]
        capacity, errors, deviations = {}, [], []
        for index, begin, end in windowed(row, times, length):
            most = capacity[index] = max(values[begin:end])
            sum_a[index] += row[index]
            sum_c[index] += most
            if most and relay in weights and index in weights[relay]:
                sum_w[index] += weights[relay][index]
                sum_wc[index] += most
            if most and share[index] >= least:
                errors.append(1 - row[index] / most)
                n, total = end - begin, sums[end] - sums[begin]
                spread = n * (squares[end] - squares[begin]) - total * total
                deviations.append(math.sqrt(spread) / total)
        capacities[relay], rce[relay], rsd[relay] = capacity, errors, deviations
    distance, rwe = [0.0] * len(times), {}
    for relay, row in weights.items():
        ratios, deviations = [], []
        for index, weight in row.items():
            most = capacities.get(relay, {}).get(index)
            if most and sum_w[index]:
                part, fair = weight / sum_w[index], most / sum_wc[index]
                distance[index] += abs(part - fair)
                if share[index] >= least:
                    ratios.append(part / fair)
        values = [row[index] / totals[index] for index in sorted(row) if totals[index]]
        for index, begin, end in windowed({i: w for i, w in row.items() if totals[i]}, times, length):
            is_enough = share_of_weights[index] >= least
            found = deviation(values[begin:end]) if is_enough else None
            if found is not None:
                deviations.append(found)
        rwe[relay], rsdw[relay] = ratios, deviations
    for index, time in enumerate(times):
        nce = 1 - sum_a[index] / sum_c[index] if sum_c[index] else None
        nwe = distance[index] / 2 if sum_w[index] else None
        line("network", time, name, share[index], sum_c[index], nce, nwe)
    for relay in sorted(set(relays) | set(weights)):
        means = [mean(of.get(relay)) for of in (rce, rsd, rwe, rsdw)]
        line("relay", relay, name, len(rce.get(relay, ())), *means)


def mean(values):
    """Their mean; nothing of none."""
    return math.fsum(values) / len(values) if values else None


def line(*cells):
    """Prints a line."""
    print(",".join("" if cell is None else str(cell) for cell in cells))


def main(advertised, windows, step, least, weights=None):
    """Prints all figures."""
    times, relays = read(advertised, int)
    at = {time: index for index, time in enumerate(times)}
    weighted, totals = {}, [0.0] * len(times)
    if weights:
        other_times, rows = read(weights, float)
        for relay, row in rows.items():
            joined = {at[other_times[i]]: w for i, w in row.items() if other_times[i] in at}
            weighted[relay] = joined
            for index, weight in joined.items():
                totals[index] += weight
    for window in windows.split(","):
        length = int(window[:-1]) * {"d": 86400, "h": 3600}[window[-1]]
        secs = int(float(step) * 3600)
        analyse(times, relays, weighted, totals, window, length, secs, float(least))


main(*sys.argv[1:])
