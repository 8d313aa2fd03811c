// restart.cc - traffic on many endpoints while the network interface under them is replaced, for `restart`.
//
// One thread (side A) holds all endpoints: pairs through unetd's engine, which send both ways, and pairs on local channels beside
// them. It notes for each receiving endpoint the longest time between two messages. Another thread, not bound to the measuring
// cores, asks for the replacement.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "apps/bench/frame/core_parking.h"
#include "apps/bench/frame/environment.h"
#include "apps/bench/paths/paths.h"
#include "apps/bench/paths/unet/endpoints.h"
#include "apps/bench/results/report.h"
#include "apps/bench/workloads/restart.h"
#include "unet/connection.h"

namespace unet::bench {

namespace {

enum class Replacement : uint8_t { none, crash, upgrade, stop };

constexpr uint32_t kPairs = kRestartEndpoints / 2;
constexpr uint64_t kWindow = 4;  // messages under way in one direction: fewer than any queue or pool of buffers holds
constexpr Nanoseconds kSetUpTime = 20 * kMillisecond;  // of traffic before anything counts
constexpr Nanoseconds kGiveUp = 20 * kSecond;  // before the session does

// One direction: numbered messages from `out` to `in`.
struct Stream {
  Endpoint* out = nullptr;
  Endpoint* in = nullptr;
  Channel channel{};
  uint64_t sent = 0, seen = 0, lost = 0;
  uint64_t last = 0, gap = 0;  // cycles

  void begin(uint64_t now) {
    last = now;
    gap = lost = 0;
  }
  void note(uint64_t now) {
    gap = std::max(gap, now - last);
    last = now;
  }
  void send(std::byte* data, size_t size) {
    if (sent - seen >= kWindow) return;
    std::memcpy(data, &sent, sizeof sent);
    if (out->send(channel, {data, size}) == SendOutcome::sent) ++sent;
  }
  // Messages taken. `back`: the channel on which `in` can answer.
  uint32_t take(Channel* back, bool& wrong) {
    Message message;
    uint32_t taken = 0;
    while (in->receive(message)) {
      uint64_t number = 0;
      std::memcpy(&number, message.data, sizeof number);
      if (back != nullptr) *back = message.channel;
      in->release(message);
      wrong = wrong || number < seen || number >= sent;
      lost += number - seen;
      seen = number + 1;
      note(cycles());
      ++taken;
    }
    return taken;
  }
};

struct Pair {
  std::unique_ptr<Endpoint> a, b;
  Stream there, back;
  bool both = false;  // `back` has its channel
};

class UnetRestart final : public Path {
 public:
  UnetRestart(PathInfo info, Replacement kind) : Path(std::move(info)), kind_(kind) {}

  Status fits(Workload, uint32_t size) const override {
    if (size >= sizeof(uint64_t) && size <= kInlineMax) return {};
    return fail(Errc::unavailable, "is measured with messages of 8 to " + std::to_string(kInlineMax) + " B only");
  }

  Status prepare(Environment& environment) override {
    if (Status ready = parking_.prepare(); !ready) return ready;
    core_ = environment.cores().b;
    if (kind_ == Replacement::stop) return start_own();
    auto daemon = environment.daemon_for_takeovers();
    if (!daemon) return tl::unexpected(daemon.error());
    daemon_ = *daemon;
    return {};
  }

  Status set_up(const RunContext& run, Environment&) override { return run.side == Side::a ? open_all(run.stop) : Status{}; }

  Outcome run(const Slice& slice, RunContext& context) override {
    Outcome outcome;
    if (context.side == Side::b) {
      parking_.park(context);
      return outcome;
    }
    size_ = slice.size;
    if (Status done = replace_under_traffic(context); !done) context.control.fail(done.error().text);
    else outcome.messages = 1;
    parking_.release(context);
    return outcome;
  }

  void tear_down(const RunContext&) override {
    close_all();
    own_.reset();
  }

 private:
  Status start_own() {
    auto started = Daemon::start(core_, Daemon::Clients::own, Daemon::Takeover::no, "-stop");
    if (!started) return tl::unexpected(started.error());
    own_.emplace(std::move(*started));
    daemon_ = &*own_;
    return {};
  }

