// sim_pair.h - two connections and their applications in a simulation; for tests.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ipstack/tcp/connection.h"
#include "ipstack/tcp/sim_packets.h"
#include "unet/base/simulator.h"

namespace unet::tcp::sim {

// The behaviour of the application on one side.
struct Plan {
  uint64_t bytes = 0;
  uint32_t write = 4096, read = 65536;   // bytes per call
  Nanoseconds pause = 0;                 // between two reads
  bool fast_open = false;                // sends data with the SYN, if the other side does, too
  bool urges = false;                    // some writes end with an urgent byte
  bool switches = false;                 // changes its congestion control from time to time
  // Bytes that it may write beyond those it has read; 0 at one end makes requests and answers.
  uint64_t ahead = ~uint64_t{0};
  double moves = 0;                      // probability per step that the connection moves to another object
  uint64_t move_at = 0;                  // one further step at which it moves; 0: none
  bool close_early = false;              // shutdown() as soon as all is written, not after the peer's FIN
};

struct Side {
  Options options;
  Plan plan;
  Counters counters;
  std::unique_ptr<ChunkPool> chunks;
  std::unique_ptr<RecordPool> records;
  std::unique_ptr<Resources> resources;
  std::unique_ptr<Connection> connection;
  uint64_t written = 0, read = 0;
  uint64_t moved = 0;
  uint64_t urged = 0, urgent = 0;        // end of its last urgent data; end of the peer's, as far as announced
  bool ended = false, shut = false;
  Nanoseconds reads_at = 0;
  Nanoseconds finished_at = 0;           // when it read the end of the stream
};

inline constexpr std::array<std::byte, 8> kCookie{};

class Pair : public Simulator, private SimNode {
 public:
  // Each direction has a link with these options.
  Pair(const SimLinkOptions& link, uint64_t seed)
      : Simulator(seed, kSecond, 20'000'000), links_{SimLink(*this, link), SimLink(*this, link)} {
    add(*this);
  }

  // Largest segment, payload and options; longer ones are lost and reported by ICMP; 0: any.
  uint16_t mss_max = 0;
  bool silent = false;                   // no ICMP for them (black hole)

  Side& side(size_t which) { return sides_[which]; }
  void set_pool(size_t which, uint32_t chunks, uint32_t records) { pools_[which] = {chunks, records}; }
  std::pair<uint32_t, uint32_t> pool(size_t which) const { return pools_[which]; }
  // Opens both sides; `simultaneous`: both call connect().
  void open(bool simultaneous);
  // Runs until nothing more happens, or until that time, or until a fault.
  void run(Nanoseconds until) {
    while (fault_.empty() && step(until)) {
    }
  }

  // The first error found in what was received; "": none.
  const std::string& fault() const { return fault_; }

 private:
  std::byte pattern(size_t from, uint64_t place) const {
    return static_cast<std::byte>(place * 31 + place / 251 + place / 65521 + from * 77);
  }
  Nanoseconds process() override;
  void act(size_t which);
  void move(size_t which);
  void transmit(size_t which);
  void send(size_t from, Packet packet, bool ecn_capable);
  void deliver(size_t to, const Packet& packet, uint8_t ecn);

