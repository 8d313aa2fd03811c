#!/usr/bin/env python3
# routed.py - NIs of two hosts that only a router joins, in namespaces: U-Net frames in UDP over IPv4 and IPv6, forwarded by the kernel; and
# a VLAN against the kernel's view of it. tshark checks the captures.
#
# Usage: routed.py UNETD UNETCTL EXAMPLES DISSECTOR      (77: no root, no network namespaces)
import contextlib
import json
import os
import shutil
import subprocess
import sys

from daemon import WAIT, directory, main, require, run
from spaces import HAS_IPV6, Host, Spaces, can_be_made, ip, quiet_up, sysctl

UNETD, UNETCTL, EXAMPLES, DISSECTOR = (os.path.abspath(p) for p in sys.argv[1:5])
SIZES = (0, 1, 47, 48, 49, 64, 255, 1000, 1407, 1408, 1409, 1471, 1472, 2816, 4097, 20000, 65535, 65536)
NETWORKS = {"udp4": ("10.85.{}.{}", 24), "udp6": ("fd00:85:{}::{}", 64)}


@contextlib.contextmanager
def routed(kind, mtu=1500):
    """Hosts a and b without kernel addresses, and a router r with one in each network."""
    address, prefix = NETWORKS[kind]
    with Spaces("a", "b", "r") as spaces:
        for network, host in enumerate("ab", 1):
            spaces.join(host, "eth0", "r", f"to_{host}")
            six = kind == "udp6"
            ip("-n", spaces["r"], "address", "add", f"{address.format(network, 1)}/{prefix}", "dev", f"to_{host}", *["nodad"] * six)
            if six:  # source address of the kernel's neighbour solicitations; without one it sends none
                ip("-n", spaces["r"], "address", "add", "fe80::1/64", "dev", f"to_{host}", "nodad")
            ip("-n", spaces["r"], "link", "set", f"to_{host}", "mtu", str(mtu))
        sysctl(spaces["r"], "net.ipv4.ip_forward", 1)
        if HAS_IPV6:
            sysctl(spaces["r"], "net.ipv6.conf.all.forwarding", 1)
        yield spaces


def port_counters(path):
    status, out, err = run(UNETCTL, "ports", "--json", "--socket", path)
    require(status == 0, f"unetctl ports: {err}")
    return json.loads(out)


