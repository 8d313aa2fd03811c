// sockets_test.cc - filters and formats of sockets, and tables with arbitrary contents.
#include "apps/unetctl/sockets.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>

namespace unet::unetctl::sockets_test {
namespace {

ip::IpAddress address(const char* text) { return *ip::parse_address(text); }

SocketRow row(SocketState state, uint16_t local, const char* remote, uint16_t port, uint8_t protocol = 6) {
  SocketRow made{.number = 7};
  made.record = {.protocol = protocol, .state = static_cast<uint8_t>(state), .local_port = local, .remote_port = port,
                 .local = address("10.0.0.1"), .receive_queue = 3, .send_queue = 4, .told = 50};
  if (*remote != 0) made.record.remote = address(remote);
  return made;
}

SocketList some() {
  SocketList list;
  list.now = 2 * kSecond;
  list.processes = {{.pid = 11, .uid = 1000, .endpoint = 2, .program = "web\x1b[2J", .asked = 50, .answered = true},
                    {.pid = 12, .uid = 0, .endpoint = 3, .program = "other", .asked = kSecond}};
  list.sockets = {row(SocketState::listen, 80, "", 0), row(SocketState::established, 80, "10.0.0.2", 4000),
                  row(SocketState::established, 5000, "fd00::2", 443), row(SocketState::closed, 53, "", 0, 17),
                  row(SocketState::time_wait, 80, "10.0.0.3", 4001)};
  list.sockets[1].info = SocketInfo{.told = 50, .bytes_sent = 123, .rto = 200'000, .rtt = 1'500};
  list.sockets[2].process = 1;
  list.stacks = {{.process = 0, .counters = std::vector<uint64_t>(kSocketStackCounters.size() + kSocketTcpCounters.size(), 1)}};
  return list;
}

size_t shown(SocketsOptions options) {
  options.as_json = true;
  const auto filter = SocketFilter::parse(options);
  REQUIRE(filter);
  return nlohmann::json::parse(show_sockets(some(), *filter, options)).size();
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("options and filters say which sockets are shown") {
  CHECK(shown({}) == 3);
  CHECK(shown({.listening = true}) == 2);
  CHECK(shown({.all = true}) == 5);
  CHECK(shown({.tcp = true, .all = true}) == 4);
  CHECK(shown({.udp = true, .all = true}) == 1);
  CHECK(shown({.tcp = true, .udp = true, .all = true}) == 5);
  CHECK(shown({.all = true, .filter = {"sport", "=", ":80"}}) == 3);
  CHECK(shown({.all = true, .filter = {"sport", "!=", "80"}}) == 2);
  CHECK(shown({.filter = {"dport", ">=", ":4000", "and", "dport", "lt", ":4001"}}) == 1);
  CHECK(shown({.filter = {"state", "time-wait"}}) == 1);
  CHECK(shown({.filter = {"state", "listening", "state", "established"}}) == 3);
  CHECK(shown({.filter = {"state", "all"}}) == 5);
  CHECK(shown({.filter = {"dst", "fd00::2"}}) == 1);
  CHECK(shown({.filter = {"src", "10.0.0.9"}}) == 0);
  CHECK(shown({.filter = {"pid", "12"}}) == 1);
}

TEST_CASE("filters that mean nothing are refused") {
  const std::vector<std::vector<std::string>> wrong{{"state"}, {"state", "open"}, {"sport"}, {"sport", "="}, {"sport", "~", ":80"},
                                                    {"sport", "=", ":99999"}, {"sport", "=", ":"}, {"dst", "nowhere"}, {"pid", "x"},
                                                    {"colour", "red"}};
  for (const auto& words : wrong) {
    const auto filter = SocketFilter::parse({.filter = words});
    REQUIRE_FALSE(filter);
    CHECK(filter.error().code == Errc::invalid_argument);
  }
}

TEST_CASE("as ss writes them") {
  const SocketsOptions options{.all = true, .info = true, .processes = true};
  const std::string text = show_sockets(some(), *SocketFilter::parse(options), options);
  CHECK(contains(text, "10.0.0.1:80"));
  CHECK(contains(text, "0.0.0.0:*"));
  CHECK(contains(text, "[fd00::2]:443"));
  CHECK(contains(text, "ESTAB"));
  CHECK(contains(text, "TIME-WAIT"));
  CHECK(contains(text, "(\"web?[2J\",pid=11,fd=7)"));  // no terminal command passes in a program's name
  CHECK(contains(text, "bytes_sent:123"));
  CHECK(contains(text, "rtt:1.5/0"));
  CHECK(contains(text, "1999 ms old"));  // the second process has not answered
  CHECK(contains(show_sockets({}, *SocketFilter::parse(options), options), "no sockets"));
}

TEST_CASE("JSON, and what stacks have counted") {
  SocketsOptions options{.info = true, .as_json = true};
  const auto all = nlohmann::json::parse(show_sockets(some(), *SocketFilter::parse(options), options));
  REQUIRE(all.size() == 3);
  CHECK(all[0]["state"] == "ESTAB");
  CHECK(all[0]["remote"] == "10.0.0.2");
  CHECK(all[0]["info"]["bytes_sent"] == 123);
  CHECK(all[0]["age_ms"] == 0);
  CHECK(all[1]["pid"] == 12);
  CHECK_FALSE(all[1].contains("info"));
  options.stacks = true;
  const auto stacks = nlohmann::json::parse(show_sockets(some(), *SocketFilter::parse(options), options));
  CHECK(stacks[0]["counters"]["messages_in"] == 1);
  CHECK(stacks[0]["counters"]["tcp_segments_out"] == 1);
  options.as_json = false;
  CHECK(contains(show_sockets(some(), *SocketFilter::parse(options), options), "tcp_timeouts"));
}

TEST_CASE("all that is told of a connection is shown, each under its own name") {
  SocketList list = some();
  list.sockets = {list.sockets[1]};
  list.sockets[0].info = SocketInfo{
      .told = 50, .pacing_rate = 101, .delivery_rate = 102, .bytes_acked = 103, .bytes_received = 104, .bytes_sent = 105,
      .bytes_retrans = 106, .busy_time = 107, .rwnd_limited = 108, .sndbuf_limited = 109, .rto = 110'000, .ato = 111'000, .snd_mss = 112,
      .rcv_mss = 113, .advmss = 114, .unacked = 115, .sacked = 116, .lost = 117, .retrans = 118, .last_data_sent = 119,
      .last_data_recv = 120, .last_ack_recv = 121, .rcv_ssthresh = 122, .rcv_space = 123, .rcv_rtt = 124, .rtt = 125'000,
      .rttvar = 126'000, .min_rtt = 127, .snd_ssthresh = 128, .snd_cwnd = 129, .reordering = 130, .total_retrans = 131,
      .segs_out = 132, .segs_in = 133, .data_segs_in = 134, .data_segs_out = 135, .notsent_bytes = 136, .delivered = 137,
      .delivered_ce = 138, .dsack_dups = 139, .reord_seen = 140, .rcv_ooopack = 141, .snd_wnd = 142, .rcv_wnd = 143,
      .congestion = 1, .ca_state = 3, .retransmits = 144, .backoff = 145, .timestamps = 1, .window_scaling = 1, .snd_wscale = 7,
      .rcv_wscale = 9, .total_rto = 146, .total_rto_recoveries = 147, .total_rto_time = 148};
  SocketsOptions options{.info = true};
  CHECK(contains(show_sockets(list, *SocketFilter::parse(options), options),
      "reno ts wscale:7,9 rto:110 rtt:125/126 mss:112 rcvmss:113 advmss:114 cwnd:129 ssthresh:128 backoff:145 bytes_sent:105 "
      "bytes_retrans:106 bytes_acked:103 bytes_received:104 segs_out:132 segs_in:133 data_segs_out:135 data_segs_in:134 lastsnd:119 "
      "lastrcv:120 lastack:121 pacing_rate:101 delivery_rate:102 delivered:137 busy_us:107 rwnd_limited_us:108 sndbuf_limited_us:109 "
      "unacked:115 retrans_total:131 rto_total:146 rto_recoveries:147 rto_time_ms:148 lost:117 sacked:116 dsack_dups:139 reordering:130 "
      "rcv_rtt_us:124 rcv_space:123 rcv_ooopack:141 notsent:136 minrtt_us:127 snd_wnd:142 rcv_wnd:143\n"));
  options.as_json = true;
  const auto shown = nlohmann::json::parse(show_sockets(list, *SocketFilter::parse(options), options));
  CHECK(shown[0]["info"] == nlohmann::json::parse(R"({
      "congestion": "reno", "ca_state": 3, "retransmits": 144, "backoff": 145, "timestamps": true, "sack": false, "ecn": false,
      "snd_wscale": 7, "rcv_wscale": 9, "rto_us": 110000, "ato_us": 111000, "snd_mss": 112, "rcv_mss": 113, "advmss": 114,
      "unacked": 115, "sacked": 116, "lost": 117, "retrans": 118, "rcv_ssthresh": 122, "rcv_space": 123, "rcv_rtt_us": 124,
      "rtt_us": 125000, "rttvar_us": 126000, "min_rtt_us": 127, "snd_ssthresh": 128, "snd_cwnd": 129, "reordering": 130,
      "total_retrans": 131, "total_rto": 146, "total_rto_recoveries": 147, "total_rto_time_ms": 148, "bytes_acked": 103,
      "bytes_received": 104, "bytes_sent": 105, "bytes_retrans": 106, "segs_out": 132, "segs_in": 133, "data_segs_out": 135,
      "data_segs_in": 134, "notsent_bytes": 136, "pacing_rate": 101, "delivery_rate": 102, "busy_us": 107, "rwnd_limited_us": 108,
      "sndbuf_limited_us": 109, "delivered": 137, "delivered_ce": 138, "dsack_dups": 139, "reord_seen": 140, "rcv_ooopack": 141,
      "snd_wnd": 142, "rcv_wnd": 143})"));
}

TEST_CASE("a table may hold anything") {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  const SocketTableGeometry geometry = SocketTableGeometry::of_table(0);
  const std::unique_ptr<Line[]> lines(new Line[geometry.total / 64]());
  std::mt19937_64 random(3);
  for (int round = 0; round < 10; ++round) {
    auto* const words = reinterpret_cast<uint64_t*>(lines.get());
    for (uint64_t i = 0; i < geometry.total / 8; ++i) words[i] = random();
    for (uint64_t i = 0; i < geometry.total / 64 && round % 2 == 0; ++i) words[i * 8] &= ~uint64_t{1};  // nothing is being written
    SocketList list;
    list.processes.push_back({.pid = 1});
    read_table(SocketTableView(lines[0].bytes, geometry), 0, 0, list);
    CHECK(list.sockets.size() <= geometry.sockets);
    for (const bool as_json : {false, true}) {
      const SocketsOptions options{.all = true, .info = true, .processes = true, .as_json = as_json};
      const std::string text = show_sockets(list, *SocketFilter::parse(options), options);
      const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t' || (c >= 0x20 && c < 0x7f); });
      CHECK(plain);
    }
  }
}

}  // namespace unet::unetctl::sockets_test
