#!/usr/bin/env python3
# vm.py - hosts in virtual machines: emulated network cards on a PCI bus, handed over by vfio or uio, driven by DPDK.
#
# Usage: vm.py TESTBED UNET_BENCH [long]   (long: each model of a card, each way to hand it over, with and without hugepages)
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time

from daemon import Failure, Skipped, directory, main, one_line, require

TESTBED, BENCH = (os.path.abspath(path) for path in sys.argv[1:3])
LONG = sys.argv[3:] == ["long"]
NAME = f"v{os.getpid()}"
SKIP = 77
WAIT = 600  # seconds; an upper bound, also without KVM
CARD = "0000:00:04.0"
MODELS = ("virtio", "e1000", "e1000e", "vmxnet3")
SIZES = (0, 1, 48, 49, 700, 1472, 1473, 5000, 20000, 65536)
UNETD = f"unetd --socket /run/unet.sock --host h0 --port dpdk:{CARD},memory=64"


def run(command, *args, **how):
    done = subprocess.run([TESTBED, command, "--name", NAME, *args], capture_output=True, text=True, timeout=WAIT, check=False, **how)
    return done.returncode, done.stdout, done.stderr


def good(*args, **how):
    status, out, err = run(*args, **how)
    require(status == 0, f"testbed {' '.join(args)}: exit status {status}: {out}{err}")
    return out


def on(host, script):
    return run("exec", host, "--", "sh", "-c", script)


def good_on(host, script):
    status, out, err = on(host, script)
    require(status == 0, f"{script}: exit status {status}: {out}{err}")
    return out


def machines():
    """The QEMU processes of this testbed."""
    done = subprocess.run(["pgrep", "-f", f"qemu.*unet-testbed/{NAME}/"], capture_output=True, text=True, check=False)
    return done.stdout.split()


@contextlib.contextmanager
def up(*args):
    begin = time.monotonic()
    said = good("up", "--vm", *args)
    print(f"      up {' '.join(args)}: {time.monotonic() - begin:.1f} s", flush=True)
    try:
        yield said
    finally:
        status, out, err = run("down")
    require(status == 0 and not machines(), f"down: {out}{err}; QEMU left: {machines()}")


