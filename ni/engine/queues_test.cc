// queues_test.cc - a port with a queue for each of several engines: a frame finds its endpoint once, from any queue, and every engine sends
// by its own.
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "ni/engine/link.h"
#include "ni/engine/test_ni.h"
#include "unet/capture_memory.h"

namespace unet::engine::queues_test {
namespace {

constexpr MacAddress kPeer{2, 0, 0, 0, 9, 9};
constexpr uint32_t kEngines = 3, kQueues = 2, kOtherPort = 1;

// Three engines. Port 0 has a queue at engine 1, which is its first, and one at engine 2; port 1 is engine 0's.
struct QueuesOfEngines {
  static constexpr uint32_t kFirst = 1;  // engine of queue 0

  QueuesOfEngines() {
    other_port.capabilities.address = {2, 0, 0, 0, 0, 7};
    fabric = std::make_unique<LinkFabric>(kEngines, std::vector<LinkFabric::PortInfo>{{kFirst, queues[0].capabilities, 0b110},
                                                                                      {0, other_port.capabilities}});
    for (uint32_t e = 0; e < kEngines; ++e) {
      bells[e] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
      fabric->bell(e).descriptor = bells[e];
      std::vector<std::unique_ptr<Driver>> drivers;
      if (e >= kFirst) drivers.push_back(std::make_unique<TestPort>(queues[e - kFirst]));
      else drivers.push_back(fabric->foreign_port(e, 0));
      if (e == 0) drivers.push_back(std::make_unique<TestPort>(other_port));
      else drivers.push_back(fabric->foreign_port(e, kOtherPort));
      for (uint32_t other = 0; other < kEngines; ++other) drivers.push_back(fabric->engine_port(e, other));
      for (std::unique_ptr<Driver>& entrance : fabric->entrances(e)) drivers.push_back(std::move(entrance));
      nis[e] = std::make_unique<TestNi>(std::move(drivers), fabric->links(e));
    }
  }
  ~QueuesOfEngines() {
    for (uint32_t e = 0; e < kEngines; ++e) {
      nis[e].reset();
      close(bells[e]);
    }
  }
  // A channel of engine e's endpoint over port 0, as the service opens it.
  void open(uint32_t e, TestEndpoint& endpoint, uint32_t channel, uint32_t local_tag, uint32_t remote_tag) {
    for (uint32_t owner = kFirst; owner < kFirst + kQueues; ++owner) {
      if (owner != e) nis[owner]->command(OpenRelay{.local_tag = Tag{local_tag}, .engine = e});
    }
    nis[e]->wire(endpoint, channel, local_tag, remote_tag, kPeer, 0);
  }
  void run() {
    for (int i = 0; i < 10; ++i) {
      for (const auto& ni : nis) ni->run();
    }
  }
  uint64_t drops() const {
    uint64_t sum = 0;
    for (const auto& ni : nis) sum += ni_drops(*ni);
    return sum;
  }

