#!/usr/bin/python3
"""Builds circuits through given paths with tor and stem, so many at once, and closes each when it stands.

    stem_baseline.py SOCKET PATHS COUNT IN_FLIGHT

What ff-perf's clients are compared with by compare.py. It prints how many were built and how many failed.
"""

import queue
import sys

import stem
from stem.control import Controller, EventType


def main():
    socket, paths, count, in_flight = sys.argv[1:]
    count, in_flight = int(count), int(in_flight)
    with open(paths, encoding="ascii") as file:
        paths = [line.split(",") for line in file.read().split()]
    with Controller.from_socket_file(socket) as control:
        control.authenticate()
        ended = queue.Queue()

        def on_circuit(event):
            if event.status in (stem.CircStatus.BUILT, stem.CircStatus.FAILED):
                ended.put((event.id, event.status))

        control.add_event_listener(on_circuit, EventType.CIRC)
        # The same as ff-perf sets.
        options = {"__DisablePredictedCircuits": "1", "LearnCircuitBuildTimeout": "0", "CircuitBuildTimeout": "600"}
        control.set_options(options)
        ours, begun, built, failed = set(), 0, 0, 0
        while built + failed < count:
            while begun < count and len(ours) < in_flight:
                ours.add(control.extend_circuit("0", paths[begun % len(paths)], await_build=False))
                begun += 1
            circuit, status = ended.get(timeout=60)
            if circuit not in ours:
                continue
            ours.remove(circuit)
            if status == stem.CircStatus.BUILT:
                built += 1
                control.close_circuit(circuit)
            else:
                failed += 1
        control.reset_conf(*options)
        print(built, failed)


main()
