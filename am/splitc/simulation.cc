// simulation.cc - the turns of the ranks, the wires, and the life of a simulated job.
#include "am/splitc/simulation.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>

#include "am/splitc/node.h"
#include "am/splitc/sim_transport.h"

namespace unet::splitc {

namespace {

constexpr Nanoseconds kStart = kSecond;       // flows take a time of 0 for none
constexpr size_t kStackBytes = 1024 * 1024;   // as much as kernels with arrays on their stack need; only touched pages take memory

}  // namespace

EarliestRank::EarliestRank(uint32_t ranks) : times_(std::bit_ceil(ranks), kNever), winners_(2 * times_.size()) {
  for (Rank leaf = 0; leaf < times_.size(); ++leaf) winners_[times_.size() + leaf] = leaf;
  for (Rank leaf = 0; leaf < times_.size(); ++leaf) set(leaf, leaf < ranks ? kStart : kNever);
}

void EarliestRank::set(Rank rank, Nanoseconds time) noexcept {
  times_[rank] = time;
  for (size_t node = (times_.size() + rank) / 2; node != 0; node /= 2) {
    const Rank left = winners_[2 * node], right = winners_[2 * node + 1];
    winners_[node] = times_[left] <= times_[right] ? left : right;
  }
}

Simulation::Simulation(const Machine& machine, uint32_t ranks) : machine_(machine), stations_(ranks), order_(ranks) {
  for (Station& each : stations_) each.clock = kStart;
  begin_stolen_time();
}

void Simulation::begin_stolen_time() noexcept { stolen_ = monotonic_now() - thread_now(); }

Nanoseconds Simulation::stolen_time() const noexcept {
  const Nanoseconds stolen = monotonic_now() - thread_now();
  return stolen - std::min(stolen, stolen_);
}

// ---- turns

void Simulation::enter(Rank rank) {
  stations_[rank].fiber = fiber::current();
  while (running_ != rank) fiber::park();
  order_.set(rank, kNever);
}

void Simulation::start() {
  running_ = order_.first();
  fiber::unpark(*stations_[running_].fiber);
}

void Simulation::leave(Rank rank) {
  stations_[rank].left = true;
  if (order_.first_time() == kNever) return;  // all have left
  start();
}

bool Simulation::finish(Rank rank) noexcept {
  if (!std::exchange(stations_[rank].finished, true)) ++finished_;
  return finished_ == size();
}

// The rank continues when it is the first of all.
void Simulation::give_turn(Rank rank) {
  running_ = order_.first();
  if (running_ != rank) {
    Node* const node = current_node;
    fiber::unpark(*stations_[running_].fiber);
    while (running_ != rank) fiber::park();
    current_node = node;
  }
  Station& station = stations_[rank];
  station.clock = std::max(station.clock, order_.time_of(rank));
  order_.set(rank, kNever);
}

void Simulation::let_others_catch_up(Rank rank) {
  const Nanoseconds clock = stations_[rank].clock, first = order_.first_time();
  if (clock <= first || clock - first <= machine_.latency) return;
  order_.set(rank, clock);
  give_turn(rank);
}

void Simulation::wait(Rank rank, Nanoseconds until) {
  Station& station = stations_[rank];
  if (!station.inbox.empty()) until = std::min(until, station.inbox.top().arrival);
  station.waits = true;
  order_.set(rank, std::max(until, station.clock));
  give_turn(rank);
  station.waits = false;
}

// ---- wires

void Simulation::send(Rank from, Rank to, SimPacket packet, uint64_t bytes) {
  Station& sender = stations_[from];
  Station& receiver = stations_[to];
  const auto on_wire = static_cast<Nanoseconds>(static_cast<double>(bytes) * 1e9 / machine_.bytes_per_second);
  const Nanoseconds busy = std::max(machine_.gap, on_wire);
  const Nanoseconds start = std::max(sender.clock, sender.out_free);
  sender.out_free = start + busy;
  packet.arrival = receiver.in_free = std::max(start + on_wire + machine_.latency, receiver.in_free + busy);
  packet.number = packets_++;
  packet.from = from;
  if (receiver.waits && packet.arrival < order_.time_of(to)) order_.set(to, packet.arrival);
  receiver.inbox.push(std::move(packet));
}

bool Simulation::receive(Rank rank, SimPacket& packet) {
  Station& station = stations_[rank];
  if (station.inbox.empty() || station.inbox.top().arrival > station.clock) return false;
  packet = station.inbox.top();
  station.inbox.pop();
  return true;
}

// ---- jobs

namespace {

int run_rank(Simulation& simulation, Rank rank, uint64_t memory, int argc, char** argv, int (*program)(int argc, char** argv)) {
  simulation.enter(rank);
  auto transport = SimTransport::create(simulation, rank, memory);
  const auto node = transport ? Node::start(std::move(*transport)) : Result<std::unique_ptr<Node>>(tl::unexpected(transport.error()));
  if (!node) {
    std::fprintf(stderr, "splitc: rank %u of %u: start: %s\n", rank, simulation.size(), node.error().text.c_str());
    std::fflush(nullptr);
    std::_Exit(EXIT_FAILURE);  // the others would wait for this rank
  }
  current_node = node->get();
  const int status = program(argc, argv);
  (*node)->finish();
  current_node = nullptr;
  simulation.leave(rank);
  return status;
}

}  // namespace

int simulate(const Machine& machine, uint32_t ranks, uint64_t memory, int argc, char** argv, int (*program)(int argc, char** argv)) {
  auto scheduler = fiber::Scheduler::create({.threads = 1, .stack_bytes = kStackBytes, .fibers = ranks + 1});
  Simulation simulation(machine, ranks);
  int worst = 0;
  const auto run_all = [&] {
    std::vector<fiber::Handle<int>> all;
    for (Rank rank = 0; rank < ranks; ++rank) {
      all.push_back(fiber::spawn([&, rank] { return run_rank(simulation, rank, memory, argc, argv, program); }));
      if (!all.back()) {
        std::fprintf(stderr, "splitc: there is no memory for the stack of rank %u of %u\n", rank, ranks);
        std::_Exit(EXIT_FAILURE);
      }
    }
    fiber::yield();  // all enter
    simulation.start();
    for (auto& each : all) worst = std::max(worst, each.join() & 0xff);  // as the status of a process
  };
  const Status done = scheduler ? (*scheduler)->run(run_all) : Status(tl::unexpected(scheduler.error()));
  if (done) return worst;
  std::fprintf(stderr, "splitc: a simulation of %u ranks: %s\n", ranks, done.error().text.c_str());
  return EXIT_FAILURE;
}

}  // namespace unet::splitc
