// script.cc - runs the script language of script.h against one Connection in virtual time.
#include "ipstack/tcp/script.h"

#include <algorithm>
#include <array>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <tuple>

#include "ipstack/tcp/connection.h"
#include "ipstack/tcp/script_line.h"
#include "ipstack/tcp/script_link.h"
#include "ipstack/tcp/script_names.h"

namespace unet::tcp::test {
namespace {

constexpr uint16_t kOurPort = 80, kPeerPort = 4000;
constexpr uint32_t kPeerClock = 5000;  // offset of the peer's timestamps from the script's milliseconds
constexpr Nanoseconds kTolerance = kMillisecond / 2;

std::byte pattern(uint32_t place, bool ours) { return static_cast<std::byte>(place * 7 + place / 256 + (ours ? 1 : 101)); }

std::string show(Nanoseconds time) { return std::to_string(static_cast<double>(time) / 1e6) + " ms"; }

class Runner {
 public:
  explicit Runner(Messages messages) : messages_(messages) {
    options_.mss = 1000;
    options_.nagle = options_.sack = options_.timestamps = options_.window_scaling = false;
    options_.congestion = Algorithm::newreno;
    options_.ecn = Ecn::off;
    options_.forward_recovery = options_.hystart = false;
    options_.mtu_probing = MtuProbing::off;
    options_.rto_min = 200 * kMillisecond;
    options_.send_buffer = options_.receive_buffer = 60000;
    options_.send_buffer_max = options_.receive_buffer_max = 0;
  }

  void step(std::string text) {
    Nanoseconds wait = 0;
    auto w = words(text);
    if (w[0][0] == '+') {
      wait = duration(w[0].substr(1));
      text = text.substr(text.find(w[0]) + w[0].size());
      w.erase(w.begin());
      if (w.empty()) w.push_back("drain");
    }
    if (w[0] == "set") return set(w.at(1), number(w.at(2)));
    if (connection_ == nullptr) create();
    if (w[0] == "flow") return flow(w, wait);
    const size_t sign = text.find_first_of("<>");
    if (w[0] == ">") return expect(parse_line(text.substr(sign + 1)), wait);
    if (wait != 0 || w[0] == "<") advance(wait, false);
    if (w[0] != "<") return command(w);
    inject(parse_line(text.substr(sign + 1)));
    poll();
  }

  void finish() {
    poll();
    nothing_left();
    connection_.reset();
    if (chunks_ == nullptr) return;
    check("chunks given back", chunk_count_, chunks_->available());
    check("records given back", record_count_, records_->available());
  }

 private:
  struct Out {
    Segment segment;
    std::string payload;  // "", or how it differs from the pattern
    std::vector<std::byte> cookie;
    Nanoseconds at = 0;
  };

  template <typename T>
  static std::string text_of(const T& value) {
    std::ostringstream out;
    out << value;
    return out.str();
  }
  template <typename A, typename B>
  static void check(const std::string& what, const A& expected, const B& got) {
    if (text_of(expected) == text_of(got)) return;
    wrong("expected " + what + " " + text_of(expected) + ", got " + text_of(got));
  }

