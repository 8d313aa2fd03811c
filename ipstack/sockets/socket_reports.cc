// socket_reports.cc - writes the records of sockets, at changes and on demand.
#include "ipstack/sockets/socket_reports.h"

#include <algorithm>

#include "unet/limits.h"
#include "unet/wire/ip.h"

namespace unet::sockets {
namespace {

constexpr uint32_t kTellPerRun = 256;  // records that one run() updates

static_assert(static_cast<uint32_t>(tcp::State::listen) == static_cast<uint32_t>(SocketState::listen) &&
              static_cast<uint32_t>(tcp::State::close_wait) == static_cast<uint32_t>(SocketState::close_wait) &&
              static_cast<uint32_t>(tcp::State::time_wait) == static_cast<uint32_t>(SocketState::time_wait) &&
              tcp::kStates == kSocketStates);

}  // namespace

SocketState state_of(const Socket& socket) noexcept {
  if (socket.type == Type::datagram) return socket.connected ? SocketState::established : SocketState::closed;
  if (socket.listening != nullptr) return SocketState::listen;
  if (socket.local_stream != nullptr) {
    switch (socket.local_stream->state) {
      case LocalStream::State::asking: return SocketState::syn_sent;
      case LocalStream::State::closed: return SocketState::closed;
      case LocalStream::State::open: break;
    }
    if (socket.local_stream->is_over()) return SocketState::closed;
    if (socket.local_stream->end_came) return SocketState::close_wait;
    return socket.local_stream->end == LocalStream::End::sent ? SocketState::fin_wait_2 : SocketState::established;
  }
  return socket.has_connection() ? static_cast<SocketState>(socket.tcp.connection->state()) : SocketState::closed;
}

void fill_queues(const Socket& socket, SocketRecord& record) noexcept {
  if (socket.listening != nullptr) {
    record.receive_queue = static_cast<uint32_t>(socket.listening->ready.size());
    record.send_queue = socket.listening->backlog;
  } else if (socket.type == Type::datagram) {
    record.receive_queue = static_cast<uint32_t>(socket.datagram->queue.waiting_bytes());
  } else {
    record.receive_queue = socket.unread();
    if (socket.has_connection()) record.send_queue = socket.tcp.connection->unacknowledged() + socket.tcp.connection->unsent();
    if (socket.local_stream != nullptr) record.send_queue = static_cast<uint32_t>(socket.local_stream->unsent.size());
  }
}

tcp::Info local_stream_info(const LocalStream& part, tcp::State state, Nanoseconds now) noexcept {
  const auto ago = [&](Nanoseconds at) { return at == 0 ? ~Nanoseconds{0} : now - std::min(at, now); };
  tcp::Info info;
  info.state = state;
  info.snd_mss = info.rcv_mss = info.advmss = kMessageMax;
  info.bytes_sent = info.bytes_acked = part.sent.bytes;
  info.bytes_received = part.received.bytes;
  info.segs_out = info.data_segs_out = info.delivered = part.sent.messages;
  info.segs_in = info.data_segs_in = part.received.messages;
  info.last_data_sent = ago(part.sent.last);
  info.last_data_recv = ago(part.received.last);
  info.snd_wnd = part.credit;
  info.rcv_wnd = part.window - std::min(part.unread + part.untold, part.window);
  info.rcv_ssthresh = part.window;
  return info;
}

void SocketReports::show(uint32_t index, Nanoseconds now) {
  Socket& socket = sockets_[index];
  const SocketState state = state_of(socket);
  socket.shown = static_cast<uint8_t>(state);
  SocketRecord record{.protocol = socket.type == Type::stream ? ip::Protocol::kTcp : ip::Protocol::kUdp,
                      .state = socket.shown, .flags = socket.ipv6 ? SocketFlags::kIpv6 : uint8_t{0},
                      .local_port = socket.local.port, .remote_port = socket.remote.port, .local = socket.local.host,
                      .remote = socket.remote.host};
  const auto add = [&](bool holds, uint8_t flag) { record.flags = static_cast<uint8_t>(holds ? record.flags | flag : record.flags); };
  if (socket.local_stream != nullptr) add(true, SocketFlags::kNear);
  if (socket.has_connection()) {
    const tcp::Connection::Ends ends = socket.tcp.connection->ends(now);
    add(socket.is_closing(), SocketFlags::kClosed);
    add(ends.fin_sent, SocketFlags::kFinSent);
    add(ends.timestamps, SocketFlags::kTimestamps);
    record.send_unacknowledged = ends.send_unacknowledged.value;
    record.send_next = ends.send_next.value;
    record.receive_next = ends.receive_next.value;
    record.timestamp = ends.timestamp;
    record.timestamp_echo = ends.timestamp_echo;
  }
  record.told = telling_;
  fill_queues(socket, record);
  if (socket.told_at == SocketTables::kNone) socket.told_at = tables_.take();
  tables_.put(socket.told_at, record);
}

void SocketReports::run(Nanoseconds now) {
  const uint64_t asked = tables_.asked();
  if (telling_ != asked) {
    telling_ = asked;
    telling_at_ = 0;
  }
  for (uint32_t i = 0; i < kTellPerRun && telling_at_ < sockets_.end(); ++telling_at_) {
    if (!sockets_.has(telling_at_) || sockets_[telling_at_].shown == 0xFF) continue;
    ++i;
    show(telling_at_, now);
    const Socket& socket = sockets_[telling_at_];
    if (!socket.has_connection() && socket.local_stream == nullptr) continue;
    const auto state = static_cast<tcp::State>(socket.shown);
    const LocalStream* const stream = socket.local_stream.get();
    const tcp::Info told = stream != nullptr ? local_stream_info(*stream, state, now) : socket.tcp.connection->info(now);
    tables_.put_info(socket.told_at, info_of(told, asked));
  }
  if (telling_at_ >= sockets_.end()) tables_.finish(asked, counters_, tcp_counters_);
}

bool is_left_to_interface(const Socket& socket, Nanoseconds now) noexcept {
  if (!socket.is_closing() || socket.told_at == SocketTables::kNone || !socket.has_connection()) return false;
  const tcp::Connection& connection = *socket.tcp.connection;
  const tcp::Connection::Ends ends = connection.ends(now);
  const uint32_t outstanding = ends.send_next - ends.send_unacknowledged;
  switch (connection.state()) {
    case tcp::State::fin_wait_1:
    case tcp::State::closing:
    case tcp::State::last_ack: return ends.fin_sent && outstanding == 1;
    case tcp::State::fin_wait_2:
    case tcp::State::time_wait: return ends.fin_sent && outstanding == 0;
    default: return false;
  }
}

}  // namespace unet::sockets
