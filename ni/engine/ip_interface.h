// ip_interface.h - the IP host of an NI on one of its wires: ip::Host, driven by the thread of the engine; used by IpDatapath.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "ipstack/ip/host.h"
#include "ni/engine/ip_options.h"
#include "ni/engine/port.h"

namespace unet::engine {

constexpr size_t kHostCounters = static_cast<size_t>(ip::HostCounter::count);

class IpInterface {
 public:
  IpInterface(const IpInterfaceOptions& options, Port& port, uint64_t seed, Nanoseconds now);

  ip::Host& host() noexcept { return host_; }
  // For calls after which the host may have something to send or to publish.
  ip::Host& use() noexcept { return touch(), host_; }
  Port& port() noexcept { return port_; }
  uint32_t mtu() const noexcept { return mtu_; }
  uint64_t address_changes() const noexcept { return host_.address_changes(); }
  bool has(const ip::IpAddress& address) const noexcept { return host_.state_of(address) == ip::Host::AddressState::assigned; }

  // Moves frames of the host to the port, as many as that takes. True: none is left. With `data` = false they may use the room that is
  // reserved for signals, so that waiting data does not delay answers: a silent host is soon taken for dead.
  bool pump(Nanoseconds now, bool data = false) noexcept;
  // Follows changes of the wire, such as its MTU.
  void poll_wire() noexcept {
    if (state_ != nullptr && state_->changes() != state_changes_) [[unlikely]] follow_state();
  }
  // Flushes the port, and schedules a retry if it does not take all.
  void flush(Nanoseconds now) noexcept {
    port_.flush(now);
    if (port_.staged()) next_ = std::min(next_, now + kRetry);
  }
  // The host may have something to send or to publish.
  void touch() noexcept { next_ = 0; dirty_ = true; }
  // A frame has changed only the counters of the host.
  void count_frame() noexcept { counted_ = true; }
  // Only the timer of a neighbour may have changed.
  void looked_up() noexcept { next_ = std::min(next_, host_.neighbours().next_event()); }
  Nanoseconds next_event() const noexcept { return next_; }
  // When publish_counters_if_due() is due; ~0: never.
  Nanoseconds next_counters() const noexcept { return counted_ ? counters_at_ : ~Nanoseconds{0}; }
  void publish_counters_if_due(Nanoseconds now) noexcept {
    if (!counted_ || now < counters_at_) return;
    counters_at_ = now + kCountersEvery;
    publish_counters();
  }

  // A packet was dropped: its sender has left the checksum to a device.
  void report_unfinished();

  // True if the status has changed since the last call.
  bool take_status(ip::HostStatus& status) noexcept;
  // True once after each change of the checkpoint.
  bool take_checkpoint_due() noexcept;
  void publish_again() noexcept { told_ = checkpoint_told_ = false; dirty_ = true; }
  bool dirty() const noexcept { return dirty_; }

  // Any thread may call it: the value that was last published.
  uint64_t counter(size_t which) const noexcept { return counters_[which].load(std::memory_order_relaxed); }

 private:
  void publish_counters() noexcept;
  void follow_state() noexcept;

  static constexpr Nanoseconds kCountersEvery = kMillisecond;  // counters that only passing frames have changed
  static constexpr Nanoseconds kRetry = 100 * kMicrosecond;  // while the port takes no frames

  Port& port_;
  const uint32_t made_for_;  // MTU, and size of the buffers of the host
  uint32_t mtu_;             // present MTU of the wire
  WireState* const state_;   // owned by the driver; null: the wire never changes
  uint32_t state_changes_ = 0;
  uint32_t interface_ = 0;   // its index, by state_
  ip::Host host_;
  Nanoseconds next_ = 0;
  bool dirty_ = true;
  bool told_ = false;
  bool counted_ = false;         // counters_ are out of date
  Nanoseconds counters_at_ = 0;
  ip::HostStatus status_;  // as published
  uint64_t lease_changes_ = 0;
  bool checkpoint_told_ = false;
  uint64_t address_changes_ = 0, router_changes_ = 0;
  std::array<std::atomic<uint64_t>, kHostCounters> counters_{};
};

}  // namespace unet::engine
