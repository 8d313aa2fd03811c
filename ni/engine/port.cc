// port.cc - bursts of frames to the driver.
#include "ni/engine/port.h"

#include <algorithm>

#include "ni/engine/frame_tap.h"
#include "ni/engine/tag_table.h"
#include "unet/base/check.h"

namespace unet::engine {

Port::Port(std::unique_ptr<Driver> driver, NiCounters& counters, PortPlace place)
    : driver_(std::move(driver)), counters_(counters), place_(place) {
  const DriverCapabilities& capabilities = driver_->capabilities();
  address_ = capabilities.address;
  address_key_ = source_key(address_, 0);
  message_fragment_ = fragment_payload(capabilities.mtu, false);
  put_fragment_ = fragment_payload(capabilities.mtu, true);
  external_payload_ = capabilities.external_payload;
  segments_max_ = external_payload_ ? capabilities.segments_max : 0;
  fills_checksums_ = capabilities.checksums || segments_max_ != 0;
  udp_segments_ = capabilities.udp_segments;
  external_pieces_ = std::clamp(capabilities.external_pieces, 1u, kFragmentsMax);
  UNET_CHECK(put_fragment_ != 0);
}

Port::~Port() { driver_->discard({frames_.data() + begin_, have_ - begin_}); }

TransmitFrame* Port::signal_frame(Nanoseconds now) noexcept {
  if (TransmitFrame* const empty = frame(now)) return empty;
  // frame() has moved all frames to the front. All data frames are composed, or an unused signal frame remains.
  if (end_ == have_ && have_ != frames_.size()) {
    frames_[have_] = TransmitFrame{};
    have_ += driver_->allocate({&frames_[have_], 1});
  }
  return end_ != have_ ? &frames_[end_] : nullptr;
}

// All data frames are composed: sends them and allocates empty ones.
bool Port::make_room(Nanoseconds now) noexcept {
  flush(now);
  std::move(frames_.begin() + begin_, frames_.begin() + have_, frames_.begin());
  end_ -= begin_;
  have_ -= begin_;
  shown_ -= std::min(shown_, begin_);
  begin_ = 0;
  std::fill(frames_.begin() + have_, frames_.end(), TransmitFrame{});
  if (have_ < kBurst) have_ += driver_->allocate({frames_.data() + have_, kBurst - have_});
  return room_for_data();
}

// The owner of the memory has exited, so no process can read a counter of these frames.
void Port::drop_staged(Bytes memory) noexcept {
  uint32_t unsent = begin_;
  for (uint32_t i = begin_; i < end_; ++i) {
    const TransmitFrame frame = frames_[i];
    if (frame.external >= memory.data() && frame.external < memory.data() + memory.size()) {
      --frame.completion->pending;
      driver_->discard({&frame, 1});
    } else {
      frames_[unsent++] = frame;
    }
  }
  std::move(frames_.begin() + end_, frames_.begin() + have_, frames_.begin() + unsent);
  have_ -= end_ - unsent;
  end_ = unsent;
  shown_ = std::min(shown_, end_);
  gather_pieces();
}

// Moves the pieces of remaining frames to the last places: places rotate by composed frames.
void Port::gather_pieces() noexcept {
  const auto before = pieces_;
  next_pieces_ = 0;
  for (uint32_t i = begin_; i < end_; ++i) {
    auto& further = frames_[i].further;
    if (further.empty()) continue;
    const std::span<Bytes> place = place_of_pieces(next_pieces_++).first(further.size());
    std::copy_n(before.begin() + (further.data() - pieces_.data()), further.size(), place.begin());
    further = place;
  }
}

void Port::show_received(std::span<const ReceivedFrame> frames, Nanoseconds now) noexcept { taps_->received(index_, frames, now); }

// Before transmit(): afterwards the driver owns them.
void Port::show_staged(Nanoseconds now) noexcept {
  const uint32_t first = std::max(begin_, shown_);
  if (first < end_) taps_->sent(index_, {frames_.data() + first, end_ - first}, now);
  shown_ = end_;
}

void Port::transmit(Nanoseconds now) noexcept {
  if (taps_ != nullptr) [[unlikely]] show_staged(now);
  const uint32_t taken = driver_->transmit({frames_.data() + begin_, end_ - begin_}, now);
  uint64_t bytes = 0;
  for (uint32_t i = begin_; i < begin_ + taken; ++i) bytes += frames_[i].size();
  begin_ += taken;
  counters_.add(link() ? NiCounter::linked_frames : NiCounter::transmitted_frames, taken);
  counters_.add(link() ? NiCounter::linked_bytes : NiCounter::transmitted_bytes, bytes);
}

}  // namespace unet::engine
