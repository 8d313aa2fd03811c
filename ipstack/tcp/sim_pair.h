// sim_pair.h - two connections on a wire that loses, duplicates, delays and reorders, in virtual time from a seed; for tests.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "ipstack/tcp/connection.h"
#include "ipstack/tcp/reset.h"

namespace unet::tcp::sim {

struct Wire {
  Nanoseconds delay = kMillisecond;      // one way
  Nanoseconds jitter = 0;                // random addition, up to this
  double loss = 0, repeat = 0;
  // Probability that a segment finds the link stalled, for 0.3 to 1.3 s; all segments behind it wait.
  double stall = 0;
  // Probability of a CE mark on an ECN-capable segment. The bottleneck also marks if its queue is half full.
  double mark = 0;
  double bits_per_second = 0;            // 0: unlimited
  uint32_t queue = 0;                    // bytes before the bottleneck; 0: unlimited
  // Largest segment, payload and options; longer ones are lost and reported by ICMP; 0: any.
  uint16_t mss_max = 0;
  bool silent = false;                   // no ICMP for them (black hole)
};

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

class Pair {
 public:
  Pair(const Wire& wire, uint64_t seed) : wire_(wire), random_(seed) {}

  Side& side(size_t which) { return sides_[which]; }
  void set_pool(size_t which, uint32_t chunks, uint32_t records) { pools_[which] = {chunks, records}; }
  std::pair<uint32_t, uint32_t> pool(size_t which) const { return pools_[which]; }
  // Opens both sides; `simultaneous`: both call connect().
  void open(bool simultaneous);
  // Runs until nothing more happens, or until that time.
  void run(Nanoseconds until);

  Nanoseconds now() const { return now_; }
  // The first error found in what was received; "": none.
  const std::string& fault() const { return fault_; }
  uint64_t steps() const { return steps_; }

 private:
  struct Flying {
    size_t to;
    std::vector<std::byte> bytes;
    bool too_big = false;                // returns to its sender, as an ICMP error
    uint8_t ecn = 0;
  };

  std::byte pattern(size_t from, uint64_t place) const {
    return static_cast<std::byte>(place * 31 + place / 251 + place / 65521 + from * 77);
  }
  bool chance(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }
  void act(size_t which);
  void move(size_t which);
  void transmit(size_t which);
  void put_on_wire(size_t from, const Segment& segment, const Connection* source);
  void send_one(size_t from, const ip::TcpFields& fields, Bytes payload, bool ecn_capable);
  void deliver(const Flying& flying);

