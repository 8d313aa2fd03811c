// stack_sim_test.cc - applications of three hosts that open, use and close connections at random, in a network that loses, repeats and
// reorders; one of them dies. A hundred seeds.
//
// Whatever happens: what a connection carries arrives byte by byte, each ends, and no socket, port or timer is left.
#include <cerrno>
#include <catch2/catch.hpp>

#include "ipstack/sockets/test_network.h"
#include "unet/base/test_seeds.h"

using namespace unet;
using namespace unet::sockets;
using namespace unet::sockets::sim;

namespace {

// One end of a connection: writes `bytes` of a pattern that both ends know, reads as many, then closes.
struct Talk {
  int socket = -1;
  bool connecting = false;
  uint32_t bytes = 0, written = 0, read = 0;
  uint16_t mark = 0;  // where the pattern begins
  bool over = false, failed = false;
};

struct Actor {
  Actor(World& world, uint32_t interface, const StackOptions& options) : application(world, interface, options) {}
  Application application;
  int listener = -1;
  std::vector<Talk> talks;
};

class Life {
 public:
  explicit Life(uint64_t seed) : random_(seed), world_(seed) {
    world_.wire.options.delay = 1 + random_() % (20 * kMillisecond);
    if (random_() % 2 == 0) world_.wire.options.jitter = 1 + random_() % (2 * world_.wire.options.delay);
    if (random_() % 2 == 0) world_.wire.options.loss = static_cast<double>(random_() % 15) / 100;
    world_.lends = random_() % 2 == 0;
    world_.keeps = random_() % 4 != 0;
    if (random_() % 2 == 0) world_.wire.options.duplicate = static_cast<double>(random_() % 15) / 100;
    for (uint32_t i = 0; i < 3; ++i) {
      const std::string four = "10.0.0." + std::to_string(i + 1), six = "fd00::" + std::to_string(i + 1);
      const uint32_t interface = world_.add_interface({four.c_str(), six.c_str()});
      for (int each = 0; each < (i == 0 ? 2 : 1); ++each) {
        StackOptions options;
        const auto shift = static_cast<uint32_t>(random_() % 6);
        options.chunk_bytes = 512u << shift;
        options.chunks = (2048u >> shift) + random_() % 512;
        options.lendable_chunks = options.chunks - std::min<uint32_t>(options.chunks, static_cast<uint32_t>(random_() % 4096));
        options.half_open_max = random_() % 2 == 0 ? 2 : 4096;
        options.tcp.time_wait = kSecond;
        options.tcp.fin_wait_2 = 10 * kSecond;
        options.tcp.rto_max = 2 * kSecond;
        options.tcp.send_buffer = static_cast<uint32_t>(1000 + random_() % 100'000);
        options.tcp.receive_buffer = static_cast<uint32_t>(1000 + random_() % 100'000);
        actors_.push_back(std::make_unique<Actor>(world_, interface, options));
        hosts_.push_back(i);
      }
    }
  }

  // Pieces that were sent in place.
  uint64_t lent() const {
    uint64_t pieces = 0;
    for (const World::Port* port : world_.ports) pieces += port->lent;
    return pieces;
  }
  // Messages that stayed where they came.
  uint64_t kept() const {
    uint64_t messages = 0;
    for (const World::Port* port : world_.ports) messages += port->kept_in_place;
    return messages;
  }

  void run() {
    for (size_t i = 0; i < actors_.size(); ++i) {
      Actor& actor = *actors_[i];
      Stack& stack = *actor.application.stack;
      actor.listener = stack.socket(Type::stream, true);
      REQUIRE(stack.bind(actor.listener, {{}, port_of(i)}) == 0);
      REQUIRE(stack.listen(actor.listener, 64) == 0);
    }
    for (int turn = 0; turn < 60; ++turn) {
      for (size_t i = 0; i < actors_.size(); ++i) {
        if (random_() % 4 == 0) open(i);
      }
      turn_all();
    }
    for (int turn = 0; turn < 20'000 && busy(); ++turn) turn_all();
    for (const auto& actor : actors_) {
      for (const Talk& talk : actor->talks) {
        INFO("socket " << talk.socket << ", wrote " << talk.written << " and read " << talk.read << " of " << talk.bytes);
        CHECK(talk.over);
        CHECK(!talk.failed);
      }
      REQUIRE(actor->application.stack->close(actor->listener) == 0);
    }
    world_.run_for(1000 * kSecond);
    for (const auto& actor : actors_) {
      CHECK(actor->application.stack->sockets() == 0);
      CHECK(actor->application.stack->idle());
      CHECK(actor->application.stack->next_event() == ~Nanoseconds{0});
    }
  }

 private:
  static uint16_t port_of(size_t actor) { return static_cast<uint16_t>(80 + actor); }

  // Both ends derive from the client's port how much there is to say, and what.
  static void plan(Talk& talk, const Address& client) {
    talk.mark = client.port;
    talk.bytes = client.port % 3 == 0 ? client.port % 100 : client.port * 3u;
  }

  void open(size_t from) {
    const size_t to = random_() % actors_.size();
    const uint32_t host = hosts_[to] + 1;
    const bool six = random_() % 2 == 0;
    Stack& stack = *actors_[from]->application.stack;
    Talk talk;
    talk.connecting = true;
    talk.socket = stack.socket(Type::stream, six);
    const std::string text = (six ? "fd00::" : "10.0.0.") + std::to_string(host);
    REQUIRE(stack.connect(talk.socket, at(text.c_str(), port_of(to))) == -EINPROGRESS);
    Address own;
    REQUIRE(stack.local_address(talk.socket, own) == 0);
    plan(talk, own);
    actors_[from]->talks.push_back(talk);
  }

  void turn_all() {
    world_.run_for(20 * kMillisecond);
    for (const auto& actor : actors_) {
      Stack& stack = *actor->application.stack;
      Address peer;
      for (int socket; (socket = stack.accept(actor->listener, &peer)) >= 0;) {
        Talk talk;
        talk.socket = socket;
        plan(talk, peer);
        actor->talks.push_back(talk);
      }
      for (Talk& talk : actor->talks) act(stack, talk);
    }
  }

  void act(Stack& stack, Talk& talk) {
    if (talk.over) return;
    if (talk.connecting) {
      if ((stack.events(talk.socket) & Events::kOut) == 0) return;
      talk.connecting = false;
    }
    if (talk.written < talk.bytes && random_() % 4 != 0) {
      const auto data = pattern(std::min<uint64_t>(talk.bytes - talk.written, 1 + random_() % 30'000), talk.mark + talk.written);
      const int64_t sent = stack.send(talk.socket, data);
      if (sent > 0) talk.written += static_cast<uint32_t>(sent);
      else if (sent != -EAGAIN) return fail(stack, talk);
    }
    if (random_() % 4 != 0) {
      std::vector<std::byte> data(1 + random_() % 30'000);
      const int64_t got = stack.receive(talk.socket, data);
      if (got > 0) {
        data.resize(static_cast<size_t>(got));
        if (data != pattern(data.size(), talk.mark + talk.read)) return fail(stack, talk);
        talk.read += static_cast<uint32_t>(got);
      } else if (got == 0 ? talk.read < talk.bytes : got != -EAGAIN) {
        return fail(stack, talk);
      }
    }
    if (talk.written < talk.bytes || talk.read < talk.bytes) return;
    talk.over = true;
    stack.close(talk.socket);
  }
  void fail(Stack& stack, Talk& talk) {
    talk.over = talk.failed = true;
    stack.close(talk.socket);
  }
  bool busy() const {
    for (const auto& actor : actors_) {
      for (const Talk& talk : actor->talks) {
        if (!talk.over) return true;
      }
    }
    return false;
  }

  std::mt19937_64 random_;
  World world_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::vector<uint32_t> hosts_;
};

TEST_CASE("connections at random between hosts, and within one") {
  uint64_t lent = 0, kept = 0;
  for (uint64_t seed = 1; seed <= test::seeds(100); ++seed) {
    INFO("UNET_SEED=" << seed);
    Life life(seed);
    life.run();
    lent += life.lent();
    kept += life.kept();
  }
  CHECK(lent != 0);
  CHECK(kept != 0);
}

}  // namespace
