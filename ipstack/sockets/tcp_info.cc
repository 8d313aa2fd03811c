// tcp_info.cc - TCP_INFO and TCP_CC_INFO by the kernel's headers, which conflict with the C library's.
#include <linux/inet_diag.h>
#include <linux/tcp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>

#include "ipstack/sockets/tcp_info.h"

namespace unet::sockets {
namespace {

uint32_t us(Nanoseconds time) noexcept {
  return static_cast<uint32_t>(std::min<Nanoseconds>(time / kMicrosecond, std::numeric_limits<uint32_t>::max()));
}
uint32_t ms_ago(Nanoseconds time) noexcept {
  return time == ~Nanoseconds{0} ? 0 : static_cast<uint32_t>(std::min<Nanoseconds>(time / kMillisecond, ~uint32_t{0}));
}

// Linux's number of a state, from include/net/tcp_states.h.
uint8_t linux_state(tcp::State state) noexcept {
  switch (state) {
    case tcp::State::established: return 1;
    case tcp::State::syn_sent: return 2;
    case tcp::State::syn_received: return 3;
    case tcp::State::fin_wait_1: return 4;
    case tcp::State::fin_wait_2: return 5;
    case tcp::State::time_wait: return 6;
    case tcp::State::closed: return 7;
    case tcp::State::close_wait: return 8;
    case tcp::State::last_ack: return 9;
    case tcp::State::listen: return 10;
    case tcp::State::closing: return 11;
  }
  return 7;
}

uint8_t options_of(const tcp::Info& info) noexcept {
  const auto bit = [](bool holds, int value) { return static_cast<uint8_t>(holds ? value : 0); };
  return static_cast<uint8_t>(bit(info.timestamps, TCPI_OPT_TIMESTAMPS) | bit(info.sack, TCPI_OPT_SACK) |
                              bit(info.window_scaling, TCPI_OPT_WSCALE) | bit(info.ecn, TCPI_OPT_ECN) |
                              bit(info.ecn_seen, TCPI_OPT_ECN_SEEN) | bit(info.syn_data, TCPI_OPT_SYN_DATA));
}

// Fields behind tcpi_snd_wnd, new in Linux 6.2 and 6.7, as this machine's headers may be older than the program's.
struct Later {
  uint32_t rcv_wnd;
  uint32_t rehash;                // route changes after timeouts, which this stack does not make
  uint16_t total_rto, total_rto_recoveries;
  uint32_t total_rto_time;        // milliseconds
};
constexpr size_t kLaterAt = offsetof(tcp_info, tcpi_snd_wnd) + sizeof(tcp_info::tcpi_snd_wnd);
static_assert(kLaterAt == 232 && offsetof(Later, total_rto) == 8 && offsetof(Later, total_rto_time) == 12 && sizeof(Later) == 16);

}  // namespace

socklen_t write_tcp_info(const tcp::Info& from, bool ipv6, void* into, socklen_t length) noexcept {
  tcp_info info{};
  info.tcpi_state = linux_state(from.state);
  info.tcpi_ca_state = static_cast<uint8_t>(from.ca_state);
  info.tcpi_retransmits = from.retransmits;
  info.tcpi_probes = from.probes;
  info.tcpi_backoff = from.backoff;
  info.tcpi_options = options_of(from);
  info.tcpi_snd_wscale = from.snd_wscale & 15;
  info.tcpi_rcv_wscale = from.rcv_wscale & 15;
  info.tcpi_delivery_rate_app_limited = from.delivery_rate_app_limited ? 1 : 0;
  info.tcpi_fastopen_client_fail = static_cast<uint8_t>(from.fast_open_failure) & 3;
  info.tcpi_rto = us(from.rto);
  info.tcpi_ato = us(from.ato);
  info.tcpi_snd_mss = from.snd_mss;
  info.tcpi_rcv_mss = from.rcv_mss;
  info.tcpi_unacked = from.unacked;
  info.tcpi_sacked = from.sacked;
  info.tcpi_lost = from.lost;
  info.tcpi_retrans = from.retrans;
  info.tcpi_last_data_sent = ms_ago(from.last_data_sent);
  info.tcpi_last_data_recv = ms_ago(from.last_data_recv);
  info.tcpi_last_ack_recv = ms_ago(from.last_ack_recv);
  info.tcpi_pmtu = from.path_mtu(ipv6);
  info.tcpi_rcv_ssthresh = from.rcv_ssthresh;
  info.tcpi_rtt = us(from.rtt);
  info.tcpi_rttvar = us(from.rttvar);
  info.tcpi_snd_ssthresh = from.snd_ssthresh == ~uint32_t{0} ? 0x7FFF'FFFF : from.snd_ssthresh;
  info.tcpi_snd_cwnd = from.snd_cwnd;
  info.tcpi_advmss = from.advmss;
  info.tcpi_reordering = from.reordering;
  info.tcpi_rcv_rtt = us(from.rcv_rtt);
  info.tcpi_rcv_space = from.rcv_space;
  info.tcpi_total_retrans = from.total_retrans;
  info.tcpi_pacing_rate = from.pacing_rate == 0 ? ~uint64_t{0} : from.pacing_rate;
  info.tcpi_max_pacing_rate = from.max_pacing_rate == 0 ? ~uint64_t{0} : from.max_pacing_rate;
  info.tcpi_bytes_acked = from.bytes_acked;
  info.tcpi_bytes_received = from.bytes_received;
  info.tcpi_segs_out = from.segs_out;
  info.tcpi_segs_in = from.segs_in;
  info.tcpi_notsent_bytes = from.notsent_bytes;
  info.tcpi_min_rtt = us(from.min_rtt);
  info.tcpi_data_segs_in = from.data_segs_in;
  info.tcpi_data_segs_out = from.data_segs_out;
  info.tcpi_delivery_rate = from.delivery_rate;
  info.tcpi_busy_time = from.busy_time / kMicrosecond;
  info.tcpi_rwnd_limited = from.rwnd_limited / kMicrosecond;
  info.tcpi_sndbuf_limited = from.sndbuf_limited / kMicrosecond;
  info.tcpi_delivered = from.delivered;
  info.tcpi_delivered_ce = from.delivered_ce;
  info.tcpi_bytes_sent = from.bytes_sent;
  info.tcpi_bytes_retrans = from.bytes_retrans;
  info.tcpi_dsack_dups = from.dsack_dups;
  info.tcpi_reord_seen = from.reord_seen;
  info.tcpi_rcv_ooopack = from.rcv_ooopack;
  info.tcpi_snd_wnd = from.snd_wnd;
  const Later later{.rcv_wnd = from.rcv_wnd, .rehash = 0, .total_rto = from.total_rto, .total_rto_recoveries = from.total_rto_recoveries,
                    .total_rto_time = static_cast<uint32_t>(from.total_rto_time / kMillisecond)};
  std::array<std::byte, kLaterAt + sizeof later> all;
  std::memcpy(all.data(), &info, kLaterAt);
  std::memcpy(all.data() + kLaterAt, &later, sizeof later);
  const auto bytes = static_cast<socklen_t>(std::min<size_t>(length, sizeof all));
  std::memcpy(into, all.data(), bytes);
  return bytes;
}

socklen_t write_congestion_info(const tcp::Info& from, void* into, socklen_t length) noexcept {
  const auto write = [&](const auto& info) {
    const auto bytes = static_cast<socklen_t>(std::min<size_t>(length, sizeof info));
    std::memcpy(into, &info, bytes);
    return bytes;
  };
  if (from.congestion == tcp::Algorithm::dctcp) {
    return write(tcp_dctcp_info{.dctcp_enabled = 1, .dctcp_ce_state = from.dctcp_ce_state, .dctcp_alpha = from.dctcp_alpha,
                                .dctcp_ab_ecn = from.dctcp_ab_ecn, .dctcp_ab_tot = from.dctcp_ab_tot});
  }
  if (from.congestion != tcp::Algorithm::bbr) return 0;
  const auto gain = [](double value) { return static_cast<uint32_t>(value * 256); };
  tcp_bbr_info info{};
  info.bbr_bw_lo = static_cast<uint32_t>(from.bbr_bw);
  info.bbr_bw_hi = static_cast<uint32_t>(from.bbr_bw >> 32);
  info.bbr_min_rtt = us(from.bbr_min_rtt);
  info.bbr_pacing_gain = gain(from.bbr_pacing_gain);
  info.bbr_cwnd_gain = gain(from.bbr_cwnd_gain);
  return write(info);
}

}  // namespace unet::sockets
