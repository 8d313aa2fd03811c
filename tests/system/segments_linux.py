#!/usr/bin/env python3
# segments_linux.py - the wires packet and tap, which carry segments of 64 KiB to and from Linux's kernel: streams of a hundred megabytes in
# both roles, datagrams segmented and coalesced, echo, unclaimed ports, packets of the MTU where the kernel segments, and DPDK's tap, which
# only fills in checksums. tshark checks all but the long streams.
#
# Usage: segments_linux.py UNETD UNETCTL SOCKETS_PEER   (77: no root, no network namespaces)
#        segments_linux.py --peer ...                   the kernel's side, in its namespace
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys

import sockets_linux
from daemon import WAIT, directory, main, require, run, wait_until
from ip_linux import kernel_no_protocol, kernel_ping
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, PREFIX, VERSIONS, give_kernel, heard, looks_right
from sockets_linux import MOST, Ni, kernel_call, kernel_datagrams, kernel_refused, kernel_resets
from spaces import Host, Spaces, can_be_made, ip
from tcp_linux import PORT, family

UNETD, UNETCTL, sockets_linux.SOCKETS_PEER = map(os.path.abspath, sys.argv[1:4]) if len(sys.argv) == 4 else [""] * 3
LONG = 12_500_000  # bytes each way of a stream: with both versions and both roles 100 MB over each wire
SHORT = 500_000
UDP_SEGMENT = 103


# ---- the kernel's side


def kernel_segments(address, size, segment):
    """One send leaves as datagrams of `segment` bytes, and they come back."""
    size, segment = int(size), int(segment)
    with socket.socket(family(address), socket.SOCK_DGRAM) as udp:
        udp.settimeout(1)
        udp.connect((address, PORT))
        udp.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, segment)
        for _ in range(20):
            data = os.urandom(size)
            udp.send(data)
            came = []
            try:
                while sum(map(len, came)) < size:
                    came.append(udp.recv(65536))
            except socket.timeout:
                continue
            if b"".join(came) == data and set(map(len, came[:-1])) <= {segment}:
                return True
    return False


PEER = {"call": kernel_call, "refused": kernel_refused, "resets": kernel_resets, "datagrams": kernel_datagrams, "segments": kernel_segments,
        "ping": lambda to, size: kernel_ping(to, int(size)), "no_protocol": kernel_no_protocol}


# ---- the test


class SegmentsNi(Ni):
    """A unetd, and the namespace of the kernel that it talks to."""

    def __init__(self, spaces, d, daemon):
        super().__init__(spaces, d)
        self.socket, self.daemon = f"{d}/s", daemon

    def counters(self):
        """The port's counters; on a busy machine an answer may lack them."""
        told = {}

        def ask():
            status, out, err = run(UNETCTL, "all", "--json", "--socket", self.socket)
            require(status == 0, f"unetctl: {err}")
            told.update(json.loads(out)["ports"][0]["counters"])
            return "rx_bad_header" in told

        wait_until(ask, "the port has no counters")
        return told


class OneSpace:
    """The kernel's side is in the NI's own namespace."""

    def __init__(self, spaces):
        self.space = spaces["a"]

    def __getitem__(self, _):
        return self.space


@contextlib.contextmanager
def packet(offloads):
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        if offloads:
            for host in ("a", "b"):
                run("ip", "netns", "exec", spaces[host], "ethtool", "-K", "eth0", "tso", "on", "gso", "on", "gro", "on", "tx", "on")
        give_kernel(spaces, KERNELS)
        with Host(UNETD, spaces, "a", f"{d}/s", "packet:iface=eth0", "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed") as daemon:
            yield SegmentsNi(spaces, d, daemon)


@contextlib.contextmanager
def tap(name="unet0"):
    with directory() as d, Spaces("a") as spaces:
        port = f"tap:name={name},address=" + "+".join(f"{KERNELS[v]}/{PREFIX[v]}" for v in VERSIONS)
        with Host(UNETD, spaces, "a", f"{d}/s", port, "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed") as daemon:
            yield SegmentsNi(OneSpace(spaces), d, daemon)


