#!/usr/bin/env python3
# cli_calls_test.py - unet-bench's benchmarks of calls and of what they are made of: each row was measured, whatever the machine left of it.
#
# Usage: cli_calls_test.py UNET_BENCH
import json
import subprocess
import sys

BENCH = sys.argv[1]
SHORT = ["--seconds", "0.02", "--repeat", "1", "--json", "-"]


def require(condition, text):
    if not condition:
        sys.exit("FAILED: " + text)


def run(*args):
    done = subprocess.run([BENCH, "run", *args, *SHORT], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def measured(*args):
    """The rows of this run that were measured, and what was said. Other work of the machine may disturb a benchmark as a whole: it says so, and
    is run again."""
    for _ in range(5):
        status, out, err = run(*args)
        if status == 0 or "could not be measured" not in err:
            break
    require(status == 0, f"{args}: exit status {status}: {err}")
    return [row for row in json.loads(out) if row["slices"] > 0], err


def calls():
    """Each call by each path, beside the limit of its path. Other RPC systems may not be installed."""
    metrics = ["null", "add", "big_in", "big_in_out", "in_4k", "in_64k", "in_8m"]
    paths = {"rpc-local": "limit-rpc", "rpc-shared": "limit-rpc", "rpc-memif": "limit-rpc", "rpc-one-core": "limit-handoff",
             "rpc-pipe": "limit-rpc", "pipe-one-core": "limit-handoff", "rpc-grpc": "limit-rpc", "rpc-capnp": "limit-rpc"}
    beside = {"rpc-local": ["am-local", "local"], "rpc-shared": ["am-shared", "shared-2p"], "rpc-memif": ["am-memif", "memif"],
              "rpc-one-core": ["am-one-core"]}
    rows, err = measured("rpc", "--path", ",".join(paths))
    for path, limit in paths.items():
        if f"{path} left out: not available: install" in err:
            print(f"rpc: not tried: {path}")
            continue
        found = [(row["metric"], row["baseline"]) for row in rows if row["path"] == path]
        wanted = [(metric, limit) for metric in metrics]
        if path in beside:
            wanted += [("big_in_out", "null")] + [("null", other) for other in beside[path]]
        require(found[:len(wanted)] == wanted, f"rpc: {path}: {found}{err}")
    status, out, err = run("rtt", "--path", "rpc-pipe")
    require(status == 1 and out == "" and "takes part in rtt" in err, f"rtt over rpc-pipe: {status}: {out}{err}")


def one_core():
    rows, err = measured("one-core")
    found = [row["path"] for row in rows]
    require(found == ["limit-handoff", "am-one-core", "rpc-one-core", "rpc-one-core", "pipe-one-core"], f"one-core: {found}{err}")


def traffic():
    """Three patterns with two loads on each simulated network: goodput, p99 and fairness, and what the simulation costs."""
    bounds = {"goodput": (1, 12.5), "p99": (4_000, 2e6), "fairness": (0.3, 1), "simulator_events": (1e4, 1e9), "simulator_memory_per_node": (1e3, 1e8)}
    for bench, paths in (("am-traffic", 3), ("tcp-traffic", 5)):
        rows, err = measured(bench, "--size", "8")
        require(len(rows) == paths * 20, f"{bench}: {len(rows)} rows: {err}")
        for row in rows:
            least, greatest = next(bounds[what] for what in bounds if row["metric"].startswith(what))
            require(least <= row["p50"] <= greatest, f"{bench}: {row}")


def parts_and_scale():
    """Each part of a call; many calls under way; and many callers, with a server's core and without."""
    rows, err = measured("rpc-cost", "--path", "rpc-local,rpc-memif")
    parts = ["null", "channel", "active_message", "call", "stub", "client_send", "client_poll", "client_receive", "server_poll", "server_serve"]
    found = [(row["path"], row["metric"]) for row in rows]
    require(found == [(path, part) for path in ("rpc-local", "rpc-memif") for part in parts], f"rpc-cost: {found}{err}")
    rows, err = measured("rpc-rate", "--path", "rpc-local,rpc-memif")
    require([row["path"] for row in rows] == ["rpc-local", "rpc-memif"], f"rpc-rate: {rows}{err}")
    rows, err = measured("rpc-scale", "--size", "1,16")
    for callers in (1, 16):
        found = [(row["path"], row["metric"]) for row in rows if row["size"] == callers]
        wanted = [(path, metric) for path in ("rpc-local", "rpc-one-core") for metric in ("latency", "rate")]
        require(found == wanted, f"rpc-scale: {callers} callers: {found}{err}")


def bindings_and_death():
    """Bindings that are idle, and a server that is killed."""
    rows, err = measured("rpc-bindings", "--size", "100")
    found = [row["metric"] for row in rows if row["path"] == "rpc-local"]
    require(found[:3] == ["null", "open", "memory"], f"rpc-bindings: {found}{err}")
    rows, err = measured("rpc-death")
    found = [row["metric"] for row in rows]
    require(found == ["lost", "lost_max"], f"rpc-death: {found}{err}")


def ports():
    """Round trips and streams of message ports with each kind of flow, in a process and over a wire."""
    rows, err = measured("ports", "--path", "ports-local,ports-memif", "--size", "8,1M")
    flows = ["windowed", "one_message", "stop_and_wait"]
    for path in ("local", "memif"):
        found = {size: [(row["metric"], row["baseline"]) for row in rows if (row["path"], row["size"]) == ("ports-" + path, size)]
                 for size in (8, 1 << 20)}
        trips = [(flow, "limit-pingpong") for flow in flows] + [("windowed", "am-" + path)]
        require(found[8] == trips, f"ports: {path}: {found}{err}")
        require(found[1 << 20] == [(flow, "limit-memcpy") for flow in flows], f"ports: {path}: {found}{err}")


def techniques():
    """Each technique that is left out, beside the same with it."""
    rows, err = measured("ipc-techniques")
    both = [("several_sends", "gather"), ("two_copies", "direct")]
    one_core = [("four_crossings", "two_crossings"), ("scheduler", "hand_off")]
    for size, of_local in ((8, [("buffer", "line"), *both]), (4096, both)):
        for path, wanted in (("ipc-local", of_local), ("ipc-one-core", one_core)):
            found = [(row["metric"], row["baseline"]) for row in rows if (row["path"], row["size"]) == (path, size)]
            require(found == wanted, f"ipc-techniques: {path}, {size} B: {found}{err}")


def files():
    """A file through each way, beside one process that does all of it."""
    rows, err = measured("pipe")
    ways = ["limit-file", "file-local", "file-local-sleep", "file-local-one-core", "file-pipe", "file-memory", "file-pipe-one-core",
            "file-memory-one-core"]
    found = [row["path"] for row in rows]
    require(found == ways, f"pipe: {found}{err}")


def fabric():
    """Each operation of libfabric by each provider, and MPI on ours and on its own transports."""
    paths = ["fabric-unet", "fabric-shm", "fabric-tcp", "fabric-udp"]
    rows, err = measured("fabric", "--size", "8,4K")
    if "left out: not available: install" in err:
        print("fabric: not tried")
        return
    for size, metrics in ((8, ["tagged", "rate", "fetch_add", "add_rate"]), (4096, ["tagged", "bandwidth", "put", "get"])):
        found = [(row["path"], row["metric"]) for row in rows if row["size"] == size]
        require(found == [(path, metric) for path in paths for metric in metrics], f"fabric: {size} B: {found}{err}")


def mpi():
    """MPI on our provider, on one host and between two namespaces."""
    status, out, err = run("mpi", "--path", "mpi-unet,mpi-vader,mpi-xdp")
    if "there is no MPI" in err:
        print("mpi: not tried")
        return
    require(status == 0, f"mpi: {status}: {err}")
    pair = [("latency", 8), ("bandwidth", 4096), ("bandwidth", 65536), ("bandwidth", 1 << 20), ("rate", 8),
            ("allreduce", 8), ("allreduce", 1 << 20)]
    crowd = [("allreduce_crowded", 8), ("allreduce_crowded", 1 << 20)]
    kernels = [(kernel, 0) for kernel in ("mm", "ssort", "rsort", "cg")]
    wanted = {("mpi-unet", "mpi-vader"): pair + crowd + kernels, ("mpi-xdp", "mpi-tcp-veth"): pair + kernels}
    if "mpi-xdp left out: network namespaces need root" in err:
        print("mpi: not tried between namespaces")
        del wanted[("mpi-xdp", "mpi-tcp-veth")]
    for (path, baseline), figures in wanted.items():
        found = [(row["metric"], row["size"]) for row in json.loads(out) if (row["path"], row["baseline"]) == (path, baseline)]
        require(found == figures, f"mpi: {path}: {found}{err}")


for part in (calls, one_core, traffic, parts_and_scale, bindings_and_death, ports, techniques, files, fabric, mpi):
    part()
    print(part.__name__, "ok", flush=True)
