// stack_options.cc - options of sockets, as setsockopt() and getsockopt() of Linux have them.
#include <algorithm>
#include <cerrno>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {
namespace {

constexpr int64_t kBufferLeast = 4096, kBufferMost = 64 * 1024 * 1024;

uint32_t buffer_of(int64_t value) noexcept { return static_cast<uint32_t>(std::clamp(value, kBufferLeast, kBufferMost)); }

}  // namespace

// Values out of range are -EINVAL, but buffers, which are taken as near as they can be had.
int Stack::set_option(int number, Option option, int64_t value) {
  forget_reserved();
  Socket* const socket = owned(number);
  if (socket == nullptr) return -EBADF;
  if (option == Option::peek_offset) {
    set_peek_offset(static_cast<uint32_t>(number), value < 0 ? std::nullopt : std::optional(static_cast<uint32_t>(value)));
    return 0;
  }
  if (socket->type == Type::datagram) {
    tcp::Options nobodys;
    const int error = choose(*socket, option, value, nobodys);
    if (error != 0 || value != 0) return error;
    if (option == Option::cork) uncork(static_cast<uint32_t>(number));
    if (option == Option::queue_errors4 || option == Option::queue_errors6) drop_queued_errors(static_cast<uint32_t>(number));
    return error;
  }
  tcp::Options wanted = *socket->tcp.options;
  if (const int error = choose(*socket, option, value, wanted); error != 0) return error;
  const bool others = wanted != *socket->tcp.options;
  if (others) {
    SharedOptions fresh = option_sets_.get(wanted);
    if (socket->has_connection()) socket->tcp.connection->set_options(*fresh);
    socket->tcp.options = std::move(fresh);
  }
  // Linux pushes what is queued also by the value that an option has already: MSG_MORE may hold it.
  const bool pushes = option == Option::no_delay ? value != 0 : option == Option::cork && value == 0;
  if (!socket->has_connection() || (!others && !pushes && option != Option::congestion)) return 0;
  if (option == Option::congestion) socket->tcp.connection->set_congestion(wanted.congestion, now_);
  if (pushes) socket->tcp.connection->push();
  // Data that had waited may go, and timers may be others.
  after(static_cast<uint32_t>(number));
  return 0;
}

