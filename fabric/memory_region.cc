// memory_region.cc - see memory_region.h. Memory for messages needs no registration; regions for peers do not exist yet.
#include "fabric/memory_region.h"

#include "fabric/domain.h"
#include "fabric/operations_table.h"
#include "fabric/provider.h"

namespace unet::fabric {
namespace {

constexpr uint64_t kAccess = FI_SEND | FI_RECV;

struct MemoryRegion : fid_mr {
  MemoryRegion(Domain& of, void* context) noexcept;
  Domain& domain;
};

int close_region(fid* fid) {
  auto* const region = reinterpret_cast<MemoryRegion*>(fid);
  region->domain.closed();
  delete region;
  return 0;
}

fi_ops kFidOps = fid_ops(close_region);

MemoryRegion::MemoryRegion(Domain& of, void* context) noexcept
    : fid_mr{{FI_CLASS_MR, context, &kFidOps}, nullptr, FI_KEY_NOTAVAIL}, domain(of) {
  domain.opened();
}

int register_memory(fid* domain, uint64_t access, uint64_t flags, fid_mr** region, void* context) {
  if (domain->fclass != FI_CLASS_DOMAIN || flags != 0 || (access & ~kAccess) != 0) return -FI_EINVAL;
  return guarded([&] {
    *region = new MemoryRegion(*reinterpret_cast<Domain*>(domain), context);
    return 0;
  });
}

}  // namespace

fi_ops_mr memory_registration = {
    .size = sizeof(fi_ops_mr),
    .reg = [](fid* domain, const void*, size_t, uint64_t access, uint64_t, uint64_t, uint64_t flags, fid_mr** region, void* context) {
      return register_memory(domain, access, flags, region, context);
    },
    .regv = [](fid* domain, const iovec*, size_t, uint64_t access, uint64_t, uint64_t, uint64_t flags, fid_mr** region, void* context) {
      return register_memory(domain, access, flags, region, context);
    },
    .regattr = [](fid* domain, const fi_mr_attr* attributes, uint64_t flags, fid_mr** region) {
      return register_memory(domain, attributes->access, flags, region, attributes->context);
    },
};

}  // namespace unet::fabric
