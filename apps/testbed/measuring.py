# measuring.py - `testbed bench`: unet-bench between each two hosts, in turn, as matrices or JSON.
import contextlib
import itertools
import json
import os
import subprocess
import sys
import time

from failure import Usage
import interruption
import testbeds

NAME, LOAD = "testbed-bench", "testbed-load"
TITLES = {"rtt": "round trip p50", "out": "round trip p50, short way back", "bandwidth": "stream as received"}
OVERDUE = 3  # seconds beyond the time of the measurements; then a host may be down


def down(hosts):
    """Returns the hosts that cannot be measured, by name, with the reason."""
    return {host.name: why for host in hosts if (why := host.why_down()) is not None}


def finish(client, hosts, seconds):
    """Waits for a client as long as both of its hosts are up. Returns its output and its errors."""
    while True:
        try:
            return client.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            if down(hosts):
                testbeds.kill(client)


def measure_pair(host, other, options):
    """Measures from one client to one server. Returns records, and an error or an empty text."""
    benches = ["rtt", "out", "bandwidth"] if options.asymmetry else ["rtt", "bandwidth"]
    client = host.start([host.find("unet-bench"), "across", "--only", ",".join(benches), "--size", options.size, "--seconds", str(options.seconds),
                         "--wait", "30", "--json", "-", f"{NAME}@{other.name}"],
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = finish(client, (host, other), len(benches) * len(options.size.split(",")) * options.seconds + OVERDUE)
    except BaseException:
        testbeds.kill(client)
        raise
    lines = err.strip().splitlines()
    ended = f"unet-bench ended with {client.process.returncode}"
    why = "" if client.process.returncode == 0 else lines[-1].removeprefix("unet-bench: ") if lines else ended
    try:
        records = json.loads(out)
    except ValueError:  # the output of a killed client may be incomplete
        return [], why or "unet-bench printed something that is no JSON"
    for record in records:
        del record["target"]
    return records, why


def text_of(record):
    if record is None:
        return "?"
    if record["bench"] != "bandwidth":
        return f"{record['p50'] / 1000:.1f} us"
    return f"{record['bandwidth'] * 8 / 1e6:.0f} Mbit/s"


def lost_of(record):
    sent = record["sent"] if record else 0
    return f"{100 * max(0, sent - record['arrived']) / sent:.2f} %" if sent else "?"


def print_matrix(title, hosts, cell):
    rows = [[title] + ["to " + host.name for host in hosts]]
    for one in hosts:
        rows.append(["from " + one.name] + ["-" if one is other else cell(one.name, other.name) for other in hosts])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join([row[0].ljust(widths[0])] + [text.rjust(width) for text, width in zip(row[1:], widths[1:])]))
    print()


def print_matrices(state, hosts, records):
    where = "reached by ssh" if state["kind"] == "ssh" else f"on {os.cpu_count()} cores that all of them share"
    print(f"testbed '{state['name']}': {len(hosts)} hosts {where}; receivers sleep while they wait\n")
    found = {(r["bench"], r["size"], r["from"], r["to"]): r for r in records if "error" not in r}
    for bench, size in sorted({key[:2] for key in found}, key=lambda key: (list(TITLES).index(key[0]), key[1])):
        print_matrix(f"{TITLES[bench]}, {size} B", hosts, lambda a, b, key=(bench, size): text_of(found.get((*key, a, b))))
        if any(r["arrived"] < r["sent"] for key, r in found.items() if key[:2] == (bench, size)):
            print_matrix("  lost of these", hosts, lambda a, b, key=(bench, size): lost_of(found.get((*key, a, b))))


@contextlib.contextmanager
def loaded(hosts):
    """Streams from each host to the next until the block ends. Yields pairs of a host and its stream."""
    following = {host.name: other.name for host, other in zip(hosts, hosts[1:] + hosts[:1])}

    def streaming(seconds):
        return testbeds.running(hosts, lambda host: ["across", "--only", "bandwidth", "--size", "1K", "--seconds", str(seconds), "--wait", "30",
                                                     f"{LOAD}@{following[host.name]}"])

    with testbeds.serving(hosts, LOAD):
        # A short stream tells when the servers are ready. The long one needs less time to begin than the short one took in all.
        began = time.monotonic()
        with streaming(0.1) as programs:
            for each in programs:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    each.process.wait(testbeds.CHECK_SECONDS)
            took = time.monotonic() - began
        with streaming(3600) as programs:
            time.sleep(took)
            yield list(zip(hosts, programs))


def lost_load(load):
    """Returns which stream of the load does not run, or an empty text."""
    return next((f"the load from {host.name} has ended" for host, stream in load if stream.process.poll() is not None), "")


def measure(hosts, gone, load, options, records):
    """Appends the records of each pair to `records`. A pair that cannot be measured, or not under all of the load, has a record with an error."""
    for host, other in itertools.permutations(hosts, 2):
        pair = {"from": host.name, "to": other.name}
        found, why = [], gone.get(host.name) or gone.get(other.name) or lost_load(load)
        if not why:
            print(f"testbed: measuring from {host.name} to {other.name}", file=sys.stderr, flush=True)
            found, why = measure_pair(host, other, options)
            if lost_load(load):
                found, why = [], lost_load(load)
            if why:
                gone |= down(each for each in hosts if each.name not in gone)
                why = gone.get(host.name) or gone.get(other.name, why)
                print(f"testbed: {host.name} to {other.name}: {why}", file=sys.stderr)
        records += [record | pair for record in found] + ([pair | {"error": why}] if why else [])


def show(state, hosts, options, records):
    if options.json:
        json.dump(records, sys.stdout, indent=2)
        print(flush=True)
    else:
        print_matrices(state, hosts, records)


def run(state, options):
    hosts = [testbeds.host_called(state, word) for word in options.hosts] or testbeds.hosts_of(state)
    if len({host.name for host in hosts}) < max(2, len(hosts)):
        raise Usage("name two hosts or more, each once")
    gone, records = down(hosts), []
    for why in gone.values():
        print(f"testbed: {why}", file=sys.stderr)
    there = [host for host in hosts if host.name not in gone]
    with testbeds.serving(there, NAME), loaded(there) if options.load else contextlib.nullcontext([]) as load:
        try:
            measure(hosts, gone, load, options, records)
        finally:
            # Before the servers end: that takes long if a host does not answer.
            with interruption.undisturbed():
                show(state, hosts, options, records)
    return 1 if any("error" in record for record in records) else 0