  void set(const std::string& name, uint64_t value) {
    const Nanoseconds time = value * kMillisecond;
    const auto small = static_cast<uint16_t>(value);
    const std::map<std::string, std::pair<Nanoseconds*, Nanoseconds>> times{
        {"ack_delay", {&options_.ack_delay, time}}, {"ack_gather", {&options_.ack_gather, time}},
        {"rto_first", {&options_.rto_first, time}}, {"rto_min", {&options_.rto_min, time}}, {"rto_max", {&options_.rto_max, time}},
        {"syn_timeout", {&options_.syn_timeout, time}},
        {"data_timeout", {&options_.data_timeout, time}}, {"user_timeout", {&options_.user_timeout, time}},
        {"time_wait", {&options_.time_wait, time}},
        {"fin_wait_2", {&options_.fin_wait_2, time}}, {"keep_alive_idle", {&options_.keep_alive_idle, time}},
        {"keep_alive_interval", {&options_.keep_alive_interval, time}}};
    const std::map<std::string, bool*> switches{{"nagle", &options_.nagle}, {"cork", &options_.cork}, {"sack", &options_.sack},
        {"timestamps", &options_.timestamps}, {"forward_recovery", &options_.forward_recovery},
        {"hystart", &options_.hystart}, {"pacing", &options_.pacing}, {"window_scaling", &options_.window_scaling}};
    if (times.count(name) != 0) {
      *times.at(name).first = times.at(name).second;
    } else if (switches.count(name) != 0) {
      *switches.at(name) = value != 0;
    } else if (name == "mss") {
      options_.mss = small;
    } else if (name == "default_mss") {
      options_.default_mss = small;
    } else if (name == "initial_window") {
      options_.initial_window = small;
    } else if (name == "slow_start_limit") {
      options_.slow_start_limit = small;
    } else if (name == "challenges") {
      options_.challenges = static_cast<uint8_t>(value);
    } else if (name == "keep_alive_probes") {
      options_.keep_alive_probes = static_cast<uint8_t>(value);
    } else if (name == "max_pacing_rate") {
      options_.max_pacing_rate = value;
    } else if (name == "send_buffer") {
      options_.send_buffer = static_cast<uint32_t>(value);
    } else if (name == "receive_buffer") {
      options_.receive_buffer = static_cast<uint32_t>(value);
    } else if (name == "send_buffer_max") {
      options_.send_buffer_max = static_cast<uint32_t>(value);
    } else if (name == "receive_buffer_max") {
      options_.receive_buffer_max = static_cast<uint32_t>(value);
    } else if (name == "cubic") {
      options_.congestion = value != 0 ? Algorithm::cubic : Algorithm::newreno;
    } else if (name == "bbr") {
      if (value != 0) options_.congestion = Algorithm::bbr;
    } else if (name == "dctcp") {
      if (value != 0) options_.congestion = Algorithm::dctcp;
    } else if (name == "ecn") {
      options_.ecn = static_cast<Ecn>(value);
    } else if (name == "mtu_probing") {
      options_.mtu_probing = static_cast<MtuProbing>(value);
    } else if (name == "path") {
      path_ = small;
    } else if (name == "iss") {
      iss_ = {static_cast<uint32_t>(value)};
    } else if (name == "irs") {
      irs_ = {static_cast<uint32_t>(value)};
    } else if (name == "timestamp_offset") {
      offset_ = static_cast<uint32_t>(value);
    } else if (name == "chunks") {
      chunk_count_ = static_cast<uint32_t>(value);
    } else if (name == "records") {
      record_count_ = static_cast<uint32_t>(value);
    } else if (name == "long_messages") {
      if (value == 0) messages_ = Messages::segments;
    } else if (name == "length_max") {
      length_max_ = static_cast<uint32_t>(value);
    } else {
      wrong("unknown setting: " + name);
    }
  }

  void create() {
    chunks_ = std::make_unique<ChunkPool>(1024, chunk_count_);
    records_ = std::make_unique<RecordPool>(record_count_);
    resources_ = std::make_unique<Resources>(Resources{*chunks_, *records_, counters_});
    connection_ = std::make_unique<Connection>(options_, *resources_, kOurPort);
    if (path_ != 0) connection_->limit_path(path_);
  }

  // ---- time

  void poll() {
    for (int i = 0; i < 1000; ++i) {
      Out out;
      out.at = now_;
      if (!connection_->poll_segment(now_, message_max(), out.segment)) return;
      std::array<Bytes, 128> pieces;
      const uint32_t count = connection_->gather(out.segment, pieces);
      const uint32_t syn = (out.segment.fields.flags & ip::TcpFlags::kSyn) != 0 ? 1 : 0;
      uint32_t place = out.segment.fields.sequence + syn - iss_;
      uint32_t bytes = 0;
      for (uint32_t each = 0; each < std::min<uint32_t>(count, pieces.size()); ++each) {
        for (const std::byte value : pieces[each]) {
          if (value != pattern(place, true)) out.payload = "payload differs at " + std::to_string(place);
          ++place;
          ++bytes;
        }
      }
      if (bytes != out.segment.length) out.payload = "payload of " + std::to_string(bytes) + " bytes";
      const ip::TcpOptions& options = out.segment.fields.options;
      if (options.has_timestamps) {
        if ((out.segment.fields.flags & ip::TcpFlags::kSyn) != 0) clock_ = options.timestamp - static_cast<uint32_t>(now_ / kMillisecond);
        last_stamp_ = options.timestamp;
      }
      out.cookie.assign(options.fast_open_cookie.begin(), options.fast_open_cookie.end());
      leave(out);
    }
    wrong("segments without end");
  }

