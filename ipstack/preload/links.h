// links.h - what processes say to one another of sockets that both have, by a link: a Unix socket pair of packets. The process whose
// sockets they are has one end (relays.h), a process that inherited them, or was passed one, the other (ancestors.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <type_traits>

#include "ipstack/sockets/address.h"

namespace unet::preload {

// To whose the socket is. With take and take_unused comes the descriptor that the bytes are to be carried to, with fork another link's.
struct LinkMessage {
  enum class Kind : uint32_t {
    take,         // a connection: it is to be used there
    take_unused,  // the same, but nobody may want it: a program has it because nobody closed it
    end,          // shutdown() of a connection that was taken
    close,        // a connection or a listener: it is closed there
    serve,        // a listener: a connection of it is wanted
    took,         // a connection that was handed over: it is accepted
    fork,         // a child of the process has all that it had
  } kind = Kind::take;
  int32_t socket = -1;  // as the owner's stack numbers it
};

// The other way: a connection for a listener that is served there. With it comes the descriptor of its bytes, which are carried when it is
// taken.
struct HandedMessage {
  int32_t listener = -1, connection = -1;
  sockets::Address local{}, remote{};
};
static_assert(std::is_trivially_copyable_v<LinkMessage> && std::is_trivially_copyable_v<HandedMessage>);

// Two ends of a link, where programs do not look for descriptors. False: there is none to be had.
bool make_link(int (&ends)[2]) noexcept;
// `descriptor` -1: none goes along. False: the other end is gone, or (without `may_wait`) has much unread.
bool send_by_link(int link, const void* data, size_t size, int descriptor = -1, bool may_wait = false) noexcept;
// The size of the message, 0 at the end of the link, or -errno. `descriptor` is the caller's then; -1: none came.
ssize_t receive_by_link(int link, void* data, size_t size, int& descriptor) noexcept;

}  // namespace unet::preload
