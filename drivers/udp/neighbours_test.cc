// neighbours_test.cc - two stations that ask each other, missing answers, and messages that must not be believed.
#include "drivers/udp/neighbours.h"

#include <catch2/catch.hpp>

#include <random>

using namespace unet;
using namespace unet::drivers;

namespace {

using Message = Neighbours::Message;

constexpr MacAddress kA{2, 0, 0, 0, 0, 1}, kB{2, 0, 0, 0, 0, 2}, kC{2, 0, 0, 0, 0, 3};

DatagramAddress station(bool ipv4, int number, const MacAddress& mac) {
  return {mac, *parse_ip((ipv4 ? "10.0.1." : "fd00:1::") + std::to_string(number)), 849};
}

struct Two {
  explicit Two(bool ipv4) : a_own(station(ipv4, 1, kA)), b_own(station(ipv4, 2, kB)), a(a_own, 4), b(b_own, 4) {
    a.set(0, b_own.ip, std::nullopt);
    b.set(0, a_own.ip, std::nullopt);
  }
  DatagramAddress a_own, b_own;
  Neighbours a, b;
};

bool handle(Neighbours& who, const Message& message, Nanoseconds now, Message& reply, std::optional<uint32_t>& changed) {
  changed.reset();
  return who.handle({message.bytes.data(), message.length}, now, reply, changed);
}

}  // namespace

TEST_CASE("a neighbour that is wanted is asked, answers, and is known") {
  const bool ipv4 = GENERATE(true, false);
  Two two(ipv4);
  Message question, answer;
  CHECK_FALSE(two.a.ask(question, kSecond));
  two.a.want(0, kSecond);
  REQUIRE(two.a.ask(question, kSecond));
  CHECK_FALSE(two.a.ask(question, kSecond));
  CHECK(two.a.next_event() == kSecond + Neighbours::kAskFirst);
  std::optional<uint32_t> changed;
  REQUIRE(handle(two.b, question, kSecond, answer, changed));
  CHECK_FALSE(changed);  // b did not ask
  REQUIRE(answer.length != 0);
  CHECK(two.b.answered() == 1);
  Message none;
  REQUIRE(handle(two.a, answer, kSecond, none, changed));
  CHECK(none.length == 0);
  CHECK(changed == 0u);
  CHECK(two.a.known(0));
  CHECK(two.a.mac(0) == kB);
  CHECK_FALSE(two.b.known(0));
}

TEST_CASE("without an answer questions become rarer, and end when nobody wants to know") {
  const bool ipv4 = GENERATE(true, false);
  Two two(ipv4);
  Message question;
  two.a.want(0, kSecond);
  uint64_t asked = 0;
  for (Nanoseconds now = kSecond; now < 100 * kSecond; now += 10 * kMillisecond) {
    if (now < 11 * kSecond) two.a.want(0, now);
    asked += two.a.ask(question, now);
  }
  CHECK(asked >= 35);  // 5 in the first second, then one per second until 41
  CHECK(asked <= 50);
  CHECK(two.a.next_event() == ~Nanoseconds{0});
  two.a.want(0, 200 * kSecond);
  CHECK(two.a.ask(question, 200 * kSecond));
}

TEST_CASE("a neighbour that falls silent stays known for some questions, and its new address is learned") {
  const bool ipv4 = GENERATE(true, false);
  Two two(ipv4);
  Message message, answer;
  std::optional<uint32_t> changed;
  Nanoseconds now = kSecond;
  two.a.want(0, now);
  REQUIRE(two.a.ask(message, now));
  REQUIRE(handle(two.b, message, now, answer, changed));
  REQUIRE(handle(two.a, answer, now, message, changed));
  now += Neighbours::kRenew;
  two.a.want(0, now);
  uint32_t questions = 0;
  for (; two.a.known(0) && questions < 100; now += 10 * kMillisecond) questions += two.a.ask(message, now);
  CHECK(questions == Neighbours::kUnanswered + 1);
  // The neighbour may be busy for some seconds.
  CHECK(now >= kSecond + Neighbours::kRenew + Neighbours::kUnanswered * Neighbours::kAskEvery);
  // The station returns with another network card.
  Neighbours moved({kC, two.b_own.ip, 849}, 1);
  REQUIRE(handle(moved, message, now, answer, changed));
  REQUIRE(handle(two.a, answer, now, message, changed));
  CHECK(changed == 0u);
  CHECK(two.a.mac(0) == kC);
}

