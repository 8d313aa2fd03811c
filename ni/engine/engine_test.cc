// engine_test.cc - messages between endpoints of one NI and over a wire; commands and events.
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "ni/engine/test_ni.h"
#include "unet/mapping.h"

namespace unet::engine::engine_test {
namespace {

const MacAddress kPeer{2, 0, 0, 0, 0, 9};

extern "C" __attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes();

// Bytes of the heap in use; a sanitizer has a heap of its own.
size_t heap_bytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) return __sanitizer_get_current_allocated_bytes();
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Sizes around every boundary: slot, buffer, frame, message.
std::vector<uint32_t> boundary_sizes() {
  std::vector<uint32_t> sizes{0, 1, 7, 8, 47, 48, 49, 63, 64, 65, 65535, 65536};
  for (const uint32_t step : {fragment_payload(1500, false), fragment_payload(1500, true), 2048u}) {
    for (uint32_t k = 1; k * step <= kMessageMax; k = k < 4 ? k + 1 : k * 2) {
      for (const uint32_t size : {k * step - 1, k * step, k * step + 1}) {
        if (size <= kMessageMax) sizes.push_back(size);
      }
    }
  }
  return sizes;
}

}  // namespace

TEST_CASE("a message between endpoints of one NI arrives byte by byte, whatever its size") {
  TestNi ni;
  TestEndpoint& a = ni.add_endpoint();
  TestEndpoint& b = ni.add_endpoint();
  ni.hairpin(a, 3, b, 5);
  uint64_t bytes = 0, messages = 0;
  for (const uint32_t size : boundary_sizes()) {
    const auto sent = pattern(size, size);
    REQUIRE(a.send(3, sent));
    ni.run();
    const auto got = b.receive();
    REQUIRE(got.has_value());
    CHECK(got->channel == 5);
    CHECK(got->kind == (size <= kInlineMax ? SlotKind::inline_data : SlotKind::runs));
    REQUIRE((got->bytes == sent));
    bytes += size;
    ++messages;
  }
  CHECK(a.counter(EndpointCounter::sent_messages) == messages);
  CHECK(a.counter(EndpointCounter::sent_bytes) == bytes);
  CHECK(b.counter(EndpointCounter::received_messages) == messages);
  CHECK(b.counter(EndpointCounter::received_bytes) == bytes);
  CHECK(ni.engine->endpoint_counter(b.number, EndpointCounter::received_bytes) == bytes);
  CHECK(ni.counter(NiCounter::hairpin_messages) == messages);
  CHECK(endpoint_drops(a) + endpoint_drops(b) + ni_drops(ni) == 0);
}

TEST_CASE("a message over a wire arrives byte by byte, whatever its size, with and without a copy at the sender") {
  const bool external = GENERATE(false, true);
  TestWire left, right;
  left.capabilities.external_payload = external;
  right.capabilities.address = kPeer;
  TestNi from({&left}), to({&right});
  TestEndpoint& a = from.add_endpoint();
  TestEndpoint& b = to.add_endpoint();
  from.wire(a, 1, 0x10001, 0x20002, kPeer);
  to.wire(b, 2, 0x20002, 0x10001, left.capabilities.address);
  for (const uint32_t size : boundary_sizes()) {
    const auto sent = pattern(size, size);
    REQUIRE(a.send(1, sent));
    from.run();
    right.arriving.swap(left.sent);
    to.run();
    const auto got = b.receive();
    REQUIRE(got.has_value());
    CHECK(got->channel == 2);
    REQUIRE((got->bytes == sent));
    CHECK((a.header->send_consumed.value.load() == a.writer.position()) == left.unread.empty());
    left.complete();
    from.run();
    CHECK(a.header->send_consumed.value.load() == a.writer.position());
  }
  CHECK((left.external_frames != 0) == external);
  CHECK(endpoint_drops(a) + endpoint_drops(b) + ni_drops(from) + ni_drops(to) == 0);
}

