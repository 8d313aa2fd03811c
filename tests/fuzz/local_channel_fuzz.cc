// local_channel_fuzz.cc - one side of a local channel makes calls while its peer, the fuzzer, writes anything into the shared memory.
//
// Input: the victim's side, then steps of one byte and its arguments: a call of the victim, a store anywhere in the control words and
// slots, or a whole slot where the victim reads next.
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"
#include "unet/test_victim.h"

using namespace unet;

namespace {

void store(const Mapping& memory, uint64_t at, uint64_t value) {
  reinterpret_cast<std::atomic<uint64_t>*>(memory.data() + at)->store(value, std::memory_order_relaxed);
}

void forge(const Mapping& memory, const LocalGeometry& geometry, uint32_t side, uint32_t position, FuzzInput& input) {
  auto* slots = reinterpret_cast<Slot*>(memory.data() + geometry.slots[side]);
  Slot& slot = slots[position & (geometry.depth - 1)];
  const auto kind = static_cast<SlotKind>(input.take<uint8_t>());
  const auto length = input.take<uint32_t>();
  const std::vector<std::byte> payload = input.take_bytes(16);
  if (!payload.empty()) std::memcpy(slot.payload, payload.data(), payload.size());
  slot.mark.store(Mark::pack(position + 1, length, kind), std::memory_order_release);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput input(data, std::min<size_t>(size, 4096));
  const uint32_t side = input.take<uint8_t>() & 1;
  const ChannelParts parts({.depth = 4, .data_bytes = 4 * kMessageMax});
  const LocalGeometry& geometry = parts.geometry();
  const Mapping memory = parts.map();
  Victim victim(parts, side);
  while (!input.empty()) {
    const auto step = input.take<uint8_t>();
    switch (step & 3) {
      case 0: store(memory, input.take<uint16_t>() % (geometry.data[0] / 8) * 8, input.take<uint64_t>()); break;
      case 1: forge(memory, geometry, 1 - side, victim.next_position() + (step >> 6), input); break;
      default: UNET_CHECK(victim.turn(uint32_t{static_cast<uint8_t>(step >> 2)} | uint32_t{input.take<uint32_t>()} << 6)); break;
    }
  }
  victim.release_all();
  return 0;
}
