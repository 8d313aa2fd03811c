// event_queue.cc - see event_queue.h.
#include "fabric/event_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "fabric/operations_table.h"
#include "fabric/provider.h"

namespace unet::fabric {
namespace {

EventQueue& of(fid_eq* queue) noexcept { return *static_cast<EventQueue*>(queue); }

int close_queue(fid* fid) {
  auto* const queue = reinterpret_cast<EventQueue*>(fid);
  if (queue->is_bound()) return -FI_EBUSY;
  delete queue;
  return 0;
}

int control(fid* fid, int command, void* argument) {
  const int descriptor = reinterpret_cast<EventQueue*>(fid)->descriptor();
  if (command != FI_GETWAIT) return -FI_ENOSYS;
  if (descriptor < 0) return -FI_ENODATA;
  *static_cast<int*>(argument) = descriptor;
  return 0;
}

fi_ops kFidOps = fid_ops(close_queue, no_bind, control);
fi_ops_eq kOps = {
    .size = sizeof(fi_ops_eq),
    .read = [](fid_eq* queue, uint32_t* event, void* to, size_t length, uint64_t flags) {
      return of(queue).read(event, to, length, flags, 0);
    },
    .readerr = [](fid_eq*, fi_eq_err_entry*, uint64_t) -> ssize_t { return -FI_EAGAIN; },
    .write = [](fid_eq* queue, uint32_t event, const void* bytes, size_t length, uint64_t flags) -> ssize_t {
      if (flags != 0) return -FI_EINVAL;
      return guarded([&]() -> ssize_t {
        of(queue).write(event, bytes, length);
        return static_cast<ssize_t>(length);
      });
    },
    .sread = [](fid_eq* queue, uint32_t* event, void* to, size_t length, int timeout, uint64_t flags) {
      return of(queue).read(event, to, length, flags, timeout);
    },
    .strerror = error_text<fid_eq>,
};

}  // namespace

EventQueue::EventQueue(Descriptor wakes, void* context) noexcept
    : fid_eq{{FI_CLASS_EQ, context, &kFidOps}, &kOps}, wakes_(std::move(wakes)) {}

void EventQueue::write(uint32_t event, const fi_eq_entry& entry) { write(event, &entry, sizeof entry); }

void EventQueue::write(uint32_t event, const void* bytes, size_t length) {
  const char* const from = static_cast<const char*>(bytes);
  const std::lock_guard held(mutex_);
  events_.push_back({event, {from, from + length}});
  constexpr uint64_t kOne = 1;
  if (wakes_.get() >= 0) [[maybe_unused]] const ssize_t written = ::write(wakes_.get(), &kOne, sizeof kOne);
  added_.notify_all();
}

ssize_t EventQueue::read(uint32_t* event, void* to, size_t length, uint64_t flags, int timeout) {
  if ((flags & ~uint64_t{FI_PEEK}) != 0) return -FI_EINVAL;
  std::unique_lock held(mutex_);
  const auto has_one = [&] { return !events_.empty(); };
  if (timeout < 0) {
    added_.wait(held, has_one);
  } else if (!added_.wait_for(held, std::chrono::milliseconds(timeout), has_one)) {
    return -FI_EAGAIN;
  }
  const Event& first = events_.front();
  if (length < first.bytes.size()) return -FI_ETOOSMALL;
  *event = first.number;
  std::copy(first.bytes.begin(), first.bytes.end(), static_cast<char*>(to));
  const auto size = static_cast<ssize_t>(first.bytes.size());
  if ((flags & FI_PEEK) == 0) events_.pop_front();
  uint64_t count = 0;
  if (events_.empty() && wakes_.get() >= 0) [[maybe_unused]] const ssize_t drained = ::read(wakes_.get(), &count, sizeof count);
  return size;
}

int EventQueue::try_wait() noexcept {
  const std::lock_guard held(mutex_);
  return events_.empty() ? 0 : -FI_EAGAIN;
}

int open_event_queue(fid_fabric*, fi_eq_attr* attributes, fid_eq** queue, void* context) {
  const fi_wait_obj wait = attributes != nullptr ? attributes->wait_obj : FI_WAIT_NONE;
  if (wait != FI_WAIT_NONE && wait != FI_WAIT_UNSPEC && wait != FI_WAIT_FD) return -FI_ENOSYS;
  return guarded([&]() -> int {
    Descriptor wakes;
    if (wait == FI_WAIT_FD) {
      wakes = Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
      if (wakes.get() < 0) return -errno;
    }
    *queue = new EventQueue(std::move(wakes), context);
    return 0;
  });
}

}  // namespace unet::fabric
