// late_test.cc - asynchronous requests, channels opened late, exposed segments, peers that leave; which peers are accepted, under which
// name.
#include <unistd.h>

#include <catch2/catch.hpp>

#include "am/test_world.h"

using namespace unet;
using namespace unet::am;

namespace {

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  return bytes;
}

}  // namespace

TEST_CASE("an asynchronous request never waits, and gives its payload back once") {
  const auto path = EITHER_PATH;
  const bool exposed = GENERATE(true, false);
  const size_t size = GENERATE(0, 1, 5000, 3'000'000);
  World world;
  auto a = world.make(), b = world.make();
  std::vector<std::byte> own(size);
  if (exposed && size != 0) {
    REQUIRE(b->expose(size));
  } else {
    REQUIRE(b->set_segment(own));
  }
  REQUIRE(b->bind("b"));
  uint32_t arrived = 0, done = 0;
  b->set_handler(kEcho, count, &arrived);
  {
    auto mapping = std::move(*Bundle::create());
    mapping->add(*a);
    mapping->add(*b);
    REQUIRE(a->map(0, "b", kAnyTag, by(path)));
  }
  const auto payload = pattern(size);
  const auto note_done = [](am::Endpoint& endpoint, void* context) {
    ++*static_cast<uint32_t*>(context);
    CHECK(endpoint.request(0, kEcho) == Outcome::bad_call);
  };
  // The peer takes nothing, so none of these calls may wait.
  const std::array<uint32_t, 2> arguments{1, 2};
  uint32_t sent = 0;
  Outcome outcome = Outcome::sent;
  // The first few requests exceed all credits together. Later requests are short, as a full queue of long ones would keep the NI busy for
  // long.
  const auto part = [&] { return std::span(payload).first(sent < 4 ? size : std::min<size_t>(size, 5000)); };
  while (sent < 1000 && (outcome = a->request_long_async(0, kEcho, 0, part(), arguments, note_done, &done)) == Outcome::sent) ++sent;
  CHECK(outcome == Outcome::not_sent);
  CHECK(sent > 0);
  CHECK(done < sent);
  CHECK(a->request_long_async(0, kEcho, 0, payload, std::vector<uint32_t>(17), note_done, &done) == Outcome::bad_call);
  const Nanoseconds end = monotonic_now() + 60 * kSecond;
  while ((arrived < sent || done < sent) && monotonic_now() < end) a->poll(), b->poll();
  CHECK(arrived == sent);
  CHECK(done == sent);
  CHECK(a->counters().completed == sent);
  CHECK(std::equal(payload.begin(), payload.end(), b->segment().begin()));
}

TEST_CASE("what a local peer exposes is memory here, too") {
  constexpr uint64_t kBytes = 10'000;
  World world;
  auto a = world.add(), b = world.add();
  REQUIRE(b->expose(kBytes));
  REQUIRE(b->bind("b"));
  CHECK(a->peer_segment(0).empty());
  CHECK(!a->is_open(0));
  REQUIRE(a->map(0, "b", kAnyTag, by(EITHER_PATH)));
  const MutableBytes there = a->peer_segment(0);
  CHECK(a->is_open(0));
  if (a->is_local(0)) {
    REQUIRE(there.size() >= kBytes);
    there[kBytes - 1] = std::byte{42};
    CHECK(b->segment()[kBytes - 1] == std::byte{42});
    b->segment()[0] = std::byte{7};
    CHECK(there[0] == std::byte{7});
  } else {
    CHECK(there.empty());
  }
  b.reset();
  until(*world.bundle, [&] { return !a->is_open(0); });
}

TEST_CASE("a segment that a peer exposes after somebody has asked is there for the next who asks") {
  World world;
  auto a = world.add(), b = world.add();
  REQUIRE(b->bind("b"));
  REQUIRE(a->map(0, "b", kAnyTag, by(control::Path::local)));
  CHECK(a->peer_segment(0).empty());
  REQUIRE(b->expose(64));
  CHECK(a->peer_segment(0).size() >= 64);
}

TEST_CASE("what a peer among many has sent is handled before its end") {
  constexpr uint32_t kPeers = 40;
  World world;
  uint32_t heard = 0;
  auto b = world.add();
  b->set_handler(kEcho, count, &heard);
  REQUIRE(b->bind("b"));
  std::vector<std::unique_ptr<am::Endpoint>> peers;
  for (uint32_t i = 0; i < kPeers; ++i) {
    peers.push_back(world.add());
    REQUIRE(peers.back()->map(0, "b", kAnyTag, by(control::Path::local)));
  }
  world.bundle.reset();
  for (uint32_t gone = 1; gone <= kPeers; ++gone) {
    REQUIRE(peers.back()->request(0, kEcho) == Outcome::sent);
    peers.pop_back();
    while (b->peers() > kPeers - gone) b->wait(kSecond);
    REQUIRE(heard == gone);
  }
}

