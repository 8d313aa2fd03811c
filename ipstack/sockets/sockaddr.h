// sockaddr.h - addresses as programs hand them over and get them; used by calls.cc and ipstack/preload.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "ipstack/sockets/address.h"

namespace unet::sockets {

// The first page is never a program's memory: null, and a member of an object at null. EFAULT for such a pointer costs one comparison.
// Other pointers to memory that there is not end the program, as asking the kernel about each would cost a system call.
inline bool is_nowhere(const void* memory) noexcept { return reinterpret_cast<uintptr_t>(memory) < 4096; }

// Reads an address for a socket of IPv6 (`six`) or IPv4. Returns 0, or Linux's error as -errno; AF_UNSPEC gives -EAFNOSUPPORT. `either`: a
// socket of IPv6 also takes addresses of AF_INET, as sendto() and connect() of datagrams do.
int read_sockaddr(const sockaddr* address, socklen_t length, bool six, bool either, Address& into) noexcept;
// The number of the network interface's port 0, where programs expect that of an interface; others follow. The kernel's numbers are lower.
constexpr uint32_t kLinkNumber = 0x7FFF'0000;
// Writes as much of the address as `length` has room for, and sets `length` to the whole length. Null: not asked for. A link-local address
// of IPv6 has the scope kLinkNumber.
void write_sockaddr(const Address& address, bool six, sockaddr* into, socklen_t* length) noexcept;

// Reads the family of an address at any alignment, at least two bytes long.
sa_family_t family_of(const sockaddr* address) noexcept;

}  // namespace unet::sockets
