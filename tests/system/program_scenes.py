# program_scenes.py - a test's own file as a program that unet-sockets runs: it plays a scene (`--peer SCENE ...`), prints lines, and reads
# others; on an NI without a peer on its wire.
import contextlib
import os
import signal
import subprocess
import sys

from daemon import WAIT, Unetd, main
from ip_spaces import OUR_ADDRESSES, Lines


def network_interface(unetd, d):
    """A NI that listens at the socket `s` of the directory."""
    return Unetd(unetd, "--socket", f"{d}/s", "--port", "nowhere", "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed")


def environment(d):
    """The environment of programs on that NI."""
    return os.environ | {"UNET_NI": f"unix:{d}/s", "UNET_SOCKET": f"{d}/s"}


@contextlib.contextmanager
def begun(unet_sockets, d, *args):
    """`lines` is the program's output. At the end it is killed, with its children."""
    process = subprocess.Popen([unet_sockets, sys.executable, os.path.abspath(sys.argv[0]), "--peer", *args], env=environment(d),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True)
    process.lines = Lines(process.stdout)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(WAIT)
        process.stdin.close()
        process.stdout.close()


def tell(process, what):
    process.stdin.write(what + "\n")
    process.stdin.flush()


def begin(peers, tests):
    """Runs a scene, or the tests of the file. The second argument is unet-sockets."""
    if sys.argv[1:2] == ["--peer"]:
        sys.exit(peers[sys.argv[2]](*sys.argv[3:]))
    if len(sys.argv) < 3 or not os.path.exists(sys.argv[2]):
        print("skipped: there is no unet-sockets")
        sys.exit(77)
    sys.exit(main(tests))
