#!/usr/bin/env python3
# report_test.py - unet-bench report and compare as a user meets them: measuring, Ctrl-C, bad input, and the page in a browser.
#
# Usage: report_test.py UNET_BENCH UNET_REPORT
import contextlib
import html.parser
import itertools
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

BENCH, REPORT = (os.path.abspath(path) for path in sys.argv[1:3])
SKIP = 77
WAIT = 200  # seconds; only an upper bound
PAGE_MAX = 5_000_000  # bytes
MARKUP = "<b>&amp;\"'</b><script>document.title=1</script>$x^2$"
SHARES = 8

# A stand-in for unet-bench: records at once, or never if there is a file `hang` beside it; `tcp-rtt` fails.
FAKE = """#!{python}
import json, os, sys, time
if sys.argv[1] == "--version":
    print("unet-bench 1.2.3")
    sys.exit()
here = os.path.dirname(sys.argv[0])
benches = [word for word in sys.argv[1:] if word not in ("run",)]
benches = benches[:next(at for at, word in enumerate(benches) if word.startswith("--"))]
if "tcp-rtt" in benches:
    print("unet-bench: no sockets today", file=sys.stderr)
    sys.exit(1)
if "logp" in benches and os.path.exists(here + "/hang"):
    open(here + "/hanging", "w").close()
    time.sleep(600)
records = [json.loads(line) for line in open(here + "/records")]
print(json.dumps([record for record in records if record["bench"] in benches]))
"""


def require(condition, text):
    if not condition:
        sys.exit("FAILED: " + text)


def run(program, *args, env=None):
    done = subprocess.run([program, *args], capture_output=True, text=True, timeout=WAIT, env=env, check=False)
    return done.returncode, done.stdout, done.stderr


def record(bench, path, size, p50, unit="ns", metric=None, **more):
    return {"bench": bench, "path": path, "size": size, "metric": metric or bench, "unit": unit, "p50": p50, "p99": p50 and p50 * 1.5,
            "p999": None, "mean": p50, "samples": 9, "limit": 100, "ratio": p50 and p50 / 100, "baseline": "limit-pingpong", "cpu": None, "cpu_a": None,
            "cpu_b": None, "cpu_services": None, "distribution": None, "timeline": None, "command": f"unet-bench run {bench}", "setting": "",
            "slices": 9, "dropped": 0, "disturbed": 0, "machine": "test", "date": "today", "commit": "abc"} | more


def round_of(noise, slower=1.0):
    """Records of every theme, with a path of odd name and a record without figures."""
    shape = [0.9, 0.95, 0.97, 1, 1.1, 1.5, 2, None]
    rows = []
    for size in (8, 48, 4096):
        for path, base in (("local", 200 * slower), ("kernel-tcp-busy", 7000), ("limit-pingpong", 100), (MARKUP, 900)):
            value = base * (1 + size / 1000) * noise()
            rows.append(record("rtt", path, size, value, metric="rtt", distribution=[each and each * value for each in shape]))
            rows.append(record("bandwidth", path, size, size / value, "GB/s"))
    rows.append(record("rtt", "memif", 8, None, metric="rtt"))
    rows.append(record("../up", "a\x00b\ud800", 8, 10 ** 40, cpu=5, command="\n"))
    rows.append(record("../up", "odd", 8, 7, cpu=5, cpu_a=5, cpu_b=0, cpu_services=0))
    rows += [record("rate", "local", size, 2e7 * noise(), "msg/s") for size in (8, 48)]
    rows += [record("endpoints", "local", 8, 200 * noise(), metric=f"rtt_{count}_idle") for count in (0, 16, 4096)]
    rows += [record("am-rtt", "am-local", size, 300 * noise(), metric=metric) for size in (8, 1024) for metric in ("rtt_short", "rtt_long")]
    rows += [record(bench, path, 8, 11 * noise(), "GB/s", metric="goodput_incast_load_90%")
             for bench, path in (("am-traffic", "sim-switch"), ("am-traffic", "sim-tree"), ("tcp-traffic", "tcp-sim-tree"))]
    rows += [record("tcp-traffic", "tcp-sim-tree", 8, 3e6 * noise(), "events/s", metric="simulator_events")]
    rows += [record("logp", "am-local", 8, value * noise(), metric=metric) for metric, value in (("L", 90), ("o_send", 30), ("o_recv", 40))]
    rows += [record("splitc", "splitc-direct", 8, 80 * noise(), metric="read"),
             record("kernels", "direct", 2, 5e8 * noise(), metric="cg", baseline="serial", ratio=1.8)]
    rows += [record("rpc", "rpc-local", 0, 350 * noise(), metric=metric) for metric in ("null", "add", "big_in", "big_in_out")]
    rows += [record("fibers", "fibers", 0, 30 * noise(), metric=metric) for metric in ("yield", "fork")]
    rows += [record("tcp-stream", "tcp-local", 65536, 5 * noise(), "GB/s", metric="bandwidth", cpu=0.3, cpu_a=0.1, cpu_b=0.2, cpu_services=0)]
    rows += [record("sockets", "programs-local", 0, 9e5 * noise(), "req/s", metric="redis-get-50", ratio=3.1)]
    rows += [record("fairness", "flood-two", 48, 1300 * noise(), metric="rtt_p99", ratio=1.4, baseline="alone")]
    rows += [record("restart", "crash", 8, 9e6 * noise(), metric="blackout", timeline=[float(at % 7) for at in range(200)])]
    rows += [record("am-loss", "am-impaired", 16384, 0.5 * noise(), "GB/s", metric=f"goodput_loss_{loss}") for loss in ("0", "1%")]
    return rows


