// poll_set.cc - see poll_set.h.
#include "fabric/poll_set.h"

#include <rdma/fi_errno.h>

#include "fabric/completion_queue.h"
#include "fabric/counter.h"
#include "fabric/operations_table.h"
#include "fabric/provider.h"

namespace unet::fabric {
namespace {

// A queue or a counter.
struct Member {
  explicit Member(fid& of) noexcept
      : object(&of), queue(of.fclass == FI_CLASS_CQ ? reinterpret_cast<CompletionQueue*>(&of) : nullptr),
        counter(queue == nullptr ? reinterpret_cast<Counter*>(&of) : nullptr) {}
  Waiter& waiter() const noexcept { return queue != nullptr ? queue->waiter() : counter->waiter(); }
  // Makes progress; returns whether there is news.
  bool look() {
    if (queue == nullptr || queue->empty()) waiter().progress();
    if (queue != nullptr) return !queue->empty();
    const bool more = std::exchange(value, counter->value()) != value;
    return std::exchange(errors, counter->errors()) != errors || more;
  }
  fid* object;
  CompletionQueue* queue;
  Counter* counter;
  uint64_t value = 0, errors = 0;  // of the counter, as last seen
};

struct PollSet : fid_poll {
  PollSet(Domain& of, fi_ops* fid_calls, fi_ops_poll* calls) noexcept
      : fid_poll{{FI_CLASS_POLL, nullptr, fid_calls}, calls}, domain(of) {
    domain.opened();
  }
  std::vector<Member>::iterator find(const struct fid* object) noexcept {
    return std::find_if(members.begin(), members.end(), [&](const Member& each) { return each.object == object; });
  }
  Domain& domain;
  std::vector<Member> members;
};

PollSet& of(fid_poll* set) noexcept { return *static_cast<PollSet*>(set); }

int close_set(fid* fid) {
  auto* const set = reinterpret_cast<PollSet*>(fid);
  if (!set->members.empty()) return -FI_EBUSY;
  set->domain.closed();
  delete set;
  return 0;
}

int add(fid_poll* set, fid* object, uint64_t flags) {
  if (flags != 0 || (object->fclass != FI_CLASS_CQ && object->fclass != FI_CLASS_CNTR)) return -FI_EINVAL;
  return guarded([&] {
    const Locked held(of(set).domain.lock());
    if (of(set).find(object) != of(set).members.end()) return 0;
    of(set).members.emplace_back(*object);
    of(set).members.back().waiter().hold();
    return 0;
  });
}

int remove(fid_poll* set, fid* object, uint64_t) {
  const Locked held(of(set).domain.lock());
  const auto at = of(set).find(object);
  if (at == of(set).members.end()) return -FI_EINVAL;
  at->waiter().release();
  of(set).members.erase(at);
  return 0;
}

int poll(fid_poll* set, void** contexts, int count) {
  const Locked held(of(set).domain.lock());
  return guarded([&] {
    int found = 0;
    for (Member& each : of(set).members) {
      if (found < count && each.look()) contexts[found++] = each.object->context;
    }
    return found;
  });
}

fi_ops kFidOps = fid_ops(close_set);
fi_ops_poll kOps = {.size = sizeof(fi_ops_poll), .poll = poll, .poll_add = add, .poll_del = remove};

}  // namespace

int open_poll_set(fid_domain* domain, fi_poll_attr* attributes, fid_poll** set) {
  if (attributes != nullptr && attributes->flags != 0) return -FI_EINVAL;
  return guarded([&] {
    *set = new PollSet(*static_cast<Domain*>(domain), &kFidOps, &kOps);
    return 0;
  });
}

}  // namespace unet::fabric
