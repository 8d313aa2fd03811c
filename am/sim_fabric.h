// sim_fabric.h - flows of Active Messages in a simulation; for tests and the benchmark am-incast.
//
// Nodes send requests to each other and reply. A checker verifies exactly-once delivery in order.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "am/absence.h"
#include "am/flow.h"
#include "unet/base/sim_switches.h"
#include "unet/base/sim_traffic.h"
#include "unet/base/simulator.h"

namespace unet::am::sim {

// The contents of a message: its number among the requests or replies of its sender to this receiver.
struct Content {
  Kind kind{};
  uint64_t number = 0;
  uint64_t answers = 0;                // replies: the number of the request
  uint32_t bytes = 0;
  Nanoseconds sent = 0;                // time of the first transmission
};

struct Packet {
  HeaderFields fields;
  AckBody body{};
  Content content{};
  uint32_t bytes = 0;
};

class Network;

// How long a node takes for its work.
struct Worker {
  Nanoseconds handling = 0;            // per packet that arrives; 0: packets are handled as they come
  uint32_t queue = 256;                // packets that may wait for that
  double stops = 0;                    // share of packets at which the node also loses its core
  Nanoseconds stops_for = 0;           // time until it has the core again
  Nanoseconds wakes_in = 0;            // time to wake up, if it sleeps when no packet is there; 0: it polls all the time
};

// One side of a flow.
class Side final : public SimNode {
 public:
  Side(Network& network, size_t index, const FlowOptions& options)
      : network_(network), index_(index), flow_(std::make_unique<Flow>(options)) {}

  // ---- settings
  uint64_t wanted = 0;                 // requests to send in all
  std::vector<Nanoseconds> due;        // times from which requests are late; empty: from their first transmission
  uint32_t bytes = 64;                 // bytes of each
  double replies = 0.7;                // share of requests that are answered
  bool eager = false;                  // its NI takes every packet, and it never lacks buffers
  bool asleep = false;                 // does not poll
  bool notices = true;                 // knows for how long it did not poll
  bool falls_asleep = false;           // while it sends the next packets, which leave when it wakes up

  // ---- results
  uint64_t requests_begun = 0, requests_handled = 0, replies_begun = 0, replies_handled = 0, unanswered = 0;
  uint64_t bytes_handled = 0;
  std::vector<Nanoseconds> latencies;  // latency of each request, from its due time or the first transmission, until its handler runs
  std::string fault;                   // the first violation of a rule

  Flow& flow() noexcept { return *flow_; }
  bool done() const noexcept { return requests_begun == wanted && flow_->idle(); }

  Nanoseconds process() override;
  // The side has polled all the time until now.
  void watch();
  void arrive(const Packet& packet);
  void take(const Packet& packet, Nanoseconds nobody_looked);

 private:
  friend class Network;
  void require(bool condition, const char* what, uint64_t got, uint64_t wanted_number) {
    if (condition || !fault.empty()) return;
    fault = std::string(what) + ": " + std::to_string(got) + " instead of " + std::to_string(wanted_number);
  }
  bool transmit();
  void handle(const Content& content);

  Network& network_;
  const size_t index_;
  std::unique_ptr<Flow> flow_;
  Absence absence_;
  std::vector<Packet> arrived_, unsent_;  // while it was asleep
  std::array<Content, kSequenceWindow> sent_{}, kept_{};
};

// Flows between nodes.
class Network : public Simulator {
 public:
  Network(uint32_t nodes, const SimLinkOptions& wire, uint64_t seed, const SimTree& tree = {})
      : Simulator(seed), switches_(*this, nodes, wire, tree), desks_(nodes), cut_(nodes, false) {}

  // Makes a flow between two nodes and returns its index. Flow i has sides 2i and 2i + 1.
  size_t connect(uint32_t a, uint32_t b, const FlowOptions& options, const FlowOptions& other) {
    spine_of_.push_back(switches_.draw_spine());
    for (const auto& [node, each] : {std::pair(a, options), std::pair(b, other)}) {
      add(*sides_.emplace_back(std::make_unique<Side>(*this, sides_.size(), each)));
      nodes_.push_back(node);
    }
    return sides_.size() / 2 - 1;
  }
  Side& side(size_t flow, size_t which) { return *sides_[2 * flow + which]; }
  void cut(uint32_t node, bool is_cut) { cut_[node] = is_cut; }
  // Gives a node a worker, which all its sides share. Call it before anything is sent.
  void employ(uint32_t node, const Worker& worker) { desks_[node].worker = worker; }
  uint64_t lost_in_queues() const noexcept { return lost_at_desks_ + switches_.queue_drops(); }
  // Stops a side's polling until wake(). `sends`: it still sends once, if it has packets to send.
  void pause(size_t flow, size_t which, bool sends) {
    side(flow, which).watch();
    side(flow, which).asleep = !sends;
    side(flow, which).falls_asleep = sends;
  }
  void wake(size_t flow, size_t which) {
    Side& it = side(flow, which);
    it.asleep = it.falls_asleep = false;
    for (const Packet& packet : std::exchange(it.unsent_, {})) send(it, packet);
    for (const Packet& packet : std::exchange(it.arrived_, {})) it.arrive(packet);
    it.process_now();
  }
  std::string fault() const {
    for (const auto& side : sides_) {
      if (!side->fault.empty()) return side->fault;
    }
    return {};
  }

