#!/usr/bin/env python3
# sockets_wrapper.py - the program unet-sockets: options, environment and file, its error messages, how it ends, and the backend that each
# kind of rule chooses.
#
# Usage: sockets_wrapper.py UNETD UNET_SOCKETS LINKED_STATICALLY WITH_GO_SECTION     (77: no unet-sockets; rules are only tried as root, with network namespaces)
#        sockets_wrapper.py --peer SCENE ...       the programs
import contextlib
import ctypes.util
import errno
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys

from daemon import WAIT, Skipped, directory, one_line, require, run
from ip_spaces import OURS, PREFIX, VERSIONS, Lines
from program_scenes import begin, environment, network_interface
from spaces import Host, Spaces, can_be_made, ip

UNETD, UNET_SOCKETS, STATIC, GO = map(os.path.abspath, sys.argv[1:5]) if sys.argv[1] != "--peer" else 4 * [""]
PORTS = (8600, 8601)
# Reachable only through the kernel: the NI has no route to it.
ELSEWHERE = "192.0.2.1"
VARIABLES = ("UNET_SOCKETS_RULES", "UNET_SOCKETS_SPIN_US", "UNET_SOCKETS_LOG", "UNET_SOCKETS_CONFIG")


# ---- the programs


def say(text):
    os.write(1, f"{text}\n".encode())


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def serve(name, *addresses):
    """Sends its name to every client, and to every datagram's sender."""
    all_ = selectors.DefaultSelector()
    for address in addresses:
        for port in PORTS:
            all_.register(socket.create_server((address, port), family=family_of(address)), selectors.EVENT_READ, True)
            datagrams = socket.socket(family_of(address), socket.SOCK_DGRAM)
            datagrams.bind((address, port))
            all_.register(datagrams, selectors.EVENT_READ, False)
    say("ready")
    while True:
        for key, _ in all_.select():
            if key.data:
                stream, _ = key.fileobj.accept()
                stream.sendall(name.encode())
                stream.close()
            else:
                _, peer = key.fileobj.recvfrom(100)
                key.fileobj.sendto(name.encode(), peer)


def asked(address, port, kind):
    """The name of the server that answers there, or of the error."""
    with socket.socket(family_of(address), kind) as client:
        client.settimeout(WAIT)
        try:
            client.connect((address, port))
            if kind == socket.SOCK_DGRAM:
                client.send(b"?")
            return client.recv(100).decode()
        except OSError as e:
            return errno.errorcode[e.errno] if e.errno else "nobody"


def ask(address):
    """The server that answers at each port, over TCP and over UDP."""
    say(" ".join(asked(address, port, kind) for port in PORTS for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)))


def resolve(name):
    try:
        socket.getaddrinfo(name, 80)
    except socket.gaierror as e:
        say(str(e.errno == socket.EAI_AGAIN))


def told():
    """The program's view of its environment."""
    say(" ".join(f"{each}={os.environ.get(each)!r}" for each in ("UNET_NI", *VARIABLES[:3])))


PEERS = {each.__name__: each for each in (resolve, serve, ask, told)}


# ---- the test


def peer(*args):
    return [sys.executable, os.path.abspath(__file__), "--peer", *args]


def clean(env):
    """The environment without the settings of the test's own caller."""
    return {name: value for name, value in env.items() if name not in VARIABLES}


def wrapped(*args, env=None):
    return run(UNET_SOCKETS, *args, env=clean(os.environ) if env is None else env)


def refused(wrong, args, *parts, env=None):
    """One line says why, and the program was not run."""
    status, out, err = wrapped(*args, env=env)
    require((status, out) == (wrong, ""), f"{args} ends with {status}: {out}{err}")
    one_line(err, "unet-sockets", *parts)


def test_help():
    for option in ("--help", "-h"):
        status, out, err = wrapped(option)
        require((status, err) == (0, ""), f"{option} ends with {status}: {err}")
        for each in ("--ni", "--rule", "--config", "--spin", "--log", "--kernel", "--library"):
            require(each in out, f"{option} does not tell of {each}")


