#!/usr/bin/env python3
# container.py - applications, and unetd itself, in namespaces of their own (contained.py).
# Every path and layer within one host works there. The policy sees each user as the NI's user namespace does.
#
# Usage: container.py UNETD UNETCTL ECHO_SERVER ECHO_CLIENT UNETCAT RPC_PING SOCKETS_PEER [FABRIC_ECHO LIBUNET_FI]
import contextlib
import json
import os
import subprocess
import sys

from contained import AS_NOBODY, NEEDS, PYTHON, SOCKET, contained, make_root
from daemon import NOBODY, WAIT, Unetd, directory, main, one_line, others_may_run, require, run, wait_until

SKIP = 77
SPACES = ("user", "mnt", "pid", "net", "ipc", "uts")
ADDRESS = "10.9.0.1"
UNETD, UNETCTL, ECHO_SERVER, ECHO_CLIENT, UNETCAT, RPC_PING, SOCKETS_PEER = (os.path.abspath(p) for p in sys.argv[1:8])
FABRIC = [os.path.abspath(p) for p in sys.argv[8:]]
EVERYTHING = "[[rule]]\nany = true\nnames = ['*']\n"


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


class Host:
    """A directory with /run/unet of the host, and containers."""

    def __init__(self, path):
        self.path, self.run_directory, self.socket = path, path + "/run", path + "/run/unet.sock"
        self.environment = os.environ | {"UNET_NI": "unix:" + self.socket}

    def root(self, program, *libraries):
        """The root directory for a program and libraries that it loads."""
        root = f"{self.path}/{os.path.basename(program)}"
        if not os.path.exists(root):
            make_root(root, program, *libraries)
        return root

    def contained(self, program, *args):
        """The command of a container with this program. A second call makes another container of the same root directory."""
        return contained(self.root(program), self.run_directory + ":ro", os.path.basename(program), *args)

    def outside(self, program, *args):
        return [program, *args]

    def run(self, command):
        return run(*command, env=self.environment)

    def report(self, view):
        status, out, err = run(UNETCTL, view, "--socket", self.socket, "--json")
        require(status == 0, f"unetctl {view}: {err}")
        return json.loads(out)

    @contextlib.contextmanager
    def server(self, command, name="echo"):
        server = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True)
        try:
            wait_until(lambda: server.poll() is not None or name in run(UNETCTL, "names", "--socket", self.socket)[1], f"no server {name}")
            require(server.poll() is None, f"{name} ends: " + (server.stderr.read() if server.poll() is not None else ""))
            yield server
        finally:
            server.kill()
            server.communicate()


@contextlib.contextmanager
def host():
    with directory() as d:
        os.chmod(d, 0o755)
        os.mkdir(d + "/run")
        yield Host(d)


@contextlib.contextmanager
def network_interface(*args, policy=EVERYTHING):
    """The NI of a host, for all users unless the policy says otherwise."""
    with host() as h:
        write(h.path + "/p.toml", policy)
        with Unetd(UNETD, "--socket", h.socket, "--group", "nogroup", "--policy", h.path + "/p.toml", *args) as daemon:
            yield h, daemon


def require_echo(h, *commands):
    """An echo client of each command exchanges messages over each path."""
    for command in commands:
        for path, over in (("local", "a local channel"), ("ni", "the network interface")):
            for size in ("48", "60000"):
                status, out, err = h.run([*command, "--count", "50", "--path", path, "--size", size, "echo"])
                require(status == 0 and over in out, f"no echo over {over}: {status} {out!r} {err!r}")


def test_between_containers():
    with network_interface() as (h, daemon), h.server(h.contained(ECHO_SERVER, "echo")):
        server, = (c for c in h.report("clients") if c["program"] != "unetctl")
        with open(f"/proc/{server['pid']}/status", encoding="ascii") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        require(server["uid"] == NOBODY and status["Uid"].split() == [str(NOBODY)] * 4, f"{server} {status['Uid']}")
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            require(int(status[kind], 16) == 0, f"the server has {kind} {status[kind]}")
        for space in SPACES:
            require(os.readlink(f"/proc/{server['pid']}/ns/{space}") != os.readlink(f"/proc/self/ns/{space}"), f"{space} is the host's")
        files = set(os.listdir(f"/proc/{server['pid']}/root")) | set(os.listdir(f"/proc/{server['pid']}/root/run/unet"))
        require(files == {"lib", "lib64", "proc", "run", "echo_server", "unet.sock"}, f"the container has {files}")
        require_echo(h, h.contained(ECHO_CLIENT))
        require(daemon.process.poll() is None, "unetd ended")


def test_between_a_container_and_the_host():
    with network_interface() as (h, _), h.server(h.contained(ECHO_SERVER, "echo")) as server:
        require_echo(h, [ECHO_CLIENT])
        server.kill()  # ends all processes of its PID namespace
        wait_until(lambda: not h.report("endpoints"), "what a killed container had stays")


