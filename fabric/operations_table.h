// operations_table.h - tables of functions for libfabric's objects, with refusals for what an object cannot do.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

namespace unet::fabric {

inline int no_bind(fid*, fid*, uint64_t) { return -FI_ENOSYS; }
inline int no_control(fid*, int, void*) { return -FI_ENOSYS; }

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
