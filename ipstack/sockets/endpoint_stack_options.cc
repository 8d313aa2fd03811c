// endpoint_stack_options.cc - the options of setsockopt() and getsockopt(), in terms of the stack's.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "ipstack/sockets/endpoint_stack.h"
#include "ipstack/sockets/sockaddr.h"
#include "ipstack/sockets/tcp_info.h"
#include "unet/socket_table.h"

namespace unet::sockets {
namespace {

struct OptionName {
  int level, name;
  Stack::Option option;
};
// Options with an int that Stack::set_option() takes unchanged.
constexpr OptionName kOptions[] = {
    {SOL_SOCKET, SO_ERROR, Stack::Option::error},
    {SOL_SOCKET, SO_ACCEPTCONN, Stack::Option::accepts},
    {SOL_SOCKET, SO_REUSEADDR, Stack::Option::reuse_address},
    {SOL_SOCKET, SO_REUSEPORT, Stack::Option::reuse_port},
    {SOL_SOCKET, SO_SNDBUF, Stack::Option::send_buffer},
    {SOL_SOCKET, SO_RCVBUF, Stack::Option::receive_buffer},
    {SOL_SOCKET, SO_PEEK_OFF, Stack::Option::peek_offset},
    {SOL_SOCKET, SO_KEEPALIVE, Stack::Option::keep_alive},
    {SOL_SOCKET, SO_BROADCAST, Stack::Option::broadcast},
    {SOL_SOCKET, SO_ZEROCOPY, Stack::Option::zero_copy},
    {SOL_SOCKET, SO_OOBINLINE, Stack::Option::urgent_inline},
    {IPPROTO_TCP, TCP_NODELAY, Stack::Option::no_delay},
    {IPPROTO_TCP, TCP_CORK, Stack::Option::cork},
    {IPPROTO_TCP, TCP_MAXSEG, Stack::Option::max_segment},
    {IPPROTO_TCP, TCP_KEEPIDLE, Stack::Option::keep_idle},
    {IPPROTO_TCP, TCP_KEEPINTVL, Stack::Option::keep_interval},
    {IPPROTO_TCP, TCP_KEEPCNT, Stack::Option::keep_count},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, Stack::Option::user_timeout},
    {IPPROTO_TCP, TCP_FASTOPEN, Stack::Option::fast_open},
    {IPPROTO_TCP, TCP_FASTOPEN_CONNECT, Stack::Option::fast_open_connect},
    {IPPROTO_IP, IP_TTL, Stack::Option::hop_limit},
    {IPPROTO_IP, IP_TOS, Stack::Option::traffic_class},
    {IPPROTO_IP, IP_MTU_DISCOVER, Stack::Option::path_discovery4},
    {IPPROTO_IP, IP_MTU, Stack::Option::path_mtu},
    {IPPROTO_IP, IP_RECVERR, Stack::Option::queue_errors4},
    {IPPROTO_IP, IP_MULTICAST_TTL, Stack::Option::group_hops},
    {IPPROTO_IP, IP_MULTICAST_LOOP, Stack::Option::group_loop},
    {IPPROTO_IPV6, IPV6_MULTICAST_HOPS, Stack::Option::group_hops},
    {IPPROTO_IPV6, IPV6_MULTICAST_LOOP, Stack::Option::group_loop},
    {IPPROTO_IPV6, IPV6_UNICAST_HOPS, Stack::Option::hop_limit},
    {IPPROTO_IPV6, IPV6_TCLASS, Stack::Option::traffic_class},
    {IPPROTO_IPV6, IPV6_MTU_DISCOVER, Stack::Option::path_discovery6},
    {IPPROTO_IPV6, IPV6_MTU, Stack::Option::path_mtu},
    {IPPROTO_IPV6, IPV6_RECVERR, Stack::Option::queue_errors6},
    {IPPROTO_IPV6, IPV6_V6ONLY, Stack::Option::only_ipv6},
    {IPPROTO_UDP, UDP_CORK, Stack::Option::cork},
    {IPPROTO_UDP, UDP_SEGMENT, Stack::Option::udp_segment},
    {IPPROTO_UDP, UDP_GRO, Stack::Option::udp_gro},
};

// The option of a stream or datagram socket. A stream has no options of UDP, a datagram socket none of TCP.
const OptionName* find_option(int level, int name, bool datagram) noexcept {
  if (level == (datagram ? IPPROTO_TCP : IPPROTO_UDP)) return nullptr;
  const auto at = std::find_if(std::begin(kOptions), std::end(kOptions),
                               [&](const OptionName& each) { return each.level == level && each.name == name; });
  return at == std::end(kOptions) ? nullptr : at;
}

// False: it has not so many bytes.
template <typename T>
bool read(T& into, const void* value, socklen_t length) noexcept {
  if (length < sizeof into) return false;
  std::memcpy(&into, value, sizeof into);
  return true;
}

bool is_own(const IpConfiguration& all, const ip::IpAddress& address) noexcept {
  return std::any_of(all.addresses.begin(), all.addresses.end(), [&](const auto& each) { return each.address == address; });
}

// Whether a link has the number. 0: any link; 1: accepted from older programs.
bool is_link(const IpConfiguration& all, uint32_t number) noexcept {
  const auto is_it = [&](const auto& each) { return kLinkNumber + each.port == number; };
  return number <= 1 || std::any_of(all.interfaces.begin(), all.interfaces.end(), is_it);
}

}  // namespace

