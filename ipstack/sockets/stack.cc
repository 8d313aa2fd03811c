// stack.cc - sockets as such: their making and ending, names, events; and what drives the stack.
#include "ipstack/sockets/stack.h"

#include <algorithm>
#include <cerrno>
#include <cstring>


namespace unet::sockets {
namespace {

// Linux's sockets are closed while their connections are in TIME-WAIT.
bool is_over(tcp::State state) noexcept { return state == tcp::State::closed || state == tcp::State::time_wait; }

}  // namespace

Stack::Stack(Network& network, const StackOptions& options, Nanoseconds now)
    : secrets_(options.seed), memory_(network, options), core_(network, memory_, options, secrets_.flows, now),
      hashes_{secrets_.connections}, default_options_(option_sets_.get(options.tcp)),
      time_waits_(options.time_waits_max, {}, tcp_ports_, core_.tables, core_.counters),
      tcp_ports_(network, ip::Protocol::kTcp, options.seed), udp_ports_(network, ip::Protocol::kUdp, options.seed), groups_(network),
      path_mtus_({.link_mtu = 0xFFFF, .seed = secrets_.stream_paths}),
      datagram_paths_({.link_mtu = 0xFFFF, .seed = secrets_.datagram_paths}),
      fast_open_{secrets_.fast_open_given, secrets_.fast_open_known, core_.counters},
      output_(network, memory_.chunks, core_.counters, core_.sockets, options.chunk_bytes) {}

Stack::~Stack() {
  if (forgets_) return;
  for (uint32_t i = 0; i < core_.sockets.end(); ++i) {
    if (!core_.sockets.has(i) || !core_.sockets[i].has_connection() || is_left_to_interface(core_.sockets[i], core_.now)) continue;
    core_.sockets[i].tcp.connection->abort();
    // Without room the network interface resets the peer later: the port has no owner then.
    if (output_.send_all(i, core_.now)) core_.tables.give_back(std::exchange(core_.sockets[i].told_at, kNone));
  }
}

int Stack::socket(Type type, bool ipv6) {
  const uint32_t index = core_.make(type, ipv6);
  if (index == kNone) return -ENFILE;
  if (type == Type::stream) core_.sockets[index].tcp.options = default_options_;
  return static_cast<int>(index);
}

// The socket is no more; nothing of it is sent.
void Stack::drop(uint32_t index) {
  Socket& socket = core_.sockets[index];
  if (socket.stage == Stage::embryo) listeners_.end_handshake(socket.listener);
  if (socket.early) listeners_.end_early(socket);
  if (socket.datagram != nullptr && socket.bound) {
    ++route_generation_;
    datagrams_.unlink(index);
    if (datagrams_.first(socket.local.port) != kNone) static_cast<void>(tell_accepts_new_flows(socket));
  }
  if (socket.local_stream != nullptr) local_peers_.drop_pieces(*socket.local_stream);
  give_back_port(socket);
  core_.drop(index);
}

void Stack::give_back_port(Socket& socket) {
  if (!socket.bound) return;
  if (socket.type == Type::datagram) give_back_groups(socket);
  give_back_name(socket);
}

void Stack::give_back_name(Socket& socket) {
  socket.bound = false;
  if (socket.type != Type::datagram || !socket.datagram->of_group) return ports_of(socket).give_back(socket.local.host, socket.local.port);
  groups_.give_back(socket.local.host, socket.local.port);
  if (socket.datagram->has_port) udp_ports_.give_back({}, socket.local.port);
  socket.datagram->of_group = socket.datagram->has_port = false;
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
  if (!socket->fits(to)) return socket->ipv6 ? -EINVAL : -EAFNOSUPPORT;
  const bool any = to.host.is_unspecified();
  const bool group = to.host.is_multicast() && socket->type == Type::datagram;
  if (!any && !group && !core_.addresses.is_own(to.host)) return -EADDRNOTAVAIL;
  const ip::IpAddress host = any ? ip::IpAddress{} : to.host;
  uint16_t port = to.port;
  if (socket->type == Type::datagram && group_conflicts(*socket, host, port)) return -EADDRINUSE;
  int error = 0;
  const bool shares = share != 0 && !group;
  if (socket->type == Type::stream && port != 0 && is_listened_at(*socket, host, port, share)) return -EADDRINUSE;
  const AcceptsNewFlows first = socket->type == Type::datagram || !shares ? AcceptsNewFlows::yes : AcceptsNewFlows::no;  // until listen()
  if (port == 0 && !shares) error = ports_of(*socket).take_free(port);
  else if (!group) error = ports_of(*socket).take_shared(host, port, socket->reuse, share, first, families_of(*socket));
  if (group && error == 0) {
    error = groups_.take(host, port);
    if (error != 0 && to.port == 0) udp_ports_.give_back({}, port);
  }
  if (error != 0) return -error;
  socket->local = {host, port};
  socket->shares = shares;
  if (group) {
    socket->datagram->of_group = true;
    socket->datagram->has_port = to.port == 0;
  }
  error = take_port(static_cast<uint32_t>(number));
  socket->named = error == 0;
  return -error;
}

// The socket gets what comes to `socket.local`, which was claimed for it. 0, or an errno: then the claim is given back.
int Stack::take_port(uint32_t index) {
  Socket& socket = core_.sockets[index];
  socket.bound = true;
  if (socket.type == Type::datagram) {
    if (const int error = take_groups(socket); error != 0) {
      give_back_name(socket);
      socket.local = {};
      return error;
    }
    ++route_generation_;
    datagrams_.link(index);
  }
  core_.show(index);
  return 0;
}

// SO_REUSEADDR lets several have a port of which none listens.
bool Stack::is_listened_at(const Socket& socket, const ip::IpAddress& host, uint16_t port, uint64_t share) const noexcept {
  for (uint32_t i = listeners_.first(port); i != kNone; i = core_.sockets[i].listening->next) {
    const Socket& other = core_.sockets[i];
    const bool meets = other.local.host == host || other.local.host.is_unspecified() || host.is_unspecified();
    const bool joins = share != 0 && other.local.host == host && tcp_ports_.group_of(host, port) == share;
    if (meets && !joins && (families_of(other) & families_of(socket)) != 0) return true;
  }
  return false;
}

uint64_t Stack::group_of(int number) const noexcept {
  const Socket* const socket = core_.owned(number);
  const bool accepted = socket != nullptr && socket->has_connection() && socket->named;  // a connection of a listener that shares it
  if (socket == nullptr || (!socket->shares && !accepted)) return 0;
  return (socket->type == Type::stream ? tcp_ports_ : udp_ports_).group_of(socket->local.host, socket->local.port);
}

int Stack::set_accepts_new_flows(int number, bool accepts_new_flows) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (!socket->shares) return -EINVAL;
  socket->passes = !accepts_new_flows;
  return -tell_accepts_new_flows(*socket);
}

