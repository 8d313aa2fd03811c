// side.cc - calls at work: one at a time as a program makes them, or many under way.
#include "apps/bench/paths/rpc/side.h"

#include <unistd.h>

#include "apps/bench/paths/am/settle.h"
#include "apps/bench/paths/unet/endpoints.h"
#include "apps/bench/results/stats.h"

namespace unet::bench {

namespace {

constexpr Nanoseconds kSideLook = 50 * kMillisecond;       // a sleeper looks for a stop this often
constexpr Nanoseconds kSidePollTime = 300 * kMillisecond;  // the last message of a set-up may have to be sent again
constexpr size_t kUnderWay = 64;                       // calls of a slice of `rate`

// control.progress at the end of side B's part of a slice of `call_part`: two medians in cycles.
constexpr uint64_t kMediansThere = uint64_t{1} << 63;
constexpr unsigned kMedianBits = 30;
constexpr uint64_t kMedianMask = (uint64_t{1} << kMedianBits) - 1;

}  // namespace

const rpc::Interface RpcSide::kCalls{"unet-bench", 1};
const rpc::Procedure<void()> RpcSide::kNull{1};
const rpc::Procedure<uint32_t(uint32_t, uint32_t)> RpcSide::kAdd{2};
const rpc::Procedure<void(const RpcSide::Block&)> RpcSide::kBlockIn{3};
const rpc::Procedure<RpcSide::Block(const RpcSide::Block&)> RpcSide::kBlockInOut{4};
const rpc::Procedure<void(Bytes)> RpcSide::kIn{5};
const rpc::Procedure<void()> RpcSide::kNeverAnswered{6};

// ---- set-up

Status RpcSide::serve(Context& context, const std::string& name, const StopFlag& stop) {
  auto server = rpc::Server::create(context, name);
  if (!server) return tl::unexpected(server.error());
  server_ = std::move(*server);
  server_->provide(kCalls, kNull, [this] { ++served_; });
  server_->provide(kCalls, kAdd, [this](uint32_t left, uint32_t right) {
    ++served_;
    return left + right;
  });
  server_->provide(kCalls, kBlockIn, [this](const Block&) { ++served_; });
  server_->provide(kCalls, kBlockInOut, [this](const Block& block) {
    ++served_;
    return block;
  });
  server_->provide(kCalls, kIn, [this](Bytes) { ++served_; });
  server_->provide(kCalls, kNeverAnswered, [this](rpc::Response<void> response) { unanswered_.push_back(std::move(response)); });
  if (!serve_until(stop, [&] { return server_->callers() != 0; })) return fail(Errc::timed_out, "stopped");
  const Nanoseconds start = monotonic_now();
  serve_until(stop, [&] { return monotonic_now() - start >= kSidePollTime; });
  return {};
}

Status RpcSide::connect(Context& context, const std::string& target, control::Path path, const StopFlag& stop) {
  auto client = rpc::Client::create(context, {.connect = {.path = path, .local = am::kLocalOptions}});
  if (!client) return tl::unexpected(client.error());
  client_ = std::move(*client);
  buffers_ = MessageBuffers(kCallMax);
  many_ = std::vector<rpc::Call<void>>(kUnderWay);
  auto scheduler = fiber::Scheduler::create({.threads = 1});
  if (!scheduler) return tl::unexpected(scheduler.error());
  scheduler_ = std::move(*scheduler);
  scheduler_->add(*client_);
  auto binding = import_when_there(target, stop);
  if (!binding) return tl::unexpected(binding.error());
  binding_ = std::move(*binding);
  return {};
}

Result<rpc::Binding> RpcSide::import_when_there(const std::string& target, const StopFlag& stop) {
  const Nanoseconds deadline = monotonic_now() + kConnectTime;
  while (true) {
    auto binding = client_->import(target, kCalls);
    if (binding) return binding;
    const bool again = binding.error().code == Errc::not_found || binding.error().code == Errc::timed_out;
    if (!again || monotonic_now() >= deadline || stop.raised()) return binding;
    ::usleep(kRetryUs);
  }
}

// ---- waiting

template <typename Ready>
bool RpcSide::serve_until(const StopFlag& stop, Ready ready) {
  while (sleeps_) {
    if (ready()) return true;
    if (stop.raised()) return false;
    server_->wait(kSideLook);
  }
  const auto look = [&] {
    server_->poll();
    return ready();
  };
  return yields_ ? yield_until(stop, look) : spin_until(stop, look);
}

// Ends a slice, as AmSide::settle(). A client that was stopped waits for the answer of its last call, which side B still gives here.
void RpcSide::settle(const RunContext& context) {
  settle_both(context, yields_, [&] { return all_handled(endpoint()); }, [&] { poll(); });
}

// ---- slices

Outcome RpcSide::run(const Slice& asked, RunContext& context, OneCore* one_core) {
  Slice slice = asked;
  const bool callers = slice.workload == Workload::callers || slice.workload == Workload::callers_rate;
  if (callers) slice.warm_up = std::max<uint64_t>(slice.warm_up, slice.size);  // each fiber calls in it
  sleeps_ = one_core != nullptr;
  const auto loops = [&] { return run_loops(slice, context); };
  const Outcome outcome = sleeps_ ? one_core->run(context, loops) : loops();
  sleeps_ = false;
  settle(context);
  return outcome;
}

// As a program calls: the result comes back by value.
struct RpcSide::Caller {
  rpc::Binding& binding;
  RunContext& context;

