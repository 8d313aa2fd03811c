// error_queue.h - the queue that recvmsg() with MSG_ERRQUEUE reads: errors of sent datagrams (IP_RECVERR), and sends with MSG_ZEROCOPY that
// no longer use their memory. Private to ipstack/sockets, except QueuedError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "ipstack/sockets/address.h"

namespace unet::sockets {

struct QueuedError {
  enum class Origin : uint8_t { local = 1, icmp4 = 2, icmp6 = 3, zero_copy = 5 };  // SO_EE_ORIGIN_LOCAL and so on
  Origin origin{};
  int error = 0;
  uint8_t type = 0, code = 0;        // of the ICMP message
  uint32_t info = 0, data = 0;       // too long: `info` is the path MTU; zero_copy: first and last number of the sends, from 0
  ip::IpAddress offender{};          // the sender of the ICMP message
  Address to{};                      // where the datagram went
  std::vector<std::byte> payload{};  // its beginning, as quoted in the error

  // Whether SO_ERROR reports the error, too. Errors of other origins made a call fail, or are none.
  bool is_pending() const noexcept { return origin == Origin::icmp4 || origin == Origin::icmp6; }
};

// An ICMP error about a datagram. `fatal`, as in Linux: the destination caused it, not a route that may change.
struct DatagramError {
  int error = 0;
  bool fatal = false;
};

class ErrorQueue {
 public:
  static constexpr size_t kPayloadMax = 1280;  // most payload of one error, more than a conforming router quotes
  static constexpr uint32_t kErrorsMax = 64;  // most errors of datagrams, beyond which they are dropped; ends of sends never are

  bool empty() const noexcept { return errors_.empty(); }
  const QueuedError& front() const noexcept { return errors_.front(); }
  void push(QueuedError error) {
    if (of_datagrams_ == kErrorsMax) return;
    ++of_datagrams_;
    errors_.push_back(std::move(error));
  }
  // Adds the end of the next send. Consecutive sends are merged into one entry.
  void push_send() {
    const uint32_t number = sends_++;
    if (!errors_.empty() && errors_.back().origin == QueuedError::Origin::zero_copy) errors_.back().data = number;
    else errors_.push_back({.origin = QueuedError::Origin::zero_copy, .info = number, .data = number});
  }
  // Drops all errors, but not the ends of sends.
  void drop_errors() {
    std::erase_if(errors_, [](const QueuedError& each) { return each.origin != QueuedError::Origin::zero_copy; });
    of_datagrams_ = 0;
  }
  QueuedError pop() {
    QueuedError error = std::move(errors_.front());
    errors_.pop_front();
    if (error.origin != QueuedError::Origin::zero_copy) --of_datagrams_;
    return error;
  }

 private:
  std::deque<QueuedError> errors_;
  uint32_t of_datagrams_ = 0, sends_ = 0;
};

}  // namespace unet::sockets
