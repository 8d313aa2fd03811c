// trust_test.cc - what an Active Message endpoint accepts from which peers: admission, users, and peers that cheat.
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <vector>

#include "am/test_world.h"

using namespace unet;
using namespace unet::am;

namespace {

constexpr uint8_t kSilent = 5;

// Opens a channel to `a`, by the name that it binds, from an endpoint without Active Messages.
Channel connect(unet::Endpoint& liar, am::Endpoint& a) {
  REQUIRE(a.bind("a"));
  const auto pending = liar.start_connect("a", {.path = control::Path::local});
  REQUIRE(pending);
  std::optional<Result<Channel>> channel;
  while (!(channel = liar.poll_connect(*pending))) a.poll();
  REQUIRE(*channel);
  return **channel;
}
// Maps translation 0 of `a` to such an endpoint.
Channel be_mapped(unet::Endpoint& liar, am::Endpoint& a) {
  REQUIRE(liar.bind("liar"));
  REQUIRE(a.start_map(0, "liar", kAnyTag, {.path = control::Path::local}));
  const auto channel = liar.accept(60 * kSecond, nullptr);
  REQUIRE(channel);
  while (!a.is_mapped(0)) a.wait(kMillisecond);
  return *channel;
}

}  // namespace

TEST_CASE("a request by the channel that was opened to ask runs no handler, whatever it says") {
  const TestDaemon daemon;
  Context context = *Context::open(daemon.ni(), "test");
  auto a = std::move(*am::Endpoint::create(context));
  auto liar = std::make_unique<unet::Endpoint>(*context.create_endpoint());
  uint32_t heard = 0;
  std::vector<std::byte> memory(64, std::byte{1});
  a->set_handler(kEcho, count, &heard);
  REQUIRE(a->set_segment(memory));
  const Channel channel = be_mapped(*liar, *a);
  const auto say = [&](PacketFields fields, size_t payload) {
    std::array<std::byte, 2 * sizeof(LocalHeader) + 128> message{};
    const size_t head = local_head_size(fields.kind, fields.count, fields.flags, payload != 0);
    emit_local_head(message.data(), fields);
    REQUIRE(liar->send(channel, {message.data(), head + payload}) == SendOutcome::sent);
    for (int i = 0; i < 10; ++i) a->poll();
  };
  say(PacketFields({.kind = Kind::short_request, .handler = kEcho}), 0);
  say(PacketFields({.kind = Kind::medium_request, .handler = kEcho, .flags = PacketFlags::kName}), 8);
  say(PacketFields({.kind = Kind::long_request, .handler = kEcho}, 8, 16), 16);
  say(PacketFields({.kind = Kind::long_piece}, 8, 16), 16);
  say(PacketFields({.kind = Kind::get_request, .handler = kEcho}, 0, 8), 0);
  CHECK(a->counters().bad_request == 5);
  CHECK(a->counters().malformed == 0);
  CHECK(heard == 0);
  CHECK(std::count(memory.begin(), memory.end(), std::byte{1}) == 64);
  Message message;
  CHECK_FALSE(liar->receive(message));
}

TEST_CASE("a long request of one line is taken if it lies in the segment, and returned if not") {
  const TestDaemon daemon;
  Context context = *Context::open(daemon.ni(), "test");
  auto a = std::move(*am::Endpoint::create(context));
  auto liar = std::make_unique<unet::Endpoint>(*context.create_endpoint());
  std::vector<std::byte> memory(100);
  REQUIRE(a->set_segment(memory));
  std::vector<std::pair<uint64_t, size_t>> taken;
  a->set_handler(kEcho, [](am::Token& token, void* list) {
    REQUIRE(token.arguments().size() == 2);
    static_cast<decltype(taken)*>(list)->emplace_back(token.payload().data() - token.endpoint().segment().data(), token.payload().size());
  }, &taken);
  const Channel channel = connect(*liar, *a);
  constexpr uint64_t kFar = ~uint64_t{0};
  for (const LocalLong part : {LocalLong{0, 100}, {1, 100}, {101, 0}, {kFar, 2}, {2, kFar}, {100, 0}, {40, 60}}) {
    std::array<std::byte, sizeof(LocalHeader) + 8 + sizeof(LocalLong)> line;
    emit_long_line(line.data(), kEcho, 0, std::array<uint32_t, 2>{1, 2}, part);
    REQUIRE(liar->send(channel, line) == SendOutcome::sent);
    for (int i = 0; i < 100; ++i) a->poll();
  }
  CHECK(taken == std::vector<std::pair<uint64_t, size_t>>{{0, 100}, {100, 0}, {40, 60}});
  CHECK(a->counters().refused == 4);
}

