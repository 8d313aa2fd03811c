// atomic_operation_test.cc - operations on data of all types, and what a type does not have.
#include <catch2/catch.hpp>

#include <complex>
#include <cstdint>

#include "fabric/atomic_operation.h"

using namespace unet::fabric;

namespace {

template <typename T>
T after(fi_op operation, fi_datatype datatype, T target, T operand, T compare = {}) {
  T result{};
  const T before = target;
  apply_atomic(operation, datatype, &target, &operand, &compare, &result, 1);
  REQUIRE(result == before);
  return target;
}

}  // namespace

TEST_CASE("each operation on integers") {
  REQUIRE(after<int32_t>(FI_MIN, FI_INT32, 5, -3) == -3);
  REQUIRE(after<uint32_t>(FI_MIN, FI_UINT32, 5, static_cast<uint32_t>(-3)) == 5);
  REQUIRE(after<int64_t>(FI_MAX, FI_INT64, 5, 9) == 9);
  REQUIRE(after<uint8_t>(FI_SUM, FI_UINT8, 250, 10) == 4);
  REQUIRE(after<int16_t>(FI_PROD, FI_INT16, -3, 7) == -21);
  REQUIRE(after<int8_t>(FI_LOR, FI_INT8, 0, 2) == 1);
  REQUIRE(after<int8_t>(FI_LAND, FI_INT8, 0, 2) == 0);
  REQUIRE(after<int8_t>(FI_LXOR, FI_INT8, 4, 2) == 0);
  REQUIRE(after<uint64_t>(FI_BOR, FI_UINT64, 5, 2) == 7);
  REQUIRE(after<uint64_t>(FI_BAND, FI_UINT64, 5, 4) == 4);
  REQUIRE(after<uint64_t>(FI_BXOR, FI_UINT64, 5, 4) == 1);
  REQUIRE(after<uint64_t>(FI_ATOMIC_READ, FI_UINT64, 5, 4) == 5);
  REQUIRE(after<uint64_t>(FI_ATOMIC_WRITE, FI_UINT64, 5, 4) == 4);
  REQUIRE(after<uint64_t>(FI_CSWAP, FI_UINT64, 5, 9, 5) == 9);
  REQUIRE(after<uint64_t>(FI_CSWAP, FI_UINT64, 5, 9, 6) == 5);
  REQUIRE(after<uint64_t>(FI_CSWAP_NE, FI_UINT64, 5, 9, 6) == 9);
  REQUIRE(after<uint64_t>(FI_CSWAP_LE, FI_UINT64, 5, 9, 5) == 9);
  REQUIRE(after<uint64_t>(FI_CSWAP_LT, FI_UINT64, 5, 9, 5) == 5);
  REQUIRE(after<uint64_t>(FI_CSWAP_GE, FI_UINT64, 5, 9, 5) == 9);
  REQUIRE(after<uint64_t>(FI_CSWAP_GT, FI_UINT64, 5, 9, 5) == 5);
  REQUIRE(after<uint64_t>(FI_MSWAP, FI_UINT64, 0xF0F0, 0xABCD, 0x00FF) == 0xF0CD);
}

TEST_CASE("a read stores nothing") {
  static const uint64_t target = 5;  // in memory that is not writable
  uint64_t result = 0;
  apply_atomic(FI_ATOMIC_READ, FI_UINT64, const_cast<uint64_t*>(&target), nullptr, nullptr, &result, 1);
  REQUIRE(result == 5);
}

TEST_CASE("other types have what makes sense for them") {
  using Complex = std::complex<double>;
  REQUIRE(after<double>(FI_SUM, FI_DOUBLE, 1.5, 2) == 3.5);
  REQUIRE(after<long double>(FI_MAX, FI_LONG_DOUBLE, 1, 2) == 2);
  REQUIRE(after<Complex>(FI_PROD, FI_DOUBLE_COMPLEX, {0, 1}, {0, 1}) == Complex(-1, 0));
  REQUIRE(atomic_size(AtomicKind::update, FI_BOR, FI_DOUBLE) == 0);
  REQUIRE(atomic_size(AtomicKind::update, FI_MIN, FI_FLOAT_COMPLEX) == 0);
  REQUIRE(atomic_size(AtomicKind::update, FI_SUM, FI_FLOAT_COMPLEX) == 8);
  REQUIRE(atomic_size(AtomicKind::update, FI_SUM, FI_VOID) == 0);
}

TEST_CASE("each kind of call has its operations") {
  REQUIRE(atomic_size(AtomicKind::update, FI_SUM, FI_INT32) == 4);
  REQUIRE(atomic_size(AtomicKind::fetch, FI_SUM, FI_INT32) == 4);
  REQUIRE(atomic_size(AtomicKind::compare, FI_SUM, FI_INT32) == 0);
  REQUIRE(atomic_size(AtomicKind::update, FI_ATOMIC_READ, FI_INT32) == 0);
  REQUIRE(atomic_size(AtomicKind::fetch, FI_ATOMIC_READ, FI_INT32) == 4);
  REQUIRE(atomic_size(AtomicKind::fetch, FI_CSWAP, FI_INT32) == 0);
  REQUIRE(atomic_size(AtomicKind::compare, FI_CSWAP, FI_INT32) == 4);
  REQUIRE(atomic_size(AtomicKind::update, static_cast<fi_op>(99), FI_INT32) == 0);
}
