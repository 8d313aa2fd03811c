#!/usr/bin/env python3
# kernels.py - the parallel kernels as programs, and the serial programs that they are compared with: their --help, refusals, reports and
# records.
#
# Usage: kernels.py UNET_RUN PROGRAM...
import json
import multiprocessing
import os
import re
import resource
import sys

import daemon
from daemon import directory, require, run

UNET_RUN = os.path.abspath(sys.argv[1])
KERNELS, SERIAL = ({os.path.basename(path).removeprefix(prefix): os.path.abspath(path) for path in sys.argv[2:]
                    if os.path.basename(path).startswith(prefix)} for prefix in ("kernel_", "serial_"))
SMALL = {
    "cannon": ["--side", "8"], "cg": ["--side", "16", "--iterations", "5"], "components": ["--side", "16"],
    "em3d": ["--nodes", "10", "--steps", "2"], "fft": ["--points", "6"], "mm": ["--blocks", "2", "--block", "8"],
    "npb_cg": ["--class", "S"], "npb_is": ["--class", "S"], "rsort": ["--keys", "1000"], "ssort": ["--keys", "1000"],
    "stencil": ["--side", "16", "--steps", "3"],
}

FIXED_INPUT = ("npb_cg", "npb_is")  # fixed by the benchmark


def job(kernel, *args, ranks=2):
    env = os.environ | {"UNET_SPLITC_MEMORY": "16M"}
    return run(UNET_RUN, "-n", str(ranks), "--", KERNELS[kernel], *args, env=env)


def test_each_kernel_is_known_here():
    require(set(KERNELS) == set(SMALL), f"{sorted(KERNELS)}")


# Printed once, though every rank reads the command line.
def test_help():
    for kernel in KERNELS:
        status, out, err = job(kernel, "--help")
        require(status == 0 and err == "", f"{kernel}: {status}: {err}")
        require(out.count(f"kernel_{kernel} - ") == 1, f"{kernel}: {out}")
        for option in ["--repeat", "--no-verify", "--json", *SMALL[kernel][::2]]:
            require(out.count(option + " ") >= 1, f"{kernel}: no {option}: {out}")
        require(("--seed " in out) == (kernel not in FIXED_INPUT), f"{kernel}: --seed: {out}")
        require(len(out.rstrip().rsplit("\n\n", 1)[-1]) > 100, f"{kernel} teaches nothing: {out}")


def test_an_unknown_option():
    for kernel in KERNELS:
        status, out, err = job(kernel, "--bogus")
        require(status == 2 and out == "", f"{kernel}: {status}: {out}")
        require(err.count("--bogus") == 1 and "--help lists the options" in err, f"{kernel}: {err}")


def test_a_seed_for_an_input_that_has_none():
    for kernel in FIXED_INPUT:
        status, out, err = job(kernel, *SMALL[kernel], "--seed", "2")
        require(status == 2 and out == "" and "--seed" in err, f"{kernel}: {status}: {out}{err}")


def refuses(kernel, *args, ranks, saying):
    status, out, err = job(kernel, *args, ranks=ranks)
    require(status == 2 and out == "" and saying in err, f"{kernel} {args}: {status}: {out}{err}")


def test_what_does_not_fit_the_ranks():
    refuses("cannon", ranks=2, saying="the number of ranks must be a square")
    refuses("cannon", "--side", "9", ranks=4, saying="--side must be a multiple of 2")
    for kernel in ("cg", "components", "stencil"):
        refuses(kernel, "--side", "2", ranks=3, saying="each rank needs a row")


