// buffer_pool.h - an endpoint's receive buffers as the engine sees them: taken from the free queue, given back by drops.
//
// The free queue is written by the client: it may name any number, or one number twice. Numbers are checked here, and a
// buffer that the engine holds but did not use waits in a private set (a bit each), so whatever the client does, a message
// is only ever deposited inside the endpoint's own receive memory.
#pragma once

#include <cstdint>
#include <vector>

#include "unet/layout.h"
#include "unet/ring.h"

namespace unet::engine {

// The receive buffers of one message, in order of its bytes.
struct RunList {
  Run runs[kRunsMax];
  uint32_t count = 0;

  // Adds a buffer at the end; false if that needs one run too many.
  bool append(uint32_t buffer) noexcept {
    if (count != 0) {
      Run& last = runs[count - 1];
      if (uint32_t{last.first} + last.count == buffer) {
        ++last.count;
        return true;
      }
    }
    if (count == kRunsMax) return false;
    runs[count++] = {static_cast<uint16_t>(buffer), 1};
    return true;
  }
};

class BufferPool {
 public:
  enum class Outcome : uint8_t { taken, none, fragmented };

  BufferPool() = default;
  BufferPool(const FreeSlot* slots, uint32_t depth, uint32_t buffers);

  uint32_t buffers() const noexcept { return buffers_; }

  // Takes `count` > 0 buffers into `runs` (empty before), or none of them. `lies` rises by the entries of the free queue
  // that named no buffer, or one that is here already.
  Outcome take(uint32_t count, RunList& runs, uint32_t& lies) noexcept {
    uint32_t buffer;
    if (count == 1 && kept_ == 0 && queue_.pop(buffer)) [[likely]] {
      if (buffer < buffers_) [[likely]] {
        runs.runs[0] = {static_cast<uint16_t>(buffer), 1};
        runs.count = 1;
        return Outcome::taken;
      }
      ++lies;
    }
    return take_slowly(count, runs, lies);
  }
  // Keeps buffers of a message that was dropped for the next one.
  void give_back(const RunList& runs) noexcept;

 private:
  Outcome take_slowly(uint32_t count, RunList& runs, uint32_t& lies) noexcept;
  bool take_one(uint32_t& buffer, uint32_t& lies) noexcept;
  bool take_longest(uint32_t count, RunList& runs) noexcept;
  bool take_kept(uint32_t& buffer) noexcept;
  bool keep(uint32_t buffer) noexcept;  // false: it is there already
  void unkeep(uint32_t first, uint32_t count) noexcept;

  FreeReader queue_;
  uint32_t buffers_ = 0;
  uint32_t kept_ = 0;           // buffers in the private set
  uint32_t cursor_ = 0;         // where take_kept() looks next
  uint32_t window_ = 0;         // where take_longest() looks next, a word of kept_bits_
  std::vector<uint64_t> kept_bits_;
};

}  // namespace unet::engine
