// endpoint_drops_test.cc - every drop counter of an endpoint, reached by input that is wrong in exactly that way.
#include <catch2/catch.hpp>

#include "ni/engine/test_ni.h"

namespace unet::engine::endpoint_drops_test {
namespace {

const MacAddress kPeer{2, 0, 0, 0, 0, 9};
constexpr Tag kTag{0xABCD'0007};

// A sender and a receiver on one NI (channel 1 both), the receiver also with channel 2 on a wire.
struct Pair {
  TestWire wire;
  TestNi ni;
  TestEndpoint& a;
  TestEndpoint& b;
  uint32_t next_message = 0;

  explicit Pair(const EndpointOptions& options = kSmallEndpoint, EngineOptions engine = {})
      : ni({&wire}, engine), a(ni.add_endpoint()), b(ni.add_endpoint(options)) {
    ni.hairpin(a, 1, b, 1);
    ni.wire(b, 2, static_cast<uint32_t>(kTag), 1, kPeer);
    ni.run();
  }
  FrameFields fields(uint32_t message, uint8_t flags = FrameFlags::kMessage) const {
    return {.to = wire.capabilities.address, .from = kPeer, .tag = kTag, .flags = flags, .message = message};
  }
  std::vector<FrameBytes> frames(Bytes message, uint32_t number, uint8_t flags = FrameFlags::kMessage, uint64_t region_offset = 0) {
    FrameFields f = fields(number, flags);
    f.region_offset = region_offset;
    return make_frames(f, message);
  }
  void arrive(FrameBytes frame) {
    wire.arriving.push_back(std::move(frame));
    ni.poll();
  }
  void check_only(const TestEndpoint& e, EndpointCounter counter, uint64_t times = 1) {
    CHECK(e.counter(counter) == times);
    CHECK(endpoint_drops(e) == times);
    CHECK(ni.engine->endpoint_counter(e.number, counter) == times);
    CHECK(endpoint_drops(&e == &a ? b : a) == 0);
    for (size_t i = 0; i < kNiCounters; ++i) {
      INFO(kNiCounterNames[i]);
      if (i >= static_cast<size_t>(kFirstNiDrop)) CHECK(ni.counter(static_cast<NiCounter>(i)) == 0);
    }
  }
  // Whatever was dropped, the next message gets through.
  void check_still_works() {
    const auto message = pattern(5'000, 77);
    REQUIRE(a.send(1, message));
    ni.run();
    const auto got = b.receive();
    REQUIRE(got.has_value());
    CHECK((got->bytes == message));
  }
};

}  // namespace

TEST_CASE("bad_send_descriptor: kinds that no send queue has") {
  Pair p;
  const auto kind = static_cast<SlotKind>(GENERATE(0, 4, 5, 6, 7, 255));
  REQUIRE(p.a.post(1, kind, 8, nullptr, 0));
  p.ni.run();
  p.check_only(p.a, EndpointCounter::bad_send_descriptor);
  p.check_still_works();
}

TEST_CASE("bad_send_descriptor: lengths that lie") {
  Pair p;
  const auto base = static_cast<uint32_t>(p.a.geometry.send_data);
  const auto total = static_cast<uint32_t>(p.a.geometry.total);
  struct Forged {
    SlotKind kind;
    uint32_t length;
    GatherDescriptor gather;
  };
  const auto& f = GENERATE_COPY(values<Forged>({
      {SlotKind::inline_data, kInlineMax + 1, {}},
      {SlotKind::inline_data, 0xFFFFFF, {}},
      {SlotKind::gather, 1, {}},                                                      // less than promised
      {SlotKind::gather, 100, {{{base, 101}}}},                                       // more than promised
      {SlotKind::gather, 100, {{{base, 99}}}},
      {SlotKind::gather, kMessageMax + 1, {{{base, kMessageMax + 1}}}},               // too long, though consistent
      {SlotKind::gather, 0xFFFFFF, {{{0, 0xFFFFFF}}}},
      {SlotKind::gather, 100, {{{total, 100}}}},                                      // outside the segment
      {SlotKind::gather, 100, {{{total - 99, 100}}}},
      {SlotKind::gather, 100, {{{0xFFFFFFFF, 100}}}},                                 // offset + length overflows 32 bits
      {SlotKind::gather, 100, {{{0xFFFFFF9C, 100}}}},
      {SlotKind::gather, 64, {{{0xFFFFFFC0, 64}}}},
      {SlotKind::gather, 0, {{{base, 0x80000000}, {base, 0x80000000}}}},              // the sum overflows 32 bits
      {SlotKind::gather, 4, {{{base, 0xFFFFFFFF}, {base, 5}}}},
      {SlotKind::gather, 48, {{{base, 8}, {base, 8}, {base, 8}, {base, 8}, {base, 8}, {total - 7, 8}}}},  // the last piece only
  }));
  REQUIRE(p.a.post(1, f.kind, f.length, &f.gather, sizeof f.gather));
  p.ni.run();
  p.check_only(p.a, EndpointCounter::bad_send_descriptor);
  CHECK_FALSE(p.b.receive().has_value());
  p.check_still_works();
}

TEST_CASE("bad_send_descriptor: puts that lie") {
  Pair p;
  const auto base = static_cast<uint32_t>(p.a.geometry.send_data);
  struct Forged {
    uint32_t length;
    PutDescriptor put;
  };
  const auto& f = GENERATE_COPY(values<Forged>({
      {100, {0, 2, 0, {{base, 100}}}},                   // notify is 0 or 1
      {100, {0, 1, 0, {{base, 99}}}},
      {100, {0, 0, 0, {{0xFFFFFFFF, 100}}}},
      {kMessageMax + 1, {0, 0, 0, {{base, kMessageMax + 1}}}},
  }));
  std::vector<std::byte> region(1'000);
  p.ni.command(SetRegion{p.b.number, region});
  REQUIRE(p.a.post(1, SlotKind::put, f.length, &f.put, sizeof f.put));
  p.ni.run();
  p.check_only(p.a, EndpointCounter::bad_send_descriptor);
  CHECK((region == std::vector<std::byte>(1'000)));
  p.check_still_works();
}

TEST_CASE("overlapping pieces are the sender's own affair") {
  Pair p;
  const auto base = static_cast<uint32_t>(p.a.geometry.send_data);
  const GatherDescriptor d{{{base, 20'000}, {base + 10, 20'000}, {base, 20'000}}};
  REQUIRE(p.a.post(1, SlotKind::gather, 60'000, &d, sizeof d));
  p.ni.run();
  CHECK(p.b.receive()->bytes.size() == 60'000);
  CHECK(endpoint_drops(p.a) + endpoint_drops(p.b) == 0);
}

TEST_CASE("unknown_channel: never opened, beyond all, or closed") {
  Pair p;
  const uint32_t channel = GENERATE(0u, 2u, 4095u, 4096u, 0xFFFFFFFFu, 1u);
  if (channel == 1) p.ni.command(CloseChannel{p.a.number, 1});
  REQUIRE(p.a.send(channel, pattern(GENERATE(10u, 1'000u), 1)));
  p.ni.run();
  p.check_only(p.a, EndpointCounter::unknown_channel);
  CHECK_FALSE(p.b.receive().has_value());
}

TEST_CASE("unknown_channel: closed while a message was going out") {
  Pair p;
  p.wire.transmit_room = 1;
  p.ni.wire(p.a, 3, 0x1'0001, 9, kPeer);
  REQUIRE(p.a.send(3, pattern(60'000, 1)));
  p.ni.run();
  p.ni.command(CloseChannel{p.a.number, 3});
  p.wire.transmit_room = ~0u;
  p.ni.run();
  p.check_only(p.a, EndpointCounter::unknown_channel);
  CHECK(p.a.header->send_consumed.value.load() == 1);
  p.check_still_works();
}

TEST_CASE("unknown_channel: closed while a message was going out, and its number given to another peer") {
  Pair p;
  p.wire.transmit_room = 1;
  p.ni.wire(p.a, 3, 0x1'0001, 9, kPeer);
  REQUIRE(p.a.send(3, pattern(60'000, 1)));
  p.ni.run();
  p.ni.command(CloseChannel{p.a.number, 3});
  p.ni.wire(p.a, 3, 0x2'0002, 77, kPeer);
  p.wire.transmit_room = ~0u;
  p.ni.run();
  for (const FrameBytes& frame : p.wire.sent) {
    FrameView view;
    REQUIRE(parse_frame(frame, view) == FrameError::none);
    CHECK(view.tag == Tag{9});
  }
  p.check_only(p.a, EndpointCounter::unknown_channel);
  CHECK(p.a.header->send_consumed.value.load() == 1);
  p.check_still_works();
}

TEST_CASE("no_free_buffer: all buffers hold messages the client keeps") {
  Pair p;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(p.a.send(1, pattern(kMessageMax, 1)));
    p.ni.run();
    REQUIRE(p.b.receive(true).has_value());
  }
  const bool over_wire = GENERATE(false, true);
  if (over_wire) {
    p.arrive(p.frames(pattern(1'000, 1), 0)[0]);
  } else {
    REQUIRE(p.a.send(1, pattern(1'000, 1)));
    p.ni.run();
  }
  p.check_only(p.b, EndpointCounter::no_free_buffer);
  REQUIRE(p.a.send(1, pattern(48, 1)));  // needs none
  p.ni.run();
  CHECK(p.b.receive().has_value());
}

TEST_CASE("no_free_buffer: once for a message of many frames") {
  Pair p;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(p.a.send(1, pattern(kMessageMax, 1)));
    p.ni.run();
    REQUIRE(p.b.receive(true).has_value());
  }
  for (const FrameBytes& frame : p.frames(pattern(10'000, 1), 0)) p.arrive(frame);
  p.check_only(p.b, EndpointCounter::no_free_buffer);
}

TEST_CASE("receive_queue_full: the client does not take its messages") {
  Pair p;
  const uint32_t size = GENERATE(10u, 100u, 4'000u);
  std::vector<std::byte> region(100);
  p.ni.command(SetRegion{p.b.number, region});
  for (uint32_t i = 0; i < p.b.geometry.receive_depth; ++i) {
    REQUIRE(p.a.send(1, pattern(10, 1)));
    p.ni.run();
  }
  const int path = GENERATE(0, 1, 2, 3);
  if (path == 0) {
    REQUIRE(p.a.send(1, pattern(size, 1)));
    p.ni.run();
  } else if (path == 1) {
    for (const FrameBytes& frame : p.frames(pattern(size, 1), 0)) p.arrive(frame);
  } else if (path == 2) {
    REQUIRE(p.a.put(1, 0, pattern(10, 1), true));
    p.ni.run();
  } else {
    for (const FrameBytes& frame : p.frames(pattern(10, 1), 0, FrameFlags::kPut | FrameFlags::kNotify)) p.arrive(frame);
  }
  p.check_only(p.b, EndpointCounter::receive_queue_full);
  while (p.b.receive()) {
  }
  p.check_still_works();
}

TEST_CASE("a credit word that lies gives no room and takes none") {
  Pair p;
  for (uint32_t i = 0; i < p.b.geometry.receive_depth; ++i) {
    REQUIRE(p.a.send(1, pattern(10, i)));
    p.ni.run();
  }
  p.b.header->receive_consumed.value = GENERATE(65u, 1000u, 0x80000000u, 0xFFFFFFFFu);
  REQUIRE(p.a.send(1, pattern(10, 1)));
  p.ni.run();
  p.check_only(p.b, EndpointCounter::receive_queue_full);
  p.b.header->receive_consumed.value = 0;
  for (uint32_t i = 0; i < p.b.geometry.receive_depth; ++i) CHECK((p.b.receive()->bytes == pattern(10, i)));
  p.check_still_works();
}

TEST_CASE("too_long: more than all receive buffers hold") {
  Pair p({.receive_depth = 64, .buffers = 4, .buffer_size = 256, .send_bytes = kMessageMax});
  const uint32_t size = GENERATE(1025u, kMessageMax);
  if (GENERATE(false, true)) {
    for (const FrameBytes& frame : p.frames(pattern(size, 1), 0)) p.arrive(frame);
    if (size == 1025) return;  // one frame: the next section's case
  } else {
    REQUIRE(p.a.send(1, pattern(size, 1)));
    p.ni.run();
  }
  p.check_only(p.b, EndpointCounter::too_long);
  REQUIRE(p.a.send(1, pattern(1024, 1)));
  p.ni.run();
  CHECK((p.b.receive()->bytes == pattern(1024, 1)));
}

TEST_CASE("too_fragmented: buffers so scattered that no descriptor can name them") {
  TestWire wire;
  TestNi ni({&wire});
  TestEndpoint& a = ni.add_endpoint();
  ni.endpoints.push_back(std::make_unique<TestEndpoint>(1, kSmallEndpoint));
  TestEndpoint& b = *ni.endpoints.back();
  ni.command(AttachEndpoint{.endpoint = 1, .client = 0, .doorbell = 1, .segment = b.segment, .geometry = b.geometry});
  ni.hairpin(a, 1, b, 1);
  for (uint32_t buffer = 0; buffer < 64; buffer += 2) b.free_writer.push(buffer);  // no two adjacent
  REQUIRE(a.send(1, pattern(13 * 2048, 1)));
  ni.run();
  CHECK(b.counter(EndpointCounter::too_fragmented) == 1);
  CHECK(endpoint_drops(b) == 1);
  REQUIRE(a.send(1, pattern(12 * 2048, 2)));  // twelve runs do
  ni.run();
  CHECK((b.receive(true)->bytes == pattern(12 * 2048, 2)));
  for (uint32_t buffer = 1; buffer < 64; buffer += 2) b.free_writer.push(buffer);  // now they join
  REQUIRE(a.send(1, pattern(13 * 2048, 3)));
  ni.run();
  const auto got = b.receive(true);
  REQUIRE(got.has_value());
  CHECK((got->bytes == pattern(13 * 2048, 3)));
  CHECK(endpoint_drops(b) == 1);
}

TEST_CASE("bad_free_descriptor: the free queue names a buffer that does not exist") {
  TestNi ni;
  TestEndpoint& a = ni.add_endpoint();
  ni.endpoints.push_back(std::make_unique<TestEndpoint>(1, kSmallEndpoint));
  TestEndpoint& b = *ni.endpoints.back();
  ni.command(AttachEndpoint{.endpoint = 1, .client = 0, .doorbell = 1, .segment = b.segment, .geometry = b.geometry});
  ni.hairpin(a, 1, b, 1);
  for (const uint32_t lie : {64u, 65u, 0x10000u, 0x80000000u, 0xFFFFFFFFu}) b.free_writer.push(lie);
  b.free_writer.push(63);
  REQUIRE(a.send(1, pattern(2'000, 1)));
  ni.run();
  CHECK((b.receive()->bytes == pattern(2'000, 1)));
  CHECK(b.counter(EndpointCounter::bad_free_descriptor) == 5);
  CHECK(endpoint_drops(b) == 5);
}

TEST_CASE("a buffer named many times is there once, and the other times are lies") {
  TestNi ni;
  TestEndpoint& a = ni.add_endpoint();
  ni.endpoints.push_back(std::make_unique<TestEndpoint>(1, kSmallEndpoint));
  TestEndpoint& b = *ni.endpoints.back();
  ni.command(AttachEndpoint{.endpoint = 1, .client = 0, .doorbell = 1, .segment = b.segment, .geometry = b.geometry});
  ni.hairpin(a, 1, b, 1);
  for (int i = 0; i < 64; ++i) b.free_writer.push(7);
  REQUIRE(a.send(1, pattern(2'000, 1)));
  REQUIRE(a.send(1, pattern(2'000, 2), 4096));
  REQUIRE(a.send(1, pattern(30'000, 3), 8192));  // fifteen times the same is no memory for it
  ni.run();
  CHECK((b.receive(true)->bytes == pattern(2'000, 1)));
  CHECK_FALSE(b.receive().has_value());
  CHECK(b.counter(EndpointCounter::no_free_buffer) == 2);
  CHECK(b.counter(EndpointCounter::bad_free_descriptor) == 63);
  CHECK(endpoint_drops(b) == 2 + 63);
}

TEST_CASE("duplicate_fragment: before and after the message is whole") {
  Pair p;
  const uint8_t flags = GENERATE(as<uint8_t>{}, FrameFlags::kMessage, FrameFlags::kPut | FrameFlags::kNotify);
  std::vector<std::byte> region(10'000);
  p.ni.command(SetRegion{p.b.number, region});
  const auto message = pattern(5'000, 1);
  const auto frames = p.frames(message, 0, flags);
  REQUIRE(frames.size() == 4);
  p.arrive(frames[2]);
  p.arrive(frames[2]);
  p.check_only(p.b, EndpointCounter::duplicate_fragment, 1);
  for (const size_t i : {0u, 1u, 3u}) p.arrive(frames[i]);
  const auto got = p.b.receive();
  REQUIRE(got.has_value());
  if (flags == FrameFlags::kMessage) {
    CHECK((got->bytes == message));
  } else {
    CHECK(std::equal(message.begin(), message.end(), region.begin()));
  }
  for (const FrameBytes& frame : frames) p.arrive(frame);
  p.check_only(p.b, EndpointCounter::duplicate_fragment, 5);
  p.ni.now += kSecond;
  p.ni.poll();
  CHECK_FALSE(p.b.receive().has_value());
  p.check_only(p.b, EndpointCounter::duplicate_fragment, 5);  // no reassembly was begun, so none times out
}

TEST_CASE("fragment_mismatch: fragments of one message disagree") {
  Pair p;
  std::vector<std::byte> region(100'000);
  p.ni.command(SetRegion{p.b.number, region});
  const auto message = pattern(5'000, 1);
  const auto frames = p.frames(message, 9);
  p.arrive(frames[0]);
  FrameFields fields = p.fields(9);
  fields.offset = 1472;
  fields.total = 5'000;
  uint32_t length = 1472;
  switch (GENERATE(0, 1, 2, 3)) {
    case 0: fields.total = 4'999; break;
    case 1: fields.flags = FrameFlags::kPut | FrameFlags::kNotify; break;
    case 2: fields.offset = 1408; length = 1472; break;  // half of it has come
    case 3: fields.total = kMessageMax; break;
  }
  p.arrive(make_frame(fields, pattern(length, 2)));
  p.check_only(p.b, EndpointCounter::fragment_mismatch);
  for (size_t i = 1; i < frames.size(); ++i) p.arrive(frames[i]);
  CHECK((p.b.receive()->bytes == message));
}

TEST_CASE("reassembly_timeout: counted once, and the buffers are there again") {
  Pair p;
  for (uint32_t round = 0; round < 50; ++round) {
    const auto frames = p.frames(pattern(kMessageMax, 1), round);
    for (size_t i = 0; i < frames.size(); ++i) {
      if (i != round % frames.size()) p.arrive(frames[i]);
    }
    CHECK(p.ni.engine->next_event() == p.ni.now + EngineOptions{}.reassembly_timeout);
    p.ni.now += EngineOptions{}.reassembly_timeout - 1;
    p.ni.poll();
    CHECK(p.b.counter(EndpointCounter::reassembly_timeout) == round);
    p.ni.now += 1;
    p.ni.poll();
    p.arrive(frames[round % frames.size()]);  // too late: must not begin the message again
  }
  p.check_only(p.b, EndpointCounter::reassembly_timeout, 50);
  CHECK(p.ni.engine->next_event() == ~Nanoseconds{0});
  p.check_still_works();
}

TEST_CASE("reassembly_overflow: of many begun messages, the superseded ones make room") {
  Pair p({.receive_depth = 64, .buffers = 1024, .buffer_size = 2048, .send_bytes = kMessageMax});
  constexpr uint32_t kBegun = kReassembliesPerEndpointMax + 10;
  std::vector<std::vector<FrameBytes>> messages;
  for (uint32_t i = 0; i < kBegun; ++i) {
    messages.push_back(p.frames(pattern(3'000, i), i));
    p.arrive(messages.back()[0]);
  }
  p.check_only(p.b, EndpointCounter::reassembly_overflow, 10);
  for (uint32_t i = 10; i < kBegun; ++i) {
    for (size_t f = 1; f < messages[i].size(); ++f) p.arrive(messages[i][f]);
  }
  for (uint32_t i = 10; i < kBegun; ++i) CHECK((p.b.receive()->bytes == pattern(3'000, i)));
  CHECK_FALSE(p.b.receive().has_value());
  p.check_only(p.b, EndpointCounter::reassembly_overflow, 10);
}

TEST_CASE("reassembly_overflow: messages begun on as many channels are not superseded, so the new one is refused") {
  Pair p({.receive_depth = 64, .buffers = 1024, .buffer_size = 2048, .send_bytes = kMessageMax});
  std::vector<FrameBytes> last;
  for (uint32_t i = 0; i <= kReassembliesPerEndpointMax; ++i) {
    const uint32_t tag = 0x5000'0100 + i;
    p.ni.wire(p.b, 10 + i, tag, 1, kPeer);
    FrameFields fields = p.fields(0);
    fields.tag = Tag{tag};
    last = make_frames(fields, pattern(3'000, i));
    p.arrive(last[0]);
  }
  p.arrive(last[1]);
  p.arrive(last[2]);
  p.check_only(p.b, EndpointCounter::reassembly_overflow, 1);  // once for its three frames
}

TEST_CASE("a message that would find no buffer takes those of a superseded one") {
  Pair p({.receive_depth = 64, .buffers = 32, .buffer_size = 2048, .send_bytes = kMessageMax});
  const auto lost = p.frames(pattern(kMessageMax, 1), 0);
  for (size_t i = 0; i + 1 < lost.size(); ++i) p.arrive(lost[i]);
  for (const FrameBytes& frame : p.frames(pattern(kMessageMax, 2), 1)) p.arrive(frame);
  CHECK((p.b.receive()->bytes == pattern(kMessageMax, 2)));
  p.arrive(lost.back());
  p.check_only(p.b, EndpointCounter::reassembly_overflow, 1);
}

TEST_CASE("put_no_region and put_out_of_bounds: whole message or nothing, counted once") {
  Pair p;
  const uint32_t size = GENERATE(0u, 8u, 4'000u);
  const bool notify = GENERATE(false, true);
  const int path = GENERATE(0, 1);
  std::vector<std::byte> region(5'000, std::byte{0xEE});
  const auto before = region;
  const uint64_t offset = GENERATE_COPY(uint64_t{0}, uint64_t{5'001} - size, uint64_t{5'001}, uint64_t{1} << 32,
                                        ~uint64_t{0}, uint64_t{0} - size - 1);
  const bool exposed = offset != 0;
  if (exposed) p.ni.command(SetRegion{p.b.number, region});
  if (path == 0) {
    REQUIRE(p.a.put(1, offset, pattern(size, 1), notify));
    p.ni.run();
  } else {
    const auto flags = static_cast<uint8_t>(FrameFlags::kPut | (notify ? FrameFlags::kNotify : 0));
    for (const FrameBytes& frame : p.frames(pattern(size, 1), 0, flags, offset)) p.arrive(frame);
  }
  p.check_only(p.b, exposed ? EndpointCounter::put_out_of_bounds : EndpointCounter::put_no_region);
  CHECK((region == before));
  CHECK_FALSE(p.b.receive().has_value());
}

TEST_CASE("a put whose region goes away while it arrives is dropped once") {
  Pair p;
  std::vector<std::byte> region(10'000), untouched(10'000);
  p.ni.command(SetRegion{p.b.number, region});
  const auto flags = static_cast<uint8_t>(FrameFlags::kPut | (GENERATE(0, 1) != 0 ? FrameFlags::kNotify : 0));
  const auto frames = p.frames(pattern(10'000, 1), 0, flags);
  p.arrive(frames[0]);
  p.ni.command(SetRegion{p.b.number, {}});
  p.arrive(frames[1]);
  region = untouched;
  for (size_t i = 2; i < frames.size(); ++i) p.arrive(frames[i]);
  p.check_only(p.b, EndpointCounter::put_no_region);
  CHECK((region == untouched));
  p.ni.now += kSecond;
  p.ni.poll();
  p.check_only(p.b, EndpointCounter::put_no_region);
}

}  // namespace unet::engine::endpoint_drops_test
