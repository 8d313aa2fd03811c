// codec.h - the bytes of a call's arguments and results: sizes, encoding, decoding; used by clients, servers and message ports.
//
//   alignas(kAlignment) std::byte room[64];                  int number;
//   encode(room, 7, std::string_view("key"));                std::string_view key;
//   size_t size = encoded_size(7, std::string_view("key"));  if (!decode(Bytes(room, size), number, key)) return malformed;
//
// Types: trivially copyable ones without pointers; std::span<const T> and std::vector<T> of those; std::string_view and std::string; and
// std::optional, std::pair, std::tuple, std::array and std::vector of types with a codec. RawBytes are bytes that another library made. A
// struct of such members names them:
//
//   struct Entry {
//     std::string key;
//     std::vector<double> values;
//     using Fields = unet::rpc::Fields<&Entry::key, &Entry::values>;
//   };
//
// For other types a program specialises unet::rpc::Codec, with the members of the one below except kPlain. Layout<parts...> has its three
// constants. A trivially copyable struct travels with its padding. A peer can give its members of type bool or of an enumeration any value.
// With Fields there is no padding, and each bool is checked.
//
// Layout: the machine's byte order, little-endian. A value of fixed size has no padding before it. A length is 4 bytes, or 0xffffffff and 8
// bytes. The elements of a span or vector begin at a multiple of their alignment, counted from the encoding's first byte. An encoding
// begins at a multiple of kAlignment in memory, and decode() refuses misaligned elements. A caller may use std::string_view where the
// handler has std::string, and std::span<const T> for std::vector<T>: they have the same layout.
//
// decode() refuses fewer bytes than an encoding has, and more. It reads each byte that it checks only once. A decoded std::span or
// std::string_view points into the message, where a peer on a local channel can change the content at any time. A handler copies it before
// it checks the content. The elements of a decoded vector need at most kGrowthMax times their bytes in the message. decode() checks a
// length against the message before it takes memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "unet/base/bytes.h"
#include "unet/base/trust.h"

namespace unet::rpc {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kAlignment = 8;              // of an encoding in memory, and the strictest alignment of a span's elements
constexpr size_t kGrowthMax = 16;             // most bytes of memory that a vector's elements may need for each of their bytes in a message
constexpr uint32_t kLongLength = 0xffffffff;  // 8 bytes with the length follow

constexpr size_t align_up(size_t at, size_t alignment) noexcept { return (at + alignment - 1) & ~(alignment - 1); }

// Reads one encoding from its first byte to its last. A function that fails leaves the reader in an undefined state.
class Reader {
 public:
  explicit Reader(Bytes message) noexcept : message_(message) {}

  size_t left() const noexcept { return message_.size() - at_; }
  // Passes padding, up to a multiple of `alignment` from the encoding's first byte.
  bool align(size_t alignment) noexcept {
    const size_t padding = align_up(at_, alignment) - at_;
    if (!checked(padding <= left())) return false;
    at_ += padding;
    return true;
  }
  // Returns the next bytes, which stay in the message; nullptr if there are fewer.
  const std::byte* take(size_t size) noexcept {
    if (!checked(size <= left())) return nullptr;
    const std::byte* taken = message_.data() + at_;
    at_ += size;
    return taken;
  }
  bool copy(void* to, size_t size) noexcept {
    if (!checked(size <= left())) return false;
    std::memcpy(to, message_.data() + at_, size);
    at_ += size;
    return true;
  }
  // Reads a number of elements that need at least `minimum` bytes each.
  bool length(size_t& count, size_t minimum) noexcept {
    uint32_t short_length = 0;
    uint64_t length = 0;
    if (!copy(&short_length, sizeof short_length)) return false;
    length = short_length;
    if (short_length == kLongLength && !copy(&length, sizeof length)) return false;
    count = length;
    return checked(length <= left() / minimum);
  }
  // Finds an array of T with its length, in place.
  template <typename T>
  bool array(std::span<const T>& elements) noexcept {
    size_t count = 0;
    if (!length(count, sizeof(T)) || !align(alignof(T))) return false;
    const std::byte* from = take(count * sizeof(T));
    if (from == nullptr || !checked(reinterpret_cast<uintptr_t>(from) % alignof(T) == 0)) return false;
    elements = {reinterpret_cast<const T*>(from), count};
    return true;
  }
  // Reads values one after another.
  template <typename... Ts>
  bool read(Ts&... values);

