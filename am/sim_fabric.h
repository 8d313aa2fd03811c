// sim_fabric.h - flows on a simulated network in virtual time; for tests and the benchmark am-incast.
//
// Nodes send requests to each other and reply. Links lose, repeat, reorder and delay packets. A checker verifies exactly-once delivery in
// order.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "am/absence.h"
#include "am/flow.h"

namespace unet::am::sim {

struct Wire {
  Nanoseconds delay = 5 * kMicrosecond;
  Nanoseconds jitter = 0;              // up to this much more delay, so that packets overtake each other
  double loss = 0, repeat = 0;
  double bits_per_second = 0;          // of each node's link in either direction; 0: no limit
  uint32_t queue = 256;                // packets that may wait for the link to the receiver
  uint32_t frame = 0;                  // bytes of a frame; a longer packet is lost if one of its frames is; 0: one frame per packet
  double late = 0;                     // share of packets that come later
  Nanoseconds late_by = 0;             // they come later by up to twice this
};

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
class Side {
 public:
  Side(const FlowOptions& options, uint64_t seed) : flow_(std::make_unique<Flow>(options)), random_(seed) {}

  // ---- settings
  uint64_t wanted = 0;                 // requests to send in all
  uint32_t bytes = 64;                 // bytes of each
  double replies = 0.7;                // share of requests that are answered
  bool asleep = false;                 // does not poll
  bool notices = true;                 // knows for how long it did not poll
  bool falls_asleep = false;           // while it sends the next packets, which leave when it wakes up

  // ---- results
  uint64_t requests_begun = 0, requests_handled = 0, replies_begun = 0, replies_handled = 0, unanswered = 0;
  uint64_t bytes_handled = 0;
  std::vector<Nanoseconds> latencies;  // latency of each request, from the first transmission until its handler runs
  std::string fault;                   // the first violation of a rule

  Flow& flow() noexcept { return *flow_; }
  bool done() const noexcept { return requests_begun == wanted && flow_->idle(); }

  // The side has polled all the time until now.
  void watch(Nanoseconds now) {
    absence_.polled(now, true);
    absence_.polled(now, true);
  }
  void arrive(const Packet& packet, Nanoseconds now) {
    absence_.found(now);
    take(packet, now, absence_.time());
  }
  void take(const Packet& packet, Nanoseconds now, Nanoseconds nobody_looked) {
    const bool keep = eager || random_() % 16 != 0;  // a receiver may be short of buffers
    const Nanoseconds absence = notices ? nobody_looked : 0;
    const auto arrival = flow_->handle_packet(packet.fields, as_bytes(&packet.body, sizeof packet.body), keep, now, absence);
    if (arrival == Flow::Arrival::fresh) kept_[slot_of(packet.fields.sequence)] = packet.content;
  }
  // Does everything that is possible at `now`, and passes transmissions to `out`.
  template <typename Out>
  void run(Nanoseconds now, Out&& out) {
    flow_->handle_timeout(now);
    while (flow_->poll_released()) {
    }
    while (const auto sequence = flow_->poll_delivery()) handle(kept_[slot_of(*sequence)], now);
    while (requests_begun < wanted && flow_->has_credit()) {
      const Sequence sequence = flow_->begin(true, bytes);
      sent_[slot_of(sequence)] = {Kind::short_request, requests_begun++, 0, bytes};
    }
    while (const auto transmit = flow_->poll_transmit(now)) {
      if (random_() % 64 == 0 && !eager) {  // the NI's queue is full
        flow_->unsent(*transmit);
        break;
      }
      Packet packet{.fields = transmit->fields, .body = transmit->arrived, .bytes = 80};
      if (transmit->numbered) {
        Content& content = sent_[slot_of(transmit->fields.sequence)];
        if (content.sent == 0) content.sent = now;
        packet.content = content;
        packet.fields.kind = packet.content.kind;
        packet.bytes = content.bytes;
      }
      out(packet);
    }
  }
  bool eager = false;                  // its NI takes every packet, and it never lacks buffers

