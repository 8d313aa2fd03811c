#!/usr/bin/env python3
# packages.py - builds the Debian packages, installs them in a new minimal Debian, and uses, upgrades, removes and purges them there. A
# second one boots, with systemd, and runs booted.sh. The tarball runs in a third one, which has no library that it needs.
#
# Usage: packages.py SOURCE
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import tour
from tour import wait_until

SOURCE = os.path.abspath(sys.argv[1])
SKIP = 77
SOCKET = "/run/unet/unet.sock"
TOOLS = ["iperf3", "iproute2", "procps"]  # for the tour, in the new Debian; BY_PIP has the compiler
INIT = ["systemd", "systemd-sysv", "dbus", "procps"]
UNIT = """[Unit]
SuccessAction=exit
FailureAction=exit
FailureActionExitStatus=1
[Service]
Type=oneshot
ExecStart=/srv/booted.sh
StandardOutput=file:/srv/said
StandardError=file:/srv/said
TimeoutStartSec=300
"""
# What the machine and dpkg change; a package leaves nothing elsewhere.
NOT_COMPARED = re.compile(r"/(proc|sys|dev|tmp|run|var/lib/(dpkg|apt)|var/cache|var/log)(/.*)?|/etc/(ld\.so\.cache|\.pwd\.lock)|/etc/(passwd|group|shadow|gshadow)-?"
                          r"|/var/lib/systemd(/.*)?|.*/__pycache__(/.*)?")


