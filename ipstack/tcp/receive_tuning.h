// receive_tuning.h - the limit of a receive buffer, by dynamic right-sizing (Fisk and Feng, 2001): space for twice what the application
// reads per RTT. Used by Connection.
#pragma once

#include <algorithm>

#include "ipstack/tcp/options.h"
#include "ipstack/tcp/scoreboard.h"

namespace unet::tcp {

class ReceiveTuning {
 public:
  void set_limit(uint32_t bytes) noexcept { limit_ = bytes; }
  // `next`: RCV.NXT without the FIN. `read`: the number behind all that the application has read.
  void start(Sequence next, Sequence read, Nanoseconds now) noexcept {
    trip_end_ = next;
    read_begin_ = read;
    read_from_ = ticks(now);
  }
  uint32_t limit() const noexcept { return limit_; }
  Nanoseconds trip() const noexcept { return Nanoseconds{trip_} << kTickShift; }  // RTT of the peer's data; 0: unknown
  // Bytes that the application has read since the present round trip began.
  uint32_t read_since(Sequence read) const noexcept { return read - read_begin_; }

  // All before trip_end() has arrived: a sender that the window limits takes one RTT for a window of data. Any other sender takes longer,
  // and its timestamps bound the RTT by `echo` (kNever: no usable echo). The next measurement ends at `end`.
  Sequence trip_end() const noexcept { return trip_end_; }
  void measure(Nanoseconds echo, Sequence end, Nanoseconds now) noexcept {
    const uint32_t at = ticks(now);
    if (trip_from_ != 0) {
      uint32_t sample = std::min(at - trip_from_, ticks(kSecond));
      if (echo != kNever) sample = std::min(sample, ticks(echo + kMillisecond));
      trip_ = trip_ == 0 ? sample : static_cast<uint32_t>((7 * uint64_t{trip_} + sample) / 8);
    }
    trip_from_ = std::max(at, 1u);
    trip_end_ = end;
  }
  // Raises the limit once per RTT. `rtt`: the sender's estimate, until trip() is known.
  void grow(Sequence read, Nanoseconds rtt, const Options& options, Nanoseconds now) noexcept {
    const uint32_t at = ticks(now);
    const uint32_t trip = trip_ != 0 ? trip_ : ticks(rtt);
    if (trip == 0 || at - read_from_ < trip) return;
    const uint32_t bytes = read_since(read);
    if (2 * uint64_t{bytes} > limit_) {
      const uint64_t wanted = 2 * uint64_t{bytes} + 16u * options.mss;  // plus the growth in slow start
      limit_ = static_cast<uint32_t>(std::min<uint64_t>(wanted, options.receive_buffer_max));
    }
    read_begin_ = read;
    read_from_ = at;
  }

 private:
  uint32_t limit_ = 0;                  // bytes
  uint32_t trip_from_ = 0, trip_ = 0;   // when the present measurement began, and the RTT, both in ticks (scoreboard.h)
  uint32_t read_from_ = 0;              // when the present round trip began
  Sequence trip_end_{}, read_begin_{};  // the byte that ends the measurement; how much the application had read at read_from_
};

}  // namespace unet::tcp
