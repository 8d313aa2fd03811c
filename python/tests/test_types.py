# test_types.py - mypy accepts the package's annotations, and a program that uses them.
import importlib.util
import os
import subprocess
import sys
import tempfile

PROGRAM = """
import numpy
import unet
from unet import aio, am, rpc, splitc, tools

def echo(endpoint: unet.Endpoint) -> bytes:
    received = endpoint.receive_bytes(1.0)
    assert received is not None
    channel, data = received
    channel.send(numpy.frombuffer(data))
    with endpoint.messages().__next__() as message:
        view: memoryview = message.data
        return bytes(view)
"""


def main():
    if importlib.util.find_spec("mypy") is None:
        print("not tried: mypy is not installed")
        return 77
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with tempfile.TemporaryDirectory() as directory:
        program = os.path.join(directory, "program.py")
        with open(program, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", directory + "/cache", os.path.join(root, "unet"), program]
        return subprocess.run(command, env={**os.environ, "MYPYPATH": root}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