TEST_CASE("asynchronous requests to a peer that goes give their payloads back, and come back") {
  const bool by_unmap = GENERATE(true, false);
  World world;
  auto a = world.add(), b = world.add();
  std::vector<std::byte> own(3'000'000);
  REQUIRE(b->set_segment(own));
  REQUIRE(b->bind("b"));
  std::vector<ReturnStatus> back;
  a->set_error_handler(note, &back);
  REQUIRE(a->map(0, "b"));
  world.bundle->remove(*b);
  uint32_t done = 0;
  const auto note_done = [](am::Endpoint&, void* context) { ++*static_cast<uint32_t*>(context); };
  REQUIRE(a->request_long_async(0, kEcho, 0, own, {}, note_done, &done) == Outcome::sent);
  CHECK(done == 0);
  if (by_unmap) {
    REQUIRE(a->unmap(0));
  } else {
    b.reset();
    until(*world.bundle, [&] { return done != 0; });
  }
  CHECK(done == 1);
  CHECK(back == std::vector<ReturnStatus>{ReturnStatus::unreachable});
}

TEST_CASE("a translation whose channel opens with the first request") {
  const auto path = EITHER_PATH;
  World world;
  auto a = world.add(), b = world.add();
  std::vector<ReturnStatus> back;
  uint32_t answers = 0;
  a->set_error_handler(note, &back);
  a->set_handler(kAnswer, count, &answers);
  b->set_handler(kEcho, echo, nullptr);
  CHECK_FALSE(a->in_use(3));
  REQUIRE(a->start_map(3, "b", kAnyTag, by(path)));
  CHECK(a->in_use(3));
  CHECK_FALSE(a->is_mapped(3));
  CHECK(a->start_map(3, "b").error().code == Errc::already_exists);
  // No endpoint has that name yet.
  CHECK(a->request(3, kEcho, 1u) == Outcome::returned);
  CHECK(back == std::vector<ReturnStatus>{ReturnStatus::bad_endpoint});
  CHECK(a->in_use(3));
  REQUIRE(b->bind("b"));
  CHECK(a->request_long_async(3, kEcho, 0, {}, {}, nullptr, nullptr) == Outcome::not_sent);
  CHECK(a->request(3, kEcho, 1u) == Outcome::sent);
  CHECK(a->is_mapped(3));
  until(*world.bundle, [&] { return answers == 1; });
  REQUIRE(a->unmap(3));
  CHECK_FALSE(a->in_use(3));
  REQUIRE(a->start_map(3, "b", kAnyTag, by(path)));
  REQUIRE(a->unmap(3));
  CHECK(a->request(3, kEcho, 1u) == Outcome::returned);
  CHECK(back.back() == ReturnStatus::bad_entry);
  CHECK(a->start_map(3, "no name").error().code == Errc::invalid_argument);
  CHECK(a->map(3, "nobody").error().code == Errc::not_found);
  CHECK_FALSE(a->in_use(3));
}

TEST_CASE("an asynchronous request by a translation that cannot be opened comes back, and the next one tries again") {
  World world;
  auto a = world.add(), b = world.add();
  std::vector<ReturnStatus> back;
  uint32_t arrived = 0;
  a->set_error_handler(note, &back);
  b->set_handler(kEcho, count, &arrived);
  REQUIRE(a->start_map(3, "b", kAnyTag, by(EITHER_PATH)));
  const auto outcome = [&] {
    Outcome last = Outcome::not_sent;
    const Nanoseconds end = monotonic_now() + 20 * kSecond;
    while (last == Outcome::not_sent && monotonic_now() < end) {
      last = a->request_long_async(3, kEcho, 0, {}, {}, nullptr, nullptr);
      world.bundle->wait(kMillisecond, 0);
    }
    return last;
  };
  CHECK(outcome() == Outcome::returned);
  CHECK(outcome() == Outcome::returned);
  CHECK(back == std::vector<ReturnStatus>(2, ReturnStatus::bad_endpoint));
  REQUIRE(b->bind("b"));
  CHECK(outcome() == Outcome::sent);
  until(*world.bundle, [&] { return arrived == 1; });
}

