#!/usr/bin/env python3
# sockets_mpi.py - Open MPI's TCP transport between two ranks on U-Net's sockets: it lists interfaces, and chooses the NI's.
#
# Usage: sockets_mpi.py UNETD UNET_SOCKETS MPIRUN PROGRAM ARGUMENTS...
import os
import sys

from daemon import directory, main, require, run
from ip_spaces import OURS
from program_scenes import environment, network_interface

UNETD, UNET_SOCKETS, MPIRUN, *PROGRAM = sys.argv[1:]
MAY_ALL = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def ranks(d, *options):
    """Two ranks that have no other way to each other."""
    only_tcp = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include"]
    return run(MPIRUN, "-n", "2", "--bind-to", "none", *only_tcp, *options, UNET_SOCKETS, *PROGRAM, env=environment(d) | MAY_ALL)


def test_by_name_and_by_network():
    with directory() as d, network_interface(UNETD, d):
        for interface in ("unet0", OURS[4] + "/24"):
            status, out, err = ranks(d, interface)
            require(status == 0, f"{interface}: {status}: {(out + err)[-2000:]}")


def test_another_interface():
    with directory() as d, network_interface(UNETD, d):
        require(ranks(d, "unet7")[0] != 0, "the ranks reach each other by an interface that there is not")


if __name__ == "__main__":
    sys.exit(main(globals()))
