// pending.h - questions to one peer that it has not answered, and gets that are not here; used by Node.
//
// Answers come in the order of the questions, so they need no numbers. The memory of gets does, too.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "unet/base/bytes.h"

namespace unet::splitc {

class PendingAnswers {
 public:
  // More than a peer has credits for, so that these are what limits.
  static constexpr uint32_t kMax = 128;

  bool is_full() const noexcept { return open() == kMax; }

  // The answer's low `bytes` go to `memory`; nullptr: it only says that it is done. Returns the question's number.
  uint64_t ask(void* memory, uint32_t bytes) {
    if (places_.empty()) places_.resize(kMax);
    if (is_full()) std::abort();  // Node waits for room first; this header is installed, unet/base/check.h is not
    places_[asked_ % kMax] = {memory, bytes};
    return asked_++;
  }
  // Of the oldest. False: nothing was asked.
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
  std::vector<Place> places_;  // none before the first question: there may be many peers
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
  // The oldest is here if that is its memory. False: it is not, whatever the peer says.
  bool arrive(Bytes memory) noexcept {
    if (arrived_ == asked_) return false;
    const MutableBytes oldest = places_[arrived_ % kMax];
    if (memory.data() != oldest.data() || memory.size() != oldest.size()) return false;
    ++arrived_;
    return true;
  }

 private:
  std::vector<MutableBytes> places_;  // none before the first
  uint64_t asked_ = 0, arrived_ = 0;
};

}  // namespace unet::splitc
