#!/usr/bin/env python3
# sockets_paths.py - sockets of ipstack and of Linux's kernel, with a Linux router between: ICMP errors on both sides, datagrams in
# fragments, and paths with an MTU that changes under a stream, with and without ICMP from the router. tshark checks the captures.
#
# Usage: sockets_paths.py UNETD SOCKETS_SCRIPT   (77: no root, no network namespaces)
import contextlib
import ipaddress
import os
import sys

from daemon import Failure, beside, directory, main, require, run
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, PREFIX, VERSIONS, give_kernel, looks_right
from socket_sides import Side
from spaces import HAS_IPV6, Host, Spaces, can_be_made, ip, sysctl

UNETD, SCRIPT = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) == 3 else ("", "")
ROUTERS = {4: "10.86.9.1", 6: "fd00:86:9::1"}  # on the kernel's side; on ours it has KERNELS
BEYOND = {4: "10.86.9.2", 6: "fd00:86:9::2"}
TTL = {4: "ttl", 6: "hops"}
HEADERS = {4: 20 + 20 + 12, 6: 40 + 20 + 12}  # with timestamps
PART = 300_000
TRIES = 60


class Routed:
    """ipstack in a, a router in r, the kernel in b."""

    def __init__(self, spaces, d):
        self.spaces, self.capture = spaces, f"{d}/wire.pcapng"
        self.ours = Side([SCRIPT, "ours"], OURS, os.environ | {"UNET_NI": f"unix:{d}/s"})
        self.kernel = Side(["ip", "netns", "exec", spaces["b"], SCRIPT, "kernel"], BEYOND)

    def narrow(self, end, size=1500):
        """Limits the packet size that the router forwards there. Not by the link's MTU: a veth pair drops longer packets silently in both
        directions."""
        for v in VERSIONS:
            address = {"to_a": KERNELS, "to_b": ROUTERS}[end][v]
            network = str(ipaddress.ip_interface(f"{address}/{PREFIX[v]}").network)
            more = ["metric", "256"] if v == 6 else ["scope", "link", "src", address]
            ip("-n", self.spaces["r"], f"-{v}", "route", "replace", network, "dev", end, "proto", "kernel", *more,
               *(["mtu", "lock", str(size)] if size != 1500 else []))

    def swallow(self, size=1500):
        """Longer packets are lost on the way to the kernel."""
        ip("-n", self.spaces["b"], "link", "set", "eth0", "mtu", str(size))

    def count(self, space, version, what):
        """A counter of that kernel's IP or ICMP, by its name in /proc/net/snmp; IPv6 uses other names."""
        six = {"IpReasmOKs": "Ip6ReasmOKs", "IpFragOKs": "Ip6FragOKs", "IpFragCreates": "Ip6FragCreates", "TooBig": "Icmp6OutPktTooBigs",
               "IcmpOutTimeExcds": "Icmp6OutTimeExcds"}
        four = {"TooBig": "IcmpOutDestUnreachs"}
        path = f"/proc/net/snmp{'6' if version == 6 else ''}"
        status, out, err = run("ip", "netns", "exec", self.spaces[space], "cat", path)
        require(status == 0, f"{path}: {err}")
        lines = [line.split() for line in out.splitlines()]
        if version == 6:
            return int(dict(lines)[six[what]])
        all_of_it = {}
        for names, values in zip(lines[::2], lines[1::2]):
            all_of_it |= {names[0].rstrip(":") + name: int(value) for name, value in zip(names[1:], values[1:])}
        return all_of_it[four.get(what, what)]


@contextlib.contextmanager
def routed():
    with directory() as d, Spaces("a", "r", "b") as spaces:
        spaces.join("a", "eth0", "r", "to_a")
        spaces.join("r", "to_b", "b", "eth0")
        give_kernel(spaces, KERNELS, "r", "to_a")
        give_kernel(spaces, ROUTERS, "r", "to_b")
        give_kernel(spaces, BEYOND, link_local="fe80::3")
        # Without the limit on ICMP errors: a sender that misses one would retry in vain.
        for name, value in [("net.ipv4.ip_forward", 1), ("net.ipv4.icmp_ratelimit", 0), ("net.ipv4.icmp_msgs_per_sec", 100000)] + \
                [("net.ipv6.conf.all.forwarding", 1), ("net.ipv6.icmp.ratelimit", 0)] * HAS_IPV6:
            sysctl(spaces["r"], name, value)
        for v in VERSIONS:
            ip("-n", spaces["b"], f"-{v}", "route", "add", "default", "via", ROUTERS[v])
        beyond = {v: ipaddress.ip_interface(f"{BEYOND[v]}/{PREFIX[v]}").network for v in VERSIONS}
        given = ",".join([*OUR_ADDRESSES, *(f"route={beyond[v]}@{KERNELS[v]}" for v in VERSIONS), "unprobed"])
        with Host(UNETD, spaces, "a", f"{d}/s", f"capture:file={d}/wire.pcapng / pcap:iface=eth0", "--ip", f"0={given}") as host:
            it = Routed(spaces, d)
            with it.ours, it.kernel:
                yield it
            require(host.stop() == 0, "unetd did not end well")
        # A router quotes only a part of a packet that was too long, so tshark's checksum over the segment is wrong.
        looks_right(it.capture, but="icmpv6.type == 2 or (icmp.type == 3 and icmp.code == 4)")