TEST_CASE("what was reserved is not sent without a credit") {
  const TestDaemon daemon;
  Context context = *Context::open(daemon.ni(), "test");
  auto a = std::move(*am::Endpoint::create(context));
  auto silent = std::make_unique<unet::Endpoint>(*context.create_endpoint());
  be_mapped(*silent, *a);
  REQUIRE(a->reserve(0, 100, 0).size() == 100);
  for (uint32_t i = 0; i < kFlowWindow; ++i) REQUIRE(a->request(0, kEcho, i) == Outcome::sent);
  CHECK(a->commit(kEcho, 100, {}) == Outcome::bad_call);
  CHECK_FALSE(a->has_credit(0));
}

TEST_CASE("a peer that gives credits back without the reply to a get: the get keeps its place, and one reply is all that counts") {
  const TestDaemon daemon;
  Context context = *Context::open(daemon.ni(), "test");
  auto a = std::move(*am::Endpoint::create(context));
  auto liar = std::make_unique<unet::Endpoint>(*context.create_endpoint());
  const Channel to_a = be_mapped(*liar, *a);
  uint32_t heard = 0;
  std::vector<ReturnStatus> back;
  a->set_handler(kAnswer, count, &heard);
  a->set_error_handler(note, &back);
  const auto say = [&](PacketFields fields, Bytes payload) {
    std::vector<std::byte> message(local_head_size(fields.kind, fields.count, fields.flags, !payload.empty()));
    emit_local_head(message.data(), fields);
    message.insert(message.end(), payload.begin(), payload.end());
    REQUIRE(liar->send(to_a, message) == SendOutcome::sent);
    for (int i = 0; i < 100; ++i) a->poll();
    for (Message each; liar->receive(each);) liar->release(each);
  };
  std::vector<std::byte> memory(16);
  REQUIRE(a->get(0, kAnswer, 0, memory, {}) == Outcome::sent);
  for (uint32_t i = 1; i < kFlowWindow; ++i) REQUIRE(a->request(0, kSilent, i) == Outcome::sent);
  say(PacketFields({.kind = Kind::ack, .handled = kFlowWindow}), {});
  CHECK_FALSE(a->has_credit(0));
  const auto content = std::vector<std::byte>(16, std::byte{3});
  const PacketFields reply({.kind = Kind::long_reply, .flags = PacketFlags::kGet, .handled = kFlowWindow}, 0, 16);
  say(reply, content);
  CHECK(heard == 1);
  CHECK(memory == content);
  CHECK(a->has_credit(0));
  say(reply, std::vector<std::byte>(16, std::byte{4}));
  CHECK(a->counters().bad_reply == 1);
  CHECK(memory == content);
  // When the peer ends, each get is returned once, whether its credit came back or not, and is never answered.
  for (uint32_t i = 1; i <= 2; ++i) REQUIRE(a->get(0, kAnswer, 0, memory, std::array{i}) == Outcome::sent);
  say(PacketFields({.kind = Kind::ack, .handled = kFlowWindow + 1}), {});
  liar.reset();
  const Nanoseconds end = monotonic_now() + 60 * kSecond;
  while (back.empty() && monotonic_now() < end) a->poll();
  CHECK(back == std::vector<ReturnStatus>(2, ReturnStatus::unreachable));
  CHECK(heard == 1);
}

TEST_CASE("a reply from somebody who was asked nothing runs no handler") {
  const TestDaemon daemon;
  Context context = *Context::open(daemon.ni(), "test");
  auto a = std::move(*am::Endpoint::create(context));
  auto liar = std::make_unique<unet::Endpoint>(*context.create_endpoint());
  uint32_t heard = 0;
  a->set_handler(kAnswer, count, &heard);
  const Channel channel = connect(*liar, *a);
  std::array<std::byte, sizeof(LocalHeader)> message;
  emit_local_head(message.data(), PacketFields({.kind = Kind::short_reply, .handler = kAnswer}));
  REQUIRE(liar->send(channel, message) == SendOutcome::sent);
  for (int i = 0; i < 100; ++i) a->poll();
  CHECK(heard == 0);
  CHECK(a->counters().bad_reply == 1);
}

