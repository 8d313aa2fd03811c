// congestion.h - how much one connection may have on its way: slow start, the first one with HyStart++ (RFC 9406), then NewReno (RFC 5681,
// with the byte counting of RFC 3465) or CUBIC (RFC 9438); or BBR (bbr.h). Used by Connection, which says what arrives and what is lost.
#pragma once

#include <cstdint>

#include "ipstack/tcp/bbr.h"
#include "ipstack/tcp/options.h"
#include "unet/base/time.h"
#include "unet/wire/tcp.h"

namespace unet::tcp {

using Sequence = ip::TcpSequence;

class Congestion {
 public:
  Congestion() noexcept : hystart_() {}
  ~Congestion() { drop_bbr(); }
  Congestion(const Congestion&) = delete;
  Congestion& operator=(const Congestion&) = delete;
  // Bytes of a segment, and the window to begin with. `bbr`: what BBR has to know besides.
  void start(const Options& options, uint32_t mss, uint32_t window, const Bbr::Start& bbr = {}) noexcept;
  // After start(), of a connection that was moved: takes the window and where slow start ends. BBR measures anew.
  void resume(uint32_t window, uint32_t threshold) noexcept;
  // Another one goes on from where this one is. BBR needs memory for its model; where there is none, it is CUBIC.
  void set_algorithm(Algorithm algorithm, const Bbr::Start& bbr) noexcept;

  // So many bytes were acknowledged while the window was all that held the sender back, and nothing is being made good for.
  // `most`: by how much slow start may open the window (RFC 3465, 2.2 and 2.3).
  void handle_ack(uint32_t bytes, uint32_t most, Nanoseconds rtt, Nanoseconds now) noexcept;
  // Everything before `ack` was acknowledged, and all before `sent` has been sent; `rtt`: what that took, 0 if it cannot be told.
  void handle_round_trip(Sequence ack, Sequence sent, Nanoseconds rtt) noexcept;
  // These are for NewReno and CUBIC, and BBR takes no notice. Instead it hears of each ACK that says that something has arrived, and of
  // what is lost, which the others need not.
  void handle_sample(const RateSample& sample) noexcept { window_ = bbr_->handle_ack(sample, window_); }
  void handle_losses(const Losses& losses) noexcept { bbr_->handle_losses(losses, window_); }
  void handle_restart(Nanoseconds now) noexcept { window_ = bbr_->handle_restart(window_, now); }
  void note_limited(uint32_t until) noexcept { bbr_->note_limited(until); }

  // Something was lost of `flight` bytes: sets the threshold; the window follows when the loss has been made good.
  void handle_loss(uint32_t flight) noexcept;
  // It has. `fast`: nothing had to time out for that.
  void handle_recovered(bool fast) noexcept;
  // The same at once: the network has marked something (RFC 3168, 6.1.2), which left as one of `tx_in_flight` bytes.
  void handle_mark(uint32_t flight, uint32_t tx_in_flight) noexcept;
  // Likewise: a tail loss probe has made good for something.
  void handle_tail_loss() noexcept;
  // Nothing has come back for a time-out; `again`: not for the first time since something did.
  void handle_timeout(uint32_t flight, bool again) noexcept;
  // The last handle_loss() was for nothing: all is as it was before (RFC 9438, 4.9.2; RFC 4015, 3.2).
  void undo_loss() noexcept;
  // The last handle_timeout() was for nothing: it grows back to what it was (RFC 4015, 3.2). `window`: to begin with.
  void undo_timeout(uint32_t window) noexcept;
  // Nothing was on its way for a time-out (RFC 5681, 4.1).
  void handle_idle(uint32_t window) noexcept;
  // Recovery decides itself how much may be on its way (RFC 6937).
  void set_window(uint32_t window) noexcept { window_ = window; }
  void set_mss(uint16_t mss) noexcept;

  uint32_t window() const noexcept { return window_; }
  uint32_t threshold() const noexcept { return threshold_; }
  Algorithm algorithm() const noexcept { return algorithm_; }
  bool is_bbr() const noexcept { return algorithm_ == Algorithm::bbr; }
  const Bbr& bbr() const noexcept { return *bbr_; }
  bool in_slow_start() const noexcept { return window_ < threshold_; }
  // HyStart++ has seen round trips grow, and looks whether that stays so: Conservative Slow Start.
  bool in_conservative_start() const noexcept { return first_start_ && hystart_.rounds != 0; }

 private:
  void end_first_start() noexcept;
  bool take_bbr(const Bbr::Start& bbr) noexcept;
  void drop_bbr() noexcept;
  void grow_newreno(uint32_t bytes) noexcept;
  void grow_cubic(uint32_t bytes, Nanoseconds rtt, Nanoseconds now) noexcept;
  float segments(uint32_t bytes) const noexcept { return static_cast<float>(bytes) / static_cast<float>(mss_); }

  Algorithm algorithm_ = Algorithm::cubic;
  uint16_t mss_ = 536;
  uint32_t window_ = 0;
  uint32_t threshold_ = ~uint32_t{0};
  // NewReno: bytes acknowledged towards the next segment of window; CUBIC: of a byte of window, in units of 2^-16.
  uint32_t counted_ = 0;
  uint32_t threshold_before_ = 0;  // the last loss; of a time-out the window or the threshold, whichever was more
  bool first_start_ = true;    // nothing has ended it yet
  bool hystart_enabled_ = true;

  // In segments and seconds, named as in RFC 9438, 4.1.2.
  struct Cubic {
    Nanoseconds epoch_start = 0;  // of this stage of congestion avoidance; 0: it has not begun
    Nanoseconds grown_at = 0;     // when the window was last asked to grow
    float k = 0;
    float w_max = 0;
    float w_est = 0;
    float cwnd_prior = 0;         // NewReno's, too
    float w_max_before = 0, cwnd_prior_before = 0;  // the last loss
  };
  // Named as in RFC 9406, 4.2, in nanoseconds of which 32 bits are 4 s: longer round trips count as that.
  struct HyStart {
    Sequence window_end{};
    uint32_t last_round_min_rtt = ~uint32_t{0}, current_round_min_rtt = ~uint32_t{0}, css_baseline_min_rtt = ~uint32_t{0};
    uint8_t rtt_sample_count = 0;
    uint8_t rounds = 0;           // of Conservative Slow Start, with the present one
    bool begun = false;
  };
  union {  // the first slow start is over before CUBIC begins, and BBR has its own
    HyStart hystart_;
    Cubic cubic_;
    Bbr* bbr_;  // owned
  };
};

}  // namespace unet::tcp
