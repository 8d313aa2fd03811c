// codec_test.cc - values come back as they were, truncated and damaged encodings do not reach beyond the message, elements are aligned.
#include "am/rpc/codec.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <memory>

#include "am/rpc/procedure.h"
#include "unet/base/random.h"

namespace unet::rpc::codec_test {
namespace {

struct Point {
  int32_t x, y;
  friend bool operator==(const Point&, const Point&) = default;
};
struct Entry {
  std::string key;
  std::vector<double> values;
  bool is_new;
  using Fields = rpc::Fields<&Entry::key, &Entry::values, &Entry::is_new>;
  friend bool operator==(const Entry&, const Entry&) = default;
};
struct Percent {  // a trivially copyable type with a codec of its own, which refuses some values
  uint8_t value;
  friend bool operator==(const Percent&, const Percent&) = default;
};
enum class Color : uint16_t { red = 7 };

// An encoding in memory of exactly its size, so that AddressSanitizer sees any access beyond.
struct Encoded {
  explicit Encoded(Bytes from) : size(from.size()), bytes(new std::byte[from.size()]) { std::copy(from.begin(), from.end(), bytes.get()); }
  Bytes all() const { return {bytes.get(), size}; }
  size_t size;
  std::unique_ptr<std::byte[]> bytes;
};

template <typename... Args>
Encoded encoded(const Args&... values) {
  const size_t size = encoded_size(values...);
  std::vector<std::byte> room(size + 1, std::byte{0xEE});
  REQUIRE(encode(room.data(), values...) == room.data() + size);
  REQUIRE(room.back() == std::byte{0xEE});
  return Encoded(Bytes(room).first(size));
}

constexpr auto kSame = []<typename T>(const T& a, const T& b) {
  if constexpr (requires { a == b; }) return a == b;
  else return std::equal(a.begin(), a.end(), b.begin(), b.end());
};

// Decoding never reaches beyond `message`. What it accepts can be encoded again.
template <typename... Args>
void survive(Bytes message) {
  const Encoded copy(message);
  std::tuple<Args...> values;
  std::apply([&](auto&... value) {
    if (decode(copy.all(), value...)) static_cast<void>(encoded(value...));
  }, values);
}

// A round trip of `values`, then every truncation, one byte more, and every bit flipped.
template <typename... Args>
void check(const Args&... values) {
  const Encoded message = encoded(values...);
  STATIC_REQUIRE(Layout<Args...>::kMinimum <= 512);
  REQUIRE(message.size >= Layout<Args...>::kMinimum);
  if constexpr (kIsFixed<Args...>) REQUIRE(message.size == kFixedSize<Args...>);
  std::tuple<Args...> decoded;
  REQUIRE(std::apply([&](auto&... value) { return decode(message.all(), value...); }, decoded));
  REQUIRE(std::apply([&](const auto&... value) { return (kSame(values, value) && ...); }, decoded));

  std::vector<std::byte> bytes(message.all().begin(), message.all().end());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Encoded shorter(Bytes(bytes).first(size));
    REQUIRE_FALSE(std::apply([&](auto&... value) { return decode(shorter.all(), value...); }, decoded));
  }
  bytes.push_back({});
  const Encoded longer(bytes);
  REQUIRE_FALSE(std::apply([&](auto&... value) { return decode(longer.all(), value...); }, decoded));
  bytes.pop_back();
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
    survive<Args...>(bytes);
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
  }
}

}  // namespace
}  // namespace unet::rpc::codec_test

template <>
struct unet::rpc::Codec<unet::rpc::codec_test::Percent> : unet::rpc::Layout<uint8_t> {
  using Percent = codec_test::Percent;
  static constexpr size_t size(Percent) noexcept { return 1; }
  static std::byte* encode(std::byte* to, Percent percent) noexcept { return encode_all(to, percent.value); }
  static bool decode(Reader& from, Percent& percent) noexcept { return from.read(percent.value) && percent.value <= 100; }
};

