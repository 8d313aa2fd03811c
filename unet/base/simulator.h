// simulator.h - virtual time, one queue of events, one random generator and links with faults; for the tests of every layer.
//
// A simulation has one Simulator, and its seed decides everything. What a layer simulates attaches in two ways:
//   SimNode   a machine without a clock: the simulator calls process() when its next timer is due, and after wake()
//   SimLink   carries packets of any type: it calls the sender's function at each arrival, or never
// Events of one instant are handled in the order in which they were made. Then nodes process, in the order in which they were added.
// Objects that are added, and links, must live as long as the simulator runs.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "unet/base/time.h"

namespace unet {

class SimNode {
 public:
  virtual ~SimNode() = default;
  // Does all that is due, and returns when to be called again. Time does not pass in this call.
  virtual Nanoseconds process() = 0;

  // The node processes at this instant, after all events.
  void wake() noexcept { due_ = 0; }
  // The node processes in this call.
  void process_now() {
    due_ = kNever;
    const Nanoseconds next = process();
    due_ = std::min(due_, next);  // process() may have called wake()
  }

 private:
  friend class Simulator;
  Nanoseconds due_ = 0;
};

class Simulator {
 public:
  // A simulation with more than `most_steps` is in an endless loop: it prints its seed and aborts.
  explicit Simulator(uint64_t seed, Nanoseconds start = kSecond, uint64_t most_steps = 100'000'000)
      : random_(seed), seed_(seed), most_steps_(most_steps), now_(start) {}
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  Nanoseconds now() const noexcept { return now_; }
  // The number of instants at which something happened, and of events made.
  uint64_t steps() const noexcept { return steps_; }
  uint64_t events() const noexcept { return made_; }

  // ---- random numbers
  uint64_t random() { return random_(); }
  // Returns a number below `bound`; 0 for a bound of 0.
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : random_() % bound; }
  // An impossible event draws no number.
  bool chance(double probability) { return probability > 0 && static_cast<double>(random_() % 1'000'000) < probability * 1e6; }

  // ---- events and nodes
  void at(Nanoseconds time, std::function<void()> handle) {
    events_.push_back({time, made_++, std::move(handle)});
    std::push_heap(events_.begin(), events_.end());
  }
  void add(SimNode& node) { nodes_.push_back(&node); }

  // ---- time
  Nanoseconds next_event() const noexcept { return events_.empty() ? kNever : events_.front().time; }
  // Handles all events until `time`, each at its own. Only for callers with a time of their own: no node processes.
  void advance(Nanoseconds time) {
    while (next_event() <= std::max(now_, time)) {
      now_ = std::max(now_, next_event());
      std::pop_heap(events_.begin(), events_.end());
      const std::function<void()> handle = std::move(events_.back().handle);
      events_.pop_back();
      handle();
    }
    now_ = std::max(now_, time);
  }
  // Goes to the next instant at which something is due, and does it. False: there is none until then.
  bool step(Nanoseconds until = kNever) {
    Nanoseconds next = next_event();
    for (const SimNode* node : nodes_) next = std::min(next, node->due_);
    if (next == kNever || next > until) return false;
    if (++steps_ > most_steps_) end_at_limit();
    advance(next);
    for (SimNode* node : nodes_) {
      if (node->due_ <= now_) node->process_now();
    }
    return true;
  }
  // Runs until that time, or until nothing is left to do. All nodes process first, because the caller may have changed their state.
  void run(Nanoseconds until = kNever) {
    for (SimNode* node : nodes_) node->wake();
    while (step(until)) {
    }
    if (until != kNever) now_ = std::max(now_, until);
  }
  void run_for(Nanoseconds time) { run(now_ + time); }

 private:
  [[noreturn]] void end_at_limit() const {
    std::fprintf(stderr, "simulation with seed %" PRIu64 ": %" PRIu64 " steps, and no end\n", seed_, most_steps_);
    std::abort();
  }

