// am_packet_fuzz.cc - any bytes as an Active Message packet, of a wire or of a local channel: accepted fields are in range, and emitting
// them gives the same bytes.
#include "am/local_message.h"
#include "tests/fuzz/fuzz_input.h"
#include "unet/base/check.h"

using namespace unet;
using namespace unet::am;

namespace {

void check_in_range(Bytes message, const PacketFields& fields, Bytes payload) {
  UNET_CHECK(fields.count <= kArgumentsMax && static_cast<uint8_t>(fields.kind) >= 1 && static_cast<uint8_t>(fields.kind) <= kKindMax);
  if (payload.empty()) return;
  UNET_CHECK(has_payload(fields.kind));
  UNET_CHECK(payload.data() > message.data() && payload.data() + payload.size() == message.data() + message.size());
}

void on_wire(Bytes message) {
  PacketFields fields;
  Bytes payload;
  if (parse_packet(message, fields, payload) != PacketError::none) return;
  check_in_range(message, fields, payload);
  std::array<std::byte, kHeadMax> head{};
  const uint32_t length = emit_head(head.data(), fields);
  UNET_CHECK(length + payload.size() == message.size() && std::equal(head.begin(), head.begin() + length, message.begin()));
}

void on_local_channel(Bytes message) {
  PacketFields fields, line;
  Bytes payload;
  const bool taken = parse_local(message, fields, payload) == PacketError::none;
  const bool is_long_line = parse_long_line(message, line);
  UNET_CHECK(!is_long_line || (line.offset == fields.offset && line.total == fields.total));
  const bool is_line = is_long_line || parse_line(message, line);
  // A line that parse_line() accepts, parse_local() accepts with the same fields.
  UNET_CHECK(!is_line || (taken && payload.empty() && line.kind == fields.kind && line.handler == fields.handler &&
                          line.count == fields.count && line.flags == fields.flags && line.handled == fields.handled &&
                          std::equal(line.arguments.begin(), line.arguments.begin() + line.count, fields.arguments.begin())));
  if (!taken) return;
  check_in_range(message, fields, payload);
  std::array<std::byte, kLocalHeadMax> head{};
  emit_local_head(head.data(), fields);
  const uint32_t bare = local_head_size(fields.kind, fields.count, fields.flags, false);
  UNET_CHECK(std::equal(head.begin(), head.begin() + bare, message.begin()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes message = as_bytes(data, std::min<size_t>(size, 4096));
  on_wire(message);
  on_local_channel(message);
  return 0;
}
