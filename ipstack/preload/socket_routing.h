// socket_routing.h - chooses the backend of a socket: the stack (`user`), the kernel, or both (`dual`); used by the calls of
// ipstack/preload under the runtime's lock. A socket begins undecided at the kernel. bind(), connect() or a first datagram decides.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <optional>

#include "ipstack/preload/file.h"
#include "ipstack/preload/rules.h"

namespace unet::preload {

// A call on a file returns this if the socket is the kernel's, perhaps only by now: the C library's function is to be called.
constexpr int kAskKernel = -ERESTART;

// Where it is to connect or to send: 0, or -errno.
int read_address(const File& file, const sockaddr* address, socklen_t length, sockets::Address& into) noexcept;

// The backend for what goes to that address: `user` only if the stack is open then; none: there is no memory to find out.
std::optional<Backend> backend_of_remote(const File& file, const sockets::Address& remote);

// Calls that route a socket. They answer as the call of that name does, but an error as -errno.
int bind_file(File& file, const sockaddr* address, socklen_t length);
// kAskKernel: the socket has become the kernel's alone, and the file is no more.
int listen_file(File& file, int backlog);
// Before connect() or a datagram to there: 0: the socket is ours; kAskKernel: the kernel's.
int route_for(File& file, const sockets::Address& remote);

// The stack has a part of it from now on. 0, or -errno.
int open_in_stack(File& file);
// The kernel has no part of it any longer.
void leave_kernel(File& file);
// The kernel has a part of it again.
void join_kernel(File& file);
// The kernel's set has the kernel's part of it. Not yet where a child has not waited with a set: the kernel's is its parent's, too.
void join_set(Registration& each);
// The kernel alone has it: the file is no more.
void leave_to_kernel(File& file);

// Puts an end of a socket pair at its descriptors. The owner of the other end carries the connection's bytes.
void become_pair(File& file, int end, const sockets::Address& local, const sockets::Address& remote);

// Applies an option to the file, and to the stack's socket if there is one: 0, or -errno. The shadow has accepted the option before.
int set_option(File& file, int level, int name, const void* value, socklen_t length);
// Applies an option that the shadow refused by `error`, an -errno: it may be about a multicast group of the NI.
int set_group_option(File& file, int level, int name, const void* value, socklen_t length, int error);

}  // namespace unet::preload