int EndpointStack::set_option(int s, int level, int name, const void* value, socklen_t length) {
  if (!timed_stack().is_open(s)) return -EBADF;
  if (value == nullptr) return -EFAULT;
  if (level == SOL_SOCKET && name == SO_LINGER) {
    linger wanted;
    if (!read(wanted, value, length)) return -EINVAL;
    return stack_->set_option(s, Stack::Option::linger, wanted.l_onoff == 0 ? -1 : wanted.l_linger);
  }
  if (level == SOL_SOCKET && name == SO_MAX_PACING_RATE) {
    uint64_t rate = 0;  // Linux takes 8 bytes or, in its older form, 4; all ones: unlimited
    if (length < sizeof(uint32_t)) return -EINVAL;
    const bool wide = length >= sizeof rate;
    std::memcpy(&rate, value, wide ? sizeof rate : sizeof(uint32_t));
    const uint64_t any = wide ? ~uint64_t{0} : ~uint32_t{0};
    const auto most = static_cast<int64_t>(std::min<uint64_t>(std::max<uint64_t>(rate, 1), INT64_MAX));
    return stack_->set_option(s, Stack::Option::max_pacing_rate, rate == any ? 0 : most);
  }
  if (level == IPPROTO_TCP && name == TCP_CONGESTION) {
    const std::string_view text(static_cast<const char*>(value), ::strnlen(static_cast<const char*>(value), length));
    const auto at = std::find(kSocketCongestion.begin(), kSocketCongestion.end(), text);
    return at == kSocketCongestion.end() ? -ENOENT : stack_->set_option(s, Stack::Option::congestion, at - kSocketCongestion.begin());
  }
  if (const std::optional<int> result = set_group(s, level, name, value, length)) return *result;
  const OptionName* const option = find_option(level, name, stack_->is_datagram(s));
  if (option == nullptr) return -ENOPROTOOPT;
  int number;
  if (level == IPPROTO_IP && length == 1) number = *static_cast<const uint8_t*>(value);  // where others have an unsigned char
  else if (!read(number, value, length)) return -EINVAL;
  if (level == IPPROTO_IP && name == IP_TOS) number &= 0xFF;  // Linux ignores the other bits
  return stack_->set_option(s, option->option, number);
}

int EndpointStack::get_option(int s, int level, int name, void* value, socklen_t* length) {
  if (!timed_stack().is_open(s)) return -EBADF;
  if (value == nullptr || length == nullptr) return -EFAULT;
  const auto put = [&](const void* from, socklen_t size) {
    std::memcpy(value, from, std::min(*length, size));
    *length = std::min(*length, size);
    return 0;
  };
  if (level == SOL_SOCKET && name == SO_LINGER) {
    const int64_t seconds = stack_->option(s, Stack::Option::linger);
    const linger value_{.l_onoff = seconds >= 0, .l_linger = static_cast<int>(std::max<int64_t>(seconds, 0))};
    return put(&value_, sizeof value_);
  }
  if (level == SOL_SOCKET && name == SO_MAX_PACING_RATE) {
    const int64_t most = stack_->option(s, Stack::Option::max_pacing_rate);
    if (most < 0) return static_cast<int>(most);
    const uint64_t rate = most == 0 ? ~uint64_t{0} : static_cast<uint64_t>(most);
    const auto narrow = static_cast<uint32_t>(std::min<uint64_t>(rate, ~uint32_t{0}));
    return *length >= sizeof rate ? put(&rate, sizeof rate) : put(&narrow, sizeof narrow);
  }
  if (level == IPPROTO_TCP && name == TCP_CONGESTION) {
    const int64_t which = stack_->option(s, Stack::Option::congestion);
    if (which < 0) return static_cast<int>(which);
    const std::string_view text = kSocketCongestion[static_cast<size_t>(which)];
    std::array<char, 16> padded{};  // Linux returns names padded to 16 bytes
    std::copy(text.begin(), text.end(), padded.begin());
    return put(padded.data(), padded.size());
  }
  if (level == IPPROTO_TCP && name == TCP_INFO) {
    if (stack_->is_datagram(s)) return -ENOPROTOOPT;
    Address peer;
    const bool ipv6 = stack_->remote_address(s, peer) == 0 && !peer.host.is_ipv4();
    *length = write_tcp_info(stack_->info(s), ipv6, value, *length);
    return 0;
  }
  if (level == IPPROTO_TCP && name == TCP_CC_INFO) {
    if (stack_->is_datagram(s)) return -ENOPROTOOPT;
    *length = write_congestion_info(stack_->info(s), value, *length);
    return 0;
  }
  if (level == SOL_SOCKET && name == SO_TYPE) {
    const int type = stack_->is_datagram(s) ? SOCK_DGRAM : SOCK_STREAM;
    return put(&type, sizeof type);
  }
  if (level == SOL_SOCKET && (name == SO_DOMAIN || name == SO_PROTOCOL)) {
    const int family = stack_->is_ipv6(s) ? AF_INET6 : AF_INET, protocol = stack_->is_datagram(s) ? IPPROTO_UDP : IPPROTO_TCP;
    return put(name == SO_DOMAIN ? &family : &protocol, sizeof family);
  }
  const OptionName* const option = find_option(level, name, stack_->is_datagram(s));
  if (option == nullptr) return -ENOPROTOOPT;
  const int64_t number = stack_->option(s, option->option);
  if (number < 0 && option->option != Stack::Option::peek_offset) return static_cast<int>(number);
  const auto result = static_cast<int>(number);
  const auto byte = static_cast<uint8_t>(result);
  // For an IPv4 option without room for an int, Linux returns a byte if the value fits.
  if (level == IPPROTO_IP && *length > 0 && *length < sizeof result && result == byte) return put(&byte, sizeof byte);
  return put(&result, sizeof result);
}

