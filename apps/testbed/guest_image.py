# guest_image.py - the kernel and the first files of virtual machines, out of this machine's own files and of Debian's kernel package.
#
# The initramfs has busybox and five modules. It mounts this machine's files, read-only, below a layer in the guest's memory: so a guest has
# every program of this machine at its path, and what it writes is gone with it.
import glob
import os
import shutil
import subprocess
import tempfile

from failure import Failure

KERNEL_PACKAGE = "linux-image-amd64"
BUSYBOX = "/bin/busybox"
MODULES = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console"]  # and those that they need
INSTALL = "scripts/install-packages vm, or: apt-get install qemu-system-x86 busybox-static"

# Arguments: python3, the program testbed, the directory of modules.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do insmod $module; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /host
mount -t tmpfs layer /layer
mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work root /new
for place in proc sys dev; do mount -o move /$place /new/$place; done
mkdir -p /new/dev/shm /new/dev/pts /new/lib/modules
mount -t tmpfs run /new/run
mount -t tmpfs shm /new/dev/shm
mount -t devpts pts /new/dev/pts
[ -e "/new/lib/modules/$(uname -r)" ] || ln -s "$3" "/new/lib/modules/$(uname -r)"
[ -e /new/sbin/modprobe ] || ln -s /bin/busybox /new/sbin/modprobe
ip link set lo up
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec switch_root /new "$1" -IS -c "import sys; sys.path.insert(0, '$2'); import guest_agent; guest_agent.main()"
"""


def cache():
    if os.geteuid() == 0:
        return "/var/cache/unet-testbed"
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "unet-testbed")


def run(*command, cwd=None):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=cwd)
    except OSError as error:
        raise Failure(f"no kernel for virtual machines: {command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        why = (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[-1]
        raise Failure(f"no kernel for virtual machines: {' '.join(command[:2])}: {why}")
    return done.stdout


def kernels(root):
    """Returns the kernels below `root` that have modules, as (version, file, directory of the modules)."""
    found = []
    for file in sorted(glob.glob(f"{root}/boot/vmlinuz-*")):
        version = os.path.basename(file).removeprefix("vmlinuz-")
        modules = f"{root}/lib/modules/{version}"
        if os.path.exists(f"{modules}/modules.dep") and os.access(file, os.R_OK):
            found.append((version, file, modules))
    return found


def unpack_kernel(place):
    """Unpacks Debian's kernel package in the cache. A process that does the same at this time gives the same result."""
    depends = run("apt-cache", "depends", "--important", KERNEL_PACKAGE)
    package = next((line.split()[-1] for line in depends.splitlines() if "Depends: linux-image-" in line), None)
    if package is None:
        raise Failure(f"no kernel for virtual machines: apt knows no package {KERNEL_PACKAGE}, and /boot has no kernel with modules")
    with tempfile.TemporaryDirectory(dir=cache()) as work:
        run("apt-get", "download", package, cwd=work)
        run("dpkg", "-x", *glob.glob(f"{work}/*.deb"), f"{work}/root")
        for version in os.listdir(f"{work}/root/lib/modules"):
            run(BUSYBOX, "depmod", "-b", f"{work}/root", version)
        if not os.path.exists(place):
            os.rename(f"{work}/root", place)


def find_kernel():
    place = os.path.join(cache(), "kernel")
    found = kernels("") or kernels(place)
    if not found:
        unpack_kernel(place)
        found = kernels(place)
    if not found:
        raise Failure(f"no kernel for virtual machines in {place}: remove this directory")
    return found[-1]


def modules_in_order(directory):
    """Returns the files of MODULES and of what they need, in the order of loading."""
    needs = {}
    with open(f"{directory}/modules.dep", encoding="utf-8") as file:
        for line in file:
            name, _, others = line.partition(":")
            needs[name] = others.split()
    order = []

    def add(name):
        for each in needs[name]:
            add(each)
        if name not in order:
            order.append(name)

    for name in needs:
        if os.path.basename(name).split(".")[0] in MODULES:  # one that is not there is a part of the kernel
            add(name)
    return [os.path.join(directory, each) for each in order]


def archive_entry(name, mode, data=b""):
    """One file of a cpio archive in the format "newc"."""
    numbers = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
    head = b"070701" + b"".join(b"%08X" % number for number in numbers) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def make_initramfs(modules, path):
    with open(BUSYBOX, "rb") as file:
        busybox = file.read()
    entries = [archive_entry(name, 0o40755) for name in ("bin", "modules", "proc", "sys", "dev", "host", "layer", "new")]
    entries += [archive_entry("bin/busybox", 0o100755, busybox), archive_entry("init", 0o100755, INIT.encode())]
    for number, module in enumerate(modules_in_order(modules)):
        with open(module, "rb") as file:
            entries.append(archive_entry(f"modules/{number:02}", 0o100644, file.read()))
    with open(path, "wb") as file:
        file.write(b"".join(entries) + archive_entry("TRAILER!!!", 0))


def check():
    """Refuses a machine that lacks a program for this."""
    if shutil.which("qemu-system-x86_64") is None or not os.path.exists(BUSYBOX):
        raise Failure(f"virtual machines need QEMU and a static busybox: {INSTALL}")
    with open(BUSYBOX, "rb") as file:
        if b"/ld-linux" in file.read(4096):
            raise Failure(f"{BUSYBOX} needs libraries, which a virtual machine has not yet when it starts: {INSTALL}")


def prepare(initramfs):
    """Writes the initramfs. Returns the kernel and the directory of its modules."""
    check()
    os.makedirs(cache(), 0o755, exist_ok=True)
    _, kernel, modules = find_kernel()
    make_initramfs(modules, initramfs)
    return kernel, modules
