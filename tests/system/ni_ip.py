#!/usr/bin/env python3
# ni_ip.py - a unetd with IP on a wire, and Linux's kernel at the other end: echo, unclaimed ports, datagrams of two processes that share
# the addresses, over the wire and within the host, and a second unetd that takes their ports over. tshark checks the captures.
#
# Usage: ni_ip.py UNETD UNETCTL CLIENT EMBEDDED   (77: no root, no network namespaces)
#        ni_ip.py --peer ...                      the kernel's side, in its namespace
import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys

from daemon import WAIT, beside, directory, main, require, run, wait_until
from ip_linux import Server, kernel_no_protocol, kernel_ping, kernel_refused
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, Lines, give_kernel, heard, in_kernel, looks_right
from spaces import Host, Spaces, can_be_made, ip, sysctl

UNETD, UNETCTL, CLIENT, EMBEDDED = map(os.path.abspath, sys.argv[1:5]) if len(sys.argv) == 5 and sys.argv[1] != "--peer" else [""] * 4
SIZES = (0, 1, 900, 1472, 1473, 5000, 60000)
# DPDK's packet sockets get IPv4 datagrams reassembled by the kernel (PACKET_FANOUT_FLAG_DEFRAG), and truncated at 2 KiB.
SIZES_OF_SOCKETS = (0, 1, 900, 1472, 1473)
WIRES = ("pcap:iface=eth0", "dpdk:net_af_packet0,iface=eth0,hugepages=never")


# ---- the kernel's side


def kernel_reset(to):
    """No socket listens: the connection is refused at once."""
    with socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_STREAM) as tcp:
        tcp.settimeout(WAIT)
        return tcp.connect_ex((to, 8000)) == 111  # ECONNREFUSED


def kernel_asks(to, port, sizes):
    """Datagrams of all sizes come back unchanged; a lost one is sent again."""
    with socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(1)
        udp.connect((to, int(port)))
        for size in map(int, sizes.split(",")):
            data = os.urandom(size)
            for _ in range(60):
                udp.send(data)
                try:
                    if udp.recv(65536) == data:
                        break
                except socket.timeout:
                    pass
            else:
                return False
    return True


def kernel_serves(address, port):
    """Sends every datagram back until killed."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((address, int(port)))
        print("ready", flush=True)
        while True:
            data, who = udp.recvfrom(65536)
            udp.sendto(data, who)


def kernel_advertises(lifetime, *prefixes):
    """Sends one router advertisement to all nodes: router lifetime, and prefixes/64 with their lifetimes: /VALID/PREFERRED."""
    message = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, int(lifetime), 0, 0)
    for each in prefixes:
        prefix, valid, preferred = each.split("/")
        message += struct.pack("!BBBBIII16s", 3, 4, 64, 0xC0, int(valid), int(preferred), 0, socket.inet_pton(socket.AF_INET6, prefix))
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
        raw.bind(("fe80::2", 0, 0, socket.if_nametoindex("eth0")))
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        return raw.sendto(message, ("ff02::1", 0, 0, socket.if_nametoindex("eth0"))) == len(message)


PEER = {"advertises": kernel_advertises, "ping": lambda to, size: kernel_ping(to, int(size)), "refused": kernel_refused, "no_protocol": kernel_no_protocol,
        "reset": kernel_reset, "asks": kernel_asks, "serves": kernel_serves}


# ---- the test


class Ni:
    """Namespace a with a unetd that has IP, and b with the kernel's addresses."""

    def __init__(self, spaces, daemon, d):
        self.spaces, self.daemon, self.capture = spaces, daemon, f"{d}/wire.pcapng"
        self.env = os.environ | {"UNET_NI": f"unix:{d}/s"}
        self.socket = f"{d}/s"

    def client(self, *words):
        return run(CLIENT, *map(str, words), env=self.env)

    @contextlib.contextmanager
    def echo(self, port):
        server = subprocess.Popen([CLIENT, "echo", str(port)], env=self.env, stdout=subprocess.PIPE)
        try:
            line = Lines(server.stdout).next()
            require(line == "ready", f"the echo at {port}: {line}")
            yield server
        finally:
            server.kill()
            server.wait(WAIT)

    def kernel(self, what, *args):
        right, err = in_kernel(self.spaces["b"], what, *args)
        require(right, f"{what} {args}: {err}")

    def report(self):
        status, out, err = run(UNETCTL, "all", "--json", "--socket", self.socket)
        require(status == 0, f"unetctl: {err}")
        return json.loads(out)


