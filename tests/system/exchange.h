// exchange.h - verified traffic between an asker and an answerer; for system tests.
//
// Message number n of a channel is a window of one table of random bytes, so making it costs a copy, and checking it a memcmp. Each
// direction of a channel numbers its messages by itself. The answer to a message is as long as the message.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/system/ni_process.h"
#include "unet/context.h"

namespace unet {

// The contents of message `number` of `size` bytes.
inline Bytes content(uint32_t number, uint32_t size) {
  static const std::vector<std::byte> table = [] {
    std::mt19937 random(1);
    std::vector<std::byte> bytes(2 * kMessageMax);
    for (std::byte& each : bytes) each = static_cast<std::byte>(random());
    return bytes;
  }();
  return {table.data() + (number * 2654435761u >> 16), size};
}

inline bool is_content(Bytes bytes, uint32_t number) {
  return bytes.empty() || std::memcmp(bytes.data(), content(number, static_cast<uint32_t>(bytes.size())).data(), bytes.size()) == 0;
}

// Sends message `number`, alternately copied and composed in place. Every outcome but `full` is final.
inline SendOutcome send_content(Endpoint& endpoint, Channel channel, uint32_t number, uint32_t size) {
  const Bytes data = content(number, size);
  if (number % 2 == 0) return endpoint.send(channel, data);
  const MutableBytes room = endpoint.reserve(channel, size);
  if (room.empty()) return endpoint.is_open(channel) ? SendOutcome::full : SendOutcome::no_channel;
  std::copy(data.begin(), data.end(), room.begin());
  return endpoint.post(channel, size);
}

// How to wait at an endpoint: without waiting, in wait() with its short poll, asleep at once, or asleep in poll(2). In poll(2) no time-out
// of the library hides a lost wake-up; it needs a living NI.
enum class Waiting { poll, spin, sleep, descriptor };
constexpr uint32_t kMortalWaitings = 3;

// Sleeps on the endpoint's descriptor. False: no event came.
inline bool sleep_in_poll(Endpoint& endpoint) {
  if (!endpoint.arm()) return true;
  pollfd wanted{.fd = *endpoint.descriptor(), .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, kHangSeconds * 1000) == 1;
}

inline WaitOutcome wait_as(Endpoint& endpoint, Waiting waiting) {
  switch (waiting) {
    case Waiting::poll: return WaitOutcome::ready;
    case Waiting::spin: return endpoint.wait(kHang);
    case Waiting::sleep: return endpoint.wait(kHang, 0);
    case Waiting::descriptor: return sleep_in_poll(endpoint) ? WaitOutcome::ready : WaitOutcome::timed_out;
  }
  return WaitOutcome::timed_out;
}

// The asking side: keeps up to `window` messages under way and checks each answer.
class Asker {
 public:
  Asker(Endpoint& endpoint, Channel channel, uint32_t window, Waiting waiting)
      : endpoint_(endpoint), channel_(channel), window_(window), waiting_(waiting) {}

  enum class Outcome { sent, no_channel, wrong, lost };

  // Sends one message when the window allows it, and takes arrived answers.
  Outcome send(uint32_t size) {
    while (sizes_.size() >= window_) {
      if (const Outcome outcome = take(true); outcome != Outcome::sent) return outcome;
    }
    SendOutcome outcome;
    while ((outcome = send_content(endpoint_, channel_, sent_, size)) == SendOutcome::full) {
      if (const Outcome taken = take(!sizes_.empty()); taken != Outcome::sent) return taken;
    }
    if (outcome != SendOutcome::sent) return outcome == SendOutcome::no_channel ? Outcome::no_channel : Outcome::wrong;
    ++sent_;
    sizes_.push_back(size);
    return take(false);
  }
  // Waits for all answers.
  Outcome finish() {
    while (!sizes_.empty()) {
      if (const Outcome outcome = take(true); outcome != Outcome::sent) return outcome;
    }
    return Outcome::sent;
  }
  // Sends messages of all `sizes`, and takes their answers.
  Outcome run(const std::vector<uint32_t>& sizes) {
    for (const uint32_t size : sizes) {
      if (const Outcome outcome = send(size); outcome != Outcome::sent) return outcome;
    }
    return finish();
  }
  uint32_t answered() const { return answered_; }

 private:
  // Takes arrived messages; `must_come`: waits for at least one.
  Outcome take(bool must_come) {
    while (true) {
      bool took = false;
      for (Message message; endpoint_.receive(message); took = true) {
        // Messages that the NI had delivered before a channel ended still come; they are dropped.
        if (message.channel != channel_ && !endpoint_.is_open(message.channel)) {
          endpoint_.release(message);
          continue;
        }
        const bool right = !sizes_.empty() && message.channel == channel_ && message.kind == MessageKind::message &&
                           message.length == sizes_.front() && is_content(message.bytes(), answered_);
        endpoint_.release(message);
        if (!right) return Outcome::wrong;
        sizes_.pop_front();
        ++answered_;
      }
      if (took || !must_come) return Outcome::sent;
      if (!endpoint_.is_open(channel_)) return Outcome::no_channel;
      const WaitOutcome outcome = wait_as(endpoint_, waiting_);
      if (outcome == WaitOutcome::timed_out) return Outcome::lost;
      if (outcome == WaitOutcome::disconnected) return Outcome::no_channel;
    }
  }

  Endpoint& endpoint_;
  Channel channel_;
  uint32_t window_;
  Waiting waiting_;
  uint32_t sent_ = 0, answered_ = 0;
  std::deque<uint32_t> sizes_;  // of the messages under way
};

// The answering side, for any number of channels.
class Answerer {
 public:
  explicit Answerer(Endpoint& endpoint) : endpoint_(endpoint) {}

  // Does all due work without waiting. False: a message was wrong, or the service did not answer.
  bool turn() {
    while (const auto request = endpoint_.next_request()) {
      const auto channel = endpoint_.accept(request->id);
      if (channel) {
        numbers_[*channel] = 0;
      } else if (channel.error().code != Errc::not_found && channel.error().code != Errc::disconnected) {
        return false;
      }
    }
    for (Message message; endpoint_.receive(message);) {
      // Messages that the NI had delivered before their channel was closed still come; they are dropped.
      const auto known = numbers_.find(message.channel);
      if (message.kind != MessageKind::message || known == numbers_.end()) {
        endpoint_.release(message);
        continue;
      }
      uint32_t& number = known->second;
      const bool right = is_content(message.bytes(), number) && answer(message.channel, number, message.length);
      endpoint_.release(message);
      ++number;
      if (!right) return false;
    }
    while (const auto event = endpoint_.next_event()) {
      events_.push_back(*event);
      numbers_.erase(event->channel);
      if (!endpoint_.close(event->channel)) return false;
    }
    return true;
  }
  bool has_channels() const { return !numbers_.empty(); }
  // The events of closed channels.
  std::vector<ChannelEvent> take_events() { return std::exchange(events_, {}); }

 private:
  bool answer(Channel channel, uint32_t number, uint32_t size) {
    SendOutcome outcome;
    while ((outcome = send_content(endpoint_, channel, number, size)) == SendOutcome::full) {
      if (endpoint_.wait_room(channel, kHang) == WaitOutcome::timed_out) return false;
    }
    return outcome == SendOutcome::sent || outcome == SendOutcome::no_channel;
  }

  Endpoint& endpoint_;
  std::map<Channel, uint32_t> numbers_;  // the next message of each channel
  std::vector<ChannelEvent> events_;
};

}  // namespace unet
