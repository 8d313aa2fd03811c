# splitc_job.py - ranks of one job on two NIs joined by a wire, each rank a process; for the other files here.
import contextlib
import itertools
import os
import subprocess

from daemon import WAIT, Unetd, directory
from spaces import Host, Spaces

IMPAIRED = "faulty:loss=2%,duplicate=1%,reorder=2%,corrupt=1%,seed={} / "
HOSTS = {"a": "alpha", "b": "beta"}
KEY = "4f1d09e20c63a78e915b2d7740fe83ab"
jobs = itertools.count()


class Job:
    """A process of `program` for each letter of `places`: a is alpha, b is beta. Killed at the end of the with block."""

    def __init__(self, program, paths, places, *args, hosts=None, name=None, key=KEY, path="direct", only=None):
        hosts = hosts or [HOSTS[place] for place in places]
        name = name or f"job-{next(jobs)}"
        keys = key if isinstance(key, list) else [key] * len(places)
        self.ranks = []
        for rank, place in enumerate(places):
            if only is not None and rank not in only:
                continue
            env = os.environ | {"UNET_NI": "unix:" + paths[place], "UNET_RANK": str(rank), "UNET_SIZE": str(len(places)), "UNET_JOB": name,
                                "UNET_JOB_HOSTS": ",".join(hosts), "UNET_JOB_KEY": keys[rank], "UNET_SPLITC_MEMORY": "16M", "UNET_SPLITC_PATH": path}
            self.ranks.append(subprocess.Popen([program, *args], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.kill()
            rank.communicate()

    def end(self):
        """Returns for each rank its status, its output, and its errors."""
        ends = []
        for rank in self.ranks:
            out, err = rank.communicate(timeout=2 * WAIT)
            ends.append((rank.returncode, out, err))
        return ends


@contextlib.contextmanager
def over_memif(unetd, prefix=""):
    with directory() as d, contextlib.ExitStack() as stack:
        paths = {"a": d + "/a", "b": d + "/b"}
        for number, (place, path) in enumerate(paths.items()):
            wire = f"dpdk:net_memif0,socket={d}/memif,role={'server' if number == 0 else 'client'}"
            port = (prefix.format(number + 1) if prefix else "") + wire
            stack.enter_context(Unetd(unetd, "--socket", path, "--host", HOSTS[place], "--port", port, "--log", "warning"))
        yield paths


@contextlib.contextmanager
def over_veth(unetd, driver, prefix=""):
    with Spaces("a", "b") as spaces, directory() as d, contextlib.ExitStack() as stack:
        spaces.join("a", "eth0", "b", "eth0")
        paths = {"a": d + "/a", "b": d + "/b"}
        for number, (place, path) in enumerate(paths.items()):
            port = (prefix.format(number + 1) if prefix else "") + driver
            stack.enter_context(Host(unetd, spaces, place, path, port, "--log", "warning"))
        yield paths
