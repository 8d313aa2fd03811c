// wire_state.h - the state of a wire beside its frames: lines for the log, and the kernel's interface under it; used by drivers, engine and
// service.
//
// The driver makes it, in drivers/. The service's thread calls look() and take_lines(). Any thread may read the rest. A wire without an
// interface has only lines.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace unet {

class WireState {
 public:
  WireState() = default;
  virtual ~WireState() = default;
  WireState(const WireState&) = delete;
  WireState& operator=(const WireState&) = delete;

  // A descriptor that is readable when look() has something to read; -1: none.
  virtual int descriptor() const noexcept { return -1; }
  // Reads messages of the kernel.
  virtual void look() {}

  // Adds a line for the log. Drivers write few lines; the bound limits memory.
  void say(std::string line) {
    const std::lock_guard lock(mutex_);
    if (lines_.size() < kLinesMax) lines_.push_back(std::move(line));
    has_lines_.store(true, std::memory_order_release);
  }
  bool has_lines() const noexcept { return has_lines_.load(std::memory_order_acquire); }
  std::vector<std::string> take_lines() {
    const std::lock_guard lock(mutex_);
    has_lines_.store(false, std::memory_order_relaxed);
    return std::exchange(lines_, {});
  }

  // Number of packets with a TCP or UDP checksum that neither the sender nor any station on the way has filled in.
  uint64_t unfinished() const noexcept { return unfinished_.load(std::memory_order_relaxed); }
  // Counts such a packet; only the engine's thread may call it. Returns true for the first one.
  bool count_unfinished() noexcept { return unfinished_.fetch_add(1, std::memory_order_relaxed) == 0; }

  // Grows after each change of the values below.
  uint32_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }
  // Whether the interface exists and is up.
  bool is_up() const noexcept { return up_.load(std::memory_order_relaxed); }
  bool has_carrier() const noexcept { return carrier_.load(std::memory_order_relaxed); }
  // The kernel's index of the interface; 0: it does not exist now.
  uint32_t index() const noexcept { return index_.load(std::memory_order_relaxed); }
  // The part of `mtu`, the MTU that the wire was made for, that the interface still takes.
  uint32_t mtu_of(uint32_t mtu) const noexcept { return mtu - std::min(mtu, lowered_.load(std::memory_order_relaxed)); }

 protected:
  void set(uint32_t index, bool up, bool carrier, uint32_t lowered) noexcept {
    index_.store(index, std::memory_order_relaxed);
    up_.store(up, std::memory_order_relaxed);
    carrier_.store(carrier, std::memory_order_relaxed);
    lowered_.store(lowered, std::memory_order_relaxed);
    changes_.fetch_add(1, std::memory_order_release);
  }

 private:
  static constexpr size_t kLinesMax = 64;
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::atomic<bool> has_lines_{false};
  std::atomic<uint32_t> changes_{0}, index_{0}, lowered_{0};
  std::atomic<uint64_t> unfinished_{0};
  std::atomic<bool> up_{true}, carrier_{true};
};

}  // namespace unet
