// pending.h - questions that one peer has not answered, and gets without their bytes yet; used by Node.
//
// Answers come in the order of the questions, and bytes in the order of the gets, so neither needs a number.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "unet/base/bytes.h"

namespace unet::splitc {

class PendingAnswers {
 public:
  // More than a peer's credits, so that the credits are the limit.
  static constexpr uint32_t kMax = 128;

  bool is_full() const noexcept { return open() == kMax; }

  // Records a question and returns its number. The answer's low `bytes` go to `memory`; nullptr: the answer only says that it is done.
  uint64_t ask(void* memory, uint32_t bytes) {
    if (places_.empty()) places_.resize(kMax);
    if (is_full()) std::abort();  // cannot happen: Node waits for room first. unet/base/check.h is not installed, this header is
    places_[asked_ % kMax] = {memory, bytes};
    return asked_++;
  }
  // Takes the answer to the oldest question. Returns false if there is none.
  bool answer(uint64_t value) noexcept {
    if (answered_ == asked_) return false;
    const Place& place = places_[answered_++ % kMax];
    if (place.memory != nullptr) std::memcpy(place.memory, &value, place.bytes);
    return true;
  }
  bool is_answered(uint64_t number) const noexcept { return number < answered_; }
  uint64_t open() const noexcept { return asked_ - answered_; }

 private:
  struct Place {
    void* memory;
    uint32_t bytes;
  };
  std::vector<Place> places_;  // empty before the first question, because there may be many peers
  uint64_t asked_ = 0, answered_ = 0;
};

class PendingGets {
 public:
  static constexpr uint32_t kMax = PendingAnswers::kMax;

  bool is_full() const noexcept { return asked_ - arrived_ == kMax; }
  void ask(MutableBytes memory) {
    if (places_.empty()) places_.resize(kMax);
    if (is_full()) std::abort();
    places_[asked_++ % kMax] = memory;
  }
  // Takes the bytes of the oldest get. Returns false if `memory` does not belong to it, whatever the peer says.
  bool arrive(Bytes memory) noexcept {
    if (arrived_ == asked_) return false;
    const MutableBytes oldest = places_[arrived_ % kMax];
    if (memory.data() != oldest.data() || memory.size() != oldest.size()) return false;
    ++arrived_;
    return true;
  }

 private:
  std::vector<MutableBytes> places_;  // empty before the first get
  uint64_t asked_ = 0, arrived_ = 0;
};

}  // namespace unet::splitc
