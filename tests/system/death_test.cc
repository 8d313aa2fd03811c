// death_test.cc - kill -9 of applications, of both sides of a channel, of whole jobs and of NIs, at any instant of any activity. After each
// death everything is as before, and the survivors have learned of it.
//
// 200 deaths in the ordinary run, 10,000 as a soak. The time until survivors learn of a death is printed, not judged.
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "tests/system/mortal.h"
#include "tests/system/peer_process.h"
#include "tests/system/private_files.h"

namespace unet {
namespace {

using control::CloseReason;
using control::Path;

// The time until the survivors knew; printed at the end.
class Told {
 public:
  explicit Told(const char* what) : what_(what) {}
  ~Told() {
    if (times_.empty()) return;
    std::sort(times_.begin(), times_.end());
    const auto at = [&](size_t percent) { return static_cast<double>(times_[(times_.size() - 1) * percent / 100]) / 1e6; };
    std::printf("%s: told after p50 %.2f ms, p99 %.2f ms, max %.2f ms, of %zu\n", what_, at(50), at(99), at(100), times_.size());
  }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
  void add(Nanoseconds killed, Nanoseconds told) { times_.push_back(told > killed ? told - killed : 0); }

 private:
  const char* what_;
  std::vector<Nanoseconds> times_;
};

// Counts the phases in which victims died.
struct Deaths {
  std::array<uint32_t, kPhases> in{};
  void add(Phase phase) { ++in.at(static_cast<size_t>(phase)); }
  ~Deaths() {
    for (uint32_t i = 0; i < kPhases; ++i) std::printf("%s %u%s", kPhaseNames[i], in[i], i + 1 == kPhases ? "\n" : ", ");
  }
};

// Whether the process has ended; `killed`: by a signal.
bool has_ended(pid_t pid, bool& killed) {
  siginfo_t info{};
  UNET_CHECK(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0);
  killed = info.si_pid == pid && info.si_code == CLD_KILLED;
  return info.si_pid == pid;
}

Mortal::Options mortal_of(const NiProcess& ni, uint32_t seed) {
  Mortal::Options options;
  options.directory = ni.directory();
  options.target = "peer";
  options.seed = seed;
  return options;
}

std::unique_ptr<ChildProcess> start_mortal(const Mortal::Options& options, Fate& fate) {
  return std::make_unique<ChildProcess>([&] { return Mortal(options, fate).run(); });
}

// All that must be as before, of the NI and of this process.
struct Everything {
  Holdings holdings;
  Descriptors descriptors;
  size_t mappings = 0;
  std::vector<std::string> files;
  bool operator==(const Everything&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Everything& e) {
  print(out << e.holdings << "; of the survivor " << e.mappings << " mappings, ", e.descriptors) << "; files";
  for (const std::string& each : e.files) out << ' ' << each;
  return out;
}

// The survivor: answers every asker, and inspects what the NI holds.
class Survivor {
 public:
  explicit Survivor(const NiProcess& ni) : ni_(ni), watcher_(ni), peer_(ni), answerer_(*peer_.endpoint) {
    UNET_CHECK(peer_.endpoint->expose(kMessageMax) && peer_.endpoint->descriptor() && peer_.endpoint->bind("peer"));
  }

  Everything rest() const { return with(ni_.rest(watcher_.context)); }
  // Waits until all is as `wanted`; returns the last state.
  Everything settle(const Everything& wanted) {
    return with(ni_.settle(watcher_.context, wanted.holdings));
  }

