// path.cc - the paths `fabric-*`: messages with tags, memory of the peer and atomic operations by libfabric, by one provider each.
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <array>
#include <cstdlib>

#include "apps/bench/frame/environment.h"
#include "apps/bench/frame/shared_memory.h"
#include "apps/bench/machine/command.h"
#include "apps/bench/paths/fabric/paths.h"
#include "apps/bench/paths/fabric/side.h"
#include "apps/bench/workloads/batches.h"
#include "apps/bench/workloads/fabric.h"
#include "apps/bench/workloads/put.h"

namespace unet::bench {

namespace {

constexpr uint64_t kMessageTag = 1, kAckTag = 2;
constexpr size_t kWindowMax = 64;      // messages or atomic operations under way
constexpr size_t kWindowBytes = 1 << 20;  // or two messages; the buffers of both sides then lie in second-level caches
constexpr size_t kRemoteMax = 8;       // reads or writes under way

// An operation under way. libfabric may use the context until the operation is done.
struct FabricOperation {
  fi_context2 context;
  bool done = true;
};

// One side in one slice, a Link of workloads/messages.h and put.h. A receiver of a stream has a buffer waiting for each message under way,
// and tells the sender after each half window.
class FabricLink {
 public:
  static constexpr bool kLossless = true;
  FabricLink(FabricSide& side, MessageBuffers& ring, const Slice& slice, RunContext& context)
      : side_(side), ring_(ring), context_(context), window_(std::clamp<size_t>(kWindowBytes / std::max(slice.size, 1U), 2, kWindowMax)),
        total_(slice.warm_up + slice.iterations), injects_(slice.size <= side.inject_size()) {}

  void poll() {
    std::array<fi_cq_entry, 16> entries;
    const ssize_t count = fi_cq_read(side_.queue(), entries.data(), entries.size());
    for (ssize_t i = 0; i < count; ++i) static_cast<FabricOperation*>(entries[static_cast<size_t>(i)].op_context)->done = true;
    if (count >= 0 || count == -FI_EAGAIN) return;
    fi_cq_err_entry error{};
    fi_cq_readerr(side_.queue(), &error, 0);
    context_.control.fail("an operation failed: " + side_.text_of(error.err));
  }

  bool send(const std::byte* data, size_t size) { return send(data, size, kMessageTag, one_) && wait(one_); }
  bool receive(std::byte* into, size_t size) { return receive(into, size, kMessageTag, one_) && wait(one_); }

  size_t send_burst(const std::byte* data, size_t size, size_t count) {
    for (size_t i = 0; i < count; ++i, ++sent_) {
      if (sent_ - acks_ * half() >= window_ && !take_ack()) return 0;
      std::byte* const message = slot(ring_.out, sent_, size);
      copy_small(message, data + i * size, std::min(size, sizeof(uint64_t)));  // its number
      FabricOperation& operation = operations_[sent_ % window_];
      if (!wait(operation) || !send(message, size, kMessageTag, operation)) return 0;
    }
    return count;
  }
  // All that was sent has arrived, as far as the receiver says so.
  bool flush() {
    if (last_put_.data != nullptr) return finish_puts();
    while (acks_ < sent_ / half()) {
      if (!take_ack()) return false;
    }
    return wait_all();
  }
  size_t receive_burst(std::byte* into, size_t size, size_t count) {
    for (; posted_ < std::min<uint64_t>(total_, received_ + window_); ++posted_) {
      if (!receive(slot(ring_.in, posted_, size), size, kMessageTag, operations_[posted_ % window_])) return 0;
    }
    if (!wait(operations_[received_ % window_])) return 0;
    size_t n = 0;
    for (; n < count && received_ < posted_ && operations_[received_ % window_].done; ++n) {
      copy_small(into + n * size, slot(ring_.in, received_, size), std::min(size, sizeof(uint64_t)));
      if (++received_ % half() != 0) continue;
      if (!send(ring_.out.data(), sizeof(uint64_t), kAckTag, one_) || !wait(one_)) return 0;
    }
    return n;
  }

