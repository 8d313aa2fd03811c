# vm_hosts.py - hosts in virtual machines of QEMU, each with an emulated network card, and a unetd that drives it over the PCI bus.
#
# The wire is a Unix datagram socket of each QEMU process, or a hub in one more QEMU process. guest_client.py runs programs on the hosts.
import os
import shutil
import subprocess
import sys
import time

from failure import Failure
import guest_client
import guest_image
import interruption
import namespace_hosts
import namespaces
import processes
import programs
import state as states
import wires

MODELS = {"virtio": "virtio-net-pci", "e1000": "e1000", "e1000e": "e1000e", "vmxnet3": "vmxnet3"}
ADDRESS = "0000:00:04.0"  # of the card in each guest
PACKET_MEMORY = 64  # MiB: a guest is small
MEMORY = 512  # MiB
BOOT_SECONDS = {"kvm": 60, "tcg": 300}
READY_SECONDS = 120
SWITCH = "switch"  # as in namespaces: hosts are called h0, h1, ...

# How `unetctl nic take` hands the card over. vfio has an IOMMU, the others have none.
DRIVERS = ["vfio", "noiommu", "uio"]
PREPARE = """set -e
echo "$1" >/proc/sys/vm/nr_hugepages
unetctl nic take "$2" --driver "$3"
"""


def accelerator(wanted):
    if wanted:
        return wanted
    # Without vmx or svm, /dev/kvm may open all the same. KVM then emulates most instructions, more slowly than QEMU does.
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        able = any(word in ("vmx", "svm") for line in file if line.startswith("flags") for word in line.split())
    return "kvm" if able and os.access("/dev/kvm", os.R_OK | os.W_OK) else "tcg"


