// error_queue.h - what recvmsg() with MSG_ERRQUEUE reads: errors about datagrams that were sent (IP_RECVERR), and which sends with
// MSG_ZEROCOPY have no use for their memory any longer; private to ipstack/sockets but for what is in it.
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
  uint8_t type = 0, code = 0;        // of ICMP
  uint32_t info = 0, data = 0;       // of what was too long the path's MTU; of zero_copy the first and the last of the sends, from 0 on
  ip::IpAddress offender{};          // the sender of the ICMP message
  Address to{};                      // where the datagram went
  std::vector<std::byte> payload{};  // of it, as much as was quoted

  // What SO_ERROR tells, too; of the others a call has failed, or none has.
  bool is_pending() const noexcept { return origin == Origin::icmp4 || origin == Origin::icmp6; }
};

// An ICMP error about a datagram. Fatal, as Linux has it: it is about the destination, and not about a route that may change.
struct DatagramError {
  int error = 0;
  bool fatal = false;
};

class ErrorQueue {
 public:
  static constexpr size_t kPayloadMax = 1280;  // of one error: more than a conforming router quotes
  static constexpr uint32_t kErrorsMax = 64;  // of datagrams; what comes then is lost, and the ends of sends never are

  bool empty() const noexcept { return errors_.empty(); }
  const QueuedError& front() const noexcept { return errors_.front(); }
  void push(QueuedError error) {
    if (of_datagrams_ == kErrorsMax) return;
    ++of_datagrams_;
    errors_.push_back(std::move(error));
  }
  // One more send is over. Those that follow one another are told together.
  void push_send() {
    const uint32_t number = sends_++;
    if (!errors_.empty() && errors_.back().origin == QueuedError::Origin::zero_copy) errors_.back().data = number;
    else errors_.push_back({.origin = QueuedError::Origin::zero_copy, .info = number, .data = number});
  }
  // All but the ends of sends.
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
