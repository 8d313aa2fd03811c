// watch_test.cc - doorbells, the watched set, sleeping, and what idle endpoints cost.
#include <catch2/catch.hpp>

#include "ni/engine/test_ni.h"

namespace unet::engine::watch_test {
namespace {

constexpr EndpointOptions kTiny{.send_depth = 4, .receive_depth = 4, .buffers = 4, .buffer_size = 256, .send_bytes = kMessageMax};

}  // namespace

TEST_CASE("a send queue is watched after its doorbell, and left to it again when it was idle") {
  TestNi ni;
  TestEndpoint& a = ni.add_endpoint();
  TestEndpoint& b = ni.add_endpoint();
  ni.hairpin(a, 0, b, 0);
  ni.run();  // rings for all
  CHECK(a.watched());
  REQUIRE(a.send(0, pattern(8, 1)));
  ni.poll();  // seen without a doorbell
  CHECK(b.receive().has_value());

  for (int i = 0; i < 8; ++i) {  // a stays active, b does not
    ni.now += 100 * kMicrosecond;
    REQUIRE(a.send(0, pattern(8, 1)));
    ni.poll();
    CHECK(b.receive().has_value());
  }
  CHECK(a.watched());
  CHECK_FALSE(b.watched());
  ni.now += kMillisecond;
  ni.poll();
  CHECK_FALSE(a.watched());

  REQUIRE(a.send(0, pattern(8, 1)));
  ni.poll(100);
  CHECK_FALSE(b.receive().has_value());  // a client that does not ring waits
  a.ring(ni.page);
  ni.poll();
  CHECK(b.receive().has_value());
  CHECK(a.watched());
}

TEST_CASE("endpoints beyond the watched set are served by their doorbells") {
  TestNi ni(std::vector<TestWire*>{}, {.watched_max = 2});
  TestEndpoint& receiver = ni.add_endpoint();
  for (int i = 0; i < 10; ++i) ni.hairpin(ni.add_endpoint(), 0, receiver, static_cast<uint32_t>(i));
  ni.run();
  for (int round = 0; round < 5; ++round) {
    uint32_t watched = 0, got = 0;
    for (size_t i = 1; i < ni.endpoints.size(); ++i) {
      TestEndpoint& e = *ni.endpoints[i];
      REQUIRE(e.send(0, pattern(8, 1)));
      if (e.watched()) {
        ++watched;
      } else {
        e.ring(ni.page);
      }
    }
    CHECK(watched <= 2);
    ni.poll(2);
    while (receiver.receive()) ++got;
    CHECK(got == 10);
  }
}

TEST_CASE("a user with many busy queues leaves places to others") {
  TestNi ni;
  for (int i = 0; i < 100; ++i) ni.add_endpoint(kTiny, 1, 1);
  for (int i = 0; i < 10; ++i) ni.add_endpoint(kTiny, 1, 2);
  for (int i = 0; i < 2; ++i) ni.add_endpoint(kTiny, 1, 3);
  const auto watched = [&](size_t from, size_t to) {
    uint32_t count = 0;
    for (size_t i = from; i < to; ++i) count += ni.endpoints[i]->watched() ? 1 : 0;
    return count;
  };
  ni.poll(5);  // 64 commands each
  ni.run();
  CHECK(watched(0, 100) == 64);
  CHECK(watched(100, 110) == 4);
  CHECK(watched(110, 112) == 2);
  // Queues that are rung take the places of detached endpoints.
  for (uint32_t i = 0; i < 100; ++i) ni.command(DetachEndpoint{i});
  ni.poll(3);
  for (size_t i = 100; i < 112; ++i) ni.endpoints[i]->ring(ni.page);
  ni.poll(3);
  CHECK(watched(100, 112) == 12);
}

TEST_CASE("bells of endpoints that a client does not have are ignored") {
  TestNi ni;
  TestEndpoint& a = ni.add_endpoint();
  ni.run();
  for (auto& word : ni.page.doorbells) word = ~uint64_t{0};
  for (auto& word : ni.page.summary.words) word = ~uint64_t{0};
  const uint64_t before = ni.engine->scans();
  ni.poll();
  CHECK(ni.engine->scans() - before < 10);
  REQUIRE(a.send(0, {}));
  ni.run();
  CHECK(a.counter(EndpointCounter::unknown_channel) == 1);
}

TEST_CASE("4,096 idle endpoints add nothing to a turn") {
  // A turn with an active pair looks at as many queues and doorbells with one idle endpoint as with 4,096.
  const auto scans_per_poll = [](uint32_t idle, uint32_t clients) {
    TestNi ni;
    TestEndpoint& a = ni.add_endpoint();
    TestEndpoint& b = ni.add_endpoint();
    ni.hairpin(a, 0, b, 0);
    std::vector<std::unique_ptr<ClientPage>> pages;
    for (uint32_t c = 1; c < clients; ++c) {
      pages.push_back(std::make_unique<ClientPage>());
      ni.command(AttachClient{c, pages.back().get()});
      ni.poll();
    }
    for (uint32_t i = 0; i < idle; ++i) {
      ni.add_endpoint(kTiny);
      ni.poll();
    }
    a.ring(ni.page);
    ni.poll();
    const uint64_t before = ni.engine->scans();
    for (int i = 0; i < 1'000; ++i) {
      UNET_CHECK(a.send(0, {}));
      ni.poll();
      UNET_CHECK(b.receive().has_value());
    }
    return static_cast<double>(ni.engine->scans() - before) / 1'000;
  };
  const double few = scans_per_poll(1, 1);
  CHECK(few <= 3);
  CHECK(scans_per_poll(4'096, 1) == few);
  CHECK(scans_per_poll(100, 2'000) < few + 8);  // a bounded number of idle clients
}

TEST_CASE("all of many clients are heard") {
  TestNi ni;
  TestEndpoint& receiver = ni.add_endpoint({.receive_depth = 512});
  constexpr uint32_t kClients = 300;
  std::vector<std::unique_ptr<ClientPage>> pages;
  std::vector<std::unique_ptr<TestEndpoint>> senders;
  for (uint32_t c = 1; c < kClients; ++c) {
    pages.push_back(std::make_unique<ClientPage>());
    senders.push_back(std::make_unique<TestEndpoint>(c, kTiny));
    ni.command(AttachClient{c, pages.back().get()});
    ni.command(AttachEndpoint{.endpoint = c, .client = c, .doorbell = 17, .segment = senders.back()->segment,
                              .geometry = senders.back()->geometry});
    ni.command(OpenHairpin{c, 0, receiver.number, c});
    ni.poll();
  }
  for (uint32_t round = 0; round < 5; ++round) {
    uint32_t got = 0;
    for (uint32_t c = 1; c < kClients; ++c) {
      REQUIRE(senders[c - 1]->send(0, {}));
      pages[c - 1]->doorbells[0].fetch_or(uint64_t{1} << 17);
      pages[c - 1]->summary.words[0].fetch_or(1);
    }
    for (int turn = 0; turn < 200; ++turn) {
      ni.poll();
      while (receiver.receive()) ++got;
    }
    CHECK(got == kClients - 1);
  }
  // Clients go in any order.
  for (uint32_t c = kClients - 1; c > 0; --c) {
    const uint32_t client = (c * 7) % (kClients - 1) + 1;
    ni.command(DetachEndpoint{client});
    ni.command(DetachClient{client});
    ni.poll();
    REQUIRE(ni.event<EndpointDetached>().has_value());
    REQUIRE(ni.event<ClientDetached>()->client == client);
  }
}

TEST_CASE("the engine does not sleep while there is work, and is found asleep by clients when it does") {
  TestWire wire;
  TestNi ni({&wire});
  TestEndpoint& a = ni.add_endpoint();
  TestEndpoint& b = ni.add_endpoint();
  ni.hairpin(a, 0, b, 0);
  ni.wire(b, 1, 0x10001, 1, {2, 0, 0, 0, 0, 9});
  CHECK_FALSE(ni.engine->prepare_sleep(ni.now));  // commands
  ni.run();
  REQUIRE(a.watched());

  REQUIRE(ni.engine->prepare_sleep(ni.now));
  CHECK(ni.page.engine_asleep.value == 1);
  CHECK_FALSE(a.watched());
  ni.engine->wake_up();
  CHECK(ni.page.engine_asleep.value == 0);

  SECTION("a message in a watched queue") {
    a.ring(ni.page);
    ni.run();
    REQUIRE(a.watched());
    REQUIRE(a.send(0, {}));
    CHECK_FALSE(ni.engine->prepare_sleep(ni.now));
    ni.poll();
    CHECK(b.receive().has_value());
  }
  SECTION("a doorbell") {
    REQUIRE(a.send(0, {}));
    a.ring(ni.page);
    CHECK_FALSE(ni.engine->prepare_sleep(ni.now));
    ni.poll();
    CHECK(b.receive().has_value());
  }
  SECTION("a frame that arrived: delivered at once") {
    wire.arriving.push_back(make_frame({.to = wire.capabilities.address, .from = {2, 0, 0, 0, 0, 9}, .tag = Tag{0x10001}}, {}));
    CHECK_FALSE(ni.engine->prepare_sleep(ni.now));
    CHECK(b.receive().has_value());
  }
  CHECK(ni.page.engine_asleep.value == 0);
}

}  // namespace unet::engine::watch_test
