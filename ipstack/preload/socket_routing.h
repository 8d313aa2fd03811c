// socket_routing.h - chooses the backend of a socket: the stack (`user`), the kernel, or both (`dual`); used by the calls of
// ipstack/preload under the runtime's lock. A socket begins undecided at the kernel. bind(), connect() or a first datagram decides.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <optional>

#include "ipstack/preload/file.h"
#include "ipstack/preload/rules.h"

namespace unet::preload {

// A call on a file returns this if the kernel serves the socket by now: call the C library's function.
constexpr int kAskKernel = -ERESTART;

// Reads the address of a connect() or a send: 0, or -errno.
int read_address(const File& file, const sockaddr* address, socklen_t length, sockets::Address& into) noexcept;

// The backend for a connection or datagram to that address. `user` only while the stack is open. None: no memory to find out.
std::optional<Backend> backend_of_remote(const File& file, const sockets::Address& remote);

// bind() and listen(), which route a socket. They return what the call of that name returns, but -errno for an error.
int bind_file(File& file, const sockaddr* address, socklen_t length);
// kAskKernel: the kernel alone has the socket now, and the table has no descriptor of the file.
int listen_file(File& file, int backlog);
// Routes a socket before connect() or a datagram: 0: the stack serves it. kAskKernel: the kernel does. Or -errno.
int route_for(File& file, const sockets::Address& remote);

// Makes the file's socket in the stack: 0, or -errno.
int open_in_stack(File& file);
// The kernel takes no part in the socket any longer.
void leave_kernel(File& file);
// The kernel takes part in the socket again.
void join_kernel(File& file);
// Adds the shadow to the kernel's epoll set. Not while a child has not waited with the set: the parent still uses the kernel's set, too.
void join_set(Registration& each);
// The kernel alone has the socket from now on. The table has none of its descriptors any longer.
void leave_to_kernel(File& file);

// Puts an end of a socket pair at its descriptors. The owner of the other end carries the connection's bytes.
void become_pair(File& file, int end, const sockets::Address& local, const sockets::Address& remote);

// Applies an option to the file, and to the stack's socket if there is one: 0, or -errno. The shadow has accepted the option before.
int set_option(File& file, int level, int name, const void* value, socklen_t length);
// Applies an option that the shadow refused by `error`, an -errno: it may be about a multicast group of the NI.
int set_group_option(File& file, int level, int name, const void* value, socklen_t length, int error);

}  // namespace unet::preload
