#!/usr/bin/env python3
# cli_test.py - unet-bench as a user meets it: wrong input, JSON, signals, and either process dying.
#
# Usage: cli_test.py UNET_BENCH UNETD [brief]; brief: what runs our code as no other test does
import concurrent.futures
import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BENCH, UNETD = (os.path.abspath(path) for path in sys.argv[1:3])
BRIEF = sys.argv[3:] == ["brief"]
LONG = "UNET_LONG" in os.environ and not BRIEF
WAIT = 300  # seconds; only an upper bound
FIELDS = ["bench", "path", "size", "metric", "unit", "p50", "p99", "p999", "mean", "samples", "limit", "ratio", "baseline", "command"]


def require(condition, text):
    if not condition:
        sys.exit("FAILED: " + text)


def run(*args, env=None):
    done = subprocess.run([BENCH, *args], capture_output=True, text=True, timeout=WAIT, env=env)
    return done.returncode, done.stdout, done.stderr


def outcomes(commands):
    """Runs these commands, which only print, one for each core at a time. Yields each with its outcome."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(zip(commands, pool.map(lambda args: run(*args), commands)))


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            state, parent = stat.read().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return int(parent) if state != "Z" else None


def children_of(pid):
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(name) == pid]


def is_alive(pid):
    return parent_of(pid) is not None


def wait_until(condition, text):
    end = time.monotonic() + WAIT
    while not condition():
        require(time.monotonic() < end, text)
        time.sleep(0.01)


def namespaces_of(pid):
    try:
        return [name for name in os.listdir("/var/run/netns") if name.startswith(f"unet-bench-{pid}-")]
    except OSError:
        return []


def start_long_run():
    """A run of an hour; returned when it measures. With namespaces, where it may make them."""
    bench = subprocess.Popen([BENCH, "run", "rtt", "--path", "kernel-pipe-busy,kernel-udp-veth-busy", "--size", "8", "--seconds", "3600"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in bench.stderr:
        if "measuring" in line:
            break
    wait_until(lambda: children_of(bench.pid), "side B was not started")
    return bench, children_of(bench.pid)


def finish(bench):
    text = bench.stderr.read()
    return bench.wait(WAIT), text


def wrong_input():
    wrong = (["walk"], ["run"], ["run", "speed"], ["run", "rtt", "--path", "nowhere"], ["run", "rtt", "--size", "8x"],
             ["run", "connect", "--size", "8"], ["run", "splitc", "--size", "8"], ["run", "connections", "--size", "0"], ["run", "connections", "--size", "65"],
             ["run", "many", "--size", "0"], ["run", "sockets", "--size", "8"], ["run", "rtt", "--seconds", "0"], ["run", "rtt", "--cores", "0,0"], ["run", "rtt", "--what"],
             ["list", "more"], [], ["across"], ["across", "x", "--size", "8"], ["across", "x", "--size", "65537"],
             ["kernels", "--kernel", "mm"], ["kernels", "--path", "tcp"], ["kernels", "--ranks", "0"],
             ["across", "x", "--only", "walk"], ["across", "x", "--count", "-1"], ["across", "x", "--wait", "1h"], ["serve", "a", "b"],
             ["plot"], ["plot", "x", "--format", "gif"], ["plot", "x", "--size", "y"],
             ["compare"], ["compare", "--old", "x"], ["compare", "--old", "/nonexistent", "--new", "/nonexistent"],
             ["compare", "--old", "/dev/null", "--new", "/dev/null"], ["compare", "--old", "x", "--new", "y", "--noise", "much"],
             ["compare", "--old", "x", "--new", "y", "--table", "html"])
    for args, (status, out, err) in outcomes(wrong):
        require(status == 2, f"{args}: exit status {status}, not 2")
        require(out == "" and err.count("\n") == 1 and err.startswith("unet-bench: "), f"{args}: not one clear line: {out}{err}")


def texts():
    words = ((["--help"], "Examples"), (["list"], "kernel-udp"), (["list"], "shared-2p"), (["info", "shared-2p"], "two cores"),
             (["info", "rtt", "kernel-tcp"], "p999"), (["info", "connect"], "create"), (["info", "logp"], "o_send"),
             (["info", "am-store"], "limit-put"), (["info", "splitc"], "splitc-messages"), (["info", "fibers"], "kernel-threads"), (["info", "limit-miss"], "64 words"), (["info", "sockets"], "redis-idle"),
             (["info", "programs-local"], "unet-sockets"))
    for (_, word), (args, (status, out, _)) in zip(words, outcomes([args for args, _ in words])):
        require(status == 0 and word in out, f"{args}: exit status {status}, {out}")


def records():
    status, out, err = run("run", "rtt", "--path", "kernel-pipe-busy", "--size", "8", "--seconds", "0.05", "--repeat", "1", "--json", "-")
    require(status == 0, f"exit status {status}: {err}")
    rows = json.loads(out)  # stdout holds the JSON and nothing else
    require([row["path"] for row in rows] == ["limit-pingpong", "kernel-pipe-busy"], f"paths: {rows}")
    for row in rows:
        require(not [field for field in FIELDS if field not in row], f"a field is missing: {row}")


def connections():
    paths = ["kernel-unix", "kernel-unix-busy", "kernel-tcp", "kernel-tcp-busy"]
    options = ["--seconds", "0.05", "--repeat", "1", "--json", "-"]
    status, out, err = run("run", "connect", "--path", ",".join(paths), *options)
    require(status == 0, f"connect: exit status {status}: {err}")
    rows = json.loads(out)
    steps = [(path, step) for path in paths for step in ("create", "connect", "total")]
    require([(row["path"], row["metric"]) for row in rows] == steps, f"connect: {rows}{err}")
    status, out, err = run("run", "connect", "--path", "kernel-udp", *options)
    require(status == 1 and out == "" and "takes part in connect" in err, f"connect over UDP: exit status {status}: {out}{err}")


def sockets_come_and_stay():
    """Connections by TCP sockets, ours and the kernel's: how many per second, and what those cost that stay."""
    options = ["--path", "tcp-local,tcp-shared,tcp-memif,kernel-tcp*", "--seconds", "0.05", "--repeat", "1", "--json", "-"]
    paths = {"tcp-local", "tcp-shared", "tcp-memif", "kernel-tcp", "kernel-tcp-busy"}
    status, out, err = run("run", "connections", "--size", "1,3", *options)
    require(status == 0, f"connections: exit status {status}: {err}")
    rows = json.loads(out)
    require({(row["path"], row["size"]) for row in rows} == {(path, size) for path in paths for size in (1, 3)}, f"connections: {rows}{err}")
    status, out, err = run("run", "many", "--size", "300", *options)
    require(status == 0, f"many: exit status {status}: {err}")
    rows = {(row["path"], row["metric"]): row for row in json.loads(out)}
    for path in paths:  # of round trips a busy machine may leave none
        require((path, "open") in rows and rows[path, "memory"]["p50"] > 0, f"many: {path}: {rows}{err}")
    if not LONG:
        return
    status, out, err = run("run", "many", "--size", "100000", "--path", "tcp-local,tcp-shared,tcp-memif", *options[2:])
    require(status == 0, f"100,000 connections: exit status {status}: {err}")
    rows = {(row["path"], row["metric"]): row for row in json.loads(out)}
    for path in ("tcp-local", "tcp-shared", "tcp-memif"):
        require((path, "open") in rows and 0 < rows[path, "memory"]["p50"] < 1200, f"100,000 connections: {path}: {rows}{err}")