TEST_CASE("a message gathered from several pieces arrives as one") {
  TestWire wire;
  TestNi ni({&wire});
  TestEndpoint& a = ni.add_endpoint();
  TestEndpoint& b = ni.add_endpoint();
  ni.hairpin(a, 0, b, 0);
  ni.wire(b, 1, 0x50001, 7, kPeer);
  ni.wire(a, 1, 0x60002, 0x50001, kPeer);
  const auto data = pattern(100'000, 1);
  std::memcpy(a.send_data().data(), data.data(), data.size());
  const auto base = static_cast<uint32_t>(a.geometry.send_data);
  const GatherDescriptor descriptor{{{base + 50'000, 1'111}, {base, 5}, {base + 7, 0}, {base + 90'000, 4'096}, {base + 1, 777}, {base, 1}}};
  std::vector<std::byte> expected;
  for (const Fragment& f : descriptor.fragments) {
    expected.insert(expected.end(), data.begin() + (f.offset - base), data.begin() + (f.offset - base) + f.length);
  }
  const auto length = static_cast<uint32_t>(expected.size());
  REQUIRE(a.post(0, SlotKind::gather, length, &descriptor, sizeof descriptor));
  REQUIRE(a.post(1, SlotKind::gather, length, &descriptor, sizeof descriptor));
  ni.run();
  REQUIRE((b.receive()->bytes == expected));
  wire.capabilities.address = kPeer;  // the peer's frames come back as if from the peer
  for (FrameBytes& frame : wire.sent) {
    std::memcpy(frame.data(), TestWire{}.capabilities.address.data(), 6);
    std::memcpy(frame.data() + 6, kPeer.data(), 6);
  }
  wire.arriving.swap(wire.sent);
  ni.run();
  REQUIRE((b.receive()->bytes == expected));
}

TEST_CASE("a put lands in the exposed region, and is announced if asked for") {
  const bool over_wire = GENERATE(false, true);
  TestWire left, right;
  right.capabilities.address = kPeer;
  TestNi from({&left}), other({&right});
  TestNi& to = over_wire ? other : from;
  TestEndpoint& a = from.add_endpoint();
  TestEndpoint& b = to.add_endpoint();
  if (over_wire) {
    from.wire(a, 1, 0x10001, 0x20002, kPeer);
    to.wire(b, 1, 0x20002, 0x10001, left.capabilities.address);
  } else {
    from.hairpin(a, 1, b, 1);
  }
  std::vector<std::byte> region(200'000), expected(200'000);
  to.command(SetRegion{b.number, region});
  uint64_t at = 3;
  for (const uint32_t size : boundary_sizes()) {
    const auto sent = pattern(size, size + 1);
    const bool notify = size % 2 == 1;
    REQUIRE(a.put(1, at, sent, notify));
    from.run();
    right.arriving.swap(left.sent);
    to.run();
    std::copy(sent.begin(), sent.end(), expected.begin() + static_cast<ptrdiff_t>(at));
    REQUIRE((region == expected));
    const auto got = b.receive();
    REQUIRE(got.has_value() == notify);
    if (notify) {
      CHECK(got->kind == SlotKind::put_done);
      CHECK(got->channel == 1);
      CHECK(got->put_done.region_offset == at);
      CHECK(got->put_done.length == size);
    }
    at = (at * 7 + 1) % (region.size() - kMessageMax);
  }
  CHECK(b.counter(EndpointCounter::received_messages) == a.counter(EndpointCounter::sent_messages));
  CHECK(endpoint_drops(a) + endpoint_drops(b) + ni_drops(from) + ni_drops(to) == 0);
}

TEST_CASE("signals go out and come in, to the port's address and to all") {
  TestWire wire;
  TestNi ni({&wire});
  SendSignal signal{.port = 0, .to = kPeer, .length = kSignalMax, .bytes = {}};
  const auto text = pattern(kSignalMax, 4);
  std::memcpy(signal.bytes.data(), text.data(), text.size());
  ni.command(signal);
  ni.poll();
  REQUIRE(wire.sent.size() == 1);
  FrameView view;
  REQUIRE(parse_frame(wire.sent.front(), view) == FrameError::none);
  CHECK(view.tag == kSignallingTag);
  CHECK(std::equal(text.begin(), text.end(), view.payload.begin(), view.payload.end()));

  for (const MacAddress& to : {wire.capabilities.address, kBroadcast}) {
    wire.arriving.push_back(make_frame({.to = to, .from = kPeer, .tag = kSignallingTag, .total = 100}, {text.data(), 100}));
    ni.poll();
    const auto event = ni.event<SignalReceived>();
    REQUIRE(event.has_value());
    CHECK(event->from == kPeer);
    CHECK(event->length == 100);
    CHECK(std::memcmp(event->bytes.data(), text.data(), 100) == 0);
  }
  CHECK(ni_drops(ni) == 0);
}

TEST_CASE("a detached endpoint is reported, and its number can be used again by a stranger") {
  TestWire wire;
  TestNi ni({&wire});
  TestEndpoint& a = ni.add_endpoint();
  TestEndpoint& b = ni.add_endpoint();
  ni.hairpin(a, 0, b, 0);
  ni.wire(b, 1, 0x10001, 1, kPeer);
  ni.run();
  const auto holds = [&](NiGauge gauge) { return ni.engine->ni_gauge(gauge); };
  CHECK((holds(NiGauge::endpoints) == 2 && holds(NiGauge::channels) == 3 && holds(NiGauge::tags) == 1));
  ni.command(DetachEndpoint{b.number});
  ni.poll();
  CHECK((holds(NiGauge::endpoints) == 1 && holds(NiGauge::channels) == 1 && holds(NiGauge::tags) == 0));
  REQUIRE(ni.event<EndpointDetached>()->endpoint == b.number);
  CHECK_FALSE(b.watched());

  TestEndpoint stranger(b.number, kSmallEndpoint);
  ni.command(AttachEndpoint{.endpoint = b.number, .client = 0, .doorbell = b.number, .segment = stranger.segment,
                            .geometry = stranger.geometry});
  stranger.post_all_buffers();
  REQUIRE(a.send(0, pattern(40, 1)));
  REQUIRE(a.send(0, pattern(400, 1)));
  wire.arriving.push_back(make_frame({.to = wire.capabilities.address, .from = kPeer, .tag = Tag{0x10001}}, {}));
  ni.run();
  CHECK_FALSE(stranger.receive().has_value());
  CHECK_FALSE(b.receive().has_value());
  CHECK(a.counter(EndpointCounter::unknown_channel) == 2);
  CHECK(ni.counter(NiCounter::unknown_tag) == 1);

  ni.command(DetachEndpoint{a.number});
  ni.command(DetachEndpoint{stranger.number});
  ni.command(DetachClient{0});
  ni.poll();
  CHECK(ni.event<EndpointDetached>().has_value());
  CHECK(ni.event<EndpointDetached>().has_value());
  CHECK(ni.event<ClientDetached>()->client == 0);
  for (size_t i = 0; i < kNiGauges; ++i) CHECK(holds(static_cast<NiGauge>(i)) == 0);
}

TEST_CASE("detached events wait for room in the mailbox") {
  TestNi ni;
  TestEndpoint& a = ni.add_endpoint();
  ni.poll();
  while (ni.events.push(SignalReceived{})) {
  }
  ni.command(DetachEndpoint{a.number});
  ni.command(DetachClient{0});
  ni.poll(3);
  CHECK(ni.engine->next_event() != ~Nanoseconds{0});
  while (ni.event<SignalReceived>()) {
  }
  CHECK(ni.events.empty());
  ni.poll();
  CHECK(ni.event<EndpointDetached>()->endpoint == a.number);
  CHECK(ni.event<ClientDetached>()->client == 0);
  CHECK(ni.engine->next_event() == ~Nanoseconds{0});
}

TEST_CASE("an endpoint whose segment a port still reads is detached when the port has read it, or after a second") {
  const bool completes = GENERATE(true, false);
  TestWire wire;
  wire.capabilities.external_payload = true;
  TestNi ni({&wire});
  TestEndpoint& a = ni.add_endpoint();
  ni.wire(a, 0, 0x10001, 0x20002, kPeer);
  REQUIRE(a.send(0, pattern(10'000, 1)));
  ni.run();
  REQUIRE(wire.unread.size() == 7);
  CHECK(wire.registered == 1);
  ni.command(DetachEndpoint{a.number});
  ni.poll(3);
  CHECK_FALSE(ni.event<EndpointDetached>().has_value());
  if (completes) {
    wire.complete();
  } else {
    ni.now += kSecond;
  }
  ni.poll();
  CHECK(ni.event<EndpointDetached>().has_value());
  CHECK(wire.registered == 0);
}

TEST_CASE("frames that the engine holds go back to the port with it") {
  TestWire wire;
  wire.transmit_room = 3;
  {
    TestNi ni({&wire});
    TestEndpoint& a = ni.add_endpoint();
    ni.wire(a, 0, 0x10001, 0x20002, kPeer);
    REQUIRE(a.send(0, pattern(20'000, 1)));
    ni.run();
    CHECK(wire.sent.size() == 3);
    CHECK(wire.owned_by_engine != 0);
  }
  CHECK(wire.owned_by_engine == 0);
}

TEST_CASE("a channel opened after a turn began is known to the message that followed its opening") {
  // The service puts the command, then the client sends: the engine may see the message before it looks for commands.
  TestWire wire;
  TestNi ni({&wire});
  TestEndpoint& a = ni.add_endpoint();
  ni.run();
  ni.wire(a, 1, 0x10001, 1, kPeer);
  wire.arriving.push_back(make_frame({.to = wire.capabilities.address, .from = kPeer, .tag = Tag{0x10001}}, {}));
  ni.poll();
  CHECK(a.receive().has_value());
}

TEST_CASE("many commands at a time do not keep the engine from messages") {
  TestWire wire;
  TestNi ni({&wire});
  ni.poll();
  constexpr size_t kSignals = 1'000;
  for (size_t i = 0; i < kSignals; ++i) ni.command(SendSignal{.port = 0, .to = kPeer, .length = 1, .bytes = {}});
  ni.poll();
  CHECK(wire.sent.size() >= 1);
  CHECK(wire.sent.size() <= 64);
  CHECK_FALSE(ni.engine->prepare_sleep(ni.now));
  ni.run();
  CHECK(wire.sent.size() == kSignals);
}

TEST_CASE("a client that announced its sleep before the engine knew how to wake it is woken") {
  // The service answers while the command waits: the client may sleep, and the engine deliver, before the command is run.
  TestNi ni;
  TestEndpoint& a = ni.add_endpoint();
  TestEndpoint& b = ni.add_endpoint();
  ni.hairpin(a, 1, b, 1);
  ni.run();
  auto& announcement = GENERATE(false, true) ? b.header->receiver_asleep.value : b.header->sender_waiting.value;
  announcement = 1;
  REQUIRE(a.send(1, pattern(8, 1)));
  REQUIRE(b.send(1, pattern(8, 2)));
  ni.run();
  CHECK(announcement == 1);
  const int wake = ni.wake_descriptor(b);
  ni.run();
  uint64_t count = 0;
  CHECK((::read(wake, &count, sizeof count) == sizeof count && count == 1));
  CHECK(announcement == 0);
}

TEST_CASE("an engine that takes over gives no message a number that one before had") {
  TestWire here{.capabilities = {.address = {2, 0, 0, 0, 0, 1}}}, there{.capabilities = {.address = {2, 0, 0, 0, 0, 2}}};
  TestNi receiver({&there});
  TestEndpoint& b = receiver.add_endpoint();
  receiver.wire(b, 5, 20, 10, here.capabilities.address);
  const Descriptor memory(memfd_create("kept", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(memory.get(), static_cast<off_t>(EngineCheckpoint::kBytes)) == 0);
  REQUIRE(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  auto sender = std::make_unique<TestNi>(std::vector{&here}, EngineOptions{}, std::move(*EngineCheckpoint::open(memory.get())));
  TestEndpoint& a = sender->add_endpoint();
  for (uint32_t life = 0; life < 3; ++life) {
    if (life != 0) {
      auto next = std::make_unique<TestNi>(std::vector{&here}, EngineOptions{.resume = true},
                                           std::move(*EngineCheckpoint::open(memory.get())));
      next->take_over(*sender);
      sender = std::move(next);
    }
    sender->wire(a, 3, 10, 20, there.capabilities.address);
    if (life != 0) sender->command(Resumed{});
    for (uint32_t i = 0; i < 5; ++i) {
      CAPTURE(life, i);
      const auto message = pattern(5000, 10 * life + i);
      REQUIRE(a.send(3, message));
      sender->run();
      if (i == 4) here.sent.pop_back();  // cut off by the end of its engine: it stays in reassembly there
      std::swap(there.arriving, here.sent);
      receiver.run();
      const auto arrived = b.receive();
      REQUIRE(arrived.has_value() == (i != 4));
      if (arrived) CHECK(arrived->bytes == message);
    }
  }
  CHECK(endpoint_drops(b) == 0);
}

TEST_CASE("an engine from which nobody takes over takes no memory for endpoints that it has not") {
  const auto address_space = [] {
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  };
  auto commands = std::make_unique<CommandMailbox>();
  auto events = std::make_unique<EventMailbox>();
  const uint64_t before = address_space();
  const Engine engine({}, {}, *commands, *events, -1);
  CHECK(address_space() < before + (uint64_t{16} << 20));
  CHECK(engine.endpoint_counter(kEndpointsMax - 1, EndpointCounter::sent_messages) == 0);
}

TEST_CASE("what an engine keeps for an endpoint's channels goes with the endpoint") {
  constexpr uint32_t kEndpoints = 32;
  TestNi ni;
  TestEndpoint& sink = ni.add_endpoint();
  for (uint32_t i = 0; i < kEndpoints; ++i) ni.add_endpoint();
  ni.run();
  const size_t before = heap_bytes();
  for (uint32_t i = 1; i <= kEndpoints; ++i) ni.command(OpenHairpin{i, kChannelsPerEndpointMax - 1, sink.number, 0});
  ni.run();
  const size_t tables = heap_bytes() - before;
  CHECK(tables > kEndpoints * kChannelsPerEndpointMax * sizeof(uint64_t));
  for (uint32_t i = 1; i <= kEndpoints; ++i) {
    ni.command(DetachEndpoint{i});
    ni.poll();
    while (ni.event<EndpointDetached>()) {
    }
  }
  CHECK(heap_bytes() < before + tables / kEndpoints);
}

}  // namespace unet::engine::engine_test
