// link_test.cc - several engines of one NI: rings between them, ports of others, channels between their endpoints, and their threads.
#include "ni/engine/link.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <catch2/catch.hpp>

#include <thread>

#include "ni/engine/test_ni.h"
#include "unet/base/fence.h"
#include "unet/capture_memory.h"

namespace unet::engine::link_test {
namespace {

constexpr MacAddress kPeer{2, 0, 0, 0, 9, 9};
constexpr uint32_t kPorts = 2;

// A port with sent frames that another thread may count.
class CountingPort final : public TestPort {
 public:
  CountingPort(TestWire& wire, std::atomic<uint32_t>& sent) : TestPort(wire), sent_(sent) {}
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override {
    const uint32_t count = TestPort::transmit(frames, now);
    sent_.fetch_add(count, std::memory_order_release);
    return count;
  }

 private:
  std::atomic<uint32_t>& sent_;
};

// Two engines; port e belongs to engine e.
struct TwoEngines {
  TwoEngines() {
    for (uint32_t i = 0; i < kPorts; ++i) wires[i].capabilities.address = {2, 0, 0, 0, 0, static_cast<uint8_t>(i + 1)};
    fabric = std::make_unique<LinkFabric>(
        2, std::vector<LinkFabric::PortInfo>{{0, wires[0].capabilities}, {1, wires[1].capabilities}});
    for (uint32_t e = 0; e < 2; ++e) {
      bells[e] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
      fabric->bell(e).descriptor = bells[e];
      std::vector<std::unique_ptr<Driver>> drivers;
      for (uint32_t p = 0; p < kPorts; ++p) {
        if (p == e) drivers.push_back(std::make_unique<CountingPort>(wires[p], sent[p]));
        else drivers.push_back(fabric->foreign_port(e, p));
      }
      for (uint32_t other = 0; other < 2; ++other) drivers.push_back(fabric->engine_port(e, other));
      nis[e] = std::make_unique<TestNi>(std::move(drivers), fabric->links(e));
    }
  }
  ~TwoEngines() {
    for (uint32_t e = 0; e < 2; ++e) {
      nis[e].reset();
      close(bells[e]);
    }
  }
  // A channel between endpoints of the two, as the service opens it.
  void link(TestEndpoint& a, uint32_t channel_a, TestEndpoint& b, uint32_t channel_b, uint32_t tag = 100) {
    nis[0]->wire(a, channel_a, tag, tag + 1, LinkFabric::engine_address(1), fabric->link_port(1));
    nis[1]->wire(b, channel_b, tag + 1, tag, LinkFabric::engine_address(0), fabric->link_port(0));
  }
  // A channel of an endpoint of engine 0 over the port of engine 1.
  void wire_over_other(TestEndpoint& a, uint32_t channel, uint32_t local_tag, uint32_t remote_tag) {
    nis[1]->command(OpenRelay{.local_tag = Tag{local_tag}, .engine = 0});
    nis[0]->wire(a, channel, local_tag, remote_tag, kPeer, 1);
  }
  void run() {
    for (int i = 0; i < 20; ++i) {
      nis[0]->run();
      nis[1]->run();
    }
  }
  TestNi& ni(uint32_t e) { return *nis[e]; }

