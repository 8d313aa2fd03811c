// congestion.h - the congestion window of one connection: slow start, the first one with HyStart++ (RFC 9406), then NewReno (RFC 5681, with
// the byte counting of RFC 3465) or CUBIC (RFC 9438); or DCTCP (RFC 8257), which is NewReno but for the reaction to marks; or BBR (bbr.h).
// Used by Connection, which reports deliveries and losses.
//
// The algorithms are no plug-ins: is_bbr() and the name of an algorithm choose the code here, and Connection asks is_bbr() where BBR needs
// rate samples or paces. A further algorithm is a further case in both.
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
  // Names of RFC 8257, 3.3. `alpha`: the estimated share of bytes that are marked.
  struct Dctcp {
    float alpha = 1;
    uint32_t bytes_acked = 0, bytes_marked = 0;
    Sequence window_end{};
    bool begun = false;
    // Of the receiver (3.2): first of all, acknowledge `earlier_ack`, with or without an echo. In the union, as only DCTCP needs it and
    // Connection stays small.
    bool earlier_ack_due = false, earlier_echo = false;
    Sequence earlier_ack{};
  };

  Congestion() noexcept : hystart_() {}
  ~Congestion() { drop_bbr(); }
  Congestion(const Congestion&) = delete;
  Congestion& operator=(const Congestion&) = delete;
  // `mss`: bytes of a segment; `window`: the initial window. `bbr`: what BBR needs besides.
  void start(const Options& options, uint32_t mss, uint32_t window, const Bbr::Start& bbr = {}) noexcept;
  // After start(), for a connection that was moved: restores the window and ssthresh. BBR and DCTCP measure anew.
  void resume(uint32_t window, uint32_t threshold) noexcept;
  // Replaces the algorithm; the window stays. Without memory for BBR's model, CUBIC is used.
  void set_algorithm(Algorithm algorithm, const Bbr::Start& bbr) noexcept;

  // `bytes` were acknowledged while the window limited the sender, outside recovery. `most`: limit of the increase in slow start (RFC 3465,
  // 2.2 and 2.3).
  void handle_ack(uint32_t bytes, uint32_t most, Nanoseconds rtt, Nanoseconds now) noexcept;
  // HyStart++ input: all before `ack` is acknowledged, all before `sent` is sent. `rtt`: the sample of this ACK, 0 if none.
  void handle_round_trip(Sequence ack, Sequence sent, Nanoseconds rtt) noexcept;
  // DCTCP's estimate: `bytes` were acknowledged by an ACK with or without an ECN echo. Otherwise as handle_round_trip().
  void handle_marks(uint32_t bytes, bool echo, Sequence ack, Sequence sent) noexcept {
    if (is_dctcp()) estimate_marks(bytes, echo, ack, sent);
  }
  // BBR ignores the three methods above. It needs a rate sample of each ACK that delivers data, and losses; the others do not.
  void handle_sample(const RateSample& sample) noexcept { window_ = bbr_->handle_ack(sample, window_); }
  void handle_losses(const Losses& losses) noexcept { bbr_->handle_losses(losses, window_); }
  void handle_restart(Nanoseconds now) noexcept { window_ = bbr_->handle_restart(window_, now); }
  void note_limited(uint32_t until) noexcept { bbr_->note_limited(until); }

  // Loss detected with `flight` bytes in flight: sets ssthresh. The window follows when recovery ends.
  void handle_loss(uint32_t flight) noexcept;
  // Recovery has ended. `fast`: fast recovery, without an RTO.
  void handle_recovered(bool fast) noexcept;
  // ECN echo (RFC 3168, 6.1.2; RFC 8257, 3.3): reduces the window at once. `tx_in_flight`: bytes in flight when the marked segment left.
  void handle_mark(uint32_t flight, uint32_t tx_in_flight) noexcept;
  // A tail loss probe repaired a loss: reduces the window at once.
  void handle_tail_loss() noexcept;
  // Retransmission timeout with `flight` bytes in flight. `again`: no ACK since the previous one.
  void handle_timeout(uint32_t flight, bool again) noexcept;
  // The last handle_loss() was spurious: restores the state before it (RFC 9438, 4.9.2; RFC 4015, 3.2).
  void undo_loss() noexcept;
  // The last handle_timeout() was spurious: restores ssthresh, so that the window grows back from `window` (RFC 4015, 3.2).
  void undo_timeout(uint32_t window) noexcept;
  // The connection was idle for an RTO (RFC 5681, 4.1): restarts with `window` at most.
  void handle_idle(uint32_t window) noexcept;
  // PRR sets the window during recovery (RFC 6937).
  void set_window(uint32_t window) noexcept { window_ = window; }
  void set_mss(uint16_t mss) noexcept;

  uint32_t window() const noexcept { return window_; }
  uint32_t threshold() const noexcept { return threshold_; }
  Algorithm algorithm() const noexcept { return algorithm_; }
  bool is_bbr() const noexcept { return algorithm_ == Algorithm::bbr; }
  bool is_dctcp() const noexcept { return algorithm_ == Algorithm::dctcp; }
  const Dctcp& dctcp() const noexcept { return dctcp_; }
  Dctcp& dctcp() noexcept { return dctcp_; }
  const Bbr& bbr() const noexcept { return *bbr_; }
  bool in_slow_start() const noexcept { return window_ < threshold_; }
  // HyStart++ is in Conservative Slow Start: the RTT rose, and it checks whether the rise lasts.
  bool in_conservative_start() const noexcept { return first_start_ && hystart_.rounds != 0; }

 private:
  void end_first_start() noexcept;
  bool take_bbr(const Bbr::Start& bbr) noexcept;
  void drop_bbr() noexcept;
  void begin_dctcp() noexcept;
  void estimate_marks(uint32_t bytes, bool echo, Sequence ack, Sequence sent) noexcept;
  void grow_newreno(uint32_t bytes) noexcept;
  void grow_cubic(uint32_t bytes, Nanoseconds rtt, Nanoseconds now) noexcept;
  float segments(uint32_t bytes) const noexcept { return static_cast<float>(bytes) / static_cast<float>(mss_); }

  Algorithm algorithm_ = Algorithm::cubic;
  uint16_t mss_ = 536;
  uint32_t window_ = 0;
  uint32_t threshold_ = ~uint32_t{0};
  // NewReno: bytes acknowledged towards the next segment of window. CUBIC: fraction of a byte of window, in units of 2^-16.
  uint32_t counted_ = 0;
  uint32_t threshold_before_ = 0;  // before the last loss; before an RTO, the larger of flight and ssthresh
  // Windows before the last loss and the one before it, in segments: cwnd_prior of RFC 9438. BBR does not use them.
  float prior_ = 0, prior_before_ = 0;
  bool first_start_ = true;    // in the first slow start
  bool hystart_enabled_ = true;

  // In segments and seconds, with the names of RFC 9438, 4.1.2.
  struct Cubic {
    Nanoseconds epoch_start = 0;  // begin of this stage of congestion avoidance; 0: not begun
    Nanoseconds grown_at = 0;     // when the window last grew
    float k = 0;
    float w_max = 0;
    float w_est = 0;
    float w_max_before = 0;       // before the last loss
  };
  // Names of RFC 9406, 4.2. Times in nanoseconds: 32 bits hold 4 s, longer RTTs are clamped.
  struct HyStart {
    Sequence window_end{};
    uint32_t last_round_min_rtt = ~uint32_t{0}, current_round_min_rtt = ~uint32_t{0}, css_baseline_min_rtt = ~uint32_t{0};
    uint8_t rtt_sample_count = 0;
    uint8_t rounds = 0;           // rounds in Conservative Slow Start, including the present one
    bool begun = false;
  };
  union {
    HyStart hystart_;  // while first_start_
    Cubic cubic_;      // after it, with CUBIC and NewReno
    Dctcp dctcp_;      // while the algorithm is DCTCP, which has no first_start_: marks end its slow start
    Bbr* bbr_;         // while the algorithm is BBR, which has no first_start_; owned
  };
};

}  // namespace unet::tcp
