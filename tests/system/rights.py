#!/usr/bin/env python3
# rights.py - privileges that unetd drops after start: --user, its capabilities, and system calls that it does not need. Every kind of wire
# works all the same.
#
# Usage: rights.py UNETD UNETCTL ECHO_SERVER ECHO_CLIENT
import contextlib
import ctypes
import errno
import json
import os
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys

from daemon import (IS_ROOT, NOBODY, WAIT, Failure, Unetd, beside, directory, main, one_line, others_may_run, require, run, veth_pair,
                    wait_until)

UNETD, UNETCTL, ECHO_SERVER, ECHO_CLIENT = (os.path.abspath(p) for p in sys.argv[1:5])
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
CAP_LINUX_IMMUTABLE = 1 << 9
ENV = os.environ | {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}  # it traces itself, which the user may not


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def threads(pid):
    """The kernel's status of each thread of a process."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/status", encoding="ascii", errors="replace") as f:
                text = f.read()
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread may end at any time
        found.append(dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line))
    require(found, f"process {pid} is gone")
    return found


def filtered(log):
    return "not filtered" not in log


class Log:
    """The lines that a unetd logs until it is ready."""

    def __init__(self, daemon):
        self.text = ""
        while " info host " not in self.text:
            line = daemon.process.stderr.readline()
            require(line, f"the log ends: {self.text!r}")
            self.text += line


@contextlib.contextmanager
def echo_server(path, name="echo"):
    env = ENV | {"UNET_NI": "unix:" + path}
    server = subprocess.Popen([ECHO_SERVER, name], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: name in run(UNETCTL, "names", "--socket", path)[1], "the echo server does not come up")
        yield
    finally:
        server.kill()
        server.wait(WAIT)


def echo(path, *args):
    status, out, err = run(ECHO_CLIENT, "--count", "20", *args, env=ENV | {"UNET_NI": "unix:" + path})
    require(status == 0, f"no echo: {out!r} {err!r}")


def require_given_up(daemon, log):
    """The status of every thread, the drivers' included."""
    for thread in threads(daemon.process.pid):
        who = f"thread {thread['Name']}"
        require(thread["Uid"].split() == [str(NOBODY)] * 4, f"{who}: uid {thread['Uid']}")
        require(thread["Gid"].split() == [str(os_group())] * 4, f"{who}: gid {thread['Gid']}")
        require(thread["Groups"].split() in ([], [str(os_group())]), f"{who}: groups {thread['Groups']}")
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            kept = CAP_LINUX_IMMUTABLE if kind in ("CapPrm", "CapEff") else 0
            require(int(thread[kind], 16) & ~kept == 0, f"{who}: {kind} {thread[kind]}")
        require(thread["NoNewPrivs"] == "1", f"{who}: NoNewPrivs {thread['NoNewPrivs']}")
        require(thread["Seccomp"] == ("2" if filtered(log) else "0"), f"{who}: Seccomp {thread['Seccomp']}")


def os_group():
    import pwd
    return pwd.getpwuid(NOBODY).pw_gid


@contextlib.contextmanager
def directory_of_nobody():
    with directory() as d:
        os.chmod(d, 0o755)
        os.mkdir(d + "/run")
        os.chown(d + "/run", NOBODY, NOBODY)
        yield d, d + "/run/s"


def test_filter_is_there():
    with directory() as d:
        for args, wanted in (((), "2"), (("--no-seccomp",), "0")):
            with Unetd(UNETD, "--socket", d + "/s", *args) as daemon:
                log = Log(daemon).text
                wanted = wanted if filtered(log) else "0"
                seen = {(t["Seccomp"], t["NoNewPrivs"]) for t in threads(daemon.process.pid)}
                require(seen == {(wanted, "1")}, f"unetd {args}: Seccomp, NoNewPrivs are {seen}")
                with echo_server(d + "/s"):
                    echo(d + "/s", "echo")
                    echo(d + "/s", "--path", "ni", "--size", "65536", "echo")
                require(daemon.stop() == 0, f"status {daemon.process.returncode}: {daemon.process.stderr.read()}")
        write(d + "/c.toml", "seccomp = false\n")
        with Unetd(UNETD, "--socket", d + "/s", "--config", d + "/c.toml") as daemon:
            require({t["Seccomp"] for t in threads(daemon.process.pid)} == {"0"}, "the configuration does not switch it off")


