// wire_port.cc - the two ends of a wire and the NI on each of them.
#include "apps/bench/paths/unet/wire_port.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "apps/bench/frame/environment.h"
#include "drivers/pcap/pcap_live.h"
#include "drivers/xdp/xdp_port.h"
#include "ni/service/config.h"
#include "ni/service/ip_config.h"
#include "unet/embedded_abi.h"

namespace unet::bench {

namespace {

constexpr Nanoseconds kOpenPatience = 60 * kSecond;
// Neither side is polled while other paths are measured.
constexpr Nanoseconds kNeverLost = 3600 * kSecond;

}  // namespace

struct WirePort::Addresses {
  std::atomic<uint32_t> known[2];
  MacAddress address[2];
};

WirePort::~WirePort() {
  if (directory_.empty() || owner_ != getpid()) return;
  std::error_code error;
  std::filesystem::remove_all(directory_, error);
}

Status WirePort::prepare(Environment& environment) {
  if (prepared_) return prepared_status_;
  prepared_ = true;
  owner_ = getpid();
  prepared_status_ = memory_.create(sizeof(Addresses));
  if (!prepared_status_) return prepared_status_;
  if (between_namespaces()) return prepared_status_ = make_namespaces(environment);
  char directory[] = "/tmp/unet-bench-XXXXXX";
  if (mkdtemp(directory) == nullptr) return prepared_status_ = fail_errno("mkdtemp(/tmp/unet-bench-XXXXXX)", errno);
  directory_ = directory;
  return prepared_status_;
}

Status WirePort::make_namespaces(Environment& environment) {
  auto pair = environment.namespaces();
  if (!pair) return tl::unexpected(pair.error());
  if (kind_ == WireKind::impaired) {
    auto wire = environment.impaired_wire();
    if (!wire) return tl::unexpected(wire.error());
    interface_a_ = (*wire)->cable().interface_a;
    interface_b_ = (*wire)->cable().interface_b;
    return {};
  }
  auto veth = (*pair)->add_veth({.offloads = false});
  if (!veth) return tl::unexpected(veth.error());
  interface_a_ = veth->interface_a;
  interface_b_ = veth->interface_b;
  return {};
}

Result<std::string> WirePort::device(Side side) const {
  const std::string& interface = side == Side::a ? interface_a_ : interface_b_;
  // B is the server: it is there first, and A, which connects, waits for it.
  const std::string role = side == Side::b ? "server" : "client";
  switch (kind_) {
    case WireKind::memif: return "net_memif" + number() + ",role=" + role + ",socket=" + directory_ + "/memif.sock";
    case WireKind::memif_zero_copy:
      return "net_memif" + number() + ",role=" + role + ",socket=" + directory_ + "/memif.sock" + (side == Side::a ? ",zero-copy=yes" : "");
    case WireKind::af_xdp: return "net_af_xdp" + number() + ",iface=" + interface;
    case WireKind::af_packet: return "net_af_packet" + number() + ",iface=" + interface;
    case WireKind::impaired: return "net_af_packet" + number() + ",iface=" + interface;
    case WireKind::pcap:
    case WireKind::xdp: return interface;
  }
  return fail(Errc::invalid_argument, "no such wire");
}

Status WirePort::open_port(Side side, Environment& environment, std::unique_ptr<Driver>& driver) {
  const auto device_text = device(side);
  if (!device_text) return tl::unexpected(device_text.error());
  std::optional<NamespaceScope> scope;
  if (!interface_a_.empty()) {
    NamespacePair* pair = environment.namespaces_if_made();
    auto entered = NamespaceScope::enter(side == Side::a ? pair->name_a() : pair->name_b());
    if (!entered) return tl::unexpected(entered.error());
    scope.emplace(std::move(*entered));
  }
  const auto take = [&driver](auto port) { driver = std::move(port); };
  if (kind_ == WireKind::pcap) return drivers::PcapLive::open({.interface = *device_text}).map(take);
  if (kind_ == WireKind::xdp) return drivers::XdpPort::open({.interface = *device_text, .all_types = ip_}).map(take);
  auto port = drivers::DpdkPort::open({.device = *device_text});
  if (!port) return tl::unexpected(port.error());
  port_ = port->get();
  driver = std::move(*port);
  return {};
}

Status WirePort::exchange_addresses(const RunContext& context) {
  auto& addresses = *reinterpret_cast<Addresses*>(memory_.data());
  const auto own = static_cast<size_t>(context.side), other = 1 - own;
  addresses.address[own] = address_;
  addresses.known[own].store(1, std::memory_order_release);
  const Nanoseconds start = monotonic_now();
  while (addresses.known[other].load(std::memory_order_acquire) == 0) {
    if (context.stop.raised() || monotonic_now() - start > kOpenPatience) {
      return fail(Errc::timed_out, "the other side's port did not open");
    }
    usleep(1000);
  }
  peer_ = addresses.address[other];
  // A memif's link comes up when both ends have met.
  return port_ != nullptr ? port_->wait_link(kOpenPatience) : Status{};
}

Result<std::unique_ptr<Context>> open_embedded(const std::string& host, std::unique_ptr<Driver> driver, const std::string& ip) {
  service::Config config = service::default_config();
  config.ni.service.host = host;
  config.ni.service.lost_after = kNeverLost;
  if (!ip.empty()) {
    auto port = service::parse_ip_port("0=" + ip);
    if (!port) return tl::unexpected(port.error());
    config.ni.engine.ip.ports.push_back(std::move(*port));
  }
  std::vector<std::unique_ptr<Driver>> drivers;
  drivers.push_back(std::move(driver));
  auto ni = service::Ni::create(config.ni, std::move(drivers));
  if (!ni) return tl::unexpected(ni.error());
  auto control = (*ni)->connect();
  if (!control) return tl::unexpected(control.error());
  auto context = Context::attach(*unet_embedded_entry(), ni->release(), std::move(*control), "unet-bench");
  if (!context) return tl::unexpected(context.error());
  return std::make_unique<Context>(std::move(*context));
}

Status WirePort::open_ni(Side side, std::unique_ptr<Driver> driver) {
  auto context = open_embedded(kHosts[static_cast<size_t>(side)], std::move(driver), ip_ ? ip_address(side) + "/24,unprobed" : "");
  if (!context) return tl::unexpected(context.error());
  context_ = std::move(*context);
  return {};
}

Status WirePort::set_up(const RunContext& context, Environment& environment) {
  if (opened_) return opened_status_;
  opened_ = true;
  std::unique_ptr<Driver> driver;
  opened_status_ = open_port(context.side, environment, driver);
  if (opened_status_) {
    address_ = driver->capabilities().address;
    opened_status_ = exchange_addresses(context);
  }
  if (opened_status_) opened_status_ = open_ni(context.side, std::move(driver));
  if (!opened_status_) port_ = nullptr;
  return opened_status_;
}

void WirePort::tear_down() {
  context_.reset();
  port_ = nullptr;
}

}  // namespace unet::bench