def datagrams_to_and_from_the_kernel():
    """Ours at one end, Linux's UDP at the other: round trips, also of datagrams in fragments, and streams, beside the kernel's on both."""
    paths = {f"udp-{driver}-{direction}-kernel" for driver in ("packet", "tap", "pcap") for direction in ("to", "from")}
    for name, sizes in (("udp-rtt", "64,3000"), ("udp-stream", "64,1472")):
        status, out, err = run("run", name, "--path", "udp-*-kernel", "--size", sizes, "--seconds", "0.05", "--repeat", "1", "--json", "-")
        if status == 1 and "need root" in err:
            print(f"{name}: not tried: {err.strip()}")
            return
        require(status == 0, f"{name}: exit status {status}: {err}")
        rows = {(row["path"], row["size"], row["baseline"]): row for row in json.loads(out) if row["path"] in paths}
        wanted = {(path, int(size), f"kernel-udp-{cable}-busy") for path in paths for size in sizes.split(",") for cable in ("veth", "single")}
        require(set(rows) == wanted, f"{name}: {sorted(wanted - set(rows))}: {err}")
        require(all(row["slices"] > 0 for row in rows.values()), f"{name}: not measured: {rows}{err}")


def streams_in_place():
    """Applications that make and check every byte, also where a message, a piece and a word end at different places."""
    sizes = (5, 1001, 65536) if LONG else (1001,)
    for name in ("tcp-rtt", "tcp-stream"):
        status, out, err = run("run", name, "--path", "tcp-zero-copy-local,tcp-zero-copy-shared,tcp-zero-copy-memif", "--size", ",".join(map(str, sizes)),
                               "--seconds", "0.05", "--repeat", "1", "--json", "-")
        require(status == 0, f"{name}: exit status {status}: {err}")
        rows = {(row["path"], row["size"], row["baseline"]): row for row in json.loads(out)}
        for place in ("local", "shared", "memif"):
            for size in sizes:
                for beside in ("tcp-made-", "tcp-"):
                    require(("tcp-zero-copy-" + place, size, beside + place) in rows, f"{name}: not over {beside + place}: {sorted(rows)}{err}")
        ours = [row for row in rows.values() if row["path"].startswith("tcp-zero-copy-") or row["path"].startswith("tcp-made-")]
        require(all(row["slices"] > 0 for row in ours), f"{name}: not measured: {ours}{err}")