def test_active_messages():
    with network_interface() as (h, _):
        for listens, connects in ((h.contained, h.outside), (h.outside, h.contained), (h.contained, h.contained)):
            with h.server(listens(UNETCAT, "-l", "inbox"), "inbox") as listener:
                done = subprocess.run(connects(UNETCAT, "inbox"), input="a line\n", env=h.environment, capture_output=True, text=True,
                                      timeout=WAIT)
                require(done.returncode == 0, f"unetcat: {done}")
                require(listener.wait(WAIT) == 0 and listener.stdout.read() == "a line\n", "the line has not come")


def test_calls():
    with network_interface() as (h, _), h.server(h.contained(RPC_PING, "serve"), "ping"):
        for command in (h.contained, h.outside):
            status, out, err = h.run(command(RPC_PING, "call"))
            require(status == 0 and "40 + 2 = 42" in out, f"a call: {status} {out!r} {err!r}")


def test_libfabric():
    """Between processes of one user; one in a container cannot read the memory of the other."""
    if not FABRIC:
        print("      not tried: libfabric")
        return
    with network_interface("--host", "one") as (h, _):
        root = h.root(*FABRIC)

        def inside(*args):
            return contained(root, h.run_directory + ":ro", "FI_PROVIDER_PATH=/lib", "fabric_echo", *args)

        def outside(*args):
            return [*AS_NOBODY, "env", f"FI_PROVIDER_PATH={root}/lib", f"LD_LIBRARY_PATH={root}/lib", root + "/fabric_echo", *args]

        for listens, connects in ((inside, inside), (inside, outside), (outside, inside)):
            with h.server(listens("serve", "fabric"), "fabric"):
                status, out, err = h.run(connects("call", "unet://one/fabric"))
                require(status == 0 and "came back" in out, f"libfabric, {listens.__name__}, {connects.__name__}: {status} {out!r} {err!r}")
                status, _, err = h.run(outside("call", "unet://one/fabric")[len(AS_NOBODY):])
                require(status == 1 and "Connection refused" in err, f"another user: {status} {err!r}")


def test_sockets():
    with network_interface("--port", "nowhere", "--ip", f"0={ADDRESS}/24") as (h, _):
        server = subprocess.Popen(h.contained(SOCKETS_PEER, "echo", "7000"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            require(server.stdout.readline() == "ready\n", "no server")
            for command in (h.contained, h.outside):
                for args in (("call", ADDRESS, "7000", "200000", "3"), ("datagrams", ADDRESS, "7000", "1000", "20")):
                    status, out, err = h.run(command(SOCKETS_PEER, *args))
                    require(status == 0 and "done" in out, f"sockets {args}: {status} {out!r} {err!r}")
        finally:
            server.kill()
            server.communicate()


def test_policy_sees_the_user_of_the_host():
    """Root of a container is the user that started it."""
    with network_interface(policy=f"[[rule]]\nuid = {NOBODY}\nnames = ['echo']\n") as (h, _):
        with h.server(h.contained(ECHO_SERVER, "echo")):
            require_echo(h, h.contained(ECHO_CLIENT))
        status, _, err = h.run(h.contained(ECHO_SERVER, "other"))
        require(status == 1 and "other" in err, f"a name of others: {status} {err!r}")
        status, _, err = h.run(h.contained(UNETCTL, "drain"))
        require(status == 1, f"drained by a container: {status}")
        one_line(err, "unetctl", "only root and user 0", f"you are user {NOBODY}")


def test_network_interface_in_a_container():
    """unetd in a container serves other containers and the host. Its owner is its own user outside. The host's other users, also root, are
    unmapped there: they have the rights of user 65534, and operate nothing."""
    with host() as h:
        os.chown(h.run_directory, NOBODY, NOBODY)
        write(make_root(h.path + "/unetd", UNETD) + "/p.toml", f"[[rule]]\nuid = {NOBODY}\nnames = ['echo']\n")
        unetd = contained(h.path + "/unetd", h.run_directory, "unetd")
        with Unetd(unetd, "--socket", SOCKET, "--host", "inner", "--policy", "/p.toml"):
            with h.server([ECHO_SERVER, "echo"]):
                require_echo(h, [ECHO_CLIENT], h.contained(ECHO_CLIENT))
                clients = json.loads(h.run(h.contained(UNETCTL, "clients", "--json"))[1])
                outer, = (client for client in clients if client["program"] == "echo_server")
                require((outer["pid"], outer["uid"]) == (0, NOBODY), f"a process of the host is {outer}")
            with h.server(h.contained(ECHO_SERVER, "echo")):
                require_echo(h, [ECHO_CLIENT], h.contained(ECHO_CLIENT))
            status, _, err = h.run([ECHO_SERVER, "other"])
            require(status == 1 and "other" in err, f"a name that the policy does not give: {status} {err!r}")
            status, _, err = run(UNETCTL, "drain", "--socket", h.socket)
            require(status == 1, f"drained by an unmapped root: {status}")
            one_line(err, "unetctl", "only root and user 0", f"you are user {NOBODY}")
            for command in (h.contained(UNETCTL), *([[*AS_NOBODY, UNETCTL]] if others_may_run(UNETCTL) else [])):
                for undo in ([], ["--undo"]):
                    status, out, err = h.run([*command, "drain", *undo])
                    require(status == 0, f"the owner may not drain{undo}: {status} {err!r}")


if PYTHON is None:
    print(NEEDS)
    sys.exit(SKIP)
sys.exit(main(globals()))
