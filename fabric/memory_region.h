// memory_region.h - fi_mr_reg() and its relatives: memory that peers read and write by keys; used by Domain and RemoteMemory.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <optional>
#include <unordered_map>

#include "unet/base/bytes.h"
#include "unet/base/keyed_random.h"

namespace unet::fabric {

class Counter;
class Domain;
class MemoryRegion;

// fid_domain::mr.
extern fi_ops_mr memory_registration;

// The regions of a domain. Call the functions with the domain's lock.
class MemoryRegions {
 public:
  // `mode`: fi_domain_attr::mr_mode. It decides which keys and which addresses regions have.
  explicit MemoryRegions(int mode) noexcept;
  bool has_virtual_addresses() const noexcept { return virtual_addresses_; }

  // Gives the region its key and its serial number. 0, or -FI_ENOKEY: another one has the key.
  int add(MemoryRegion& region, uint64_t requested);
  void remove(const MemoryRegion& region) noexcept;
  // The region of a key that a peer has told; nullptr: there is none.
  MemoryRegion* find(uint64_t key) noexcept;
  // The same, unless the region of that serial number was closed: another one may have its key now.
  MemoryRegion* find(uint64_t key, uint64_t serial) noexcept;

 private:
  const bool own_keys_, virtual_addresses_;
  KeyedRandom random_{0};
  std::unordered_map<uint64_t, MemoryRegion*> by_key_;
  uint64_t serials_ = 0;  // given so far
};

class MemoryRegion : public fid_mr {
 public:
  // `memory` begins at `address` for peers.
  MemoryRegion(Domain& domain, MutableBytes memory, uint64_t address, uint64_t access, void* context) noexcept;

  Domain& domain() noexcept { return domain_; }
  // Never 0, and no two regions have the same.
  uint64_t serial() const noexcept { return serial_; }
  void set_serial(uint64_t serial) noexcept { serial_ = serial; }
  // The part of the region that a peer names; nullopt: it does not lie in the region, or `access` (FI_REMOTE_READ, FI_REMOTE_WRITE) is not
  // allowed.
  std::optional<MutableBytes> part(uint64_t address, uint64_t length, uint64_t access) const noexcept {
    const uint64_t offset = address - address_;
    if ((access & ~access_) != 0 || offset > memory_.size() || length > memory_.size() - offset) return std::nullopt;
    return memory_.subspan(offset, length);
  }
  // Where peers' writes are counted; nullptr: nowhere.
  Counter* writes() const noexcept { return writes_; }
  void set_writes(Counter& counter) noexcept { writes_ = &counter; }

 private:
  Domain& domain_;
  const MutableBytes memory_;
  const uint64_t address_, access_;
  uint64_t serial_ = 0;
  Counter* writes_ = nullptr;
};

}  // namespace unet::fabric
