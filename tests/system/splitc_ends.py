#!/usr/bin/env python3
# splitc_ends.py - what ends a job of Split-C: the sentence, the exit status, and that no process and no file stays behind.
#
# Usage: splitc_ends.py UNET_RUN SPLITC_RANKS
import os
import re
import sys

import daemon
from daemon import directory, require, run

UNET_RUN, RANKS = (os.path.abspath(p) for p in sys.argv[1:3])
SIZE, LAST = 3, 2


def left_of(directory_of_job):
    """Processes that have it in their environment, as all of a job have."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if directory_of_job.encode() in f.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def job(path, *args, memory="16M"):
    with directory() as d:
        env = os.environ | {"UNET_SPLITC_PATH": path, "UNET_SPLITC_MEMORY": memory, "TMPDIR": d}
        status, out, err = run(UNET_RUN, "-n", str(SIZE), "--", RANKS, *args, env=env)
        require(os.listdir(d) == [], f"left behind: {os.listdir(d)}")
        require(left_of(d) == [], f"still running: {left_of(d)}")
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


# Who is told first, unet-run or another rank, may differ from run to run.
def test_a_rank_is_killed():
    ends("!kill", (1, 128 + 9), f"rank {LAST} was ended by signal 9|barrier: rank {LAST} is gone")


def test_a_rank_returns_a_failure():
    ends("!fail", (1, 7), f"rank {LAST} failed with status 7|barrier: rank {LAST} is gone")


def test_a_rank_leaves():
    ends("!leave", (1,), f"splitc: rank [01] of {SIZE}: barrier: rank {LAST} is gone")


def test_a_rank_calls_another_collective():
    ends("!step", (1,), "splitc: rank . of 3: out of step: this rank is in .*(barrier.*all_store_sync|all_store_sync.*barrier)")


def test_a_pointer_leads_nowhere():
    ends("!bounds", (1,), f"splitc: rank {LAST} of {SIZE}: write of 8 bytes at offset .* of rank 0: out of bounds")


def test_memory_is_used_up():
    ends("!memory", (1,), "all_spread_malloc: no piece of 1073741824 bytes .* UNET_SPLITC_MEMORY gives more")


def test_wrong_words_in_the_environment():
    ends("words", (1,), "splitc: UNET_SPLITC_MEMORY=lots: write bytes from 1M to 4G", memory="lots")


if __name__ == "__main__":
    daemon.main(globals())
