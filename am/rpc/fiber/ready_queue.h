// ready_queue.h - the ready fibers of a worker, in the order in which they became ready; used by worker.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "am/rpc/fiber/context.h"

namespace unet::fiber {

// A ring that grows. With a list, each switch would wait until the last one has stored a link. The worker's lock protects it.
class ReadyQueue {
 public:
  ReadyQueue() : ring_(std::make_unique<Fiber*[]>(kFirstSize)) {}

  // Any thread may call these without the lock, for a hint. popped() counts the fibers that have left, modulo 2^32.
  uint32_t size() const noexcept { return tail_.load(std::memory_order_relaxed) - head_.load(std::memory_order_relaxed); }

  uint32_t popped() const noexcept { return head_.load(std::memory_order_relaxed); }

  bool empty() const noexcept { return size() == 0; }
  // The fiber that leaves after `n` others; n < size().
  Fiber* at(uint32_t n) const noexcept { return ring_[(popped() + n) & (size_ - 1)]; }
  void push(Fiber& fiber) {
    if (size() == size_) [[unlikely]] grow();
    append(fiber);
  }
  Fiber* pop() noexcept {
    const uint32_t head = popped();
    head_.store(head + 1, std::memory_order_relaxed);
    return ring_[head & (size_ - 1)];
  }
  // Pops the first fiber and appends another one, for which there is room then.
  Fiber* rotate(Fiber& fiber) noexcept {
    Fiber* const first = pop();
    append(fiber);
    return first;
  }

 private:
  static constexpr uint32_t kFirstSize = 64;

  void append(Fiber& fiber) noexcept {
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    ring_[tail & (size_ - 1)] = &fiber;
    tail_.store(tail + 1, std::memory_order_relaxed);
  }
  [[gnu::noinline]] void grow() {
    auto larger = std::make_unique<Fiber*[]>(2 * size_);
    for (uint32_t at = popped(); at != popped() + size_; ++at) larger[at & (2 * size_ - 1)] = ring_[at & (size_ - 1)];
    ring_ = std::move(larger);
    size_ *= 2;
  }

  std::unique_ptr<Fiber*[]> ring_;
  uint32_t size_ = kFirstSize;       // a power of two
  std::atomic<uint32_t> head_{0};    // free-running; written with the lock only
  std::atomic<uint32_t> tail_{0};
};

}  // namespace unet::fiber
