// engines_test.cc - two unetds with two engines each and two wires between them: verified traffic over each wire from either engine, and
// between endpoints of different engines; and clients that are killed meanwhile.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/system/peer_process.h"
#include "tests/system/two_hosts.h"

namespace unet {
namespace {

using control::Path;
using nlohmann::json;

json report_of(Context& context) { return json::parse(*context.report()); }

uint64_t linked(Context& context, size_t engine) {
  return report_of(context).at("engines").at(engine).at("counters").at("linked_frames").get<uint64_t>();
}

bool asks(Endpoint& endpoint, const Result<Channel>& channel, Waiting waiting) {
  return channel && Asker(endpoint, *channel, 4, waiting).run({0, 1, 48, 49, 1400, 1500, 9000, 20'000, kMessageMax, 3, 5000}) ==
                        Asker::Outcome::sent;
}

}  // namespace

TEST_CASE("two engines and two wires on either host: every way from an endpoint to another") {
  TwoHosts hosts;
  const auto waiting = static_cast<Waiting>(GENERATE(0, 2));
  // On the right, an endpoint is served by the engine of its first channel's wire.
  const AnswererProcess first(hosts.right, "first", waiting), second(hosts.right, "second", waiting), near(hosts.left, "near", waiting);
  Client zero(hosts.left), one(hosts.left);
  for (Client* const client : {&zero, &one}) REQUIRE(client->endpoint->descriptor());
  CHECK(report_of(zero.context).at("endpoints").at(0).at("engine").is_null());
  // Over the engine's own wire: no link takes part.
  CHECK(asks(*zero.endpoint, zero.endpoint->connect("first@right0", through(Path::automatic)), waiting));
  CHECK(asks(*one.endpoint, one.endpoint->connect("second@right1", through(Path::automatic)), waiting));
  for (size_t engine = 0; engine < 2; ++engine) CHECK(linked(zero.context, engine) == 0);
  // Over the other engine's wire.
  CHECK(asks(*zero.endpoint, zero.endpoint->connect("second@right1", through(Path::automatic)), waiting));
  CHECK(asks(*one.endpoint, one.endpoint->connect("first@right0", through(Path::automatic)), waiting));
  // Between endpoints of this host: of one engine, and of two.
  CHECK(asks(*zero.endpoint, zero.endpoint->connect("near", through(Path::ni)), waiting));
  CHECK(asks(*one.endpoint, one.endpoint->connect("near", through(Path::ni)), waiting));
  for (size_t engine = 0; engine < 2; ++engine) CHECK(linked(zero.context, engine) != 0);
  const json report = report_of(zero.context);
  std::vector<size_t> served(2);
  for (const json& endpoint : report.at("endpoints")) ++served.at(endpoint.at("engine").get<size_t>());
  CHECK(served == std::vector<size_t>{2, 1});
  for (const json& engine : report.at("engines")) {
    for (const auto& [name, value] : engine.at("drops").items()) {
      CAPTURE(name);
      CHECK(value == 0);
    }
  }
  CHECK(hosts.left.log() == "");
  CHECK(hosts.right.log() == "");
  CHECK(hosts.left.stop() == 0);
  CHECK(hosts.right.stop() == 0);
}

TEST_CASE("clients of two engines that are killed: their servers go on, and every engine gives everything back") {
  TwoHosts hosts;
  const AnswererProcess first(hosts.right, "first"), second(hosts.right, "second"), near(hosts.left, "near");
  Client zero(hosts.left), far(hosts.right);
  // An engine serves a server from its first channel on.
  const auto anchor = zero.endpoint->connect("near", through(Path::ni));
  const auto to_first = zero.endpoint->connect("first@right0", through(Path::automatic));
  const auto to_second = zero.endpoint->connect("second@right1", through(Path::automatic));
  REQUIRE((anchor && to_first && to_second));
  const Holdings before = hosts.left.rest(zero.context), before_far = hosts.right.rest(far.context);
  const uint32_t seed = first_seed();
  std::mt19937 random(seed);
  const char* const ways[][2] = {{"first@right0", "second@right1"}, {"second@right1", "near"}, {"near", "second@right1"}};
  for (uint32_t round = 0; round < 8; ++round) {
    CAPTURE(seed, round);
    std::vector<std::unique_ptr<PeerProcess>> victims;
    for (const auto& way : ways) {
      victims.push_back(std::make_unique<PeerProcess>([&](int ready) {
        auto context = Context::open(hosts.left.ni(), "victim");
        if (!context) return 1;
        auto endpoint = context->create_endpoint();
        if (!endpoint) return 2;
        const auto one = (*endpoint)->connect(way[0], through(way[0][0] == 'n' ? Path::ni : Path::automatic));
        const auto other = (*endpoint)->connect(way[1], through(way[1][0] == 'n' ? Path::ni : Path::automatic));
        if (!one || !other) return 3;
        say_ready(ready);
        Asker first_asker(**endpoint, *one, 2, Waiting::spin), second_asker(**endpoint, *other, 2, Waiting::sleep);
        for (uint32_t i = 0;; ++i) {
          Asker& asker = i % 2 == 0 ? first_asker : second_asker;
          if (asker.send(i * 977 % 9000) != Asker::Outcome::sent || asker.finish() != Asker::Outcome::sent) return 4;
        }
      }));
    }
    for (const auto& victim : victims) REQUIRE(victim->is_ready());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    for (const auto& victim : victims) ::kill(victim->pid(), SIGKILL);
    for (const auto& victim : victims) CHECK(victim->wait() == -1);  // killed, not failed before
    CHECK(hosts.left.settle(zero.context, before) == before);
    CHECK(hosts.right.settle(far.context, before_far) == before_far);
  }
  CHECK(Asker(*zero.endpoint, *anchor, 2, Waiting::spin).run({0, 48, 5000, kMessageMax}) == Asker::Outcome::sent);
  CHECK(hosts.left.log() == "");
  CHECK(hosts.right.log() == "");
}

}  // namespace unet
