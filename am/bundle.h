// bundle.h - Active Message endpoints that are polled and waited for together, by one thread or by several; part of the public C++ API.
//
//   auto bundle = unet::am::Bundle::create(unet::am::Threads::several);
//   (*bundle)->add(*endpoint);
//   { std::lock_guard held(**bundle); endpoint->request(0, 7); }     // several threads: lock the bundle to call its endpoints
//   while (!answered) (*bundle)->wait();
//
// An endpoint that waits for a credit polls its whole bundle, so two endpoints of one thread may send messages to each other.
#pragma once

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "am/endpoint.h"
#include "unet/mapping.h"

namespace unet::am {

enum class Threads : uint8_t { one, several };

class Bundle {
 public:
  // Errors: system (several: no descriptor left).
  static Result<std::unique_ptr<Bundle>> create(Threads threads = Threads::one);
  // Its endpoints live on, in no bundle. A handler that destroys its own bundle ends the program.
  ~Bundle();
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  // Moves an endpoint from its former bundle, if any, to this one; it leaves when it is destroyed. No other thread may use it meanwhile.
  // Errors: invalid_argument (a call from a handler of either bundle: that bundle is polling its endpoints).
  Status add(Endpoint& endpoint);
  // Takes an endpoint out. A handler that takes an endpoint out of its own bundle ends the program.
  void remove(Endpoint& endpoint) noexcept;
  size_t size() const noexcept { return endpoints_.size(); }
  bool shared() const noexcept { return threads_ == Threads::several; }
  // Returns true inside a handler of one of its endpoints.
  bool in_handler() noexcept {
    const std::lock_guard held(*this);
    return callbacks_.running;
  }

  // Lock the bundle to call its endpoints from several threads. The lock is recursive, and handlers run under it. A call that waits
  // releases it completely meanwhile. In a bundle for one thread these do nothing.
  void lock() noexcept {
    if (__builtin_expect(shared(), 0)) take(1);
  }
  void unlock() noexcept {
    if (__builtin_expect(shared(), 0)) let_go();
  }

  // poll() and wait() lock the bundle themselves. poll() polls each endpoint once and returns the number of messages that arrived. In a
  // handler it does nothing.
  uint32_t poll();
  // Waits until a message arrives at one of the endpoints, whichever thread takes it, or `timeout` is over; its handlers have then run.
  // Polls for `spin` before it sleeps. A sleeping thread never holds the bundle. With several threads, handlers may have run unseen since
  // this thread's last wait(); if the caller does not hold the bundle, this wait() then returns at once, as does a thread's first one. A
  // thread that checks its condition, waits and checks again misses nothing.
  WaitOutcome wait(Nanoseconds timeout = unet::Endpoint::kForever, Nanoseconds spin = unet::Endpoint::kDefaultSpin);

 private:
  friend class Endpoint;
  explicit Bundle(Threads threads);
  uint32_t turn();
  void leave(Endpoint& endpoint) noexcept;
  void take(uint32_t depth) noexcept;
  void let_go() noexcept;
  uint32_t let_go_of_all() noexcept;
  void step_back() noexcept;
  void tell() noexcept;
  Nanoseconds due() const noexcept;
  void wake() noexcept;
  WaitOutcome sleep(Nanoseconds limit);
  WaitOutcome sleep_beside(Nanoseconds limit);
  bool arm_all(Nanoseconds& limit);
  bool disconnected() noexcept;

  const Threads threads_;
  Callbacks callbacks_;       // of the endpoints in it
  std::vector<Endpoint*> endpoints_;
  std::shared_ptr<const void> identity_;  // only with several threads
  std::recursive_mutex mutex_;
  std::atomic<uint32_t> wanted_{0};  // threads that wait for mutex_
  std::atomic<uint32_t> takes_{0};   // acquisitions of mutex_
  uint32_t depth_ = 0;        // recursion depth of the thread that holds mutex_
  std::condition_variable_any changed_;
  uint32_t waiting_ = 0;      // threads in wait()
  bool sleeping_ = false;     // one of them sleeps on the descriptors; the others wait for changed_
  Nanoseconds wakes_at_ = 0;  // when that thread wakes by itself; 0: within a millisecond
  uint64_t seen_ = 0;         // callbacks_.ended when waiting threads were last notified
  Descriptor kick_;           // wakes the thread that sleeps on the descriptors
  std::vector<pollfd> descriptors_;
};

}  // namespace unet::am
