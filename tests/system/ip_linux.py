#!/usr/bin/env python3
# ip_linux.py - ipstack's host and Linux's kernel on one wire, and with a router or a switch between: echo in both roles, fragments, errors,
# duplicate address detection, leases, groups, path MTUs. tshark checks the captures.
#
# Usage: ip_linux.py IP_HOST      (77: no root, no network namespaces)
#        ip_linux.py --peer ...   the kernel's side, in its namespace
import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import time

from daemon import WAIT, beside, directory, main, require, run, wait_until
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, Lines, give_kernel, in_kernel, looks_right
from spaces import HAS_IPV6, Spaces, can_be_made, ip, sysctl

IP_HOST = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
BEYOND = {4: "10.86.9.2", 6: "fd00:86:9::2"}
SIZES = (0, 1, 56, 1400, 1452, 1453, 1472, 1473, 4000, 20000, 60000)


# ---- the kernel's side


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def kernel_ping(to, size):
    """An echo through a raw socket; returns the data of the reply."""
    six = ":" in to
    request, reply = (128, 129) if six else (8, 0)
    data = os.urandom(size)
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_RAW,
                       socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP) as raw:
        raw.settimeout(WAIT)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        message = struct.pack("!BBHHH", request, 0, 0, 0x1234, size & 0xFFFF) + data
        if not six:
            message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
        raw.sendto(message, (to, 0))
        while True:
            came, _ = raw.recvfrom(65536)
            if not six:
                came = came[(came[0] & 15) * 4:]
            kind, _, _, number, sequence = struct.unpack("!BBHHH", came[:8])
            if kind == reply and number == 0x1234 and sequence == size & 0xFFFF:
                return came[8:] == data


def kernel_refused(to):
    """Whether the kernel reports our port unreachable for a datagram to an unused port."""
    with socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(WAIT)
        udp.connect((to, 9))
        udp.send(b"anybody?")
        try:
            udp.recv(100)
        except ConnectionRefusedError:
            return True
    return False


def kernel_no_protocol(to):
    """Whether the kernel reports our protocol unreachable for an unknown protocol."""
    six = ":" in to
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_RAW, 200) as raw:
        raw.settimeout(WAIT)
        if six:
            raw.setsockopt(socket.IPPROTO_IPV6, 25, 1)  # IPV6_RECVERR
        else:
            raw.setsockopt(socket.IPPROTO_IP, 11, 1)    # IP_RECVERR
        raw.connect((to, 0))
        raw.send(b"anybody?")
        try:
            raw.recv(100)
        except OSError as error:
            return error.errno in (92, 71)  # ENOPROTOOPT, EPROTO
    return False


def kernel_trace(to):
    """Traceroute: one datagram that expires at the router, and one that reaches us."""
    six = ":" in to
    errors = []
    for hops in (1, 2):
        with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.settimeout(WAIT)
            if six:
                udp.setsockopt(socket.IPPROTO_IPV6, 25, 1)  # IPV6_RECVERR
                udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hops)
            else:
                udp.setsockopt(socket.IPPROTO_IP, 11, 1)    # IP_RECVERR
                udp.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
            udp.connect((to, 33434))
            udp.send(b"anybody?")
            try:
                udp.recv(100)
            except OSError as error:
                errors.append(error.errno)
    return errors == [113, 111]  # EHOSTUNREACH, ECONNREFUSED


def kernel_to_group(group, own):
    """A datagram of 30 bytes to a group."""
    six = ":" in group
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as udp:
        if six:
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("eth0"))
        else:
            udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
        return udp.sendto(b"x" * 30, (group, 4000)) == 30


PEER = {"to_group": kernel_to_group, "ping": lambda to, size: kernel_ping(to, int(size)), "refused": kernel_refused,
        "no_protocol": kernel_no_protocol, "trace": kernel_trace}


# ---- the test