  bool put(size_t offset, const std::byte* data, size_t size) {
    last_put_ = {data, offset, size};
    FabricOperation& operation = next_remote();
    return wait(operation) && begin(operation, [&](void* context) {
             return fi_write(side_.endpoint(), data, size, nullptr, side_.peer(), side_.peer_base() + offset, side_.peer_key(), context);
           });
  }
  // Writes end when their bytes have left. They are there when a read finds the number of the last one.
  bool finish_puts() {
    std::array<std::byte, sizeof(uint64_t)> found{};
    if (!wait_all()) return false;
    return spin_until(context_.stop, [&] {
      return read({found.data(), last_put_.offset, found.size()}, one_) && wait(one_) &&
             read_stamp(found.data(), found.size()) == read_stamp(last_put_.data, last_put_.size);
    });
  }
  bool get(std::byte* into, size_t offset, size_t size) {
    last_ = {into, offset, size};
    FabricOperation& operation = next_remote();
    return wait(operation) && read(last_, operation);
  }
  // Gets that are under way share a buffer. The last one is repeated alone, so that its bytes are there.
  bool finish() { return wait_all() && read(last_, one_) && wait(one_); }
  bool wait_until_over() {
    return spin_until(context_.stop, [&] {
      poll();
      return context_.control.sent.load(std::memory_order_acquire) != 0;
    });
  }

  bool fetch_add() {
    return begin(one_, [&](void* context) {
             return fi_fetch_atomic(side_.endpoint(), &kOne, 1, nullptr, &fetched_, nullptr, side_.peer(), side_.peer_base(),
                                    side_.peer_key(), FI_UINT64, FI_SUM, context);
           }) &&
           wait(one_);
  }
  bool add() {
    FabricOperation& operation = operations_[sent_++ % kWindowMax];
    return wait(operation) && begin(operation, [&](void* context) {
             return fi_atomic(side_.endpoint(), &kOne, 1, nullptr, side_.peer(), side_.peer_base(), side_.peer_key(), FI_UINT64, FI_SUM,
                              context);
           });
  }
  bool wait_all() {
    return std::all_of(operations_.begin(), operations_.end(), [&](FabricOperation& each) { return wait(each); });
  }

 private:
  static constexpr uint64_t kOne = 1;
  struct Get {
    std::byte* into;
    size_t offset, size;
  };
  struct Put {
    const std::byte* data;
    size_t offset, size;
  };

  size_t half() const { return window_ / 2; }
  std::byte* slot(std::vector<std::byte, PageAllocator<std::byte>>& ring, uint64_t number, size_t size) const {
    return ring.data() + number % window_ * size;
  }
  FabricOperation& next_remote() { return operations_[remote_++ % kRemoteMax]; }

  // Repeats a call that there was no room for.
  template <typename Call>
  bool repeat(Call call) {
    ssize_t result = 0;
    const bool ended = spin_until(context_.stop, [&] {
      result = call();
      if (result == -FI_EAGAIN) poll();
      return result != -FI_EAGAIN;
    });
    if (ended && result < 0) context_.control.fail("a call fails: " + side_.text_of(static_cast<int>(-result)));
    return ended && result >= 0;
  }
  template <typename Call>
  bool begin(FabricOperation& operation, Call call) {
    operation.done = false;
    return repeat([&] { return call(&operation); });
  }
  bool wait(const FabricOperation& operation) {
    if (operation.done) return true;
    return spin_until(context_.stop, [&] {
      poll();
      return operation.done;
    });
  }