def test_user():
    if not IS_ROOT:
        return
    with directory_of_nobody() as (d, path):
        policy = d + "/p.toml"
        write(policy, "[[rule]]\nany = true\nnames = ['*']\n")
        with Unetd(UNETD, "--user", "nobody", "--socket", path, "--policy", policy, "--group", "daemon", env=ENV) as daemon:
            log = Log(daemon).text
            require("user nobody" in log, log)
            require_given_up(daemon, log)
            made = os.lstat(path)
            require((made.st_uid, stat.S_IMODE(made.st_mode)) == (NOBODY, 0o660), f"the socket: {made}")
            with echo_server(path):
                echo(path, "echo")
                echo(path, "--path", "ni", "echo")
                if others_may_run(UNETCTL):
                    require(run(UNETCTL, "names", "--socket", path, user=NOBODY)[0] == 0, "its own user may not look")
                # Names of users and groups are looked up anew, known and unknown ones.
                write(policy, "[[rule]]\nuser = 'daemon'\n[[rule]]\ngroup = 'mail'\n[[rule]]\nany = true\nendpoints = 1\n")
                status, _, err = run(UNETCTL, "policy", "reload", "--socket", path)
                require(status == 0, f"policy reload: {err!r}")
                write(policy, "[[rule]]\nuser = 'no-such-user'\n")
                status, _, err = run(UNETCTL, "policy", "reload", "--socket", path)
                require(status == 1 and "no-such-user" in err, f"policy reload: {status} {err!r}")
                status, _, err = run(ECHO_CLIENT, "echo", env=ENV | {"UNET_NI": "unix:" + path})
                require(status == 1 and "quota" in err, f"the new policy does not count: {err!r}")
                require_given_up(daemon, log)
            require(daemon.stop() == 0, f"status {daemon.process.returncode}: {daemon.process.stderr.read()}")
            require(not os.path.exists(path), "the socket is left behind")


def test_user_of_the_configuration_and_the_default_directory():
    if not IS_ROOT:
        return
    with directory() as d:
        os.chmod(d, 0o755)
        write(d + "/c.toml", f"user = '{NOBODY}'\n")
        for _ in range(2):  # the second unetd finds the directory as the first left it
            script = 'mount -t tmpfs unet /run && mkdir -p "$1" && exec "$0" --config "$2"'
            daemon = subprocess.Popen(["unshare", "-m", "sh", "-c", script, UNETD, "/run/unet", d + "/c.toml"], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, env={k: v for k, v in ENV.items() if k != "UNET_SOCKET"})
            try:
                ready = daemon.stdout.readline()
                require("ready at /run/unet/unet.sock" in ready, f"{ready!r} {daemon.stderr.read() if not ready else ''}")
                seen = os.stat(f"/proc/{daemon.pid}/root/run/unet")
                require(seen.st_uid == NOBODY and stat.S_IMODE(seen.st_mode) == 0o755, f"/run/unet: {seen}")
                daemon.send_signal(signal.SIGTERM)
                require(daemon.wait(WAIT) == 0, f"status {daemon.returncode}: {daemon.stderr.read()}")
            finally:
                daemon.kill()
                daemon.communicate()