class OurHost:
    """The program ip_host, and its output."""

    def __init__(self, space, interface, capture, *args):
        self.process = subprocess.Popen(["ip", "netns", "exec", space, IP_HOST, interface, capture, *args], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.capture, self.line = capture, Lines(self.process.stdout).next

    def ask(self, command):
        self.process.stdin.write(f"{command}\n".encode())
        self.process.stdin.flush()
        return self.line()

    def stop(self):
        self.process.stdin.close()
        require(self.process.wait(WAIT) == 0, "the host did not end well")


@contextlib.contextmanager
def wire(kernels=None, ours=None):
    """Our host in namespace a, the kernel in b."""
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, kernels or KERNELS)
        host = OurHost(spaces["a"], "eth0", f"{d}/wire.pcap", *(ours or OUR_ADDRESSES))
        try:
            yield spaces, host
        finally:
            host.process.kill()
            host.process.wait(WAIT)


def all_assigned(host):
    lines = {host.line() for _ in VERSIONS}
    require(lines == {f"assigned {OURS[v]}" for v in VERSIONS}, f"the host says {lines}")


def test_echo_in_both_roles():
    with wire() as (spaces, host):
        all_assigned(host)
        for v in VERSIONS:
            for size in SIZES:
                right, err = in_kernel(spaces["b"], "ping", OURS[v], size)
                require(right, f"the kernel's echo of {size} bytes to {OURS[v]}: {err}")
                answer = host.ask(f"ping {KERNELS[v]} {size}")
                require(answer == f"reply {KERNELS[v]} {size}", f"our echo of {size} bytes: {answer}")
        # The kernel's neighbour cache shows our station as reachable.
        status, out, _ = run("ip", "-n", spaces["b"], "neighbour", "show", "dev", "eth0")
        for v in VERSIONS:
            require(status == 0 and any(OURS[v] in line and "lladdr" in line and "FAILED" not in line for line in out.splitlines()), out)
        host.stop()
        looks_right(host.capture)


@beside
def test_what_nobody_wants():
    with wire() as (spaces, host):
        all_assigned(host)
        for v in VERSIONS:
            for what in ("refused", "no_protocol"):
                right, err = in_kernel(spaces["b"], what, OURS[v])
                require(right, f"{what} by {OURS[v]}: {err}")
        host.stop()
        looks_right(host.capture)


@beside
def test_nobody_there():
    with wire() as (_, host):
        all_assigned(host)
        for v in VERSIONS:
            nobody = OURS[v][:-1] + "77"
            require(host.ask(f"ping {nobody} 56") == f"unreachable {nobody}", "somebody is there")
        require(host.ask("ping 192.0.2.1 56") == "not sent: no route", "a route from nowhere")
        host.stop()
        looks_right(host.capture)


def test_addresses_that_the_kernel_has():
    with wire(OURS) as (_, host):
        lines = {host.line() for _ in VERSIONS}
        require(lines == {f"conflict {OURS[v]}" for v in VERSIONS}, f"the host says {lines}")
        host.stop()
        looks_right(host.capture)


@beside
def test_addresses_that_the_kernel_wants():
    if not HAS_IPV6:
        return
    with wire() as (spaces, host):
        all_assigned(host)
        ip("-n", spaces["b"], "address", "add", f"{OURS[6]}/64", "dev", "eth0")
        # The kernel's own duplicate address detection hears of us.
        for _ in range(20):
            _, out, _ = run("ip", "-n", spaces["b"], "address", "show", "dev", "eth0")
            if "dadfailed" in out:
                break
            run("sleep", "0.5")
        require("dadfailed" in out, f"the kernel has taken our address: {out}")
        host.stop()
        looks_right(host.capture)


class Server:
    """A DHCP server beside the kernel, and the messages that it receives."""

    def __init__(self, space, lease, *pool):
        program = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "dhcp_server.py")
        self.process = subprocess.Popen(["ip", "netns", "exec", space, sys.executable, program, "eth0", KERNELS[4], str(lease), *pool],
                                        stdout=subprocess.PIPE)
        self.line = Lines(self.process.stdout).next

    def __enter__(self):
        require(self.line() == "ready", "no server")
        return self

    def hears(self, *lines):
        before = None
        for each in lines:
            heard = self.line()
            while heard == before != each:  # a repetition, because the answer was slow
                heard = self.line()
            before = heard
            require(heard == each, f"the server hears '{heard}', not '{each}'")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(WAIT)


