#!/usr/bin/env python3
# sockets_flood.py - a host of the wire sends tens of thousands a second of what harms: SYNs in the names of others, resets and acknowledgements of a
# connection that it does not see, fragments of packets that never become whole, datagrams for nobody. Whoever is honest beside it is served, and
# the network interface does not grow.
#
# Usage: sockets_flood.py UNETD SOCKETS_PEER          (77: no root, no network namespaces)
#        sockets_flood.py --peer ...                  what the kernel's side does, in its namespace
#        sockets_flood.py --flood KIND VERSION MAC N  sends until its input ends, and no fewer than N frames; says how many
import contextlib
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

from daemon import WAIT, directory, main, require, run
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, Lines, give_kernel, in_kernel
from sockets_linux import kernel_datagrams
from spaces import Host, Spaces, can_be_made
from tcp_linux import PORT, family, kernel_call

UNETD, SOCKETS_PEER = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) == 3 else ("", "")
FRAMES, DIFFERENT = 50_000, 4096
BURST, PAUSE = 256, 0.004  # tens of thousands a second
GROWTH = 32 << 20
CALLS, BYTES = 3, 20_000
SYN, RST, ACK = 2, 4, 16


# ---- who floods


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(v, source, protocol, payload, fragment=0):
    """`fragment`: the number of the packet of which this is the first; 0: it is whole."""
    here, there = (socket.inet_pton(socket.AF_INET6 if v == 6 else socket.AF_INET, each) for each in (source, OURS[v]))
    if v == 6:
        if fragment:
            payload, protocol = struct.pack("!BBHI", protocol, 0, 1, fragment) + payload, 44
        return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + here + there + payload
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), fragment & 0xFFFF, 0x2000 if fragment else 0, 64, protocol, 0) + here + there
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def summed(v, source, protocol, segment, at):
    """With its checksum."""
    here, there = (socket.inet_pton(socket.AF_INET6 if v == 6 else socket.AF_INET, each) for each in (source, OURS[v]))
    pseudo = here + there + (struct.pack("!II", len(segment), protocol) if v == 6 else struct.pack("!HH", protocol, len(segment)))
    return segment[:at] + struct.pack("!H", checksum(pseudo + segment)) + segment[at + 2:]


def segment(v, source, port, flags):
    numbers = random.randrange(1 << 32), random.randrange(1 << 32)
    return packet(v, source, 6, summed(v, source, 6, struct.pack("!HHIIBBHHH", port, PORT, *numbers, 5 << 4, flags, 60_000, 0, 0), 16))


def stranger(v):
    """An address of the kernel's network that nobody has, so that answers to it ask for neighbours in vain."""
    return OURS[v][:-1] + (f"{random.randrange(0x100, 0x10000):x}" if v == 6 else str(random.randrange(100, 250)))


def syn(v):
    return segment(v, stranger(v), random.randrange(1024, 65536), SYN)


def blind(v):
    """In the kernel's name, from any of its ports."""
    return segment(v, KERNELS[v], random.randrange(32768, 61000), random.choice((RST, RST | ACK, ACK, SYN)))


def fragment_of_nothing(v):
    return packet(v, stranger(v), 17, os.urandom(1000), random.randrange(1, 1 << 16))


def for_nobody(v):
    source = random.choice((stranger(v), KERNELS[v]))
    return packet(v, source, 17, summed(v, source, 17, struct.pack("!HHHH", 5353, random.randrange(2000, 30000), 108, 0) + bytes(100), 6))


KINDS = {"syn": syn, "blind": blind, "fragment": fragment_of_nothing, "nobody": for_nobody}


def flood(kind, v, mac, least):
    v, sent = int(v), 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind(("eth0", 0))
        ethernet = bytes.fromhex(mac.replace(":", "")) + raw.getsockname()[4] + struct.pack("!H", 0x86DD if v == 6 else 0x0800)
        frames = [ethernet + KINDS[kind](v) for _ in range(DIFFERENT)]
        print("floods", flush=True)
        while sent < int(least) or not select.select([sys.stdin], [], [], 0)[0]:
            for frame in frames[sent % DIFFERENT:][:BURST]:
                with contextlib.suppress(OSError):  # the wire is full
                    raw.send(frame)
            sent += BURST
            time.sleep(PAUSE)  # or the honest ones have no wire either
    print(sent, flush=True)