  // The longest payload that the owner takes at once (TSO).
  uint32_t message_max() const {
    const uint32_t mss = std::max(connection_->mss(), 1u);
    if (length_max_ != 0) return length_max_;
    return messages_ == Messages::long_ones ? 0xFFFF / mss * mss : mss;
  }

  // Cuts a long segment as TSO does, so that the script sees the wire; not if the script sets `length_max`.
  void leave(const Out& whole) {
    const uint32_t unit = whole.segment.mss, all = whole.segment.length;
    if (length_max_ != 0 || all <= unit) return out_.push_back(whole);
    for (uint32_t at = 0; at < all; at += unit) {
      Out part = whole;
      ip::TcpFields& fields = part.segment.fields;
      fields.sequence = fields.sequence + at;
      part.segment.length = std::min(unit, all - at);
      uint8_t absent = at == 0 ? 0 : ip::TcpFlags::kCwr;
      if (at + unit < all) absent = static_cast<uint8_t>(absent | ip::TcpFlags::kFin | ip::TcpFlags::kPsh);
      fields.flags = static_cast<uint8_t>(fields.flags & ~absent);
      out_.push_back(part);
    }
  }

  // Lets time pass. With `until_output`, stops when a segment leaves.
  void advance(Nanoseconds wait, bool until_output) {
    poll();
    const Nanoseconds end = now_ + wait;
    if (!until_output) nothing_left();
    while (out_.empty() && connection_->next_timer() <= end + (until_output ? kTolerance : 0)) {
      const Nanoseconds at = std::max(connection_->next_timer(), now_);
      stalled_ = at == now_ ? stalled_ + 1 : 0;
      if (stalled_ > 100) wrong("a timer that is always due");
      now_ = at;
      connection_->handle_timer(now_);
      poll();
    }
    if (!until_output) nothing_left();
    if (out_.empty() || !until_output) now_ = end;
  }

  void nothing_left() {
    if (!out_.empty()) wrong("expected nothing, got " + show_segment(out_.front()) + " at " + show(out_.front().at));
  }

  // ---- segments

  std::string show_segment(const Out& out) const {
    const ip::TcpFields& fields = out.segment.fields;
    std::ostringstream text;
    const uint32_t from = fields.sequence - iss_;
    text << "> " << flag_names(fields.flags) << ' ' << from << ':' << from + out.segment.length << " ack "
         << fields.acknowledgement - irs_ << " win " << fields.window;
    if (fields.urgent != 0) text << " urg " << fields.urgent;
    const ip::TcpOptions& options = fields.options;
    text << " <";
    if (options.mss != 0) text << "mss " << options.mss << ", ";
    if (options.sack_permitted) text << "sackOK, ";
    if (options.window_scale != ip::TcpOptions::kNoScale) text << "wscale " << int{options.window_scale} << ", ";
    if (options.has_timestamps) text << "ts " << options.timestamp - clock_ << ' ' << stamp_of(options.timestamp_echo) << ", ";
    if (options.has_fast_open) text << "fo " << out.cookie.size() << ", ";
    if (options.sack_count != 0) text << "sack";
    for (uint32_t i = 0; i < options.sack_count; ++i) text << ' ' << options.sack[i].left - irs_ << ':' << options.sack[i].right - irs_;
    text << ">" << (out.segment.ecn_capable ? " ect" : "");
    return text.str();
  }
  static uint32_t stamp_of(uint32_t echo) { return echo == 0 ? 0 : echo - kPeerClock; }