def test_wrong_options():
    rule_is = {"theirs *": "begins with 'ours' or 'kernel'", "ours": "names no address", "kernel tcp": "names no address",
               "ours nowhere": "'nowhere' is not an address", "ours 10.0.0.0/33": "0 to 32", "kernel fd00::/129": "0 to 128",
               "ours tcp * 9-8": "PORT-PORT", "ours * 65536": "PORT-PORT", "kernel * 1 2": "a word too many", "ours *; kernel": "names no"}
    for rule, part in rule_is.items():
        refused(2, ["--rule", rule, "true"], "rule", part)
    refused(2, [], "program")
    for args in (["--log"], ["--"], ["--log", "--"]):
        refused(2, args, "program")
    for args in (["--spin", "1000001", "true"], ["--spin", "soon", "true"], ["--spin", "-1", "true"]):
        refused(2, args, "--spin")
    refused(2, ["--rule"], "--rule")
    for option in ("--nonsense", "--nonsense=1", "-x"):
        refused(2, [option, "true"], option)
        refused(2, ["--log", option, "--", "true"], option)
    with directory() as d:
        refused(2, ["--config", f"{d}/missing.toml", "true"], "missing.toml")
        refused(2, ["true"], "missing.toml", env=clean(os.environ) | {"UNET_SOCKETS_CONFIG": f"{d}/missing.toml"})


def test_wrong_files():
    texts = {"rules = [": ":1:", "ni = \"unix:here\"\nlog = perhaps\n": ":2:", "ni = 5\n": "'ni' is", "rules = \"ours *\"\n": "'rules' is a list",
             "rules = [1, 2]\n": "'rules' is a list", "spin_us = 1000001\n": "'spin_us' is", "spin_us = -1\n": "'spin_us' is",
             "spin_us = \"5\"\n": "'spin_us' is", "log = 1\n": "'log' is", "colour = 1\n": "'colour' is not known",
             "rules = [\"ours *\", \"theirs *\"]\n": "rule 'theirs *'"}
    with directory() as d:
        path = f"{d}/wrong.toml"
        for text, part in texts.items():
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            of_rule = part.startswith("rule ")
            refused(2, ["--config", path, "true"], part, *[path] * (not of_rule))
            refused(2, ["true"], part, env=clean(os.environ) | {"UNET_SOCKETS_CONFIG": path})


def test_nothing_to_run_on():
    """Without a NI the program does not start on the kernel's sockets."""
    with directory() as d, network_interface(UNETD, d):
        refused(1, ["--ni", f"unix:{d}/nobody", "true"], "nobody", env=clean(environment(d)))
        refused(1, ["true"], "nobody", env=clean(environment(d)) | {"UNET_NI": f"unix:{d}/nobody"})
        refused(1, ["--library", f"{d}/none.so", "true"], "none.so", env=clean(environment(d)))


def test_program():
    with directory() as d, network_interface(UNETD, d):
        env = clean(environment(d))
        status, out, err = wrapped("sh", "-c", "echo $0 $*; exit 7", "--help", "--rule", env=env)
        require((status, out, err) == (7, "--help --rule\n", ""), f"a program's own options: {status} {out}{err}")
        for args in (["[a,b]", "--", "-x", "\"a b\"", ""], ["--log"]):  # passed on unchanged
            out = wrapped("--spin", "9", "--", sys.executable, "-c", "import sys; print(sys.argv[1:])", *args, env=env)[1]
            require(out == f"{args}\n", f"a program's arguments {args} are {out}")
        status = wrapped("sh", "-c", "kill -9 $$", env=env)[0]
        require(status == -signal.SIGKILL, f"a program that is killed: {status}")
        refused(127, ["no-such-program"], "no-such-program", env=env)
        refused(127, [f"{d}/no-such-program"], "no-such-program", env=env)
        refused(126, [d], d, env=env)
        with open(f"{d}/text", "w", encoding="utf-8") as file:
            file.write("not to be run")
        refused(126, [f"{d}/text"], f"{d}/text", env=env)
        # A preloaded library of the user stays, behind U-Net's.
        preloaded = wrapped("printenv", "LD_PRELOAD", env=env | {"LD_PRELOAD": "libm.so.6"})[1].strip().split(":")
        require(len(preloaded) == 2 and "unet_sockets" in preloaded[0] and preloaded[1] == "libm.so.6", f"LD_PRELOAD: {preloaded}")