  Wire wire_;
  std::mt19937_64 random_;
  std::array<Side, 2> sides_;
  std::array<std::pair<uint32_t, uint32_t>, 2> pools_{{{512, 1024}, {512, 1024}}};
  std::multimap<Nanoseconds, Flying> flying_;
  std::array<Nanoseconds, 2> link_free_{}, stalled_until_{};
  Nanoseconds now_ = kSecond;
  uint64_t steps_ = 0;
  std::string fault_;
};

inline void Pair::open(bool simultaneous) {
  for (size_t which = 0; which < 2; ++which) {
    Side& side = sides_[which];
    side.chunks = std::make_unique<ChunkPool>(2048, pools_[which].first);
    side.records = std::make_unique<RecordPool>(pools_[which].second);
    side.resources = std::make_unique<Resources>(Resources{*side.chunks, *side.records, side.counters});
    side.connection = std::make_unique<Connection>(side.options, *side.resources, static_cast<uint16_t>(1000 + which));
    const Sequence iss{static_cast<uint32_t>(random_())};
    if (which == 0 || simultaneous) {
      side.connection->connect(static_cast<uint16_t>(1001 - which), iss, now_);
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
  if (side.plan.switches && random_() % 16 == 0) it.set_congestion(static_cast<Algorithm>(random_() % kAlgorithmCount), now_);
  const uint64_t most = side.plan.ahead < side.plan.bytes ? std::min(side.plan.bytes, side.read + side.plan.ahead) : side.plan.bytes;
  while (side.written < most && it.writable() != 0) {
    std::vector<std::byte> data(std::min<uint64_t>(side.plan.write, most - side.written));
    for (size_t i = 0; i < data.size(); ++i) data[i] = pattern(which, side.written + i);
    const Transferred done = it.send(data);
    side.written += done.bytes;
    if (done.bytes == 0) break;
    if (side.plan.urges && it.state() == State::established && random_() % 8 == 0) {
      it.mark_urgent();
      side.urged = side.written;
    }
  }
  while (now_ >= side.reads_at && !side.ended) {
    std::vector<std::byte> data(side.plan.read);
    const Transferred done = it.receive(data);
    if (done.at_end) {
      side.ended = true;
      side.finished_at = now_;
    }
    if (done.bytes == 0) break;
    for (uint32_t i = 0; i < done.bytes; ++i) {
      if (data[i] != pattern(1 - which, side.read + i) && fault_.empty()) fault_ = "byte " + std::to_string(side.read + i) + " differs";
    }
    side.read += done.bytes;
    if (side.plan.pause != 0) side.reads_at = now_ + side.plan.pause;
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
  if (!side.connection->restore(moved, to_send, to_read, now_)) fault_ = "a connection that cannot be moved";
  ++side.moved;
}

inline void Pair::send_one(size_t from, const ip::TcpFields& fields, Bytes payload, bool ecn_capable) {
  std::vector<std::byte> bytes(ip::kTcpHeaderMax);
  bytes.resize(ip::emit_tcp(bytes.data(), fields));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  if (wire_.mss_max != 0 && bytes.size() - sizeof(ip::TcpHeader) > wire_.mss_max) {
    if (!wire_.silent && !chance(wire_.loss)) flying_.emplace(now_ + wire_.delay, Flying{from, bytes, true, 0});
    return;
  }
  const size_t times = chance(wire_.loss) ? 0 : chance(wire_.repeat) ? 2 : 1;
  for (size_t i = 0; i < times; ++i) {
    Nanoseconds at = now_;
    bool marked = ecn_capable && wire_.mark != 0 && chance(wire_.mark);
    if (wire_.bits_per_second != 0) {
      const double spent = static_cast<double>(bytes.size() + 40) * 8e9 / wire_.bits_per_second;
      const Nanoseconds start = std::max(now_, link_free_[from]);
      const double waiting = static_cast<double>(start - now_) * wire_.bits_per_second / 8e9;
      if (wire_.queue != 0 && waiting > wire_.queue) return;
      marked = marked || (ecn_capable && wire_.queue != 0 && waiting > wire_.queue / 2.0);
      at = link_free_[from] = start + static_cast<Nanoseconds>(spent);
    }
    if (wire_.stall != 0 && chance(wire_.stall)) stalled_until_[from] = now_ + 300 * kMillisecond + random_() % kSecond;
    at = std::max(at, stalled_until_[from]);
    at += wire_.delay + (wire_.jitter == 0 ? 0 : random_() % wire_.jitter);
    flying_.emplace(at, Flying{1 - from, bytes, false, marked ? uint8_t{3} : ecn_capable ? uint8_t{2} : uint8_t{0}});
  }
}

// Cuts a long segment as TSO does.
inline void Pair::put_on_wire(size_t from, const Segment& segment, const Connection* source) {
  std::vector<std::byte> payload;
  std::array<Bytes, 64> pieces;
  const uint32_t count = source->gather(segment, pieces);
  for (uint32_t i = 0; i < count; ++i) payload.insert(payload.end(), pieces[i].begin(), pieces[i].end());
  if (payload.size() != segment.length && fault_.empty()) fault_ = "a segment without its payload";
  const bool urgent = (segment.fields.flags & ip::TcpFlags::kUrg) != 0;
  if (urgent && segment.length > segment.mss) fault_ = "a segment that would be cut has an urgent pointer";
  size_t at = 0;
  do {
    const size_t bytes = std::min<size_t>(payload.size() - at, segment.mss == 0 ? payload.size() : segment.mss);
    ip::TcpFields fields = segment.fields;
    fields.sequence += static_cast<uint32_t>(at);
    if (at + bytes < payload.size()) fields.flags &= static_cast<uint8_t>(~(ip::TcpFlags::kFin | ip::TcpFlags::kPsh));
    if (at != 0) fields.flags &= static_cast<uint8_t>(~ip::TcpFlags::kCwr);
    send_one(from, fields, Bytes(payload).subspan(at, bytes), segment.ecn_capable);
    at += bytes;
  } while (at < payload.size());
}

inline void Pair::transmit(size_t which) {
  act(which);
  Segment segment;
  const uint32_t most = which == 0 ? 65536 : sides_[which].connection->mss();
  for (int i = 0; sides_[which].connection->poll_segment(now_, std::max(most, 1u), segment); ++i) {
    put_on_wire(which, segment, sides_[which].connection.get());
    if (i > 100000) fault_ = "segments without end";
    if (!fault_.empty()) return;
  }
}

inline void Pair::deliver(const Flying& flying) {
  ip::TcpView view;
  if (ip::parse_tcp(flying.bytes, view) != ip::TcpError::none) fault_ = "a segment that cannot be parsed";
  if (flying.too_big) {
    Connection& it = *sides_[flying.to].connection;
    if (it.under_way(view.sequence)) it.handle_too_big(wire_.mss_max, now_);
    return;
  }
  Side& side = sides_[flying.to];
  side.connection->handle_segment(view, now_, flying.ecn);
  if (const auto before = side.connection->take_urgent()) side.urgent = std::max(side.urgent, side.read + *before + 1);
  if (side.urgent > sides_[1 - flying.to].urged) fault_ = "told of urgent data that there is not";
}

inline void Pair::run(Nanoseconds until) {
  for (uint64_t steps = 0; fault_.empty(); ++steps) {
    if (steps == 20'000'000) fault_ = "events without end";
    ++steps_;
    Nanoseconds next = flying_.empty() ? kNever : flying_.begin()->first;
    for (Side& side : sides_) {
      next = std::min(next, side.connection->next_timer());
      const bool reads_later = side.plan.pause != 0 && !side.ended && side.connection->readiness().readable;
      if (reads_later) next = std::min(next, std::max(side.reads_at, now_));
    }
    if (next == kNever || next > until) break;
    now_ = std::max(now_, next);
    for (size_t which = 0; which < 2; ++which) {
      const Plan& plan = sides_[which].plan;
      if ((plan.moves != 0 && chance(plan.moves)) || (plan.move_at != 0 && plan.move_at == steps_)) move(which);
    }
    while (!flying_.empty() && flying_.begin()->first <= now_) {
      const Flying flying = std::move(flying_.begin()->second);
      flying_.erase(flying_.begin());
      deliver(flying);
      if (random_() % 4 != 0) transmit(flying.to);  // several segments may arrive before a poll
    }
    for (size_t which = 0; which < 2; ++which) {
      sides_[which].connection->handle_timer(now_);
      transmit(which);
    }
  }
}

inline double draw_percent(std::mt19937_64& random, uint64_t most) { return static_cast<double>(random() % (most + 1)) / 100; }

// A wire with a delay, and some jitter, loss and duplication of at most so many percent.
inline Wire draw_wire(std::mt19937_64& random, uint64_t most) {
  Wire wire;
  wire.delay = 1 + random() % (20 * kMillisecond);
  if (random() % 2 == 0) wire.jitter = 1 + random() % (2 * wire.delay);
  if (random() % 2 == 0) wire.loss = draw_percent(random, most);
  if (random() % 2 == 0) wire.repeat = draw_percent(random, most);
  return wire;
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
