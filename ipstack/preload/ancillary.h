// ancillary.h - control data of recvmsg() and sendmsg() on the stack's sockets; used by transfer.cc and socket_routing.cc under the lock.
#pragma once

#include <sys/socket.h>

#include <ctime>

#include "ipstack/preload/file.h"
#include "ipstack/sockets/stack.h"

namespace unet::preload {

// setsockopt() of an option that asks for control data in recvmsg(). The shadow has accepted it. False: it is another option.
bool set_telling(File& file, int level, int name, const void* value, socklen_t length) noexcept;
// Writes the control data of a received datagram into `message`.
void tell_of_datagram(const File& file, const sockets::Stack::Received& what, msghdr& message);
// Writes the control data of a stream into `message`.
void tell_of_stream(const File& file, msghdr& message);
// recvmsg() with MSG_ERRQUEUE: takes an error of the stack. Returns the number of bytes, or -errno.
int64_t receive_error(File& file, msghdr& message);
// The wall-clock time of `then`, a time of the runtime's clock.
timespec wall_time(Nanoseconds then) noexcept;

// Reads the control data of sendmsg(): 0, or -errno, as Linux checks it. `ipv4`: the datagram goes to an IPv4 address.
int64_t read_control(const File& file, const msghdr& message, bool ipv4, sockets::Stack::Sending& how);

}  // namespace unet::preload