// The network interface is to know whether any of ours at that port takes new flows, if it is of a share. 0, or an errno.
int Stack::tell_accepts_new_flows(const Socket& socket) {
  const uint16_t port = socket.local.port;
  if (!socket.shares) return 0;
  AcceptsNewFlows takes = AcceptsNewFlows::no;
  const auto add = [&](uint32_t i) {
    if (core_.sockets[i].local.host != socket.local.host) return;
    takes = std::max(takes, core_.sockets[i].passes ? AcceptsNewFlows::if_no_other_does : AcceptsNewFlows::yes);
  };
  if (socket.type == Type::stream) {
    for (uint32_t i = listeners_.first(port); i != kNone; i = core_.sockets[i].listening->next) add(i);
  } else {
    for (uint32_t i = datagrams_.first(port); i != kNone; i = core_.sockets[i].datagram->next) add(i);
  }
  return ports_of(socket).set_accepts_new_flows(socket.local.host, port, takes);
}

int Stack::bind_free(uint32_t index) {
  Socket& socket = core_.sockets[index];
  if (socket.bound) return 0;
  uint16_t port = 0;
  if (const int error = ports_of(socket).take_free(port); error != 0) return error;
  socket.local.port = port;
  return take_port(index);
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
    if (how != How::read) shut_local(index);
  } else {
    if (!socket->has_connection() || is_over(socket->tcp.connection->state())) return -ENOTCONN;
    if (socket->tcp.connection->state() == tcp::State::syn_sent) return disconnect(number);
    if (how != How::read) {
      socket->deferred = false;
      socket->tcp.connection->shutdown();
      after(index);
    }
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
  if (socket->listening != nullptr) end_listener(index);
  if (socket->local_stream != nullptr) {
    close_local(index);
    return 0;
  }
  if (!socket->has_connection()) {
    drop(index);
    return 0;
  }
  socket->stage = Stage::closing;
  socket->deferred = false;
  tcp::Connection& connection = *socket->tcp.connection;
  if (socket->linger == 0) connection.abort();
  else connection.close(core_.now);
  after(index);
  return 0;
}

// Unread data resets the connection at once, and a local peer has all that was sent to it: neither waits.
Nanoseconds Stack::linger_time(int number) const noexcept {
  const Socket* const socket = core_.owned(number);
  const bool may = socket != nullptr && socket->linger != kNone && socket->has_connection() && socket->unread() == 0;
  return may && is_synchronized(socket->tcp.connection->state()) ? Nanoseconds{socket->linger} * kSecond : 0;
}

