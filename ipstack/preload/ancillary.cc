// ancillary.cc - control data of recvmsg() and sendmsg(), in the order and with the errors of Linux.
//
// Control data that does not fit is cut, with MSG_CTRUNC. All datagrams come by one network interface, number sockets::kLinkNumber.
#include "ipstack/preload/ancillary.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <time.h>  // errqueue.h needs it

#include <linux/errqueue.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <optional>

#include "ipstack/preload/runtime.h"
#include "ipstack/preload/transfer.h"
#include "ipstack/sockets/sockaddr.h"

namespace unet::preload {

using sockets::Stack;

namespace {

// Numbers of options for which the C library's headers have other names, or none.
constexpr int kTime = 29, kTimeNs = 35, kTimeNew = 63, kTimeNsNew = 64;  // SO_TIMESTAMP_OLD, SO_TIMESTAMPNS_OLD, and those _NEW
constexpr int kTransmitTime = 61;                                        // SCM_TXTIME
constexpr int kProtocol = 52, kFlowInfo = 11;                            // IP_PROTOCOL, IPV6_FLOWINFO

// Writes control data as the kernel's put_cmsg() does.
class ControlWriter {
 public:
  explicit ControlWriter(msghdr& message) noexcept
      : message_(message), at_(static_cast<std::byte*>(message.msg_control)), left_(sockets::is_nowhere(at_) ? 0 : message.msg_controllen),
        whole_(left_) {}
  ~ControlWriter() { message_.msg_controllen = whole_ - left_; }
  ControlWriter(const ControlWriter&) = delete;
  ControlWriter& operator=(const ControlWriter&) = delete;

  template <typename T>
  void put(int level, int type, const T& value) noexcept {
    const size_t length = std::min(CMSG_LEN(sizeof value), left_);
    if (length < CMSG_LEN(sizeof value)) message_.msg_flags |= MSG_CTRUNC;
    if (length < sizeof(cmsghdr)) return;
    cmsghdr head{};
    head.cmsg_len = length;
    head.cmsg_level = level;
    head.cmsg_type = type;
    std::memcpy(at_, &head, sizeof head);
    std::memcpy(at_ + sizeof head, &value, length - sizeof head);
    const size_t taken = std::min(CMSG_SPACE(sizeof value), left_);
    at_ += taken;
    left_ -= taken;
  }

