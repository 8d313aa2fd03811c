// error_queue.h - what recvmsg() with MSG_ERRQUEUE reads: errors about datagrams that were sent (IP_RECVERR), and which sends with
// MSG_ZEROCOPY have no use for their memory any longer; private to ipstack/sockets but for what is in it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "ipstack/sockets/address.h"

namespace unet::sockets {

struct QueuedError {
  enum class Origin : uint8_t { icmp4 = 2, icmp6 = 3, zero_copy = 5 };  // SO_EE_ORIGIN_ICMP and so on
  Origin origin{};
  int error = 0;
  uint8_t type = 0, code = 0;        // of ICMP
  uint32_t info = 0, data = 0;       // of what was too long the path's MTU; of zero_copy the first and the last of the sends, from 0 on
  ip::IpAddress offender{};          // who says so
  Address to{};                      // where the datagram went
  std::vector<std::byte> payload{};  // of it, as much as was quoted

  // What SO_ERROR tells, too.
  bool is_pending() const noexcept { return origin != Origin::zero_copy; }
};

class ErrorQueue {
 public:
  static constexpr uint32_t kErrorsMax = 64;  // those of ICMP; what comes then is lost, and the ends of sends never are

  bool empty() const noexcept { return errors_.empty(); }
  const QueuedError& front() const noexcept { return errors_.front(); }
  void push(QueuedError error) {
    if (pending_ == kErrorsMax) return;
    ++pending_;
    errors_.push_back(std::move(error));
  }
  // One more send is over. Those that follow one another are told together.
  void push_send() {
    const uint32_t number = sends_++;
    if (!errors_.empty() && !errors_.back().is_pending()) errors_.back().data = number;
    else errors_.push_back({.origin = QueuedError::Origin::zero_copy, .info = number, .data = number});
  }
  QueuedError pop() {
    QueuedError error = std::move(errors_.front());
    errors_.pop_front();
    if (error.is_pending()) --pending_;
    return error;
  }

 private:
  std::deque<QueuedError> errors_;
  uint32_t pending_ = 0, sends_ = 0;
};

}  // namespace unet::sockets
