// atomic_operation.cc - see atomic_operation.h.
#include "fabric/atomic_operation.h"

#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace unet::fabric {
namespace {

template <typename T>
constexpr bool kIsComplex = false;
template <typename T>
constexpr bool kIsComplex<std::complex<T>> = true;

// Calls use(T{}) with the type of a datatype; false: there is none.
template <typename Use>
bool with_type(fi_datatype datatype, const Use& use) noexcept {
  switch (datatype) {
    case FI_INT8: return use(int8_t{});
    case FI_UINT8: return use(uint8_t{});
    case FI_INT16: return use(int16_t{});
    case FI_UINT16: return use(uint16_t{});
    case FI_INT32: return use(int32_t{});
    case FI_UINT32: return use(uint32_t{});
    case FI_INT64: return use(int64_t{});
    case FI_UINT64: return use(uint64_t{});
    case FI_FLOAT: return use(float{});
    case FI_DOUBLE: return use(double{});
    case FI_FLOAT_COMPLEX: return use(std::complex<float>{});
    case FI_DOUBLE_COMPLEX: return use(std::complex<double>{});
    case FI_LONG_DOUBLE: return use(static_cast<long double>(0));
    case FI_LONG_DOUBLE_COMPLEX: return use(std::complex<long double>{});
    default: return false;
  }
}

// Returns the new value of a datum; false: the type does not have the operation.
template <typename T>
bool combine(fi_op operation, T old, T operand, T compare, T& to) noexcept {
  switch (operation) {
    case FI_SUM: to = static_cast<T>(old + operand); return true;
    case FI_PROD: to = static_cast<T>(old * operand); return true;
    case FI_LOR: to = static_cast<T>(old != T{} || operand != T{}); return true;
    case FI_LAND: to = static_cast<T>(old != T{} && operand != T{}); return true;
    case FI_LXOR: to = static_cast<T>((old != T{}) != (operand != T{})); return true;
    case FI_ATOMIC_READ: to = old; return true;
    case FI_ATOMIC_WRITE: to = operand; return true;
    case FI_CSWAP: to = compare == old ? operand : old; return true;
    case FI_CSWAP_NE: to = compare != old ? operand : old; return true;
    default: break;
  }
  if constexpr (!kIsComplex<T>) {
    switch (operation) {
      case FI_MIN: to = operand < old ? operand : old; return true;
      case FI_MAX: to = old < operand ? operand : old; return true;
      case FI_CSWAP_LE: to = compare <= old ? operand : old; return true;
      case FI_CSWAP_LT: to = compare < old ? operand : old; return true;
      case FI_CSWAP_GE: to = compare >= old ? operand : old; return true;
      case FI_CSWAP_GT: to = compare > old ? operand : old; return true;
      default: break;
    }
  }
  if constexpr (std::is_integral_v<T>) {
    switch (operation) {
      case FI_BOR: to = static_cast<T>(old | operand); return true;
      case FI_BAND: to = static_cast<T>(old & operand); return true;
      case FI_BXOR: to = static_cast<T>(old ^ operand); return true;
      case FI_MSWAP: to = static_cast<T>((operand & compare) | (old & ~compare)); return true;
      default: break;
    }
  }
  return false;
}

template <typename T>
T element(const void* from, size_t index) noexcept {
  T value{};
  if (from != nullptr) std::memcpy(&value, static_cast<const char*>(from) + index * sizeof(T), sizeof value);
  return value;
}

AtomicKind kind_of(fi_op operation) noexcept {
  if (operation == FI_ATOMIC_READ) return AtomicKind::fetch;
  return operation >= FI_CSWAP && operation <= FI_MSWAP ? AtomicKind::compare : AtomicKind::update;
}

}  // namespace

size_t atomic_size(AtomicKind kind, fi_op operation, fi_datatype datatype) noexcept {
  // A fetch may also update.
  const AtomicKind own = kind_of(operation);
  if (own != kind && !(own == AtomicKind::update && kind == AtomicKind::fetch)) return 0;
  size_t size = 0;
  with_type(datatype, [&](auto zero) {
    if (combine(operation, zero, zero, zero, zero)) size = sizeof zero;
    return true;
  });
  return size;
}

void apply_atomic(fi_op operation, fi_datatype datatype, void* target, const void* operand, const void* compare, void* result,
                  size_t count) noexcept {
  with_type(datatype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < count; ++i) {
      const T old = element<T>(target, i);
      T value{};
      combine(operation, old, element<T>(operand, i), element<T>(compare, i), value);
      if (result != nullptr) std::memcpy(static_cast<char*>(result) + i * sizeof(T), &old, sizeof old);
      // A region that may only be read can lie in memory that is not writable.
      if (operation != FI_ATOMIC_READ) std::memcpy(static_cast<char*>(target) + i * sizeof(T), &value, sizeof value);
    }
    return true;
  });
}

}  // namespace unet::fabric