  void expect(const Line& line, Nanoseconds wait) {
    const Nanoseconds at = now_ + wait;
    if (wait != 0) {
      poll();
      nothing_left();
    }
    advance(wait, true);
    if (out_.empty()) wrong("expected a segment, got none");
    const Out out = out_.front();
    out_.pop_front();
    const std::string got = show_segment(out);
    if (out.at > at + kTolerance || at > out.at + kTolerance) {
      wrong("expected a segment at " + show(at) + ", got it at " + show(out.at) + ": " + got);
    }
    const ip::TcpFields& fields = out.segment.fields;
    bool same = fields.flags == flag_bits(line.flags) && fields.sequence - iss_ == line.from && out.segment.length == line.to - line.from;
    if (line.has_ack) same = same && fields.acknowledgement - irs_ == line.ack;
    if (line.has_win) same = same && fields.window == line.win;
    if (line.has_mss) same = same && out.segment.mss == line.mss;
    const Bytes cookie = line.options.fast_open_cookie;
    same = same && fields.options.has_fast_open == line.options.has_fast_open;
    same = same && std::equal(cookie.begin(), cookie.end(), out.cookie.begin(), out.cookie.end());
    same = same && out.segment.ecn_capable == line.ect && fields.urgent == line.urg && same_options(fields.options, line);
    if (!same) wrong("expected that, got " + got);
    if (!out.payload.empty()) wrong("got " + got + " with a " + out.payload);
  }

  bool same_options(const ip::TcpOptions& got, const Line& line) const {
    const ip::TcpOptions& wanted = line.options;
    if (got.mss != wanted.mss || got.sack_permitted != wanted.sack_permitted || got.window_scale != wanted.window_scale) return false;
    if (got.sack_count != wanted.sack_count) return false;
    for (uint32_t i = 0; i < got.sack_count; ++i) {
      if (got.sack[i].left - irs_ != wanted.sack[i].left.value || got.sack[i].right - irs_ != wanted.sack[i].right.value) return false;
    }
    if (line.has_ts && !got.has_timestamps) return false;
    if (line.has_options && !line.has_ts && got.has_timestamps) return false;
    if (!line.has_ts || line.any_ts) return true;
    return got.timestamp - clock_ == wanted.timestamp && stamp_of(got.timestamp_echo) == wanted.timestamp_echo;
  }

  void inject(const Line& line) {
    ip::TcpFields fields{.source_port = kPeerPort, .destination_port = kOurPort, .sequence = irs_ + line.from,
                         .acknowledgement = line.has_ack ? iss_ + line.ack : Sequence{}, .flags = flag_bits(line.flags)};
    if (line.has_win) window_ = static_cast<uint16_t>(line.win);
    fields.window = window_;
    fields.urgent = static_cast<uint16_t>(line.urg);
    fields.options = line.options;
    ip::TcpOptions& options = fields.options;
    for (uint32_t i = 0; i < options.sack_count; ++i) {
      options.sack[i] = {iss_ + options.sack[i].left.value, iss_ + options.sack[i].right.value};
    }
    const bool reset = (fields.flags & ip::TcpFlags::kRst) != 0;
    const bool syn = (fields.flags & ip::TcpFlags::kSyn) != 0;
    const auto milliseconds = static_cast<uint32_t>(now_ / kMillisecond);
    if (line.has_ts && !line.any_ts) {
      options.timestamp += kPeerClock;
      options.timestamp_echo += clock_;
    } else if (line.has_ts || (stamped_ && !line.no_ts && !reset && !line.has_options) ||
               (stamped_ && !line.no_ts && options.sack_count != 0)) {
      options.has_timestamps = true;
      options.timestamp = milliseconds + kPeerClock;
      options.timestamp_echo = last_stamp_;
    }
    if (syn) stamped_ = options.has_timestamps && options_.timestamps;
    std::vector<std::byte> wire(ip::kTcpHeaderMax + line.to - line.from);
    uint32_t head = ip::emit_tcp(wire.data(), fields);
    if (line.bad) {
      // A window scale option of length 4, before all other options.
      static constexpr std::array kBad{std::byte{3}, std::byte{4}, std::byte{7}, std::byte{7}};
      wire.insert(wire.begin() + sizeof(ip::TcpHeader), kBad.begin(), kBad.end());
      head += 4;
      wire[12] = static_cast<std::byte>(head / 4 << 4);
    }
    wire.resize(head + line.to - line.from);
    for (uint32_t place = line.from; place != line.to; ++place) wire[head + place - line.from] = pattern(place + (syn ? 1 : 0), false);
    ip::TcpView view;
    if (ip::parse_tcp(wire, view) != ip::TcpError::none) wrong("the parser refuses this segment");
    connection_->handle_segment(view, now_, line.ce ? uint8_t{3} : line.ect ? uint8_t{2} : uint8_t{0});
  }