def must(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def field(package, name):
    return must("dpkg-deb", "-f", package, name).strip()


def commands(document, *programs):
    """Commands of a document, as written: the first one by each of these programs."""
    with open(os.path.join(SOURCE, document), encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.startswith("    ")]
    return [next((line for line in lines if line.startswith(program)), f"false  # {document} has no '{program}'") for program in programs]


# Installs the Python package by pip over libunet-dev.
BY_PIP = commands("docs/PYTHON.md", "sudo apt install", "python3 -m venv", "venv/bin/pip install")


# ---- outside: the packages, and a Debian with what they depend on


def dependencies(packages):
    ours = {field(package, "Package") for package in packages}
    named = ", ".join(field(package, name) for package in packages for name in ("Depends", "Pre-Depends"))
    first = (re.split("[|(:]", each)[0].strip() for each in named.split(","))  # of alternatives
    return sorted({each for each in first if each and each not in ours})


def new_debian(root, *packages):
    """A new minimal Debian with these packages; says why there is none."""
    more = [f"--include={','.join(packages)}"] if packages else []
    done = subprocess.run([SOURCE + "/scripts/new-debian", root, "--variant=minbase", *more],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout[-4000:])
        return "mmdebstrap makes no root: " + done.stdout.strip().splitlines()[-1]
    return None


def next_release(packages, directory):
    """The same packages with a higher version."""
    for package in packages:
        content = os.path.join(directory, "content")
        must("dpkg-deb", "-R", package, content)
        control = os.path.join(content, "DEBIAN", "control")
        with open(control, encoding="utf-8") as file:
            version = re.escape(field(package, "Version"))
            text = re.sub(rf"(?<=^Version: ){version}$|(?<=\(= ){version}(?=\))", r"\g<0>+next", file.read(), flags=re.M)
        with open(control, "w", encoding="utf-8") as file:
            file.write(text)
        must("dpkg-deb", "-b", content, directory)
        shutil.rmtree(content)


def outside():
    if os.geteuid() != 0 or not all(map(shutil.which, ("mmdebstrap", "dh_clean", "dpkg-buildflags"))):
        print("skipped: that needs root, mmdebstrap and debhelper")
        return SKIP
    with tempfile.TemporaryDirectory(prefix="unet-packages-", dir="/var/tmp") as there:
        root, out, bare = there + "/root", there + "/packages", there + "/bare"
        if reason := new_debian(bare):  # later reasons are faults of the packages or documents
            print("skipped: " + reason)
            return SKIP
        must(SOURCE + "/scripts/packages", *(["--tarball"] if shutil.which("patchelf") else []), out)
        packages = sorted(glob.glob(out + "/*.deb"))
        if shutil.which("lintian"):
            print(must("lintian", "--allow-root", "--fail-on", "error", *packages))
        if reason := new_debian(root, *dependencies(packages), *TOOLS, *BY_PIP[0].split()[3:]):
            sys.exit(reason)
        os.makedirs(root + "/tmp/next")
        next_release(packages, root + "/tmp/next")
        shutil.copytree(out, root + "/tmp/packages")
        shutil.copytree(SOURCE + "/apps/examples", root + "/tmp/examples")
        shutil.copytree(SOURCE + "/python", root + "/tmp/python")
        result = in_namespaces("packages", root)
        if shutil.which("systemd-nspawn"):
            booted = there + "/booted"
            if reason := new_debian(booted, *dependencies(packages), *INIT):
                sys.exit(reason)
            shutil.copytree(out, booted + "/srv/packages")
            result = result or in_namespaces("boot", booted)
        else:
            print("not tried under systemd: scripts/install-packages vm")
        for tarball in glob.glob(out + "/*.tar.gz"):
            must("tar", "-C", bare + "/srv", "-xf", tarball)
            result = result or in_namespaces("tarball", bare)
        return result


def in_namespaces(what, root):
    """This script's other half in namespaces of its own, so that nothing stays when it ends."""
    return subprocess.run(["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", sys.executable, *sys.argv, what, root],
                          check=False).returncode


# ---- inside: in namespaces that end with this process


class Root:
    """The new Debian."""

    def __init__(self, path):
        self.path = path
        must("mount", "--bind", path, path)  # `ip netns` wants the root to be a mount
        for kind in ("proc", "sysfs"):
            must("mount", "-t", kind, kind, path + {"proc": "/proc", "sysfs": "/sys"}[kind])
        must("mount", "--rbind", "/dev", path + "/dev")
        must("mount", "-t", "tmpfs", "tmpfs", path + "/run")
        must("ip", "link", "set", "lo", "up")
        os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin:/tmp/examples"
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"

    def run(self, command):
        return must("chroot", self.path, "bash", "-c", command)

    def start(self, command):
        return subprocess.Popen(["chroot", self.path, "bash", "-c", "exec " + command], stdin=subprocess.DEVNULL)

    def read(self, path):
        with open(self.path + path, encoding="utf-8") as file:
            return file.read()

    def files(self):
        found = set()
        for directory, directories, files in os.walk(self.path):
            inside = directory[len(self.path):]
            directories[:] = [each for each in directories if not NOT_COMPARED.fullmatch(f"{inside}/{each}")]
            found |= {f"{inside}/{each}" for each in directories + files}
        return {each for each in found if not NOT_COMPARED.fullmatch(each)} | set(self.read("/etc/passwd").split("\n")) | set(
            self.read("/etc/group").split("\n"))


def service_command(root):
    """What the unit of the service starts."""
    line, = re.findall(r"^ExecStart=(.*)$", root.read("/lib/systemd/system/unetd.service"), re.M)
    options, = re.findall(r'^UNETD_OPTIONS="(.*)"$', root.read("/etc/default/unetd"), re.M)
    return line.replace("$UNETD_OPTIONS", options)


def build_examples(root):
    """By their first lines, with libunet-dev."""
    for name in ("hello.cc", "echo_server.cc", "echo_client.cc"):
        command, = re.findall(r"^// +((?:cc|c\+\+) .*)$", root.read("/tmp/examples/" + name), re.M)
        root.run("cd /tmp/examples && " + command)


def take_tour(root):
    walk = tour.Tour("unetctl", "/", ("chroot", root.path), root.path)
    try:
        for line in tour.commands(SOURCE + "/README.md"):
            walk.run(line.replace("./run ", "").replace("build/apps/examples/", "/tmp/examples/"))
    finally:
        walk.end()
    if fault := walk.fault(tour.WORDS + tour.TESTBED_WORDS):
        sys.exit(fault)


def upgrade_under_applications(root):
    """An application with a bound name and a channel over the NI, while dpkg replaces library, programs and unetd."""
    service = root.start(service_command(root))
    wait_until(SOCKET, lambda: tour.takes_connections(root.path + SOCKET))
    if "unet" not in root.run("ps -o user= -C unetd").split():
        sys.exit("unetd does not run as its own user:\n" + root.run("ps -ef"))
    server = root.start("/tmp/examples/echo_server lasting")
    wait_until("the server", lambda: "lasting" in root.run("unetctl names"))
    # The receiver has the end of the stream only if its channel lasts.
    receiver = root.start("unetcat -l inbox > /tmp/received")
    wait_until("the receiver", lambda: "inbox" in root.run("unetctl names"))
    sender = root.start("bash -c '(echo before; while [ ! -e /tmp/upgraded ]; do sleep 0.1; done; echo after) | unetcat inbox'")
    wait_until("the first line", lambda: root.read("/tmp/received") == "before\n")
    before = root.run("unetctl stats | grep -A9 '\"ni\": {' | grep '\"pid\"'")
    print(root.run("dpkg -i /tmp/next/*.deb"))
    if root.run("unetctl stats | grep -A9 '\"ni\": {' | grep '\"pid\"'") == before:
        sys.exit("the old unetd still serves after the upgrade")
    root.run("touch /tmp/upgraded")
    if (sender.wait(60), receiver.wait(60)) != (0, 0) or root.read("/tmp/received") != "before\nafter\n":
        sys.exit("the upgrade has broken a stream")
    for path in ("", " --path ni"):
        root.run(f"/tmp/examples/echo_client{path} lasting")
    if server.poll() is not None:
        sys.exit("the server has not survived the upgrade")
    server.terminate()
    service.terminate()
    if service.wait(60) != 0:
        sys.exit("the service did not end well")


def try_tarball(root):
    root.run("mv /srv/unet-* /srv/unet")
    said = root.run("cd /srv/unet/bin && ./unet-run --port dpdk:net_memif0,role=server,socket=/tmp/wire -- ./unetctl ports")
    if "net_memif" not in said:
        sys.exit("the tarball's programs show no wire:\n" + said)
    root.run("cd / && /srv/unet/bin/unet-run --port nowhere -- /srv/unet/bin/unet-sockets true")
    print("the tarball runs where it was unpacked")
    return 0


def boot(root):
    """Ends as booted.sh ends."""
    shutil.copy(SOURCE + "/tests/system/booted.sh", root + "/srv")
    unit = root + "/etc/systemd/system/booted.service"
    with open(unit, "w", encoding="ascii") as file:
        file.write(UNIT)
    os.makedirs(root + "/etc/systemd/system/multi-user.target.wants", exist_ok=True)
    os.symlink("../booted.service", root + "/etc/systemd/system/multi-user.target.wants/booted.service")
    must("mount", "-t", "tmpfs", "tmpfs", "/run")  # for systemd-nspawn, which leaves directories there
    must("mount", "-t", "proc", "proc", "/proc")
    done = subprocess.run(["systemd-nspawn", "--quiet", "--boot", "--private-network", "--register=no", "--keep-unit", "-D", root],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    with open(root + "/srv/said", encoding="utf-8") as file:
        print(file.read()[-4000:])
    if done.returncode != 0:
        sys.exit(f"booted.sh failed under systemd: {done.returncode}:\n{done.stdout[-2000:]}")
    print("installed, kept a stream, restarted, stopped and purged under systemd")
    return 0


def try_packages(root):
    names = " ".join(field(package, "Package") for package in glob.glob(root.path + "/tmp/packages/*.deb"))
    make, install, doctor = commands("README.md", "scripts/packages", "sudo apt install", "unetctl doctor")
    before = root.files()
    # The packages are made outside. The last word of that line is the directory that the next line reads.
    begin = 'set -e; cd /tmp; exec </dev/null; sudo() { "$@"; }'
    print(root.run("; ".join((begin, f"mv packages {make.split()[-1]}", install, doctor))))
    build_examples(root)
    take_tour(root)
    root.run("python3 -B -c 'import unet; from unet import aio, am, rpc; print(unet.__version__)'")
    said = root.run("\n".join((begin, *BY_PIP, "venv/bin/python3 -c 'import unet; print(unet.__file__)'")))
    if "/tmp/venv/" not in said.splitlines()[-1]:
        sys.exit("pip has not installed the package that is imported:\n" + said)
    upgrade_under_applications(root)
    root.run("dpkg -r " + names)
    if "UNETD_OPTIONS" not in root.read("/etc/default/unetd"):
        sys.exit("removal has taken the configuration, which only a purge may")
    root.run("dpkg -P " + names)
    left = sorted(root.files() - before)
    if left:
        sys.exit("the purge leaves: " + ", ".join(left))
    print("installed, toured, upgraded under applications, removed and purged")
    return 0


if len(sys.argv) == 2:
    sys.exit(outside())
sys.exit(boot(sys.argv[3]) if sys.argv[2] == "boot" else {"packages": try_packages, "tarball": try_tarball}[sys.argv[2]](Root(sys.argv[3])))