@contextlib.contextmanager
def interface(wire, *more):
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, KERNELS)
        port = f"capture:file={d}/wire.pcapng / {wire}"
        with Host(UNETD, spaces, "a", f"{d}/s", port, "--ip", "0=" + ",".join(OUR_ADDRESSES), *more) as daemon:
            yield Ni(spaces, daemon, d)


@contextlib.contextmanager
def served(spaces, address):
    """The kernel echoes datagrams to its port 9000."""
    command = ["ip", "netns", "exec", spaces["b"], sys.executable, os.path.abspath(sys.argv[0]), "--peer", "serves", address]
    server = subprocess.Popen([*command, "9000"], stdout=subprocess.PIPE)
    try:
        require(Lines(server.stdout).next() == "ready", "the kernel does not serve")
        yield
    finally:
        server.kill()
        server.wait(WAIT)


def a_wire(wire, sizes4):
    sizes_of = {4: sizes4, 6: SIZES}
    with interface(wire) as ni:
        with ni.echo(7000) as first, ni.echo(7001):
            status, out, _ = ni.client("echo", 7000)
            require(status == 1 and out.startswith("already_exists"), f"two with one port: {out}")
            for v in VERSIONS:
                for size in (0, 56, 1473, sizes_of[v][-1]):
                    ni.kernel("ping", OURS[v], size)
                for what in ("refused", "no_protocol", "reset"):
                    ni.kernel(what, OURS[v])
                for port in (7000, 7001):
                    ni.kernel("asks", OURS[v], port, ",".join(map(str, sizes_of[v])))
                # Within one NI, not over the wire.
                status, out, _ = ni.client("ask", 7002, OURS[v], 7001, *SIZES)
                require(status == 0, f"from one process to the other by {OURS[v]}: {out}")
            claims = {(claim["protocol"], claim["port"], claim["pid"]) for claim in ni.report()["ip_claims"]}
            require(("udp", 7000, first.pid) in claims and len(claims) == 2, f"the claims are {claims}")
        # A killed process has no port.
        wait_until(lambda: not ni.report()["ip_claims"], "ports of the dead are kept")
        for v in VERSIONS:
            with served(ni.spaces, KERNELS[v]):
                status, out, _ = ni.client("ask", 7003, KERNELS[v], 9000, *sizes_of[v])
                require(status == 0, f"to the kernel at {KERNELS[v]}: {out}")
        host = ni.report()["ports"][0]["ip"]
        require(all(not each["tentative"] for each in host["addresses"]), f"addresses: {host}")
        require(host["counters"]["echoes"] >= 4 and host["counters"]["fragments_sent"] > 0, f"the host has counted {host['counters']}")
        require(ni.daemon.stop() == 0, "unetd did not end well")
        looks_right(ni.capture)


@beside
def test_pcap():
    a_wire(WIRES[0], SIZES)


def test_dpdk():
    a_wire(WIRES[1], SIZES_OF_SOCKETS)


@beside
def test_a_takeover():
    """Ports stay with a process that does not notice the new unetd."""
    with interface(WIRES[0], "--takeover", "60") as ni:
        with heard(ni.spaces["b"], f"{ni.socket}.pcap"), ni.echo(7000) as server:
            for v in VERSIONS:
                ni.kernel("asks", OURS[v], 7000, "100,3000")
            for _ in range(2):
                before = ni.report()["ni"]["pid"]
                status, _, err = run(UNETCTL, "upgrade", "--socket", ni.socket)
                require(status == 0 and ni.report()["ni"]["pid"] != before, f"no upgrade: {err}")
                for v in VERSIONS:
                    ni.kernel("asks", OURS[v], 7000, "100,3000")
                claims = ni.report()["ip_claims"]
                require([claim["pid"] for claim in claims] == [server.pid], f"the claims are {claims}")
            require(ni.daemon.stop() == 0, "the supervisor did not end well")
        looks_right(f"{ni.socket}.pcap")


