// ip_interface.cc - moves frames of the host to the wire, and publishes its status.
#include "ni/engine/ip_interface.h"

#include <algorithm>

namespace unet::engine {
namespace {

constexpr uint32_t kMtuMax = 9216;  // the largest link MTU; the host has buffers of that size

ip::HostOptions host_options(const IpInterfaceOptions& options, const DriverCapabilities& wire, uint64_t seed) {
  ip::HostOptions host{.mac = wire.address, .mtu = std::min(wire.mtu, kMtuMax), .addresses = options.addresses,
                       .gateway4 = options.gateway4, .gateway6 = options.gateway6, .routes = options.routes};
  host.ipv6 = wire.mtu >= ip::kIpv6MtuMin;
  host.autoconfigure = host.ipv6 && options.autoconfigure;
  host.dhcp = options.dhcp;
  host.claim = options.probe && !wire.alone;
  host.address_key = options.address_key;
  host.seed = seed;
  return host;
}

}  // namespace

IpInterface::IpInterface(const IpInterfaceOptions& options, Port& port, uint64_t seed, Nanoseconds now)
    : port_(port), made_for_(std::min(port.driver().capabilities().mtu, kMtuMax)), mtu_(made_for_), state_(port.driver().state().get()),
      host_(host_options(options, port.driver().capabilities(), seed), now) {}

void IpInterface::follow_state() noexcept {
  state_changes_ = state_->changes();
  const uint32_t index = state_->index();
  if (index != 0 && index != interface_) {
    // A new interface has new neighbours.
    if (interface_ != 0) host_.neighbours().forget();
    interface_ = index;
    touch();
  }
  const uint32_t mtu = std::max(state_->mtu_of(made_for_), ip::kIpv4WholeMin);
  if (mtu == mtu_) return;
  mtu_ = std::min(mtu, made_for_);
  host_.set_link_mtu(mtu_);
  touch();
}

bool IpInterface::pump(Nanoseconds now, bool data) noexcept {
  if (now < next_) return true;
  dirty_ = true;
  while (TransmitFrame* const frame = data ? port_.frame(now) : port_.signal_frame(now)) {
    const uint32_t length = host_.poll_frame(now, {frame->data, made_for_ + sizeof(EthernetHeader)});
    if (length == 0) {
      for (ip::IpAddress neighbour; host_.poll_unreachable(neighbour);) {}  // senders time out
      next_ = host_.next_event();
      return true;
    }
    frame->length = length;
    port_.stage();
  }
  next_ = now + kRetry;
  return false;
}

// Linux leaves checksums and segmentation to an interface. A wire that does not carry these offload flags cannot tell that from damage.
void IpInterface::report_unfinished() {
  if (state_ == nullptr || !state_->count_unfinished()) return;
  state_->say(port_.driver().description() +
              ": a packet came with an unfinished checksum, and was dropped (rx_unfinished_checksum): the kernel of this machine leaves "
              "checksums to interfaces. Let it finish them where they are sent (`ethtool -K INTERFACE tx off tso off gso off`), or "
              "take the wire packet:iface=");
}

void IpInterface::publish_counters() noexcept {
  counted_ = false;
  for (size_t i = 0; i < kHostCounters; ++i) {
    counters_[i].store(host_.counter(static_cast<ip::HostCounter>(i)), std::memory_order_relaxed);
  }
}

bool IpInterface::take_status(ip::HostStatus& status) noexcept {
  dirty_ = false;
  publish_counters();
  status = host_.status();
  if (told_ && status == status_ && host_.lease_changes() == lease_changes_) return false;
  status_ = status;
  lease_changes_ = host_.lease_changes();
  return told_ = true;
}

bool IpInterface::take_checkpoint_due() noexcept {
  if (checkpoint_told_ && host_.address_changes() == address_changes_ && host_.router_changes() == router_changes_) return false;
  address_changes_ = host_.address_changes();
  router_changes_ = host_.router_changes();
  return checkpoint_told_ = true;
}

}  // namespace unet::engine
