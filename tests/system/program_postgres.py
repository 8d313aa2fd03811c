# program_postgres.py - PostgreSQL: its parent process accepts connections and forks a process for each. It refuses to run as root. For
# sockets_programs.py.
import contextlib
import glob
import os
import re
import signal
import subprocess

from daemon import NOBODY, WAIT, require, run, wait_until
from ip_spaces import KERNELS, OURS, Lines
from program_roles import each_version, end

BIN = max(glob.glob("/usr/lib/postgresql/*/bin"), default="/usr/lib/postgresql/15/bin")
PGBENCH = f"{BIN}/pgbench"
PORT = 8500
LONG = "UNET_LONG" in os.environ
SESSIONS = 8
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
SETTINGS = """listen_addresses = '{addresses}'
port = {port}
unix_socket_directories = ''
fsync = off
shared_buffers = 16MB
dynamic_shared_memory_type = mmap
"""


class Cluster:
    def __init__(self, role):
        self.role, self.data = role, role.subdirectory("data")
        os.chmod(role.directory, 0o755)
        os.chown(self.data, NOBODY, NOBODY)
        self.control("initdb", "--username=unet", "--auth=trust", "--no-locale", "--encoding=UTF8", "--no-sync")
        self.configure(SETTINGS.format(addresses=",".join(address for _, address in each_version(role)), port=PORT))
        self.append("pg_hba.conf", "host all all all trust\n")

    def control(self, program, *args):
        """Runs as the cluster's owner, without sockets."""
        status, out, err = run(f"{BIN}/{program}", "-D", self.data, *args, user=NOBODY)
        require(status == 0, f"{program} {args}: {out} {err}")

    def append(self, name, text):
        with open(f"{self.data}/{name}", "a", encoding="utf-8") as file:
            file.write(text)

    def configure(self, settings):
        self.append("postgresql.conf", settings)

    @contextlib.contextmanager
    def running(self):
        """The server runs until the block stops it."""
        before = processes(self.role)
        with self.role.server.server(*AS_NOBODY, f"{BIN}/postgres", "-D", self.data, ready="ready to accept connections", stops=True) as server:
            segment = self.segment()
            try:
                yield server
            finally:
                server.send_signal(signal.SIGQUIT)  # if it still runs: it removes its shared memory and waits for no client
        wait_until(lambda: processes(self.role) <= before, "processes are left")
        require(segment not in shared_memory(), "shared memory is left")
        require(not os.path.exists(f"{self.data}/postmaster.pid"), "postmaster.pid is left")

    def segment(self):
        """The id of its shared memory, which follows the key."""
        with open(f"{self.data}/postmaster.pid", encoding="utf-8") as file:
            return file.read().split("\n")[6].split()[1]


def processes(role):
    return set(run("ip", "netns", "pids", role.server.space)[1].split())


def shared_memory():
    """The ids of the existing segments."""
    with open("/proc/sysvipc/shm", encoding="ascii") as file:
        return {line.split()[1] for line in file}


def options(address):
    return ["-h", address, "-p", PORT, "-U", "unet"]


def query(role, address, text, **more):
    return role.client.text(f"{BIN}/psql", *options(address), "-XAtq", "-c", text, "postgres", **more).strip()


