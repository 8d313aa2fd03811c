#!/usr/bin/env python3
# operation.py - an operator's work with a running unetd: watch it, read its counters, change its policy, drain it.
#
# Usage: operation.py UNETD UNETCTL ECHO_SERVER ECHO_CLIENT
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

from daemon import IS_ROOT, NOBODY, WAIT, EchoNi, Unetd, directory, main, one_line, others_may_run, require, run, wait_until

UNETD, UNETCTL, ECHO_SERVER, ECHO_CLIENT = (os.path.abspath(p) for p in sys.argv[1:5])
MONITORING = os.path.dirname(os.path.abspath(__file__)) + "/../../apps/unetctl/monitoring"


class Ni(EchoNi):
    def __init__(self, path, *args):
        super().__init__((UNETD, UNETCTL, ECHO_SERVER), path, *args)

    def echo(self, *args):
        return run(ECHO_CLIENT, "--path", "ni", "--count", "100", *args, "echo", env=self.env)


def test_limits_hold():
    rule = '[[rule]]\nany = true\nnames = ["*"]\n'
    with directory() as d:
        policy = d + "/policy.toml"
        write(policy, rule + "weight = 5\nmessages_per_s = 100\nburst_ms = 1000\n")
        with Ni(d + "/s", "--policy", policy) as ni:
            status, out, err = ni.ctl("users")
            require(status == 0 and re.search(r" 5 +100 +- +- +-", out), f"weight and limit are not shown: {out!r} {err!r}")
            # 200 messages of one user: a burst of one second's worth, the others at the rate. Load can only prolong that.
            begin = time.monotonic()
            status, _, err = ni.echo()
            took = time.monotonic() - begin
            require(status == 0, f"echo under a limit: {err!r}")
            require(took > 0.9, f"200 messages at 100 per second, 100 at once, took {took:.3f} s")
            write(policy, rule)
            require(ni.ctl("policy", "reload")[0] == 0, "the policy is not read again")
            require(re.search(r" 1 +- +- +- +-", ni.ctl("users")[1]), "the limit is still shown")
            for _ in range(20):  # under the old limit these would take 40 s
                status, _, err = ni.echo()
                require(status == 0, f"echo without a limit: {err!r}")


def test_top_prints_tables():
    with directory() as d, Ni(d + "/s") as ni:
        for by in ("messages", "bytes", "drops", "name"):
            status, out, err = ni.ctl("top", "--interval", "0.1", "--count", "2", "--sort", by)
            require(status == 0 and not err, f"top --sort {by}: {status} {err!r}")
            require(out.count("host alpha: 1 endpoints") == 2 and out.count("SENT/S") == 2, f"not two tables: {out!r}")
            require("\033" not in out, f"not plain: {out!r}")
            require(f" {ni.server.pid} " in out, f"no echo server in {out!r}")