 private:
  Bytes message_;
  size_t at_ = 0;
};

// The codec of T. This one copies the bytes of trivially copyable types, and tells what is wrong with all other types.
template <typename T>
struct Codec {
  static_assert(!std::is_pointer_v<T> && !std::is_member_pointer_v<T> && !std::is_null_pointer_v<T>,
                "a pointer means nothing in another process: pass the object, a std::span<const T> or a string");
  static_assert(!std::is_reference_v<T> && !std::is_const_v<T>, "the codec of T serves const T and T& as well");
  static_assert(!std::is_array_v<T>, "an array is not an argument: pass a std::array, a std::span<const T> or a string");
  static_assert(std::is_trivially_copyable_v<T>,
                "T has no codec: name its members (using Fields = unet::rpc::Fields<&T::a, &T::b>) or specialise unet::rpc::Codec<T>");

  static constexpr bool kPlain = true;           // values are copied byte by byte, also in arrays; other codecs need no such member
  static constexpr size_t kAlignment = 1;        // of a value, from the encoding's first byte; divides rpc::kAlignment
  static constexpr size_t kMinimum = sizeof(T);  // bytes of the smallest value
  static constexpr bool kFixed = true;           // all values have kMinimum bytes

  static constexpr size_t size(const T&) noexcept { return sizeof(T); }
  // Writes size(value) bytes; returns their end.
  static std::byte* encode(std::byte* to, const T& value) noexcept {
    std::memcpy(to, &value, sizeof value);
    return to + sizeof value;
  }
  static bool decode(Reader& from, T& value) noexcept { return from.copy(static_cast<void*>(&value), sizeof value); }
};

template <typename T>
concept Plain = requires { requires Codec<T>::kPlain; };

// Constants of values that are encoded one after another, and their size.
template <typename... Ts>
struct Layout {
  static_assert(((rpc::kAlignment % Codec<Ts>::kAlignment == 0) && ...), "a message is not aligned enough for one of these types");
  static constexpr size_t kAlignment = std::max({size_t{1}, size_t{Codec<Ts>::kAlignment}...});
  static constexpr bool kFixed = (Codec<Ts>::kFixed && ...);
  static constexpr size_t kMinimum = [] {
    size_t at = 0;
    [[maybe_unused]] bool fixed = true;  // behind a value of variable size, padding may be needed or not
    ((at = (fixed ? align_up(at, Codec<Ts>::kAlignment) : at) + Codec<Ts>::kMinimum, fixed = fixed && Codec<Ts>::kFixed), ...);
    return at;
  }();

