#!/usr/bin/env python3
# splitc_wires.py - Split-C's programs as jobs with ranks on two NIs: over a memif and between namespaces, sound and impaired; a rank that
# is killed; and processes that the job refuses.
#
# Usage: splitc_wires.py UNETD SPLITC_RANKS AM_STORM      (without root and network namespaces, the tests that need them are skipped)
import os
import re
import sys
import time

from daemon import main, require, run, wait_until
from spaces import can_be_made
from splitc_job import IMPAIRED, KEY, Job, over_memif, over_veth

UNETD, RANKS, STORM = (os.path.abspath(p) for p in sys.argv[1:4])
HANG = 5  # seconds after a rank's death; only hanging ranks take longer


def runs_well(paths, places, *args, **more):
    with Job(RANKS, paths, places, *args, **more) as job:
        ends = job.end()
    require(all(status == 0 and err == "" for status, _, err in ends), f"{places} {args}: {ends}")
    lines = ends[0][1].splitlines()
    require((len(lines) == 1 if args else len(lines) > 8) and all(line.endswith(f": {len(places)} ranks") for line in lines), f"{places}: {ends}")


def is_killed(paths, places, lost, call="barrier"):
    """The last rank dies while every other one waits in a call: each prints an error and ends without a launcher. A rank may first notice
    the end of another, quicker one. Or it is in the barrier behind the call, which does not wait for ranks of its own NI."""
    with Job(RANKS, paths, places, "!kill" if call == "barrier" else "!kill-" + call) as job:
        ends = job.end()
        after = time.monotonic() - float(ends[lost][1].split()[-1])
    require(ends[lost][0] == -9, f"rank {lost} was not killed: {ends}")
    for rank, (status, out, err) in enumerate(ends):
        if rank == lost:
            continue
        require(status == 1 and re.search(rf"({call}|barrier): rank \d+ is gone", err) and "through" not in out, f"rank {rank}: {ends}")
    print(f"      {call}, {places}: all ended {1000 * after:.1f} ms after rank {lost} was killed", flush=True)
    require(after < HANG, f"the ranks ended {after} s after one was killed")


def is_killed_in_each_call(paths, places, lost):
    for call in ("barrier", "lock", "store_sync", "sync"):
        is_killed(paths, places, lost, call)


def test_memif():
    with over_memif(UNETD) as paths:
        for places in ("ab", "aab", "abab"):
            runs_well(paths, places)
        runs_well(paths, "aabb", path="messages")
        is_killed(paths, "ab", 1)
        is_killed_in_each_call(paths, "aab", 2)
        runs_well(paths, "ba", "words")


def test_memif_impaired():
    with over_memif(UNETD, IMPAIRED) as paths:
        runs_well(paths, "abb")


def test_who_is_not_let_in():
    """A process on a host that is not part of the job."""
    with over_memif(UNETD) as paths, Job(RANKS, paths, "ab", "words", hosts=["alpha", "gamma"], name="mine", only=[0]) as job:
        said = []

        def is_refused():
            status, _, err = run(STORM, "ask", "splitc/mine/0/distant@alpha", "1", env=os.environ | {"UNET_NI": "unix:" + paths["b"]})
            said.append(err)
            require(status == 1, f"an asker of another host ends with {status}: {err}")
            return "refused" in err

        wait_until(is_refused, f"nobody was refused: {said[-3:]}")
        require(job.ranks[0].poll() is None, "rank 0 does not wait any longer")


def test_who_does_not_know_the_key():
    """Ranks of other hosts are not heard; ranks of this host need no key."""
    with over_memif(UNETD) as paths:
        with Job(RANKS, paths, "ab", "words", key=[KEY, KEY[::-1]]) as job:
            ends = job.end()
        require(all(status == 1 for status, _, _ in ends), f"with two keys: {ends}")
        require(any("takes no message: bad_tag" in err for _, _, err in ends), f"with two keys: {ends}")
        with Job(RANKS, paths, "ab", "words", key="") as job:
            for status, _, err in job.end():
                require(status == 1 and err.startswith("splitc: UNET_JOB_KEY is not set"), f"without a key: {status}: {err}")


if can_be_made():

    def test_af_packet():
        with over_veth(UNETD, "dpdk:net_af_packet0,iface=eth0") as paths:
            runs_well(paths, "aabb")
            is_killed_in_each_call(paths, "abb", 2)

    def test_af_packet_impaired():
        with over_veth(UNETD, "dpdk:net_af_packet0,iface=eth0", IMPAIRED) as paths:
            runs_well(paths, "ab")


if __name__ == "__main__":
    sys.exit(main(globals()))
