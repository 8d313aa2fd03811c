// socket_table.h - the table of an application's sockets, which its stack writes into memory of the NI; read by the service and unetctl.
//
//   SocketTableHeader | SocketSlot of each socket, by number | SocketInfoSlot of each
//
// The stack writes a slot when a socket opens, changes its state or closes. Values that change all the time are written on request: the
// service stores the time in `asked` and wakes the stack. Unused pages are not allocated. An application with many sockets has several
// tables. Each holds the numbers after those of the previous one (SocketTables).
//
// All of it may be false, and may change while it is read. Readers copy a slot once, in bounded time, and check the copy. The NI acts on it
// only for ports that the application has claimed.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "unet/base/bytes.h"
#include "unet/wire/address.h"

namespace unet {

constexpr uint32_t kSocketTableFirst = 4096;   // sockets of the first table; each further table has as many as all before it
constexpr uint32_t kSocketTablesMax = 7;       // per endpoint: 256 Ki sockets
constexpr uint32_t kSocketCountersMax = 128;

// The states of RFC 9293, in the order of ipstack/tcp. Other protocols are `established` with a peer, else `closed`.
enum class SocketState : uint8_t {
  closed, listen, syn_sent, syn_received, established, fin_wait_1, fin_wait_2, close_wait, closing, last_ack, time_wait,
};
constexpr uint32_t kSocketStates = 11;

struct SocketFlags {
  static constexpr uint8_t kIpv6 = 1;        // an IPv6 socket
  static constexpr uint8_t kNear = 2;        // the peer is an application of the same NI, over a local channel
  static constexpr uint8_t kClosed = 4;      // closed by the application; the connection is ending
  static constexpr uint8_t kFinSent = 8;
  static constexpr uint8_t kTimestamps = 16;  // negotiated (RFC 7323)
};

// The published state of a socket.
struct SocketRecord {
  uint8_t protocol = 0;             // 6: TCP, 17: UDP; 0: no socket
  uint8_t state = 0;                // SocketState
  uint8_t flags = 0;                // SocketFlags
  uint8_t spare = 0;
  uint16_t local_port = 0, remote_port = 0;
  ip::IpAddress local{}, remote{};
  uint32_t receive_queue = 0;       // unread bytes; for a listener: connections that wait for accept()
  uint32_t send_queue = 0;          // unacknowledged bytes; for a listener: its backlog
  // TCP in a synchronized state: the sequence numbers of both directions when they were last written. They are current while the connection
  // ends.
  uint32_t send_unacknowledged = 0, send_next = 0, receive_next = 0;
  uint32_t timestamp = 0, timestamp_echo = 0;  // for the next segment
  uint32_t spare2 = 0;
  uint64_t told = 0;                // value of SocketTableHeader::asked when the queues were last written; 0: never
};
static_assert(sizeof(SocketRecord) == 80 && std::is_trivially_copyable_v<SocketRecord>);

// Linux's names of congestion control, by tcp::Algorithm. This order is part of the table's layout.
inline constexpr std::array<const char*, 4> kSocketCongestion{"cubic", "reno", "bbr", "dctcp"};

// The other fields of Linux's tcp_info, in its units: bytes, segments, microseconds, and milliseconds for elapsed times (~0: never).
struct SocketInfo {
  uint64_t told = 0;                // value of SocketTableHeader::asked; 0: never
  uint64_t pacing_rate = 0, delivery_rate = 0;  // bytes per second; 0: not paced
  uint64_t bytes_acked = 0, bytes_received = 0, bytes_sent = 0, bytes_retrans = 0;
  uint64_t busy_time = 0, rwnd_limited = 0, sndbuf_limited = 0;
  uint32_t rto = 0, ato = 0, snd_mss = 0, rcv_mss = 0, advmss = 0;
  uint32_t unacked = 0, sacked = 0, lost = 0, retrans = 0;
  uint32_t last_data_sent = 0, last_data_recv = 0, last_ack_recv = 0;
  uint32_t rcv_ssthresh = 0, rcv_space = 0, rcv_rtt = 0;
  uint32_t rtt = 0, rttvar = 0, min_rtt = 0;
  uint32_t snd_ssthresh = 0, snd_cwnd = 0, reordering = 0, total_retrans = 0;
  uint32_t segs_out = 0, segs_in = 0, data_segs_in = 0, data_segs_out = 0;
  uint32_t notsent_bytes = 0, delivered = 0, delivered_ce = 0, dsack_dups = 0, reord_seen = 0, rcv_ooopack = 0;
  uint32_t snd_wnd = 0, rcv_wnd = 0;
  uint8_t congestion = 0;           // index into kSocketCongestion; other values are unknown
  uint8_t ca_state = 0, retransmits = 0, backoff = 0;
  uint8_t timestamps = 0, sack = 0, window_scaling = 0, ecn = 0;
  uint8_t snd_wscale = 0, rcv_wscale = 0;
  uint16_t total_rto = 0, total_rto_recoveries = 0;
  uint8_t spare[2] = {};
  uint32_t total_rto_time = 0;      // milliseconds
  uint32_t spare2 = 0;
};
static_assert(sizeof(SocketInfo) <= 248 && sizeof(SocketInfo) % 8 == 0 && std::is_trivially_copyable_v<SocketInfo>);

// A value with one writer and many readers; its size is a multiple of 8 bytes. A reader that meets the writer in every attempt gives up.
template <typename T, size_t kBytes>
class alignas(64) ToldSlot {
 public:
  void write(const T& value) noexcept {
    std::array<uint64_t, kWords> words{};
    std::memcpy(words.data(), &value, sizeof value);
    const uint64_t mark = mark_.load(std::memory_order_relaxed);
    mark_.store(mark | 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);  // a reader that sees a word of this value also sees the mark
    for (size_t i = 0; i < sizeof(T) / 8; ++i) words_[i].store(words[i], std::memory_order_relaxed);
    mark_.store((mark | 1) + 1, std::memory_order_release);  // the words are stored before it
  }
  // Returns false if each attempt met the writer. `value` may then be a torn copy, which no longer changes.
  bool read(T& value) const noexcept {
    for (int i = 0; i < kTries; ++i) {
      const uint64_t mark = mark_.load(std::memory_order_acquire);
      copy(value);
      std::atomic_thread_fence(std::memory_order_acquire);  // the words are loaded before the second load of the mark
      if ((mark & 1) == 0 && mark_.load(std::memory_order_relaxed) == mark) return true;
    }
    return false;
  }
  // Copies the value of a writer that has ended, perhaps in the middle of a write.
  void copy(T& value) const noexcept {
    std::array<uint64_t, kWords> words;
    for (size_t i = 0; i < sizeof(T) / 8; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof value);
  }