def pictures():
    """Records become a figure over sizes and one of the distribution, in both formats; plot_test.cc has what else they can be."""
    if shutil.which("gnuplot") is None:
        print("pictures: not tried: there is no gnuplot here: apt-get install gnuplot-nox")
        return
    def record(path, size, p50):
        return {"bench": "rtt", "path": path, "size": size, "metric": "rtt", "unit": "ns", "p50": p50, "p99": 2 * p50,
                "distribution": [p50 * factor for factor in (0.8, 0.9, 1, 1, 1.2, 2, 4, 9)]}

    with tempfile.TemporaryDirectory() as directory:
        results, wrong = directory + "/results.json", directory + "/wrong.json"
        with open(results, "w", encoding="ascii") as file:
            json.dump([record(path, size, p50 + size / 10) for path, p50 in (("local", 130), ("kernel-tcp", 9000)) for size in (8, 4096)], file)
        with open(wrong, "w", encoding="ascii") as file:
            file.write("{}")
        drawn = directory + "/made/here"
        status, out, err = run("plot", results, "--directory", drawn)
        require(status == 0, f"plot: exit status {status}: {err}")
        expected = [f"{drawn}/{name}.{ending}" for name in ("rtt", "rtt-distribution") for ending in ("svg", "png")]
        require(out.split() == expected, f"plot: {out}")
        for name in expected:
            with open(name, "rb") as picture:
                begins = picture.read(400)
            require(b"<svg" in begins if name.endswith(".svg") else begins.startswith(b"\x89PNG"), f"{name} is no picture: {begins}")
        for args, part in (([wrong], "wrong.json is not a list"), ([directory + "/none"], "cannot read"), ([directory], "cannot read"),
                           ([results, "--directory", "/dev/null"], "/dev/null")):
            status, out, err = run("plot", *args)
            require(status == 1 and out == "" and part in err and err.count("\n") == 1, f"plot {args}: exit status {status}: {out}{err}")
        status, out, err = run("plot", results, env={"PATH": "/nonexistent"})
        require(status == 1 and "gnuplot-nox" in err, f"plot without gnuplot: exit status {status}: {err}")


def comparisons():
    """Runs compared with themselves are the same, a path of ours that takes longer is slower, and what no longer has figures fails."""
    with tempfile.TemporaryDirectory() as directory:
        def compared(old, new, *args):
            """The outcome for two lists of runs, which are lists of records."""
            for side, runs in (("old", old), ("new", new)):
                for i, rows in enumerate(runs):
                    with open(f"{directory}/{side}{i}.json", "w", encoding="ascii") as file:
                        json.dump(rows, file)
            sides = [[f"--{side}", *(f"{directory}/{side}{i}.json" for i in range(len(runs)))] for side, runs in (("old", old), ("new", new))]
            status, out, err = run("compare", *sides[0], *sides[1], *args)
            require(err == "", f"compare {old} {new}: {err}")
            return status, out, out.splitlines()[-1]

        def measured():
            status, out, err = run("run", "rtt", "--path", "local,kernel-pipe-busy", "--size", "8", "--seconds", "0.05", "--repeat", "1",
                                   "--json", "-")
            require(status == 0, f"exit status {status}: {err}")
            return [row | {"p50": row["p50"] or 100, "ratio": row["ratio"] or 1.5} for row in json.loads(out)]  # some may be null

        def changed(change):
            return [row | change(row) if row["path"] == "local" else row for row in a]

        a, b = measured(), measured()
        more = [*a, *(row | {"path": "shared"} for row in a if row["path"] == "local")]
        slow, dead = changed(lambda row: {"ratio": 3 * row["ratio"]}), changed(lambda row: {"p50": None, "ratio": None})
        status, out, last = compared([a, b, a], [a, b, a], "--all")
        require(status == 0 and last == "Nothing became slower: 0 faster, 0 moved, 3 the same, 0 unknown.", f"itself: {status}: {out}")
        require("rtt local 8" in out and "Both sides have files of commit" in out, f"itself: {out}")
        status, out, last = compared([a, b], [a, b])
        require(status == 2 and last.startswith("Nothing is known"), f"two files: {status}: {out}")
        status, out, err = run("compare", "--old", *[f"{directory}/old0.json"] * 3, "--new", f"{directory}/new0.json")
        require(status == 2 and out == "" and "named twice" in err and err.count("\n") == 1, f"one file three times: {status}: {out}{err}")
        status, out, last = compared([a] * 3, [slow] * 3, "--table", "markdown")
        require(status == 1 and last.startswith("1 row became slower") and " +200.0 % |" in out, f"slower: {status}: {out}")
        require(out.count("| rtt ") == 1, f"rows that are the same: {out}")
        status, out, last = compared([more] * 3, [a] * 3)
        require(status == 1 and last.startswith("Nothing became slower, but 1 row of ours has figures only"), f"gone: {status}: {out}")
        require("rtt shared 8" in out, f"a row that is gone: {out}")
        status, out, last = compared([a] * 3, [dead] * 3)
        require(status == 2 and last.startswith("Nothing is known") and "1 row of ours has" in last, f"nothing works: {status}: {out}")