# Sizes that no kernel takes, and sizes for which the job has too little memory, spread or private to a rank.
def test_wrong_sizes():
    wrong = {
        "cannon": ["--side", "0", "16385"], "cg": ["--side", "0", "16385"], "components": ["--side", "-1", "32769"],
        "em3d": ["--degree", "0", "1001"], "fft": ["--points", "1", "29"], "mm": ["--block", "0", "many"],
        "npb_cg": ["--class", "B", "s"], "npb_is": ["--class", "B", "1"], "rsort": ["--bits", "0", "17"],
        "ssort": ["--keys", "0", "99999999999999999999"], "stencil": ["--side", "1", "16385"],
    }
    require(set(wrong) == set(KERNELS), f"{sorted(wrong)}")
    for kernel, (option, *values) in wrong.items():
        for value in values:
            status, out, err = job(kernel, option, value)
            first = err.split("\n")[0]
            require(status == 2 and out == "", f"{kernel} {option} {value}: {status}: {out}{err}")
            require(option in first and value in first and "--help lists the options" in first, f"{kernel} {option} {value}: {err}")


# Peak KiB of any child. Runs in a process without other children.
def job_and_memory(*args, **options):
    return job(*args, **options), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def test_sizes_that_spread_memory_does_not_hold():
    large = {
        "cannon": ["--side", "16384"], "cg": ["--side", "16384"], "components": ["--side", "32768"], "em3d": ["--nodes", "1048576"],
        "fft": ["--points", "28"], "mm": ["--blocks", "1024"], "npb_is": ["--class", "A"], "rsort": ["--keys", "2147483648"],
        "ssort": ["--keys", "2147483648"], "stencil": ["--side", "16384"],
    }
    require(set(large) == set(KERNELS) - {"npb_cg"}, f"{sorted(large)}")  # its largest class needs less than the limit
    enough = 256 << 10  # KiB: more than an idle rank uses; a filled private heap would be 512 MiB or more
    for kernel, arguments in large.items():
        ranks = 4 if kernel == "cannon" else 2
        with multiprocessing.get_context("fork").Pool(1) as alone:
            (status, out, err), most = alone.apply(job_and_memory, (kernel, *arguments), {"ranks": ranks})
        require(status == 1 and out == "", f"{kernel}: {status}: {out}{err}")
        wanted = rf"^splitc: rank . of {ranks}: all_spread_malloc: no piece of [0-9]+ bytes .* UNET_SPLITC_MEMORY gives more$"
        require(re.search(wanted, err, re.M), f"{kernel}: {err}")
        require(most < enough, f"{kernel}: a rank had {most} KiB when it said that there is too little")


def test_no_memory_of_a_rank_s_own():
    limit = 1 << 30

    def limited(*arguments):
        return run(UNET_RUN, "--", KERNELS["ssort"], *arguments, "--repeat", "1", env=os.environ | {"UNET_SPLITC_MEMORY": "512M"},
                   before=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))

    if limited("--keys", "1000")[0] != 0:
        print("      not tried: under 1 GiB of addresses nothing starts, as with a sanitizer")
        return
    status, out, err = limited("--keys", "99999999")
    require(status == 1 and out == "" and err.startswith("splitc: rank 0 of 1: new: no memory is left"), f"{status}: {out}{err}")


def test_report():
    for kernel in KERNELS:
        ranks = 1 if kernel == "cannon" else 2
        status, out, err = job(kernel, *SMALL[kernel], "--repeat", "1", ranks=ranks)
        require(status == 0 and err == "", f"{kernel}: {status}: {err}")
        require("verified against" in out and "not verified" not in out, f"{kernel}: {out}")
        status, out, err = job(kernel, *SMALL[kernel], "--repeat", "1", "--no-verify", ranks=ranks)
        require(status == 0 and "not verified" in out, f"{kernel}: {status}: {out}{err}")


def check(kernel, records, ranks):
    require([each["rank"] for each in records] == list(range(ranks)), f"{kernel}: {records}")
    for each in records:
        require(each["ranks"] == ranks and each["verified"] and each["wrong"] == 0, f"{kernel}: {each}")
        parts = each["computation_s"] + each["communication_s"]
        require(each["seconds"] > 0 and each["operations"] > 0, f"{kernel}: {each}")
        require(parts > 0 and min(each["computation_s"], each["communication_s"]) >= 0, f"{kernel}: {each}")
        require(ranks == 1 or each["messages"] + each["direct"] > 0, f"{kernel}: nothing was sent: {each}")


