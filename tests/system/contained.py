# contained.py - programs in containers without an engine: namespaces of their own (user, mount, PID, network, IPC, UTS), no capability, a
# root directory of their own, and /run/unet of the host; for the other files here.
import ctypes
import inspect
import os
import re
import shutil
import subprocess
import sys

from daemon import IS_ROOT, NOBODY, WAIT, run

UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
SOCKET = "/run/unet/unet.sock"  # in a container


def inside(root, run_directory, *words):
    """Called in the namespaces: enters the root directory and becomes the program, without capabilities."""
    source, _, how = run_directory.partition(":")
    subprocess.run(["mount", "-o", f"bind,{how or 'rw'},nosuid,nodev,noexec", source, root + "/run/unet"], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", root + "/proc"], check=False, stderr=subprocess.DEVNULL)  # sanitizers look there
    os.chroot(root)
    os.chdir("/")
    libc = ctypes.CDLL(None)
    pr_capbset_drop, pr_set_no_new_privs = 24, 38
    for capability in range(64):
        if libc.prctl(pr_capbset_drop, capability, 0, 0, 0) != 0:
            break  # beyond the last
    libc.prctl(pr_set_no_new_privs, 1, 0, 0, 0)
    command, environment = list(words), {}
    while "=" in command[0]:
        name, _, environment[name] = command.pop(0).partition("=")
    os.execve(command[0], command, environment)


# The user may have no right to read this file.
INSIDE = f"import ctypes, os, subprocess, sys\n{inspect.getsource(inside)}\ninside(*sys.argv[1:])"


def contained(root, run_directory, *command):
    """The command of a container, run as user 65534. `run_directory`: becomes /run/unet; with :ro behind it, read-only."""
    return [*AS_NOBODY, *UNSHARE, PYTHON, "-c", INSIDE, root, run_directory, f"UNET_NI=unix:{SOCKET}", "LD_LIBRARY_PATH=/lib",
            "ASAN_OPTIONS=detect_leaks=0", *command]


def make_root(root, program, *libraries):
    """A root directory with only the program, libraries that it loads, and the libraries that these are linked with."""
    for part in ("lib", "lib64", "proc", "run/unet"):
        os.makedirs(f"{root}/{part}")
    shutil.copy(program, root)
    for library in libraries:
        shutil.copy(library, root + "/lib")
    linked = subprocess.run(["ldd", program, *libraries], capture_output=True, text=True, check=True, timeout=WAIT).stdout
    for path in re.findall(r"(/\S+) \(0x", linked):
        shutil.copy(path, root + ("/lib64" if "/ld-linux" in path else "/lib"))
    return root


PYTHON = next((p for p in (sys.executable, "/usr/bin/python3") if IS_ROOT and run(*AS_NOBODY, *UNSHARE, p, "-c", "")[0] == 0), None)
NEEDS = "needs root, users that may have namespaces of their own, and a Python that they may run"
