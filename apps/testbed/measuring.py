# measuring.py - `testbed bench`: unet-bench between each two hosts, in turn, as matrices or JSON.
import json
import os
import subprocess
import sys

from failure import Failure
import testbeds

NAME = "testbed-bench"


def measure_from(host, others, options):
    """Measures from one client to all others; prints errors, and returns the records of the rest."""
    targets = [f"{NAME}@{other.name}" for other in others]
    client = host.start([host.find("unet-bench"), "across", "--size", options.size, "--seconds", str(options.seconds), "--wait", "30",
                         "--json", "-", *targets], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = client.process.communicate()
    except BaseException:
        client.process.kill()
        raise
    for line in err.splitlines():
        print(f"testbed: {host.name}: {line}", file=sys.stderr)
    if client.process.returncode == 2:
        raise Failure("unet-bench does not take these arguments (see above)")
    records = json.loads(out) if out.strip() else []
    for record in records:
        record["from"], record["to"] = host.name, record.pop("target").split("@", 1)[1]
    return records, client.process.returncode == 0


def text_of(record):
    if record is None:
        return "?"
    if record["bench"] == "rtt":
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
    where = f"on {os.cpu_count()} cores that all of them share" if state["kind"] == "namespaces" else "reached by ssh"
    print(f"testbed '{state['name']}': {len(hosts)} hosts {where}; receivers sleep while they wait\n")
    found = {(r["bench"], r["size"], r["from"], r["to"]): r for r in records}
    for bench, size in sorted({(r["bench"], r["size"]) for r in records}, key=lambda key: (key[0] != "rtt", key[1])):
        title = f"round trip p50, {size} B" if bench == "rtt" else f"stream as received, {size} B"
        print_matrix(title, hosts, lambda a, b, key=(bench, size): text_of(found.get((*key, a, b))))
        if any(r["arrived"] < r["sent"] for key, r in found.items() if key[:2] == (bench, size)):
            print_matrix("  lost of these", hosts, lambda a, b, key=(bench, size): lost_of(found.get((*key, a, b))))


def run(state, options):
    hosts = testbeds.hosts_of(state)
    records, good = [], True
    with testbeds.serving(hosts, NAME):
        for host in hosts:
            if not options.json:
                print(f"testbed: measuring from {host.name}", file=sys.stderr)
            found, complete = measure_from(host, [other for other in hosts if other is not host], options)
            records += found
            good = good and complete
    if options.json:
        json.dump(records, sys.stdout, indent=2)
        print()
    else:
        print_matrices(state, hosts, records)
    return 0 if good else 1