  // ---- the peer behind a link (`flow`)

  void enter_link() {
    poll();
    for (const Out& out : out_) {
      const uint32_t from = out.segment.fields.sequence - iss_, unit = std::max<uint32_t>(out.segment.mss, 1);
      for (uint32_t at = 0; at < out.segment.length; at += unit) {
        link_.enter(from + at, from + std::min(at + unit, out.segment.length), now_);
      }
    }
    out_.clear();
  }

  void flow(const std::vector<std::string>& w, Nanoseconds wait) {
    link_.configure(w);
    uint64_t each_ms = ~uint64_t{0};
    for (size_t i = 3; i + 1 < w.size(); i += 2) {
      if (w[i] == "write") each_ms = number(w[i + 1]);
    }
    const Nanoseconds end = now_ + wait;
    Nanoseconds writes_at = now_;
    for (int i = 0; i < 1'000'000; ++i) {
      const bool writes = now_ >= writes_at;
      if (writes) writes_at = now_ + kMillisecond;
      if (each_ms == ~uint64_t{0} || writes) write(std::min<uint64_t>(each_ms, connection_->writable()));
      enter_link();
      const Nanoseconds next = std::min({link_.next(), connection_->next_timer(), each_ms == ~uint64_t{0} ? kNever : writes_at});
      if (next > end) break;
      now_ = std::max(now_, next);
      while (link_.next() <= now_) inject(link_.take(received_ + 1));
      connection_->handle_timer(now_);
    }
    now_ = end;
  }

  // ---- commands

  void handshake(const std::vector<std::string>& w, bool active, bool ecn) {
    if (w.size() == 3) window_ = static_cast<uint16_t>(number(w[2]));
    Line syn;
    syn.options.mss = options_.mss;
    syn.options.sack_permitted = options_.sack;
    if (options_.window_scaling) syn.options.window_scale = 0;
    syn.has_ts = syn.any_ts = options_.timestamps;
    syn.has_options = true;
    Line ack{.flags = ".", .from = 1, .to = 1, .has_ack = true, .ack = 1};
    if (active) {
      check("connect", "none", to_string(connection_->connect(kPeerPort, iss_, now_, offset_)));
      poll();
      now_ += 100 * kMillisecond;
      syn.flags = "S.";
      syn.has_ack = true;
      syn.ack = 1;
      out_.clear();
      inject(syn);
    } else {
      check("listen", "none", to_string(connection_->listen(iss_, offset_)));
      syn.flags = ecn ? "SEW" : "S";
      inject(syn);
      poll();
      now_ += 100 * kMillisecond;
      out_.clear();
      inject(ack);
    }
    poll();
    out_.clear();
    check("state", "ESTABLISHED", tcp::to_string(connection_->state()));
  }

  void result(const std::vector<std::string>& w, Error error) {
    const size_t at = static_cast<size_t>(std::find(w.begin(), w.end(), "=") - w.begin());
    check(w[0], at + 1 < w.size() ? w[at + 1] : "none", to_string(error));
  }

