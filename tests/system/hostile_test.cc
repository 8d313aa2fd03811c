// hostile_test.cc - clients that lie in every way they can, for a given time, beside clients that check every byte.
//
// The honest clients receive nothing foreign, lost or corrupted, and none stalls. The NI lives and logs no complaint. It counts each lie
// under its name, holds nothing of the liars afterwards, and has not grown. Under a sanitizer, every memory access is checked too. The
// liars alternately run and are stopped; the test prints what lies cost the others' round trips.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "tests/system/liar.h"
#include "tests/system/peer_process.h"
#include "tests/system/round_trips.h"
#include "tests/system/shared.h"

namespace unet {
namespace {

using control::Path;

int seconds() { return std::getenv("UNET_LONG") != nullptr ? 600 : 8; }

// Shared state of the test's processes.
struct Board {
  std::atomic<uint32_t> stop_asking{0}, stop_lying{0};
  std::atomic<uint64_t> answered[3]{};
  std::atomic<uint64_t> suffered{0}, bad_descriptors{0};  // messages of liars that the victim read, and lies it found
  std::atomic<uint32_t> turn{0};                          // odd: the liars run; even: they are stopped
  RoundTrips round_trips[3][2];                           // of each pair: without and with lies
  LiarCounters liars{};
};

uint64_t value(const std::atomic<uint64_t>& of) { return of.load(std::memory_order_relaxed); }

// A child process may live as long as the whole test.
void allow_time() { ::alarm(static_cast<unsigned>(seconds() + 6 * kHangSeconds)); }

// ---- the victim: checks every byte of one honest channel, and reads every byte of hostile ones

class Victim {
 public:
  static constexpr uint64_t kRegion = 50'000;  // bytes that it exposes

  Victim(Endpoint& endpoint, Board& board) : endpoint_(endpoint), board_(board), random_(1) {}

  // Does due work for a bounded time. False: a forbidden message came.
  bool turn() {
    while (const auto request = endpoint_.next_request()) {
      const auto channel = endpoint_.accept(request->id);
      if (!channel) continue;  // the liar is gone already, or all quotas are used
      if (!honest_) honest_ = *channel;
      static_cast<void>(endpoint_.map_peer_region(*channel));
    }
    Message message;
    for (int i = 0; i < 64 && endpoint_.receive(message); ++i) {
      if (!(message.channel == honest_ ? answer(message) : suffer(message))) return false;
    }
    while (const auto event = endpoint_.next_event()) {
      let_go(0);
      if (!endpoint_.close(event->channel)) return false;
    }
    for (const auto& [name, value] : endpoint_.counters()) {
      if (name == "local_bad_descriptor") board_.bad_descriptors.store(value, std::memory_order_relaxed);
    }
    return true;
  }

 private:
  uint32_t dice(uint32_t sides) { return static_cast<uint32_t>(random_() % sides); }

