// sleeper.h - a thread that waits for a socket, and the eventfd that wakes it; used under the runtime's lock.
#pragma once

#include <poll.h>
#include <signal.h>

#include <span>
#include <vector>

#include "unet/base/time.h"

namespace unet::preload {

struct Entry;

// An eventfd above the numbers that programs use; -1: none is to be had.
int make_event() noexcept;
void ring_event(int event) noexcept;
void clear_event(int event) noexcept;
// ppoll() for that long. Returns -errno instead of -1.
int poll_for(std::span<pollfd> fds, Nanoseconds time, const sigset_t* mask);

// A thread that waits, and the eventfd that wakes it.
struct Sleeper {
  int event = -1;
  bool woken = false;
  bool asleep = false;           // or about to be: else `woken` is enough, without two system calls for the eventfd
  bool ends_call = false;        // a signal has ended its call, which looks once more
  std::vector<Entry*> polled{};  // that poll() holds while it sleeps

  Sleeper();
  explicit Sleeper(int fd) noexcept;  // woken by another owner's eventfd; wake() always writes it, as if this slept
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  // False: it was woken already.
  bool wake() noexcept;
  void sleep_begins() noexcept;
  // In a child: an eventfd of its own.
  void renew() noexcept;

 private:
  bool rung_ = false;
  bool owns_ = true;
};

// Where on its stack this thread sleeps, the outermost time.
struct SleepOfThread {
  const void* at;  // null: it does not
  Sleeper* who;
  static constinit thread_local SleepOfThread own;
};

// A thread among those that wait for something, until it no longer does.
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
