# program_roles.py - where an unmodified server and its client run: on U-Net's sockets or the kernel's, on one host or with a wire between;
# for sockets_programs.py.
#
# A program on U-Net's sockets runs in a namespace where the kernel has only the loopback address. Traffic that wrongly goes to the kernel
# is therefore lost.
import contextlib
import grp
import os
import re
import shutil
import signal
import subprocess

from daemon import WAIT, directory, require, run, wait_until
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, give_kernel
from spaces import Host, Spaces, ip


class Side:
    """Starts programs in a namespace, on U-Net's sockets or the kernel's."""

    def __init__(self, space, directory_, sockets=None):
        """`sockets`: unet-sockets and the address of the NI."""
        self.space, self.directory = space, directory_
        self.is_ours = sockets is not None
        self.env = os.environ | ({"UNET_NI": sockets[1]} if sockets else {})
        self.before = ["ip", "netns", "exec", space, *(sockets[:1] if sockets else [])]

    def start(self, *command, **more):
        """The program leads a process group of its own."""
        return subprocess.Popen([*self.before, *map(str, command)], env=self.env, start_new_session=True, **more)

    def run(self, *command, data=b"", status=0):
        """Runs to the end; returns its output."""
        process = self.start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(data, timeout=WAIT)
        except subprocess.TimeoutExpired:
            end(process, signal.SIGKILL)
            out, err = process.communicate()
            require(False, f"{' '.join(map(str, command))} does not end; it said: {(out + err)[-2000:].decode(errors='replace')}")
        said = (out[-1000:] + err[-1000:]).decode(errors="replace")
        require(process.returncode == status, f"{' '.join(map(str, command))} ends with {process.returncode}: {said}")
        return out

    def text(self, *command, **more):
        return self.run(*command, **more).decode()

    @contextlib.contextmanager
    def server(self, *command, ready=None, when=None, stdin=subprocess.DEVNULL, stops=False):
        """Runs during the block, which starts once the log contains `ready`, or when() is true. All of its processes end with it. `stops`:
        the block ends the server."""
        log = os.path.join(self.directory, f"log-{len(os.listdir(self.directory))}")
        with open(log, "wb") as out:
            process = self.start(*command, stdin=stdin, stdout=out, stderr=out)

        def said():
            with open(log, encoding="utf-8", errors="replace") as file:
                return file.read()

        def is_ready():
            require(process.poll() is None, f"{command[0]} ended with {process.returncode}: {said()[-2000:]}")
            return when() if when else re.search(ready, said())

        process.said = said
        try:
            wait_until(is_ready, f"{command[0]} does not get ready: {said()[-2000:]}")
            yield process
            require(stops or process.poll() is None, f"{command[0]} ended by itself with {process.poll()}: {said()[-2000:]}")
        finally:
            end(process, signal.SIGTERM)


def end(process, first):
    """Kills the whole group, as servers have workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, first)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(WAIT)


class Role:
    def __init__(self, server, client, addresses, directory_):
        self.server, self.client, self.addresses, self.directory = server, client, addresses, directory_

    def file(self, name, data=None):
        path = os.path.join(self.directory, name)
        if data is not None:
            with open(path, "wb") as file:
                file.write(data)
        return path

    def subdirectory(self, name):
        path = os.path.join(self.directory, name)
        os.makedirs(path, exist_ok=True)
        return path


def wire_with_offloads(spaces):
    spaces.join("a", "eth0", "b", "eth0")
    if shutil.which("ethtool"):
        for host in ("a", "b"):
            run("ip", "netns", "exec", spaces[host], "ethtool", "-K", "eth0", "tso", "on", "gso", "on", "gro", "on", "tx", "on")


def with_loopback(spaces, *names):
    for name in names:
        ip("-n", spaces[name], "link", "set", "lo", "up")


@contextlib.contextmanager
def network_interface(unetd, spaces, d, port, user=None):
    """`user`, and the group of the same number, may use it, too."""
    if user is not None:
        os.chmod(d, 0o755)
        with open(f"{d}/policy.toml", "w", encoding="ascii") as file:
            file.write(f"[[rule]]\nuid = {user}\n")
    more = ["--group", grp.getgrgid(user).gr_name, "--policy", f"{d}/policy.toml"] if user is not None else []
    with Host(unetd, spaces, "a", f"{d}/s", port, "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed", *more) as daemon:
        yield f"unix:{d}/s"
        require(daemon.stop() == 0, "unetd did not end well")


def own_interface(*_):
    """Embedded in our program, which must be a single process with the NI to itself."""
    return contextlib.nullcontext("embedded:packet:iface=eth0;ip=0=" + ",".join(OUR_ADDRESSES) + ",unprobed")


@contextlib.contextmanager
def over_a_wire(interface, sockets, ours_serve):
    """`interface(spaces, directory)` makes the address of our NI, for the length of a block."""
    with directory() as d, directory() as files, Spaces("a", "b") as spaces:
        wire_with_offloads(spaces)
        with_loopback(spaces, "a", "b")
        give_kernel(spaces, KERNELS)
        with interface(spaces, d) as ni:
            ours, kernel = Side(spaces["a"], files, [sockets, ni]), Side(spaces["b"], files)
            yield Role(ours, kernel, OURS, files) if ours_serve else Role(kernel, ours, KERNELS, files)


@contextlib.contextmanager
def both_ours(unetd, sockets, user):
    with directory() as d, directory() as files, Spaces("a") as spaces:
        with_loopback(spaces, "a")
        with network_interface(unetd, spaces, d, "nowhere", user) as ni:
            ours = Side(spaces["a"], files, [sockets, ni])
            yield Role(ours, ours, OURS, files)


@contextlib.contextmanager
def both_kernel():
    with directory() as files, Spaces("a", "b") as spaces:
        wire_with_offloads(spaces)
        with_loopback(spaces, "a", "b")
        give_kernel(spaces, KERNELS)
        give_kernel(spaces, OURS, "a", link_local="fe80::1")
        yield Role(Side(spaces["a"], files), Side(spaces["b"], files), OURS, files)


def roles(unetd, sockets, embedded, own, user=None):
    """Names of roles, and what makes each. Without unet-sockets, or as a soak, also the kernel at both ends: a failure there is not
    U-Net's. `own`: the roles, "server" or "client", that are a single process and may embed the NI (the library `embedded`). `user`:
    runs the server, if not root."""
    os.environ["UNET_EMBEDDED_LIBRARY"] = embedded
    found = []

    def of_unetd(spaces, d):
        return network_interface(unetd, spaces, d, "packet:iface=eth0", user)

    if os.path.exists(sockets):
        found = [("server ours, client kernel", lambda: over_a_wire(of_unetd, sockets, True)),
                 ("server kernel, client ours", lambda: over_a_wire(of_unetd, sockets, False)),
                 ("both ours", lambda: both_ours(unetd, sockets, user))]
        found += [(f"{who} ours with its own interface", lambda who=who: over_a_wire(own_interface, sockets, who == "server"))
                  for who in own]
    if not found or "UNET_LONG" in os.environ:
        found.append(("both kernel", both_kernel))
    return found


def each_version(role):
    """The server's address in each IP version in use."""
    return [(v, role.addresses[v]) for v in VERSIONS]
