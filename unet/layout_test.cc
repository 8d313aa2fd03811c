// layout_test.cc - parts of shared memory do not overlap, and sizes out of range are refused.
#include "unet/layout.h"

#include <catch2/catch.hpp>

namespace unet::layout_test {
namespace {

TEST_CASE("the parts of a segment lie behind one another, aligned, and the sum is the size") {
  const uint32_t depth = GENERATE(uint32_t{4}, uint32_t{5}, uint32_t{256}, kQueueDepthMax);
  const uint32_t buffers = GENERATE(uint32_t{4}, uint32_t{7}, uint32_t{256}, uint32_t{16000});
  const EndpointOptions options{.send_depth = depth, .receive_depth = depth, .buffers = buffers, .buffer_size = 320, .send_bytes = 65537};
  REQUIRE(valid_options(options));
  const SegmentGeometry g = SegmentGeometry::of(options);
  CHECK(g.send_queue >= sizeof(SegmentHeader));
  CHECK(g.receive_queue >= g.send_queue + g.send_depth * sizeof(Slot));
  CHECK(g.free_queue >= g.receive_queue + g.receive_depth * sizeof(Slot));
  CHECK(g.send_data >= g.free_queue + g.free_depth * sizeof(FreeSlot));
  CHECK(g.receive_data >= g.send_data + options.send_bytes);
  CHECK(g.total >= g.receive_data + uint64_t{buffers} * 320);
  CHECK((g.send_depth >= depth && (g.send_depth & (g.send_depth - 1)) == 0 && g.free_depth >= buffers));
  CHECK((g.send_queue % kCacheLine == 0 && g.receive_queue % kCacheLine == 0 && g.free_queue % kCacheLine == 0));
  CHECK((g.send_data % kPage == 0 && g.receive_data % kPage == 0 && g.total % kPage == 0));
}

TEST_CASE("the parts of a local channel lie behind one another, aligned, and the sum is the size") {
  const uint32_t depth = GENERATE(uint32_t{4}, uint32_t{33}, kQueueDepthMax);
  const LocalOptions options{.depth = depth, .data_bytes = 4 * kMessageMax + 1};
  REQUIRE(valid_options(options));
  const LocalGeometry g = LocalGeometry::of(options);
  CHECK((g.control[0] == 0 && g.control[1] == sizeof(LocalControl) && g.slots[0] >= 2 * sizeof(LocalControl)));
  CHECK(g.slots[1] >= g.slots[0] + g.depth * sizeof(Slot));
  CHECK(g.data[0] >= g.slots[1] + g.depth * sizeof(Slot));
  CHECK(g.data[1] == g.data[0] + g.data_bytes);
  CHECK(g.total == g.data[1] + g.data_bytes);
  CHECK((g.data_bytes >= options.data_bytes && g.depth >= depth && g.slots[0] % kPage == 0 && g.data[0] % kPage == 0));
}

TEST_CASE("options outside the limits are refused before anything is computed from them") {
  CHECK(valid_options(EndpointOptions{}));
  CHECK_FALSE(valid_options(EndpointOptions{.send_depth = 3}));
  CHECK_FALSE(valid_options(EndpointOptions{.send_depth = ~0u}));
  CHECK_FALSE(valid_options(EndpointOptions{.receive_depth = kQueueDepthMax + 1}));
  CHECK_FALSE(valid_options(EndpointOptions{.buffers = 0}));
  CHECK_FALSE(valid_options(EndpointOptions{.buffers = kBuffersMax + 1}));
  CHECK_FALSE(valid_options(EndpointOptions{.buffer_size = 100}));
  CHECK_FALSE(valid_options(EndpointOptions{.buffer_size = 2049}));
  CHECK_FALSE(valid_options(EndpointOptions{.buffers = kBuffersMax, .buffer_size = kBufferSizeMax}));
  CHECK_FALSE(valid_options(EndpointOptions{.send_bytes = kMessageMax - 1}));
  CHECK(valid_options(EndpointOptions{.weight = kEndpointWeightMax}));
  CHECK_FALSE(valid_options(EndpointOptions{.weight = 0}));
  CHECK_FALSE(valid_options(EndpointOptions{.weight = kEndpointWeightMax + 1}));
  CHECK_FALSE(valid_options(EndpointOptions{.emulated = 1, .weight = 2}));
  CHECK_FALSE(valid_options(EndpointOptions{.buffers = 16 * 1024, .buffer_size = 64 * 1024, .send_bytes = 1 << 30}));
  CHECK(valid_options(LocalOptions{}));
  CHECK_FALSE(valid_options(LocalOptions{.depth = 2}));
  CHECK_FALSE(valid_options(LocalOptions{.depth = ~0u}));
  CHECK_FALSE(valid_options(LocalOptions{.data_bytes = 4 * kMessageMax - 1}));
  CHECK_FALSE(valid_options(LocalOptions{.data_bytes = kLocalDataMax + 1}));
}

}  // namespace
}  // namespace unet::layout_test