def roles(it):
    """Caller and called side, with the addresses they use."""
    yield "ours", it.ours, it.kernel, BEYOND
    yield "the kernel", it.kernel, it.ours, OURS


@contextlib.contextmanager
def told(who, v):
    try:
        yield
    except Failure as failure:
        raise Failure(f"{who}, by IPv{v}: {failure}") from None


def refused(side, name, to, v, hops=None):
    """A datagram to an unused port; its host sends port unreachable."""
    side.must(f"socket {name} datagram {v}")
    if hops is not None:
        side.must(f"set {name} {TTL[v]} {hops}")
    side.must(f"connect {name} {to} 33434")
    side.must(f"send {name} 10", "10")
    side.must(f"wait {name} ERR", "OUT ERR")


def test_ports_of_nobody():
    """The host at the second hop sends the error, and the next call on the socket reports it."""
    with routed() as it:
        for who, caller, _, to in roles(it):
            for v in VERSIONS:
                with told(who, v):
                    refused(caller, "u", to[v], v, hops=2)
                    caller.must("send u 10", "ECONNREFUSED")
                    caller.must("events u", "OUT")
                    caller.must("send u 10", "10")
                    caller.must("recv u 10", "ECONNREFUSED")
                    caller.must("forget")


def test_hops():
    """Packets that the router may not forward. A datagram socket does not report the error, because the next datagram may take another
    path."""
    with routed() as it:
        for who, caller, called, to in roles(it):
            for v in VERSIONS:
                with told(who, v):
                    before = it.count("r", v, "IcmpOutTimeExcds")
                    caller.must(f"socket u datagram {v}")
                    caller.must(f"connect u {to[v]} 33434")
                    caller.must(f"set u {TTL[v]} 1")
                    caller.must("send u 10", "10")
                    refused(caller, "w", to[v], v)  # its answer comes after the router's
                    require(it.count("r", v, "IcmpOutTimeExcds") == before + 1, "the router does not say that it was too far")
                    caller.must("events u", "OUT")
                    caller.must("get u error", "0")
                    # The handshake fails with that error.
                    caller.must(f"socket s stream {v}")
                    caller.must(f"set s {TTL[v]} 1")
                    caller.must(f"connect s {to[v]} 7", "EHOSTUNREACH")
                    # An established connection remembers the error, and reports it when it gives up.
                    called.must(f"socket l stream {v}")
                    called.must("set l reuse 1")
                    called.must(f"bind l {to[v]} 8000")
                    called.must("listen l 5")
                    caller.must(f"socket t stream {v}")
                    caller.must(f"connect t {to[v]} 8000")
                    called.must("accept l t")
                    caller.must("send t 10", "10")
                    called.must("recv t 10", "10")
                    caller.must(f"set t {TTL[v]} 1")
                    caller.must("set t user_timeout 1500")
                    caller.must("send t 10", "10")
                    caller.must("wait t ERR HUP", "IN OUT ERR RDHUP HUP")  # the kernel reports ERR a moment earlier
                    caller.must("recv t 10", "EHOSTUNREACH")
                    for side in (caller, called):
                        side.must("forget")


def arrives(caller, called, to, size):
    """A datagram of that size, or of a few bytes more, arrives. The first ones may be lost, during address resolution or path MTU
    discovery."""
    for each in range(size, size + TRIES):
        caller.must(f"to u {to} 9000 {each}", str(each))
        while called.does("quick u") == "IN":
            got = called.does("from u")
            if got == str(each):
                return
            require(got.isdigit() and size <= int(got) < each, f"of {each} bytes arrive {got}")
    raise Failure(f"none of {TRIES} datagrams of {size} bytes arrives")


@beside
def test_fragments():
    """Both directions, also where the second link's MTU is smaller: an IPv4 router then fragments the fragments."""
    with routed() as it:
        for who, caller, called, to in roles(it):
            end = "to_b" if caller is it.ours else "to_a"
            for v in VERSIONS:
                with told(who, v):
                    called.must(f"socket u datagram {v}")
                    called.must(f"bind u {to[v]} 9000")
                    caller.must(f"socket u datagram {v}")
                    joined, cut = it.count("b", v, "IpReasmOKs"), it.count("b", v, "IpFragOKs")
                    for number, mtu in enumerate((1500, 1300)):
                        it.narrow(end, mtu)
                        cut_again = it.count("r", v, "IpFragCreates")
                        for size in (60_000, 1500, 1400):  # the last is unfragmented at first, so the router refuses it
                            arrives(caller, called, to[v], size + number * TRIES)
                        # Only IPv4 routers fragment, and only packets without don't-fragment, as ours are once they are fragments.
                        require((it.count("r", v, "IpFragCreates") > cut_again) == (v == 4 and mtu == 1300), f"what the router cuts at {mtu}")
                    it.narrow(end)
                    if caller is it.ours:
                        require(it.count("b", v, "IpReasmOKs") >= joined + 5, "the kernel joins none of our fragments")
                    else:
                        require(it.count("b", v, "IpFragOKs") >= cut + 5, "the kernel sends no fragments")
                    for side in (caller, called):
                        side.must("forget")


