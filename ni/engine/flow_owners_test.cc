// flow_owners_test.cc - owners of connections of a shared port: how a flow begins, stays and ends, and evictions from a full table.
#include "ni/engine/flow_owners.h"

#include <catch2/catch.hpp>

#include "unet/wire/tcp.h"

namespace unet::engine::flow_owners_test {
namespace {

using Flags = ip::TcpFlags;
using State = FlowOwners::State;

const ip::IpAddress kOwn = ip::parse_address("10.0.0.1").value(), kPeer = ip::parse_address("10.0.0.2").value();

struct Table {
  NiCounters counters;
  FlowOwners owners{7, counters};
  uint16_t user = owners.add_user(1000);

  static IpFlow flow(uint32_t i) {
    ip::IpAddress peer = kPeer;
    peer.bytes[13] = static_cast<uint8_t>(i >> 16);
    return {.local = kOwn, .remote = peer, .local_port = 80, .remote_port = static_cast<uint16_t>(i)};
  }
  FlowOwners::Entry* at(uint32_t i) { return owners.find(owners.hash(flow(i)), flow(i)); }
  void sends(uint32_t i, uint8_t flags, uint32_t claim = 1, uint32_t sequence = 500) { sends_of(user, i, flags, claim, sequence); }
  void sends_of(uint16_t whose, uint32_t i, uint8_t flags, uint32_t claim = 1, uint32_t sequence = 500) {
    owners.handle_send(at(i), owners.hash(flow(i)), flow(i), {claim, 1}, whose, {.flags = flags, .sequence = sequence});
  }
  void comes(uint32_t i, uint8_t flags, uint32_t acknowledgement = 0) {
    owners.handle_arrival(*at(i), {.flags = flags, .acknowledgement = acknowledgement});
  }
};

}  // namespace

TEST_CASE("a flow is its who answers its SYN, established by the exact number, and ends with a FIN of its owner's or a reset") {
  Table t;
  CHECK(t.at(1) == nullptr);
  t.sends(1, Flags::kRst);  // reset: no connection
  CHECK(t.at(1) == nullptr);
  t.sends(1, Flags::kSyn | Flags::kAck);
  REQUIRE(t.at(1) != nullptr);
  CHECK(t.at(1)->owner == FlowOwners::Owner{1, 1});
  CHECK(t.at(1)->state == State::opening);
  for (const uint32_t wrong : {0u, 500u, 502u}) t.comes(1, Flags::kAck, wrong);
  CHECK(t.at(1)->state == State::opening);
  t.comes(1, Flags::kAck, 501);
  CHECK(t.at(1)->state == State::established);
  t.comes(1, Flags::kRst);  // the owner ignores it
  CHECK(t.at(1)->state == State::ending);
  t.sends(1, Flags::kAck);
  CHECK(t.at(1)->state == State::established);
  t.comes(1, Flags::kFin | Flags::kAck);
  t.sends(1, Flags::kAck);
  CHECK(t.at(1)->state == State::established);  // one direction goes on
  t.sends(1, Flags::kFin | Flags::kAck);
  t.sends(1, Flags::kAck);
  CHECK(t.at(1)->state == State::ending);
  t.sends(1, Flags::kSyn | Flags::kAck, 2);
  CHECK(t.at(1)->state == State::opening);
  CHECK(t.at(1)->owner == FlowOwners::Owner{2, 1});
  t.sends(1, Flags::kAck, 2);
  CHECK(t.at(1)->state == State::established);
  CHECK(t.owners.size() == 1);
}

TEST_CASE("however many begin, what is established stays") {
  Table t;
  for (uint32_t i = 0; i < 1000; ++i) t.sends(i, Flags::kAck);
  for (uint32_t i = 1000; i < 1000 + 3 * kIpOpeningsOfUserMax; ++i) t.sends(i, Flags::kSyn | Flags::kAck);
  CHECK(t.owners.size() == 1000 + kIpOpeningsOfUserMax);
  CHECK(t.counters.read(NiCounter::ip_openings_evicted) == 2 * kIpOpeningsOfUserMax);
  for (uint32_t i = 0; i < 1000; ++i) REQUIRE(t.at(i) != nullptr);
  CHECK(t.at(1000) == nullptr);
  CHECK(t.at(999 + 3 * kIpOpeningsOfUserMax) != nullptr);
}

TEST_CASE("when all places are taken, who has most gives way, first with what ends, and with what was silent longest") {
  Table t;
  const uint16_t other = t.owners.add_user(1001);
  t.sends_of(other, 0, Flags::kAck, 9);
  t.sends(1, Flags::kFin | Flags::kAck);
  for (uint32_t i = 2; i < kIpOwnedFlowsMax; ++i) t.sends(i, Flags::kAck);
  CHECK(t.owners.size() == kIpOwnedFlowsMax);
  t.comes(2, Flags::kAck);  // the oldest but for that
  t.sends(kIpOwnedFlowsMax, Flags::kAck);
  CHECK(t.at(1) == nullptr);
  CHECK(t.counters.read(NiCounter::ip_owners_evicted) == 0);
  t.sends_of(other, kIpOwnedFlowsMax + 1, Flags::kAck, 9);
  CHECK(t.counters.read(NiCounter::ip_owners_evicted) == 1);
  CHECK(t.owners.size() == kIpOwnedFlowsMax);
  CHECK(t.at(0) != nullptr);
  CHECK(t.at(2) != nullptr);
  CHECK(t.at(3) == nullptr);
  CHECK(t.owners.size_of(other, State::established) == 2);
}

}  // namespace unet::engine::flow_owners_test