 private:
  friend class Side;
  // The packets that wait for a worker.
  struct Desk {
    Worker worker;
    Absence absence;
    std::deque<std::pair<Side*, Packet>> waiting;
    bool works = false;
  };

  void send(const Side& from, const Packet& packet) {
    Side& to = *sides_[from.index_ ^ 1];
    const uint32_t a = nodes_[from.index_], b = nodes_[to.index_];
    if (cut_[a] || cut_[b]) return;
    switches_.send(a, b, spine_of_[from.index_ / 2], packet.bytes, [this, &to, packet](bool) { arrive(to, packet); });
  }
  void arrive(Side& to, const Packet& packet) {
    Desk& desk = desks_[nodes_[to.index_]];
    if (desk.worker.handling != 0) return queue(desk, to, packet);
    if (to.asleep) return to.arrived_.push_back(packet);
    to.watch();
    to.arrive(packet);
    to.process_now();
  }
  // The worker polls all the time until a packet is there, or sleeps.
  void queue(Desk& desk, Side& to, const Packet& packet) {
    if (desk.waiting.size() >= desk.worker.queue) {
      ++lost_at_desks_;
      return;
    }
    desk.waiting.emplace_back(&to, packet);
    if (desk.works) return;
    desk.works = true;
    if (desk.worker.wakes_in != 0) {
      desk.absence.sleeps();
    } else {
      desk.absence.polled(now(), true);
      desk.absence.polled(now(), true);
    }
    at(now() + desk.worker.wakes_in, [this, &desk] { serve(desk); });
  }
  void serve(Desk& desk) {
    if (desk.waiting.empty()) {
      desk.absence.polled(now(), true);
      desk.works = false;
      return;
    }
    const auto [to, packet] = desk.waiting.front();
    desk.waiting.pop_front();
    desk.absence.found(now());
    to->take(packet, desk.absence.time());
    to->process_now();
    const Nanoseconds stop = chance(desk.worker.stops) ? desk.worker.stops_for : 0;
    at(now() + desk.worker.handling + stop, [this, &desk] { serve(desk); });
  }

