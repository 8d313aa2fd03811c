// buffer_pool.h - an endpoint's receive buffers in the engine: taken from the free queue, returned by drops.
//
// The client writes the free queue, and may name any number, or one number twice. Numbers are checked here and go into a private set, a bit
// each, so a message is only ever deposited in the endpoint's own receive memory. The lowest free buffers are used first: recently used
// ones are in a cache, and higher ones stay contiguous for long messages.
//
// A client that scatters its buffers pays for the search: each buffer that it gives earns some steps. If these are not enough, its message
// is dropped as too fragmented.
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
};

class BufferPool {
 public:
  enum class Outcome : uint8_t { taken, none, fragmented };

  BufferPool() = default;
  // `held` has a bit for each buffer in the pool, or taken and not delivered. `*position` is the position in the free queue. Both are in
  // engine_checkpoint.h, and the pool starts from them.
  BufferPool(const FreeSlot* slots, uint32_t depth, uint32_t buffers, uint64_t* held, uint32_t* position);

  uint32_t buffers() const noexcept { return buffers_; }
  uint64_t* held() const noexcept { return held_; }
  // Steps of all searches for long runs: words of the private set, and runs that were compared.
  uint64_t searched() const noexcept { return searched_; }

  // Takes `count` > 0 buffers into `runs` (empty before), or none of them. `lies` rises by the entries of the free queue
  // that named no buffer, or one that is here already.
  Outcome take(uint32_t count, RunList& runs, uint32_t& lies) noexcept {
    fetch(count, lies);
    if (free_ < count) [[unlikely]] return Outcome::none;
    if (count == 1) [[likely]] {
      take_lowest(runs);
      return Outcome::taken;
    }
    return take_runs(count, runs, lies) ? Outcome::taken : Outcome::fragmented;
  }
  // Returns the buffers of a dropped message to the pool.
  void give_back(const RunList& runs) noexcept;

 private:
  void fetch(uint32_t count, uint32_t& lies) noexcept;
  void take_lowest(RunList& runs) noexcept;
  bool take_runs(uint32_t count, RunList& runs, uint32_t& lies) noexcept;
  bool search(uint32_t first_word, uint32_t count, uint32_t& near, RunList& runs) noexcept;
  bool add_free(uint32_t buffer) noexcept;  // false: it is there already
  void remove_free(uint32_t first, uint32_t count) noexcept;

  FreeReader queue_;
  uint32_t buffers_ = 0;
  uint32_t free_ = 0;    // buffers in the private set
  uint32_t first_ = 0;   // all words of free_bits_ before it are 0
  uint32_t window_ = 0;  // where take_runs() searches next, after the lowest buffers
  uint32_t search_steps_ = 0;  // steps earned for searches beyond the first few of each message
  uint64_t searched_ = 0;
  std::vector<uint64_t> free_bits_;
  uint64_t* held_ = nullptr;
  uint32_t* position_ = nullptr;
};

}  // namespace unet::engine
