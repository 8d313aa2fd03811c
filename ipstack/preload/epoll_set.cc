// epoll_set.cc - members of an epoll set.
#include "ipstack/preload/epoll_set.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "ipstack/preload/own_descriptors.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"

namespace unet::preload {
namespace {

// An eventfd that is always readable. Its address is the data of its event.
int recall_event = -1;

}  // namespace

EpollSet::~EpollSet() {
  forget(*this);
  kernel_waiters_->set = nullptr;
  for (const auto& each : all_) std::erase(each->entry->registrations, each.get());
}

Registration* EpollSet::find(const Entry& entry, int fd) const noexcept {
  for (Registration* each : entry.registrations) {
    if (each->set == this && each->fd == fd) return each;
  }
  return nullptr;
}

Registration* EpollSet::find(const epoll_event& of_kernel) const noexcept {
  if (sets_ == 0) return nullptr;
  for (const auto& each : all_) {
    if (each->is_set() && of_kernel.data.ptr == each.get()) return each.get();
  }
  return nullptr;
}

int EpollSet::add(Entry& entry, int fd, const epoll_event& event) {
  if (find(entry, fd) != nullptr) return -EEXIST;
  all_.push_back(std::make_unique<Registration>(Registration{.set = this, .entry = &entry, .fd = fd, .wanted = event}));
  entry.registrations.push_back(all_.back().get());
  sets_ += all_.back()->is_set();
  notify(*all_.back());
  if (kernel_waiters_.use_count() > 1 && !kernel_waiters_->recalled) recall();
  return 0;
}

int EpollSet::modify(Entry& entry, int fd, const epoll_event& event) {
  Registration* const registration = find(entry, fd);
  if (registration == nullptr) return -ENOENT;
  if (((registration->wanted.events | event.events) & EPOLLEXCLUSIVE) != 0) return -EINVAL;
  registration->wanted = event;
  registration->spent = false;
  notify(*registration);
  return 0;
}

int EpollSet::remove(Entry& entry, int fd) {
  Registration* const registration = find(entry, fd);
  if (registration == nullptr) return -ENOENT;
  drop(*registration);
  return 0;
}

bool EpollSet::has_members_in_stack() const noexcept {
  return std::any_of(all_.begin(), all_.end(), [](const auto& each) {
    return !each->is_set() || static_cast<const EpollSet*>(each->entry)->has_members_in_stack();
  });
}

bool EpollSet::is_waited_for() const noexcept {
  const auto waits = [](const Registration* each) { return each->set->is_waited_for(); };
  return !sleepers.empty() || !pollers.empty() || std::any_of(registrations.begin(), registrations.end(), waits);
}

std::vector<File*> EpollSet::files() const {
  std::vector<File*> found;
  const auto note = [&](File* file) {
    if (std::find(found.begin(), found.end(), file) == found.end()) found.push_back(file);
  };
  for (const auto& each : all_) {
    if (!each->is_set()) note(static_cast<File*>(each->entry));
    else for (File* const inner : static_cast<const EpollSet*>(each->entry)->files()) note(inner);
  }
  return found;
}

void EpollSet::drop(Registration& registration) noexcept {
  std::erase(registration.entry->registrations, &registration);
  const auto at = std::find_if(all_.begin(), all_.end(), [&](const auto& each) { return each.get() == &registration; });
  std::swap(*at, all_.back());
  sets_ -= registration.is_set();
  registration.gone = true;
  if (registration.listed) gone_.push_back(std::move(all_.back()));
  all_.pop_back();
}

void EpollSet::forget(Entry& entry) noexcept {
  while (!entry.registrations.empty()) entry.registrations.back()->set->drop(*entry.registrations.back());
}

EpollSet::Waiter::Waiter(EpollSet& set, Sleeper& who) : set_(set), who_(who) { set.sleepers.push_back(&who); }

void EpollSet::Waiter::take() noexcept {
  std::erase(set_.sleepers, &who_);
  taken_ = true;
}

EpollSet::Waiter::~Waiter() {
  if (taken_) return;
  take();
  if (who_.woken) set_.wake_one();
}

bool EpollSet::wake_one() noexcept {
  return std::any_of(sleepers.begin(), sleepers.end(), [](Sleeper* each) { return each->wake(); });
}

// Level-triggered, the event ends the waits of all threads, one after another.
void EpollSet::recall() noexcept {
  if (recall_event < 0) note_own(recall_event = out_of_the_way(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)), true);
  if (recall_event < 0 || fds.empty()) return;
  kernel_waiters_->recalled = true;  // before the event, as a woken thread reads it
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &recall_event}};
  real().epoll_ctl(fds.front(), EPOLL_CTL_ADD, recall_event, &event);
}

bool EpollSet::is_recalling() noexcept {
  if (!kernel_waiters_->recalled) return false;
  if (kernel_waiters_.use_count() > 1) return true;
  if (!fds.empty()) real().epoll_ctl(fds.front(), EPOLL_CTL_DEL, recall_event, nullptr);
  kernel_waiters_->recalled = false;
  return false;
}

void EpollSet::forget_threads() {
  sleepers.clear();
  pollers.clear();
  holds = HeldByThread::of(*this);
  // forget_own() has forgotten the number with the parent's threads. A close_range() of the child could close it.
  if (recall_event >= 0) note_own(recall_event, true);
  kernel_waiters_->recalled = false;
  if (kernel_waiters_.use_count() == 1) return;
  kernel_waiters_->set = nullptr;
  kernel_waiters_ = std::make_shared<KernelWaiters>(this);
}

bool EpollSet::is_recall(const epoll_event& of_kernel) noexcept { return of_kernel.data.ptr == &recall_event; }

void EpollSet::note_kernel_member() noexcept {
  if (kernel_members++ != 0) return;
  for (Sleeper* each : sleepers) each->wake();
}

void EpollSet::list(Registration& registration) {
  if (registration.listed) return;
  registration.listed = true;
  ready_.push_back(&registration);
}

// Wakes one of the threads that wait with the set, as Linux does. Sets that contain this one are notified, too. The kernel has checked that
// they are few and without cycles.
bool EpollSet::notify(Registration& registration) {
  list(registration);
  bool woken = wake_one();
  for (Sleeper* each : pollers) woken = each->wake() || woken;
  for (Registration* each : registrations) woken = each->set->notify(*each) || woken;
  return woken;
}

// An event that woke no thread stays in each of the sets, and the next thread that waits finds it, as in Linux.
void EpollSet::notify_sets(const Entry& entry) {
  bool woken = false;
  for (Registration* each : entry.registrations) {
    const bool exclusive = (each->wanted.events & EPOLLEXCLUSIVE) != 0;
    if (exclusive && woken) continue;
    const bool one = each->set->notify(*each);
    woken = woken || (exclusive && one);
  }
}

}  // namespace unet::preload