  Status open_all(const StopFlag& stop) {
    auto context = Context::open(daemon_->ni(), "unet-bench");
    if (!context) return tl::unexpected(context.error());
    context_ = std::make_unique<Context>(std::move(*context));
    for (uint32_t i = 0; i < kPairs; ++i) {
      if (auto made = open_pair(shared_[i], false, i, stop); !made) return made;
    }
    for (uint32_t i = 0; i < kRestartLocal; ++i) {
      if (auto made = open_pair(local_[i], true, i, stop); !made) return made;
    }
    return {};
  }

  Status open_pair(Pair& pair, bool local, uint32_t index, const StopFlag& stop) {
    for (auto* endpoint : {&pair.a, &pair.b}) {
      auto made = context_->create_endpoint();
      if (!made) return tl::unexpected(made.error());
      *endpoint = std::make_unique<Endpoint>(std::move(*made));
    }
    const std::string name = info_.name + (local ? "-local-" : "-") + std::to_string(index);
    auto channel = connect_both(*pair.a, *pair.b, name, stop, local ? control::Path::local : control::Path::ni);
    if (!channel) return tl::unexpected(channel.error());
    const Stream before_there = pair.there, before_back = pair.back;
    pair.there = {.out = pair.a.get(), .in = pair.b.get(), .channel = *channel, .last = before_there.last, .gap = before_there.gap};
    pair.back = {.out = pair.b.get(), .in = pair.a.get(), .last = before_back.last, .gap = before_back.gap};
    pair.both = false;
    return {};
  }

  void close_all() {
    for (Pair& pair : shared_) pair.a.reset(), pair.b.reset();
    for (Pair& pair : local_) pair.a.reset(), pair.b.reset();
    context_.reset();
  }

  uint32_t turn(Pair& pair) {
    pair.there.send(data_.data(), size_);
    uint32_t taken = pair.there.take(pair.both ? nullptr : &pair.back.channel, wrong_);
    pair.both = pair.both || taken != 0;
    if (!pair.both) return taken;
    pair.back.send(data_.data(), size_);
    return taken + pair.back.take(nullptr, wrong_);
  }

  // Runs traffic until then, and fills the timeline if there is one.
  template <typename Over>
  Status traffic(RunContext& context, Over over) {
    for (uint32_t turns = 0;; ++turns) {
      uint32_t shared = 0, local = 0;
      for (Pair& pair : shared_) shared += turn(pair);
      for (Pair& pair : local_) local += turn(pair);
      const Nanoseconds now = monotonic_now();
      if (now >= bins_from_) {
        const Nanoseconds bin = (now - bins_from_) / kMillisecond;
        if (bin < kTimelineBins) {
          shared_bins_[bin] += shared;
          local_bins_[bin] += local;
        }
      }
      if (over(now)) return {};
      if (context.stop.raised()) return fail(Errc::unavailable, "stopped");
      if (wrong_) return fail(Errc::protocol, "a message came twice, or was never sent");
    }
  }

  void begin() {
    const uint64_t now = cycles();
    for (Pair& pair : shared_) pair.there.begin(now), pair.back.begin(now);
    for (Pair& pair : local_) pair.there.begin(now), pair.back.begin(now);
    shared_bins_.assign(kTimelineBins, 0);
    local_bins_.assign(kTimelineBins, 0);
  }

  Status replace_under_traffic(RunContext& context) {
    Nanoseconds until = monotonic_now() + kSetUpTime;
    bins_from_ = ~Nanoseconds{0};
    if (auto done = traffic(context, [&](Nanoseconds now) { return now >= until; }); !done) return done;
    begin();
    bins_from_ = monotonic_now();
    until = bins_from_ + kTimelineBefore * kMillisecond;
    if (auto done = traffic(context, [&](Nanoseconds now) { return now >= until; }); !done) return done;
    const uint64_t replaced = cycles();
    if (auto done = replace(context, until); !done) return done;
    // The last endpoint has had a message by now, or its pause goes on.
    const Nanoseconds give_up = until + kGiveUp;
    const auto all_go_on = [&] {
      return std::all_of(shared_.begin(), shared_.end(), [&](const Pair& p) { return p.there.last > replaced && p.back.last > replaced; });
    };
    const Nanoseconds end = bins_from_ + kTimelineBins * kMillisecond;
    if (auto done = traffic(context, [&](Nanoseconds now) { return now >= give_up || (now >= end && all_go_on()); }); !done) return done;
    if (!all_go_on()) return fail(Errc::timed_out, "not all endpoints went on within " + std::to_string(kGiveUp / kSecond) + " s");
    put_samples(context);
    return {};
  }

