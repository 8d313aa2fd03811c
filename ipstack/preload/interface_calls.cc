// interface_calls.cc - lists the ports of the network interface as unet0, unet1 and so on, behind the kernel's interfaces. getaddrinfo()
// counts their addresses, too.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/interfaces.h"
#include "ipstack/preload/socket_routing.h"
#include "ipstack/sockets/sockaddr.h"

using namespace unet::preload;
namespace sockets = unet::sockets;
namespace ip = unet::ip;

namespace {

constexpr std::string_view kPrefix = "unet";  // a name without it needs no search, which would open a stack
constexpr short kFlags = IFF_UP | IFF_RUNNING | IFF_BROADCAST | IFF_MULTICAST;

struct Link {
  std::string name;
  uint32_t number = 0, mtu = 0;
  std::vector<unet::IpConfiguration::Address> addresses{};
};

// The ports with their addresses, without loopback addresses, which the kernel lists, and without tentative ones.
std::vector<Link> links_under_lock() {
  static_cast<void>(Runtime::get().open());
  const unet::IpConfiguration* const all = Runtime::get().configuration();
  std::vector<Link> links;
  if (all == nullptr) return links;
  for (const auto& port : all->interfaces) {
    Link link{.name = std::string(kPrefix) + std::to_string(port.port), .number = sockets::kLinkNumber + port.port, .mtu = port.mtu};
    std::copy_if(all->addresses.begin(), all->addresses.end(), std::back_inserter(link.addresses), [&](const auto& each) {
      return each.port == port.port && !each.tentative && !each.address.is_loopback();
    });
    if (!link.addresses.empty()) links.push_back(std::move(link));
  }
  return links;
}

std::vector<Link> links() {
  if (!Runtime::may_enter()) return {};
  const Runtime::Guard guard;
  return links_under_lock();
}

// An address, its network's mask, or the broadcast address of its IPv4 network, as a sockaddr.
enum class What : uint8_t { address, mask, broadcast };
sockaddr_storage name_of(const unet::IpConfiguration::Address& address, uint32_t number, What what) {
  sockaddr_storage name{};
  ip::IpAddress host = address.address;
  const size_t from = host.is_ipv4() ? host.bytes.size() - 4 : 0;
  for (size_t i = from; i < host.bytes.size() && what != What::address; ++i) {
    const auto bits = std::clamp<int>(address.prefix - static_cast<int>(i - from) * 8, 0, 8);
    const auto mask = static_cast<uint8_t>(0xFF00 >> bits);
    auto& byte = reinterpret_cast<uint8_t&>(host.bytes[i]);
    byte = what == What::mask ? mask : static_cast<uint8_t>(byte | ~mask);
  }
  socklen_t length = sizeof name;
  sockets::write_sockaddr({host, 0}, from == 0, reinterpret_cast<sockaddr*>(&name), &length);
  if (from == 0 && what == What::mask) reinterpret_cast<sockaddr_in6&>(name).sin6_scope_id = 0;
  else if (from == 0 && host.is_link_local()) reinterpret_cast<sockaddr_in6&>(name).sin6_scope_id = number;
  return name;
}

// ---- getifaddrs()

struct Entry {
  ifaddrs head{};
  char name[IFNAMSIZ] = {};
  sockaddr_storage address{}, mask{}, broadcast{};
};

bool same(const std::vector<Entry>& made, const std::vector<Entry>& wanted) {
  return std::equal(made.begin(), made.end(), wanted.begin(), wanted.end(), [](const Entry& one, const Entry& other) {
    return std::memcmp(one.name, other.name, sizeof one.name) == 0 && std::memcmp(&one.address, &other.address, sizeof one.address) == 0 &&
           std::memcmp(&one.mask, &other.mask, sizeof one.mask) == 0;
  });
}

// Entries of getifaddrs(). freeifaddrs() frees only the kernel's part, so these stay for ever. They are made again only when addresses
// change.
ifaddrs* entries() {
  if (!Runtime::may_enter()) return nullptr;
  const Runtime::Guard guard;
  static std::vector<std::unique_ptr<std::vector<Entry>>> made;
  auto wanted = std::make_unique<std::vector<Entry>>();
  for (const Link& link : links_under_lock()) {
    for (const auto& each : link.addresses) {
      Entry& entry = wanted->emplace_back();
      link.name.copy(entry.name, sizeof entry.name - 1);
      entry.address = name_of(each, link.number, What::address);
      entry.mask = name_of(each, link.number, What::mask);
      if (each.address.is_ipv4()) entry.broadcast = name_of(each, link.number, What::broadcast);
    }
  }
  if (wanted->empty()) return nullptr;
  const auto is_it = [&](const auto& each) { return same(*each, *wanted); };
  if (const auto at = std::find_if(made.begin(), made.end(), is_it); at != made.end()) return &(*at)->front().head;
  for (size_t i = 0; i < wanted->size(); ++i) {
    Entry& entry = (*wanted)[i];
    entry.head.ifa_next = i + 1 < wanted->size() ? &(*wanted)[i + 1].head : nullptr;
    entry.head.ifa_name = entry.name;
    entry.head.ifa_flags = kFlags;
    entry.head.ifa_addr = reinterpret_cast<sockaddr*>(&entry.address);
    entry.head.ifa_netmask = reinterpret_cast<sockaddr*>(&entry.mask);
    if (entry.broadcast.ss_family != 0) entry.head.ifa_broadaddr = reinterpret_cast<sockaddr*>(&entry.broadcast);
  }
  return &made.emplace_back(std::move(wanted))->front().head;
}

// ---- ioctl()

// SIOCGIFCONF: appends the IPv4 addresses, or only counts the room that they need.
int append_ipv4(ifconf& all, size_t room) {
  for (const Link& link : links()) {
    for (const auto& each : link.addresses) {
      if (!each.address.is_ipv4()) continue;
      const auto used = static_cast<size_t>(all.ifc_len);
      if (all.ifc_req != nullptr && room - used < sizeof(ifreq)) return 0;
      if (all.ifc_req != nullptr) {
        ifreq one{};
        link.name.copy(one.ifr_name, sizeof one.ifr_name - 1);
        const sockaddr_storage name = name_of(each, link.number, What::address);
        std::memcpy(&one.ifr_addr, &name, sizeof one.ifr_addr);
        std::memcpy(all.ifc_buf + used, &one, sizeof one);
      }
      all.ifc_len += static_cast<int>(sizeof(ifreq));
    }
  }
  return 0;
}

// Answers SIOCGIF... for a link: 0, or -errno.
int tell(const Link& link, unsigned long request, ifreq& into) {
  const auto four = std::find_if(link.addresses.begin(), link.addresses.end(), [](const auto& each) { return each.address.is_ipv4(); });
  const auto put = [&](What what) {
    if (four == link.addresses.end()) return -EADDRNOTAVAIL;
    const sockaddr_storage name = name_of(*four, link.number, what);
    std::memcpy(&into.ifr_addr, &name, sizeof into.ifr_addr);
    return 0;
  };
  switch (request) {
    case SIOCGIFADDR: return put(What::address);
    case SIOCGIFNETMASK: return put(What::mask);
    case SIOCGIFBRDADDR: return put(What::broadcast);
    case SIOCGIFFLAGS: into.ifr_flags = kFlags; return 0;
    case SIOCGIFINDEX: into.ifr_ifindex = static_cast<int>(link.number); return 0;
    case SIOCGIFMTU: into.ifr_mtu = static_cast<int>(link.mtu); return 0;
    case SIOCGIFMETRIC: into.ifr_metric = 0; return 0;
    case SIOCGIFHWADDR: into.ifr_hwaddr = {.sa_family = ARPHRD_NONE, .sa_data = {}}; return 0;  // no program gets its frames
    default: return -EOPNOTSUPP;
  }
}

// ---- getaddrinfo()

bool is_of(const sockaddr* address, int family) {
  if (address == nullptr || address->sa_family != family) return false;
  sockets::Address host;
  const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return sockets::read_sockaddr(address, length, family == AF_INET6, false, host) == 0 && !host.host.is_loopback();
}

// The families of which an interface has an address (AI_ADDRCONFIG). The network interface is asked only if the kernel lacks one.
struct Families {
  bool four = false, six = false;
};
Families families() {
  Families found;
  ifaddrs* all = nullptr;
  if (real().getifaddrs(&all) != 0) return found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    found.four = found.four || is_of(each->ifa_addr, AF_INET);
    found.six = found.six || is_of(each->ifa_addr, AF_INET6);
  }
  ::freeifaddrs(all);
  if (found.four && found.six) return found;
  for (const Link& link : links()) {
    for (const auto& each : link.addresses) (each.address.is_ipv4() ? found.four : found.six) = true;
  }
  return found;
}

