// socket_tables.cc - slots by number, over tables that grow.
#include "ipstack/sockets/socket_tables.h"

#include <algorithm>
#include <limits>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {
namespace {

// Writes counters in the order of their struct; unetctl has their names.
template <typename Counters>
size_t copy_counters(SocketTableHeader& header, size_t at, const Counters& counters) noexcept {
  static_assert(sizeof(Counters) % sizeof(uint64_t) == 0 && std::is_trivially_copyable_v<Counters>);
  std::array<uint64_t, sizeof(Counters) / sizeof(uint64_t)> values;
  std::memcpy(values.data(), &counters, sizeof counters);
  for (const uint64_t value : values) header.counters[at++].store(value, std::memory_order_relaxed);
  return at;
}
static_assert(sizeof(StackCounters) / sizeof(uint64_t) == kSocketStackCounters.size());
static_assert(sizeof(tcp::Counters) / sizeof(uint64_t) == kSocketTcpCounters.size());
static_assert(tcp::kAlgorithmCount == kSocketCongestion.size());

uint32_t microseconds(Nanoseconds time) noexcept {
  return static_cast<uint32_t>(std::min<Nanoseconds>(time / kMicrosecond, std::numeric_limits<uint32_t>::max()));
}
uint32_t milliseconds(Nanoseconds time) noexcept {
  return time == ~Nanoseconds{0} ? ~uint32_t{0} : static_cast<uint32_t>(std::min<Nanoseconds>(time / kMillisecond, ~uint32_t{0} - 1));
}

}  // namespace

uint32_t SocketTables::take() {
  if (!free_.empty()) {
    const uint32_t place = free_.back();
    free_.pop_back();
    return place;
  }
  const uint32_t table = socket_table_of(next_);
  if (count_ <= table) {
    if (refused_ || table >= kSocketTablesMax) return kNone;
    tables_[count_] = network_.open_sockets();
    refused_ = !tables_[count_];
    if (refused_) return kNone;
    ++count_;
    free_.reserve(socket_table_begin(count_));  // so that returning a place never allocates
  }
  return next_++;
}

void SocketTables::put(uint32_t place, const SocketRecord& record) noexcept {
  if (place == kNone) return;
  const uint32_t table = socket_table_of(place), at = place - socket_table_begin(table);
  tables_[table].slot(at).write(record);
  std::atomic<uint32_t>& used = tables_[table].header().used;
  if (at >= used.load(std::memory_order_relaxed)) used.store(at + 1, std::memory_order_release);
}

void SocketTables::give_back(uint32_t place) noexcept {
  if (place == kNone) return;
  put(place, {});
  free_.push_back(place);
}

uint64_t SocketTables::asked() const noexcept {
  if (count_ == 0) return 0;
  const SocketTableHeader& header = tables_[0].header();
  const uint64_t asked = header.asked.load(std::memory_order_acquire);
  return asked == header.told.load(std::memory_order_relaxed) ? 0 : asked;
}

void SocketTables::put_info(uint32_t place, const SocketInfo& info) noexcept {
  if (place == kNone) return;
  const uint32_t table = socket_table_of(place);
  tables_[table].info(place - socket_table_begin(table)).write(info);
}

void SocketTables::finish(uint64_t asked, const StackCounters& stack, const tcp::Counters& tcp) noexcept {
  SocketTableHeader& header = tables_[0].header();
  copy_counters(header, copy_counters(header, 0, stack), tcp);
  header.told.store(asked, std::memory_order_release);
}

SocketInfo info_of(const tcp::Info& info, uint64_t told) noexcept {
  SocketInfo out{.told = told, .pacing_rate = info.pacing_rate, .delivery_rate = info.delivery_rate, .bytes_acked = info.bytes_acked,
                 .bytes_received = info.bytes_received, .bytes_sent = info.bytes_sent, .bytes_retrans = info.bytes_retrans};
  out.busy_time = info.busy_time / kMicrosecond;
  out.rwnd_limited = info.rwnd_limited / kMicrosecond;
  out.sndbuf_limited = info.sndbuf_limited / kMicrosecond;
  out.rto = microseconds(info.rto);
  out.ato = microseconds(info.ato);
  out.snd_mss = info.snd_mss;
  out.rcv_mss = info.rcv_mss;
  out.advmss = info.advmss;
  out.unacked = info.unacked;
  out.sacked = info.sacked;
  out.lost = info.lost;
  out.retrans = info.retrans;
  out.last_data_sent = milliseconds(info.last_data_sent);
  out.last_data_recv = milliseconds(info.last_data_recv);
  out.last_ack_recv = milliseconds(info.last_ack_recv);
  out.rcv_ssthresh = info.rcv_ssthresh;
  out.rcv_space = info.rcv_space;
  out.rcv_rtt = microseconds(info.rcv_rtt);
  out.rtt = microseconds(info.rtt);
  out.rttvar = microseconds(info.rttvar);
  out.min_rtt = microseconds(info.min_rtt);
  out.snd_ssthresh = info.snd_ssthresh;
  out.snd_cwnd = info.snd_cwnd;
  out.reordering = info.reordering;
  out.total_retrans = info.total_retrans;
  out.total_rto = info.total_rto;
  out.total_rto_recoveries = info.total_rto_recoveries;
  out.total_rto_time = milliseconds(info.total_rto_time);
  out.segs_out = info.segs_out;
  out.segs_in = info.segs_in;
  out.data_segs_in = info.data_segs_in;
  out.data_segs_out = info.data_segs_out;
  out.notsent_bytes = info.notsent_bytes;
  out.delivered = info.delivered;
  out.delivered_ce = info.delivered_ce;
  out.dsack_dups = info.dsack_dups;
  out.reord_seen = info.reord_seen;
  out.rcv_ooopack = info.rcv_ooopack;
  out.snd_wnd = info.snd_wnd;
  out.rcv_wnd = info.rcv_wnd;
  out.congestion = static_cast<uint8_t>(info.congestion);
  out.ca_state = static_cast<uint8_t>(info.ca_state);
  out.retransmits = info.retransmits;
  out.backoff = info.backoff;
  out.timestamps = info.timestamps ? 1 : 0;
  out.sack = info.sack ? 1 : 0;
  out.window_scaling = info.window_scaling ? 1 : 0;
  out.ecn = info.ecn ? 1 : 0;
  out.snd_wscale = info.snd_wscale;
  out.rcv_wscale = info.rcv_wscale;
  return out;
}

}  // namespace unet::sockets
