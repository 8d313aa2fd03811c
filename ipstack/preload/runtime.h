// runtime.h - the library's state of this process: the stack, the table of descriptors, and how threads wait; used by all calls of
// ipstack/preload.
//
// One lock is around all of it (lock.h). A thread in a call polls the stack; poller.h says which thread sleeps for all, and when the helper
// polls. Arrivals notify the threads that wait for a socket, and wake those that sleep.
//
// A thread may be cancelled (pthread_cancel()) while it sleeps, and at the beginning of a call, but never while it has the lock. Its stack
// is unwound then as by an exception: what must be undone belongs to an object, and functions that wait are not noexcept.
#pragma once

#include <poll.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ipstack/preload/core_use.h"
#include "ipstack/preload/epoll_set.h"
#include "ipstack/preload/file.h"
#include "ipstack/preload/interface_loss.h"
#include "ipstack/preload/lock.h"
#include "ipstack/preload/ni_connection.h"
#include "ipstack/preload/own_descriptors.h"
#include "ipstack/preload/poller.h"
#include "ipstack/preload/settings.h"
#include "ipstack/preload/shared/parent_channels.h"
#include "ipstack/preload/shared/process_end.h"
#include "ipstack/preload/shared/reception.h"
#include "ipstack/preload/signals.h"
#include "ipstack/preload/sleeper.h"
#include "ipstack/preload/streams.h"
#include "ipstack/sockets/endpoint_stack.h"
#include "unet/base/time.h"

namespace unet::preload {

class SocketProxies;

class Runtime {
 public:
  // The process's only one. It is never destroyed, as threads may be in calls until the very end.
  static Runtime& get() noexcept;

  // Has the lock for its lifetime.
  class Guard {
   public:
    Guard() noexcept : runtime_(get()) { runtime_.enter(); }
    ~Guard() {
      runtime_.leave();
      if (standard_changed) [[unlikely]] follow_standard();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Runtime& runtime_;
  };
  // Within a Guard: releases the lock for its lifetime, as for a system call that may wait.
  class Away {
   public:
    Away() noexcept : runtime_(get()) { runtime_.leave(); }
    ~Away() { runtime_.lock_.take(); }
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;

   private:
    Runtime& runtime_;
  };
  // What a Guard does. For fork() and the end of the process, which take and release the lock in different functions.
  void enter() noexcept;
  void leave() noexcept;
  Lock& lock() noexcept { return lock_; }
  // This thread's calls are the program's, and may take the lock.
  static bool may_enter() noexcept { return !Lock::inside() && get().lock_.is_own_process(); }

  Table& table() noexcept { return table_; }
  // Under the lock: the file of a descriptor. Adopts an inherited socket first.
  File* file(int fd);

  // ---- under the lock

  // Opens the stack if it is not open: 0, or -errno. `quiet`: prints no message.
  int open(bool quiet = false);
  // Connects to the network interface now, as the process may soon lose the right to (NiConnection::reserve()).
  void reserve_interface();
  // The last open() found no memory, or no thread, for a stack.
  bool lacks_memory() const noexcept { return lacks_memory_; }
  bool uses_embedded_interface() const noexcept { return ni_.is_embedded(); }
  sockets::EndpointStack& endpoint_stack() noexcept { return *endpoint_stack_; }
  sockets::Stack& stack() const noexcept { return endpoint_stack_->stack(); }
  bool is_open() const noexcept { return endpoint_stack_ != nullptr; }
  // Addresses of the network interface, the last known ones while it is away. Null: there was no interface yet.
  const IpConfiguration* configuration();
  const Settings& settings() const noexcept { return settings_; }
  Nanoseconds now() const noexcept { return clock_.now(); }

