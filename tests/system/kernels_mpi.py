#!/usr/bin/env python3
# kernels_mpi.py - the kernels over MPI report the cores that their ranks may use, not all of the machine's.
#
# Usage: kernels_mpi.py MPIRUN MPI_MM
import json
import os
import sys

import daemon
from daemon import require, run

MPIRUN, MM = sys.argv[1:3]
CORES = sorted(os.sched_getaffinity(0))
MAY_ALL = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def is_oversubscribed(ranks, cores, *wrapper):
    env = os.environ | MAY_ALL | {"CORES": " ".join(map(str, cores))}
    taskset = ["taskset", "-c", ",".join(map(str, cores))]
    status, out, err = run(*taskset, MPIRUN, "-n", str(ranks), "--bind-to", "none", *wrapper, MM, "--blocks", "2", "--block", "8", "--json",
                           "-", env=env)
    require(status == 0, f"{ranks} ranks on {cores}: {status}: {err}")
    records = json.loads(out)
    require(len(records) == ranks and len({r["oversubscribed"] for r in records}) == 1, f"{records}")
    return records[0]["oversubscribed"]


def test_ranks_on_one_core():
    require(not is_oversubscribed(1, CORES[:1]), "one rank on a core of its own")
    require(is_oversubscribed(2, CORES[:1]), "two ranks on one core")


# Each rank may use one core of its own.
def test_a_core_for_each_rank():
    if len(CORES) < 2:
        print("a core for each rank: not tried, there is one core")
        return
    require(not is_oversubscribed(2, CORES[:2]), "two ranks on two cores")
    each = ["sh", "-c", 'set -- $CORES -- "$@"; shift $OMPI_COMM_WORLD_LOCAL_RANK; core=$1; '
            'while [ "$1" != -- ]; do shift; done; shift; exec taskset -c $core "$@"', "rank"]
    require(not is_oversubscribed(2, CORES[:2], *each), "two ranks, each on a core")
    require(is_oversubscribed(3, CORES[:2]), "three ranks on two cores")


if __name__ == "__main__":
    sys.exit(daemon.main(globals()))
