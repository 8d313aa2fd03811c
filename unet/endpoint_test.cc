// endpoint_test.cc - an endpoint against a service and an NI that the test steps: channels that open and close at bad moments, the end of
// the NI.
#include "unet/endpoint.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "unet/test_world.h"

namespace unet::endpoint_test {
namespace {

Bytes text(const char* s) { return as_bytes(s, std::strlen(s)); }

// ---- channels that open and close

TEST_CASE("messages through the NI and over local channels arrive at one endpoint and go back where they came from") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 3);
  const Channel ni = world.ni(*endpoint, 5);
  TestEngine& engine = world.service.end(0).engine;
  for (uint32_t i = 0; i < 100; ++i) {
    REQUIRE(engine.deliver_inline(5, as_bytes(&i, sizeof i)));
    REQUIRE(peer->send(reinterpret_cast<const std::byte*>(&i), sizeof i) == SendOutcome::sent);
    uint32_t seen = 0;
    for (int k = 0; k < 2; ++k) {
      Message message;
      REQUIRE(endpoint->receive(message));
      REQUIRE(std::memcmp(message.data, &i, sizeof i) == 0);
      REQUIRE((message.channel == Channel{3}) == message.from_local);
      seen += static_cast<uint32_t>(message.channel);
      endpoint->release(message);
    }
    REQUIRE(seen == 8);
    Message none;
    REQUIRE_FALSE(endpoint->receive(none));
  }
  CHECK(endpoint->send(ni, text("to the NI")) == SendOutcome::sent);
  const auto taken = engine.take();
  REQUIRE(taken);
  CHECK(taken->channel == 5);
  CHECK(endpoint->send(Channel{3}, text("to the peer")) == SendOutcome::sent);
  CHECK(peer->has_message());
  CHECK(endpoint->send(Channel{4}, text("nobody")) == SendOutcome::no_channel);
  CHECK(endpoint->send(Channel{400}, text("nobody")) == SendOutcome::no_channel);
}

TEST_CASE("what was sent leaves before a claim of ports is released") {
  World world;
  const auto endpoint = world.endpoint();
  const Channel ni = world.ni(*endpoint, 5);
  REQUIRE(endpoint->send(ni, text("the last")) == SendOutcome::sent);
  std::atomic<bool> left{false};
  std::thread engine([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    left = true;
    static_cast<void>(world.service.end(0).engine.take());
  });
  static_cast<void>(endpoint->release_ip(3));
  CHECK(left);
  engine.join();
}

TEST_CASE("the time a peer has for its answer is at least a millisecond and at most an hour, however it is said") {
  World world;
  const auto endpoint = world.endpoint();
  const auto asked_for = [&](Nanoseconds timeout) {
    REQUIRE(endpoint->start_connect("peer", {.timeout = timeout}));
    return world.service.take().as<control::Connect>().timeout_ms;
  };
  CHECK(asked_for(0) == 1);
  CHECK(asked_for(1) == 1);
  CHECK(asked_for(7 * kMillisecond) == 7);
  CHECK(asked_for(Endpoint::kForever) == 3'600'000);
  // A margin added to this value would overflow.
  std::thread service([&] { world.service.grant_ni(world.service.take(), 3); });
  const auto channel = endpoint->connect("peer", {.timeout = Endpoint::kForever - kSecond + 1});
  service.join();
  CHECK(channel);
}

TEST_CASE("a channel that the peer closes before its connect was taken is closed when it is taken") {
  World world;
  const auto endpoint = world.endpoint();
  const bool is_local = GENERATE(true, false);
  const auto pending = endpoint->start_connect("peer", kSmallChannel);
  REQUIRE(pending);
  const auto asked = world.service.take();
  std::unique_ptr<LocalChannel> peer;
  if (is_local) {
    peer = world.service.grant_local(asked, 2);
  } else {
    world.service.grant_ni(asked, 2);
  }
  world.service.send_closed(endpoint->id(), 2, control::CloseReason::peer_died);
  world.service.count();
  // The application may look for events first.
  CHECK_FALSE(endpoint->next_event());
  const Channel channel = World::wait_connect(*endpoint, *pending);
  CHECK_FALSE(endpoint->is_open(channel));
  CHECK(endpoint->send(channel, text("x")) == SendOutcome::no_channel);
  const auto event = endpoint->next_event();
  REQUIRE(event);
  CHECK((event->kind == ChannelEvent::Kind::closed && event->channel == channel && event->reason == control::CloseReason::peer_died));
  CHECK_FALSE(endpoint->next_event());
}

