// reassembly_test.cc - the NI's places for messages in reassembly, shared by endpoints that do not trust each other.
#include <catch2/catch.hpp>

#include "ni/engine/test_ni.h"

namespace unet::engine::reassembly_test {
namespace {

const MacAddress kPeer{2, 0, 0, 0, 0, 9};
constexpr EndpointOptions kManyBuffers{
    .send_depth = 64, .receive_depth = 64, .buffers = 256, .buffer_size = 2048, .send_bytes = kMessageMax};

std::vector<FrameBytes> frames_of(const TestWire& wire, uint32_t tag, Bytes message) {
  return make_frames({.to = wire.capabilities.address, .from = kPeer, .tag = Tag{tag}, .flags = FrameFlags::kMessage}, message);
}

}  // namespace

TEST_CASE("endpoints that begin as many messages as the NI has places for leave one to those that hold fewer") {
  TestWire wire;
  TestNi ni({&wire});
  const auto arrive = [&](const FrameBytes& frame) {
    wire.arriving.push_back(frame);
    ni.poll();
  };
  constexpr uint32_t kGreedy = kReassembliesMax / kReassembliesPerEndpointMax;
  for (uint32_t i = 0; i < kGreedy; ++i) ni.add_endpoint(kManyBuffers);
  TestEndpoint& modest = ni.add_endpoint();
  ni.wire(modest, 0, 0x7000'0001, 1, kPeer);
  ni.run();
  // One message on each channel: none is superseded.
  for (uint32_t i = 0; i < kReassembliesMax; ++i) {
    const uint32_t tag = 0x5000'0100 + i;
    ni.wire(*ni.endpoints[i % kGreedy], i / kGreedy, tag, 1, kPeer);
    arrive(frames_of(wire, tag, pattern(3'000, i))[0]);
  }
  for (uint32_t i = 0; i < kGreedy; ++i) REQUIRE(endpoint_drops(*ni.endpoints[i]) == 0);

  CHECK(ni.engine->ni_gauge(NiGauge::reassemblies) == kReassembliesMax);
  const auto message = pattern(10'000, 1);
  for (const FrameBytes& frame : frames_of(wire, 0x7000'0001, message)) arrive(frame);
  const auto got = modest.receive();
  REQUIRE(got.has_value());
  CHECK((got->bytes == message));
  CHECK(endpoint_drops(modest) == 0);
  uint64_t dropped = 0;
  for (uint32_t i = 0; i < kGreedy; ++i) dropped += ni.endpoints[i]->counter(EndpointCounter::reassembly_overflow);
  CHECK(dropped == 1);
  CHECK(ni.engine->ni_gauge(NiGauge::reassemblies) == kReassembliesMax - 1);
  for (const auto& endpoint : ni.endpoints) ni.command(DetachEndpoint{endpoint->number});
  ni.run();
  CHECK(ni.engine->ni_gauge(NiGauge::reassemblies) == 0);
}

TEST_CASE("a client with as many endpoints as the NI has places for messages leaves one to another client") {
  TestWire wire;
  TestNi ni({&wire});
  const auto arrive = [&](const FrameBytes& frame) {
    wire.arriving.push_back(frame);
    ni.poll();
  };
  constexpr EndpointOptions kFewBuffers{.send_depth = 4, .receive_depth = 4, .buffers = 16, .buffer_size = 2048, .send_bytes = kMessageMax};
  for (uint32_t i = 0; i < kReassembliesMax; ++i) {
    TestEndpoint& greedy = ni.add_endpoint(kFewBuffers);
    ni.wire(greedy, 0, 0x5000'0100 + i, 1, kPeer);
    ni.run();
    arrive(frames_of(wire, 0x5000'0100 + i, pattern(3'000, i))[0]);
  }
  REQUIRE(ni.engine->ni_gauge(NiGauge::reassemblies) == kReassembliesMax);

  // Another client: with as many endpoints as it likes, it gets its part of the places.
  ClientPage page{};
  constexpr uint32_t kOther = 1;
  ni.command(AttachClient{kOther, &page});
  std::vector<std::unique_ptr<TestEndpoint>> modest;
  for (uint32_t i = 0; i < 3; ++i) {
    const uint32_t number = kReassembliesMax + i;
    modest.push_back(std::make_unique<TestEndpoint>(number, kFewBuffers));
    ni.command(AttachEndpoint{.endpoint = number, .client = kOther, .doorbell = i, .segment = modest[i]->segment,
                              .geometry = modest[i]->geometry});
    modest[i]->post_all_buffers();
    ni.wire(*modest[i], 0, 0x7000'0001 + i, 1, kPeer);
    ni.run();
  }
  const auto message = pattern(10'000, 1);
  for (uint32_t i = 0; i < 3; ++i) arrive(frames_of(wire, 0x7000'0001 + i, message)[0]);
  for (uint32_t i = 0; i < 3; ++i) {
    const auto frames = frames_of(wire, 0x7000'0001 + i, message);
    for (size_t f = 1; f < frames.size(); ++f) arrive(frames[f]);
    const auto got = modest[i]->receive();
    REQUIRE(got.has_value());
    CHECK((got->bytes == message));
    CHECK(endpoint_drops(*modest[i]) == 0);
  }
  uint64_t dropped = 0;
  for (const auto& greedy : ni.endpoints) dropped += greedy->counter(EndpointCounter::reassembly_overflow);
  CHECK(dropped == 3);
}

}  // namespace unet::engine::reassembly_test
