// counter.cc - see counter.h.
#include "fabric/counter.h"

#include <rdma/fi_errno.h>

#include "fabric/operations_table.h"
#include "fabric/provider.h"
#include "unet/endpoint.h"

namespace unet::fabric {
namespace {

Counter& of(fid_cntr* counter) noexcept { return *static_cast<Counter*>(counter); }

int close_counter(fid* fid) {
  auto* const counter = reinterpret_cast<Counter*>(fid);
  {
    const Locked held(counter->domain().lock());
    if (counter->waiter().is_held()) return -FI_EBUSY;
  }
  counter->domain().closed();
  delete counter;
  return 0;
}

int control(fid* fid, int command, void* argument) {
  const Waiter& waiter = reinterpret_cast<Counter*>(fid)->waiter();
  if (command != FI_GETWAIT) return -FI_ENOSYS;
  if (!waiter.has_descriptor()) return -FI_ENODATA;
  *static_cast<int*>(argument) = waiter.descriptor();
  return 0;
}

template <bool kError>
int change(fid_cntr* counter, uint64_t by) {
  of(counter).change(kError, by);
  return 0;
}
template <bool kError>
int set(fid_cntr* counter, uint64_t to) {
  of(counter).set(kError, to);
  return 0;
}

fi_ops kFidOps = fid_ops(close_counter, no_bind, control);
fi_ops_cntr kOps = {
    .size = sizeof(fi_ops_cntr),
    .read = [](fid_cntr* counter) { return of(counter).read(false); },
    .readerr = [](fid_cntr* counter) { return of(counter).read(true); },
    .add = change<false>,
    .set = set<false>,
    .wait = [](fid_cntr* counter, uint64_t threshold, int timeout) { return of(counter).wait(threshold, timeout); },
    .adderr = change<true>,
    .seterr = set<true>,
};

}  // namespace

Counter::Counter(Domain& domain, const fi_cntr_attr& attributes, void* context)
    : fid_cntr{{FI_CLASS_CNTR, context, &kFidOps}, &kOps}, domain_(domain), waiter_(attributes.wait_obj != FI_WAIT_NONE) {
  domain_.opened();
}

uint64_t Counter::read(bool error) {
  const Locked locked(domain_.lock());
  waiter_.progress();
  return error ? errors_ : value_;
}

void Counter::change(bool error, uint64_t by) {
  const Locked locked(domain_.lock());
  (error ? errors_ : value_) += by;
  waiter_.wake();
}

void Counter::set(bool error, uint64_t to) {
  const Locked locked(domain_.lock());
  (error ? errors_ : value_) = to;
  waiter_.wake();
}

int Counter::wait(uint64_t threshold, int timeout) {
  const Nanoseconds start = monotonic_now();
  const Nanoseconds limit = timeout < 0 ? kNever : static_cast<Nanoseconds>(timeout) * kMillisecond;
  uint64_t errors = 0;
  {
    const Locked locked(domain_.lock());
    errors = errors_;
  }
  for (;;) {
    const Nanoseconds waited = monotonic_now() - start;
    {
      const Locked locked(domain_.lock());
      waiter_.progress();
      if (value_ >= threshold) return 0;
      if (errors_ != errors) return -FI_EAVAIL;
      if (waited >= limit) return -FI_ETIMEDOUT;
      if (waited < unet::Endpoint::kDefaultSpin || !waiter_.has_descriptor() || waiter_.arm() != 0) continue;
      if (value_ >= threshold || errors_ != errors) continue;  // arm() may find that a peer is lost
    }
    waiter_.sleep(limit == kNever ? kNever : limit - waited);
  }
}

int Counter::try_wait() {
  const Locked locked(domain_.lock());
  if (!waiter_.has_descriptor()) return -FI_EINVAL;
  const uint64_t value = value_, errors = errors_;
  const int armed = waiter_.arm();  // may find that a peer is lost
  return value_ != value || errors_ != errors ? -FI_EAGAIN : armed;
}

int open_counter(fid_domain* domain, fi_cntr_attr* attributes, fid_cntr** counter, void* context) {
  static constexpr fi_cntr_attr kDefault{.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC, .wait_set = nullptr, .flags = 0};
  const fi_cntr_attr& wanted = attributes != nullptr ? *attributes : kDefault;
  if (wanted.events != FI_CNTR_EVENTS_COMP || wanted.flags != 0) return -FI_EINVAL;
  if (!Waiter::knows(wanted.wait_obj)) return -FI_ENOSYS;
  return guarded([&] {
    auto made = std::make_unique<Counter>(*static_cast<Domain*>(domain), wanted, context);
    if (const int opened = made->waiter().open(); opened != 0) {
      made->domain().closed();
      return opened;
    }
    *counter = made.release();
    return 0;
  });
}

}  // namespace unet::fabric
