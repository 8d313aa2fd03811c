// operations_table.h - tables of functions for libfabric's objects, with refusals for what an object cannot do.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

namespace unet::fabric {

inline int no_bind(fid*, fid*, uint64_t) { return -FI_ENOSYS; }
inline int no_control(fid*, int, void*) { return -FI_ENOSYS; }

// fi_ops_cq::strerror and fi_ops_eq::strerror. Errors of the provider are those of libfabric.
template <typename Queue>
const char* error_text(Queue*, int code, const void*, char* to, size_t length) {
  const char* const text = fi_strerror(code);
  if (to != nullptr && length > 0) *std::copy_n(text, std::min(length - 1, std::strlen(text)), to) = '\0';
  return text;
}

constexpr fi_ops fid_ops(int (*close)(fid*), int (*bind)(fid*, fid*, uint64_t) = no_bind,
                         int (*control)(fid*, int, void*) = no_control) noexcept {
  return {
      .size = sizeof(fi_ops),
      .close = close,
      .bind = bind,
      .control = control,
      .ops_open = [](fid*, const char*, uint64_t, void**, void*) { return -FI_ENOSYS; },
      .tostr = nullptr,
      .ops_set = nullptr,
  };
}

}  // namespace unet::fabric
