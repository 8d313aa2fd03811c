// link.h - U-Net's public API as a Link of workloads/messages.h; all of U-Net's paths use it.
//
// Copies of a payload byte: one by send(); one out of the received message, in place, into the receiver's buffer, which
// stands for the application reading it.
#pragma once

#include <unistd.h>

#include <string>

#include "apps/bench/workloads/messages.h"
#include "unet/context.h"

namespace unet::bench {

// The sending half of a link, whether the path can lose or not.
struct UnetSender {
  Endpoint& out;
  Channel channel;    // of `out`
  RunContext& context;

  bool send(const std::byte* data, size_t size) { return send_one(data, size, false); }
  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (!send_one(data + i * size, size, i + 1 < count)) return 0;
    }
    return count;
  }

 protected:
  bool send_one(const std::byte* data, size_t size, bool more) {
    return until_accepted([&] { return out.send(channel, {data, size}, more); });
  }
  template <typename Attempt>
  bool until_accepted(Attempt attempt) {
    SendOutcome outcome = attempt();
    if (__builtin_expect(outcome == SendOutcome::sent, 1)) return true;
    if (!spin_until(context.stop, [&] { return (outcome = attempt()) != SendOutcome::full; })) return false;
    if (outcome == SendOutcome::sent) return true;
    complain(outcome);
    return false;
  }
  void complain(SendOutcome outcome) { context.control.fail("send was refused: " + std::string(to_string(outcome))); }
};

struct UnetLink : UnetSender {
  static constexpr bool kLossless = true;
  Endpoint& in;       // the same as `out`, except where one process holds both ends of a path
  bool sleeps;        // a receiver sleeps instead of polling
  Nanoseconds polls = 0;  // for so long before it sleeps, giving its core away between polls

  UnetLink(Endpoint& sender, Endpoint& receiver, Channel to, RunContext& run, bool receiver_sleeps = false)
      : UnetSender{sender, to, run}, in(receiver), sleeps(receiver_sleeps) {}

  bool receive(std::byte* into, size_t size) { return wait_message() && take(into, size); }
  bool flush() { return true; }
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    if (!receive(into, size)) return 0;
    size_t n = 1;
    while (n < count && in.receive(message_)) {
      if (!take(into + n * size, size)) return 0;
      ++n;
    }
    return n;
  }

  // put: the notification that ends a slice tells B that everything before it is there.
  bool put(size_t offset, const std::byte* data, size_t size) {
    return until_accepted([&] { return out.put(channel, offset, {data, size}, false); });
  }
  bool notify() {
    return until_accepted([&] { return out.put(channel, 0, {}, true); });
  }
  // Whatever comes, dropped unread.
  bool wait_any() {
    if (!wait_message()) return false;
    in.release(message_);
    return true;
  }

  // One attempt each, for a thread that serves both ends.
  bool try_send(const std::byte* data, size_t size, bool more) {
    const SendOutcome outcome = out.send(channel, {data, size}, more);
    if (outcome != SendOutcome::sent && outcome != SendOutcome::full) complain(outcome);
    return outcome == SendOutcome::sent;
  }
  bool try_receive(std::byte* into, size_t size) { return in.receive(message_) && take(into, size); }

 protected:
  static constexpr Nanoseconds kLook = 50 * kMillisecond;  // a sleeper looks for a stop this often

  bool wait_message() {
    if (!sleeps) return spin_until(context.stop, [&] { return in.receive(message_); });
    while (!in.receive(message_)) {
      if (context.stop.raised()) return false;
      if (in.wait(kLook, polls) == WaitOutcome::disconnected) {
        context.control.fail("the network interface is gone");
        return false;
      }
    }
    return true;
  }
  bool take(std::byte* into, size_t size) {
    const bool whole = message_.length == size;
    if (whole) copy_message(into, message_.data, size);
    in.release(message_);
    if (!whole) context.control.fail("a message of another length arrived");
    return whole;
  }

  Message message_;
};

}  // namespace unet::bench
