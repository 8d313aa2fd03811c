// sockets.cc - filters sockets and formats them.
#include "apps/unetctl/sockets.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "apps/unetctl/table.h"
#include "apps/unetctl/views.h"
#include "unet/wire/ip.h"

namespace unet::unetctl {
namespace {

using nlohmann::json;

// State names as ss prints them, and as its filters name them.
constexpr std::array<std::string_view, kSocketStates> kStates{"UNCONN", "LISTEN", "SYN-SENT", "SYN-RECV", "ESTAB", "FIN-WAIT-1",
                                                              "FIN-WAIT-2", "CLOSE-WAIT", "CLOSING", "LAST-ACK", "TIME-WAIT"};
constexpr std::array<std::string_view, kSocketStates> kStateWords{
    "closed", "listening", "syn-sent", "syn-recv", "established", "fin-wait-1", "fin-wait-2", "close-wait", "closing", "last-ack",
    "time-wait"};
constexpr uint32_t kAll = (1u << kSocketStates) - 1;
constexpr uint32_t kListening = 1u << static_cast<uint32_t>(SocketState::listen) | 1u << static_cast<uint32_t>(SocketState::closed);

tl::unexpected<Error> wrong(const std::string& text) { return fail(Errc::invalid_argument, "filter: " + text); }

std::optional<uint32_t> number_of(std::string_view text, uint32_t most) {
  uint32_t value = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || at != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

std::string operator_of(const std::string& word) {
  if (word == "=" || word == "==" || word == "eq") return "=";
  if (word == "!=" || word == "ne" || word == "neq") return "!=";
  if (word == "<" || word == "lt") return "<";
  if (word == ">" || word == "gt") return ">";
  if (word == "<=" || word == "le" || word == "leq") return "<=";
  if (word == ">=" || word == "ge" || word == "geq") return ">=";
  return "";
}

bool holds(const std::string& op, uint32_t a, uint32_t b) {
  if (op == "=") return a == b;
  if (op == "!=") return a != b;
  if (op == "<") return a < b;
  if (op == ">") return a > b;
  return op == "<=" ? a <= b : a >= b;
}

const char* protocol_of(const SocketRecord& record) {
  return record.protocol == ip::Protocol::kTcp ? "tcp" : record.protocol == ip::Protocol::kUdp ? "udp" : "?";
}

std::string end_of(const SocketRecord& record, const ip::IpAddress& address, uint16_t port) {
  const bool ipv6 = (record.flags & SocketFlags::kIpv6) != 0;
  std::string host = ip::text_of(address);
  if (address.is_unspecified()) host = ipv6 ? "*" : "0.0.0.0";
  else if (!address.is_ipv4()) host = "[" + host + "]";
  return host + ":" + (port == 0 ? "*" : std::to_string(port));
}

// The age of a process's figures; none: it has never written any.
std::optional<Nanoseconds> age_of(const SocketList& list, const SocketRow& row) {
  const Process& process = list.processes[row.process];
  if (row.record.told == 0) return std::nullopt;
  if (row.record.told == process.asked || row.record.told > list.now) return 0;
  return list.now - row.record.told;
}

std::string ms(uint32_t microseconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", microseconds / 1000.0);
  return text.data();
}

const char* congestion_name(const SocketInfo& i) {
  return i.congestion < kSocketCongestion.size() ? kSocketCongestion[i.congestion] : "unknown";
}

// The second line of -i, in the words of ss. A local stream is not TCP: it has only its traffic and windows.
std::string info_line(const SocketInfo& i, bool near) {
  std::string out = near ? "near" : congestion_name(i);
  const auto flag = [&](bool on, const char* word) { out += on ? std::string(" ") + word : ""; };
  const auto word = [&](const char* name, const std::string& value) { out += std::string(" ") + name + ":" + value; };
  const auto count = [&](const char* name, uint64_t value) {
    if (value != 0) word(name, std::to_string(value));
  };
  flag(i.timestamps != 0, "ts");
  flag(i.sack != 0, "sack");
  flag(i.ecn != 0, "ecn");
  if (i.window_scaling != 0) word("wscale", std::to_string(i.snd_wscale) + "," + std::to_string(i.rcv_wscale));
  if (!near) word("rto", ms(i.rto));
  if (!near) word("rtt", ms(i.rtt) + "/" + ms(i.rttvar));
  word("mss", std::to_string(i.snd_mss));
  count("rcvmss", i.rcv_mss);
  count("advmss", i.advmss);
  if (!near) word("cwnd", std::to_string(i.snd_cwnd));
  if (i.snd_ssthresh != ~uint32_t{0}) count("ssthresh", i.snd_ssthresh);
  count("backoff", i.backoff);
  count("bytes_sent", i.bytes_sent);
  count("bytes_retrans", i.bytes_retrans);
  count("bytes_acked", i.bytes_acked);
  count("bytes_received", i.bytes_received);
  count("segs_out", i.segs_out);
  count("segs_in", i.segs_in);
  count("data_segs_out", i.data_segs_out);
  count("data_segs_in", i.data_segs_in);
  if (i.last_data_sent != ~uint32_t{0}) count("lastsnd", i.last_data_sent);
  if (i.last_data_recv != ~uint32_t{0}) count("lastrcv", i.last_data_recv);
  if (i.last_ack_recv != ~uint32_t{0}) count("lastack", i.last_ack_recv);
  count("pacing_rate", i.pacing_rate);
  count("delivery_rate", i.delivery_rate);
  count("delivered", i.delivered);
  count("busy_us", i.busy_time);
  count("rwnd_limited_us", i.rwnd_limited);
  count("sndbuf_limited_us", i.sndbuf_limited);
  count("unacked", i.unacked);
  count("retrans_total", i.total_retrans);
  count("rto_total", i.total_rto);
  count("rto_recoveries", i.total_rto_recoveries);
  count("rto_time_ms", i.total_rto_time);
  count("lost", i.lost);
  count("sacked", i.sacked);
  count("dsack_dups", i.dsack_dups);
  count("reordering", i.reordering > 3 ? i.reordering : 0);
  count("rcv_rtt_us", i.rcv_rtt);
  count("rcv_space", i.rcv_space);
  count("rcv_ooopack", i.rcv_ooopack);
  count("notsent", i.notsent_bytes);
  count("minrtt_us", i.min_rtt);
  count("snd_wnd", i.snd_wnd);
  count("rcv_wnd", i.rcv_wnd);
  return out;
}

json info_json(const SocketInfo& i) {
  return {{"congestion", congestion_name(i)}, {"ca_state", i.ca_state}, {"retransmits", i.retransmits},
          {"backoff", i.backoff}, {"timestamps", i.timestamps != 0}, {"sack", i.sack != 0}, {"ecn", i.ecn != 0},
          {"snd_wscale", i.snd_wscale}, {"rcv_wscale", i.rcv_wscale}, {"rto_us", i.rto}, {"ato_us", i.ato}, {"snd_mss", i.snd_mss},
          {"rcv_mss", i.rcv_mss}, {"advmss", i.advmss}, {"unacked", i.unacked}, {"sacked", i.sacked}, {"lost", i.lost},
          {"retrans", i.retrans}, {"rcv_ssthresh", i.rcv_ssthresh}, {"rcv_space", i.rcv_space}, {"rcv_rtt_us", i.rcv_rtt},
          {"rtt_us", i.rtt}, {"rttvar_us", i.rttvar}, {"min_rtt_us", i.min_rtt}, {"snd_ssthresh", i.snd_ssthresh},
          {"snd_cwnd", i.snd_cwnd}, {"reordering", i.reordering}, {"total_retrans", i.total_retrans}, {"total_rto", i.total_rto},
          {"total_rto_recoveries", i.total_rto_recoveries}, {"total_rto_time_ms", i.total_rto_time}, {"bytes_acked", i.bytes_acked},
          {"bytes_received", i.bytes_received}, {"bytes_sent", i.bytes_sent}, {"bytes_retrans", i.bytes_retrans},
          {"segs_out", i.segs_out}, {"segs_in", i.segs_in}, {"data_segs_out", i.data_segs_out}, {"data_segs_in", i.data_segs_in},
          {"notsent_bytes", i.notsent_bytes}, {"pacing_rate", i.pacing_rate}, {"delivery_rate", i.delivery_rate},
          {"busy_us", i.busy_time}, {"rwnd_limited_us", i.rwnd_limited}, {"sndbuf_limited_us", i.sndbuf_limited},
          {"delivered", i.delivered}, {"delivered_ce", i.delivered_ce}, {"dsack_dups", i.dsack_dups}, {"reord_seen", i.reord_seen},
          {"rcv_ooopack", i.rcv_ooopack}, {"snd_wnd", i.snd_wnd}, {"rcv_wnd", i.rcv_wnd}};
}

std::string_view counter_name(size_t at) {
  return at < kSocketStackCounters.size() ? kSocketStackCounters[at] : kSocketTcpCounters[at - kSocketStackCounters.size()];
}
std::string counter_key(size_t at) { return (at < kSocketStackCounters.size() ? "" : "tcp_") + std::string(counter_name(at)); }

std::string show_stacks(const SocketList& list, bool as_json) {
  json all = json::array();
  Table table({"pid", "program", "endpoint", "counter", "value"});
  for (const StackRow& stack : list.stacks) {
    const Process& process = list.processes[stack.process];
    json counters = json::object();
    for (size_t i = 0; i < stack.counters.size(); ++i) {
      counters[counter_key(i)] = stack.counters[i];
      if (stack.counters[i] == 0) continue;
      table.add({std::to_string(process.pid), printable(process.program), std::to_string(process.endpoint), counter_key(i),
                 std::to_string(stack.counters[i])});
    }
    all.push_back({{"pid", process.pid}, {"uid", process.uid}, {"program", process.program}, {"endpoint", process.endpoint},
                   {"answered", process.answered}, {"counters", counters}});
  }
  return as_json ? all.dump(2, ' ', true, json::error_handler_t::replace) + "\n" : table.text("no stack has counted anything");
}

json socket_json(const SocketList& list, const SocketRow& row, bool with_info) {
  const SocketRecord& r = row.record;
  const Process& process = list.processes[row.process];
  const auto address = [](const ip::IpAddress& a) { return a.is_unspecified() ? json() : json(ip::text_of(a)); };
  const std::optional<Nanoseconds> age = age_of(list, row);
  json socket{{"protocol", protocol_of(r)}, {"state", kStates[r.state]}, {"ipv6", (r.flags & SocketFlags::kIpv6) != 0},
              {"near", (r.flags & SocketFlags::kNear) != 0}, {"closed", (r.flags & SocketFlags::kClosed) != 0},
              {"receive_queue", r.receive_queue}, {"send_queue", r.send_queue}, {"local", address(r.local)},
              {"local_port", r.local_port}, {"remote", address(r.remote)}, {"remote_port", r.remote_port}, {"pid", process.pid},
              {"uid", process.uid}, {"program", process.program}, {"endpoint", process.endpoint}, {"socket", row.number},
              {"age_ms", age ? json(*age / kMillisecond) : json()}};
  if (with_info && row.info) socket["info"] = info_json(*row.info);
  return socket;
}

}  // namespace

void read_table(const SocketTableView& table, uint32_t first, size_t process, SocketList& into) {
  for (uint32_t place = 0; place < table.used(); ++place) {
    SocketRow row{.process = process, .number = first + place};
    if (!table.slot(place).read(row.record)) continue;  // always changing: not a valid record
    if (row.record.protocol == 0 || row.record.state >= kSocketStates) continue;
    SocketInfo info;
    if (row.record.told != 0 && table.info(place).read(info) && info.told == row.record.told) row.info = info;
    into.sockets.push_back(row);
  }
}

Result<SocketFilter> SocketFilter::parse(const SocketsOptions& options) {
  SocketFilter filter;
  if (options.tcp != options.udp) {
    filter.tcp_ = options.tcp;
    filter.udp_ = options.udp;
  }
  filter.states_ = options.all ? kAll : options.listening ? kListening : kAll & ~kListening;
  uint32_t asked = 0;
  for (size_t i = 0; i < options.filter.size(); ++i) {
    const std::string& word = options.filter[i];
    if (word == "and" || word == "&" || word == "&&") continue;
    const auto next = [&]() -> std::string { return ++i < options.filter.size() ? options.filter[i] : ""; };
    if (word == "state") {
      const std::string name = next();
      const auto at = std::find(kStateWords.begin(), kStateWords.end(), name);
      if (name == "all") asked |= kAll;
      else if (name == "connected") asked |= kAll & ~kListening;
      else if (at != kStateWords.end()) asked |= 1u << (at - kStateWords.begin());
      else return wrong("there is no state '" + name + "'");
    } else if (word == "sport" || word == "dport") {
      Port port{.local = word == "sport", .op = operator_of(next())};
      const std::string text = next();
      const auto number = number_of(text.starts_with(':') ? std::string_view(text).substr(1) : std::string_view(text), 65535);
      if (port.op.empty() || !number) return wrong("write " + word + " = :PORT, or with one of != < > <= >=");
      port.port = *number;
      filter.ports_.push_back(port);
    } else if (word == "src" || word == "dst") {
      const std::string text = next();
      const Result<ip::IpAddress> address = ip::parse_address(text);
      if (!address) return wrong(address.error().text);
      filter.hosts_.push_back({.local = word == "src", .address = *address});
    } else if (word == "pid") {
      const std::string text = next();
      const auto number = number_of(text, 0x7FFF'FFFF);
      if (!number) return wrong("'" + text + "' is not a process id");
      filter.pids_.push_back(static_cast<int32_t>(*number));
    } else {
      return wrong("'" + word + "' is not one of state, sport, dport, src, dst, pid");
    }
  }
  if (asked != 0) filter.states_ = asked;
  return filter;
}

bool SocketFilter::shows(const SocketRow& row, const Process& process) const {
  const SocketRecord& r = row.record;
  if (r.protocol == ip::Protocol::kTcp ? !tcp_ : !udp_) return false;
  if ((states_ >> r.state & 1) == 0) return false;
  const auto fits_port = [&](const Port& p) { return holds(p.op, p.local ? r.local_port : r.remote_port, p.port); };
  const auto fits_host = [&](const Host& h) { return (h.local ? r.local : r.remote) == h.address; };
  const bool pid = pids_.empty() || std::find(pids_.begin(), pids_.end(), process.pid) != pids_.end();
  return pid && std::all_of(ports_.begin(), ports_.end(), fits_port) && std::all_of(hosts_.begin(), hosts_.end(), fits_host);
}

std::string show_sockets(const SocketList& list, const SocketFilter& filter, const SocketsOptions& options) {
  if (options.stacks) return show_stacks(list, options.as_json);
  json all = json::array();
  std::vector<std::string> heading{"Netid", "State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port"};
  if (options.processes) heading.emplace_back("Process");
  Table table(std::move(heading));
  std::vector<std::string> infos;
  std::optional<Nanoseconds> oldest = 0;
  for (const SocketRow& row : list.sockets) {
    const SocketRecord& r = row.record;
    const Process& process = list.processes[row.process];
    if (!filter.shows(row, process)) continue;
    if (options.as_json) {
      all.push_back(socket_json(list, row, options.info));
      continue;
    }
    std::vector<std::string> cells{protocol_of(r), std::string(kStates[r.state]), std::to_string(r.receive_queue),
                                   std::to_string(r.send_queue), end_of(r, r.local, r.local_port),
                                   end_of(r, r.remote, r.remote_port)};
    if (options.processes) {
      const std::string number = std::to_string(row.number);
      cells.push_back("(\"" + printable(process.program) + "\",pid=" + std::to_string(process.pid) + ",fd=" + number + ")");
    }
    table.add(std::move(cells));
    const bool near = (r.flags & SocketFlags::kNear) != 0;
    infos.push_back(row.info ? info_line(*row.info, near) : near ? "near" : "");
    const std::optional<Nanoseconds> age = age_of(list, row);
    oldest = oldest && age ? std::optional(std::max(*oldest, *age)) : std::nullopt;
  }
  if (options.as_json) return all.dump(2, ' ', true, json::error_handler_t::replace) + "\n";
  std::string text = table.text("no sockets");
  if (options.info && !infos.empty()) {
    std::string with;
    size_t line = 0, at = 0;
    while (at < text.size()) {
      const size_t end = text.find('\n', at) + 1;
      with += text.substr(at, end - at);
      if (line != 0 && !infos[line - 1].empty()) with += "\t " + infos[line - 1] + "\n";
      at = end;
      ++line;
    }
    text = with;
  }
  if (!oldest) text += "(some processes have never told their queues: they are in no call)\n";
  if (oldest.value_or(0) == 0) return text;
  const std::string age = std::to_string(*oldest / kMillisecond);
  return text + "(some queues are up to " + age + " ms old: their processes are in no call)\n";
}

}  // namespace unet::unetctl