namespace unet::rpc::codec_test {

TEST_CASE("arguments of every kind come back as they were") {
  check();
  check(1, uint8_t{2}, 3.5, Point{4, 5}, Color::red, true);
  check(std::string_view("key"), std::string("a string that is longer than the small ones"), std::string_view());
  check(uint8_t{1}, std::vector<double>{1, 2, 3}, uint8_t{2}, std::vector<uint16_t>{});
  check(std::vector<std::string>{"one", "", "three"}, std::vector<std::vector<uint64_t>>{{1, 2}, {}, {3}});
  check(std::optional<int>(), std::optional<int>(7), std::optional<std::string>("x"), std::optional<std::vector<double>>({{1.0}}));
  check(std::pair<uint8_t, std::vector<double>>{1, {2}}, std::tuple<bool, std::string, Point>{true, "t", {1, 2}}, std::tuple<>());
  check(std::array<Point, 3>{{{1, 2}, {3, 4}, {5, 6}}}, std::array<std::string, 2>{"a", "bc"}, std::array<bool, 3>{true, false, true});
  check(Entry{"key", {1, 2}, true}, std::vector<Entry>{{"a", {}, false}, {"b", {3}, true}}, Percent{100});
  check(std::vector<Percent>{{1}, {2}}, std::array<Percent, 2>{{{3}, {4}}}, std::vector<std::optional<Point>>{{}, Point{1, 2}});
}

TEST_CASE("spans are read in place, at the alignment of their elements") {
  const std::array<double, 3> numbers{1, 2, 3};
  const std::array<uint16_t, 2> shorts{4, 5};
  check(uint8_t{1}, std::span<const double>(numbers), std::string_view("x"), std::span<const uint16_t>(shorts), std::span<const double>());

  const Encoded message = encoded(uint8_t{1}, std::span<const double>(numbers));
  REQUIRE(message.size == 16 + sizeof numbers);  // the span begins at 8 with its length, the elements at 16
  uint8_t first = 0;
  std::span<const double> found;
  REQUIRE(decode(message.all(), first, found));
  REQUIRE(static_cast<const void*>(found.data()) == message.bytes.get() + 16);

  std::vector<std::byte> moved(message.size + 1);
  std::copy(message.all().begin(), message.all().end(), moved.begin() + 1);
  REQUIRE_FALSE(decode(Bytes(moved).subspan(1), first, found));
}

TEST_CASE("views and their owners have one layout") {
  const std::array<double, 2> numbers{1, 2};
  const Encoded message = encoded(std::string_view("key"), std::span<const double>(numbers));
  std::string key;
  std::vector<double> values;
  REQUIRE(decode(message.all(), key, values));
  REQUIRE(key == "key");
  REQUIRE(values == std::vector<double>{1, 2});
}

TEST_CASE("padding is zero") {
  const Encoded message = encoded(uint8_t{0xFF}, std::vector<uint64_t>{~uint64_t{0}});
  std::vector<std::byte> expected(24, std::byte{0xFF});
  std::fill(expected.begin() + 1, expected.begin() + 16, std::byte{0});
  expected[8] = std::byte{1};
  REQUIRE(std::equal(expected.begin(), expected.end(), message.all().begin(), message.all().end()));
}

TEST_CASE("lengths beyond the message are refused before memory is taken") {
  constexpr uint64_t kAll = ~uint64_t{0};
  for (const uint64_t length : {uint64_t{6}, uint64_t{0xfffffffe}, uint64_t{0xffffffff}, uint64_t{1} << 40, kAll, kAll / 8 + 1}) {
    alignas(kAlignment) std::array<std::byte, 48> room{};
    const uint32_t short_length = length < kLongLength ? static_cast<uint32_t>(length) : kLongLength;
    std::memcpy(room.data(), &short_length, sizeof short_length);
    if (short_length == kLongLength) std::memcpy(room.data() + sizeof short_length, &length, sizeof length);
    std::span<const double> span;
    std::vector<uint64_t> vector;
    std::vector<std::string> strings;
    REQUIRE_FALSE(decode(Bytes(room), span));
    REQUIRE_FALSE(decode(Bytes(room), vector));
    REQUIRE_FALSE(decode(Bytes(room), strings));
  }
}

TEST_CASE("a length of 8 bytes is read where one of 4 would do") {
  alignas(kAlignment) std::array<std::byte, 32> room{};
  const uint64_t count = 2;
  std::memcpy(room.data(), &kLongLength, sizeof kLongLength);
  std::memcpy(room.data() + sizeof kLongLength, &count, sizeof count);
  std::span<const double> span;
  REQUIRE(decode(Bytes(room), span));
  REQUIRE(span.size() == 2);
  REQUIRE(static_cast<const void*>(span.data()) == room.data() + 16);
}

TEST_CASE("a bool is 0 or 1, and a codec of the program's refuses its own values") {
  const std::byte byte{2};
  bool flag = false;
  REQUIRE_FALSE(decode(Bytes(&byte, 1), flag));
  std::optional<Point> point;
  REQUIRE_FALSE(decode(Bytes(&byte, 1), point));
  const std::byte above{101};
  Percent percent{};
  REQUIRE_FALSE(decode(Bytes(&above, 1), percent));
}

TEST_CASE("many bytes at the end are sent from where they are") {
  const std::vector<double> numbers{1, 2, 3};
  const std::string text = "text";
  const auto check_tail = [](Bytes expected, const auto&... values) {
    const Bytes tail = tail_of(values...);
    REQUIRE(tail.data() == expected.data());
    REQUIRE(tail.size() == expected.size());
    const Encoded message = encoded(values...);
    std::vector<std::byte> head(message.size - tail.size());
    REQUIRE(encode_head(head.data(), values...) == head.data() + head.size());
    head.insert(head.end(), tail.begin(), tail.end());
    REQUIRE(std::equal(head.begin(), head.end(), message.all().begin(), message.all().end()));
  };
  check_tail(std::as_bytes(std::span(numbers)), uint8_t{1}, text, numbers);
  check_tail(std::as_bytes(std::span(text)), numbers, text);
  check_tail({}, text, 1);
  check_tail({});
}

TEST_CASE("bytes of another format travel as they are") {
  const std::vector<std::byte> bytes(11, std::byte{7});
  const Encoded alone = encoded(RawBuffer{bytes});
  REQUIRE(std::equal(bytes.begin(), bytes.end(), alone.all().begin(), alone.all().end()));
  REQUIRE(tail_of(1, RawBytes{bytes}).data() == bytes.data());

  const Encoded message = encoded(1, RawBytes{bytes});
  REQUIRE(message.size == kAlignment + bytes.size());
  int number = 0;
  RawBytes found;
  REQUIRE(decode(message.all(), number, found));
  REQUIRE(found.bytes.data() == message.bytes.get() + kAlignment);
  REQUIRE(found.bytes.size() == bytes.size());
  RawBuffer none{bytes};
  REQUIRE(decode({}, none));
  REQUIRE(none.bytes.empty());
}

TEST_CASE("any bytes are survived") {
  uint64_t state = 1;
  const auto below = [&state](uint64_t bound) { return next_random(state) % bound; };
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes(below(64));
    for (auto& byte : bytes) byte = static_cast<std::byte>(below(4) == 0 ? below(256) : below(4));
    survive<std::vector<Entry>>(bytes);
    survive<std::string_view, std::span<const uint32_t>, std::optional<std::vector<std::string>>>(bytes);
    survive<std::array<std::pair<bool, std::vector<uint64_t>>, 2>, uint16_t>(bytes);
  }
}