class VmHost(namespace_hosts.NamespaceHost):
    def command(self, program, seconds=20):
        code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import guest_client; guest_client.main(*sys.argv[1:])"
        return [sys.executable, "-IS", "-c", code, programs.own_file(), self.record["directory"], str(seconds), *program]

    def place(self):
        return "virtual machine"

    def start_unetd(self):
        self.launch([])

    def wait_ready(self):
        end = time.monotonic() + READY_SECONDS
        while "unetd ready at" not in self.log():
            if self.unetd.poll() is not None or time.monotonic() > end:
                raise self.not_ready(self.unetd.poll() is not None, READY_SECONDS)
            time.sleep(0.05)

    # ---- the machine

    def boot(self, command):
        """Starts QEMU; wait_booted() completes that."""
        os.makedirs(self.record["directory"], 0o700)
        self.machine = start_qemu(command, self.record["directory"])

    def wait_booted(self):
        while not os.path.exists(f"{self.record['directory']}/session0"):
            if self.machine.poll() is not None:
                raise Failure(f"QEMU of {self.name} did not start: {last_line(self.record['directory'] + '/qemu.log')}")
            time.sleep(0.02)
        words = [str(self.state["hugepages"]), ADDRESS, self.state["driver"]]
        done = subprocess.run(self.command(["sh", "-c", PREPARE, "testbed", *words], BOOT_SECONDS[self.state["accelerator"]]),
                              env=self.environment(), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            why = (done.stdout + done.stderr).strip() or f"it ended with {done.returncode}"
            raise Failure(f"the virtual machine {self.name} is not ready: {why.splitlines()[-1]}")

    def console(self):
        with open(self.record["directory"] + "/console.log", encoding="utf-8", errors="replace") as file:
            return file.read()


def last_line(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().strip().splitlines()
    return lines[-1] if lines else f"{path} is empty"


def start_qemu(command, directory):
    with open(f"{directory}/qemu.log", "wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def describe(options, name, files):
    """Returns the state of a testbed before it is made; it names every part."""
    hosts = []
    for index in range(options.hosts_wanted):
        place = f"{files}/h{index}"
        port = f"dpdk:{ADDRESS},mtu={options.mtu},memory={PACKET_MEMORY}"
        hosts.append({"name": f"h{index}", "directory": place, "socket": "/run/unet.sock", "log": f"{place}/unetd.log",
                      "ports": [wires.wrapper(options.faults, options.seed + index) + port]})
    how = accelerator(options.accelerator)
    switch = f"{files}/{SWITCH}" if options.bridge or options.hosts_wanted > 2 else None
    return {"kind": "vm", "hosts": hosts, "wire": f"{options.nic} by {options.pci} in virtual machines, {how}", "mtu": options.mtu,
            "bridge": switch is not None, "switch": switch, "place": files, "nic": options.nic, "driver": options.pci,
            "hugepages": options.hugepages, "accelerator": how}


def wire(number, here, there):
    """One end of a wire between two QEMU processes."""
    return ["-netdev", f"dgram,id=wire{number},local.type=unix,local.path={here},remote.type=unix,remote.path={there}"]


def switch_command(state):
    place = state["switch"]
    command = [shutil.which("qemu-system-x86_64"), "-machine", "none", "-nodefaults", "-display", "none"]
    for number, host in enumerate(state["hosts"]):
        command += wire(number, f"{place}/port{number}", host["directory"] + "/wire")
        command += ["-netdev", f"hubport,id=port{number},hubid=0,netdev=wire{number}"]
    return command


def guest_command(state, number, kernel, modules):
    directory = state["hosts"][number]["directory"]
    far_end = f"{state['switch']}/port{number}" if state["switch"] else state["hosts"][1 - number]["directory"] + "/wire"
    iommu = state["driver"] == "vfio"
    how = state["accelerator"]
    card = f"{MODELS[state['nic']]},netdev=wire0,mac={namespaces.mac(number)},addr=4,romfile="
    if state["nic"] == "virtio" and iommu:
        card += ",iommu_platform=on,disable-legacy=on"
    words = f"console=ttyS0 quiet panic=-1 intel_iommu=on -- {sys.executable} {programs.own_file()} {modules}"
    command = [shutil.which("qemu-system-x86_64"), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
               "-machine", f"q35,accel={how}" + (",kernel-irqchip=split" if how == "kvm" else ""), "-cpu", "max",
               "-m", str(MEMORY), "-kernel", kernel, "-initrd", state["place"] + "/initramfs", "-append", words,
               "-chardev", f"file,id=console,path={directory}/console.log", "-serial", "chardev:console",
               "-qmp", f"unix:{directory}/qmp,server=on,wait=off",
               *(["-device", "intel-iommu,intremap=on"] if iommu else []), *wire(0, directory + "/wire", far_end), "-device", card,
               "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
               "-device", "virtio-9p-pci,fsdev=host,mount_tag=host", "-device", f"virtio-serial-pci,max_ports={guest_client.SESSIONS + 1}"]
    for session in range(guest_client.SESSIONS):
        command += ["-chardev", f"socket,id=session{session},path={directory}/session{session},server=on,wait=off",
                    "-device", f"virtserialport,chardev=session{session},name=testbed.{session}"]
    return command


def make(state):
    """Makes everything except the unetds."""
    kernel, modules = guest_image.prepare(state["place"] + "/initramfs")
    if state["switch"]:
        os.mkdir(state["switch"], 0o700)
        start_qemu(switch_command(state), state["switch"])
    hosts = [VmHost(state, record) for record in state["hosts"]]
    for number, host in enumerate(hosts):
        host.boot(guest_command(state, number, kernel, modules))
    for host in hosts:
        host.wait_booted()


def members(place):
    """Returns the QEMU processes of the testbed with its files in `place`, in the form of processes.end()."""
    def is_meant(pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = os.fsdecode(file.read()).split("\0")
        except OSError:
            return False
        return "qemu-system" in words[0] and any(f"local.path={place}/" in word for word in words)

    return [(pid, is_meant) for entry in os.listdir("/proc") if entry.isdigit() and is_meant(pid := int(entry))]


def remove(state):
    """Ends the machines, and with them every program on them."""
    processes.end(lambda: members(state["place"]) + namespace_hosts.recorded(state))


def consoles_of_failed(name):
    return states.directory(name) + ".failed"


def keep_consoles(state):
    """Copies the consoles and logs of a testbed that failed. Returns their directory, which the next `up` or `down` removes."""
    place = consoles_of_failed(state["name"])
    os.makedirs(place, 0o700)
    for host in state["hosts"]:
        for name in ("console.log", "qemu.log", "unetd.log"):
            if os.path.exists(f"{host['directory']}/{name}"):
                shutil.copyfile(f"{host['directory']}/{name}", f"{place}/{host['name']}.{name}")
    return place
