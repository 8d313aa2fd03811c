# ip_spaces.py - two namespaces: in one the kernel has no address, for the IP stack; in the other the kernel talks to it; for ip_linux.py
# and tcp_linux.py.
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time

from daemon import WAIT, require, run
from spaces import HAS_IPV6, ip

OURS = {4: "10.86.0.1", 6: "fd00:86::1"}
KERNELS = {4: "10.86.0.2", 6: "fd00:86::2"}
PREFIX = {4: 24, 6: 64}
VERSIONS = (4, 6) if HAS_IPV6 else (4,)
OUR_ADDRESSES = [f"{OURS[v]}/{PREFIX[v]}" for v in VERSIONS]


def in_kernel(space, what, *args):
    """Whether the test's `--peer WHAT` prints True in that namespace; and its errors."""
    status, out, err = run("ip", "netns", "exec", space, sys.executable, os.path.abspath(sys.argv[0]), "--peer", what, *map(str, args))
    return status == 0 and out.strip() == "True", err


class Lines:
    """Reads a process's output line by line, with a time limit."""

    def __init__(self, pipe):
        self.pipe, self.rest = pipe, b""

    def next(self):
        while b"\n" not in self.rest:
            require(select.select([self.pipe], [], [], WAIT)[0], "the program says nothing")
            part = os.read(self.pipe.fileno(), 65536)
            require(part, "the program has ended")
            self.rest += part
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()


def give_kernel(spaces, addresses, space="b", interface="eth0", link_local="fe80::2"):
    for v in VERSIONS:
        ip("-n", spaces[space], "address", "add", f"{addresses[v]}/{PREFIX[v]}", "dev", interface, *["nodad"] * (v == 6))
    if HAS_IPV6:  # source of the kernel's neighbour solicitations
        ip("-n", spaces[space], "address", "add", f"{link_local}/64", "dev", interface, "nodad")


@contextlib.contextmanager
def heard(space, capture, *more, interface="eth0"):
    """A tcpdump with further arguments in that namespace: it goes on when a unetd at the other end dies."""
    require(shutil.which("tcpdump"), "there is no tcpdump: scripts/install-packages")
    at_once = ["--immediate-mode", "-U"]
    command = ["ip", "netns", "exec", space, "tcpdump", "-Z", "root", "-i", interface, *at_once, "-B", "8192", "-w", capture, *more]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        line = Lines(process.stderr).next()
        require("listening on" in line, f"tcpdump: {line}")
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT)


def looks_right(capture, sent_by_us=False, but="", partial=False):
    """tshark finds no malformed packet and no wrong checksum in the capture, or in our part of it. `but` excludes false complaints.
    `partial`: a device fills in the checksums of TCP and UDP."""
    require(shutil.which("tshark"), "there is no tshark: scripts/install-packages")
    checks = [word for each in ["ip", *["udp", "tcp"] * (not partial)] for word in ("-o", f"{each}.check_checksum:TRUE")]
    # The tests send plain data, whatever protocol tshark assigns to a port that the test happened to get.
    plain = ["-d", "udp.port==1024-65535,data", "-d", "tcp.port==1024-65535,data"]
    # tshark treats wrong checksums of these as warnings only, so they are named.
    warnings = "icmp.checksum_bad or icmpv6.checksum_bad.expert or igmp.bad_checksum"
    wrong = f"(_ws.malformed or _ws.expert.severity >= 8388608 or {warnings})"
    if sent_by_us:
        # The outer header's address: an ICMP error of the kernel quotes our packet as the wire left it.
        wrong += f" and (ip.src#1 == {OURS[4]} or ipv6.src#1 == {OURS[6]})"
    if but:
        wrong += f" and not ({but})"
    end = time.monotonic() + WAIT
    while time.monotonic() < end:  # a capture that is still written has no end yet; that of a killed process may never have one
        status, out, err = run("tshark", "-r", capture, *checks, *plain, "-Y", wrong)
        if "cut short" not in err:
            break
        time.sleep(0.1)
    require(status == 0, f"tshark: {err}")
    require(out.strip() == "", f"tshark complains:\n{out}")
