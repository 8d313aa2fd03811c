#!/usr/bin/env python3
# sockets_runtimes.py - runtimes with a thread that waits by epoll before there is a socket: gRPC, tokio and Java's selectors, unmodified,
# as servers and clients of each other and of a kernel's.
#
# Usage: sockets_runtimes.py grpc|java|tokio UNETD UNET_SOCKETS LIBUNET_EMBEDDED   (77: no root, no network namespaces, or no such runtime)
import os
import shutil
import subprocess
import sys
import tempfile

from daemon import attempt, require
from program_roles import each_version, roles
from spaces import can_be_made

HERE = os.path.dirname(os.path.abspath(__file__))
PORT = 8400
CARGO = """[package]
name = "late"
version = "0.1.0"
edition = "2021"
[dependencies]
tokio = {{ version = "1", features = ["io-util", "macros", "net", "rt-multi-thread", "time"] }}
[[bin]]
name = "late"
path = "{source}"
"""


def grpc_python():
    """An interpreter with the module grpc: this test's, or Debian's."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run([python, "-c", "import grpc"], capture_output=True, check=False).returncode == 0:
            return [python, os.path.join(HERE, "runtime_grpc.py")]
    return "grpc for Python: Debian's python3-grpcio, or 'pip install grpcio'"


def java(_):
    return ["java", os.path.join(HERE, "RuntimeSelectors.java")] if shutil.which("java") else "java"


def tokio(directory):
    """Builds the program if cargo has the crate already: a test downloads nothing."""
    if not shutil.which("cargo"):
        return "cargo"
    with open(os.path.join(directory, "Cargo.toml"), "w", encoding="utf-8") as file:
        file.write(CARGO.format(source=os.path.join(HERE, "runtime_tokio.rs")))
    built = subprocess.run(["cargo", "build", "--offline", "--quiet"], cwd=directory, capture_output=True, text=True, check=False)
    if "no matching package" in built.stderr or "failed to download" in built.stderr:
        return "tokio in cargo's registry: 'cargo fetch' of a program that uses it"
    require(built.returncode == 0, f"cargo: {built.stderr[-2000:]}")
    return [os.path.join(directory, "target", "debug", "late")]


RUNTIMES = {"grpc": lambda _: grpc_python(), "java": java, "tokio": tokio}


def play(program, role):
    for v, address in each_version(role):
        with role.server.server(*program, "serve", address, PORT, ready="ready"):
            said = role.client.text(*program, "call", address, PORT)
            require(said.strip() == "all answered", f"by IPv{v}: {said}")


def main(name, unetd, sockets, embedded):
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        return 77
    with tempfile.TemporaryDirectory() as directory:
        program = RUNTIMES[name](directory)
        if isinstance(program, str):
            print(f"skipped: needs {program}")
            return 77

        def in_role(make):
            with make() as role:
                play(program, role)

        results = [attempt(f"{name}, {role}", lambda make=make: in_role(make)) for role, make in roles(unetd, sockets, embedded, [])]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(os.path.abspath, sys.argv[2:5])))
