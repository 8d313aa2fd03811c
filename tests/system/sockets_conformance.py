#!/usr/bin/env python3
# sockets_conformance.py - the cases of tests/conformance on the kernel's sockets and, by unet-sockets, on ipstack's: both must print the
# same.
#
# Usage: sockets_conformance.py UNETD CONFORMANCE KNOWN_DIFFERENCES [UNET_SOCKETS]   (or $UNET_SOCKETS)
#            [--repeat N] [--jobs N] [--show] [--case NAME]... [--without FILE]...
#            runs on the kernel, runs at once; print the kernel's output; only these cases, or all but those in the file
#
# 77: no root, no network namespaces, or no unet-sockets. Then only the kernel's runs are compared with one another.
import argparse
import concurrent.futures
import contextlib
import difflib
import multiprocessing
import os
import signal
import subprocess
import sys

from daemon import WAIT, Failure, Unetd, directory, require, run
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, Lines, give_kernel
from spaces import Host, Spaces, can_be_made, ip

OPTION = {4: "", 6: "6"}
WHERE = {"host": "on one host", "wire": "over a wire"}


def blocks(text):
    """Output of each case: name -> lines."""
    found, lines = {}, []
    for line in text.splitlines():
        if line.startswith("== "):
            lines = found[line[3:]] = []
        else:
            lines.append(line)
    return found


def cases_of(conformance):
    """name -> title of the case."""
    status, out, err = run(conformance, "list")
    require(status == 0, f"conformance list: {err}")
    return dict(line.split(None, 1) for line in out.splitlines())


@contextlib.contextmanager
def peer_of(command, addresses, env=None):
    """Runs the peer program, from the moment when all its services listen; ends it with all its children."""
    process = subprocess.Popen([*command, "peer", *addresses], stdout=subprocess.PIPE, env=env, start_new_session=True)
    try:
        lines = Lines(process.stdout)
        for _ in addresses:
            require(lines.next() == "ready", "the peer does not start")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(WAIT)
        process.stdout.close()


def play(command, version, peers, names, env=None):
    """Output of the cases."""
    arguments = ["run", "--family", str(version)]
    for v in VERSIONS:
        arguments += [f"--address{OPTION[v]}", OURS[v]]
        arguments += [f"--peer{OPTION[v]}", peers[v]]
    # To a file: processes that a case leaves behind would keep a pipe open.
    with directory() as d, open(f"{d}/out", "w+", encoding="utf-8", errors="replace") as out:
        done = subprocess.run([*command, *arguments, *names], stdout=out, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env, timeout=60 * WAIT)
        require(done.returncode == 0, f"conformance: {done.returncode}: {done.stderr.decode(errors='replace')}")
        out.seek(0)
        return blocks(out.read())


def on_kernel(conformance, version, names):
    """The cases with the peer on the same host."""
    with Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        ip("-n", spaces["a"], "link", "set", "lo", "up")
        give_kernel(spaces, OURS, "a")
        command = ["ip", "netns", "exec", spaces["a"], conformance]
        with peer_of(command, [OURS[v] for v in VERSIONS]):
            return play(command, version, OURS, names)


def on_kernel_over_wire(conformance, version, names):
    with Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        ip("-n", spaces["a"], "link", "set", "lo", "up")
        give_kernel(spaces, OURS, "a", link_local="fe80::1")
        give_kernel(spaces, KERNELS)
        with peer_of(["ip", "netns", "exec", spaces["b"], conformance], [KERNELS[v] for v in VERSIONS]):
            return play(["ip", "netns", "exec", spaces["a"], conformance], version, KERNELS, names)


class Ours:
    """The cases by unet-sockets."""

    def __init__(self, unetd, unet_sockets, conformance):
        self.unetd, self.unet_sockets, self.conformance = unetd, unet_sockets, conformance

    def command(self, spaces, socket):
        env = os.environ | {"UNET_NI": f"unix:{socket}", "UNET_SOCKET": socket}
        return ["ip", "netns", "exec", spaces["a"], self.unet_sockets, self.conformance], env

    def __call__(self, _, version, names):
        with directory() as d, Spaces("a") as spaces:
            ip("-n", spaces["a"], "link", "set", "lo", "up")
            with Unetd(self.unetd, "--socket", f"{d}/s", "--port", "nowhere", "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed"):
                command, env = self.command(spaces, f"{d}/s")
                with peer_of(command, [OURS[v] for v in VERSIONS], env):
                    return play(command, version, OURS, names, env)

    def over_wire(self, _, version, names):
        with directory() as d, Spaces("a", "b") as spaces:
            spaces.join("a", "eth0", "b", "eth0")
            ip("-n", spaces["a"], "link", "set", "lo", "up")
            give_kernel(spaces, KERNELS)
            with Host(self.unetd, spaces, "a", f"{d}/s", "packet:iface=eth0", "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed"):
                command, env = self.command(spaces, f"{d}/s")
                with peer_of(["ip", "netns", "exec", spaces["b"], self.conformance], [KERNELS[v] for v in VERSIONS]):
                    return play(command, version, KERNELS, names, env)


def names_in(path):
    """The names in a file, one on each line."""
    with open(path, encoding="utf-8") as file:
        names = {line.strip() for line in file if not line.startswith("#")}
    return names


def known_differences(path):
    """`CASE/VERSION/PLACE` -> reason. A line may be for one version or one place only."""
    known = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                name, reason = line.strip().split(None, 1)
                case, *only = name.split("/")
                require(set(only) <= {"4", "6", *WHERE}, f"{path}: {name} is of no version and no place")
                require("wire" not in only or case.startswith("peer_"), f"{path}: {name} is never played over a wire")
                known |= {f"{case}/{v}/{place}": reason for v in VERSIONS for place in WHERE if set(only) <= {str(v), place}}
    return known