def talk(ni):
    """Both roles, both versions; and what a host answers by itself."""
    with ni.running("ready", "echo", PORT):
        for v in VERSIONS:
            for size in (0, 56, 1473, 20_000):
                ni.kernel("ping", OURS[v], size)
            ni.kernel("no_protocol", OURS[v])
            ni.kernel("refused", OURS[v], PORT + 1)
            for size in (0, 1, 1449, SHORT):
                ni.kernel("call", OURS[v], size, 1)
            ni.kernel("call", OURS[v], 100_000, 20)
            ni.kernel("resets", OURS[v])
            ni.kernel("datagrams", OURS[v], "0,1,1472,1473,60000,most")
            for size, segment in ((20_000, 1000), (60_000, 1200), (1001, 1000)):
                ni.kernel("segments", OURS[v], size, segment)
    for v in VERSIONS:
        for size, count in ((1449, 1), (SHORT, 1), (100_000, 20)):
            call_kernel(ni, v, size, count)
        with kernel_echoes_datagrams(ni, v):
            for size, count in ((1472, 20), (MOST[v], 3)):
                ni.does("datagrams", KERNELS[v], PORT, size, count)
            for size, segment in ((20_000, 1000), (60_000, 1200), (1001, 1000)):
                ni.does("segments", KERNELS[v], PORT, size, segment, 5)


def stream_long(ni):
    with ni.running("ready", "echo", PORT):
        for v in VERSIONS:
            ni.kernel("call", OURS[v], LONG, 1)
    for v in VERSIONS:
        call_kernel(ni, v, LONG, 1)


@contextlib.contextmanager
def looked_at(ni, host="b", interface="eth0", segments=True):
    """The kernel's capture at that interface is right. `segments`: it has packets longer than the MTU, with checksums left to a device."""
    capture = f"{ni.socket}-{interface}.pcap"
    with heard(ni.spaces[host], capture, "-B", "65536", interface=interface):
        yield
    looks_right(capture, partial=segments)
    for v in VERSIONS:
        of_ours = f"{'ipv6' if v == 6 else 'ip'}.src == {OURS[v]} and tcp"
        status, out, err = run("tshark", "-r", capture, "-Y", of_ours, "-T", "fields", "-e", "frame.len")
        longest = max(map(int, out.split()), default=0)
        require(status == 0 and (longest > 1514 if segments else longest == 1514), f"the longest frame of {OURS[v]}: {longest} {err}")


def clean_counters(ni):
    counters = ni.counters()
    require(counters["rx_bad_header"] == counters["rx_errors"] == counters["tx_errors"] == 0, f"the port has counted {counters}")
    return counters


@contextlib.contextmanager
def ending(process, first):
    try:
        require(process.stdout.readline().strip() == first, "the kernel's side")
        yield process
    finally:
        process.kill()
        process.wait(WAIT)


def kernel_echoes(ni, version, count):
    return ending(ni.start_kernel("echo", KERNELS[version], count), "listening")


def call_kernel(ni, version, size, count):
    with kernel_echoes(ni, version, count):
        require(ni.does("call", KERNELS[version], PORT, size, count) == 0, "a stream over the wire went by a neighbour's channel")


def kernel_echoes_datagrams(ni, version):
    program = ("import socket,sys\n"
               f"udp = socket.socket(socket.{'AF_INET6' if version == 6 else 'AF_INET'}, socket.SOCK_DGRAM)\n"
               "udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)\n"
               f"udp.bind(('{KERNELS[version]}', {PORT}))\n"
               "print('bound', flush=True)\n"
               "while True:\n"
               "  data, who = udp.recvfrom(65536)\n"
               "  udp.sendto(data, who)\n")
    return ending(subprocess.Popen(["ip", "netns", "exec", ni.spaces["b"], sys.executable, "-c", program], stdout=subprocess.PIPE, text=True),
                  "bound")


def test_packet():
    with packet(offloads=True) as ni:
        with looked_at(ni):
            talk(ni)
        stream_long(ni)
        counters = clean_counters(ni)
        require(counters["tx_segments"] > 0 and counters["rx_segments"] > 0, f"no segments went: {counters}")
        require(ni.daemon.stop() == 0, "unetd did not end well")


