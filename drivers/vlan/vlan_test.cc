// vlan_test.cc - every sent frame has the tag, and only frames with the tag are received; on a simulated wire.
#include "drivers/vlan/vlan.h"

#include <catch2/catch.hpp>

#include <cstring>

#include "drivers/sim/short_wire.h"   // tidy: allow include because a test needs a wire that is full
#include "drivers/sim/sim_network.h"  // tidy: allow include because a test needs a wire to look at
#include "unet/wire/frame.h"

using namespace unet;
using namespace unet::drivers;

namespace {

std::vector<std::byte> frame_to(const MacAddress& to, uint32_t from, size_t length) {
  std::vector<std::byte> frame(length, std::byte{0x5A});
  const MacAddress source = SimNetwork::address_of(from);
  std::memcpy(frame.data(), to.data(), 6);
  std::memcpy(frame.data() + 6, source.data(), 6);
  frame[12] = std::byte{0x88};
  frame[13] = std::byte{0xB5};
  return frame;
}

bool send(Driver& port, const std::vector<std::byte>& bytes) {
  TransmitFrame frame;
  if (port.allocate({&frame, 1}) != 1) return false;
  std::memcpy(frame.data, bytes.data(), bytes.size());
  frame.length = static_cast<uint32_t>(bytes.size());
  return port.transmit({&frame, 1}, 0) == 1;
}

// Returns all arrived frames; frames that are not for the engine are empty.
std::vector<std::vector<std::byte>> received(Driver& port) {
  std::vector<std::vector<std::byte>> all;
  ReceivedFrame frames[8];
  while (const uint32_t count = port.receive(frames, 0)) {
    for (uint32_t i = 0; i < count; ++i) all.emplace_back(frames[i].data, frames[i].data + frames[i].length);
    port.release({frames, count});
  }
  return all;
}

uint64_t counter(const Driver& port, const std::string& name) {
  for (const DriverCounter& each : port.counters()) {
    if (each.name == name) return each.value;
  }
  return ~uint64_t{0};
}

}  // namespace

TEST_CASE("a frame carries the tag on the wire and none above it") {
  SimNetwork net(2, {.delay = 0, .frames = 64});
  Vlan a(net.port(0), {.id = 7, .priority = 5});
  CHECK(a.capabilities().mtu == 1496);
  CHECK(a.capabilities().address == SimNetwork::address_of(0));
  auto wire = net.port(1);
  const auto frame = frame_to(SimNetwork::address_of(1), 0, 100);
  REQUIRE(send(a, frame));
  const auto seen = received(*wire);
  REQUIRE(seen.size() == 1);
  REQUIRE(seen[0].size() == 104);
  CHECK(std::memcmp(seen[0].data(), frame.data(), 12) == 0);
  const uint8_t tag[] = {0x81, 0x00, 0xA0, 0x07};
  CHECK(std::memcmp(seen[0].data() + 12, tag, 4) == 0);
  CHECK(std::memcmp(seen[0].data() + 16, frame.data() + 12, 88) == 0);

  auto back = seen[0];
  std::memcpy(back.data(), SimNetwork::address_of(0).data(), 6);
  REQUIRE(send(*wire, back));
  const auto again = received(a);
  REQUIRE(again.size() == 1);
  auto expected = frame;
  std::memcpy(expected.data(), SimNetwork::address_of(0).data(), 6);
  CHECK(again[0] == expected);
  CHECK(counter(a, "vlan_received") == 1);
}

TEST_CASE("frames without a tag, cut ones and those of other VLANs are counted and empty") {
  SimNetwork net(2, {.delay = 0, .frames = 64});
  Vlan a(net.port(0), {.id = 7});
  auto wire = net.port(1);
  auto frame = frame_to(SimNetwork::address_of(0), 1, 60);
  REQUIRE(send(*wire, frame));
  frame[12] = std::byte{0x81};
  frame[13] = std::byte{0x00};
  frame[14] = std::byte{0x00};
  frame[15] = std::byte{8};
  REQUIRE(send(*wire, frame));
  frame[14] = std::byte{0x01};  // 263
  frame[15] = std::byte{7};
  REQUIRE(send(*wire, frame));
  frame.resize(15);
  REQUIRE(send(*wire, frame));
  const auto seen = received(a);
  REQUIRE(seen.size() == 4);
  for (const auto& each : seen) CHECK(each.empty());
  CHECK(counter(a, "vlan_untagged") == 2);
  CHECK(counter(a, "vlan_other") == 2);
  CHECK(counter(a, "vlan_received") == 0);
}

TEST_CASE("all stations of a VLAN hear what is for all, each by itself") {
  SimNetwork net(4, {.delay = 0, .frames = 64});
  Vlan a(net.port(0), {.id = 9}), b(net.port(1), {.id = 9}), c(net.port(2), {.id = 9}), d(net.port(3), {.id = 10});
  const auto frame = frame_to(kBroadcast, 0, 80);
  REQUIRE(send(a, frame));
  for (Driver* each : {static_cast<Driver*>(&b), static_cast<Driver*>(&c)}) {
    const auto seen = received(*each);
    REQUIRE(seen.size() == 1);
    CHECK(seen[0] == frame);
  }
  CHECK(received(d).at(0).empty());
}

TEST_CASE("what the wire does not take is the engine's again, as it was") {
  SimNetwork net(2, {.delay = 0, .frames = 64});
  auto made = std::make_unique<ShortWire>(net.port(0));
  ShortWire& wire = *made;
  Vlan a(std::move(made), {.id = 7});
  auto other = net.port(1);
  TransmitFrame frames[5];
  REQUIRE(a.allocate(frames) == 5);
  for (size_t i = 0; i < 5; ++i) {
    const auto frame = frame_to(SimNetwork::address_of(1), 0, 60 + i);
    std::memcpy(frames[i].data, frame.data(), frame.size());
    frames[i].length = static_cast<uint32_t>(frame.size());
  }
  wire.takes = 2;
  REQUIRE(a.transmit(frames, 0) == 2);
  for (size_t i = 2; i < 5; ++i) {
    const auto frame = frame_to(SimNetwork::address_of(1), 0, 60 + i);
    REQUIRE(frames[i].length == frame.size());
    CHECK(std::memcmp(frames[i].data, frame.data(), frame.size()) == 0);
  }
  wire.takes = 3;
  REQUIRE(a.transmit({frames + 2, 3}, 0) == 3);
  const auto seen = received(*other);
  REQUIRE(seen.size() == 5);
  for (size_t i = 0; i < 5; ++i) CHECK(seen[i].size() == 64 + i);
}