  TestWire wires[kPorts];
  std::atomic<uint32_t> sent[kPorts]{};  // frames that left by the port
  std::unique_ptr<LinkFabric> fabric;
  std::unique_ptr<TestNi> nis[2];
  int bells[2] = {-1, -1};
};

FrameBytes from_peer(const TestWire& wire, uint32_t tag, Bytes payload, uint32_t message = 0) {
  return make_frame({.to = wire.capabilities.address, .from = kPeer, .tag = Tag{tag}, .message = message,
                     .total = static_cast<uint32_t>(payload.size())},
                    payload);
}

}  // namespace

TEST_CASE("a ring gives frames in order and takes no more than it has room for") {
  LinkRing ring(100);
  std::array<ReceivedFrame, kBurst> frames;
  CHECK(ring.empty());
  uint32_t sent = 0, seen = 0;
  for (int round = 0; round < 5; ++round) {
    uint32_t reserved = 0;
    for (std::byte* place; (place = ring.reserve()) != nullptr; ++reserved) std::memcpy(place, &(sent += 1), sizeof sent);
    CHECK(reserved == LinkRing::kDepth);
    CHECK(ring.peek(frames) == 0);  // nothing is published yet
    ring.give_back(3);
    sent -= 3;
    for (uint32_t i = 0; i < reserved - 3; ++i) ring.put(10 + i % 7);
    ring.publish();
    for (uint32_t count, i = 0; (count = ring.peek(frames)) != 0; ring.release(count)) {
      for (uint32_t f = 0; f < count; ++f, ++i) {
        uint32_t value = 0;
        std::memcpy(&value, frames[f].data, sizeof value);
        CHECK(value == ++seen);
        CHECK(frames[f].length == 10 + i % 7);
      }
    }
    CHECK(seen == sent);
  }
}

TEST_CASE("messages of every length and puts between endpoints of two engines") {
  TwoEngines two;
  TestEndpoint& a = two.ni(0).add_endpoint();
  TestEndpoint& b = two.ni(1).add_endpoint();
  two.link(a, 3, b, 7);
  two.run();
  for (const uint32_t length : {0u, 1u, kInlineMax, kInlineMax + 1, 1500u, 8960u, 9000u, 20'000u, kMessageMax}) {
    const auto there = pattern(length, length), back = pattern(length, length + 1);
    REQUIRE(a.send(3, there));
    REQUIRE(b.send(7, back));
    two.run();
    const auto at_b = b.receive(), at_a = a.receive();
    REQUIRE(at_b);
    REQUIRE(at_a);
    CHECK((at_b->channel == 7 && at_b->bytes == there));
    CHECK((at_a->channel == 3 && at_a->bytes == back));
  }
  std::vector<std::byte> region(100'000);
  two.ni(1).command(SetRegion{b.number, region});
  const auto put = pattern(kMessageMax, 5);
  REQUIRE(a.put(3, 1000, put, true));
  two.run();
  const auto done = b.receive();
  REQUIRE(done);
  CHECK((done->kind == SlotKind::put_done && done->put_done.region_offset == 1000 && done->put_done.length == put.size()));
  CHECK(std::equal(put.begin(), put.end(), region.begin() + 1000));
  for (uint32_t e = 0; e < 2; ++e) {
    CHECK(ni_drops(two.ni(e)) == 0);
    CHECK(two.ni(e).counter(NiCounter::linked_frames) != 0);
    CHECK(two.ni(e).counter(NiCounter::transmitted_frames) == 0);
    CHECK(two.ni(e).counter(NiCounter::received_frames) == 0);
    CHECK(two.wires[e].sent.empty());
  }
}

TEST_CASE("an endpoint uses the port of another engine as its own") {
  TwoEngines two;
  TestEndpoint& a = two.ni(0).add_endpoint();
  two.wire_over_other(a, 2, 50, 60);
  two.run();

  const auto message = pattern(5000, 1);
  REQUIRE(a.send(2, message));
  two.run();
  CHECK(two.wires[0].sent.empty());
  REQUIRE(two.wires[1].sent.size() == 4);
  const auto expected = make_frames({.to = kPeer, .from = two.wires[1].capabilities.address, .tag = Tag{60}}, message);
  for (size_t i = 0; i < expected.size(); ++i) CHECK(two.wires[1].sent[i] == expected[i]);
  CHECK(two.ni(1).counter(NiCounter::transmitted_frames) == 4);
  CHECK(two.ni(0).counter(NiCounter::transmitted_frames) == 0);
  CHECK(two.ni(0).counter(NiCounter::linked_frames) == 4);

  for (const FrameBytes& frame : make_frames({.to = two.wires[1].capabilities.address, .from = kPeer, .tag = Tag{50}}, message)) {
    two.wires[1].arriving.push_back(frame);
  }
  two.run();
  const auto arrived = a.receive();
  REQUIRE(arrived);
  CHECK((arrived->channel == 2 && arrived->bytes == message));
  CHECK(two.ni(1).counter(NiCounter::received_frames) == 4);
  CHECK(two.ni(0).counter(NiCounter::received_frames) == 0);

  SECTION("what is not its own is dropped by name, where it is found") {
    two.wires[0].arriving.push_back(from_peer(two.wires[0], 50, pattern(8, 2)));  // the right tag at the wrong port
    FrameBytes stranger = from_peer(two.wires[1], 50, pattern(8, 2));
    stranger[11] = std::byte{1};  // from another address
    two.wires[1].arriving.push_back(stranger);
    two.wires[1].arriving.push_back(from_peer(two.wires[1], 51, pattern(8, 2)));
    two.run();
    CHECK(two.ni(0).counter(NiCounter::wrong_source) == 2);
    CHECK(two.ni(1).counter(NiCounter::unknown_tag) == 1);
    CHECK_FALSE(a.receive());
  }
  SECTION("closed, its frames are nobody's") {
    two.ni(1).command(CloseRelay{Tag{50}});
    two.wires[1].arriving.push_back(from_peer(two.wires[1], 50, pattern(8, 2)));
    two.run();
    CHECK(two.ni(1).counter(NiCounter::unknown_tag) == 1);
    two.ni(1).command(OpenRelay{.local_tag = Tag{50}, .engine = 0});  // the tag may be used again
    two.wires[1].arriving.push_back(from_peer(two.wires[1], 50, pattern(8, 2)));
    two.run();
    CHECK(a.receive());
  }
  SECTION("frames for an engine that does not take them are dropped, and the others are served") {
    TestEndpoint& b = two.ni(1).add_endpoint();
    two.ni(1).wire(b, 1, 70, 80, kPeer, 1);
    for (uint32_t i = 0; i < LinkRing::kDepth + 10; ++i) two.wires[1].arriving.push_back(from_peer(two.wires[1], 50, pattern(8, 2)));
    two.wires[1].arriving.push_back(from_peer(two.wires[1], 70, pattern(9, 3)));
    two.ni(1).run();  // engine 0 does not run
    CHECK(two.ni(1).counter(NiCounter::link_overflow) == 10);
    const auto served = b.receive();
    REQUIRE(served);
    CHECK(served->bytes == pattern(9, 3));
  }
}

TEST_CASE("a port that takes nothing holds up nobody but those that send over it") {
  TwoEngines two;
  TestEndpoint& a = two.ni(0).add_endpoint();
  TestEndpoint& c = two.ni(0).add_endpoint();
  TestEndpoint& b = two.ni(1).add_endpoint();
  two.wire_over_other(a, 0, 50, 60);
  two.ni(1).wire(b, 0, 70, 80, kPeer, 1);
  two.ni(0).wire(c, 0, 90, 91, kPeer, 0);
  two.run();
  two.wires[1].transmit_room = 0;
  uint32_t of_a = 0, of_b = 0, of_c = 0;
  const auto turn = [&] {
    while (a.send(0, pattern(4, 1))) ++of_a;
    while (b.send(0, pattern(4, 2))) ++of_b;
    if (c.send(0, pattern(4, 3))) ++of_c;
    for (TestNi* ni : {two.nis[0].get(), two.nis[1].get()}) {
      for (const auto& e : ni->endpoints) e->ring(ni->page);
      ni->poll();
      ni->now += kMicrosecond;
    }
  };
  for (int i = 0; i < 1000; ++i) turn();
  CHECK(two.wires[1].sent.empty());
  CHECK(two.wires[0].sent.size() == of_c);
  CHECK(of_a < 1000);  // its queue and the ring are full: it waits
  CHECK(two.ni(1).engine->next_event() <= two.ni(1).now + kMillisecond);  // to try again

  // With some room at times, both get their part, and everything arrives in the end.
  for (int i = 0; i < 2000; ++i) {
    two.wires[1].transmit_room = 8;
    turn();
  }
  size_t frames_of_a = 0, frames_of_b = 0;
  const auto count = [&] {
    for (const FrameBytes& frame : two.wires[1].sent) {
      FrameView view;
      REQUIRE(parse_frame(frame, view) == FrameError::none);
      ++(view.tag == Tag{60} ? frames_of_a : frames_of_b);
    }
    two.wires[1].sent.clear();
  };
  count();
  CHECK(frames_of_a > 2000);
  CHECK(frames_of_b > 2000);
  two.wires[1].transmit_room = ~0u;
  two.run();
  count();
  CHECK(frames_of_a == of_a);
  CHECK(frames_of_b == of_b);
  CHECK((ni_drops(two.ni(0)) == 0 && ni_drops(two.ni(1)) == 0));
}

TEST_CASE("frames of another engine that a port took in part are sent when it takes more, though nothing else happens") {
  TwoEngines two;
  TestEndpoint& a = two.ni(0).add_endpoint();
  two.wire_over_other(a, 0, 50, 60);
  two.run();
  two.wires[1].transmit_room = 2;
  for (int i = 0; i < 5; ++i) REQUIRE(a.send(0, pattern(4, 1)));
  two.run();
  CHECK(two.wires[1].sent.size() == 2);
  CHECK(two.ni(1).engine->next_event() <= two.ni(1).now + kMillisecond);
  two.wires[1].transmit_room = ~0u;
  two.ni(1).run();
  CHECK(two.wires[1].sent.size() == 5);
  CHECK(two.ni(1).engine->next_event() == ~Nanoseconds{0});
}

TEST_CASE("two engines write one capture, and neither waits for the other") {
  TwoEngines two;
  TestEndpoint& a = two.ni(0).add_endpoint();
  two.wire_over_other(a, 0, 50, 60);
  two.run();
  constexpr uint32_t kBytes = kCaptureBytesMin;
  alignas(kPage) static std::byte memory[kCapturePage + kBytes];
  const auto& header = *reinterpret_cast<const CaptureHeader*>(memory);
  CaptureWriter writer;
  writer.engines = 2;
  for (uint32_t e = 0; e < 2; ++e) {
    two.ni(e).command(StartCapture{.capture = 0, .memory = memory, .bytes = kBytes, .snap_length = 64, .port = -1, .endpoint = ~0u,
                                   .channel = ~0u, .writer = &writer});
  }
  two.run();
  // Each frame is captured once, by the engine of the port; links are not captured.
  REQUIRE(a.send(0, pattern(8, 1)));
  two.wires[0].arriving.push_back(from_peer(two.wires[0], 99, pattern(8, 1)));
  two.wires[1].arriving.push_back(from_peer(two.wires[1], 50, pattern(8, 1)));
  two.run();
  CHECK(header.frames == 3);
  CHECK(header.dropped == 0);
  uint64_t at = 0;
  uint32_t ports[2] = {0, 0};
  for (; at < header.written; ++ports[0]) {
    CaptureRecord record{};
    std::memcpy(&record, memory + kCapturePage + at, sizeof record);
    ports[1] += record.port;
    at += capture_record_size(record.captured);
  }
  CHECK((ports[0] == 3 && ports[1] == 2));  // records, and those of port 1
  CHECK(a.receive());

  REQUIRE_FALSE(writer.busy.test_and_set(std::memory_order_acquire));  // the other one lost its core in the midst of a burst
  two.wires[0].arriving.push_back(from_peer(two.wires[0], 99, pattern(8, 1)));
  two.run();
  writer.busy.clear(std::memory_order_release);
  two.wires[0].arriving.push_back(from_peer(two.wires[0], 99, pattern(8, 1)));
  two.run();
  CHECK(header.frames == 5);
  CHECK(header.dropped == 1);

  two.ni(0).command(StopCapture{0});
  two.run();
  CHECK(header.ended == 0);
  two.ni(1).command(StopCapture{0});
  two.run();
  CHECK(header.ended == 1);
}

TEST_CASE("doorbells of another engine's endpoints are left alone") {
  TwoEngines two;
  ClientPage& page = two.ni(0).page;
  two.ni(0).add_endpoint();
  two.run();
  page.doorbells[1] = 1;       // of word 1: engine 1's
  page.summary.words[0] = 0b11;
  page.doorbells[0] = 1;
  two.ni(0).poll(5);
  CHECK(page.doorbells[1] == 1);
  CHECK(page.summary.words[0] == 0b10);
  CHECK(page.doorbells[0] == 0);
  page.engine_asleep.value = 0b10;
  REQUIRE(two.ni(0).engine->prepare_sleep(two.ni(0).now));
  CHECK(page.engine_asleep.value == 0b11);
  two.ni(0).engine->wake_up();
  CHECK(page.engine_asleep.value == 0b10);
}

TEST_CASE("a frame wakes the engine that it is for") {
  TwoEngines two;
  TestEndpoint& a = two.ni(0).add_endpoint();
  TestEndpoint& b = two.ni(1).add_endpoint();
  two.link(a, 0, b, 0);
  two.wire_over_other(a, 1, 50, 60);
  two.run();
  const auto rang = [&](uint32_t e) {
    uint64_t count = 0;
    return read(two.bells[e], &count, sizeof count) == sizeof count;
  };
  REQUIRE(two.ni(1).engine->prepare_sleep(two.ni(1).now));
  SECTION("between endpoints") { REQUIRE(a.send(0, pattern(4, 1))); }
  SECTION("for its port") { REQUIRE(a.send(1, pattern(4, 1))); }
  two.ni(0).run();
  CHECK(rang(1));
  two.ni(1).engine->wake_up();
  two.ni(1).run();
  CHECK_FALSE(rang(1));
  CHECK(b.receive().has_value() != (two.wires[1].sent.size() == 1));

  // A frame that arrived at its port: the other direction.
  REQUIRE(two.ni(0).engine->prepare_sleep(two.ni(0).now));
  two.wires[1].arriving.push_back(from_peer(two.wires[1], 50, pattern(8, 2)));
  two.ni(1).run();
  CHECK(rang(0));
  two.ni(0).engine->wake_up();
  two.ni(0).run();
  CHECK(a.receive());
}

TEST_CASE("the first messages of a channel wait for the command that opens it, however many stand before that") {
  TwoEngines two;
  TestEndpoint& a = two.ni(0).add_endpoint();
  TestEndpoint& b = two.ni(1).add_endpoint();
  two.run();
  const auto takes_part = [&] {  // a part of the waiting frames: polls stay short
    two.ni(1).poll();
    CHECK_FALSE(b.receive());
    CHECK_FALSE(two.nis[1]->commands.empty());
  };
  SECTION("between endpoints") {
    for (uint32_t i = 0; i < kMailboxDepth - 1; ++i) two.ni(1).command(SetUser{.user = 7, .weight = 1, .limits = {}});
    two.link(a, 0, b, 0);
    REQUIRE(a.send(0, pattern(8, 1)));
    two.ni(0).run();
    takes_part();
  }
  SECTION("of which some have no room yet") {
    two.nis[1]->commands.announce_more(true);
    two.ni(0).wire(a, 0, 100, 101, LinkFabric::engine_address(1), two.fabric->link_port(1));
    REQUIRE(a.send(0, pattern(8, 1)));
    two.ni(0).run();
    two.ni(1).run();
    CHECK_FALSE(two.ni(1).engine->prepare_sleep(two.ni(1).now));
    two.ni(1).wire(b, 0, 101, 100, LinkFabric::engine_address(0), two.fabric->link_port(0));
    two.nis[1]->commands.announce_more(false);
  }
  SECTION("and those that arrived at another engine's port") {
    two.ni(0).command(OpenRelay{.local_tag = Tag{50}, .engine = 1});
    for (uint32_t i = 0; i < kMailboxDepth - 1; ++i) two.ni(1).command(SetUser{.user = 7, .weight = 1, .limits = {}});
    two.ni(1).wire(b, 0, 50, 60, kPeer, 0);
    two.wires[0].arriving.push_back(from_peer(two.wires[0], 50, pattern(8, 1)));
    two.ni(0).run();
    takes_part();
  }
  two.ni(1).run();
  const auto arrived = b.receive();
  REQUIRE(arrived);
  CHECK(arrived->bytes == pattern(8, 1));
  CHECK((ni_drops(two.ni(0)) == 0 && ni_drops(two.ni(1)) == 0));
}

TEST_CASE("while commands have no room, what is for open channels arrives over a link, and other users send") {
  TwoEngines two;
  TestEndpoint& a = two.ni(0).add_endpoint();
  TestEndpoint& b = two.ni(1).add_endpoint();
  TestEndpoint& eager = two.ni(0).add_endpoint(kSmallEndpoint, 1, 7);  // of another user; it has no channel
  two.run();
  two.link(a, 0, b, 0);
  two.run();
  for (const uint32_t i : {0u, 1u}) two.nis[i]->commands.announce_more(true);
  REQUIRE(eager.send(5, pattern(8, 1)));
  eager.ring(two.ni(0).page);
  for (uint32_t i = 0; i < 20; ++i) {
    REQUIRE(a.send(0, pattern(8, i)));
    a.ring(two.ni(0).page);
    for (uint32_t turn = 0; turn < 4; ++turn) {
      two.ni(0).poll();
      two.ni(1).poll();
    }
    const auto arrived = b.receive();
    REQUIRE(arrived);
    CHECK(arrived->bytes == pattern(8, i));
  }
  CHECK(eager.counter(EndpointCounter::unknown_channel) == 0);
  for (const uint32_t i : {0u, 1u}) two.nis[i]->commands.announce_more(false);
  two.run();
  CHECK(eager.counter(EndpointCounter::unknown_channel) == 1);
}

TEST_CASE("a message for a channel whose opening has no room yet waits for it") {
  TwoEngines two;
  TestEndpoint& a = two.ni(0).add_endpoint();
  two.run();
  two.nis[0]->commands.announce_more(true);
  REQUIRE(a.send(0, pattern(8, 1)));
  a.ring(two.ni(0).page);
  two.ni(0).poll(100);
  CHECK(a.counter(EndpointCounter::unknown_channel) == 0);
  two.ni(0).wire(a, 0, 100, 101, kPeer, 0);
  two.nis[0]->commands.announce_more(false);
  two.ni(0).run();
  CHECK(two.wires[0].sent.size() == 1);
  CHECK(endpoint_drops(a) == 0);
}

namespace {

// Runs each engine from `first` on in a thread, which sleeps whenever it may. Only the bell of the engine and the test end a sleep: a lost
// wake-up ends at kLost, and is counted.
class SleepingEngines {
 public:
  explicit SleepingEngines(TwoEngines& two, uint32_t first = 0) : two_(two) {
    for (uint32_t e = first; e < 2; ++e) threads_[e] = std::thread([this, e] { loop(e); });
  }
  ~SleepingEngines() { stop(); }
  // Number of lost wake-ups.
  uint32_t stop() {
    stop_ = true;
    for (uint32_t e = 0; e < 2; ++e) {
      wake(e);
      if (threads_[e].joinable()) threads_[e].join();
    }
    return lost_;
  }
  void wake(uint32_t e) {
    const uint64_t one = 1;
    static_cast<void>(!write(two_.bells[e], &one, sizeof one));
  }
  // Wakes the engine like a client that has written to its send queue.
  void ring(TestEndpoint& endpoint, uint32_t e) {
    ClientPage& page = two_.ni(e).page;
    light_fence();
    if (endpoint.watched()) return;
    endpoint.ring(page);
    light_fence();
    if ((page.engine_asleep.value.load(std::memory_order_relaxed) >> e & 1) != 0) wake(e);
  }
  bool lost() const { return lost_ != 0; }

 private:
  static constexpr int kLost = 60'000;  // a waking thread may be without a core for seconds

  void loop(uint32_t e) {
    TestNi& ni = two_.ni(e);
    while (!stop_.load(std::memory_order_relaxed)) {
      ni.now += kMicrosecond;
      if (ni.poll() != 0 || !ni.engine->prepare_sleep(ni.now)) continue;
      pollfd wait{two_.bells[e], POLLIN, 0};
      if (!stop_.load(std::memory_order_relaxed) && poll(&wait, 1, kLost) == 0) ++lost_;
      uint64_t count = 0;
      static_cast<void>(!read(two_.bells[e], &count, sizeof count));
      ni.engine->wake_up();
    }
  }

  TwoEngines& two_;
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> lost_{0};
  std::thread threads_[2];
};

std::optional<Arrived> next_of(TestEndpoint& e, const SleepingEngines& engines) {
  std::optional<Arrived> arrived;
  while (!(arrived = e.receive()) && !engines.lost()) spin_pause();
  return arrived;
}

}  // namespace

TEST_CASE("two engines in two threads, which sleep between messages") {
  TwoEngines two;
  TestEndpoint& a = two.ni(0).add_endpoint();
  TestEndpoint& b = two.ni(1).add_endpoint();
  two.link(a, 0, b, 0);
  SleepingEngines engines(two);
  // The clients run here: a message, and its copy back, of many lengths.
  bool all = true;
  for (uint32_t i = 0; i < 2000 && all; ++i) {
    const auto message = pattern(i % 50 == 0 ? kMessageMax : i * 37 % 4000, i);
    all = a.send(0, message);
    engines.ring(a, 0);
    const auto there = next_of(b, engines);
    all = all && there && there->bytes == message && b.send(0, there->bytes);
    engines.ring(b, 1);
    const auto back = next_of(a, engines);
    all = all && back && back->bytes == message;
  }
  CHECK(engines.stop() == 0);
  CHECK(all);
  CHECK((ni_drops(two.ni(0)) == 0 && ni_drops(two.ni(1)) == 0));
}

// Engine 1 sleeps whenever it can. Engine 0, here, sends at varying intervals: at every point of the way of engine 1 to sleep.
TEST_CASE("no wake-up is lost of an engine that goes to sleep while another sends") {
  constexpr uint32_t kMessages = 30'000;
  TwoEngines two;
  TestEndpoint& a = two.ni(0).add_endpoint();
  TestEndpoint& b = two.ni(1).add_endpoint();
  const bool to_port = GENERATE(false, true);
  if (to_port) two.wire_over_other(a, 0, 50, 60);
  else two.link(a, 0, b, 0);
  two.ni(0).run();
  SleepingEngines engines(two, 1);
  uint32_t state = 1, arrived = 0;
  for (uint32_t i = 0; i < kMessages && !engines.lost(); ++i) {
    state = state * 1664525u + 1013904223u;
    const uint32_t pause_max = i % 4 == 0 ? 1'000 : 40;  // mostly as short as the way to sleep is
    for (uint32_t pause = (state >> 8) % pause_max; pause > 0; --pause) spin_pause();
    REQUIRE(a.post(0, SlotKind::inline_data, 4, &i, 4));
    a.ring(two.ni(0).page);
    two.ni(0).poll();
    if (to_port) {
      while (two.sent[1].load(std::memory_order_acquire) == i && !engines.lost()) spin_pause();
      arrived = two.sent[1].load(std::memory_order_acquire);
    } else {
      const auto message = next_of(b, engines);
      if (message && std::memcmp(message->bytes.data(), &i, 4) == 0) ++arrived;
    }
  }
  CHECK(engines.stop() == 0);
  CHECK(arrived == kMessages);
}

}  // namespace unet::engine::link_test
