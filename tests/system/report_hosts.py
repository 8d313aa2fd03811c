#!/usr/bin/env python3
# report_hosts.py - `unet-bench report --hosts` between three namespaces: asymmetry, rounds in one file, a host that dies, Ctrl-C; and ssh.
#
# Usage: report_hosts.py UNET_BENCH TESTBED PROGRAM_DIRECTORY...   (the directories of unetd and unet-bench)
import contextlib
import json
import os
import signal
import subprocess
import sys

from daemon import IS_ROOT, Failure, directory, main, require

BENCH, TESTBED = (os.path.abspath(path) for path in sys.argv[1:3])
DIRECTORIES = [os.path.abspath(path) for path in sys.argv[3:]]
NAME = f"r{os.getpid()}"
SKIP = 77
WAIT = 120  # seconds; an upper bound for what takes ten
PAIRS = [f"h{one} > h{other}" for one in range(3) for other in range(3) if one != other]


def testbed(command, *args):
    done = subprocess.run([TESTBED, command, "--name", NAME, *args], capture_output=True, text=True, timeout=WAIT, check=False)
    require(done.returncode == 0, f"testbed {command} {args}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


class Report:
    """A report that is being measured, without a terminal."""

    def __init__(self, place, *args, env=None):
        self.place = f"{place}/page"
        self.said = ""
        self.process = subprocess.Popen([BENCH, "report", "--hosts", f"{place}/hosts", "--quick", "--directory", self.place, *args],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)

    def wait_line(self, part):
        for line in self.process.stderr:
            self.said += line
            if part in line:
                return
        raise Failure(f"the report did not say '{part}': {self.said}")

    def end(self, status):
        """Returns the JSON and the page."""
        out, err = self.process.communicate(timeout=WAIT)
        require(self.process.returncode == status and out == f"{self.place}/index.html\n", f"{self.process.returncode}: {out}{self.said}{err}")
        with open(f"{self.place}/report.json", encoding="utf-8") as file:
            content = json.load(file)
        with open(f"{self.place}/index.html", encoding="utf-8") as file:
            return content, file.read()


def figures(records, bench, size):
    return {record["path"]: record["p50"] for record in records if record["bench"] == f"hosts-{bench}" and record["size"] == size}


def test_namespaces():
    with directory() as d, contextlib.ExitStack() as at_end:
        testbed("up", "-n", "3")
        at_end.callback(testbed, "down")
        with open(d + "/hosts", "w", encoding="ascii") as file:
            file.write("# three\n" + "".join(f"h{index} testbed:{NAME}\n" for index in range(3)))
        # At the bridge: frames of a host's AF_PACKET pass its interface's queue by.
        subprocess.run(["ip", "netns", "exec", f"unet-testbed.{NAME}.switch", "tc", "qdisc", "add", "dev", "port0", "root", "tbf", "rate", "100mbit",
                        "burst", "4kb", "latency", "100ms"], check=True, timeout=WAIT)
        content, page = Report(d, "--every", "1s", "--times", "2").end(0)
        require(len(content["rounds"]) == len(content["times"]) == 2, f"rounds: {content['times']}")
        for records in content["rounds"]:
            require(all(sorted(figures(records, bench, 48)) == sorted(PAIRS) for bench in ("rtt", "out", "bandwidth")), f"pairs: {records}")
            longer = {path: value - figures(records, "out", 48)[path] for path, value in figures(records, "out", 16384).items()}
            require(longer["h1 > h0"] - longer["h0 > h1"] > 500_000, f"16 KiB need 1.3 ms more to h0 than from it: {longer}")
        require('id="hosts-rtt-48" data-points="6"' in page and 'id="hosts-rtt-time"' in page, "figures")

        other = subprocess.run([BENCH, "report", "--hosts", d + "/hosts", "--directory", d + "/page"], capture_output=True, text=True, timeout=WAIT,
                               check=False)
        require(other.returncode == 2 and "has other seconds" in other.stderr, f"a report of other seconds: {other.returncode} {other.stderr}")

        unetd = json.loads(testbed("status", "--json"))[2]["pid"]
        report = Report(d)
        report.wait_line("from h0 to h1")
        os.kill(unetd, signal.SIGKILL)
        content, page = report.end(0)
        newest = content["rounds"][-1]
        why = {record["path"]: record["why"] for record in newest if record["bench"] == "hosts-error"}
        require(len(content["rounds"]) == 3 and sorted(why) == [pair for pair in sorted(PAIRS) if "h2" in pair], f"a dead host: {why}")
        require(set(why.values()) == {"unetd of h2 does not run"}, f"reasons: {why}")
        require(sorted(figures(newest, "bandwidth", 16384)) == ["h0 > h1", "h1 > h0"], f"the rest: {newest}")
        require("h2 (down)" in page and "h2 was not measured in the newest round" in page, "the page does not say that h2 is down")

        # The load would fill the narrow way, and no echo would come in time.
        subprocess.run(["ip", "netns", "exec", f"unet-testbed.{NAME}.switch", "tc", "qdisc", "del", "dev", "port0", "root"], check=True, timeout=WAIT)
        report = Report(d, "--every", "1h", "--load")
        report.wait_line("from h1 to h0")
        report.process.send_signal(signal.SIGINT)
        content, page = report.end(130)
        require(content["stopped"] == "SIGINT in round 4" and "incomplete" in page, f"Ctrl-C: {content['stopped']}")
        loaded = [record for record in content["rounds"][3] if record["bench"] == "hosts-rtt"]
        require({record["path"] for record in loaded} == {"h0 > h1"} and loaded[0]["metric"] == "load", f"before Ctrl-C: {loaded}")


def test_ssh():
    """Through a stand-in for ssh that runs the given text here. The testbed is made for the report, and removed also after a signal."""
    with directory() as d:
        with open(d + "/ssh", "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\nPATH={":".join(DIRECTORIES)}:$PATH exec sh -c "$6"\n')
        os.chmod(d + "/ssh", 0o755)
        with open(d + "/hosts", "w", encoding="ascii") as file:
            for name, role in (("alpha", "server"), ("beta", "client")):
                file.write(f"{name} user@{name} dpdk:net_memif0,role={role},socket={d}/memif.sock\n")
        env = os.environ | {"PATH": f"{d}:{os.environ['PATH']}"}
        content, page = Report(d, "--load", env=env).end(0)
        require({record["path"] for record in content["rounds"][0]} == {"alpha > beta", "beta > alpha"}, f"pairs: {content['rounds']}")
        require("Round trip between hosts, 48 B, under load" in page and "role=server" in page, "the page")
        report = Report(d, "--every", "1h", env=env)
        report.wait_line("from beta to alpha")
        report.process.send_signal(signal.SIGTERM)
        content, _ = report.end(130)
        require(len(content["rounds"]) == 2, "a report is continued")
        made = f"report-{report.process.pid}"
        require(not os.path.exists(f"/run/unet-testbed/{made}"), f"testbed {made} is left")


if not IS_ROOT:
    print("skipped: network namespaces need root")
    sys.exit(SKIP)
try:
    sys.exit(main(dict(globals())))
except Failure as failure:
    sys.exit(str(failure))
finally:
    subprocess.run([TESTBED, "down", "--name", NAME], check=False, capture_output=True, timeout=WAIT)
