// index_queue.h - numbers of sockets in the order in which they were added, each once; used by the stack.
//
// A number stays queued when its socket is gone, so the reader must check.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace unet::sockets {

class IndexQueue {
 public:
  // Numbers below `end` may be added. `end` never decreases.
  void reserve(uint32_t end) { is_in_.resize(end); }
  void push(uint32_t index) {
    if (is_in_[index]) return;
    is_in_[index] = true;
    queue_.push_back(index);
  }
  uint32_t pop() {
    const uint32_t index = queue_.front();
    queue_.pop_front();
    is_in_[index] = false;
    return index;
  }
  bool empty() const noexcept { return queue_.empty(); }
  size_t size() const noexcept { return queue_.size(); }

 private:
  std::deque<uint32_t> queue_;
  std::vector<bool> is_in_;
};

}  // namespace unet::sockets