def test_datagrams_that_nobody_may_cut():
    """The router sends packet-too-big once; then the socket knows the path MTU."""
    with routed() as it:
        for who, caller, called, to in roles(it):
            it.narrow("to_b" if caller is it.ours else "to_a", 1300)
            for v in VERSIONS:
                with told(who, v):
                    called.must(f"socket u datagram {v}")
                    called.must(f"bind u {to[v]} 9000")
                    caller.must(f"socket u datagram {v}")
                    caller.must(f"set u discover{v} 2")
                    caller.must(f"get u mtu{v}", "ENOTCONN")
                    caller.must(f"connect u {to[v]} 9000")
                    caller.must(f"get u mtu{v}", "1500")
                    there = f"to u {to[v]} 9000"
                    caller.must(f"{there} {1473 if v == 4 else 1453}", "EMSGSIZE")
                    caller.must(f"{there} 1400", "1400")
                    caller.must("wait u ERR", "OUT ERR")
                    caller.must("get u error", "EMSGSIZE")
                    caller.must("events u", "OUT")
                    caller.must(f"get u mtu{v}", "1300")
                    caller.must(f"{there} 1400", "EMSGSIZE")
                    caller.must(f"{there} 1200", "1200")
                    called.must("wait u IN", "IN OUT")
                    called.must("from u", "1200")
                    for side in (caller, called):
                        side.must("forget")
            it.narrow("to_b" if caller is it.ours else "to_a")


def passes(caller, called):
    """Sends in both directions, to the last byte."""
    for one, other in ((caller, called), (called, caller)):
        one.begin(f"send s {PART}")
        other.must(f"recv s {PART}", str(PART))
        said = one.line()
        require(said == str(PART), f"send: {said}")


def mss_of(side):
    return int(side.does("get s mss"))


def stream(it, port, v, caller, called, to):
    called.must(f"socket l stream {v}")
    called.must("set l reuse 1")
    called.must(f"bind l {to} {port}")
    called.must("listen l 5")
    caller.must(f"socket s stream {v}")
    caller.must(f"connect s {to} {port}")
    called.must("accept l s")
    passes(caller, called)
    for side in (it.ours, it.kernel):
        require(mss_of(side) == 1500 - HEADERS[v], f"segments have {mss_of(side)} bytes at 1500")


def changing(narrow, narrowed, wide):
    """Streams while the path is narrow, and when it is wide again. Neither side knows the path when a stream begins."""
    for role in range(2):
        with routed() as it:
            who, caller, called, to = list(roles(it))[role]
            for v in VERSIONS:
                with told(f"{who} has called", v):
                    stream(it, 9000 + v, v, caller, called, to[v])
                    said = it.count("r", v, "TooBig")
                    narrow(it)
                    passes(caller, called)
                    narrowed(it, v, it.count("r", v, "TooBig") - said)
                    wide(it)
                    passes(caller, called)
                    for one, other in ((caller, called), (called, caller)):
                        one.must("shutdown s write")
                        other.must("drain s", "0 0")
                    for side in (caller, called):
                        side.must("forget")


@beside
def test_a_path_that_changes():
    """The router reports packets that are too long, to the kernel and to ipstack."""
    def to(size):
        return lambda it: [it.narrow(end, size) for end in ("to_a", "to_b")]

    def narrowed(it, v, said):
        require(said >= 2, f"the router says {said} times that segments are too long")
        for side in (it.ours, it.kernel):
            require(mss_of(side) == 1280 - HEADERS[v], f"segments have {mss_of(side)} bytes at 1280")
    changing(to(1280), narrowed, to(1500))


@beside
def test_a_path_that_changes_and_does_not_say_so():
    """The router forwards everything, and the wire behind it silently drops long packets (a black hole): ipstack finds the MTU by
    probing."""
    def narrowed(it, v, said):
        require(said == 0, f"the router says {said} times that segments are too long")
        mss = mss_of(it.ours)  # a veth passes 4 bytes more, for a VLAN tag
        require(1012 <= mss <= 1284 - HEADERS[v], f"segments have {mss} bytes at 1280")
    changing(lambda it: it.swallow(1280), narrowed, lambda it: it.swallow())


if __name__ == "__main__":
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
