#!/usr/bin/env python3
# sockets_flood.py - a host on the wire floods: SYNs with spoofed sources, blind resets and ACKs for a connection, fragments of incomplete
# packets, datagrams to unused ports. Honest traffic beside it is served, the NI does not grow, and every drop has a counter. tshark checks
# what the NI sends.
#
# Usage: sockets_flood.py UNETD UNETCTL SOCKETS_PEER  (77: no root, no network namespaces)
#        sockets_flood.py --peer ...                  the kernel's side, in its namespace
#        sockets_flood.py --flood KIND VERSION MAC    sends FRAMES, goes on until its input ends, and says how many
import collections
import contextlib
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

from daemon import WAIT, directory, main, require, run, wait_until
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, Lines, give_kernel, heard, in_kernel, looks_right
from sockets_linux import kernel_datagrams
from spaces import Host, Spaces, can_be_made
from tcp_linux import PORT, kernel_call

UNETD, UNETCTL, SOCKETS_PEER = map(os.path.abspath, sys.argv[1:4]) if len(sys.argv) == 4 else ("", "", "")
FRAMES, DIFFERENT = 100_000, 4096
SEEN = 30_000  # frames of ours that tshark checks: all would take longer than the test
BURST, PAUSE, SLOWER, SLOWEST = 256, 0.004, 5, 64  # frames, seconds, seconds, and a factor
STEADY_PORT = 30_000  # of the connection under attack; below the ports that the kernel gives to others
GROWTH = 32 << 20
CALLS, BYTES, ROUNDS = 3, 20_000, 50
SYN, RST, ACK = 2, 4, 16


# ---- the flooding host


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(v, source, protocol, payload, fragment=0):
    """`fragment`: the identification of the packet of which this is the first fragment; 0: a whole packet."""
    here, there = (socket.inet_pton(socket.AF_INET6 if v == 6 else socket.AF_INET, each) for each in (source, OURS[v]))
    if v == 6:
        if fragment:
            payload, protocol = struct.pack("!BBHI", protocol, 0, 1, fragment) + payload, 44
        return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + here + there + payload
    more = 0x2000 if fragment else 0
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), fragment, more, 64, protocol, 0) + here + there
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
    """An unused address of the kernel's network: answers to it need address resolution, in vain."""
    return OURS[v][:-1] + (f"{random.randrange(0x100, 0x10000):x}" if v == 6 else str(random.randrange(100, 250)))


def syn(v):
    return segment(v, stranger(v), random.randrange(1024, 65536), SYN)


def blind(v):
    """In the kernel's name, from the port of its connection: only the sequence numbers are unknown."""
    return segment(v, KERNELS[v], STEADY_PORT, random.choice((RST, RST | ACK, ACK, SYN)))


def fragment_of_nothing(v):
    return packet(v, stranger(v), 17, os.urandom(1000), random.randrange(1, 1 << 16))


def for_nobody(v):
    source = random.choice((stranger(v), KERNELS[v]))
    return packet(v, source, 17, summed(v, source, 17, struct.pack("!HHHH", 5353, random.randrange(2000, 30000), 108, 0) + bytes(100), 6))


KINDS = {"syn": syn, "blind": blind, "fragment": fragment_of_nothing, "nobody": for_nobody}