def test_packets_of_the_mtu():
    """Where the interface does not segment, the kernel does, and the wire has packets with checksums."""
    with packet(offloads=False) as ni:
        capture = f"{ni.socket}.pcap"
        looks = all(map(shutil.which, ("tcpdump", "tshark", "ethtool")))
        with heard(ni.spaces["b"], capture, "-B", "65536") if looks else contextlib.nullcontext():
            talk(ni)
        counters = clean_counters(ni)
        require(counters["tx_segments"] > 0, f"no segments went: {counters}")
        if not looks:
            return
        looks_right(capture)
        status, out, err = run("tshark", "-r", capture, "-Y", "frame.len > 1514", "-c", "5")
        require(status == 0 and out.strip() == "", f"longer than the MTU: {out}{err}")
        status, out, err = run("tshark", "-r", capture, "-Y", "frame.len == 1514 and tcp", "-T", "fields", "-e", "ip.src", "-e", "ipv6.src")
        require(all(out.count(OURS[v]) > 100 for v in VERSIONS), f"packets of the MTU are missing: {err}")


def test_tap():
    with tap() as ni:
        with looked_at(ni, "a", "unet0"):
            talk(ni)
        stream_long(ni)
        counters = clean_counters(ni)
        require(counters["tx_segments"] > 0 and counters["rx_segments"] > 0, f"no segments went: {counters}")
        space = ni.spaces["a"]
        require(ip("-n", space, "link", "show", "unet0", may_fail=True), "there is no interface")
        status, _, err = run("ip", "netns", "exec", space, UNETD, "--socket", f"{ni.socket}2", "--port", "tap:name=unet0")
        require(status == 1 and "another process has this tap" in err, f"a second one: {status}, {err}")
        require(ni.daemon.stop() == 0, "unetd did not end well")
        wait_until(lambda: not ip("-n", space, "link", "show", "unet0", may_fail=True), "the interface is still there")


def test_a_tap_that_stays():
    with directory() as d, Spaces("a") as spaces:
        ip("-n", spaces["a"], "tuntap", "add", "dev", "tap7", "mode", "tap")
        give_kernel(spaces, KERNELS, "a", "tap7")
        ip("-n", spaces["a"], "link", "set", "tap7", "up")
        for _ in range(2):
            with Host(UNETD, spaces, "a", f"{d}/s", "tap:name=tap7", "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed") as daemon:
                ni = SegmentsNi(OneSpace(spaces), d, daemon)
                with looked_at(ni, "a", "tap7"), ni.running("ready", "echo", PORT):
                    for v in VERSIONS:
                        ni.kernel("call", OURS[v], 100_000, 1)
                require(daemon.stop() == 0, "unetd did not end well")


def test_checksums_of_a_port():
    """DPDK's tap fills in and checks the checksums of TCP and UDP, and does not segment; the kernel checks each packet. With a wrapper that
    changes frames, ipstack computes them."""
    for port in ("dpdk:net_tap0,iface=unet1", "faulty:seed=1 / dpdk:net_tap0,iface=unet1"):
        with directory() as d, Spaces("a") as spaces:
            with Host(UNETD, spaces, "a", f"{d}/s", port, "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed") as daemon:
                give_kernel(spaces, KERNELS, "a", "unet1")
                ni = SegmentsNi(OneSpace(spaces), d, daemon)
                with looked_at(ni, "a", "unet1", segments=False):
                    talk(ni)
                require(daemon.stop() == 0, "unetd did not end well")


def test_what_the_command_line_may_say():
    with directory() as d:
        for port, why in (("packet:", "needs iface="), ("packet:iface=x,y=1", "not an option"),
                          ("tap:name=a,address=10.0.0.1", "ADDRESS/PREFIX"),
                          ("tap:address=10.0.0.1/24", "needs name="), ("tap:name=sixteen-letters-", "not an interface name"),
                          ("vlan:id=5 / packet:iface=lo", "pcap:iface=lo"), ("packet:iface=lo", "loopback"), ("tap:name=lo", "not a tap")):
            status, _, err = run(UNETD, "--socket", f"{d}/s", "--port", port)
            require(status == 1 and why in err, f"{port}: {status}, {err}")


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        print(PEER[sys.argv[2]](*sys.argv[3:]))
        sys.exit(0)
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