  static constexpr size_t size(const Ts&... values) noexcept {
    size_t at = 0;
    ((at = align_up(at, Codec<Ts>::kAlignment) + Codec<Ts>::size(values)), ...);
    return at;
  }
};

// Clears padding between `from` and a multiple of `alignment`, both counted from `base`; returns its end.
inline std::byte* pad(std::byte* base, std::byte* from, size_t alignment) noexcept {
  std::byte* to = base + align_up(static_cast<size_t>(from - base), alignment);
  while (from != to) *from++ = std::byte{0};
  return to;
}

template <typename... Ts>
std::byte* encode_all(std::byte* base, const Ts&... values) noexcept {
  std::byte* to = base;
  ((to = Codec<Ts>::encode(pad(base, to, Codec<Ts>::kAlignment), values)), ...);
  return to;
}

template <typename... Ts>
[[gnu::always_inline]] inline bool Reader::read(Ts&... values) {
  return ((align(Codec<Ts>::kAlignment) && Codec<Ts>::decode(*this, values)) && ...);
}

// ---- arguments of a call. Named types convert the values, as in encode<int, std::string_view>(room, 7, "key").

template <typename... Args>
constexpr bool kIsFixed = Layout<Args...>::kFixed;
// Bytes of any values of these types.
template <typename... Args>
  requires kIsFixed<Args...>
constexpr size_t kFixedSize = Layout<Args...>::kMinimum;

template <typename... Args>
constexpr size_t encoded_size(const Args&... values) noexcept { return Layout<Args...>::size(values...); }

// Writes encoded_size(values...) bytes at `to`, a multiple of kAlignment; returns their end.
template <typename... Args>
[[gnu::always_inline]] inline std::byte* encode(std::byte* to, const Args&... values) noexcept { return encode_all(to, values...); }

// Returns false, with any values in `values`, unless `from` is exactly an encoding of these types.
template <typename... Args>
[[gnu::always_inline]] inline bool decode(Bytes from, Args&... values) {
  if constexpr (kIsFixed<Args...>) {
    if (!checked(from.size() == kFixedSize<Args...>)) return false;
    from = Bytes(from.data(), kFixedSize<Args...>);  // a constant, by which the compiler leaves out the checks of each value
  }
  Reader reader(from);
  return reader.read(values...) && checked(reader.left() == 0);
}

// Returns the elements of the last argument if it is a span, a vector or a string, else nothing. They are the last bytes of the encoding: a
// sender of many bytes takes them from there, behind those of encode_head().
template <typename First, typename... Rest>
Bytes tail_of(const First& first, const Rest&... rest) noexcept {
  if constexpr (sizeof...(Rest) != 0) {
    return tail_of(rest...);
  } else if constexpr (requires { Codec<First>::tail(first); }) {
    return Codec<First>::tail(first);
  } else {
    return {};
  }
}
inline Bytes tail_of() noexcept { return {}; }

// Writes an encoding without tail_of(values...); returns its end.
template <typename... Args>
std::byte* encode_head(std::byte* to, const Args&... values) noexcept {
  std::byte* const base = to;
  [[maybe_unused]] size_t rest = sizeof...(Args);
  [[maybe_unused]] const auto one = [&]<typename T>(const T& value) {
    to = pad(base, to, Codec<T>::kAlignment);
    --rest;
    if constexpr (requires { Codec<T>::encode_head(to, value); }) {
      if (rest == 0) return Codec<T>::encode_head(to, value);
    }
    return Codec<T>::encode(to, value);
  };
  ((to = one(values)), ...);
  return to;
}

// ---- codecs

template <>
struct Codec<bool> {
  static constexpr size_t kAlignment = 1, kMinimum = 1;
  static constexpr bool kFixed = true;
  static constexpr size_t size(bool) noexcept { return 1; }
  static std::byte* encode(std::byte* to, bool value) noexcept {
    *to = std::byte{value};
    return to + 1;
  }
  static bool decode(Reader& from, bool& value) noexcept {
    uint8_t byte = 0;
    if (!from.copy(&byte, 1) || byte > 1) return false;
    value = byte == 1;
    return true;
  }
};

// A length and that many elements without codecs of their own.
template <typename T>
struct ArrayCodec {
  static_assert(Plain<T>, "a span's elements are trivially copyable and not bool: a std::vector<T> may have others");
  static_assert(alignof(T) <= rpc::kAlignment, "a message is not aligned enough for elements of this type");
  static constexpr size_t kAlignment = alignof(T), kMinimum = sizeof(uint32_t);
  static constexpr bool kFixed = false;

  static constexpr size_t size(std::span<const T> value) noexcept {
    return align_up(length_size(value.size()), alignof(T)) + value.size_bytes();
  }
  static std::byte* encode(std::byte* to, std::span<const T> value) noexcept {
    to = encode_head(to, value);
    copy_bytes(to, value.data(), value.size_bytes());
    return to + value.size_bytes();
  }
  // The elements' bytes, and an encoding that lacks them at its end.
  static Bytes tail(std::span<const T> value) noexcept { return std::as_bytes(value); }
  static std::byte* encode_head(std::byte* to, std::span<const T> value) noexcept {
    return pad(to, encode_length(to, value.size()), alignof(T));
  }

