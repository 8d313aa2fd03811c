// tcp_info_test.cc - TCP_INFO and TCP_CC_INFO in the kernel's layout, and what the socket tables have of it: every field at its place.
#include <linux/tcp.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "ipstack/sockets/socket_tables.h"
#include "ipstack/sockets/tcp_info.h"

namespace unet::sockets::tcp_info_test {
namespace {

// Every field has a different number, also in the units in which Linux shows it.
tcp::Info numbered() {
  tcp::Info info;
  info.state = tcp::State::close_wait;
  info.ca_state = tcp::CongestionState::recovery;
  info.retransmits = 17;
  info.probes = 18;
  info.backoff = 19;
  info.timestamps = info.window_scaling = true;
  info.snd_wscale = 7;
  info.rcv_wscale = 9;
  info.delivery_rate_app_limited = true;
  info.fast_open_failure = tcp::FastOpenFailure::data_not_taken;
  info.rto = 101 * kMicrosecond;
  info.ato = 102 * kMicrosecond;
  info.snd_mss = 103;
  info.rcv_mss = 104;
  info.unacked = 105;
  info.sacked = 106;
  info.lost = 107;
  info.retrans = 108;
  info.last_data_sent = 109 * kMillisecond;
  info.last_data_recv = 110 * kMillisecond;
  info.last_ack_recv = 111 * kMillisecond;
  info.rcv_ssthresh = 112;
  info.rtt = 113 * kMicrosecond;
  info.rttvar = 114 * kMicrosecond;
  info.snd_ssthresh = 115;
  info.snd_cwnd = 116;
  info.advmss = 117;
  info.reordering = 118;
  info.rcv_rtt = 119 * kMicrosecond;
  info.rcv_space = 120;
  info.total_retrans = 121;
  info.pacing_rate = 122;
  info.max_pacing_rate = 123;
  info.bytes_acked = 124;
  info.bytes_received = 125;
  info.segs_out = 126;
  info.segs_in = 127;
  info.notsent_bytes = 128;
  info.min_rtt = 129 * kMicrosecond;
  info.data_segs_in = 130;
  info.data_segs_out = 131;
  info.delivery_rate = 132;
  info.busy_time = 133 * kMicrosecond;
  info.rwnd_limited = 134 * kMicrosecond;
  info.sndbuf_limited = 135 * kMicrosecond;
  info.delivered = 136;
  info.delivered_ce = 137;
  info.bytes_sent = 138;
  info.bytes_retrans = 139;
  info.dsack_dups = 140;
  info.reord_seen = 141;
  info.rcv_ooopack = 142;
  info.snd_wnd = 143;
  info.rcv_wnd = 144;
  info.total_rto = 145;
  info.total_rto_recoveries = 146;
  info.total_rto_time = 147 * kMillisecond;
  info.congestion = tcp::Algorithm::bbr;
  return info;
}

struct Field {
  const char* name;
  size_t at, size;
  uint64_t value;
};
#define FIELD(TYPE, NAME, VALUE) {#NAME, offsetof(TYPE, NAME), sizeof(TYPE::NAME), VALUE}

// They are at their places with their values, and there are no others.
void check(const std::vector<Field>& fields, const std::byte* data, size_t bytes) {
  std::vector<bool> known(bytes);
  for (const Field& field : fields) {
    INFO(field.name);
    REQUIRE(field.at + field.size <= bytes);
    uint64_t value = 0;
    std::memcpy(&value, data + field.at, field.size);  // little-endian, as all that this runs on
    CHECK(value == field.value);
    std::fill_n(known.begin() + static_cast<std::ptrdiff_t>(field.at), field.size, true);
  }
  INFO("of these bytes there is one that belongs to no field");
  CHECK(std::count(known.begin(), known.end(), false) == 0);
}

constexpr socklen_t kLength = 248;

}  // namespace

TEST_CASE("TCP_INFO has every field where the kernel has it") {
#define TCP(NAME, VALUE) FIELD(tcp_info, tcpi_##NAME, VALUE)
  const std::vector<Field> fields{
      TCP(state, 8), TCP(ca_state, 3), TCP(retransmits, 17), TCP(probes, 18), TCP(backoff, 19),
      TCP(options, TCPI_OPT_TIMESTAMPS | TCPI_OPT_WSCALE), {"snd_wscale and rcv_wscale", 6, 1, 0x97},
      {"delivery_rate_app_limited and fastopen_client_fail", 7, 1, 0b101},
      TCP(rto, 101), TCP(ato, 102), TCP(snd_mss, 103), TCP(rcv_mss, 104), TCP(unacked, 105), TCP(sacked, 106), TCP(lost, 107),
      TCP(retrans, 108), TCP(fackets, 0), TCP(last_data_sent, 109), TCP(last_ack_sent, 0), TCP(last_data_recv, 110),
      TCP(last_ack_recv, 111), TCP(pmtu, 103 + 20 + 20 + 12), TCP(rcv_ssthresh, 112), TCP(rtt, 113), TCP(rttvar, 114),
      TCP(snd_ssthresh, 115), TCP(snd_cwnd, 116), TCP(advmss, 117), TCP(reordering, 118), TCP(rcv_rtt, 119), TCP(rcv_space, 120),
      TCP(total_retrans, 121), TCP(pacing_rate, 122), TCP(max_pacing_rate, 123), TCP(bytes_acked, 124), TCP(bytes_received, 125),
      TCP(segs_out, 126), TCP(segs_in, 127), TCP(notsent_bytes, 128), TCP(min_rtt, 129), TCP(data_segs_in, 130),
      TCP(data_segs_out, 131), TCP(delivery_rate, 132), TCP(busy_time, 133), TCP(rwnd_limited, 134), TCP(sndbuf_limited, 135),
      TCP(delivered, 136), TCP(delivered_ce, 137), TCP(bytes_sent, 138), TCP(bytes_retrans, 139), TCP(dsack_dups, 140),
      TCP(reord_seen, 141), TCP(rcv_ooopack, 142), TCP(snd_wnd, 143),
      // Fields of Linux 6.2 and 6.7; this machine's headers may be older.
      {"rcv_wnd", 232, 4, 144}, {"rehash", 236, 4, 0}, {"total_rto", 240, 2, 145}, {"total_rto_recoveries", 242, 2, 146},
      {"total_rto_time", 244, 4, 147}};
#undef TCP
  std::array<std::byte, kLength + 8> room;
  room.fill(std::byte{0x55});
  REQUIRE(write_tcp_info(numbered(), false, room.data(), room.size()) == kLength);
  check(fields, room.data(), kLength);
  CHECK(room[kLength] == std::byte{0x55});
}

TEST_CASE("TCP_INFO's options, each by itself") {
  const auto options = [](auto set) {
    tcp::Info info;
    set(info);
    tcp_info out{};
    write_tcp_info(info, false, &out, sizeof out);
    return int{out.tcpi_options};
  };
  CHECK(options([](tcp::Info&) {}) == 0);
  CHECK(options([](tcp::Info& info) { info.timestamps = true; }) == TCPI_OPT_TIMESTAMPS);
  CHECK(options([](tcp::Info& info) { info.sack = true; }) == TCPI_OPT_SACK);
  CHECK(options([](tcp::Info& info) { info.window_scaling = true; }) == TCPI_OPT_WSCALE);
  CHECK(options([](tcp::Info& info) { info.ecn = true; }) == TCPI_OPT_ECN);
  CHECK(options([](tcp::Info& info) { info.ecn_seen = true; }) == TCPI_OPT_ECN_SEEN);
  CHECK(options([](tcp::Info& info) { info.syn_data = true; }) == TCPI_OPT_SYN_DATA);
}

TEST_CASE("TCP_INFO of what there is none of, and as far as there is room") {
  tcp_info info{};
  write_tcp_info({.snd_ssthresh = ~0u}, true, &info, sizeof info);
  CHECK(info.tcpi_pacing_rate == ~uint64_t{0});
  CHECK(info.tcpi_max_pacing_rate == ~uint64_t{0});
  CHECK(info.tcpi_snd_ssthresh == 0x7FFF'FFFF);
  CHECK(info.tcpi_last_data_sent == 0);
  CHECK(info.tcpi_pmtu == 0);
  write_tcp_info(numbered(), true, &info, sizeof info);
  CHECK(info.tcpi_pmtu == 103 + 40 + 20 + 12);
  std::array<std::byte, kLength> all, part;
  write_tcp_info(numbered(), false, all.data(), all.size());
  for (socklen_t length = 0; length <= kLength; ++length) {
    part.fill(std::byte{0x55});
    CHECK(write_tcp_info(numbered(), false, part.data(), length) == length);
    CHECK(std::memcmp(part.data(), all.data(), length) == 0);
    CHECK((length == kLength || part[length] == std::byte{0x55}));
  }
}

TEST_CASE("TCP_CC_INFO is of BBR and DCTCP only") {
  tcp::Info from;
  std::array<std::byte, 24> room{};
  CHECK(write_congestion_info(from, room.data(), room.size()) == 0);
  from.congestion = tcp::Algorithm::bbr;
  from.bbr_bw = 5'000'000'000;
  from.bbr_min_rtt = 1500 * kMicrosecond;
  from.bbr_pacing_gain = 2.5;
  from.bbr_cwnd_gain = 2;
  CHECK(write_congestion_info(from, room.data(), room.size()) == 20);
  std::array<uint32_t, 5> words;
  std::memcpy(words.data(), room.data(), sizeof words);
  CHECK(words == std::array<uint32_t, 5>{705'032'704, 1, 1500, 640, 512});
  CHECK(write_congestion_info(from, room.data(), 4) == 4);
  from.congestion = tcp::Algorithm::dctcp;
  from.dctcp_ce_state = true;
  from.dctcp_alpha = 512;
  from.dctcp_ab_ecn = 3000;
  from.dctcp_ab_tot = 9000;
  CHECK(write_congestion_info(from, room.data(), room.size()) == 16);
  std::memcpy(words.data(), room.data(), 16);
  CHECK(words == std::array<uint32_t, 5>{0x1'0001, 512, 3000, 9000, 512});
}

TEST_CASE("the socket tables have every field") {
#define OF(NAME, VALUE) FIELD(SocketInfo, NAME, VALUE)
  const std::vector<Field> fields{
      OF(told, 9), OF(pacing_rate, 122), OF(delivery_rate, 132), OF(bytes_acked, 124), OF(bytes_received, 125), OF(bytes_sent, 138),
      OF(bytes_retrans, 139), OF(busy_time, 133), OF(rwnd_limited, 134), OF(sndbuf_limited, 135), OF(rto, 101), OF(ato, 102),
      OF(snd_mss, 103), OF(rcv_mss, 104), OF(advmss, 117), OF(unacked, 105), OF(sacked, 106), OF(lost, 107), OF(retrans, 108),
      OF(last_data_sent, 109), OF(last_data_recv, 110), OF(last_ack_recv, 111), OF(rcv_ssthresh, 112), OF(rcv_space, 120),
      OF(rcv_rtt, 119), OF(rtt, 113), OF(rttvar, 114), OF(min_rtt, 129), OF(snd_ssthresh, 115), OF(snd_cwnd, 116),
      OF(reordering, 118), OF(total_retrans, 121), OF(segs_out, 126), OF(segs_in, 127), OF(data_segs_in, 130), OF(data_segs_out, 131),
      OF(notsent_bytes, 128), OF(delivered, 136), OF(delivered_ce, 137), OF(dsack_dups, 140), OF(reord_seen, 141),
      OF(rcv_ooopack, 142), OF(snd_wnd, 143), OF(rcv_wnd, 144), OF(congestion, 2), OF(ca_state, 3), OF(retransmits, 17),
      OF(backoff, 19), OF(timestamps, 1), OF(sack, 0), OF(window_scaling, 1), OF(ecn, 0), OF(snd_wscale, 7), OF(rcv_wscale, 9),
      OF(total_rto, 145), OF(total_rto_recoveries, 146), OF(spare, 0), OF(total_rto_time, 147), OF(spare2, 0)};
#undef OF
  SocketInfo out = info_of(numbered(), 9);
  check(fields, reinterpret_cast<const std::byte*>(&out), sizeof out);
  tcp::Info other;
  other.sack = other.ecn = true;
  out = info_of(other, 9);
  CHECK(std::array{out.timestamps, out.sack, out.window_scaling, out.ecn} == std::array<uint8_t, 4>{0, 1, 0, 1});
  CHECK(out.last_data_sent == ~uint32_t{0});
  other.timestamps = true;
  other.sack = false;
  out = info_of(other, 9);
  CHECK(std::array{out.timestamps, out.sack, out.window_scaling, out.ecn} == std::array<uint8_t, 4>{1, 0, 0, 1});
}
#undef FIELD

}  // namespace unet::sockets::tcp_info_test
