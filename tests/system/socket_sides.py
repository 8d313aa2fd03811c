# socket_sides.py - two programs that make socket calls on command (sockets_script.cc), at most one of them on ipstack's sockets, the others
# on kernels behind a switch; for sockets_scenes.py, sockets_rare_features.py and sockets_paths.py.
import contextlib
import os
import subprocess

from daemon import WAIT, directory, require
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, Lines, give_kernel
from spaces import HAS_IPV6, Host, Spaces, ip, sysctl

WIRE = "pcap:iface=eth0"
OTHERS = {4: "10.86.0.3", 6: "fd00:86::3"}  # addresses of a second kernel


class Side:
    """A program that makes calls."""

    def __init__(self, command, addresses, env=None):
        self.addresses = addresses
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.line = Lines(self.process.stdout).next

    def __enter__(self):
        try:
            line = self.line()
            require(line == "ready", f"it says {line}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(WAIT)

    def begin(self, command):
        self.process.stdin.write(f"{command}\n".encode())
        self.process.stdin.flush()

    def does(self, command):
        self.begin(command)
        return self.line()

    def must(self, command, answer="0"):
        said = self.does(command)
        require(said in answer.split("|"), f"{command}: {said}, not {answer}")


class Stage:
    """Namespace a with a unetd that has IP, b and c with kernels, and a switch between them in s."""

    def __init__(self, spaces, d, script):
        self.spaces, self.script, self.capture = spaces, script, f"{d}/wire.pcapng"
        self.env = os.environ | {"UNET_NI": f"unix:{d}/s"}

    def ours(self, *args):
        return Side([self.script, "ours", *args], OURS, self.env)

    def kernel(self, name="b"):
        addresses = {"b": KERNELS, "c": OTHERS}[name]
        return Side(["ip", "netns", "exec", self.spaces[name], self.script, "kernel"], addresses)

    def plug(self, name, there=True):
        """Without its cable a host still has a link, but no station on it."""
        ip("-n", self.spaces["s"], "link", "set", f"to_{name}", *(["master", "switch"] if there else ["nomaster"]))


@contextlib.contextmanager
def stage(unetd, script, wire=WIRE):
    with directory() as d, Spaces("a", "b", "c", "s") as spaces:
        ip("-n", spaces["s"], "link", "add", "switch", "type", "bridge", "mcast_snooping", "0")
        result = Stage(spaces, d, script)
        for name in ("a", "b", "c"):
            spaces.join(name, "eth0", "s", f"to_{name}")
            result.plug(name)
        ip("-n", spaces["s"], "link", "set", "switch", "addrgenmode", "none", may_fail=not HAS_IPV6)
        ip("-n", spaces["s"], "link", "set", "switch", "up")
        give_kernel(spaces, KERNELS)
        give_kernel(spaces, OTHERS, "c", link_local="fe80::3")
        for name in ("b", "c"):
            sysctl(spaces[name], "net.ipv4.tcp_fastopen", 3)
        port = f"capture:file={d}/wire.pcapng / {wire}"
        with Host(unetd, spaces, "a", f"{d}/s", port, "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed"):
            yield result