TEST_CASE("what the client cannot use of an answer is given back") {
  World world;
  world.service.keep(control::Op::close_channel);
  world.service.keep(control::Op::accept);
  const auto endpoint = world.endpoint();
  // A local channel without its memory.
  const auto grant_broken = [&](const TestService::Request& asked) {
    control::Reply reply = world.service.reply_to(asked);
    reply.channel.kind = control::ChannelKind::local;
    reply.channel.channel = 6;
    world.service.send(reply);
    world.service.count();
  };
  int closed = 0;
  std::thread service([&] {
    for (int i = 0; i < 2; ++i) {
      grant_broken(world.service.take());
      const auto closing = world.service.take();
      closed += closing.header().op == control::Op::close_channel && closing.as<control::CloseChannel>().channel == 6;
      world.service.send(world.service.reply_to(closing));
    }
  });
  const auto connected = endpoint->connect("peer", kSmallChannel);
  const auto accepted = endpoint->accept(RequestId{1});
  service.join();
  CHECK(closed == 2);
  CHECK((!connected && connected.error().code == Errc::protocol));
  CHECK((!accepted && accepted.error().code == Errc::protocol));
}

TEST_CASE("the end of an old channel does not close a new one of the same number") {
  World world;
  const auto endpoint = world.endpoint();
  const auto first = world.local(*endpoint, 2);
  // Both sides close at once, while another connect is in progress, which gets the number.
  const auto pending = endpoint->start_connect("peer", kSmallChannel);
  world.service.send_closed(endpoint->id(), 2);
  world.service.count();
  REQUIRE(endpoint->close(Channel{2}));
  CHECK_FALSE(endpoint->next_event());
  const auto second = world.service.grant_local(world.service.take(), 2);
  REQUIRE(World::wait_connect(*endpoint, *pending) == Channel{2});
  CHECK(endpoint->is_open(Channel{2}));
  CHECK_FALSE(endpoint->next_event());
  CHECK(endpoint->send(Channel{2}, text("hello")) == SendOutcome::sent);
  CHECK(second->has_message());
}

TEST_CASE("messages of a channel that was closed may still be released") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  REQUIRE(peer->send(reinterpret_cast<const std::byte*>("a"), 1) == SendOutcome::sent);
  TestEngine& engine = world.service.end(0).engine;
  REQUIRE(engine.deliver(1, std::vector<std::byte>(256), engine.pop_buffers(1)));
  Message from_local, from_ni;
  REQUIRE(endpoint->receive(from_local));
  REQUIRE(endpoint->receive(from_ni));
  if (!from_local.from_local) std::swap(from_local, from_ni);
  CHECK((from_local.from_local && !from_ni.from_local));
  REQUIRE(endpoint->close(Channel{0}));
  endpoint->release(from_local);
  engine.pop_buffers();
  endpoint->release(from_ni);
  CHECK(engine.pop_buffers() == std::vector<uint32_t>{0});
}

