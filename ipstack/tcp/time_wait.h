// time_wait.h - the TIME-WAIT state in 32 bytes: the numbers that identify old segments of the connection, and what the ACK to them needs.
// Connection uses it in that state; the stack keeps it alone once the socket is closed.
#pragma once

#include <cstdint>

#include "ipstack/tcp/challenge_limit.h"
#include "ipstack/tcp/counters.h"
#include "ipstack/tcp/options.h"
#include "unet/wire/tcp.h"

namespace unet::tcp {

using Sequence = ip::TcpSequence;

struct TimeWait {
  enum class Verdict : uint8_t {
    nothing,
    answer,      // send answer()
    begin_anew,  // send answer() and restart the TIME-WAIT timer: the peer's FIN came again
    over,        // a reset with the right number ends TIME-WAIT
  };
  Verdict handle_segment(const ip::TcpView& segment, Nanoseconds now, const Options& options, Counters& counters) noexcept;
  // True if a new connection between the same ends may replace this one (RFC 9293, 3.10.7.4 TIME-WAIT, MAY-2; RFC 6191).
  bool yields_to(const ip::TcpView& syn) const noexcept;
  // The ACK to send, without ports. It reports `came_twice` as a DSACK (RFC 2883), unless empty.
  ip::TcpFields answer(Nanoseconds now, ip::SackBlock came_twice) const noexcept;
  // The part of a segment's payload that is a duplicate.
  ip::SackBlock came_twice(const ip::TcpView& segment) const noexcept;

  Sequence snd_nxt{}, rcv_nxt{};  // behind both FINs
  uint32_t rcv_wnd = 0;           // bytes
  uint32_t snd_wnd_max = 0;
  uint32_t ts_recent = 0;
  uint32_t timestamp_offset = 0;
  ChallengeLimit challenges{};
  uint8_t scale = 0;              // scale of the announced window
  bool stamps : 1 = false, sacks : 1 = false;  // agreed in the handshake

 private:
  Verdict challenge(Nanoseconds now, const Options& options, Counters& counters) noexcept;
  Verdict handle_unacceptable(const ip::TcpView& segment, Nanoseconds now, const Options& options, Counters& counters) noexcept;
};
static_assert(sizeof(TimeWait) == 32);

}  // namespace unet::tcp
