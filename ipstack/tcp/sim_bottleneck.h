// sim_bottleneck.h - flows that share one link with a rate and a queue, in a simulation; for tests of fairness.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ipstack/tcp/connection.h"
#include "ipstack/tcp/sim_packets.h"
#include "unet/base/simulator.h"

namespace unet::tcp::sim {

struct Bottleneck {
  double bits_per_second = 100e6;
  uint32_t queue = 1 << 20;              // bytes that may wait before the link
  Nanoseconds delay = 5 * kMillisecond;  // one way, after the link and back
  double loss = 0;                       // of segments, before the queue: these take none of the link's rate
  double acks_lost = 0, acks_late = 0;
  // Probability that a segment leaves the link and arrives `late_by` later.
  double late = 0;
  Nanoseconds late_by = 0;
  // Everything that arrives within such a time is handled, and answered, at once; 0: each segment by itself.
  Nanoseconds turn = 0;
  // Bytes in the queue above which ECN-capable segments are marked; 0: never.
  uint32_t mark = 0;
};

// One sender, with a reader that consumes everything.
struct Stream {
  Options options;
  Nanoseconds starts_at = 0;
  // Bytes that the application writes per millisecond; 0: all it can.
  uint32_t write_each_ms = 0;
};

class SharedLink : public Simulator {
 public:
  SharedLink(const Bottleneck& link, uint64_t seed) : Simulator(seed), link_(*this), acks_(*this) { set_link(link); }

  // Before run(). Returns the number of the stream.
  size_t add(const Stream& stream) {
    Flow& flow = *flows_.emplace_back(std::make_unique<Flow>(*this, stream));
    for (size_t end = 0; end < 2; ++end) {
      flow.connections[end] =
          std::make_unique<Connection>(flow.stream.options, flow.resources, static_cast<uint16_t>(1000 + 2 * flows_.size() + end));
    }
    Simulator::add(flow);
    return flows_.size() - 1;
  }
  // `each` is called every millisecond.
  template <typename Each>
  void run(Nanoseconds until, const Each& each) {
    while (now() < until && fault_.empty()) {
      if (now() >= writes_at_) {
        writes_at_ = now() + kMillisecond;
        each();
        for (const auto& flow : flows_) write(*flow);
      }
      Simulator::run(std::min(end_of_turn(writes_at_), until));
    }
  }
  void run(Nanoseconds until) {
    run(until, [] {});
  }

  const std::string& fault() const { return fault_; }
  Connection& sender(size_t which) { return *flows_[which]->connections[0]; }
  Info info(size_t which) { return sender(which).info(now()); }
  const Counters& counters(size_t which) const { return flows_[which]->counters; }
  uint64_t received(size_t which) const { return flows_[which]->received; }
  void pause(size_t which, bool on) { flows_[which]->paused = on; }
  void set_link(const Bottleneck& to) {
    link_.options = {.delay = to.delay, .loss = to.loss, .late = to.late, .late_by = to.late_by, .bits_per_second = to.bits_per_second,
                     .queue = to.queue, .mark_above = to.mark};
    acks_.options = {.delay = to.delay, .loss = to.acks_lost, .late = to.acks_late, .late_by = to.late_by};
    turn_ = to.turn;
  }
  // Bytes in the queue before what enters the link now.
  double waiting() const { return link_.waiting(now()); }

 private:
  struct Flow final : SimNode {
    Flow(SharedLink& net, const Stream& of) : shared(net), stream(of) { stream.options.nagle = false; }
    Nanoseconds process() override { return shared.process(*this); }

    SharedLink& shared;
    Stream stream;
    Counters counters;
    ChunkPool chunks{2048, 8192};
    RecordPool records{16384};
    Resources resources{chunks, records, counters};
    std::array<std::unique_ptr<Connection>, 2> connections;
    uint64_t received = 0;
    bool begun = false, paused = false;
  };

  Nanoseconds end_of_turn(Nanoseconds time) const {
    return turn_ == 0 || time == kNever ? time : (time + turn_ - 1) / turn_ * turn_;
  }

  void write(Flow& flow) {
    if (!flow.begun) {
      if (now() < flow.stream.starts_at) return;
      flow.begun = true;
      flow.connections[1]->listen({static_cast<uint32_t>(random())});
      flow.connections[0]->connect(flow.connections[1]->local_port(), {static_cast<uint32_t>(random())}, now());
    }
    fill(flow, flow.stream.write_each_ms == 0 ? ~0u : flow.stream.write_each_ms);
  }

  void fill(Flow& flow, uint32_t most) {
    static const std::vector<std::byte> zeros(1 << 16);
    while (!flow.paused && most != 0) {
      const size_t part = std::min<size_t>({most, zeros.size(), flow.connections[0]->writable()});
      const uint32_t taken = part == 0 ? 0 : flow.connections[0]->send(Bytes(zeros).first(part)).bytes;
      if (taken == 0) return;
      most -= most == ~0u ? 0 : taken;
    }
  }

  Nanoseconds process(Flow& flow) {
    Nanoseconds next = kNever;
    for (const size_t end : {0u, 1u}) {
      flow.connections[end]->handle_timer(now());
      transmit(flow, end);
      next = std::min(next, flow.connections[end]->next_timer());
    }
    return end_of_turn(next);
  }

  // ACKs take a path of their own, without the queue.
  void transmit(Flow& flow, size_t end) {
    Connection& it = *flow.connections[end];
    if (end == 0 && flow.begun && flow.stream.write_each_ms == 0) fill(flow, ~0u);
    Segment segment;
    const auto send = [&](Packet packet) {
      const auto bytes = static_cast<uint32_t>(packet.size()) + kHeadersBelow;
      const bool capable = segment.ecn_capable;
      (end == 0 ? link_ : acks_).send(now(), bytes, [this, &flow, to = 1 - end, packet = std::move(packet), capable](bool marked) {
        const uint8_t ecn = ecn_of(capable, marked);
        if (turn_ == 0) return deliver(flow, to, packet, ecn);
        at(end_of_turn(now()), [this, &flow, to, packet, ecn] { deliver(flow, to, packet, ecn); });
      });
    };
    for (int i = 0; it.poll_segment(now(), std::max(44u * it.mss(), 1u), segment); ++i) {
      const char* const wrong = send_packets(it, segment, send);
      if (wrong != nullptr) fault_ = wrong;
      if (i > 100'000) fault_ = "segments without end";
      if (!fault_.empty()) return;
    }
  }

  void deliver(Flow& flow, size_t to, const Packet& packet, uint8_t ecn) {
    ip::TcpView view;
    if (ip::parse_tcp(packet, view) != ip::TcpError::none) fault_ = "a segment that cannot be parsed";
    Connection& it = *flow.connections[to];
    it.handle_segment(view, now(), ecn);
    if (to == 1) {
      flow.received += it.readable();
      it.consume(it.readable());
    }
    flow.wake();
  }

  SimLink link_, acks_;
  Nanoseconds turn_ = 0;
  std::vector<std::unique_ptr<Flow>> flows_;
  Nanoseconds writes_at_ = kSecond;
  std::string fault_;
};

}  // namespace unet::tcp::sim
