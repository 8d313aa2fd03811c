// socket_options.h - the options of a socket, as setsockopt() and getsockopt() of Linux have them; used by the stack.
#pragma once

#include <cstdint>

#include "ipstack/sockets/socket.h"

namespace unet::sockets {

enum class SocketOption : uint8_t {
  error, type, accepts, reuse_address, only_ipv6, send_buffer, receive_buffer, no_delay, cork, keep_alive, keep_idle, keep_interval,
  keep_count, user_timeout, linger, max_segment, hop_limit, traffic_class, congestion, udp_segment, udp_gro, broadcast, group_loop,
  group_hops, fast_open, fast_open_connect, reuse_port, queue_errors4, queue_errors6, zero_copy, path_discovery4, path_discovery6,
  path_mtu, max_pacing_rate, peek_offset, urgent_inline
};
constexpr uint8_t kSocketOptionCount = static_cast<uint8_t>(SocketOption::urgent_inline) + 1;

// Stores an option's value in the socket, or, if it is a connection's, in `tcp`. 0, or -errno.
int store_option(Socket& socket, SocketOption option, int64_t value, tcp::Options& tcp) noexcept;
// The stored value, or -errno. Not of error, peek_offset and path_mtu, which the stack knows.
int64_t stored_option(const Socket& socket, SocketOption option) noexcept;

}  // namespace unet::sockets