@beside
def test_a_lease_over_a_takeover():
    """The next unetd has the address at once, for the rest of its lease: the server is gone by then."""
    leased = "10.86.0.50"
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, KERNELS)
        with Server(spaces["b"], 1000, leased) as server, heard(spaces["b"], f"{d}/wire.pcap"):
            with Host(UNETD, spaces, "a", f"{d}/s", WIRES[0], "--ip", "0=dhcp", "--takeover", "60") as daemon:
                ni = Ni(spaces, daemon, d)

                def has(address):
                    there = ni.report()["ports"][0]["ip"]["addresses"]
                    return any(each["address"] == address and not each["tentative"] for each in there)

                wait_until(lambda: has(leased), "no lease")
                with ni.echo(7000):
                    ni.kernel("asks", leased, 7000, "100")
                    server.process.kill()
                    for _ in range(2):
                        before = ni.report()["ni"]["pid"]
                        status, _, err = run(UNETCTL, "upgrade", "--socket", ni.socket)
                        require(status == 0 and ni.report()["ni"]["pid"] != before, f"no upgrade: {err}")
                        require(has(leased), "the lease is lost")
                        ni.kernel("asks", leased, 7000, "100,1300")
                require(ni.daemon.stop() == 0, "the supervisor did not end well")
        looks_right(f"{d}/wire.pcap")


@beside
def test_addresses_of_a_router():
    """Advertised prefixes give addresses, which the kernel reaches. An expired one goes. One with a long lifetime left does not go because
    an advertisement says so (RFC 4862, 5.5.3)."""
    if 6 not in VERSIONS:
        return
    lasting, short, never = (f"fd00:86:{number}::" for number in (1, 2, 3))
    beyond = "fd00:86:9::1"
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, KERNELS)
        for address, device in ((f"{lasting}2/64", "eth0"), (f"{short}2/64", "eth0"), (f"{beyond}/128", "lo")):
            ip("-n", spaces["b"], "address", "add", address, "dev", device, "nodad")
        ip("-n", spaces["b"], "link", "set", "lo", "up")
        # The kernel of our interface must not take these addresses too. And a neighbour solicitation makes the router say whether it is a
        # router.
        for space, name, value in (("a", "eth0.accept_ra", 0), ("b", "eth0.accept_ra", 0), ("b", "all.forwarding", 1)):
            sysctl(spaces[space], f"net.ipv6.conf.{name}", value)
        with Host(UNETD, spaces, "a", f"{d}/s", f"capture:file={d}/wire.pcapng / {WIRES[0]}", "--ip", "0=slaac") as daemon:
            ni = Ni(spaces, daemon, d)

            def address_of(prefix):
                there = ni.report()["ports"][0]["ip"]["addresses"]
                return next((each["address"] for each in there if each["address"].startswith(prefix[:-1]) and not each["tentative"]), None)

            ni.kernel("advertises", 1800, f"{never}/0/0", f"{lasting}/9000/9000")
            wait_until(lambda: address_of(lasting), "no address of the prefix")
            own = address_of(lasting)
            ni.kernel("ping", own, 56)
            ni.kernel("reset", own)
            with ni.echo(7000):
                ni.kernel("asks", own, 7000, "0,100,1400")
            # The kernel acts as the router, too.
            with served(spaces, beyond):
                status, out, err = ni.client("ask", 7003, beyond, 9000, 0, 100, 1400)
                require(status == 0, f"beyond the router: {out}{err}")
            require(ni.report()["ports"][0]["ip"]["gateways"] == ["fe80::2"], "it is not the gateway")
            ni.kernel("advertises", 1800, f"{short}/10/10")
            wait_until(lambda: address_of(short), "no address of the other prefix")
            ni.kernel("ping", address_of(short), 56)
            wait_until(lambda: not address_of(short), "an address whose time is over is there still")
            # The network now lies behind the router, and the address stays.
            ni.kernel("advertises", 1800, f"{lasting}/0/0")
            ni.kernel("ping", own, 56)
            ni.kernel("advertises", 0)
            wait_until(lambda: not ni.report()["ports"][0]["ip"]["gateways"], "it is the gateway still")
            require(address_of(lasting) == own and not address_of(never), f"addresses: {ni.report()['ports'][0]['ip']['addresses']}")
            require(daemon.stop() == 0, "unetd did not end well")
            looks_right(ni.capture)