  std::array<SimLink, 2> links_;         // of each sender
  std::array<Side, 2> sides_;
  std::array<std::pair<uint32_t, uint32_t>, 2> pools_{{{512, 1024}, {512, 1024}}};
  std::string fault_;
};

inline void Pair::open(bool simultaneous) {
  for (size_t which = 0; which < 2; ++which) {
    Side& side = sides_[which];
    side.chunks = std::make_unique<ChunkPool>(2048, pools_[which].first);
    side.records = std::make_unique<RecordPool>(pools_[which].second);
    side.resources = std::make_unique<Resources>(Resources{*side.chunks, *side.records, side.counters});
    side.connection = std::make_unique<Connection>(side.options, *side.resources, static_cast<uint16_t>(1000 + which));
    const Sequence iss{static_cast<uint32_t>(random())};
    if (which == 0 || simultaneous) {
      side.connection->connect(static_cast<uint16_t>(1001 - which), iss, now());
      if (side.plan.fast_open) side.connection->fast_open(kCookie);
    } else {
      side.connection->listen(iss);
      side.connection->answer_fast_open(side.plan.fast_open, kCookie);
    }
  }
  transmit(0);
  transmit(1);
}

// Lets the application write, read and shut down as far as it can.
inline void Pair::act(size_t which) {
  Side& side = sides_[which];
  Connection& it = *side.connection;
  if (side.plan.switches && random() % 16 == 0) it.set_congestion(static_cast<Algorithm>(random() % kAlgorithmCount), now());
  const uint64_t most = side.plan.ahead < side.plan.bytes ? std::min(side.plan.bytes, side.read + side.plan.ahead) : side.plan.bytes;
  while (side.written < most && it.writable() != 0) {
    std::vector<std::byte> data(std::min<uint64_t>(side.plan.write, most - side.written));
    for (size_t i = 0; i < data.size(); ++i) data[i] = pattern(which, side.written + i);
    const Transferred done = it.send(data);
    side.written += done.bytes;
    if (done.bytes == 0) break;
    if (side.plan.urges && it.state() == State::established && random() % 8 == 0) {
      it.mark_urgent();
      side.urged = side.written;
    }
  }
  while (now() >= side.reads_at && !side.ended) {
    std::vector<std::byte> data(side.plan.read);
    const Transferred done = it.receive(data);
    if (done.at_end) {
      side.ended = true;
      side.finished_at = now();
    }
    if (done.bytes == 0) break;
    for (uint32_t i = 0; i < done.bytes; ++i) {
      if (data[i] != pattern(1 - which, side.read + i) && fault_.empty()) fault_ = "byte " + std::to_string(side.read + i) + " differs";
    }
    side.read += done.bytes;
    if (side.plan.pause != 0) side.reads_at = now() + side.plan.pause;
  }
  const bool open = it.state() == State::established || it.state() == State::close_wait;
  if (!side.shut && open && side.written == side.plan.bytes && (side.plan.close_early || side.ended)) {
    side.shut = true;
    it.shutdown();
  }
}

// Moves the connection to a new object, as if that were in another process.
inline void Pair::move(size_t which) {
  Side& side = sides_[which];
  if (!side.connection->may_move()) return;
  const MovedConnection moved = side.connection->save();
  std::vector<std::byte> to_send(moved.to_send), to_read(moved.to_read);
  side.connection->copy_to_send(to_send);
  side.connection->copy_to_read(to_read);
  side.connection->leave();
  side.connection = std::make_unique<Connection>(side.options, *side.resources, moved.local_port);
  if (!side.connection->restore(moved, to_send, to_read, now())) fault_ = "a connection that cannot be moved";
  ++side.moved;
}

inline void Pair::send(size_t from, Packet packet, bool ecn_capable) {
  if (mss_max != 0 && packet.size() - sizeof(ip::TcpHeader) > mss_max) {
    if (silent || chance(links_[from].options.loss)) return;
    ip::TcpView view;
    if (ip::parse_tcp(packet, view) != ip::TcpError::none) fault_ = "a segment that cannot be parsed";
    return at(now() + links_[from].options.delay, [this, from, sequence = view.sequence] {  // an ICMP error returns
      Connection& it = *sides_[from].connection;
      if (it.under_way(sequence)) it.handle_too_big(mss_max, now());
      wake();
    });
  }
  const auto bytes = static_cast<uint32_t>(packet.size()) + kHeadersBelow;
  links_[from].send(now(), bytes, [this, from, packet = std::move(packet), ecn_capable](bool marked) {
    deliver(1 - from, packet, ecn_of(ecn_capable, marked));
  });
}

inline void Pair::transmit(size_t which) {
  act(which);
  Connection& it = *sides_[which].connection;
  Segment segment;
  const uint32_t most = which == 0 ? 65536 : it.mss();
  for (int i = 0; it.poll_segment(now(), std::max(most, 1u), segment); ++i) {
    const char* const wrong = send_packets(it, segment, [&](Packet packet) { send(which, std::move(packet), segment.ecn_capable); });
    if (wrong != nullptr && fault_.empty()) fault_ = wrong;
    if (i > 100000) fault_ = "segments without end";
    if (!fault_.empty()) return;
  }
}

inline void Pair::deliver(size_t to, const Packet& packet, uint8_t ecn) {
  ip::TcpView view;
  if (ip::parse_tcp(packet, view) != ip::TcpError::none) fault_ = "a segment that cannot be parsed";
  Side& side = sides_[to];
  side.connection->handle_segment(view, now(), ecn);
  if (const auto before = side.connection->take_urgent()) side.urgent = std::max(side.urgent, side.read + *before + 1);
  if (side.urgent > sides_[1 - to].urged) fault_ = "told of urgent data that there is not";
  if (random() % 4 != 0) transmit(to);  // several segments may arrive before a poll
  wake();
}

inline Nanoseconds Pair::process() {
  Nanoseconds next = kNever;
  for (size_t which = 0; which < 2; ++which) {
    Side& side = sides_[which];
    if (chance(side.plan.moves) || (side.plan.move_at != 0 && side.plan.move_at == steps())) move(which);
    side.connection->handle_timer(now());
    transmit(which);
    next = std::min(next, side.connection->next_timer());
    const bool reads_later = side.plan.pause != 0 && !side.ended && side.connection->readiness().readable;
    if (reads_later) next = std::min(next, std::max(side.reads_at, now()));
  }
  return next;
}

inline double draw_percent(std::mt19937_64& random, uint64_t most) { return static_cast<double>(random() % (most + 1)) / 100; }

// A link with a delay, and some jitter, loss and duplication of at most so many percent.
inline SimLinkOptions draw_link(std::mt19937_64& random, uint64_t most) {
  SimLinkOptions link;
  link.delay = 1 + random() % (20 * kMillisecond);
  if (random() % 2 == 0) link.jitter = 1 + random() % (2 * link.delay);
  if (random() % 2 == 0) link.loss = draw_percent(random, most);
  if (random() % 2 == 0) link.duplicate = draw_percent(random, most);
  return link;
}

// All options but the MSS and the buffers. `recovery`: F-RTO and HyStart++, too.
inline void draw_options(std::mt19937_64& random, Options& options, bool recovery) {
  options.pacing = random() % 3 == 0;
  options.window_scaling = random() % 2 == 0;
  options.timestamps = random() % 2 == 0;
  options.sack = random() % 3 != 0;
  options.nagle = random() % 2 == 0;
  if (recovery) {
    options.forward_recovery = random() % 3 != 0;
    options.hystart = random() % 2 == 0;
  }
  options.ecn = static_cast<Ecn>(random() % 3);
  options.mtu_probing = static_cast<MtuProbing>(random() % 3);
  options.congestion = static_cast<Algorithm>(random() % kAlgorithmCount);
  if (random() % 3 == 0) options.ack_delay = random() % (200 * kMillisecond);
  if (random() % 2 == 0) options.ack_gather = random() % kMillisecond;
  options.rto_max = 5 * kSecond;
  options.data_timeout = 100'000 * kSecond;
  options.syn_timeout = 100'000 * kSecond;
}

inline std::string describe(Pair& pair) {
  std::ostringstream text;
  text << "at " << pair.now() / kMillisecond << " ms";
  for (const size_t which : {0u, 1u}) {
    Side& side = pair.side(which);
    const Connection& it = *side.connection;
    text << "\n  " << to_string(it.state()) << ", moved " << side.moved << ", wrote " << side.written << " of " << side.plan.bytes
         << ", read " << side.read << ", readable " << it.readable() << ", unacknowledged " << it.unacknowledged() << ", in flight "
         << it.in_flight() << ", window " << it.send_window() << ", free " << side.chunks->available() << " chunks, "
         << side.records->available() << " records, segments " << side.counters.segments_in << " in, " << side.counters.segments_out
         << " out, retransmitted " << side.counters.retransmitted << ", timeouts " << side.counters.timeouts << ", out of window "
         << side.counters.out_of_window << ", bad ack " << side.counters.bad_ack << ", closed " << side.counters.closed << ", PAWS "
         << side.counters.old_timestamp << ", resets " << side.counters.resets_sent << " sent, " << side.counters.resets_received
         << " received";
  }
  return text.str();
}

}  // namespace unet::tcp::sim
