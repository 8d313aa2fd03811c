// endpoints_killed_test.cc - processes killed at any moment, and NIs killed or stopped under load: survivors learn of it and go on, and all
// resources come back.
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <random>
#include <thread>

#include "tests/system/peer_process.h"
#include "tests/system/storm.h"

namespace unet {
namespace {

using control::CloseReason;
using control::Path;

// Kills a process after a delay, while the caller goes on.
class Killer {
 public:
  template <typename Kill>
  Killer(uint32_t after_us, Kill kill)
      : thread_([after_us, kill] {
          std::this_thread::sleep_for(std::chrono::microseconds(after_us));
          kill();
        }) {}
  ~Killer() { thread_.join(); }

 private:
  std::thread thread_;
};

// With several engines, one serves the client from its first channel through the NI on. Holdings are compared after that.
void have_served(const NiProcess& ni, Client& client) {
  const AnswererProcess peer(ni, "first-peer");
  const auto channel = client.endpoint->connect("first-peer", through(Path::ni));
  REQUIRE(channel);
  REQUIRE(client.endpoint->close(*channel));
}

// The next event of a channel that ended; nothing after a time-out.
std::optional<ChannelEvent> next_end(Endpoint& endpoint) {
  while (true) {
    if (const auto event = endpoint.next_event()) return event;
    for (Message message; endpoint.receive(message);) endpoint.release(message);
    const WaitOutcome outcome = endpoint.wait(kHang);
    if (outcome == WaitOutcome::timed_out || outcome == WaitOutcome::disconnected) return std::nullopt;
  }
}

// Messages that arrived before the end are taken first: while one is there, every wait returns `ready`.
WaitOutcome wait_room_of_ended(Endpoint& endpoint, Channel channel) {
  WaitOutcome outcome = WaitOutcome::timed_out;
  for (const Nanoseconds start = monotonic_now(); monotonic_now() - start < kHang;) {
    for (Message message; endpoint.receive(message);) endpoint.release(message);
    outcome = endpoint.wait_room(channel, kHang);
    if (outcome != WaitOutcome::ready) break;
  }
  return outcome;
}

// Every operation on a channel after the death of its other side.
void check_ended(Endpoint& endpoint, Channel channel, CloseReason reason, const std::optional<ChannelEvent>& event) {
  REQUIRE(event);
  CHECK(event->kind == ChannelEvent::Kind::closed);
  CHECK(event->channel == channel);
  CHECK(event->reason == reason);
  CHECK_FALSE(endpoint.is_open(channel));
  CHECK(endpoint.send(channel, {}) == SendOutcome::no_channel);
  CHECK(endpoint.send(channel, content(0, kMessageMax)) == SendOutcome::no_channel);
  CHECK(endpoint.reserve(channel, 100).empty());
  CHECK(endpoint.put(channel, 0, content(0, 8), true) == SendOutcome::no_channel);
  CHECK(wait_room_of_ended(endpoint, channel) == WaitOutcome::room);
  CHECK(endpoint.close(channel));
  CHECK(endpoint.send(channel, {}) == SendOutcome::no_channel);
}

struct Round {
  explicit Round(uint32_t seed) : random(seed) {
    path = random() % 2 == 0 ? Path::local : Path::ni;
    window = static_cast<uint32_t>(1 + random() % 4);
    ours = static_cast<Waiting>(random() % kMortalWaitings);
    theirs = static_cast<Waiting>(random() % kMortalWaitings);
    kill_after_us = static_cast<uint32_t>(random() % 5000);
    if (random() % 2 == 0) local = {.depth = 4, .data_bytes = 4 * kMessageMax};
  }
  uint32_t size() { return static_cast<uint32_t>(random() % (random() % 4 == 0 ? kMessageMax + 1 : 101)); }
  ConnectOptions options() const { return through(path, local); }