  static constexpr size_t length_size(size_t count) noexcept {
    return count < kLongLength ? sizeof(uint32_t) : sizeof(uint32_t) + sizeof(uint64_t);
  }
  static std::byte* encode_length(std::byte* to, size_t count) noexcept {
    const auto length = static_cast<uint32_t>(std::min<size_t>(count, kLongLength));
    to = Codec<uint32_t>::encode(to, length);
    return length < kLongLength ? to : Codec<uint64_t>::encode(to, count);
  }
};

template <typename T, size_t kExtent>
struct Codec<std::span<T, kExtent>> : ArrayCodec<std::remove_const_t<T>> {
  static_assert(std::is_const_v<T> && kExtent == std::dynamic_extent,
                "a span is an argument as std::span<const T>: the message cannot be written, and has any length");
  static bool decode(Reader& from, std::span<T>& value) noexcept { return from.array(value); }
};

template <>
struct Codec<std::string_view> : ArrayCodec<char> {
  static bool decode(Reader& from, std::string_view& value) noexcept {
    std::span<const char> bytes;
    if (!from.array(bytes)) return false;
    value = {bytes.data(), bytes.size()};
    return true;
  }
};

template <>
struct Codec<std::string> : ArrayCodec<char> {
  static bool decode(Reader& from, std::string& value) {
    std::span<const char> bytes;
    if (!from.array(bytes)) return false;
    value.assign(bytes.data(), bytes.size());
    return true;
  }
};

template <Plain T>
struct Codec<std::vector<T>> : ArrayCodec<T> {
  static bool decode(Reader& from, std::vector<T>& value) {
    std::span<const T> elements;
    if (!from.array(elements)) return false;
    value.assign(elements.begin(), elements.end());
    return true;
  }
};

template <typename T>
struct Codec<std::vector<T>> {
  static_assert(!std::is_same_v<T, bool>, "a std::vector<bool> has no bytes: pass a std::vector<uint8_t>");
  static_assert(Codec<T>::kMinimum > 0 && sizeof(T) <= kGrowthMax * Codec<T>::kMinimum,
                "a message could make the receiver take many times its own size: pass elements that need more bytes in a message");
  static constexpr size_t kAlignment = Codec<T>::kAlignment, kMinimum = sizeof(uint32_t);
  static constexpr bool kFixed = false;

  static constexpr size_t size(const std::vector<T>& value) noexcept {
    size_t at = ArrayCodec<char>::length_size(value.size());
    for (const T& element : value) at = align_up(at, kAlignment) + Codec<T>::size(element);
    return at;
  }
  static std::byte* encode(std::byte* base, const std::vector<T>& value) noexcept {
    std::byte* to = ArrayCodec<char>::encode_length(base, value.size());
    for (const T& element : value) to = Codec<T>::encode(pad(base, to, kAlignment), element);
    return to;
  }
  static bool decode(Reader& from, std::vector<T>& value) {
    size_t count = 0;
    if (!from.length(count, Codec<T>::kMinimum)) return false;
    value.clear();
    value.resize(count);
    return std::all_of(value.begin(), value.end(), [&from](T& element) { return from.read(element); });
  }
};

template <typename T, size_t kCount>
  requires(!Plain<T>)
struct Codec<std::array<T, kCount>> {
  static constexpr size_t kAlignment = Codec<T>::kAlignment, kMinimum = kCount * Codec<T>::kMinimum;
  static constexpr bool kFixed = Codec<T>::kFixed && kMinimum % kAlignment == 0;

  static constexpr size_t size(const std::array<T, kCount>& value) noexcept {
    size_t at = 0;
    for (const T& element : value) at = align_up(at, kAlignment) + Codec<T>::size(element);
    return at;
  }
  static std::byte* encode(std::byte* base, const std::array<T, kCount>& value) noexcept {
    std::byte* to = base;
    for (const T& element : value) to = Codec<T>::encode(pad(base, to, kAlignment), element);
    return to;
  }
  static bool decode(Reader& from, std::array<T, kCount>& value) {
    return std::all_of(value.begin(), value.end(), [&from](T& element) { return from.read(element); });
  }
};

// Bytes of another format, without a length. They are the last argument or the result, and reach from a multiple of kAlignment to the
// message's end.
struct RawBytes {
  Bytes bytes;  // decoded in place
};
struct RawBuffer {
  std::vector<std::byte> bytes;  // decoded as a copy
};

template <typename T>
  requires(std::is_same_v<T, RawBytes> || std::is_same_v<T, RawBuffer>)
struct Codec<T> {
  static constexpr size_t kAlignment = rpc::kAlignment, kMinimum = 0;
  static constexpr bool kFixed = false;

