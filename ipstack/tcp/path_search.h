// path_search.h - the search for the path MTU (RFC 4821, RFC 8899): which segments pass, and which size is probed next. Used by Connection,
// which sends the probes and finds their losses. Sizes are payload and options, as Options::mss.
#pragma once

#include <cstdint>

#include "ipstack/tcp/options.h"
#include "unet/wire/tcp.h"

namespace unet::tcp {

using Sequence = ip::TcpSequence;

class PathSearch {
 public:
  // Before start(): the cached PMTU.
  void limit(uint16_t size) noexcept {
    known_ = true;
    passes_ = size;
  }
  // `most`, here and below: the largest segment that both sides take.
  void start(uint16_t most, const Options& options, Nanoseconds now) noexcept;

  uint16_t passes() const noexcept { return passes_; }  // size that is known, or believed, to pass
  bool is_active() const noexcept { return active_; }
  // The size that passes, if it is new; else 0.
  uint16_t take_news() noexcept;

  // Size of the next probe; 0: none now. The maximum first, which most paths carry, then binary search.
  uint16_t next_size(uint16_t most, Nanoseconds now) noexcept;
  void sent(uint16_t size, Sequence end) noexcept {
    probe_ = size;
    probe_end_ = end;
  }
  uint16_t probe() const noexcept { return probe_; }  // size of the probe in flight; 0: none
  Sequence probe_end() const noexcept { return probe_end_; }
  void handle_arrival(uint16_t most, Nanoseconds now) noexcept;
  // Only the probe was lost.
  void handle_loss() noexcept;
  // Other segments were lost, too, so the loss says nothing about the probe's size.
  void give_up(Nanoseconds now) noexcept;
  // An ICMP error named a size below the probe's: that size comes next.
  void drop_probe() noexcept;

  // An ICMP error named `size`. True: segments become shorter.
  bool handle_too_big(uint16_t size, const Options& options, Nanoseconds now) noexcept;
  // A segment of `lost` bytes was lost repeatedly (RFC 4821, 7.7: a router that sends no ICMP error). True: segments become shorter.
  bool handle_black_hole(uint32_t lost, const Options& options, Nanoseconds now) noexcept;

 private:
  uint16_t passes_ = 0;
  uint16_t most_ = 0;                // upper bound of the search
  uint16_t probe_ = 0;
  bool known_ : 1 = false;           // limit() was called
  bool active_ : 1 = false;          // searches for larger segments
  bool halves_ : 1 = false;          // `most_` was tried: binary search
  bool news_ : 1 = false;            // take_news() has a new size
  // A suspected black hole set `passes_`; no other evidence has confirmed it yet.
  bool suspected_ : 1 = false;
  Sequence probe_end_{};
  uint32_t search_at_ = 0;           // seconds: when the next search begins
};

}  // namespace unet::tcp