@beside
def test_frames_that_the_kernel_drops():
    """An egress filter drops certain frames for ever: their sender does not stop the others."""
    # IPv4 datagrams to port 6666: half word 36; 2 is TC_ACT_SHOT, ~0 TC_ACT_UNSPEC. Frames that pcap: sends bypass the filter.
    drops = ["tc", "filter", "add", "dev", "eth0", "egress", "bpf", "da", "bytecode", "4,40 0 0 36,21 0 1 6666,6 0 0 2,6 0 0 4294967295"]
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, KERNELS)
        in_a = ["ip", "netns", "exec", spaces["a"]]
        if not shutil.which("tc") or run(*in_a, "tc", "qdisc", "add", "dev", "eth0", "clsact")[0] != 0 or run(*in_a, *drops)[0] != 0:
            print("      not tried: the kernel has no such filter")
            return
        addresses = "0=" + ",".join(OUR_ADDRESSES)
        with heard(spaces["b"], f"{d}/wire.pcap"), served(spaces, KERNELS[4]), \
                Host(UNETD, spaces, "a", f"{d}/s", "packet:iface=eth0", "--ip", addresses) as daemon:
            ni = Ni(spaces, daemon, d)
            status, out, err = ni.client("ask", 7004, KERNELS[4], 9000, 100)
            require(status == 0, f"before: {out}{err}")

            def refused():
                return ni.report()["ports"][0]["counters"]["tx_refused"]

            bad = subprocess.Popen([CLIENT, "ask", "7005", KERNELS[4], "6666", "100"], env=ni.env, stdout=subprocess.DEVNULL)
            try:
                wait_until(lambda: refused() > 0, "nothing is refused")
                status, out, err = ni.client("ask", 7004, KERNELS[4], 9000, 100, 1400)
                require(status == 0, f"the wire has stopped: {out}{err}")
            finally:
                bad.kill()
                bad.wait(WAIT)
            require(ni.daemon.stop() == 0, "unetd did not end well")
        looks_right(f"{d}/wire.pcap")


@beside
def test_embedded():
    """A process with an embedded NI, which has the wire to itself."""
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, KERNELS)
        spec = f"embedded:capture:file={d}/wire.pcapng / {WIRES[0]};ip=0=" + ",".join(OUR_ADDRESSES)
        env = os.environ | {"UNET_NI": spec, "UNET_EMBEDDED_LIBRARY": EMBEDDED}
        for v in VERSIONS:
            with served(spaces, KERNELS[v]):
                status, out, err = run("ip", "netns", "exec", spaces["a"], CLIENT, "ask", "7003", KERNELS[v], "9000", *map(str, SIZES), env=env)
                require(status == 0, f"to the kernel at {KERNELS[v]}: {out}{err}")
        looks_right(f"{d}/wire.pcapng")


def test_addresses_that_the_kernel_has():
    """An address of another host is not used."""
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, OURS)
        port = f"capture:file={d}/wire.pcapng / {WIRES[0]}"
        with Host(UNETD, spaces, "a", f"{d}/s", port, "--ip", "0=" + ",".join(OUR_ADDRESSES)) as daemon:
            ni = Ni(spaces, daemon, d)
            wait_until(lambda: ni.report()["ports"][0]["ip"]["counters"]["conflicts"] == len(VERSIONS), "no conflict is seen")
            there = {each["address"] for each in ni.report()["ports"][0]["ip"]["addresses"]}
            require(not there & {OURS[v] for v in VERSIONS}, f"the addresses are {there}")
            require(daemon.stop() == 0, "unetd did not end well")
            looks_right(ni.capture)


def test_what_the_command_line_may_say():
    for spec, why in (("0=10.0.0.1", "PREFIX"), ("1=10.0.0.1/24", "port 1 does not exist"), ("x", "PORT=")):
        status, _, err = run(UNETD, "--check", "--port", "pcap:iface=eth0", "--ip", spec)
        require(status == 2 and why in err and err.count("\n") == 1, f"--ip {spec}: {status}, {err}")
    two = ("--check", "--port", "pcap:iface=eth0", "--port", "pcap:iface=eth1", "--engines", "2")
    status, _, err = run(UNETD, *two, "--ip", "1=10.0.0.1/24")
    require(status == 2 and "engine 0 has IP" in err, f"a port of the other engine: {status}, {err}")
    status, _, err = run(UNETD, *two, "--ip", "0=10.0.0.1/24")
    require(status == 0, f"a port of the first engine: {status}, {err}")
    with directory() as d:
        status, _, err = run(UNETD, "--socket", f"{d}/s", "--port", "udp:address=10.0.0.2/24 / pcap:iface=eth0", "--ip", "0=10.0.0.1/24")
        require(status == 1 and "under the udp wrapper" in err, f"IP in UDP: {status}, {err}")


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        print(PEER[sys.argv[2]](*sys.argv[3:]))
        sys.exit(0)
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
