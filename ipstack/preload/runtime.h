// runtime.h - the library's state of this process: the lock, the stack, the table of descriptors, and how threads wait; used by all
// calls of ipstack/preload.
//
// One lock is around all of it. A thread in a call polls the stack; poller.h says which thread sleeps for all, and when the helper polls.
// Arrivals notify the threads that wait for a socket, and wake those that sleep.
//
// A thread may be cancelled (pthread_cancel()) while it sleeps, and at the beginning of a call, but never while it has the lock. Its stack
// is unwound then as by an exception: what must be undone belongs to an object, and functions that wait are not noexcept.
#pragma once

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "ipstack/preload/core_use.h"
#include "ipstack/preload/epoll_set.h"
#include "ipstack/preload/file.h"
#include "ipstack/preload/ni_connection.h"
#include "ipstack/preload/poller.h"
#include "ipstack/preload/rules.h"
#include "ipstack/preload/shared/orphan.h"
#include "ipstack/preload/shared/parent_channels.h"
#include "ipstack/preload/signals.h"
#include "ipstack/preload/sleeper.h"
#include "ipstack/preload/streams.h"
#include "ipstack/sockets/calls.h"
#include "unet/base/time.h"

namespace unet::preload {

class SocketProxies;

class Runtime {
 public:
  // Of this process; it is never destroyed, as threads may be in calls until the very end.
  static Runtime& get() noexcept;

  // Locks the runtime. What this thread calls until then, the C library's functions themselves answer.
  class Guard {
   public:
    Guard() noexcept : runtime_(get()) { runtime_.lock(); }
    ~Guard() {
      runtime_.unlock();
      if (standard_changed) [[unlikely]] follow_standard();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Runtime& runtime_;
  };
  // Within a Guard: gives the lock away, for a call of the kernel's that may wait.
  class Away {
   public:
    Away() noexcept : runtime_(get()) { runtime_.release(); }
    ~Away() { runtime_.regain(); }
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;

   private:
    Runtime& runtime_;
  };
  // This thread is in the library already: what it calls is not the program's.
  static bool inside() noexcept;
  // Nor do its signals come now (signals.h); only when the process ends.
  static bool holds_signals() noexcept;

  Table& table() noexcept { return table_; }
  // Under the lock: a socket that is ours or may become so, and if it was inherited, is this process's own by now.
  File* file(int fd);

  // ---- under the lock

  // From here on the program cancels threads.
  void expect_cancellation() noexcept { cancels_.store(true, std::memory_order_relaxed); }

  // Opens the stack if it is not open: 0, or -errno. `quiet`: the user is not told.
  int open(bool quiet = false);
  // NiConnection::reserve().
  void reserve_interface();
  // open() failed, as this process has no memory for a stack.
  bool lacks_memory() const noexcept { return ni_.lacks_memory(); }
  sockets::Sockets& sockets() noexcept { return *sockets_; }
  bool is_open() const noexcept { return sockets_ != nullptr; }
  // Addresses of the network interface; while it is away, as they were. Null: there was none yet.
  const IpConfiguration* configuration();
  const Rules& rules() const noexcept { return rules_; }
  Nanoseconds now() const noexcept { return clock_.now(); }
  bool logs() const noexcept { return logs_; }

  // The file has this socket of the stack.
  void give_socket(File& file, int socket);
  // The same taken away; the socket is closed.
  void close_socket(File& file);
  // Takes the socket away from the file. It stays open, and is the caller's.
  int leave_socket(File& file) noexcept;
  // The last descriptor of it is closed: as SO_LINGER says, until the peer has all of what was sent, or a signal comes.
  void await_end(File& file);
  // What closes it resets it.
  void end_by_reset(File& file) noexcept;
  // A connection that nobody has is reset.
  void reset(File& file) noexcept;
  // Something has happened to it: who waits for it looks.
  static void notify(File& file);
  // O_ASYNC, said by descriptor `fd` or taken back.
  void set_signals(File& file, int fd, bool on);
  // As tell(); and its owner is signalled what is new, and what `came` anew. For each, not what is merely ready, as Linux does.
  void notify_and_signal(File& file, bool came);
  // The entry is no more, if no descriptor names it and no call holds it.
  void let_go(Entry& entry);
  // What a call on a file says whose connection is gone: once why, then that it has ended.
  static int64_t gone(File& file, bool sends) noexcept;
  // A call that has done a part says so; why it did no more, an -errno, the next one says.
  void defer_error(File& file, int64_t error) noexcept;
  // The program accepts or reads from a socket, or waits for it: so it may get what comes, if it shares its port with others.
  void start_receiving(File& file) {
    const bool may = file.is_joined() && (file.in_stack() || file.inherited);
    if (may && (!file.receives || (!file.asked && !file.origins.empty()))) begin_receiving(file);
  }
  // It does not, for now; and for so long as no thread waits for it (give_up).
  void stop_receiving(File& file);
  void give_up(File& listener);
  // What is ready at a socket of ours, in epoll's bits; without the kernel's part of it.
  uint32_t events(const File& file) const noexcept;
  // The same of a socket or an epoll set.
  uint32_t events(const Entry& entry) const noexcept;