  bool call(Procedure procedure, const std::byte* argument, uint32_t size, std::byte* result) {
    if (context.stop.raised()) return false;
    switch (procedure) {
      case Procedure::null: return ended(binding.call(kNull));
      case Procedure::add: {
        uint32_t words[2];
        std::memcpy(words, argument, sizeof words);
        auto sum = binding.call(kAdd, words[0], words[1]);
        std::memcpy(result, &*sum, sizeof *sum);
        return ended(sum);
      }
      case Procedure::in:
        if (size == kBlockBytes) return ended(binding.call(kBlockIn, *reinterpret_cast<const Block*>(argument)));
        return ended(binding.call(kIn, Bytes(argument, size)));
      case Procedure::in_out: {
        auto block = binding.call(kBlockInOut, *reinterpret_cast<const Block*>(argument));
        std::memcpy(result, &*block, sizeof *block);
        return ended(block);
      }
    }
    return false;
  }

 private:
  template <typename Reply>
  bool ended(const Reply& reply) {
    if (reply) return true;
    context.control.fail("a call ended with " + std::string(to_string(reply.status())));
    return false;
  }
};

Outcome RpcSide::run_loops(const Slice& slice, RunContext& context) {
  if (slice.workload == Workload::rate) return rate(slice, context);
  if (slice.workload == Workload::call_part) return parts(slice, context);
  if (slice.workload == Workload::many) return hold(slice, context);
  if (context.side == Side::b) {
    const uint64_t last = served_ + slice.warm_up + slice.iterations;
    serve_until(context.stop, [&] { return served_ >= last; });
    return {};
  }
  if (slice.workload == Workload::callers || slice.workload == Workload::callers_rate) return callers(slice, context);
  Caller caller{binding_, context};
  Slice calls = slice;
  if (slice.workload == Workload::rtt) calls.condition = static_cast<uint32_t>(slice.size == 0 ? Procedure::null : Procedure::add);
  return time_calls(caller, calls, buffers_, context);
}

// The bindings of a slice of `many`, as connections.h wants them.
struct RpcSide::IdleBindings {
  RpcSide& side;
  RunContext& context;
  uint64_t before = side.server_ != nullptr ? side.server_->counters().imports : 0;

