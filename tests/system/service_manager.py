#!/usr/bin/env python3
# service_manager.py - unetd under a service manager: the unit is valid, its rights are enough, and readiness is reported.
#
# Usage: service_manager.py unit UNIT UNETD      what systemd-analyze says (77 without it)
#        service_manager.py run UNIT UNETD       the rest, without systemd
import ctypes
import os
import re
import shutil
import socket
import subprocess
import sys

from daemon import IS_ROOT, WAIT, Failure, Unetd, directory, main, require, run, veth_pair

MODE, UNIT, UNETD = sys.argv[1], os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3])
SKIP = 77
CLONE_NEWNET = 0x40000000
ENV = os.environ | {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}  # it traces itself, which the user may not


class Manager:
    """The socket that a service manager listens at."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(WAIT)
        self.socket.bind(address)
        self.name = address.replace("\0", "@")
        if address[0] != "\0":
            os.chmod(address, 0o777)

    def hears(self, state):
        said = self.socket.recv(4096).decode()
        require(said == state, f"{self.name}: {said!r} and not {state!r}")

    def hears_nothing(self):
        self.socket.setblocking(False)
        try:
            raise Failure(f"{self.name}: {self.socket.recv(4096)!r} for no reason")
        except BlockingIOError:
            self.socket.settimeout(WAIT)


def unit_lines():
    with open(UNIT, encoding="ascii") as f:
        return [line for line in f.read().splitlines() if not line.startswith("#")]


def with_unetd_of_this_build(path):
    command, = (line for line in unit_lines() if line.startswith("ExecStart="))
    require(command.split()[0].endswith("/bin/unetd"), command)
    with open(path, "w", encoding="ascii") as f:
        f.write("\n".join(re.sub(r"^ExecStart=\S+", "ExecStart=" + UNETD, line) for line in unit_lines()) + "\n")


def unit_is_right():
    with directory() as d:
        with_unetd_of_this_build(d + "/unetd.service")
        status, out, err = run("systemd-analyze", "verify", "--man=no", d + "/unetd.service")
        require(status == 0 and "unetd.service" not in out + err, f"verify: {out}{err}")
        status, out, err = run("systemd-analyze", "security", "--offline=yes", "--threshold=40", d + "/unetd.service")
        require(status == 0, f"security: {out}{err}")
        with open(d + "/unetd.service", "a", encoding="ascii") as f:
            f.write("[Service]\nNoSuchSetting=1\n")
        status, out, err = run("systemd-analyze", "verify", "--man=no", d + "/unetd.service")
        require("NoSuchSetting" in out + err, f"verify finds nothing wrong: {out}{err}")


def readiness_is_told():
    with directory() as d:
        os.chmod(d, 0o755)
        for address in (d + "/notify", f"\0unet-test-{os.getpid()}"):
            manager = Manager(address)
            with Unetd(UNETD, "--socket", d + "/s", env=ENV | {"NOTIFY_SOCKET": manager.name}) as daemon:
                manager.hears("READY=1")
                manager.hears_nothing()
                require(daemon.stop() == 0, "stop")
                manager.hears("STOPPING=1")
        for nonsense in (d + "/nobody", "@unet-nobody", "relative", "", "/" + "x" * 200):
            with Unetd(UNETD, "--socket", d + "/s", env=ENV | {"NOTIFY_SOCKET": nonsense}) as daemon:
                require(daemon.stop() == 0, f"NOTIFY_SOCKET={nonsense!r}")


def not_ready_when_it_cannot_start():
    with directory() as d:
        manager = Manager(d + "/notify")
        status, _, _ = run(UNETD, "--socket", d + "/s", "--port", "dpdk:net_nonsense0", env=ENV | {"NOTIFY_SOCKET": manager.name})
        require(status == 1, f"status {status}")
        manager.hears_nothing()


def rights_of_the_unit_are_enough():
    """With only the capabilities that the unit leaves, root opens wires and becomes another user."""
    if not IS_ROOT or ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        print("      not tried: the rights of the unit (needs root and a network namespace)")
        return
    line, = (line for line in unit_lines() if line.startswith("CapabilityBoundingSet="))
    bounds = ",".join("+" + name.lower().removeprefix("cap_") for name in line.partition("=")[2].split())
    if not veth_pair("va", "vb"):
        return
    with directory() as d:
        os.chmod(d, 0o755)
        os.mkdir(d + "/run")
        os.chown(d + "/run", 65534, 65534)
        manager = Manager(d + "/notify")
        ports = ["net_af_packet0,iface=va", "net_tap0,iface=ta", "net_memif0,role=server,socket=" + d + "/m"]
        command = ["setpriv", "--inh-caps=-all", "--bounding-set=-all," + bounds, "--no-new-privs", UNETD, "--user", "nobody", "--socket",
                   d + "/run/s", *(word for port in ports for word in ("--port", "dpdk:" + port))]
        daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=ENV | {"NOTIFY_SOCKET": manager.name})
        try:
            manager.hears("READY=1")
            daemon.terminate()
            require(daemon.wait(WAIT) == 0, f"status {daemon.returncode}")
            manager.hears("STOPPING=1")
        except (Failure, OSError) as failure:
            daemon.kill()
            raise Failure(f"{failure}: {daemon.communicate()[1]}") from failure
        finally:
            daemon.kill()
            daemon.communicate()


if MODE == "unit":
    if shutil.which("systemd-analyze") is None:
        print("systemd-analyze is not installed")
        sys.exit(SKIP)
    TESTS = (unit_is_right,)
else:
    TESTS = (readiness_is_told, not_ready_when_it_cannot_start, rights_of_the_unit_are_enough)
sys.exit(main({"test_" + test.__name__: test for test in TESTS}))
