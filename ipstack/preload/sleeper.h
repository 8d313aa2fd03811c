// sleeper.h - a thread that waits for a socket, and the eventfd that wakes it; used under the runtime's lock.
#pragma once

#include <poll.h>
#include <signal.h>

#include <span>
#include <vector>

#include "unet/base/time.h"

namespace unet::preload {

struct Entry;

// Makes an eventfd with a high number. -1: none can be made.
int make_event() noexcept;
void ring_event(int event) noexcept;
void clear_event(int event) noexcept;
// ppoll() for that long. Returns -errno instead of -1.
int poll_for(std::span<pollfd> fds, Nanoseconds time, const sigset_t* mask);

struct Sleeper {
  int event = -1;                // the eventfd
  bool woken = false;
  bool asleep = false;           // sleeps, or is about to: wake() must write the eventfd
  bool ends_call = false;        // a signal has ended its call, which makes a last attempt
  std::vector<Entry*> polled{};  // entries that its poll() holds

  Sleeper();
  explicit Sleeper(int fd) noexcept;  // with an eventfd of another owner, which wake() always writes
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  // False: it was woken already.
  bool wake() noexcept;
  void sleep_begins() noexcept;
  // In a child: makes an eventfd of its own.
  void renew() noexcept;

 private:
  bool rung_ = false;
  bool owns_ = true;
};

// The outermost sleep of this thread: calls of signal handlers may sleep inside of it.
struct SleepOfThread {
  const void* at;  // its place on the thread's stack; null: the thread does not sleep
  Sleeper* who;
  static constinit thread_local SleepOfThread own;
};

// Puts a thread into a queue of waiting threads for its lifetime.
class Queued {
 public:
  Queued(std::vector<Sleeper*>& queue, Sleeper& who) : queue_(queue), who_(who) { queue.push_back(&who); }
  ~Queued() { std::erase(queue_, &who_); }
  Queued(const Queued&) = delete;
  Queued& operator=(const Queued&) = delete;

 private:
  std::vector<Sleeper*>& queue_;
  Sleeper& who_;
};

}  // namespace unet::preload
