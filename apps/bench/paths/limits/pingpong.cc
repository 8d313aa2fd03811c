// pingpong.cc - how fast two cores can answer each other: the limit of every latency in this program.
#include <array>

#include "apps/bench/frame/shared_memory.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/results/stats.h"
#include "apps/bench/workloads/batches.h"
#include "apps/bench/workloads/messages.h"

namespace unet::bench {

namespace {

using Line = std::atomic<uint64_t>;

// The lines lie on pages of their own, so that no prefetcher pairs them.
constexpr size_t kPage = 4096;

// Spins until the line holds `value`. `pause` tells the core that it spins: fewer looks, and a line that is looked at less
// often moves faster; see limit-pingpong-pause.
template <bool pause>
bool wait_for(const StopFlag& stop, const Line& line, uint64_t value) {
  return spin_until(stop, [&] {
    if (line.load(std::memory_order_acquire) == value) return true;
    if constexpr (pause) spin_pause();
    return false;
  });
}

// One line for both directions: odd values are A's, even ones B's.
template <bool pause>
bool one_line(Line& line, uint64_t& last, uint64_t count, const RunContext& context) {
  for (uint64_t i = 0; i < count; ++i, last += 2) {
    if (context.side == Side::a) {
      line.store(last + 1, std::memory_order_release);
      if (!wait_for<pause>(context.stop, line, last + 2)) return false;
    } else {
      if (!wait_for<pause>(context.stop, line, last + 1)) return false;
      line.store(last + 2, std::memory_order_release);
    }
  }
  return true;
}

// One line for each direction, as in message rings.
template <bool pause>
bool two_lines(Line& there, Line& back, uint64_t& last, uint64_t count, const RunContext& context) {
  for (uint64_t i = 0; i < count; ++i, ++last) {
    if (context.side == Side::a) {
      there.store(last + 1, std::memory_order_release);
      if (!wait_for<pause>(context.stop, back, last + 1)) return false;
    } else {
      if (!wait_for<pause>(context.stop, there, last + 1)) return false;
      back.store(last + 1, std::memory_order_release);
    }
  }
  return true;
}

double median_of(const std::vector<uint64_t>& samples) {
  return median(std::vector<double>(samples.begin(), samples.end()));
}

// Each slice tries one line and two lines, half of its iterations each. Its samples are those of the faster way.
template <bool pause>
class PingPong final : public Path {
 public:
  using Path::Path;

  Status fits(Workload, uint32_t size) const override {
    return size <= kCacheLine ? Status{} : fail(Errc::unavailable, "measures round trips of one cache line only");
  }
  Status prepare(Environment&) override { return memory_.create(3 * kPage); }
  Status set_up(const RunContext&, Environment&) override {
    memory_.touch();
    other_.reserve(1 << 16);
    return {};
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    Slice half = slice;
    half.iterations = slice.iterations / 2 / slice.batch * slice.batch;
    if (half.iterations == 0) half.iterations = slice.batch;
    other_.clear();
    const Outcome one = timed(half, context, context.samples, [&](uint64_t count) {
      return one_line<pause>(line(0), last_one_, count, context);
    });
    const Outcome two = timed(half, context, other_, [&](uint64_t count) {
      return two_lines<pause>(line(1), line(2), last_two_, count, context);
    });
    if (context.samples.empty() || other_.empty()) return {};
    if (median_of(context.samples) <= median_of(other_)) return one;
    context.samples.swap(other_);
    return two;
  }

 private:
  Line& line(size_t page) { return *reinterpret_cast<Line*>(memory_.data() + page * kPage + page * kCacheLine); }

  template <typename RoundTrips>
  Outcome timed(const Slice& slice, const RunContext& context, std::vector<uint64_t>& samples, RoundTrips round_trips) {
    if (context.side == Side::b) {
      round_trips(slice.warm_up + slice.iterations);
      return {};
    }
    return time_batches(slice, samples, round_trips);
  }

  SharedMemory memory_;
  uint64_t last_one_ = 0, last_two_ = 0;
  std::vector<uint64_t> other_;
};

// One direction of limit-echo: a mark in a line of its own, then the payload.
struct EchoSlot {
  alignas(kCacheLine) Line mark;
  alignas(kCacheLine) std::array<std::byte, kMessageMax> payload;
};

struct EchoLink {
  EchoSlot& out;
  EchoSlot& in;
  uint64_t& sent;
  uint64_t& received;
  const StopFlag& stop;

  // A slot is free again when its answer has come: ping-pong needs no other flow control.
  bool send(const std::byte* data, size_t size) {
    copy_message(out.payload.data(), data, size);
    out.mark.store(++sent, std::memory_order_release);
    return true;
  }
  bool receive(std::byte* into, size_t size) {
    if (!wait_for<false>(stop, in.mark, received + 1)) return false;
    ++received;
    copy_message(into, in.payload.data(), size);
    return true;
  }
};

class Echo final : public Path {
 public:
  using Path::Path;
  Status prepare(Environment&) override { return memory_.create(2 * sizeof(EchoSlot)); }
  Status set_up(const RunContext&, Environment&) override {
    memory_.touch();
    return {};
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    auto* slots = reinterpret_cast<EchoSlot*>(memory_.data());
    const bool a = context.side == Side::a;
    EchoLink link{slots[a ? 0 : 1], slots[a ? 1 : 0], sent_, received_, context.stop};
    return ping_pong(link, slice, buffers_, context);
  }

 private:
  SharedMemory memory_;
  MessageBuffers buffers_{kMessageMax};
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace

void add_pingpong_limits(Paths& paths) {
  paths.push_back(std::make_unique<PingPong<false>>(PathInfo{
      .name = "limit-pingpong",
      .kind = Kind::limit,
      .what = "a cache line handed back and forth: the round trip of two cores",
      .setting = "one line for both directions, and one for each; the faster counts; plain spinning",
      .workloads = {Workload::rtt}}));
  paths.push_back(std::make_unique<PingPong<true>>(PathInfo{
      .name = "limit-pingpong-pause",
      .kind = Kind::limit,
      .what = "the same with a pause instruction between two looks at the line",
      .setting = "one line for both directions, and one for each; the faster counts; pause while spinning",
      .workloads = {Workload::rtt}}));
  paths.push_back(std::make_unique<Echo>(PathInfo{
      .name = "limit-echo",
      .kind = Kind::limit,
      .what = "a payload copied into one slot, copied out, and sent back: the round trip of larger messages",
      .setting = "one reused slot each way; plain spinning",
      .workloads = {Workload::rtt}}));
}

}  // namespace unet::bench
