// ip_port.cc - the host's frames to the wire, and what it tells.
#include "unet/engine/ip_port.h"

#include <algorithm>

namespace unet::engine {
namespace {

constexpr uint32_t kMtuMax = 9216;  // no link is thought to have more; the host has buffers of that size

ip::HostOptions host_options(const IpPortOptions& options, const DriverCapabilities& wire, uint64_t seed) {
  ip::HostOptions host{.mac = wire.address, .mtu = std::min(wire.mtu, kMtuMax), .addresses = options.addresses,
                       .gateway4 = options.gateway4, .gateway6 = options.gateway6, .routes = options.routes};
  host.ipv6 = wire.mtu >= ip::kIpv6MtuMin;
  host.autoconfigure = host.ipv6 && options.autoconfigure;
  host.dhcp = options.dhcp;
  host.claim = options.probe && !wire.alone;
  host.seed = seed;
  return host;
}

}  // namespace

IpPort::IpPort(const IpPortOptions& options, Port& port, uint64_t seed, Nanoseconds now)
    : port_(port), mtu_(std::min(port.driver().capabilities().mtu, kMtuMax)),
      host_(host_options(options, port.driver().capabilities(), seed), now) {}

bool IpPort::pump(Nanoseconds now, bool data) noexcept {
  if (now < next_) return true;
  dirty_ = true;
  while (TransmitFrame* const frame = data ? port_.frame(now) : port_.signal_frame(now)) {
    const uint32_t length = host_.poll_frame(now, {frame->data, mtu_ + sizeof(EthernetHeader)});
    if (length == 0) {
      for (ip::IpAddress neighbour; host_.poll_unreachable(neighbour);) {}  // those who sent there learn it by silence
      next_ = host_.next_event();
      return true;
    }
    frame->length = length;
    port_.stage();
  }
  next_ = now + kRetry;
  return false;
}

void IpPort::publish_counters() noexcept {
  counted_ = false;
  for (size_t i = 0; i < kHostCounters; ++i) {
    counters_[i].store(host_.counter(static_cast<ip::HostCounter>(i)), std::memory_order_relaxed);
  }
}

bool IpPort::take_status(ip::HostStatus& status) noexcept {
  dirty_ = false;
  publish_counters();
  status = host_.status();
  if (told_ && status == status_ && host_.lease_changes() == lease_changes_) return false;
  status_ = status;
  lease_changes_ = host_.lease_changes();
  return told_ = true;
}

bool IpPort::take_kept() noexcept {
  if (kept_told_ && host_.address_changes() == address_changes_ && host_.router_changes() == router_changes_) return false;
  address_changes_ = host_.address_changes();
  router_changes_ = host_.router_changes();
  return kept_told_ = true;
}

}  // namespace unet::engine
