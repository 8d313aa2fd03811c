// kernel_spec.cc - makes a kernel interface wire, existing or new, from options.
#include "apps/kernel_spec.h"

#include <string>

#include "apps/spec_values.h"
#include "drivers/packet/packet_port.h"
#include "drivers/tap/tap_port.h"
#include "drivers/xdp/xdp_port.h"

namespace unet::apps {
namespace {

using Made = Result<std::unique_ptr<Driver>>;

constexpr auto kAsDriver = [](auto port) { return std::unique_ptr<Driver>(std::move(port)); };

// "10.0.0.1/24+fd00::1/64"
Status parse_addresses(const std::string& text, std::vector<drivers::TapOptions::Address>& addresses) {
  for (size_t at = 0, end; at <= text.size(); at = end + 1) {
    end = std::min(text.find('+', at), text.size());
    const std::string each = text.substr(at, end - at);
    const size_t slash = std::min(each.find('/'), each.size());
    const auto address = ip::parse_ip(each.substr(0, slash));
    const auto prefix = parse_count(slash == each.size() ? "" : each.substr(slash + 1), 1, address && address->is_ipv4() ? 32 : 128);
    if (!address || !prefix) return fail(Errc::invalid_argument, "tap: address: '" + each + "' is not ADDRESS/PREFIX: 10.0.0.1/24");
    addresses.push_back({*address, static_cast<uint8_t>(*prefix)});
  }
  return {};
}

}  // namespace

Made make_packet(std::string_view text, bool all_types, bool segments) {
  drivers::PacketOptions options{.interface = {}, .all_types = all_types};
  for (const auto& [name, value] : split_options(text)) {
    if (name == "iface") {
      options.interface = value;
    } else if (name == "mtu") {
      if (Status status = assign("packet: mtu", parse_count(value, 256, 9600), options.mtu); !status) return tl::unexpected(status.error());
    } else {
      return fail(Errc::invalid_argument, "packet: '" + name + "' is not an option; allowed: iface mtu");
    }
  }
  if (options.interface.empty()) return fail(Errc::invalid_argument, "packet: needs iface=INTERFACE: packet:iface=eth1");
  if (!segments) {
    return fail(Errc::invalid_argument, "packet: frames may be segments of 64 KiB, which only the wrappers capture and trace accept: "
                                        "take pcap:iface=" + options.interface);
  }
  return drivers::PacketPort::open(options).map(kAsDriver);
}

Made make_tap(std::string_view text, bool segments) {
  drivers::TapOptions options{.name = {}, .addresses = {}, .segments = segments};
  for (const auto& [name, value] : split_options(text)) {
    Status status;
    if (name == "name") options.name = value;
    else if (name == "address") status = parse_addresses(value, options.addresses);
    else if (name == "mtu") status = assign("tap: mtu", parse_count(value, 256, 9600), options.mtu);
    else status = fail(Errc::invalid_argument, "tap: '" + name + "' is not an option; allowed: name address mtu");
    if (!status) return tl::unexpected(status.error());
  }
  if (options.name.empty()) return fail(Errc::invalid_argument, "tap: needs name=INTERFACE: tap:name=unet0,address=10.0.0.1/24");
  return drivers::TapPort::open(options).map(kAsDriver);
}

Made make_xdp(std::string_view text, bool all_types) {
  drivers::XdpOptions options{.interface = {}, .all_types = all_types};
  for (const auto& [name, value] : split_options(text)) {
    Status status;
    if (name == "iface") options.interface = value;
    else if (name == "mtu") status = assign("xdp: mtu", parse_count(value, 256, 9600), options.mtu);
    else if (name == "busy_budget") status = assign("xdp: busy_budget", parse_count(value, 0, 1024), options.busy_budget);
    else status = fail(Errc::invalid_argument, "xdp: '" + name + "' is not an option; allowed: iface mtu busy_budget");
    if (!status) return tl::unexpected(status.error());
  }
  if (options.interface.empty()) return fail(Errc::invalid_argument, "xdp: needs iface=INTERFACE: xdp:iface=eth1");
  return drivers::XdpPort::open(options).map(kAsDriver);
}

}  // namespace unet::apps
