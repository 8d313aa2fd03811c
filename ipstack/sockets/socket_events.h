// socket_events.h - what epoll says of a socket; used by the stack.
#pragma once

#include "ipstack/sockets/socket.h"

namespace unet::sockets {

// Events, with the values of epoll.
struct Events {
  static constexpr uint32_t kIn = 0x001, kUrgent = 0x002, kOut = 0x004, kError = 0x008, kHangUp = 0x010, kPeerShut = 0x2000;
  static constexpr uint32_t kEnded = kPeerShut | kHangUp;
};

// Events as Linux's tcp_poll() and datagram_poll() report them. StackCore::events_of() adds those of urgent data.
uint32_t socket_events(const Socket& socket) noexcept;

}  // namespace unet::sockets