TEST_CASE("what was counted on a channel stays counted when it is closed") {
  World world;
  const auto endpoint = world.endpoint();
  const auto first = world.local(*endpoint, 0), second = world.local(*endpoint, 1);
  REQUIRE(endpoint->send(Channel{0}, text("four")) == SendOutcome::sent);
  REQUIRE(endpoint->send(Channel{1}, text("sixteen")) == SendOutcome::sent);
  REQUIRE(first->send(nullptr, 0) == SendOutcome::sent);
  Message message;
  REQUIRE(endpoint->receive(message));
  endpoint->release(message);
  const auto before = endpoint->counters();
  REQUIRE(endpoint->close(Channel{0}));
  CHECK(endpoint->counters() == before);
  const auto third = world.local(*endpoint, 0);
  REQUIRE(endpoint->close(Channel{1}));
  CHECK(endpoint->counters() == before);
  CHECK(std::find(before.begin(), before.end(), std::pair<std::string_view, uint64_t>{"local_sent_bytes", 11}) != before.end());
}

TEST_CASE("what had arrived before the peer closed can still be received") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  REQUIRE(peer->send(reinterpret_cast<const std::byte*>("a"), 1) == SendOutcome::sent);
  world.service.send_closed(endpoint->id(), 0);
  world.service.count();
  CHECK(endpoint->next_event());
  CHECK_FALSE(endpoint->is_open(Channel{0}));
  Message message;
  REQUIRE(endpoint->receive(message));
  CHECK(message.length == 1);
  endpoint->release(message);
  CHECK(endpoint->close(Channel{0}));
  CHECK_FALSE(endpoint->close(Channel{0}));
}

TEST_CASE("a request is accepted as soon as it is there, before the service has counted it") {
  World world;
  world.service.keep(control::Op::accept);
  const auto endpoint = world.endpoint();
  std::thread service([&] {
    world.service.send_request(endpoint->id(), 9);  // and is not counted
    world.service.grant_ni(world.service.take(), 1);
  });
  ConnectionRequest from;
  const auto channel = endpoint->accept(kHang / 2, &from);
  service.join();
  CHECK((channel && from.id == RequestId{9}));
}

TEST_CASE("a connect is answered once, and nothing else is") {
  World world;
  const auto endpoint = world.endpoint();
  const auto not_under_way = [&](PendingId pending) {
    const auto answer = endpoint->poll_connect(pending);
    return answer && !*answer && answer->error().code == Errc::invalid_argument;
  };
  CHECK(not_under_way(PendingId{12345}));
  const auto pending = endpoint->start_connect("peer");
  REQUIRE(pending);
  CHECK(not_under_way(PendingId{static_cast<uint64_t>(*pending) + 1}));
  world.service.grant_ni(world.service.take(), 2);
  // A wrong request does not replace the one in progress.
  CHECK(endpoint->wait(kHang) == WaitOutcome::ready);
  CHECK(World::wait_connect(*endpoint, *pending) == Channel{2});
  CHECK(not_under_way(*pending));
  CHECK_FALSE(endpoint->cancel_connect(*pending));
}

TEST_CASE("a connect that was cancelled keeps no channel and no descriptor, and wakes nobody") {
  World world;
  world.service.keep(control::Op::close_channel);
  const auto endpoint = world.endpoint();
  const auto pending = endpoint->start_connect("peer", kSmallChannel);
  REQUIRE(pending);
  const auto asked = world.service.take();
  const bool is_late = GENERATE(true, false);
  if (is_late) REQUIRE(endpoint->cancel_connect(*pending));
  const auto peer = world.service.grant_local(asked, 4);
  if (!is_late) {
    CHECK(endpoint->wait(kHang) == WaitOutcome::ready);
    REQUIRE(endpoint->cancel_connect(*pending));
  }
  endpoint->connection().process();
  CHECK(world.service.take().as<control::CloseChannel>().channel == 4);
  CHECK(endpoint->wait(0) == WaitOutcome::timed_out);
  CHECK_FALSE(endpoint->is_open(Channel{4}));
}

