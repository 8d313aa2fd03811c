// ip_interface.h - the host that an NI is on one of its wires: ip::Host, driven by the engine's thread; used by IpDatapath.
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
  // For what may leave it something to send, or to tell.
  ip::Host& use() noexcept { return touch(), host_; }
  Port& port() noexcept { return port_; }
  uint32_t mtu() const noexcept { return mtu_; }
  uint64_t address_changes() const noexcept { return host_.address_changes(); }
  bool has(const ip::IpAddress& address) const noexcept { return host_.state_of(address) == ip::Host::AddressState::assigned; }

  // Frames of the host's own, and packets that waited, as far as the port takes them. True: all of them, and nothing waits in the host
  // that could go. Unless it is for a client's data, other data that waits for the port does not keep them: who does not answer is soon
  // taken for gone.
  bool pump(Nanoseconds now, bool data = false) noexcept;
  // Looks whether the wire takes other lengths than before.
  void poll_wire() noexcept {
    if (state_ != nullptr && state_->changes() != state_changes_) [[unlikely]] follow_state();
  }
  // Hands what is staged to the driver, and comes again for what it does not take.
  void flush(Nanoseconds now) noexcept {
    port_.flush(now);
    if (port_.staged()) next_ = std::min(next_, now + kRetry);
  }
  // The host was used: it may have something to send, or to tell.
  void touch() noexcept { next_ = 0; dirty_ = true; }
  // A frame has gone through it that leaves it as it was, but for its counters.
  void count_frame() noexcept { counted_ = true; }
  // Only a neighbour was looked up.
  void looked_up() noexcept { next_ = std::min(next_, host_.neighbours().next_event()); }
  Nanoseconds next_event() const noexcept { return next_; }
  // When publish_counters_if_due() has something to tell; ~0: not.
  Nanoseconds next_counters() const noexcept { return counted_ ? counters_at_ : ~Nanoseconds{0}; }
  void publish_counters_if_due(Nanoseconds now) noexcept {
    if (!counted_ || now < counters_at_) return;
    counters_at_ = now + kCountersEvery;
    publish_counters();
  }

  // A packet was dropped for a checksum that its sender has left undone.
  void report_unfinished();

  // True if what the service should know has changed since `status` was taken last.
  bool take_status(ip::HostStatus& status) noexcept;
  // Likewise of what the host before the next one has to leave it; once.
  bool take_checkpoint_due() noexcept;
  void publish_again() noexcept { told_ = checkpoint_told_ = false; dirty_ = true; }
  bool dirty() const noexcept { return dirty_; }

  // By any thread; as the engine's published it last.
  uint64_t counter(size_t which) const noexcept { return counters_[which].load(std::memory_order_relaxed); }

 private:
  void publish_counters() noexcept;
  void follow_state() noexcept;

  static constexpr Nanoseconds kCountersEvery = kMillisecond;  // those that nothing but passing frames has changed
  static constexpr Nanoseconds kRetry = 100 * kMicrosecond;  // for a port that takes no frames

  Port& port_;
  const uint32_t made_for_;  // MTU; the host's buffers are as long
  uint32_t mtu_;             // that the wire takes now
  WireState* const state_;   // the wire's, which the driver keeps; null: it never changes
  uint32_t state_changes_ = 0;
  uint32_t interface_ = 0;   // its index, as state_ has told it
  ip::Host host_;
  Nanoseconds next_ = 0;
  bool dirty_ = true;
  bool told_ = false;
  bool counted_ = false;         // what counters_ do not say yet
  Nanoseconds counters_at_ = 0;
  ip::HostStatus status_;  // as it was told
  uint64_t lease_changes_ = 0;
  bool checkpoint_told_ = false;
  uint64_t address_changes_ = 0, router_changes_ = 0;
  std::array<std::atomic<uint64_t>, kHostCounters> counters_{};
};

}  // namespace unet::engine