 private:
  static constexpr int kTries = 4;
  static constexpr size_t kWords = kBytes / 8 - 1;
  static_assert(sizeof(T) % 8 == 0 && sizeof(T) <= kWords * 8);
  std::atomic<uint64_t> mark_;  // odd during a write
  std::atomic<uint64_t> words_[kWords];
};
using SocketSlot = ToldSlot<SocketRecord, 128>;
using SocketInfoSlot = ToldSlot<SocketInfo, 256>;
static_assert(sizeof(SocketSlot) == 128 && sizeof(SocketInfoSlot) == 256);

// Counters of a stack, in the order of SocketTableHeader::counters. The counters of TCP follow them (ipstack/sockets checks both lengths).
// A change raises control::kVersion, because unetctl reads them by place.
constexpr std::array<std::string_view, 33> kSocketStackCounters{
    "messages_in", "messages_out", "bad_message", "bad_packet", "bad_segment", "bad_checksum", "bad_datagram", "bad_icmp", "no_socket",
    "queue_full", "icmp_unknown", "connections_in", "connections_out", "listen_overflow", "cookies_sent", "cookies_taken", "cookies_bad",
    "fast_open_in", "fast_open_bad", "fast_open_overflow", "fast_open_learned", "fast_open_avoided", "time_waits", "time_waits_evicted",
    "time_waits_reused", "ports_not_over", "no_room", "near_in", "near_out", "near_refused", "near_bad",
    "moved_out", "moved_in"};
constexpr std::array<std::string_view, 43> kSocketTcpCounters{
    "segments_in", "segments_out", "retransmitted", "timeouts", "spurious", "recoveries", "tail_probes", "window_probes", "keep_alives",
    "challenges", "resets_sent", "resets_received", "urgent", "marks", "reductions", "path_errors", "too_big", "path_probes",
    "path_probes_lost", "black_holes", "malformed", "closed",
    "not_syn", "bad_handshake", "out_of_window", "old_timestamp", "no_timestamp", "blind_reset", "blind_syn", "no_ack", "bad_ack",
    "bad_sack", "duplicate", "beyond_end", "no_memory", "too_many_gaps", "reneged", "unanswered", "send_no_memory", "no_record",
    "undelivered", "undone", "peer_reneged"};
static_assert(kSocketStackCounters.size() + kSocketTcpCounters.size() <= kSocketCountersMax);
static_assert(!kSocketStackCounters.back().empty() && !kSocketTcpCounters.back().empty(), "a name is missing");

struct SocketTableHeader {
  std::atomic<uint32_t> used;       // stack: slots from here on are unused so far
  uint32_t spare;
  std::atomic<uint64_t> asked;      // service: CLOCK_MONOTONIC of the latest request; in the first table
  std::atomic<uint64_t> told;       // stack: value of `asked` when it has written everything; in the first table
  std::atomic<uint64_t> counters[kSocketCountersMax];  // stack: its counters, in the first table
};
static_assert(sizeof(SocketTableHeader) <= 4096);

struct SocketTableGeometry {
  uint32_t sockets = 0;
  uint64_t slots = 0, infos = 0;    // offsets of the arrays
  uint64_t total = 0;               // bytes, whole pages

