// wire_state.h - what a wire says beside its frames: lines for the log, and the state of the kernel's interface under it.
//
// The driver makes it, in drivers/. The service's thread calls look() and take_lines(). Any thread reads the rest.
// A wire without an interface has the lines alone.
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

  // Readable when look() has something to read; -1: never.
  virtual int descriptor() const noexcept { return -1; }
  // Reads what the kernel has told.
  virtual void look() {}

  // For the log. Drivers say few lines: a bound keeps memory small.
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

  // Packets whose checksum of TCP or UDP their sender has left undone, and nothing on the way has filled in.
  uint64_t unfinished() const noexcept { return unfinished_.load(std::memory_order_relaxed); }
  // Of one engine's thread. The first: true.
  bool count_unfinished() noexcept { return unfinished_.fetch_add(1, std::memory_order_relaxed) == 0; }

  // Grows after each change of the values below.
  uint32_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }
  // The interface is there, and it is up.
  bool is_up() const noexcept { return up_.load(std::memory_order_relaxed); }
  bool has_carrier() const noexcept { return carrier_.load(std::memory_order_relaxed); }
  // Of the interface, in the kernel; 0: there is none now.
  uint32_t index() const noexcept { return index_.load(std::memory_order_relaxed); }
  // Of the `mtu` that the wire was made for, as much as the interface still takes.
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