// What is kept of it: in the socket, or in `tcp`, which are a stream's.
int Stack::choose(Socket& socket, Option option, int64_t value, tcp::Options& tcp) noexcept {
  const bool stream = socket.type == Type::stream;
  const auto set_keep_alive = [&](bool on) { tcp.keep_alive_idle = on ? Nanoseconds{socket.keep_idle} * kSecond : 0; };
  const auto of_range = [&](int64_t least, int64_t most) { return value >= least && value <= most; };
  switch (option) {
    case Option::error:
    case Option::type:
    case Option::peek_offset:
    case Option::path_mtu:
    case Option::accepts: return -ENOPROTOOPT;
    case Option::reuse_address: socket.reuse = value != 0; return 0;
    case Option::urgent_inline: socket.urgent_inline = value != 0; return 0;
    case Option::reuse_port: socket.reuse_port = value != 0; return 0;
    case Option::only_ipv6:
      if (!socket.ipv6) return -ENOPROTOOPT;
      if (socket.bound) return -EINVAL;
      socket.only_ipv6 = value != 0;
      return 0;
    case Option::send_buffer:
      tcp.send_buffer = tcp.send_buffer_max = buffer_of(value);  // it grows by itself only while nobody has said how much
      return 0;
    case Option::receive_buffer:
      // A window that was announced is not taken back, and its scale is agreed upon.
      if (stream && !socket.has_connection()) tcp.receive_buffer = tcp.receive_buffer_max = buffer_of(value);
      if (!stream) socket.datagram->receive_max = buffer_of(value);
      return 0;
    case Option::linger:
      if (!of_range(-1, 0x7FFF'FFFF)) return -EINVAL;
      socket.linger = value < 0 ? kNone : static_cast<uint32_t>(value);
      return 0;
    case Option::hop_limit:
      if (!of_range(-1, 255) || value == 0) return -EINVAL;
      socket.hop_limit = static_cast<uint8_t>(value < 0 ? 0 : value);  // -1: the host's
      return 0;
    case Option::traffic_class:
      if (!of_range(-1, 255)) return -EINVAL;
      if (value < 0) value = 0;
      socket.traffic_class = static_cast<uint8_t>(stream ? value & 0xFC : value);  // a stream's ECN is not the application's
      return 0;
    case Option::udp_segment:
      if (stream) return -ENOPROTOOPT;
      if (!of_range(0, 0xFFFF)) return -EINVAL;
      socket.datagram->segment = static_cast<uint16_t>(value);
      return 0;
    case Option::udp_gro:
      if (stream) return -ENOPROTOOPT;
      socket.datagram->coalesce = value != 0;
      return 0;
    case Option::cork:
      if (stream) tcp.cork = value != 0;
      else socket.datagram->cork = value != 0;
      return 0;
    case Option::broadcast:
      if (!stream) socket.datagram->broadcast = value != 0;
      return 0;
    case Option::group_loop:
      if (stream) return -ENOPROTOOPT;
      socket.datagram->group_loop = value != 0;
      return 0;
    case Option::group_hops:
      if (stream) return -ENOPROTOOPT;
      if (!of_range(-1, 255)) return -EINVAL;
      socket.datagram->group_hops = static_cast<uint8_t>(value < 0 ? 1 : value);  // -1: as it was
      return 0;
    case Option::keep_alive:
      set_keep_alive(value != 0);
      return 0;
    case Option::queue_errors4:
      if (stream) return -ENOPROTOOPT;
      socket.datagram->queues_errors4 = value != 0;
      return 0;
    case Option::queue_errors6:
      if (stream || !socket.ipv6) return -ENOPROTOOPT;
      socket.datagram->queues_errors6 = value != 0;
      return 0;
    case Option::path_discovery4:
    case Option::path_discovery6: {
      const bool four = option == Option::path_discovery4;
      if (stream || (!four && !socket.ipv6)) return -ENOPROTOOPT;
      if (!of_range(0, static_cast<int64_t>(PathDiscovery::omit))) return -EINVAL;
      (four ? socket.datagram->discovery4 : socket.datagram->discovery6) = static_cast<PathDiscovery>(value);
      return 0;
    }
    case Option::zero_copy:
      if (!of_range(0, 1)) return -EINVAL;
      socket.zero_copy = value != 0;
      return 0;
    default: break;
  }
  if (!stream) return -ENOPROTOOPT;
  switch (option) {
    case Option::no_delay:
      tcp.nagle = value == 0;
      break;
    case Option::keep_idle:
      if (!of_range(1, 32'767)) return -EINVAL;
      socket.keep_idle = static_cast<uint16_t>(value);
      if (tcp.keep_alive_idle != 0) set_keep_alive(true);
      break;
    case Option::keep_interval:
      if (!of_range(1, 32'767)) return -EINVAL;
      tcp.keep_alive_interval = static_cast<Nanoseconds>(value) * kSecond;
      break;
    case Option::keep_count:
      if (!of_range(1, 127)) return -EINVAL;
      tcp.keep_alive_probes = static_cast<uint8_t>(value);
      break;
    case Option::user_timeout:  // milliseconds
      if (value < 0) return -EINVAL;
      tcp.user_timeout = static_cast<Nanoseconds>(value) * kMillisecond;
      break;
    case Option::max_segment:
      if (value != 0 && !of_range(88, 32'767)) return -EINVAL;
      if (socket.has_connection()) return 0;
      socket.max_segment = value == 0 ? kAnySegment : static_cast<uint16_t>(value);
      break;
    case Option::fast_open:
      if (!of_range(0, 0xFFFF) || socket.has_connection() || socket.local_stream != nullptr) return -EINVAL;
      socket.fast_open_max = static_cast<uint16_t>(std::min<int64_t>(value, 4096));
      if (socket.listening != nullptr) socket.listening->fast_open_max = socket.fast_open_max;
      return 0;
    case Option::fast_open_connect:
      if (!of_range(0, 1)) return -EINVAL;
      if (socket.has_connection() || socket.local_stream != nullptr || socket.listening != nullptr) return -EINVAL;
      socket.fast_open_connect = value != 0;
      return 0;
    case Option::max_pacing_rate:
      if (value < 0) return -EINVAL;
      tcp.max_pacing_rate = static_cast<uint64_t>(value);
      break;
    case Option::congestion:
      if (!of_range(0, static_cast<int64_t>(tcp::Algorithm::bbr))) return -ENOENT;
      tcp.congestion = static_cast<tcp::Algorithm>(value);
      break;
    default: return -ENOPROTOOPT;
  }
  return 0;
}

void Stack::set_peek_offset(uint32_t index, std::optional<uint32_t> offset) {
  slab_[index].peeks_behind = offset.has_value();
  if (offset) peek_offsets_[index] = *offset;
  else peek_offsets_.erase(index);
}

int64_t Stack::option(int number, Option option) {
  Socket* const socket = owned(number);
  if (socket == nullptr) return -EBADF;
  const bool stream = socket->type == Type::stream;
  const tcp::Options* const tcp = stream ? &*socket->tcp.options : nullptr;
  switch (option) {
    case Option::error: return take_error(*socket);
    case Option::type: return static_cast<int64_t>(socket->type);
    case Option::accepts: return socket->listening != nullptr;
    case Option::peek_offset: return socket->peeks_behind ? int64_t{peek_offset(static_cast<uint32_t>(number))} : -1;
    case Option::reuse_address: return socket->reuse;
    case Option::reuse_port: return socket->reuse_port;
    // As Linux has it, what is bound to an address of IPv6 is of no other.
    case Option::only_ipv6:
      return socket->only_ipv6 || (socket->ipv6 && socket->named && !socket->local.host.is_unspecified() && !socket->local.host.is_ipv4());
    case Option::send_buffer: return stream ? tcp->send_buffer : kMessageMax;
    case Option::receive_buffer: return stream ? tcp->receive_buffer : socket->datagram->receive_max;
    case Option::linger: return socket->linger == kNone ? -1 : static_cast<int64_t>(socket->linger);
    case Option::hop_limit: return socket->hop_limit == 0 ? 64 : socket->hop_limit;
    case Option::traffic_class: return socket->traffic_class;
    case Option::udp_segment: return stream ? -ENOPROTOOPT : socket->datagram->segment;
    case Option::udp_gro: return stream ? -ENOPROTOOPT : int64_t{socket->datagram->coalesce};
    case Option::cork: return stream ? tcp->cork : socket->datagram->cork;
    case Option::broadcast: return !stream && socket->datagram->broadcast;
    case Option::group_loop: return stream ? -ENOPROTOOPT : int64_t{socket->datagram->group_loop};
    case Option::group_hops: return stream ? -ENOPROTOOPT : socket->datagram->group_hops;
    case Option::keep_alive: return stream && tcp->keep_alive_idle != 0;
    case Option::queue_errors4: return stream ? -ENOPROTOOPT : int64_t{socket->datagram->queues_errors4};
    case Option::queue_errors6: return stream || !socket->ipv6 ? -ENOPROTOOPT : int64_t{socket->datagram->queues_errors6};
    case Option::path_discovery4: return stream ? -ENOPROTOOPT : static_cast<int64_t>(socket->datagram->discovery4);
    case Option::path_discovery6:
      return stream || !socket->ipv6 ? -ENOPROTOOPT : static_cast<int64_t>(socket->datagram->discovery6);
    case Option::path_mtu: return path_mtu(*socket);
    case Option::zero_copy: return socket->zero_copy;
    case Option::urgent_inline: return socket->urgent_inline;
    default: break;
  }
  if (!stream) return -ENOPROTOOPT;
  switch (option) {
    case Option::no_delay: return !tcp->nagle;
    case Option::keep_idle: return socket->keep_idle;
    case Option::keep_interval: return static_cast<int64_t>(tcp->keep_alive_interval / kSecond);
    case Option::keep_count: return tcp->keep_alive_probes;
    case Option::user_timeout: return static_cast<int64_t>(tcp->user_timeout / kMillisecond);
    case Option::max_segment:
      if (socket->has_connection() && socket->tcp.connection->mss() != 0) return socket->tcp.connection->mss();
      return socket->max_segment != kAnySegment && socket->local_stream == nullptr ? socket->max_segment : 536;
    case Option::fast_open: return socket->fast_open_max;
    case Option::fast_open_connect: return socket->fast_open_connect;
    case Option::max_pacing_rate: return static_cast<int64_t>(tcp->max_pacing_rate);
    case Option::congestion: return static_cast<int64_t>(tcp->congestion);
    default: return -ENOPROTOOPT;
  }
}

}  // namespace unet::sockets
