# wires.py - the specifications of the hosts' ports, from the words of the command line.
import re

from failure import Usage

WIRES = ["af_packet", "af_xdp", "memif", "pcap"]
PROBABILITY = re.compile(r"(\d+(\.\d*)?|\.\d+)%?")
DURATION = re.compile(r"\d+(\.\d+)?(ns|us|ms|s)")
RATE = re.compile(r"\d+(\.\d+)?[kKMG]?")


def probability(text):
    if not PROBABILITY.fullmatch(text) or float(text.rstrip("%")) > (100 if text.endswith("%") else 1):
        raise ValueError("a probability such as 0.01 or 1%")
    return text


def delay(text):
    if not 1 <= len(text.split("-")) <= 2 or not all(DURATION.fullmatch(part) for part in text.split("-")):
        raise ValueError("a time such as 50us, or a range such as 10us-1ms")
    return text


def rate(text):
    if not RATE.fullmatch(text):
        raise ValueError("bits per second such as 100M")
    return text


# Options of `up` and of the faulty driver: check, and help text.
FAULTS = {
    "loss": (probability, "P", "each frame is lost with this probability: 0.01 or 1%%"),
    "duplicate": (probability, "P", "... is sent twice"),
    "reorder": (probability, "P", "... is overtaken by later ones"),
    "corrupt": (probability, "P", "... has some bits changed"),
    "delay": (delay, "TIME", "each frame takes so much longer: 50us, or 10us-1ms for anything between"),
    "rate": (rate, "BITS", "bits per second: 100M"),
}


def check_fault(name, text):
    try:
        return FAULTS[name][0](text)
    except ValueError as error:
        raise Usage(f"--{name} '{text}': {error} is wanted") from None


def wrapper(faults, seed):
    """Returns the prefix for `faults` by name. Each host needs its own seed, or all would lose the same frames."""
    if not faults:
        return ""
    options = ",".join(f"{name}={value}" for name, value in faults.items())
    return f"faulty:{options},seed={seed} / "


def interface_wire(wire, mtu):
    if wire == "pcap":
        return f"pcap:iface=eth0,mtu={mtu}"
    return f"dpdk:net_{wire}0,iface=eth0,mtu={mtu}"


def memif_wire(host, files, mtu):
    """Returns one end; the first host is the server. The socket file belongs to the user that made the testbed."""
    role = "server" if host == 0 else "client"
    return f"dpdk:net_memif0,role={role},socket={files}/memif.sock,mtu={mtu}"


def port(options, host, files):
    """Returns the port specification of host number `host`."""
    wire = memif_wire(host, files, options.mtu) if options.wire == "memif" else interface_wire(options.wire, options.mtu)
    return wrapper(options.faults, options.seed + host) + wire


def check(options):
    """Refuses wires that cannot be built, before anything is made."""
    if options.wire != "memif":
        return
    more = "; more hosts or a bridge: --wire af_packet, af_xdp or pcap"
    if options.bridge:
        raise Usage("--bridge: a memif is memory of two hosts, without frames for a bridge" + more)
    if options.hosts_wanted > 2:
        raise Usage(f"-n {options.hosts_wanted}: a memif joins two hosts and no others" + more)
