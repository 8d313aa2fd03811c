// frame_test.cc - frames: an emitted frame is parsed again, all others are refused with the right error.
#include "unet/wire/frame.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <vector>

#include "unet/base/crc32c.h"

namespace unet::frame_test {
namespace {

constexpr MacAddress kTo{2, 0, 0, 0, 0, 1};
constexpr MacAddress kFrom{2, 0, 0, 0, 0, 2};

std::vector<std::byte> random_bytes(size_t size, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

FrameFields fields_of(uint8_t flags, uint32_t total, uint32_t offset = 0) {
  return {.to = kTo, .from = kFrom, .tag = Tag{0xBEEF0042}, .flags = flags, .message = 0x01020304, .offset = offset, .total = total,
          .region_offset = (flags & FrameFlags::kPut) != 0 ? 0x1122334455667788ull : 0};
}

// The vector has exactly the frame's size, so that a sanitizer sees reads beyond it.
std::vector<std::byte> emit(const FrameFields& fields, Bytes payload) {
  const uint32_t headers = header_size(fields.flags);
  std::vector<std::byte> frame(headers + payload.size());
  std::copy(payload.begin(), payload.end(), frame.begin() + headers);
  const uint32_t length = emit_frame(frame.data(), fields, static_cast<uint32_t>(payload.size()));
  REQUIRE(length == frame.size());
  return frame;
}

// Puts the right crc into a frame that a test has changed.
void seal(std::vector<std::byte>& frame, size_t covered_payload) {
  FrameHeader header;
  std::byte* at = frame.data() + sizeof(EthernetHeader);
  std::memcpy(&header, at, sizeof header);
  uint32_t crc = crc32c(kCrc32cStart, at, offsetof(FrameHeader, crc));
  header.crc = ~crc32c(crc, at + sizeof header, covered_payload);
  std::memcpy(at, &header, sizeof header);
}

constexpr uint8_t kAllFlags[] = {FrameFlags::kMessage, FrameFlags::kPut, FrameFlags::kPut | FrameFlags::kNotify};

bool equal(const FrameView& view, const FrameFields& fields, Bytes payload) {
  return view.from == fields.from && view.tag == fields.tag && view.flags == fields.flags && view.message == fields.message &&
         view.offset == fields.offset && view.total == fields.total && view.region_offset == fields.region_offset &&
         std::equal(view.payload.begin(), view.payload.end(), payload.begin(), payload.end());
}

TEST_CASE("a frame lies on the wire as frame.h draws it") {
  const std::vector<std::byte> payload = random_bytes(5);
  const std::vector<std::byte> frame = emit(fields_of(FrameFlags::kMessage, 133, 128), payload);
  const std::vector<uint8_t> expected{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5,   // to, from, type
                                      0xA1, 0x00, 0, 5, 0xBE, 0xEF, 0x00, 0x42,         // version, flags, length, tag
                                      1, 2, 3, 4, 0, 0, 0, 128, 0, 0, 0, 133};          // message, offset, total
  REQUIRE(frame.size() == 38 + 5);
  for (size_t i = 0; i < expected.size(); ++i) CHECK(static_cast<uint8_t>(frame[i]) == expected[i]);
  CHECK(std::equal(payload.begin(), payload.end(), frame.begin() + 38));
}

TEST_CASE("messages and puts of every size come back as they were") {
  for (const uint8_t flags : kAllFlags) {
    const std::vector<std::byte> bytes = random_bytes(9000);
    size_t wrong = 0;
    for (uint32_t length = 0; length <= 9000; length = length < 300 ? length + 1 : length + 61) {
      const Bytes payload(bytes.data(), length);
      const FrameFields fields = fields_of(flags, length);
      FrameView view;
      const std::vector<std::byte> frame = emit(fields, payload);
      if (parse_frame(frame, view) != FrameError::none || !equal(view, fields, payload)) ++wrong;
      if (view.payload.data() != frame.data() + header_size(flags)) ++wrong;
    }
    CAPTURE(int{flags});
    CHECK(wrong == 0);
  }
}

TEST_CASE("a payload given as external makes the same frame as one that stands behind the headers") {
  for (const uint8_t flags : kAllFlags) {
    for (const uint32_t length : {0u, 1u, 47u, 64u, 256u, 257u, 1472u, 8960u}) {
      const std::vector<std::byte> payload = random_bytes(length, length);
      const FrameFields fields = fields_of(flags, length);
      const std::vector<std::byte> whole = emit(fields, payload);
      std::vector<std::byte> split(header_size(flags));
      // A valid pointer is needed even without bytes.
      const std::byte none{};
      const uint32_t inside = emit_frame(split.data(), fields, length, length == 0 ? &none : payload.data());
      CHECK(inside == split.size());
      split.insert(split.end(), payload.begin(), payload.end());
      CHECK(split == whole);
    }
  }
}

TEST_CASE("padding behind the payload is no part of the message") {
  const std::vector<std::byte> payload = random_bytes(3);
  for (const uint8_t flags : kAllFlags) {
    const FrameFields fields = fields_of(flags, 3);
    std::vector<std::byte> frame = emit(fields, payload);
    while (frame.size() < 100) {
      frame.push_back(std::byte{0x5A});
      FrameView view;
      REQUIRE(parse_frame(frame, view) == FrameError::none);
      REQUIRE(equal(view, fields, payload));
    }
  }
}

TEST_CASE("a frame cut off at any length is refused") {
  for (const uint8_t flags : kAllFlags) {
    for (const uint32_t length : {0u, 1u, 100u}) {
      const std::vector<std::byte> frame = emit(fields_of(flags, length), random_bytes(length));
      for (size_t cut = 0; cut < frame.size(); ++cut) {
        const std::vector<std::byte> shorter(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(cut));
        FrameView view;
        const FrameError error = parse_frame(shorter, view);
        REQUIRE(error == (cut < sizeof(EthernetHeader) ? FrameError::not_ours : FrameError::truncated));
      }
    }
  }
}

TEST_CASE("every flipped bit is noticed, but for the addresses, which the engine checks") {
  for (const uint8_t flags : kAllFlags) {
    for (const uint32_t length : {0u, 1u, 48u, 300u, 1472u}) {
      const std::vector<std::byte> payload = random_bytes(length);
      const FrameFields fields = fields_of(flags, length);
      const std::vector<std::byte> good = emit(fields, payload);
      std::vector<std::byte> frame = good;
      size_t accepted = 0;
      for (size_t bit = 12 * 8; bit < frame.size() * 8; ++bit) {
        frame[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
        FrameView view;
        if (parse_frame(frame, view) == FrameError::none) ++accepted;
        frame[bit / 8] = good[bit / 8];
      }
      CAPTURE(int{flags}, length);
      CHECK(accepted == 0);
      frame[6] ^= std::byte{1};
      FrameView view;
      CHECK(parse_frame(frame, view) == FrameError::none);
      CHECK(view.from != fields.from);
    }
  }
}

// Two flipped bits anywhere, and up to three neighbouring bytes: errors that a 32-bit CRC is guaranteed to find.
TEST_CASE("bursts and pairs of flipped bits are noticed") {
  std::mt19937 random(11);
  const std::vector<std::byte> payload = random_bytes(1400);
  const std::vector<std::byte> good = emit(fields_of(FrameFlags::kMessage, 1400), payload);
  size_t accepted = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::vector<std::byte> frame = good;
    const size_t first = 14 + random() % (frame.size() - 17);
    if ((i & 1) != 0) {
      for (size_t k = 0; k < 3; ++k) frame[first + k] ^= static_cast<std::byte>(random());
    } else {
      frame[first] ^= static_cast<std::byte>(1u << (random() % 8));
      frame[14 + random() % (frame.size() - 14)] ^= static_cast<std::byte>(1u << (random() % 8));
    }
    FrameView view;
    if (frame != good && parse_frame(frame, view) == FrameError::none) ++accepted;
  }
  CHECK(accepted == 0);
}

TEST_CASE("every crime has its name, even when the crc is right") {
  struct Case {
    const char* what;
    FrameError error;
    uint32_t payload;  // bytes of payload before the change
    std::function<void(FrameHeader&)> change;
  };
  const Case cases[] = {
      {"nothing wrong", FrameError::none, 64, [](FrameHeader&) {}},
      {"version 0", FrameError::bad_version, 64, [](FrameHeader& h) { h.version = 0; }},
      {"next version", FrameError::bad_version, 64, [](FrameHeader& h) { ++h.version; }},
      {"unknown flag", FrameError::bad_flags, 64, [](FrameHeader& h) { h.flags = 0x04; }},
      {"all flags", FrameError::bad_flags, 64, [](FrameHeader& h) { h.flags = 0xFF; }},
      {"notify without put", FrameError::bad_flags, 64, [](FrameHeader& h) { h.flags = FrameFlags::kNotify; }},
      {"longer than the frame", FrameError::truncated, 64, [](FrameHeader& h) { h.length = 65; h.total = 65; }},
      {"much longer than the frame", FrameError::truncated, 64, [](FrameHeader& h) { h.length = 65535; h.total = 65536; }},
      {"a put without room for its header", FrameError::truncated, 0, [](FrameHeader& h) { h.flags = FrameFlags::kPut; }},
      {"message too long", FrameError::bad_length, 64, [](FrameHeader& h) { h.total = kMessageMax + 1; }},
      {"message of 4 GiB", FrameError::bad_length, 64, [](FrameHeader& h) { h.total = ~0u; }},
      {"offset off the unit", FrameError::bad_length, 64, [](FrameHeader& h) { h.offset = 63; h.total = 1000; }},
      {"offset behind the end", FrameError::bad_length, 64, [](FrameHeader& h) { h.offset = 128; h.total = 64; }},
      {"offset that wraps", FrameError::bad_length, 64, [](FrameHeader& h) { h.offset = ~0u - 63; h.total = 64; }},
      {"payload over the end", FrameError::bad_length, 64, [](FrameHeader& h) { h.offset = 64; h.total = 127; }},
      {"odd fragment before the end", FrameError::bad_length, 63, [](FrameHeader& h) { h.total = 64; }},
      {"empty fragment", FrameError::bad_length, 0, [](FrameHeader& h) { h.total = 64; }},
      {"empty fragment at the end", FrameError::bad_length, 0, [](FrameHeader& h) { h.offset = 64; h.total = 64; }},
      {"last fragment", FrameError::none, 63, [](FrameHeader& h) { h.offset = 64; h.total = 127; }},
      {"middle fragment", FrameError::none, 64, [](FrameHeader& h) { h.offset = 64; h.total = 129; }},
      {"last fragment of the largest", FrameError::none, 64, [](FrameHeader& h) { h.offset = kMessageMax - 64; h.total = kMessageMax; }},
      {"empty message", FrameError::none, 0, [](FrameHeader& h) { h.total = 0; }},
  };
  for (const Case& each : cases) {
    std::vector<std::byte> frame = emit(fields_of(FrameFlags::kMessage, each.payload), random_bytes(each.payload));
    FrameHeader header;
    std::memcpy(&header, frame.data() + sizeof(EthernetHeader), sizeof header);
    each.change(header);
    std::memcpy(frame.data() + sizeof(EthernetHeader), &header, sizeof header);
    seal(frame, each.payload);
    FrameView view;
    CAPTURE(each.what);
    CHECK(static_cast<int>(parse_frame(frame, view)) == static_cast<int>(each.error));
  }
}

TEST_CASE("frames of another Ethernet type are not ours, whatever is in them") {
  std::vector<std::byte> frame = emit(fields_of(FrameFlags::kMessage, 64), random_bytes(64));
  FrameView view;
  for (const uint32_t type : {0x0800u, 0x86DDu, 0x88B6u, 0xB588u}) {
    frame[12] = static_cast<std::byte>(type >> 8);
    frame[13] = static_cast<std::byte>(type & 0xFF);
    CHECK(parse_frame(frame, view) == FrameError::not_ours);
  }
  CHECK(parse_frame({}, view) == FrameError::not_ours);
}

TEST_CASE("random bytes behind our Ethernet type are refused, or say nothing impossible") {
  std::mt19937 random(5);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> frame = random_bytes(14 + random() % 120, static_cast<uint32_t>(random()));
    frame[12] = std::byte{0x88};
    frame[13] = std::byte{0xB5};
    if (frame.size() > 24) {
      frame[14] = std::byte{kWireVersion};
      frame[15] &= std::byte{FrameFlags::kKnown};
      frame[16] = std::byte{0};
    }
    FrameView view;
    REQUIRE(parse_frame(frame, view) != FrameError::none);  // a wrong frame passes a 32-bit crc too seldom for this test
  }
}

TEST_CASE("fragments of any message over any wire fill whole units, fit the wire and the length field, and parse") {
  for (const bool put : {false, true}) {
    const uint32_t headers = sizeof(FrameHeader) + (put ? sizeof(PutHeader) : 0);
    uint32_t before = 0;
    for (uint32_t mtu = 0; mtu <= 70'000; ++mtu) {
      const uint32_t payload = fragment_payload(mtu, put);
      const bool right = payload % kFragmentUnit == 0 && payload <= 0xFFFF && payload >= before &&
                         (payload == 0 || payload + headers <= mtu) && (payload != 0 || mtu < headers + kFragmentUnit);
      if (!right) {
        CAPTURE(mtu, put, payload);
        FAIL("wrong payload of a fragment");
      }
      before = payload;
    }
    CHECK(fragment_payload(1500, put) == (put ? 1408 : 1472));
  }
}

TEST_CASE("a message cut into fragments for a wire comes together again") {
  const std::vector<std::byte> message = random_bytes(kMessageMax);
  for (const uint32_t mtu : {100u, 1500u, 9000u, 65535u, 65600u, 1u << 20}) {
    for (const uint8_t flags : kAllFlags) {
      for (const uint32_t total : {1u, 63u, 64u, 65u, 1472u, 1473u, 65535u, 65536u}) {
        const uint32_t step = fragment_payload(mtu, (flags & FrameFlags::kPut) != 0);
        std::vector<std::byte> together(total);
        uint32_t covered = 0;
        for (uint32_t offset = 0; offset < total; offset += step) {
          const Bytes payload(message.data() + offset, std::min(step, total - offset));
          const std::vector<std::byte> frame = emit(fields_of(flags, total, offset), payload);
          REQUIRE(frame.size() <= mtu + sizeof(EthernetHeader));
          FrameView view;
          REQUIRE(parse_frame(frame, view) == FrameError::none);
          std::copy(view.payload.begin(), view.payload.end(), together.begin() + view.offset);
          covered += static_cast<uint32_t>(view.payload.size());
        }
        CAPTURE(mtu, int{flags}, total);
        CHECK(covered == total);
        CHECK(std::equal(together.begin(), together.end(), message.begin()));
      }
    }
  }
}

}  // namespace
}  // namespace unet::frame_test
