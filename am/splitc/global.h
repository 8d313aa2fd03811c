// global.h - global pointers: a rank and an offset in its spread memory; part of Split-C's public API.
//
//   Global<double> p;                  // T *global p: p + 1 is the next element of the same rank
//   x = *p;  *p = x;                   // blocking read and write (splitc.h has them by name, and the split-phase ones)
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace unet::splitc {

using Rank = uint32_t;
constexpr uint32_t kRanksMax = 1024;

// A type that one load, store or message moves.
template <typename T>
concept Word = std::is_trivially_copyable_v<T> && (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);

// 16 bits of rank, 48 bits of offset in its memory. No object of a program lies at offset 0 of rank 0, so zero is the null pointer.
class Address {
 public:
  constexpr Address() noexcept = default;
  // A rank above all possible ranks becomes kNoRank.
  constexpr Address(Rank rank, uint64_t offset) noexcept
      : bits_(uint64_t{rank < kNoRank ? rank : kNoRank} << kOffsetBits | (offset & kOffsetMask)) {}
  static constexpr Address from_bits(uint64_t bits) noexcept {
    Address address;
    address.bits_ = bits;
    return address;
  }
  constexpr Rank rank() const noexcept { return static_cast<Rank>(bits_ >> kOffsetBits); }
  constexpr uint64_t offset() const noexcept { return bits_ & kOffsetMask; }
  constexpr uint64_t bits() const noexcept { return bits_; }
  // Moves within the rank's memory.
  constexpr Address moved(int64_t bytes) const noexcept {
    return from_bits((bits_ & ~kOffsetMask) | ((bits_ + static_cast<uint64_t>(bytes)) & kOffsetMask));
  }
  friend constexpr auto operator<=>(const Address&, const Address&) noexcept = default;

 private:
  static constexpr Rank kNoRank = 0xffff;
  static constexpr uint32_t kOffsetBits = 48;
  static constexpr uint64_t kOffsetMask = (uint64_t{1} << kOffsetBits) - 1;
  uint64_t bits_ = 0;
};
static_assert(sizeof(Address) == 8 && kRanksMax < 0xffff);

template <typename T>
class Reference;

template <typename T>
class Global {
 public:
  constexpr Global() noexcept = default;
  constexpr Global(std::nullptr_t) noexcept {}
  constexpr explicit Global(Address address) noexcept : address_(address) {}
  constexpr Global(Rank rank, uint64_t offset) noexcept : address_(rank, offset) {}
  // Returns the same place as another type.
  template <typename U>
  constexpr Global<U> as() const noexcept { return Global<U>(address_); }

  constexpr Address address() const noexcept { return address_; }
  constexpr Rank rank() const noexcept { return address_.rank(); }
  constexpr explicit operator bool() const noexcept { return address_ != Address(); }

  constexpr Global operator+(int64_t n) const noexcept { return Global(address_.moved(n * kSize)); }
  constexpr Global operator-(int64_t n) const noexcept { return *this + -n; }
  constexpr Global& operator+=(int64_t n) noexcept { return *this = *this + n; }
  constexpr Global& operator-=(int64_t n) noexcept { return *this = *this - n; }
  constexpr Global& operator++() noexcept { return *this += 1; }
  constexpr Global operator++(int) noexcept {
    const Global before = *this;
    ++*this;
    return before;
  }
  // Returns the number of elements from `other`, which must be of the same rank, to this one.
  constexpr int64_t operator-(Global other) const noexcept {
    return (static_cast<int64_t>(address_.offset()) - static_cast<int64_t>(other.address_.offset())) / kSize;
  }
  friend constexpr auto operator<=>(const Global&, const Global&) noexcept = default;

  Reference<T> operator*() const noexcept { return Reference<T>(*this); }
  Reference<T> operator[](int64_t n) const noexcept { return Reference<T>(*this + n); }

 private:
  static constexpr int64_t kSize = sizeof(T);
  Address address_;
};

// The result of *p. Reading it reads the remote word, assigning writes it; both block. splitc.h has the bodies.
template <typename T>
class Reference {
 public:
  explicit Reference(Global<T> to) noexcept : to_(to) {}
  Reference(const Reference&) noexcept = default;
  operator T() const;
  const Reference& operator=(T value) const;
  const Reference& operator=(const Reference& other) const { return *this = static_cast<T>(other); }
  Global<T> operator&() const noexcept { return to_; }

 private:
  Global<T> to_;
};

}  // namespace unet::splitc