  bool answer(const Message& message) {
    bool right = message.kind == MessageKind::message && is_content(message.bytes(), number_);
    while (right) {
      const SendOutcome outcome = send_content(endpoint_, *honest_, number_, message.length);
      right = outcome == SendOutcome::sent || outcome == SendOutcome::no_channel;
      if (outcome != SendOutcome::full) break;
      right = endpoint_.wait_room(*honest_, kHang) != WaitOutcome::timed_out;
    }
    endpoint_.release(message);
    ++number_;
    return right;
  }
  // Reads the whole message, uses it as a program might, and releases it later.
  bool suffer(const Message& message) {
    board_.suffered.fetch_add(1, std::memory_order_relaxed);
    bool right = message.length <= kMessageMax;
    if (message.kind == MessageKind::put_done) {
      right = message.data == nullptr && message.region_offset <= kRegion && message.length <= kRegion - message.region_offset;
    } else if (right) {
      for (const std::byte each : message.bytes()) sum_ += static_cast<uint8_t>(each);
    }
    const uint32_t size = dice(dice(8) == 0 ? kMessageMax : 200);
    switch (dice(3)) {
      case 0: static_cast<void>(endpoint_.send(message.channel, content(0, size))); break;
      case 1:
        if (const MutableBytes room = endpoint_.reserve(message.channel, size); !room.empty()) {
          std::fill(room.begin(), room.end(), std::byte{1});
          static_cast<void>(endpoint_.post(message.channel, size));
        }
        break;
      default: static_cast<void>(endpoint_.put(message.channel, dice(100'000), content(0, size), dice(2) == 0)); break;
    }
    held_.push_back(message);
    let_go(dice(8));
    return right;
  }
  void let_go(size_t most) {
    while (held_.size() > most) {
      const size_t which = dice(static_cast<uint32_t>(held_.size()));
      endpoint_.release(held_[which]);
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }

  Endpoint& endpoint_;
  Board& board_;
  std::mt19937 random_;
  std::optional<Channel> honest_;
  uint32_t number_ = 0;
  std::vector<Message> held_;
  uint64_t sum_ = 0;
};

int suffer_until_end(const std::string& ni, Board& board, int ready) {
  allow_time();
  auto context = Context::open(ni, "victim");
  if (!context) return 1;
  auto endpoint = context->create_endpoint();
  if (!endpoint || !(*endpoint)->expose(Victim::kRegion) || !(*endpoint)->descriptor() || !(*endpoint)->bind("victim")) return 2;
  say_ready(ready);
  Victim victim(**endpoint, board);
  while ((*endpoint)->wait(kHang) != WaitOutcome::disconnected && context->alive()) {
    if (!victim.turn()) return 3;
  }
  return 0;
}

// ---- the honest clients

int answer_all_along(const std::string& ni, const std::string& name, int ready) {
  allow_time();
  return answer_until_end(ni, name, Waiting::spin, ready);
}

// Times one message alone. Not counted if the liars were stopped or continued meanwhile.
bool time_round_trip(Asker& asker, Board& board, RoundTrips (&times)[2]) {
  if (asker.finish() != Asker::Outcome::sent) return false;
  const uint32_t turn = board.turn.load(std::memory_order_relaxed);
  const Nanoseconds start = monotonic_now();
  if (asker.send(8) != Asker::Outcome::sent || asker.finish() != Asker::Outcome::sent) return false;
  if (board.turn.load(std::memory_order_relaxed) == turn) times[turn % 2].add(monotonic_now() - start);
  return true;
}

// Asks until the test stops it, then awaits every pending answer.
int ask_until_stopped(const std::string& ni, const std::string& name, Path path, Waiting waiting, uint32_t seed, Board& board,
                      uint32_t pair, int ready) {
  allow_time();
  auto context = Context::open(ni, "asker");
  if (!context) return 1;
  auto endpoint = context->create_endpoint();
  if (!endpoint || !(*endpoint)->descriptor()) return 2;
  const auto channel = (*endpoint)->connect(name, through(path));
  if (!channel) return 3;
  say_ready(ready);
  Asker asker(**endpoint, *channel, 4, waiting);
  std::mt19937 random(seed);
  while (board.stop_asking.load(std::memory_order_relaxed) == 0) {
    const uint32_t most = random() % 4 == 0 ? kMessageMax : 100;
    if (asker.send(static_cast<uint32_t>(random() % (most + 1))) != Asker::Outcome::sent) return 4;
    if (random() % 16 == 0 && !time_round_trip(asker, board, board.round_trips[pair])) return 4;
    board.answered[pair].store(asker.answered(), std::memory_order_relaxed);
  }
  if (asker.finish() != Asker::Outcome::sent) return 5;
  // No message, request or event came unasked.
  Message message;
  if ((*endpoint)->receive(message) || (*endpoint)->next_request() || (*endpoint)->next_event()) return 6;
  for (const auto& [counter, value] : (*endpoint)->counters()) {
    const bool drop = std::find(kEndpointCounterNames.begin() + static_cast<size_t>(kFirstEndpointDrop), kEndpointCounterNames.end(),
                                counter) != kEndpointCounterNames.end();
    if ((drop || counter == "local_bad_descriptor") && value != 0) return 7;
  }
  return 0;
}

// Alternately continues and stops the liars.
class Turns {
 public:
  Turns(std::atomic<uint32_t>& turn, std::vector<pid_t> liars) : turn_(turn), liars_(std::move(liars)), since_(monotonic_now()) {}
  // Continues the liars, so that they can exit.
  void end() { lie(true); }
  void look() {
    if (monotonic_now() - since_ < kTurn) return;
    since_ = monotonic_now();
    lie(!lying_);
  }

 private:
  static constexpr Nanoseconds kTurn = kSecond / 2;

  void lie(bool lying) {
    if (lying == lying_) return;
    for (const pid_t liar : liars_) ::kill(liar, lying ? SIGCONT : SIGSTOP);
    lying_ = lying;
    turn_.fetch_add(1, std::memory_order_relaxed);
  }

  std::atomic<uint32_t>& turn_;
  std::vector<pid_t> liars_;
  Nanoseconds since_;
  bool lying_ = true;
};

// The current counters by name, of the endpoints of `processes` and of the service.
using Counted = std::map<std::string, uint64_t>;
void look(Context& context, const std::set<pid_t>& processes, Counted& drops, Counted& service) {
  const auto text = context.report();
  INFO((text ? "" : text.error().text));
  REQUIRE(text);
  const auto report = nlohmann::json::parse(*text);
  for (const auto& endpoint : report["endpoints"]) {
    if (processes.count(endpoint["pid"].get<pid_t>()) == 0) continue;
    for (const auto& [name, value] : endpoint["drops"].items()) drops[name] = std::max(drops[name], value.get<uint64_t>());
  }
  for (const auto& [name, value] : report["counters"]["service"].items()) service[name] = value.get<uint64_t>();
}

TEST_CASE("clients that lie about everything: others' traffic is unharmed, every lie is counted, and nothing remains") {
  const uint32_t seed = first_seed();
  CAPTURE(seed);
  NiProcess ni;
  const std::string path = ni.directory() + "/socket";
  Client watcher(ni);
  const Shared<Board> shared;
  Board& board = *shared;
  PeerProcess victim([&](int ready) { return suffer_until_end(ni.ni(), board, ready); });
  PeerProcess local([&](int ready) { return answer_all_along(ni.ni(), "local", ready); });
  PeerProcess hairpin([&](int ready) { return answer_all_along(ni.ni(), "hairpin", ready); });
  REQUIRE((victim.is_ready() && local.is_ready() && hairpin.is_ready()));

  const struct {
    const char* name;
    Path path;
    Waiting waiting;
  } pairs[] = {{"victim", Path::local, Waiting::spin},
               {"local", Path::local, Waiting::descriptor},
               {"hairpin", Path::ni, Waiting::descriptor}};
  std::vector<std::unique_ptr<PeerProcess>> askers;
  for (uint32_t i = 0; i < 3; ++i) {
    askers.push_back(std::make_unique<PeerProcess>([&](int ready) {
      return ask_until_stopped(ni.ni(), pairs[i].name, pairs[i].path, pairs[i].waiting, seed + i, board, i, ready);
    }));
    REQUIRE(askers.back()->is_ready());
  }
  const Holdings before = ni.rest(watcher.context);

  uint64_t memory = 0;  // the NI's, when all that grows to a limit has reached it
  Counted of_liars, of_victim, of_honest, service;
  {
    const Nanoseconds start = monotonic_now(), end = start + static_cast<Nanoseconds>(seconds()) * kSecond;
    std::vector<std::unique_ptr<ChildProcess>> liars;
    for (uint32_t i = 0; i < 2; ++i) {
      liars.push_back(std::make_unique<ChildProcess>([&] {
        allow_time();
        Liar(path, "victim", seed * 2 + i, board.liars).run_until(board.stop_lying);
        return 0;
      }));
    }
    const std::set<pid_t> lying{liars[0]->pid(), liars[1]->pid()};
    const std::set<pid_t> honest{local.pid(), hairpin.pid(), askers[0]->pid(), askers[1]->pid(), askers[2]->pid()};
    board.turn.store(1, std::memory_order_relaxed);
    Turns turns(board.turn, {liars[0]->pid(), liars[1]->pid()});
    uint64_t last[3] = {};
    Nanoseconds moved[3] = {start, start, start};
    // Every kind of lie was told and counted. A slow machine needs longer.
    const auto enough = [&] {
      return of_liars["bad_send_descriptor"] > 0 && of_liars["unknown_channel"] > 0 && of_liars["bad_free_descriptor"] > 0 &&
             of_liars["put_no_region"] > 0 && of_victim["put_out_of_bounds"] > 0 && value(board.bad_descriptors) > 0 &&
             service["protocol_errors"] > 0 && service["failed_requests"] > service["protocol_errors"] &&
             value(board.suffered) > 100 && value(board.liars.sessions) > 5 && value(board.liars.local_channels) > 5 &&
             value(board.liars.ni_channels) > 5;
    };
    while (monotonic_now() < end || (!enough() && monotonic_now() < end + 2 * kHang)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      turns.look();
      if (memory == 0 && monotonic_now() - start > (end - start) / 4 * 3) memory = private_memory(ni.pid());
      look(watcher.context, lying, of_liars, service);
      look(watcher.context, {victim.pid()}, of_victim, service);
      look(watcher.context, honest, of_honest, service);
      for (uint32_t i = 0; i < 3; ++i) {
        const uint64_t now = board.answered[i].load(std::memory_order_relaxed);
        if (std::exchange(last[i], now) != now) moved[i] = monotonic_now();
        CAPTURE(pairs[i].name, now);
        REQUIRE(monotonic_now() - moved[i] < kHang);
      }
    }
    if (memory == 0) memory = private_memory(ni.pid());
    CHECK(enough());
    turns.end();
    liars[1]->kill();
    board.stop_lying.store(1, std::memory_order_relaxed);
    CHECK(liars[0]->wait() == 0);
  }
  CHECK(ni.settle(watcher.context, before) == before);
  CHECK_FALSE(has_grown(memory, private_memory(ni.pid())));

  board.stop_asking.store(1, std::memory_order_relaxed);
  for (const auto& asker : askers) CHECK(asker->wait() == 0);
  {
    // A new client finds everything as before.
    Client newcomer(ni);
    for (const auto& pair : pairs) {
      if (std::string_view(pair.name) == "victim") continue;
      const auto channel = newcomer.endpoint->connect(pair.name, through(pair.path));
      REQUIRE(channel);
      CHECK(Asker(*newcomer.endpoint, *channel, 2, pair.waiting).run({0, 48, 49, 5000, kMessageMax}) == Asker::Outcome::sent);
    }
  }
  CHECK(ni.stop() == 0);
  CHECK(ni.log() == "");
  CHECK(victim.wait() == 0);
  CHECK(local.wait() == 0);
  CHECK(hairpin.wait() == 0);

  const LiarCounters& liars = board.liars;
  std::printf("liars: %lu sessions, %lu local channels, %lu channels of the NI, %lu words, %lu descriptors, %lu requests, %lu packets\n",
              value(liars.sessions), value(liars.local_channels), value(liars.ni_channels), value(liars.words), value(liars.descriptors),
              value(liars.requests), value(liars.packets));
  std::printf("victim: %lu messages of liars, %lu bad descriptors; answered: %lu, %lu, %lu\n", value(board.suffered),
              value(board.bad_descriptors), value(board.answered[0]), value(board.answered[1]), value(board.answered[2]));
  for (const auto& [name, number] : of_liars) std::printf("liars' %s: up to %lu\n", name.c_str(), number);
  for (const auto& [name, number] : of_victim) std::printf("victim's %s: %lu\n", name.c_str(), number);
  for (const auto& [name, number] : service) std::printf("service's %s: %lu\n", name.c_str(), number);

  for (uint32_t i = 0; i < 3; ++i) {
    const RoundTrips &alone = board.round_trips[i][0], &beside = board.round_trips[i][1];
    const auto ratio = [&](double percent) {
      return static_cast<double>(beside.at(percent)) / static_cast<double>(std::max<Nanoseconds>(alone.at(percent), 1));
    };
    std::printf("round trips to %s beside liars, over those without: p50 %.2f x, p99 %.2f x (without: %.1f us, %.1f us; %lu and %lu)\n",
                pairs[i].name, ratio(50), ratio(99), static_cast<double>(alone.at(50)) / 1e3, static_cast<double>(alone.at(99)) / 1e3,
                beside.count(), alone.count());
    CHECK((alone.count() > 0 && beside.count() > 0));
  }
  for (const auto& answered : board.answered) CHECK(value(answered) > 100);
  CHECK(of_victim["bad_free_descriptor"] == 0);
  CHECK(of_victim["bad_send_descriptor"] == 0);
  CHECK(service["refused_connections"] == 0);
  for (const auto& [name, number] : of_honest) {
    CAPTURE(name);
    CHECK(number == 0);
  }
}

}  // namespace
}  // namespace unet