class Session:
    """A psql that prints a line for each query, until its input ends."""

    def __init__(self, role, address):
        command = [f"{BIN}/psql", *options(address), "-XAtq", "-v", "ON_ERROR_STOP=1", "postgres"]
        self.process = role.client.start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines = Lines(self.process.stdout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        end(self.process, signal.SIGKILL)
        self.process.stdout.close()

    def tell(self, text):
        self.process.stdin.write(text.encode() + b";\n")
        self.process.stdin.flush()

    def ask(self, text):
        self.tell(text)
        return self.lines.next()

    def is_ended(self, words, by):
        """The server ends the session, and the client is told."""
        said = self.lines.rest.decode() + self.process.stdout.read().decode()
        require(self.process.wait(WAIT) == 2 and words in said, f"{by}: psql ends with {self.process.returncode} and says: {said}")


@contextlib.contextmanager
def busy_session(role, address):
    """Kills psql in the middle of a query; the server's process of it ends too."""
    with Session(role, address) as session:
        pid = session.ask("select pg_backend_pid()")
        session.tell("select pg_sleep(600)")
        wait_until(lambda: query(role, address, f"select state from pg_stat_activity where pid = {pid}") == "active", "no query")
        yield session, int(pid)


def benchmark(role, address, *words):
    out = role.client.text(PGBENCH, *options(address), "-n", *words, "postgres")
    done = re.search(r"transactions actually processed: (\d+)/(\d+)\n", out)
    require(done and done[1] == done[2] and re.search(r"failed transactions: 0 ", out), f"pgbench {words}: {out}")


def transactions(role, address):
    """The balances sum up to what the transactions have added."""
    role.client.run(PGBENCH, *options(address), "-i", "-s", 1, "-q", "postgres")
    many = 5 if LONG else 1
    benchmark(role, address, "-S", "-M", "prepared", "-c", 4, "-t", 500 * many)
    benchmark(role, address, "-c", 4, "-t", 100 * many)
    benchmark(role, address, "-S", "-C", "-c", 4, "-t", 20 * many)  # a new connection for each transaction
    sums = query(role, address, "select count(*), sum(delta), (select sum(abalance) from pgbench_accounts), "
                                "(select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches) from pgbench_history")
    count, *equal = sums.split("|")
    require(count == str(400 * many) and len(set(equal)) == 1, f"sums of the transactions: {sums}")


def copies(role, address):
    """Megabytes to the server, and back."""
    rows = b"".join(b"%d\t%s\n" % (i, os.urandom(500).hex().encode()) for i in range(40_000 if LONG else 4000))
    query(role, address, "drop table if exists copied; create table copied(number int, text text)")
    psql = [f"{BIN}/psql", *options(address), "-XAtq", "postgres", "-c"]
    role.client.run(*psql, "copy copied from stdin", data=rows)
    require(role.client.run(*psql, "copy copied to stdout") == rows, "what was copied comes back otherwise")


def sessions(role, version, address):
    """The server lists every connection with both addresses, and none after they have ended."""
    count = "select count(*) from pg_stat_activity where backend_type = 'client backend'"
    with contextlib.ExitStack() as open_:
        all_ = [open_.enter_context(Session(role, address)) for _ in range(SESSIONS)]
        pids = {each.ask("select pg_backend_pid()") for each in all_}
        require(len(pids) == SESSIONS and query(role, address, count) == str(SESSIONS + 1), f"processes of {SESSIONS} sessions: {pids}")
        ends = query(role, address, "select host(inet_client_addr()), host(inet_server_addr()), inet_server_port()")
        require(ends == f"{(OURS if role.client.is_ours else KERNELS)[version]}|{address}|{PORT}", f"the ends of a connection: {ends}")
    wait_until(lambda: query(role, address, count) == "1", "sessions are left")


def cancelled(role, address):
    """Over a connection of its own, which psql opens in a signal handler."""
    with busy_session(role, address) as (session, _):
        session.process.send_signal(signal.SIGINT)
        said = session.lines.next(), session.lines.next()
        require(said[0] == "Cancel request sent" and "canceling statement due to user request" in said[1], f"a query that is cancelled: {said}")


def reloaded(role, address, cluster):
    with Session(role, address) as session:
        for size in ("5MB", "6MB"):
            cluster.configure(f"work_mem = {size}\n")
            cluster.control("pg_ctl", "reload")
            wait_until(lambda size=size: query(role, address, "show work_mem") == size, "no reload in a new session")
            wait_until(lambda size=size: session.ask("show work_mem") == size, "no reload in an old session")


def killed(role, address, server):
    told = "terminating connection due to administrator command"
    with busy_session(role, address) as (session, pid):
        require(query(role, address, f"select pg_terminate_backend({pid})") == "t", "pg_terminate_backend()")
        session.is_ended(told, "pg_terminate_backend()")
    with Session(role, address) as idle:
        pid = idle.ask("select pg_backend_pid()")
        require(query(role, address, f"select pg_terminate_backend({pid}, 60000)") == "t", "pg_terminate_backend() of an idle one")
        idle.tell("select 1")
        idle.is_ended(told, "pg_terminate_backend() of an idle one")
    # After this the server restarts its processes, with its old listeners.
    with busy_session(role, address) as (session, pid), busy_session(role, address) as (other, _):
        os.kill(pid, signal.SIGKILL)
        session.is_ended("server closed the connection unexpectedly", "a process that is killed")
        other.is_ended("terminating connection because of crash of another server process", "a process that is killed")
    wait_until(lambda: server.said().count("ready to accept connections") == 2, "the server does not begin anew")
    require(query(role, address, "select 1") == "1", "after the server has begun anew")


def postgres(role):
    cluster = Cluster(role)
    with cluster.running() as server:
        for version, address in each_version(role):
            transactions(role, address)
            copies(role, address)
            sessions(role, version, address)
            cancelled(role, address)
        reloaded(role, address, cluster)
        killed(role, address, server)
        with busy_session(role, address) as (session, _):
            cluster.control("pg_ctl", "stop", "-m", "fast")
            session.is_ended("terminating connection due to administrator command", "pg_ctl stop")
        require(server.wait(WAIT) == 0, f"the server ends with {server.returncode}")
    require("database system is shut down" in server.said(), "the server did not shut down")
