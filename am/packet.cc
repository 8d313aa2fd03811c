// packet.cc - parse and emit of Active Message packets; used by flow.h's owners.
#include "am/packet.h"

namespace unet::am {

PacketError parse_packet(Bytes message, PacketFields& fields, Bytes& payload) noexcept {
  if (message.size() < sizeof(PacketHeader)) return PacketError::truncated;
  PacketHeader header;
  std::memcpy(&header, message.data(), sizeof header);
  if (header.kind == 0 || header.kind > kKindMax || header.session == 0) return PacketError::bad_kind;
  if (header.count > kArgumentsMax) return PacketError::bad_count;
  fields.kind = static_cast<Kind>(header.kind);
  fields.handler = header.handler;
  fields.count = header.count;
  fields.flags = header.flags;
  fields.session = header.session;
  fields.addressee = header.addressee;
  fields.sequence = {header.sequence};
  fields.acked = {header.acked};
  fields.handled = header.handled;
  fields.sent_at = header.sent_at;
  fields.echo = header.echo;

  size_t at = sizeof header;
  fields.tag = 0;
  if ((header.flags & PacketFlags::kTag) != 0) {
    be64 tag;
    if (message.size() < at + sizeof tag) return PacketError::truncated;
    std::memcpy(&tag, message.data() + at, sizeof tag);
    fields.tag = tag;
    at += sizeof tag;
  }
  const size_t arguments = size_t{4} * header.count;
  if (message.size() < at + arguments) return PacketError::truncated;
  for (uint32_t i = 0; i < header.count; ++i) {
    be32 word;
    std::memcpy(&word, message.data() + at + size_t{4} * i, sizeof word);
    fields.arguments[i] = word;
  }
  at += arguments;
  fields.offset = fields.total = 0;
  if (has_long_header(fields.kind)) {
    LongHeader part;
    if (message.size() < at + sizeof part) return PacketError::truncated;
    std::memcpy(&part, message.data() + at, sizeof part);
    fields.offset = part.offset;
    fields.total = part.total;
    at += sizeof part;
  }
  payload = message.subspan(at);
  if (!has_payload(fields.kind) && !payload.empty()) return PacketError::bad_length;
  if ((fields.kind == Kind::ack || fields.kind == Kind::probe) && payload.size() != sizeof(AckBody)) return PacketError::bad_length;
  return PacketError::none;
}

uint32_t emit_header(std::byte* head, const HeaderFields& fields) noexcept {
  const PacketHeader header{static_cast<uint8_t>(fields.kind), fields.handler, fields.count, fields.flags, fields.session,
                            fields.addressee, fields.sequence.value, fields.acked.value, fields.handled, fields.sent_at, fields.echo};
  std::memcpy(head, &header, sizeof header);
  return sizeof header;
}

uint32_t emit_head(std::byte* head, const PacketFields& fields) noexcept {
  uint32_t at = emit_header(head, fields);
  if ((fields.flags & PacketFlags::kTag) != 0) {
    const be64 tag = fields.tag;
    std::memcpy(head + at, &tag, sizeof tag);
    at += sizeof tag;
  }
  for (uint32_t i = 0; i < fields.count; ++i, at += 4) {
    const be32 word = fields.arguments[i];
    std::memcpy(head + at, &word, sizeof word);
  }
  if (has_long_header(fields.kind)) {
    const LongHeader part{.offset = fields.offset, .total = fields.total};
    std::memcpy(head + at, &part, sizeof part);
    at += sizeof part;
  }
  return at;
}

void refresh_head(std::byte* head, const HeaderFields& fields, uint8_t own) noexcept {
  head[offsetof(PacketHeader, flags)] = static_cast<std::byte>(fields.flags | own);
  const std::array<be32, 1> addressee{fields.addressee};
  const std::array<be32, 4> rest{fields.acked.value, fields.handled, fields.sent_at, fields.echo};
  std::memcpy(head + offsetof(PacketHeader, addressee), addressee.data(), sizeof addressee);
  std::memcpy(head + offsetof(PacketHeader, acked), rest.data(), sizeof rest);
}

}  // namespace unet::am
