// link_watch.cc - reads rtnetlink messages within their bounds.
#include "drivers/link_watch.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "drivers/kernel_interface.h"

namespace unet::drivers {
namespace {

constexpr uint32_t kLowerUp = 0x10000;  // IFF_LOWER_UP, which <net/if.h> lacks
constexpr size_t kDatagramMax = 32 * 1024;
constexpr int kDatagramsPerLook = 64;

size_t aligned(size_t bytes) noexcept { return (bytes + 3) & ~size_t{3}; }

// Copies a T from the front. Returns false if there are too few bytes.
template <typename T>
bool front(std::span<const std::byte> bytes, T& value) noexcept {
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  return true;
}

std::span<const std::byte> after(std::span<const std::byte> bytes, size_t count) noexcept {
  return bytes.subspan(std::min(aligned(count), bytes.size()));
}

}  // namespace

std::shared_ptr<LinkWatch> LinkWatch::open(const LinkWatchOptions& options) {
  const int socket = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (socket < 0) return nullptr;
  auto watch = std::make_shared<LinkWatch>(options, socket);
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return nullptr;
  watch->ask();  // later changes arrive as messages
  watch->look();
  return watch;
}

LinkWatch::~LinkWatch() {
  if (socket_ >= 0) ::close(socket_);
}

// Asks by index, or by name if there is none.
void LinkWatch::ask() noexcept {
  struct Request {
    nlmsghdr header;
    ifinfomsg body;
    rtattr attribute;
    char name[IFNAMSIZ];
  } request{};
  const bool by_name = link_.index == 0;
  request.header.nlmsg_len = by_name ? sizeof request : offsetof(Request, attribute);
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.header.nlmsg_seq = link_.index;
  request.body.ifi_index = static_cast<int>(link_.index);
  request.attribute = {.rta_len = sizeof request.attribute + IFNAMSIZ, .rta_type = IFLA_IFNAME};
  options_.interface.copy(request.name, IFNAMSIZ - 1);
  static_cast<void>(::send(socket_, &request, request.header.nlmsg_len, 0));
}

void LinkWatch::look() {
  alignas(8) std::array<std::byte, kDatagramMax> room;
  for (int i = 0; i < kDatagramsPerLook; ++i) {
    sockaddr_nl from{};
    socklen_t length = sizeof from;
    const ssize_t size = ::recvfrom(socket_, room.data(), room.size(), MSG_TRUNC, reinterpret_cast<sockaddr*>(&from), &length);
    if (size < 0 && errno == ENOBUFS) {
      ask();  // some changes were lost
      continue;
    }
    if (size < 0) return;
    if (from.nl_pid != 0) continue;  // from another process
    read(std::span(room).first(std::min(static_cast<size_t>(size), room.size())));
  }
}

void LinkWatch::read(std::span<const std::byte> datagram) {
  for (nlmsghdr header{}; front(datagram, header); datagram = after(datagram, header.nlmsg_len)) {
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > datagram.size()) return;
    const auto body = datagram.first(header.nlmsg_len).subspan(sizeof header);
    nlmsgerr error{};
    if (header.nlmsg_type == RTM_NEWLINK || header.nlmsg_type == RTM_DELLINK) {
      read_link(header.nlmsg_type, body);
    } else if (header.nlmsg_type == NLMSG_ERROR && front(body, error) && error.error == -ENODEV) {
      const bool by_index = error.msg.nlmsg_seq != 0 && error.msg.nlmsg_seq == link_.index;
      if (!by_index) continue;
      gone();
      ask();  // another interface may have the name by now
    }
  }
}

