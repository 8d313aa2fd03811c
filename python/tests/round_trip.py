#!/usr/bin/env python3
# round_trip.py - the round trip of a message between two Python processes: U-Net beside multiprocessing.Pipe and sockets.
#
#   unet-run -- python3 python/tests/round_trip.py [--size BYTES] [--json]       prints microseconds: median and least of the slices
#
# The paths take turns in short slices, so that all of them meet the same disturbances of the machine.
import argparse
import json
import multiprocessing
import os
import socket
import statistics
import time

import unet

TRIPS = 500  # of a slice


class Channel:
    """By a channel. `spin`: None polls for 20 us, so both sides always poll, except while another path is measured; 0 sleeps at once."""

    def __init__(self, spin):
        self.spin = spin
        self.name = f"python-round-trip-{os.getpid()}-{spin}"

    def serve(self):
        with unet.Context() as context, context.endpoint() as endpoint:
            endpoint.bind(self.name)
            channel = endpoint.accept()
            while (data := endpoint.receive_bytes(None, self.spin)[1]) != b"end":
                channel.send(data)

    def start(self):
        self.context = unet.Context()
        self.endpoint = self.context.endpoint()
        self.channel = self.endpoint.connect(self.name, wait=10)

    def round_trip(self, data):
        self.channel.send(data)
        return self.endpoint.receive_bytes(None, self.spin)[1]

    def end(self):
        self.channel.send(b"end")


class Pipe:
    """By multiprocessing.Pipe, as bytes."""

    def __init__(self):
        self.here, self.there = multiprocessing.Pipe()

    def serve(self):
        while (data := self.there.recv_bytes()) != b"end":
            self.there.send_bytes(data)

    def start(self):
        pass

    def round_trip(self, data):
        self.here.send_bytes(data)
        return self.here.recv_bytes()

    def end(self):
        self.here.send_bytes(b"end")


class Socket:
    """By two sockets that are connected."""

    def __init__(self, family, size):
        self.size = size
        if family == socket.AF_UNIX:
            self.here, self.there = socket.socketpair(family, socket.SOCK_SEQPACKET)
            return
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.here = socket.create_connection(listener.getsockname())
            self.there = listener.accept()[0]
        for each in (self.here, self.there):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def serve(self):
        while data := self.there.recv(self.size, socket.MSG_WAITALL):
            self.there.sendall(data)

    def start(self):
        pass

    def round_trip(self, data):
        self.here.sendall(data)
        return self.here.recv(self.size, socket.MSG_WAITALL)

    def end(self):
        self.here.shutdown(socket.SHUT_WR)


def serve_on(core, path):
    os.sched_setaffinity(0, {core})
    path.serve()


def slice_of(path, data):
    """Microseconds of a round trip."""
    round_trip = path.round_trip
    for _ in range(20):
        round_trip(data)  # wakes the other side
    start = time.perf_counter_ns()
    for _ in range(TRIPS):
        round_trip(data)
    return (time.perf_counter_ns() - start) / TRIPS / 1000


def main():
    parser = argparse.ArgumentParser(description="Measures round trips between two Python processes.")
    parser.add_argument("--size", type=int, default=8, help="bytes of a message (8)")
    parser.add_argument("--slices", type=int, default=40, help="slices of each path (40)")
    parser.add_argument("--json", action="store_true", help="print records: path, size, median, least (microseconds)")
    arguments = parser.parse_args()
    paths = {"U-Net, polling": Channel(None), "U-Net, sleeping": Channel(0.0), "multiprocessing.Pipe": Pipe(),
             "Unix socket": Socket(socket.AF_UNIX, arguments.size), "TCP socket": Socket(socket.AF_INET, arguments.size)}
    processes = multiprocessing.get_context("fork")
    data = bytes(arguments.size)
    figures = {}
    cores = sorted(os.sched_getaffinity(0))  # a core for each side: the scheduler would put both on one at times
    os.sched_setaffinity(0, {cores[0]})
    for name, path in paths.items():
        path.process = processes.Process(target=serve_on, args=(cores[-1], path), daemon=True)
        path.process.start()
    for path in paths.values():
        path.start()
        assert path.round_trip(data) == data
    for _ in range(arguments.slices):
        for name, path in paths.items():
            figures.setdefault(name, []).append(slice_of(path, data))
    for path in paths.values():
        path.end()
        path.process.join()
    records = [{"path": name, "size": arguments.size, "median": round(statistics.median(all_), 2), "least": round(min(all_), 2)}
               for name, all_ in figures.items()]
    if arguments.json:
        print(json.dumps(records))
    else:
        print(f"round trip of {arguments.size} bytes, us{'median':>20}{'least':>10}")
        for record in records:
            print(f"{record['path']:<32}{record['median']:>12}{record['least']:>10}")


if __name__ == "__main__":
    main()