  void put_samples(RunContext& context) {
    uint64_t lost = 0;
    const auto put = [&](Stream& stream) {
      lost += stream.lost;
      stream.note(cycles());
      context.samples.push_back(stream.gap);
    };
    for (Pair& pair : shared_) put(pair.there), put(pair.back);
    for (Pair& pair : local_) put(pair.there), put(pair.back);
    context.samples.insert(context.samples.end(), shared_bins_.begin(), shared_bins_.end());
    context.samples.insert(context.samples.end(), local_bins_.begin(), local_bins_.end());
    context.samples.push_back(lost);
  }

  Status replace(RunContext& context, Nanoseconds begun) {
    switch (kind_) {
      case Replacement::none: return {};
      case Replacement::stop: return start_again(context);
      case Replacement::crash: {
        const pid_t serves = daemon_->serving();
        if (serves > 0 && ::kill(serves, SIGKILL) == 0) return {};
        return fail(Errc::unavailable, "the supervisor has no network interface");
      }
      case Replacement::upgrade: break;
    }
    std::atomic<bool> done{false};
    Status outcome;
    std::thread asks([&] {
      cpu_set_t all;
      CPU_ZERO(&all);
      for (int i = 0; i < CPU_SETSIZE; ++i) CPU_SET(i, &all);
      sched_setaffinity(0, sizeof all, &all);
      outcome = upgrade();
      done.store(true, std::memory_order_release);
    });
    const Status traffic_done =
        traffic(context, [&](Nanoseconds now) { return done.load(std::memory_order_acquire) || now >= begun + kGiveUp + kSecond; });
    asks.join();
    return outcome ? traffic_done : outcome;
  }

  Status upgrade() {
    auto connection = Connection::open(daemon_->ni(), "unet-bench");
    if (!connection) return tl::unexpected(connection.error());
    control::Upgrade request{};
    request.header.op = control::Op::upgrade;
    auto answer = (*connection)->call(request, kGiveUp);
    return answer ? Status{} : Status(tl::unexpected(answer.error()));
  }

  // The work of applications without --takeover. Local channels are not measured here.
  Status start_again(RunContext& context) {
    own_.reset();
    close_all();
    if (auto started = start_own(); !started) return started;
    if (auto opened = open_all(context.stop); !opened) return opened;
    const uint64_t now = cycles();
    for (Pair& pair : local_) pair.there.begin(now), pair.back.begin(now);
    return {};
  }

  Replacement kind_;
  Daemon* daemon_ = nullptr;
  std::optional<Daemon> own_;
  int core_ = 0;
  CoreParking parking_;
  size_t size_ = sizeof(uint64_t);
  bool wrong_ = false;
  std::unique_ptr<Context> context_;
  std::vector<Pair> shared_ = std::vector<Pair>(kPairs), local_ = std::vector<Pair>(kRestartLocal);
  std::vector<std::byte> data_ = std::vector<std::byte>(kInlineMax);
  Nanoseconds bins_from_ = 0;
  std::vector<uint64_t> shared_bins_, local_bins_;
};

}  // namespace

void add_unet_restart(Paths& paths) {
  const auto add = [&](const char* path, const std::string& what, const std::string& unetd, Replacement kind) {
    paths.push_back(std::make_unique<UnetRestart>(
        PathInfo{.name = path,
                      .kind = Kind::ours,
                      .what = "U-Net, shared NI: " + what,
                      .setting = "public C++ API, default options, all endpoints in one thread, " + unetd + " on the other core",
                      .workloads = {Workload::restart},
                      .only = {"restart"},
                      .side_b_parked = true},
        kind));
  };
  add("undisturbed", "traffic on 64 endpoints and nothing else, for `restart`", "unetd --takeover", Replacement::none);
  add("crash", "unetd is killed and another takes over", "unetd --takeover", Replacement::crash);
  add("upgrade", "another unetd takes over, as for `unetctl upgrade`", "unetd --takeover", Replacement::upgrade);
  add("stop", "unetd is stopped and started again, and the application opens everything anew", "unetd", Replacement::stop);
}

}  // namespace unet::bench
