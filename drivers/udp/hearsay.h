// hearsay.h - what the udp wrappers around the queues of one wire tell each other: who has become a peer, and what neighbours have said.
// Such a frame arrives at one of them, and all have to know. Used by the udp wrapper; with one queue there is none.
//
// A ring that all write and read, each by a thread of its own, under a lock that nothing on the way of a message takes. Who does not listen
// for long misses the oldest. All of it is said again: peers go on signalling, and questions that remain without an answer are repeated.
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
  static constexpr size_t kFrameMax = 128;  // what is longer is not passed on: questions and answers of NIs are shorter

  struct Item {
    uint32_t teller = 0;
    std::optional<IpAddress> peer;  // a signal came from it; or
    uint32_t length = 0;            // a frame between neighbours, of so many bytes
    std::array<std::byte, kFrameMax> frame{};
  };

  Hearsay() : items_(kDepth) {}

  void tell_peer(uint32_t teller, const IpAddress& peer) noexcept;
  void tell_frame(uint32_t teller, Bytes frame) noexcept;

  // Whether anything was told since `heard`, which begins as 0.
  bool news(uint64_t heard) const noexcept { return told_.load(std::memory_order_acquire) != heard; }
  // The next that was told by others than the listener, and `heard` after it; false: there is none.
  bool hear(uint32_t listener, uint64_t& heard, Item& item) noexcept;

 private:
  std::mutex mutex_;
  std::vector<Item> items_;
  std::atomic<uint64_t> told_{0};  // written under the lock
};

}  // namespace unet::drivers