def fairness():
    """Beside hostile clients: each row was measured, whether or not the machine was quiet enough for a figure."""
    status, out, err = run("run", "fairness", "--path", "flood-small,never-*", "--seconds", "0.05", "--repeat", "1", "--json", "-")
    require(status == 0, f"fairness: exit status {status}: {err}")
    paths = ["alone", "flood-small", "never-reads", "never-returns"]
    wanted = [(path, metric) for path in paths for metric in ("rtt_p50", "rtt_p99", "share") if (path, metric) != ("alone", "share")]
    rows = json.loads(out)
    require([(row["path"], row["metric"]) for row in rows] == wanted, f"fairness: {rows}{err}")
    require(all(row["slices"] > 0 for row in rows), f"fairness: not measured: {rows}{err}")
    attacks = ["wakes", "wakes-peer", "setup-memory", "setup-limits"]
    status, out, err = run("run", "fairness", "--path", ",".join(attacks), "--seconds", "0.05", "--repeat", "1", "--json", "-")
    require(status == 0, f"fairness: exit status {status}: {err}")
    rows = json.loads(out)
    require({row["path"] for row in rows} == {"alone", "sleeps", "sleeps-peer", "setup-alone", "setup-asks", *attacks}, f"fairness: {rows}{err}")
    require(all(row["slices"] > 0 for row in rows), f"fairness: not measured: {rows}{err}")
    status, out, err = run("run", "rtt", "--path", "flood-small", "--json", "-")
    require(status == 1 and out == "" and "takes part in rtt" in err, f"rtt of flood-small: {status}: {out}{err}")


def restart():
    """Whatever replaces the network interface, every endpoint goes on."""
    status, out, err = run("run", "restart", "--repeat", "1", "--json", "-")
    require(status == 0, f"restart: exit status {status}: {err}")
    rows = json.loads(out)
    wanted = [(path, metric) for path in ("undisturbed", "crash", "upgrade", "stop")
              for metric in ("blackout", "blackout_max", "local", "local_max") if path != "stop" or metric.startswith("blackout")]
    require([(row["path"], row["metric"]) for row in rows] == wanted, f"restart: {rows}{err}")
    for row in rows:
        require(row["slices"] == 4 and row["p50"] > 0, f"restart: not measured: {row}{err}")
        require((row["timeline"] is None) == row["metric"].endswith("_max"), f"restart: timeline of {row}")


def engines():
    """One engine and two: measured, and each message through; how much two bring is the machine's affair."""
    status, out, err = run("run", "engines", "--size", "48", "--seconds", "0.05", "--repeat", "1", "--json", "-")
    if "only one core" in err:
        return
    require(status == 0, f"engines: exit status {status}: {err}")
    rows = json.loads(out)
    require([(row["path"], row["metric"]) for row in rows] == [("one-engine", "rate"), ("two-engines", "rate")], f"engines: {rows}{err}")
    require(all(row["slices"] > 0 for row in rows) and not err.count("dropped messages"), f"engines: not measured: {rows}{err}")


def between_two_processes():
    """U-Net's paths that hold both processes: each row was measured, whether or not the machine was quiet enough for a figure."""
    for names, paths, rows_wanted in (
            (["rtt", "rate"], ["local", "shared-2p"], [("rtt", "local"), ("rtt", "shared-2p"), ("rate", "local"), ("rate", "shared-2p")]),
            (["connect"], ["local", "local-sleep", "shared-2p"], [("connect", "local"), ("connect", "local-sleep"), ("connect", "shared-2p")]),
            (["put"], ["memif"], [("put", "memif")])):
        sizes = [] if names == ["connect"] else ["--size", "48"]
        status, out, err = run("run", *names, "--path", ",".join(paths), *sizes, "--seconds", "0.05", "--repeat", "1", "--json", "-")
        require(status == 0, f"{names}: exit status {status}: {err}")
        rows = json.loads(out)
        for wanted in rows_wanted:
            require([r for r in rows if (r["bench"], r["path"]) == wanted and r["slices"] > 0], f"{wanted} was not measured: {err}")
        if names == ["put"]:
            require([r for r in rows if r["metric"] == "bandwidth_of_messages"], f"no messages beside the puts: {rows}")
            require([r["baseline"] for r in rows if r["path"] == "memif"] == ["bandwidth_of_messages", ""], f"put: {rows}")


