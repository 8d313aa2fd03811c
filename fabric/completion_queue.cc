// completion_queue.cc - see completion_queue.h.
#include "fabric/completion_queue.h"

#include <rdma/fi_errno.h>

#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "fabric/operations_table.h"
#include "fabric/provider.h"
#include "unet/endpoint.h"

namespace unet::fabric {
namespace {

constexpr size_t kDefaultSize = 1024, kSizeMax = 1024 * 1024;

CompletionQueue& of(fid_cq* queue) noexcept { return *static_cast<CompletionQueue*>(queue); }

int close_queue(fid* fid) {
  auto* const queue = reinterpret_cast<CompletionQueue*>(fid);
  {
    const Locked held(queue->domain().lock());
    if (queue->waiter().is_held()) return -FI_EBUSY;
  }
  queue->domain().closed();
  delete queue;
  return 0;
}

int control(fid* fid, int command, void* argument) {
  const auto* const queue = reinterpret_cast<CompletionQueue*>(fid);
  Waiter& waiter = const_cast<CompletionQueue*>(queue)->waiter();
  switch (command) {
    case FI_GETWAIT:
      if (!waiter.has_descriptor()) return -FI_ENODATA;
      *static_cast<int*>(argument) = waiter.descriptor();
      return 0;
    case FI_GETWAITOBJ:
      *static_cast<fi_wait_obj*>(argument) = waiter.has_descriptor() ? FI_WAIT_FD : FI_WAIT_NONE;
      return 0;
    default: return -FI_ENOSYS;
  }
}

// Each format begins like the next one.
size_t bytes_of(fi_cq_format format) noexcept {
  switch (format) {
    case FI_CQ_FORMAT_MSG: return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA: return sizeof(fi_cq_data_entry);
    case FI_CQ_FORMAT_TAGGED: return sizeof(fi_cq_tagged_entry);
    default: return sizeof(fi_cq_entry);
  }
}
static_assert(offsetof(Completion, flags) == offsetof(fi_cq_tagged_entry, flags));
static_assert(offsetof(Completion, length) == offsetof(fi_cq_tagged_entry, len));
static_assert(offsetof(Completion, buffer) == offsetof(fi_cq_tagged_entry, buf));
static_assert(offsetof(Completion, data) == offsetof(fi_cq_tagged_entry, data));
static_assert(offsetof(Completion, tag) == offsetof(fi_cq_tagged_entry, tag));

fi_ops kFidOps = fid_ops(close_queue, no_bind, control);
fi_ops_cq kOps = {
    .size = sizeof(fi_ops_cq),
    .read = [](fid_cq* queue, void* to, size_t count) { return of(queue).read(to, count, nullptr); },
    .readfrom = [](fid_cq* queue, void* to, size_t count, fi_addr_t* sources) { return of(queue).read(to, count, sources); },
    .readerr = [](fid_cq* queue, fi_cq_err_entry* to, uint64_t) { return of(queue).read_error(to); },
    .sread = [](fid_cq* queue, void* to, size_t count, const void*, int timeout) {
      return of(queue).read_waiting(to, count, nullptr, timeout);
    },
    .sreadfrom = [](fid_cq* queue, void* to, size_t count, fi_addr_t* sources, const void*, int timeout) {
      return of(queue).read_waiting(to, count, sources, timeout);
    },
    .signal = [](fid_cq* queue) {
      of(queue).signal();
      return 0;
    },
    .strerror = error_text<fid_cq>,
};

}  // namespace

CompletionQueue::CompletionQueue(Domain& domain, const fi_cq_attr& attributes, void* context)
    : fid_cq{{FI_CLASS_CQ, context, &kFidOps}, &kOps}, domain_(domain),
      entry_bytes_(bytes_of(attributes.format)),
      size_(attributes.size != 0 ? attributes.size : kDefaultSize), entries_(std::bit_ceil(size_)),
      waiter_(attributes.wait_obj != FI_WAIT_NONE) {
  domain_.opened();
}

void CompletionQueue::grow() {
  std::vector<Entry> more(2 * entries_.size());
  for (size_t i = 0; i < count_; ++i) more[i] = entries_[(first_ + i) & (entries_.size() - 1)];
  entries_ = std::move(more);
  first_ = 0;
}

void CompletionQueue::add_error(const Completion& completion, int error, size_t overflow) {
  add_later(completion).failed = true;
  errors_.push_back({error, overflow});
}

ssize_t CompletionQueue::take(void* to, size_t count, fi_addr_t* sources) noexcept {
  char* at = static_cast<char*>(to);
  size_t taken = 0;
  for (; taken < count && count_ != 0; ++taken) {
    const Entry& entry = entries_[first_];
    if (__builtin_expect(entry.failed, 0)) break;
    copy_words(at, &entry.completion, entry_bytes_);
    at += entry_bytes_;
    if (sources != nullptr) sources[taken] = entry.completion.source;
    first_ = (first_ + 1) & (entries_.size() - 1);
    --count_;
  }
  if (count_ == 0) first_ = 0;  // these lines are in the nearest cache
  if (taken != 0) return static_cast<ssize_t>(taken);
  return count_ != 0 ? -FI_EAVAIL : -FI_EAGAIN;
}

ssize_t CompletionQueue::read(void* to, size_t count, fi_addr_t* sources) {
  const Locked locked(domain_.lock());
  if (count_ == 0 || count == 0) {  // programs read no entries to make progress
    if (sources == nullptr) reader_ = {static_cast<char*>(to), count};
    waiter_.progress();
    const size_t given = sources == nullptr ? count - std::exchange(reader_.room, 0) : 0;
    if (given != 0) return static_cast<ssize_t>(given);
  }
  return count == 0 ? -FI_EAGAIN : take(to, count, sources);
}

ssize_t CompletionQueue::read_error(fi_cq_err_entry* to) {
  const Locked locked(domain_.lock());
  if (count_ == 0 || !entries_[first_].failed) return -FI_EAGAIN;
  const Completion& failed = entries_[first_].completion;
  const Failure failure = errors_.front();
  errors_.pop_front();
  to->op_context = failed.context;
  to->flags = failed.flags;
  to->len = failed.length;
  to->buf = failed.buffer;
  to->data = failed.data;
  to->tag = failed.tag;
  to->olen = failure.overflow;
  to->err = failure.error;
  to->prov_errno = failure.error;
  to->err_data_size = 0;
  first_ = (first_ + 1) & (entries_.size() - 1);
  --count_;
  return 1;
}

ssize_t CompletionQueue::read_waiting(void* to, size_t count, fi_addr_t* sources, int timeout) {
  if (!waiter_.has_descriptor()) return -FI_ENOSYS;
  const Nanoseconds start = monotonic_now();
  const Nanoseconds limit = timeout < 0 ? kNever : static_cast<Nanoseconds>(timeout) * kMillisecond;
  for (;;) {
    Nanoseconds waited = 0;
    do {
      if (const ssize_t taken = read(to, count, sources); taken != -FI_EAGAIN) return taken;
      waited = monotonic_now() - start;
      if (waited >= limit) return -FI_EAGAIN;
    } while (waited < unet::Endpoint::kDefaultSpin);
    {
      const Locked locked(domain_.lock());
      if (std::exchange(signalled_, false)) return -FI_EAGAIN;
      if (waiter_.arm() != 0 || count_ != 0) continue;  // arm() may find that a peer is lost
    }
    waiter_.sleep(limit == kNever ? kNever : limit - waited);
  }
}

void CompletionQueue::signal() {
  const Locked locked(domain_.lock());
  signalled_ = true;
  waiter_.wake();
}

int CompletionQueue::try_wait() {
  const Locked locked(domain_.lock());
  if (!waiter_.has_descriptor()) return -FI_EINVAL;
  const int armed = waiter_.arm();  // may find that a peer is lost
  return count_ != 0 ? -FI_EAGAIN : armed;
}

int open_completion_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context) {
  static constexpr fi_cq_attr kDefault{};
  const fi_cq_attr& wanted = attributes != nullptr ? *attributes : kDefault;
  if (wanted.format > FI_CQ_FORMAT_TAGGED || wanted.size > kSizeMax || (wanted.flags & ~uint64_t{FI_AFFINITY}) != 0) return -FI_EINVAL;
  if (!Waiter::knows(wanted.wait_obj) || wanted.wait_cond != FI_CQ_COND_NONE) return -FI_ENOSYS;
  return guarded([&] {
    auto made = std::make_unique<CompletionQueue>(*static_cast<Domain*>(domain), wanted, context);
    if (const int opened = made->waiter().open(); opened != 0) {
      made->domain().closed();
      return opened;
    }
    *queue = made.release();
    return 0;
  });
}

}  // namespace unet::fabric