@beside
def test_an_address_of_a_server():
    # Only the kernel has an address on this wire. The host sends first, so the server may miss its first message.
    with wire(ours=["--dhcp"]) as (spaces, host), Server(spaces["b"], 20, "10.86.0.50") as server:
        server.hears("discover", "request 10.86.0.50")
        require(host.line() == "assigned 10.86.0.50", "not what was leased")
        require(in_kernel(spaces["b"], "ping", "10.86.0.50", 56)[0], "the kernel's echo to a leased address")
        require(host.ask(f"ping {KERNELS[4]} 1372 whole") == f"reply {KERNELS[4]} 1372", "our echo from a leased address")
        require(host.ask(f"ping {KERNELS[4]} 1373 whole") == "not sent: too big", "not the MTU of the lease")
        sysctl(spaces["b"], "net.ipv4.ip_forward", 1)
        require(host.ask("ping 192.0.2.1 56") == "error unreachable of 192.0.2.1", "not by the gateway of the lease")
        server.hears("renew 10.86.0.50", "renew 10.86.0.50")
        server.process.kill()
        line = host.line()
        require(line == "gone 10.86.0.50", f"a lease without end: {line}")
        host.stop()
        looks_right(host.capture)


@beside
def test_an_address_of_a_server_that_the_kernel_has():
    with wire(ours=["--dhcp"]) as (spaces, host):
        ip("-n", spaces["b"], "address", "add", "10.86.0.50/24", "dev", "eth0")
        with Server(spaces["b"], 1000, "10.86.0.50", "10.86.0.51") as server:
            server.hears("discover", "request 10.86.0.50", "decline 10.86.0.50", "discover", "request 10.86.0.51")
            require(host.line() == "assigned 10.86.0.51", "not the other address")
        host.stop()
        looks_right(host.capture)


def groups_of(space):
    """The multicast memberships that the kernel's bridge knows: {(port, group)}."""
    status, out, err = run("bridge", "-n", space, "mdb", "show", "dev", "switch")
    require(status == 0, f"bridge: {err}")
    words = [line.split() for line in out.splitlines()]
    return {(each[each.index("port") + 1], each[each.index("grp") + 1]) for each in words if "grp" in each and "port" in each}


@beside
def test_groups_behind_a_switch_of_the_kernel():
    groups = {4: "239.86.0.1", 6: "ff0e::86:1"}
    own_question = "ff02::1:ff00:1"  # solicited-node group of OURS[6]
    with directory() as d, Spaces("a", "s", "b") as spaces:
        # These values are in hundredths of a second. The bridge queries each second, and forgets a group after fifteen without a report.
        kind = ["mcast_snooping", "1", "mcast_querier", "1", "mcast_igmp_version", "3", "mcast_mld_version", "2", "mcast_query_interval",
                "100", "mcast_startup_query_interval", "100", "mcast_query_response_interval", "50", "mcast_membership_interval", "1500"]
        if not shutil.which("bridge") or not ip("-n", spaces["s"], "link", "add", "switch", "type", "bridge", *kind, may_fail=True):
            print("      not tried: the kernel makes no switch")
            return
        for name in ("a", "b"):
            spaces.join(name, "eth0", "s", f"to_{name}")
            ip("-n", spaces["s"], "link", "set", f"to_{name}", "master", "switch")
        # Without an address of its own the bridge would not query for IPv6 groups.
        ip("-n", spaces["s"], "link", "set", "switch", "up")
        if HAS_IPV6:
            ip("-n", spaces["s"], "address", "add", "fe80::86/64", "dev", "switch", "nodad", may_fail=True)
        give_kernel(spaces, KERNELS)
        host = OurHost(spaces["a"], "eth0", f"{d}/wire.pcap", *OUR_ADDRESSES)
        try:
            all_assigned(host)
            for v in VERSIONS:
                require(host.ask(f"join {groups[v]}") == "joined", "not joined")
                wait_until(lambda v=v: ("to_a", groups[v]) in groups_of(spaces["s"]), f"the switch has not heard of {groups[v]}")
            if HAS_IPV6:
                wait_until(lambda: ("to_a", own_question) in groups_of(spaces["s"]), "the switch has not heard of our questions' group")
            time.sleep(20)  # a membership without reports expires
            for v in VERSIONS:
                require(("to_a", groups[v]) in groups_of(spaces["s"]), f"its questions for {groups[v]} were not answered")
                right, err = in_kernel(spaces["b"], "to_group", groups[v], KERNELS[v])
                require(right, f"the kernel's datagram: {err}")
                line = host.line()
                require(line == f"datagram {groups[v]} 30", f"the host says {line}")
                require(in_kernel(spaces["b"], "ping", OURS[v], 56)[0], f"the kernel's echo to {OURS[v]} through the switch")
            for v in VERSIONS:
                require(host.ask(f"leave {groups[v]}") == "left", "not left")
                wait_until(lambda v=v: ("to_a", groups[v]) not in groups_of(spaces["s"]), f"the switch believes that {groups[v]} is joined")
            host.stop()
            looks_right(host.capture)
        finally:
            host.process.kill()
            host.process.wait(WAIT)


