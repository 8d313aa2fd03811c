// endpoints.cc - a well-behaved pair beside a hostile client, all in side A's thread; unetd's engine has core B.
//
// The hostile client has a connection of its own, of another user if this is root. It acts in small steps, each time the pair looks
// for its answer and finds none. It takes the engine's time from the pair, but no core.
#include <sys/mman.h>
#include <unistd.h>

#include "apps/bench/machine/other_user.h"
#include "apps/bench/paths/fairness/long_wakes.h"
#include "apps/bench/paths/fairness/scattered_buffers.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/unet/engine_pair.h"
#include "apps/bench/paths/unet/link.h"

namespace unet::bench {

namespace {

// Which thread has to wake the hostile client.
enum class Wakes { no, engine, peer };

struct Hostility {
  uint32_t endpoints;      // that send; 0: there is no hostile client
  uint32_t size;           // of their messages
  bool reads = true;       // what was sent to them
  bool returns = true;     // the memory of what they have read
  bool punches = false;    // holes into the memory that it sends from
  bool scatters = false;   // the buffers that it receives into
  Wakes wakes = Wakes::no; // it sleeps
  uint32_t entries = 1;    // of each poll() in which it sleeps
};

class HostileClient {
 public:
  // `pair_context`: of the well-behaved client, which has a channel to the hostile one if the attack needs the pair to wake it.
  Status start(const std::string& ni, const Hostility& kind, const std::string& name, const StopFlag& stop, Context& pair_context) {
    kind_ = kind;
    if (kind.endpoints == 0) return {};
    auto context = as_other_user([&] { return Context::open(ni, "unet-bench-hostile"); });
    if (!context) return tl::unexpected(context.error());
    context_ = std::make_unique<Context>(std::move(*context));
    for (uint32_t i = 0; i < kind.endpoints; ++i) {
      auto from = (kind.wakes == Wakes::peer ? pair_context : *context_).create_endpoint();
      if (!from) return tl::unexpected(from.error());
      auto to = context_->create_endpoint(kind.size == ScatteredBuffers::kTwoBuffers ? ScatteredBuffers::kOptions : EndpointOptions{});
      if (!to) return tl::unexpected(to.error());
      const control::Path path = kind.wakes == Wakes::peer ? control::Path::local : control::Path::ni;
      auto channel = connect_both(*from, *to, name + "-" + std::to_string(i), stop, path);
      if (!channel) return tl::unexpected(channel.error());
      pairs_.push_back({std::make_unique<Endpoint>(std::move(*from)), std::make_unique<Endpoint>(std::move(*to)), *channel, std::nullopt});
      if (kind.scatters && !scatter(pairs_.back(), stop)) return fail(Errc::timed_out, "no buffers to scatter");
    }
    return kind.wakes == Wakes::no ? Status{} : sleep();
  }

  // Number of hostile acts so far.
  uint64_t attacks() const { return attacks_; }
  // Call before round trips that are timed. An attack that needs the core for its preparation uses it now.
  void prepare(const StopFlag& stop) {
    if (sleeps_) sleeps_->fall_asleep(stop);
  }

  // Sends a few messages of the next endpoint. True: they filled its queue, so the engine has work from this client.
  bool step(uint32_t messages = kPerStep) {
    if (pairs_.empty()) return true;
    if (sleeps_) {
      attacks_ += sleeps_->wake() ? 1 : 0;
      return false;
    }
    Pair& pair = pairs_[next_++ % pairs_.size()];
    if (kind_.reads) read(pair);
    for (uint32_t i = 0; i < messages; ++i) {
      const SendOutcome outcome = send(pair);
      if (outcome == SendOutcome::sent || outcome == SendOutcome::full) ++attacks_;  // a full queue is work for the engine
      if (outcome != SendOutcome::sent) return true;
    }
    return false;
  }

  uint64_t sent() const {
    uint64_t sum = 0;
    for (const Pair& pair : pairs_) sum += sent_by(*pair.from);
    return sum;
  }
  static uint64_t sent_by(const Endpoint& endpoint) {
    for (const auto& [name, value] : endpoint.counters()) {
      if (name == "sent_messages") return value;
    }
    return 0;
  }
  size_t endpoints() const { return pairs_.size(); }
  void stop() {
    sleeps_.reset();
    pairs_.clear();
    context_.reset();
  }

