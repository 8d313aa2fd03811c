# spaces.py - network namespaces of a test, and veth pairs between them; for the other files here.
import os
import shutil

from daemon import IS_ROOT, Unetd, require, run

HAS_IPV6 = os.path.exists("/proc/sys/net/ipv6")  # not with ipv6.disable=1


def can_be_made():
    name = f"unet-test-{os.getpid()}"
    if not IS_ROOT or not shutil.which("ip") or not ip("netns", "add", name, may_fail=True):
        return False
    pair = ip("-n", name, "link", "add", "name", "a", "type", "veth", "peer", "name", "b", may_fail=True)
    ip("netns", "delete", name)
    return pair


def ip(*args, may_fail=False):
    status, _, err = run("ip", *args)
    require(may_fail or status == 0, f"ip {' '.join(args)}: {err}")
    return status == 0


def sysctl(space, name, value):
    status, _, err = run("ip", "netns", "exec", space, "sysctl", "-q", "-w", f"{name}={value}")
    require(status == 0, f"sysctl {name}: {err}")


def quiet_up(space, end):
    """Takes an interface up without the messages of a kernel's automatic IPv6 address (a kernel without IPv6 lacks the option)."""
    ip("-n", space, "link", "set", end, "addrgenmode", "none", may_fail=not HAS_IPV6)
    ip("-n", space, "link", "set", end, "up")


class Spaces:
    """Namespaces of this process, removed at the end with the interfaces in them."""

    def __init__(self, *names):
        self.names = {name: f"unet-test-{os.getpid()}-{name}" for name in names}

    def __enter__(self):
        try:
            for name in self.names.values():
                ip("netns", "add", name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names.values():
            ip("netns", "delete", name, may_fail=True)

    def __getitem__(self, name):
        return self.names[name]

    def join(self, one, one_end, other, other_end, queues=1):
        """Joins two namespaces by a veth pair, without the kernel's own traffic and offloads."""
        many = ["numtxqueues", str(queues), "numrxqueues", str(queues)]
        ip("-n", self[one], "link", "add", one_end, *many, "type", "veth", "peer", "name", other_end, "netns", self[other], *many)
        for host, end in ((one, one_end), (other, other_end)):
            quiet_up(self[host], end)
            if shutil.which("ethtool"):
                run("ip", "netns", "exec", self[host], "ethtool", "-K", end, "tso", "off", "gso", "off", "gro", "off", "tx", "off",
                    "txvlan", "off", "rxvlan", "off")


class Host(Unetd):
    """A unetd in the namespace a or b, with the host name alpha or beta."""

    def __init__(self, unetd, spaces, host, path, port, *args, **more):
        command = ["ip", "netns", "exec", spaces[host], unetd]
        super().__init__(command, "--socket", path, "--host", {"a": "alpha", "b": "beta"}[host], "--port", port, *args, **more)
