// buffer_pool.h - an endpoint's receive buffers as the engine sees them: taken from the free queue, given back by drops.
//
// The free queue is written by the client: it may name any number, or one number twice. Numbers are checked here and go
// into a private set (a bit each), so whatever the client does, a message is only ever deposited inside the endpoint's own
// receive memory. The lowest free buffers are used first: those that were in use a moment ago lie in a cache, and the higher
// ones stay in one piece for long messages. A client that scatters them pays for the search: each buffer that it gives earns
// some steps of it, and where these do not do, its message is dropped as too fragmented.
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
  // `held` has a bit for each buffer that is here or was taken and not delivered, and `*position` is the place in the free queue:
  // see engine_checkpoint.h, where both are. What they say at first is where the pool begins.
  BufferPool(const FreeSlot* slots, uint32_t depth, uint32_t buffers, uint64_t* held, uint32_t* position);

  uint32_t buffers() const noexcept { return buffers_; }
  uint64_t* held() const noexcept { return held_; }
  // Steps of the search for long runs, of all messages: words of the private set, and runs that were compared with others.
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
  // Keeps buffers of a message that was dropped for the next one.
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
  uint32_t first_ = 0;   // no word of kept_bits_ before this one has any
  uint32_t window_ = 0;  // where take_runs() looks next if the lowest buffers do not do
  uint32_t search_steps_ = 0;  // that searches may take beyond the first few of each message
  uint64_t searched_ = 0;
  std::vector<uint64_t> free_bits_;
  uint64_t* held_ = nullptr;
  uint32_t* position_ = nullptr;
};

}  // namespace unet::engine
