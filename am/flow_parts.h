// flow_parts.h - parts of a flow: the packets that have arrived, the newest send time to echo, and the reordering time. Used by Flow.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>

#include "am/packet.h"
#include "am/sequence.h"
#include "unet/base/time.h"

namespace unet::am {

// Packets that the peer sends, by number: delivered() <= expected() <= the number behind the last one that has arrived.
class ArrivalWindow {
 public:
  Sequence delivered() const noexcept { return delivered_; }  // the next one for the owner
  Sequence expected() const noexcept { return expected_; }    // the first that is missing
  bool has_next() const noexcept { return delivered_ != expected_; }
  bool has_gap() const noexcept { return before(expected_, beyond_); }
  bool has(Sequence sequence) const noexcept {
    return before(sequence, expected_) || (distance(expected_, sequence) < kSequenceWindow && arrived_[slot_of(sequence)]);
  }
  // No honest peer uses the number yet.
  bool is_beyond(Sequence sequence) const noexcept { return distance(delivered_, sequence) >= kSequenceWindow; }
  // A later packet has arrived.
  bool is_overtaken(Sequence sequence) const noexcept { return before(sequence, beyond_); }
  bool follows_one_behind_gap(Sequence sequence) const noexcept { return arrived_[slot_of(sequence + ~uint32_t{0})]; }

  // A packet with this handled count has arrived. Calls take_credits(handled) for each packet that is now in order.
  template <typename TakeCredits>
  void add(Sequence sequence, uint32_t handled, const TakeCredits& take_credits) noexcept {
    if (!before(sequence, beyond_)) beyond_ = sequence + 1;
    arrived_.set(slot_of(sequence));
    handled_[slot_of(sequence)] = handled;
    for (uint32_t first = slot_of(expected_); arrived_[first]; first = slot_of(expected_)) {
      arrived_.reset(first);
      take_credits(handled_[first]);
      ++expected_;
    }
  }
  Sequence take() noexcept {
    const Sequence sequence = delivered_;
    ++delivered_;
    return sequence;
  }
  // The packets behind the first missing one.
  AckBody behind_gap() const noexcept {
    AckBody body;
    for (uint32_t word = 0; word < body.arrived.size(); ++word) {
      uint64_t bits = 0;
      for (uint32_t bit = 0; bit < 64; ++bit) {
        const uint32_t ahead = 1 + 64 * word + bit;
        if (ahead < kSequenceWindow && arrived_[slot_of(expected_ + ahead)]) bits |= uint64_t{1} << bit;
      }
      body.arrived[word] = bits;
    }
    return body;
  }

 private:
  Sequence delivered_{}, expected_{};
  Sequence beyond_{};                                  // one behind the last packet that has arrived
  std::bitset<kSequenceWindow> arrived_;               // by slot: packets from expected_ on that have arrived
  std::array<uint32_t, kSequenceWindow> handled_{};    // by slot
};

// The newest `sent_at` that has arrived. Packets return it with the time since added.
class Echo {
 public:
  // `absence`: how long the packet may have waited unseen.
  void take(uint32_t sent_at, Nanoseconds now, Nanoseconds absence) noexcept {
    // After a pause every packet is newer: `sent_at` goes half round in 137 s.
    if (at_ != 0 && now - at_ < kSecond && !newer(sent_at, sent_at_)) return;
    sent_at_ = sent_at;
    at_ = now;
    absence_ = absence;
  }
  // 0: none. `ticks` converts a time to the units of `sent_at`.
  template <typename Ticks>
  uint32_t value(Nanoseconds now, const Ticks& ticks) const noexcept {
    return at_ == 0 ? 0 : std::max(sent_at_ + ticks(now) - ticks(at_), 1u);
  }
  Nanoseconds absence() const noexcept { return absence_; }

 private:
  uint32_t sent_at_ = 0;
  Nanoseconds at_ = 0;       // when it arrived; 0: never
  Nanoseconds absence_ = 0;
};

// How much later than packets sent after it a packet may come before it is lost: RACK.reo_wnd (RFC 8985, section 6.2, step 4).
class ReorderingTime {
 public:
  // `delay`: the smoothed one. Late packets raise the time up to one delay, or `most` if that is longer.
  Nanoseconds time(Nanoseconds delay, Nanoseconds most) const noexcept {
    return std::max({delay / 4, kReorderMin, std::min(late_by_, std::max(delay, most))});
  }
  // A packet came `by` later than one that overtook it.
  void note_late(Nanoseconds by) noexcept {
    late_by_ = std::max(late_by_, by + by / 4);
    late_for_ = kLateRecoveries;
  }
  void handle_recovered() noexcept {
    if (late_for_ != 0 && --late_for_ == 0) late_by_ = 0;
  }

 private:
  static constexpr Nanoseconds kReorderMin = 2 * kMicrosecond;
  static constexpr uint32_t kLateRecoveries = 16;  // RACK.reo_wnd_persist

  Nanoseconds late_by_ = 0;  // 0: no reordering of late
  uint32_t late_for_ = 0;    // recoveries for which late_by_ still counts
};

}  // namespace unet::am
