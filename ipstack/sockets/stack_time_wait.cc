// stack_time_wait.cc - connections in TIME-WAIT whose sockets are gone: what is kept of them, what they answer, and what takes their place.
#include <cerrno>
#include <utility>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {
namespace {

constexpr int kEndsPerRun = 256;               // a flood that ends all at once does not hold others up
constexpr uint8_t kMovesMax = 255;             // of one connect(); then it is as if all ports were in use
constexpr uint8_t kMovesPerBlock = 32;         // of ports: their process has left many
constexpr Nanoseconds kReusedAfter = kSecond;  // a tick of the slowest clock that timestamps may have (RFC 6191, 2; RFC 7323, 5.4)

}  // namespace

// Its owner has closed it, and all that it had to send has left: the socket goes, and its port stays in use.
void Stack::begin_time_wait(uint32_t index) {
  Socket& socket = slab_[index];
  const tcp::Connection& connection = *socket.tcp.connection;
  const uint32_t hash = flows_.hash(socket.local, socket.remote);
  if (time_waits_.size() >= options_.time_waits_max && time_waits_.size() != 0) {
    ++counters_.time_waits_evicted;
    end_time_wait(time_waits_.oldest());
  }
  show(index);  // the network interface holds it when this process is gone
  if (time_waits_.add(hash, socket.local, socket.remote, connection.time_wait(), connection.expires_at(), socket.told_at)) {
    socket.told_at = kNone;
    ++counters_.time_waits;
    tcp_ports_.use(socket.local.host, socket.local.port);
  }
  drop(index);
}

void Stack::end_time_wait(uint32_t at) {
  const Address local = time_waits_[at].local;
  tables_.give_back(time_waits_[at].told_at);
  time_waits_.remove(at);
  tcp_ports_.give_back(local.host, local.port);
}

void Stack::run_time_waits() {
  for (int i = 0; i < kEndsPerRun && time_waits_.first() <= now_; ++i) end_time_wait(time_waits_.oldest());
}

// False: it is for somebody else, as there is no such connection, or a new one takes its place; that one's numbers begin behind `begin`.
bool Stack::handle_time_wait(uint32_t hash, const Address& local, const Address& remote, const ip::TcpView& segment,
                             std::optional<tcp::Sequence>& begin) {
  const uint32_t at = time_waits_.find(hash, local, remote);
  if (at == kNone) return false;
  TimeWaits::Record& record = time_waits_[at];
  if (record.state.yields_to(segment) && listener_at(local, hash) != kNone) {
    begin = record.state.snd_nxt;
    end_time_wait(at);
    return false;
  }
  ++tcp_counters_.segments_in;
  const tcp::TimeWait::Verdict verdict = record.state.handle_segment(segment, now_, options_.tcp, tcp_counters_);
  if (verdict == tcp::TimeWait::Verdict::nothing) return true;
  if (verdict == tcp::TimeWait::Verdict::over) {
    end_time_wait(at);
    return true;
  }
  if (verdict == tcp::TimeWait::Verdict::begin_anew) time_waits_.begin_anew(at, now_ + options_.tcp.time_wait);
  tcp::Segment answer;
  answer.fields = record.state.answer(now_, record.state.came_twice(segment));
  answer.fields.source_port = local.port;
  answer.fields.destination_port = remote.port;
  ++tcp_counters_.segments_out;
  send_segment(nullptr, local, remote, answer, nullptr);  // without room it is lost, and asked for again
  return true;
}

// RFC 6191, of the side that calls: a new connection may take a pair of ports from TIME-WAIT when its timestamps tell it from the old one.
bool Stack::is_free(const Address& local, const Address& remote) const noexcept {
  if (flow(local, remote) != kNone) return false;
  const uint32_t at = time_waits_.find(flows_.hash(local, remote), local, remote);
  if (at == kNone) return true;
  const TimeWaits::Record& record = time_waits_[at];
  return record.state.stamps && options_.tcp.timestamps && record.until <= now_ + options_.tcp.time_wait - kReusedAfter;
}

// The network interface holds the connection before between these ends, of a process that is gone: another port, as if that one had been
// ours. Which bind() has named stays, and fails as Linux's does.
void Stack::leave_port(uint32_t index) {
  Socket& socket = slab_[index];
  if (socket.tcp.connection->state() != tcp::State::syn_sent) return;
  ++counters_.ports_not_over;
  int error = EADDRNOTAVAIL;
  if (!socket.named && socket.moves != kMovesMax) {
    const auto free = [&](uint16_t port) {
      const Address local{socket.local.host, port};
      return flow(local, socket.remote) == kNone && time_waits_.find(flows_.hash(local, socket.remote), local, socket.remote) == kNone;
    };
    uint16_t port;
    const bool further = ++socket.moves % kMovesPerBlock == 0;
    error = tcp_ports_.take_any(port_offset(socket.local.host, socket.remote), free, port, further);
    if (error == 0) {
      find_flow(index, false);
      tcp_ports_.give_back(socket.local.host, std::exchange(socket.local.port, port));
      find_flow(index, true);
      call_again(socket);
    }
  }
  if (error != 0) {
    socket.tcp.connection->handle_error(tcp::PathError::prohibited, now_);
    socket.failed = true;
    socket.error = EADDRNOTAVAIL;
  }
  after(index);
  if (slab_.has(index)) show(index);
}

// From another port, with the numbers that are due between these ends; but what it has to say already keeps those that it has.
void Stack::call_again(Socket& socket) {
  if (socket.fast_open_asked) {
    socket.tcp.connection->move(socket.local.port);
    static_cast<void>(begin_fast_open(socket));
    return;
  }
  make_connection(socket);
  socket.tcp.connection->connect(socket.remote.port, initial_sequence(socket.local, socket.remote, {}), now_,
                                 timestamp_offset(socket.local, socket.remote));
}

// Ends the one between these ends, if there is one: its last number.
std::optional<tcp::Sequence> Stack::replace_time_wait(const Address& local, const Address& remote) {
  const uint32_t at = time_waits_.find(flows_.hash(local, remote), local, remote);
  if (at == kNone) return {};
  const tcp::Sequence last = time_waits_[at].state.snd_nxt;
  ++counters_.time_waits_reused;
  end_time_wait(at);
  return last;
}

}  // namespace unet::sockets
