// drivers.cc - opens what a specification names: a wire (make_wire()) inside its wrappers (wrapper_spec.h); the help about all of them.
#include "apps/drivers.h"

#include "apps/kernel_spec.h"
#include "apps/pcap_spec.h"
#include "apps/spec_values.h"
#include "apps/wrapper_spec.h"
#include "drivers/dpdk/dpdk_port.h"
#include "drivers/nowhere/nowhere.h"
#include "unet/limits.h"

namespace unet::apps {

namespace {

using Made = Result<std::unique_ptr<Driver>>;

constexpr size_t kWrappersMax = 8;
constexpr size_t kLengthMax = 16000;

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Sets one of this project's options; false if `name` is none of them. All other options go to DPDK, for the device.
Result<bool> set_dpdk(const std::string& name, const std::string& value, drivers::DpdkOptions& o) {
  const auto taken = [](const Status& status) -> Result<bool> {
    if (!status) return tl::unexpected(status.error());
    return true;
  };
  if (name == "mtu") return taken(assign(name, parse_count(value, 256, 9600), o.mtu));
  if (name == "queues") return taken(assign(name, parse_count(value, 1, kEnginesMax), o.queues));
  if (name == "buffers") return taken(assign(name, parse_count(value, 64, 1 << 20), o.buffers));
  if (name == "wait_link") return taken(assign(name, parse_duration(value), o.wait_link));
  if (name == "memory") return taken(assign(name, parse_count(value, 32, 1 << 16), o.eal.memory_mib));
  if (name == "hugepages" || name == "log") {
    const bool huge = name == "hugepages";
    if (huge && value == "auto") o.eal.hugepages = drivers::Hugepages::automatic;
    else if (huge && value == "always") o.eal.hugepages = drivers::Hugepages::always;
    else if (huge && value == "never") o.eal.hugepages = drivers::Hugepages::never;
    else if (!huge && (value == "yes" || value == "no")) o.eal.print_log = value == "yes";
    else return fail(Errc::invalid_argument, name + ": '" + value + "' is not " + (huge ? "auto, always or never" : "yes or no"));
    return true;
  }
  return false;
}

Result<drivers::DpdkOptions> parse_dpdk(std::string_view text) {
  drivers::DpdkOptions options;
  if (text.empty())
    return fail(Errc::invalid_argument,
                "dpdk: needs a device, for example dpdk:net_af_packet0,iface=eth1 or dpdk:0000:03:00.0");
  bool first = true;
  for (const auto& [name, value] : split_options(text)) {
    auto ours = first ? Result<bool>(false) : set_dpdk(name, value, options);
    if (!ours) return fail(Errc::invalid_argument, "dpdk: " + ours.error().text);
    if (*ours) continue;
    if (!first) options.device += ',';
    options.device += name;
    if (!value.empty()) options.device += '=' + value;
    first = false;
  }
  return options;
}

Made make_dpdk(std::string_view text, bool checksums) {
  auto options = parse_dpdk(text);
  if (!options) return tl::unexpected(options.error());
  options->checksums = checksums;
  return drivers::DpdkPort::open(*options).map([](auto port) { return std::unique_ptr<Driver>(std::move(port)); });
}

Made make_nowhere(std::string_view options) {
  if (!options.empty()) return fail(Errc::invalid_argument, "nowhere: takes no options");
  return std::make_unique<drivers::Nowhere>();
}

Made make_none(std::string_view options) {
  if (!options.empty()) return fail(Errc::invalid_argument, "none: takes no options");
  return nullptr;
}

// `all_types`: the wire must deliver frames of all Ethernet types. `segments`: no wrapper needs to see packets as they are on the wire.
struct WireKind {
  std::string_view form;  // its name, and what follows
  Made (*open)(std::string_view options, bool all_types, bool segments);
};
constexpr WireKind kWires[] = {
    {"dpdk:DEVICE", [](std::string_view options, bool, bool segments) { return make_dpdk(options, segments); }},
    {"pcap:OPTIONS", [](std::string_view options, bool all_types, bool) { return make_pcap(options, all_types); }},
    {"packet:OPTIONS", make_packet},
    {"tap:OPTIONS", [](std::string_view options, bool, bool segments) { return make_tap(options, segments); }},
    {"xdp:OPTIONS", [](std::string_view options, bool all_types, bool) { return make_xdp(options, all_types); }},
    {"nowhere", [](std::string_view options, bool, bool) { return make_nowhere(options); }},
    {"none", [](std::string_view options, bool, bool) { return make_none(options); }}};

Made make_wire(std::string_view text, bool all_types, bool segments) {
  std::string forms;
  for (const WireKind& kind : kWires) {
    if (name_in(kind.form) == name_in(text)) return kind.open(options_in(text), all_types, segments);
    forms += (forms.empty() ? "" : ", ") + std::string(kind.form);
  }
  if (const WrapperKind* const wrapper = wrapper_kind(text)) {
    return fail(Errc::invalid_argument, std::string(name_in(text)) + ": is a wrapper: a wire has to follow, for example " +
                                            std::string(options_in(text).empty() ? wrapper->form : text) + " / dpdk:...");
  }
  return fail(Errc::invalid_argument, "there is no wire '" + std::string(name_in(text)) + "'; wires: " + forms +
                                          "; wrappers before a wire, each with ' / ' behind it: " + wrapper_forms());
}

}  // namespace

Made make_driver(std::string_view specification, bool with_ip) {
  bool all_types = with_ip, segments = true;  // as in WireKind
  if (specification.size() > kLengthMax) return fail(Errc::invalid_argument, "a driver specification has at most 16000 characters");
  // The wrappers, from the left. The last part is the wire.
  std::vector<Wrapper> wrappers;
  std::string_view rest = trim(specification);
  for (size_t slash; (slash = rest.find(" / ")) != std::string_view::npos; rest = trim(rest.substr(slash + 3))) {
    if (wrappers.size() == kWrappersMax) return fail(Errc::invalid_argument, "a wire takes at most 8 wrappers");
    const std::string_view text = trim(rest.substr(0, slash));
    if (with_ip && name_in(text) == "udp") {
      return fail(Errc::invalid_argument, "a wire under the udp wrapper cannot have IP: leave out udp:, or ip");
    }
    if (const WrapperKind* const kind = wrapper_kind(text)) {
      segments = segments && kind->takes_segments;
      all_types = all_types || kind->needs_all_types;
    }
    auto wrapper = parse_wrapper(text);
    if (!wrapper) return tl::unexpected(wrapper.error());
    wrappers.push_back(std::move(*wrapper));
  }
  if (rest.empty() && wrappers.empty()) return nullptr;
  Made driver = make_wire(rest, all_types, segments);
  if (!driver) return driver;
  if (*driver == nullptr && !wrappers.empty()) return fail(Errc::invalid_argument, "none: a wrapper needs a wire");
  for (size_t i = wrappers.size(); i-- > 0 && driver;) driver = wrappers[i](std::move(*driver));
  return driver;
}

void prepare_drivers(const std::vector<std::string>& specifications) {
  constexpr std::string_view kDpdk = "dpdk:";
  std::vector<drivers::DpdkOptions> ports;
  for (const std::string& specification : specifications) {
    std::string_view wire = specification;
    if (const size_t slash = wire.rfind(" / "); slash != std::string_view::npos) wire.remove_prefix(slash + 3);
    wire = trim(wire);
    if (!wire.starts_with(kDpdk)) continue;
    if (auto options = parse_dpdk(wire.substr(kDpdk.size()))) ports.push_back(std::move(*options));
  }
  drivers::DpdkPort::prepare(ports);
}

bool can_open_later() { return !drivers::DpdkPort::environment_failed(); }

std::string driver_help() {
  return R"(A wire, with any number of wrappers to its left, separated by " / ":
  faulty:loss=1%,seed=7 / dpdk:net_af_xdp0,iface=veth0

Wires
  none                    no wire: local channels only
  nowhere                 a wire without a peer, for IP between this host's applications (unetd --ip)
  dpdk:DEVICE[,OPTIONS]   any port that DPDK can open; DEVICE is one of
      net_memif0,role=server|client[,socket=PATH][,id=N][,zero-copy=yes]
                          shared memory with another process; no privileges needed. zero-copy=yes: for the client. The driver
                          trusts its peer, so any process that can connect can end this one. PATH (default /run/memif.sock) is a
                          file of the server's user, or of its directory's owner if the server is root, with mode 0600. No other
                          user should have write access to that directory
      net_af_xdp0,iface=IF      a kernel interface through AF_XDP; needs cap_net_admin, cap_net_raw, cap_bpf
      net_af_packet0,iface=IF   a kernel interface through a packet socket; needs cap_net_raw
      net_tap0[,iface=IF]       a new tap interface; needs cap_net_admin. For IP, tap:name=IF is faster
      net_ring0                 a loop inside the process
      virtio_user0,path=PATH    a vhost-user socket, or /dev/vhost-net
      0000:03:00.0              a network card (unetctl nic take)
    and any other DPDK virtual device with its own options. The number distinguishes devices of one process.
    Options of every device:
      mtu=BYTES               256 to 9600; default: the interface's, or 1500
      wait_link=TIME          wait for the peer at the start (default 0: it may come later)
      queues=N                receive and transmit queues, each for an engine of its own (unetd --engines; default 1). The device
                              chooses a frame's queue, if possible by a hash over IP addresses and UDP ports.
                              net_af_packet, net_af_xdp, virtio_user and net_vhost get N queues; net_memif has one.
                              Possible wrappers: udp, with ports=, and vlan
      buffers=N               packet buffers of each queue (default: computed)
      hugepages=auto|always|never, memory=MIB   the process's packet memory; the first port decides (default auto, 256)
      log=yes                 DPDK's own log to stderr
  pcap:iface=IF           a kernel interface through libpcap; needs cap_net_raw. mtu=BYTES
                          One interface serves one NI at a time; for two NIs, make a VLAN or macvlan for each
  packet:iface=IF         a kernel interface through a packet socket, for IP: TCP and UDP travel in segments of up to 64 KiB, which the
                          kernel or the card segments, coalesces and checksums. Needs cap_net_raw; mtu=BYTES. Possible wrappers:
                          capture and trace, which show whole segments with unfinished checksums. VLAN frames are ignored
  xdp:iface=IF            the first queue of a kernel interface through AF_XDP, without DPDK and its memory; needs cap_net_raw,
                          cap_net_admin, cap_bpf. The kernel gets only what the wire does not take: with IP or a wrapper udp or vlan,
                          frames for other stations. The interface's queue has no other AF_XDP socket and no other XDP program
      mtu=BYTES                 256 to 9600; default: the interface's. Above 3826: Linux 6.6
      busy_budget=N             an empty poll makes the card deliver up to N frames, on the polling core (default 0: the kernel
                                delivers frames when it likes). For network cards; a veth is slower with it
  tap:name=IF             a new kernel interface with this port as its other end: programs on the kernel reach U-Net's applications
                          through it, in segments as with packet. Needs cap_net_admin, or an existing interface (ip tuntap add dev IF
                          mode tap user NAME), which stays when the port is closed
      address=IP/PREFIX+...     the kernel's addresses on it: unetd --port tap:name=unet0,address=10.0.0.1/24 --ip 0=10.0.0.2/24
      mtu=BYTES                 256 to 9600; default 1500, or the interface's
  pcap:read=FILE,write=FILE   capture files with received and sent frames (either may be left out)
      timed=yes               frames arrive with the time differences of the capture; else at once
      address=MAC             of this port (default 02:00:00:00:00:01), mtu=BYTES (default 1500)

Wrappers
  udp:address=IP/PREFIX   frames travel in UDP over IPv4 or IPv6, for networks that route only IP. The address belongs to this NI,
                          which answers ARP or neighbour discovery for it; the kernel must not have it on the interface
      gateway=IP                the router to other networks
      peers=IP+IP+...           addresses that are asked for a host's name; NIs that only connect here need not be listed
      mtu=BYTES                 MTU of the IP path (default: the wire's); ICMP errors about it are ignored
      port=N                    UDP port, equal on all hosts (default 849: below 1024, so only a host's root can send from it)
      ports=N                   number of source ports, from that one on, chosen by channel, so that all queues (queues=N) and network
                                paths are used; 1 to 64, equal on all hosts (default 1)
      neighbour=IP@MAC+...      stations of this network, or the gateway, with known addresses
      hops=N                    routers a datagram may pass (default 64)
  vlan:id=N               frames carry the tag of VLAN N, 1 to 4094; others are dropped and counted. priority=0 to 7
                          With udp: udp:OPTIONS / vlan:id=N / dpdk:...
  faulty:OPTIONS          impairs the wire; equal seeds give equal faults
      loss=P duplicate=P reorder=P corrupt=P    probabilities: 0.01 or 1%
      bits=N                                    bits that change in a corrupted frame, at most (default 4)
      delay=TIME or delay=TIME-TIME             additional delay of each frame: 500ns, 10us, 1ms
      rate=R                                    bits per second: 64k, 100M, 1G
      hold=TIME                                 how long a reordered frame waits at most (default 1ms)
      seed=N (default 1), direction=rx|tx|both (default tx), frames=N held at most (default 1024)
  capture:file=FILE       writes frames to a pcapng file, for tcpdump -r and Wireshark; FILE is replaced
      filter=EXPRESSION       only frames that match it (man pcap-filter): filter=ether dst 02:00:00:00:00:01
      snap=BYTES              of each frame (default all), limit=BYTES of the file: 10M (default none)
      buffer=BYTES            buffer for frames not written yet (default 4M); frames that do not fit are counted
  trace[:file=FILE]       a line of text per frame, on stderr or at the end of FILE; slow
)";
}

}  // namespace unet::apps