TEST_CASE("an endpoint leaves nothing behind in its connection") {
  World world;
  world.service.keep(control::Op::close_channel);
  const auto other = world.endpoint();
  auto endpoint = world.endpoint();
  const uint32_t id = endpoint->id();
  const auto answered = endpoint->start_connect("peer");
  const auto unanswered = endpoint->start_connect("peer");
  REQUIRE((answered && unanswered));
  const auto first = world.service.take(), second = world.service.take();
  world.service.grant_ni(first, 3);
  world.service.send_closed(id, 9);
  world.service.send_request(id, 1);
  endpoint.reset();
  CHECK(world.service.take().as<control::CloseChannel>().channel == 3);
  CHECK(other->connection().take_events(id).empty());
  // The service must not answer afterwards either: no caller could close the channel.
  CHECK_FALSE(other->connection().take_answer(static_cast<uint64_t>(*answered)));
  CHECK_FALSE(other->connection().take_answer(static_cast<uint64_t>(*unanswered)));
}

// ---- processes

TEST_CASE("a child process gives up what it inherited without a word to the service") {
  World world;
  auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  REQUIRE(endpoint->start_connect("peer"));
  const bool with_upcall = GENERATE(false, true);
  if (with_upcall) REQUIRE(endpoint->start_upcall([](Endpoint&) {}));
  ChildProcess child([&] {
    alarm(kHangSeconds);
    if (endpoint->bind("child") || endpoint->connection().take_events(0).size() != 0) return 1;
    endpoint.reset();
    return 0;
  });
  CHECK(child.wait() == 0);
  endpoint->stop_upcall();
  REQUIRE(endpoint->bind("parent"));
  CHECK(world.service.asked(control::Op::destroy_endpoint) == 0);
  CHECK(world.service.asked(control::Op::bind) == 1);
  CHECK(endpoint->send(Channel{0}, text("x")) == SendOutcome::sent);
  CHECK(peer->has_message());
}

// ---- the NI goes away