def active_messages():
    """Each benchmark of Active Messages: every row was measured, beside the raw channel of its path, whatever the machine left of it."""
    short = ["--seconds", "0.05", "--repeat", "1", "--json", "-"]

    def rows_of(*args):
        status, out, err = run("run", *args, *short)
        require(status == 0, f"{args}: exit status {status}: {err}")
        return json.loads(out), err

    raw = {"am-local": "local", "am-memif": "memif"}
    for name, size, metrics in (("am-rtt", "48", ["rtt_short", "rtt_medium", "rtt_long"]), ("am-rtt", "4K", ["rtt_medium", "rtt_long"]),
                                ("am-rate", "48", ["rate"]), ("am-store", "4K", ["bandwidth"]), ("am-get", "4K", ["bandwidth"])):
        rows, err = rows_of(name, "--path", ",".join(raw), "--size", size)
        for path, beside in raw.items():
            for metric in metrics:
                compared = [r["baseline"] for r in rows if (r["path"], r["metric"]) == (path, metric) and r["slices"] > 0]
                require(len(compared) == (1 if name == "am-get" else 2) and compared[0].startswith("limit-"), f"{name} {path}: {rows}{err}")
                require(compared[1:] in ([], [beside]), f"{name} {path} is compared with {compared}")
            require(name == "am-get" or [r for r in rows if r["path"] == beside and r["slices"] > 0], f"{name}: no {beside}: {rows}{err}")
    rows, err = rows_of("am-store", "--path", "am-local", "--size", "1M")
    require([r for r in rows if r["path"] == "am-local" and r["slices"] > 0], f"a store of 1 MiB: {rows}{err}")

    if BRIEF:
        return
    rows, err = rows_of("logp", "--path", "am-local")
    require([(r["path"], r["metric"]) for r in rows] == [("am-local", p) for p in ("L", "o_send", "o_recv", "g", "G")], f"logp: {rows}{err}")
    require(all(r["slices"] > 0 and (r["metric"] == "L" or r["p50"] is None or r["p50"] > 0) for r in rows), f"logp: {rows}{err}")

    rows, err = rows_of("am-peers", "--path", "am-local,am-memif")
    for path, memories in (("am-local", ["client", "peer", "shared", "mapped", "service"]), ("am-memif", ["client", "peer", "shared", "mapped"])):
        require([r["metric"] for r in rows if r["path"] == path] == [m + "_memory" for m in memories], f"am-peers {path}: {rows}{err}")
    require(all(r["p50"] > 1024 for r in rows if r["metric"] in ("client_memory", "peer_memory")), f"peers that cost nothing: {rows}")
    rows, err = rows_of("am-incast", "--size", "1500")
    require(len(rows) == 10 and all(0.5 < r["ratio"] < 1.001 for r in rows if r["metric"].startswith("goodput")), f"am-incast: {rows}{err}")
    require(all(r["ratio"] >= 1 for r in rows if r["metric"].startswith("p99")), f"am-incast: {rows}")

    status, out, err = run("run", "am-loss", "--path", "am-impaired,kernel-tcp-cubic", *short)
    if "left out" in err:
        print("am-loss: not tried: " + err.strip())
        return
    rows = json.loads(out)
    for path in ("am-impaired", "kernel-tcp-cubic"):
        found = [r for r in rows if r["path"] == path and r["baseline"] == "the whole wire"]
        require(len(found) == 6 and all(r["samples"] == 1 for r in found) and found[0]["ratio"] == 1, f"am-loss {path}: {rows}{err}")
    require(len([r for r in rows if r["baseline"] == "kernel-tcp-cubic"]) == 6, f"am-loss beside TCP: {rows}{err}")


def split_c():
    """Each access by each path was measured, beside the limit of its kind, whatever the machine left of it."""
    limits = {"read": "limit-miss", "get": "limit-pingpong", "put": "limit-pingpong", "store": "limit-pingpong", "bulk_get": "limit-get",
              "bulk_put": "limit-put", "barrier": "limit-pingpong"}
    short = ["--seconds", "0.05", "--repeat", "1", "--json", "-"]
    for paths in (["splitc-direct", "splitc-messages"], ["splitc-messages"], ["splitc-memif"]):
        status, out, err = run("run", "splitc", "--path", ",".join(paths), *short)
        require(status == 0, f"{paths}: exit status {status}: {err}")
        rows = json.loads(out)
        require([(r["path"], r["metric"]) for r in rows] == [(path, metric) for path in paths for metric in limits], f"splitc: {rows}{err}")
        for row in rows:
            asks = {"splitc-messages": "am-local", "splitc-memif": "am-memif"}.get(row["path"]) if row["metric"] == "read" else None
            require(row["baseline"] == (asks or limits[row["metric"]]), f"splitc is compared with: {row}")
            require(row["slices"] > 0 and (row["p50"] is None or row["p50"] > 0), f"splitc: not measured: {row}{err}")
    status, out, err = run("run", "splitc", "--path", "am-local", *short)
    require(status == 1 and out == "" and "takes part in splitc" in err, f"splitc over am-local: {status}: {out}{err}")
    status, out, err = run("run", "rtt", "--path", "splitc-direct", *short)
    require(status == 1 and out == "" and "takes part in rtt" in err, f"rtt over splitc-direct: {status}: {out}{err}")