  // Takes in what has come, and tells who waits for it. True: something has.
  bool poll(uint32_t local_messages = sockets::EndpointNetwork::kPollMost);
  // poll(), if there was none for a while. Says what time it is.
  Nanoseconds poll_if_due() {
    const Nanoseconds at = now(), passed = at - poller_.polled_at();
    if (passed > kPollEvery && is_open()) poll(sockets_->due_intake(passed > 2 * kPollEvery));
    return at;
  }

  enum class Woken : uint8_t { something, timed_out, interrupted };
  // Records whether a call found something when it began. Repeated misses of calls that do not wait yield the core.
  void record_attempt(bool found, bool waits) noexcept;
  // The last wait was a long one, so the next begins with sleep.
  bool is_idle() const noexcept { return spin_.now() == 0; }
  // Waits until something happens to what `who` waits for, or a descriptor of `kernel` is ready (its revents say so), at most until
  // `until`. Gives the lock away meanwhile. May return for nothing. When its time is over the kernel has just been asked, and had nothing.
  // `spin_asks` false: `kernel` is asked by the sleep only. Each look of a thread that spins is a system call.
  Woken wait(Sleeper& who, std::span<pollfd> kernel, Nanoseconds until, const sigset_t* mask = nullptr, bool spin_asks = true);
  // Handlers of signals that have come while this thread was in the library run now. True: some did. The caller holds its file.
  bool let_handlers_run();
  // A signal that `mask` lets through has come, and been handled.
  bool is_interrupted(Sleeper& who, const sigset_t& mask);
  // The same for a thread that waits for one file.
  Woken wait_for(File& file, std::span<pollfd> kernel, Nanoseconds until);
  // As above, and `attempt`, which says -EAGAIN until it can do what it is to do; it is told whether to look at the kernel's part, too: a
  // system call that is saved while there is nothing. `within`: 0 is for ever. -EINTR as the kernel has it. The caller holds the file.
  template <typename Attempt>
  int64_t block(File& file, short kernel_events, bool waits, Nanoseconds within, Attempt attempt);
  static Sleeper& this_thread() noexcept;
  // While there is no network interface a child has no helper that would find one: who waits for what it has inherited tries so often.
  static constexpr Nanoseconds kTryAgain = kSecond / 4;
  Nanoseconds next_try(bool waits_back, Nanoseconds until) const noexcept {
    return waits_back ? std::min(until, now() + kTryAgain) : until;
  }

  // False in a child by vfork(), which has its parent's memory and not its parent's descriptors.
  bool is_own_process() const noexcept { return ::getpid() == process_; }
  SocketProxies& proxies();
  ParentChannels& parents() noexcept { return parents_; }
  // What others say of our sockets, before what depends on it.
  void process_channels();
  // The helper carries the connection's bytes to `fd`, which is its own from now on.
  void proxy(File& file, int fd, bool used = true);
  // Whoever has the other end of the channel `fd`, which is the helper's from now on, has the listener or datagram socket, too.
  void share(File& file, int fd);
  // Descriptors of this library's, in their order: what a program put there instead would be read, written to and closed for it, so it is
  // not to close or to replace them. Of those below kFirstDescriptor only what it cannot do without is known.
  std::vector<int> own_descriptors();
  std::vector<int> descriptors() const;  // the same, under the lock
  bool is_own(int fd);
  // There are others now.
  void protect() noexcept;

  // The process ends, or becomes another program: datagrams that it has not read are others' who have their sockets.
  void give_back_datagrams();
  // The process ends: its connections are closed, and what was sent leaves.
  void finish() noexcept;

 private:
  bool protects(int fd) const noexcept;
  static constexpr Nanoseconds kPollEvery = 20 * kMicrosecond;
  friend class Forks;
  friend class LastThread;
  class Asleep;

