# ssh_hosts.py - real hosts, reached by ssh: the same commands as for namespaces. On each host everything of a testbed is in one new
# directory under /tmp: the socket, the log, and for each process a file with its pid and start time.
import os
import shlex
import subprocess
import sys

from failure import Failure, Usage
import interruption

SSH_FAILED = 255  # exit status of ssh if it reached no host

# Prints nothing for a process that is gone, or a zombie.
LIVE = 'start_of() { sed -n "s/.*) \\([^ZX]\\)/\\1/p" "/proc/$1/stat" 2>/dev/null | cut -d" " -f20; }\n'

START = LIVE + """set -e
umask 077
mkdir "$1"
cd "$1"
export PATH="$2$PATH:/usr/sbin:/sbin"
shift 2
command -v unetd >/dev/null || { echo "there is no program 'unetd' in PATH on this host (--remote-path)"; exit 1; }
setsid unetd --socket "$PWD/unet.sock" "$@" >unetd.log 2>&1 </dev/null &
pid=$!
start=$(start_of $pid)
echo "$pid $start" >unetd.pid
for i in $(seq 600); do
  if grep -q "unetd ready at" unetd.log; then echo "ready $pid $start"; exit 0; fi
  [ "$(start_of $pid)" = "$start" ] || break
  sleep 0.1
done
tail -n 1 unetd.log
exit 1
"""

STOP = LIVE + """[ -d "$1" ] || exit 0
cd "$1"
left() {
  found=""
  for file in *.pid; do
    [ -f "$file" ] && read -r pid start <"$file" && [ -n "$start" ] && [ "$(start_of "$pid")" = "$start" ] && found="$found $pid"
  done
  [ -n "$found" ]
}
i=0
while left; do
  [ $i = 0 ] && kill -TERM $found
  [ $i -ge 50 ] && kill -KILL $found
  i=$((i + 1))
  sleep 0.1
done
cd /
rm -rf "$1"
"""

STATUS = LIVE + """read -r pid start <"$1/unetd.pid" && [ "$(start_of "$pid")" = "$start" ] && echo "$pid $(ps -o etimes= -p "$pid")"
"""

RUN = LIVE + """file=$1
export PATH="$2$PATH:/usr/sbin:/sbin"
shift 2
echo "$$ $(start_of $$)" >"$file" || exit 1
exec env "$@"
"""

SIGNAL = LIVE + """read -r pid start <"$1" && [ "$(start_of "$pid")" = "$start" ] && kill -"$2" "$pid"
"""


class Running:
    """A program on a host. The ssh process here has the same output and exit status."""

    def __init__(self, host, program, **how):
        self.host = host
        self.file = f"{host.record['directory']}/{os.getpid()}-{os.urandom(4).hex()}.pid"
        self.process = subprocess.Popen(host.ssh(RUN, self.file, host.path(), *host.assignments(), *program,
                                                 terminal=how.pop("terminal", False)), **how)

    def signal(self, number):
        """Sends a signal by a second ssh, because ssh passes no signal on."""
        subprocess.run(self.host.ssh(SIGNAL, self.file, str(int(number))), check=False, stdin=subprocess.DEVNULL,
                       capture_output=True)