  bool send(const std::byte* data, size_t size, uint64_t tag, FabricOperation& operation) {
    if (injects_) return repeat([&] { return fi_tinject(side_.endpoint(), data, size, side_.peer(), tag); });
    return begin(operation, [&](void* context) { return fi_tsend(side_.endpoint(), data, size, nullptr, side_.peer(), tag, context); });
  }
  bool receive(std::byte* into, size_t size, uint64_t tag, FabricOperation& operation) {
    return begin(operation, [&](void* context) {
      return fi_trecv(side_.endpoint(), into, size, nullptr, FI_ADDR_UNSPEC, tag, 0, context);
    });
  }
  bool read(const Get& get, FabricOperation& operation) {
    return begin(operation, [&](void* context) {
      return fi_read(side_.endpoint(), get.into, get.size, nullptr, side_.peer(), side_.peer_base() + get.offset, side_.peer_key(),
                     context);
    });
  }
  bool take_ack() {
    ++acks_;
    return receive(ring_.in.data(), sizeof(uint64_t), kAckTag, one_) && wait(one_);
  }

  FabricSide& side_;
  MessageBuffers& ring_;
  RunContext& context_;
  const size_t window_;
  const uint64_t total_;
  const bool injects_;
  uint64_t sent_ = 0, acks_ = 0, posted_ = 0, received_ = 0, remote_ = 0, fetched_ = 0;
  Get last_{};
  Put last_put_{};
  FabricOperation one_;
  std::array<FabricOperation, kWindowMax> operations_;
};

// Round trips of an operation that side B only serves.
Outcome fetch_adds(FabricLink& link, const Slice& slice, RunContext& context) {
  return time_batches(slice, context.samples, [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      if (!link.fetch_add()) return false;
    }
    return true;
  });
}

Outcome adds(FabricLink& link, const Slice& slice) {
  const auto many = [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      if (!link.add()) return false;
    }
    return link.wait_all();
  };
  if (!many(slice.warm_up)) return {};
  const uint64_t start = cycles();
  if (!many(slice.iterations)) return {};
  return {cycles() - start, slice.iterations};
}

class FabricPath final : public Path {
 public:
  FabricPath(PathInfo info, std::string provider, std::string node)
      : Path(std::move(info)), provider_(std::move(provider)), node_(std::move(node)) {}

  Status prepare(Environment& environment) override {
    if (auto made = cards_.create(2 * sizeof(FabricCard)); !made) return made;
    for (size_t i = 0; i < 2; ++i) new (&card(i)) FabricCard;
    if (provider_ != kOurProvider) return {};
    auto daemon = environment.daemon_on_spare_core();
    if (!daemon) return tl::unexpected(daemon.error());
    for (const std::string& variable : provider_environment((*daemon)->ni())) {
      const size_t end = variable.find('=');
      setenv(variable.substr(0, end).c_str(), variable.c_str() + end + 1, 1);
    }
    return {};
  }

  Status set_up(const RunContext& run, Environment&) override {
    const size_t own = run.side == Side::a ? 0 : 1;
    return side_.open(provider_, node_, card(own), card(1 - own), run.stop);
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    FabricLink link(side_, ring_, slice, context);
    const bool atomics = slice.condition == kFabricAtomics;
    if (slice.workload == Workload::get) return get_loop(link, slice, side_.region(), buffers_, context);
    if (!atomics && slice.workload != Workload::put) return run_on_link(link, slice, buffers_, context);
    if (context.side == Side::b) {
      link.wait_until_over();
      return {.messages = slice.iterations};
    }
    const Outcome outcome = !atomics                          ? put_loop(link, slice, kRegionBytes, buffers_, context)
                            : slice.workload == Workload::rtt ? fetch_adds(link, slice, context)
                                                              : adds(link, slice);
    context.control.sent.store(1, std::memory_order_release);
    return outcome;
  }

  void tear_down(const RunContext&) override { side_.close(); }

 private:
  FabricCard& card(size_t side) const { return reinterpret_cast<FabricCard*>(cards_.data())[side]; }

  const std::string provider_, node_;
  SharedMemory cards_;
  FabricSide side_;
  MessageBuffers buffers_{kBlockMax}, ring_{2 * kWindowBytes};
};

}  // namespace

std::unique_ptr<Path> make_fabric_path(PathInfo info, const std::string& provider, const std::string& node) {
  return std::make_unique<FabricPath>(std::move(info), provider, node);
}

}  // namespace unet::bench
