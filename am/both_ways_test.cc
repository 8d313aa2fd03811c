// both_ways_test.cc - requests in both directions of one channel.
#include <catch2/catch.hpp>

#include "am/test_world.h"

using namespace unet;
using namespace unet::am;

namespace {

constexpr am::Options kBothWays{.both_ways = true};

// `client` maps `server`, which keeps the number of the peer that has sent it a request.
struct Two {
  explicit Two(control::Path path, const am::Options& of_client = kBothWays, const am::Options& of_server = kBothWays)
      : client(world.add(of_client)), server(world.add(of_server)) {
    REQUIRE(server->bind("server"));
    server->set_handler(kWho, [](Token& token, void* source) { *static_cast<uint64_t*>(source) = token.source(); }, &source);
    server->set_error_handler(note, &returned);
    client->set_handler(kEcho, echo, nullptr);
    server->set_handler(kAnswer, count, &answers);
    REQUIRE(client->map(0, "server", kAnyTag, by(path)));
    REQUIRE(client->request(0, kWho) == Outcome::sent);
    until(*world.bundle, [&] { return source != 0; });
  }
  World world;
  std::unique_ptr<am::Endpoint> client, server;
  uint64_t source = 0;
  uint32_t answers = 0;
  std::vector<ReturnStatus> returned;
};

}  // namespace

TEST_CASE("an endpoint sends requests to a peer that has connected to it") {
  Two two(EITHER_PATH);
  REQUIRE(two.server->map_back(5, two.source));
  // More than a window, so credits return by this channel as well.
  constexpr uint32_t kMany = 300;
  for (uint32_t i = 0; i < kMany; ++i) REQUIRE(two.server->request(5, kEcho, i) == Outcome::sent);
  until(*two.world.bundle, [&] { return two.answers == kMany; });
  REQUIRE(two.client->request(0, kWho) == Outcome::sent);
  REQUIRE(two.server->is_open(5));
  REQUIRE(two.returned.empty());
}

TEST_CASE("both directions carry full windows at once") {
  Two two(EITHER_PATH);
  uint32_t client_answers = 0;
  two.server->set_handler(kEcho, echo, nullptr);
  two.client->set_handler(kAnswer, count, &client_answers);
  REQUIRE(two.server->map_back(0, two.source));
  std::vector<std::byte> payload(kMediumMax);
  constexpr uint32_t kMany = 200;
  for (uint32_t i = 0; i < kMany; ++i) {
    REQUIRE(two.server->request_medium(0, kEcho, payload, {}) == Outcome::sent);
    REQUIRE(two.client->request_medium(0, kEcho, payload, {}) == Outcome::sent);
  }
  until(*two.world.bundle, [&] { return two.answers == kMany && client_answers == kMany; });
}

TEST_CASE("a peer that has not agreed gets no requests by its own channel") {
  Two two(EITHER_PATH, {});
  REQUIRE(two.server->map_back(0, two.source));
  REQUIRE(two.server->request(0, kEcho, 1u) == Outcome::sent);
  until(*two.world.bundle, [&] { return two.client->counters().bad_request == 1; });
  REQUIRE(two.answers == 0);
}

TEST_CASE("map_back() has its conditions") {
  const auto path = EITHER_PATH;
  {
    Two two(path, kBothWays, {});
    REQUIRE(two.server->map_back(0, two.source).error().code == Errc::invalid_argument);
  }
  Two two(path);
  REQUIRE(two.server->map_back(kTranslationsMax, two.source).error().code == Errc::invalid_argument);
  REQUIRE(two.server->map_back(0, two.source + 100).error().code == Errc::not_found);
  REQUIRE(two.server->map_back(0, two.source));
  REQUIRE(two.server->map_back(0, two.source).error().code == Errc::already_exists);
  REQUIRE(two.server->map_back(1, two.source).error().code == Errc::not_found);
}

TEST_CASE("a peer that ends keeps its index until unmap()") {
  Two two(EITHER_PATH);
  REQUIRE(two.server->map_back(0, two.source));
  two.client.reset();
  until(*two.world.bundle, [&] { return !two.server->is_open(0); });
  REQUIRE(two.server->in_use(0));
  REQUIRE(two.server->request(0, kEcho, 1u) == Outcome::returned);
  REQUIRE(two.returned == std::vector{ReturnStatus::unreachable});
  REQUIRE(two.server->unmap(0));
  REQUIRE(two.server->peers() == 0);
}

TEST_CASE("a request that must not wait is not sent without a credit") {
  Two two(EITHER_PATH);
  uint32_t sent = 0;
  while (two.client->request_now(0, kWho, {}, {}) == Outcome::sent) ++sent;
  REQUIRE((sent == kFlowWindow || sent == kFlowWindow - 1));  // the first request may not be acknowledged
  REQUIRE(two.client->reserve_now(0, 8, 0).empty());
  until(*two.world.bundle, [&] { return two.client->has_credit(0); });
  REQUIRE(two.client->request_now(0, kWho, as_bytes("x", 1), {}) == Outcome::sent);
  until(*two.world.bundle, [&] { return two.client->has_credit(0); });
  REQUIRE(two.client->reserve_now(0, 8, 0).size() == 8);
  REQUIRE(two.client->commit(kWho, 8, {}) == Outcome::sent);
  REQUIRE(two.client->request_now(9, kWho, {}, {}) == Outcome::returned);
}