class SshHost:
    def __init__(self, state, record):
        self.state, self.record, self.name = state, record, record["name"]

    def ssh(self, script, *arguments, terminal=False):
        # Pass one text: ssh would join several words by blanks, and the remote shell would split them again.
        text = shlex.join(["sh", "-c", script, "testbed", *arguments])
        return [*self.state["ssh"], *(["-t"] if terminal else []), self.record["target"], text]

    def ask(self, script, *arguments):
        try:
            done = subprocess.run(self.ssh(script, *arguments), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        except OSError as error:
            return SSH_FAILED, "", str(error)
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    def path(self):
        path = self.state["remote_path"]
        return path + ":" if path else ""

    def assignments(self):
        index = [host["name"] for host in self.state["hosts"]].index(self.name)
        socket = self.record["directory"] + "/unet.sock"
        return [f"UNET_NI=unix:{socket}", f"UNET_RANK={index}", f"UNET_SIZE={len(self.state['hosts'])}",
                f"UNET_TESTBED={self.state['name']}", f"UNET_TESTBED_HOST={self.name}"]

    def start(self, program, **how):
        return Running(self, program, **how)

    def find(self, program):
        return program  # the remote PATH finds it

    def place(self):
        return self.record["target"]

    def is_up(self):
        return self.uptime() is not None

    def why_down(self):
        """Returns None if its unetd runs."""
        if self.is_up():
            return None
        return f"{self.name} is not reached by ssh" if self.ssh_status == SSH_FAILED else f"unetd of {self.name} does not run"

    def uptime(self):
        self.ssh_status, out, _ = self.ask(STATUS, self.record["directory"])
        words = out.split()
        if self.ssh_status != 0 or len(words) != 2:
            return None
        self.record["pid"] = int(words[0])
        return float(words[1])

    def age(self):
        return self.uptime() or 0.0

    def log(self):
        status, out, err = self.ask('cat "$1"', self.record["directory"] + "/unetd.log")
        return (out if status == 0 else f"({err})") + "\n"

    # ---- making and removing a testbed

    def start_unetd(self):
        ports = [word for port in self.record["ports"] for word in ("--port", port)]
        with interruption.whole():
            self.starting = subprocess.Popen(
                self.ssh(START, self.record["directory"], self.path(), "--host", self.name, "--idle", self.state["idle"], *ports),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def wait_ready(self):
        out, err = self.starting.communicate()
        if self.starting.returncode == 0 and out.startswith("ready "):
            self.record["pid"] = int(out.split()[1])
            return
        self.record["reached"] = self.starting.returncode != SSH_FAILED or out != ""
        why = (out.strip() or err.strip() or f"ssh ended with {self.starting.returncode}").splitlines()[-1]
        raise Failure(f"unetd of {self.name} ({self.record['target']}) did not start: {why}")

    def settle(self):
        """Waits until no start is running on the host: a later stop is then final."""
        if hasattr(self, "starting") and self.starting.returncode is None:
            self.starting.communicate()

    def stop(self):
        """Returns None, or why the stop failed."""
        status, out, err = self.ask(STOP, self.record["directory"])
        return None if status == 0 else (err or out or f"ssh ended with {status}").splitlines()[-1]


def read_list(path):
    """Returns (name, target, port) of each line; # begins a comment line."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise Usage(f"--hosts {path}: {error.strerror}") from None
    found = []
    for number, line in enumerate(lines, 1):
        words = line.split(None, 2)
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3:
            raise Usage(f"{path}:{number}: expected NAME SSH-TARGET PORT, such as: beta user@beta dpdk:net_af_xdp0,iface=eth1")
        if words[0] in [name for name, _, _ in found] or words[0] == "all" or words[0].isdigit():
            raise Usage(f"{path}:{number}: host name '{words[0]}' " + ("is there twice" if words[0] != "all" and not words[0].isdigit()
                                                                       else "would not be a name but a number or all hosts"))
        if words[1].startswith("-"):
            raise Usage(f"{path}:{number}: '{words[1]}' is not an ssh target")
        found.append(tuple(words))
    if len(found) < 2:
        raise Usage(f"{path}: at least two hosts are required, one per line")
    return found


def describe(options, name, _):
    token = os.urandom(4).hex()
    hosts = [{"name": host, "target": target, "ports": [port.strip()], "directory": f"/tmp/unet-testbed.{name}.{host}.{token}"}
             for host, target, port in read_list(options.hosts)]
    return {"kind": "ssh", "hosts": hosts, "ssh": shlex.split(options.ssh), "remote_path": options.remote_path}


def remove(state, forget):
    """Removes it on all hosts, then reports hosts that did not answer; with `forget`, it prints them and leaves them alone."""
    hosts = [SshHost(state, record) for record in state["hosts"] if record.get("reached", True)]
    failed = [(host, why) for host in hosts if (why := host.stop()) is not None]
    if failed and not forget:
        host, why = failed[0]
        raise Failure(f"{host.name} ({host.record['target']}) could not be cleared: {why}; try again, or leave it as it is: "
                      f"testbed down --forget --name {state['name']}")
    for host, why in failed:
        print(f"testbed: {host.name} ({host.record['target']}) was not cleared, so programs may still run there: {why}", file=sys.stderr)