  Runtime();
  void read_environment();
  Status open_stack();
  void lock() noexcept;
  void unlock() noexcept;
  void release() noexcept;
  static void come_out() noexcept;
  void regain() noexcept;
  void forget_sleep(const void* here) noexcept;
  void yield_lock() noexcept;
  void hold_off_cancellation() noexcept;
  void halt_at_end() noexcept;
  void dispatch();
  void begin_receiving(File& file);
  void resume_given_up();
  void begin_reading(File& file);
  bool is_less(const File& file) const noexcept;
  bool is_lost() const noexcept { return ni_.is_lost(); }
  void lose_interface();
  void come_back();
  bool spin(const Sleeper& who, std::span<pollfd> kernel, Nanoseconds until);
  Woken sleep(Sleeper& who, std::span<pollfd> kernel, Nanoseconds until, const sigset_t* mask);
  static void* helper(void* runtime);
  void help();
  bool orphan_is_done() noexcept;
  void kick_helper() noexcept { poller_.kick_helper(); }
  void drain(File& listener);
  void drain_listeners();
  void give_back(File& file);
  static constexpr Nanoseconds kOthersWithin = 5 * kSecond;  // those who have not asked for it by then do not want it
  void await_others(bool (SocketProxies::*what)() const noexcept, Nanoseconds within = kOthersWithin) noexcept;

  Table table_;
  std::mutex mutex_;
  std::atomic<bool> cancels_{false};     // the program has cancelled a thread
  std::atomic<int> wanting_{0};          // threads that wait for the lock
  const Clock clock_;
  Rules rules_;
  NiConnection ni_;
  bool logs_ = false;
  std::unique_ptr<sockets::Sockets> sockets_;
  std::vector<File*> by_socket_;         // of the stack's
  std::vector<File*> given_up_;          // listeners whose connections another process has, as long as no thread waits for them
  std::vector<File*> waiting_back_;      // listeners and datagram sockets, until there is a network interface again
  Nanoseconds tried_at_ = 0;             // to find one, last
  Nanoseconds opened_at_ = 0;            // the stack

  Poller poller_;
  SpinTime spin_;
  MissPace misses_;

  // Of this library's descriptors those that it cannot do without: the control socket, the endpoint's, the helper's, channels.
  std::array<std::atomic<int>, 4 + ParentChannels::kMost> protected_;

  std::unique_ptr<SocketProxies> proxies_;
  ParentChannels parents_;
  pid_t process_ = ::getpid();

  OrphanLife orphan_;
  std::atomic<bool> ending_{false};
  bool ends_ = false;                    // finish() has begun
};

// What the calls of this thread hold, innermost last: a handler may leave them all by longjmp() (Runtime::forget_sleep()).
struct HeldByThread {
  static constexpr unsigned kMost = 8;  // of more the last ones are not noted
  Entry* entries[kMost];
  unsigned count;
  static constinit thread_local HeldByThread own;
  // How many of the entry's holds are this thread's.
  static int of(const Entry& entry) noexcept;
};

// A call that gives the lock away still has the file.
class Hold {
 public:
  explicit Hold(Entry& entry) noexcept : entry_(entry) {
    ++entry_.holds;
    HeldByThread& own = HeldByThread::own;
    if (at_ < HeldByThread::kMost) own.entries[at_] = &entry;
    own.count = at_ + 1;
  }
  ~Hold() {
    HeldByThread::own.count = at_;  // also of those that a handler has left, which was called in this one
    --entry_.holds;
    Runtime::get().let_go(entry_);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Entry& entry_;
  const unsigned at_ = HeldByThread::own.count;
};

// Meanwhile this thread cannot be cancelled, as in a function that is no place for that. To be there before a Guard.
class Uncancelled {
 public:
  Uncancelled() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { ::pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

template <typename Attempt>
int64_t Runtime::block(File& file, short kernel_events, bool waits, Nanoseconds within, Attempt attempt) {
  int64_t result = attempt(!waits || file.is_undecided());
  record_attempt(result != -EAGAIN, waits);
  if (result != -EAGAIN || !waits) return result;
  const Nanoseconds until = within == 0 ? kForever : now() + within;
  bool has_news = false;  // of the shadow, for which this call has no use, as an error: poll() would say so at once, again and again
  while (true) {
    pollfd shadow{.fd = file.kernel && !file.fds.empty() && !has_news ? file.fd() : -1, .events = kernel_events, .revents = 0};
    const Nanoseconds limit = has_news ? std::min(until, now() + kMillisecond) : until;
    const Woken woken = wait_for(file, {&shadow, shadow.fd < 0 ? size_t{0} : size_t{1}}, limit);
    const bool ends = woken == Woken::interrupted && (within != 0 || !signals_restart());
    if (ends) [[unlikely]] this_thread().ends_call = true;
    result = attempt((shadow.revents != 0 || has_news) && !file.fds.empty());
    if (ends) [[unlikely]] this_thread().ends_call = false;
    has_news = shadow.revents != 0 && (shadow.revents & kernel_events) == 0;
    if (result != -EAGAIN) return result;
    if (ends) return -EINTR;
    if (now() >= until) return -EAGAIN;
    this_call.handled = false;  // it goes on
  }
}

}  // namespace unet::preload
