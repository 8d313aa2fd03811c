// atomic_operation.h - the arithmetic of FI_ATOMIC: every operation on every datatype that libfabric defines for it; used by RemoteMemory.
#pragma once

#include <rdma/fi_domain.h>

#include <cstddef>

namespace unet::fabric {

enum class AtomicKind : unsigned char { update = 0, fetch = 1, compare = 2 };

// Bytes of one datum; 0: the datatype does not have the operation in calls of this kind.
size_t atomic_size(AtomicKind kind, fi_op operation, fi_datatype datatype) noexcept;

// Applies an operation that atomic_size() knows to `count` data at `target`, of any alignment. `compare` is used by compare, `result` gets
// the former data unless it is nullptr. `operand` is unused by FI_ATOMIC_READ.
void apply_atomic(fi_op operation, fi_datatype datatype, void* target, const void* operand, const void* compare, void* result,
                  size_t count) noexcept;

}  // namespace unet::fabric
