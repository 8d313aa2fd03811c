# testbeds.py - makes and removes testbeds; the rest of the commands find their hosts here.
import contextlib
import os
import shutil
import signal
import subprocess
import time

from failure import Failure, Usage
import guest_image
import interruption
import namespace_hosts
import namespaces
import processes
import programs
import ssh_hosts
import state as states
import vm_hosts

CHECK_NAME = "testbed-check"
CHECK_SECONDS = 60
END_SECONDS = 10  # for programs to end after SIGTERM


HOSTS = {"namespaces": namespace_hosts.NamespaceHost, "ssh": ssh_hosts.SshHost, "vm": vm_hosts.VmHost}


def hosts_of(state):
    return [HOSTS[state["kind"]](state, record) for record in state["hosts"]]


def host_called(state, word):
    """Returns the host with this name, or number from 0."""
    hosts = hosts_of(state)
    for host in hosts:
        if host.name == word:
            return host
    if word.isdigit() and int(word) < len(hosts):
        return hosts[int(word)]
    raise Usage(f"there is no host '{word}' in testbed '{state['name']}'; there are {', '.join(h.name for h in hosts)}, and all")


def need_root():
    if os.geteuid() != 0:
        raise Failure("network namespaces need root: sudo testbed ...; or a shell in which you are root of your own namespaces: "
                      "unshare -Urnm sh -c 'mount -t tmpfs run /run && exec bash'")


def remove(state, forget=False):
    """Removes every part that exists."""
    if state.get("kind") == "ssh":
        ssh_hosts.remove(state, forget)
    elif state.get("kind") == "vm":
        vm_hosts.remove(state)
    else:
        namespace_hosts.remove(state)
    states.remove(state)


def up(options):
    name = options.name
    if options.kind == "namespaces":
        need_root()
        programs.find("ip")
    if options.kind == "vm":
        guest_image.check()
    for program in ("unetd", "unet-bench", *(["unetctl"] if options.kind == "vm" else [])) if options.kind != "ssh" else ():
        programs.find(program)
    with states.locked(name, wait=False):
        found = states.load(name)
        if found is not None:
            how = f"is up already ({len(found['hosts'])} hosts)" if found["complete"] else "was left incomplete"
            raise Failure(f"testbed '{name}' {how}; remove it with: testbed down{states.option(name)}; or choose another --name")
        shutil.rmtree(vm_hosts.consoles_of_failed(name), ignore_errors=True)
        left = namespaces.of_testbed(name) if options.kind == "namespaces" else []
        if left:
            raise Failure(f"there are namespaces of a testbed '{name}' already; remove them with: testbed down{states.option(name)}")
        files = os.path.abspath(os.path.join(options.dir, f"unet-testbed.{name}")) if options.dir else states.directory(name)
        if len(files) > 80:
            raise Usage(f"--dir {options.dir}: too long a path for sockets in it; at most 80 characters with the testbed's name")
        describe = {"namespaces": namespace_hosts.describe, "ssh": ssh_hosts.describe, "vm": vm_hosts.describe}[options.kind]
        state = describe(options, name, files)
        state |= {"name": name, "complete": False, "idle": options.idle, "boot": processes.boot()}
        if options.dir:
            if os.path.exists(files):
                raise Failure(f"{files} is there already: remove it, or choose another --dir")
            state["files"] = files
        try:
            states.create(state)
            make(state, options.check)
            # The testbed is up: a signal from now on comes too late. If `up` reports that it was interrupted, nothing is left.
            interruption.ignore()
        except BaseException as error:
            with interruption.undisturbed():
                if state["kind"] == "vm" and isinstance(error, Failure):
                    error = Failure(f"{error} (consoles and logs: {vm_hosts.keep_consoles(state)})")
                remove(state)
            raise error from None
    return state


def make(state, check):
    if state.get("files"):
        os.makedirs(state["files"], 0o700)
    if state["kind"] == "namespaces":
        namespace_hosts.make(state)
    elif state["kind"] == "vm":
        vm_hosts.make(state)
    hosts = hosts_of(state)
    try:
        start_unetds(state, hosts)
    except BaseException:
        with interruption.undisturbed():
            for host in hosts:
                host.settle()
        raise
    if check:
        check_wires(hosts)
    state["complete"] = True
    states.save(state)


def start_unetds(state, hosts):
    """Starts all at once. The two ends of a memif may never meet if they begin together, so those start in order."""
    memif = any("net_memif" in port for host in state["hosts"] for port in host["ports"])
    for together in [[host] for host in hosts] if memif else [hosts]:
        for host in together:
            host.start_unetd()
        states.save(state)
        for host in together:
            host.wait_ready()


def kill(program):
    """Ends a program on a host at once, also the ssh process that stands for it here."""
    program.signal(signal.SIGKILL)
    program.process.kill()


@contextlib.contextmanager
def running(hosts, arguments_of):
    """Runs unet-bench on each host, with the arguments for this host, until the block ends. Yields these programs."""
    programs_there = []
    try:
        for host in hosts:
            with interruption.whole():
                programs_there.append(host.start([host.find("unet-bench"), *arguments_of(host)], stdin=subprocess.DEVNULL,
                                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True))
        yield programs_there
    finally:
        with interruption.undisturbed():
            for each in programs_there:
                each.signal(signal.SIGTERM)
            for each in programs_there:
                try:
                    each.process.wait(END_SECONDS)
                except subprocess.TimeoutExpired:
                    kill(each)
                each.process.stderr.close()


def serving(hosts, name):
    """Runs an answering program on each host until the block ends."""
    return running(hosts, lambda host: ["serve", name])


def check_wires(hosts):
    """Sends an echo between each pair, which tests both directions."""
    with serving(hosts, CHECK_NAME):
        for index, host in enumerate(hosts[:-1]):
            targets = [f"{CHECK_NAME}@{other.name}" for other in hosts[index + 1:]]
            client = None
            try:
                with interruption.whole():
                    client = host.start([host.find("unet-bench"), "across", "--only", "rtt", "--size", "48", "--count", "1",
                                         "--wait", str(CHECK_SECONDS), "--json", "-", *targets],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                _, err = client.process.communicate()
            except BaseException:
                if client is not None:
                    kill(client)
                raise
            if client.process.returncode != 0:
                lines = err.strip().splitlines()
                why = lines[-1].removeprefix("unet-bench: ") if lines else f"the echo client ended with {client.process.returncode}"
                raise Failure(f"no echo from {host.name} to {why}")


def down(name, forget):
    """Removes the testbed; returns whether there was any part of it."""
    with states.locked(name, wait=True), interruption.undisturbed():
        state = states.load(name)
        shutil.rmtree(vm_hosts.consoles_of_failed(name), ignore_errors=True)
        left = namespaces.of_testbed(name) if os.geteuid() == 0 else []
        if state is None and not left:
            return False
        remove(state or {"name": name, "hosts": [], "kind": "namespaces"}, forget)
        return True


def uptime(seconds):
    return time.strftime("%H:%M:%S", time.gmtime(seconds)) if seconds < 86400 else f"{int(seconds // 86400)} days"
