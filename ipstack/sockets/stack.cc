// stack.cc - sockets as such: their making and ending, and their names; and what drives the stack.
#include "ipstack/sockets/stack.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace unet::sockets {

Stack::Stack(Network& network, const StackOptions& options, Nanoseconds now)
    : secrets_(options.seed), memory_(network, options), core_(network, memory_, options, secrets_.flows, now) {}

Stack::~Stack() {
  if (forgets_) return;
  for (uint32_t i = 0; i < core_.sockets.end(); ++i) {
    if (!core_.sockets.has(i) || !core_.sockets[i].has_connection() || is_left_to_interface(core_.sockets[i], core_.now)) continue;
    // Without room the network interface resets the peer later: the port has no owner then.
    if (tcp_.reset(i)) core_.tables.give_back(std::exchange(core_.sockets[i].told_at, kNone));
  }
}

int Stack::socket(Type type, bool ipv6) {
  const uint32_t index = core_.make(type, ipv6);
  if (index == kNone) return -ENFILE;
  if (type == Type::stream) core_.sockets[index].tcp.options = tcp_.default_options();
  return static_cast<int>(index);
}

int Stack::bind(int number, const Address& to) {
  const Socket* const socket = core_.owned(number);
  return bind_to(number, to, socket != nullptr && socket->reuse_port ? kIpReusePort : 0);
}

int Stack::bind_shared(int number, const Address& to, uint64_t group) { return group == 0 ? -EINVAL : bind_to(number, to, group); }

int Stack::bind_to(int number, const Address& to, uint64_t share) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  const bool over = socket->local_stream != nullptr ? socket->local_stream->state == LocalStream::State::closed
                                            : socket->has_connection() && socket->tcp.connection->state() == tcp::State::closed;
  if (over && !socket->named) forget_connection(static_cast<uint32_t>(number));
  if (socket->named || socket->bound || socket->has_connection()) return -EINVAL;
  return names_.bind(static_cast<uint32_t>(number), to, share);
}

uint64_t Stack::group_of(int number) const noexcept {
  const Socket* const socket = core_.owned(number);
  return socket != nullptr ? names_.group_of(*socket) : 0;
}

int Stack::set_accepts_new_flows(int number, bool accepts_new_flows) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  return socket != nullptr ? names_.set_accepts_new_flows(*socket, accepts_new_flows) : -EBADF;
}

int Stack::end_new_flows(int listener) {
  forget_reserved();
  Socket* const socket = core_.owned(listener);
  if (socket == nullptr || socket->listening == nullptr) return -EBADF;
  socket->draining = socket->shares;
  return names_.set_accepts_new_flows(*socket, false);
}

int Stack::join(int number, const ip::IpAddress& group) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  return socket != nullptr ? names_.join(*socket, group) : -EBADF;
}

int Stack::leave(int number, const ip::IpAddress& group) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  return socket != nullptr ? names_.leave(*socket, group) : -EBADF;
}

int Stack::set_group_source(int number, const ip::IpAddress& address) {
  Socket* const socket = core_.owned(number);
  return socket != nullptr ? datagrams_.set_group_source(*socket, address) : -EBADF;
}

int Stack::listen(int number, int backlog) {
  forget_reserved();
  return core_.owned(number) != nullptr ? listeners_.listen(static_cast<uint32_t>(number), backlog) : -EBADF;
}

int Stack::accept(int number, Address* peer) {
  forget_reserved();
  return core_.owned(number) != nullptr ? listeners_.accept(static_cast<uint32_t>(number), peer) : -EBADF;
}