  static constexpr size_t size(const T& value) noexcept { return value.bytes.size(); }
  static std::byte* encode(std::byte* to, const T& value) noexcept {
    copy_bytes(to, value.bytes.data(), value.bytes.size());
    return to + value.bytes.size();
  }
  static Bytes tail(const T& value) noexcept { return value.bytes; }
  static std::byte* encode_head(std::byte* to, const T&) noexcept { return to; }
  static bool decode(Reader& from, T& value) {
    const size_t size = from.left();
    const std::byte* const first = from.take(size);
    value.bytes = {first, first + size};
    return true;
  }
};

// One byte, and behind 1 the value.
template <typename T>
struct Codec<std::optional<T>> {
  static constexpr size_t kAlignment = Codec<T>::kAlignment, kMinimum = 1;
  static constexpr bool kFixed = false;

  static constexpr size_t size(const std::optional<T>& value) noexcept { return value ? Layout<bool, T>::size(true, *value) : 1; }
  static std::byte* encode(std::byte* to, const std::optional<T>& value) noexcept {
    return value ? encode_all(to, true, *value) : encode_all(to, false);
  }
  static bool decode(Reader& from, std::optional<T>& value) {
    bool is_there = false;
    value.reset();
    return from.read(is_there) && (!is_there || from.read(value.emplace()));
  }
};

// Parts of a value, which the functions have as a tuple.
template <typename... Ts>
struct PartsCodec {
  static constexpr size_t kAlignment = Layout<Ts...>::kAlignment, kMinimum = Layout<Ts...>::kMinimum;
  static constexpr bool kFixed = Layout<Ts...>::kFixed;

  static constexpr size_t size(const auto& parts) noexcept {
    return std::apply([](const auto&... part) { return Layout<Ts...>::size(part...); }, parts);
  }
  static std::byte* encode(std::byte* to, const auto& parts) noexcept {
    return std::apply([to](const auto&... part) { return encode_all(to, part...); }, parts);
  }
  static bool decode(Reader& from, auto&& parts) {
    return std::apply([&from](auto&... part) { return from.read(part...); }, parts);
  }
};

template <typename First, typename Second>
struct Codec<std::pair<First, Second>> : PartsCodec<First, Second> {};
template <typename... Ts>
struct Codec<std::tuple<Ts...>> : PartsCodec<Ts...> {};

// Names the members of a struct that travel, in this order.
template <auto... kMembers>
struct Fields {
  static constexpr auto of(auto& value) noexcept { return std::tie(value.*kMembers...); }
};

namespace detail {

template <typename T, typename Member>
Member member_type(Member T::*);
template <typename T>
constexpr bool kIsFields = false;
template <auto... kMembers>
constexpr bool kIsFields<Fields<kMembers...>> = true;
template <typename T>
struct FieldsCodec;
template <auto... kMembers>
struct FieldsCodec<Fields<kMembers...>> : PartsCodec<decltype(member_type(kMembers))...> {};

}  // namespace detail

template <typename T>
  requires detail::kIsFields<typename T::Fields>
struct Codec<T> : detail::FieldsCodec<typename T::Fields> {
  using Parts = detail::FieldsCodec<typename T::Fields>;
  static constexpr size_t size(const T& value) noexcept { return Parts::size(T::Fields::of(value)); }
  static std::byte* encode(std::byte* to, const T& value) noexcept { return Parts::encode(to, T::Fields::of(value)); }
  static bool decode(Reader& from, T& value) { return Parts::decode(from, T::Fields::of(value)); }
};

}  // namespace unet::rpc
