#!/usr/bin/env python3
# container.py - an application in namespaces of its own (user, mount, PID, network, IPC, UTS), without privileges, with only its program
# and the control socket as files: it exchanges messages on every path within one host.
#
# Usage: container.py UNETD UNETCTL ECHO_SERVER ECHO_CLIENT
#        container.py --inside ROOT SOCKET PROGRAM ARGS...     run by the test in the namespaces, before the program
import contextlib
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys

from daemon import IS_ROOT, NOBODY, WAIT, Unetd, directory, main, require, run, wait_until

SKIP = 77
SPACES = ("user", "mnt", "pid", "net", "ipc", "uts")
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38


def inside(root, control_socket, program, *args):
    subprocess.run(["mount", "--bind", control_socket, root + "/unet.sock"], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", root + "/proc"], check=False, stderr=subprocess.DEVNULL)  # sanitizers look there
    os.chroot(root)
    os.chdir("/")
    libc = ctypes.CDLL(None)
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break  # beyond the last
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.execve(program, [program, *args], {"UNET_NI": "unix:/unet.sock", "LD_LIBRARY_PATH": "/lib", "ASAN_OPTIONS": "detect_leaks=0"})


if sys.argv[1] == "--inside":
    inside(*sys.argv[2:])

UNETD, UNETCTL, ECHO_SERVER, ECHO_CLIENT = (os.path.abspath(p) for p in sys.argv[1:5])


def make_root(root, program):
    """A file system with only the program and the libraries that it is linked with."""
    for part in ("", "/lib", "/lib64", "/proc"):
        os.mkdir(root + part)
    open(root + "/unet.sock", "w", encoding="ascii").close()
    shutil.copy(program, root + "/program")
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, timeout=WAIT).stdout
    for path in re.findall(r"(/\S+) \(0x", linked):
        shutil.copy(path, root + ("/lib64" if "/ld-linux" in path else "/lib"))


@contextlib.contextmanager
def network_interface():
    with directory() as d:
        os.chmod(d, 0o755)
        with open(d + "/p.toml", "w", encoding="ascii") as f:
            f.write("[[rule]]\nany = true\nnames = ['*']\n")
        for part in ("container.py", "daemon.py"):  # the user may have no right to read the source directory
            shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), part), d)
        for name, program in (("server", ECHO_SERVER), ("client", ECHO_CLIENT)):
            make_root(f"{d}/{name}", program)
        with Unetd(UNETD, "--socket", d + "/s", "--group", "nogroup", "--policy", d + "/p.toml") as daemon:
            yield d, daemon


def contained(d, role, *args):
    here = [PYTHON, d + "/container.py", "--inside", f"{d}/{role}", d + "/s", "/program", *args]
    return [*AS_NOBODY, *UNSHARE, *here]


def report(d, view):
    status, out, err = run(UNETCTL, view, "--socket", d + "/s", "--json")
    require(status == 0, f"unetctl {view}: {err}")
    return json.loads(out)


@contextlib.contextmanager
def contained_server(d):
    server = subprocess.Popen(contained(d, "server", "echo"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: server.poll() is not None or "echo" in run(UNETCTL, "names", "--socket", d + "/s")[1], "no echo server")
        require(server.poll() is None, "the echo server ends: " + (server.stderr.read() if server.poll() is not None else ""))
        yield server
    finally:
        server.kill()
        server.communicate()


def require_echo(status, out, err, over):
    require(status == 0 and over in out, f"no echo over {over}: {status} {out!r} {err!r}")


PATHS = (("local", "a local channel"), ("ni", "the network interface"))


def test_between_containers():
    with network_interface() as (d, daemon), contained_server(d):
        server, = (c for c in report(d, "clients") if c["program"] != "unetctl")
        status = dict(line.rstrip("\n").split(":\t", 1) for line in open(f"/proc/{server['pid']}/status", encoding="ascii") if ":\t" in line)
        require(server["uid"] == NOBODY and status["Uid"].split() == [str(NOBODY)] * 4, f"{server} {status['Uid']}")
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            require(int(status[kind], 16) == 0, f"the server has {kind} {status[kind]}")
        for space in SPACES:
            require(os.readlink(f"/proc/{server['pid']}/ns/{space}") != os.readlink(f"/proc/self/ns/{space}"), f"{space} is the host's")
        files = set(os.listdir(f"/proc/{server['pid']}/root"))
        require(files == {"lib", "lib64", "proc", "program", "unet.sock"}, f"the container has {files}")
        for path, over in PATHS:
            for size in ("48", "60000"):
                require_echo(*run(*contained(d, "client", "--count", "50", "--path", path, "--size", size, "echo")), over)
        require(daemon.process.poll() is None, "unetd ended")


def test_between_a_container_and_the_host():
    with network_interface() as (d, _), contained_server(d) as server:
        host = os.environ | {"UNET_NI": f"unix:{d}/s"}
        for path, over in PATHS:
            require_echo(*run(ECHO_CLIENT, "--count", "50", "--path", path, "echo", env=host), over)
        server.kill()  # ends all processes of its PID namespace
        wait_until(lambda: not report(d, "endpoints"), "what a killed container had stays")


PYTHON = next((p for p in (sys.executable, "/usr/bin/python3") if IS_ROOT and run(*AS_NOBODY, *UNSHARE, p, "-c", "")[0] == 0), None)
if PYTHON is None:
    print("needs root, users that may have namespaces of their own, and a Python that they may run")
    sys.exit(SKIP)
sys.exit(main(globals()))