def test_what_a_user_lacks_is_said_at_start():
    with directory_of_nobody() if IS_ROOT else directory() as d:
        status, _, err = run(UNETD, "--user", "no-such-user", "--socket", "/tmp/unet-none")
        require(status == 2, f"no-such-user: {status}")
        one_line(err, "unetd", "no-such-user", "useradd")
        if not IS_ROOT:
            status, _, err = run(UNETD, "--user", "root", "--socket", d + "/s")
            require(status == 1, f"--user without root: {status}")
            one_line(err, "unetd", "only root can")
            return
        d, path = d
        status, _, err = run(UNETD, "--user", "nobody", "--socket", d + "/s", env=ENV)
        require(status == 1 and not os.path.exists(d + "/s"), f"a directory that it cannot write: {status}")
        one_line(err, "unetd", "nobody", f"chown nobody {d}")
        write(d + "/p.toml", "[[rule]]\nany = true\n")
        os.chmod(d + "/p.toml", 0o600)
        status, _, err = run(UNETD, "--user", "nobody", "--socket", path, "--policy", d + "/p.toml", env=ENV)
        require(status == 1 and not os.path.exists(path), f"a policy that it cannot read: {status}")
        one_line(err, "unetd", "nobody", d + "/p.toml")
        if others_may_run(UNETD):
            status, _, err = run(UNETD, "--user", "daemon", "--socket", path, user=NOBODY)
            require(status == 1, f"--user without root: {status}")
            one_line(err, "unetd", "only root can")


def ip(*args):
    status, _, err = run("ip", *args)
    require(status == 0, f"ip {args}: {err}")


def namespace():
    """Moves this process and its future children to a network namespace of their own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        return False
    ip("link", "set", "lo", "up")
    return True


@contextlib.contextmanager
def told_of(what, *paths):
    """A failure names the wire, and the NIs' counters."""
    try:
        yield
    except (Failure, subprocess.TimeoutExpired) as error:
        counted = "; ".join(" ".join(run(UNETCTL, "stats", "--socket", path)[1].split()) for path in paths)
        raise Failure(f"{what}: {error}: {counted}") from error