@beside
def test_a_gateway_that_sends_us_on():
    hops = {4: "10.86.0.99", 6: "fe80::99"}  # no host is there: our ARP or neighbour solicitation shows the next hop
    gateways = [part for v in VERSIONS for part in ("--gateway", {4: KERNELS[4], 6: "fe80::2"}[v])]
    with wire(ours=[*OUR_ADDRESSES, *gateways]) as (spaces, host):
        for name in ["net.ipv4.ip_forward"] + ["net.ipv6.conf.all.forwarding"] * HAS_IPV6:
            sysctl(spaces["b"], name, 1)
        all_assigned(host)
        for v in VERSIONS:
            network = {4: "10.86.9.0/24", 6: "fd00:86:9::/64"}[v]
            ip("-n", spaces["b"], f"-{v}", "route", "add", network, "via", hops[v], "dev", "eth0")
            require(host.ask(f"ping {BEYOND[v]} 56") == f"error unreachable of {BEYOND[v]}", "somebody is there")
            require(host.ask(f"ping {BEYOND[v]} 56") == f"unreachable {hops[v]}", "not where the kernel has sent us")
            require(host.ask(f"ping {BEYOND[v]} 56") == f"error unreachable of {BEYOND[v]}", "not by the gateway again")
        host.stop()
        looks_right(host.capture)


@beside
def test_a_path_with_a_smaller_mtu():
    with directory() as d, Spaces("a", "r", "b") as spaces:
        spaces.join("a", "eth0", "r", "to_a")
        spaces.join("r", "to_b", "b", "eth0")
        give_kernel(spaces, KERNELS, "r", "to_a")
        give_kernel(spaces, {4: "10.86.9.1", 6: "fd00:86:9::1"}, "r", "to_b")
        give_kernel(spaces, BEYOND, link_local="fe80::3")
        for name, end in (("r", "to_b"), ("b", "eth0")):
            ip("-n", spaces[name], "link", "set", end, "mtu", "1300")
        for name in ["net.ipv4.ip_forward"] + ["net.ipv6.conf.all.forwarding"] * HAS_IPV6:
            sysctl(spaces["r"], name, 1)
        for v in VERSIONS:
            ip("-n", spaces["b"], f"-{v}", "route", "add", "default", "via", {4: "10.86.9.1", 6: "fd00:86:9::1"}[v])
        gateways = [part for v in VERSIONS for part in ("--gateway", KERNELS[v])]
        host = OurHost(spaces["a"], "eth0", f"{d}/wire.pcap", *OUR_ADDRESSES, *gateways)
        try:
            all_assigned(host)
            for v in VERSIONS:
                require(host.ask(f"ping {BEYOND[v]} 56") == f"reply {BEYOND[v]} 56", "not through the router")
                require(host.ask(f"ping {BEYOND[v]} 56 near") == f"error time exceeded of {BEYOND[v]}", "not for one hop")
                right, err = in_kernel(spaces["b"], "trace", OURS[v])
                require(right, f"the kernel's way to {OURS[v]}: {err}")
                require(host.ask(f"ping {BEYOND[v]} 1400 whole") == f"error too big of {BEYOND[v]}", "the router says nothing")
                require(host.ask(f"ping {BEYOND[v]} 1400 whole") == "not sent: too big", "it was not believed")
                require(host.ask(f"ping {BEYOND[v]} 1400") == f"reply {BEYOND[v]} 1400", "not in pieces")
            host.stop()
            looks_right(host.capture)
        finally:
            host.process.kill()
            host.process.wait(WAIT)


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        print(PEER[sys.argv[2]](*sys.argv[3:]))
        sys.exit(0)
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
