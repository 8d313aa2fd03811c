# hosts.py - `unet-bench report --hosts`: `testbed bench` measures each pair of hosts, in rounds that are appended to one report.json.
import contextlib
import json
import os
import re
import subprocess
import sys
import time

from failure import Failure, Usage
import interruption
import machine
import measuring
import page
import programs
import results

SIZES = "48,16K"
MEASUREMENTS = 3 * len(SIZES.split(","))  # of a pair: round trips, round trips with a short way back, a stream
UNITS = {"s": 1, "m": 60, "h": 3600}
PATIENCE = 600  # seconds for testbed to end after a signal: it ends a program on each host, and some hosts may not answer


def seconds_of(text):
    """The seconds of a time such as 30s, 10m or 1.5h."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([smh])", text)
    if not found or float(found.group(1)) == 0:
        raise Usage(f"--every '{text}' is no time: write 30s, 10m or 1h")
    return float(found.group(1)) * UNITS[found.group(2)]


def read_list(path):
    """The testbed that the lines `NAME testbed:TESTBED` of a file name, and these hosts. None: the lines are for `testbed up --hosts`."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [words for line in file if (words := line.split()) and not words[0].startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"--hosts {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    places = {words[1] for words in lines if len(words) == 2}
    if not any(place.startswith("testbed:") for place in places):
        return None
    if len(places) != 1 or any(len(words) != 2 for words in lines):
        raise Usage(f"--hosts {path}: all hosts must be of one testbed, with lines such as: h0 testbed:unet")
    return places.pop().removeprefix("testbed:"), [words[0] for words in lines]


def run_testbed(*arguments, **how):
    """Runs testbed to its end. Returns its status, output and errors, and the signal that ended it early."""
    interrupt = None
    # Ctrl-C reaches this process alone, which lets testbed end in order.
    with subprocess.Popen([programs.find("testbed"), *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True, **how) as process:
        try:
            out, said = process.communicate()
        except measuring.Interrupted as signal:
            interrupt = signal
            interruption.ignore()  # one signal is enough: the report ends, and removes its testbed
            out, said = measuring.end(process, PATIENCE)
    return process.returncode, out, said, interrupt


def ask(*arguments):
    status, out, said, interrupt = run_testbed(*arguments, stderr=subprocess.PIPE)
    if interrupt:
        raise interrupt
    if status != 0 and not out:
        raise Failure((said.strip().splitlines() or [f"testbed ended with status {status}"])[-1].removeprefix("testbed: "))
    return out


@contextlib.contextmanager
def made_testbed(path):
    """Makes a testbed of the hosts of a file, and yields its name and no chosen hosts. It ends with the block."""
    name = f"report-{os.getpid()}"
    try:
        ask("up", "--name", name, "--hosts", path)
        yield name, []
    finally:
        with interruption.undisturbed():
            run_testbed("down", "--name", name, "--forget")  # names on stderr the hosts that it could not clear


def records_of(found, metric, command):
    """The records of a report for one record of `testbed bench`."""
    common = {"path": f"{found['from']} > {found['to']}", "metric": metric, "size": found.get("size", 0), "command": command}
    if "error" in found:
        return [common | {"bench": "hosts-error", "unit": "", "p50": None, "why": found["error"]}]
    if found["bench"] != "bandwidth":
        return [common | {"bench": f"hosts-{found['bench']}", "unit": "ns", "p50": found["p50"], "p99": found["p99"]}]
    lost = 100 * max(0, found["sent"] - found["arrived"]) / max(1, found["sent"])
    return [common | {"bench": "hosts-bandwidth", "unit": "GB/s", "p50": found["bandwidth"] / 1e9},
            common | {"bench": "hosts-lost", "unit": "%", "p50": lost}]


def measure_round(name, chosen, options, content):
    """Appends a round to the report. After a signal it has the pairs that were measured before."""
    seconds, number = content["seconds"], len(content["rounds"]) + 1
    hosts = [host["name"] for host in content["hosts"]]
    pairs = len(hosts) * (len(hosts) - 1)
    print(f"unet-bench: round {number}: {pairs} pairs of hosts, about {measuring.minutes(pairs * (MEASUREMENTS * seconds + 0.3))}",
          file=sys.stderr)
    load = ["--load"] if options.load else []
    command = ["bench", "--name", name, *hosts, "--asymmetry", *load, "--size", SIZES, "--seconds", f"{seconds:g}"]
    # A testbed that was made for this report is gone when the command is repeated.
    typed = ["testbed", *command] if chosen else ["unet-bench", "report", "--hosts", options.hosts, *(["--quick"] if options.quick else []), *load]
    began = time.time()
    _, out, _, interrupt = run_testbed(*command, "--json")
    found = []
    with contextlib.suppress(ValueError):  # there is no JSON if testbed could not begin
        found = json.loads(out)
    if found or (options.every and not interrupt):
        content["rounds"].append([record for each in found for record in records_of(each, "load" if options.load else "", " ".join(typed))])
        content["times"].append(began)
    if interrupt:
        content["stopped"] = f"{interrupt} in round {number}"
        raise interrupt
    if not found and not options.every:
        raise Failure("testbed bench measured nothing")
    if not found:
        print(f"unet-bench: round {number} measured nothing", file=sys.stderr)


def earlier_content(path):
    """The report of hosts that an earlier run left in this directory, or None."""
    if not os.path.exists(path):
        return None
    earlier = results.read(path).content
    if earlier.get("mode") != "hosts" or len(earlier.get("times", [])) != len(earlier["rounds"]):
        raise Failure(f"{path} is a report of another kind: choose another --directory")
    return earlier


def append_to(earlier, content, path):
    """Takes over the rounds of an earlier report, if it measured the same."""
    for what, one, other in (("hosts or ports", earlier.get("hosts"), content["hosts"]),
                             ("version", earlier.get("machine", {}).get("version"), content["machine"]["version"]),
                             ("seconds of a measurement (--quick)", earlier.get("seconds"), content["seconds"])):
        if one != other:
            raise Usage(f"{path} has other {what}: choose another --directory")
    content |= {name: earlier[name] for name in ("rounds", "times")}


def run(options):
    """Measures, and writes the page after each round; returns its path and whether a signal ended it."""
    every = seconds_of(options.every) if options.every else 0
    found = read_list(options.hosts)
    path = os.path.join(options.directory, "report.json")
    earlier = earlier_content(path)
    content = results.new_content("hosts", machine.facts(measuring.version_of(measuring.find_bench())))
    content |= {"times": [], "seconds": 0.1 if options.quick else 0.5}
    if options.name:
        content["name"] = options.name
    written, interrupt = "", None

    def save():
        results.write(content, path)
        return page.write(results.Report(content), options.directory)

    try:
        with measuring.interruptible(), contextlib.nullcontext(found) if found else made_testbed(options.hosts) as (name, chosen):
            hosts = json.loads(ask("status", "--json", "--name", name))
            content["hosts"] = [{"name": host["host"], "ports": ", ".join(host["ports"])} for host in hosts if host["host"] in chosen or not chosen]
            if chosen and sorted(chosen) != sorted(host["name"] for host in content["hosts"]):
                raise Usage(f"--hosts {options.hosts}: testbed '{name}' has the hosts {', '.join(host['host'] for host in hosts)}: name each once")
            if earlier:
                append_to(earlier, content, path)
            number = 0
            while True:
                next_round = time.monotonic() + every
                measure_round(name, chosen, options, content)
                written = save()
                number += 1
                if not every or number == options.times:
                    break
                time.sleep(max(0, next_round - time.monotonic()))
    except measuring.Interrupted as signal:
        interrupt = signal
    if interrupt and content["rounds"]:
        written = save()
    if not written:
        raise Failure(f"nothing was measured: {interrupt}")
    return written, interrupt is not None