  static constexpr SocketTableGeometry of(uint32_t sockets) noexcept {
    SocketTableGeometry g{.sockets = sockets, .slots = 4096};
    g.infos = g.slots + uint64_t{sockets} * sizeof(SocketSlot);
    g.total = g.infos + uint64_t{sockets} * sizeof(SocketInfoSlot);
    return g;
  }
  // The geometry of an endpoint's table, by its number.
  static constexpr SocketTableGeometry of_table(uint32_t table) noexcept {
    return of(table == 0 ? kSocketTableFirst : kSocketTableFirst << (table - 1));
  }
};
static_assert(SocketTableGeometry::of_table(0).total % 4096 == 0);

// The table of a socket, and the first socket of a table.
constexpr uint32_t socket_table_of(uint32_t socket) noexcept { return static_cast<uint32_t>(std::bit_width(socket / kSocketTableFirst)); }
constexpr uint32_t socket_table_begin(uint32_t table) noexcept { return table == 0 ? 0 : kSocketTableFirst << (table - 1); }
constexpr uint32_t kSocketsTold = kSocketTableFirst << (kSocketTablesMax - 1);

// A table in memory of at least that size.
class SocketTableView {
 public:
  SocketTableView() noexcept = default;
  SocketTableView(std::byte* memory, const SocketTableGeometry& geometry) noexcept : memory_(memory), geometry_(geometry) {}

  explicit operator bool() const noexcept { return memory_ != nullptr; }
  uint32_t sockets() const noexcept { return geometry_.sockets; }
  SocketTableHeader& header() const noexcept { return *reinterpret_cast<SocketTableHeader*>(memory_); }
  SocketSlot& slot(uint32_t place) const noexcept { return reinterpret_cast<SocketSlot*>(memory_ + geometry_.slots)[place]; }
  SocketInfoSlot& info(uint32_t place) const noexcept { return reinterpret_cast<SocketInfoSlot*>(memory_ + geometry_.infos)[place]; }
  // Number of slots that may be in use, bounded by the geometry.
  uint32_t used() const noexcept {
    const uint32_t used = header().used.load(std::memory_order_acquire);
    return used < geometry_.sockets ? used : geometry_.sockets;
  }

 private:
  std::byte* memory_ = nullptr;
  SocketTableGeometry geometry_{};
};

}  // namespace unet
