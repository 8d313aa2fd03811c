// packet_test.cc - every kind is emitted and parsed; malformed packets are refused; the one-line forms on a local channel.
#include "am/local_message.h"

#include <catch2/catch.hpp>

#include <random>
#include <vector>

namespace unet::am::packet_test {
namespace {

PacketFields sample(Kind kind, uint8_t count) {
  PacketFields fields({.kind = kind,
                       .handler = 7,
                       .count = count,
                       .flags = PacketFlags::kAckNow,
                       .session = 0x01020304,
                       .addressee = 0x11121314,
                       .sequence = {0x21222324},
                       .acked = {0x31323334},
                       .handled = 0x41424344,
                       .sent_at = 0x51525354,
                       .echo = 0x61626364});
  for (uint32_t i = 0; i < count; ++i) fields.arguments[i] = 0xA0000000u + i;
  if (has_long_header(kind)) {
    fields.offset = 0x0102030405060708;
    fields.total = 99;
  }
  return fields;
}

std::vector<std::byte> emitted(const PacketFields& fields, size_t payload) {
  std::vector<std::byte> bytes(kHeadMax);
  bytes.resize(emit_head(bytes.data(), fields));
  bytes.resize(bytes.size() + payload, std::byte{0x5A});
  return bytes;
}

}  // namespace

TEST_CASE("every kind with every number of arguments, there and back") {
  for (uint8_t kind = 1; kind <= kKindMax; ++kind) {
    for (uint8_t count = 0; count <= kArgumentsMax; ++count) {
      const auto of = static_cast<Kind>(kind);
      const size_t size = of == Kind::ack || of == Kind::probe ? sizeof(AckBody) : has_payload(of) ? 100 : 0;
      PacketFields fields = sample(of, count);
      if (count % 2 == 1) {
        fields.flags |= PacketFlags::kTag;
        fields.tag = 0xB1B2B3B4B5B6B7B8;
      }
      const std::vector<std::byte> bytes = emitted(fields, size);
      PacketFields back;
      Bytes payload;
      REQUIRE(parse_packet(bytes, back, payload) == PacketError::none);
      CHECK(payload.size() == size);
      CHECK(emitted(back, size) == bytes);
      CHECK((back.handler == 7 && back.count == count && back.offset == fields.offset && back.tag == fields.tag));
      CHECK(std::equal(back.arguments.begin(), back.arguments.begin() + count, fields.arguments.begin()));
      for (size_t cut = 0; cut < bytes.size() - size; ++cut) {
        CHECK(parse_packet(Bytes(bytes).first(cut), back, payload) != PacketError::none);
      }
    }
  }
}

TEST_CASE("what is sent again says anew what has changed") {
  PacketFields fields = sample(Kind::medium_request, 3);
  std::vector<std::byte> bytes = emitted(fields, 0);
  fields.flags = 0;
  fields.addressee = 1;
  fields.acked = {2};
  fields.handled = 3;
  fields.sent_at = 4;
  fields.echo = 5;
  refresh_head(bytes.data(), fields, 0);
  CHECK(bytes == emitted(fields, 0));
  fields.flags = PacketFlags::kAckNow;
  refresh_head(bytes.data(), fields, PacketFlags::kGet);
  fields.flags |= PacketFlags::kGet;
  CHECK(bytes == emitted(fields, 0));
}

TEST_CASE("what is no packet") {
  PacketFields back;
  Bytes payload;
  std::vector<std::byte> bytes = emitted(sample(Kind::short_request, 2), 0);
  const auto with = [&](size_t at, uint8_t value) {
    std::vector<std::byte> changed = bytes;
    changed[at] = std::byte{value};
    return parse_packet(changed, back, payload);
  };
  CHECK(with(0, 0) == PacketError::bad_kind);
  CHECK(with(0, kKindMax + 1) == PacketError::bad_kind);
  CHECK(with(2, kArgumentsMax + 1) == PacketError::bad_count);
  CHECK(with(2, 3) == PacketError::truncated);
  CHECK(with(2, 1) == PacketError::bad_length);  // a short message has no payload
  std::memset(bytes.data() + 4, 0, 4);
  CHECK(parse_packet(bytes, back, payload) == PacketError::bad_kind);
  CHECK(parse_packet(emitted(sample(Kind::ack, 0), 15), back, payload) == PacketError::bad_length);
}

TEST_CASE("random bytes are read without harm") {
  std::mt19937 random(5);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> bytes(random() % 160);
    for (std::byte& each : bytes) each = static_cast<std::byte>(random());
    if (!bytes.empty() && random() % 2 == 0) bytes[0] = static_cast<std::byte>(1 + random() % kKindMax);
    if (bytes.size() > 3 && random() % 2 == 0) bytes[3] = std::byte{0};
    PacketFields back;
    Bytes payload;
    if (parse_packet(bytes, back, payload) == PacketError::none) CHECK(payload.size() <= bytes.size());
  }
}

TEST_CASE("a line says what the long way says of it, and is read alike") {
  for (const Kind kind : {Kind::short_request, Kind::short_reply, Kind::long_request}) {
    const bool is_long = kind == Kind::long_request;
    for (uint8_t count = 0; count <= (is_long ? kLongLineArguments : kLineArguments); ++count) {
      PacketFields fields = sample(kind, count);
      fields.flags = 0;
      std::vector<std::byte> wanted(local_head_size(kind, count, 0, false)), line(wanted.size());
      emit_local_head(wanted.data(), fields);
      const std::span<const uint32_t> arguments(fields.arguments.data(), count);
      if (is_long) {
        emit_long_line(line.data(), fields.handler, fields.handled, arguments, {fields.offset, fields.total});
      } else {
        emit_line(line.data(), kind, fields.handler, fields.handled, arguments);
      }
      CHECK(line == wanted);
      const auto parse = [&](Bytes bytes, PacketFields& back) { return is_long ? parse_long_line(bytes, back) : parse_line(bytes, back); };
      PacketFields back;
      REQUIRE(parse(line, back));
      CHECK((back.kind == kind && back.handler == 7 && back.count == count && back.flags == 0 && back.handled == fields.handled));
      CHECK(std::equal(arguments.begin(), arguments.end(), back.arguments.begin()));
      if (is_long) CHECK((back.offset == fields.offset && back.total == fields.total));
      for (size_t cut = 0; cut < line.size(); ++cut) CHECK_FALSE(parse(Bytes(line).first(cut), back));
      line[3] = std::byte{PacketFlags::kTag};
      CHECK_FALSE(parse(line, back));
    }
  }
}

}  // namespace unet::am::packet_test
