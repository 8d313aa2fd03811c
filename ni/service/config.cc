// config.cc - reading the configuration file.
#include "ni/service/config.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "ni/service/ip_config.h"
#include "ni/service/names.h"
#include "ni/service/signalling_times.h"
#include "ni/service/toml_reader.h"
#include "unet/control.h"
#include "unet/socket_path.h"

namespace unet::service {
namespace {

constexpr uint32_t kCoreMax = 1023;
constexpr uint64_t kTakeoverMax = 3600;  // seconds

void parse_ni(TomlReader& in, Config& config) {
  NiOptions& ni = config.ni;
  ni.service.host = in.text("host", ni.service.host);
  if (!control::valid_name(ni.service.host)) in.wrong("host", "host: " + name_rule(ni.service.host));
  ni.socket = in.text("socket", ni.socket);
  if (ni.socket.size() > kSocketPathMax) {
    in.wrong("socket", "socket: " + in_quotes(ni.socket) + " is longer than " + std::to_string(kSocketPathMax) + " characters");
  }
  ni.group = in.text("group", ni.group);
  if (in.has("idle")) {
    const Result<Idle> idle = parse_idle(in.text("idle", "adaptive"));
    if (idle) ni.idle = *idle;
    else in.wrong("idle", idle.error().text);
  }
  ni.spin_time = in.number("spin_us", ni.spin_time / kMicrosecond, 0, 1'000'000) * kMicrosecond;
  ni.engines = static_cast<uint32_t>(in.number("engines", ni.engines, 1, kEnginesMax));
  ni.cores = in.numbers("core", ni.cores, kCoreMax);
  ni.port_engines = in.numbers("port_engines", ni.port_engines, kEnginesMax - 1);
  const uint64_t lost_after_ms = in.number("lost_after_ms", ni.service.lost_after / kMillisecond,
                                           kLostAfterMin / kMillisecond, kLostAfterMax / kMillisecond);
  ni.service.lost_after = lost_after_ms * kMillisecond;
  ni.engine.reassembly_timeout = in.number("reassembly_ms", ni.engine.reassembly_timeout / kMillisecond, 1, 60'000) * kMillisecond;
  config.policy_file = in.text("policy", config.policy_file);
  config.user = in.text("user", config.user);
  config.standby = in.boolean("standby", config.standby);
  config.takeover = in.number("takeover_s", config.takeover / kSecond, 0, kTakeoverMax) * kSecond;
  config.seccomp = in.boolean("seccomp", config.seccomp);
}

// An Ethernet address of one station. Errors: invalid_argument.
Result<MacAddress> station_of(std::string_view text) {
  const std::optional<MacAddress> mac = parse_mac(text);
  if (!mac) return fail(Errc::invalid_argument, in_quotes(text) + " is not an Ethernet address; write it like 02:00:00:00:00:01");
  if (((*mac)[0] & 1) != 0) {
    return fail(Errc::invalid_argument, in_quotes(text) + " is a multicast address; a peer has a unicast one (even first byte)");
  }
  return *mac;
}

Status parse_peer_table(const std::string& file, const toml::table& table, Config& config) {
  TomlReader in(file, table, "[[peer]]");
  in.allow({"host", "mac", "port"});
  StaticPeer peer;
  peer.host = in.text("host", "");
  if (!control::valid_name(peer.host)) in.wrong("host", "a peer needs a host: " + name_rule(peer.host));
  const Result<MacAddress> mac = station_of(in.text("mac", ""));
  if (mac) peer.address.mac = *mac;
  else in.wrong("mac", "a peer needs a mac: " + mac.error().text);
  peer.address.port = static_cast<uint32_t>(in.number("port", 0, 0, kPortsMax - 1));
  if (Status status = in.status(); !status) return status;
  config.ni.service.peers.push_back(std::move(peer));
  return {};
}

Tag read_tag(TomlReader& in, const char* key) {
  const auto tag = static_cast<uint32_t>(in.number(key, 0, 0, ~uint32_t{0}));
  if ((tag & 0xFFFF) == 0) in.wrong(key, std::string("a channel needs a ") + key + " whose low 16 bits are not 0 (1 to 65535 will do)");
  return Tag{tag};
}

Status parse_channel_table(const std::string& file, const toml::table& table, Config& config) {
  TomlReader in(file, table, "[[channel]]");
  in.allow({"endpoint", "local_tag", "remote_tag", "peer", "port"});
  StaticChannel channel;
  channel.endpoint = in.text("endpoint", "");
  if (!control::valid_name(channel.endpoint)) in.wrong("endpoint", "a channel needs an endpoint: " + name_rule(channel.endpoint));
  channel.local_tag = read_tag(in, "local_tag");
  channel.remote_tag = read_tag(in, "remote_tag");
  const Result<MacAddress> mac = station_of(in.text("peer", ""));
  if (mac) channel.peer = *mac;
  else in.wrong("peer", "a channel needs the peer's address: " + mac.error().text);
  channel.port = static_cast<uint32_t>(in.number("port", 0, 0, kPortsMax - 1));
  if (Status status = in.status(); !status) return status;
  config.ni.service.channels.push_back(std::move(channel));
  return {};
}

Status parse_ip_table(const std::string& file, const toml::table& table, Config& config) {
  TomlReader in(file, table, "[[ip]]");
  in.allow({"port", "addresses", "gateways", "routes", "dhcp", "slaac", "unprobed"});
  engine::IpInterfaceOptions options;
  options.port = static_cast<uint32_t>(in.number("port", 0, 0, kPortsMax - 1));
  for (const std::string& text : in.texts("addresses", {})) {
    if (Status status = add_ip_address(text, options); !status) in.wrong("addresses", "addresses: " + status.error().text);
  }
  for (const std::string& text : in.texts("gateways", {})) {
    if (Status status = add_ip_gateway(text, options); !status) in.wrong("gateways", "gateways: " + status.error().text);
  }
  for (const std::string& text : in.texts("routes", {})) {
    if (Status status = add_ip_route(text, options); !status) in.wrong("routes", "routes: " + status.error().text);
  }
  options.autoconfigure = in.boolean("slaac", false);
  options.dhcp = in.boolean("dhcp", false);
  options.probe = !in.boolean("unprobed", false);
  if (Status status = in.status(); !status) return status;
  config.ni.engine.ip.ports.push_back(std::move(options));
  return {};
}

}  // namespace

Config default_config() {
  Config config;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) {
    config.ni.service.host = std::string(host.data()).substr(0, kNameMax);
  }
  if (!control::valid_name(config.ni.service.host)) config.ni.service.host = "localhost";
  config.ni.service.own_user = geteuid();
  config.ni.service.policy = Policy(geteuid());
  return config;
}

Status parse_config(std::string_view text, const std::string& file, Config& config) {
  const Result<toml::table> document = parse_toml(text, file);
  if (!document) return tl::unexpected(document.error());
  TomlReader in(file, *document, "the configuration");
  in.allow({"host", "socket", "user", "seccomp", "group", "idle", "spin_us", "engines", "core", "port_engines", "lost_after_ms",
            "reassembly_ms", "policy", "takeover_s", "standby", "ports", "ip", "peer", "channel"});
  parse_ni(in, config);
  config.ports = in.texts("ports", config.ports);
  if (config.ports.size() > kPortsMax) in.wrong("ports", "at most " + std::to_string(kPortsMax) + " ports are allowed");
  const auto ips = in.tables("ip");
  const auto peers = in.tables("peer");
  const auto channels = in.tables("channel");
  if (Status status = in.status(); !status) return status;
  for (const toml::table* table : ips) {
    if (Status status = parse_ip_table(file, *table, config); !status) return status;
  }
  for (const toml::table* table : peers) {
    if (Status status = parse_peer_table(file, *table, config); !status) return status;
  }
  for (const toml::table* table : channels) {
    if (Status status = parse_channel_table(file, *table, config); !status) return status;
  }
  return {};
}

Status load_config(const std::string& file, Config& config) {
  const Result<std::string> text = read_text_file(file);
  if (!text) return tl::unexpected(text.error());
  return parse_config(*text, file, config);
}

Result<StaticPeer> parse_peer(std::string_view text) {
  const auto wrong = [&](const std::string& why) {
    return fail(Errc::invalid_argument, "peer " + in_quotes(text) + ": " + why +
                                            "; write HOST=MAC or HOST=MAC@PORT, like beta=02:00:00:00:00:02@0");
  };
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return wrong("there is no =");
  StaticPeer peer;
  peer.host = std::string(text.substr(0, equals));
  if (!control::valid_name(peer.host)) return wrong("host " + name_rule(peer.host));
  std::string_view rest = text.substr(equals + 1);
  if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    const std::string port(rest.substr(at + 1));
    char* end = nullptr;
    const unsigned long value = std::strtoul(port.c_str(), &end, 10);
    if (port.empty() || port[0] < '0' || port[0] > '9' || *end != '\0' || value >= kPortsMax) {
      return wrong("port " + in_quotes(port) + " is not a number from 0 to " + std::to_string(kPortsMax - 1));
    }
    peer.address.port = static_cast<uint32_t>(value);
    rest = rest.substr(0, at);
  }
  const Result<MacAddress> mac = station_of(rest);
  if (!mac) return wrong(mac.error().text);
  peer.address.mac = *mac;
  return peer;
}

