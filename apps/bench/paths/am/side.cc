// side.cc - Active Message endpoints at work. Payload of short and medium messages is read into a buffer of the receiver's, and an
// answer written from it; long messages are where they belong when they arrive, and only looked at.
#include "apps/bench/paths/am/side.h"

#include <unistd.h>

#include "apps/bench/machine/memory_use.h"
#include "apps/bench/paths/am/settle.h"
#include "apps/bench/workloads/am.h"
#include "apps/bench/workloads/batches.h"

namespace unet::bench {

namespace {

constexpr uint8_t kEcho = 1, kAnswer = 2, kTake = 3, kCount = 4, kTouched = 5;
constexpr Nanoseconds kLook = 50 * kMillisecond;        // a sleeper looks for a stop this often
constexpr Nanoseconds kPollTime = 300 * kMillisecond;  // the last message of a set-up may have to be sent again

// Payload that fits into arguments travels in them.
constexpr uint32_t kShortMax = sizeof(uint32_t) * am::kArgumentsMax;
bool is_short(size_t size) { return size <= kShortMax && size % sizeof(uint32_t) == 0; }

}  // namespace

AmSide::AmSide(std::unique_ptr<am::Endpoint> endpoint, bool yields, std::vector<int> services)
    : endpoint_(std::move(endpoint)), yields_(yields), services_(std::move(services)) {
  install_handlers();
}

Result<std::unique_ptr<AmSide>> AmSide::create(Context& context, bool yields, std::vector<int> services) {
  auto endpoint = am::Endpoint::create(context);
  if (!endpoint) return tl::unexpected(endpoint.error());
  std::unique_ptr<AmSide> side(new AmSide(std::move(*endpoint), yields, std::move(services)));
  auto segment = side->endpoint_->expose(kRegionBytes);
  if (!segment) return tl::unexpected(segment.error());
  side->segment_ = *segment;
  std::memset(segment->data(), 0, segment->size());  // no slice meets a page fault
  return side;
}

Status AmSide::fits(Workload workload, uint32_t size) {
  switch (workload) {
    case Workload::rtt:
    case Workload::rate:
    case Workload::bandwidth:
    case Workload::am_medium:
      if (size > am::kMediumMax) return fail(Errc::unavailable, "a medium message has at most 16 KiB");
      return {};
    case Workload::am_short:
    case Workload::am_overheads:
      if (!is_short(size)) return fail(Errc::unavailable, "a short message has at most 16 arguments of 4 bytes");
      return {};
    case Workload::am_long:
      if (size > am::kLongReplyMax) return fail(Errc::unavailable, "a long reply has at most 16 KiB");
      return {};
    default: return {};
  }
}

// ---- set-up

Status AmSide::serve(const std::string& name, const StopFlag& stop) {
  if (auto bound = endpoint_->bind(name); !bound) return bound;
  if (!poll_until(stop, [&] { return endpoint_->peers() != 0; })) return fail(Errc::timed_out, "stopped");
  keep_polling();
  return {};
}

Status AmSide::connect(const std::string& target, const ConnectOptions& options, const StopFlag& stop) {
  target_ = target;
  options_ = options;
  const Nanoseconds deadline = monotonic_now() + kConnectTime;
  while (true) {
    const Status mapped = endpoint_->map(0, target, am::kAnyTag, options);
    if (mapped) break;
    const bool again = mapped.error().code == Errc::not_found || mapped.error().code == Errc::timed_out;
    if (!again || monotonic_now() >= deadline || stop.raised()) return mapped;
    ::usleep(kRetryUs);
  }
  if (endpoint_->is_local(0)) {
    // The first store to each page meets a page fault: not in a slice.
    for (uint64_t offset = 0; offset < kRegionBytes; offset += kMessageMax) store(kTouched, offset, kMessageMax);
  }
  keep_polling();
  return {};
}

void AmSide::keep_polling() {
  for (const Nanoseconds start = monotonic_now(); monotonic_now() - start < kPollTime;) {
    endpoint_->poll();
    if (yields_) sched_yield();
  }
}

// ---- handlers

void AmSide::install_handlers() {
  endpoint_->set_handler(kEcho, [](am::Token& token, void* self) { static_cast<AmSide*>(self)->answer(token); }, this);
  endpoint_->set_handler(kAnswer, [](am::Token& token, void* self) { static_cast<AmSide*>(self)->take(token); }, this);
  endpoint_->set_handler(kTake, [](am::Token& token, void* self) {
    AmSide& side = *static_cast<AmSide*>(self);
    side.take(token);
    side.sum_ += read_stamp(side.buffers_.in.data(), side.size_);
  }, this);
  endpoint_->set_handler(kCount, [](am::Token&, void* self) { ++static_cast<AmSide*>(self)->arrived_; }, this);
  endpoint_->set_handler(kTouched, [](am::Token&, void*) {}, nullptr);
}

void AmSide::take(am::Token& token) {
  switch (category_) {
    case Category::as_short: copy_message(buffers_.in.data(), reinterpret_cast<const std::byte*>(token.arguments().data()), size_); break;
    case Category::as_medium: copy_message(buffers_.in.data(), token.payload().data(), token.payload().size()); break;
    case Category::as_long: stamp(buffers_.in.data(), size_, read_stamp(token.payload().data(), token.payload().size())); break;
  }
  ++arrived_;
}

void AmSide::answer(am::Token& token) {
  take(token);
  switch (category_) {
    case Category::as_short: token.reply_short(kAnswer, words(buffers_.in.data())); break;
    case Category::as_medium: token.reply_medium(kAnswer, {buffers_.in.data(), size_}, {}); break;
    case Category::as_long: token.reply_long(kAnswer, 0, token.payload(), {}); break;
  }
}

// ---- waiting and sending

template <typename Ready>
bool AmSide::poll_until(const StopFlag& stop, Ready ready) {
  const auto look = [&] {
    if (ready()) return true;
    endpoint_->poll();
    return ready();
  };
  while (sleeps_) {
    if (look()) return true;
    if (stop.raised()) return false;
    endpoint_->wait(kLook);
  }
  return yields_ ? yield_until(stop, look) : spin_until(stop, look);
}

bool AmSide::arrive_until(uint64_t count, const RunContext& context) {
  return poll_until(context.stop, [&] { return arrived_ >= count; });
}

// Ends a slice. Messages without an acknowledgement would look like a silent peer until the path's next slice. Side B goes on for a while
// even when it was stopped: side A may be waiting for a credit.
void AmSide::settle(const RunContext& context) {
  settle_both(context, yields_, [&] { return all_handled(*endpoint_); }, [&] { endpoint_->poll(); });
}

bool AmSide::request(uint8_t handler) {
  const std::byte* const data = buffers_.out.data();
  switch (category_) {
    case Category::as_short: return endpoint_->request_short(0, handler, words(data)) == am::Outcome::sent;
    case Category::as_medium: return endpoint_->request_medium(0, handler, {data, size_}, {}) == am::Outcome::sent;
    case Category::as_long: return store(handler, 0, size_);
  }
  return false;
}

bool AmSide::requests(uint8_t handler, uint64_t first, uint64_t count) {
  for (uint64_t i = 1; i <= count; ++i) {
    stamp(buffers_.out.data(), size_, first + i);
    if (!request(handler)) return false;
  }
  return true;
}

bool AmSide::store(uint8_t handler, uint64_t offset, size_t size) {
  return endpoint_->request_long(0, handler, offset, {buffers_.out.data(), size}, {}) == am::Outcome::sent;
}

bool AmSide::stores(PutCursor& cursor, uint64_t first, uint64_t count) {
  for (uint64_t i = 1; i <= count; ++i) {
    stamp(buffers_.out.data(), size_, first + i);
    if (!store(kCount, cursor.next(), size_)) return false;
  }
  return true;
}

// ---- slices

AmSide::Category AmSide::category_of(const Slice& slice) {
  switch (slice.workload) {
    case Workload::am_short:
    case Workload::am_overheads: return Category::as_short;
    case Workload::am_medium: return Category::as_medium;
    case Workload::am_long:
    case Workload::lossy:
    case Workload::put: return Category::as_long;
    default: return is_short(slice.size) ? Category::as_short : Category::as_medium;
  }
}

Outcome AmSide::run(const Slice& slice, RunContext& context, OneCore* one_core) {
  size_ = slice.size;
  category_ = category_of(slice);
  arrived_ = sum_ = 0;
  sleeps_ = one_core != nullptr;
  const auto loops = [&] { return run_loops(slice, context); };
  const Outcome outcome = sleeps_ ? one_core->run(context, loops) : loops();
  sleeps_ = false;
  settle(context);
  return outcome;
}

Outcome AmSide::run_loops(const Slice& slice, RunContext& context) {
  switch (slice.workload) {
    case Workload::rate:
    case Workload::bandwidth:
      return stream_of(
          slice, context, [&](uint64_t first, uint64_t count) { return requests(kTake, first, count); },
          [&](uint64_t all) { return sum_ == all * (all + 1) / 2; });
    case Workload::put: {
      PutCursor cursor(slice.size, kRegionBytes);
      return stream_of(
          slice, context, [&](uint64_t first, uint64_t count) { return stores(cursor, first, count); },
          [&](uint64_t all) { return holds_last(all); });
    }
    case Workload::get: return gets(slice, context);
    case Workload::am_peers: return map_many(slice, context);
    case Workload::lossy: return lossy(slice, context);
    case Workload::am_overheads: return overheads(slice, context);
    default: return context.side == Side::a ? round_trips_of(slice, context) : serve_trips(slice, context);
  }
}

bool AmSide::trips(uint64_t count, RunContext& context) {
  for (uint64_t i = 0; i < count; ++i) {
    stamp(buffers_.out.data(), size_, i + 1);
    if (!request(kEcho) || !arrive_until(arrived_ + 1, context)) return false;
    if (read_stamp(buffers_.in.data(), size_) != (size_ >= sizeof(uint64_t) ? i + 1 : 0)) {
      context.control.fail("a message came back changed");
      return false;
    }
  }
  return true;
}

Outcome AmSide::round_trips_of(const Slice& slice, RunContext& context) {
  return time_batches(slice, context.samples, [&](uint64_t count) { return trips(count, context); });
}

Outcome AmSide::serve_trips(const Slice& slice, RunContext& context) {
  arrive_until(slice.warm_up + slice.iterations, context);
  return {};
}

// The last store is intact if its number is in place: nothing came after it.
bool AmSide::holds_last(uint64_t stores) const {
  PutCursor cursor(size_, kRegionBytes);
  for (uint64_t i = 0; i < stores; ++i) cursor.next();
  return read_stamp(segment_.data() + cursor.last(), size_) == stores;
}

// As stream() in workloads/messages.h. `send` sends messages first + 1 ... first + count; `intact` checks that so many came as sent.
template <typename Send, typename Intact>
Outcome AmSide::stream_of(const Slice& slice, RunContext& context, Send send, Intact intact) {
  auto& stage = context.control.stage;
  const auto wait_for = [&](StreamStage wanted) {
    return poll_until(context.stop, [&] { return stage.load(std::memory_order_acquire) == wanted; });  // polls: that brings credits
  };
  const uint64_t all = slice.warm_up + slice.iterations;
  if (context.side == Side::b) {
    stage.store(StreamStage::ready, std::memory_order_release);
    arrive_until(slice.warm_up, context);
    stage.store(StreamStage::warm, std::memory_order_release);
    arrive_until(all, context);
    stage.store(StreamStage::received, std::memory_order_release);
    if (size_ >= sizeof(uint64_t) && arrived_ == all && !intact(all)) context.control.fail("a stream's messages arrived changed");
    return {.messages = arrived_ < slice.warm_up ? 0 : arrived_ - slice.warm_up};
  }
  if (!wait_for(StreamStage::ready) || !send(0, slice.warm_up) || !wait_for(StreamStage::warm)) return {};
  const uint64_t start = cycles();
  if (!send(slice.warm_up, slice.iterations) || !wait_for(StreamStage::received)) return {};
  return {.cycles = cycles() - start, .messages = slice.iterations};
}

// Side A reports in control.sent that its peers are mapped, side B in control.progress its additional bytes.
Outcome AmSide::map_many(const Slice& slice, RunContext& context) {
  auto& control = context.control;
  const auto grown = [](uint64_t before, uint64_t after) { return after > before ? after - before : 0; };
  const auto of_services = [&] {
    uint64_t bytes = 0;
    for (const int process : services_) bytes += own_memory(process);
    return bytes;
  };
  const uint64_t allocated = allocated_memory(), touched = touched_shared_memory(), mapped = mapped_memory(),
                 served = of_services();
  if (context.side == Side::b) {
    control.stage.store(StreamStage::ready, std::memory_order_release);
    if (!poll_until(context.stop, [&] { return control.sent.load(std::memory_order_acquire) != 0; })) return {};
    control.progress.store(grown(allocated, allocated_memory()), std::memory_order_relaxed);
    control.stage.store(StreamStage::received, std::memory_order_release);
    poll_until(context.stop, [&] { return endpoint_->peers() == 1; });
    return {};
  }
  const auto wait_for = [&](StreamStage wanted) {
    return poll_until(context.stop, [&] { return control.stage.load(std::memory_order_acquire) == wanted; });
  };
  if (!wait_for(StreamStage::ready)) return {};
  const uint64_t start = cycles();
  for (am::Index i = 1; i <= slice.iterations; ++i) {
    if (const Status mapped = endpoint_->map(i, target_, am::kAnyTag, options_); !mapped) {
      context.control.fail("peer " + std::to_string(i) + ": " + mapped.error().text);
      return {};
    }
  }
  const uint64_t end = cycles();
  context.samples.assign({grown(allocated, allocated_memory()), 0, grown(touched, touched_shared_memory()), grown(mapped, mapped_memory()),
                          grown(served, of_services())});
  control.sent.store(1, std::memory_order_release);
  if (!wait_for(StreamStage::received)) return {};
  context.samples[1] = control.progress.load(std::memory_order_acquire);
  for (am::Index i = 1; i <= slice.iterations; ++i) {
    if (const Status unmapped = endpoint_->unmap(i); !unmapped) context.control.fail(unmapped.error().text);
  }
  return {end - start, slice.iterations};
}

// Side A marks in control.sent when the time that counts begins (1) and when it is over (2).
Outcome AmSide::lossy(const Slice& slice, RunContext& context) {
  auto& control = context.control;
  if (context.side == Side::b) {
    uint64_t before = 0;
    for (uint64_t mark = 0; mark != 2;) {
      poll_until(context.stop, [&] { return control.sent.load(std::memory_order_acquire) != mark; });
      if (context.stop.raised()) return {};
      if (mark == 0) before = arrived_;
      mark = control.sent.load(std::memory_order_acquire);
    }
    control.stage.store(StreamStage::received, std::memory_order_release);
    return {.messages = arrived_ - before};
  }
  PutCursor cursor(slice.size, kRegionBytes);
  const auto send_for = [&](uint64_t ms) {
    for (const Nanoseconds end = monotonic_now() + ms * kMillisecond; monotonic_now() < end && !context.stop.raised();) {
      if (!stores(cursor, 0, 1)) return false;
    }
    return true;
  };
  const auto say = [&](uint64_t mark) { control.sent.store(mark, std::memory_order_release); };
  if (!send_for(slice.warm_up)) return {};
  say(1);
  const uint64_t start = cycles();
  if (!send_for(slice.iterations)) return {};
  const uint64_t end = cycles();
  say(2);
  if (!poll_until(context.stop, [&] { return control.stage.load(std::memory_order_acquire) == StreamStage::received; })) return {};
  return {end - start, 0};
}

// The warm-up measures how long the replies of a burst are under way. The pause is a multiple of that.
Outcome AmSide::overheads(const Slice& slice, RunContext& context) {
  constexpr uint64_t kPauses = 4;
  const uint64_t bursts = slice.warm_up + slice.iterations;
  if (context.side == Side::b) {
    arrive_until(bursts * kAmBurst, context);
    return {};
  }
  uint64_t clock = ~uint64_t{0}, least = ~uint64_t{0};  // cycles: what reading them costs, and what a burst takes
  for (uint64_t i = 0; i < slice.warm_up; ++i) {
    const uint64_t before = cycles();
    clock = std::min(clock, cycles() - before);
  }
  const uint64_t first = cycles();
  for (uint64_t i = 0; i < bursts; ++i) {
    const uint64_t start = cycles();
    if (!requests(kEcho, i * kAmBurst, kAmBurst)) return {};
    const uint64_t sent = cycles();
    if (i >= slice.warm_up) {
      while (cycles() - sent < kPauses * least) spin_pause();
    }
    const uint64_t paused = cycles();
    if (!arrive_until((i + 1) * kAmBurst, context)) return {};
    const uint64_t end = cycles();
    if (i < slice.warm_up) {
      least = std::min(least, end - start);
    } else {
      context.samples.push_back(sent - start - std::min(clock, sent - start));
      context.samples.push_back(end - paused - std::min(clock, end - paused));
    }
  }
  return {cycles() - first, slice.iterations};
}

// As get_loop() in workloads/put.h, with as many under way as there are credits.
Outcome AmSide::gets(const Slice& slice, RunContext& context) {
  struct Link {
    AmSide& side;
    RunContext& context;
    uint64_t begun = 0;
    void poll() { side.endpoint_->poll(); }
    bool get(std::byte* into, size_t offset, size_t size) {
      ++begun;
      return side.endpoint_->get(0, kCount, offset, {into, size}, {}) == am::Outcome::sent && (begun % 32 != 0 || (poll(), true));
    }
    bool finish() { return side.arrive_until(begun, context); }
    bool wait_until_over() {
      return side.poll_until(context.stop, [&] { return context.control.sent.load(std::memory_order_acquire) != 0; });
    }
  } link{*this, context};
  return get_loop(link, slice, segment_, buffers_, context);
}

}  // namespace unet::bench