int Stack::local_address(int number, Address& address) const {
  const Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  address = socket->local;
  if (address.host.is_unspecified() && !socket->ipv6) address.host = ip::ipv4_address(0u);
  return 0;
}

int Stack::remote_address(int number, Address& address) const {
  const Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  const bool has = socket->type == Type::datagram ? socket->connected
                   : socket->local_stream != nullptr
                       ? socket->local_stream->state == LocalStream::State::open && !socket->local_stream->is_over()
                       : socket->has_connection() && !is_over(socket->tcp.connection->state()) &&
                             socket->tcp.connection->state() != tcp::State::syn_sent;
  if (!has) return -ENOTCONN;
  address = socket->remote;
  return 0;
}

const tcp::Connection* Stack::connection(int number) const noexcept {
  const Socket* const socket = core_.owned(number);
  return socket != nullptr && socket->has_connection() ? &*socket->tcp.connection : nullptr;
}

// ---- events

uint32_t Stack::events(int number) noexcept {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return Events::kError | Events::kHangUp;
  const uint32_t events = core_.events_of(static_cast<uint32_t>(number));
  if ((socket->told & ~events) != 0) socket->told = static_cast<uint16_t>(socket->told & events);
  return events;
}

// ---- what drives it

bool Stack::handle_message(const Message& message) {
  const bool offers = message.length >= tcp::ZeroCopyReceive::kLeast;
  if (offers) memory_.messages.offer(message);
  else memory_.messages.count(message.length);
  memory_.copy_late();
  handle_message(message.bytes());
  return offers && memory_.messages.withdraw();
}

void Stack::handle_message(Bytes message) {
  forget_reserved();
  ++core_.counters.messages_in;
  IpMessageHeader header;
  if (message.size() < sizeof header) return void(++core_.counters.bad_message);
  std::memcpy(&header, message.data(), sizeof header);
  ip::IpView packet;
  ip::Problem problem;
  if (parse_ip_packet(message.subspan(sizeof header), packet, problem) != ip::IpError::none || packet.is_fragment()) {
    return void(++core_.counters.bad_packet);
  }
  switch (packet.protocol) {
    case ip::Protocol::kTcp: return handle_tcp(packet, header);
    case ip::Protocol::kUdp: return handle_udp(packet, header);
    case ip::Protocol::kIcmp:
    case ip::Protocol::kIcmp6: return handle_icmp(packet);
    default: ++core_.counters.bad_packet;
  }
}

void Stack::run() {
  forget_reserved();
  if (core_.tables.asked() != 0) [[unlikely]] core_.reports.run(core_.now);
  if (memory_.chunks.has_waiting()) memory_.chunks.take_back(core_.network.completed());
  for (uint32_t index; (index = core_.timers.take(core_.now)) != kNone;) {
    Socket& socket = core_.sockets[index];
    if (socket.local_stream != nullptr) {
      run_local_timer(index);
      continue;
    }
    if (!socket.has_connection()) continue;
    tcp::Connection& connection = *socket.tcp.connection;
    if (connection.next_timer() <= core_.now) connection.handle_timer(core_.now);
    after(index);
  }
  time_waits_.run(core_.now);
  local_peers_.flush();
  if (output_.has_held()) output_.run_held([this](uint32_t index) { after(index); });
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
  if (output_.has_held() && core_.due.empty()) core_.network.notify_completion(output_.held_until());
  if (!core_.starved.empty() && memory_.chunks.may_send()) core_.notify_starved();
}

// A socket that may have something to send. `full`: the network interface has refused another's message already.
void Stack::process_due(uint32_t index, bool& full) {
  Socket& socket = core_.sockets[index];
  if (socket.type == Type::datagram) {
    const bool is_local = socket.refused_by != kNone;
    const bool room = is_local ? core_.network.has_room(socket.refused_by, socket.refused_bytes)
                           : !full && !core_.network.reserve(sizeof(IpMessageHeader) + 576).empty();
    if (!is_local) full = !room;
    const Gathered* const gathered = socket.datagram->gathered.get();
    if (room && gathered != nullptr && gathered->due && send_gathered(index) == -EAGAIN) return;
    return room ? core_.notify(index) : core_.make_due(index);
  }
  if (socket.local_stream != nullptr) {
    LocalStream& part = *socket.local_stream;
    const bool told = flush_local(index);
    const bool room = socket.refused_bytes == 0 || part.is_silent() || core_.network.has_room(part.local_peer, socket.refused_bytes);
    if (!told || !room) return core_.make_due(index);
    socket.refused_bytes = 0;
    return socket.is_closing() && part.is_over() ? drop(index) : core_.notify(index);
  }
  if (!socket.has_connection()) return;
  if (full) return core_.make_due(index);
  after(index);
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
