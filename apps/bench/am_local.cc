// am_local.cc - the path `am-local`: Active Messages between two endpoints of one NI, in two processes, on a local channel.
#include <unistd.h>

#include "am/endpoint.h"
#include "apps/bench/contenders.h"
#include "apps/bench/environment.h"
#include "apps/bench/put_workload.h"
#include "apps/bench/unet_endpoints.h"

namespace unet::bench {

namespace {

constexpr uint64_t kRegionBytes = 4 << 20;
constexpr uint8_t kEcho = 1, kAnswer = 2, kTake = 3, kStored = 4, kTouched = 5;
constexpr useconds_t kRetryUs = 1000;

class AmLocal final : public Contender {
 public:
  using Contender::Contender;

  Status supports(Workload workload, uint32_t size) const override {
    switch (workload) {
      case Workload::rtt:
      case Workload::rate:
      case Workload::bandwidth:
        if (size > am::kMediumMax) return fail(Errc::unavailable, "a medium message has at most 16 KiB");
        return {};
      case Workload::put: return {};
      default: return fail(Errc::unavailable, "is not measured on this path");
    }
  }

  Status prepare(Environment& environment) override {
    auto daemon = environment.daemon_beside();
    if (!daemon) return tl::unexpected(daemon.error());
    ni_ = (*daemon)->ni();
    daemon_process_ = (*daemon)->process();
    return {};
  }

  Status set_up(const RunContext& run, Environment&) override {
    auto context = Context::open(ni_, "unet-bench");
    if (!context) return tl::unexpected(context.error());
    context_ = std::make_unique<Context>(std::move(*context));
    auto endpoint = am::Endpoint::create(*context_);
    if (!endpoint) return tl::unexpected(endpoint.error());
    endpoint_ = std::move(*endpoint);
    endpoint_->set_handler(kEcho, on_echo, this);
    endpoint_->set_handler(kAnswer, on_answer, this);
    endpoint_->set_handler(kTake, on_take, this);
    endpoint_->set_handler(kStored, on_stored, this);
    endpoint_->set_handler(kTouched, [](am::Token&, void*) {}, nullptr);
    return run.side == Side::a ? connect(run) : serve(run);
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    size_ = slice.size;
    arrived_ = 0;
    sum_ = 0;
    switch (slice.workload) {
      case Workload::rtt: return round_trips_of(slice, context);
      case Workload::put: return stores(slice, context);
      default: return stream_of(slice, context);
    }
  }

  std::vector<int> service_processes() const override { return {daemon_process_}; }

  void tear_down(const RunContext&) override {
    endpoint_.reset();
    context_.reset();
  }

 private:
  // Payload that fits into arguments travels in them.
  static constexpr uint32_t kShortMax = sizeof(uint32_t) * am::kArgumentsMax;
  static bool is_short(size_t size) { return size <= kShortMax && size % sizeof(uint32_t) == 0; }

  Status serve(const RunContext& run) {
    if (auto region = endpoint_->expose(kRegionBytes); !region) return tl::unexpected(region.error());
    if (auto bound = endpoint_->bind(info_.path); !bound) return tl::unexpected(bound.error());
    return spin_until(run.stop, [&] {
      endpoint_->poll();
      return endpoint_->peers() != 0;
    }) ? Status{} : fail(Errc::timed_out, "stopped");
  }
  Status connect(const RunContext& run) {
    const Nanoseconds deadline = monotonic_now() + kConnectTime;
    while (true) {
      const Status mapped = endpoint_->map(0, info_.path);
      if (mapped) break;
      if (mapped.error().code != Errc::not_found || monotonic_now() >= deadline || run.stop.raised()) return mapped;
      ::usleep(kRetryUs);
    }
    // The first store to each page meets a page fault: not in a slice.
    for (uint64_t offset = 0; offset < kRegionBytes; offset += kMessageMax) store(kTouched, offset, kMessageMax);
    return {};
  }

  // ---- handlers. Payload is read into a buffer of the receiver's, and an answer written from it.

  void take(am::Token& token) {
    if (is_short(size_)) {
      std::memcpy(buffers_.in.data(), token.arguments().data(), token.arguments().size_bytes());
    } else {
      copy_message(buffers_.in.data(), token.payload().data(), token.payload().size());
    }
    ++arrived_;
  }
  static void on_echo(am::Token& token, void* self) {
    AmLocal& it = *static_cast<AmLocal*>(self);
    it.take(token);
    if (is_short(it.size_)) {
      token.reply_short(kAnswer, it.words(it.buffers_.in));
    } else {
      token.reply_medium(kAnswer, {it.buffers_.in.data(), it.size_}, {});
    }
  }
  static void on_answer(am::Token& token, void* self) { static_cast<AmLocal*>(self)->take(token); }
  static void on_take(am::Token& token, void* self) {
    AmLocal& it = *static_cast<AmLocal*>(self);
    it.take(token);
    it.sum_ += read_stamp(it.buffers_.in.data(), it.size_);
  }
  static void on_stored(am::Token&, void* self) { ++static_cast<AmLocal*>(self)->arrived_; }

  // ---- slices