  void slots(size_t count) {
    side.idle_.clear();
    if (side.client_ != nullptr) side.idle_.resize(count);
  }
  void poll() { side.poll(); }
  bool start(size_t slot, uint64_t) {
    auto binding = side.client_->import(side.binding_.target(), kCalls);
    if (!binding) context.control.fail(binding.error().text);
    if (binding) side.idle_[slot] = std::move(*binding);
    return binding.has_value();
  }
  bool connected(size_t) { return true; }
  bool accept(size_t, uint64_t number) {
    return side.serve_until(context.stop, [&] { return side.server_->counters().imports - before > number; });
  }
};

Outcome RpcSide::hold(const Slice& slice, RunContext& context) {
  IdleBindings bindings{*this, context};
  return ConnectionsHeld(bindings, held_, services_, slice, context).run();
}

void RpcSide::serve_on() {
  for (;;) server_->wait();
}

// control.sent: 2i - 1 when server number i is to start, 2i when it is to be killed. control.progress: when it was killed.
void RpcSide::lose_servers(const std::string& target, const Slice& slice, RunContext& context) {
  auto& control = context.control;
  for (uint64_t i = 1; i <= slice.iterations && !context.stop.raised(); ++i) {
    control.sent.store(2 * i - 1, std::memory_order_release);
    auto binding = import_when_there(target, context.stop);
    if (!binding) return control.fail(binding.error().text);
    for (rpc::Call<void>& call : many_) binding->start(call, kNeverAnswered);
    if (!binding->call(kNull)) return control.fail("the server that is to be killed does not answer");
    control.sent.store(2 * i, std::memory_order_release);
    for (rpc::Call<void>& call : many_) client_->wait_for(call);
    context.samples.push_back(cycles() - control.progress.load(std::memory_order_acquire));
  }
}

// Null calls, kUnderWay of them at a time: each waits for the one that began kUnderWay calls before.
bool RpcSide::call_many(uint64_t count, RunContext& context) {
  for (uint64_t i = 0; i < count + kUnderWay; ++i) {
    rpc::Call<void>& call = many_[i % kUnderWay];
    const auto has_ended = [&] {
      client_->poll();
      return call.done();
    };
    if (!call.done() && !spin_until(context.stop, has_ended)) {
      for (rpc::Call<void>& other : many_) other.cancel();
      return false;
    }
    if (i >= kUnderWay && !call.ok()) {
      context.control.fail("a call ended with " + std::string(to_string(call.status())));
      return false;
    }
    if (i < count) binding_.start(call, kNull);
  }
  return true;
}

Outcome RpcSide::rate(const Slice& slice, RunContext& context) {
  auto& stage = context.control.stage;
  if (context.side == Side::b) {
    const uint64_t first = served_, warm = first + slice.warm_up, all = warm + slice.iterations;
    stage.store(StreamStage::ready, std::memory_order_release);
    serve_until(context.stop, [&] { return served_ >= warm; });
    serve_until(context.stop, [&] { return served_ >= all; });
    return {.messages = served_ < warm ? 0 : served_ - warm};
  }
  const bool ready = spin_until(context.stop, [&] { return stage.load(std::memory_order_acquire) == StreamStage::ready; });
  if (!ready || !call_many(slice.warm_up, context)) return {};
  const uint64_t start = cycles();
  if (!call_many(slice.iterations, context)) return {};
  return {.cycles = cycles() - start, .messages = slice.iterations};
}

// `slice.size` fibers of one thread, each of which makes null calls one after another. The time is that of the calls after the warm-up.
Outcome RpcSide::callers(const Slice& slice, RunContext& context) {
  const bool timed = slice.workload == Workload::callers;
  const uint64_t all = slice.warm_up + slice.iterations;
  uint64_t begun = 0, ended = 0, start = 0, end = 0;
  const auto call = [&] {
    while (begun != all && !context.stop.raised()) {
      ++begun;
      const uint64_t before = timed ? cycles() : 0;
      if (!binding_.call(kNull)) context.control.fail("a call of a fiber failed");
      if (timed && ended >= slice.warm_up) context.samples.push_back(cycles() - before);
      if (++ended == slice.warm_up) start = cycles();
      if (ended == all) end = cycles();
    }
  };
  const Status ran = scheduler_->run([&] {
    std::vector<fiber::Handle<void>> fibers;
    for (uint32_t i = 0; i < slice.size; ++i) {
      fibers.push_back(fiber::spawn([&] { call(); }));
      if (!fibers.back()) return context.control.fail("there is no memory for fibers");
    }
    for (auto& each : fibers) each.join();
  });
  if (!ran) context.control.fail(ran.error().text);
  if (context.stop.raised()) return {};
  return {end - start, slice.iterations};
}

// Waits for a step of the other side. It polls only after a millisecond: a message that the wire did not take at once leaves when its
// sender polls.
bool RpcSide::wait_in_lockstep(const std::atomic<uint64_t>& steps, uint64_t least, RunContext& context) {
  const auto late = static_cast<uint64_t>(cycles_per_second() / 1000);
  const uint64_t start = cycles();
  return spin_until(context.stop, [&] {
    if (cycles() - start > late) poll();
    return steps.load(std::memory_order_acquire) >= least;
  });
}

// Bursts in lockstep, so that either side works while the other waits: A sends, B serves, A takes the answers. control.sent and
// control.progress count the bursts that are sent and served. At last side B leaves its two medians in control.progress.
Outcome RpcSide::parts(const Slice& slice, RunContext& context) {
  constexpr uint64_t kPolls = 16;  // timed together
  auto& control = context.control;
  const uint64_t bursts = slice.warm_up + slice.iterations;
  if (context.side == Side::b) {
    serve_bursts(slice.warm_up, slice.iterations, context);
    return {};
  }
  const auto wait_for = [&](uint64_t least) { return wait_in_lockstep(control.progress, least, context); };
  const auto part = static_cast<CallPart>(slice.condition);
  const uint64_t first = cycles();
  for (uint64_t i = 1; i <= bursts; ++i) {
    const uint64_t start = cycles();
    for (uint64_t k = 0; k < kCallBurst; ++k) binding_.start(many_[k], kNull);
    const uint64_t sent = cycles();
    control.sent.store(i, std::memory_order_release);
    if (!wait_for(i)) break;
    const uint64_t served = cycles();
    while (!many_[kCallBurst - 1].done() && !context.stop.raised()) client_->poll();
    const uint64_t taken = cycles();
    for (uint64_t k = 0; k < kPolls; ++k) client_->poll();
    const uint64_t polled = cycles();
    if (i <= slice.warm_up) continue;
    if (part == CallPart::client_send) context.samples.push_back((sent - start) / kCallBurst);
    if (part == CallPart::client_receive) context.samples.push_back((taken - served) / kCallBurst);
    if (part == CallPart::client_poll) context.samples.push_back((polled - taken) / kPolls);
  }
  for (uint64_t k = 0; k < kCallBurst; ++k) many_[k].cancel();
  if (!wait_for(kMediansThere)) return {};
  const uint64_t medians = control.progress.load(std::memory_order_acquire);
  if (part == CallPart::server_poll) context.samples.push_back(medians >> kMedianBits & kMedianMask);
  if (part == CallPart::server_serve) context.samples.push_back(medians & kMedianMask);
  return {cycles() - first, slice.iterations};
}

void RpcSide::serve_bursts(uint64_t warm_up, uint64_t bursts, RunContext& context) {
  constexpr uint64_t kPolls = 16;
  auto& control = context.control;
  uint64_t last = served_;
  std::vector<double> serves, polls;
  for (uint64_t i = 1; i <= warm_up + bursts; ++i) {
    if (!wait_in_lockstep(control.sent, i, context)) return;
    last += kCallBurst;
    const uint64_t start = cycles();
    while (served_ < last && !context.stop.raised()) server_->poll();
    const uint64_t served = cycles();
    for (uint64_t k = 0; k < kPolls; ++k) server_->poll();
    const uint64_t polled = cycles();
    control.progress.store(i, std::memory_order_release);
    if (i <= warm_up) continue;
    serves.push_back(static_cast<double>(served - start) / static_cast<double>(kCallBurst));
    polls.push_back(static_cast<double>(polled - served) / static_cast<double>(kPolls));
  }
  const auto median_bits = [](std::vector<double>& values) { return static_cast<uint64_t>(median(values)) & kMedianMask; };
  control.progress.store(kMediansThere | median_bits(polls) << kMedianBits | median_bits(serves), std::memory_order_release);
}

}  // namespace unet::bench
