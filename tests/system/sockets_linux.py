#!/usr/bin/env python3
# sockets_linux.py - applications with ipstack's sockets on one NI, and Linux's kernel at the other end of its wire: streams in both roles,
# many at once, multicast groups, traffic between two applications of the NI, and the connections of a killed application. tshark checks the
# captures.
#
# Usage: sockets_linux.py UNETD SOCKETS_PEER   (77: no root, no network namespaces)
#        sockets_linux.py --peer ...           the kernel's side, in its namespace
import contextlib
import os
import socket
import struct
import subprocess
import sys

from daemon import WAIT, beside, directory, main, require
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, Lines, give_kernel, in_kernel, looks_right
from spaces import Host, Spaces, can_be_made
from tcp_linux import PORT, family, kernel_call, kernel_echo, kernel_pauses, kernel_refused, kernel_resets

UNETD, SOCKETS_PEER = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) == 3 else ("", "")
LONG = 3_000_000
MOST = {4: 65_507, 6: 65_527}  # bytes of a datagram


# ---- the kernel's side


def kernel_reset_when_killed(address):
    """A connection is open; after its other end is killed, a send fails."""
    with socket.create_connection((address, PORT), timeout=WAIT) as stream:
        stream.sendall(b"x")
        require(stream.recv(1) == b"x", "the echo")
        print("open", flush=True)
        sys.stdin.readline()
        try:
            for _ in range(50):
                stream.sendall(b"x")
                if stream.recv(1) == b"":
                    return False
        except ConnectionResetError:
            return True
    return False


def kernel_datagrams(address, sizes):
    with socket.socket(family(address), socket.SOCK_DGRAM) as udp:
        udp.settimeout(1)
        udp.connect((address, PORT))
        for size in sizes.split(","):
            data = os.urandom(MOST[4 if udp.family == socket.AF_INET else 6] if size == "most" else int(size))
            for _ in range(10):
                udp.send(data)
                try:
                    if udp.recv(65536) == data:
                        break
                except socket.timeout:
                    pass
            else:
                return False
    return True


def kernel_member(group, own, count):
    """Receives that many datagrams of the group, in order."""
    with socket.socket(family(group), socket.SOCK_DGRAM) as udp:
        udp.bind((group, PORT))
        if family(group) == socket.AF_INET:
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(own))
        else:
            member = socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", socket.if_nametoindex("eth0"))
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
        udp.settimeout(WAIT)
        print("listening", flush=True)
        return all(udp.recv(100) == str(i + 1).encode() for i in range(int(count)))


def kernel_shout(group, own, count):
    with socket.socket(family(group), socket.SOCK_DGRAM) as udp:
        if family(group) == socket.AF_INET:
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
        else:
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("eth0"))
        for i in range(int(count)):
            udp.sendto(str(i + 1).encode(), (group, PORT))
    return True


PEER = {"member": kernel_member, "shout": kernel_shout, "call": kernel_call, "echo": kernel_echo, "refused": kernel_refused, "resets": kernel_resets, "pauses": kernel_pauses,
        "killed": kernel_reset_when_killed, "datagrams": kernel_datagrams}


# ---- the test