def test_without_library():
    """A program that the library cannot be preloaded into is not started, except on request."""
    with directory() as d, network_interface(UNETD, d):
        env = clean(environment(d))

        def script(name, first_line):
            with open(f"{d}/{name}", "w", encoding="utf-8") as file:
                file.write(f"{first_line}\n")
            os.chmod(f"{d}/{name}", 0o755)
            return f"{d}/{name}"

        of_path = env | {"PATH": f"{os.path.dirname(STATIC)}:{env['PATH']}"}
        foreign = script("foreign", "")
        with open(foreign, "wb") as file:
            file.write(b"\x7fELF\x01\x01\x01" + bytes(57))
        wrong = {STATIC: "linked statically", GO: "in Go", script("by_path", f"#!{STATIC}"): "linked statically",
                 script("by_env", f"#!/usr/bin/env -S A=1 {GO} -x"): "in Go", script("twice", f"#!{d}/by_path x"): "linked statically",
                 foreign: "another kind of machine"}
        for program, part in wrong.items():
            refused(126, [program], part, "--kernel", env=env)
        refused(126, ["linked_statically"], STATIC, "--kernel", env=of_path)
        for args in ([STATIC], [GO], [f"{d}/by_path"]):
            status, out, err = wrapped("--kernel", *args, env=env)
            require((status, out, err) == (0, "runs\n", ""), f"{args} with --kernel: {status} {out}{err}")
        right = [script("shell", "#!/bin/sh\ntrue"), script("python", f"#!/usr/bin/env {os.path.basename(sys.executable)}"), script("no_name", "true")]
        for program in right:
            status, _, err = wrapped(program, env=env)
            require((status, err) == (0, ""), f"{program}: {status} {err}")
        if os.geteuid() == 0:
            shutil.copy("/bin/true", f"{d}/other")
            os.chown(f"{d}/other", 65534, 65534)
            os.chmod(f"{d}/other", 0o4755)
            refused(126, [f"{d}/other"], "rights of another user", env=env)


def test_no_rings():
    """A program that is linked with liburing, or uses syscall(), finds that there is no io_uring."""
    asks = """
import ctypes, errno
program, room = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(1024)
print(*(errno.errorcode[-program[name](8, room, room, room, 0)] for name in
        ("io_uring_queue_init", "io_uring_queue_init_params", "io_uring_queue_init_mem", "io_uring_setup")),
      program.syscall(425, 8, room), errno.errorcode[ctypes.get_errno()])
"""
    with directory() as d, network_interface(UNETD, d):
        status, out, err = wrapped(sys.executable, "-c", asks, env=clean(environment(d)))
        require((status, out) == (0, "ENOSYS ENOSYS ENOSYS ENOSYS -1 ENOSYS\n"), f"rings: {status} {out}{err}")


def test_allocator():
    """An allocator that calls syscall() during its start, under its own lock, when the library may not allocate yet."""
    if ctypes.util.find_library("jemalloc") is None:
        raise Skipped("needs libjemalloc2, which redis-server brings with it")
    with directory() as d, network_interface(UNETD, d):
        status, out, err = wrapped(sys.executable, "-c", "print('runs')", env=clean(environment(d)) | {"LD_PRELOAD": "libjemalloc.so.2"})
        require((status, out, err) == (0, "runs\n", ""), f"with jemalloc: {status} {out}{err}")


def test_precedence():
    """The command line overrides the environment, which overrides the file. The first matching rule counts, so the rules of all three are
    there, in that order."""
    with directory() as d, network_interface(UNETD, d):
        path, here = f"{d}/all.toml", f"unix:{d}/s"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'ni = "{here}"\nrules = ["kernel * 1", "ours * 2"]\nspin_us = 11\nlog = true\n')
        alone = {name: value for name, value in clean(os.environ).items() if name not in ("UNET_NI", "UNET_SOCKET")}
        said = {"UNET_NI": here, "UNET_SOCKETS_RULES": "ours * 3", "UNET_SOCKETS_SPIN_US": "12"}
        wrong = {"UNET_NI": f"unix:{d}/nobody"}
        options = ["--ni", here, "--rule", "kernel * 4", "--rule", "ours * 5", "--spin", "13"]
        of_file = ["--config", path]

        def finds(rules, spin, log, args, env):
            status, out, err = wrapped(*args, *peer("told"), env=alone | env)
            wanted = f"UNET_NI={here!r} UNET_SOCKETS_RULES={rules!r} UNET_SOCKETS_SPIN_US={spin!r} UNET_SOCKETS_LOG={log!r}\n"
            require((status, out) == (0, wanted), f"{args} with {env}: {status} {out}{err}, not {wanted}")

        finds(None, None, None, options[:2], {})
        finds(None, None, "1", [*options[:2], "--log"], {})
        finds("kernel * 4;ours * 5", "13", None, options, {})
        finds("ours * 3", "12", None, [], said)
        finds("ours * 3", "12", "1", [], said | {"UNET_SOCKETS_LOG": "1"})
        finds("kernel * 1;ours * 2", "11", "1", of_file, {})
        finds("kernel * 1;ours * 2", "11", "1", [], {"UNET_SOCKETS_CONFIG": path})
        finds("kernel * 4;ours * 5;kernel * 1;ours * 2", "13", "1", [*of_file, *options], {})
        finds("ours * 3;kernel * 1;ours * 2", "12", "1", of_file, said)
        finds("kernel * 4;ours * 5;ours * 3;kernel * 1;ours * 2", "13", "1", [*of_file, *options], said | wrong)
        # A file named on the command line replaces the environment's.
        finds("kernel * 1;ours * 2", "11", "1", of_file, {"UNET_SOCKETS_CONFIG": f"{d}/missing.toml"})
        status, _, err = wrapped(*of_file, "true", env=alone | wrong)
        require(status == 1, f"the file's network interface was taken for the environment's: {status} {err}")


