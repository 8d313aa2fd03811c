// stack_table.cc - what others are told of a stack's sockets: the network interface, when this process is gone, and unetctl.
#include <algorithm>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {
namespace {

constexpr uint32_t kTellPerRun = 256;  // sockets whose numbers are brought up to date at a time

static_assert(static_cast<uint32_t>(tcp::State::listen) == static_cast<uint32_t>(SocketState::listen) &&
              static_cast<uint32_t>(tcp::State::close_wait) == static_cast<uint32_t>(SocketState::close_wait) &&
              static_cast<uint32_t>(tcp::State::time_wait) == static_cast<uint32_t>(SocketState::time_wait) &&
              tcp::kStates == kSocketStates);

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

// Of a stream by a local peer's channel. A message is its segment, and what was sent is at its peer. There are no round trips, no
// acknowledgements and no congestion window.
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

}  // namespace

Stack::Queued Stack::queued(int number) noexcept {
  Socket* const socket = owned(number);
  if (socket == nullptr) return {};
  if (socket->listening != nullptr) return {static_cast<uint32_t>(socket->listening->ready.size()), socket->listening->embryos};
  if (socket->type == Type::datagram) {
    DatagramQueue& queue = socket->datagram->queue;
    if (queue.empty()) return {};
    const DatagramQueue::Datagram first = queue.front();
    const auto bytes = static_cast<uint32_t>(first.payload.size());
    return {.receive = first.segment != 0 && !socket->datagram->coalesce ? std::min(first.segment, bytes) : bytes};
  }
  SocketRecord record;
  fill_queues(*socket, record);
  return {record.receive_queue, record.send_queue};
}

tcp::Info Stack::info(int number) const noexcept {
  const Socket* const socket = owned(number);
  if (socket == nullptr) return {};
  if (socket->has_connection()) return socket->tcp.connection->info(now_);
  const auto state = static_cast<tcp::State>(state_of(*socket));
  if (socket->local_stream != nullptr) return local_stream_info(*socket->local_stream, state, now_);
  if (socket->listening == nullptr) return {.state = state};
  // As Linux has it: how many wait for accept(), and how many may.
  return {.state = state, .unacked = static_cast<uint32_t>(socket->listening->ready.size()), .sacked = socket->listening->backlog};
}

void Stack::show(uint32_t index) {
  Socket& socket = slab_[index];
  const SocketState state = state_of(socket);
  socket.shown = static_cast<uint8_t>(state);
  SocketRecord record{.protocol = socket.type == Type::stream ? ip::Protocol::kTcp : ip::Protocol::kUdp,
                      .state = socket.shown, .flags = socket.ipv6 ? SocketFlags::kIpv6 : uint8_t{0},
                      .local_port = socket.local.port, .remote_port = socket.remote.port, .local = socket.local.host,
                      .remote = socket.remote.host};
  const auto add = [&](bool holds, uint8_t flag) { record.flags = static_cast<uint8_t>(holds ? record.flags | flag : record.flags); };
  if (socket.local_stream != nullptr) add(true, SocketFlags::kNear);
  if (socket.has_connection()) {
    const tcp::Connection::Ends ends = socket.tcp.connection->ends(now_);
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
  if (socket.told_at == kNone) socket.told_at = tables_.take();
  tables_.put(socket.told_at, record);
}

// A part each time: who has a hundred thousand sockets has other things to do, too.
void Stack::tell_asked() {
  const uint64_t asked = tables_.asked();
  if (telling_ != asked) {
    telling_ = asked;
    telling_at_ = 0;
  }
  for (uint32_t i = 0; i < kTellPerRun && telling_at_ < slab_.end(); ++telling_at_) {
    if (!slab_.has(telling_at_) || slab_[telling_at_].shown == 0xFF) continue;
    ++i;
    show(telling_at_);
    const Socket& socket = slab_[telling_at_];
    if (!socket.has_connection() && socket.local_stream == nullptr) continue;
    const auto state = static_cast<tcp::State>(socket.shown);
    const LocalStream* const stream = socket.local_stream.get();
    const tcp::Info told = stream != nullptr ? local_stream_info(*stream, state, now_) : socket.tcp.connection->info(now_);
    tables_.put_info(socket.told_at, info_of(told, asked));
  }
  if (telling_at_ >= slab_.end()) tables_.finish(asked, counters_, tcp_counters_);
}

// The application has closed it and the peer has all data: the network interface goes on with that from what show() said last.
bool Stack::left_to_interface(uint32_t index) const noexcept {
  const Socket& socket = slab_[index];
  if (!socket.is_closing() || socket.told_at == kNone || !socket.has_connection()) return false;
  const tcp::Connection& connection = *socket.tcp.connection;
  const tcp::Connection::Ends ends = connection.ends(now_);
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
