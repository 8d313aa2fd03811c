#!/usr/bin/env python3
# tcp_linux.py - TCP of ipstack and of Linux's kernel on one wire, in both roles: streams compared byte by byte, all ways to end, many
# connections at once, lost frames. tshark checks the captures.
#
# Usage: tcp_linux.py TCP_HOST    (77: no root, no network namespaces)
#        tcp_linux.py --peer ...  the kernel's side, in its namespace
import contextlib
import hashlib
import os
import resource
import socket
import struct
import subprocess
import sys
import threading

from daemon import WAIT, beside, directory, main, require
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, Lines, give_kernel, in_kernel, looks_right
from spaces import Spaces, can_be_made

TCP_HOST = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
PORT = 7
LONG = 3_000_000
PART = 1 << 20


# ---- the kernel's side


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def allow_files(count):
    """Allows that many descriptors besides the open ones."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 1024 + count), most))


def kernel_call(address, size, count):
    """Opens connections at once; on each, `size` bytes are sent and come back."""
    size, results = int(size), []
    allow_files(2 * int(count))
    all_open = threading.Barrier(int(count), timeout=WAIT)

    def talk(number):
        with socket.create_connection((address, PORT), timeout=WAIT) as stream:
            all_open.wait()
            went, came = hashlib.sha256(), hashlib.sha256()
            def write():
                for at in range(0, size, PART):
                    data = hashlib.shake_128(f"{number} {at}".encode()).digest(min(PART, size - at))
                    went.update(data)
                    stream.sendall(data)
                stream.shutdown(socket.SHUT_WR)
            writer = threading.Thread(target=write)
            writer.start()
            while part := stream.recv(1 << 16):
                came.update(part)
            writer.join()
        results.append(came.digest() == went.digest())

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(int(count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results == [True] * int(count)


def kernel_echo(address, count):
    """Echoes on that many connections, as soon as all are open."""
    allow_files(2 * int(count))
    with socket.create_server((address, PORT), family=family(address), backlog=int(count)) as server:
        server.settimeout(WAIT)
        print("listening", flush=True)

        def talk(stream):
            with stream:
                while part := stream.recv(1 << 16):
                    stream.sendall(part)

        streams = [server.accept()[0] for _ in range(int(count))]
        threads = [threading.Thread(target=talk, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return True


def kernel_refused(address, port):
    try:
        socket.create_connection((address, int(port)), timeout=WAIT).close()
    except ConnectionRefusedError:
        return True
    return False


def kernel_resets(address):
    """Resets a connection with data in flight in both directions."""
    stream = socket.create_connection((address, PORT), timeout=WAIT)
    stream.sendall(bytes(100_000))
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()
    return True


def kernel_pauses(address):
    """Does not read for a while: the window closes, is probed, and opens again."""
    data = os.urandom(2_000_000)
    with socket.socket(family(address), socket.SOCK_STREAM) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
        stream.settimeout(WAIT)
        stream.connect((address, PORT))
        writer = threading.Thread(target=lambda: (stream.sendall(data), stream.shutdown(socket.SHUT_WR)))
        writer.start()
        threading.Event().wait(3)
        came = b""
        while part := stream.recv(1 << 16):
            came += part
        writer.join()
    return came == data


PEER = {"call": kernel_call, "echo": kernel_echo, "refused": kernel_refused, "resets": kernel_resets, "pauses": kernel_pauses}


# ---- the test


@contextlib.contextmanager
def wire():
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, KERNELS)
        yield spaces, f"{d}/wire.pcap"
        looks_right(f"{d}/wire.pcap")  # written by the last tcp_host


class OurTcp:
    """The program tcp_host, and its output."""

    def __init__(self, spaces, capture, *what, loss=0):
        command = ["ip", "netns", "exec", spaces["a"], TCP_HOST, "eth0", capture, str(loss), "1", *OUR_ADDRESSES, "--", *map(str, what)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.line = Lines(self.process.stdout).next
        require(self.line() == "ready", "it did not begin")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(WAIT)

    def stop(self):
        self.process.stdin.close()
        require(self.process.wait(WAIT) == 0, "it did not end well")


def call_ours(spaces, capture, size, count=1, loss=0):
    with OurTcp(spaces, capture, "echo", PORT, loss=loss) as ours:
        for v in VERSIONS:
            right, err = in_kernel(spaces["b"], "call", OURS[v], size, count)
            require(right, f"{count} x {size} bytes of the kernel's to {OURS[v]} and back: {err}")
            for _ in range(count):
                require(ours.line() == f"closed {size}", "the end of a connection")
        ours.stop()


def call_kernel(spaces, capture, size, count=1, loss=0):
    for v in VERSIONS:
        peer = subprocess.Popen(["ip", "netns", "exec", spaces["b"], sys.executable, os.path.abspath(__file__), "--peer", "echo",
                                 KERNELS[v], str(count)], stdout=subprocess.PIPE, text=True)
        try:
            require(peer.stdout.readline().strip() == "listening", "the kernel's side")
            with OurTcp(spaces, capture, "call", KERNELS[v], PORT, size, count, loss=loss) as ours:
                answer = ours.line()
                require(answer == "done", f"{count} x {size} bytes of ours to {KERNELS[v]} and back: {answer}")
        finally:
            peer.kill()
            peer.wait(WAIT)


def test_streams_of_the_kernel():
    with wire() as (spaces, capture):
        for size in (0, 1, 1448, 1449, LONG):
            call_ours(spaces, capture, size)
            looks_right(capture)


def test_streams_of_ours():
    with wire() as (spaces, capture):
        for size in (0, 1, 1448, 1449, LONG):
            call_kernel(spaces, capture, size)
            looks_right(capture)


def test_many_at_once():
    with wire() as (spaces, capture):
        call_ours(spaces, capture, 20_000, 100)
        call_kernel(spaces, capture, 20_000, 100)


@beside
def test_frames_that_are_lost():
    with wire() as (spaces, capture):
        call_ours(spaces, capture, 500_000, loss=0.02)
        call_kernel(spaces, capture, 500_000, loss=0.02)


@beside
def test_ports_of_nobody():
    with wire() as (spaces, capture):
        with OurTcp(spaces, capture, "echo", PORT) as ours:
            for v in VERSIONS:
                right, err = in_kernel(spaces["b"], "refused", OURS[v], PORT + 1)
                require(right, f"a port of nobody's: {err}")
            ours.stop()
        for v in VERSIONS:
            with OurTcp(spaces, capture, "call", KERNELS[v], PORT, 10, 1) as ours:
                require(ours.line() == "refused after 0 bytes", "the kernel has nobody there")


@beside
def test_a_reset():
    with wire() as (spaces, capture):
        with OurTcp(spaces, capture, "echo", PORT) as ours:
            for v in VERSIONS:
                right, err = in_kernel(spaces["b"], "resets", OURS[v])
                require(right and ours.line() == "reset", f"a connection that the kernel resets: {err}")
                right, err = in_kernel(spaces["b"], "call", OURS[v], 1000, 1)
                require(right and ours.line() == "closed 1000", f"after it: {err}")
            ours.stop()


@beside
def test_a_reader_that_pauses():
    with wire() as (spaces, capture):
        with OurTcp(spaces, capture, "echo", PORT) as ours:
            for v in VERSIONS:
                right, err = in_kernel(spaces["b"], "pauses", OURS[v])
                require(right and ours.line() == "closed 2000000", f"a reader that pauses: {err}")
            ours.stop()


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        print(PEER[sys.argv[2]](*sys.argv[3:]))
        sys.exit(0)
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
