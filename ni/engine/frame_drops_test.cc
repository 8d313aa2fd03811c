// frame_drops_test.cc - every counter of the NI, reached by a frame that is forged in exactly that way and no other.
#include <catch2/catch.hpp>

#include "ni/engine/test_ni.h"
#include "unet/base/crc32c.h"

namespace unet::engine::frame_drops_test {
namespace {

const MacAddress kPeer{2, 0, 0, 0, 0, 9};
const MacAddress kStranger{2, 0, 0, 0, 0, 10};
constexpr Tag kTag{0xABCD'0007};

// One endpoint with one channel on the first of two ports.
struct Receiver {
  TestWire wire, other_wire;
  TestNi ni{{&wire, &other_wire}};
  TestEndpoint& endpoint = ni.add_endpoint();

  Receiver() {
    ni.wire(endpoint, 4, static_cast<uint32_t>(kTag), 1, kPeer);
    ni.run();
  }
  FrameFields fields() const { return {.to = wire.capabilities.address, .from = kPeer, .tag = kTag}; }
  void arrive(FrameBytes frame, bool on_other_port = false) {
    (on_other_port ? other_wire : wire).arriving.push_back(std::move(frame));
    ni.poll();
  }
  // The frame was dropped under this name alone, and reached no endpoint.
  void check_only(NiCounter counter) {
    CHECK(ni.counter(counter) == 1);
    CHECK(ni_drops(ni) == 1);
    CHECK(endpoint_drops(endpoint) == 0);
    CHECK_FALSE(endpoint.receive().has_value());
    CHECK(ni.events.empty());
    CHECK(wire.owned_by_engine == 0);
  }
};

// A message of 100 bytes with one byte of its header changed, and a correct crc.
FrameBytes forged(const FrameFields& fields, size_t at, uint8_t value) {
  FrameBytes frame = make_frame(fields, pattern(100, 1));
  frame[sizeof(EthernetHeader) + at] = std::byte{value};
  uint32_t crc = crc32c(kCrc32cStart, frame.data() + sizeof(EthernetHeader), offsetof(FrameHeader, crc));
  crc = ~crc32c(crc, frame.data() + kFrameOverhead, frame.size() - kFrameOverhead);
  const be32 wire_crc = crc;
  std::memcpy(frame.data() + sizeof(EthernetHeader) + offsetof(FrameHeader, crc), &wire_crc, 4);
  return frame;
}

FrameFields whole(FrameFields fields) {
  fields.total = 100;
  return fields;
}

}  // namespace

TEST_CASE("the frame that the others are forged from is delivered") {
  Receiver r;
  r.arrive(make_frame(whole(r.fields()), pattern(100, 1)));
  CHECK(ni_drops(r.ni) == 0);
  const auto got = r.endpoint.receive();
  REQUIRE(got.has_value());
  CHECK(got->channel == 4);
  CHECK((got->bytes == pattern(100, 1)));
  CHECK(r.ni.counter(NiCounter::received_frames) == 1);
  CHECK(r.ni.counter(NiCounter::received_bytes) == kFrameOverhead + 100);
}

TEST_CASE("not_ours: another Ethernet type") {
  Receiver r;
  FrameBytes frame = make_frame(whole(r.fields()), pattern(100, 1));
  frame[12] = std::byte{8};
  frame[13] = std::byte{0};
  r.arrive(frame);
  r.check_only(NiCounter::not_ours);
}

TEST_CASE("not_ours: for another station, or a message to all") {
  Receiver r;
  FrameFields fields = whole(r.fields());
  fields.to = GENERATE(MacAddress{2, 0, 0, 0, 0, 2}, kBroadcast, MacAddress{1, 0, 0x5e, 0, 0, 1});
  r.arrive(make_frame(fields, pattern(100, 1)));
  r.check_only(NiCounter::not_ours);
}

TEST_CASE("not_ours: shorter than an Ethernet header") {
  Receiver r;
  FrameBytes frame = make_frame(whole(r.fields()), pattern(100, 1));
  frame.resize(GENERATE(1u, 6u, 13u));
  r.arrive(frame);
  r.check_only(NiCounter::not_ours);
}

TEST_CASE("a frame that its driver has dealt with itself is given back and is no drop") {
  Receiver r;
  r.arrive({});
  CHECK(ni_drops(r.ni) == 0);
  CHECK(endpoint_drops(r.endpoint) == 0);
  CHECK_FALSE(r.endpoint.receive().has_value());
  CHECK(r.wire.owned_by_engine == 0);
}

TEST_CASE("truncated: the frame ends before its header or its payload") {
  Receiver r;
  FrameBytes frame = make_frame(whole(r.fields()), pattern(100, 1));
  frame.resize(GENERATE(14u, kFrameOverhead - 1, kFrameOverhead, kFrameOverhead + 99));
  r.arrive(frame);
  r.check_only(NiCounter::truncated);
}

TEST_CASE("bad_version") {
  Receiver r;
  r.arrive(forged(whole(r.fields()), 0, kWireVersion + 1));
  r.check_only(NiCounter::bad_version);
}

TEST_CASE("bad_flags: an unknown flag, or a notification without a put") {
  Receiver r;
  r.arrive(forged(whole(r.fields()), 1, GENERATE(as<uint8_t>{}, 0x04, 0x80, FrameFlags::kNotify)));
  r.check_only(NiCounter::bad_flags);
}

TEST_CASE("bad_length: fragments that cannot be part of a message") {
  Receiver r;
  FrameFields fields = r.fields();
  const auto [offset, total] = GENERATE(table<uint32_t, uint32_t>({
      {0, kMessageMax + 1},        // too long a message
      {0, 99},                     // more payload than message
      {64, 163},                   // payload beyond the end
      {32, 132},                   // offset off the unit
      {0xFFFFFFC0, 100},           // offset + length overflows 32 bits
      {0, 101},                    // not the last, and not a multiple of the unit
      {128, 100},                  // offset beyond the end
  }));
  fields.offset = offset;
  fields.total = total;
  r.arrive(make_frame(fields, pattern(100, 1)));
  r.check_only(NiCounter::bad_length);
}

TEST_CASE("bad_length: an empty fragment of a message that is not empty") {
  Receiver r;
  FrameFields fields = r.fields();
  fields.total = 100;
  r.arrive(make_frame(fields, {}));
  r.check_only(NiCounter::bad_length);
}

TEST_CASE("bad_crc: any bit of header or payload changed on the wire") {
  Receiver r;
  FrameBytes frame = make_frame(whole(r.fields()), pattern(100, 1));
  // Tag, message number, crc, payload; other fields have checks of their own before it
  const size_t at = GENERATE(18u, 22u, 36u, 38u, 90u, 137u);
  frame[at] ^= std::byte{0x10};
  r.arrive(frame);
  r.check_only(NiCounter::bad_crc);
}

TEST_CASE("unknown_tag: no channel there, or the generation of another time") {
  Receiver r;
  FrameFields fields = whole(r.fields());
  fields.tag = GENERATE(Tag{0xABCD'0008}, Tag{0x0000'0007}, Tag{0xABCE'0007}, Tag{0x0001'0000});
  r.arrive(make_frame(fields, pattern(100, 1)));
  r.check_only(NiCounter::unknown_tag);
}

TEST_CASE("unknown_tag: the channel was closed") {
  Receiver r;
  r.ni.command(CloseChannel{r.endpoint.number, 4});
  r.arrive(make_frame(whole(r.fields()), pattern(100, 1)));
  r.check_only(NiCounter::unknown_tag);
}

TEST_CASE("wrong_source: the right tag from another station or by another port") {
  Receiver r;
  FrameFields fields = whole(r.fields());
  const bool other_port = GENERATE(false, true);
  if (!other_port) fields.from = kStranger;
  r.arrive(make_frame(fields, pattern(100, 1)), other_port);
  r.check_only(NiCounter::wrong_source);
}

TEST_CASE("bad_signal: empty, too long, in pieces, or a put") {
  Receiver r;
  FrameFields fields = r.fields();
  fields.tag = kSignallingTag;
  const auto [length, total, flags] = GENERATE(table<uint32_t, uint32_t, uint8_t>({
      {0, 0, FrameFlags::kMessage},
      {kSignalMax + 1, kSignalMax + 1, FrameFlags::kMessage},
      {128, 200, FrameFlags::kMessage},
      {100, 100, FrameFlags::kPut},
  }));
  fields.total = total;
  fields.flags = flags;
  r.arrive(make_frame(fields, pattern(length, 1)));
  r.check_only(NiCounter::bad_signal);
}

TEST_CASE("signal_overflow: the service does not take its events") {
  Receiver r;
  while (r.ni.events.push(SignalReceived{})) {
  }
  FrameFields fields = r.fields();
  fields.tag = kSignallingTag;
  fields.total = 100;
  r.arrive(make_frame(fields, pattern(100, 1)));
  while (r.ni.event<SignalReceived>()) {
  }
  r.check_only(NiCounter::signal_overflow);
}

TEST_CASE("transmit_overflow: the port has no frame for a signal") {
  Receiver r;
  r.wire.allocate_room = 0;
  r.ni.command(SendSignal{.port = 0, .to = kPeer, .length = 10, .bytes = {}});
  r.ni.poll();
  r.check_only(NiCounter::transmit_overflow);
}

}  // namespace unet::engine::frame_drops_test
