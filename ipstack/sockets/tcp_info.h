// tcp_info.h - what a connection tells of itself, in the structures of <linux/tcp.h>; used by getsockopt().
#pragma once

#include <sys/socket.h>

#include "ipstack/tcp/info.h"

namespace unet::sockets {

// Writes struct tcp_info, as far as there is room. Returns the number of bytes.
socklen_t write_tcp_info(const tcp::Info& info, bool ipv6, void* into, socklen_t length) noexcept;
// Writes the data of TCP_CC_INFO, which Linux has for BBR alone. Returns the number of bytes.
socklen_t write_congestion_info(const tcp::Info& info, void* into, socklen_t length) noexcept;

}  // namespace unet::sockets
