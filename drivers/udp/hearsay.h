// hearsay.h - lets the udp wrappers around the queues of one wire share what they learn: new peers, and messages of neighbours. Such a
// frame arrives at one queue, and all must know of it. Used by the udp wrapper; a wire with one queue has none.
//
// A ring that all queues write and read, each in its own thread, under a lock that is never taken on the path of a message. A slow reader
// misses the oldest entries. Missing them is harmless: peers go on signalling, and unanswered questions are asked again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "drivers/udp/datagram.h"

namespace unet::drivers {

class Hearsay {
 public:
  static constexpr uint32_t kDepth = 1024;
  static constexpr size_t kFrameMax = 128;  // longer frames are not shared: questions and answers of NIs are shorter

  struct Item {
    uint32_t teller = 0;
    std::optional<IpAddress> peer;  // a signal came from this peer; or
    uint32_t length = 0;            // a frame between neighbours, of this many bytes
    std::array<std::byte, kFrameMax> frame{};
  };

  Hearsay() : items_(kDepth) {}

  void tell_peer(uint32_t teller, const IpAddress& peer) noexcept;
  void tell_frame(uint32_t teller, Bytes frame) noexcept;

  // Whether there are entries after `heard`, which starts at 0.
  bool news(uint64_t heard) const noexcept { return told_.load(std::memory_order_acquire) != heard; }
  // Reads the next entry of another queue, and advances `heard` past it. Returns false if there is none.
  bool hear(uint32_t listener, uint64_t& heard, Item& item) noexcept;

 private:
  std::mutex mutex_;
  std::vector<Item> items_;
  std::atomic<uint64_t> told_{0};  // written under the lock
};

}  // namespace unet::drivers