def differences(one, other):
    """Cases with other or no output in the second run: name -> the lines of a diff."""
    differ = {}
    for name, lines in one.items():
        others = other.get(name, ["(the case did not run)"])
        if lines != others:
            differ[name] = [line for line in difflib.unified_diff(lines, others, lineterm="", n=2) if not line.startswith(("---", "+++", "@@"))]
    return differ


def show(title, what, lines):
    print(f"\n{title}: {what}")
    for line in lines:
        print(f"    {line}")


def not_looked_at(results, cases):
    """How many cases could not set up their fixture on the kernel, or timed out: an equal failure of ours proves nothing."""
    wrong = 0
    for (place, version), texts in results.items():
        for number, text in enumerate(texts, 1):
            for name, lines in text.items():
                if any(line.startswith(("cannot go on", "waited in vain", "timed out")) for line in lines):
                    wrong += 1
                    show(f"CANNOT GO ON  {name}, IPv{version}, {WHERE[place]}, run {number}", cases[name], lines)
    return wrong


def compare_kernels(results, cases):
    """Each run on the kernel equals the first one. Returns how many cases do not."""
    wrong = 0
    for (place, version), texts in results.items():
        for number, text in enumerate(texts[1:], 2):
            for name, lines in differences(texts[0], text).items():
                wrong += 1
                show(f"NOT THE SAME TWICE  {name}, IPv{version}, {WHERE[place]}, run {number}", cases[name], lines)
    return wrong


def compare_ours(kernels, ours, cases, known):
    """How many cases differ without being known to, and how many known ones do not differ."""
    played, excused, wrong = set(), set(), set()
    for (place, version), text in ours.items():
        expected = kernels[place, version][0]
        played |= {f"{name}/{version}/{place}" for name in expected}
        for name, lines in differences(expected, text).items():
            named = f"{name}/{version}/{place}"
            (excused if named in known else wrong).add(named)
            if named not in known:
                show(f"DIFFERS  {name}, IPv{version}, {WHERE[place]} (- the kernel, + ours)", cases[name], lines)
    print()
    for named in sorted(excused):
        print(f"known to differ: {named}: {known[named]}")
    unused = sorted(named for named in known if named in played - excused or named.split("/")[0] not in cases)
    for named in unused:
        print(f"does not differ, though it is known to: {named}: {known[named]}")
    print(f"differ: {' '.join(sorted(wrong)) or 'none'}")
    same = len(played) - len(wrong) - len(excused)
    print(f"{len(played)} cases compared with the kernel: {same} the same, {len(excused)} known to differ, {len(wrong)} not known to")
    return len(wrong) + len(unused)


def options_of_call():
    parser = argparse.ArgumentParser(description="the cases of tests/conformance on the kernel's sockets and on ours")
    parser.add_argument("unetd", type=os.path.abspath)
    parser.add_argument("conformance", type=os.path.abspath)
    parser.add_argument("known_differences")
    parser.add_argument("unet_sockets", nargs="?", default=os.environ.get("UNET_SOCKETS", ""))
    parser.add_argument("--repeat", type=int, default=2, help="runs on the kernel (default: 2)")
    parser.add_argument("--jobs", type=int, default=4, help="runs at once (default: 4)")
    parser.add_argument("--show", action="store_true", help="print what the kernel says")
    parser.add_argument("--case", action="append", help="this one only; may be given several times")
    parser.add_argument("--without", action="append", default=[],
                        help="a file of cases that are left out, a name in each line; may be given several times")
    return parser.parse_args()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # cleans up
    options = options_of_call()
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        return 77
    cases = cases_of(options.conformance)
    left_out = set().union(*map(names_in, options.without))
    names = options.case or [name for name in cases if name not in left_out]
    with_peer = [name for name in names if name.startswith("peer_")]
    there = bool(options.unet_sockets) and os.path.exists(options.unet_sockets)
    ours = Ours(options.unetd, os.path.abspath(options.unet_sockets), options.conformance)
    places = [("host", on_kernel, ours, names)]
    if with_peer:
        places.append(("wire", on_kernel_over_wire, ours.over_wire, with_peer))
    # Processes, not threads: each needs its own namespace names.
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as pool:
        keys = [(place, version, kernel, mine, chosen) for place, kernel, mine, chosen in places for version in VERSIONS]
        kernel_jobs = {(place, version): [pool.submit(kernel, options.conformance, version, chosen) for _ in range(options.repeat)]
                       for place, version, kernel, _, chosen in keys}
        our_jobs = {(place, version): pool.submit(mine, options.conformance, version, chosen) for place, version, _, mine, chosen in keys if there}
        kernels = {key: [job.result() for job in jobs] for key, jobs in kernel_jobs.items()}
        results = {key: job.result() for key, job in our_jobs.items()}
    if options.show:
        for (place, version), texts in kernels.items():
            for name, lines in texts[0].items():
                show(f"{name}, IPv{version}, {WHERE[place]}", cases[name], lines)
    wrong = compare_kernels(kernels, cases)
    print(f"{len(names)} cases, {options.repeat} runs of each on the kernel: {wrong} did not say the same")
    wrong += not_looked_at(kernels, cases)
    if there:
        wrong += compare_ours(kernels, results, cases, known_differences(options.known_differences))
    if wrong:
        return 1
    if not there:
        print("skipped: there is no unet-sockets to compare the kernel with")
        return 77
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"FAIL  {failure}")