// Replaces the name in "fe80::2%unet0" by its number, as the C library would ask the kernel for the name.
std::string with_number(const char* node) {
  const std::string text = node;
  const size_t at = text.find('%');
  if (at == std::string::npos || text.compare(at + 1, kPrefix.size(), kPrefix) != 0) return text;
  for (const Link& each : links()) {
    if (text.compare(at + 1, std::string::npos, each.name) == 0) return text.substr(0, at + 1) + std::to_string(each.number);
  }
  return text;
}

// Warns once if only the network interface reaches a name server that did not answer. The C library asks name servers by internal calls,
// which the kernel serves.
void say_who_asks() {
  static std::atomic<bool> said{false};
  const auto& state = *::__res_state();
  for (int i = 0; i < std::min(state.nscount, MAXNS) && !said; ++i) {
    const sockets::Address server{ip::ipv4_address(&state.nsaddr_list[i].sin_addr), 53};
    if (state.nsaddr_list[i].sin_family != AF_INET) continue;
    const Runtime::Guard guard;
    if (backend_of_remote(File(AF_INET, SOCK_DGRAM), server) != Backend::user) continue;
    char text[INET_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET, &state.nsaddr_list[i].sin_addr, text, sizeof text);
    said = true;
    tell_user("unet-sockets: no answer: the C library asks the name server %s by the kernel, not by the network interface\n", text);
  }
}