// ---- groups

// Sets an option about groups; returns nothing if the option is another. A socket joins a group on all links, whichever link is named.
std::optional<int> EndpointStack::set_group(int s, int level, int name, const void* value, socklen_t length) {
  const IpConfiguration& all = network_->configuration();
  const auto change = [&](bool joins, const ip::IpAddress& group, uint32_t interface) {
    if (!is_link(all, interface)) return -ENODEV;
    return joins ? stack_->join(s, group) : stack_->leave(s, group);
  };
  if (level == IPPROTO_IP && (name == IP_ADD_MEMBERSHIP || name == IP_DROP_MEMBERSHIP)) {
    ip_mreq old;
    if (!read(old, value, length)) return -EINVAL;
    ip_mreqn now{.imr_multiaddr = old.imr_multiaddr, .imr_address = old.imr_interface, .imr_ifindex = 0};
    if (length >= sizeof now) read(now, value, length);
    if (now.imr_ifindex == 0 && now.imr_address.s_addr != 0 && !is_own(all, ip::ipv4_address(&now.imr_address))) return -ENODEV;
    return change(name == IP_ADD_MEMBERSHIP, ip::ipv4_address(&now.imr_multiaddr), static_cast<uint32_t>(now.imr_ifindex));
  }
  if (level == IPPROTO_IPV6 && (name == IPV6_ADD_MEMBERSHIP || name == IPV6_DROP_MEMBERSHIP)) {
    ipv6_mreq wanted;
    if (!read(wanted, value, length)) return -EINVAL;
    return change(name == IPV6_ADD_MEMBERSHIP, ip::ipv6_address(&wanted.ipv6mr_multiaddr), wanted.ipv6mr_interface);
  }
  if ((level == IPPROTO_IP || level == IPPROTO_IPV6) && (name == MCAST_JOIN_GROUP || name == MCAST_LEAVE_GROUP)) {
    group_req wanted;
    if (!read(wanted, value, length)) return -EINVAL;
    Address group;
    const auto* const address = reinterpret_cast<const sockaddr*>(&wanted.gr_group);
    if (const int wrong = read_sockaddr(address, sizeof wanted.gr_group, level == IPPROTO_IPV6, true, group); wrong != 0) return wrong;
    return change(name == MCAST_JOIN_GROUP, group.host, wanted.gr_interface);
  }
  if (level == IPPROTO_IP && name == IP_MULTICAST_IF) {
    in_addr address{};
    ip_mreqn whole{};
    ip_mreq half{};
    if (!read(address, value, length)) return -EINVAL;
    if (read(whole, value, length)) address = whole.imr_address;
    else if (read(half, value, length)) address = half.imr_interface;
    return stack_->set_group_source(s, address.s_addr == 0 ? ip::IpAddress{} : ip::ipv4_address(&address));
  }
  if (level == IPPROTO_IPV6 && name == IPV6_MULTICAST_IF) {
    uint32_t interface;
    if (!read(interface, value, length)) return -EINVAL;
    return !is_link(all, interface) ? -ENODEV : stack_->is_datagram(s) ? 0 : -ENOPROTOOPT;
  }
  return std::nullopt;
}

}  // namespace unet::sockets
