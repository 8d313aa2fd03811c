# machine.py - what a report was measured on: processors, caches, kernel, drivers, interfaces, and what this machine does not have.
import os
import platform
import re
import shutil
import subprocess
import time

CPU = "/sys/devices/system/cpu"
NET = "/sys/class/net"


def text_of(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def processor():
    found = re.search(r"^model name\s*:\s*(.+)$", text_of("/proc/cpuinfo"), re.M)
    return found.group(1) if found else platform.machine()


def cores():
    """The cores, and where they lie: the second of a hyper-threaded pair is no core of its own."""
    allowed = sorted(os.sched_getaffinity(0))
    pairs = {text_of(f"{CPU}/cpu{core}/topology/thread_siblings_list") or str(core) for core in allowed}
    packages = {text_of(f"{CPU}/cpu{core}/topology/physical_package_id") for core in allowed}
    several = f" in {len(packages)} packages" if len(packages) > 1 else ""
    return f"{len(allowed)} processors on {len(pairs)} cores{several}"


def caches():
    """The caches of the first core, with the processors that share each."""
    base, found = f"{CPU}/cpu{min(os.sched_getaffinity(0))}/cache", []
    for entry in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        level, kind, size = (text_of(f"{base}/{entry}/{name}") for name in ("level", "type", "size"))
        if size and kind != "Instruction":
            found.append(f"L{level} {size} (processors {text_of(f'{base}/{entry}/shared_cpu_list')})")
    return ", ".join(found)


def memory():
    found = {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+)", text_of("/proc/meminfo"), re.M)}
    return f"{found.get('MemTotal', 0) / 2 ** 20:.1f} GiB, {found.get('HugePages_Total', 0)} huge pages of {found.get('Hugepagesize', 0)} KiB"


def virtual():
    kind = output_of("systemd-detect-virt", "--vm")
    if kind and kind != "none":
        return f"a virtual machine ({kind})"
    return "a virtual machine" if " hypervisor" in text_of("/proc/cpuinfo") else ""


def interfaces():
    """Each network interface that is a device, with its driver."""
    found = []
    for name in sorted(os.listdir(NET)) if os.path.isdir(NET) else []:
        driver = os.path.basename(os.path.realpath(f"{NET}/{name}/device/driver"))
        if os.path.exists(f"{NET}/{name}/device/driver"):
            speed = text_of(f"{NET}/{name}/speed")
            found.append(f"{name} ({driver}{f', {speed} Mbit/s' if speed.isdigit() else ''})")
    return ", ".join(found)


def not_there():
    """Returns pairs [what, why]: a thing that paths use and this machine lacks, and the reason."""
    lacks = []
    if not interfaces():
        lacks.append(["a network card", "no interface has a device: wires are memif, veth pairs and tap"])
    if not re.search(r"^HugePages_Total:\s+[1-9]", text_of("/proc/meminfo"), re.M):
        lacks.append(["huge pages", "none are reserved (vm.nr_hugepages): DPDK runs with --no-huge"])
    if os.geteuid() != 0:
        lacks.append(["network namespaces", "they need root: paths over veth pairs are left out"])
    for program, what in (("iperf3", "iperf3"), ("sockperf", "sockperf"), ("redis-server", "redis"), ("nginx", "nginx"), ("mpirun", "Open MPI")):
        if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            lacks.append([what, "it is not installed (scripts/install-packages bench)"])
    if len(os.sched_getaffinity(0)) < 3:
        lacks.append(["a core for unetd alone", "two processors: programs, kernel and unetd share them"])
    return lacks


def facts(version):
    """Returns the facts about this machine that the page prints, by name."""
    release = platform.freedesktop_os_release() if os.path.exists("/etc/os-release") else {}
    return {"host": platform.node(), "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "version": version, "processor": processor(),
            "cores": cores(), "caches": caches(), "memory": memory(), "virtual": virtual(),
            "kernel": f"{platform.system()} {platform.release()}", "system": release.get("PRETTY_NAME", ""),
            "DPDK": output_of("pkg-config", "--modversion", "libdpdk"), "interfaces": interfaces(),
            "governor": text_of(f"{CPU}/cpu0/cpufreq/scaling_governor")}
