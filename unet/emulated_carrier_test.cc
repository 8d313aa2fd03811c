// emulated_carrier_test.cc - emulated endpoints against a service and an NI that act exactly when a test says: stuck queues, early
// messages, and messages without an owner.
#include <poll.h>

#include <catch2/catch.hpp>
#include <thread>

#include "unet/test_world.h"

namespace unet::emulated_carrier_test {
namespace {

Bytes text(const char* s) { return as_bytes(s, std::strlen(s)); }

// The carrier is the first endpoint that the service creates.
constexpr uint32_t kCarrier = 0;

std::unique_ptr<Endpoint> emulated(World& world, uint32_t receive_depth = 8) {
  EndpointOptions options = kSmall;
  options.emulated = 1;
  options.receive_depth = receive_depth;
  auto made = world.context.create_endpoint(options);
  UNET_CHECK(made && made->emulated());
  return std::make_unique<Endpoint>(std::move(*made));
}

uint64_t counter(const Endpoint& endpoint, std::string_view name) {
  for (const auto& [each, value] : endpoint.counters()) {
    if (each == name) return value;
  }
  return ~uint64_t{0};
}

bool receives(Endpoint& endpoint, Channel channel, std::string_view what) {
  Message message;
  if (!endpoint.receive(message)) return false;
  const bool right = message.channel == channel && message.length == what.size() &&
                     std::memcmp(message.data, what.data(), what.size()) == 0;
  endpoint.release(message);
  return right;
}

}  // namespace

TEST_CASE("closing hundreds of emulated endpoints beside an NI that takes nothing is over before a test is given up") {
  World world;
  std::vector<std::unique_ptr<Endpoint>> all;
  constexpr uint32_t kMany = 500;
  for (uint32_t i = 0; i < kMany; ++i) {
    all.push_back(emulated(world));
    const Channel channel = world.ni(*all.back(), i);
    REQUIRE(all.back()->send(channel, text("stuck")) == SendOutcome::sent);
  }
  const Nanoseconds begin = monotonic_now();
  REQUIRE(all.back()->close(Channel{kMany - 1}));
  all.clear();
  CHECK(monotonic_now() - begin < kHang / 2);  // waiting for each in sequence would take longer
}

TEST_CASE("an emulated endpoint that got the id of one that has just ended is woken for what is its own") {
  World world;
  world.service.keep(control::Op::destroy_endpoint);
  auto ended = emulated(world);
  const uint32_t id = ended->id();
  std::thread ending([&] { ended.reset(); });
  const auto destroy = world.service.take();
  world.service.keep_no_longer(control::Op::destroy_endpoint);
  world.service.next_emulated(id);
  const auto heir = emulated(world);
  REQUIRE(heir->id() == id);
  world.service.send(world.service.reply_to(destroy));
  world.service.count();
  ending.join();

  const Result<int> descriptor = heir->descriptor();
  REQUIRE(descriptor);
  while (!heir->arm()) heir->next_request();
  world.service.send_request(id, 1);
  world.service.count();
  pollfd wanted{.fd = *descriptor, .events = POLLIN, .revents = 0};
  CHECK(::poll(&wanted, 1, kHangSeconds * 1000) == 1);
  CHECK(heir->next_request());
}

TEST_CASE("messages by channels that no emulated endpoint has are dropped and counted") {
  World world;
  const auto endpoint = emulated(world), other = emulated(world);
  TestEngine& engine = world.service.end(kCarrier).engine;
  Message none;
  REQUIRE(engine.deliver_inline(7, text("nobody's")));
  CHECK_FALSE(endpoint->receive(none));
  CHECK(counter(*endpoint, "unclaimed_messages") == 1);
  CHECK(counter(*other, "unclaimed_messages") == 1);  // both share the carrier's counter

  // The message is stored while an endpoint may be about to get that channel, and dropped when none is.
  const auto pending = endpoint->start_connect("peer");
  REQUIRE(pending);
  REQUIRE(engine.deliver_inline(7, text("perhaps")));
  CHECK_FALSE(endpoint->receive(none));
  CHECK(counter(*endpoint, "unclaimed_messages") == 1);
  world.service.refuse(world.service.take(), Errc::not_found, "nobody");
  while (!endpoint->poll_connect(*pending)) REQUIRE(endpoint->wait(kHang) == WaitOutcome::ready);
  CHECK(counter(*endpoint, "unclaimed_messages") == 2);

  // A message of a channel after its end has no owner.
  const Channel channel = world.ni(*endpoint, 9);
  REQUIRE(engine.deliver_inline(9, text("ours")));
  CHECK(receives(*endpoint, channel, "ours"));
  REQUIRE(endpoint->close(channel));
  REQUIRE(engine.deliver_inline(9, text("late")));
  CHECK_FALSE(endpoint->receive(none));
  CHECK(counter(*endpoint, "unclaimed_messages") == 3);
  // A message for a full list counts for that endpoint.
  CHECK(counter(*endpoint, "receive_queue_full") == 0);
}

TEST_CASE("a static channel's first message waits until its emulated endpoint knows of the channel") {
  World world;
  const auto endpoint = emulated(world), other = emulated(world);
  world.service.keep(control::Op::bind);
  std::thread service([&] {
    const auto bind = world.service.take();
    // The wire is faster than the service, and another endpoint takes the message off the queue.
    UNET_CHECK(world.service.end(kCarrier).engine.deliver_inline(5, text("first")));
    Message none;
    UNET_CHECK(!other->receive(none));
    world.service.send_opened(endpoint->id(), 5);
    world.service.send(world.service.reply_to(bind));
    world.service.count();
  });
  REQUIRE(endpoint->bind("fixed"));
  service.join();
  CHECK(receives(*endpoint, Channel{5}, "first"));
  const auto event = endpoint->next_event();
  REQUIRE(event);
  CHECK((event->kind == ChannelEvent::Kind::opened && event->channel == Channel{5}));
  CHECK(counter(*endpoint, "unclaimed_messages") == 0);
}

}  // namespace unet::emulated_carrier_test
