#!/usr/bin/env python3
# splitc_ends.py - the ways in which a job of Split-C ends: the message, the exit status, and that no process or file stays behind.
#
# Usage: splitc_ends.py UNET_RUN SPLITC_RANKS
import os
import re
import resource
import sys
import time

import daemon
from daemon import directory, require, run

UNET_RUN, RANKS = (os.path.abspath(p) for p in sys.argv[1:3])
SIZE, LAST = 3, 2
HANG = 5  # seconds after a rank's death; only a hanging job takes longer


def left_of(directory_of_job):
    """Processes with this string in their environment, as all of a job have."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if directory_of_job.encode() in f.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def job(path, *args, memory="16M", size=SIZE, before=None):
    with directory() as d:
        env = os.environ | {"UNET_SPLITC_PATH": path, "UNET_SPLITC_MEMORY": memory, "TMPDIR": d}
        status, out, err = run(UNET_RUN, "-n", str(size), "--", RANKS, *args, env=env, before=before)
        end = time.monotonic()
        require(os.listdir(d) == [], f"left behind: {os.listdir(d)}")
        require(left_of(d) == [], f"still running: {left_of(d)}")
        if args[0].startswith("!kill"):
            died = re.search(r"^dies at ([0-9.]+)$", out, re.M)
            require(died, f"no rank was killed: {status}: {out}{err}")
            after = end - float(died[1])
            print(f"      {' '.join(args)}, {path}: the job ended {1000 * after:.1f} ms after a rank was killed", flush=True)
            require(after < HANG, f"the job ended {after} s after a rank was killed")
        return status, out, err


def ends(how, statuses, *patterns, **more):
    for path in ("direct", "messages"):
        status, out, err = job(path, how, **more)
        require(status in statuses, f"{how}, {path}: status {status}: {out}{err}")
        for pattern in patterns:
            require(re.search(pattern, err), f"{how}, {path}: no {pattern!r} in {err!r}")
        require("through" not in out, f"{how}, {path}: a rank has gone on: {out!r}")


def test_all_is_well():
    status, out, err = job("direct", "words")
    require(status == 0 and out == f"words: {SIZE} ranks\n" and err == "", f"{status}: {out}{err}")


def test_sleepers_are_woken():
    for path in ("direct", "messages"):
        status, out, err = job(path, "wakeups", size=2)  # on two cores, more ranks would wait long for a core
        require(status == 0 and err == "", f"{path}: {status}: {out}{err}")


# Either unet-run or another rank may notice first.
def test_a_rank_is_killed():
    ends("!kill", (1, 128 + 9), f"rank {LAST} was ended by signal 9|barrier: rank {LAST} is gone")


# While the others wait for it in another call. With direct access sync() does not wait: then they are in the barrier behind it.
def test_a_rank_is_killed_in_each_call_that_waits():
    for call in ("lock", "store_sync", "sync"):
        ends("!kill-" + call, (1, 128 + 9), f"rank {LAST} was ended by signal 9|({call}|barrier): rank {LAST} is gone")


def test_a_rank_returns_a_failure():
    ends("!fail", (1, 7), f"rank {LAST} failed with status 7|barrier: rank {LAST} is gone")


def test_a_rank_leaves():
    ends("!leave", (1,), f"splitc: rank [01] of {SIZE}: barrier: rank {LAST} is gone")


def test_a_rank_calls_another_collective():
    ends("!step", (1,), "splitc: rank . of 3: out of step: this rank is in .*(barrier.*all_store_sync|all_store_sync.*barrier)")


def test_a_pointer_leads_nowhere():
    ends("!bounds", (1,), f"splitc: rank {LAST} of {SIZE}: write of 8 bytes at offset .* of rank 0: out of bounds")


def test_a_pointer_to_a_rank_that_no_job_has():
    ends("!rank", (1,), f"splitc: rank {LAST} of {SIZE}: write of 8 bytes at offset .* of rank 65535: out of bounds")


def test_a_function_that_waits_at_its_owner():
    ends("!function", (1,), f"splitc: rank 0 of {SIZE}: store_sync in a function that atomic\\(\\) runs")
    ends("!own-function", (1,), f"splitc: rank {LAST} of {SIZE}: store_sync in a function that atomic\\(\\) runs")


def test_memory_is_used_up():
    ends("!memory", (1,), "all_spread_malloc: no piece of 1073741824 bytes .* UNET_SPLITC_MEMORY gives more")


# A rank that the others no longer need may exit while another is about to wake it: that one goes on to its own end.
def test_who_is_gone_need_not_be_woken():
    for _ in range(40):
        status, out, err = job("direct", "!memory", size=16)
        require(status == 1 and "no piece of" in err and "is gone" not in err, f"{status}: {out}{err}")


# Refused at the start, not when the last page is touched.
def test_more_is_asked_for_than_the_machine_has():
    with open("/proc/meminfo", encoding="utf-8") as f:
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in f}
    ranks = (kilobytes["MemTotal"] + kilobytes["SwapTotal"]) // (4 << 20) + 2
    if ranks > 256:
        print("      not tried: this machine has memory for 256 ranks with as much as a rank may have")
        return
    for path in ("direct", "messages"):
        status, out, err = job(path, "words", memory="4G", size=ranks)
        require(status == 1 and out == "", f"{path}: status {status}: {out}{err}")
        require(re.search(f"^splitc: rank [0-9]+ of {ranks}: start: {ranks} ranks of this host with 4096M of spread memory each take "
                          f"{4096 * ranks}M, but .* UNET_SPLITC_MEMORY=[0-9]+M is the most for so many$", err, re.M), f"{path}: {err}")


def test_there_are_no_addresses_for_all():
    limit = 3 << 30

    def limited(memory):
        return job("direct", "words", memory=memory, before=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))

    if limited("16M")[0] != 0:
        print("      not tried: under 3 GiB of addresses nothing starts, as with a sanitizer")
        return
    status, out, err = limited("1025M")
    require(status == 1 and out == "", f"status {status}: {out}{err}")
    require(f": start: {SIZE} ranks of this host with 1025M of spread memory each take 3075M, but this process may map 3072M (ulimit -v)" in err, err)


def test_files_may_not_be_so_large():
    status, out, err = job("direct", "words", before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
    require(status == 1 and out == "", f"status {status}: {out}{err}")
    require(re.search(f"^splitc: rank . of {SIZE}: start: .*File too large", err, re.M), err)


def test_wrong_words_in_the_environment():
    ends("words", (1,), "splitc: UNET_SPLITC_MEMORY=lots: write bytes from 1M to 4G", memory="lots")


if __name__ == "__main__":
    sys.exit(daemon.main(globals()))