 private:
  static constexpr uint32_t kPerStep = 2;
  struct Pair {
    std::unique_ptr<Endpoint> from, to;
    Channel channel;
    std::optional<ScatteredBuffers> scattered;
  };

  Status sleep() {
    const Pair& pair = pairs_.front();
    auto descriptor = pair.to->descriptor();
    if (!descriptor) return tl::unexpected(descriptor.error());
    sleeps_.emplace(*pair.from, pair.channel, *pair.to, *descriptor, kind_.entries);
    return {};
  }

  bool scatter(Pair& pair, const StopFlag& stop) {
    if (pair.from->send(pair.channel, {data_.data(), 1}) != SendOutcome::sent) return false;
    Message first;
    while (!pair.to->receive(first)) {
      if (stop.raised()) return false;
    }
    pair.scattered.emplace(first);
    while (!pair.scattered->scattered()) {
      if (stop.raised()) return false;
      if (!pair.from->reserve(pair.channel, ScatteredBuffers::kOneBuffer).empty()) {
        pair.from->post(pair.channel, ScatteredBuffers::kOneBuffer);
      }
      while (pair.scattered->take()) {
      }
    }
    return true;
  }

  SendOutcome send(Pair& pair) {
    if (kind_.punches) punch(pair.from->reserve(pair.channel, kind_.size));
    if (kind_.size <= kInlineMax) return pair.from->send(pair.channel, {data_.data(), kind_.size});
    // A flood needs no copy.
    if (!pair.from->reserve(pair.channel, kind_.size).empty()) return pair.from->post(pair.channel, kind_.size);
    return pair.from->is_open(pair.channel) ? SendOutcome::full : SendOutcome::no_channel;
  }
  // If punching is allowed, the engine's next look at these pages waits for the kernel, which has to make new ones.
  static void punch(MutableBytes memory) {
    const uintptr_t begin = round_up(reinterpret_cast<uintptr_t>(memory.data()), kPage);
    const uintptr_t end = (reinterpret_cast<uintptr_t>(memory.data()) + memory.size()) / kPage * kPage;
    if (begin < end) static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_REMOVE));
  }
  void read(Pair& pair) {
    if (pair.scattered) {
      for (uint32_t i = 0; i < 2 * kPerStep && pair.scattered->take(); ++i) {
      }
      return;
    }
    Message message;
    for (uint32_t i = 0; i < 2 * kPerStep && pair.to->receive(message); ++i) {
      if (kind_.returns) pair.to->release(message);
    }
  }

  Hostility kind_{};
  std::unique_ptr<Context> context_;
  std::vector<Pair> pairs_;
  std::optional<LongWakes> sleeps_;
  size_t next_ = 0;
  uint64_t attacks_ = 0;
  std::vector<std::byte> data_ = std::vector<std::byte>(kInlineMax);
};

class FairnessPair final : public Path {
 public:
  FairnessPair(PathInfo info, Hostility kind) : Path(std::move(info)), kind_(kind) {}

  Status prepare(Environment& environment) override {
    if (kind_.endpoints > 1 && geteuid() != 0) return fail(Errc::unavailable, "needs root: one user's endpoints share that user's share");
    return pair_.prepare(environment.daemon_for_all());
  }

  Status set_up(const RunContext& run, Environment&) override {
    if (run.side == Side::b) return {};
    if (auto ready = pair_.set_up(info_.name, run); !ready) return ready;
    return hostile_.start(pair_.ni(), kind_, info_.name + "-hostile", run.stop, pair_.context());
  }

  Outcome run(const Slice& slice, RunContext& context) override {
    if (context.side == Side::b) {
      pair_.park(context);
      return {};
    }
    const uint64_t attacks = hostile_.attacks();
    const Outcome outcome = slice.workload == Workload::rtt ? round_trips(slice, context) : share(context);
    pair_.release_side_b(context);
    if (outcome.messages < kAttackedMin || hostile_.endpoints() == 0 || hostile_.attacks() != attacks) return outcome;
    context.control.fail("the hostile client did nothing meanwhile");
    return {};
  }

  std::vector<int> service_processes() const override { return {pair_.daemon_process()}; }

  void tear_down(const RunContext&) override {
    hostile_.stop();
    pair_.tear_down();
  }

