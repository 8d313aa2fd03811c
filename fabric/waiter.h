// waiter.h - progress and sleeps for the readers of a completion queue or counter; used by these two.
#pragma once

#include <rdma/fi_eq.h>

#include <cstdint>
#include <vector>

#include "fabric/domain.h"
#include "unet/base/time.h"
#include "unet/mapping.h"

namespace unet::fabric {

class Endpoint;

// Polls the endpoints of a queue or counter. Its descriptor becomes readable when one of them may have work. Call all functions with the
// domain's lock, except sleep().
class Waiter {
 public:
  // `wait`: FI_WAIT_NONE, or an object with a descriptor.
  explicit Waiter(bool has_descriptor) noexcept : has_descriptor_(has_descriptor) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  static bool knows(fi_wait_obj wait) noexcept { return wait == FI_WAIT_NONE || wait == FI_WAIT_UNSPEC || wait == FI_WAIT_FD; }
  // Makes the descriptors. Errors: -FI_E...
  int open();

  int add(Endpoint& endpoint);
  // Makes it poll all endpoints of the domain, also later ones: peers write to a region by any of them.
  void add_all(Domain& domain) noexcept { all_ = &domain; }
  void remove(Endpoint& endpoint) noexcept;
  // Objects that name the queue or counter, which cannot be closed before them.
  void hold() noexcept { ++holders_; }
  void release() noexcept { --holders_; }
  bool is_held() const noexcept { return holders_ != 0 || !endpoints_.empty(); }

  // Polls every endpoint once. After many empty polls it yields the core: a peer may need it.
  void progress();
  // 0: the descriptor becomes readable when there is work. -FI_EAGAIN: there is some already.
  int arm();
  bool has_descriptor() const noexcept { return has_descriptor_; }
  int descriptor() const noexcept { return set_.get(); }
  // Ends the sleep of a thread. note(): what that thread waits for may be there.
  void wake() noexcept;
  void note() noexcept {
    if (__builtin_expect(armed_, 0)) wake();
  }
  void drain() noexcept;
  // Sleeps after arm() for at most `limit`. Call it without the lock.
  void sleep(Nanoseconds limit) const noexcept;

 private:
  uint32_t poll();
  bool looks_longer() const noexcept;
  const std::vector<Endpoint*>& polled() const noexcept { return all_ != nullptr ? all_->endpoints() : endpoints_; }

  std::vector<Endpoint*> endpoints_;
  const Domain* all_ = nullptr;
  uint32_t holders_ = 0;
  uint32_t empty_ = 0;  // polls in a row that found nothing
  uint64_t left_ = 0;   // cycles() at the end of the last one of these
  const bool has_descriptor_;
  bool armed_ = false;  // a thread may sleep on the descriptor
  Descriptor set_, wakes_, timer_;
};

}  // namespace unet::fabric
