"""What the analysis of a series of advertised capacities costs beside a numpy script that computes the same.

    analysis_cost.py FF_SIM SERIES FOLDER [--rounds 3]

SERIES is a table as `ff-sim analyse --advertised` takes it, packed by xz or not. Both take turns, each as a process of
its own that reads the file and writes a table of the network, one of the relays and one of the distributions (ours also
draws figures); times are the least of all rounds: those that pass, in which ours uses two cores and numpy one, and
those of CPUs. Their figures have to agree to 1e-9. Needs numpy.
"""

import argparse, csv, datetime, json, lzma, os, subprocess, sys, time

WINDOWS = (1, 7, 30)


def read(path):
    """Fingerprints, times and values; NaN where a relay is not listed."""
    import numpy as np

    times, names, rows = None, [], []
    with (lzma.open if path.endswith(".xz") else open)(path, "rt") as lines:
        for line in lines:
            first, *cells = line.rstrip("\n").split(",")
            if line.startswith("#"):
                continue
            if len(first) != 40:
                times = times if times is not None else np.array([datetime.datetime.fromisoformat(cell + "+00:00").timestamp() for cell in cells])
                continue
            row, last = np.full(len(times), np.nan), np.nan
            for index, cell in enumerate(cells):
                if cell:
                    last = last if cell == "=" else float(cell)
                    row[index] = last
            names.append(first)
            rows.append(row)
    return names, times, np.array(rows)


def write(path, header, rows):
    """Writes a table; what is not known is blank."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(["" if value != value else value for value in row] for row in rows)


def analyse(path, folder):
    """Eq. 1 to 3 and 7 with numpy: for each window the network's mean error, the relays' median error and deviation."""
    import numpy as np

    np.seterr(all="ignore")
    names, times, advertised = read(path)
    listed = ~np.isnan(advertised)
    filled, found, of_network, of_relays = np.where(listed, advertised, 0.0), [], [], []
    counts, most, distributions = listed.sum(1).tolist(), filled.max(1).tolist(), []
    for days in WINDOWS:
        capacity, deviation = np.full_like(advertised, np.nan), np.full_like(advertised, np.nan)
        for at, now_secs in enumerate(times):
            first = np.searchsorted(times, now_secs - days * 86400, side="right")
            values, there = filled[:, first : at + 1], listed[:, first : at + 1]
            count = there.sum(1)
            mean = values.sum(1) / count
            spread = np.sqrt((np.where(there, values - mean[:, None], 0) ** 2).sum(1) / count)
            now = listed[:, at]
            capacity[now, at], deviation[now, at] = values.max(1)[now], (spread / mean)[now]
        sums = np.nansum(advertised, 0), np.nansum(capacity, 0)
        network = 1 - sums[0] / sums[1]
        means = [np.nanmean(all, 1) for all in (1 - advertised / capacity, deviation)]
        found.append([float(np.mean(network)), *(float(np.nanmedian(mean[listed.any(1)])) for mean in means)])
        secs = [days * 86400]
        of_network += zip(times.tolist(), secs * len(times), listed.sum(0).tolist(), *(all.tolist() for all in (*sums, network)))
        named = ("fig1,capacity_error,relays", means[0][listed.any(1)]), ("fig10a,advertised_deviation,relays", means[1][listed.any(1)]), ("fig2,capacity_error,times", network)
        for name, values in named:
            values, counted = np.unique(values[~np.isnan(values)], return_counts=True)
            distributions += ((*name.split(","), *secs, *point) for point in zip(values.tolist(), (counted.cumsum() / counted.sum()).tolist()))
        of_relays += zip(names, secs * len(names), counts, most, *(mean.tolist() for mean in means))
    write(os.path.join(folder, "network.csv"), ("unix_secs", "window_secs", "relays", "advertised_bytes_per_sec", "capacity_bytes_per_sec", "capacity_error_part"), of_network)
    write(os.path.join(folder, "relays.csv"), ("fingerprint", "window_secs", "listed_times", "most_advertised_bytes_per_sec", "capacity_error_part", "advertised_deviation_ratio"), of_relays)
    write(os.path.join(folder, "cdf.csv"), ("figure", "quantity", "of", "window_secs", "value", "no_greater_part"), distributions)
    return found


def timed(command):
    """How long a command takes in seconds, those of CPUs, and what it prints."""
    begin = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    printed = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, (command, status)
    return (time.monotonic() - begin, usage.ru_utime + usage.ru_stime), printed


def main():
    arguments = argparse.ArgumentParser()
    for name in ("ff_sim", "series", "folder"):
        arguments.add_argument(name)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    out = os.path.join(given.folder, "analysis")
    ours = [given.ff_sim, "analyse", "--advertised", given.series, "--windows", ",".join(f"{days}d" for days in WINDOWS), "--out", out]
    theirs = [sys.executable, __file__, "--numpy", given.series, given.folder]
    times = {"numpy": [], "ff-sim": []}
    for _ in range(given.rounds):
        secs, printed = timed(theirs)
        times["numpy"].append(secs)
        times["ff-sim"].append(timed(ours)[0])
    with open(os.path.join(out, "summary.json")) as file:
        windows = json.load(file)["results"]["windows"]
    for days, expected, window in zip(WINDOWS, json.loads(printed), windows):
        found = [window["network_capacity_error"]["mean"], window["relay_capacity_error"]["median"], window["advertised_deviation"]["median"]]
        print(f"{days} d:", *(f"{value:.12f}" for value in found))
        assert all(abs(one - other) < 1e-9 for one, other in zip(expected, found)), (expected, found)
    for kind, unit in enumerate(("s", "s of CPU")):
        secs = {name: [both[kind] for both in rounds] for name, rounds in times.items()}
        for name, values in secs.items():
            print(f"{name}:", *(f"{value:.2f}" for value in values), unit)
        print(f"ratio {min(secs['numpy']) / min(secs['ff-sim']):.1f}")


if sys.argv[1:2] == ["--numpy"]:
    print(json.dumps(analyse(*sys.argv[2:])))
else:
    main()
