// tcp_test.cc - TCP's header: segments by hand, emitted segments parse, and every kind of invalid header.
#include "unet/wire/tcp.h"

#include <catch2/catch.hpp>

#include <random>
#include <vector>

namespace unet::ip::tcp_test {
namespace {

// A header with these options, unpadded, and a payload.
std::vector<std::byte> segment(std::vector<uint8_t> options, size_t payload = 0) {
  std::vector<std::byte> bytes(sizeof(TcpHeader) + options.size() + payload);
  for (size_t i = 0; i < options.size(); ++i) bytes[sizeof(TcpHeader) + i] = std::byte{options[i]};
  bytes[12] = static_cast<std::byte>((sizeof(TcpHeader) + options.size()) / 4 << 4);
  return bytes;
}

TcpError parse(const std::vector<std::byte>& bytes) {
  TcpView view;
  return parse_tcp(bytes, view);
}

bool same(const TcpOptions& a, const TcpOptions& b) {
  return a.mss == b.mss && a.window_scale == b.window_scale && a.sack_permitted == b.sack_permitted &&
         a.has_timestamps == b.has_timestamps && a.timestamp == b.timestamp && a.timestamp_echo == b.timestamp_echo &&
         a.sack_count == b.sack_count && a.sack == b.sack && a.has_fast_open == b.has_fast_open &&
         std::equal(a.fast_open_cookie.begin(), a.fast_open_cookie.end(), b.fast_open_cookie.begin(), b.fast_open_cookie.end());
}

}  // namespace

TEST_CASE("TCP sequence numbers compare modulo 2^32") {
  const TcpSequence low{0xFFFFFFF0}, high{0x10};
  CHECK(low < high);
  CHECK(high > low);
  CHECK(low <= low);
  CHECK(high - low == 0x20);
  CHECK(low + 0x20 == high);
  CHECK(high - 0x20u == low);
}

TEST_CASE("TCP: a segment, byte by byte") {
  const std::vector<uint8_t> wire{0x12, 0x34, 0x00, 0x50, 1, 2, 3, 4, 5, 6,    7,    8,  0x60,
                                  0x12, 0xAB, 0xCD, 0,    0, 0, 9, 2, 4, 0x05, 0xB4, 'x'};
  const auto bytes = as_bytes(wire.data(), wire.size());
  TcpView view;
  REQUIRE(parse_tcp(bytes, view) == TcpError::none);
  CHECK(view.source_port == 0x1234);
  CHECK(view.destination_port == 80);
  CHECK(view.sequence.value == 0x01020304);
  CHECK(view.acknowledgement.value == 0x05060708);
  CHECK(view.flags == (TcpFlags::kSyn | TcpFlags::kAck));
  CHECK(view.window == 0xABCD);
  CHECK(view.urgent == 9);
  CHECK(view.options.mss == 1460);
  REQUIRE(view.payload.size() == 1);
  CHECK(view.payload[0] == std::byte{'x'});
  CHECK(view.length() == 2);
  std::array<std::byte, kTcpHeaderMax> head;
  REQUIRE(emit_tcp(head.data(), view) == 24);
  CHECK(std::equal(head.begin(), head.begin() + 24, bytes.begin()));
}

TEST_CASE("TCP: emitted segments parse") {
  std::mt19937_64 random(1);
  const std::array<std::byte, 16> cookie{std::byte{7}, std::byte{8}};
  int tried = 0;
  for (int i = 0; i < 20000; ++i) {
    TcpFields fields{.source_port = static_cast<uint16_t>(random()), .destination_port = static_cast<uint16_t>(random()),
                     .sequence = {static_cast<uint32_t>(random())}, .acknowledgement = {static_cast<uint32_t>(random())},
                     .flags = static_cast<uint8_t>(random()), .window = static_cast<uint16_t>(random()),
                     .urgent = static_cast<uint16_t>(random())};
    TcpOptions& options = fields.options;
    if (random() % 2 == 0) options.mss = static_cast<uint16_t>(random());
    if (random() % 2 == 0) options.window_scale = static_cast<uint8_t>(random() % 15);
    options.sack_permitted = random() % 2 == 0;
    if (random() % 2 == 0) {
      options.has_timestamps = true;
      options.timestamp = static_cast<uint32_t>(random());
      options.timestamp_echo = static_cast<uint32_t>(random());
    }
    options.sack_count = static_cast<uint8_t>(random() % 5);
    for (uint32_t block = 0; block < options.sack_count; ++block) {
      options.sack[block] = {{static_cast<uint32_t>(random())}, {static_cast<uint32_t>(random())}};
    }
    if (random() % 4 == 0) {
      options.has_fast_open = true;
      const size_t length = random() % 8 * 2;
      options.fast_open_cookie = Bytes(cookie).first(length < 4 ? 0 : length);
    }
    if (tcp_options_size(options) > kTcpOptionsMax) continue;
    ++tried;
    std::array<std::byte, kTcpHeaderMax> head;
    const uint32_t length = emit_tcp(head.data(), fields);
    REQUIRE(length == sizeof(TcpHeader) + tcp_options_size(options));
    TcpView view;
    REQUIRE(parse_tcp(Bytes(head).first(length), view) == TcpError::none);
    CHECK((view.source_port == fields.source_port && view.destination_port == fields.destination_port));
    CHECK((view.sequence == fields.sequence && view.acknowledgement == fields.acknowledgement));
    CHECK((view.flags == fields.flags && view.window == fields.window && view.urgent == fields.urgent));
    CHECK(same(view.options, options));
    CHECK(view.payload.empty());
  }
  CHECK(tried > 5000);
}

TEST_CASE("headers that are cut or lie about their length") {
  const auto whole = segment({2, 4, 5, 0xB4}, 3);
  REQUIRE(parse(whole) == TcpError::none);
  for (size_t length = 0; length < sizeof(TcpHeader); ++length) {
    CHECK(parse({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length)}) == TcpError::truncated);
  }
  for (size_t length = sizeof(TcpHeader); length < 24; ++length) {
    CHECK(parse({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length)}) == TcpError::bad_offset);
  }
  auto lying = whole;
  for (uint8_t words = 0; words < 5; ++words) {
    lying[12] = static_cast<std::byte>(words << 4);
    CHECK(parse(lying) == TcpError::bad_offset);
  }
  lying[12] = std::byte{0xF0};
  CHECK(parse(lying) == TcpError::bad_offset);
}