Status finish_config(Config& config) {
  ServiceOptions& service = config.ni.service;
  if (!control::valid_name(service.host)) return fail(Errc::invalid_argument, "host: " + name_rule(service.host));
  const auto check_port = [&](const std::string& what, uint32_t port) -> Status {
    if (port < config.ports.size()) return {};
    return fail(Errc::invalid_argument, what + ": port " + std::to_string(port) + " does not exist; " +
                                            std::to_string(config.ports.size()) + " are configured (the first is 0)");
  };
  for (const StaticPeer& peer : service.peers) {
    if (Status status = check_port("peer " + in_quotes(peer.host), peer.address.port); !status) return status;
  }
  for (const StaticChannel& channel : service.channels) {
    if (Status status = check_port("channel of endpoint " + in_quotes(channel.endpoint), channel.port); !status) return status;
  }
  const NiOptions& ni = config.ni;
  if (Status status = check_ip_ports(ni.engine.ip.ports, config.ports.size(), ni.engines, ni.port_engines); !status) return status;
  if (ni.cores.size() > ni.engines) {
    return fail(Errc::invalid_argument, "core: " + std::to_string(ni.cores.size()) + " cores are named, and there " +
                                            (ni.engines == 1 ? "is 1 engine" : "are " + std::to_string(ni.engines) + " engines") +
                                            " (engines)");
  }
  if (config.takeover != 0 && ni.engines > 1) {
    return fail(Errc::invalid_argument, "takeover: only a network interface with one engine can be taken over, and " +
                                            std::to_string(ni.engines) + " are configured: give up one of the two");
  }
  for (uint32_t port = 0; port < ni.port_engines.size(); ++port) {
    if (Status status = check_port("port_engines", port); !status) return status;
    if (ni.port_engines[port] < ni.engines) continue;
    return fail(Errc::invalid_argument, "port_engines: there is no engine " + std::to_string(ni.port_engines[port]) + "; " +
                                            std::to_string(ni.engines) + " are configured (the first is 0)");
  }
  service.policy_file = config.policy_file;
  if (config.policy_file.empty() || service.inherit_policy) return {};
  Result<Policy> policy = Policy::load(config.policy_file, service.own_user);
  if (!policy) return tl::unexpected(policy.error());
  service.policy = std::move(*policy);
  return {};
}

