# namespace_hosts.py - hosts in network namespaces of this machine, each with its own unetd.
import os
import select
import subprocess

from failure import Failure
import interruption
import namespaces
import processes
import programs
import wires

READY_SECONDS = 60


class Running:
    """A program on a host."""

    def __init__(self, command, environment, **how):
        self.process = subprocess.Popen(command, env=environment, **how)

    def signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)


class NamespaceHost:
    def __init__(self, state, record):
        self.state, self.record, self.name = state, record, record["name"]

    def command(self, program):
        return [programs.find("ip"), "netns", "exec", self.record["namespace"], *program]

    def environment(self):
        index = [host["name"] for host in self.state["hosts"]].index(self.name)
        return os.environ | {
            "PATH": programs.search_path(), "UNET_NI": "unix:" + self.record["socket"],
            "UNET_RANK": str(index), "UNET_SIZE": str(len(self.state["hosts"])),
            "UNET_TESTBED": self.state["name"], "UNET_TESTBED_HOST": self.name,
        }

    def start(self, program, **how):
        return Running(self.command(program), self.environment(), **how)

    def become(self, program):
        """Replaces this process by the program, which so gets the signals and gives the exit status."""
        command = self.command(program)
        os.execve(command[0], command, self.environment())

    def find(self, program):
        return programs.find(program)

    def place(self):
        return self.record["namespace"]

    def is_up(self):
        return processes.is_alive(self.record.get("pid"), self.record.get("start"))

    def why_down(self):
        """Returns None if its unetd runs."""
        return None if self.is_up() else f"unetd of {self.name} does not run"

    def age(self):
        return processes.age(self.record["start"])

    def log(self):
        try:
            with open(self.record["log"], encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError as error:
            return f"({error})\n"

    # ---- making a testbed

    def start_unetd(self):
        """Begins to start unetd; wait_ready() completes that."""
        os.mkdir(os.path.dirname(self.record["socket"]), 0o700)
        self.ready, write = os.pipe()
        self.launch(["--ready-fd", str(write)], [write])
        os.close(write)

    def launch(self, more_words, descriptors=()):
        ports = [word for port in self.record["ports"] for word in ("--port", port)]
        unetd = [self.find("unetd"), "--socket", self.record["socket"], "--host", self.name, "--idle", self.state["idle"],
                 *more_words, *ports]
        with open(self.record["log"], "xb") as log, interruption.whole():
            self.unetd = subprocess.Popen(self.command(unetd), pass_fds=descriptors, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          start_new_session=True, env=os.environ | {"PATH": programs.search_path()})
            self.record["pid"] = self.unetd.pid
            self.record["start"] = processes.start_time(self.unetd.pid)

    def settle(self):
        """Does nothing: no start is left half done here."""

    def wait_ready(self):
        poll = select.poll()
        poll.register(self.ready, select.POLLIN)
        came = poll.poll(READY_SECONDS * 1000)
        byte = os.read(self.ready, 1) if came else b""
        os.close(self.ready)
        if byte == b"\n":
            return
        if came:
            self.unetd.wait(READY_SECONDS)
        raise self.not_ready(bool(came), READY_SECONDS)

    def not_ready(self, ended, seconds):
        lines = self.log().strip().splitlines()
        why = lines[-1] if lines else "its log is empty"
        return Failure(f"unetd of {self.name} " + (f"did not start: {why}" if ended else f"was not ready after {seconds} s: {why}"))


def describe(options, name, files):
    """Returns the state of a testbed before it is made; it names every part."""
    hosts = []
    for index in range(options.hosts_wanted):
        host = f"h{index}"
        hosts.append({"name": host, "namespace": namespaces.name_of(name, host), "socket": f"{files}/{host}/unet.sock",
                      "log": f"{files}/{host}/unetd.log", "ports": [wires.port(options, index, files)]})
        if options.wire != "memif":
            hosts[-1]["address"] = namespaces.address(index)
    return {"kind": "namespaces", "hosts": hosts, "wire": options.wire, "mtu": options.mtu,
            "bridge": options.wire != "memif" and (options.bridge or options.hosts_wanted > 2)}


def make(state):
    """Makes everything except the unetds."""
    names = [host["namespace"] for host in state["hosts"]]
    for name in names:
        namespaces.add(name)
    if state["bridge"]:
        switch = namespaces.name_of(state["name"], namespaces.SWITCH)
        namespaces.add(switch)
        namespaces.join_by_bridge(switch, names, state["mtu"])
    elif state["wire"] != "memif":
        namespaces.join_two(*names, state["mtu"])


def recorded(state):
    """Returns the unetds that still run, in the form of processes.end()."""
    found = []
    if state.get("boot") != processes.boot():
        return found
    for host in state["hosts"]:
        pid, start = host.get("pid"), host.get("start")
        if processes.is_alive(pid, start):
            found.append((pid, lambda pid, start=start: processes.start_time(pid) == start))
    return found


def remove(state):
    """Removes every part that exists: first programs, which would else report that their unetd is gone; then unetds and namespaces."""
    names = namespaces.of_testbed(state["name"])

    def programs_of_users():
        unetds = {pid for pid, _ in recorded(state)}
        return [(pid, is_meant) for pid, is_meant in namespaces.members(names) if pid not in unetds]

    processes.end(programs_of_users)
    processes.end(lambda: recorded(state) + programs_of_users())
    for name in names:
        namespaces.delete(name)
