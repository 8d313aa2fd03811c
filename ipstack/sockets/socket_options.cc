// socket_options.cc - checks and stores the values of socket options.
#include "ipstack/sockets/socket_options.h"

#include <algorithm>
#include <cerrno>

#include "unet/limits.h"

namespace unet::sockets {
namespace {

constexpr int64_t kBufferLeast = 4096, kBufferMost = 64 * 1024 * 1024;

uint32_t buffer_of(int64_t value) noexcept { return static_cast<uint32_t>(std::clamp(value, kBufferLeast, kBufferMost)); }

}  // namespace

int store_option(Socket& socket, SocketOption option, int64_t value, tcp::Options& tcp) noexcept {
  const bool stream = socket.type == Type::stream;
  const auto set_keep_alive = [&](bool on) { tcp.keep_alive_idle = on ? Nanoseconds{socket.keep_idle} * kSecond : 0; };
  const auto of_range = [&](int64_t least, int64_t most) { return value >= least && value <= most; };
  switch (option) {
    case SocketOption::error:
    case SocketOption::type:
    case SocketOption::peek_offset:
    case SocketOption::path_mtu:
    case SocketOption::accepts: return -ENOPROTOOPT;
    case SocketOption::reuse_address: socket.reuse = value != 0; return 0;
    case SocketOption::urgent_inline: socket.urgent_inline = value != 0; return 0;
    case SocketOption::reuse_port: socket.reuse_port = value != 0; return 0;
    case SocketOption::only_ipv6:
      if (!socket.ipv6) return -ENOPROTOOPT;
      if (socket.bound) return -EINVAL;
      socket.only_ipv6 = value != 0;
      return 0;
    case SocketOption::send_buffer:
      tcp.send_buffer = tcp.send_buffer_max = buffer_of(value);  // a buffer that the application has set does not grow by itself
      return 0;
    case SocketOption::receive_buffer:
      // The announced window of a connection must not shrink, and its scale is fixed.
      if (stream && !socket.has_connection()) tcp.receive_buffer = tcp.receive_buffer_max = buffer_of(value);
      if (!stream) socket.datagram->receive_max = buffer_of(value);
      return 0;
    case SocketOption::linger:
      if (!of_range(-1, 0x7FFF'FFFF)) return -EINVAL;
      socket.linger = value < 0 ? ~uint32_t{0} : static_cast<uint32_t>(value);
      return 0;
    case SocketOption::hop_limit:
      if (!of_range(-1, 255) || value == 0) return -EINVAL;
      socket.hop_limit = static_cast<uint8_t>(value < 0 ? 0 : value);  // -1: the host's default
      return 0;
    case SocketOption::traffic_class:
      if (!of_range(-1, 255)) return -EINVAL;
      if (value < 0) value = 0;
      socket.traffic_class = static_cast<uint8_t>(stream ? value & 0xFC : value);  // a stream's ECN is not the application's
      return 0;
    case SocketOption::udp_segment:
      if (stream) return -ENOPROTOOPT;
      if (!of_range(0, 0xFFFF)) return -EINVAL;
      socket.datagram->segment = static_cast<uint16_t>(value);
      return 0;
    case SocketOption::udp_gro:
      if (stream) return -ENOPROTOOPT;
      socket.datagram->coalesce = value != 0;
      return 0;
    case SocketOption::cork:
      if (stream) tcp.cork = value != 0;
      else socket.datagram->cork = value != 0;
      return 0;
    case SocketOption::broadcast:
      if (!stream) socket.datagram->broadcast = value != 0;
      return 0;
    case SocketOption::group_loop:
      if (stream) return -ENOPROTOOPT;
      socket.datagram->group_loop = value != 0;
      return 0;
    case SocketOption::group_hops:
      if (stream) return -ENOPROTOOPT;
      if (!of_range(-1, 255)) return -EINVAL;
      socket.datagram->group_hops = static_cast<uint8_t>(value < 0 ? 1 : value);  // -1: the default
      return 0;
    case SocketOption::keep_alive:
      set_keep_alive(value != 0);
      return 0;
    case SocketOption::queue_errors4:
      if (stream) return -ENOPROTOOPT;
      socket.datagram->queues_errors4 = value != 0;
      return 0;
    case SocketOption::queue_errors6:
      if (stream || !socket.ipv6) return -ENOPROTOOPT;
      socket.datagram->queues_errors6 = value != 0;
      return 0;
    case SocketOption::path_discovery4:
    case SocketOption::path_discovery6: {
      const bool four = option == SocketOption::path_discovery4;
      if (stream || (!four && !socket.ipv6)) return -ENOPROTOOPT;
      if (!of_range(0, static_cast<int64_t>(PathDiscovery::omit))) return -EINVAL;
      (four ? socket.datagram->discovery4 : socket.datagram->discovery6) = static_cast<PathDiscovery>(value);
      return 0;
    }
    case SocketOption::zero_copy:
      if (!of_range(0, 1)) return -EINVAL;
      socket.zero_copy = value != 0;
      return 0;
    default: break;
  }
  if (!stream) return -ENOPROTOOPT;
  switch (option) {
    case SocketOption::no_delay:
      tcp.nagle = value == 0;
      break;
    case SocketOption::keep_idle:
      if (!of_range(1, 32'767)) return -EINVAL;
      socket.keep_idle = static_cast<uint16_t>(value);
      if (tcp.keep_alive_idle != 0) set_keep_alive(true);
      break;
    case SocketOption::keep_interval:
      if (!of_range(1, 32'767)) return -EINVAL;
      tcp.keep_alive_interval = static_cast<Nanoseconds>(value) * kSecond;
      break;
    case SocketOption::keep_count:
      if (!of_range(1, 127)) return -EINVAL;
      tcp.keep_alive_probes = static_cast<uint8_t>(value);
      break;
    case SocketOption::user_timeout:  // milliseconds
      if (value < 0) return -EINVAL;
      tcp.user_timeout = static_cast<Nanoseconds>(value) * kMillisecond;
      break;
    case SocketOption::max_segment:
      if (value != 0 && !of_range(88, 32'767)) return -EINVAL;
      if (socket.has_connection()) return 0;
      socket.max_segment = value == 0 ? kAnySegment : static_cast<uint16_t>(value);
      break;
    case SocketOption::fast_open:
      if (!of_range(0, 0xFFFF) || socket.has_connection() || socket.local_stream != nullptr) return -EINVAL;
      socket.fast_open_max = static_cast<uint16_t>(std::min<int64_t>(value, 4096));
      if (socket.listening != nullptr) socket.listening->fast_open_max = socket.fast_open_max;
      return 0;
    case SocketOption::fast_open_connect:
      if (!of_range(0, 1)) return -EINVAL;
      if (socket.has_connection() || socket.local_stream != nullptr || socket.listening != nullptr) return -EINVAL;
      socket.fast_open_connect = value != 0;
      return 0;
    case SocketOption::max_pacing_rate:
      if (value < 0) return -EINVAL;
      tcp.max_pacing_rate = static_cast<uint64_t>(value);
      break;
    case SocketOption::congestion:
      if (!of_range(0, tcp::kAlgorithmCount - 1)) return -ENOENT;
      tcp.congestion = static_cast<tcp::Algorithm>(value);
      break;
    default: return -ENOPROTOOPT;
  }
  return 0;
}

int64_t stored_option(const Socket& socket, SocketOption option) noexcept {
  const bool stream = socket.type == Type::stream;
  const tcp::Options* const tcp = stream ? &*socket.tcp.options : nullptr;
  switch (option) {
    case SocketOption::type: return static_cast<int64_t>(socket.type);
    case SocketOption::accepts: return socket.listening != nullptr;
    case SocketOption::reuse_address: return socket.reuse;
    case SocketOption::reuse_port: return socket.reuse_port;
    // A socket that is bound to an address of IPv6 is IPv6 only, as in Linux.
    case SocketOption::only_ipv6:
      return socket.only_ipv6 || (socket.ipv6 && socket.named && !socket.local.host.is_unspecified() && !socket.local.host.is_ipv4());
    case SocketOption::send_buffer: return stream ? tcp->send_buffer : kMessageMax;
    case SocketOption::receive_buffer: return stream ? tcp->receive_buffer : socket.datagram->receive_max;
    case SocketOption::linger: return socket.linger == ~uint32_t{0} ? -1 : static_cast<int64_t>(socket.linger);
    case SocketOption::hop_limit: return socket.hop_limit == 0 ? 64 : socket.hop_limit;
    case SocketOption::traffic_class: return socket.traffic_class;
    case SocketOption::udp_segment: return stream ? -ENOPROTOOPT : socket.datagram->segment;
    case SocketOption::udp_gro: return stream ? -ENOPROTOOPT : int64_t{socket.datagram->coalesce};
    case SocketOption::cork: return stream ? tcp->cork : socket.datagram->cork;
    case SocketOption::broadcast: return !stream && socket.datagram->broadcast;
    case SocketOption::group_loop: return stream ? -ENOPROTOOPT : int64_t{socket.datagram->group_loop};
    case SocketOption::group_hops: return stream ? -ENOPROTOOPT : socket.datagram->group_hops;
    case SocketOption::keep_alive: return stream && tcp->keep_alive_idle != 0;
    case SocketOption::queue_errors4: return stream ? -ENOPROTOOPT : int64_t{socket.datagram->queues_errors4};
    case SocketOption::queue_errors6: return stream || !socket.ipv6 ? -ENOPROTOOPT : int64_t{socket.datagram->queues_errors6};
    case SocketOption::path_discovery4: return stream ? -ENOPROTOOPT : static_cast<int64_t>(socket.datagram->discovery4);
    case SocketOption::path_discovery6:
      return stream || !socket.ipv6 ? -ENOPROTOOPT : static_cast<int64_t>(socket.datagram->discovery6);
    case SocketOption::zero_copy: return socket.zero_copy;
    case SocketOption::urgent_inline: return socket.urgent_inline;
    default: break;
  }
  if (!stream) return -ENOPROTOOPT;
  switch (option) {
    case SocketOption::no_delay: return !tcp->nagle;
    case SocketOption::keep_idle: return socket.keep_idle;
    case SocketOption::keep_interval: return static_cast<int64_t>(tcp->keep_alive_interval / kSecond);
    case SocketOption::keep_count: return tcp->keep_alive_probes;
    case SocketOption::user_timeout: return static_cast<int64_t>(tcp->user_timeout / kMillisecond);
    case SocketOption::max_segment:
      if (socket.has_connection() && socket.tcp.connection->mss() != 0) return socket.tcp.connection->mss();
      return socket.max_segment != kAnySegment && socket.local_stream == nullptr ? socket.max_segment : 536;
    case SocketOption::fast_open: return socket.fast_open_max;
    case SocketOption::fast_open_connect: return socket.fast_open_connect;
    case SocketOption::max_pacing_rate: return static_cast<int64_t>(tcp->max_pacing_rate);
    case SocketOption::congestion: return static_cast<int64_t>(tcp->congestion);
    default: return -ENOPROTOOPT;
  }
}

}  // namespace unet::sockets
