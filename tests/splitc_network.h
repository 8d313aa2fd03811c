// splitc_network.h - the ranks of one process in a simulation; for tests of Split-C.
//
// Each rank is a thread, but only one runs at a time. Where it polls or waits, it lets time pass until a rank is due, so a seed gives the
// same run again. Messages from one rank to another stay in order. Ranks of one machine are direct: they access each other's memory. A
// rank has a limited number of unhandled requests to each other rank.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "am/splitc/node.h"
#include "unet/base/check.h"
#include "unet/base/simulator.h"

namespace unet::splitc::sim {

struct Wire {
  Nanoseconds delay = 5 * kMicrosecond;
  Nanoseconds jitter = 5 * kMicrosecond;
  uint32_t machine = 1;                       // ranks on each machine
  uint64_t memory = uint64_t{2} << 20;        // bytes of each rank
  bool blind = false;                         // rank 0 cannot map rank 1's memory
  uint32_t credits = 64;                      // unhandled requests from one rank to another
  Nanoseconds lag = 0;                        // between a sleeper's last poll and its sleep
};

// Thrown to end a rank's thread; caught at its start.
struct Ended {};

class Network : public Simulator {
 public:
  Network(uint32_t size, const Wire& wire, uint64_t seed) : Simulator(seed), wire_(wire), ranks_(size) {
    for (auto& rank : ranks_) rank.memory.resize(wire.memory + kHeapAlignment);
  }

  // Runs `program` as all ranks, from Node::start() to Node::finish(). Returns why the job ended early; empty: it did not.
  std::string run(const std::function<void()>& program) {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < ranks_.size(); ++rank) {
      threads.emplace_back([this, rank, &program] { be(rank, program); });
      resume(rank);
    }
    pass_on();
    for (auto& thread : threads) thread.join();
    return fault_;
  }
  uint64_t messages() const noexcept { return messages_; }
  // The rank ends without notice at its next poll.
  void kill(Rank rank) { ranks_[rank].killed = true; }
  // The rank computes for `time`, and neither polls nor waits.
  void compute(Rank rank, Nanoseconds time) {
    for (const Nanoseconds end = now() + time; now() < end;) pause(rank, end - now());
  }

 private:
  enum class Kind : uint8_t { request, long_request, get, answer_to_get, answer, credit };
  struct Packet {
    Rank from = 0;
    Kind kind{};
    uint8_t operation = 0;
    uint64_t offset = 0;
    MutableBytes memory;                      // destination of a get
    std::vector<uint32_t> words;
    std::vector<std::byte> payload;
  };
  struct One {
    std::vector<std::byte> memory;
    std::deque<Packet> inbox;
    std::map<Rank, SimLink> links;            // by receiver
    std::map<Rank, uint32_t> under_way;       // by receiver: unhandled requests
    uint64_t pauses = 0;
    bool pauses_now = true;
    bool alive = true, killed = false;
    Receiver* receiver = nullptr;
    std::condition_variable turn;
  };
  class Link;
  static constexpr Nanoseconds kLook = 10 * kMicrosecond;  // the time of an empty poll
  static constexpr Nanoseconds kEnd = 1000 * kSecond;      // limit of every run
  static constexpr Rank kNobody = ~Rank{0};

  void be(Rank rank, const std::function<void()>& program);
  MutableBytes memory_of(Rank rank) {
    void* start = ranks_[rank].memory.data();
    size_t room = ranks_[rank].memory.size();
    return {static_cast<std::byte*>(std::align(kHeapAlignment, wire_.memory, start, room)), wire_.memory};
  }
  bool on_one_machine(Rank a, Rank b) const noexcept { return a / wire_.machine == b / wire_.machine; }

  // Lets the next rank run that is due. All other ranks wait for their turn.
  void pass_on() {
    const std::lock_guard held(mutex_);
    while (due_.empty() && step()) {
    }
    running_ = kNobody;
    if (due_.empty()) return;
    running_ = due_.front();
    due_.pop_front();
    ranks_[running_].turn.notify_one();
  }
  void await_turn(Rank rank) {
    std::unique_lock held(mutex_);
    ranks_[rank].turn.wait(held, [&] { return running_ == rank; });
  }
  // Lets other ranks run until a message arrives for `rank`, or `time` is over.
  void pause(Rank rank, Nanoseconds time) {
    One& own = ranks_[rank];
    own.pauses_now = true;
    at(now() + time, [this, rank, number = ++own.pauses] {
      if (ranks_[rank].pauses == number) resume(rank);
    });
    pass_on();
    await_turn(rank);
  }
  void resume(Rank rank) {
    if (std::exchange(ranks_[rank].pauses_now, false)) due_.push_back(rank);
  }
  // Lets other ranks run, as pause() does, but only at this instant if a message is there. Ends the rank if the job has ended.
  void hand_over(Rank rank, Nanoseconds time) {
    One& own = ranks_[rank];
    pause(rank, own.inbox.empty() ? time : 0);
    if (now() > kEnd && fault_.empty()) fault_ = "still running after so long a time";
    if (!fault_.empty() || own.killed) throw Ended();
  }
  void send(Rank from, Rank to, Packet packet) {
    packet.from = from;
    ++messages_;
    const SimLinkOptions options{.delay = wire_.delay, .jitter = wire_.jitter, .in_order = true};
    ranks_[from].links.try_emplace(to, *this, options).first->second.send(now(), 0, [this, to, packet = std::move(packet)](bool) {
      ranks_[to].inbox.push_back(packet);
      resume(to);
    });
  }
  void deliver(Rank rank, Packet& packet);
  uint32_t poll(Rank rank) {
    One& own = ranks_[rank];
    if (own.inbox.empty()) hand_over(rank, kLook);
    uint32_t count = 0;
    for (; !own.inbox.empty(); ++count) {
      Packet packet = std::move(own.inbox.front());
      own.inbox.pop_front();
      deliver(rank, packet);
    }
    return count;
  }