def fibers():  # each operation beside a procedure call, and pthreads beside fibers
    status, out, err = run("run", "fibers", "--seconds", "0.1", "--repeat", "1", "--json", "-")
    beside = {("limit-call", "limit-call"): 1, ("fibers", "limit-call"): 5, ("kernel-threads", "limit-call"): 5, ("kernel-threads", "fibers"): 5}
    found = [(r["path"], r["baseline"]) for r in json.loads(out) if r["slices"] > 0]
    require(status == 0 and {each: found.count(each) for each in found} == beside, f"fibers: exit status {status}: {out}{err}")


PROGRAMS = {"iperf3-tcp": ["iperf3"], "iperf3-udp-64": ["iperf3"], "sockperf-tcp_p50": ["sockperf"], "sockperf-udp_p99": ["sockperf"],
            "sockperf-udp_cpu_server": ["sockperf"], "sockperf-tcp-blocked_p50": ["sockperf"], "sockperf-udp-blocked_p50": ["sockperf"],
            "redis-set-1": ["redis-server", "redis-benchmark"], "redis-get-50": ["redis-server", "redis-benchmark"],
            "redis-50_cpu": ["redis-server", "redis-benchmark"], "redis-idle": ["redis-server", "redis-benchmark"],
            "nginx-idle": ["nginx", "wrk"], "wrk": ["nginx", "wrk"], "wrk_p99": ["nginx", "wrk"], "wrk_cpu": ["nginx", "wrk"],
            "pgbench": ["pgbench", "postgres"], "pgbench_cpu_server": ["pgbench", "postgres"]}
PROGRAMS_PATH = ":".join([os.environ["PATH"], "/usr/sbin", *glob.glob("/usr/lib/postgresql/*/bin")])


def measured_programs(paths, wanted, none_but=None, wrapper=None):
    """The rows of ours by path and metric, and what was said; `none_but`: programs that are found, and no others. None: it needs root, or one
    of those is not here."""
    with tempfile.TemporaryDirectory() as d:
        env = dict(os.environ)
        for name in none_but or []:
            found = shutil.which(name, path=PROGRAMS_PATH)
            if found is None:
                return print(f"sockets: not tried: needs {name}")
            os.symlink(found, f"{d}/{name}")
        if none_but is not None:
            env["PATH"] = d
        if wrapper is not None:
            env["UNET_SOCKETS_WRAPPER"] = wrapper
        status, out, err = run("run", "sockets", "--path", paths, "--seconds", "0.2", "--repeat", "1", "--json", "-", env=env)
    if status == 1 and "need root" in err:
        return print("sockets: not tried: " + err.strip())
    require(status == 0, f"sockets: {paths}: exit status {status}: {err}")
    rows = json.loads(out)
    require(all(row["bench"] == "sockets" and row["p50"] >= 0 for row in rows), f"sockets: {paths}: {rows}")
    for metric in wanted:
        require(any(row["metric"] == metric for row in rows) or f"{metric.split('_')[0]} left out" in err, f"sockets: {metric}: {rows}{err}")
    return rows, err


def programs_of_others():
    """On the kernel's sockets (our path finds no unet-sockets): installed programs have figures, missing ones are named."""
    measured = measured_programs("programs-local", ["iperf3-tcp"], none_but=["ip", "iperf3"], wrapper="no-such-program")
    if measured is None:
        return
    rows, err = measured
    metrics = {row["metric"] for row in rows}
    require(all(metric.startswith("iperf3") for metric in metrics) and "iperf3-udp-1472_cpu" in metrics, f"sockets: {sorted(metrics)}")
    require(all(row["ratio"] is None for row in rows) and "there is no unet-sockets" in err, f"sockets without unet-sockets: {rows}{err}")
    for name in ("sockperf-tcp", "sockperf-udp-blocked", "redis", "wrk", "pgbench"):
        require(f"{name} left out" in err, f"sockets: {name} is not said to be missing: {err}")