TEST_CASE("options that lie about their length") {
  const auto options_of = [](std::vector<uint8_t> bytes) {
    TcpView view;
    REQUIRE(parse_tcp(segment(std::move(bytes)), view) == TcpError::none);
    return view.options;
  };
  // After these, the options cannot be parsed further.
  for (const auto& rest : std::vector<std::vector<uint8_t>>{{1, 1, 1, 3}, {2, 0, 3, 3}, {77, 1, 3, 3}, {77, 7, 3, 3}, {3, 5, 7, 1}}) {
    std::vector<uint8_t> bytes{2, 4, 1, 0};
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    const TcpOptions options = options_of(bytes);
    CHECK(options.malformed);
    CHECK(options.mss == 256);
    CHECK(options.window_scale == TcpOptions::kNoScale);
  }
  // These are skipped by their stated length.
  for (std::vector<uint8_t> bytes : std::vector<std::vector<uint8_t>>{{2, 3, 0}, {2, 5, 9, 9, 9}, {3, 4, 5, 5}, {3, 2}, {4, 3, 0}, {5, 2},
           {5, 6, 0, 0, 0, 0}, {8, 8, 0, 0, 0, 0, 0, 0}, {34, 4, 0, 0}, {34, 7, 0, 0, 0, 0, 0}}) {
    bytes.insert(bytes.end(), {8, 10, 0, 0, 0, 1, 0, 0, 0, 2});
    while (bytes.size() % 4 != 0) bytes.push_back(1);
    const TcpOptions options = options_of(bytes);
    CHECK(options.malformed);
    CHECK(options.timestamp_echo == 2);
    CHECK(options.mss == 0);
    CHECK(options.window_scale == TcpOptions::kNoScale);
    CHECK((!options.sack_permitted && options.sack_count == 0 && !options.has_fast_open));
  }
  CHECK_FALSE(options_of({2, 4, 1, 0, 0, 1, 1, 1}).malformed);
}

TEST_CASE("TCP: unknown options are skipped, and nothing after the end option counts") {
  TcpView view;
  // One of them is RFC 5482's user timeout.
  REQUIRE(parse_tcp(segment({28, 4, 0, 1, 253, 2, 1, 1, 2, 4, 1, 0}), view) == TcpError::none);
  CHECK(view.options.mss == 256);
  REQUIRE(parse_tcp(segment({0, 4, 9, 9, 2, 4, 1, 0}), view) == TcpError::none);
  CHECK(view.options.mss == 0);
  REQUIRE(parse_tcp(segment({34, 2, 1, 1}), view) == TcpError::none);
  CHECK(view.options.has_fast_open);
  CHECK(view.options.fast_open_cookie.empty());
}

TEST_CASE("any bytes at all: parsed or refused, and never read beyond their end") {
  std::mt19937_64 random(2);
  uint32_t parsed = 0, malformed = 0;
  for (int i = 0; i < 50000; ++i) {
    std::vector<std::byte> bytes(random() % 80);
    for (std::byte& each : bytes) each = static_cast<std::byte>(random() % 2 == 0 ? random() % 12 : random());
    if (bytes.size() > 12) bytes[12] = static_cast<std::byte>((5 + random() % 11) << 4);
    TcpView view;
    if (parse_tcp(bytes, view) != TcpError::none) continue;
    ++parsed;
    malformed += view.options.malformed ? 1u : 0u;
    CHECK(view.options.sack_count <= kSackBlocksMax);
    CHECK(view.payload.size() <= bytes.size() - sizeof(TcpHeader));
  }
  CHECK(parsed > 1000);
  CHECK((malformed > 100 && malformed < parsed));
}

}  // namespace unet::ip::tcp_test