 private:
  void require(bool condition, const char* what, uint64_t got, uint64_t wanted_number) {
    if (condition || !fault.empty()) return;
    fault = std::string(what) + ": " + std::to_string(got) + " instead of " + std::to_string(wanted_number);
  }
  void handle(const Content& content, Nanoseconds now) {
    if (is_request(content.kind)) {
      require(content.number == requests_handled, "a request out of turn", content.number, requests_handled);
      ++requests_handled;
      bytes_handled += content.bytes;
      latencies.push_back(now - content.sent);
      if (static_cast<double>(random_() % 1000) < replies * 1000) {
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

  std::unique_ptr<Flow> flow_;
  Absence absence_;
  std::mt19937_64 random_;
  std::array<Content, kSequenceWindow> sent_{}, kept_{};
};

// Flows between nodes. Each node has one link to a switch in the middle.
class Network {
 public:
  Network(uint32_t nodes, const Wire& wire, uint64_t seed)
      : wire_(wire), random_(seed), up_(nodes), down_(nodes), desks_(nodes), cut_(nodes, false) {}

  // Makes a flow between two nodes and returns its index. Flow i has sides 2i and 2i + 1.
  size_t connect(uint32_t a, uint32_t b, const FlowOptions& options, const FlowOptions& other) {
    sides_.push_back(std::make_unique<Side>(options, random_()));
    sides_.push_back(std::make_unique<Side>(other, random_()));
    nodes_.push_back(a);
    nodes_.push_back(b);
    return sides_.size() / 2 - 1;
  }
  Side& side(size_t flow, size_t which) { return *sides_[2 * flow + which]; }
  void cut(uint32_t node, bool is_cut) { cut_[node] = is_cut; }
  // Gives a node a worker, which all its sides share. Call it before anything is sent.
  void employ(uint32_t node, const Worker& worker) { desks_[node].worker = worker; }
  Nanoseconds now() const noexcept { return now_; }
  uint64_t lost_in_queues() const noexcept { return queue_drops_; }

  // Runs until `until`, or until no event is left.
  void run(Nanoseconds until) {
    for (size_t i = 0; i < sides_.size(); ++i) poll(i);
    while (true) {
      const Nanoseconds next = next_event();
      if (next > until || next == ~Nanoseconds{0}) break;
      now_ = std::max(now_, next);
      while (!events_.empty() && events_.top().at <= now_) {
        const Event event = events_.top();
        events_.pop();
        Desk& desk = desks_[nodes_[event.to]];
        if (desk.worker.handling != 0) {
          if (event.serves) {
            serve(desk);
          } else {
            queue(desk, event);
          }
          continue;
        }
        if (sides_[event.to]->asleep) {
          asleep_[event.to].push_back(event.packet);
          continue;
        }
        sides_[event.to]->watch(now_);
        sides_[event.to]->arrive(event.packet, now_);
        poll(event.to);
      }
      for (size_t i = 0; i < sides_.size(); ++i) {
        if (timers_[i] <= now_) poll(i);
      }
    }
    if (until != ~Nanoseconds{0}) now_ = until;
  }
  // Stops a side's polling until wake(). `sends`: it still sends once, if it has packets to send.
  void pause(size_t flow, size_t which, bool sends) {
    Side& side = *sides_[2 * flow + which];
    side.watch(now_);
    side.asleep = !sends;
    side.falls_asleep = sends;
  }
  void wake(size_t flow, size_t which) {
    const size_t i = 2 * flow + which;
    sides_[i]->asleep = sides_[i]->falls_asleep = false;
    for (const Packet& packet : unsent_[i]) send(i, packet);
    unsent_[i].clear();
    for (const Packet& packet : asleep_[i]) sides_[i]->arrive(packet, now_);
    asleep_[i].clear();
    poll(i);
  }
  std::string fault() const {
    for (const auto& side : sides_) {
      if (!side->fault.empty()) return side->fault;
    }
    return {};
  }

 private:
  struct Event {
    Nanoseconds at = 0;
    uint64_t order = 0;
    size_t to = 0;
    Packet packet;
    bool serves = false;               // not an arrival: the node's worker is free again
    bool operator<(const Event& other) const noexcept { return std::pair(at, order) > std::pair(other.at, other.order); }
  };
  struct Link {
    Nanoseconds free_at = 0;
  };

  // The packets that wait for a worker.
  struct Desk {
    Worker worker;
    Absence absence;
    std::deque<std::pair<size_t, Packet>> waiting;
    bool works = false;
  };
  // The worker polls all the time until a packet is there, or sleeps.
  void queue(Desk& desk, const Event& event) {
    if (desk.waiting.size() >= desk.worker.queue) {
      ++queue_drops_;
      return;
    }
    desk.waiting.emplace_back(event.to, event.packet);
    if (desk.works) return;
    desk.works = true;
    if (desk.worker.wakes_in != 0) {
      desk.absence.sleeps();
    } else {
      desk.absence.polled(now_, true);
      desk.absence.polled(now_, true);
    }
    call(event.to, now_ + desk.worker.wakes_in);
  }
  void call(size_t to, Nanoseconds at) { events_.push({at, ++orders_, to, {}, true}); }
  void serve(Desk& desk) {
    if (desk.waiting.empty()) {
      desk.absence.polled(now_, true);
      desk.works = false;
      return;
    }
    const auto [to, packet] = desk.waiting.front();
    desk.waiting.pop_front();
    desk.absence.found(now_);
    sides_[to]->take(packet, now_, desk.absence.time());
    poll(to);
    const Nanoseconds stop = chance(desk.worker.stops) ? desk.worker.stops_for : 0;
    call(to, now_ + desk.worker.handling + stop);
  }

  Nanoseconds next_event() {
    Nanoseconds next = events_.empty() ? ~Nanoseconds{0} : events_.top().at;
    timers_.resize(sides_.size(), ~Nanoseconds{0});
    for (size_t i = 0; i < sides_.size(); ++i) {
      if (!sides_[i]->asleep) next = std::min(next, timers_[i]);
    }
    return next;
  }
  void poll(size_t i) {
    timers_.resize(sides_.size(), ~Nanoseconds{0});
    if (sides_[i]->asleep) return;
    bool refused = true;
    sides_[i]->run(now_, [&](const Packet& packet) {
      refused = false;
      if (sides_[i]->falls_asleep) {
        unsent_[i].push_back(packet);
      } else {
        send(i, packet);
      }
    });
    if (!unsent_[i].empty()) {
      sides_[i]->falls_asleep = false;
      sides_[i]->asleep = true;
    }
    // Never now: a side without work now has none until a later time.
    timers_[i] = std::max(sides_[i]->flow().next_timeout(), now_ + 100);
    if (sides_[i]->flow().state() != Flow::State::open) timers_[i] = ~Nanoseconds{0};
    if (timers_[i] != ~Nanoseconds{0} && refused) return;
    if (!sides_[i]->done() && timers_[i] > now_ + 100 * kMicrosecond) timers_[i] = std::min(timers_[i], now_ + 100 * kMicrosecond);
  }
  Nanoseconds serialise(Link& link, Nanoseconds from, uint32_t bytes) const {
    if (wire_.bits_per_second == 0) return from;
    link.free_at = std::max(link.free_at, from) + static_cast<Nanoseconds>(bytes * 8e9 / wire_.bits_per_second);
    return link.free_at;
  }
  bool chance(double of) { return of > 0 && static_cast<double>(random_() % 1'000'000) < of * 1e6; }
  void send(size_t from, const Packet& packet) {
    const size_t to = from ^ 1;
    const uint32_t a = nodes_[from], b = nodes_[to];
    if (cut_[a] || cut_[b]) return;
    const Nanoseconds at_switch = serialise(up_[a], now_, packet.bytes) + wire_.delay / 2;
    const uint32_t frames = wire_.frame == 0 ? 1 : (packet.bytes + wire_.frame - 1) / wire_.frame;
    for (uint32_t i = 0; i < frames; ++i) {
      if (chance(wire_.loss)) return;
    }
    if (wire_.bits_per_second != 0) {
      const double one = packet.bytes * 8e9 / wire_.bits_per_second;
      if (down_[b].free_at > at_switch && static_cast<double>(down_[b].free_at - at_switch) > one * wire_.queue) {
        ++queue_drops_;
        return;
      }
    }
    for (int copies = chance(wire_.repeat) ? 2 : 1; copies > 0; --copies) {
      Nanoseconds late = wire_.jitter == 0 ? 0 : random_() % wire_.jitter;
      if (chance(wire_.late)) late += random_() % (2 * wire_.late_by);
      events_.push({serialise(down_[b], at_switch, packet.bytes) + wire_.delay / 2 + late, ++orders_, to, packet});
    }
  }

  Wire wire_;
  std::mt19937_64 random_;
  std::vector<Link> up_, down_;
  std::vector<Desk> desks_;
  std::vector<bool> cut_;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<uint32_t> nodes_;
  std::vector<Nanoseconds> timers_;
  std::map<size_t, std::vector<Packet>> asleep_, unsent_;
  std::priority_queue<Event> events_;
  uint64_t orders_ = 0;
  uint64_t queue_drops_ = 0;
  Nanoseconds now_ = kSecond;
};

// Many senders to one receiver, without end, over a fabric of 100 Gbit/s and a round trip of 8 us.
struct Incast {
  double goodput = 0;           // share of the receiver's link
  Nanoseconds p99 = 0;          // from the first transmission of a request until it is handled
  Nanoseconds unloaded = 0;     // the same for a single request alone
  double least_share = 0;       // share that the slowest sender got of its fair share
  uint64_t dropped = 0;         // packets lost because a queue was full
};

constexpr Wire kIncastWire{.delay = 4 * kMicrosecond, .bits_per_second = 100e9, .queue = 1024};

inline Nanoseconds percentile(std::vector<Nanoseconds> of, double share) {
  if (of.empty()) return 0;
  std::sort(of.begin(), of.end());
  return of[static_cast<size_t>(share * static_cast<double>(of.size() - 1))];
}

// `bytes` are those of each request. A seed always gives the same figures.
inline Incast incast(uint32_t senders, uint32_t bytes, uint64_t seed, double loss = 0, const Worker& receiver = {},
                     Nanoseconds time = 5 * kMillisecond) {
  FlowOptions options;
  options.congestion.base_delay = 2 * kIncastWire.delay;
  Network alone(2, kIncastWire, seed);
  alone.connect(1, 0, options, options);
  alone.side(0, 0).wanted = 1;
  alone.side(0, 0).bytes = bytes;
  alone.run(~Nanoseconds{0});

  Wire wire = kIncastWire;
  wire.loss = loss;
  Network network(senders + 1, wire, seed);
  for (uint32_t i = 0; i < senders; ++i) {
    network.connect(i + 1, 0, options, options);
    network.side(i, 0).wanted = ~uint64_t{0};
    network.side(i, 0).bytes = bytes;
    network.side(i, 1).replies = 0;
    network.side(i, 0).eager = network.side(i, 1).eager = true;
  }
  network.employ(0, receiver);
  network.run(network.now() + time);
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