TEST_CASE("whoever only asks whether the NI is there, or only looks for requests or events, learns that it is gone") {
  World world;
  const auto first = world.endpoint(), second = world.endpoint();
  const Channel one = world.ni(*first, 0), two = world.ni(*second, 0);
  REQUIRE(world.context.alive());
  world.service.die();
  const bool ask = GENERATE(true, false);
  if (ask) CHECK_FALSE(world.context.alive());
  for (int i = 0; i < 10'000 && first->is_open(one); ++i) REQUIRE_FALSE(first->next_request());
  CHECK_FALSE(first->is_open(one));
  std::optional<ChannelEvent> event;
  for (int i = 0; i < 10'000 && !event; ++i) event = second->next_event();
  CHECK((event && event->channel == two));
}

TEST_CASE("looking for events finds the end of an NI that nobody else noticed") {
  World world;
  const auto endpoint = world.endpoint();
  world.ni(*endpoint, 0);
  CHECK_FALSE(endpoint->next_event());
  world.service.die();
  std::optional<ChannelEvent> event;
  for (int i = 0; i < 10'000 && !event; ++i) event = endpoint->next_event();
  CHECK(event);
}

TEST_CASE("every endpoint learns that the NI is gone, whoever noticed first, polling or waiting") {
  World world;
  const auto first = world.endpoint(), second = world.endpoint(), third = world.endpoint();
  const Channel one = world.ni(*first, 0), two = world.ni(*second, 0), three = world.ni(*third, 0);
  Message message;
  for (Endpoint* each : {first.get(), second.get(), third.get()}) REQUIRE_FALSE(each->receive(message));  // all messages have been seen
  world.service.die();
  REQUIRE(first->wait(kHang) == WaitOutcome::ready);  // the event of the close
  CHECK_FALSE(first->is_open(one));
  for (int i = 0; i < 200'000 && second->is_open(two); ++i) REQUIRE_FALSE(second->receive(message));
  CHECK_FALSE(second->is_open(two));
  REQUIRE(third->wait(kHang) == WaitOutcome::ready);
  CHECK_FALSE(third->is_open(three));
  for (Endpoint* each : {first.get(), second.get(), third.get()}) {
    const auto event = each->next_event();
    REQUIRE(event);
    CHECK((event->kind == ChannelEvent::Kind::closed && event->reason == control::CloseReason::ni_stopped));
    CHECK_FALSE(each->next_event());
    CHECK(each->wait(kHang) == WaitOutcome::disconnected);
  }
}

TEST_CASE("local channels go on without the NI, asleep and awake") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  REQUIRE(endpoint->wait(0) == WaitOutcome::timed_out);
  world.service.die();
  CHECK(endpoint->send(Channel{0}, text("x")) == SendOutcome::sent);
  std::thread sender([&] {
    while (peer->has_message()) {
      Message message;
      if (peer->receive(message)) peer->release(message);
    }
    peer->send(reinterpret_cast<const std::byte*>("y"), 1);
  });
  WaitOutcome outcome;
  while ((outcome = endpoint->wait(kHang, 0)) == WaitOutcome::timed_out) {}
  sender.join();
  CHECK(outcome == WaitOutcome::ready);
  Message message;
  CHECK(endpoint->receive(message));
  endpoint->release(message);
  CHECK(endpoint->is_open(Channel{0}));
}

// ---- many channels

TEST_CASE("busy channels do not starve the others, however many there are") {
  World world;
  const auto endpoint = world.endpoint();
  constexpr uint32_t kChannels = 40;
  const uint32_t busy = GENERATE(1u, 8u, 39u);
  std::vector<std::unique_ptr<LocalChannel>> peers;
  for (uint32_t i = 0; i < kChannels; ++i) peers.push_back(world.local(*endpoint, i));
  std::vector<uint32_t> received(kChannels);
  uint32_t total = 0;
  for (uint32_t i = busy; i < kChannels; ++i) REQUIRE(peers[i]->send(nullptr, 0) == SendOutcome::sent);
  const auto all = [&] { return std::all_of(received.begin(), received.end(), [](uint32_t n) { return n > 0; }); };
  while (!all() && total < 100'000) {
    for (uint32_t i = 0; i < busy; ++i) {
      while (peers[i]->send(nullptr, 0) == SendOutcome::sent) {}
    }
    Message message;
    for (int k = 0; k < 3; ++k) {
      if (!endpoint->receive(message)) continue;
      ++received[static_cast<uint32_t>(message.channel)];
      ++total;
      endpoint->release(message);
    }
  }
  for (uint32_t i = 0; i < kChannels; ++i) {
    CAPTURE(busy, i);
    CHECK(received[i] > 0);
  }
}

TEST_CASE("all that has arrived on many quiet channels is received within as many looks as it takes to see them all") {
  World world;
  const auto endpoint = world.endpoint();
  constexpr uint32_t kChannels = 40;
  std::vector<std::unique_ptr<LocalChannel>> peers;
  for (uint32_t i = 0; i < kChannels; ++i) peers.push_back(world.local(*endpoint, i));
  for (uint32_t round = 0; round < 5; ++round) {
    for (const auto& peer : peers) REQUIRE(peer->send(nullptr, 0) == SendOutcome::sent);
    uint32_t received = 0;
    Message message;
    for (uint32_t look = 0; look < 4 * kChannels && received < kChannels; ++look) {
      if (!endpoint->receive(message)) continue;
      ++received;
      endpoint->release(message);
    }
    CHECK(received == kChannels);
    CHECK(endpoint->wait(0) == WaitOutcome::timed_out);
  }
}

TEST_CASE("an endpoint that moves keeps its channels and messages") {
  World world;
  auto first = world.endpoint();
  const auto peer = world.local(*first, 0);
  const std::byte byte{7};
  REQUIRE(peer->send(&byte, 1) == SendOutcome::sent);
  Endpoint second = std::move(*first);
  first.reset();  // a moved-from endpoint closes nothing
  Message message;
  REQUIRE(second.receive(message));
  CHECK(message.bytes()[0] == byte);
  second.release(message);
  CHECK(second.is_open(Channel{0}));
  Endpoint third = std::move(*world.context.create_endpoint(kSmall));
  third = std::move(second);
  CHECK(third.send(Channel{0}, {&byte, 1}) == SendOutcome::sent);
  CHECK(peer->has_message());
}

}  // namespace
}  // namespace unet::endpoint_test
