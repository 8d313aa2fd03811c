// context.h - a fiber's control block, the switch between two fibers, and its words to the sanitizers; used by fiber.h and worker.h.
//
// The switch is Boost.Context's jump_fcontext(). It must be inlined into the function that blocks: a return instruction behind it takes
// 17 ns instead of 1, because the processor predicts the caller of another fiber. Code that is compiled with a sanitizer must be linked
// with a library that is compiled with the same one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <boost/context/detail/fcontext.hpp>

#if defined(__SANITIZE_ADDRESS__)
#define UNET_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNET_FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define UNET_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNET_FIBER_TSAN 1
#endif
#endif

#ifdef UNET_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef UNET_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace unet::fiber {

class Worker;

constexpr uint32_t kNoTimer = ~uint32_t{0};

// A fiber, as others name it to unpark() it. It lies at the upper end of its stack, and is valid until the fiber has ended and was joined
// or detached. The lock of the fiber's worker protects all that is not atomic.
class alignas(64) Fiber {
 private:
  friend class Handles;
  friend class StackPool;
  friend class TimerHeap;
  friend class Worker;
  friend struct Switch;

  enum class State : uint8_t {
    active,   // runs, is in the worker's queue, or is not started yet
    parked,
    ended,    // left its stack for good; the next fiber publishes the end
    gone,     // the end is published
  };
  // Values of joiner_ that are no fiber.
  static Fiber* ended_mark() noexcept { return reinterpret_cast<Fiber*>(uintptr_t{1}); }
  static Fiber* detached_mark() noexcept { return reinterpret_cast<Fiber*>(uintptr_t{2}); }

  // Marks the stack of a fiber that has ended. Returns whether another fiber may use it. Otherwise this fiber is in an inbox, or another
  // thread is about to put it there: then Worker::drain() frees the stack.
  bool set_free() noexcept { return marks_.fetch_or(kFree, std::memory_order_acq_rel) != kPosted; }
  // The new fiber of the stack is complete: post() has an effect from now on.
  void set_used() noexcept {
    if ((marks_.load(std::memory_order_relaxed) & kFree) != 0) marks_.store(0, std::memory_order_release);
  }

  Fiber* next_ = nullptr;                                  // in a list of free fibers, or of stolen ones
  boost::context::detail::fcontext_t context_ = nullptr;   // valid unless the fiber runs
  std::atomic<Worker*> worker_{nullptr};                   // the worker that runs it next: a thief changes it with that worker's lock
  State state_ = State::parked;
  bool permit_ = false;                                    // unpark() came before park()
  bool timed_out_ = false;
  uint32_t timer_ = kNoTimer;                              // place in the worker's heap
  std::atomic<Fiber*> joiner_{nullptr};                    // nullptr, the fiber that waits in join(), or a mark
  void (*function_)(void* task) = nullptr;
  void* task_ = nullptr;                                   // the function, and then its result

  // kPosted: in a worker's inbox, or about to be. kFree: the stack is free, and post() has no effect.
  static constexpr uint8_t kPosted = 1, kFree = 2;
  std::atomic<uint8_t> marks_{0};
  Fiber* inbox_next_ = nullptr;

  // Lowest address of the stack and its bytes; of a kernel thread's own stack known to AddressSanitizer only.
  const void* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  void* sanitizer_ = nullptr;                              // AddressSanitizer's fake stack, or ThreadSanitizer's fiber
};

// The switch, and what each sanitizer wants to hear at it.
struct Switch {
  [[gnu::always_inline]] static void before([[maybe_unused]] Fiber& from, [[maybe_unused]] const Fiber& to) noexcept {
#ifdef UNET_FIBER_ASAN
    const bool ends = from.state_ == Fiber::State::ended || from.state_ == Fiber::State::gone;
    __sanitizer_start_switch_fiber(ends ? nullptr : &from.sanitizer_, to.stack_, to.stack_bytes_);
#endif
#ifdef UNET_FIBER_TSAN
    __tsan_switch_to_fiber(to.sanitizer_, 0);
#endif
  }
  // `now` runs again, or for the first time, after `before`.
  [[gnu::always_inline]] static void after([[maybe_unused]] Fiber& before, [[maybe_unused]] Fiber& now) noexcept {
#ifdef UNET_FIBER_ASAN
    __sanitizer_finish_switch_fiber(now.sanitizer_, &before.stack_, &before.stack_bytes_);
    now.sanitizer_ = nullptr;
#endif
  }
  static void create([[maybe_unused]] Fiber& fiber) noexcept {
#ifdef UNET_FIBER_ASAN
    fiber.sanitizer_ = nullptr;
    __asan_unpoison_memory_region(fiber.stack_, fiber.stack_bytes_);  // frames that never returned
#endif
#ifdef UNET_FIBER_TSAN
    fiber.sanitizer_ = __tsan_create_fiber(0);
#endif
  }
  static void destroy([[maybe_unused]] Fiber& fiber) noexcept {
#ifdef UNET_FIBER_TSAN
    __tsan_destroy_fiber(fiber.sanitizer_);
#endif
  }
  static void adopt_thread([[maybe_unused]] Fiber& root) noexcept {
#ifdef UNET_FIBER_TSAN
    root.sanitizer_ = __tsan_get_current_fiber();
#endif
  }
};

}  // namespace unet::fiber