def test_records():
    for kernel in KERNELS:
        ranks = 4 if kernel == "cannon" else 2
        status, out, err = job(kernel, *SMALL[kernel], "--repeat", "1", "--json", "-", ranks=ranks)
        require(status == 0 and err == "", f"{kernel}: {status}: {err}")
        check(kernel, json.loads(out), ranks)


def test_records_in_a_file():
    with directory() as d:
        path = os.path.join(d, "records.json")
        status, out, err = job("ssort", *SMALL["ssort"], "--bulk", "--json", path)
        require(status == 0 and "ssort bulk" in out, f"{status}: {out}{err}")
        with open(path, encoding="utf-8") as f:
            check("ssort", json.load(f), 2)
        status, out, err = job("ssort", *SMALL["ssort"], "--json", os.path.join(d, "no", "such"))
        require(status == 1 and "cannot write" in err, f"{status}: {out}{err}")


def serial(name, *args):
    return run(SERIAL[name], *args)


def test_serial_programs():
    require(set(SERIAL) == {"cg", "mm", "sort"}, f"{sorted(SERIAL)}")
    for name in SERIAL:
        small = SMALL["ssort" if name == "sort" else name]
        status, out, err = serial(name, "--help")
        require(status == 0 and err == "" and f"serial_{name} - " in out, f"{name}: {status}: {out}{err}")
        require(all(option + " " in out for option in ["--seed", "--repeat", "--no-verify", "--json", *small[::2]]), f"{name}: {out}")
        status, out, err = serial(name, "--bogus")
        require(status == 2 and out == "" and "--bogus" in err and "--help lists the options" in err, f"{name}: {status}: {out}{err}")
        status, out, err = serial(name, *small)
        require(status == 0 and err == "" and ", serial\n" in out and "verified against" in out, f"{name}: {status}: {out}{err}")
        status, out, err = serial(name, *small, "--json", "-")
        require(status == 0 and err == "", f"{name}: {status}: {err}")
        check(name, json.loads(out), 1)
        require(json.loads(out)[0]["path"] == "serial", f"{name}: {out}")
    status, out, err = serial("sort", "--json", "/no/such")
    require(status == 1 and "cannot write" in err, f"{status}: {out}{err}")


# A speed-up compares equal problems: equal numbers of operations, and for the solver an equal distance from the solution.
def test_serial_programs_do_what_kernels_do():
    for name, kernel, arguments in (("cg", "cg", ["--side", "33", "--iterations", "40"]), ("mm", "mm", SMALL["mm"]),
                                    ("sort", "ssort", SMALL["ssort"]), ("sort", "rsort", SMALL["rsort"])):
        _, alone, _ = serial(name, *arguments, "--json", "-")
        _, job_s, _ = job(kernel, *arguments, "--json", "-")
        one, two = json.loads(alone)[0], json.loads(job_s)[0]
        require(all(one[key] == two[key] for key in ("size", "operations", "operation")), f"{one}, {two}")
        require(one["facts"].keys() == two["facts"].keys(), f"{one}, {two}")
        require(all(abs(one["facts"][each] / two["facts"][each] - 1) < 1e-9 for each in one["facts"]), f"{one}, {two}")


# Equal seeds give equal problems, different seeds different ones.
def test_seed():
    def components(seed):
        status, out, err = job("components", "--side", "64", "--seed", seed, "--json", "-")
        require(status == 0, f"{status}: {err}")
        return json.loads(out)[0]["facts"]["components"]
    require(components("1") == components("1"), "the same seed, another mesh")
    require(len({components(str(seed)) for seed in range(1, 5)}) > 1, "four seeds, one mesh")


if __name__ == "__main__":
    sys.exit(daemon.main(globals()))