  TestWire queues[kQueues];
  TestWire other_port;
  std::unique_ptr<LinkFabric> fabric;
  std::unique_ptr<TestNi> nis[kEngines];
  int bells[kEngines] = {-1, -1, -1};
};

FrameBytes from_peer(uint32_t tag, Bytes payload) {
  return make_frame({.to = TestWire{}.capabilities.address, .from = kPeer, .tag = Tag{tag}, .total = static_cast<uint32_t>(payload.size())},
                    payload);
}

}  // namespace

TEST_CASE("a message finds its endpoint from every queue, whole or in frames that came by different ones") {
  QueuesOfEngines ni;
  std::vector<TestEndpoint*> endpoints;
  for (uint32_t e = 0; e < kEngines; ++e) {
    endpoints.push_back(&ni.nis[e]->add_endpoint());
    ni.open(e, *endpoints[e], e, 50 + e, 60 + e);
  }
  ni.run();
  uint32_t seed = 0, frames = 0;
  for (uint32_t e = 0; e < kEngines; ++e) {
    for (const uint32_t length : {0u, kInlineMax, 1000u, 5000u}) {
      for (uint32_t queue = 0; queue <= kQueues; ++queue) {  // the last: a frame each in turn
        CAPTURE(e, length, queue);
        const auto message = pattern(length, ++seed);
        uint32_t next = queue;
        const FrameFields fields{.to = ni.queues[0].capabilities.address, .from = kPeer, .tag = Tag{50 + e}, .message = seed};
        for (const FrameBytes& frame : make_frames(fields, message)) {
          ni.queues[queue == kQueues ? next++ % kQueues : queue].arriving.push_back(frame);
          ++frames;
        }
        ni.run();
        const auto arrived = endpoints[e]->receive();
        REQUIRE(arrived);
        CHECK((arrived->channel == e && arrived->bytes == message));
        for (TestEndpoint* const each : endpoints) CHECK_FALSE(each->receive());
      }
    }
  }
  CHECK(ni.drops() == 0);
  // Each frame counts once as received, where it arrived.
  CHECK(ni.nis[0]->counter(NiCounter::received_frames) == 0);
  CHECK(ni.nis[1]->counter(NiCounter::received_frames) + ni.nis[2]->counter(NiCounter::received_frames) == frames);
  CHECK((ni.queues[0].owned_by_engine <= kBurst && ni.queues[1].owned_by_engine <= kBurst));
}

TEST_CASE("every engine sends by its own queue, and one without a queue by the first") {
  QueuesOfEngines ni;
  for (uint32_t e = 0; e < kEngines; ++e) {
    TestEndpoint& endpoint = ni.nis[e]->add_endpoint();
    ni.open(e, endpoint, 0, 50 + e, 60 + e);
    REQUIRE(endpoint.send(0, pattern(3000, e)));
  }
  ni.run();
  const auto expected = [&](uint32_t e) {
    return make_frames({.to = kPeer, .from = ni.queues[0].capabilities.address, .tag = Tag{60 + e}}, pattern(3000, e));
  };
  std::vector<FrameBytes> first(ni.queues[0].sent.begin(), ni.queues[0].sent.end());
  const std::vector<FrameBytes> second(ni.queues[1].sent.begin(), ni.queues[1].sent.end());
  CHECK(second == expected(2));
  REQUIRE(first.size() == 6);
  for (const uint32_t e : {0u, 1u}) {
    for (const FrameBytes& frame : expected(e)) CHECK(std::count(first.begin(), first.end(), frame) == 1);
  }
  CHECK(ni.nis[0]->counter(NiCounter::linked_frames) == 3);
  CHECK(ni.nis[2]->counter(NiCounter::linked_frames) == 0);
  CHECK(ni.drops() == 0);
}

TEST_CASE("a frame for nobody, or from nobody's peer, is dropped by name at any queue") {
  QueuesOfEngines ni;
  TestEndpoint& a = ni.nis[1]->add_endpoint();
  ni.open(1, a, 0, 50, 60);
  ni.run();
  for (TestWire& queue : ni.queues) {
    FrameBytes stranger = from_peer(50, pattern(8, 1));
    stranger[11] = std::byte{1};
    queue.arriving.push_back(stranger);
    queue.arriving.push_back(from_peer(51, pattern(8, 1)));
  }
  ni.other_port.arriving.push_back(make_frame(
      {.to = ni.other_port.capabilities.address, .from = kPeer, .tag = Tag{50}, .total = 8}, pattern(8, 1)));  // no port of that channel
  ni.run();
  CHECK_FALSE(a.receive());
  CHECK(ni.nis[1]->counter(NiCounter::wrong_source) == 2);
  CHECK(ni.nis[1]->counter(NiCounter::unknown_tag) == 1);
  CHECK(ni.nis[2]->counter(NiCounter::unknown_tag) == 1);
  CHECK(ni.nis[0]->counter(NiCounter::unknown_tag) == 1);
}

TEST_CASE("the service gets signals from every queue, and what it says leaves by the first") {
  QueuesOfEngines ni;
  for (TestWire& queue : ni.queues) queue.arriving.push_back(from_peer(0, pattern(40, 1)));
  ni.run();
  for (const uint32_t e : {1u, 2u}) {
    const auto signal = ni.nis[e]->event<SignalReceived>();
    REQUIRE(signal);
    CHECK((signal->port == 0 && signal->from == kPeer && signal->length == 40));
  }
  ni.nis[1]->command(SendSignal{.port = 0, .to = kPeer, .length = 8, .bytes = {}});
  ni.run();
  CHECK(ni.queues[0].sent.size() == 1);
  CHECK(ni.queues[1].sent.empty());
}

// Another engine sent the signal that opened the channel than the one at the queue of the first message.
TEST_CASE("a channel's first message waits at no queue's engine for its commands, however many there are") {
  QueuesOfEngines ni;
  const uint32_t serving = GENERATE(0u, 1u, 2u);
  TestEndpoint& a = ni.nis[serving]->add_endpoint();
  ni.run();
  for (const uint32_t e : {0u, 1u, 2u}) {
    for (uint32_t i = 0; i < kMailboxDepth - 1; ++i) ni.nis[e]->command(SetUser{.user = 7, .weight = 1, .limits = {}});
  }
  ni.open(serving, a, 0, 50, 60);
  for (TestWire& queue : ni.queues) queue.arriving.push_back(from_peer(50, pattern(8, 1)));
  ni.run();
  for (uint32_t i = 0; i < kQueues; ++i) CHECK(a.receive());
  CHECK(ni.drops() == 0);
}

TEST_CASE("a frame wakes the engine of its endpoint, whichever queue it arrived at") {
  QueuesOfEngines ni;
  const uint32_t serving = GENERATE(0u, 1u, 2u);
  TestEndpoint& a = ni.nis[serving]->add_endpoint();
  ni.open(serving, a, 0, 50, 60);
  ni.run();
  for (uint32_t queue = 0; queue < kQueues; ++queue) {
    const uint32_t at = QueuesOfEngines::kFirst + queue;
    if (at == serving) continue;
    REQUIRE(ni.nis[serving]->engine->prepare_sleep(ni.nis[serving]->now));
    ni.queues[queue].arriving.push_back(from_peer(50, pattern(8, 2)));
    ni.nis[at]->run();
    uint64_t count = 0;
    CHECK(read(ni.bells[serving], &count, sizeof count) == sizeof count);
    ni.nis[serving]->engine->wake_up();
    ni.nis[serving]->run();
    CHECK(a.receive());
  }
}

TEST_CASE("a queue whose engine takes nothing costs its frames and no others") {
  QueuesOfEngines ni;
  TestEndpoint& a = ni.nis[1]->add_endpoint();
  TestEndpoint& b = ni.nis[2]->add_endpoint();
  ni.open(1, a, 0, 50, 60);
  ni.open(2, b, 0, 51, 61);
  ni.run();
  for (uint32_t i = 0; i < LinkRing::kDepth + 10; ++i) ni.queues[1].arriving.push_back(from_peer(50, pattern(8, 2)));
  ni.queues[1].arriving.push_back(from_peer(51, pattern(9, 3)));
  ni.nis[2]->run();  // engine 1 does not run
  CHECK(ni.nis[2]->counter(NiCounter::link_overflow) == 10);
  const auto served = b.receive();
  REQUIRE(served);
  CHECK(served->bytes == pattern(9, 3));
}

TEST_CASE("a capture has each frame of the port once, and an endpoint's wherever it arrived") {
  QueuesOfEngines ni;
  TestEndpoint& a = ni.nis[2]->add_endpoint();
  ni.open(2, a, 0, 50, 60);
  ni.run();
  const bool of_endpoint = GENERATE(false, true);
  constexpr uint32_t kBytes = kCaptureBytesMin;
  alignas(kPage) static std::byte memory[kCapturePage + kBytes];
  std::memset(memory, 0, sizeof memory);
  const auto& header = *reinterpret_cast<const CaptureHeader*>(memory);
  CaptureWriter writer;
  writer.engines = 2;
  for (uint32_t e = of_endpoint ? 2 : 1; e < kEngines; ++e) {
    ni.nis[e]->command(StartCapture{.capture = 0, .memory = memory, .bytes = kBytes, .snap_length = 64, .port = of_endpoint ? -1 : 0,
                                    .endpoint = of_endpoint ? a.number : ~0u, .channel = ~0u, .writer = of_endpoint ? nullptr : &writer});
  }
  ni.run();
  REQUIRE(a.send(0, pattern(8, 1)));
  for (TestWire& queue : ni.queues) {
    queue.arriving.push_back(from_peer(50, pattern(8, 1)));
    queue.arriving.push_back(from_peer(77, pattern(8, 1)));
  }
  ni.run();
  CHECK(header.frames == (of_endpoint ? 3 : 5));
  CHECK(header.dropped == 0);
  for (uint64_t at = 0; at < header.written;) {
    CaptureRecord record{};
    std::memcpy(&record, memory + kCapturePage + at, sizeof record);
    CHECK(record.port == 0);
    at += capture_record_size(record.captured);
  }
}

}  // namespace unet::engine::queues_test
