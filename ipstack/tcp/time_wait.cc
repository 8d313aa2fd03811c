// time_wait.cc - segments for a connection in TIME-WAIT: RFC 9293, 3.10.7.4, in the order given there; RFC 1337, 5961 and 6191.
#include "ipstack/tcp/time_wait.h"

#include <algorithm>

namespace unet::tcp {
namespace {
using Flags = ip::TcpFlags;
}  // namespace

// Challenge ACK (RFC 5961).
TimeWait::Verdict TimeWait::challenge(Nanoseconds now, const Options& options, Counters& counters) noexcept {
  return challenges.take(now, options, counters) ? Verdict::answer : Verdict::nothing;
}

TimeWait::Verdict TimeWait::handle_unacceptable(const ip::TcpView& segment, Nanoseconds now, const Options& options,
                                                Counters& counters) noexcept {
  ++counters.out_of_window;
  if (segment.length() == 0 || segment.has(Flags::kSyn)) return challenge(now, options, counters);
  const bool same_fin = segment.has(Flags::kFin) && segment.sequence + segment.length() == rcv_nxt;
  return same_fin ? Verdict::begin_anew : Verdict::answer;
}

TimeWait::Verdict TimeWait::handle_segment(const ip::TcpView& segment, Nanoseconds now, const Options& options,
                                           Counters& counters) noexcept {
  const uint32_t ahead = segment.sequence - rcv_nxt, length = segment.length();
  if (segment.has(Flags::kRst)) {  // second: only at RCV.NXT, else a challenge ACK
    if (ahead == 0) {
      ++counters.resets_received;
      return Verdict::over;
    }
    ++(ahead < rcv_wnd ? counters.blind_reset : counters.out_of_window);
    return ahead < rcv_wnd ? challenge(now, options, counters) : Verdict::nothing;
  }
  if (stamps && !segment.options.has_timestamps) {  // RFC 7323, 3.2: dropped silently
    ++counters.no_timestamp;
    return Verdict::nothing;
  }
  if (stamps && static_cast<int32_t>(segment.options.timestamp - ts_recent) < 0) {
    ++counters.old_timestamp;
    return length == 0 ? challenge(now, options, counters) : Verdict::answer;
  }
  const bool inside = length == 0 ? ahead <= rcv_wnd : ahead < rcv_wnd || ahead + length - 1 < rcv_wnd;
  const bool closed_window = rcv_wnd == 0 && ahead == 0;
  if (!inside && !closed_window) return handle_unacceptable(segment, now, options, counters);  // first
  if (segment.has(Flags::kSyn)) {  // fourth
    ++counters.blind_syn;
    return challenge(now, options, counters);
  }
  if (!segment.has(Flags::kAck)) {  // fifth
    ++counters.no_ack;
    return Verdict::nothing;
  }
  const Sequence ack = segment.acknowledgement;
  if (ack > snd_nxt || snd_nxt - ack > snd_wnd_max) {  // RFC 5961, 5.2
    ++counters.bad_ack;
    return challenge(now, options, counters);
  }
  if (stamps && segment.sequence <= rcv_nxt) ts_recent = segment.options.timestamp;
  if (segment.has(Flags::kUrg)) ++counters.urgent;
  if (length == 0) return Verdict::nothing;
  // Seventh and eighth: nothing behind the FIN is new.
  if (segment.sequence + static_cast<uint32_t>(segment.payload.size()) >= rcv_nxt) ++counters.beyond_end;
  return Verdict::answer;
}

bool TimeWait::yields_to(const ip::TcpView& syn) const noexcept {
  if (!syn.has(Flags::kSyn) || syn.has(Flags::kRst) || syn.has(Flags::kAck)) return false;
  if (stamps && syn.options.has_timestamps) {
    const auto later = static_cast<int32_t>(syn.options.timestamp - ts_recent);
    if (later != 0) return later > 0;
  }
  return syn.sequence > rcv_nxt;
}

ip::SackBlock TimeWait::came_twice(const ip::TcpView& segment) const noexcept {
  const auto size = static_cast<uint32_t>(segment.payload.size());
  if (!sacks || size == 0 || segment.sequence >= rcv_nxt || segment.has(Flags::kSyn)) return {};
  return {segment.sequence, segment.sequence + size};
}

ip::TcpFields TimeWait::answer(Nanoseconds now, ip::SackBlock came_twice) const noexcept {
  ip::TcpFields fields{.sequence = snd_nxt, .acknowledgement = rcv_nxt, .flags = Flags::kAck,
                       .window = static_cast<uint16_t>(std::min<uint32_t>(rcv_wnd >> scale, 0xFFFF))};
  if (stamps) {
    fields.options.has_timestamps = true;
    fields.options.timestamp = timestamp_offset + static_cast<uint32_t>(now / kMillisecond);
    fields.options.timestamp_echo = ts_recent;
  }
  if (came_twice.left != came_twice.right) {
    fields.options.sack_count = 1;
    fields.options.sack[0] = came_twice;
  }
  return fields;
}

}  // namespace unet::tcp
