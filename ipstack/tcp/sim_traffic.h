// sim_traffic.h - TCP connections between the nodes of a simulated network, for patterns of traffic; for tests and the benchmark
// tcp-traffic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "ipstack/tcp/connection.h"
#include "ipstack/tcp/sim_packets.h"
#include "unet/base/check.h"
#include "unet/base/sim_traffic.h"

namespace unet::tcp::sim {

// Options of a connection with one request in each segment, as in a packet of Active Messages.
inline Options traffic_options(const Traffic& traffic, Algorithm congestion, Ecn ecn) {
  constexpr uint32_t kTimestamp = 12;
  Options options{.nagle = false, .ecn = ecn, .congestion = congestion, .ack_gather = 5 * kMicrosecond};
  options.mss = static_cast<uint16_t>(std::min<uint32_t>(traffic.bytes + kTimestamp, 0xFFFF));
  return options;
}

// A network for run_traffic(). A flow is one connection, opened at the start. Its application writes requests when they are due, and reads
// all that arrives. Segments have real headers. Their payload takes its time on links, but all its bytes are 0.
class TrafficNetwork : public Simulator, private SimNode {
 public:
  TrafficNetwork(const Traffic& traffic, const Options& options, uint64_t seed)
      : Simulator(seed), traffic_(traffic), options_(options), switches_(*this, traffic.nodes, traffic.wire(), traffic.tree) {
    // Twice what a node's requests need if none of them leaves: no connection waits for memory.
    const double due = traffic.load * traffic.bits_per_second / 8e9 * static_cast<double>(traffic.warm_up + traffic.time);
    const auto chunks = std::max(4096u, static_cast<uint32_t>(2 * due / kChunk));
    for (uint32_t i = 0; i < traffic.nodes; ++i) hosts_.push_back(std::make_unique<Host>(chunks, counters_));
    add(*this);
  }

  const Traffic& traffic() const noexcept { return traffic_; }
  void open(uint32_t from, uint32_t to) {
    Flow& flow = *flows_.emplace_back(std::make_unique<Flow>());
    flow.spine = switches_.draw_spine();
    for (const uint32_t node : {from, to}) {
      const auto port = static_cast<uint16_t>(1024 + ends_.size());
      ends_.push_back(std::make_unique<End>(flow, ends_.size(), node, options_, hosts_[node]->resources, port));
    }
    End &source = *ends_[ends_.size() - 2], &sink = *ends_.back();
    sink.connection.listen({static_cast<uint32_t>(random())});
    source.connection.connect(sink.connection.local_port(), {static_cast<uint32_t>(random())}, now());
    touch(source);
  }
  void request(size_t flow) {
    flows_[flow]->unwritten += traffic_.bytes;
    touch(*ends_[2 * flow]);
  }
  std::vector<Nanoseconds>& due(size_t flow) { return flows_[flow]->due; }
  const std::vector<Nanoseconds>& latencies(size_t flow) const { return flows_[flow]->latencies; }
  uint64_t bytes(size_t flow) const { return flows_[flow]->bytes; }
  uint64_t lost_in_queues() const noexcept { return switches_.queue_drops(); }
  // Of all connections.
  const Counters& counters() const noexcept { return counters_; }

 private:
  static constexpr uint32_t kChunk = 16 * 1024, kRecords = 16 * 1024, kBurst = 65536;  // as those of sockets
  static constexpr std::array<std::byte, kBurst> kZeros{};

