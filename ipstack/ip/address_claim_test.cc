// address_claim_test.cc - addresses that are free, taken, probed for by two hosts at once, or lost to another host.
#include "ipstack/ip/address_claim.h"

#include <catch2/catch.hpp>

#include <vector>

namespace unet::ip::address_claim_test {
namespace {

using State = AddressClaim::State;
using Message = AddressClaim::Message;

const IpAddress kFour = *parse_ip("10.0.1.2"), kSix = *parse_ip("fd00:1::2"), kElse = *parse_ip("10.0.1.3");
constexpr MacAddress kOwn{2, 0, 0, 0, 0, 1}, kOther{2, 0, 0, 0, 0, 2};

struct Sent {
  Nanoseconds at;
  Message message;
};

// Runs until nothing is due, or until `until`.
std::vector<Sent> run(AddressClaim& claim, Nanoseconds& now, Nanoseconds until = ~Nanoseconds{0}) {
  std::vector<Sent> sent;
  while (claim.next_event() != ~Nanoseconds{0} && claim.next_event() <= until) {
    now = std::max(now, claim.next_event());
    for (Message message; claim.poll_message(now, message);) sent.push_back({now, message});
  }
  return sent;
}

}  // namespace

TEST_CASE("conflict detection (IPv4): a free address: three probes, then two announcements") {
  Nanoseconds first = 0;
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    Nanoseconds now = 10 * kSecond;
    AddressClaim claim(kFour, kOwn, true, seed, now);
    CHECK(claim.state() == State::tentative);
    const std::vector<Sent> sent = run(claim, now);
    REQUIRE(sent.size() == 5);
    CHECK(sent[0].at >= 10 * kSecond);
    CHECK(sent[0].at <= 11 * kSecond);
    CHECK(sent[0].at != first);  // spread over hosts
    first = sent[0].at;
    for (size_t i = 0; i < 5; ++i) CHECK(sent[i].message == (i < 3 ? Message::probe : Message::announce));
    for (size_t i = 1; i < 3; ++i) {
      CHECK(sent[i].at - sent[i - 1].at >= kSecond);
      CHECK(sent[i].at - sent[i - 1].at <= 2 * kSecond);
    }
    CHECK(sent[3].at - sent[2].at == 2 * kSecond);
    CHECK(sent[4].at - sent[3].at == 2 * kSecond);
    CHECK(claim.state() == State::assigned);
  }
}

TEST_CASE("duplicate address detection (IPv6): a free address: one probe, and a second of silence") {
  Nanoseconds now = 10 * kSecond;
  AddressClaim claim(kSix, kOwn, true, 1, now);
  const std::vector<Sent> sent = run(claim, now);
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].message == Message::probe);
  CHECK(now == sent[0].at + kSecond);
  CHECK(claim.state() == State::assigned);
  claim.handle_claim(kSix, kOther, now);
  CHECK(claim.state() == State::assigned);
}

TEST_CASE("duplicate address detection: an address that another host has, or probes for, is a conflict") {
  for (const IpAddress& address : {kFour, kSix}) {
    for (const bool wants : {true, false}) {
      for (const Nanoseconds after : {Nanoseconds{0}, kSecond + kSecond / 2}) {
        Nanoseconds now = 10 * kSecond;
        AddressClaim claim(address, kOwn, true, 1, now);
        run(claim, now, now + after);
        REQUIRE(claim.state() == State::tentative);
        // Claims for other addresses, and our own frames, are ignored.
        claim.handle_claim(kElse, kOther, now);
        claim.handle_claim(address, kOwn, now);
        claim.handle_probe(kElse, kOther, now);
        claim.handle_probe(address, kOwn, now);
        REQUIRE(claim.state() == State::tentative);
        if (wants) claim.handle_probe(address, kOther, now);
        else claim.handle_claim(address, kOther, now);
        CHECK(claim.state() == State::conflict);
        CHECK(run(claim, now).empty());
        Message message;
        CHECK_FALSE(claim.poll_message(now + 100 * kSecond, message));
      }
    }
  }
}

TEST_CASE("an IPv4 address of ours is defended, but for two conflicts within ten seconds") {
  Nanoseconds now = 10 * kSecond;
  AddressClaim claim(kFour, kOwn, true, 1, now);
  run(claim, now);
  claim.handle_probe(kFour, kOther, now);  // ARP answers a probe, and the prober yields
  CHECK(claim.state() == State::assigned);
  for (int i = 0; i < 3; ++i) {
    now += 20 * kSecond;
    claim.handle_claim(kFour, kOther, now);
    CHECK(claim.state() == State::assigned);
    const std::vector<Sent> sent = run(claim, now);
    REQUIRE(sent.size() == 1);
    CHECK(sent[0].message == Message::announce);
  }
  now += 10 * kSecond - 1;
  claim.handle_claim(kFour, kOther, now);
  CHECK(claim.state() == State::conflict);
  CHECK(run(claim, now).empty());
}

TEST_CASE("an address without probes is assigned at once, and announced") {
  for (const IpAddress& address : {kFour, kSix}) {
    Nanoseconds now = 10 * kSecond;
    AddressClaim claim(address, kOwn, false, 1, now);
    CHECK(claim.state() == State::assigned);
    CHECK(run(claim, now).size() == (address.is_ipv4() ? 2 : 0));
  }
}

}  // namespace unet::ip::address_claim_test
