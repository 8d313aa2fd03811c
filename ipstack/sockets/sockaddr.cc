// sockaddr.cc - addresses in the kernel's form.
#include "ipstack/sockets/sockaddr.h"

#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace unet::sockets {
namespace {

constexpr socklen_t kSixLeast = offsetof(sockaddr_in6, sin6_scope_id);  // the older sockaddr_in6, without a scope, which Linux accepts

}  // namespace

sa_family_t family_of(const sockaddr* address) noexcept {
  sa_family_t family;
  std::memcpy(&family, address, sizeof family);
  return family;
}

int read_sockaddr(const sockaddr* address, socklen_t length, bool six, bool either, Address& into) noexcept {
  if (length < sizeof(sa_family_t) || length > sizeof(sockaddr_storage)) return -EINVAL;
  if (is_nowhere(address)) return -EFAULT;
  const sa_family_t family = family_of(address);
  if (family == AF_UNSPEC) return -EAFNOSUPPORT;
  if (!six || (either && family == AF_INET)) {
    sockaddr_in four;
    if (length < sizeof four) return -EINVAL;
    if (family != AF_INET) return -EAFNOSUPPORT;
    std::memcpy(&four, address, sizeof four);
    into = {four.sin_addr.s_addr == 0 ? ip::IpAddress{} : ip::ipv4_address(&four.sin_addr), ntohs(four.sin_port)};
    return 0;
  }
  sockaddr_in6 whole{};
  if (length < kSixLeast) return -EINVAL;
  if (family != AF_INET6) return -EAFNOSUPPORT;
  std::memcpy(&whole, address, std::min<size_t>(length, sizeof whole));
  into = {ip::ipv6_address(&whole.sin6_addr), ntohs(whole.sin6_port)};
  return 0;
}

void write_sockaddr(const Address& address, bool six, sockaddr* into, socklen_t* length) noexcept {
  if (into == nullptr || length == nullptr) return;
  sockaddr_in four{};
  sockaddr_in6 whole{};
  const void* from = &four;
  socklen_t size = sizeof four;
  if (six) {
    whole.sin6_family = AF_INET6;
    whole.sin6_port = htons(address.port);
    std::memcpy(&whole.sin6_addr, address.host.bytes.data(), 16);
    if (!address.host.is_ipv4() && address.host.is_link_local()) whole.sin6_scope_id = kLinkNumber;
    from = &whole;
    size = sizeof whole;
  } else {
    four.sin_family = AF_INET;
    four.sin_port = htons(address.port);
    if (address.host.is_ipv4()) std::memcpy(&four.sin_addr, address.host.wire(), 4);
  }
  std::memcpy(into, from, std::min(*length, size));
  *length = size;
}

}  // namespace unet::sockets