  // Takes the socket away from the file, and closes it.
  void close_socket(File& file);
  // At close() of the last descriptor: waits as SO_LINGER says, until the peer has acknowledged all data, or a signal comes.
  void linger(File& file);
  // Makes the close of the connection a reset.
  void reset_at_close(File& file) noexcept;
  // Resets a connection without an owner.
  void reset(File& file) noexcept;
  // Something has happened to the file: wakes the threads that wait for it.
  static void notify(File& file);
  // O_ASYNC, set or cleared by a descriptor.
  void set_signals(File& file, int fd, bool on);
  // Calls notify(), and signals the file's owner (F_SETOWN) for new events, or if data `came`, as Linux does.
  void notify_and_signal(File& file, bool came);
  // Deletes the entry if no descriptor names it and no call holds it.
  void let_go(Entry& entry);
  // The result of a call on a socket that was lost with the network interface: its error once, then the end of the stream.
  static int64_t result_of_lost(File& file, bool sends) noexcept;
  // After a call that returns the part that it has done: the next call returns this -errno.
  void defer_error(File& file, int64_t error) noexcept;
  // The ready events of a socket of the stack, in epoll's bits; without the shadow.
  uint32_t events(const File& file) const noexcept;
  // The ready events of a socket or an epoll set.
  uint32_t events(const Entry& entry) const noexcept;

  // Takes in arrivals, and notifies the threads that wait for them. True: some socket changed.
  bool poll(uint32_t local_messages = sockets::EndpointNetwork::kPollMost);
  // Calls poll() while there are arrivals, a bounded number of times.
  void poll_all();
  // Calls poll() if the last one was a while ago. Returns the time.
  Nanoseconds poll_if_due() {
    const Nanoseconds at = now(), passed = at - poller_.ran_at();
    if (passed > Poller::kRunEvery && is_open()) poll(endpoint_stack_->due_intake(passed > 2 * Poller::kRunEvery));
    return at;
  }

  enum class Woken : uint8_t { something, timed_out, interrupted };
  // Records whether a call found something when it began. Repeated misses of calls that do not wait yield the core.
  void record_attempt(bool found, bool waits) noexcept;
  // The last wait was long, so the next one sleeps at once.
  bool is_idle() const noexcept { return spin_.now() == 0; }
  // Waits until `who` is woken, a descriptor of `kernel` is ready (in its revents), or the time is `until`. Releases the lock meanwhile.
  // May return without a reason. timed_out: the kernel has just been asked, and had nothing. `spin_asks` false: a thread that polls does
  // not ask the kernel, which would be a system call each time.
  Woken wait(Sleeper& who, std::span<pollfd> kernel, Nanoseconds until, const sigset_t* mask = nullptr, bool spin_asks = true);
  // Runs the handlers of deferred signals, and of pending ones that `mask` lets through. True: there were some. The caller holds its file.
  bool let_handlers_run(const sigset_t* mask = nullptr);
  // The one loop in which calls wait. `sleep(until)` waits once. Then `attempt()` looks: -EAGAIN while there is nothing. `restarts`: a
  // handler with SA_RESTART does not end the call. Returns -EINTR where the kernel does, and -EAGAIN at the end of the time.
  template <typename Sleep, typename Attempt>
  int64_t block(Nanoseconds until, bool restarts, Sleep sleep, Attempt attempt);
  // A call on a file, which the caller holds: calls `attempt`, and waits while it returns -EAGAIN. Its argument says whether to ask the
  // shadow, too, which costs a system call. `within` 0: for ever.
  template <typename Attempt>
  int64_t block_on(File& file, short kernel_events, bool waits, Nanoseconds within, Attempt attempt);
  static Sleeper& this_thread() noexcept;
  Poller& poller() noexcept { return poller_; }
  // When a wait tries again to adopt a socket that waits for the network interface: a child without an interface has no helper to do so.
  static constexpr Nanoseconds kTryAgain = kSecond / 4;
  Nanoseconds next_try(bool waits_back, Nanoseconds until) const noexcept {
    return waits_back ? std::min(until, now() + kTryAgain) : until;
  }

  // No other process has sockets of this one, as far as is known. proxies() ends that.
  bool is_alone() const noexcept { return proxies_ == nullptr; }
  SocketProxies& proxies();
  ParentChannels& parents() noexcept { return parents_; }
  Reception& reception() noexcept { return reception_; }
  ProcessEnd& end() noexcept { return end_; }
  // Processes messages of other processes about this one's sockets, before a call that depends on them.
  void process_channels();
  OwnDescriptors& own_descriptors() noexcept { return own_descriptors_; }