  void transferred(const std::vector<std::string>& w, const Transferred& done) {
    const std::string wanted = w.size() == 4 ? w[3] : w[1];
    if (done.at_end) return check(w[0], wanted, "end");
    if (done.error != Error::none) return check(w[0], wanted, to_string(done.error));
    check(w[0], wanted, done.bytes);
  }

  Transferred write(size_t bytes) {
    std::vector<std::byte> data(bytes);
    for (size_t i = 0; i < data.size(); ++i) data[i] = pattern(static_cast<uint32_t>(sent_ + i + 1), true);
    const Transferred done = connection_->send(data);
    sent_ += done.bytes;
    return done;
  }
  void send(const std::vector<std::string>& w) { transferred(w, write(number(w.at(1)))); }

  void receive(const std::vector<std::string>& w) {
    std::vector<std::byte> data(number(w.at(1)));
    const Transferred done = connection_->receive(data);
    for (uint32_t i = 0; i < done.bytes; ++i) {
      if (data[i] != pattern(received_ + i + 1, false)) wrong("received bytes differ at " + std::to_string(received_ + i + 1));
    }
    received_ += done.bytes;
    transferred(w, done);
  }

  void command(const std::vector<std::string>& w) {
    const std::string& name = w[0];
    Connection& it = *connection_;
    if (name == "established" || name == "connected") return handshake(w, name == "connected", false);
    if (name == "established_ecn") return handshake(w, false, true);
    if (name == "listen") return result(w, it.listen(iss_, offset_));
    if (name == "connect") return result(w, it.connect(kPeerPort, iss_, now_, offset_));
    if (name == "push") return it.push();
    if (name == "mark_urgent") return it.mark_urgent();
    if (name == "urgent") return urgent(w);
    if (name == "more") return it.expect_more(true);
    if (name == "no_more") return it.expect_more(false);
    if (name == "shutdown") return result(w, it.shutdown());
    if (name == "close") return result(w, it.close(now_));
    if (name == "abort") return result(w, it.abort());
    if (name == "send") return send(w);
    if (name == "fast_open") {
      return it.fast_open(Bytes(kCookie).first(w.size() < 2 ? 0 : number(w[1])), static_cast<uint16_t>(w.size() < 3 ? 0 : number(w[2])));
    }
    if (name == "answer_fast_open") return it.answer_fast_open(w.at(1) == "valid", Bytes(kCookie).first(w.size() < 3 ? 0 : number(w[2])));
    if (name == "receive") return receive(w);
    if (name == "drain") return drain();
    if (name == "state") return check("state", w.at(1), tcp::to_string(it.state()));
    if (name == "error") return check("error", w.at(1), to_string(it.error()));
    if (name == "readable") return check(name, w.at(1), it.readable());
    if (name == "writable") return check(name, w.at(1), it.writable());
    if (name == "cwnd") return check(name, w.at(1), it.congestion().window());
    if (name == "ssthresh") return check(name, w.at(1), it.congestion().threshold());
    if (name == "flight") return check(name, w.at(1), it.in_flight());
    if (name == "rto") return check(name, w.at(1), (it.rtt().rto(options_) + kMillisecond / 2) / kMillisecond);
    if (name == "counter") return counter(w);
    if (name == "clock") return check(name, w.at(1), clock_);
    if (name == "info") return info(w);
    if (name == "congestion") return it.set_congestion(kAlgorithms.at(w.at(1)), now_);
    if (name == "icmp") return it.handle_error(kPathErrors.at(w.at(1)), now_);
    if (name == "too_big") return it.handle_too_big(static_cast<uint16_t>(number(w.at(1))), now_);
    if (name == "path_error") return check(name, true, it.path_error() == kPathErrors.at(w.at(1)));
    if (name == "under_way") return check(name, w.at(2), it.under_way(iss_ + static_cast<uint32_t>(number(w.at(1)))) ? "yes" : "no");
    if (name == "timer") return timer(w);
    if (name == "ready") return ready(w);
    if (name == "yields") return yields(w);
    if (name == "idle") {
      check("free chunks", chunk_count_, chunks_->available());
      return check("free records", record_count_, records_->available());
    }
    wrong("unknown step: " + name);
  }

