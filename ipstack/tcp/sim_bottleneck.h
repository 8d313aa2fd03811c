// sim_bottleneck.h - flows that share one link with a rate and a queue, in virtual time from a seed; for tests of fairness.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ipstack/tcp/connection.h"

namespace unet::tcp::sim {

struct Bottleneck {
  double bits_per_second = 100e6;
  uint32_t queue = 1 << 20;              // bytes that may wait before the link
  Nanoseconds delay = 5 * kMillisecond;  // one way, after the link and back
  double loss = 0;                       // of segments that leave it
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

class SharedLink {
 public:
  SharedLink(const Bottleneck& link, uint64_t seed) : link_(link), random_(seed) {}

  // Before run(). Returns the number of the stream.
  size_t add(const Stream& stream) {
    flows_.push_back(std::make_unique<Flow>());
    Flow& flow = *flows_.back();
    flow.stream = stream;
    flow.stream.options.nagle = false;
    for (size_t end = 0; end < 2; ++end) {
      flow.connections[end] =
          std::make_unique<Connection>(flow.stream.options, flow.resources, static_cast<uint16_t>(1000 + 2 * flows_.size() + end));
    }
    return flows_.size() - 1;
  }
  // `step` is called every millisecond.
  template <typename Step>
  void run(Nanoseconds until, const Step& step) {
    while (now_ < until && fault_.empty()) {
      if (now_ >= step_at_) {
        step_at_ = now_ + kMillisecond;
        step();
        for (size_t i = 0; i < flows_.size(); ++i) write(i);
      }
      Nanoseconds next = std::min(step_at_, flying_.empty() ? kNever : flying_.begin()->first);
      for (const auto& flow : flows_) {
        for (const auto& end : flow->connections) next = std::min(next, end->next_timer());
      }
      now_ = std::max(now_, std::min(next, until));
      if (link_.turn != 0) now_ = (now_ + link_.turn - 1) / link_.turn * link_.turn;
      while (!flying_.empty() && flying_.begin()->first <= now_) {
        const Flying flying = std::move(flying_.begin()->second);
        flying_.erase(flying_.begin());
        deliver(flying);
        if (link_.turn == 0) transmit(flying.flow, flying.to);
      }
      for (size_t i = 0; link_.turn != 0 && i < flows_.size(); ++i) {
        for (size_t end = 0; end < 2; ++end) transmit(i, end);
      }
      for (size_t i = 0; i < flows_.size(); ++i) {
        for (size_t end = 0; end < 2; ++end) {
          Connection& it = *flows_[i]->connections[end];
          if (it.next_timer() > now_) continue;
          it.handle_timer(now_);
          transmit(i, end);
        }
      }
    }
  }
  void run(Nanoseconds until) {
    run(until, [] {});
  }

  Nanoseconds now() const { return now_; }
  const std::string& fault() const { return fault_; }
  Connection& sender(size_t which) { return *flows_[which]->connections[0]; }
  Info info(size_t which) { return sender(which).info(now_); }
  const Counters& counters(size_t which) const { return flows_[which]->counters; }
  uint64_t received(size_t which) const { return flows_[which]->received; }
  void pause(size_t which, bool on) { flows_[which]->paused = on; }
  void set_link(const Bottleneck& link) { link_ = link; }
  // Bytes in the queue before what enters the link now.
  double waiting() const {
    return free_at_ > now_ ? static_cast<double>(free_at_ - now_) * link_.bits_per_second / 8e9 : 0;
  }

 private:
  struct Flow {
    Stream stream;
    Counters counters;
    ChunkPool chunks{2048, 8192};
    RecordPool records{16384};
    Resources resources{chunks, records, counters};
    std::array<std::unique_ptr<Connection>, 2> connections;
    uint64_t received = 0;
    bool begun = false, paused = false;
  };
  struct Flying {
    size_t flow, to;
    std::vector<std::byte> bytes;
    uint8_t ecn = 0;
  };

  bool chance(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }

  void write(size_t which) {
    Flow& flow = *flows_[which];
    if (!flow.begun) {
      if (now_ < flow.stream.starts_at) return;
      flow.begun = true;
      flow.connections[1]->listen({static_cast<uint32_t>(random_())});
      flow.connections[0]->connect(flow.connections[1]->local_port(), {static_cast<uint32_t>(random_())}, now_);
    }
    fill(flow, flow.stream.write_each_ms == 0 ? ~0u : flow.stream.write_each_ms);
    transmit(which, 0);
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

  void transmit(size_t which, size_t end) {
    Flow& flow = *flows_[which];
    Connection& it = *flow.connections[end];
    if (end == 0 && flow.begun && flow.stream.write_each_ms == 0) fill(flow, ~0u);
    Segment segment;
    for (int i = 0; it.poll_segment(now_, std::max(44u * it.mss(), 1u), segment); ++i) {
      if (i > 100'000) fault_ = "segments without end";
      std::vector<std::byte> payload;
      std::array<Bytes, 64> pieces;
      const uint32_t count = it.gather(segment, pieces);
      for (uint32_t piece = 0; piece < count; ++piece) payload.insert(payload.end(), pieces[piece].begin(), pieces[piece].end());
      size_t at = 0;
      do {
        const size_t bytes = std::min<size_t>(payload.size() - at, segment.mss == 0 ? payload.size() : segment.mss);
        ip::TcpFields fields = segment.fields;
        fields.sequence += static_cast<uint32_t>(at);
        if (at != 0) fields.flags &= static_cast<uint8_t>(~ip::TcpFlags::kCwr);
        enter(which, end, fields, Bytes(payload).subspan(at, bytes), segment.ecn_capable);
        at += bytes;
      } while (at < payload.size());
      if (!fault_.empty()) return;
    }
  }

  // ACKs take a path of their own, without the queue.
  void enter(size_t which, size_t from, const ip::TcpFields& fields, Bytes payload, bool ecn_capable) {
    Flying flying{which, 1 - from, std::vector<std::byte>(ip::kTcpHeaderMax), ecn_capable ? uint8_t{2} : uint8_t{0}};
    flying.bytes.resize(ip::emit_tcp(flying.bytes.data(), fields));
    flying.bytes.insert(flying.bytes.end(), payload.begin(), payload.end());
    Nanoseconds at = now_;
    if (from == 0) {
      const double before = waiting();
      if (before > link_.queue) return;
      if (ecn_capable && link_.mark != 0 && before > link_.mark) flying.ecn = 3;
      at = free_at_ = std::max(now_, free_at_) +
                      static_cast<Nanoseconds>(static_cast<double>(flying.bytes.size() + 40) * 8e9 / link_.bits_per_second);
      if (!payload.empty() && chance(link_.loss)) return;
      if (link_.late != 0 && chance(link_.late)) at += link_.late_by;
    } else if (link_.acks_lost != 0 && payload.empty() && chance(link_.acks_lost) && flows_[which]->received != 0) {
      return;
    } else if (link_.acks_late != 0 && chance(link_.acks_late)) {
      at += link_.late_by;
    }
    flying_.emplace(at + link_.delay, std::move(flying));
  }

  void deliver(const Flying& flying) {
    ip::TcpView view;
    if (ip::parse_tcp(flying.bytes, view) != ip::TcpError::none) fault_ = "a segment that cannot be parsed";
    Flow& flow = *flows_[flying.flow];
    Connection& it = *flow.connections[flying.to];
    it.handle_segment(view, now_, flying.ecn);
    if (flying.to == 1) {
      flow.received += it.readable();
      it.consume(it.readable());
    }
  }

  Bottleneck link_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Flow>> flows_;
  std::multimap<Nanoseconds, Flying> flying_;
  Nanoseconds now_ = kSecond, step_at_ = kSecond, free_at_ = 0;
  std::string fault_;
};

}  // namespace unet::tcp::sim
