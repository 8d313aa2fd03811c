#!/usr/bin/env python3
# captures.py - captures of running NIs: started, listed, limited and ended by permitted users, read by tcpdump; killed, out of disk, and
# refused.
#
# Usage: captures.py UNETD UNETCTL EXAMPLES      (77: no tcpdump here)
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys

from daemon import IS_ROOT, NOBODY, WAIT, Unetd, directory, main, others_may_run, require, run, wait_until

UNETD, UNETCTL, EXAMPLES = (os.path.abspath(p) for p in sys.argv[1:4])
POLICY = "[[rule]]\nany = true\nnames = [\"*\"]\n"


def ctl(path, *args, user=None):
    return run(UNETCTL, *args, "--socket", path, user=user)


def report(path, view, user=None):
    status, out, err = ctl(path, *view.split(), "--json", user=user)
    require(status == 0, f"unetctl {view}: {err}")
    return json.loads(out)


@contextlib.contextmanager
def two_hosts(*args):
    """Two NIs over a memif, an echo server on beta."""
    with directory() as d:
        os.chmod(d, 0o755)
        with open(d + "/policy", "w", encoding="utf-8") as file:
            file.write(POLICY)

        def port(role):
            return f"dpdk:net_memif0,role={role},socket={d}/memif"

        with Unetd(UNETD, "--socket", d + "/a", "--host", "alpha", "--port", port("server"), "--policy", d + "/policy", *args), \
                Unetd(UNETD, "--socket", d + "/b", "--host", "beta", "--port", port("client"), "--policy", d + "/policy"), \
                process(os.path.join(EXAMPLES, "echo_server"), "echo", socket=d + "/b"):
            echo(d)  # the link is up
            yield d