# ---- the kernel's side


def kernel_steady(address, count):
    """One connection, that says something again and again."""
    with socket.create_connection((address, PORT), timeout=WAIT) as stream:
        for i in range(int(count)):
            data = struct.pack("!I", i) * 100
            stream.sendall(data)
            came = b""
            while len(came) < len(data):
                part = stream.recv(len(data) - len(came))
                if not part:
                    return False
                came += part
            if came != data:
                return False
    return True


PEER = {"call": kernel_call, "datagrams": kernel_datagrams, "steady": kernel_steady}


# ---- the test


class Flooded:
    def __init__(self, spaces, d, host):
        self.spaces, self.host, self.env = spaces, host, os.environ | {"UNET_NI": f"unix:{d}/s"}

    def kernel(self, what, *args):
        right, err = in_kernel(self.spaces["b"], what, *args)
        require(right, f"{what} {args}: {err}")

    def memory(self):
        with open(f"/proc/{self.host.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS:"))

    def mac(self, v):
        """As the kernel knows us."""
        status, out, err = run("ip", "-n", self.spaces["b"], "neigh", "show", OURS[v])
        require(status == 0 and "lladdr" in out, f"the kernel does not know us: {out}{err}")
        return out.split("lladdr ")[1].split()[0]

    @contextlib.contextmanager
    def flood(self, kind, v):
        command = ["ip", "netns", "exec", self.spaces["b"], sys.executable, os.path.abspath(__file__), "--flood", kind, str(v), self.mac(v)]
        process = subprocess.Popen([*command, str(FRAMES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        lines = Lines(process.stdout)
        try:
            require(lines.next() == "floods", "who floods")
            yield
            process.stdin.close()
            sent = int(lines.next())
            require(sent >= FRAMES, f"only {sent} frames were sent")
        finally:
            process.kill()
            process.wait(WAIT)


@contextlib.contextmanager
def served():
    """An application with an echo, which the kernel has talked to."""
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, KERNELS)
        with Host(UNETD, spaces, "a", f"{d}/s", "pcap:iface=eth0", "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed") as host:
            it = Flooded(spaces, d, host)
            echo = subprocess.Popen([SOCKETS_PEER, "echo", str(PORT)], env=it.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            try:
                require(Lines(echo.stdout).next() == "ready", "the application")
                for v in VERSIONS:
                    it.kernel("call", OURS[v], BYTES, 1)
                yield it
                require(echo.poll() is None, "the application has ended")
            finally:
                echo.kill()
                echo.wait(WAIT)
            require(host.stop() == 0, "unetd did not end well")


def flooded(kind, honest):
    """`honest(it, version)`, during the flood and after it."""
    with served() as it:
        for v in VERSIONS:
            before = it.memory()
            with it.flood(kind, v):
                honest(it, v)
            grown = it.memory() - before
            require(grown < GROWTH, f"IPv{v}: unetd grew by {grown >> 20} MiB")
            honest(it, v)


def call_again_and_again(it, v):
    for _ in range(CALLS):
        it.kernel("call", OURS[v], BYTES, 4)


def test_syns_of_strangers():
    flooded("syn", call_again_and_again)


def test_blind_resets_and_acknowledgements():
    flooded("blind", lambda it, v: it.kernel("steady", OURS[v], 500))


def test_fragments_of_nothing():
    flooded("fragment", lambda it, v: it.kernel("datagrams", OURS[v], "1,1000,1400"))


def test_datagrams_for_nobody():
    flooded("nobody", call_again_and_again)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        print(PEER[sys.argv[2]](*sys.argv[3:]))
        sys.exit(0)
    if sys.argv[1:2] == ["--flood"]:
        flood(*sys.argv[2:])
        sys.exit(0)
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
