// congestion.h - how much one connection may have on its way: slow start, then NewReno (RFC 5681, with the byte counting of RFC 3465) or
// CUBIC (RFC 9438); used by Connection, which says what arrives and what is lost.
#pragma once

#include <cstdint>

#include "ipstack/tcp/options.h"
#include "unet/base/time.h"

namespace unet::tcp {

class Congestion {
 public:
  // Bytes of a segment, and the window to begin with.
  void start(const Options& options, uint32_t mss, uint32_t window) noexcept;

  // So many bytes were acknowledged while the window was all that held the sender back, and nothing is being made good for.
  // `most`: by how much slow start may open the window (RFC 3465, 2.2 and 2.3).
  void handle_ack(uint32_t bytes, uint32_t most, Nanoseconds rtt, Nanoseconds now) noexcept;
  // Something was lost of `flight` bytes: sets the threshold; the window follows when the loss has been made good.
  void handle_loss(uint32_t flight) noexcept;
  // Nothing has come back for a time-out; `again`: not for the first time since something did.
  void handle_timeout(uint32_t flight, bool again) noexcept;
  // Nothing was on its way for a time-out (RFC 5681, 4.1).
  void handle_idle(uint32_t window) noexcept;
  // Recovery decides itself how much may be on its way (RFC 6937).
  void set_window(uint32_t window) noexcept { window_ = window; }
  void set_mss(uint16_t mss) noexcept { mss_ = mss; }

  uint32_t window() const noexcept { return window_; }
  uint32_t threshold() const noexcept { return threshold_; }
  bool in_slow_start() const noexcept { return window_ < threshold_; }

 private:
  void grow_newreno(uint32_t bytes) noexcept;
  void grow_cubic(uint32_t bytes, Nanoseconds rtt, Nanoseconds now) noexcept;
  float segments(uint32_t bytes) const noexcept { return static_cast<float>(bytes) / static_cast<float>(mss_); }

  Algorithm algorithm_ = Algorithm::cubic;
  uint16_t mss_ = 536;
  uint32_t window_ = 0;
  uint32_t threshold_ = ~uint32_t{0};
  uint32_t counted_ = 0;       // NewReno: bytes acknowledged towards the next segment of window
  // CUBIC, in segments and seconds, named as in RFC 9438, 4.1.2.
  Nanoseconds epoch_start_ = 0;  // of this stage of congestion avoidance; 0: it has not begun
  Nanoseconds grown_at_ = 0;     // when the window was last asked to grow
  float k_ = 0;
  float w_max_ = 0;
  float w_est_ = 0;
  float cwnd_prior_ = 0;
  float fraction_ = 0;           // of a byte of window
};

}  // namespace unet::tcp