TEST_CASE("sizes of fixed arguments are constants") {
  STATIC_REQUIRE(kFixedSize<> == 0);
  STATIC_REQUIRE(kFixedSize<int, int> == 8);
  STATIC_REQUIRE(kFixedSize<uint8_t, double, std::pair<bool, uint16_t>> == 12);
  STATIC_REQUIRE(encoded_size(1, 2.0) == 12);
  STATIC_REQUIRE(encoded_size(std::string_view("abc")) == 7);
  STATIC_REQUIRE(!kIsFixed<std::string_view>);
  STATIC_REQUIRE(!kIsFixed<std::optional<int>>);
  STATIC_REQUIRE(Layout<Percent>::kFixed);
}

TEST_CASE("a procedure knows its types") {
  constexpr Procedure<std::string(const std::string&, int, std::span<const double>)> kFind{7};
  STATIC_REQUIRE(kFind.number == 7);
  STATIC_REQUIRE(std::is_same_v<decltype(kFind)::Result, std::string>);
  STATIC_REQUIRE(std::is_same_v<decltype(kFind)::Arguments, std::tuple<std::string, int, std::span<const double>>>);
  STATIC_REQUIRE(std::is_void_v<Procedure<void()>::Result>);
  STATIC_REQUIRE(kPointsIntoMessage<std::optional<std::pair<int, std::string_view>>>);
  STATIC_REQUIRE(kPointsIntoMessage<std::vector<std::array<std::span<const int>, 2>>>);
  STATIC_REQUIRE(!kPointsIntoMessage<std::tuple<int, std::string, std::vector<std::optional<double>>>>);
  STATIC_REQUIRE(Interface{"a", 1} != Interface{"a", 2});
}

}  // namespace unet::rpc::codec_test
