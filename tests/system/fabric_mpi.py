#!/usr/bin/env python3
# fabric_mpi.py - what MPI programs do beyond messages of one thread, on the provider `unet`: one-sided communication, threads, our kernels,
# Python, and ranks on hosts that a veth pair joins. fabric.py has the rest.
#
# Usage: fabric_mpi.py UNETD UNET_RUN PROVIDER_DIRECTORY MPI_PROGRAM WINDOWS THREADS SCRIPT [KERNEL...]
import contextlib
import json
import os
import sys

import daemon
from daemon import require, run
from fabric import ALTERNATE, IMPAIRED, UNET_MPI, UNET_RUN, UNETD, environments, mpi, mpirun, need, need_mpi, network_interface, two_hosts
from spaces import Host, Spaces, can_be_made

WINDOWS, THREADS, SCRIPT = sys.argv[5:8]
KERNELS = {os.path.basename(path).removeprefix("mpi_"): path for path in sys.argv[8:]}
ARGUMENTS = {"cg": ["--side", "16", "--iterations", "5"], "mm": ["--blocks", "4", "--block", "16"],
             "rsort": ["--keys", "20000"], "ssort": ["--keys", "20000"]}
WITH = {
    # Windows by messages, and by remote reads and writes. Open MPI 4.1.4 has no messages by its btl ofi, so TCP carries them.
    "pt2pt": [*UNET_MPI, "--mca", "osc", "pt2pt"],
    "rdma": ["--mca", "pml", "ob1", "--mca", "btl", "ofi,tcp,self", "--mca", "btl_ofi_provider_include", "unet", "--mca", "osc", "rdma"],
}


# With osc rdma and btl ofi, MPI_Compare_and_swap() of Open MPI 4.1.4 reads a NULL handle, over every provider.
PROGRAM = {"pt2pt": [WINDOWS], "rdma": [WINDOWS, "no-swap"]}


def windows(how, ranks):
    need_mpi()
    with network_interface() as env:
        mpi(env, ranks, program=PROGRAM[how], options=WITH[how])


def test_windows_by_messages():
    for ranks in (1, 2, 4):
        windows("pt2pt", ranks)


def test_windows_by_remote_memory():
    for ranks in (2, 4):
        windows("rdma", ranks)


def test_windows_over_a_wire():
    need_mpi()
    with two_hosts("") as (alpha, _):
        mpi(alpha, 2, *ALTERNATE, program=PROGRAM["rdma"], options=WITH["rdma"])


def test_threads():
    need_mpi()
    with network_interface() as env:
        for ranks in (2, 3):
            out = mpirun(env, ranks, THREADS)
            if out.strip() == "no threads":
                raise daemon.Skipped("this MPI has no MPI_THREAD_MULTIPLE")
            require(out.strip() == "ok", f"{ranks} ranks with threads: {out}")


def test_kernels():
    need_mpi()
    with network_interface() as env:
        for name, path in KERNELS.items():
            for ranks in (2, 4):
                records = json.loads(mpirun(env, ranks, path, *ARGUMENTS[name], "--repeat", "1", "--json", "-"))
                require(len(records) == ranks, f"{name}: {records}")
                for record in records:
                    require(record["verified"] and record["wrong"] == 0, f"{name}: {record}")


def test_python():
    need_mpi()
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and run(python, "-c", "import mpi4py")[0] == 0:
            break
    else:
        raise daemon.Skipped("there is no mpi4py")
    with network_interface() as env:
        for ranks in (2, 5):
            mpi(env, ranks, program=[python, SCRIPT])


def test_unet_run_starts_both_sides():
    need("fi_pingpong")
    side = 'exec fi_pingpong -p unet -e rdm -m tagged -c -I 20 -S all $(test $UNET_RANK = 0 || { sleep 1; echo 127.0.0.1; })'
    env = {name: value for name, value in os.environ.items() if name != "FI_PROVIDER_PATH"}
    status, out, err = run(UNET_RUN, "-n", "2", "--", "sh", "-c", side, env=env)
    require(status == 0 and "1m" in out, f"{status}: {out} {err}")


@contextlib.contextmanager
def hosts_on_veth(port):
    """Yields the environments of programs on two hosts, joined by a veth pair between namespaces."""
    with Spaces("a", "b") as spaces, daemon.directory() as path, contextlib.ExitStack() as stack:
        spaces.join("a", "eth0", "b", "eth0")
        for number in range(2):
            stack.enter_context(Host(UNETD, spaces, "ab"[number], f"{path}/{number}", port.format(number + 1), "--log", "warning"))
        yield environments(path)


def mpi_on_veth(port):
    need_mpi()
    with hosts_on_veth(port) as (alpha, _):
        mpi(alpha, 2, *ALTERNATE)


if can_be_made():

    def test_mpi_over_af_xdp():
        mpi_on_veth("dpdk:net_af_xdp0,iface=eth0")

    def test_mpi_over_packet():
        mpi_on_veth("packet:iface=eth0")

    def test_mpi_over_an_impaired_cable():
        mpi_on_veth(IMPAIRED + "pcap:iface=eth0")


if __name__ == "__main__":
    sys.exit(daemon.main(globals()))