def programs_on_ours():
    """Each program that is installed on our sockets, and its figures over those that it has on the kernel's. Briefly: iperf3 alone."""
    brief = None if LONG else ["ip", "iperf3"]
    there = [metric for metric, of in PROGRAMS.items() if all(shutil.which(p, path=PROGRAMS_PATH) and (LONG or p in brief) for p in of)]
    if not there:
        return print("sockets: not tried: none of the programs is installed")
    measured = measured_programs("programs-local", there, none_but=brief)
    if measured is None:
        return
    rows, err = measured
    ours = {row["metric"]: row for row in rows if row["path"] == "programs-local"}
    for metric in there:
        if metric.endswith("-idle"):  # a server that does nothing may take no time at all
            require(metric in ours, f"sockets on ours: {metric}: {sorted(ours)}{err}")
            continue
        row = ours.get(metric)
        require(row is not None and row["p50"] > 0 and row["ratio"] > 0 and row["baseline"] == "programs-kernel-loopback",
                f"sockets on ours: {metric}: {row}{err}")


def programs_over_a_wire():
    """Redis with one end on ours, to the kernel's sockets by a unetd, and from those with an interface of its own."""
    paths = ["programs-to-kernel", "programs-own-from-kernel"]
    wanted = ["redis-set-1", "redis-get-50", "redis-50_cpu", "redis-idle"]
    measured = measured_programs(",".join(paths), wanted, none_but=["ip", "ethtool", "redis-server", "redis-benchmark"])
    if measured is None:
        return
    rows, err = measured
    ours = {(row["path"], row["metric"]): row for row in rows}
    for path in paths:
        for metric in wanted[:3]:
            row = ours.get((path, metric))
            require(row is not None and row["p50"] > 0 and row["ratio"] > 0 and row["baseline"] == "programs-kernel-veth",
                    f"sockets over a wire: {path}: {metric}: {row}{err}")
        require((path, "redis-idle") in ours, f"sockets over a wire: {path}: {err}")


def kernels():
    """Jobs of one and two ranks by each path: every time is positive, and what the serial program did is the measure of all, or what one
    rank did where there is none."""
    short = ["--kernel", "mm-16", "--ranks", "1,2", "--repeat", "1", "--json", "-"]
    status, out, err = run("kernels", *short)
    require(status == 0, f"kernels: exit status {status}: {err}")
    rows = json.loads(out)
    paths = {(r["path"], r["size"]) for r in rows}
    by_us = {(path, ranks) for path in ("direct", "messages", "memif") for ranks in (1, 2)} - {("memif", 1)}
    by_us |= {("serial", 1), ("limit-copies", 1), ("limit-copies", 2)}
    require(paths - {("mpi", 1), ("mpi", 2)} == by_us, f"kernels: {sorted(paths)}: {err}")
    require(paths >= {("mpi", 1), ("mpi", 2)} or "mpi, 2 ranks left out" in err, f"kernels: nothing is said of MPI: {err}")
    for row in rows:
        require(row["metric"] == "mm-16" and row["p50"] > 0 and row["limit"] > 0 and row["baseline"] == "serial", f"kernels: {row}")
        require(abs(row["ratio"] * row["p50"] / row["limit"] - 1) < 1e-6, f"kernels: {row}")
    require([r["ratio"] for r in rows if r["path"] == "serial"] == [1], f"kernels: the serial program: {rows}")
    # Each has one of its own; `serial` need not be asked for.
    status, out, err = run("kernels", "--kernel", "ssort-bulk,rsort-small,cg,fft", "--path", "direct", "--ranks", "1", "--repeat", "1", "--json", "-")
    require(status == 0, f"kernels: exit status {status}: {err}")
    over = {r["metric"]: (r["path"], r["baseline"], r["ratio"]) for r in json.loads(out)}
    require({name: each[:2] for name, each in over.items()} == {name: ("direct", "one rank" if name == "fft" else "serial") for name in
                                                                ("ssort-bulk", "rsort-small", "cg", "fft")}, f"kernels: {over}")
    require(over["fft"][2] == 1, f"kernels: one rank: {over}")
    status, out, err = run("kernels", "--kernel", "fft", "--path", "serial", "--repeat", "1")
    require(status == 1 and out == "" and "nothing could be measured" in err, f"kernels: fft by a serial program: {status}: {out}{err}")
    status, out, err = run("kernels", "--kernel", "cannon", "--ranks", "2", "--repeat", "1")
    require(status == 1 and out == "" and "nothing could be measured" in err, f"kernels: cannon of two: {status}: {out}{err}")


def kernels_of_an_installed_one():
    """Away from the build tree the kernels, which are not installed, are found in PATH; what is missing is named."""
    apps = os.path.dirname(os.path.dirname(BENCH))
    with tempfile.TemporaryDirectory() as d:
        for program in (BENCH, apps + "/unet-run/unet-run"):
            shutil.copy(program, d)
        for path, found in ((os.environ["PATH"], False), (f"{apps}/kernels:{apps}/kernels/serial:{os.environ['PATH']}", True)):
            done = subprocess.run([d + "/unet-bench", "kernels", "--kernel", "mm-16", "--path", "direct", "--ranks", "1", "--repeat", "1"],
                                  capture_output=True, text=True, timeout=WAIT, env=os.environ | {"PATH": path})
            require((done.returncode == 0) == found and ("serial_mm" in done.stderr) != found, f"in PATH: {found}: {done}")


