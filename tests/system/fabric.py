#!/usr/bin/env python3
# fabric.py - programs of libfabric and Open MPI on the provider `unet`: fi_info, fi_pingpong, and an MPI program that checks what arrives.
#
# Usage: fabric.py UNETD UNET_RUN PROVIDER_DIRECTORY [MPI_PROGRAM]
import contextlib
import os
import shutil
import socket
import subprocess
import sys

import daemon
from daemon import Unetd, require, run

UNETD, UNET_RUN, PROVIDERS = sys.argv[1:4]
MPI_PROGRAM = sys.argv[4] if len(sys.argv) > 4 else None
MPI_ENV = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
IMPAIRED = "faulty:loss=3%,duplicate=1%,reorder=2%,corrupt=1%,seed={} / "
UNET_MPI = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "unet"]

# Ranks take turns between two network interfaces.
ALTERNATE = ["sh", "-c", 'UNET_NI=$NIS$((OMPI_COMM_WORLD_RANK % 2)) exec "$@"', "rank"]


def need(program):
    if shutil.which(program) is None:
        raise daemon.Skipped(f"there is no {program}")


@contextlib.contextmanager
def network_interface(*args):
    """Yields the environment of programs that use a unetd of their own."""
    with daemon.directory() as path, Unetd(UNETD, "--socket", f"{path}/socket", "--log", "off", *args):
        yield os.environ | MPI_ENV | {"UNET_NI": f"unix:{path}/socket", "FI_PROVIDER_PATH": PROVIDERS, "TMPDIR": path}


@contextlib.contextmanager
def two_hosts(prefix):
    """Yields the environments of programs on two hosts, joined by a memif."""
    with daemon.directory() as path, contextlib.ExitStack() as stack:
        for number, (host, role) in enumerate((("alpha", "server"), ("beta", "client"))):
            port = prefix.format(number + 1) + f"dpdk:net_memif0,socket={path}/memif,role={role}"
            stack.enter_context(Unetd(UNETD, "--socket", f"{path}/{number}", "--host", host, "--port", port, "--log", "warning"))
        yield environments(path)


def environments(path):
    """The environments of programs on two hosts, by the sockets `0` and `1` in this directory."""
    env = os.environ | MPI_ENV | {"FI_PROVIDER_PATH": PROVIDERS, "TMPDIR": path, "NIS": f"unix:{path}/"}
    return [env | {"UNET_NI": f"unix:{path}/{number}"} for number in range(2)]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def pingpong(env, *args, client_env=None):
    port = free_port()
    command = ["fi_pingpong", "-p", "unet", "-e", "rdm", "-c", "-I", "20", *args]
    server = subprocess.Popen([*command, "-B", port], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        daemon.wait_until(lambda: server.poll() is not None or is_listening(port), "fi_pingpong does not listen")
        status, out, err = run(*command, "-P", port, "127.0.0.1", env=client_env or env)
        server_out = server.communicate(timeout=daemon.WAIT)[0]
    finally:
        server.kill()
        server.wait()
    require(status == 0 and server.returncode == 0, f"fi_pingpong {args}: {status}, {server.returncode}: {out} {err} {server_out}")
    return out


def is_listening(port):
    with open("/proc/net/tcp", encoding="ascii") as table:
        return any(fields[1].endswith(f":{int(port):04X}") and fields[3] == "0A" for fields in map(str.split, table))


def need_mpi():
    need("mpirun")
    if MPI_PROGRAM is None:
        raise daemon.Skipped("there is no MPI to build with")


def mpirun(env, ranks, *command, options=UNET_MPI):
    """Runs a program on U-Net and returns its output."""
    status, out, err = run("mpirun", "-n", str(ranks), "--bind-to", "none", *options, *command, env=env)
    require(status == 0, f"{ranks} ranks of {command}: {status}: {out} {err}")
    return out


def mpi(env, ranks, *wrapper, program=(MPI_PROGRAM,), options=UNET_MPI):
    out = mpirun(env, ranks, *wrapper, *program, options=options)
    require(out.strip() == "ok", f"{ranks} ranks of {program}: {out}")


def test_fi_info():
    need("fi_info")
    with network_interface("--host", "alpha") as env:
        status, out, err = run("fi_info", "-p", "unet", env=env)
        require(status == 0, f"fi_info: {status}: {out} {err}")
        for part in ("provider: unet", "fabric: unet", "domain: alpha", "type: FI_EP_RDM"):
            require(part in out, f"fi_info says no {part!r}: {out}")


def test_unet_run_needs_no_variable():
    need("fi_info")
    env = {name: value for name, value in os.environ.items() if name != "FI_PROVIDER_PATH"}
    status, out, err = run(UNET_RUN, "-n", "1", "--", "fi_info", "-p", "unet", env=env)
    require(status == 0 and "provider: unet" in out, f"fi_info: {status}: {out} {err}")


def test_without_a_network_interface():
    need("fi_info")
    env = os.environ | {"UNET_NI": "unix:/tmp/no-such-socket", "FI_PROVIDER_PATH": PROVIDERS, "FI_LOG_LEVEL": "warn"}
    status, out, err = run("fi_info", "-p", "unet", env=env)
    require(status != 0 and "No data available" in out + err, f"fi_info: {status}: {out} {err}")
    require(any("no-such-socket" in line for line in err.splitlines()), f"the log does not say what is missing: {err}")


def test_pingpong_of_all_sizes():
    need("fi_pingpong")
    with network_interface() as env:
        for mode in ("msg", "tagged"):
            pingpong(env, "-S", "all", "-m", mode)


def test_pingpong_of_datagrams():
    need("fi_pingpong")
    with network_interface() as env:
        pingpong(env, "-e", "dgram", "-S", "all")


def test_pingpong_over_a_wire():
    need("fi_pingpong")
    with two_hosts("") as (alpha, beta):
        pingpong(alpha, "-m", "tagged", client_env=beta)


def test_pingpong_over_an_impaired_wire():
    need("fi_pingpong")
    with two_hosts(IMPAIRED) as (alpha, beta):
        for mode in ("msg", "tagged"):
            pingpong(alpha, "-m", mode, "-S", "4096", client_env=beta)


def mpi_over_a_wire(prefix):
    need_mpi()
    with two_hosts(prefix) as (alpha, _):
        mpi(alpha, 4, *ALTERNATE)


def test_mpi_over_a_wire():
    mpi_over_a_wire("")


def test_mpi_over_an_impaired_wire():
    mpi_over_a_wire(IMPAIRED)


def test_mpi():
    need_mpi()
    with network_interface() as env:
        for ranks in (1, 2, 3, 8):
            mpi(env, ranks)


if __name__ == "__main__":
    sys.exit(daemon.main(globals()))