std::string_view example_config() noexcept {
  return R"(# Configuration of a U-Net network interface (unetd --config FILE). Every line may be left out. Values in comments are defaults
# or examples. Options of the command line override the file.

# Name by which other hosts find this one in "endpoint@host".
# host = "alpha"

# The control socket, and a group that may connect to it besides the daemon's own user and root.
# socket = "/run/unet/unet.sock"
# group = "unet"

# The user that unetd becomes when its wires and its socket are open. It loses all rights of root. It must be able to read the policy
# and to write the socket's directory (/run/unet is given to it). Default: the user that started unetd.
# user = "unet"

# Seconds for which a supervisor process keeps the clients of a unetd that died until another one takes over. `unetctl upgrade` needs
# it, too. 0: no supervisor.
takeover_s = 0
# With a supervisor: a second unetd is loaded in advance, so that it takes over at once.
standby = true

# A filter allows only the system calls that unetd needs. Any other one is named on standard error and ends unetd.
seccomp = true

# Wires, in port order (the first is port 0). Without any, only endpoints of this host reach each other.
# ports = ["dpdk:net_af_packet0,iface=eth1"]

# How an idle engine waits: "spin" (never sleeps), "adaptive" (polls for spin_us, then sleeps), "block" (sleeps at once).
idle = "adaptive"
spin_us = 50

# Threads that move messages, each with its own ports. Port p has engine p % engines, or that of port_engines; each further queue of a
# port with queues=N has the next engine. Several engines help with several busy ports or queues, and as many spare cores. Only engine 0
# serves ports with IP.
engines = 1
# port_engines = [0, 1]

# The core of the engine's thread, or a list with the core of each engine. Default: the kernel chooses.
# core = 1

# Other hosts close their channels when this host was silent for lost_after_ms. A message that lacks fragments is dropped after
# reassembly_ms.
lost_after_ms = 3000
reassembly_ms = 50

# Rights of users. Without a file root and the daemon's own user may have everything, others nothing.
# SIGHUP or `unetctl policy reload` makes unetd read it again.
# policy = "/etc/unet/policy.toml"
#
#   [[rule]]                        # in the policy file: the first rule that matches counts
#   user = "alice"                  # or uid = 1000, group = "users", gid = 100, any = true
#   connections = 128               # at a time
#   endpoints = 64
#   emulated = 4096                 # endpoints without queues of their own
#   channels = 1024
#   memory = "1G"
#   names = ["alice/*", "echo"]     # names that the user may bind; * and ? are wildcards; default: none
#   ip_ports = ["80", "8000-8099"]  # ports of TCP and UDP that the user may claim; default: from 1024 on; []: no IP
#   ip_claims = 256                 # claims of ports at a time
#   ip_ports_at_once = 4096         # ports in all these claims
#   ip_groups = 16                  # multicast groups at a time, of the NI's 32
#   weight = 1                      # share of the engine and the wires against other users, 1 to 100
#   messages_per_s = 1000000        # sent through the NI by all endpoints of the user; default: no limit
#   bytes_per_s = "1G"
#   endpoint_messages_per_s = 100000  # sent by each endpoint
#   endpoint_bytes_per_s = "100M"
#   burst_ms = 10                   # after a pause, send at once what these rates allow in this time, 1 to 10000

# Ports that have IP: processes share the addresses, each with its own ports of TCP and UDP. A port without a table carries U-Net alone.
# [[ip]]
# port = 0
# addresses = ["10.0.0.1/24", "fd00::1/64"]
# gateways = ["10.0.0.254"]
# routes = ["10.2.0.0/16@10.0.0.253"]  # NETWORK/PREFIX@GATEWAY: the longest prefix counts
# dhcp = false      # true: an IPv4 address, its network and a gateway from a DHCP server
# slaac = false     # true: IPv6 addresses and a gateway from routers
# unprobed = false  # true: addresses are used at once, without a check that no other host has them (RFC 5227)

# Hosts that need not be searched on the wire.
# [[peer]]
# host = "beta"
# mac = "02:00:00:00:00:02"
# port = 0

# Channels without signalling: the other host is configured alike, with the tags exchanged. The endpoint gets the channel
# when it binds its name.
# [[channel]]
# endpoint = "control"
# local_tag = 0x0001
# remote_tag = 0x0002
# peer = "02:00:00:00:00:02"
# port = 0
)";
}

}  // namespace unet::service
