#!/usr/bin/env python3
# am_wires.py - Active Messages between two unetds over each kind of wire, sound and impaired; both sides check every byte, the order and
# the number of messages. Servers are killed.
#
# Usage: am_wires.py UNETD AM_STORM      (without root and network namespaces, the tests that need them are skipped)
import contextlib
import json
import os
import subprocess
import sys

from daemon import WAIT, Unetd, directory, main, require
from spaces import Host, Spaces, can_be_made

UNETD, AM_STORM = (os.path.abspath(p) for p in sys.argv[1:3])
IMPAIRED = "faulty:loss=3%,duplicate=1%,reorder=2%,corrupt=1%,seed={} / "
HOSTS = {"alpha": "beta", "beta": "alpha"}
MESSAGES = 1000


def environment(path):
    return os.environ | {"UNET_NI": "unix:" + path}


class Storm:
    """A process of am_storm; killed at the end."""

    def __init__(self, path, *args):
        self.process = subprocess.Popen([AM_STORM, *args], env=environment(path), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def end(self):
        """Its status, its output, and its errors."""
        out, err = self.process.communicate(timeout=5 * WAIT)
        return self.process.returncode, out, err


def begun(storm, word):
    line = storm.process.stdout.readline()
    require(line == word + "\n", f"instead of '{word}': {line or storm.end()}")
    return storm


def serving(path, name):
    return begun(Storm(path, "serve", name), "ready")


def asking(path, target, messages=MESSAGES):
    return begun(Storm(path, "ask", target, str(messages)), "asking")


def asked(storm, status=0):
    code, out, err = storm.end()
    require(code == status and err == "", f"an asker ends with {code}: {out}{err}")
    return json.loads(out)


def served(storm):
    storm.process.terminate()
    code, _, err = storm.end()
    require(code == 0 and err == "", f"a server ends with {code}: {err}")


def exchange(paths, impaired):
    """An exchange started from both sides at once."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(serving(path, "storm")) for path in paths.values()]
        askers = [stack.enter_context(asking(paths[host], f"storm@{other}")) for host, other in HOSTS.items()]
        results = [asked(each) for each in askers]
        for result in results:
            require(result["requests"] + result["gets"] == MESSAGES and result["gets"] > 0, f"not all of it: {result}")
            require(not result["local"], f"not over the wire: {result}")
        require(not impaired or all(each["resent"] > 0 for each in results), f"nothing was lost on this wire: {results}")
        for each in servers:
            served(each)


def killed(paths):
    """The asker learns of the server's death and gets its pending messages back; the next server is a new one."""
    with serving(paths["beta"], "mortal") as server, asking(paths["alpha"], "mortal@beta", 0) as asker:
        with serving(paths["beta"], "other") as beside, asking(paths["alpha"], "other@beta") as unharmed:
            server.process.kill()
            result = asked(asker, status=3)
            require(result["came_back"].get("unreachable", 0) > 0, f"nothing came back: {result}")
            asked(unharmed)
            served(beside)
    with serving(paths["beta"], "mortal") as server, asking(paths["alpha"], "mortal@beta") as asker:
        asked(asker)
        served(server)


def over_memif(prefix):
    with directory() as d, contextlib.ExitStack() as stack:
        paths = {"alpha": d + "/a", "beta": d + "/b"}
        for number, (host, path) in enumerate(paths.items()):
            wire = f"dpdk:net_memif0,socket={d}/memif,role={'server' if number == 0 else 'client'}"
            port = prefix.format(number + 1) + wire
            stack.enter_context(Unetd(UNETD, "--socket", path, "--host", host, "--port", port, "--log", "warning"))
        exchange(paths, prefix != "")
        killed(paths)


def over_veth(driver, prefix):
    with Spaces("a", "b") as spaces, directory() as d, contextlib.ExitStack() as stack:
        spaces.join("a", "eth0", "b", "eth0")
        paths = {"alpha": d + "/a", "beta": d + "/b"}
        for number, (host, path) in enumerate(paths.items()):
            stack.enter_context(Host(UNETD, spaces, host[0], path, prefix.format(number + 1) + driver, "--log", "warning"))
        exchange(paths, prefix != "")
        killed(paths)


def test_memif():
    over_memif("")


def test_memif_impaired():
    over_memif(IMPAIRED)


def test_local():
    """Both on one NI: they write into each other's segments."""
    with directory() as d, Unetd(UNETD, "--socket", d + "/a", "--log", "warning"):
        with serving(d + "/a", "storm") as server, asking(d + "/a", "storm", 10 * MESSAGES) as asker:
            result = asked(asker)
            require(result["local"] and result["gets"] > 0, f"not on a local channel: {result}")
            served(server)
        with serving(d + "/a", "mortal") as server, asking(d + "/a", "mortal", 0) as asker:
            server.process.kill()
            result = asked(asker, status=3)
            require(result["came_back"].get("unreachable", 0) > 0, f"nothing came back: {result}")


if can_be_made():

    def test_af_packet():
        over_veth("dpdk:net_af_packet0,iface=eth0", "")

    def test_af_packet_impaired():
        over_veth("dpdk:net_af_packet0,iface=eth0", IMPAIRED)

    def test_af_xdp():
        over_veth("dpdk:net_af_xdp0,iface=eth0", IMPAIRED)

    def test_xdp():
        over_veth("xdp:iface=eth0", IMPAIRED)

    def test_pcap():
        over_veth("pcap:iface=eth0", IMPAIRED)

sys.exit(main(globals()))