  struct Event {
    Nanoseconds time;
    uint64_t made;
    std::function<void()> handle;
    bool operator<(const Event& other) const noexcept { return std::pair(time, made) > std::pair(other.time, other.made); }
  };

  std::mt19937_64 random_;
  const uint64_t seed_, most_steps_;
  std::vector<Event> events_;  // a heap
  std::vector<SimNode*> nodes_;
  uint64_t made_ = 0, steps_ = 0;
  Nanoseconds now_;
};

// Shares are from 0 to 1.
struct SimLinkOptions {
  Nanoseconds delay = 0;               // one way
  Nanoseconds jitter = 0;              // random addition below this, so packets overtake each other
  bool in_order = false;               // no packet overtakes another
  double loss = 0, duplicate = 0;      // shares of packets
  double late = 0;                     // share of packets that arrive later, by `late_by` and a random time below `late_jitter`
  Nanoseconds late_by = 0, late_jitter = 0;
  double stall = 0;                    // share of packets that find the link stalled for 0.3 to 1.3 s; all packets behind wait
  double mark = 0;                     // share of packets with a congestion mark
  double bits_per_second = 0;          // 0: no limit
  uint64_t queue = 0;                  // bytes that may wait for the link; 0: any number
  uint64_t mark_above = 0;             // bytes in the queue above which packets get a congestion mark; 0: none
  uint32_t frame = 0;                  // bytes of a frame: a packet of several frames is lost if one of them is; 0: one frame
};

// One direction of a link. Lost packets take none of its rate.
class SimLink {
 public:
  explicit SimLink(Simulator& simulator, const SimLinkOptions& link_options = {}) : options(link_options), simulator_(&simulator) {}

  SimLinkOptions options;              // may change at any time

  // Sends a packet at `time`, which may be later than now. Calls `arrive(marked)` for each copy that arrives. False: the packet is lost.
  template <typename Arrive>
  bool send(Nanoseconds time, uint32_t bytes, Arrive arrive) {
    for (uint32_t sent = 0; sent == 0 || (options.frame != 0 && sent < bytes); sent += std::max(options.frame, 1u)) {
      if (simulator_->chance(options.loss)) return false;
    }
    const double before = waiting(time);
    if (options.queue != 0 && before > static_cast<double>(options.queue)) {
      ++queue_drops_;
      return false;
    }
    const bool marked = simulator_->chance(options.mark) || (options.mark_above != 0 && before > static_cast<double>(options.mark_above));
    if (simulator_->chance(options.stall)) {
      stalled_until_ = std::max(stalled_until_, time + 300 * kMillisecond + simulator_->below(kSecond));
    }
    for (int copies = simulator_->chance(options.duplicate) ? 2 : 1; copies > 0; --copies) {
      Nanoseconds arrival = options.delay + simulator_->below(options.jitter);
      if (simulator_->chance(options.late)) arrival += options.late_by + simulator_->below(options.late_jitter);
      arrival += std::max(transmit(time, bytes), stalled_until_);
      if (options.in_order) arrival = std::max(arrival, last_arrival_);
      last_arrival_ = arrival;
      simulator_->at(arrival, [each = copies == 1 ? std::move(arrive) : arrive, marked]() mutable { each(marked); });
    }
    return true;
  }
  // Occupies the link for a packet. Returns when its last bit leaves the sender.
  Nanoseconds transmit(Nanoseconds time, uint32_t bytes) {
    if (options.bits_per_second == 0) return time;
    return free_at_ = std::max(free_at_, time) + static_cast<Nanoseconds>(bytes * 8e9 / options.bits_per_second);
  }
  // Returns the bytes that a packet sent at `time` waits for.
  double waiting(Nanoseconds time) const noexcept {
    return free_at_ > time ? static_cast<double>(free_at_ - time) * options.bits_per_second / 8e9 : 0;
  }
  uint64_t queue_drops() const noexcept { return queue_drops_; }

 private:
  Simulator* simulator_;
  Nanoseconds free_at_ = 0, stalled_until_ = 0, last_arrival_ = 0;
  uint64_t queue_drops_ = 0;
};

}  // namespace unet