TEST_CASE("of the same user only") {
  const am::Options ours{.same_user_only = true};
  const ConnectOptions by_path{.path = GENERATE(control::Path::local, control::Path::ni), .local = kLocalOptions};

  SECTION("one is let in and mapped") {
    const TestDaemon daemon;
    Context context = *Context::open(daemon.ni(), "test");
    auto bundle = std::move(*Bundle::create(Threads::one));
    auto a = std::move(*am::Endpoint::create(context, ours)), b = std::move(*am::Endpoint::create(context, ours));
    bundle->add(*a);
    bundle->add(*b);
    REQUIRE(a->bind("a"));
    REQUIRE(b->bind("b"));
    CHECK(a->map(0, "b", kAnyTag, by_path));
    CHECK(b->map(0, "a", kAnyTag, by_path));
  }
  SECTION("another is neither") {
    if (::geteuid() != 0 || std::getenv("UNET_TEST_NI") != nullptr) return;
    if (::syscall(SYS_setresuid, -1, 65533, -1) != 0) {
      WARN("skipped: root cannot be another user here");
      return;
    }
    REQUIRE(::syscall(SYS_setresuid, -1, 0, -1) == 0);
    const TestDaemon daemon("[[rule]]\nany = true\nnames = ['*']\n");
    Context context = *Context::open(daemon.ni(), "test");
    // Changes only this thread's user, and only while it connects.
    REQUIRE(::syscall(SYS_setresuid, -1, 65533, -1) == 0);
    auto opened = Context::open(daemon.ni(), "test");
    REQUIRE(::syscall(SYS_setresuid, -1, 0, -1) == 0);
    REQUIRE(opened);
    Context others = std::move(*opened);
    auto bundle = std::move(*Bundle::create(Threads::one));
    std::vector<ReturnStatus> back;
    auto a = std::move(*am::Endpoint::create(context, ours)), squatter = std::move(*am::Endpoint::create(others));
    a->set_error_handler(note, &back);
    bundle->add(*a);
    bundle->add(*squatter);
    REQUIRE(a->bind("a"));
    REQUIRE(squatter->bind("b"));
    CHECK(squatter->map(0, "a", kAnyTag, by_path).error().code == Errc::refused);
    CHECK(a->counters().not_admitted != 0);
    const Status mapped = a->map(0, "b", kAnyTag, by_path);
    REQUIRE_FALSE(mapped);
    CHECK(mapped.error().code == Errc::not_permitted);
    CHECK_FALSE(a->in_use(0));
    REQUIRE(a->start_map(0, "b", kAnyTag, by_path));
    CHECK(a->request(0, kEcho) == Outcome::returned);
    CHECK(back == std::vector<ReturnStatus>{ReturnStatus::bad_endpoint});
    CHECK(squatter->counters().handled == 0);
  }
}

TEST_CASE("a secret in the tag, for those that are not on a local channel") {
  World world;
  auto a = world.add(), b = world.add();
  uint32_t heard = 0;
  std::vector<ReturnStatus> back;
  std::vector<std::byte> memory(64, std::byte{1}), zeros(16);
  a->set_handler(kSilent, count, &heard);
  REQUIRE(a->set_segment(memory));
  a->require_tag_bits(0xAB02, 0xFF00);  // the lowest byte may have any value
  b->set_error_handler(note, &back);
  REQUIRE(a->bind("a"));
  REQUIRE(b->map(0, "a", 0xAB07, by(control::Path::ni)));
  REQUIRE(b->map(1, "a", 0xAC07, by(control::Path::ni)));
  REQUIRE(b->map(2, "a", kAnyTag, by(control::Path::ni)));
  REQUIRE(b->map(3, "a", 0x07, by(control::Path::local)));
  for (Index i = 0; i < 4; ++i) REQUIRE(b->request(i, kSilent) == Outcome::sent);
  until(*world.bundle, [&] { return heard == 2 && back.size() == 2; });
  CHECK(heard == 2);
  CHECK(back == std::vector<ReturnStatus>{ReturnStatus::bad_tag, ReturnStatus::bad_tag});
  // It neither writes nor reports anything.
  REQUIRE(b->request_long(1, kSilent, 0, zeros, {}) == Outcome::sent);
  REQUIRE(b->get(1, kSilent, 0, zeros, {}) == Outcome::sent);
  until(*world.bundle, [&] { return back.size() == 4; });
  CHECK(std::count(memory.begin(), memory.end(), std::byte{1}) == 64);
  CHECK(std::count(zeros.begin(), zeros.end(), std::byte{0}) == 16);
  CHECK(back[2] == ReturnStatus::bad_tag);
  CHECK(back[3] == ReturnStatus::bad_tag);
  CHECK(heard == 2);
  CHECK(a->counters().refused >= 4);
}
