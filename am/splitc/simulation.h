// simulation.h - the ranks of a job as fibers of one thread, each with a clock of its own, and the packets between them; used by
// SimTransport.
//
// The rank with the earliest clock runs. It may run ahead of the others by the time that a packet needs to cross the network: nothing that
// they send can arrive before. So each rank sees each packet in time, and a job gives the same times again if its computations take none.
#pragma once

#include <cstdint>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "am/packet.h"
#include "am/rpc/fiber/fiber.h"
#include "am/splitc/global.h"
#include "am/splitc/machine.h"
#include "unet/base/time.h"

namespace unet::splitc {

class SimTransport;
// The contents of a packet, which both ends share.
struct SimMessage;

struct SimPacket {
  Nanoseconds arrival = 0;
  uint64_t number = 0;                 // packets so far: those of one instant arrive in this order
  Rank from = 0;
  am::HeaderFields fields{};
  am::AckBody body{};
  std::shared_ptr<const SimMessage> message;   // nullptr: an acknowledgement

  bool operator<(const SimPacket& other) const noexcept {  // the earliest is the greatest, for a heap
    return std::pair(arrival, number) > std::pair(other.arrival, other.number);
  }
};

// The rank with the earliest time, of up to kRanksMax: a tournament.
class EarliestRank {
 public:
  explicit EarliestRank(uint32_t ranks);
  void set(Rank rank, Nanoseconds time) noexcept;
  Nanoseconds time_of(Rank rank) const noexcept { return times_[rank]; }
  Rank first() const noexcept { return winners_[1]; }
  Nanoseconds first_time() const noexcept { return times_[first()]; }

 private:
  std::vector<Nanoseconds> times_;
  std::vector<Rank> winners_;          // of a binary tree: node n has the children 2n and 2n + 1, the root is 1
};

class Simulation {
 public:
  Simulation(const Machine& machine, uint32_t ranks);
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  const Machine& machine() const noexcept { return machine_; }
  uint32_t size() const noexcept { return static_cast<uint32_t>(stations_.size()); }

  // ---- life: a rank's fiber calls enter() first and leave() last. When all have entered, the caller's fiber calls start().
  void enter(Rank rank);
  void leave(Rank rank);
  void start();
  bool has_left(Rank rank) const noexcept { return stations_[rank].left; }
  // A rank has nothing more to send. Returns true when all have said so: then it may leave.
  bool finish(Rank rank) noexcept;

  // A rank's own way to the others, from its start to the end of the job.
  void add(Rank rank, SimTransport& transport) noexcept { stations_[rank].transport = &transport; }
  SimTransport& transport(Rank rank) noexcept { return *stations_[rank].transport; }

  // ---- for the fiber of `rank`, which runs
  Nanoseconds clock(Rank rank) const noexcept { return stations_[rank].clock; }
  void work(Rank rank, Nanoseconds time) noexcept { stations_[rank].clock += time; }
  // The time for which this thread did not have its core since begin_stolen_time().
  Nanoseconds stolen_time() const noexcept;
  void begin_stolen_time() noexcept;
  // Lets others run that are so far behind that their packets could arrive by now.
  void let_others_catch_up(Rank rank);
  // Waits for a packet, but only until `until`.
  void wait(Rank rank, Nanoseconds until);

  // Sends a packet with `bytes` of payload.
  void send(Rank from, Rank to, SimPacket packet, uint64_t bytes);
  // Takes the next packet that has arrived. False: there is none.
  bool receive(Rank rank, SimPacket& packet);

 private:
  struct Station {
    Nanoseconds clock = 0;
    Nanoseconds out_free = 0, in_free = 0;   // when its interface can send and receive the next packet
    std::priority_queue<SimPacket> inbox;
    fiber::Fiber* fiber = nullptr;
    SimTransport* transport = nullptr;
    bool waits = false;                      // a packet wakes it
    bool left = false, finished = false;
  };
  void give_turn(Rank rank);

  const Machine machine_;
  std::vector<Station> stations_;
  EarliestRank order_;                 // of ranks that do not run: their clocks, or when they wake up
  Rank running_ = ~Rank{0};
  uint32_t finished_ = 0;
  uint64_t packets_ = 0;
  Nanoseconds stolen_ = 0;             // time for which this thread did not have its core, at begin_stolen_time()
};

// Runs `ranks` ranks of a program on `machine`, with `memory` bytes of spread memory each. Returns the greatest exit status.
int simulate(const Machine& machine, uint32_t ranks, uint64_t memory, int argc, char** argv, int (*program)(int argc, char** argv));

}  // namespace unet::splitc
