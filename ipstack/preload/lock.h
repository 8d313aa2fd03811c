// lock.h - the lock around the library's state of this process, and what holds for a thread that has it; part of the runtime.
//
// Signal handlers: a thread is inside of the library from take() to release(). Functions that it calls meanwhile are the C library's, and
// its signals are deferred (signals.h). release() lets them in. Their handlers may call this library, or leave by longjmp().
//
// Cancellation: a thread with the lock is not cancelled.
//
// fork(): the thread that forks has the lock, so the child finds the state whole. Parent and child both release it. A child of clone() may
// share its parent's memory. The state does not describe its descriptors, so it must not change the state (is_own_process()).
//
// Constructors: the program, or another library, may call before this library's constructor has run. The first call that needs the runtime
// makes it, with its lock. Nothing destroys it, as threads may be in calls until the very end. An allocator may call while it starts, and
// has a lock of its own. Calls that it uses then go to the kernel, or it would call itself (has_begun()).
//
// End: the kernel ends all threads at once. While one ends the process, no call may return to the program in another: that thread would go
// on without its sockets, and its exit() could decide the exit status. So such a thread halts when it takes the lock.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "ipstack/preload/signals.h"

namespace unet::preload {

class Lock {
 public:
  // This thread is inside of the library: what it calls is not the program's.
  static bool inside() noexcept { return inside_; }

  void take() noexcept {
    inside_ = true;
    defer_cancellation();
    if (!mutex_.try_lock()) [[unlikely]] wait();
    begin();
  }
  void release() noexcept {
    mutex_.unlock();
    if (cancel_state_ != kUnchanged) [[unlikely]] restore_cancellation();  // before handlers, of which one may leave by longjmp()
    inside_ = false;
    std::atomic_signal_fence(std::memory_order_seq_cst);  // signals from here on are not deferred
    if (signals_deferred) [[unlikely]] let_signals_in();
  }
  // Another thread waits for the lock.
  bool is_wanted() const noexcept { return wanting_.load(std::memory_order_relaxed) != 0; }
  // Gives the lock to a thread that waits for it. std::mutex alone would not: a thread that polls takes it again at once.
  void yield() noexcept;

  // This library's constructor has run.
  static bool has_begun() noexcept { return begun_.load(std::memory_order_relaxed); }
  static void note_begun() noexcept { begun_.store(true, std::memory_order_relaxed); }

  // The program cancels threads from now on.
  void expect_cancellation() noexcept { cancels_.store(true, std::memory_order_relaxed); }

  // In a new process, which has this thread alone.
  void begin_process() noexcept;
  // False in a child of clone() that shares its parent's memory, and not its parent's descriptors.
  bool is_own_process() const noexcept { return ::getpid() == process_; }

  // The process ends: other threads of the program halt when they take the lock.
  void halt_others() noexcept;
  // This thread goes on at the end: it is the helper, or ends the process.
  static void work_at_end() noexcept { works_at_end_ = true; }
  // This thread never releases the lock. Its signals come now.
  void keep() noexcept;
  // Whether signals of a thread inside are deferred. Called by handlers.
  bool defers_signals() const noexcept { return end_.load(std::memory_order_relaxed) != End::kept; }

 private:
  enum class End : uint8_t { none, halts_others, kept };
  static constexpr int kUnchanged = -1;

  void wait() noexcept;
  void begin() noexcept {
    if (end_.load(std::memory_order_relaxed) != End::none && !works_at_end_) [[unlikely]] halt();
    defer_cancellation();
  }
  void halt() noexcept;
  // To disable cancellation costs two locked instructions a call, which wait for earlier stores. A thread only does so once the program has
  // cancelled one. The program cannot do that while another thread has the lock.
  void defer_cancellation() noexcept {
    if (cancels_.load(std::memory_order_relaxed) && cancel_state_ == kUnchanged) [[unlikely]] disable_cancellation();
  }
  static void disable_cancellation() noexcept;
  static void restore_cancellation() noexcept;

  inline static constinit std::atomic<bool> begun_{false};
  inline static constinit thread_local bool inside_ = false;
  inline static constinit thread_local bool works_at_end_ = false;
  inline static constinit thread_local int cancel_state_ = kUnchanged;  // the state to restore

  std::mutex mutex_;
  std::atomic<bool> cancels_{false};
  std::atomic<int> wanting_{0};  // threads that wait for the lock
  std::atomic<End> end_{End::none};
  pid_t process_ = ::getpid();
};

// This thread cannot be cancelled for the lifetime of this object: in functions that are no cancellation points. Make it before a Guard.
class Uncancelled {
 public:
  Uncancelled() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { ::pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace unet::preload