@contextlib.contextmanager
def traffic(ni, path):
    """Echoes, one client after the other."""
    clients = subprocess.Popen(["sh", "-c", 'while "$0" --path "$1" --size 100 echo; do :; done', ECHO_CLIENT, path], env=ni.env,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(clients.pid, signal.SIGKILL)
        clients.wait(WAIT)


def test_top_sees_traffic():
    with directory() as d, Ni(d + "/s") as ni:
        top = subprocess.Popen([UNETCTL, "top", "--interval", "0.2", "--socket", ni.path], stdout=subprocess.PIPE, text=True)
        try:
            require("alpha" in top.stdout.readline(), "no table without --count")
            with traffic(ni, "ni"):
                end = time.monotonic() + WAIT
                cells = []
                while not (len(cells) == 9 and cells[1] == "echo" and all(int(c) > 0 for c in cells[4:8])):
                    require(time.monotonic() < end, f"the echo server's traffic does not show, but {cells}")
                    cells = top.stdout.readline().split()
        finally:
            top.kill()
            top.communicate()


def test_messages_of_local_channels_are_counted():
    with directory() as d, Ni(d + "/s") as ni, traffic(ni, "local"):
        def counted():
            ends = [each.get("counters", {}) for each in json.loads(ni.ctl("channels", "--json")[1])
                    if each["path"] == "local" and each["state"] == "open"]
            return ends and all(end.get("sent_messages", 0) > 0 and end.get("received_bytes", 0) >= 100 for end in ends)

        wait_until(counted, "no messages in the report")


class Terminal:
    """unetctl top on a terminal of its own."""

    def __init__(self, path, kind="xterm"):
        self.end, self.other = pty.openpty()
        self.before = termios.tcgetattr(self.other)
        self.text = ""
        self.resize(40, 160)
        self.process = subprocess.Popen([UNETCTL, "top", "--interval", "0.1", "--socket", path], stdin=self.other, stdout=self.other,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=self.own, env=os.environ | {"TERM": kind})

    def resize(self, rows, columns):
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def own(self):
        os.setsid()
        os.close(os.open(os.ttyname(self.other), os.O_RDWR))  # makes it the controlling terminal: Ctrl-C becomes a signal

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        os.close(self.end)
        os.close(self.other)

    def shows(self, part):
        if select.select([self.end], [], [], 0)[0]:
            self.text += os.read(self.end, 65536).decode(errors="replace")
        return part in self.text

    def ends(self, how):
        wait_until(lambda: not self.shows("\0") and self.process.poll() is not None, f"{how} does not end it")
        wait_until(lambda: self.shows("\033[?1049l"), f"{how}: the screen is not given back")
        require("\033[?25h" in self.text, f"{how}: the cursor stays hidden")
        require(termios.tcgetattr(self.other) == self.before, f"{how}: the terminal is not as it was")


def test_top_on_a_terminal():
    with directory() as d, Ni(d + "/s") as ni:
        for how, act in (("q", lambda t: os.write(t.end, b"q")), ("Ctrl-C", lambda t: os.write(t.end, b"\3")),
                         ("SIGTERM", lambda t: t.process.send_signal(signal.SIGTERM))):
            with Terminal(ni.path) as terminal:
                wait_until(lambda: terminal.shows("SENT/S"), "no picture")
                require("\033[?1049h" in terminal.text and "\033[H" in terminal.text, "not drawn in place")
                require(not termios.tcgetattr(terminal.other)[3] & termios.ECHO, "keys are echoed into the picture")
                act(terminal)
                terminal.ends(how)
                require(terminal.process.returncode == 0, f"{how}: status {terminal.process.returncode}")


def test_top_prints_tables_on_a_dumb_terminal():
    with directory() as d, Ni(d + "/s") as ni, Terminal(ni.path, "dumb") as terminal:
        wait_until(lambda: terminal.text.count("SENT/S") > 1 or terminal.shows("\0"), "not two tables")
        require("\033" not in terminal.text, f"not plain: {terminal.text!r}")


def test_top_obeys_keys():
    with directory() as d, Ni(d + "/s") as ni:
        with Terminal(ni.path) as terminal:
            wait_until(lambda: terminal.shows("PROGRAM") and terminal.shows("echo_server"), "no programs")
            for key, shown in (("p", "ENDPOINT"), ("d", "drops"), ("n", "name")):
                terminal.text = ""  # only what changes is drawn
                os.write(terminal.end, key.encode())
                wait_until(lambda: terminal.shows(shown), f"{key} shows no {shown}")
            terminal.text = ""
            terminal.resize(10, 30)
            wait_until(lambda: terminal.shows("SENT/S"), "nothing is drawn in a smaller terminal")
            os.write(terminal.end, b"q")
            terminal.ends("q")


def test_top_when_the_network_interface_goes():
    with directory() as d, Ni(d + "/s") as ni:
        with Terminal(ni.path) as terminal:
            wait_until(lambda: terminal.shows("SENT/S"), "no picture")
            require(ni.daemon.stop() == 0, "stop")
            terminal.ends("the end of the network interface")
            require(terminal.process.returncode == 1, f"status {terminal.process.returncode}")
            one_line(terminal.process.stderr.read(), "unetctl", "network interface")


SAMPLE = re.compile(r'([a-z][a-z0-9_]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\})? ([0-9]+)$')


def test_stats():
    with directory() as d, Ni(d + "/s") as ni:
        require(ni.echo("--size", "100")[0] == 0, "no echo")
        # The NI publishes its counters shortly after the messages.
        wait_until(lambda: json.loads(ni.ctl("stats")[1])["endpoints"][0]["counters"]["received_messages"] == 100, "not 100 echoes counted")
        for args in (["stats"], ["stats", "--json"]):
            status, out, err = ni.ctl(*args)
            stats = json.loads(out)
            require(status == 0 and not err, f"{args}: {status} {err!r}")
            require(abs(stats["time_ns"] - time.time_ns()) < 3600e9, f"the time is wrong: {stats['time_ns']}")  # it may be set meanwhile
            require(stats["ni"]["host"] == "alpha" and stats["ni"]["pid"] == ni.daemon.process.pid, f"not its identity: {stats['ni']}")
            require(stats["counters"]["engine"]["hairpin_messages"] > 0 and stats["drops"]["bad_crc"] == 0, f"{stats}")
            endpoint, = stats["endpoints"]
            require(endpoint["name"] == "echo" and endpoint["counters"]["received_messages"] > 0, f"{endpoint}")
            require("no_free_buffer" in endpoint["drops"], f"{endpoint}")
        received = endpoint["counters"]["received_messages"]
        status, out, err = ni.ctl("stats", "--prometheus")
        require(status == 0 and not err and out.endswith("\n"), f"--prometheus: {status} {err!r}")
        for line in out.splitlines():
            require(SAMPLE.match(line) or re.match(r"# (HELP [a-z0-9_]+ .|TYPE [a-z0-9_]+ (counter|gauge)$)", line), f"malformed: {line!r}")
        labels = f'endpoint="{endpoint["endpoint"]}",name="echo",pid="{ni.server.pid}",uid="{os.geteuid()}"'
        require(f"\nunet_endpoint_received_messages_total{{{labels}}} {received}\n" in out, f"no {labels} in {out}")
        require(f'\nunet_endpoint_drops_total{{{labels},reason="no_free_buffer"}} 0\n' in out, out)
        require("\n# TYPE unet_engine_hairpin_messages_total counter\n" in out and "\nunet_endpoints 1\n" in out, out)
        status, text, err = ni.ctl("stats", "--openmetrics")
        require(status == 0 and not err, f"--openmetrics: {status} {err!r}")
        for both in (("--json", "--prometheus"), ("--openmetrics", "--prometheus")):
            status, _, err = ni.ctl("stats", *both)
            require(status == 2, "both formats at once")
            one_line(err, "unetctl", "--prometheus")
    parsed = subprocess.run(["/usr/bin/python3", "-c", PARSE_OPENMETRICS], input=text, capture_output=True, text=True, timeout=WAIT)
    if "No module named" in parsed.stderr:
        print("      not tried: a parser of OpenMetrics (python3-prometheus-client)")
    else:
        require(parsed.stdout.split() == re.findall(r"^# TYPE (\S+)", text, re.M), f"not OpenMetrics: {parsed.stderr}")
    status, _, err = run(UNETCTL, "stats", "--socket", "/nonexistent/s")
    require(status == 1, "stats of nothing")
    one_line(err, "unetctl", "/nonexistent/s")


PARSE_OPENMETRICS = """
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()): print(family.name)
"""


def expressions():
    """The queries of the rules for Prometheus and of the dashboard for Grafana."""
    with open(MONITORING + "/unet.rules.yml", encoding="ascii") as f:
        yield from re.findall(r"^ +expr: (.+)$", f.read(), re.M)
    with open(MONITORING + "/unet-dashboard.json", encoding="ascii") as f:
        dashboard = json.load(f)
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    yield from (each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query")


def test_monitoring_asks_for_what_is_exported():
    with directory() as d, Ni(d + "/s", "--port", f"dpdk:net_memif0,role=server,socket={d}/memif") as ni:
        out = ni.ctl("stats", "--prometheus")[1]
    exported, labels = set(re.findall(r"^# TYPE ([a-z0-9_]+) ", out, re.M)), set(re.findall(r'([a-z_]+)="', out)) | {"instance"}
    exported, labels = exported | {"node_textfile_mtime_seconds"}, labels | {"file"}  # node_exporter adds the age of the file
    asked = list(expressions())
    require(len(asked) > 20, f"only these queries: {asked}")
    for each in asked:
        names = re.findall(r"\b(?:unet|node)_[a-z0-9_]+", each)
        require(names or "unet:" in each, f"no metric in {each}")
        wanted = set(re.findall(r"([a-z_]+)=?[=~!]~?\"", each)) | {by for group in re.findall(r"(?:by|on) \(([a-z_, ]+)\)", each)
                                                                 for by in group.split(", ")}
        require(set(names) <= exported and wanted <= labels, f"not exported: {sorted(set(names) - exported)} {wanted - labels} in {each}")


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def test_policy_reload():
    with directory() as d:
        policy = d + "/p.toml"
        write(policy, "[[rule]]\nany = true\nnames = ['echo']\n")
        with Ni(d + "/s", "--policy", policy) as ni:
            require(run(ECHO_SERVER, "other", env=ni.env)[0] == 1, "a name that the policy does not give")
            write(policy, "[[rule]]\nany = true\nendpoints = 1\nname = 'x'\n")
            status, out, err = ni.ctl("policy", "reload")
            require(status == 1 and out == "", f"a broken policy: {status}")
            one_line(err, "unetctl", "the policy stays as it was", f"{policy}:4: ", "name")
            require(ni.echo()[0] == 0, "the old policy is gone")
            write(policy, "[[rule]]\nany = true\nendpoints = 1\n")  # the echo server has that one
            status, out, err = ni.ctl("policy", "reload")
            require(status == 0 and out == "the policy was read again\n" and not err, f"{status} {out!r} {err!r}")
            status, _, err = ni.echo()
            require(status == 1 and "quota of endpoints" in err, f"the new policy does not count: {status} {err!r}")
            require("echo" in ni.ctl("names")[1] and ni.server.poll() is None, "what existed went")


def test_policy_after_a_signal():
    with directory() as d:
        policy = d + "/p.toml"
        write(policy, "[[rule]]\nany = true\n")
        with Unetd(UNETD, "--socket", d + "/s", "--policy", policy) as daemon:
            write(policy, "[[rule]]\nany = true\nendpoints = 0\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "no right" in run(UNETCTL, "names", "--socket", d + "/s")[2], "SIGHUP did not bring the new policy")
            write(policy, "[[rule]]\nany = true\n")
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: run(UNETCTL, "names", "--socket", d + "/s")[0] == 0, "a second SIGHUP did nothing")
            write(policy, "[[rule]\n")
            daemon.process.send_signal(signal.SIGHUP)
            log = ""
            while "stays as it was" not in log:
                log = daemon.process.stderr.readline()
                require(log, "a broken policy is not in the log")
            require(f"{policy}:1: " in log, f"no line: {log!r}")
            require(run(UNETCTL, "names", "--socket", d + "/s")[0] == 0 and daemon.stop() == 0, "a broken policy did harm")


def test_drain():
    with directory() as d, Ni(d + "/s") as ni:
        status, out, err = ni.ctl("drain")
        require(status == 0 and "1 endpoint is left" in out and not err, f"drain: {status} {out!r} {err!r}")
        status, _, err = ni.echo()
        require(status == 1, "a drained network interface took a new endpoint")
        require("host 'alpha' is being drained" in err and err.count("\n") == 1, f"not clear: {err!r}")
        require("alpha, being drained" in ni.ctl("all")[1], "all does not say so")
        require("\nunet_ni_draining 1\n" in ni.ctl("stats", "--prometheus")[1], "stats does not say so")
        status, out, err = ni.ctl("drain", "--wait", "--timeout", "0.2")
        require(status == 1 and out == "", f"drained with an endpoint left: {status}")
        one_line(err, "unetctl", "1 endpoint is left", "unetctl endpoints")
        status, out, _ = ni.ctl("drain", "--undo")
        require(status == 0 and "again" in out, f"--undo: {status} {out!r}")
        status, out, err = ni.echo()
        require(status == 0, f"an echo after --undo: {status} {out!r} {err!r}")
        waiting = subprocess.Popen([UNETCTL, "drain", "--wait", "--socket", ni.path], stdout=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: "being drained" in ni.ctl("all")[1], "it does not drain")
            require(waiting.poll() is None and ni.server.poll() is None, "it waits for nothing")
            ni.server.kill()
            require(waiting.wait(WAIT) == 0 and "no endpoint is left" in waiting.stdout.read(), "--wait does not end")
        finally:
            waiting.kill()
            waiting.communicate()


def test_operation_without_a_policy_file():
    with directory() as d, Unetd(UNETD, "--socket", d + "/s") as daemon:
        status, _, err = run(UNETCTL, "policy", "reload", "--socket", d + "/s")
        require(status == 1, "reloaded nothing")
        one_line(err, "unetctl", "no policy file", "--policy")
        daemon.process.send_signal(signal.SIGHUP)
        log = " "
        while log and "no policy file" not in log:
            log = daemon.process.stderr.readline()
        require(log, "SIGHUP: nothing in the log")
        require(daemon.stop() == 0, "SIGHUP ended it")


def test_operation_by_others():
    if not IS_ROOT or not others_may_run(UNETCTL):
        return
    with directory() as d:
        os.chmod(d, 0o755)
        write(d + "/p.toml", "[[rule]]\nany = true\nnames = ['*']\n")
        with Ni(d + "/s", "--group", "nogroup", "--policy", d + "/p.toml") as ni:
            for args in OPERATION:
                status, _, err = ni.ctl(*args, user=NOBODY)
                require(status == 1, f"anybody may {args}")
                one_line(err, "unetctl", "only root and user 0", f"you are user {NOBODY}")


OPERATION = [["policy", "reload"], ["drain"], ["drain", "--wait"], ["drain", "--undo"]]


def test_wrong_commands():
    with directory() as d, Ni(d + "/s") as ni:
        for args, parts in ((["top", "--interval", "0"], ["--interval", "unetctl top --help"]), (["top", "--sort", "size"], ["size", "messages"]),
                            (["top", "--count", "0"], ["--count"]), (["tops"], ["tops", "top"]), (["policy"], ["unetctl policy --help"]),
                            (["drain", "--undo", "--wait"], ["--undo"]), (["drain", "--timeout", "1"], ["--wait"]), (["names", "names"], ["names"])):
            status, out, err = ni.ctl(*args)
            require(status == 2 and out == "", f"unetctl {args}: {status} {out!r}")
            one_line(err, "unetctl", *parts)
        for args in (["--help"], ["--help-all"], ["top", "--help"]):
            status, out, err = run(UNETCTL, *args)
            require(status == 0 and "--socket" in run(UNETCTL, "--help")[1] and out and not err, f"unetctl {args}")


sys.exit(main(globals()))