@contextlib.contextmanager
def echo_server(path):
    server = subprocess.Popen([os.path.join(EXAMPLES, "echo_server"), "echo"], env=os.environ | {"UNET_NI": "unix:" + path},
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield server
    finally:
        server.kill()
        server.wait(WAIT)


def echoes(path, sizes=SIZES, count=3):
    """The client compares every byte of its answers."""
    for size in sizes:
        status, out, err = run(os.path.join(EXAMPLES, "echo_client"), "--wait", str(WAIT // 2), "-n", str(count), "-s", str(size), "echo@beta",
                               env=os.environ | {"UNET_NI": "unix:" + path})
        require(status == 0, f"messages of {size} bytes: {status} {out}{err}")


def tshark(path, *fields, only=""):
    arguments = [part for field in fields for part in ("-e", field)]
    status, out, err = run("tshark", "-n", "-X", "lua_script:" + DISSECTOR, "-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE",
                           "-r", path, "-Y", only, "-T", "fields", "-E", "separator=;", *arguments)
    require(status == 0, f"tshark: {err}")
    return [line.split(";") for line in out.split("\n")[:-1]]


def look_at_datagrams(kind, path, whole_count):
    """All U-Net frames are in datagrams that tshark accepts; neighbours are asked, and answer."""
    if not shutil.which("tshark"):
        return
    four = kind == "udp4"
    hops, header_good, neighbour = ("ip.ttl", "ip.checksum.status", "arp.opcode") if four else ("ipv6.hlim", "ipv6.nxt", "icmpv6.type")
    # Without ICMP errors: they quote headers, which tshark shows as their own.
    lines = tshark(path, "udp.dstport", hops, header_good, "udp.checksum.status", "ip.flags.df", "unet.version", "unet.crc.bad",
                   "_ws.expert.message", "unet.total", neighbour, "_ws.malformed", only="!icmp && !(icmpv6.type < 128)")
    datagrams = [line for line in lines if line[0] == "849"]
    require(len(datagrams) >= whole_count, f"{len(datagrams)} datagrams of {len(lines)} frames")
    seen = set()
    for port, ttl, header, checksum, dont_fragment, version, bad, expert, total, _, malformed in datagrams:
        require(ttl in ("64", "63"), f"hop limit {ttl}")
        require(header == ("1" if four else "17"), f"header: {header}")
        require(checksum == ("3" if four else "1"), f"the checksum's status is {checksum}")  # 3: not present, 1: good
        require(dont_fragment in (("1", "True") if four else ("",)), f"don't fragment: {dont_fragment}")
        require(version == "0xa1" and not bad and not malformed, f"port {port}: not a U-Net frame: {version} {bad} {malformed}")
        require("crc" not in expert and "part of" not in expert, f"tshark complains: {expert}")
        seen.add(int(total))
    require(set(SIZES) <= seen, f"sizes that were not seen: {set(SIZES) - seen}")
    require(any(line[9] for line in lines), "no neighbour was asked")


def routed_messages(kind, wire, options_a="", options_b="", mtu=1500):
    address, prefix = NETWORKS[kind]
    with directory() as d, routed(kind, mtu) as spaces:
        def port(network, host, capture, more):
            other = 3 - network
            peers = f",peers={address.format(other, 2)}" if host == "a" else ""
            return (f"udp:address={address.format(network, 2)}/{prefix},gateway={address.format(network, 1)}{peers}{more} / "
                    f"{capture}{wire}")

        with Host(UNETD, spaces, "a", d + "/a", port(1, "a", f"capture:file={d}/a.pcapng / ", options_a)) as a, \
                Host(UNETD, spaces, "b", d + "/b", port(2, "b", "", options_b)) as b, echo_server(d + "/b"):
            echoes(d + "/a")
            counters = json.dumps(port_counters(d + "/b"))
            require('"udp_received"' in counters, f"no counters: {counters}")
            for name in ("udp_bad_checksum", "udp_bad_length", "udp_bad_header", "udp_fragment", "udp_wrong_port", "udp_unknown_peer"):
                require(f'"{name}": 0' in counters.replace('":0', '": 0'), f"{name} in {counters}")
            require(a.stop() == 0 and b.stop() == 0, "a unetd did not end well")
        look_at_datagrams(kind, d + "/a.pcapng", len(SIZES) * 6)


def test_udp4():
    routed_messages("udp4", "dpdk:net_af_packet0,iface=eth0")


def test_udp6():
    if not HAS_IPV6:
        print("      not tried: this kernel is without IPv6", flush=True)
        return
    routed_messages("udp6", "dpdk:net_af_packet0,iface=eth0")


def test_udp4_with_libpcap_and_a_narrow_path():
    routed_messages("udp4", "pcap:iface=eth0", ",mtu=1300", ",mtu=1300", mtu=1300)


def test_vlan():
    """One side tags the frames itself; the other side's kernel removes the tag."""
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        kernels = ip("-n", spaces["b"], "link", "add", "link", "eth0", "name", "eth0.7", "type", "vlan", "id", "7", may_fail=True)
        if kernels:
            ip("-n", spaces["b"], "link", "set", "eth0.7", "mtu", "1496")
            quiet_up(spaces["b"], "eth0.7")
        tagged = "vlan:id=7,priority=3 / {}dpdk:net_af_packet0,iface=eth0"
        with Host(UNETD, spaces, "a", d + "/a", tagged.format(f"capture:file={d}/a.pcapng / ")) as a, \
                Host(UNETD, spaces, "b", d + "/b", "dpdk:net_af_packet0,iface=eth0.7" if kernels else tagged.format("")) as b, \
                echo_server(d + "/b"):
            echoes(d + "/a")
            require(a.stop() == 0 and b.stop() == 0, "a unetd did not end well")
        if not shutil.which("tshark"):
            return
        ours = [line for line in tshark(d + "/a.pcapng", "vlan.id", "vlan.priority", "unet.version", "sll.pkttype") if line[2]]
        require(len(ours) >= len(SIZES) * 6 and all(line[0] == "7" for line in ours), f"not all of {len(ours)} frames are in VLAN 7")
        require(any(line[1] == "3" for line in ours), "no frame of priority 3")


def test_udp_in_a_vlan():
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        port = "udp:address=10.85.1.{}/24,peers=10.85.1.{} / vlan:id=9 / dpdk:net_af_packet0,iface=eth0"
        with Host(UNETD, spaces, "a", d + "/a", port.format(2, 3)) as a, Host(UNETD, spaces, "b", d + "/b", port.format(3, 2)) as b, \
                echo_server(d + "/b"):
            echoes(d + "/a", sizes=(0, 48, 1404, 65536))
            require(a.stop() == 0 and b.stop() == 0, "a unetd did not end well")


if not can_be_made():
    print("skipped: network namespaces need root and iproute2")
    sys.exit(77)
sys.exit(main(globals()))