def flood(kind, v, mac):
    v, sent, all_sent = int(v), 0, None
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind(("eth0", 0))
        ethernet = bytes.fromhex(mac.replace(":", "")) + raw.getsockname()[4] + struct.pack("!H", 0x86DD if v == 6 else 0x0800)
        frames = [ethernet + KINDS[kind](v) for _ in range(DIFFERENT)]
        print("floods", flush=True)
        at = 0
        while sent < FRAMES or not select.select([sys.stdin], [], [], 0)[0]:
            for frame in frames[at:at + BURST]:
                with contextlib.suppress(OSError):  # the wire is full
                    sent += raw.send(frame) == len(frame)
            at = (at + BURST) % DIFFERENT
            if sent >= FRAMES:
                # Frames beyond the machine's capacity are lost unseen, honest ones too. The flood therefore slows down until honest traffic
                # gets through, also under sanitizers and load.
                all_sent = all_sent or time.monotonic()
                time.sleep(PAUSE * min(2 ** ((time.monotonic() - all_sent) // SLOWER), SLOWEST))
    print(sent, flush=True)


# ---- the kernel's side


def kernel_steady(address, own):
    """One connection: for each line of input, several exchanges of data."""
    with socket.create_connection((address, PORT), timeout=WAIT, source_address=(own, STEADY_PORT)) as stream:
        print("open", flush=True)
        while sys.stdin.readline():
            for i in range(ROUNDS):
                data = struct.pack("!I", i) * 100
                stream.sendall(data)
                came = b""
                while len(came) < len(data) and (part := stream.recv(len(data) - len(came))):
                    came += part
                require(came == data, "not what was said")
            print("said", flush=True)
    return True


PEER = {"call": kernel_call, "datagrams": kernel_datagrams, "steady": kernel_steady}


# ---- the test


class Flooded:
    def __init__(self, spaces, d, host):
        self.spaces, self.host, self.socket = spaces, host, f"{d}/s"
        self.env = os.environ | {"UNET_NI": f"unix:{d}/s"}

    def kernel(self, what, *args):
        right, err = in_kernel(self.spaces["b"], what, *args)
        require(right, f"{what} {args}: {err}")

    def start_in_kernel(self, *words):
        return subprocess.Popen(["ip", "netns", "exec", self.spaces["b"], sys.executable, os.path.abspath(__file__), *map(str, words)],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ctl(self, *words):
        status, out, err = run(UNETCTL, "--socket", self.socket, *words)
        require(status == 0, f"{words}: {err}")
        return json.loads(out)

    def counted(self):
        """By name, the counters of the NI, its endpoints, its port's host, and the application."""
        report, sums = self.ctl("all", "--json"), collections.Counter()
        for each in report["endpoints"]:
            sums.update(each["drops"])
        for each in self.ctl("ss", "--stacks", "--json"):
            sums.update(each["counters"])
        sums.update(report["ports"][0]["ip"]["counters"])
        sums.update(report["counters"]["drops"])
        return sums

    def memory(self):
        with open(f"/proc/{self.host.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS:"))

    def mac(self, v):
        """Our Ethernet address in the kernel's neighbour table."""
        status, out, err = run("ip", "-n", self.spaces["b"], "neigh", "show", OURS[v])
        require(status == 0 and "lladdr" in out, f"the kernel does not know us: {out}{err}")
        return out.split("lladdr ")[1].split()[0]

    @contextlib.contextmanager
    def flood(self, kind, v, *names):
        """Runs the flood during the block. Afterwards these counters have grown, and the NI has not."""
        before, counted = self.memory(), self.counted()
        process = self.start_in_kernel("--flood", kind, v, self.mac(v))
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
        grown = self.memory() - before
        require(grown < GROWTH, f"IPv{v}: unetd grew by {grown >> 20} MiB")
        for name in names:  # counters are published a moment later
            wait_until(lambda name=name: self.counted()[name] > counted[name], f"IPv{v}: {name} has not grown")

    @contextlib.contextmanager
    def steady(self, v):
        """A connection of the kernel; calling the result exchanges data on it."""
        process = self.start_in_kernel("--peer", "steady", OURS[v], KERNELS[v])
        lines = Lines(process.stdout)

        def talk():
            process.stdin.write(b"\n")
            process.stdin.flush()
            require(lines.next() == "said", "the connection")

        try:
            require(lines.next() == "open", "the connection")
            yield talk
            process.stdin.close()
            require(lines.next() == "True", "the connection's end")
        finally:
            process.kill()
            process.wait(WAIT)


@contextlib.contextmanager
def served():
    """An application with an echo service, already used by the kernel."""
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, KERNELS)
        own = " or ".join(f"src host {OURS[v]}" for v in VERSIONS)
        addresses = "0=" + ",".join(OUR_ADDRESSES) + ",unprobed"
        with heard(spaces["b"], f"{d}/wire.pcap", "-c", str(SEEN), own), \
                Host(UNETD, spaces, "a", f"{d}/s", "pcap:iface=eth0", "--ip", addresses) as host:
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
        looks_right(f"{d}/wire.pcap")


def flooded(kind, honest, *names):
    """`honest(it, version)` before the flood, during it and after it."""
    with served() as it:
        for v in VERSIONS:
            honest(it, v)
            with it.flood(kind, v, *names):
                honest(it, v)
            honest(it, v)


def calls(it, v):
    for _ in range(CALLS):
        it.kernel("call", OURS[v], BYTES, 4)


def datagrams_and_calls(it, v):
    it.kernel("datagrams", OURS[v], "1,1000,1400")
    it.kernel("call", OURS[v], BYTES, 1)


def test_syns_of_strangers():
    """More SYNs than half-open places: they get SYN cookies, mostly for more neighbours than can be resolved."""
    flooded("syn", calls, "cookies_sent", "ip_many_neighbours")


def test_blind_resets_and_acknowledgements():
    with served() as it:
        for v in VERSIONS:
            with it.steady(v) as talk:
                talk()
                with it.flood("blind", v, "tcp_out_of_window", "tcp_no_timestamp"):
                    talk()
                talk()
            it.kernel("call", OURS[v], BYTES, 1)


def test_fragments_of_nothing():
    flooded("fragment", datagrams_and_calls, "fragments_given_up")


def test_datagrams_for_nobody():
    flooded("nobody", datagrams_and_calls, "ip_unclaimed", "errors_limited")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        print(PEER[sys.argv[2]](*sys.argv[3:]), flush=True)
        sys.exit(0)
    if sys.argv[1:2] == ["--flood"]:
        flood(*sys.argv[2:])
        sys.exit(0)
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
