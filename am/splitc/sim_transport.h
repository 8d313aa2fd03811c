// sim_transport.h - reaches the ranks of a simulated job by the flows of Active Messages, in virtual time; used by Node in place of
// AmTransport.
//
// A computation takes its time on this core, times the slowness of the machine. Machine::send and Machine::receive stand for all work with
// a packet, so the first 100 ns between two calls do not count: they are our own way here. Acknowledgements take no processor's time. The
// network of a Machine loses nothing, so flows hardly ever send a packet again.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "am/clock.h"
#include "am/flow.h"
#include "am/splitc/simulation.h"
#include "am/splitc/transport.h"
#include "unet/base/bytes.h"

namespace unet::splitc {

struct SimMessage {
  am::Kind kind{};
  uint8_t operation = 0;               // 0: no handler runs, as more of the message follows
  uint8_t count = 0;
  std::array<uint32_t, kWordsMax> words{};
  std::vector<std::byte> payload;
  uint64_t offset = 0;                 // of a long message or a get: in the memory of the receiver
  uint64_t before = 0;                 // bytes of a long message in its earlier packets
  uint64_t wanted = 0;                 // bytes of a get
  MutableBytes to{};                   // of a get and its answer: where the bytes go at the rank that asks
  MutableBytes whole{};                // the whole of which `to` is a part
};

class SimTransport final : public Transport {
 public:
  // Errors: out_of_memory.
  static Result<std::unique_ptr<SimTransport>> create(Simulation& simulation, Rank rank, uint64_t memory);
  ~SimTransport() override;

  Rank rank() const noexcept override { return rank_; }
  uint32_t size() const noexcept override { return simulation_.size(); }
  Status connect() override { return {}; }
  MutableBytes memory() const noexcept override { return memory_; }
  MutableBytes memory_of(Rank rank) noexcept override { return rank == rank_ ? memory_ : MutableBytes(); }
  bool is_near(Rank rank) const noexcept override { return rank == rank_; }
  void set_receiver(Receiver& receiver) noexcept override { receiver_ = &receiver; }

  bool request(Rank to, uint8_t operation, Words words) override;
  bool request_medium(Rank to, uint8_t operation, Bytes payload, Words words) override;
  bool request_long(Rank to, uint8_t operation, uint64_t offset, Bytes payload, Words words) override;
  bool request_get(Rank from, uint8_t operation, uint64_t offset, MutableBytes memory, Words words) override;

  uint32_t poll() override;
  void wait(Nanoseconds limit) override;
  Nanoseconds now() const noexcept override;
  bool is_gone(Rank rank) noexcept override { return simulation_.has_left(rank); }
  void finish() override;
  [[noreturn]] void end_job(const std::string& text) override;

 private:
  using MessagePtr = std::shared_ptr<const SimMessage>;
  // Messages by the number of their packet, of which there are few at a time.
  class Store {
   public:
    void put(am::Sequence at, MessagePtr message) { all_.emplace_back(at, std::move(message)); }
    const MessagePtr& get(am::Sequence at) { return find(at)->second; }
    MessagePtr take(am::Sequence at);

   private:
    using All = std::vector<std::pair<am::Sequence, MessagePtr>>;
    All::iterator find(am::Sequence at);
    All all_;
  };
  struct Peer {
    explicit Peer(const am::FlowOptions& options) : flow(options) {}
    bool is_idle() const noexcept { return under_way == 0 && flow.idle(); }
    am::Flow flow;
    uint32_t under_way = 0;            // packets sent that the peer has not received
    Store sent, arrived;
    Nanoseconds timer = kNever;        // the earliest of this peer in timers_
  };
  using Timer = std::pair<Nanoseconds, Rank>;

  SimTransport(Simulation& simulation, Rank rank, MutableBytes memory);
  // The machine's time for what the program has computed in `real`, the time since leave().
  Nanoseconds computed(Nanoseconds real) const noexcept;
  // The program has computed until now.
  void enter();
  // It computes from now on.
  void leave() noexcept { left_at_ = am::flow_now(); }
  Nanoseconds slowed(Nanoseconds real) const noexcept {
    return static_cast<Nanoseconds>(static_cast<double>(real) * simulation_.machine().slowness);
  }
  // Calls send(), if the peer has a credit. False: it has none.
  template <typename Send>
  bool send_with_credit(Rank to, const Send& send);
  // Calls send(offset, bytes, last) for each packet of a long transfer.
  template <typename Send>
  void for_each_packet(size_t bytes, const Send& send) const;
  Peer& peer(Rank rank);
  bool has_credit(Rank to) { return peer(to).flow.has_credit(); }
  void forget_idle();
  void begin(Rank to, SimMessage message);
  void begin_when_possible(Rank to, SimMessage message);
  void pump(Rank to);
  uint32_t take_arrivals();
  void handle(Rank from, const SimMessage& message);
  Answer run_handler(Rank from, const SimMessage& message, bool is_request, Bytes payload);
  Nanoseconds next_timer() const noexcept { return timers_.empty() ? kNever : timers_.top().first; }

  Simulation& simulation_;
  const Rank rank_;
  const MutableBytes memory_;
  Receiver* receiver_ = nullptr;
  Nanoseconds left_at_ = 0;            // real time, when the program began to compute
  uint32_t empty_polls_ = 0;
  std::vector<std::unique_ptr<Peer>> peers_;   // by rank, made when needed
  uint32_t flows_ = 0;                 // of them that exist
  Rank scanned_ = 0;                   // the last one that forget_idle() has scanned
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
};

}  // namespace unet::splitc