TEST_CASE("a refusal that somebody else sees first ends the mapping") {
  World world;
  const am::Options options{.admit = [](const ConnectionRequest&, void*) { return false; }};
  auto a = world.add(), b = world.add(options), c = world.add();
  REQUIRE(b->bind("b"));
  // Each poll of the bundle checks the endpoints' openings after b has refused.
  for (uint32_t i = 0; i < 50; ++i) CHECK(a->map(0, "b").error().code == Errc::refused);
  CHECK(b->counters().not_admitted == 50);
}

TEST_CASE("handlers learn by what name to map who sent the message") {
  const auto path = EITHER_PATH;
  const bool named = GENERATE(true, false);
  World world;
  auto a = world.add(), b = world.add();
  if (named) REQUIRE(a->bind("some/a"));
  REQUIRE(b->bind("b"));
  struct Seen {
    std::string name = "none yet";
    Index index = 0;
  } at_b, at_a;
  const HandlerFunction look = [](Token& token, void* context) {
    *static_cast<Seen*>(context) = {std::string(token.source_name()), token.index()};
    if (token.is_request()) token.reply(kAnswer);
  };
  b->set_handler(kWho, look, &at_b);
  a->set_handler(kAnswer, look, &at_a);
  REQUIRE(a->map(5, "b", kAnyTag, by(path)));
  a->request(5, kWho);
  until(*world.bundle, [&] { return at_a.index == 5; });
  CHECK(at_b.name == (named ? "some/a" : ""));
  CHECK(at_b.index == kNoIndex);
  CHECK(at_a.name == "b");
  CHECK(a->counters().requests == 1);
}

TEST_CASE("who is let in") {
  World world;
  struct Rule {
    bool yes = false;
    std::string peer;
    int uid = -2;
  } rule;
  const am::Options options{.admit = [](const ConnectionRequest& request, void* context) {
    Rule& it = *static_cast<Rule*>(context);
    it.peer = request.peer;
    it.uid = request.peer_uid;
    return it.yes;
  }, .admit_context = &rule};
  auto a = world.add(), b = world.add(options);
  REQUIRE(a->bind("a"));
  REQUIRE(b->bind("b"));
  CHECK(a->map(0, "b").error().code == Errc::refused);
  CHECK(rule.peer == "a");
  CHECK(rule.uid == static_cast<int>(::getuid()));
  CHECK(b->counters().not_admitted == 1);
  rule.yes = true;
  CHECK(a->map(0, "b"));
}

TEST_CASE("an endpoint that is destroyed gives the payloads of its asynchronous requests back") {
  World world;
  auto a = world.add(), b = world.add();
  std::vector<std::byte> own(3'000'000);
  REQUIRE(b->set_segment(own));
  REQUIRE(b->bind("b"));
  REQUIRE(a->map(0, "b"));
  world.bundle->remove(*b);
  uint32_t done = 0;
  REQUIRE(a->request_long_async(0, kEcho, 0, own, {}, [](am::Endpoint&, void* context) { ++*static_cast<uint32_t*>(context); }, &done) ==
          Outcome::sent);
  CHECK(done == 0);
  a.reset();
  CHECK(done == 1);
}

TEST_CASE("an endpoint that goes tells its peers over wires what it has handled: nothing of that comes back") {
  World world;
  am::Options silent;
  silent.flow.ack_delay = 60 * kSecond;  // so that only its end makes it report what it has handled
  auto a = world.add(), b = world.add(silent);
  uint32_t heard = 0;
  std::vector<ReturnStatus> returned;
  b->set_handler(kEcho, count, &heard);
  a->set_error_handler(note, &returned);
  REQUIRE(b->bind("b"));
  REQUIRE(a->map(0, "b", kAnyTag, by(control::Path::ni)));
  SECTION("by its destructor") {
    for (int i = 0; i < 3; ++i) REQUIRE(a->request(0, kEcho) == Outcome::sent);
    until(*world.bundle, [&] { return heard == 3; });
    b.reset();
  }
  SECTION("by flush(), when the process then just ends") {
    for (int i = 0; i < 3; ++i) REQUIRE(a->request(0, kEcho) == Outcome::sent);
    until(*world.bundle, [&] { return heard == 3; });
    CHECK(b->flush(0));
    until(*world.bundle, [&] { return a->flow(0)->unhandled() == 0; });
  }
  if (b == nullptr) until(*world.bundle, [&] { return !a->is_open(0); });
  CHECK(returned.empty());
  CHECK(a->flow(0)->unhandled() == 0);
}