int Stack::shutdown(int number, How how) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  const auto index = static_cast<uint32_t>(number);
  bool connected = true;
  if (socket->type == Type::datagram) {
    connected = socket->connected;  // as on Linux: it is an error, and wakes waiters all the same
  } else if (socket->listening != nullptr) {
    return how == How::write ? 0 : disconnect(number);
  } else if (socket->local_stream != nullptr) {
    if (socket->local_stream->state == LocalStream::State::asking) return disconnect(number);
    if (socket->local_stream->is_over()) return -ENOTCONN;
    if (how != How::read) local_streams_.shut_down(index);
  } else {
    if (!socket->has_connection() || is_over(socket->tcp.connection->state())) return -ENOTCONN;
    if (socket->tcp.connection->state() == tcp::State::syn_sent) return disconnect(number);
    if (how != How::read) tcp_.shut_down(index);
  }
  socket->shut_read = socket->shut_read || how != How::write;
  socket->shut_write = socket->shut_write || how != How::read;
  core_.notify(index);
  return connected ? 0 : -ENOTCONN;
}

int Stack::close(int number) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  const auto index = static_cast<uint32_t>(number);
  if (socket->listening != nullptr) listeners_.end(index);
  if (socket->local_stream != nullptr) local_streams_.close(index);
  else if (socket->has_connection()) tcp_.close(index);
  else names_.drop(index);
  return 0;
}

// Unread data resets the connection at once, and a local peer has all that was sent to it: neither waits.
Nanoseconds Stack::linger_time(int number) const noexcept {
  const Socket* const socket = core_.owned(number);
  const bool may = socket != nullptr && socket->linger != kNone && socket->has_connection() && socket->unread() == 0;
  return may && is_synchronized(socket->tcp.connection->state()) ? Nanoseconds{socket->linger} * kSecond : 0;
}

// ---- what drives it

void Stack::run() {
  forget_reserved();
  give_back_spare();
  if (core_.tables.asked() != 0) [[unlikely]] core_.reports.run(core_.now);  // a reader of the sockets' records waits
  tcp_.take_back_chunks();            // the network has read them
  for (uint32_t index; (index = core_.timers.take(core_.now)) != kNone;) {
    if (core_.sockets[index].local_stream != nullptr) local_streams_.run_timer(index);
    else tcp_.run_timer(index);
  }
  tcp_.time_waits().run(core_.now);   // ends of TIME-WAIT
  local_peers_.flush();               // resets and refusals that waited for room
  tcp_.run_held();                    // small segments that waited behind other messages
  // Those that find no room are due again, behind these; none stands in another's way.
  const size_t count = core_.due.size();
  bool full = false;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t index = core_.due[i];
    if (!core_.sockets.has(index) || !core_.sockets[index].due) continue;
    core_.sockets[index].due = false;
    process_due(index, full);
  }
  core_.due.erase(core_.due.begin(), core_.due.begin() + static_cast<ptrdiff_t>(count));
  if (tcp_.has_held() && core_.due.empty()) core_.network.notify_completion(tcp_.output().held_until());
  if (tcp_.may_notify_starved()) core_.notify_starved();
}

// The socket may have something to send. `full`: the network interface has refused another's message already.
void Stack::process_due(uint32_t index, bool& full) {
  Socket& socket = core_.sockets[index];
  if (socket.type == Type::datagram) return datagrams_.process_due(index, full);
  if (socket.local_stream != nullptr) return local_streams_.process_due(index);
  if (!socket.has_connection()) return;
  if (full) return core_.make_due(index);
  tcp_.advance(index);
  full = core_.sockets.has(index) && core_.sockets[index].due;
}

bool Stack::idle() const noexcept {
  if (!core_.due.empty() || local_peers_.has_queued()) return false;
  for (uint32_t i = 0; i < core_.sockets.end(); ++i) {
    if (!core_.sockets.has(i)) continue;
    const LocalStream* const stream = core_.sockets[i].local_stream.get();
    if (stream != nullptr && stream->state != LocalStream::State::closed && !stream->has_left()) return false;
    if (!core_.sockets[i].has_connection() || is_left_to_interface(core_.sockets[i], core_.now)) continue;
    const tcp::State state = core_.sockets[i].tcp.connection->state();
    if (state != tcp::State::closed && state != tcp::State::time_wait) return false;
  }
  return true;
}

}  // namespace unet::sockets
