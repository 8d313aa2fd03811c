// local_poller.cc - the order in which an endpoint's local channels are checked.
#include "unet/local_poller.h"

#include <algorithm>

namespace unet {

void LocalPoller::add(LocalChannel& channel) {
  channels_.push_back(&channel);
  if (channels_.size() == 1) hot_ = &channel;
}

void LocalPoller::remove(LocalChannel& channel) noexcept {
  removed_ += channel.counters();
  if (hot_ == &channel) hot_ = nullptr;
  std::erase(channels_, &channel);
}

bool LocalPoller::receive_from(uint32_t index, Message& message) noexcept {
  LocalChannel* const channel = channels_[index];
  if (!channel->receive(message)) {
    channel->flush_credits();
    return false;
  }
  hot_ = channel;
  return true;
}

bool LocalPoller::receive(Message& message) noexcept {
  const auto count = static_cast<uint32_t>(channels_.size());
  const bool others = count > kAlways;
  if (others && ++polls_ % kOthersFirst == 0 && receive_rotating(message)) return true;
  const uint32_t always = std::min(count, kAlways);
  for (uint32_t i = 0; i < always; ++i) {
    if (++cursor_ >= always) cursor_ = 0;
    if (receive_from(cursor_, message)) return true;
  }
  return others && receive_rotating(message);
}

bool LocalPoller::receive_rotating(Message& message) noexcept {
  const uint32_t others = static_cast<uint32_t>(channels_.size()) - kAlways;
  for (uint32_t i = 0; i < kRotated; ++i) {
    const uint32_t index = kAlways + ++rotation_ % others;
    if (!receive_from(index, message)) continue;
    std::swap(channels_[index], channels_[rotation_ % kAlways]);
    return true;
  }
  return false;
}

bool LocalPoller::has_message() const noexcept {
  return std::any_of(channels_.begin(), channels_.end(), [](const LocalChannel* channel) { return channel->has_message(); });
}

LocalCounters LocalPoller::counters() const noexcept {
  LocalCounters sum = removed_;
  for (const LocalChannel* channel : channels_) sum += channel->counters();
  return sum;
}

void LocalPoller::flush_credits() noexcept {
  for (LocalChannel* channel : channels_) channel->flush_credits();
}

}  // namespace unet