int resolve(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  const int error = real().getaddrinfo(node == nullptr ? nullptr : with_number(node).c_str(), service, hints, result);
  if (error == EAI_AGAIN) say_who_asks();
  return error;
}

}  // namespace

namespace unet::preload {

std::optional<int> ask_interface(int fd, unsigned long request, void* argument) {
  if (request == SIOCGIFCONF) {
    ifconf& all = *static_cast<ifconf*>(argument);
    const int room = all.ifc_len;
    const int result = real().ioctl(fd, request, argument);
    return result != 0 ? result : append_ipv4(all, static_cast<size_t>(std::max(room, 0)));
  }
  ifreq& one = *static_cast<ifreq*>(argument);
  const bool by_number = request == SIOCGIFNAME;
  if (!by_number && std::strncmp(one.ifr_name, kPrefix.data(), kPrefix.size()) != 0) return std::nullopt;
  if (by_number && static_cast<uint32_t>(one.ifr_ifindex) < sockets::kLinkNumber) return std::nullopt;
  for (const Link& each : links()) {
    if (by_number && one.ifr_ifindex == static_cast<int>(each.number)) {
      std::memset(one.ifr_name, 0, sizeof one.ifr_name);
      each.name.copy(one.ifr_name, sizeof one.ifr_name - 1);
      return 0;
    }
    if (!by_number && std::strncmp(one.ifr_name, each.name.c_str(), sizeof one.ifr_name) == 0) {
      return answer(tell(each, request, one));
    }
  }
  return std::nullopt;
}

}  // namespace unet::preload

UNET_PRELOAD int getifaddrs(ifaddrs** list) noexcept {
  const int result = real().getifaddrs(list);
  if (result != 0 || *list == nullptr) return result;
  ifaddrs* last = *list;
  while (last->ifa_next != nullptr) last = last->ifa_next;
  last->ifa_next = entries();
  return result;
}

UNET_PRELOAD unsigned if_nametoindex(const char* name) noexcept {
  if (std::strncmp(name, kPrefix.data(), kPrefix.size()) != 0) return real().if_nametoindex(name);
  if (const unsigned number = real().if_nametoindex(name); number != 0) return number;
  for (const Link& each : links()) {
    if (each.name == name) return each.number;
  }
  return answer(-ENODEV), 0;
}

UNET_PRELOAD char* if_indextoname(unsigned number, char* name) noexcept {
  if (number < sockets::kLinkNumber) return real().if_indextoname(number, name);
  for (const Link& each : links()) {
    if (each.number != number) continue;
    std::memset(name, 0, IFNAMSIZ);
    each.name.copy(name, IFNAMSIZ - 1);
    return name;
  }
  return answer(-ENXIO), nullptr;
}

// Allocates as the C library does: if_freenameindex() frees each name, and the array.
UNET_PRELOAD struct if_nameindex* if_nameindex() noexcept {
  struct if_nameindex* all = real().if_nameindex();
  const std::vector<Link> ours = all == nullptr ? std::vector<Link>{} : links();
  size_t count = 0;
  while (all != nullptr && all[count].if_index != 0) ++count;
  void* const room = ours.empty() ? nullptr : std::realloc(all, (count + ours.size() + 1) * sizeof *all);
  if (room == nullptr) return all;
  auto* const longer = static_cast<struct if_nameindex*>(room);
  for (const Link& each : ours) longer[count++] = {.if_index = each.number, .if_name = ::strdup(each.name.c_str())};
  longer[count] = {};
  return longer;
}

// The C library asks the kernel which families have addresses, and refuses even an address in digits of one that has none.
UNET_PRELOAD int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  addrinfo wanted{};
  if (hints != nullptr) wanted = *hints;
  else wanted.ai_flags = AI_V4MAPPED | AI_ADDRCONFIG;
  if (!Runtime::may_enter()) return real().getaddrinfo(node, service, hints, result);
  if ((wanted.ai_flags & AI_ADDRCONFIG) == 0) return resolve(node, service, hints, result);
  const Families there = families();
  const bool any = wanted.ai_family == AF_UNSPEC;
  if (any ? there.four || there.six : wanted.ai_family == AF_INET ? there.four : there.six) {
    wanted.ai_flags &= ~AI_ADDRCONFIG;
    if (any && !(there.four && there.six)) wanted.ai_family = there.four ? AF_INET : AF_INET6;
  }
  return resolve(node, service, &wanted, result);
}
