# command_line.py - the command line, with a help text and examples for each command.
import argparse
import re

from failure import Usage
import option_table
import state as states
import vm_hosts
import wires
from version import VERSION

HOSTS_MAX = 32

DESCRIPTION = """\
testbed - hosts to try U-Net between: network namespaces or virtual machines of this machine joined by a wire, each with its
own unetd; or real hosts reached by ssh, with the same commands."""

EPILOG = """\
For example, four hosts on a bridge, an echo server on h2, a client on h0, and a measurement between each two:
  testbed up -n 4
  testbed exec 2 -- echo_server echo &
  testbed exec 0 -- echo_client --wait 5 echo@h2
  testbed bench
  testbed down

testbed COMMAND --help describes one command. Namespaces need root."""

UP = """\
For example:
  testbed up -n 2 --wire memif                 two hosts that share memory
  testbed up -n 3 --loss 1% --delay 50us-1ms   a bad network
  testbed up --vm --nic e1000e                 two virtual machines, each with a network card on its PCI bus
  testbed up --hosts lab.txt                   real hosts; lab.txt has a line for each, NAME SSH-TARGET PORT:
      alpha  root@10.0.0.1  dpdk:net_af_xdp0,iface=eth1
      beta   root@10.0.0.2  dpdk:net_af_xdp0,iface=eth1

Hosts are called h0, h1, ... and have, but for memif, an interface eth0 with address 10.85.0.1, 10.85.0.2, ... Two hosts share one veth
pair; more, or with --bridge, are ports of a bridge in its own namespace. A memif joins exactly two hosts.

Virtual machines need QEMU and a static busybox (scripts/install-packages vm), but not root. Their kernel is that of /boot, or Debian's
package, which is downloaded once. They see the files of this machine, and write into memory of their own. unetd drives their card
at 0000:00:04.0 by DPDK. Their wire is a socket between the QEMU processes, or a hub; no frame reaches this machine's network.

The command returns when every unetd is ready and each pair of hosts has exchanged an echo. If that fails, it removes everything."""