def report_of(rounds, seed, slower=1.0):
    source = random.Random(seed)
    return {"report": 1, "mode": "quick", "machine": {"host": MARKUP, "processor": "a processor", "date": "today", "lacks": [["a card", "none"]]},
            "absent": [{"bench": "tcp-loss", "why": "it takes minutes"}, {"what": "af_xdp", "why": "no root"}], "stopped": "",
            "rounds": [round_of(lambda: source.uniform(0.99, 1.01), slower) for _ in range(rounds)]}


def host_record(bench, one, other, size, p50, unit="ns"):
    return {"bench": f"hosts-{bench}", "path": f"{one} > {other}", "metric": "", "size": size, "unit": unit, "p50": p50, "command": "testbed bench"}


def hosts_report():
    """Three rounds of three hosts. Large messages to the last host take 30 us more; it is down in the last round."""
    names, rounds = ["h0", MARKUP, "h2"], []
    for number in range(3):
        rounds.append([])
        for one, other in itertools.permutations(names, 2):
            if number == 2 and "h2" in (one, other):
                rounds[-1].append(host_record("error", one, other, 0, None, "") | {"why": "unetd of h2 does not run"})
                continue
            rounds[-1] += [host_record(bench, one, other, size, value, unit) for size in (48, 16384) for bench, value, unit in (
                ("rtt", 20_000 + size, "ns"), ("out", 20_000 + (30_000 if size > 48 and other == "h2" else 0), "ns"),
                ("bandwidth", size / 20_000, "GB/s"), ("lost", 0, "%"))]
    return {"report": 1, "mode": "hosts", "machine": {"host": "lab"}, "absent": [], "stopped": "", "rounds": rounds, "times": [100, 3700, 7300],
            "hosts": [{"name": name, "ports": MARKUP} for name in names]}


def write(path, content):
    with open(path, "w", encoding="utf-8") as file:
        file.write(content if isinstance(content, str) else json.dumps(content))
    return path


class Figures(html.parser.HTMLParser):
    """Counts what a page has: marks with a tip in each figure, and the number that the figure should have."""

    def __init__(self, text):
        super().__init__()
        self.wanted, self.found, self.scripts, self.inside = {}, {}, 0, None
        self.links = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.scripts += tag == "script"
        if tag == "figure":
            self.inside = attrs["id"]
            require(self.inside not in self.wanted, f"two figures are called {self.inside}")
            self.wanted[self.inside], self.found[self.inside] = int(attrs["data-points"]), 0
        if "data-tip" in attrs:
            self.found[self.inside] += 1
        self.links += [attrs[name] for name in ("src", "href") if name in attrs and tag != "use"]

    def handle_endtag(self, tag):
        if tag == "figure":
            self.inside = None


