// watch.cc - changes of the watched set.
#include "ni/engine/watch.h"

#include <algorithm>

#include "unet/base/fence.h"

namespace unet::engine {

Watch::Watch(uint32_t max_per_user, Nanoseconds watch_time) noexcept : max_(std::min(max_per_user, kMax / 2)), watch_time_(watch_time) {}

void Watch::add(EndpointState& endpoint, Nanoseconds now) noexcept {
  if (endpoint.watch != kNone || count_ == kMax) return;
  // A user with many busy endpoints must not take the places of users with few.
  const uint32_t most = count_ < kMax / 2 ? max_ : std::min(max_, kFew);
  if (endpoint.share->watched >= most) return;
  ++endpoint.share->watched;
  endpoint.watch = count_;
  entries_[count_++] = {.mark = &never_, .expected = 1, .endpoint = &endpoint, .last_active = now};
  endpoint.header->engine_watching.value.store(1, std::memory_order_relaxed);
}

void Watch::remove(EndpointState& endpoint) noexcept {
  if (endpoint.watch == kNone) return;
  endpoint.header->engine_watching.value.store(0, std::memory_order_relaxed);
  erase(endpoint.watch);
}

void Watch::erase(uint32_t index) noexcept {
  entries_[index].endpoint->watch = kNone;
  --entries_[index].endpoint->share->watched;
  if (index != --count_) {
    entries_[index] = entries_[count_];
    entries_[index].endpoint->watch = index;
  }
}

uint32_t Watch::take_idle(Nanoseconds idle_since, std::array<EndpointState*, kMax>& stopped) noexcept {
  uint32_t count = 0;
  for (uint32_t i = 0; i < count_;) {
    const Entry& entry = entries_[i];
    if (entry.mark == &never_ || entry.last_active > idle_since) {
      ++i;
      continue;
    }
    EndpointState& endpoint = *entry.endpoint;
    endpoint.header->engine_watching.value.store(0, std::memory_order_relaxed);
    stopped[count++] = &endpoint;
    erase(i);
  }
  // After the fence, every client either sees the 0 and rings, or has published a message that the caller will see.
  if (count != 0) heavy_fence();
  return count;
}

}  // namespace unet::engine
