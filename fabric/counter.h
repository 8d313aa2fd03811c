// counter.h - the object of fi_cntr_open(): the number of transfers that have ended.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include "fabric/waiter.h"

namespace unet::fabric {

// fi_ops_domain::cntr_open.
int open_counter(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** counter, void* context);

class Counter : public fid_cntr {
 public:
  Counter(Domain& domain, const fi_cntr_attr& attributes, void* context);

  Domain& domain() noexcept { return domain_; }
  Waiter& waiter() noexcept { return waiter_; }
  // Called by endpoints and poll sets, with the domain's lock.
  uint64_t value() const noexcept { return value_; }
  uint64_t errors() const noexcept { return errors_; }
  void add(bool success) noexcept {
    ++(success ? value_ : errors_);
    waiter_.note();
  }

  // Called by the program. `error`: the count of those that failed.
  uint64_t read(bool error);
  void change(bool error, uint64_t by);
  void set(bool error, uint64_t to);
  int wait(uint64_t threshold, int timeout);
  int try_wait();

 private:
  Domain& domain_;
  uint64_t value_ = 0, errors_ = 0;
  Waiter waiter_;
};

}  // namespace unet::fabric