@contextlib.contextmanager
def network_interface(directory, host, role):
    """A unetd with one end of a memif."""
    wire = f"dpdk:net_memif0,role={role},socket={directory}/memif.sock"
    ready, write = os.pipe()
    unetd = subprocess.Popen([UNETD, "--socket", f"{directory}/{host}", "--host", host, "--port", wire, "--ready-fd", str(write)],
                             pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        require(os.read(ready, 1) == b"\n", f"unetd of {host} did not start")
        yield {"UNET_NI": f"unix:{directory}/{host}"}
    finally:
        os.close(ready)
        unetd.terminate()
        unetd.wait(WAIT)


def between_two_hosts():
    """serve and across: every echo comes back, the server counts a stream as sent or less, and a missing server is named."""
    with tempfile.TemporaryDirectory() as d, network_interface(d, "alpha", "server") as alpha, network_interface(d, "beta", "client") as beta:
        server = subprocess.Popen([BENCH, "serve"], stdout=subprocess.PIPE, text=True, env=os.environ | alpha)
        try:
            require("serving 'bench'" in server.stdout.readline(), "serve says nothing")
            status, out, err = run("across", "--wait", str(WAIT // 2), "--size", "16,5000", "--count", "20", "--seconds", "0.05", "--json", "-",
                                   "bench@alpha", env=os.environ | beta)
            require(status == 0 and err == "", f"exit status {status}: {err}")
            rows = json.loads(out)
            require([(row["bench"], row["size"]) for row in rows] == [("rtt", 16), ("bandwidth", 16), ("rtt", 5000), ("bandwidth", 5000)],
                    f"records: {rows}")
            for row in rows:
                require(row["target"] == "bench@alpha" and 0 < row["arrived"] <= row["sent"], f"counts: {row}")
                if row["bench"] == "rtt":
                    require(row["arrived"] == 20 and 0 < row["least"] <= row["p50"] and row["p99"] is None, f"times: {row}")
            # One that is not there fails the whole, after the others were measured.
            status, out, err = run("across", "--only", "rtt", "--count", "1", "nobody@alpha", "bench@alpha", env=os.environ | beta)
            require(status == 1 and err.count("\n") == 1 and "nobody" in err, f"exit status {status}: {err}")
            require(out.count("round trip") == 3, f"not the three sizes there are by themselves: {out}")
            server.send_signal(signal.SIGTERM)
            require(server.wait(WAIT) == 0, f"serve ends with {server.returncode}")
        finally:
            server.kill()
            server.communicate()


def signals():
    for number in (signal.SIGTERM, signal.SIGINT):
        bench, children = start_long_run()
        bench.send_signal(number)
        status, text = finish(bench)
        require(status == 130, f"{number.name}: exit status {status}: {text}")
        require(not any(is_alive(child) for child in children), f"{number.name}: side B is still there")
        require(not namespaces_of(bench.pid), f"{number.name}: namespaces are left")


def side_b_dies():
    bench, children = start_long_run()
    for child in children:
        os.kill(child, signal.SIGKILL)
    status, text = finish(bench)
    require(status == 1 and "side B" in text, f"side B killed: exit status {status}: {text}")
    require(not namespaces_of(bench.pid), "side B killed: namespaces are left")


def side_a_dies():
    bench, children = start_long_run()
    bench.kill()
    bench.wait(WAIT)
    wait_until(lambda: not any(is_alive(child) for child in children), "side A killed: side B is still there")
    # The next run removes what this one could not.
    run("run", "rtt", "--path", "limit-pingpong", "--size", "8", "--seconds", "0.02", "--repeat", "1")
    require(not namespaces_of(bench.pid), "namespaces of a dead run are left")


PARTS = (wrong_input, texts, records, connections, sockets_come_and_stay, datagrams_to_and_from_the_kernel, streams_in_place, fairness,
         restart, engines, pictures, comparisons, between_two_processes, active_messages, split_c, fibers, programs_of_others,
         programs_on_ours, programs_over_a_wire, kernels, kernels_of_an_installed_one, between_two_hosts, signals, side_b_dies, side_a_dies)
BRIEFLY = (texts, connections, sockets_come_and_stay, datagrams_to_and_from_the_kernel, streams_in_place, engines, between_two_processes,
           active_messages, split_c, fibers, signals, side_b_dies)
for part in BRIEFLY if BRIEF else PARTS:
    part()
    print(part.__name__, "ok", flush=True)
