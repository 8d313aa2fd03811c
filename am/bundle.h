// bundle.h - Active Message endpoints that are polled and waited for together, by one thread or by several; part of the public C++ API.
//
//   auto bundle = unet::am::Bundle::create(unet::am::Threads::several);
//   (*bundle)->add(*endpoint);
//   { std::lock_guard held(**bundle); endpoint->request(0, 7); }     // several threads: whoever calls an endpoint holds its bundle
//   while (!answered) (*bundle)->wait();
//
// An endpoint that waits for a credit polls its whole bundle, so two endpoints of one thread may talk to each other.
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
  // Its endpoints are in none afterwards. A handler of one of them that destroys it ends the program.
  ~Bundle();
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  // Takes an endpoint in, out of the bundle that it was in; it leaves when it is destroyed. Nobody else uses it meanwhile. Errors:
  // invalid_argument (in a handler of one of the two, which are polling their endpoints).
  Status add(Endpoint& endpoint);
  // A handler of one of its endpoints that does so ends the program.
  void remove(Endpoint& endpoint) noexcept;
  size_t size() const noexcept { return endpoints_.size(); }
  bool shared() const noexcept { return threads_ == Threads::several; }
  // The caller is a handler of one of its endpoints.
  bool in_handler() noexcept {
    const std::lock_guard held(*this);
    return callbacks_.running;
  }

  // With several threads: an endpoint of the bundle is called by who holds it, as a std::mutex (a thread may do so again). Handlers run
  // while it is held. A call that waits lets go of it meanwhile, however often the thread holds it. With one thread these do nothing.
  void lock() noexcept {
    if (__builtin_expect(shared(), 0)) take(1);
  }
  void unlock() noexcept {
    if (__builtin_expect(shared(), 0)) let_go();
  }

  // Both hold the bundle themselves. Polls each endpoint once; returns how many messages arrived. In a handler: does nothing.
  uint32_t poll();
  // Until something has arrived at one of them, whichever thread took it, or `timeout` is over; sleeps, without holding the bundle even
  // if the caller did, if nothing does for `spin`. The handlers have run. Of several threads one that does not hold the bundle may have
  // missed what happened since its last wait(): then this one returns at once, as a thread's first one does. So it looks, waits, and looks
  // again, and misses nothing.
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
  Callbacks callbacks_;       // of its endpoints
  std::vector<Endpoint*> endpoints_;
  std::shared_ptr<const void> identity_;  // several threads
  std::recursive_mutex mutex_;
  std::atomic<uint32_t> wanted_{0};  // threads that wait for mutex_
  std::atomic<uint32_t> takes_{0};   // how often it was taken
  uint32_t depth_ = 0;        // how often its holder holds it
  std::condition_variable_any changed_;
  uint32_t waiting_ = 0;      // threads in wait()
  bool sleeping_ = false;     // one of them, on the descriptors; the others on changed_
  Nanoseconds wakes_at_ = 0;  // that one, if nothing else wakes it; 0: within a millisecond
  uint64_t seen_ = 0;         // callbacks_.ended when waiting threads were told last
  Descriptor kick_;           // wakes the one that sleeps
  std::vector<pollfd> descriptors_;
};

}  // namespace unet::am
