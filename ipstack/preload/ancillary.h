// ancillary.h - control data of recvmsg() and sendmsg() on the stack's sockets; used by transfer.cc and socket_routing.cc under the lock.
#pragma once

#include <sys/socket.h>

#include <ctime>

#include "ipstack/preload/file.h"
#include "ipstack/sockets/stack.h"

namespace unet::preload {

// setsockopt() of what recvmsg() is to tell, which the kernel's socket has judged. False: it is something else.
bool set_telling(File& file, int level, int name, const void* value, socklen_t length) noexcept;
// Writes the control data of a received datagram into `message`.
void tell_of_datagram(const File& file, const sockets::Stack::Received& what, msghdr& message);
// Writes the control data of a stream into `message`.
void tell_of_stream(const File& file, msghdr& message);
// recvmsg() with MSG_ERRQUEUE, of what a socket of ours has: bytes, or -errno.
int64_t receive_error(File& file, msghdr& message);
// By the runtime's clock, and by the wall's now.
timespec wall_time(Nanoseconds then) noexcept;

// Reads the control data of sendmsg(): 0, or -errno, as Linux checks it. `ipv4`: the datagram's destination.
int64_t read_control(const File& file, const msghdr& message, bool ipv4, sockets::Stack::Sending& how);

}  // namespace unet::preload
