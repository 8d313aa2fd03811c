// hearsay.cc - a ring of announcements between the queues of a wire.
#include "drivers/udp/hearsay.h"

#include <algorithm>
#include <cstring>

namespace unet::drivers {

void Hearsay::tell_peer(uint32_t teller, const IpAddress& peer) noexcept {
  const std::lock_guard lock(mutex_);
  const uint64_t number = told_.load(std::memory_order_relaxed);
  Item& item = items_[number % kDepth];
  item.teller = teller;
  item.peer = peer;
  told_.store(number + 1, std::memory_order_release);
}

void Hearsay::tell_frame(uint32_t teller, Bytes frame) noexcept {
  if (frame.size() > kFrameMax) return;
  const std::lock_guard lock(mutex_);
  const uint64_t number = told_.load(std::memory_order_relaxed);
  Item& item = items_[number % kDepth];
  item.teller = teller;
  item.peer.reset();
  item.length = static_cast<uint32_t>(frame.size());
  std::memcpy(item.frame.data(), frame.data(), frame.size());
  told_.store(number + 1, std::memory_order_release);
}

bool Hearsay::hear(uint32_t listener, uint64_t& heard, Item& item) noexcept {
  if (!news(heard)) return false;
  const std::lock_guard lock(mutex_);
  const uint64_t told = told_.load(std::memory_order_relaxed);
  for (heard = std::max(heard, told - std::min<uint64_t>(told, kDepth)); heard != told;) {
    const Item& next = items_[heard++ % kDepth];
    if (next.teller == listener) continue;
    item = next;
    return true;
  }
  return false;
}

}  // namespace unet::drivers
