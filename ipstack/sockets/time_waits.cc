// time_waits.cc - begin, answers and end of connections in TIME-WAIT.
#include "ipstack/sockets/time_waits.h"

namespace unet::sockets {
namespace {

constexpr int kEndsPerRun = 256;               // bound for a flood of connections that end together
constexpr Nanoseconds kReusedAfter = kSecond;  // tick of the slowest timestamp clock (RFC 6191, 2; RFC 7323, 5.4)

}  // namespace

void TimeWaits::make_room() {
  if (size() < most_ || size() == 0) return;
  ++counters_.time_waits_evicted;
  end(oldest_);
}

bool TimeWaits::add(uint32_t hash, const Address& local, const Address& remote, const tcp::TimeWait& state, Nanoseconds until,
                    uint32_t told_at) {
  const uint32_t at = records_.make();
  if (at == kNone) return false;
  records_[at] = {.local = local, .remote = remote, .state = state, .hash = hash, .told_at = told_at};
  append(at, until);
  flows_.insert(hash, at);
  ++counters_.time_waits;
  ports_.use(local.host, local.port);
  return true;
}

void TimeWaits::end(uint32_t at) {
  const Record& record = records_[at];
  const Address local = record.local;
  tables_.give_back(record.told_at);
  unlink(at);
  flows_.remove(record.hash, at);
  records_.drop(at);
  ports_.give_back(local.host, local.port);
}

void TimeWaits::run(Nanoseconds now) {
  for (int i = 0; i < kEndsPerRun && first() <= now; ++i) end(oldest_);
}

std::optional<tcp::Sequence> TimeWaits::replace(uint32_t hash, const Address& local, const Address& remote) {
  const uint32_t at = find(hash, local, remote);
  if (at == kNone) return {};
  const tcp::Sequence last = records_[at].state.snd_nxt;
  ++counters_.time_waits_reused;
  end(at);
  return last;
}

bool TimeWaits::may_replace(uint32_t at, Nanoseconds now, const tcp::Options& options) const noexcept {
  return records_[at].state.stamps && options.timestamps && records_[at].until <= now + options.time_wait - kReusedAfter;
}

std::optional<ip::TcpFields> TimeWaits::handle_segment(uint32_t at, const ip::TcpView& segment, Nanoseconds now,
                                                       const tcp::Options& options, tcp::Counters& counters) {
  Record& record = records_[at];
  ++counters.segments_in;
  const tcp::TimeWait::Verdict verdict = record.state.handle_segment(segment, now, options, counters);
  if (verdict == tcp::TimeWait::Verdict::nothing) return std::nullopt;
  if (verdict == tcp::TimeWait::Verdict::over) {
    end(at);
    return std::nullopt;
  }
  if (verdict == tcp::TimeWait::Verdict::begin_anew) begin_anew(at, now + options.time_wait);
  ip::TcpFields answer = record.state.answer(now, record.state.came_twice(segment));
  answer.source_port = record.local.port;
  answer.destination_port = record.remote.port;
  ++counters.segments_out;
  return answer;
}

}  // namespace unet::sockets