EXEC = """\
For example:
  testbed exec 2 -- echo_server echo          a program of the project, or any other, on host h2
  testbed exec h0 -- unetctl all
  testbed exec all -- unetctl drops           on all hosts at once, each line after its host's name

The program finds its unetd by UNET_NI, its host's number and their count in UNET_RANK and UNET_SIZE. Its exit status
becomes that of this command, and signals reach it. `testbed down` ends what still runs."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Usage(f"{message} ({self.prog} --help lists the options)")


def hosts_wanted(text):
    if not re.fullmatch(r"\d{1,4}", text) or not 2 <= int(text) <= HOSTS_MAX:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of hosts from 2 to {HOSTS_MAX}")
    return int(text)


def whole(least, most):
    def parse(text):
        if not re.fullmatch(r"\d{1,18}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from {least} to {most}")
        return int(text)
    return parse


def seconds(text):
    if not re.fullmatch(r"\d{1,4}(\.\d+)?", text) or not 0.01 <= float(text) <= 3600:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time from 0.01 to 3600 seconds")
    return float(text)


def add_command(commands, name, text, epilog=None):
    command = commands.add_parser(name, help=text, description=f"testbed {name} - {text}", epilog=epilog, allow_abbrev=False,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--name", default="unet", help="name of the testbed (default: unet)")
    return command


def add_up(commands):
    up = add_command(commands, "up", "make hosts and a wire, start a unetd on each, and wait until all reach each other", UP)
    up.add_argument("-n", dest="hosts_wanted", type=hosts_wanted, default=None, metavar="N", help=f"hosts, 2 to {HOSTS_MAX} (default: 2)")
    up.add_argument("--wire", choices=wires.WIRES, default=None, help="the kind of wire (default: af_packet)")
    up.add_argument("--bridge", action="store_true", help="a bridge also for two hosts")
    up.add_argument("--mtu", type=whole(256, 9600), default=None, help="MTU of the wire (default: 1500)")
    for name, (_, metavar, text) in wires.FAULTS.items():
        up.add_argument("--" + name, metavar=metavar, help=text)
    up.add_argument("--seed", type=whole(0, 10**9), default=1, help="seed of those faults: equal seeds give equal faults (default: 1)")
    up.add_argument("--idle", choices=["spin", "adaptive", "block"], default="adaptive", help="how idle engines wait (default: adaptive)")
    up.add_argument("--dir", metavar="DIR", help="directory for sockets and logs (default: under /run)")
    up.add_argument("--no-check", dest="check", action="store_false", help="do not wait for an echo between each two hosts")
    up.add_argument("--vm", action="store_true", help="hosts in virtual machines instead of namespaces")
    up.add_argument("--nic", choices=list(vm_hosts.MODELS), default=None,
                    help="for --vm: the network card that QEMU emulates (default: virtio)")
    up.add_argument("--pci", choices=vm_hosts.DRIVERS, default=None,
                    help="for --vm: how unetd gets the card: by vfio with an IOMMU, by vfio without one, or by uio (default: vfio)")
    up.add_argument("--hugepages", type=whole(0, 128), default=None, help="for --vm: hugepages of 2 MiB on each host (default: 48)")
    up.add_argument("--accelerator", choices=list(vm_hosts.BOOT_SECONDS), default=None,
                    help="for --vm: kvm, or software emulation (default: kvm if /dev/kvm can be opened)")
    up.add_argument("--hosts", metavar="FILE", help="real hosts instead: a line for each, NAME SSH-TARGET PORT")
    up.add_argument("--ssh", metavar="COMMAND", default="ssh -o BatchMode=yes -o ConnectTimeout=10",
                    help="for --hosts: how to reach them (default: ssh -o BatchMode=yes -o ConnectTimeout=10)")
    up.add_argument("--remote-path", metavar="DIRS", default="",
                    help="for --hosts: directories of unetd and the other programs, if not in PATH")


def parser():
    top = Parser(prog="testbed", description=DESCRIPTION, epilog=EPILOG, allow_abbrev=False,
                 formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action="version", version=f"testbed {VERSION}", help="print the release")
    top.add_argument("--option-table", action=option_table.Print)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    add_up(commands)
    execute = add_command(commands, "exec", "run a program on a host, or on all", EXEC)
    execute.add_argument("host", metavar="HOST", help="name or number of a host, or all")
    execute.add_argument("program", metavar="PROGRAM", nargs=argparse.REMAINDER, help="after --, with its arguments")
    bench = add_command(commands, "bench", "measure round trips and a stream from each host to each other",
                        "Receivers sleep while they wait, and on one machine all hosts share its cores.\n"
                        "unet-bench run measures U-Net itself. For example: testbed bench --size 48,4K --seconds 1")
    bench.add_argument("hosts", metavar="HOST", nargs="*", help="names or numbers of hosts to measure between (default: all)")
    bench.add_argument("--size", default="48,16K", help="message sizes, 16 to 64K (default: 48,16K)")
    bench.add_argument("--seconds", type=seconds, default=0.3, help="for each measurement (default: 0.3)")
    bench.add_argument("--asymmetry", action="store_true", help="also round trips with a short way back: what differs between the two ways")
    bench.add_argument("--load", action="store_true", help="meanwhile, stream from each host to the next")
    bench.add_argument("--json", action="store_true", help="print every record as JSON, also after Ctrl-C")
    status = add_command(commands, "status", "the hosts and whether their unetds run (exit status 1 if one does not)")
    status.add_argument("--json", action="store_true", help="print JSON")
    logs = add_command(commands, "logs", "the log of a host's unetd, or of all")
    logs.add_argument("host", metavar="HOST", nargs="?", default="all", help="name or number of a host, or all (default)")
    logs.add_argument("--console", action="store_true", help="the consoles of virtual machines instead")
    add_command(commands, "list", "the existing testbeds").set_defaults(name="unet")
    down = add_command(commands, "down", "end all processes of a testbed and remove it, also an incomplete one")
    down.add_argument("--forget", action="store_true", help="with real hosts: also if one does not answer; its processes go on")
    return top


def check_up(options):
    options.faults = {name: wires.check_fault(name, value) for name in wires.FAULTS if (value := getattr(options, name)) is not None}
    options.kind = "ssh" if options.hosts is not None else "vm" if options.vm else "namespaces"
    cards = ((options.nic, "--nic"), (options.pci, "--pci"), (options.hugepages, "--hugepages"), (options.accelerator, "--accelerator"))
    if options.kind == "ssh":
        for given, name in ((options.hosts_wanted, "-n"), (options.wire, "--wire"), (options.mtu, "--mtu"), (options.dir, "--dir"),
                            (options.bridge or None, "--bridge"), (options.faults or None, "--" + next(iter(options.faults), "")),
                            (options.vm or None, "--vm"), *cards):
            if given is not None:
                raise Usage(f"{name} is for hosts on this machine; with --hosts, the file says which hosts and which ports there are")
        return
    options.hosts_wanted = options.hosts_wanted or 2
    options.mtu = options.mtu or 1500
    if options.kind == "vm":
        if options.wire:
            raise Usage("--wire: virtual machines have a wire of their own; --nic chooses the card")
        options.nic = options.nic or "virtio"
        options.pci = options.pci or "vfio"
        options.hugepages = 48 if options.hugepages is None else options.hugepages
        return
    for given, name in cards:
        if given is not None:
            raise Usage(f"{name} is for virtual machines: --vm")
    options.wire = options.wire or "af_packet"
    wires.check(options)


def parse(words):
    options = parser().parse_args(words)
    states.check_name(options.name)
    if options.command == "up":
        check_up(options)
    if options.command == "exec" and options.program[:1] == ["--"]:
        options.program = options.program[1:]
    if options.command == "exec" and not options.program:
        raise Usage("say which program to run: testbed exec 0 -- unetctl all")
    return options