def check_page(directory, least):
    """The page is whole: its figures have their points and files, it names nothing of another place, and no name became markup."""
    with open(f"{directory}/index.html", encoding="utf-8") as file:
        text = file.read()
    require(len(text) < PAGE_MAX, f"the page has {len(text)} bytes")
    page = Figures(text)
    require(len(page.wanted) >= least and page.found == page.wanted, f"figures and points: {page.wanted} {page.found}")
    require(page.scripts == 1, f"{page.scripts} scripts: a name became one")
    outside = [link for link in page.links if not link.startswith(("#", "data:,")) and not os.path.exists(f"{directory}/{link}")]
    require(not outside, f"links that lead nowhere: {outside}")
    for name in page.wanted:
        with open(f"{directory}/{name}.pdf", "rb") as file:
            require(file.read(5) == b"%PDF-", f"{name}.pdf is none")
        require(os.path.getsize(f"{directory}/{name}.svg") > 500, f"{name}.svg is empty")
    return text


def drawing(place):
    source = write(f"{place}/all.json", report_of(3, 1))
    status, out, err = run(BENCH, "report", "--from", source, "--directory", f"{place}/page")
    require(status == 0 and out.strip() == f"{place}/page/index.html", f"draw: {status} {out}{err}")
    text = check_page(f"{place}/page", 30)
    require(out.count("\n") == 1 and err == "", f"draw says: {err}")
    require("it takes minutes" not in text, "a theme with figures says that it is not there")
    require("af_xdp" in text and "no root" in text and "a card" in text, "what was not available is not on the page")
    require("Not in this report" in text, "published figures without ours beside them do not say so")
    one = write(f"{place}/list.json", round_of(lambda: 1))
    status, out, err = run(BENCH, "report", "--from", one, "--directory", f"{place}/list", "--name", "<i>Monday</i>")
    require(status == 0, f"records of a run: {status} {err}")
    text = check_page(f"{place}/list", 30)
    require("&lt;i&gt;Monday" in text and "One round was measured" in text, "name, or spread of one round")
    few = write(f"{place}/few.json", [record("logp", "am-local", 8, 5, metric="L")])
    require(run(BENCH, "report", "--from", few, "--directory", f"{place}/few")[0] == 0, "few records")
    text = check_page(f"{place}/few", 3)
    require(text.count("Not in this report") > 10 and "too few figures for a verdict" in text, "themes that are absent do not say so")


def hosts_drawing(place):
    status, out, err = run(BENCH, "report", "--from", write(f"{place}/hosts.json", hosts_report()), "--directory", f"{place}/hosts")
    require(status == 0, f"hosts: {status} {out}{err}")
    text = check_page(f"{place}/hosts", 8)
    require(len(Figures(text).wanted) == 8 and "Then and now" not in text, "a report of hosts shows more than hosts")
    require("from h2 (down)" in text and "h2 was not measured in the newest round: unetd of h2 does not run" in text, "a host that is down")
    require("A round trip of 48 B: from 20.0 us" in text and "Machine that ran the report" in text, "verdict of hosts")
    require("30.0 us (30.0 us - 30.0 us)" in text and "-30.0 us" not in text, "asymmetry of the ways to the last host")
    for wrong in ({"times": [1, 2]}, {"times": "x"}, {"times": [1, "x", None]}, {"hosts": [3]}):
        status, _, err = run(BENCH, "report", "--from", write(f"{place}/odd.json", hosts_report() | wrong), "--directory", f"{place}/odd")
        require(status == 0, f"{wrong}: {status} {err}")
        check_page(f"{place}/odd", 6)
    lists = {"mixed": ("h0 testbed:a\nh1 root@h1 none\n", "of one testbed"), "two": ("h0 testbed:a\nh1 testbed:b\n", "of one testbed"),
             "gone": ("h0 testbed:no-such\nh1 testbed:no-such\n", "there is no testbed"), "short": ("h0\n", "expected NAME"), "one": ("h0 h0 none", "two hosts")}
    for name, (content, word) in lists.items():
        status, out, err = run(BENCH, "report", "--hosts", write(f"{place}/list-{name}", content), "--directory", f"{place}/lists")
        require(status in (1, 2) and out == "" and err.count("\n") == 1 and word in err, f"{name}: {status} {out}{err}")
    fine = write(f"{place}/fine", "h0 testbed:a\nh1 testbed:a\n")
    for args in (["--hosts", fine, "--every", "5"], ["--hosts", fine, "--every", "0s"], ["--hosts", fine, "--from", fine], ["--load"], ["--times", "2"],
                 ["--hosts", fine, "--times", "2"], ["--hosts", fine, "--every", "1s", "--times", "-1"],
                 ["--hosts", f"{place}/nowhere"]):
        status, out, err = run(BENCH, "report", *args, "--directory", f"{place}/lists")
        require(status == 2 and out == "" and err.count("\n") == 1, f"{args}: {status} {out}{err}")
    os.makedirs(f"{place}/kind")
    write(f"{place}/kind/report.json", report_of(1, 1))
    status, _, err = run(BENCH, "report", "--hosts", fine, "--directory", f"{place}/kind")
    require(status == 1 and "of another kind" in err, f"a report of a machine is not continued: {status} {err}")