  template <typename Buffer>
  std::span<const uint32_t> words(const Buffer& buffer) const {
    return {reinterpret_cast<const uint32_t*>(buffer.data()), size_ / sizeof(uint32_t)};
  }
  bool request(uint8_t handler) {
    const am::Outcome outcome = is_short(size_) ? endpoint_->request_short(0, handler, words(buffers_.out))
                                                : endpoint_->request_medium(0, handler, {buffers_.out.data(), size_}, {});
    return outcome == am::Outcome::sent;
  }
  bool poll_until(uint64_t arrived, const RunContext& context) {
    return spin_until(context.stop, [&] {
      if (arrived_ >= arrived) return true;
      endpoint_->poll();
      return arrived_ >= arrived;
    });
  }

  bool trips(uint64_t count, RunContext& context) {
    for (uint64_t i = 0; i < count; ++i) {
      stamp(buffers_.out.data(), size_, i + 1);
      if (!request(kEcho) || !poll_until(arrived_ + 1, context)) return false;
      if (read_stamp(buffers_.in.data(), size_) != (size_ >= sizeof(uint64_t) ? i + 1 : 0)) {
        context.control.fail("a message came back changed");
        return false;
      }
    }
    return true;
  }
  Outcome round_trips_of(const Slice& slice, RunContext& context) {
    Outcome outcome;
    if (context.side == Side::b) {
      poll_until(slice.warm_up + slice.iterations, context);
      return outcome;
    }
    if (!trips(slice.warm_up, context)) return outcome;
    const uint64_t start = cycles();
    uint64_t before = start;
    for (uint64_t done = 0; done < slice.iterations; done += slice.batch) {
      if (!trips(slice.batch, context)) return outcome;
      const uint64_t after = cycles();
      context.samples.push_back(after - before);
      before = after;
    }
    return {before - start, slice.iterations};
  }

  bool requests(uint64_t first, uint64_t count) {
    for (uint64_t i = 1; i <= count; ++i) {
      stamp(buffers_.out.data(), size_, first + i);
      if (!request(kTake)) return false;
    }
    return true;
  }
  // As stream() in workloads.h.
  Outcome stream_of(const Slice& slice, RunContext& context) {
    auto& stage = context.control.stage;
    const auto wait_for = [&](StreamStage wanted) {
      return spin_until(context.stop, [&] {
        endpoint_->poll();  // brings credits
        return stage.load(std::memory_order_acquire) == wanted;
      });
    };
    const uint64_t all = slice.warm_up + slice.iterations;
    if (context.side == Side::b) {
      stage.store(StreamStage::ready, std::memory_order_release);
      poll_until(slice.warm_up, context);
      stage.store(StreamStage::warm, std::memory_order_release);
      poll_until(all, context);
      stage.store(StreamStage::received, std::memory_order_release);
      if (size_ >= sizeof(uint64_t) && arrived_ == all && sum_ != all * (all + 1) / 2) {
        context.control.fail("a stream's messages arrived changed");
      }
      return {.messages = arrived_ < slice.warm_up ? 0 : arrived_ - slice.warm_up};
    }
    if (!wait_for(StreamStage::ready) || !requests(0, slice.warm_up) || !wait_for(StreamStage::warm)) return {};
    const uint64_t start = cycles();
    if (!requests(slice.warm_up, slice.iterations) || !wait_for(StreamStage::received)) return {};
    return {.cycles = cycles() - start};
  }

  bool store(uint8_t handler, uint64_t offset, size_t size) {
    return endpoint_->request_long(0, handler, offset, {buffers_.out.data(), size}, {}) == am::Outcome::sent;
  }
  // The clock stops when the last one has been handled there.
  Outcome stores(const Slice& slice, RunContext& context) {
    const uint64_t all = slice.warm_up + slice.iterations;
    if (context.side == Side::b) {
      poll_until(all, context);
      context.control.sent.store(1, std::memory_order_release);
      return {};
    }
    PutCursor cursor(slice.size, kRegionBytes);
    uint64_t start = cycles();
    for (uint64_t i = 0; i < all; ++i) {
      if (i == slice.warm_up) start = cycles();
      stamp(buffers_.out.data(), slice.size, i + 1);
      if (!store(kStored, cursor.next(), slice.size)) return {};
    }
    const bool handled = spin_until(context.stop, [&] { return context.control.sent.load(std::memory_order_acquire) != 0; });
    return handled ? Outcome{cycles() - start, slice.iterations} : Outcome{};
  }

  std::string ni_;
  int daemon_process_ = 0;
  std::unique_ptr<Context> context_;
  std::unique_ptr<am::Endpoint> endpoint_;
  MessageBuffers buffers_{kMessageMax};
  size_t size_ = 0;
  uint64_t arrived_ = 0;
  uint64_t sum_ = 0;
};

}  // namespace

void add_am_local(Contenders& contenders) {
  contenders.push_back(std::make_unique<AmLocal>(ContenderInfo{
      .path = "am-local",
      .kind = Kind::ours,
      .what = "Active Messages over a local channel between two processes",
      .setting = "public C++ API, default options; up to 64 B in arguments, else medium; put: long; both sides poll"}));
}

}  // namespace unet::bench
