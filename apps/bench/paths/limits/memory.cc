// memory.cc - how fast one process can copy to another: the limits of bandwidth, and of put.
#include <bit>

#include "apps/bench/frame/shared_memory.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/workloads/put.h"

namespace unet::bench {

namespace {

// Lines that are still dirty in the writer's second-level cache cost a transfer each; those evicted to the shared cache
// stream. The ring is therefore larger than a second-level cache, and the indices are published in large steps.
constexpr size_t kRingBytes = 4 << 20;
constexpr size_t kPublishBytes = 64 << 10;

struct RingIndices {
  alignas(kCacheLine) std::atomic<uint64_t> written{0};  // messages; by A
  alignas(kCacheLine) std::atomic<uint64_t> read{0};     // messages; by B
};

// One direction, from A to B. Positions restart at 0 with every slice.
struct RingLink {
  static constexpr bool kLossless = true;
  RingIndices& indices;
  std::byte* ring;
  size_t stride;   // bytes of a slot: the message, rounded up to 8
  uint64_t slots;
  uint64_t step;   // messages between two publications
  const StopFlag& stop;
  uint64_t position = 0;    // next message
  uint64_t published = 0;
  uint64_t seen = 0;        // the other side's index, as last read

  bool send(const std::byte*, size_t) { return false; }  // streams only
  bool receive(std::byte*, size_t) { return false; }

  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    if (position + count > seen + slots) {
      flush();
      const uint64_t least = position + count - slots;
      if (!spin_until(stop, [&] { return (seen = indices.read.load(std::memory_order_acquire)) >= least; })) return 0;
    }
    for (size_t i = 0; i < count; ++i) copy_message(ring + ((position + i) & (slots - 1)) * stride, data + i * size, size);
    position += count;
    if (position - published >= step) flush();
    return count;
  }
  bool flush() {
    indices.written.store(position, std::memory_order_release);
    published = position;
    return true;
  }
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    if (position == seen) {
      release();
      if (!spin_until(stop, [&] { return (seen = indices.written.load(std::memory_order_acquire)) > position; })) return 0;
    }
    const size_t n = static_cast<size_t>(std::min<uint64_t>(count, seen - position));
    for (size_t i = 0; i < n; ++i) copy_message(into + i * size, ring + ((position + i) & (slots - 1)) * stride, size);
    position += n;
    if (position - published >= step) release();
    return n;
  }
  void release() {
    indices.read.store(position, std::memory_order_release);
    published = position;
  }
};

class MemcpyRing final : public Path {
 public:
  using Path::Path;
  Status prepare(Environment&) override { return memory_.create(sizeof(RingIndices) + kRingBytes); }
  Status set_up(const RunContext&, Environment&) override {
    memory_.touch();
    return {};
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    auto* indices = reinterpret_cast<RingIndices*>(memory_.data());
    const size_t stride = std::max<size_t>(8, (slice.size + 7) / 8 * 8);
    // A power of two, so that a position becomes a slot without a division.
    const uint64_t slots = std::bit_floor(kRingBytes / stride);
    RingLink link{*indices, memory_.data() + sizeof(RingIndices), stride, slots,
                  std::max<uint64_t>(1, std::min<uint64_t>(kPublishBytes / stride, slots / 8)), context.stop};
    if (context.side == Side::b) {
      // Side A starts when B is ready, so B may reset the indices of the last slice.
      indices->written.store(0, std::memory_order_relaxed);
      indices->read.store(0, std::memory_order_relaxed);
    }
    return stream(link, slice, buffers_, context);
  }

 private:
  SharedMemory memory_;
  MessageBuffers buffers_{kBlockMax};
};

// One process writes into memory that the other has mapped and reads only at the end; or it reads memory that the other has written.
class Exposed final : public Path {
 public:
  explicit Exposed(PathInfo info) : Path(std::move(info)) {}
  Status prepare(Environment&) override { return memory_.create(kRingBytes); }
  Status set_up(const RunContext&, Environment&) override {
    memory_.touch();
    return {};
  }
  Outcome run(const Slice& slice, RunContext& context) override {
    Link link{memory_.data(), context};
    if (slice.workload == Workload::get) return get_loop(link, slice, {memory_.data(), kRingBytes}, buffers_, context);
    return put_loop(link, slice, kRingBytes, buffers_, context);
  }

 private:
  struct Link {
    std::byte* region;
    RunContext& context;
    bool put(size_t offset, const std::byte* data, size_t size) {
      copy_message(region + offset, data, size);
      return true;
    }
    bool flush() {
      std::atomic_thread_fence(std::memory_order_release);
      return true;
    }
    bool get(std::byte* into, size_t offset, size_t size) {
      copy_message(into, region + offset, size);
      return true;
    }
    bool finish() { return true; }
    bool wait_until_over() {
      return spin_until(context.stop, [&] { return context.control.sent.load(std::memory_order_acquire) != 0; });
    }
  };
  SharedMemory memory_;
  MessageBuffers buffers_{kBlockMax};
};

}  // namespace

void add_memory_limits(Paths& paths) {
  paths.push_back(std::make_unique<MemcpyRing>(PathInfo{
      .name = "limit-memcpy",
      .kind = Kind::limit,
      .what = "one process copies messages into a ring, the other copies them out: the bandwidth of two cores",
      .setting = "4 MiB ring, indices published every 64 KiB",
      .workloads = {Workload::bandwidth, Workload::rate}}));
  const auto add = [&](const char* path, const char* what, Workload workload) {
    paths.push_back(std::make_unique<Exposed>(PathInfo{
        .name = path, .kind = Kind::limit, .what = what, .setting = "consecutive offsets of a 4 MiB region", .workloads = {workload}}));
  };
  add("limit-put", "memcpy into memory that the other process has mapped", Workload::put);
  add("limit-get", "memcpy out of memory that the other process has written", Workload::get);
}

}  // namespace unet::bench