class Ni:
    def __init__(self, spaces, d):
        self.spaces, self.capture = spaces, f"{d}/wire.pcapng"
        self.env = os.environ | {"UNET_NI": f"unix:{d}/s"}

    def start(self, *words):
        process = subprocess.Popen([SOCKETS_PEER, *map(str, words)], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.line = Lines(process.stdout).next
        return process

    @contextlib.contextmanager
    def running(self, first, *words):
        process = self.start(*words)
        try:
            line = process.line()
            require(line == first, f"{words}: {line}")
            yield process
        finally:
            process.kill()
            process.wait(WAIT)

    def does(self, *words):
        """Runs to its end; returns how many of its streams used local channels."""
        process = self.start(*words)
        try:
            line = process.line()
            require(line == "done", f"{words}: {line}")
            near = int(process.line().split()[1])
            require(process.wait(WAIT) == 0, f"{words} did not end well")
            return near
        finally:
            process.kill()
            process.wait(WAIT)

    def kernel(self, what, *args):
        right, err = in_kernel(self.spaces["b"], what, *args)
        require(right, f"{what} {args}: {err}")

    def start_kernel(self, what, *args):
        return subprocess.Popen(["ip", "netns", "exec", self.spaces["b"], sys.executable, os.path.abspath(__file__), "--peer", what,
                                 *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def interface(wire="pcap:iface=eth0", capture="", corrupted=False):
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, KERNELS)
        port = f"capture:file={d}/wire.pcapng{capture} / {wire}"
        with Host(UNETD, spaces, "a", f"{d}/s", port, "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed"):
            ni = Ni(spaces, d)
            yield ni
            looks_right(ni.capture, sent_by_us=corrupted)  # the wire may have corrupted received frames


def kernels_calls(ni, sizes):
    with ni.running("ready", "echo", PORT):
        for v in VERSIONS:
            for size in (0, 1, 1448, 1449, LONG):
                ni.kernel("call", OURS[v], size, 1)
            ni.kernel("call", OURS[v], 20_000, 100)
            ni.kernel("resets", OURS[v])
            ni.kernel("pauses", OURS[v])
            ni.kernel("refused", OURS[v], PORT + 1)
            ni.kernel("datagrams", OURS[v], sizes)
            ni.kernel("call", OURS[v], 1000, 1)  # the server is still there


def call_kernel(ni, version, size, count):
    peer = ni.start_kernel("echo", KERNELS[version], count)
    try:
        require(peer.stdout.readline().strip() == "listening", "the kernel's side")
        require(ni.does("call", KERNELS[version], PORT, size, count) == 0, "a stream over the wire went by a neighbour's channel")
    finally:
        peer.kill()
        peer.wait(WAIT)


def calls_of_kernel(ni):
    for v in VERSIONS:
        for size, count in ((0, 1), (1449, 1), (LONG, 1), (20_000, 100)):
            call_kernel(ni, v, size, count)


@beside
def test_over_a_wire():
    # DPDK's packet socket gets reassembled datagrams, truncated at the end of a frame.
    for wire, sizes in (("pcap:iface=eth0", "0,1,1472,1473,60000,most"), ("dpdk:net_af_packet0,iface=eth0,hugepages=never", "0,1,1452")):
        with interface(wire) as ni:
            kernels_calls(ni, sizes)
            calls_of_kernel(ni)


def test_between_applications():
    with interface() as ni:
        with ni.running("ready", "echo", PORT):
            for v in VERSIONS:
                for size, count in ((0, 1), (1, 1), (LONG, 1), (20_000, 100)):
                    require(ni.does("call", OURS[v], PORT, size, count) == count, "a stream took another way than the channel")
                for size in (0, 1, 1473, 60_000, MOST[v]):
                    ni.does("datagrams", OURS[v], PORT, size, 20)
        line = ni.start("call", OURS[4], PORT, 10, 1).line()
        require(line == "stream: Connection refused", f"nobody is there any longer: {line}")


def test_groups():
    with interface() as ni:
        for v, group in zip(VERSIONS, ("239.1.2.3", "ff05::123")):
            with ni.running("ready", "member", group, PORT, 20) as one, ni.running("ready", "member", group, PORT, 20) as two:
                peer = ni.start_kernel("member", group, KERNELS[v], 20)
                try:
                    require(peer.stdout.readline().strip() == "listening", "the kernel's member")
                    ni.does("shout", group, PORT, 20)
                    require(peer.communicate(timeout=WAIT)[0].strip() == "True", "what the kernel's member heard")
                finally:
                    peer.kill()
                    peer.wait(WAIT)
                for each in one, two:
                    line = each.line()
                    require(line == "done", f"a member on the same interface: {line}")
            with ni.running("ready", "member", group, PORT, 20) as one, ni.running("ready", "member", group, PORT, 20) as two:
                ni.kernel("shout", group, KERNELS[v], 20)
                for each in one, two:
                    line = each.line()
                    require(line == "done", f"a member behind the wire: {line}")


def test_small_questions():
    with interface() as ni, ni.running("ready", "echo", PORT):
        for v in VERSIONS:
            require(ni.does("asks", OURS[v], PORT) == 1, "a stream took another way than the channel")


def test_a_thousand_at_once():
    """All are open before the first one sends."""
    with interface() as ni:
        for v in VERSIONS:
            with ni.running("ready", "echo", PORT):
                ni.kernel("call", OURS[v], 2000, 1000)
            call_kernel(ni, v, 2000, 1000)


@beside
def test_ports_of_the_dead():
    """Earlier processes left thousands of ports in TIME-WAIT, which the NI knows and does not give to the next ones."""
    with interface() as ni:
        for _ in range(4):
            call_kernel(ni, 4, 10, 1000)


def test_a_thousand_of_kernel_and_applications():
    with interface() as ni, ni.running("ready", "echo", PORT):
        peers = [ni.start("call", OURS[4], PORT, 2000, 250) for _ in range(2)]
        ni.kernel("call", OURS[4], 2000, 500)
        for peer in peers:
            require(peer.line() == "done", "between applications")
            peer.stdin.close()
            require(peer.wait(WAIT) == 0, "it did not end well")


def test_killed():
    with interface() as ni:
        for v in VERSIONS:
            with ni.running("ready", "echo", PORT) as echo, ni.running("open", "hold", OURS[v], PORT, 3):
                peer = ni.start_kernel("killed", OURS[v])
                try:
                    require(peer.stdout.readline().strip() == "open", "the kernel's side")
                    echo.kill()
                    echo.wait(WAIT)
                    out, _ = peer.communicate("go on\n", timeout=WAIT)
                    require(out.strip() == "True", f"the kernel's end of a killed application's stream: {out}")
                finally:
                    peer.kill()
                    peer.wait(WAIT)
            with ni.running("ready", "echo", PORT):  # its port is free again
                ni.kernel("call", OURS[v], 1000, 1)


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        print(PEER[sys.argv[2]](*sys.argv[3:]))
        sys.exit(0)
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