  InterfaceLoss& interface_loss() noexcept { return interface_loss_; }
  // The network interface of the stack is gone.
  bool lost_interface() const noexcept { return ni_.is_lost(); }
  // Ends the stack by `end`; there is none then.
  void end_stack(void (*end)(std::unique_ptr<sockets::EndpointStack>));
  // Another process has the stack, and with it what this one did for others.
  void forget_duties();

 private:
  class Asleep;

  Runtime();
  Status open_stack();
  void forget_sleep(const void* here) noexcept;
  void dispatch();
  bool is_below_low_water(const File& file) const noexcept;
  bool spin(const Sleeper& who, std::span<pollfd> kernel, Nanoseconds until);
  Woken wait_for(File& file, std::span<pollfd> kernel, Nanoseconds until);  // wait() for one file
  Woken sleep(Sleeper& who, std::span<pollfd> kernel, Nanoseconds until, const sigset_t* mask);

  Lock lock_;
  Table table_;
  const Clock clock_;
  const Settings settings_ = Settings::read();
  NiConnection ni_{settings_.ni};
  bool lacks_memory_ = false;
  std::unique_ptr<sockets::EndpointStack> endpoint_stack_;
  InterfaceLoss interface_loss_;

  Poller poller_;
  SpinTime spin_{settings_.spin_most};
  MissPace misses_;

  OwnDescriptors own_descriptors_;
  std::unique_ptr<SocketProxies> proxies_;
  ParentChannels parents_;
  Reception reception_;
  ProcessEnd end_;
};

// Entries that this thread's calls hold, innermost last. A handler may leave all calls by longjmp() (Runtime::forget_sleep()).
struct HeldByThread {
  static constexpr unsigned kMost = 8;  // deeper holds are not noted
  Entry* entries[kMost];
  unsigned count;
  static constinit thread_local HeldByThread own;
  // How many of the entry's holds are this thread's.
  static int of(const Entry& entry) noexcept;
};

// An entry stays for the lifetime of this object, although the call releases the lock.
class Hold {
 public:
  explicit Hold(Entry& entry) noexcept : entry_(entry) {
    ++entry_.holds;
    HeldByThread& own = HeldByThread::own;
    if (at_ < HeldByThread::kMost) own.entries[at_] = &entry;
    own.count = at_ + 1;
  }
  ~Hold() {
    HeldByThread::own.count = at_;  // also removes holds of calls that a handler has left
    --entry_.holds;
    Runtime::get().let_go(entry_);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Entry& entry_;
  const unsigned at_ = HeldByThread::own.count;
};

template <typename Sleep, typename Attempt>
int64_t Runtime::block(Nanoseconds until, bool restarts, Sleep sleep, Attempt attempt) {
  while (true) {
    const bool ends = sleep(until) == Woken::interrupted && !(restarts && signals_restart());
    if (ends) [[unlikely]] this_thread().ends_call = true;
    const int64_t result = attempt();
    if (ends) [[unlikely]] this_thread().ends_call = false;
    if (result != -EAGAIN) return result;
    if (ends) return -EINTR;
    if (now() >= until) return -EAGAIN;
    if (restarts && signals_restart()) this_call.handled = false;  // the call goes on
  }
}

template <typename Attempt>
int64_t Runtime::block_on(File& file, short kernel_events, bool waits, Nanoseconds within, Attempt attempt) {
  const int64_t result = attempt(!waits || file.is_undecided());
  record_attempt(result != -EAGAIN, waits);
  if (result != -EAGAIN || !waits) return result;
  bool has_news = false;  // the shadow has an event that this call does not want, as an error; ppoll() would return at once each time
  pollfd shadow;
  const auto sleep = [&](Nanoseconds until) {
    shadow = {.fd = file.kernel && !file.fds.empty() && !has_news ? file.fd() : -1, .events = kernel_events, .revents = 0};
    if (has_news) until = std::min(until, now() + kMillisecond);
    return wait_for(file, {&shadow, shadow.fd < 0 ? size_t{0} : size_t{1}}, until);
  };
  return block(within == 0 ? kForever : now() + within, within == 0, sleep, [&] {
    const bool asks = (shadow.revents != 0 || has_news) && !file.fds.empty();
    has_news = shadow.revents != 0 && (shadow.revents & kernel_events) == 0;
    return attempt(asks);
  });
}

}  // namespace unet::preload