  // Answers until `done`, which is called between turns. False: wrong data, or a time-out.
  bool serve(const std::function<bool()>& done, bool asleep) {
    for (const Nanoseconds begin = monotonic_now(); monotonic_now() - begin < kHang;) {
      if (!answerer_.turn()) return false;
      for (const ChannelEvent& event : answerer_.take_events()) {
        reasons_.insert(event.reason);
        last_told_ = monotonic_now();
      }
      if (done()) return true;
      if (asleep) peer_.endpoint->wait(kMillisecond, 0);
    }
    return false;
  }
  // Answers until `process` has died and no channel to it is left. False also if it ended by itself.
  bool outlive(pid_t process, bool asleep) {
    bool killed = false, ended = false;
    const auto done = [&] { return (ended = ended || has_ended(process, killed)) && !answerer_.has_channels(); };
    return serve(done, asleep) && killed;
  }
  bool has_channels() const { return answerer_.has_channels(); }
  Context& watcher() { return watcher_.context; }
  Endpoint& endpoint() { return *peer_.endpoint; }
  Nanoseconds last_told() const { return last_told_; }
  std::set<CloseReason> take_reasons() { return std::exchange(reasons_, {}); }

 private:
  Everything with(const Holdings& of_ni) const {
    return {of_ni, open_descriptors(getpid()), shared_mappings(getpid()), all_files(ni_.directory())};
  }