  const Wire wire_;
  std::vector<One> ranks_;
  std::deque<Rank> due_;                      // in this order
  std::mutex mutex_;
  Rank running_ = kNobody;
  uint64_t messages_ = 0;
  std::string fault_;
};

// A node's access to the network.
class Network::Link final : public Transport {
 public:
  Link(Network& network, Rank rank) : network_(network), rank_(rank) {}
  Rank rank() const noexcept override { return rank_; }
  uint32_t size() const noexcept override { return static_cast<uint32_t>(network_.ranks_.size()); }
  Status connect() override { return {}; }
  MutableBytes memory() const noexcept override { return network_.memory_of(rank_); }
  MutableBytes memory_of(Rank rank) noexcept override {
    const bool mapped = network_.on_one_machine(rank, rank_) && !(network_.wire_.blind && rank_ == 0 && rank == 1);
    return mapped ? network_.memory_of(rank) : MutableBytes();
  }
  bool is_near(Rank rank) const noexcept override { return rank == rank_; }  // each rank has a core of its own
  void set_receiver(Receiver& receiver) noexcept override { network_.ranks_[rank_].receiver = &receiver; }

  bool request(Rank to, uint8_t operation, Words words) override {
    return post(to, {.kind = Kind::request, .operation = operation}, words, {});
  }
  bool request_medium(Rank to, uint8_t operation, Bytes payload, Words words) override {
    UNET_CHECK(payload.size() <= kMediumBytesMax);
    return post(to, {.kind = Kind::request, .operation = operation}, words, payload);
  }
  bool request_long(Rank to, uint8_t operation, uint64_t offset, Bytes payload, Words words) override {
    return post(to, {.kind = Kind::long_request, .operation = operation, .offset = offset}, words, payload);
  }
  bool request_get(Rank from, uint8_t operation, uint64_t offset, MutableBytes memory, Words words) override {
    return post(from, {.kind = Kind::get, .operation = operation, .offset = offset, .memory = memory}, words, {});
  }

  uint32_t poll() override { return network_.poll(rank_); }
  void wait(Nanoseconds limit) override {
    if (network_.wire_.lag != 0) network_.hand_over(rank_, network_.wire_.lag);
    network_.hand_over(rank_, limit);
    network_.poll(rank_);
  }
  Nanoseconds now() const noexcept override { return network_.now(); }
  bool is_gone(Rank rank) noexcept override { return !network_.ranks_[rank].alive; }
  void finish() override {}
  [[noreturn]] void end_job(const std::string& text) override {
    if (network_.fault_.empty()) network_.fault_ = "rank " + std::to_string(rank_) + ": " + text;
    throw Ended();
  }

 private:
  bool post(Rank to, Packet packet, Words words, Bytes payload) {
    UNET_CHECK(to != rank_ && to < size() && words.size() <= kWordsMax);
    uint32_t& under_way = network_.ranks_[rank_].under_way[to];
    if (under_way == network_.wire_.credits) return false;
    ++under_way;
    packet.words.assign(words.begin(), words.end());
    packet.payload.assign(payload.begin(), payload.end());
    network_.send(rank_, to, std::move(packet));
    return true;
  }
  Network& network_;
  const Rank rank_;
};

inline void Network::deliver(Rank rank, Packet& packet) {
  const MutableBytes memory = memory_of(rank);
  Bytes payload = packet.payload;
  switch (packet.kind) {
    case Kind::get: {
      UNET_CHECK(packet.offset <= memory.size() && packet.memory.size() <= memory.size() - packet.offset);
      const MutableBytes from = memory.subspan(packet.offset, packet.memory.size());
      packet.kind = Kind::answer_to_get;
      packet.payload.assign(from.begin(), from.end());
      const Rank asked = packet.from;
      return send(rank, asked, std::move(packet));
    }
    case Kind::answer_to_get:
      --ranks_[rank].under_way[packet.from];
      if (!payload.empty()) std::memcpy(packet.memory.data(), payload.data(), payload.size());
      payload = packet.memory;
      break;
    case Kind::long_request:
      UNET_CHECK(packet.offset <= memory.size() && payload.size() <= memory.size() - packet.offset);
      if (!payload.empty()) std::memcpy(memory.data() + packet.offset, payload.data(), payload.size());
      break;
    case Kind::credit: --ranks_[rank].under_way[packet.from]; return;
    case Kind::answer: --ranks_[rank].under_way[packet.from]; break;
    case Kind::request: break;
  }
  const bool is_request = packet.kind == Kind::request || packet.kind == Kind::long_request;
  Answer answer;
  ranks_[rank].receiver->handle(
      {.from = packet.from, .operation = packet.operation, .is_request = is_request, .words = packet.words, .payload = payload}, answer);
  if (!is_request) return;
  Packet reply{.kind = answer.operation == 0 ? Kind::credit : Kind::answer, .operation = answer.operation};
  reply.words.assign(answer.words.begin(), answer.words.begin() + answer.count);
  send(rank, packet.from, std::move(reply));
}

inline void Network::be(Rank rank, const std::function<void()>& program) {
  await_turn(rank);
  std::unique_ptr<Node> node;
  try {
    node = std::move(*Node::start(std::make_unique<Link>(*this, rank)));
    current_node = node.get();
    program();
    node->finish();
  } catch (const Ended&) {
  }
  node.reset();
  ranks_[rank].alive = false;
  pass_on();
}

}  // namespace unet::splitc::sim