def over_a_wire(name, port_a, port_b, connect=lambda: None):
    with directory_of_nobody() as (d, path):
        other = d + "/run/t"
        port_a, port_b = port_a.replace("DIR", d + "/run"), port_b.replace("DIR", d + "/run")
        # Four processes share the machine's cores with other tests, so idle engines sleep. Only with AF_XDP does root do something at the
        # end that the user may not.
        for user in [["--user", "nobody", "--idle", "block"]] + ([["--idle", "block"]] if name == "af_xdp" else []):
            daemons = contextlib.ExitStack()
            with daemons:
                one = daemons.enter_context(Unetd(UNETD, *user, "--socket", path, "--host", "alpha", "--port", port_a, env=ENV))
                two = daemons.enter_context(Unetd(UNETD, *user, "--socket", other, "--host", "beta", "--port", port_b, env=ENV))
                connect()
                for daemon in (one, two):
                    log = Log(daemon).text
                    if "--user" in user:
                        require_given_up(daemon, log)
                with echo_server(path), told_of(f"{name} {user}", path, other):
                    echo(other, "--wait", str(WAIT // 2), "--size", "3000", "echo@alpha")
                    # A report does not wait long for an engine that has lost its core.
                    wait_until(lambda: "rx_frames" in run(UNETCTL, "ports", "--socket", other, "--json")[1], f"{name}: no counters of the port")
                for daemon in (two, one):
                    status = daemon.stop()
                    require(status == 0, f"{name} {user}: status {status}: {daemon.process.stderr.read()}")
            require(not os.path.exists(path) and not os.path.exists(other), f"{name}: a socket is left behind")


def take_group(interface, protocol):
    """Takes the only place in the fanout group of packet sockets that stands for the interface; an OSError says why it failed."""
    with open(os.path.join(os.path.dirname(__file__), "../../drivers/interface_claim.cc"), encoding="ascii") as f:
        groups = int(re.search(r"kGroups = (0x[0-9A-F]+);", f.read())[1], 16)
    taken = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        taken.bind((interface, protocol))
        sol_packet, packet_fanout, by_hash = 263, 18, 0
        taken.setsockopt(sol_packet, packet_fanout, struct.pack("HHI", socket.if_nametoindex(interface) ^ groups, by_hash, 1))
    except OSError:
        taken.close()
        raise
    return taken


def unclaimed():
    """Where the kernel cannot do that, or the group is used otherwise, the port works and warns that it is not exclusive."""
    local_experiments = 0x88B6
    for protocol, says in ((local_experiments + 1, " unclaimed (Invalid argument"), (None, "")):
        with contextlib.ExitStack() as stack:
            if protocol is not None:
                stack.enter_context(take_group("va", protocol))
            for port in ("dpdk:net_af_packet0,iface=va", "pcap:iface=va"):
                with directory() as d, Unetd(UNETD, "--socket", d + "/s", "--port", port) as daemon:
                    log = Log(daemon).text
                    require(("unclaimed" in log) == bool(says) and says in log, f"{port}, of {protocol}: {log!r}")
                    require(daemon.stop() == 0, port)


def one_network_interface_each():
    """An interface has one NI, by any driver, until that NI ends in any way; also with a supervisor."""
    try:
        take_group("va", 0x88B6).close()
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        print(f"      not tried: two network interfaces on one interface: this kernel has no groups of one packet socket ({error})")
        return
    packet, pcap = "dpdk:net_af_packet0,iface=va", "pcap:iface=va"

    def refused(d, port, text):
        status, _, err = run(UNETD, "--socket", d + "/t", *port)
        require(status == 1, f"{text}: {status}")
        one_line(err, "unetd", "another network interface of U-Net", "va", "vlan: and udp: do not tell them apart")

    with directory() as d:
        for first, second in ((packet, packet), (packet, pcap), (pcap, packet), (pcap, pcap)):
            with Unetd(UNETD, "--socket", d + "/s", "--port", first):
                refused(d, ["--port", second], f"{first} and {second}")
                with Unetd(UNETD, "--socket", d + "/u", "--port", "pcap:iface=vb") as other:  # another interface is free
                    require(other.stop() == 0, "the other one")
            with Unetd(UNETD, "--socket", d + "/s", "--port", second) as again:  # the first was killed
                require(again.stop() == 0, "the one after it")
        refused(d, ["--port", "pcap:iface=va", "--port", "dpdk:net_af_packet0,iface=va"], "two ports of one")
        refused(d, ["--port", "vlan:id=1 / pcap:iface=va", "--port", "vlan:id=2 / dpdk:net_af_packet0,iface=va"], "two VLANs")
        unclaimed()
        for port in (packet, pcap):
            with Unetd(UNETD, "--socket", d + "/s", "--port", port, "--takeover", "60") as supervisor:
                def serving():
                    status, out, _ = run(UNETCTL, "all", "--json", "--socket", d + "/s")
                    return json.loads(out)["ni"]["pid"] if status == 0 else None
                before = serving()
                status, _, err = run(UNETCTL, "upgrade", "--socket", d + "/s")
                require(status == 0, f"upgrade with {port}: {err}")
                after = serving()
                require(after not in (None, before), f"{port}: {before} still serves")
                os.kill(after, signal.SIGKILL)
                wait_until(lambda: serving() not in (None, before, after), f"{port}: nobody takes over")
                refused(d, ["--port", port], f"after a takeover, {port}")
                require(supervisor.stop() == 0, "the supervisor")


def a_wire_that_comes_back():
    """An interface that is down during a takeover delays it, and costs nothing else."""
    with directory() as d, Unetd(UNETD, "--socket", d + "/s", "--port", "pcap:iface=va", "--takeover", "60", "--no-standby") as supervisor:
        def serving():
            status, out, _ = run(UNETCTL, "all", "--json", "--socket", d + "/s")
            return json.loads(out)["ni"]["pid"] if status == 0 else None
        before = serving()
        ip("link", "set", "va", "down")
        os.kill(before, signal.SIGKILL)
        line = log = ""
        while "trying again" not in line:
            line = supervisor.process.stderr.readline()
            require(line, f"the supervisor does not wait for the interface: {log!r}")
            log += line
        require("is down" in line, f"waits for something else: {line!r}")
        ip("link", "set", "va", "up")
        wait_until(lambda: serving() not in (None, before), "nobody takes over")
        require(supervisor.stop() == 0, "the supervisor")


@beside
def test_a_wire_that_is_gone():
    """A takeover waits for its wire and logs why there is none; after some attempts the supervisor gives up."""
    if not IS_ROOT or not namespace() or not veth_pair("va", "vb"):
        return
    with directory() as d, Unetd(UNETD, "--socket", d + "/s", "--port", "pcap:iface=va", "--takeover", "20", "--no-standby") as supervisor:
        _, out, _ = run(UNETCTL, "all", "--json", "--socket", d + "/s")
        ip("link", "del", "va")
        os.kill(json.loads(out)["ni"]["pid"], signal.SIGKILL)
        require(supervisor.process.wait(WAIT) != 0, "a supervisor without a network interface ends well")
        err = supervisor.process.stderr.read()
        require("no such network interface" in err, f"the reason is missing: {err!r}")


def test_setuid():
    """A program with more rights than its caller does not let the caller choose its NI."""
    if not IS_ROOT:
        print("      test_setuid needs root")
        return
    with directory() as d:
        with open("/proc/self/status", encoding="ascii") as status:
            is_kept = "NoNewPrivs:\t1" in status.read()
        if is_kept or os.statvfs(d).f_flag & os.ST_NOSUID:
            print("      test_setuid needs a /tmp with setuid programs, and the right to gain rights")
            return
        os.chmod(d, 0o755)
        program = d + "/unetctl"
        shutil.copy(UNETCTL, program)
        for name in ({"UNET_NI": f"unix:{d}/chosen"}, {"UNET_SOCKET": f"{d}/chosen"}, {"XDG_RUNTIME_DIR": d}):
            for mode, obeys in ((0o755, True), (0o4755, False)):
                os.chown(program, 65533, -1)
                os.chmod(program, mode)
                done = subprocess.run([program, "names"], env=name, capture_output=True, text=True, timeout=WAIT, check=False,
                                      user=NOBODY, group=NOBODY, extra_groups=[])
                require(done.returncode == 1, f"status {done.returncode}: {done.stderr!r}")
                require((d in done.stderr) == obeys, f"{name}, mode {mode:o}: {done.stderr!r}")


def test_wires():
    if not IS_ROOT or not namespace():
        print("      test_wires needs root and a network namespace")
        return
    over_a_wire("memif", "dpdk:net_memif0,role=server,socket=DIR/m", "dpdk:net_memif0,role=client,socket=DIR/m")
    if veth_pair("va", "vb"):
        over_a_wire("af_packet", "dpdk:net_af_packet0,iface=va", "dpdk:net_af_packet0,iface=vb")
        over_a_wire("pcap", "capture:file=DIR/frames / trace:file=DIR/lines / pcap:iface=va", "pcap:iface=vb")
        over_a_wire("af_xdp", "dpdk:net_af_xdp0,iface=va", "dpdk:net_af_xdp0,iface=vb")
        over_a_wire("xdp", "xdp:iface=va", "xdp:iface=vb")
        one_network_interface_each()
        a_wire_that_comes_back()
    ip("link", "add", "br0", "type", "bridge")
    ip("link", "set", "br0", "up")

    def bridge():
        for tap in ("ta", "tb"):
            ip("link", "set", tap, "master", "br0")
            ip("link", "set", tap, "up")

    over_a_wire("virtio_user", "dpdk:net_vhost0,iface=DIR/v", "dpdk:net_virtio_user0,path=DIR/v,queues=1")
    tap = ["--port", "dpdk:net_tap0,iface=tc"]
    with directory() as d, Unetd(UNETD, "--socket", d + "/s", *tap) as first:
        status, _, err = run(UNETD, "--socket", d + "/t", *tap)
        require(status == 1, f"two have one tap: {status}")
        one_line(err, "unetd", "another program has the interface tc")
        require(first.stop() == 0 and not os.listdir(d), f"left behind: {os.listdir(d)}")
    over_a_wire("tap", "dpdk:net_tap0,iface=ta", "dpdk:net_tap0,iface=tb", bridge)


sys.exit(main(globals()))
