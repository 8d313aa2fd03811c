// put.h - the loops of the workload `put`: into memory that both sides map, and over a wire.
#pragma once

#include "apps/bench/workloads/messages.h"

namespace unet::bench {

constexpr uint64_t kRegionBytes = 4 << 20;  // that is put into

// Consecutive offsets of a region; it begins again when the next put has no room.
class PutCursor {
 public:
  PutCursor(size_t size, size_t region) : step_(std::max<size_t>(size, sizeof(uint64_t))), region_(region) {}
  size_t next() {
    const size_t offset = next_;
    next_ = offset + 2 * step_ <= region_ ? offset + step_ : 0;
    last_ = offset;
    return offset;
  }
  size_t last() const { return last_; }

 private:
  size_t step_, region_;
  size_t next_ = 0, last_ = 0;
};

// Side A writes slice.size bytes at a time, and measures; side B only keeps its core busy. Needs Link::put(offset, data,
// size) and Link::flush(), after which B may read what was put.
template <typename Link>
Outcome put_loop(Link& link, const Slice& slice, size_t region, MessageBuffers& buffers, RunContext& context) {
  if (context.side == Side::b) {
    spin_until(context.stop, [&] { return context.control.sent.load(std::memory_order_acquire) != 0; });
    return {};
  }
  PutCursor cursor(slice.size, region);
  uint64_t start = cycles();
  for (uint64_t i = 0; i < slice.warm_up + slice.iterations; ++i) {
    if (i == slice.warm_up) start = cycles();
    stamp(buffers.out.data(), slice.size, i + 1);
    if (!link.put(cursor.next(), buffers.out.data(), slice.size)) return {};
  }
  if (!link.flush()) return {};
  const uint64_t end = cycles();
  context.control.sent.store(1, std::memory_order_release);
  return {end - start, slice.iterations};
}

// get: side A reads slice.size bytes at a time, into one buffer, from a region that side B has just written. Needs
// Link::get(into, offset, size), Link::finish(), after which all are there, and of B Link::wait_until_over().
template <typename Link>
Outcome get_loop(Link& link, const Slice& slice, MutableBytes region, MessageBuffers& buffers, RunContext& context) {
  auto& control = context.control;
  if (context.side == Side::b) {
    for (uint64_t at = 0; at + sizeof(at) <= region.size(); at += sizeof(at)) stamp(region.data() + at, sizeof(at), at);
    control.stage.store(StreamStage::ready, std::memory_order_release);
    link.wait_until_over();
    return {};
  }
  if (!wait_for_stage(link, context, StreamStage::ready)) return {};
  PutCursor cursor(slice.size, region.size());
  const auto get_many = [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      if (!link.get(buffers.in.data(), cursor.next(), slice.size)) return false;
    }
    return link.finish();
  };
  if (!get_many(slice.warm_up)) return {};
  const uint64_t start = cycles();
  if (!get_many(slice.iterations)) return {};
  const uint64_t end = cycles();
  control.sent.store(1, std::memory_order_release);
  // Each word of the region holds its offset.
  const bool whole_words = slice.size >= sizeof(uint64_t) && slice.size % sizeof(uint64_t) == 0;
  if (whole_words && read_stamp(buffers.in.data(), slice.size) != cursor.last()) control.fail("a get brought something else");
  return {end - start, slice.iterations};
}

// Over a wire, which may lose: side B counts the bytes that its NI has deposited, and the clock stops when it has said how
// many. A put with notification after the last one tells it that no more will come; if that is lost, silence does. The
// silence is in the time, as in a lossy stream.
//   A: bool put(offset, data, size, more); bool notify(offset); void poll()
//   B: bool notified(offset), one attempt; uint64_t deposited(), bytes since the endpoint was made
template <typename Link>
class WirePuts {
 public:
  WirePuts(Link& link, const Slice& slice, MutableBytes region, size_t region_size, MessageBuffers& buffers, RunContext& context)
      : link_(link), slice_(slice), region_(region), region_size_(region_size), cursor_(slice.size, region_size),
        out_(buffers.out.data()), context_(context) {}

  Outcome run() { return context_.side == Side::a ? put() : count(); }

 private:
  static constexpr Nanoseconds kLate = 50 * kMillisecond;

  Outcome put() {
    if (!wait_for_stage(link_, context_, StreamStage::ready) || !put_many(slice_.warm_up)) return {};
    if (!wait_for_stage(link_, context_, StreamStage::warm)) return {};
    const uint64_t start = cycles();
    if (!put_many(slice_.iterations) || !wait_for_stage(link_, context_, StreamStage::received)) return {};
    const uint64_t bytes = context_.control.progress.load(std::memory_order_acquire);
    return {cycles() - start, bytes / slice_.size};
  }
  bool put_many(uint64_t count) {
    const uint64_t burst = burst_messages(slice_.size);
    for (uint64_t i = 0; i < count; ++i) {
      stamp(out_, slice_.size, ++done_);
      if (!link_.put(cursor_.next(), out_, slice_.size, i % burst + 1 < burst && i + 1 < count)) return false;
    }
    if (!link_.notify(next_mark())) return false;
    context_.control.sent.store(done_, std::memory_order_release);
    return true;
  }

  Outcome count() {
    auto& control = context_.control;
    control.stage.store(StreamStage::ready, std::memory_order_release);
    // The warm-up is not timed: patience, so that what is late in it is not counted afterwards.
    count_many(slice_.warm_up, kLate);
    const bool warm = ended_;
    control.stage.store(StreamStage::warm, std::memory_order_release);
    const uint64_t bytes = count_many(slice_.iterations, kQuiet);
    control.progress.store(bytes, std::memory_order_relaxed);
    control.stage.store(StreamStage::received, std::memory_order_release);
    if (warm && ended_ && bytes == slice_.iterations * slice_.size) check_last();
    return {};
  }
  uint64_t count_many(uint64_t puts, Nanoseconds patience) {
    const uint64_t before = link_.deposited();
    const uint64_t mark = next_mark();
    done_ += puts;
    uint64_t seen = before;
    Nanoseconds quiet_since = 0;
    spin_until(context_.stop, [&] {
      if ((ended_ = link_.notified(mark))) return true;
      if (context_.control.sent.load(std::memory_order_acquire) < done_) return false;
      const Nanoseconds now = monotonic_now();
      const uint64_t latest = link_.deposited();
      if (quiet_since == 0 || latest != seen) quiet_since = now;
      seen = latest;
      return now - quiet_since > patience;
    });
    return std::min(link_.deposited() - before, puts * slice_.size);
  }
  // The empty put that ends each half goes to an offset of its own: one that comes late ends nothing.
  uint64_t next_mark() {
    const uint64_t slice = context_.control.command_sequence.load(std::memory_order_relaxed);
    return (2 * slice + halves_++) % region_size_;
  }
  // Nothing was lost: then the last put's number is where it belongs.
  void check_last() {
    for (uint64_t i = 0; i < done_; ++i) cursor_.next();
    if (slice_.size < sizeof(uint64_t)) return;
    if (read_stamp(region_.data() + cursor_.last(), slice_.size) != done_) context_.control.fail("a put arrived changed");
  }

  Link& link_;
  const Slice& slice_;
  MutableBytes region_;  // side B
  size_t region_size_;
  PutCursor cursor_;
  std::byte* out_;
  RunContext& context_;
  uint64_t halves_ = 0;
  bool ended_ = false;  // the last half by its mark
  uint64_t done_ = 0;  // puts so far; side B: that it was told to expect
};

}  // namespace unet::bench