def transfer(hosts=2):
    """Echoes of each size between each two neighbours, compared with what was sent."""
    serving = [subprocess.Popen([TESTBED, "exec", "--name", NAME, str(host), "--", "echo_server", "echo"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL) for host in range(hosts)]
    try:
        for host in range(hosts):
            script = "set -e; for size in " + " ".join(map(str, SIZES)) + "; do " \
                     f"echo_client --wait 30 --count 20 --size $size echo@h{(host + 1) % hosts}; done"
            good_on(f"h{host}", script)
    finally:
        for each in serving:
            each.terminate()
            each.wait(WAIT)
    report = json.loads(good_on("0", "unetctl ports --json"))
    counters = report[0]["driver"] if "driver" in report[0] else report[0]
    wrong = {name: counters[name] for name in ("rx_errors", "tx_errors", "rx_no_buffer") if counters.get(name)}
    require(not wrong, f"the port counts errors: {wrong}")


def test_programs():
    """Input, output, signals and exit status of programs pass, more than one at a time."""
    with up():
        require(sorted(good("exec", "all", "--", "sh", "-c", "echo of $UNET_RANK").splitlines()) == ["h0| of 0", "h1| of 1"], "on all")
        require(on("h1", "exit 7")[0] == 7, "exit status")
        text = "".join(f"line {number}\n" for number in range(50000))
        require(good("exec", "0", "--", "cat", input=text) == text, "the input did not come back")
        require(run("exec", "0", "--", "no-such-program")[0] == 1, "a program that is not there")
        trap = "trap 'exit 9' TERM; echo on; while :; do sleep 0.05; done"
        one = subprocess.Popen([TESTBED, "exec", "--name", NAME, "0", "--", "sh", "-c", trap], stdout=subprocess.PIPE, text=True)
        require("on" in one.stdout.readline(), "the program says nothing")
        one.terminate()
        require(one.wait(WAIT) == 9, f"the signal did not reach the program: {one.returncode}")
        one.stdout.close()
        # A reader that goes ends the program, and the next program's output begins with its own.
        require(subprocess.run(f"{TESTBED} exec --name {NAME} 0 -- yes | head -1", shell=True, capture_output=True, text=True,
                               timeout=WAIT, check=False).stdout == "y\n", "yes | head")
        require(good_on("0", "echo next") == "next\n", "output of an earlier program")
        require(not good_on("0", "pgrep -x yes || true"), "yes goes on")
        require("unetd ready at" in good("logs", "1") and "in virtual machines" in run("list")[1], "logs and list")
        require(len(json.loads(good("bench", "--size", "64", "--seconds", "0.05", "--json"))) == 4, "bench")
        transfer()
        report()
        card_changes_hands()


def report():
    """The page of a report has round trips and streams of both ways between the hosts."""
    with directory() as d:
        with open(f"{d}/hosts", "w", encoding="utf-8") as file:
            file.writelines(f"{host} testbed:{NAME}\n" for host in ("h0", "h1"))
        done = subprocess.run([BENCH, "report", "--hosts", f"{d}/hosts", "--quick", "--directory", f"{d}/page"], capture_output=True, text=True,
                              timeout=WAIT, check=False)
        require(done.returncode == 0, f"report: exit status {done.returncode}: {done.stderr}")
        with open(f"{d}/page/report.json", encoding="utf-8") as file:
            records = json.load(file)["rounds"][0]
        measured = {(record["path"], record["bench"], record["size"]) for record in records if record["p50"]}
        missing = {(path, bench, size) for path in ("h0 > h1", "h1 > h0") for bench in ("hosts-rtt", "hosts-bandwidth") for size in (48, 16384)} - measured
        require(not missing and os.path.getsize(f"{d}/page/index.html") > 10000, f"the report lacks {sorted(missing)}: {records}")


def card_changes_hands():
    """A card of a living unetd stays; after its death the kernel gets it back, and it can be taken again."""
    card = json.loads(good_on("0", "unetctl nic list --json"))[0]
    require(card["card"] == CARD and card["driver"] == "vfio-pci" and "unetd" in card["used_by"] and card["iommu_group"], f"{card}")
    status, _, err = on("0", f"unetctl nic give {CARD}")
    require(status == 1, f"a card in use was given: {status}")
    one_line(err, "unetctl", "unetd", "end it first")
    status, out, err = on("0", UNETD.replace("/run/unet.sock", "/run/second.sock"))
    require(status == 1 and "another process has it" in out + err, f"a second unetd: {out}{err}")
    good_on("0", "pkill -KILL -x unetd; while pgrep -x unetd; do sleep 0.1; done")
    require("is the kernel's again: virtio-pci" in good_on("0", f"unetctl nic give {CARD}"), "give")
    status, out, err = on("0", UNETD)
    require(status == 1 and "virtio-pci has it" in out + err and "unetctl nic take" in out + err, f"a card of the kernel: {out}{err}")
    card = json.loads(good_on("0", "unetctl nic list --json"))[0]
    require(card["interfaces"] and not card["used_by"], f"{card}")
    name = card["interfaces"][0]
    good_on("0", f"ip link set {name} up")
    status, _, err = on("0", f"unetctl nic take {name}")
    require(status == 1 and f"ip link set {name} down" in err, f"an interface that is up: {err}")
    good_on("0", f"ip link set {name} down")
    require(f"unetd --port dpdk:{CARD}" in good_on("0", f"unetctl nic take {name}"), "take")
    good_on("0", f"{UNETD} >/run/log 2>&1 & for i in $(seq 100); do grep -q 'ready at' /run/log && exit 0; sleep 0.1; done; cat /run/log; exit 1")


def test_each_model():
    if not LONG:
        return
    status, _, err = run("up", "--vm", "--pci", "noiommu")
    run("down")
    no_iommu = [] if status == 1 and "CONFIG_VFIO_NOIOMMU" in err else ["noiommu"]
    print("      noiommu: " + ("the kernel of the guests has it" if no_iommu else err.strip()), flush=True)
    for model in MODELS:
        for pci in ("vfio", *no_iommu, "uio"):
            with up("--nic", model, "--pci", pci):
                transfer()
        with up("--nic", model, "--hugepages", "0", "-n", "3"):
            transfer(3)


def test_refusals():
    """A card without an IOMMU needs hugepages: the sentence says so, and the consoles stay."""
    if not LONG:
        return
    status, _, err = run("up", "--vm", "--pci", "uio", "--hugepages", "8")
    require(status == 1 and "needs 64 MiB of free hugepages" in err, f"{status}: {err}")
    kept = err.split("consoles and logs: ")[1].split(")")[0]
    require(os.path.exists(f"{kept}/h0.console.log"), f"no console in {kept}")
    run("down")
    require(not os.path.exists(kept), f"{kept} is left")


if shutil.which("qemu-system-x86_64") is None or not os.path.exists("/bin/busybox"):
    print("skipped: virtual machines need QEMU and a static busybox: scripts/install-packages vm")
    sys.exit(SKIP)
try:
    sys.exit(main(dict(globals())))
except (Failure, Skipped) as failure:
    sys.exit(str(failure))
finally:
    subprocess.run([TESTBED, "down", "--name", NAME], check=False, capture_output=True, timeout=WAIT)