  SimSwitches switches_;
  std::vector<Desk> desks_;
  std::vector<bool> cut_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<uint32_t> nodes_;        // of each side
  std::vector<uint32_t> spine_of_;     // of each flow
  uint64_t lost_at_desks_ = 0;
};

inline void Side::watch() {
  absence_.polled(network_.now(), true);
  absence_.polled(network_.now(), true);
}
inline void Side::arrive(const Packet& packet) {
  absence_.found(network_.now());
  take(packet, absence_.time());
}
inline void Side::take(const Packet& packet, Nanoseconds nobody_looked) {
  const bool keep = eager || network_.below(16) != 0;  // a receiver may be short of buffers
  const Nanoseconds absence = notices ? nobody_looked : 0;
  const auto arrival =
      flow_->handle_packet(packet.fields, as_bytes(&packet.body, sizeof packet.body), keep, network_.now(), absence);
  if (arrival == Flow::Arrival::fresh) kept_[slot_of(packet.fields.sequence)] = packet.content;
}

// Does everything that is possible now.
inline Nanoseconds Side::process() {
  if (asleep) return kNever;
  const Nanoseconds now = network_.now();
  flow_->handle_timeout(now);
  while (flow_->poll_released()) {
  }
  while (const auto sequence = flow_->poll_delivery()) handle(kept_[slot_of(*sequence)]);
  while (requests_begun < wanted && flow_->has_credit()) {
    const Sequence sequence = flow_->begin(true, bytes);
    const Nanoseconds begun = due.empty() ? 0 : due[requests_begun];
    sent_[slot_of(sequence)] = {Kind::short_request, requests_begun++, 0, bytes, begun};
  }
  const bool sent = transmit();
  if (!unsent_.empty()) {
    falls_asleep = false;
    asleep = true;
  }
  // Never now: a side without work now has none until a later time.
  const bool open = flow_->state() == Flow::State::open;
  const Nanoseconds next = open ? std::max(flow_->next_timeout(), now + 100) : kNever;
  const bool waits = done() || (next != kNever && !sent);
  return waits ? next : std::min(next, now + 100 * kMicrosecond);
}

// Returns whether a packet has left the flow.
inline bool Side::transmit() {
  bool sent = false;
  while (const auto transmit = flow_->poll_transmit(network_.now())) {
    if (!eager && network_.below(64) == 0) {  // the NI's queue is full
      flow_->unsent(*transmit);
      break;
    }
    Packet packet{.fields = transmit->fields, .body = transmit->arrived, .bytes = 80};
    if (transmit->numbered) {
      Content& content = sent_[slot_of(transmit->fields.sequence)];
      if (content.sent == 0) content.sent = network_.now();
      packet.content = content;
      packet.fields.kind = packet.content.kind;
      packet.bytes = content.bytes;
    }
    sent = true;
    if (falls_asleep) {
      unsent_.push_back(packet);
    } else {
      network_.send(*this, packet);
    }
  }
  return sent;
}

inline void Side::handle(const Content& content) {
  if (is_request(content.kind)) {
    require(content.number == requests_handled, "a request out of turn", content.number, requests_handled);
    ++requests_handled;
    bytes_handled += content.bytes;
    latencies.push_back(network_.now() - content.sent);
    if (network_.chance(replies)) {
      const Sequence sequence = flow_->begin(false, bytes);
      sent_[slot_of(sequence)] = {Kind::short_reply, replies_begun++, content.number, bytes};
    } else {
      flow_->handled();
      ++unanswered;
    }
  } else {
    require(content.number == replies_handled, "a reply out of turn", content.number, replies_handled);
    require(content.answers < requests_begun, "a reply to what was not asked", content.answers, requests_begun);
    ++replies_handled;
  }
}

// Many senders to one receiver, without end, over a fabric of 100 Gbit/s and a round trip of 8 us.
struct Incast {
  double goodput = 0;           // share of the receiver's link
  Nanoseconds p99 = 0;          // from the first transmission of a request until it is handled
  Nanoseconds unloaded = 0;     // the same for a single request alone
  double least_share = 0;       // share that the slowest sender got of its fair share
  uint64_t dropped = 0;         // packets lost because a queue was full
};

constexpr SimLinkOptions kIncastWire{.delay = 4 * kMicrosecond, .bits_per_second = 100e9};
constexpr uint64_t kIncastQueue = 1024;  // requests that may wait for the receiver's link

// `bytes` are those of each request. A seed always gives the same figures.
inline Incast incast(uint32_t senders, uint32_t bytes, uint64_t seed, double loss = 0, const Worker& receiver = {},
                     Nanoseconds time = 5 * kMillisecond) {
  FlowOptions options;
  options.congestion.base_delay = 2 * kIncastWire.delay;
  Network alone(2, kIncastWire, seed);
  alone.connect(1, 0, options, options);
  alone.side(0, 0).wanted = 1;
  alone.side(0, 0).bytes = bytes;
  alone.run();

  SimLinkOptions wire = kIncastWire;
  wire.loss = loss;
  wire.queue = kIncastQueue * bytes;
  Network network(senders + 1, wire, seed);
  for (uint32_t i = 0; i < senders; ++i) {
    network.connect(i + 1, 0, options, options);
    network.side(i, 0).wanted = ~uint64_t{0};
    network.side(i, 0).bytes = bytes;
    network.side(i, 1).replies = 0;
    network.side(i, 0).eager = network.side(i, 1).eager = true;
  }
  network.employ(0, receiver);
  network.run_for(time);
  Incast result{.dropped = network.lost_in_queues()};
  std::vector<Nanoseconds> latencies;
  uint64_t all = 0, least = ~uint64_t{0};
  for (uint32_t i = 0; i < senders; ++i) {
    const Side& receiver = network.side(i, 1);
    all += receiver.bytes_handled;
    least = std::min(least, receiver.bytes_handled);
    latencies.insert(latencies.end(), receiver.latencies.begin(), receiver.latencies.end());
  }
  result.goodput = static_cast<double>(all) * 8e9 / static_cast<double>(time) / kIncastWire.bits_per_second;
  result.p99 = percentile(std::move(latencies), 0.99);
  result.unloaded = percentile(alone.side(0, 1).latencies, 0.5);
  result.least_share = static_cast<double>(least * senders) / static_cast<double>(all);
  return result;
}

}  // namespace unet::am::sim