  struct Host {
    Host(uint32_t chunk_count, Counters& counters) : chunks(kChunk, chunk_count), records(kRecords), resources{chunks, records, counters} {}
    ChunkPool chunks;
    RecordPool records;
    Resources resources;
  };
  struct Flow {
    uint32_t spine = 0;
    uint64_t unwritten = 0, bytes = 0;      // due, but not yet in the send buffer; arrived
    std::vector<Nanoseconds> due, latencies;
  };
  // The two ends of flow i are 2i, the sender, and 2i + 1.
  struct End {
    End(Flow& its_flow, size_t number, uint32_t its_node, const Options& options, const Resources& resources, uint16_t port)
        : flow(its_flow), index(number), node(its_node), connection(options, resources, port) {}
    Flow& flow;
    const size_t index;
    const uint32_t node;
    Connection connection;
    Nanoseconds timer = kNever;             // its time in timers_
    bool touched = false;
  };
  struct Packet {
    std::array<std::byte, ip::kTcpHeaderMax> header;
    uint32_t header_bytes, payload_bytes;
  };

  // At the end of this instant the connection sends what it has.
  void touch(End& end) {
    list(end);
    wake();
  }
  void list(End& end) {
    if (!std::exchange(end.touched, true)) touched_.push_back(&end);
  }
  Nanoseconds process() override {
    while (!timers_.empty() && timers_.begin()->first <= now()) {
      End& end = *ends_[timers_.begin()->second];
      timers_.erase(timers_.begin());
      end.timer = kNever;
      list(end);
    }
    for (size_t i = 0; i < touched_.size(); ++i) poll(*touched_[i]);
    touched_.clear();
    return timers_.empty() ? kNever : timers_.begin()->first;
  }
  void poll(End& end) {
    end.touched = false;
    end.connection.handle_timer(now());
    if (end.index % 2 == 0) write(end);
    Segment segment;
    while (end.connection.poll_segment(now(), kBurst, segment)) transmit(end, segment);
    // A timer that moves to a later time stays where it is: it only polls too early.
    const Nanoseconds next = std::max(end.connection.next_timer(), now() + 1);
    if (next >= end.timer) return;
    timers_.erase({end.timer, end.index});
    timers_.insert({next, end.index});
    end.timer = next;
  }
  void write(End& end) {
    while (end.flow.unwritten != 0) {
      const size_t most = std::min<uint64_t>({end.flow.unwritten, end.connection.writable(), kZeros.size()});
      const uint32_t taken = most == 0 ? 0 : end.connection.send(Bytes(kZeros).first(most)).bytes;
      if (taken == 0) return;
      end.flow.unwritten -= taken;
    }
  }
  void transmit(End& from, const Segment& segment) {
    End& to = *ends_[from.index ^ 1];
    cut_segment(segment, [&](const ip::TcpFields& fields, uint32_t, uint32_t bytes) {
      Packet packet;
      packet.header_bytes = ip::emit_tcp(packet.header.data(), fields);
      packet.payload_bytes = bytes;
      switches_.send(from.node, to.node, from.flow.spine, packet.header_bytes + bytes + kHeadersBelow,
                     [this, &to, packet, capable = segment.ecn_capable](bool marked) { deliver(to, packet, ecn_of(capable, marked)); });
    });
  }
  void deliver(End& to, const Packet& packet, uint8_t ecn) {
    ip::TcpView view;
    UNET_CHECK(ip::parse_tcp(Bytes(packet.header).first(packet.header_bytes), view) == ip::TcpError::none);
    view.payload = Bytes(kZeros).first(packet.payload_bytes);
    to.connection.handle_segment(view, now(), ecn);
    if (to.index % 2 == 1) read(to);
    touch(to);
  }
  void read(End& end) {
    Flow& flow = end.flow;
    flow.bytes += end.connection.readable();
    end.connection.consume(end.connection.readable());
    while ((flow.latencies.size() + 1) * traffic_.bytes <= flow.bytes) flow.latencies.push_back(now() - flow.due[flow.latencies.size()]);
  }

  const Traffic traffic_;
  const Options options_;
  SimSwitches switches_;
  Counters counters_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<Flow>> flows_;
  std::vector<std::unique_ptr<End>> ends_;
  std::vector<End*> touched_;
  std::set<std::pair<Nanoseconds, size_t>> timers_;  // the earliest of each end, with its index
};

}  // namespace unet::tcp::sim