 private:
  static constexpr uint32_t kPerOffer = 16;
  static constexpr uint32_t kPrepareEvery = 32;  // one round trip in so many is more than a hundredth: the tail has it
  static constexpr uint32_t kWarmUp = 16;        // round trips
  static constexpr uint64_t kAttackedMin = 64;   // round trips, or messages: fewer may have found no time for an attack
  static constexpr Nanoseconds kShareTime = 5 * kMillisecond;
  static constexpr Nanoseconds kTripsTime = 50 * kMillisecond;  // a slice ends by then, however slow the machine is

  // Sends a message from `out` to `in`, with the hostile client at work meanwhile. `channel` becomes the channel of `in`.
  bool one_way(Endpoint& out, Endpoint& in, Channel& channel, const Slice& slice, RunContext& context, bool attacked = true) {
    const Bytes data{buffers_.out.data(), slice.size};
    Message message;
    for (uint32_t looks = 1; out.send(channel, data) != SendOutcome::sent; ++looks) {
      if (looks % 1024 == 0 && context.stop.raised()) return false;
    }
    for (uint32_t looks = 1; !in.receive(message); ++looks) {
      if (attacked) hostile_.step();
      if (looks % 1024 == 0 && context.stop.raised()) return false;
    }
    copy_message(buffers_.in.data(), message.data, message.length);
    channel = message.channel;
    in.release(message);
    return true;
  }

  // The engine and this thread have slept while the hostile client went to sleep. The time to wake them is no part of an attack.
  bool prepare(const Slice& slice, RunContext& context) {
    hostile_.prepare(context.stop);
    if (kind_.wakes == Wakes::no) return true;
    for (uint32_t i = 0; i < kWarmUp; ++i) {
      if (!round_trip(slice, context, false)) return false;
    }
    return true;
  }
  bool round_trip(const Slice& slice, RunContext& context, bool attacked) {
    Channel channel = pair_.channel();
    Endpoint &from = pair_.from(), &to = pair_.to();
    return one_way(from, to, channel, slice, context, attacked) && one_way(to, from, channel, slice, context, attacked);
  }
  Outcome round_trips(const Slice& slice, RunContext& context) {
    Outcome outcome;
    const uint32_t batch = std::max<uint32_t>(1, slice.batch);
    const Nanoseconds end = monotonic_now() + kTripsTime;
    uint64_t start = 0;
    // The time of a preparation does not count towards the number of round trips of a slice.
    const uint64_t iterations = kind_.wakes == Wakes::no ? slice.iterations : 4 * kPrepareEvery;
    for (uint64_t i = 0; i < slice.warm_up + iterations; ++i) {
      if (i >= slice.warm_up && i % 64 == 0 && outcome.messages != 0 && monotonic_now() > end) break;
      const uint64_t preparing = cycles();
      if (i % kPrepareEvery == 0 && !prepare(slice, context)) return {};
      start += cycles() - preparing;  // no part of a round trip
      if (i == slice.warm_up) start = cycles();
      const bool timed = i >= slice.warm_up;
      const uint64_t begin = timed && (i - slice.warm_up) % batch == 0 ? (batch_start_ = cycles()) : batch_start_;
      if (!round_trip(slice, context, true)) return {};
      if (!timed || (i - slice.warm_up + 1) % batch != 0) continue;
      context.samples.push_back(cycles() - begin);
      outcome.messages += batch;
    }
    outcome.cycles = cycles() - start;
    return outcome;
  }