TEST_CASE("many neighbours are asked in turn, and an address in two places is known in both") {
  const bool ipv4 = GENERATE(true, false);
  constexpr uint32_t kMany = 200;
  Neighbours many(station(ipv4, 1, kA), kMany);
  for (uint32_t i = 0; i < kMany; ++i) {
    many.set(i, *parse_ip((ipv4 ? "10.0.2." : "fd00:1::2:") + std::to_string(1 + i / 2)), std::nullopt);
    many.want(i, kSecond);
  }
  Message message, answer;
  std::optional<uint32_t> changed;
  uint32_t asked = 0;
  while (many.ask(message, kSecond)) {
    ++asked;
    const size_t target = ipv4 ? 38 : 62;
    const auto* at = reinterpret_cast<const uint8_t*>(message.bytes.data() + target);
    Neighbours other({kB, ipv4 ? ipv4_address(at) : ipv6_address(at), 849}, 1);
    REQUIRE(handle(other, message, kSecond, answer, changed));
    Message none;
    REQUIRE(handle(many, answer, kSecond, none, changed));
  }
  CHECK(asked >= kMany / 2);  // one answer serves both places of its address
  for (uint32_t i = 0; i < kMany; ++i) CHECK(many.known(i));
  // A place with a new address forgets the old one.
  many.set(0, *parse_ip(ipv4 ? "10.0.3.1" : "fd00:1::3:1"), std::nullopt);
  CHECK_FALSE(many.known(0));
  CHECK(many.known(1));
}

TEST_CASE("a fixed neighbour is not asked and does not change") {
  const bool ipv4 = GENERATE(true, false);
  Two two(ipv4);
  two.a.set(0, two.b_own.ip, kC);
  CHECK(two.a.known(0));
  Message message, answer;
  two.a.want(0, kSecond);
  CHECK_FALSE(two.a.ask(message, kSecond));
  two.b.want(0, kSecond);
  REQUIRE(two.b.ask(message, kSecond));
  std::optional<uint32_t> changed;
  REQUIRE(handle(two.a, message, kSecond, answer, changed));
  CHECK(answer.length != 0);
  CHECK_FALSE(changed);
  CHECK(two.a.mac(0) == kC);
}

TEST_CASE("who was not asked for is not learned, and a cut or changed message is none") {
  const bool ipv4 = GENERATE(true, false);
  Two two(ipv4);
  Neighbours stranger(station(ipv4, 9, kC), 1);
  stranger.set(0, two.a_own.ip, std::nullopt);
  stranger.want(0, kSecond);
  Message question, answer, none;
  REQUIRE(stranger.ask(question, kSecond));
  std::optional<uint32_t> changed;
  REQUIRE(handle(two.a, question, kSecond, answer, changed));
  CHECK(answer.length != 0);
  CHECK_FALSE(changed);
  CHECK_FALSE(two.a.known(0));
  for (uint32_t length = 0; length < answer.length; ++length) {
    CHECK_FALSE(stranger.handle({answer.bytes.data(), length}, kSecond, none, changed));
  }
  // After any change, only the station that was asked for becomes known. AddressSanitizer checks that nothing outside is read.
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    Message wrong = i % 2 == 0 ? question : answer;
    for (uint32_t n = 1 + random() % 4; n > 0; --n) wrong.bytes[random() % wrong.length] = static_cast<std::byte>(random());
    handle(two.a, wrong, kSecond, none, changed);
    CHECK_FALSE((changed && *changed != 0));
  }
}

TEST_CASE("a station that asks whether our address is free is told that it is not") {
  Two two(false);
  Neighbours copy({kC, {}, 849}, 1);  // the question comes from the unspecified address
  copy.set(0, two.a_own.ip, std::nullopt);
  copy.want(0, kSecond);
  Message question, answer;
  REQUIRE(copy.ask(question, kSecond));
  std::optional<uint32_t> changed;
  REQUIRE(handle(two.a, question, kSecond, answer, changed));
  REQUIRE(answer.length != 0);
  CHECK(answer.bytes[0] == std::byte{0x33});  // multicast to all nodes
  CHECK(answer.bytes[14 + 24] == std::byte{0xff});
  CHECK(answer.bytes[14 + 40] == std::byte{136});
}
