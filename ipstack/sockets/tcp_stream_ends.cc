// tcp_stream_ends.cc - ICMP errors about connections, TIME-WAIT, and what takes the place of a connection that is over.
#include <cerrno>
#include <utility>

#include "ipstack/sockets/tcp_streams.h"

namespace unet::sockets {
namespace {

tcp::PathError path_error(const ip::IcmpView& error) noexcept {
  switch (error.kind) {
    case ip::IcmpKind::unreachable:
      switch (error.why) {
        case ip::Unreachable::network: return tcp::PathError::network_unreachable;
        case ip::Unreachable::host: return tcp::PathError::host_unreachable;
        case ip::Unreachable::protocol: return tcp::PathError::protocol_unreachable;
        case ip::Unreachable::port: return tcp::PathError::port_unreachable;
        case ip::Unreachable::prohibited: return tcp::PathError::prohibited;
        case ip::Unreachable::other: return tcp::PathError::host_unreachable;
      }
      return tcp::PathError::host_unreachable;
    case ip::IcmpKind::time_exceeded: return tcp::PathError::time_exceeded;
    case ip::IcmpKind::parameter_problem: return tcp::PathError::parameter_problem;
    default: return tcp::PathError::none;
  }
}

constexpr uint8_t kMovesMax = 255;             // of one connect(); then it is as if all ports were in use
constexpr uint8_t kMovesPerBlock = 32;         // of ports: their process has left many

}  // namespace

// The application has closed the socket, and all data has left: the socket goes, and its port stays in use.
void TcpStreams::begin_time_wait(uint32_t index) {
  Socket& socket = core_.sockets[index];
  const tcp::Connection& connection = *socket.tcp.connection;
  const uint32_t hash = core_.flows.hash(socket.local, socket.remote);
  time_waits_.make_room();
  core_.show(index);  // the network interface holds it when this process is gone
  if (time_waits_.add(hash, socket.local, socket.remote, connection.time_wait(), connection.expires_at(), socket.told_at)) {
    socket.told_at = kNone;
  }
  names_.drop(index);
}

bool TcpStreams::handle_time_wait(uint32_t hash, const Address& local, const Address& remote, const ip::TcpView& segment,
                                  std::optional<tcp::Sequence>& begin) {
  const uint32_t at = time_waits_.find(hash, local, remote);
  if (at == kNone) return false;
  const tcp::TimeWait& state = time_waits_[at].state;
  if (state.yields_to(segment) && names_.listening().choose(local, hash) != kNone) {
    begin = state.snd_nxt;
    time_waits_.end(at);
    return false;
  }
  const auto answer = time_waits_.handle_segment(at, segment, core_.now, core_.options.tcp, core_.memory.counters);
  if (answer) output_.send(nullptr, local, remote, {.fields = *answer});  // without room it is lost, and asked for again
  return true;
}

void TcpStreams::make_way(uint32_t index) {
  if (core_.sockets[index].is_owned()) core_.remove_flow(index);
  else names_.drop(index);
}

bool TcpStreams::is_free(const Address& local, const Address& remote) const noexcept {
  const uint32_t hash = core_.flows.hash(local, remote);
  if (core_.flow(hash, local, remote) != kNone) return false;
  const uint32_t at = time_waits_.find(hash, local, remote);
  return at == kNone || time_waits_.may_replace(at, core_.now, core_.options.tcp);
}

// The network interface holds an older connection between these ends, of a process that has exited. The socket takes another port, as if
// that connection had been of this stack. A port that bind() has named stays, and connect() fails as on Linux.
void TcpStreams::leave_port(uint32_t index) {
  Socket& socket = core_.sockets[index];
  if (socket.tcp.connection->state() != tcp::State::syn_sent) return;
  ++core_.counters.ports_not_over;
  int error = EADDRNOTAVAIL;
  if (!socket.named && socket.moves != kMovesMax) {
    const auto free = [&](uint16_t port) {
      const Address local{socket.local.host, port};
      const uint32_t hash = core_.flows.hash(local, socket.remote);
      return core_.flow(hash, local, socket.remote) == kNone && time_waits_.find(hash, local, socket.remote) == kNone;
    };
    uint16_t port;
    const bool further = ++socket.moves % kMovesPerBlock == 0;
    error = names_.tcp_ports().take_any(hashes_.port_offset(socket.local.host, socket.remote), free, port, further);
    if (error == 0) {
      core_.remove_flow(index);
      names_.tcp_ports().give_back(socket.local.host, std::exchange(socket.local.port, port));
      core_.add_flow(index);
      call_again(socket);
    }
  }
  if (error != 0) {
    socket.tcp.connection->handle_error(tcp::PathError::prohibited, core_.now);
    socket.failed = true;
    socket.error = EADDRNOTAVAIL;
  }
  advance(index);
  if (core_.sockets.has(index)) core_.show(index);
}

// Calls from another port, with the sequence numbers that are due between these ends. Data with the SYN keeps the numbers that it has.
void TcpStreams::call_again(Socket& socket) {
  if (socket.fast_open_asked) {
    socket.tcp.connection->move(socket.local.port);
    static_cast<void>(fast_open_.begin(socket, core_.now));
    return;
  }
  make_connection(socket);
  socket.tcp.connection->connect(socket.remote.port, hashes_.initial_sequence(socket.local, socket.remote, core_.now, {}), core_.now,
                                 hashes_.timestamp_offset(socket.local, socket.remote));
}

// An error about no segment under way is a guess by a sender that does not see the connection (RFC 5927, 4).
void TcpStreams::handle_error(uint32_t index, const ip::IpAddress& from, const ip::IcmpView& error, Bytes quoted) {
  Socket& socket = core_.sockets[index];
  tcp::Connection& connection = *socket.tcp.connection;
  be32 sequence;
  std::memcpy(&sequence, quoted.data() + offsetof(ip::TcpHeader, sequence), sizeof sequence);
  if (!connection.under_way({sequence})) return void(++core_.counters.icmp_unknown);
  if (error.why == ip::Unreachable::prohibited && error.kind == ip::IcmpKind::unreachable && from == socket.local.host) {
    return leave_port(index);  // only the network interface says so
  }
  if (error.kind == ip::IcmpKind::packet_too_big) {
    const uint32_t ip_bytes = socket.remote.host.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes;
    const auto headers = static_cast<uint32_t>(ip_bytes + sizeof(ip::TcpHeader));
    // A router that does not say how much passes (RFC 1191, 5) is taken to mean the least.
    const uint32_t least = socket.remote.host.is_ipv4() ? ip::kIpv4PathMtuMin : ip::kIpv6MtuMin;
    connection.handle_too_big(static_cast<uint16_t>(std::clamp<uint32_t>(error.mtu, least, 0xFFFF) - headers), core_.now);
  } else {
    connection.handle_error(path_error(error), core_.now);
  }
  advance(index);
}

}  // namespace unet::sockets