  // Both sides keep their send queues full, so that the engine chooses what it sends next, and counts it. A slice has no result if most
  // offers found room for everything: this thread would have chosen then.
  Outcome share(RunContext& context) {
    Outcome outcome;
    uint64_t ours = 0, theirs = 0, looks = 0, backlogged = 0;
    Nanoseconds end = 0;
    for (Nanoseconds now = monotonic_now(), begin = now + kShareTime / 4; !context.stop.raised(); now = monotonic_now()) {
      if (end == 0 && now >= begin) {
        end = now + kShareTime;
        theirs = hostile_.sent();
        ours = HostileClient::sent_by(pair_.from());
      } else if (end != 0 && now >= end) {
        break;
      }
      for (uint32_t i = 0; i < 32; ++i, ++looks) backlogged += offer() ? 1 : 0;
    }
    theirs = hostile_.sent() - theirs;
    outcome.messages = HostileClient::sent_by(pair_.from()) - ours;
    const uint64_t all = outcome.messages + theirs;
    drain(context);
    if (all != 0 && backlogged * 2 > looks) context.samples.push_back(all);
    return outcome;
  }
  // Messages without room at `to` are dropped there: only messages that the engine sends count. True: both queues are full now.
  bool offer() {
    const Bytes data{buffers_.out.data(), kind_.size};
    uint32_t taken = 0;
    while (taken < kPerOffer && pair_.from().send(pair_.channel(), data) == SendOutcome::sent) ++taken;
    Message message;
    for (uint32_t i = 0; i < 2 && pair_.to().receive(message); ++i) pair_.to().release(message);
    return hostile_.step(kPerOffer) && taken < kPerOffer;
  }
  // The next slice begins with nothing of ours under way.
  void drain(const RunContext& context) {
    Message message;
    for (uint32_t quiet = 0; quiet < 100'000 && !context.stop.raised(); ++quiet) {
      while (pair_.to().receive(message)) {
        pair_.to().release(message);
        quiet = 0;
      }
    }
  }

  Hostility kind_;
  EnginePair pair_;
  HostileClient hostile_;
  uint64_t batch_start_ = 0;
  MessageBuffers buffers_{kMessageMax};
};

}  // namespace

void add_unet_fairness(Paths& paths) {
  const auto add = [&](const char* path, const std::string& what, Hostility kind, std::vector<std::string> control = {}) {
    paths.push_back(std::make_unique<FairnessPair>(
        PathInfo{.name = path,
                      .kind = Kind::ours,
                      .what = "U-Net, shared NI: a pair " + what,
                      .setting = "public C++ API, default options, all endpoints in one thread, unetd --idle adaptive on the other core",
                      .workloads = kind.wakes == Wakes::no ? Set{Workload::rtt, Workload::share} : Set{Workload::rtt},
                      .only = {"fairness"},
                      .more_baselines = std::move(control),
                      .shares_cores = kind.wakes != Wakes::no,  // with the hostile client's threads
                      .side_b_parked = true},
        kind));
  };
  add("alone", "of endpoints alone, for `fairness`", {.endpoints = 0, .size = kInlineMax});
  add("flood-small", "beside a client that sends 48-byte messages without end", {.endpoints = 1, .size = kInlineMax});
  add("flood-large", "beside a client that sends messages of 8 KiB without end", {.endpoints = 1, .size = 8'192});
  add("flood-many", "beside a client that sends without end on 64 endpoints", {.endpoints = 64, .size = kInlineMax});
  add("never-reads", "beside a client that floods an endpoint of its own and never reads", {.endpoints = 1, .size = 1'024, .reads = false});
  add("never-returns", "beside a client that floods an endpoint of its own and keeps all memory",
      {.endpoints = 1, .size = 1'024, .returns = false});
  add("flood-largest", "beside a client that sends messages of 64 KiB without end", {.endpoints = 1, .size = kMessageMax});
  add("punches", "beside a client that punches holes into the memory that it sends from",
      {.endpoints = 1, .size = kMessageMax, .punches = true}, {"flood-largest"});
  add("flood-two", "beside a client that sends messages of two buffers without end",
      {.endpoints = 1, .size = ScatteredBuffers::kTwoBuffers});
  add("scatters", "beside a client that gives back every second of its buffers only",
      {.endpoints = 1, .size = ScatteredBuffers::kTwoBuffers, .scatters = true}, {"flood-two"});
  constexpr uint32_t kEntries = 20'000;
  add("sleeps", "beside a client that the engine wakes", {.endpoints = 1, .size = 1, .wakes = Wakes::engine});
  add("wakes", "beside a client that the engine wakes, with thousands of poll entries on its descriptor",
      {.endpoints = 1, .size = 1, .wakes = Wakes::engine, .entries = kEntries}, {"sleeps"});
  add("sleeps-peer", "that wakes a client over a local channel", {.endpoints = 1, .size = 1, .wakes = Wakes::peer});
  add("wakes-peer", "that wakes a client with thousands of poll entries over a local channel",
      {.endpoints = 1, .size = 1, .wakes = Wakes::peer, .entries = kEntries}, {"sleeps-peer"});
}

}  // namespace unet::bench
