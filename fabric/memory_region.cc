// memory_region.cc - see memory_region.h.
#include "fabric/memory_region.h"

#include <rdma/fi_errno.h>

#include "fabric/counter.h"
#include "fabric/domain.h"
#include "fabric/endpoint.h"
#include "fabric/operations_table.h"
#include "fabric/provider.h"

namespace unet::fabric {
namespace {

constexpr uint64_t kAccess = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

int close_region(fid* fid) {
  auto* const region = reinterpret_cast<MemoryRegion*>(fid);
  Domain& domain = region->domain();
  {
    const Locked held(domain.lock());
    domain.regions().remove(*region);
    for (Endpoint* const each : domain.endpoints()) each->close(*region);
    if (region->writes() != nullptr) region->writes()->waiter().release();
  }
  delete region;
  domain.closed();
  return 0;
}

int bind_region(fid* fid, struct fid* object, uint64_t flags) {
  if (object->fclass == FI_CLASS_EP) return 0;  // a region is for all endpoints
  if (object->fclass != FI_CLASS_CNTR || flags != FI_REMOTE_WRITE) return -FI_EINVAL;
  auto* const region = reinterpret_cast<MemoryRegion*>(fid);
  auto* const counter = reinterpret_cast<Counter*>(object);
  const Locked held(region->domain().lock());
  if (region->writes() != nullptr) region->writes()->waiter().release();
  counter->waiter().hold();
  region->set_writes(*counter);
  counter->waiter().add_all(region->domain());
  return 0;
}

int control(fid*, int command, void*) { return command == FI_ENABLE ? 0 : -FI_ENOSYS; }

fi_ops kFidOps = fid_ops(close_region, bind_region, control);

int register_memory(fid* object, std::span<const iovec> pieces, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags,
                    fid_mr** region, void* context) {
  if (object->fclass != FI_CLASS_DOMAIN || (access & ~kAccess) != 0 || offset != 0 || pieces.size() != 1) return -FI_EINVAL;
  if ((flags & ~uint64_t{FI_RMA_EVENT}) != 0) return -FI_EBADFLAGS;
  Domain& domain = *reinterpret_cast<Domain*>(object);
  return guarded([&]() -> int {
    const MutableBytes memory(static_cast<std::byte*>(pieces[0].iov_base), pieces[0].iov_len);
    const uint64_t address = domain.regions().has_virtual_addresses() ? reinterpret_cast<uintptr_t>(memory.data()) : 0;
    auto made = std::make_unique<MemoryRegion>(domain, memory, address, access, context);
    const Locked held(domain.lock());
    if (const int added = domain.regions().add(*made, key); added != 0) return added;
    domain.opened();
    *region = made.release();
    return 0;
  });
}

}  // namespace

MemoryRegions::MemoryRegions(int mode) noexcept
    : own_keys_(mode == FI_MR_BASIC || (mode & FI_MR_PROV_KEY) != 0),
      virtual_addresses_(mode == FI_MR_BASIC || (mode & FI_MR_VIRT_ADDR) != 0) {}

int MemoryRegions::add(MemoryRegion& region, uint64_t requested) {
  region.key = own_keys_ ? random_.next() : requested;
  region.set_serial(++serials_);
  return by_key_.try_emplace(region.key, &region).second ? 0 : -FI_ENOKEY;
}

void MemoryRegions::remove(const MemoryRegion& region) noexcept { by_key_.erase(region.key); }

MemoryRegion* MemoryRegions::find(uint64_t key) noexcept {
  const auto at = by_key_.find(key);
  return at != by_key_.end() ? at->second : nullptr;
}

MemoryRegion* MemoryRegions::find(uint64_t key, uint64_t serial) noexcept {
  MemoryRegion* const region = find(key);
  return region != nullptr && region->serial() == serial ? region : nullptr;
}

MemoryRegion::MemoryRegion(Domain& domain, MutableBytes memory, uint64_t address, uint64_t access, void* context) noexcept
    : fid_mr{{FI_CLASS_MR, context, &kFidOps}, this, FI_KEY_NOTAVAIL}, domain_(domain), memory_(memory), address_(address),
      access_(access) {}

fi_ops_mr memory_registration = {
    .size = sizeof(fi_ops_mr),
    .reg = [](fid* domain, const void* memory, size_t length, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags,
              fid_mr** region, void* context) {
      const iovec piece{const_cast<void*>(memory), length};
      return register_memory(domain, {&piece, 1}, access, offset, key, flags, region, context);
    },
    .regv = [](fid* domain, const iovec* pieces, size_t count, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags,
               fid_mr** region, void* context) {
      return register_memory(domain, {pieces, count}, access, offset, key, flags, region, context);
    },
    .regattr = [](fid* domain, const fi_mr_attr* of, uint64_t flags, fid_mr** region) {
      if (of->auth_key_size != 0 || of->iface != FI_HMEM_SYSTEM) return -FI_EINVAL;
      return register_memory(domain, {of->mr_iov, of->iov_count}, of->access, of->offset, of->requested_key, flags, region, of->context);
    },
};

}  // namespace unet::fabric
