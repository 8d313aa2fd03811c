// descriptors_fuzz.cc - a client writes anything into its segment while the engine works; an honest client beside it receives only whole
// messages.
//
// Input: steps of one byte and arguments: a store anywhere in the hostile segment's header and queues, a descriptor where the engine reads
// next, a buffer number, a frame from the wire, or turns of the engine.
#include "ni/engine/test_ni.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

using namespace unet;
using namespace unet::engine;

namespace {

constexpr EndpointOptions kTiny{.send_depth = 4, .receive_depth = 4, .buffers = 8, .buffer_size = 256, .send_bytes = 64 * 1024};
constexpr MacAddress kPeer{2, 0, 0, 0, 0, 9};

void post(TestEndpoint& liar, FuzzInput& input, uint32_t& position) {
  Slot& slot = liar.send_slots()[position & (liar.geometry.send_depth - 1)];
  const auto kind = static_cast<SlotKind>(input.take<uint8_t>());
  const auto length = input.take<uint32_t>();
  slot.channel = input.take<uint8_t>() & 3;
  const std::vector<std::byte> payload = input.take_bytes(kInlineMax);
  if (!payload.empty()) std::memcpy(slot.payload, payload.data(), payload.size());
  slot.mark.store(Mark::pack(++position, length, kind), std::memory_order_release);
}

void arrive(TestWire& wire, FuzzInput& input) {
  FrameFields fields{.to = wire.capabilities.address, .from = kPeer};
  fields.tag = Tag{input.take<uint8_t>() & 7u};
  fields.flags = input.take<uint8_t>() & FrameFlags::kKnown;
  fields.message = input.take<uint8_t>();
  fields.offset = input.take<uint16_t>() / kFragmentUnit * kFragmentUnit;
  fields.total = input.take<uint32_t>();
  fields.region_offset = input.take<uint32_t>();
  const std::vector<std::byte> payload(input.take<uint16_t>() % 1400);
  wire.arriving.push_back(make_frame(fields, payload));
}

void run(TestWire& wire, FuzzInput& input) {
  TestNi ni({&wire});
  TestEndpoint& liar = ni.add_endpoint(kTiny);
  TestEndpoint& honest = ni.add_endpoint(kTiny);
  ni.hairpin(liar, 0, honest, 0);
  ni.wire(liar, 1, 1, 0x10001, kPeer);
  ni.wire(honest, 1, 2, 0x10002, kPeer);
  ni.poll();
  uint32_t position = 0;
  while (!input.empty()) {
    const auto step = input.take<uint8_t>();
    switch (step & 7) {
      case 0: {
        const uint64_t at = input.take<uint16_t>() % (liar.geometry.send_data / 8) * 8;
        reinterpret_cast<std::atomic<uint64_t>*>(liar.segment + at)->store(input.take<uint64_t>(), std::memory_order_relaxed);
        break;
      }
      case 1:
      case 2: post(liar, input, position); break;
      case 3: liar.free_writer.push(input.take<uint32_t>()); break;
      case 4: arrive(wire, input); break;
      case 5: {
        const uint8_t message[100] = {step};
        honest.send(step >> 7, as_bytes(message, (step >> 3) & 15 ? sizeof message : 8));
        honest.ring(ni.page);
        break;
      }
      default:
        liar.ring(ni.page);
        ni.now += kMillisecond * (step >> 3);
        ni.poll(2);
        while (honest.receive()) {
        }
        wire.sent.clear();
        break;
    }
  }
  ni.poll(8);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, std::min<size_t>(size, 4096));
  TestWire wire;
  run(wire, input);
  UNET_CHECK(wire.owned_by_engine == 0);  // the port has all of its frames back
  return 0;
}