  void urgent(const std::vector<std::string>& w) {
    const auto got = connection_->take_urgent();
    check("urgent", w.at(1), got ? std::to_string(*got) : "none");
  }

  void drain() {
    poll();
    out_.clear();
  }

  void counter(const std::vector<std::string>& w) {
    if (kCounters.count(w.at(1)) == 0) wrong("no counter " + w[1]);
    check("counter " + w[1], w.at(2), counters_.*kCounters.at(w[1]));
  }

  void info(const std::vector<std::string>& w) {
    if (kInfo.count(w.at(1)) == 0) wrong("nothing of that name in Info: " + w[1]);
    const std::string got = kInfo.at(w[1])(connection_->info(now_));
    const size_t dots = w.at(2).find("..");
    if (dots == std::string::npos) return check("info " + w[1], w[2], got);
    const bool inside = got != "none" && number(got) >= number(w[2].substr(0, dots)) && number(got) <= number(w[2].substr(dots + 2));
    check("info " + w[1], w[2], inside ? w[2] : got);
  }

  void ready(const std::vector<std::string>& w) {
    const Readiness is = connection_->readiness();
    std::string wanted, got;
    for (size_t i = 1; i < w.size(); ++i) wanted += " " + w[i];
    if (is.readable) got += " readable";
    if (is.writable) got += " writable";
    if (is.connected) got += " connected";
    if (is.ended) got += " ended";
    if (is.closed) got += " closed";
    check("ready", wanted, got);
  }

  void yields(const std::vector<std::string>& w) {
    ip::TcpView syn;
    syn.flags = ip::TcpFlags::kSyn;
    syn.sequence = irs_ + static_cast<uint32_t>(number(w.at(1)));
    if (w.size() > 3) {
      syn.options.has_timestamps = true;
      syn.options.timestamp = static_cast<uint32_t>(number(w[2])) + kPeerClock;
    }
    check("yields", w.back(), connection_->yields_to(syn) ? "yes" : "no");
  }

  void timer(const std::vector<std::string>& w) {
    const Nanoseconds at = connection_->next_timer();
    if (w.at(1) == "none") return check("timer", "none", at == kNever ? "none" : show(at - now_));
    check("timer", show(duration(w[1].substr(1))), at == kNever ? "none" : show(at - now_));
  }

  Options options_;
  Counters counters_;
  uint32_t chunk_count_ = 256, record_count_ = 256, length_max_ = 0;
  std::unique_ptr<ChunkPool> chunks_;
  std::unique_ptr<RecordPool> records_;
  std::unique_ptr<Resources> resources_;
  uint16_t path_ = 0;
  std::unique_ptr<Connection> connection_;
  Messages messages_;
  std::deque<Out> out_;
  Nanoseconds now_ = 0;
  int stalled_ = 0;
  // Near the wrap of the sequence space, so that all scripts cross it.
  Sequence iss_{0xFFFFFC00}, irs_{0xFFFFF800};
  uint16_t window_ = 65535;
  uint32_t offset_ = 0, clock_ = 0, last_stamp_ = 0;
  bool stamped_ = false;
  uint32_t sent_ = 0, received_ = 0;
  Link link_;
};

}  // namespace

std::string run_script(const std::string& name, const std::string& text, Messages messages) {
  Runner runner(messages);
  std::istringstream in(text);
  int number = 0;
  std::string line;
  try {
    while (std::getline(in, line)) {
      ++number;
      line = line.substr(0, line.find('#'));
      if (words(line).empty()) continue;
      runner.step(line);
    }
    line = "the end";
    runner.finish();
  } catch (const std::exception& wrong) {
    return name + ":" + std::to_string(number) + ": " + line + "\n    " + wrong.what();
  }
  return "";
}

std::string run_script(const std::string& path, Messages messages) {
  std::ifstream in(path);
  if (!in) return path + ": cannot be read";
  std::ostringstream text;
  text << in.rdbuf();
  return run_script(path, text.str(), messages);
}

}  // namespace unet::tcp::test