  std::mt19937 random;
  Path path;
  uint32_t window;
  Waiting ours, theirs;
  uint32_t kill_after_us;
  LocalOptions local;
};

TEST_CASE("a server that is killed in the middle of traffic: its client learns it, everything comes back, a new server takes its place") {
  const NiProcess ni;
  Client client(ni);
  Endpoint& endpoint = *client.endpoint;
  REQUIRE(endpoint.descriptor());
  have_served(ni, client);
  const Holdings before = ni.rest(client.context);
  const Descriptors our_descriptors = open_descriptors(getpid());
  const size_t our_mappings = shared_mappings(getpid());
  const uint32_t seed = first_seed();
  uint32_t answered = 0;
  for (uint32_t i = 0; i < rounds(24, 20); ++i) {
    CAPTURE(seed, i);
    Round round(seed + i);
    {
      AnswererProcess peer(ni, "peer", round.theirs);
      const auto channel = endpoint.connect("peer", round.options());
      REQUIRE(channel);
      Asker asker(endpoint, *channel, round.window, round.ours);
      Asker::Outcome outcome;
      {
        const Killer killer(round.kill_after_us, [&] { ::kill(peer.pid(), SIGKILL); });
        while ((outcome = asker.send(round.size())) == Asker::Outcome::sent) {}
      }
      CHECK(outcome == Asker::Outcome::no_channel);
      answered += asker.answered();
      check_ended(endpoint, *channel, CloseReason::peer_died, next_end(endpoint));
    }
    CHECK(ni.settle(client.context, before) == before);
    CHECK(open_descriptors(getpid()) == our_descriptors);
    CHECK(shared_mappings(getpid()) == our_mappings);

    AnswererProcess next(ni, "peer");
    const auto channel = endpoint.connect("peer", round.options());
    REQUIRE(channel);
    CHECK(Asker(endpoint, *channel, 2, round.ours).run({0, 48, 49, 5000, kMessageMax}) == Asker::Outcome::sent);
    REQUIRE(endpoint.close(*channel));
  }
  CHECK(answered > 0);
  CHECK(ni.log() == "");
}

TEST_CASE("messages that a server sent before it was killed arrive on the old channel, not on the next one") {
  const NiProcess ni;
  Client client(ni);
  Endpoint& endpoint = *client.endpoint;
  for (const bool looked_at : {true, false}) {
    std::optional<Channel> ended;
    {
      AnswererProcess peer(ni, "peer");
      const auto channel = endpoint.connect("peer", through(Path::ni));
      REQUIRE(channel);
      REQUIRE(send_content(endpoint, *channel, 0, 100) == SendOutcome::sent);
      REQUIRE(endpoint.wait(kHang) == WaitOutcome::ready);  // the answer has arrived
      ::kill(peer.pid(), SIGKILL);
      std::optional<ChannelEvent> event;
      for (const Nanoseconds start = monotonic_now(); !event && monotonic_now() - start < kHang;) event = endpoint.next_event();
      REQUIRE(event);
      CHECK(event->reason == CloseReason::peer_died);
      CHECK(endpoint.wait_room(*channel, kHang) == WaitOutcome::ready);  // the answer is not taken yet
      REQUIRE(endpoint.close(*channel));
      ended = *channel;
    }
    AnswererProcess next(ni, "peer");
    const auto channel = endpoint.connect("peer", through(Path::ni));
    REQUIRE(channel);
    if (looked_at) {
      Message late;
      REQUIRE(endpoint.receive(late));
      CHECK(late.channel == *ended);
      CHECK(late.channel != *channel);
      CHECK((late.length == 100 && is_content(late.bytes(), 0)));
      endpoint.release(late);
    }
    CHECK(Asker(endpoint, *channel, 2, Waiting::spin).run({0, 48, 5000}) == Asker::Outcome::sent);
    REQUIRE(endpoint.close(*channel));
  }
}

TEST_CASE("clients that are killed in the middle of traffic: their server learns it and goes on with the others") {
  const NiProcess ni;
  Client server(ni);
  Endpoint& endpoint = *server.endpoint;
  REQUIRE((endpoint.bind("server") && endpoint.descriptor()));
  have_served(ni, server);
  const Holdings before = ni.rest(server.context);
  const Descriptors our_descriptors = open_descriptors(getpid());
  const size_t our_mappings = shared_mappings(getpid());
  const uint32_t seed = first_seed();
  Answerer answerer(endpoint);
  for (uint32_t i = 0; i < rounds(12, 20); ++i) {
    CAPTURE(seed, i);
    constexpr uint32_t kVictims = 3;
    std::vector<std::unique_ptr<PeerProcess>> victims;
    std::vector<std::unique_ptr<Killer>> killers;
    for (uint32_t v = 0; v < kVictims; ++v) {
      const Round round(seed + i * kVictims + v);
      victims.push_back(std::make_unique<PeerProcess>(
          [&](int ready) { return ask_until_end(ni.ni(), "server", round.options(), round.window, round.theirs, ready); }));
    }
    // Killed before, while and after they connect.
    for (uint32_t v = 0; v < kVictims; ++v) {
      const pid_t pid = victims[v]->pid();
      killers.push_back(std::make_unique<Killer>(Round(seed + i * kVictims + v).kill_after_us * 2, [pid] { ::kill(pid, SIGKILL); }));
    }
    bool right = true;
    const Waiting waiting = Round(seed + i).ours;
    for (const Nanoseconds start = monotonic_now(); right && monotonic_now() - start < 11 * kMillisecond;) {
      right = answerer.turn();
      if (waiting != Waiting::poll) endpoint.wait(kMillisecond, waiting == Waiting::sleep ? 0 : Endpoint::kDefaultSpin);
    }
    killers.clear();
    for (const auto& victim : victims) CHECK(victim->wait() == -1);  // killed, not failed before
    victims.clear();
    Holdings now;
    for (const Nanoseconds start = monotonic_now(); right && monotonic_now() - start < kHang;) {
      right = answerer.turn();
      now = ni.holdings(server.context);
      if (now == before) break;
    }
    CHECK(right);
    CHECK(now == before);
    for (const ChannelEvent& event : answerer.take_events()) CHECK(event.reason == CloseReason::peer_died);
    CHECK(open_descriptors(getpid()) == our_descriptors);
    CHECK(shared_mappings(getpid()) == our_mappings);
  }
  CHECK(ni.log() == "");
}

// ---- an NI that is killed

TEST_CASE("when the network interface is killed, its channels end and local ones do not") {
  const uint32_t seed = first_seed();
  for (uint32_t i = 0; i < rounds(10, 20); ++i) {
    CAPTURE(seed, i);
    Round round(seed + i);
    NiProcess ni;
    const AnswererProcess shared_peer(ni, "shared", round.theirs), local_peer(ni, "local", round.theirs);
    Client client(ni), other(ni);
    Endpoint& endpoint = *client.endpoint;
    const auto local = other.endpoint->connect("local", through(Path::local, round.local));
    const auto shared = endpoint.connect("shared", through(Path::ni));
    REQUIRE((local && shared));
    Asker over_memory(*other.endpoint, *local, round.window, round.ours), over_ni(endpoint, *shared, round.window, round.ours);
    Asker::Outcome outcome, outcome_of_local = Asker::Outcome::sent;
    {
      const Killer killer(round.kill_after_us, [&] { ::kill(ni.pid(), SIGKILL); });
      do {
        outcome = over_ni.send(round.size());
        outcome_of_local = over_memory.send(round.size());
      } while (outcome == Asker::Outcome::sent && outcome_of_local == Asker::Outcome::sent);
    }
    CHECK(outcome == Asker::Outcome::no_channel);
    CHECK(outcome_of_local == Asker::Outcome::sent);
    check_ended(endpoint, *shared, CloseReason::ni_stopped, next_end(endpoint));
    CHECK_FALSE(client.context.alive());
    CHECK(endpoint.wait(kHang) == WaitOutcome::disconnected);
    CHECK(endpoint.wait_room(*shared, kHang) == WaitOutcome::room);

    const auto code = [](const auto& result) { return result ? Errc::ok : result.error().code; };
    CHECK(code(endpoint.connect("local")) == Errc::disconnected);
    CHECK(code(endpoint.bind("late")) == Errc::disconnected);
    CHECK(code(endpoint.accept(kHang, nullptr)) == Errc::disconnected);
    CHECK(code(endpoint.expose(100)) == (endpoint.emulated() ? Errc::invalid_argument : Errc::disconnected));
    CHECK(code(client.context.create_endpoint()) == Errc::disconnected);
    CHECK(code(client.context.report()) == Errc::disconnected);

    // The two processes of the local channel go on without an NI, asleep and awake.
    std::vector<uint32_t> sizes(300);
    for (uint32_t& size : sizes) size = round.size();
    CHECK(over_memory.run(sizes) == Asker::Outcome::sent);
    CHECK(other.endpoint->close(*local));

    // A new NI takes the place of the old one, and its socket.
    ni.kill();
    ni.start();
    const AnswererProcess new_peer(ni, "new");
    Client newcomer(ni);
    const auto channel = newcomer.endpoint->connect("new", through(round.path));
    REQUIRE(channel);
    CHECK(Asker(*newcomer.endpoint, *channel, 2, round.ours).run({0, 100, kMessageMax}) == Asker::Outcome::sent);
  }
}

TEST_CASE("every call that waits for the network interface learns that it was killed") {
  NiProcess ni;
  const AnswererProcess peer(ni, "peer");
  Client waiting(ni), accepting(ni), connecting(ni), silent(ni), upcalled(ni);
  REQUIRE(silent.endpoint->bind("silent"));
  REQUIRE(upcalled.endpoint->connect("peer", through(Path::ni)));
  std::atomic<bool> told{false};
  REQUIRE(upcalled.endpoint->start_upcall(
      [](Endpoint& endpoint, void* argument) {
        while (const auto event = endpoint.next_event()) {
          if (event->reason == CloseReason::ni_stopped) static_cast<std::atomic<bool>*>(argument)->store(true, std::memory_order_relaxed);
        }
      },
      &told));
  WaitOutcome outcome{};
  Errc accepted{}, connected{};
  std::thread threads[] = {std::thread([&] { outcome = waiting.endpoint->wait(kHang); }), std::thread([&] {
                             const auto channel = accepting.endpoint->accept(kHang, nullptr);
                             accepted = channel ? Errc::ok : channel.error().code;
                           }),
                           std::thread([&] {
                             const auto channel = connecting.endpoint->connect("silent", through(Path::automatic));
                             connected = channel ? Errc::ok : channel.error().code;
                           })};
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ni.kill();
  for (std::thread& thread : threads) thread.join();
  CHECK(outcome == WaitOutcome::disconnected);
  CHECK(accepted == Errc::disconnected);
  CHECK(connected == Errc::disconnected);
  for (int i = 0; i < kHangSeconds * 1000 && !told.load(std::memory_order_relaxed); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(told.load(std::memory_order_relaxed));
  upcalled.endpoint->stop_upcall();
}

// ---- set-up without end

bool still_talks(Asker& asker) { return asker.run({0, 1, 100, 5000}) == Asker::Outcome::sent; }

TEST_CASE("clients that are killed in the middle of set-up leave nothing behind, and others do not notice") {
  const NiProcess ni;
  const AnswererProcess peer(ni, "peer");
  Client client(ni);
  REQUIRE(client.endpoint->descriptor());
  const auto local = client.endpoint->connect("peer", through(Path::local));
  REQUIRE(local);
  Asker asker(*client.endpoint, *local, 4, Waiting::spin);
  const auto served = client.endpoint->connect("peer", through(Path::ni));
  REQUIRE(served);
  REQUIRE(client.endpoint->close(*served));
  const Holdings before = ni.rest(client.context);
  const uint32_t seed = first_seed();
  for (uint32_t i = 0; i < rounds(20, 20); ++i) {
    CAPTURE(seed, i);
    Round round(seed + i);
    std::vector<std::unique_ptr<ChildProcess>> storms;
    for (uint32_t s = 0; s < 3; ++s) {
      storms.push_back(std::make_unique<ChildProcess>([&] {
        Storm(ni.ni(), (seed + i) * 3 + s).run();
        return 0;
      }));
    }
    const Nanoseconds start = monotonic_now(), length = 2 * kMillisecond + round.kill_after_us * 6 * kMicrosecond;
    while (monotonic_now() - start < length) REQUIRE(still_talks(asker));
    for (const auto& storm : storms) ::kill(storm->pid(), SIGKILL);
    for (const auto& storm : storms) CHECK(storm->wait() == -1);
    CHECK(ni.settle(client.context, before) == before);
    REQUIRE(still_talks(asker));
  }
  // The accounts are as empty as the report says: the whole quota is available.
  std::vector<std::unique_ptr<Endpoint>> all;
  while (auto endpoint = client.context.create_endpoint({.send_bytes = kMessageMax})) all.push_back(std::move(*endpoint));
  CHECK(all.size() == NiProcess::kEndpoints - before.held.at("service's endpoints"));
  CHECK(ni.log() == "");
}

// ---- an NI that is asked to stop

void check_stops(NiProcess& ni) {
  const Nanoseconds start = monotonic_now();
  CHECK(ni.stop() == 0);
  std::printf("stopped after %llu us\n", static_cast<unsigned long long>((monotonic_now() - start) / kMicrosecond));
  CHECK(ni.log() == "");  // no warning, such as a time-out of its engine
}

TEST_CASE("a network interface stops when it is asked to, whatever its clients are doing") {
  const uint32_t seed = first_seed();
  for (uint32_t i = 0; i < rounds(8, 20); ++i) {
    CAPTURE(seed, i);
    Round round(seed + i);
    NiProcess ni;
    std::vector<std::unique_ptr<PeerProcess>> clients;
    for (const char* const name : {"one", "two"}) {
      clients.push_back(std::make_unique<AnswererProcess>(ni, name, Waiting::poll));
      clients.push_back(std::make_unique<PeerProcess>(
          [&](int ready) { return ask_until_end(ni.ni(), name, through(Path::ni), 4, Waiting::poll, ready); }));
      REQUIRE(clients.back()->is_ready());
    }
    for (uint32_t s = 0; s < 2; ++s) {
      clients.push_back(std::make_unique<PeerProcess>([&](int ready) {
        say_ready(ready);
        Storm(ni.ni(), (seed + i) * 2 + s).run();
        return 0;
      }));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(10'000 + round.kill_after_us * 10));
    check_stops(ni);
    for (const auto& client : clients) CHECK(client->wait() == 0);
  }
}

// Sends to `name` as fast as possible until the channel ends. Losses on the wire do not matter here.
int flood_until_end(const std::string& ni, const std::string& name, int ready) {
  auto context = Context::open(ni, "flood");
  if (!context) return 1;
  auto endpoint = context->create_endpoint(test_options());
  if (!endpoint) return 2;
  const auto channel = (*endpoint)->connect(name, through(Path::automatic));
  if (!channel) return 3;
  say_ready(ready);
  while ((*endpoint)->send(*channel, content(0, kMessageMax)) != SendOutcome::no_channel) {
    for (Message message; (*endpoint)->receive(message);) (*endpoint)->release(message);
  }
  return 0;
}

// Takes all messages until the NI is gone.
int sink_until_end(const std::string& ni, const std::string& name, int ready) {
  auto context = Context::open(ni, "sink");
  if (!context) return 1;
  auto endpoint = context->create_endpoint(test_options());
  if (!endpoint || !(*endpoint)->bind(name)) return 2;
  say_ready(ready);
  while ((*endpoint)->wait(kSecond) != WaitOutcome::disconnected) {
    while (const auto request = (*endpoint)->next_request()) static_cast<void>((*endpoint)->accept(request->id));
    while (const auto event = (*endpoint)->next_event()) static_cast<void>((*endpoint)->close(event->channel));
    for (Message message; (*endpoint)->receive(message);) (*endpoint)->release(message);
  }
  return 0;
}

// Frames on the wire may be the segments' own memory. An endpoint ends when the wire has released it, or when the wire stands still.
TEST_CASE("a network interface stops in the middle of traffic over a wire, even if its frames are no longer taken") {
  const bool zero_copy = GENERATE(false, true), peer_hangs = GENERATE(false, true);
  CAPTURE(zero_copy, peer_hangs);
  NiProcess left({"--host", "left"}), right({"--host", "right"});
  const std::string wire = "dpdk:net_memif0,socket=" + left.directory() + "/memif,role=";
  left.restart({"--host", "left", "--port", wire + "server"});
  right.restart({"--host", "right", "--port", wire + "client" + (zero_copy ? ",zero-copy=yes" : "")});
  PeerProcess sink([&](int ready) { return sink_until_end(left.ni(), "sink", ready); });
  REQUIRE(sink.is_ready());
  std::vector<std::unique_ptr<PeerProcess>> floods;
  for (int i = 0; i < 3; ++i) {
    floods.push_back(std::make_unique<PeerProcess>([&](int ready) { return flood_until_end(right.ni(), "sink@left", ready); }));
    REQUIRE(floods.back()->is_ready());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (peer_hangs) ::kill(left.pid(), SIGSTOP);
  check_stops(right);
  for (const auto& flood : floods) CHECK(flood->wait() == 0);
  ::kill(left.pid(), SIGCONT);
  check_stops(left);
  CHECK(sink.wait() == 0);
}

}  // namespace
}  // namespace unet
