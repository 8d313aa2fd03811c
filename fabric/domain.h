// domain.h - the object of fi_domain(): the NI, the lock, and what is opened on them.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "fabric/domain_lock.h"
#include "fabric/memory_region.h"
#include "fabric/network_interface.h"
#include "fabric/progress_thread.h"

namespace unet::fabric {

class Endpoint;

// fi_ops_fabric::domain.
int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context);

class Domain : public fid_domain {
 public:
  Domain(NetworkInterface ni, const fi_info& info, void* context);

  DomainLock& lock() noexcept { return lock_; }
  Context& context() noexcept { return ni_.context; }
  const std::string& host() const noexcept { return ni_.host; }
  MemoryRegions& regions() noexcept { return regions_; }
  ProgressThread& progress_thread() noexcept { return progress_thread_; }
  // Whether this process has opened the domain, and not its parent.
  bool is_own_process() const noexcept { return ::getpid() == owner_; }
  // The form of addresses that the program exchanges: kBinaryFormat or kStringFormat.
  uint32_t address_format() const noexcept { return address_format_; }

  // The endpoints that are open. Call the functions with the lock.
  const std::vector<Endpoint*>& endpoints() const noexcept { return endpoints_; }
  void add(Endpoint& endpoint) { endpoints_.push_back(&endpoint); }
  void remove(Endpoint& endpoint) noexcept { std::erase(endpoints_, &endpoint); }

  // The objects that are open on this domain, which cannot be closed before them.
  void opened() noexcept { objects_.fetch_add(1, std::memory_order_relaxed); }
  void closed() noexcept { objects_.fetch_sub(1, std::memory_order_relaxed); }
  bool is_busy() const noexcept { return objects_.load(std::memory_order_relaxed) != 0; }

 private:
  NetworkInterface ni_;
  DomainLock lock_;
  MemoryRegions regions_;
  const uint32_t address_format_;
  std::vector<Endpoint*> endpoints_;
  std::atomic<uint32_t> objects_{0};
  const pid_t owner_ = ::getpid();
  ProgressThread progress_thread_{*this};
};

}  // namespace unet::fabric