void LinkWatch::read_link(uint16_t type, std::span<const std::byte> body) {
  ifinfomsg info{};
  // A bridge reports its ports with the same messages, of another family.
  if (!front(body, info) || info.ifi_family != AF_UNSPEC || info.ifi_index <= 0) return;
  Link now{.index = static_cast<uint32_t>(info.ifi_index), .name = {}, .up = (info.ifi_flags & IFF_UP) != 0,
           .carrier = (info.ifi_flags & kLowerUp) != 0};
  std::span<const std::byte> rest = after(body, sizeof info);
  for (rtattr attribute{}; front(rest, attribute); rest = after(rest, attribute.rta_len)) {
    if (attribute.rta_len < sizeof attribute || attribute.rta_len > rest.size()) break;
    const auto value = rest.first(attribute.rta_len).subspan(sizeof attribute);
    if (attribute.rta_type == IFLA_MTU) static_cast<void>(front(value, now.mtu));
    else if (attribute.rta_type == IFLA_ADDRESS && value.size() == now.address.size()) static_cast<void>(front(value, now.address));
    else if (attribute.rta_type == IFLA_IFNAME) {
      const auto* const text = reinterpret_cast<const char*>(value.data());
      now.name.assign(text, ::strnlen(text, std::min<size_t>(value.size(), IFNAMSIZ)));
    }
  }
  if (type == RTM_DELLINK) {
    if (now.index == link_.index) gone();
  } else if (now.index == link_.index || (link_.index == 0 && now.name == options_.interface)) {
    if (now.mtu != 0 && !now.name.empty()) has(std::move(now));
  }
}

void LinkWatch::tell(const std::string& what) { say(options_.port + ": " + what); }

void LinkWatch::gone() {
  tell("interface " + link_.name + " is gone: IP traffic stops until " +
       (options_.returns ? options_.interface + " is back" : "unetd is started again, with " + options_.interface));
  link_ = {};
  publish();
}

void LinkWatch::has(Link now) {
  const Link was = std::exchange(link_, std::move(now));
  const bool is_back = known_ && was.index == 0;
  if (is_back) tell("interface " + link_.name + " is back" + (options_.returns ? "" : ", but this driver needs a new start of unetd"));
  if (was.index != 0 && was.name != link_.name) tell("interface " + was.name + " is now called " + link_.name);
  if ((known_ ? was.address : options_.station) != link_.address && link_.address != options_.station) {
    tell("interface " + link_.name + " has the address " + mac_text(link_.address).data() + " now; the port keeps " +
         mac_text(options_.station).data());
  }
  if (was.index != 0 && was.up != link_.up) {
    tell("interface " + link_.name + (link_.up ? " is up" : " is down: IP traffic stops"));
  }
  if (was.index != 0 && link_.up && was.up && was.carrier != link_.carrier) {
    tell("interface " + link_.name + (link_.carrier ? " has a carrier again" : " has lost its carrier"));
  }
  const uint32_t before = was.index != 0 ? was.mtu : options_.mtu;
  const bool more = link_.mtu > options_.mtu;  // the interface may have had a larger MTU from the start
  if (link_.mtu != before && (known_ || !more)) {
    const std::string limit = more ? "; the port was made for " + std::to_string(options_.mtu) + ", until unetd is started again"
                              : link_.mtu < options_.mtu ? "; longer messages of U-Net's own are lost" : "";
    tell("interface " + link_.name + " has an MTU of " + std::to_string(link_.mtu) + limit);
  }
  known_ = true;
  other_station_.store(link_.address != options_.station, std::memory_order_relaxed);
  if (was.index != link_.index || was.address != link_.address || was.mtu != link_.mtu ||
      was.up != link_.up || was.carrier != link_.carrier) publish();
}

void LinkWatch::publish() noexcept {
  const uint32_t mtu = link_.index == 0 ? options_.mtu : link_.mtu;
  set(link_.index, link_.index != 0 && link_.up, link_.index != 0 && link_.carrier, options_.mtu - std::min(mtu, options_.mtu));
}

bool LinkWatch::bind(int socket, uint16_t protocol, bool all_groups) const noexcept {
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_protocol = htons(protocol);
  to.sll_ifindex = static_cast<int>(index());
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return false;
  packet_mreq station{};
  station.mr_ifindex = to.sll_ifindex;
  station.mr_type = PACKET_MR_UNICAST;
  station.mr_alen = static_cast<uint16_t>(options_.station.size());
  std::memcpy(station.mr_address, options_.station.data(), options_.station.size());
  packet_mreq groups{};
  groups.mr_ifindex = to.sll_ifindex;
  groups.mr_type = PACKET_MR_ALLMULTI;
  const auto join = [socket](const packet_mreq& what) {
    static_cast<void>(::setsockopt(socket, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &what, sizeof what));
  };
  if (other_station_.load(std::memory_order_relaxed)) join(station);
  if (all_groups) join(groups);
  return true;
}

}  // namespace unet::drivers
