# namespaces.py - network namespaces named after their testbed, veth pairs and a bridge, through iproute2's `ip`.
import os
import shutil
import subprocess

from failure import Failure
import interruption
import programs
import state as states

PREFIX = "unet-testbed"
PLACE = "/run/netns"
SWITCH = "switch"  # hosts are called h0, h1, ...


def name_of(testbed, host):
    return f"{PREFIX}.{testbed}.{host}"


def of_testbed(testbed):
    """Returns the namespaces that exist."""
    try:
        return sorted(name for name in os.listdir(PLACE) if name.startswith(f"{PREFIX}.{testbed}."))
    except OSError:
        return []


def ip(*arguments):
    # The child inherits our locks: if we are killed, the testbed stays locked while it still makes a part of it.
    with interruption.whole():
        done = subprocess.run([programs.find("ip"), *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                              pass_fds=states.held)
    if done.returncode != 0:
        why = (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[0]
        raise Failure(f"ip {' '.join(arguments)}: {why}")
    return done.stdout


def add(name):
    ip("netns", "add", name)
    ip("-n", name, "link", "set", "lo", "up")


def delete(name):
    try:
        ip("netns", "delete", name)
    except Failure:
        # A namespace that was only half mounted: only its file is left.
        if os.path.exists(f"{PLACE}/{name}"):
            os.unlink(f"{PLACE}/{name}")


def offloads_off(namespace, interface):
    """Turns offloads off, so that frames pass as they are sent. Needs ethtool; without it, U-Net's frames are not offloaded anyway."""
    ethtool = shutil.which("ethtool", path=programs.search_path())
    if ethtool is not None:
        with interruption.whole():
            subprocess.run([programs.find("ip"), "netns", "exec", namespace, ethtool, "-K", interface, "tso", "off", "gso", "off",
                            "gro", "off", "tx", "off"], check=False, stdin=subprocess.DEVNULL, capture_output=True)


def mac(index):
    """A locally administered address. Only the testbed's own hosts see it."""
    return f"02:75:6e:74:00:{index + 1:02x}"


def address(index):
    return f"10.85.0.{index + 1}"


def finish_end(namespace, index, mtu):
    ip("-n", namespace, "address", "add", address(index) + "/24", "dev", "eth0")
    ip("-n", namespace, "link", "set", "eth0", "mtu", str(mtu), "addrgenmode", "none", "up")
    offloads_off(namespace, "eth0")


def join_two(first, second, mtu):
    ip("-n", first, "link", "add", "eth0", "address", mac(0), "type", "veth",
       "peer", "name", "eth0", "address", mac(1), "netns", second)
    finish_end(first, 0, mtu)
    finish_end(second, 1, mtu)


def join_by_bridge(switch, hosts, mtu):
    ip("-n", switch, "link", "add", "bridge", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
    ip("-n", switch, "link", "set", "bridge", "mtu", str(mtu), "addrgenmode", "none", "up")
    for index, host in enumerate(hosts):
        port = f"port{index}"
        ip("-n", host, "link", "add", "eth0", "address", mac(index), "type", "veth", "peer", "name", port, "netns", switch)
        ip("-n", switch, "link", "set", port, "master", "bridge", "mtu", str(mtu), "addrgenmode", "none", "up")
        offloads_off(switch, port)
        finish_end(host, index, mtu)


def members(names):
    """Returns the processes in these namespaces except this one, in the form of processes.end()."""
    inodes = set()
    for name in names:
        try:
            inodes.add(os.stat(f"{PLACE}/{name}").st_ino)
        except OSError:
            pass

    def is_meant(pid):
        try:
            return os.stat(f"/proc/{pid}/ns/net").st_ino in inodes
        except OSError:
            return False

    if not inodes:
        return []
    found = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [(pid, is_meant) for pid in found if pid != os.getpid() and is_meant(pid)]