@contextlib.contextmanager
def running(command, env=None):
    """Until its program has printed that it is ready."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
    try:
        require(Lines(process.stdout).next() == "ready", "a server")
        yield
    finally:
        process.kill()
        process.wait(WAIT)
        process.stdout.close()


class Place:
    """A namespace in which the NI and the kernel have the same addresses, and a server on each."""

    def __init__(self, spaces, d):
        self.inside, self.directory, self.env = ["ip", "netns", "exec", spaces["a"]], d, clean(environment(d))

    def asks(self, wanted, address, *args, env=None):
        """The answers that a client of unet-sockets with these options gets, and its standard error."""
        status, out, err = run(*self.inside, UNET_SOCKETS, *args, *peer("ask", address), env=self.env | (env or {}))
        require((status, out.strip()) == (0, wanted), f"{address} with {args}, {env}: {out.strip()}, not {wanted}; {status} {err}")
        return err


@contextlib.contextmanager
def place():
    if not can_be_made():
        raise Skipped("needs root and network namespaces")
    with directory() as d, Spaces("a") as spaces:
        ip("-n", spaces["a"], "link", "set", "lo", "up")
        for v in VERSIONS:
            ip("-n", spaces["a"], "address", "add", f"{OURS[v]}/{128 if v == 6 else 32}", "dev", "lo", *["nodad"] * (v == 6))
        ip("-n", spaces["a"], "address", "add", f"{ELSEWHERE}/32", "dev", "lo")
        addresses = [OURS[v] for v in VERSIONS]
        own = ",".join(f"{OURS[v]}/{PREFIX[v]}" for v in VERSIONS)
        with Host(UNETD, spaces, "a", f"{d}/s", "nowhere", "--ip", f"0={own},unprobed"):
            here = Place(spaces, d)
            with running([*here.inside, *peer("serve", "kernel", ELSEWHERE, *addresses)]), \
                    running([*here.inside, UNET_SOCKETS, *peer("serve", "ours", *addresses)], here.env):
                yield here


# Rules, and the servers that answer then: over TCP and UDP at the first port, and at the second.
SAID = [
    ([], "ours ours ours ours"),
    (["kernel *"], "kernel kernel kernel kernel"),
    (["kernel tcp *"], "kernel ours kernel ours"),
    (["kernel udp *"], "ours kernel ours kernel"),
    (["kernel 10.86.0.1"], "kernel kernel kernel kernel"),
    (["kernel 10.86.0.0/24"], "kernel kernel kernel kernel"),
    (["kernel 10.86.0.0/31 8601"], "ours ours kernel kernel"),
    (["kernel 10.86.0.2"], "ours ours ours ours"),
    (["kernel 10.87.0.0/16"], "ours ours ours ours"),
    (["kernel udp 10.86.0.1 8600"], "ours kernel ours ours"),
    (["kernel tcp * 8500-8600"], "kernel ours ours ours"),
    (["kernel * 8602-65535"], "ours ours ours ours"),
    (["ours tcp * 8600", "kernel *"], "ours kernel kernel kernel"),
    (["kernel *", "ours tcp * 8600"], "kernel kernel kernel kernel"),
]


def test_rules():
    with place() as here:
        for rules, wanted in SAID:
            here.asks(wanted, OURS[4], *[word for rule in rules for word in ("--rule", rule)])
            if rules:
                here.asks(wanted, OURS[4], env={"UNET_SOCKETS_RULES": "; ".join(rules)})
        if 6 in VERSIONS:
            here.asks("kernel ours kernel ours", OURS[6], "--rule", "kernel tcp fd00:86::/64")
            here.asks("ours ours ours ours", OURS[6], "--rule", "kernel 10.86.0.0/24")
            here.asks("ours ours kernel kernel", OURS[6], "--rule", "ours fd00:86::1 8600", "--rule", "kernel fd00::/16")
        # A destination without a route through the NI is the kernel's, unless a rule says otherwise.
        here.asks("kernel kernel kernel kernel", ELSEWHERE)
        here.asks("kernel ENETUNREACH kernel ENETUNREACH", ELSEWHERE, "--rule", "ours udp *")
        path = f"{here.directory}/rules.toml"
        with open(path, "w", encoding="utf-8") as file:
            file.write('rules = ["ours tcp * 8600",\n         "kernel *"]\n')
        here.asks("ours kernel kernel kernel", OURS[4], "--config", path)
        here.asks("ours kernel kernel kernel", OURS[4], env={"UNET_SOCKETS_CONFIG": path})
        # The environment's rules come before the file's, and the command line's before both.
        here.asks("kernel kernel kernel kernel", OURS[4], "--config", path, env={"UNET_SOCKETS_RULES": "kernel tcp *"})
        here.asks("ours kernel ours kernel", OURS[4], "--config", path, "--rule", "ours tcp *", env={"UNET_SOCKETS_RULES": "kernel tcp *"})


def test_rules_of_what_is_bound():
    """On the server side a rule matches the local address: the kernel's clients reach the kernel's listener."""
    if not can_be_made():
        raise Skipped("needs root and network namespaces")
    with directory() as d, Spaces("a") as spaces:
        ip("-n", spaces["a"], "link", "set", "lo", "up")
        ip("-n", spaces["a"], "address", "add", f"{OURS[4]}/32", "dev", "lo")
        with Host(UNETD, spaces, "a", f"{d}/s", "nowhere", "--ip", f"0={OURS[4]}/{PREFIX[4]},unprobed"):
            here = Place(spaces, d)
            rules = ["--rule", "kernel tcp 10.86.0.1 8600", "--rule", "kernel udp * 8601"]
            with running([*here.inside, UNET_SOCKETS, *rules, *peer("serve", "server", OURS[4])], here.env):
                status, out, err = run(*here.inside, *peer("ask", OURS[4]), env=here.env)
                require(out.strip() == "server ECONNREFUSED ECONNREFUSED server", f"the kernel's client: {status} {out}{err}")
                here.asks("ECONNREFUSED server server ECONNREFUSED", OURS[4])


def test_log():
    with place() as here:
        tells = {0: [([], {}), (["--rule", "kernel *"], {})], 1: [(["--log"], {}), ([], {"UNET_SOCKETS_LOG": "1"})]}
        for args, env in tells[0]:
            said = here.asks(" ".join(["kernel" if args else "ours"] * 4), OURS[4], *args, env=env)
            require(said == "", f"without --log it says {said}")
        for args, env in tells[1]:
            said = here.asks("kernel ours kernel ours", OURS[4], *args, "--rule", "kernel tcp *", env=env)
            lines = said.splitlines()
            right = all(line.startswith("unet-sockets: descriptor") and line.endswith("is the kernel's") for line in lines)
            require(len(lines) == len(PORTS) and right, f"with --log it says {said}")


def test_name_server_of_the_network_interface():
    """The C library's resolver asks through the kernel, in vain here, and a message says so once."""
    if not can_be_made():
        raise Skipped("needs root and network namespaces")
    with directory() as d, network_interface(UNETD, d):
        for server, is_told in ((OURS[4][:-1] + "53", True), (ELSEWHERE, False)):
            with open(f"{d}/resolv.conf", "w", encoding="utf-8") as file:
                file.write(f"nameserver {server}\noptions timeout:1 attempts:1\n")
            own = ["unshare", "--net", "--mount", "sh", "-c", f'mount --bind {d}/resolv.conf /etc/resolv.conf && exec "$@"', "sh"]
            status, out, err = run(*own, UNET_SOCKETS, *peer("resolve", "name.example"), env=environment(d))
            require(status == 0 and out == "True\n", f"it is resolved: {status} {out}{err}")
            if is_told:
                one_line(err, "unet-sockets", f"the name server {server} by the kernel")
            else:
                require(err == "", f"of {server} it says {err}")


if __name__ == "__main__":
    begin(PEERS, globals())
