"""What an ingest costs beside `xz -dc` of the same archives, in time and memory.

    ingest_cost.py FF_SIM CONSENSUS FOLDER [--hours 744] [--months 1] [--rounds 3]

CONSENSUS is a real one, plain or packed by xz. Months are made from it in FOLDER, as CollecTor packs them: each hour
one relay in twenty gets another descriptor, and one in five another weight. They stay there for the next time.
Times are the least of all rounds, which take turns; memory is the greatest resident set of the process.
"""

import argparse, base64, calendar, io, lzma, os, random, re, shutil, subprocess, tarfile, time


def relays_of(text):
    head, rest = text.split(b"\nr ", 1)
    body, foot = rest.split(b"\ndirectory-footer", 1)
    return head, [b"r " + part for part in body.split(b"\nr ")], b"\ndirectory-footer" + foot


def make(path, text, year, month, hours, seed):
    """Writes a month as one .tar.xz."""
    draw = random.Random(seed)
    head, relays, foot = relays_of(text)
    packer = subprocess.Popen(["xz", "--lzma2=preset=1,dict=8MiB", "-T1", "-c"], stdin=subprocess.PIPE, stdout=open(path + ".part", "wb"))
    archive = tarfile.open(fileobj=packer.stdin, mode="w|", format=tarfile.GNU_FORMAT)
    name = f"consensuses-{year}-{month:02}"
    for hour in range(hours):
        for index in draw.sample(range(len(relays)), len(relays) // 20):
            words = relays[index].split(b" ", 4)
            words[3] = base64.b64encode(draw.randbytes(20)).rstrip(b"=")
            relays[index] = b" ".join(words)
        for index in draw.sample(range(len(relays)), len(relays) // 5):
            factor = draw.uniform(0.9, 1.1)
            change = lambda found: b"w Bandwidth=%d" % (int(found[1]) * factor + 1)
            relays[index] = re.sub(rb"w Bandwidth=(\d+)", change, relays[index])
        day, clock = hour // 24 + 1, hour % 24
        stamp = f"{year}-{month:02}-{day:02} {clock:02}:00:00".encode()
        document = re.sub(rb"\nvalid-after [^\n]*", b"\nvalid-after " + stamp, head)
        document = b"@type network-status-consensus-3 1.0\n" + document + b"\n" + b"\n".join(relays) + foot
        entry = tarfile.TarInfo(f"{name}/{day:02}/{stamp.decode().replace(' ', '-').replace(':', '-')}-consensus")
        entry.size = len(document)
        archive.addfile(entry, io.BytesIO(document))
    archive.close()
    packer.stdin.close()
    assert packer.wait() == 0, "xz failed"
    os.rename(path + ".part", path)


def run(command, **options):
    """Seconds and MiB of a command."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, **options)
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, (command, status)
    return time.monotonic() - start, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime


def main():
    arguments = argparse.ArgumentParser()
    for name in ("ff_sim", "consensus", "folder"):
        arguments.add_argument(name)
    for name, default in (("--hours", 744), ("--months", 1), ("--rounds", 3)):
        arguments.add_argument(name, type=int, default=default)
    given = arguments.parse_args()
    raw = open(given.consensus, "rb").read()
    text = lzma.decompress(raw) if raw.startswith(b"\xfd7zXZ") else raw
    archives = os.path.join(given.folder, f"archives-{given.months}x{given.hours}")
    os.makedirs(archives, exist_ok=True)
    paths = []
    for month in range(1, given.months + 1):
        paths.append(os.path.join(archives, f"consensuses-2019-{month:02}.tar.xz"))
        hours = min(given.hours, calendar.monthrange(2019, month)[1] * 24)
        if not os.path.exists(paths[-1]):
            make(paths[-1], text, 2019, month, hours, month)
    store = os.path.join(given.folder, "store")
    unpack, ingest = [], []
    for _ in range(given.rounds):
        unpack.append(run(["xz", "-dc", *paths]))
        shutil.rmtree(store, ignore_errors=True)
        ingest.append(run([given.ff_sim, "ingest", "--collector", archives, "--store", store]))
    size = sum(map(os.path.getsize, paths)) / 1e6
    part = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(store) for name in names) / 1e6
    print(f"archives {size:.1f} MB, store {part:.1f} MB")
    for name, runs in (("xz -dc", unpack), ("ingest", ingest)):
        times = " ".join(f"{secs:.2f}" for secs, _, _ in runs)
        cpu = min(used for _, _, used in runs)
        print(f"{name}: {times} s, {cpu:.2f} s of CPU, {max(memory for _, memory, _ in runs):.1f} MiB")
    print(f"ratio {min(run[0] for run in ingest) / min(run[0] for run in unpack):.3f} (least of {given.rounds} each)")


main()
