#!/usr/bin/env python3
# splitc_pmix.py - Split-C's programs started by PMIx, by Open MPI's mpirun and by Slurm's srun: they run; when one rank ends, the whole job
# ends, with the right exit status and no process left behind.
#
# Usage: splitc_pmix.py UNETD SPLITC_RANKS mpirun|srun      (exit status 77 where there is no such launcher)
import os
import re
import shutil
import subprocess
import sys

import slurm
from daemon import WAIT, Unetd, directory, main, require, wait_until

UNETD, RANKS = (os.path.abspath(p) for p in sys.argv[1:3])
LAUNCHER = sys.argv[3]
# For mpirun: fewer cores than ranks, as root, in a container, without an address of this host.
COMMANDS = {
    "mpirun": ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "plm", "isolated", "--mca", "oob_tcp_if_include", "lo"],
    "srun": ["srun", "--mpi=pmix", "--overcommit"],
    "plain": ["srun", "--mpi=none", "--overcommit"],
}
launcher_environment = {}


def launch(size, *args, env=None, command=LAUNCHER):
    with directory() as d, Unetd(UNETD, "--socket", d + "/a", "--log", "warning"):
        own = {name: value for name, value in os.environ.items() if not name.startswith("UNET_")} | launcher_environment
        own |= {"UNET_NI": f"unix:{d}/a", "UNET_SPLITC_MEMORY": "16M", "TMPDIR": d} | (env or {})
        done = subprocess.run([*COMMANDS[command], "-n", str(size), RANKS, *args], env=own, capture_output=True, text=True, timeout=WAIT)
        wait_until(lambda: not left_of(d), f"still running: {left_of(d)}")
        return done.returncode, done.stdout, done.stderr


def left_of(job_directory):
    """Ranks with this string in their environment, as all of a job have."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ, open(f"/proc/{pid}/cmdline", "rb") as command:
                if job_directory.encode() in environ.read() and RANKS.encode() in command.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def ends(how, statuses, pattern, env=None):
    found, out, err = launch(3, how, env=env)
    require(found in statuses, f"{how}: status {found}, not one of {statuses}: {out}{err}")
    require(re.search(pattern, err + out), f"{how}: no {pattern!r} in {err!r}")
    require("through" not in out, f"{how}: a rank has gone on: {out!r}")


def test_all_programs():
    for size in (1, 2, 5):
        status, out, err = launch(size)
        lines = [line for line in out.splitlines() if line.endswith(f": {size} ranks")]
        require(status == 0 and len(lines) > 8, f"{size} ranks: {status}: {out}{err}")


def test_by_messages():
    status, out, err = launch(3, "words", env={"UNET_SPLITC_PATH": "messages"})
    require(status == 0 and "words: 3 ranks" in out, f"{status}: {out}{err}")


def test_a_rank_is_killed():
    # Either the launcher or another rank may notice first.
    ends("!kill", (1, 128 + 9), "signal 9|Killed|rank 2 is gone")


def test_a_rank_returns_a_failure():
    ends("!fail", (7,), "")


def test_a_rank_leaves():
    ends("!leave", (1,), "barrier: rank 2 is gone|exiting improperly")


def test_a_rank_calls_another_collective():
    ends("!step", (1,), "splitc: rank . of 3: out of step")


def test_a_launcher_that_does_not_speak_pmix():
    if LAUNCHER == "srun":
        status, out, err = launch(2, "words", command="plain")
        require(status == 1 and "srun --mpi=pmix" in err, f"{status}: {out}{err}")


def test_wrong_words_in_the_environment():
    ends("words", (1,), "splitc: UNET_SPLITC_MEMORY=lots: write bytes from 1M to 4G", env={"UNET_SPLITC_MEMORY": "lots"})


def run_tests():
    if LAUNCHER == "mpirun":
        if shutil.which("mpirun") is None:
            print("skipped: there is no mpirun here: apt-get install openmpi-bin")
            return 77
        return main(globals())
    if reason := slurm.missing():
        print("skipped: " + reason)
        return 77
    with directory() as d, slurm.Slurm(d) as one:
        launcher_environment.update(one.environment)
        return main(globals())


if __name__ == "__main__":
    sys.exit(run_tests())
