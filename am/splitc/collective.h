// collective.h - broadcast, reduction, scan, gather, scatter, all-to-all; part of Split-C's public API.
//
// A collective of single values of up to 32 bytes takes one exchange. Every rank combines the same values in the order of ranks, so all
// ranks get the same bits, in every run. Collectives of many values are stores into spread memory, followed by all_store_sync().
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <type_traits>

#include "am/splitc/node.h"
#include "am/splitc/spread.h"

namespace unet::splitc {

template <typename T>
concept CellValue = std::is_trivially_copyable_v<T> && sizeof(T) <= kCellBytes;

struct Least {
  template <typename T>
  constexpr T operator()(const T& a, const T& b) const { return std::min(a, b); }
};
struct Greatest {
  template <typename T>
  constexpr T operator()(const T& a, const T& b) const { return std::max(a, b); }
};

namespace detail {

template <CellValue T>
T cell_as(Rank rank) {
  T value;
  std::memcpy(&value, current_node->cell_of(rank).data(), sizeof value);
  return value;
}
template <CellValue T>
void give(Call call, const T& own, uint32_t argument = 0) { current_node->exchange(call, as_bytes(&own, sizeof own), argument); }

// Identifies an operation by its type, so that ranks can compare it; 0: a function of the program.
template <typename Combine>
constexpr uint32_t kOperation = 0;
template <typename T>
constexpr uint32_t kOperation<std::plus<T>> = 1;
template <typename T>
constexpr uint32_t kOperation<std::multiplies<T>> = 2;
template <>
inline constexpr uint32_t kOperation<Least> = 3;
template <>
inline constexpr uint32_t kOperation<Greatest> = 4;
template <typename T>
constexpr uint32_t kOperation<std::bit_and<T>> = 5;
template <typename T>
constexpr uint32_t kOperation<std::bit_or<T>> = 6;
template <typename T>
constexpr uint32_t kOperation<std::bit_xor<T>> = 7;

}  // namespace detail

// ---- values

template <CellValue T, typename Combine>
T all_reduce(const T& own, const Combine& combine) {
  detail::give(Call::all_reduce, own, detail::kOperation<Combine>);
  T total = detail::cell_as<T>(0);
  for (Rank rank = 1; rank < current_node->size(); ++rank) total = combine(total, detail::cell_as<T>(rank));
  return total;
}
template <CellValue T>
T all_reduce_add(const T& own) { return all_reduce(own, std::plus<T>()); }
template <CellValue T>
T all_reduce_mult(const T& own) { return all_reduce(own, std::multiplies<T>()); }
template <CellValue T>
T all_reduce_min(const T& own) { return all_reduce(own, Least()); }
template <CellValue T>
T all_reduce_max(const T& own) { return all_reduce(own, Greatest()); }
template <CellValue T>
T all_reduce_and(const T& own) { return all_reduce(own, std::bit_and<T>()); }
template <CellValue T>
T all_reduce_or(const T& own) { return all_reduce(own, std::bit_or<T>()); }
template <CellValue T>
T all_reduce_xor(const T& own) { return all_reduce(own, std::bit_xor<T>()); }

// Combines the values of ranks 0 to this one.
template <CellValue T, typename Combine>
T all_scan(const T& own, const Combine& combine) {
  detail::give(Call::all_scan, own, detail::kOperation<Combine>);
  T total = detail::cell_as<T>(0);
  for (Rank rank = 1; rank <= current_node->rank(); ++rank) total = combine(total, detail::cell_as<T>(rank));
  return total;
}
template <CellValue T>
T all_scan_add(const T& own) { return all_scan(own, std::plus<T>()); }

// Returns the value of `root`.
template <CellValue T>
T all_broadcast(const T& own, Rank root = 0) {
  current_node->check_rank(root, to_string(Call::all_broadcast));
  detail::give(Call::all_broadcast, own, root);
  return detail::cell_as<T>(root);
}
// Sets all[r] to the value of rank r; `all` has P elements.
template <CellValue T>
void all_gather(const T& own, std::span<T> all) {
  detail::give(Call::all_gather, own);
  for (Rank rank = 0; rank < current_node->size() && rank < all.size(); ++rank) all[rank] = detail::cell_as<T>(rank);
}

// ---- many values, in spread memory. Each ends with all_store_sync(): when it returns, no rank is still inside.

namespace detail {

// Bytes at the same offset of each rank.
void broadcast(uint64_t offset, uint64_t bytes, Rank root);
void store_to_all(uint64_t offset, const void* from, uint64_t bytes);
void store_to_each(uint64_t offset, const void* from, uint64_t bytes);
void store_from(Rank root, uint64_t offset, const void* from, uint64_t bytes);

}  // namespace detail

// Copies the first `count` elements of `root`'s part to the parts of all ranks.
template <typename T>
void all_bulk_broadcast(Spread<T> data, uint64_t count, Rank root = 0) {
  detail::broadcast(data.offset_of_all("all_bulk_broadcast"), count * sizeof(T), root);
}
// Copies `own` of rank r to elements r * own.size() and on of every rank's part of `to`.
template <typename T>
void all_bulk_gather(Spread<T> to, std::span<const std::type_identity_t<T>> own) {
  detail::store_to_all(to.offset_of_all("all_bulk_gather") + current_node->rank() * own.size_bytes(), own.data(), own.size_bytes());
}
// Copies elements r * count and on of `from` to the part of `to` at each rank r. Only `from` of `root` is read.
template <typename T>
void all_bulk_scatter(Spread<T> to, const T* from, uint64_t count, Rank root = 0) {
  detail::store_from(root, to.offset_of_all("all_bulk_scatter"), from, count * sizeof(T));
}
// On rank r: copies elements j * count and on of `from` to elements r * count and on of rank j's part of `to`, for all j.
template <typename T>
void all_to_all(Spread<T> to, const T* from, uint64_t count) {
  detail::store_to_each(to.offset_of_all("all_to_all") + current_node->rank() * count * sizeof(T), from, count * sizeof(T));
}

}  // namespace unet::splitc
