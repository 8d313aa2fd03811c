// local_poller.h - decides which local channel of an endpoint delivers next; used by OwnChannels.
//
// The channel that delivered last goes first, for kBudget messages in a row. Then a few channels are checked in every poll, and the others
// in rotation. A channel that becomes active trades places with one that is always checked.
#pragma once

#include <span>
#include <vector>

#include "unet/local_channel.h"

namespace unet {

class LocalPoller {
 public:
  // Receives from the channel that delivered last. False says nothing about other channels.
  bool receive_hot(Message& message) noexcept {
    if (__builtin_expect(hot_ == nullptr || budget_ == 0 || !hot_->receive(message), 0)) return false;
    --budget_;
    return true;
  }
  // Whether receive_hot() has delivered a message since renew_budget().
  bool has_delivered() const noexcept { return budget_ != kBudget; }
  // Lets a channel deliver kBudget messages in a row again. Call it when all other sources are checked.
  void renew_budget() noexcept { budget_ = kBudget; }
  // Checks several channels. With many, one call may miss a message.
  bool receive(Message& message) noexcept;
  bool has_message() const noexcept;
  void flush_credits() noexcept;
  // The sum over all channels, including removed ones.
  LocalCounters counters() const noexcept;

  // The poller borrows the channels: remove one before its end.
  void add(LocalChannel& channel);
  void remove(LocalChannel& channel) noexcept;
  bool empty() const noexcept { return channels_.empty(); }
  std::span<LocalChannel* const> channels() const noexcept { return channels_; }

 private:
  static constexpr uint32_t kBudget = 32;        // messages in a row from one channel before the others are checked
  static constexpr uint32_t kAlways = 8;         // channels checked in every poll
  static constexpr uint32_t kRotated = 4;        // number of the others checked per poll
  static constexpr uint32_t kOthersFirst = 16;   // every so many polls the others come first, so that none starves

  bool receive_from(uint32_t index, Message& message) noexcept;
  bool receive_rotating(Message& message) noexcept;

  LocalChannel* hot_ = nullptr;  // the channel that delivered last
  uint32_t budget_ = 0;          // messages that it may deliver before the others are checked
  uint32_t cursor_ = 0;          // rotates over the channels that are checked in every poll
  uint32_t rotation_ = 0;        // rotates over the others
  uint32_t polls_ = 0;
  LocalCounters removed_;        // counters of channels that were removed
  std::vector<LocalChannel*> channels_;  // the first kAlways are checked in every poll
};

}  // namespace unet