@contextlib.contextmanager
def process(*args, socket=None, user=None):
    command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user is not None else []
    env = os.environ | ({"UNET_NI": "unix:" + socket} if socket else {})
    started = subprocess.Popen([*command, *args], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.kill()
        started.wait(WAIT)


def echo(d, count=10, size=10):
    status, _, err = run(os.path.join(EXAMPLES, "echo_client"), "--wait", str(WAIT // 2), "-n", str(count), "-s", str(size), "echo@beta",
                         env=os.environ | {"UNET_NI": f"unix:{d}/a"})
    require(status == 0, f"echo_client: {err}")


class Capture:
    """`unetctl capture start`, running when this returns."""

    def __init__(self, path, *args, user=None, out=subprocess.DEVNULL):
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user is not None else []
        self.process = subprocess.Popen([*command, UNETCTL, "capture", "start", "--socket", path, *args], stdout=out,
                                        stderr=subprocess.PIPE, text=True)
        first = self.process.stderr.readline()
        said = re.fullmatch(r"unetctl: capture (\d+) runs; Ctrl-C ends it\n", first)
        if not said:
            self.process.kill()
            self.process.wait(WAIT)
            require(False, f"the capture does not start: {first}")
        self.number = said.group(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(WAIT)
        self.process.stderr.close()

    def end(self, with_signal=signal.SIGINT):
        """(exit status, frames, dropped, output)"""
        if with_signal is not None:
            self.process.send_signal(with_signal)
        text = self.process.stderr.read()
        status = self.process.wait(WAIT)
        numbers = re.search(r"(\d+) frames captured, (\d+) had no room", text)
        require(numbers, f"no summary: {text!r}")
        return status, int(numbers.group(1)), int(numbers.group(2)), text


def lines_of(path, *expression):
    status, out, err = run("tcpdump", "-n", "-r", path, "-e", *expression)
    require(status == 0, f"tcpdump: {err}")
    return [line for line in out.split("\n") if "ethertype" in line]


def gone(path, number):
    return all(str(each["capture"]) != number for each in report(path, "capture list"))


def test_everything_of_a_port():
    with two_hosts() as d:
        with Capture(d + "/a", "-w", d + "/out", "--port", "0") as capture:
            listed = report(d + "/a", "capture list")
            require([str(each["capture"]) for each in listed] == [capture.number] and listed[0]["port"] == 0, f"list: {listed}")
            echo(d, count=50, size=3000)
            status, frames, dropped, text = capture.end()
            require(status == 0 and dropped == 0, text)
        # 50 messages of 3 frames each way, and signals around them.
        lines = lines_of(d + "/out")
        require(len(lines) == frames and frames > 300, f"{frames} frames, tcpdump sees {len(lines)}")
        require(len(lines_of(d + "/out", "greater", "1400")) == 200, "not all of the large frames")
        require(oct(os.stat(d + "/out").st_mode & 0o777) == "0o600", "others may read it")
        wait_until(lambda: gone(d + "/a", capture.number), "a capture that has ended is still listed")


def test_files_of_others():
    """A file that another user may have put at the path stays as it is, also when root captures."""
    with directory() as d:
        def refused(path, words):
            status, _, err = ctl(d + "/nobody-there", "capture", "start", "-w", path)
            require(status == 1 and words in err, f"{path}: status {status}: {err}")

        for name in ("secret", "linked"):
            with open(f"{d}/{name}", "w", encoding="ascii") as file:
                file.write("kept")
        os.symlink(d + "/secret", d + "/link")
        os.link(d + "/linked", d + "/second-name")
        refused(d + "/link", "it is a symbolic link")
        refused(d + "/second-name", "a second name")
        if os.geteuid() == 0:
            os.chown(d + "/secret", 65534, -1)
            refused(d + "/secret", "it belongs to another user")
        for name in ("secret", "linked"):
            with open(f"{d}/{name}", encoding="ascii") as file:
                require(file.read() == "kept", f"{name} was written to")


def test_limits_filter_and_pipe():
    with two_hosts() as d:
        with Capture(d + "/a", "-w", d + "/five", "--count", "5", "--snap", "60", "--filter", "greater 1000") as five, \
                Capture(d + "/a", "-w", "-", "--seconds", "0.5", out=subprocess.PIPE) as pipe:
            echo(d, count=20, size=1200)
            status, frames, _, text = five.end(with_signal=None)
            require(status == 0 and frames == 5 and "limit" in text, text)
            data = pipe.process.stdout.buffer.read()
            status, frames, _, text = pipe.end(with_signal=None)
            pipe.process.stdout.close()
            require(status == 0 and frames >= 40 and data[:4] == b"\x0a\x0d\x0d\x0a", text)
        require(len(lines_of(d + "/five")) == 5, "not five")
        status, _, err = ctl(d + "/a", "capture", "start", "-w", d + "/x", "--filter", "ether of mine")
        require(status == 1 and "man pcap-filter" in err and not os.path.exists(d + "/x"), f"a wrong filter: {err}")
        status, _, err = ctl(d + "/a", "capture", "start", "-w", d + "/x", "--port", "7")
        require(status == 1 and "no port 7" in err, f"a port that is not there: {err}")
        status, _, err = ctl(d + "/a", "capture", "start", "-w", d + "/no/such/x")
        require(status == 1 and "No such file" in err, f"no directory: {err}")


def test_an_endpoint_and_its_channel():
    with two_hosts() as d, process(os.path.join(EXAMPLES, "echo_client"), "-n", "10000000", "-s", "7", "echo@beta", socket=d + "/a") as client:
        def of_client():
            return [each for each in report(d + "/a", "endpoints") if each["pid"] == client.pid and each["channels"]]

        wait_until(of_client, "the client does not come up")
        endpoint = str(of_client()[0]["endpoint"])
        channel = str([each for each in report(d + "/a", "channels") if str(each["endpoint"]) == endpoint][0]["channel"])
        with Capture(d + "/a", "-w", d + "/out", "--endpoint", endpoint, "--channel", channel, "--count", "100") as capture:
            echo(d, size=900)
            status, frames, _, text = capture.end(with_signal=None)
            require(status == 0 and frames == 100, text)
        require(not lines_of(d + "/out", "greater", "200"), "another endpoint's frames")
        tags = {line.split("ethertype")[1] for line in lines_of(d + "/out")}
        require(tags, "nothing")
        # When the endpoint ends, the capture ends.
        with Capture(d + "/a", "-w", d + "/out", "--endpoint", endpoint) as capture:
            client.kill()
            status, _, _, text = capture.end(with_signal=None)
            require(status == 0 and "endpoint has gone" in text, text)


def test_stopped_by_another_and_killed():
    with two_hosts() as d:
        with Capture(d + "/a", "-w", d + "/out") as capture:
            status, _, err = ctl(d + "/a", "capture", "stop", capture.number)
            require(status == 0, err)
            status, _, _, text = capture.end(with_signal=None)
            require(status == 0 and "stopped" in text, text)
            status, _, err = ctl(d + "/a", "capture", "stop", capture.number)
            require(status == 1 and "runs" in err, err)
        with Capture(d + "/a", "-w", d + "/out") as capture:
            capture.process.kill()
            wait_until(lambda: gone(d + "/a", capture.number), "the capture of a dead process goes on")
        echo(d)


def test_a_full_disk_and_a_reader_that_stands_still():
    with two_hosts() as d:
        with Capture(d + "/a", "-w", d + "/out", "--buffer", "65536") as capture:
            capture.process.send_signal(signal.SIGSTOP)
            echo(d, count=200, size=1000)
            capture.process.send_signal(signal.SIGCONT)
            status, frames, dropped, text = capture.end()
            require(status == 0 and frames > 0 and dropped > 0, text)
        require(len(lines_of(d + "/out")) == frames, "the file is not what was said")
        capture = subprocess.Popen([UNETCTL, "capture", "start", "--socket", d + "/a", "-w", "/dev/full"], stderr=subprocess.PIPE, text=True)
        _, err = capture.communicate(timeout=WAIT)
        require(capture.returncode == 1 and "No space left" in err, f"a full disk: {err}")
        echo(d)


def test_rights():
    if not IS_ROOT or not others_may_run(os.path.join(EXAMPLES, "echo_server"), UNETCTL):
        return
    with two_hosts() as d:
        for socket in "ab":
            os.chmod(f"{d}/{socket}", 0o666)
        os.mkdir(d + "/theirs")
        os.chown(d + "/theirs", NOBODY, NOBODY)
        status, _, err = ctl(d + "/a", "capture", "start", "-w", d + "/theirs/x", user=NOBODY)
        require(status == 1 and "only root" in err, f"everything, for nobody: {err}")
        with process(os.path.join(EXAMPLES, "echo_server"), "mine", socket=d + "/a"), \
                process(os.path.join(EXAMPLES, "echo_server"), "theirs", socket=d + "/a", user=NOBODY):
            wait_until(lambda: {each["name"] for each in report(d + "/a", "names")} == {"mine", "theirs"}, "the servers do not come up")
            of = {each["name"]: str(each["endpoint"]) for each in report(d + "/a", "endpoints")}
            status, _, err = ctl(d + "/a", "capture", "start", "-w", d + "/theirs/x", "--endpoint", of["mine"], user=NOBODY)
            require(status == 1 and "not one of yours" in err, f"another's endpoint: {err}")
            with Capture(d + "/a", "-w", d + "/root", "--port", "0") as roots, \
                    Capture(d + "/a", "-w", d + "/theirs/x", "--endpoint", of["theirs"], user=NOBODY) as theirs:
                require([str(each["capture"]) for each in report(d + "/a", "capture list", user=NOBODY)] == [theirs.number], "what nobody sees")
                require(len(report(d + "/a", "capture list")) == 2, "what root sees")
                status, _, err = ctl(d + "/a", "capture", "stop", roots.number, user=NOBODY)
                require(status == 1 and "of yours" in err, f"root's capture, stopped by nobody: {err}")
                status, _, err = ctl(d + "/a", "capture", "start", "-w", d + "/theirs/y", "--endpoint", of["theirs"], user=NOBODY)
                require(status == 1 and "too many captures" in err, f"a second one: {err}")
                require(theirs.end()[0] == 0 and roots.end()[0] == 0, "the ends")


if shutil.which("tcpdump") is None:
    print("skipped: no tcpdump here: apt-get install tcpdump")
    sys.exit(77)
sys.exit(main(globals()))