def bad_input(place):
    whole = json.dumps(report_of(1, 1))
    wrong = {"truncated": (whole[:len(whole) // 2], "its end is missing"), "other": (whole.replace('"report": 1', '"report": 7', 1), "format 7"),
             "none": ('{"a": 1}', "is no report"), "records": ('[{"bench": "rtt"}]', "no record"), "deep": ("[" * 100_000, "is"),
             "bytes": ("\udcff", "no text"), "rounds": ('{"report": 1, "rounds": [3]}', "no record"), "empty": ("", "no JSON"),
             "machine": ('{"report": 1, "rounds": [], "machine": 3}', "measured on")}
    for name, (text, word) in wrong.items():
        with open(f"{place}/{name}", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        status, out, err = run(BENCH, "report", "--from", f"{place}/{name}", "--directory", f"{place}/bad")
        require(status == 1 and out == "" and err.count("\n") == 1 and word in err, f"{name}: {status} {out}{err}")
    for args, expected in ((["--from", f"{place}/nowhere"], 1), (["--from", place], 1), (["--what"], 2), (["--quick", "--directory", "/dev/null/x"], 1),
                           (["--from", f"{place}/none", "--directory", "/proc/x"], 1)):
        status, out, err = run(BENCH, "report", *args)
        require(status == expected and out == "" and err.count("\n") == 1 and err.startswith("unet-bench: "), f"{args}: {status} {out}{err}")


def fake_bench(place):
    path = write(f"{place}/unet-bench", FAKE.format(python=sys.executable))
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    write(f"{place}/records", "".join(json.dumps(row) + "\n" for row in round_of(lambda: 1)))
    return os.environ | {"UNET_BENCH": path}


def measuring(place):
    """By a stand-in for unet-bench: progress, a step that fails, and signals."""
    os.mkdir(f"{place}/fake")
    env = fake_bench(f"{place}/fake")
    status, out, err = run(REPORT, "report", "--quick", "--directory", f"{place}/quick", env=env)
    require(status == 0 and out.strip().endswith("index.html"), f"quick: {status} {out}{err}")
    require(re.search(r"round 3 of 3, 2 of \d+: bandwidth; about \d:\d\d left", err), f"progress: {err}")
    with open(f"{place}/quick/report.json", encoding="utf-8") as file:
        content = json.load(file)
    require(len(content["rounds"]) == 3 and {"bench": "tcp-rtt", "why": "no sockets today"} in content["absent"], f"JSON: {content['absent']}")
    require(content["machine"]["kernel"].startswith("Linux") and content["machine"]["version"] == "unet-bench 1.2.3", f"{content['machine']}")
    require(content["machine"]["commit"] == "abc", "the commit is not that of the records")
    check_page(f"{place}/quick", 30)
    status, _, err = run(REPORT, "report", "--quick", "--directory", f"{place}/nobench", env=env | {"UNET_BENCH": "/nonexistent"})
    require(status == 1 and err.count("\n") == 1 and "cannot run" in err, f"no unet-bench: {status} {err}")
    write(f"{place}/fake/hang", "")
    for number in (signal.SIGINT, signal.SIGTERM):
        interrupted(place, env, number)


def interrupted(place, env, number):
    with contextlib.suppress(FileNotFoundError):
        os.remove(f"{place}/fake/hanging")
    with subprocess.Popen([REPORT, "report", "--quick", "--directory", f"{place}/stopped"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=env) as process:
        end = time.monotonic() + WAIT
        while not os.path.exists(f"{place}/fake/hanging"):
            require(time.monotonic() < end and process.poll() is None, "the report did not begin")
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=WAIT)
    require(process.returncode == 130 and out.strip().endswith("index.html"), f"interrupted: {process.returncode} {out}{err}")
    text = check_page(f"{place}/stopped", 20)
    require("incomplete" in text and "Round trip of one message" in text, "what was measured is not on the page")


def comparing(place):
    def without_odd(*args, **more):  # the compare of unet-bench refuses a text that is no UTF-8
        content = report_of(*args, **more)
        return content | {"rounds": [[row for row in records if row["bench"] != "../up"] for records in content["rounds"]]}

    before, same = (write(f"{place}/{name}.json", without_odd(5, seed)) for name, seed in (("before", 3), ("same", 4)))
    slow = write(f"{place}/slow.json", without_odd(5, 5, slower=1.1))
    status, out, err = run(BENCH, "compare", before, same, "--directory", f"{place}/equal", "--noise", "2")
    require(status == 0 and "Nothing became slower" in err and out.endswith("index.html\n"), f"equal: {status} {out}{err}")
    check_page(f"{place}/equal", 1)
    status, out, err = run(BENCH, "compare", before, same, slow, "--directory", f"{place}/slower", "--noise", "2")
    require(status == 1 and "became slower" in err, f"slower: {status} {err}")
    text = check_page(f"{place}/slower", 1)
    require(text.count('class="slower"') >= 3 and "+10" in text, "the slower rows are not on the page")
    require(run(BENCH, "compare", "--old", before, "--new", slow)[0] == 1, "reports as sides")
    few = write(f"{place}/two.json", without_odd(2, 6))
    require(run(BENCH, "compare", before, few, "--directory", f"{place}/two")[0] == 2, "two rounds give a verdict")
    other = write(f"{place}/other.json", json.dumps(without_odd(1, 1)).replace('"report": 1', '"report": 7', 1))
    for args in ([before], [before, f"{place}/nowhere"], [before, before], [before, other], [before, "--old", same, "--new", slow]):
        status, out, err = run(BENCH, "compare", *args, "--directory", f"{place}/bad-compare")
        require(status == 2 and out == "" and err.count("\n") == 1, f"compare {args}: {status} {out}{err}")


def browse(chromium, place, page, *options):
    done = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                           "--disable-component-update", "--disable-sync", "--enable-logging=stderr", f"--user-data-dir={place}/profile", *options,
                           f"file://{page}"], capture_output=True, text=True, timeout=WAIT, check=False)
    require(done.returncode == 0, f"chromium {options}: {done.stderr[-500:]}")
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def in_browser(chromium, place):
    wrong = write(f"{place}/wrong.html", "<!DOCTYPE html><title>x</title><script>nothing.there();</script>")
    require(browse(chromium, place, wrong, "--dump-dom")[1], "an error on the console is not seen, so this test sees nothing")
    for name in ("page", "slower", "stopped", "hosts"):
        dom, console = browse(chromium, place, f"{place}/{name}/index.html", "--dump-dom")
        require(not console, f"{name}: {console}")
        page = Figures(dom)
        total = re.search(r'<html[^>]* data-points="(\d+)"', dom)
        require(page.found == page.wanted, f"{name}: points of figures: {page.found} of {page.wanted}")
        require(total and int(total.group(1)) == sum(page.wanted.values()), f"{name}: the page's script did not run to its end")
    browse(chromium, place, f"{place}/page/index.html", "--no-pdf-header-footer", f"--print-to-pdf={place}/print.pdf")
    require(os.path.getsize(f"{place}/print.pdf") > 50_000, "the page does not print")


def main():
    if run(sys.executable if not os.path.exists("/usr/bin/python3") else "/usr/bin/python3", "-c", "import matplotlib")[0] != 0:
        print("no matplotlib: scripts/install-packages bench installs it")
        return SKIP
    with tempfile.TemporaryDirectory() as place:
        for part in (drawing, hosts_drawing, bad_input, measuring, comparing):
            part(place)
        chromium = shutil.which("chromium")
        if chromium is None:
            print("no chromium, so the page was not opened: scripts/install-packages test installs it")
            return SKIP
        in_browser(chromium, place)
    print("report: all well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
