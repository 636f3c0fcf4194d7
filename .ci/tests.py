"""Builds the tests and runs their programs, some at once; .ci/test calls it.

    tests.py [ARGUMENTS OF cargo test] [-- ARGUMENTS OF THE TESTS]

`cargo test` runs one program after the other, and most of what is tested here waits. What each program says is shown when
it has ended; then come the slowest tests, and one line that sums up. FF_TEST_PROGRAMS says how many run at once. With
FF_NO_BUILD=1 those run that were built last for all the workspace, of which --lib and --test NAME choose.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

AT_ONCE = int(os.environ.get("FF_TEST_PROGRAMS", "3"))
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
PANIC = re.compile(r"^thread '.*' (?:\(\d+\) )?panicked at .*\n(?:.+\n){0,12}", re.M)
TIMED = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. ok <([0-9.]+)s>$", re.M)


TARGET = os.environ.get("CARGO_TARGET_DIR", "target")
BUILT = os.path.join(TARGET, "test-programs.json")


def chosen(arguments):
    """Those of the programs built last that --lib and --test NAME choose."""
    with open(BUILT, encoding="utf-8") as file:
        built = json.load(file)
    tests = {name for option, name in zip(arguments, arguments[1:]) if option == "--test"}
    for name, file, folder in built:
        _, kind, target = name.split(" ")
        if kind == "lib" and "--lib" in arguments or kind == "test" and target in tests:
            yield name, file, folder


def programs(arguments):
    """The programs that cargo has built for these arguments: what each is called, its file and its package's folder."""
    command = ["cargo", "test", "--locked", "--release", "--no-run", "--message-format=json-render-diagnostics"]
    # Cargo passes over a package that is named beside all of them.
    if not any(argument.startswith(("-p", "--package")) for argument in arguments):
        command.append("--workspace")
    command += arguments
    cargo = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if cargo.returncode:
        sys.exit(cargo.returncode)
    for line in cargo.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            folder = os.path.dirname(message["manifest_path"])
            target = message["target"]
            name = f"{os.path.basename(folder)} {target['kind'][0]} {target['name']}"
            yield name, message["executable"], folder


RUNNING = set()


def run(program, arguments, is_alone):
    """Runs a program to its end: whether it has passed, what it said, how long it took."""
    name, file, folder = program
    begin = time.monotonic()
    # The times of tests are there in stable Rust, and not offered yet.
    environment = dict(os.environ, CARGO_MANIFEST_DIR=folder, RUSTC_BOOTSTRAP="1")
    command = [file, *arguments, "-Zunstable-options", "--report-time"]
    # A file and not a pipe: a process that a test has forgotten would keep a pipe open.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=None if is_alone else output, stderr=None if is_alone else subprocess.STDOUT)
        RUNNING.add(process)
        status = process.wait()
        RUNNING.discard(process)
        output.seek(0)
        return name, status, output.read().decode(errors="replace"), time.monotonic() - begin


def main():
    """Builds, runs and sums up; the exit status is 0 if all tests have passed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    begin = time.monotonic()
    filters = [one for one, before in zip(arguments[:at], ["-", *arguments]) if one[0] != "-" and before[0] != "-"]
    if filters or at and arguments[0][0] != "-":
        sys.exit(f"what tests are to be called goes behind --: {' '.join(filters or arguments[:1])}")
    if os.environ.get("FF_NO_BUILD") == "1":
        found = list(chosen(arguments[:at]))
    else:
        found = list(programs(arguments[:at]))
    if not found:
        sys.exit("there are no such programs of tests")
    if not arguments[:at]:
        with open(BUILT, "w", encoding="utf-8") as file:
            json.dump(found, file)
    built = time.monotonic()
    print(f"{len(found)} programs of tests, built in {built - begin:.0f} s", flush=True)
    counts, times, failed, took = [0, 0, 0], [], [], []
    remembered = os.path.join(TARGET, "test-times.json")
    try:
        with open(remembered, encoding="utf-8") as file:
            before = json.load(file)
    except (OSError, ValueError):
        before = {}
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        # The longest first, by the last time; of others, programs that start what they test take longest.
        found.sort(key=lambda one: -before.get(one[0], 0 if " lib " in one[0] else 60))
        runs = [pool.submit(run, one, arguments[at + 1:], len(found) == 1) for one in found]
        for ended in as_completed(runs):
            name, status, text, seconds = ended.result()
            print(f"\n     Running {name}\n{text}", flush=True)
            took.append((seconds, name))
            if status:
                failed.append(f"{name} (exit status {status})")
                # Here once more: a reader of the last lines sees why.
                failed += [panic[:2000] for panic in PANIC.findall(text)[-5:]]
            # What it has started may have said the same before.
            for result in RESULT.findall(text)[-1:]:
                counts = [one + int(more) for one, more in zip(counts, result)]
            times += [(float(seconds), f"{name}: {test}") for test, seconds in TIMED.findall(text)]
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(RUNNING):
            process.terminate()
        sys.exit("ended before its time")
    with open(remembered, "w", encoding="utf-8") as file:
        json.dump(before | {name: round(seconds) for seconds, name in took}, file)
    for title, rows in ("programs", took), ("the ten slowest tests", times):
        print(f"\nseconds  {title}")
        for seconds, name in sorted(rows, reverse=True)[:10]:
            print(f"{seconds:7.1f}  {name}")
    print(f"\nbuilt in {built - begin:.0f} s, tested in {time.monotonic() - built:.0f} s")
    for line in failed:
        print(f"FAILED: {line}")
    # A program alone has said it itself.
    if len(found) != 1:
        print("{} passed, {} failed, {} skipped".format(*counts))
    sys.exit(1 if failed else 0)


main()