  const NiProcess& ni_;
  mutable Client watcher_;
  Client peer_;
  Answerer answerer_;
  Nanoseconds last_told_ = 0;
  std::set<CloseReason> reasons_;
};

// Delays for a death at once, within one step, or some steps later.
Nanoseconds a_delay(std::mt19937& random) {
  constexpr Nanoseconds kMost[] = {1, 30 * kMicrosecond, 300 * kMicrosecond, 3 * kMillisecond};
  return random() % kMost[random() % 4];
}

TEST_CASE("an application that is killed in whatever it does: its peer learns it, and everything is as before") {
  PrivateFiles files;
  const NiProcess ni;
  Survivor survivor(ni);
  const Everything before = survivor.rest();
  const uint32_t seed = first_seed(), count = rounds(130, 50);
  Told told("applications");
  Deaths deaths;
  uint64_t private_before = 0;
  for (uint32_t i = 0; i < count; ++i) {
    std::mt19937 random(seed + i);
    Shared<Fate> fate;
    fate->wanted = static_cast<Phase>(i % kPhases);
    fate->after_cycles = static_cast<uint32_t>(random() % 2);
    fate->delay = a_delay(random);
    CAPTURE(seed, i, kPhaseNames[i % kPhases], fate->delay);
    const auto victim = start_mortal(mortal_of(ni, seed + i), *fate);
    REQUIRE(survivor.outlive(victim->pid(), random() % 2 == 0));
    deaths.add(fate->phase.load());
    const Nanoseconds killed = fate->killed_at.load();
    CHECK(killed != 0);
    // Channels that the victim closed before its death end as closed; all others end with its death.
    const auto reasons = survivor.take_reasons();
    if (reasons.count(CloseReason::peer_died) != 0 && survivor.last_told() > killed) told.add(killed, survivor.last_told());
    victim->wait();
    REQUIRE(survivor.settle(before) == before);
    if (i == count / 4 * 3) private_before = private_memory(ni.pid());
  }
  CHECK(ni.log() == "");
  CHECK_FALSE(has_grown(private_before, private_memory(ni.pid())));
}

TEST_CASE("a job that is killed, all of its processes at once: nothing of it is left") {
  PrivateFiles files;
  const NiProcess ni;
  Survivor survivor(ni);
  const Everything before = survivor.rest();
  const uint32_t seed = first_seed();
  Told told("jobs");
  Deaths deaths;
  for (uint32_t i = 0; i < rounds(10, 50); ++i) {
    CAPTURE(seed, i);
    std::mt19937 random(seed + i);
    // One server, two clients of it, and one client of the survivor.
    std::vector<std::unique_ptr<PeerProcess>> servers;
    servers.push_back(std::make_unique<PeerProcess>(
        [&](int ready) { return answer_until_end(ni.ni(), "job", static_cast<Waiting>(random() % kMortalWaitings), ready); }));
    REQUIRE(servers[0]->is_ready());
    Shared<std::array<Fate, 3>> fates;
    std::vector<std::unique_ptr<ChildProcess>> members;
    for (uint32_t m = 0; m < 3; ++m) {
      Mortal::Options options = mortal_of(ni, seed + i * 3 + m);
      if (m < 2) options.target = "job";
      members.push_back(start_mortal(options, (*fates)[m]));
    }
    const bool asleep = random() % 2 == 0;
    const auto all_at_work = [&] {
      bool all = true;
      for (const Fate& fate : *fates) all = all && fate.phase.load() != Phase::count && fate.phase.load() != Phase::opening;
      return all;
    };
    REQUIRE(survivor.serve(all_at_work, asleep));
    const Nanoseconds when = monotonic_now() + random() % (5 * kMillisecond);
    REQUIRE(survivor.serve([&] { return monotonic_now() >= when; }, asleep));
    std::vector<pid_t> all{servers[0]->pid()};
    for (const auto& member : members) all.push_back(member->pid());
    std::shuffle(all.begin(), all.end(), random);
    survivor.take_reasons();
    const Nanoseconds killed = monotonic_now();
    for (const pid_t pid : all) ::kill(pid, SIGKILL);
    for (const auto& member : members) REQUIRE(survivor.outlive(member->pid(), asleep));
    for (const Fate& fate : *fates) deaths.add(fate.phase.load());
    if (survivor.take_reasons().count(CloseReason::peer_died) != 0) told.add(killed, survivor.last_told());
    for (const auto& member : members) CHECK(member->wait() == -1);
    CHECK(servers[0]->wait() == -1);
    servers.clear();
    REQUIRE(survivor.settle(before) == before);
  }
  CHECK(ni.log() == "");
}

TEST_CASE("a network interface that is killed in whatever its clients do: they learn it, and its socket is all that is left of it") {
  PrivateFiles files;
  NiProcess ni;
  const uint32_t seed = first_seed();
  Told told("clients of a network interface");
  Deaths deaths;
  const Descriptors descriptors = open_descriptors(getpid());
  const size_t mappings = shared_mappings(getpid());
  const auto left = all_files(ni.directory());
  for (uint32_t i = 0; i < rounds(10, 50); ++i) {
    std::mt19937 random(seed + i);
    const auto wanted = static_cast<Phase>(i % kPhases);
    const Nanoseconds delay = a_delay(random);
    CAPTURE(seed, i, kPhaseNames[i % kPhases], delay);
    {
      Survivor survivor(ni);
      Shared<Fate> fate;
      const auto client = start_mortal(mortal_of(ni, seed + i), *fate);
      const bool asleep = random() % 2 == 0;
      // On a shared core a short phase may never be seen. Then the client dies in another phase.
      const Nanoseconds begin = monotonic_now();
      const auto may_die = [&] {
        const bool seen = fate->phase.load() == wanted || monotonic_now() - begin > 5 * kSecond;
        return seen && fate->cycles.load() >= i % 3;
      };
      REQUIRE(survivor.serve(may_die, asleep));
      const Nanoseconds when = monotonic_now() + delay;
      REQUIRE(survivor.serve([&] { return monotonic_now() >= when; }, asleep));
      deaths.add(fate->phase.load());
      const Nanoseconds killed = monotonic_now();
      ni.kill();
      // Not all channels end. A client with a local channel goes on, closes it, and finds no NI for another.
      Nanoseconds known = 0;
      bool was_killed = false;
      REQUIRE(survivor.serve(
          [&] {
            if (known == 0 && survivor.endpoint().wait(0, 0) == WaitOutcome::disconnected) known = monotonic_now();
            return has_ended(client->pid(), was_killed);
          },
          asleep));
      CHECK(client->wait() == 0);  // correct until the end
      if (known != 0) told.add(killed, known);
      const auto late = survivor.endpoint().connect("peer");
      REQUIRE_FALSE(late);
      CHECK(late.error().code == Errc::disconnected);
    }
    CHECK(open_descriptors(getpid()) == descriptors);
    CHECK(shared_mappings(getpid()) == mappings);
    CHECK(all_files(ni.directory()) == left);  // socket, log and policy of the dead NI
    ni.start();
    CHECK(all_files(ni.directory()) == left);
  }
}

TEST_CASE("deaths across a wire: of an application, and of a network interface with it") {
  PrivateFiles files;
  NiProcess left({"--host", "left"}), right({"--host", "right"});
  const std::string configuration = left.directory() + "/config.toml";
  // A long reassembly time: a busy machine may pause between two fragments, which is not under test.
  std::ofstream(configuration) << "lost_after_ms = 1500\nreassembly_ms = 20000\n";
  const std::string wire = "dpdk:net_memif0,socket=" + left.directory() + "/memif,role=";
  left.restart({"--host", "left", "--config", configuration, "--port", wire + "server"});
  const std::vector<std::string> right_options{"--host", "right", "--config", configuration, "--port", wire + "client"};
  right.restart(right_options);
  Survivor survivor(left);
  const uint32_t seed = first_seed();
  const auto options = [&](uint32_t i) {
    Mortal::Options of = mortal_of(right, seed + i);
    of.target = "peer@left";
    of.paths = {Path::automatic};
    of.largest = 20'000;
    return of;
  };
  {
    // Let both NIs hear of each other once.
    Shared<Fate> fate;
    fate->wanted = Phase::closing;
    const auto first = start_mortal(options(0), *fate);
    REQUIRE(survivor.outlive(first->pid(), false));
  }
  Told told("applications across a wire"), told_of_ni("network interfaces across a wire, which were to be missed after 1,500 ms");
  Deaths deaths;
  const uint64_t frames = left.frames_out(survivor.watcher());
  for (uint32_t i = 0; i < rounds(2, 50); ++i) {
    {
      Client watcher(right);
      const uint64_t frames_right = right.frames_out(watcher.context);
      const Everything before = survivor.rest();
      const Holdings before_right = right.rest(watcher.context);
      for (uint32_t v = 0; v < 9; ++v) {
        std::mt19937 random(seed + i * 9 + v);
        Shared<Fate> fate;
        fate->wanted = static_cast<Phase>(v % kPhases);
        fate->delay = a_delay(random);
        CAPTURE(seed, i, v, kPhaseNames[v % kPhases], fate->delay);
        const auto victim = start_mortal(options(i * 9 + v), *fate);
        REQUIRE(survivor.outlive(victim->pid(), random() % 2 == 0));
        deaths.add(fate->phase.load());
        const Nanoseconds killed = fate->killed_at.load();
        if (survivor.take_reasons().count(CloseReason::peer_died) != 0 && survivor.last_told() > killed) {
          told.add(killed, survivor.last_told());
        }
        victim->wait();
        REQUIRE(survivor.settle(before) == before);
        REQUIRE(right.settle(watcher.context, before_right) == before_right);
      }
      const uint64_t most = frames_right + NiProcess::kFramesKept;
      CHECK(right.frames_out(watcher.context, most) <= most);
    }
    const Everything before = survivor.rest();
    Shared<Fate> fate;
    const auto victim = start_mortal(options(i), *fate);
    std::mt19937 random(seed + i);
    REQUIRE(survivor.serve([&] { return survivor.has_channels(); }, false));
    const Nanoseconds when = monotonic_now() + a_delay(random);
    REQUIRE(survivor.serve([&] { return monotonic_now() >= when; }, false));
    const Nanoseconds killed = monotonic_now();
    right.kill();
    bool was_killed = false;
    REQUIRE(survivor.serve([&] { return has_ended(victim->pid(), was_killed) && !survivor.has_channels(); }, false));
    CHECK(victim->wait() == 0);
    if (survivor.last_told() > killed) told_of_ni.add(killed, survivor.last_told());
    survivor.take_reasons();
    right.start();  // the wire must exist again, too
    REQUIRE(survivor.settle(before) == before);
  }
  const uint64_t most = frames + NiProcess::kFramesKept;
  CHECK(left.frames_out(survivor.watcher(), most) <= most);
  CHECK(left.log() == "");
}

}  // namespace
}  // namespace unet
