// matching_test.cc - the order in which receives and messages find each other.
#include <catch2/catch.hpp>

#include <deque>

#include "fabric/matching.h"
#include "fabric/peers.h"

using namespace unet::fabric;

namespace {

constexpr uint64_t kAll = ~uint64_t{0};

struct Bench {
  Peer a, b;
  std::deque<Posted> receives;
  std::deque<Arrived> messages;
  Matcher matcher;

  Posted& post(Selector selector, void* context = nullptr) {
    Posted& receive = receives.emplace_back();
    receive.selector = selector;
    receive.context = context;
    matcher.add(receive);
    return receive;
  }
  Arrived& arrive(Peer& from, uint64_t tag) {
    Arrived& message = messages.emplace_back();
    message.envelope.peer = &from;
    message.envelope.tag = tag;
    matcher.add(message);
    return message;
  }
};

}  // namespace

TEST_CASE("a message matches the oldest receive with its tag") {
  Bench bench;
  bench.post({.tag = 1});
  Posted& second = bench.post({.tag = 2});
  bench.post({.tag = 2});
  REQUIRE(bench.matcher.match(&bench.a, 2) == &second);
  REQUIRE(bench.matcher.match(&bench.a, 3) == nullptr);
}

TEST_CASE("a receive that ignores all bits is in turn with others") {
  Bench bench;
  Posted& exact = bench.post({.tag = 7});
  Posted& any = bench.post({.ignore = kAll});
  REQUIRE(bench.matcher.match(&bench.a, 7) == &exact);
  bench.matcher.remove(exact);
  REQUIRE(bench.matcher.match(&bench.a, 7) == &any);
}

TEST_CASE("ignored bits do not count, others do") {
  Bench bench;
  Posted& receive = bench.post({.tag = 0xAB00, .ignore = 0x00FF});
  REQUIRE(bench.matcher.match(&bench.a, 0xAB42) == &receive);
  REQUIRE(bench.matcher.match(&bench.a, 0xAC42) == nullptr);
}

TEST_CASE("a receive from one source takes no other's messages") {
  Bench bench;
  Posted& from_b = bench.post({.source = &bench.b, .ignore = kAll});
  REQUIRE(bench.matcher.match(&bench.a, 1) == nullptr);
  REQUIRE(bench.matcher.match(&bench.b, 1) == &from_b);
}

TEST_CASE("a receive matches the oldest message, and each source is in order") {
  Bench bench;
  Arrived& first = bench.arrive(bench.a, 1);
  Arrived& second = bench.arrive(bench.b, 1);
  bench.arrive(bench.a, 1);
  REQUIRE(bench.matcher.match({.tag = 1}) == &first);
  REQUIRE(bench.matcher.match({.source = &bench.b, .tag = 1}) == &second);
  bench.matcher.remove(first);
  REQUIRE(bench.matcher.match({.tag = 1}) == &second);
}

TEST_CASE("a claimed message goes to the receive with its context alone") {
  Bench bench;
  int context = 0, other = 0;
  Arrived& message = bench.arrive(bench.a, 1);
  bench.matcher.claim(message, &context);
  REQUIRE(bench.matcher.match({.ignore = kAll}) == nullptr);
  REQUIRE(bench.matcher.take_claimed(&other) == nullptr);
  REQUIRE(bench.matcher.take_claimed(&context) == &message);
  REQUIRE(bench.matcher.take_claimed(&context) == nullptr);
}

TEST_CASE("items leave a list from its beginning, middle and end") {
  Bench bench;
  int contexts[3];
  Posted* posted[3];
  for (int i = 0; i < 3; ++i) posted[i] = &bench.post({.tag = 5}, &contexts[i]);
  REQUIRE(bench.matcher.find(&contexts[1]) == posted[1]);
  bench.matcher.remove(*posted[1]);
  REQUIRE(bench.matcher.find(&contexts[1]) == nullptr);
  bench.matcher.remove(*posted[0]);
  REQUIRE(bench.matcher.match(&bench.a, 5) == posted[2]);
  bench.matcher.remove(*posted[2]);
  REQUIRE(bench.matcher.posted().empty());
  bench.post({.tag = 5});
  REQUIRE(bench.matcher.match(&bench.a, 5) == bench.matcher.posted().first());
}

TEST_CASE("a buffer of several pieces is written and read at any offset") {
  char one[3] = {}, two[1] = {}, three[4] = {};
  const iovec pieces[] = {{one, sizeof one}, {two, sizeof two}, {nullptr, 0}, {three, sizeof three}};
  const Buffer buffer(pieces);
  REQUIRE(buffer.size() == 8);
  REQUIRE(buffer.write(0, unet::as_bytes("abcdefghij", 10)) == 8);
  REQUIRE(std::string(one, 3) + two[0] + std::string(three, 4) == "abcdefgh");
  REQUIRE(buffer.write(2, unet::as_bytes("XYZ", 3)) == 3);
  char whole[6];
  buffer.read(1, {reinterpret_cast<std::byte*>(whole), sizeof whole});
  REQUIRE(std::string(whole, 6) == "bXYZfg");
  REQUIRE(buffer.write(8, unet::as_bytes("!", 1)) == 0);
}
