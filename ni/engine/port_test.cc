// port_test.cc - a port that takes no frames: memory that it may still read, and frames that still find room.
#include <catch2/catch.hpp>

#include <cstring>

#include "ni/engine/port.h"
#include "ni/engine/test_ni.h"

namespace unet::engine::port_test {
namespace {

const MacAddress kPeer{2, 0, 0, 0, 0, 9};

SendSignal signal_of(std::byte content) {
  SendSignal signal{.port = 0, .to = kPeer, .length = 8, .bytes = {}};
  signal.bytes[0] = content;
  return signal;
}

}  // namespace

TEST_CASE("frames composed of a dead client's memory are gone before the memory is, those of others go out in order") {
  TestWire wire;
  wire.capabilities.external_payload = true;
  wire.transmit_room = 0;
  TestNi ni({&wire});
  TestEndpoint& before = ni.add_endpoint();
  TestEndpoint& dead = ni.add_endpoint();
  TestEndpoint& after = ni.add_endpoint();
  const auto first = pattern(3'000, 1), second = pattern(3'001, 2);
  for (TestEndpoint* e : {&before, &dead, &after}) {
    ni.wire(*e, 0, 0x10001 + e->number, 0x20001 + e->number, kPeer);
    REQUIRE(e->send(0, e == &after ? second : first));
    e->ring(ni.page);
    ni.poll();
  }
  ni.command(DetachEndpoint{dead.number});
  ni.poll(3);
  CHECK_FALSE(ni.event<EndpointDetached>().has_value());  // the port may take them yet
  ni.now += kSecond;
  ni.poll();
  REQUIRE(ni.event<EndpointDetached>().has_value());
  ni.endpoints[1].reset();  // unmaps the segment

  wire.transmit_room = ~0u;
  ni.poll(3);
  REQUIRE(wire.sent.size() >= 6);
  std::vector<std::byte> got_first, got_second;
  for (const FrameBytes& frame : wire.sent) {
    FrameView view;
    REQUIRE(parse_frame(frame, view) == FrameError::none);
    auto& into = view.tag == Tag{0x20001} ? got_first : got_second;
    if (view.tag != Tag{0x20002}) into.insert(into.end(), view.payload.begin(), view.payload.end());
  }
  CHECK((got_first == first));
  CHECK((got_second == second));
  CHECK(wire.external_frames == 4);  // two of each survivor; the rest of a message is copied
  CHECK(wire.unread.size() == 4);
}

TEST_CASE("signals find room in a port that data has filled, eight of them") {
  TestWire wire;
  wire.transmit_room = 0;
  TestNi ni({&wire});
  TestEndpoint& a = ni.add_endpoint();
  ni.wire(a, 0, 0x10001, 0x20002, kPeer);
  REQUIRE(a.send(0, pattern(kMessageMax, 1)));
  a.ring(ni.page);
  ni.poll();
  constexpr uint32_t kSignals = 8;
  for (uint32_t i = 0; i < kSignals; ++i) {
    ni.command(signal_of(static_cast<std::byte>(i)));
    ni.poll();
  }
  CHECK(ni.counter(NiCounter::transmit_overflow) == 0);
  ni.command(signal_of(std::byte{99}));
  ni.poll();
  CHECK(ni.counter(NiCounter::transmit_overflow) == 1);

  // The data goes on where it was, and the port gives everything back.
  wire.transmit_room = ~0u;
  ni.poll(5);
  uint32_t signals = 0;
  uint64_t bytes = 0;
  for (const FrameBytes& frame : wire.sent) {
    FrameView view;
    REQUIRE(parse_frame(frame, view) == FrameError::none);
    if (view.tag == kSignallingTag) {
      CHECK(view.payload[0] == static_cast<std::byte>(signals++));
    } else {
      bytes += view.payload.size();
    }
  }
  CHECK(signals == kSignals);
  CHECK(bytes == kMessageMax);
  CHECK(ni.counter(NiCounter::transmitted_frames) == wire.sent.size());
}

TEST_CASE("a frame that a signal did not need is not data's, and no frame is lost") {
  TestWire wire;
  wire.transmit_room = 0;
  {
    NiCounters counters;
    Port port(std::make_unique<TestPort>(wire), counters);
    Nanoseconds now = kSecond;
    const auto compose = [&](TransmitFrame* frame, std::byte content) {
      REQUIRE(frame != nullptr);
      std::memset(frame->data, static_cast<int>(content), 60);
      frame->length = 60;
      port.stage();
    };
    for (uint32_t i = 0; i < kBurst; ++i) compose(port.frame(now), std::byte{1});
    CHECK(port.frame(now) == nullptr);
    for (int i = 0; i < 3; ++i) {
      TransmitFrame* const forgotten = port.signal_frame(now);
      REQUIRE(forgotten != nullptr);
      CHECK(port.signal_frame(now) == forgotten);
      CHECK(port.frame(now) == nullptr);
      CHECK_FALSE(port.has_room(now));
    }
    for (uint32_t i = 0; i < 7; ++i) {
      compose(port.signal_frame(now), std::byte{2});
      CHECK(port.frame(now) == nullptr);
    }
    REQUIRE(port.signal_frame(now) != nullptr);  // the eighth, not staged
    // Some frames leave, and data takes their room, including the frame that was not staged.
    wire.transmit_room = 20;
    uint32_t more = 0;
    for (TransmitFrame* frame; more < 100 && (frame = port.frame(now)) != nullptr; ++more) compose(frame, std::byte{1});
    CHECK(more == kBurst - (kBurst + 7 - 20));
    CHECK(port.signal_frame(now) != nullptr);
    wire.transmit_room = ~0u;
    port.flush(now);
    CHECK(wire.sent.size() == kBurst + 7 + more);
    CHECK(port.frame(now) != nullptr);
  }
  CHECK(wire.owned_by_engine == 0);
}

}  // namespace unet::engine::port_test
