// script_names.h - the names of counters, errors and Info fields in scripts; used by script.cc.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "ipstack/tcp/connection.h"

namespace unet::tcp::test {

inline const std::map<std::string, uint64_t Counters::*> kCounters{
    {"segments_in", &Counters::segments_in}, {"segments_out", &Counters::segments_out}, {"retransmitted", &Counters::retransmitted},
    {"timeouts", &Counters::timeouts}, {"recoveries", &Counters::recoveries}, {"tail_probes", &Counters::tail_probes},
    {"window_probes", &Counters::window_probes}, {"keep_alives", &Counters::keep_alives}, {"challenges", &Counters::challenges},
    {"resets_sent", &Counters::resets_sent}, {"resets_received", &Counters::resets_received}, {"urgent", &Counters::urgent},
    {"closed", &Counters::closed}, {"not_syn", &Counters::not_syn}, {"bad_handshake", &Counters::bad_handshake},
    {"out_of_window", &Counters::out_of_window}, {"old_timestamp", &Counters::old_timestamp}, {"no_timestamp", &Counters::no_timestamp},
    {"blind_reset", &Counters::blind_reset}, {"blind_syn", &Counters::blind_syn}, {"no_ack", &Counters::no_ack},
    {"bad_ack", &Counters::bad_ack}, {"bad_sack", &Counters::bad_sack}, {"duplicate", &Counters::duplicate},
    {"beyond_end", &Counters::beyond_end}, {"no_memory", &Counters::no_memory}, {"too_many_gaps", &Counters::too_many_gaps},
    {"reneged", &Counters::reneged}, {"unanswered", &Counters::unanswered}, {"send_no_memory", &Counters::send_no_memory},
    {"no_record", &Counters::no_record}, {"malformed", &Counters::malformed}, {"marks", &Counters::marks},
    {"reductions", &Counters::reductions}, {"path_errors", &Counters::path_errors},
    {"too_big", &Counters::too_big}, {"black_holes", &Counters::black_holes},
    {"path_probes", &Counters::path_probes}, {"path_probes_lost", &Counters::path_probes_lost}, {"spurious", &Counters::spurious},
    {"undone", &Counters::undone},
    {"undelivered", &Counters::undelivered}, {"peer_reneged", &Counters::peer_reneged},
};

inline const char* to_string(Error error) {
  static constexpr std::array kNames{"none", "not_connected", "exists", "closing", "refused", "reset", "timed_out", "aborted",
                                     "unreachable"};
  return kNames[static_cast<size_t>(error)];
}

inline std::string limit_of(uint32_t bytes) { return bytes == ~uint32_t{0} ? "none" : std::to_string(bytes); }
inline std::string text_of(Nanoseconds time) { return time == ~Nanoseconds{0} ? "never" : std::to_string(time / kMillisecond); }
inline const char* to_string(CongestionState state) {
  static constexpr std::array kNames{"open", "disorder", "cwr", "recovery", "loss"};
  return kNames[static_cast<size_t>(state)];
}

inline const std::map<std::string, PathError> kPathErrors{
    {"none", PathError::none}, {"network_unreachable", PathError::network_unreachable}, {"host_unreachable", PathError::host_unreachable},
    {"time_exceeded", PathError::time_exceeded}, {"parameter_problem", PathError::parameter_problem},
    {"protocol_unreachable", PathError::protocol_unreachable}, {"port_unreachable", PathError::port_unreachable},
    {"prohibited", PathError::prohibited},
};

inline const std::map<std::string, Algorithm> kAlgorithms{
    {"newreno", Algorithm::newreno}, {"cubic", Algorithm::cubic}, {"bbr", Algorithm::bbr}, {"dctcp", Algorithm::dctcp}};

inline const char* to_string(Algorithm algorithm) {
  const auto it = std::find_if(kAlgorithms.begin(), kAlgorithms.end(), [&](const auto& each) { return each.second == algorithm; });
  return it->first.c_str();
}

// Values of Info as text; times in milliseconds.
#define UNET_INFO(NAME) {#NAME, [](const Info& info) { return std::to_string(info.NAME); }}
#define UNET_INFO_TIME(NAME) {#NAME, [](const Info& info) { return text_of(info.NAME); }}
inline const std::map<std::string, std::string (*)(const Info&)> kInfo{
    {"state", [](const Info& info) { return std::string(tcp::to_string(info.state)); }},
    {"ca_state", [](const Info& info) { return std::string(to_string(info.ca_state)); }},
    {"congestion", [](const Info& info) { return std::string(to_string(info.congestion)); }},
    {"fast_open_failure", [](const Info& info) { return std::to_string(static_cast<int>(info.fast_open_failure)); }},
    {"bbr_state", [](const Info& info) { return std::string(info.bbr_state); }},
    {"bbr_inflight_shortterm", [](const Info& info) { return limit_of(info.bbr_inflight_shortterm); }},
    {"bbr_inflight_longterm", [](const Info& info) { return limit_of(info.bbr_inflight_longterm); }},
    UNET_INFO(bbr_bw), UNET_INFO_TIME(bbr_min_rtt),
    UNET_INFO(retransmits), UNET_INFO(probes), UNET_INFO(backoff), UNET_INFO(timestamps), UNET_INFO(sack), UNET_INFO(syn_data),
    UNET_INFO(pacing_rate), UNET_INFO(max_pacing_rate), UNET_INFO(rcv_space), UNET_INFO(ecn),
    UNET_INFO(ecn_seen), UNET_INFO(delivered_ce),
    UNET_INFO(dctcp_alpha), UNET_INFO(dctcp_ab_ecn), UNET_INFO(dctcp_ab_tot), UNET_INFO(window_scaling),
    UNET_INFO(snd_wscale), UNET_INFO(rcv_wscale), UNET_INFO(delivery_rate_app_limited), UNET_INFO(snd_mss), UNET_INFO(rcv_mss),
    UNET_INFO(advmss), UNET_INFO(unacked), UNET_INFO(sacked), UNET_INFO(lost), UNET_INFO(retrans), UNET_INFO(rcv_ssthresh),
    UNET_INFO(snd_ssthresh), UNET_INFO(snd_cwnd), UNET_INFO(reordering), UNET_INFO(total_retrans), UNET_INFO(bytes_acked),
    UNET_INFO(bytes_received), UNET_INFO(segs_out), UNET_INFO(segs_in), UNET_INFO(data_segs_in), UNET_INFO(data_segs_out),
    UNET_INFO(notsent_bytes), UNET_INFO(delivery_rate), UNET_INFO(delivered), UNET_INFO(bytes_sent), UNET_INFO(bytes_retrans),
    UNET_INFO(dsack_dups), UNET_INFO(reord_seen), UNET_INFO(rcv_ooopack), UNET_INFO(snd_wnd), UNET_INFO(rcv_wnd),
    UNET_INFO_TIME(rto), UNET_INFO_TIME(rcv_rtt), UNET_INFO_TIME(ato), UNET_INFO_TIME(last_data_sent), UNET_INFO_TIME(last_data_recv),
    UNET_INFO_TIME(last_ack_recv), UNET_INFO_TIME(rtt), UNET_INFO_TIME(rttvar), UNET_INFO_TIME(min_rtt), UNET_INFO_TIME(busy_time),
    UNET_INFO_TIME(rwnd_limited), UNET_INFO_TIME(sndbuf_limited),
    UNET_INFO(total_rto), UNET_INFO(total_rto_recoveries), UNET_INFO_TIME(total_rto_time),
};
#undef UNET_INFO
#undef UNET_INFO_TIME

}  // namespace unet::tcp::test
