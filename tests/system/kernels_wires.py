#!/usr/bin/env python3
# kernels_wires.py - each kernel, small, as a job of four ranks, two on each of two NIs, against its serial answer: over a memif, sound and
# impaired, and over af_packet between namespaces.
#
# Usage: kernels_wires.py UNETD KERNEL...      (without root and network namespaces, the tests that need them are skipped)
import json
import os
import sys

from daemon import main, require
from spaces import can_be_made
from splitc_job import IMPAIRED, Job, over_memif, over_veth

UNETD = os.path.abspath(sys.argv[1])
KERNELS = {os.path.basename(path).removeprefix("kernel_"): os.path.abspath(path) for path in sys.argv[2:]}
# Sizes with remainders where a kernel allows them. Kernels that send a message for each word get smaller ones.
SMALL = [
    ("cannon", "--side", "36"),
    ("cg", "--side", "41", "--iterations", "20"),
    ("components", "--side", "35", "--edges", "0.5"),
    *(("em3d", "--nodes", "13", "--degree", "7", "--steps", "3", "--how", how) for how in ("read", "ghost", "get", "store", "bulk")),
    ("fft", "--points", "11"),
    ("mm", "--blocks", "5", "--block", "24"),
    ("npb_cg", "--class", "S"),
    ("npb_is", "--class", "S"),
    ("rsort", "--keys", "2003"),
    ("rsort", "--keys", "20011", "--bits", "8", "--bulk"),
    ("ssort", "--keys", "2003"),
    ("ssort", "--keys", "20011", "--bulk"),
    ("stencil", "--side", "37", "--steps", "21"),
]


def is_right(paths, places, kernel, *args):
    with Job(KERNELS[kernel], paths, places, *args, "--repeat", "1", "--json", "-") as job:
        ends = job.end()
    what = f"{kernel} {' '.join(args)}, {places}"
    require(all(status == 0 and err == "" for status, _, err in ends), f"{what}: {ends}")
    records = json.loads(ends[0][1])
    require(len(records) == len(places), f"{what}: {records}")
    for each in records:
        require(each["path"] == "mixed" and each["verified"] and each["wrong"] == 0, f"{what}: {each}")
        require(each["messages"] > 0, f"{what}: nothing was sent: {each}")


def are_right(paths, places):
    for each in SMALL:
        is_right(paths, places, *each)


def test_each_kernel_is_here():
    require(set(KERNELS) == {each[0] for each in SMALL}, f"{sorted(KERNELS)}")


def test_memif():
    with over_memif(UNETD) as paths:
        are_right(paths, "aabb")


# Every neighbouring rank is on the other side of the wire.
def test_memif_impaired():
    with over_memif(UNETD, IMPAIRED) as paths:
        are_right(paths, "abab")


if can_be_made():

    def test_af_packet():
        with over_veth(UNETD, "dpdk:net_af_packet0,iface=eth0") as paths:
            are_right(paths, "aabb")


if __name__ == "__main__":
    sys.exit(main(globals()))
