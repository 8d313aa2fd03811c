// time_wait.h - what is left of a connection in TIME-WAIT: the numbers that tell its old segments from others, and what they are answered
// with. Made of a Connection, which uses it too while it is in that state; kept by the stack when nobody has the socket any longer.
#pragma once

#include <cstdint>

#include "ipstack/tcp/counters.h"
#include "ipstack/tcp/options.h"
#include "unet/wire/tcp.h"

namespace unet::tcp {

using Sequence = ip::TcpSequence;

struct TimeWait {
  enum class Verdict : uint8_t {
    nothing,
    answer,      // by answer()
    begin_anew,  // the same, and the waiting begins anew: the peer's FIN has come again
    over,        // a reset with the right number
  };
  Verdict handle_segment(const ip::TcpView& segment, Nanoseconds now, const Options& options, Counters& counters) noexcept;
  // RFC 9293, 3.10.7.4 TIME-WAIT, MAY-2, and RFC 6191: whether a new connection between the same ends may take the place of this one.
  bool yields_to(const ip::TcpView& syn) const noexcept;
  // The header of an ACK, but for its ports. `came_twice`, if it is not empty, is told (RFC 2883).
  ip::TcpFields answer(Nanoseconds now, ip::SackBlock came_twice) const noexcept;
  // What of a segment has come before.
  ip::SackBlock came_twice(const ip::TcpView& segment) const noexcept;

  Sequence snd_nxt{}, rcv_nxt{};  // behind both FINs
  uint32_t rcv_wnd = 0;           // bytes
  uint32_t snd_wnd_max = 0;
  uint32_t ts_recent = 0;
  uint32_t timestamp_offset = 0;
  uint16_t challenge_second = 0;
  uint8_t challenges = 0;         // in that second (RFC 5961, 7)
  uint8_t scale = 0;              // of the window that is told
  bool stamps : 1 = false, sacks : 1 = false;  // agreed upon

 private:
  Verdict challenge(Nanoseconds now, const Options& options, Counters& counters) noexcept;
  Verdict handle_unacceptable(const ip::TcpView& segment, Nanoseconds now, const Options& options, Counters& counters) noexcept;
};
static_assert(sizeof(TimeWait) == 32);

}  // namespace unet::tcp
