# slurm.py - Slurm on this host alone, with all files in one directory: controller, daemon, and munge for their credentials; for tests of
# jobs that srun starts.
import os
import shutil
import socket
import subprocess

from daemon import WAIT, require, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
PACKAGES = "munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins"

CONFIGURATION = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={daemon_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/controller.pid
SlurmdPidFile={directory}/daemon.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
"""


def missing():
    """Why Slurm cannot run here: a sentence, or None."""
    if os.geteuid() != 0:
        return "Slurm's daemon needs root"
    if any(shutil.which(program) is None for program in PROGRAMS):
        return "there is no Slurm here: apt-get install " + PACKAGES
    return None


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Slurm:
    def __init__(self, directory):
        self.directory = directory
        self.daemons = []

    def __enter__(self):
        try:
            self.start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_all(self):
        d = self.directory
        os.chmod(d, 0o755)
        for name in ("state", "spool"):
            os.mkdir(f"{d}/{name}")
        with open(f"{d}/key", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as key:
            key.write(os.urandom(128))
        host = socket.gethostname().split(".")[0]
        with open(f"{d}/slurm.conf", "w", encoding="ascii") as file:
            file.write(CONFIGURATION.format(host=host, directory=d, controller_port=free_port(), daemon_port=free_port(),
                                            cores=os.cpu_count()))
        self.environment = {"SLURM_CONF": f"{d}/slurm.conf"}
        self.start("munged", "--foreground", "--force", f"--socket={d}/munge", f"--key-file={d}/key", f"--pid-file={d}/munge.pid",
                   f"--log-file={d}/munge.log", f"--seed-file={d}/munge.seed")
        wait_until(lambda: os.path.exists(f"{d}/munge"), "munged does not start")
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D")
        wait_until(self.is_idle, "Slurm does not start")

    def start(self, *command):
        with open(f"{self.directory}/{command[0]}.out", "wb") as out:
            self.daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                 env=os.environ | self.environment))

    def is_idle(self):
        for each in self.daemons:
            require(each.poll() is None, f"{each.args[0]} has ended: {open(f'{self.directory}/{each.args[0]}.out').read()}")
        done = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, timeout=WAIT,
                              env=os.environ | self.environment)
        return done.stdout.strip() == "idle"

    def __exit__(self, *unused):
        for each in reversed(self.daemons):
            each.terminate()
        for each in self.daemons:
            try:
                each.wait(WAIT)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()