 private:
  msghdr& message_;
  std::byte* at_;
  size_t left_;
  const size_t whole_;
};

const std::vector<IpConfiguration::Address>& own_addresses() { return Runtime::get().endpoint_stack().network().configuration().addresses; }

bool is_own(const ip::IpAddress& address) {
  const auto& all = own_addresses();
  return std::any_of(all.begin(), all.end(), [&](const auto& each) { return !each.tentative && each.address == address; });
}

// The source address of an answer to a datagram that came to `to`, which may be a group or a broadcast address.
ip::IpAddress answering(const ip::IpAddress& to) {
  const auto& all = own_addresses();
  const auto four = std::find_if(all.begin(), all.end(), [](const auto& each) { return each.address.is_ipv4() && !each.tentative; });
  return is_own(to) || four == all.end() ? to : four->address;
}

void tell_time(const File& file, Nanoseconds came, ControlWriter& control) {
  const timespec time = wall_time(came);
  const bool exact = file.tells.time == kTimeNs || file.tells.time == kTimeNsNew;
  if (exact) return control.put(SOL_SOCKET, file.tells.time, time);
  control.put(SOL_SOCKET, file.tells.time, timeval{.tv_sec = time.tv_sec, .tv_usec = time.tv_nsec / 1000});
}

void tell_destination(const File& file, const ip::IpAddress& to, ControlWriter& control) {
  if (file.tells.destination6) {  // an IPv6 socket also reports IPv4 addresses, mapped
    in6_pktinfo info{};
    std::memcpy(&info.ipi6_addr, to.bytes.data(), sizeof info.ipi6_addr);
    info.ipi6_ifindex = sockets::kLinkNumber;
    control.put(IPPROTO_IPV6, IPV6_PKTINFO, info);
  }
  if (!to.is_ipv4() || !file.tells.destination4) return;
  in_pktinfo info{};
  info.ipi_ifindex = sockets::kLinkNumber;
  std::memcpy(&info.ipi_spec_dst, answering(to).wire(), sizeof info.ipi_spec_dst);
  std::memcpy(&info.ipi_addr, to.wire(), sizeof info.ipi_addr);
  control.put(IPPROTO_IP, IP_PKTINFO, info);
}

// ---- control data of sendmsg()

template <typename T>
bool read(const cmsghdr& each, T& into) noexcept {
  if (each.cmsg_len != CMSG_LEN(sizeof into)) return false;
  std::memcpy(&into, CMSG_DATA(&each), sizeof into);
  return true;
}

// Reads an int within bounds.
bool read_within(const cmsghdr& each, int least, int most, int16_t& into) noexcept {
  int number;
  if (!read(each, number) || number < least || number > most) return false;
  into = static_cast<int16_t>(number);
  return true;
}

int read_source(const ip::IpAddress& from, uint32_t interface, Stack::Sending& how) {
  const bool none = from.is_ipv4() && from == ip::ipv4_address(0u);
  how.from = none ? ip::IpAddress{} : from;
  const bool may = how.from.is_unspecified() || is_own(how.from);
  if (from.is_ipv4() && !may) return -ENETUNREACH;
  if (interface > 1 && interface < sockets::kLinkNumber) return -ENODEV;
  return may ? 0 : -EINVAL;
}

int read_four(const cmsghdr& each, Stack::Sending& how) {
  in_pktinfo info;
  uint8_t byte;
  switch (each.cmsg_type) {
    case IP_PKTINFO:
      if (!read(each, info)) return -EINVAL;
      return read_source(ip::ipv4_address(&info.ipi_spec_dst), static_cast<uint32_t>(info.ipi_ifindex), how);
    case IP_TTL: return read_within(each, 1, 255, how.hop_limit) ? 0 : -EINVAL;
    case IP_TOS:
      if (!read(each, byte)) return read_within(each, 0, 255, how.traffic_class) ? 0 : -EINVAL;
      how.traffic_class = byte;
      return 0;
    case IP_RETOPTS:
    case kProtocol: return 0;  // without effect
    default: return -EINVAL;
  }
}

int read_six(const cmsghdr& each, Stack::Sending& how) {
  in6_pktinfo info;
  switch (each.cmsg_type) {
    case IPV6_PKTINFO:
      if (each.cmsg_len < CMSG_LEN(sizeof info)) return -EINVAL;
      std::memcpy(&info, CMSG_DATA(&each), sizeof info);
      return read_source(ip::ipv6_address(&info.ipi6_addr), info.ipi6_ifindex, how);
    case IPV6_HOPLIMIT: return read_within(each, -1, 255, how.hop_limit) ? 0 : -EINVAL;
    case IPV6_TCLASS: return read_within(each, -1, 255, how.traffic_class) ? 0 : -EINVAL;
    case IPV6_DONTFRAG:
    case kFlowInfo: return 0;  // without effect
    default: return -EINVAL;
  }
}

int read_one(const File& file, const cmsghdr& each, bool ipv4, Stack::Sending& how) {
  if (each.cmsg_level == SOL_SOCKET) {
    constexpr int kGeneral[] = {SCM_RIGHTS, SCM_CREDENTIALS, SO_PRIORITY, SO_MARK, SO_TIMESTAMPING, kTransmitTime};
    return std::find(std::begin(kGeneral), std::end(kGeneral), each.cmsg_type) == std::end(kGeneral) ? -EINVAL : 0;
  }
  if (file.is_stream()) return 0;
  if (each.cmsg_level == IPPROTO_UDP) return each.cmsg_type == UDP_SEGMENT && read(each, how.segment) ? 0 : -EINVAL;
  if (each.cmsg_level == IPPROTO_IP && ipv4) return read_four(each, how);
  if (each.cmsg_level != IPPROTO_IPV6 || file.domain != AF_INET6) return 0;
  if (!ipv4) return read_six(each, how);
  return each.cmsg_type == IPV6_PKTINFO ? read_six(each, how) : 0;
}

}  // namespace

bool set_telling(File& file, int level, int name, const void* value, socklen_t length) noexcept {
  int number = 0;
  if (sockets::is_nowhere(value)) return false;
  std::memcpy(&number, value, std::min<size_t>(length, sizeof number));
  const bool on = number != 0;
  File::Tells& tells = file.tells;
  if (level == SOL_SOCKET) {
    if (name == SO_RXQ_OVFL) return tells.lost = on, true;
    if (name != kTime && name != kTimeNs && name != kTimeNew && name != kTimeNsNew) return false;
    tells.time = on ? name : 0;
    return true;
  }
  if (level == IPPROTO_TCP && name == TCP_INQ) return tells.unread = on, true;
  if (level == IPPROTO_IP && name == IP_PKTINFO) return tells.destination4 = on, true;
  if (level == IPPROTO_IP && name == IP_RECVTTL) return tells.hops4 = on, true;
  if (level == IPPROTO_IP && name == IP_RECVTOS) return tells.class4 = on, true;
  if (level == IPPROTO_IPV6 && name == IPV6_RECVPKTINFO) return tells.destination6 = on, true;
  if (level == IPPROTO_IPV6 && name == IPV6_RECVHOPLIMIT) return tells.hops6 = on, true;
  if (level == IPPROTO_IPV6 && name == IPV6_RECVTCLASS) return tells.class6 = on, true;
  return false;
}

timespec wall_time(Nanoseconds then) noexcept {
  const Nanoseconds at = wall_now() - (Runtime::get().now() - then);
  return {.tv_sec = static_cast<time_t>(at / kSecond), .tv_nsec = static_cast<long>(at % kSecond)};
}

void tell_of_datagram(const File& file, const Stack::Received& what, msghdr& message) {
  const File::Tells& tells = file.tells;
  const bool ipv4 = what.to.is_ipv4();
  ControlWriter control(message);
  if (what.came == 0) return;  // no datagram: shutdown() has ended reading
  if (tells.time != 0) tell_time(file, what.came, control);
  if (tells.lost && what.lost != 0) control.put(SOL_SOCKET, SO_RXQ_OVFL, what.lost);
  if (what.segment != 0) control.put(IPPROTO_UDP, UDP_GRO, int{what.segment});
  tell_destination(file, what.to, control);
  if (ipv4 && tells.hops4) control.put(IPPROTO_IP, IP_TTL, int{what.header_options.hop_limit});
  if (ipv4 && tells.class4) control.put(IPPROTO_IP, IP_TOS, what.header_options.traffic_class);
  if (!ipv4 && tells.hops6) control.put(IPPROTO_IPV6, IPV6_HOPLIMIT, int{what.header_options.hop_limit});
  if (!ipv4 && tells.class6) control.put(IPPROTO_IPV6, IPV6_TCLASS, int{what.header_options.traffic_class});
}

void tell_of_stream(const File& file, msghdr& message) {
  ControlWriter control(message);
  if (!file.tells.unread || !file.in_stack()) return;
  const auto left = static_cast<int>(Runtime::get().stack().queued(file.socket).receive);
  const bool ended = (Runtime::get().events(file) & sockets::Events::kPeerShut) != 0;
  control.put(IPPROTO_TCP, TCP_CM_INQ, left + (ended ? 1 : 0));  // the end counts as a byte
}

int64_t receive_error(File& file, msghdr& message) {
  const std::optional<sockets::QueuedError> error = Runtime::get().stack().take_queued_error(file.socket);
  if (!error) return -EAGAIN;
  const Bytes left = scatter(error->payload, message);
  const bool six = file.domain == AF_INET6;
  const bool completes = error->origin == sockets::QueuedError::Origin::zero_copy;
  if (completes) message.msg_namelen = 0;
  else if (message.msg_name != nullptr) {
    sockets::write_sockaddr(error->to, six, static_cast<sockaddr*>(message.msg_name), &message.msg_namelen);
  }
  message.msg_flags |= MSG_ERRQUEUE | (left.empty() ? 0 : MSG_TRUNC);
  const sock_extended_err told{.ee_errno = static_cast<uint32_t>(error->error), .ee_origin = static_cast<uint8_t>(error->origin),
                               .ee_type = error->type,
                               .ee_code = completes ? uint8_t{SO_EE_CODE_ZEROCOPY_COPIED} : error->code, .ee_pad = 0,
                               .ee_info = error->info, .ee_data = error->data};
  ControlWriter control(message);
  const auto put = [&]<typename Name>(int level, int type, Name name) {
    socklen_t length = sizeof name;
    if (error->is_pending()) sockets::write_sockaddr({error->offender, 0}, six, reinterpret_cast<sockaddr*>(&name), &length);
    struct {
      sock_extended_err error;
      Name offender;
    } both{told, name};
    control.put(level, type, both);
  };
  if (six) put(IPPROTO_IPV6, IPV6_RECVERR, sockaddr_in6{});
  else put(IPPROTO_IP, IP_RECVERR, sockaddr_in{});
  return static_cast<int64_t>(error->payload.size() - left.size());
}

int64_t read_control(const File& file, const msghdr& message, bool ipv4, Stack::Sending& how) {
  if (message.msg_controllen == 0) return 0;
  if (sockets::is_nowhere(message.msg_control)) return -EFAULT;
  auto& whole = const_cast<msghdr&>(message);
  const auto* const end = static_cast<const std::byte*>(message.msg_control) + message.msg_controllen;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr; each = CMSG_NXTHDR(&whole, each)) {
    const auto room = static_cast<size_t>(end - reinterpret_cast<const std::byte*>(each));
    if (each->cmsg_len < sizeof(cmsghdr) || each->cmsg_len > room) return -EINVAL;
    if (const int wrong = read_one(file, *each, ipv4, how); wrong != 0) return wrong;
  }
  return 0;
}

}  // namespace unet::preload
