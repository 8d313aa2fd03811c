// interfaces.c - cases of programs that list the host's interfaces: one has the own address, a name and an index.
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include "tests/conformance/conformance.h"

static int is_own(const struct sockaddr* address) {
  union Address own;
  own_address(&own, 0);
  if (address == NULL || address->sa_family != family) return 0;
  const union Address* const it = (const union Address*)address;
  return family == AF_INET ? memcmp(&it->v4.sin_addr, &own.v4.sin_addr, 4) == 0 : memcmp(&it->v6.sin6_addr, &own.v6.sin6_addr, 16) == 0;
}

// Finds the name of the interface with the own address.
static int find_own(char name[IF_NAMESIZE], unsigned* flags) {
  struct ifaddrs* all;
  int found = 0;
  MUST(getifaddrs(&all));
  for (const struct ifaddrs* each = all; each != NULL; each = each->ifa_next) {
    if (!is_own(each->ifa_addr)) continue;
    strncpy(name, each->ifa_name, IF_NAMESIZE);
    *flags = each->ifa_flags;
    found += each->ifa_netmask != NULL && each->ifa_netmask->sa_family == family;
  }
  freeifaddrs(all);
  return found;
}

CASE(interface_list, "getifaddrs() has the own address once; names and numbers lead to each other") {
  char name[IF_NAMESIZE] = "", again[IF_NAMESIZE] = "";
  unsigned flags = 0;
  int listed = 0;
  say("found: %d", find_own(name, &flags));
  say("up: %d, running: %d", (flags & IFF_UP) != 0, (flags & IFF_RUNNING) != 0);
  const unsigned number = if_nametoindex(name);
  say("number: %d, name: %d", number != 0, if_indextoname(number, again) == again && strcmp(name, again) == 0);
  struct if_nameindex* const all = if_nameindex();
  for (int i = 0; all[i].if_index != 0; ++i) listed += all[i].if_index == number && strcmp(all[i].if_name, name) == 0;
  if_freenameindex(all);
  say("listed: %d", listed);
  CALL(if_nametoindex("no such"));
  CALL(if_indextoname(0x7ffffff0, again) == NULL);
}

CASE(interface_requests, "SIOCGIFCONF has the own address, other requests tell of its interface") {
  struct ifreq all[64], one;
  struct ifconf list = {.ifc_len = 0, .ifc_req = NULL};
  int found = 0, room;
  if (family != AF_INET) {
    say("skipped: of IPv4");
    return;
  }
  const int s = (int)MUST(socket(AF_INET, SOCK_DGRAM, 0));
  CALL(ioctl(s, SIOCGIFCONF, &list));
  room = list.ifc_len;
  list = (struct ifconf){.ifc_len = sizeof all, .ifc_req = all};
  CALL(ioctl(s, SIOCGIFCONF, &list));
  say("as long as told: %d", list.ifc_len == room);
  for (int i = 0; i < list.ifc_len / (int)sizeof *all; ++i) {
    if (!is_own(&all[i].ifr_addr)) continue;
    ++found;
    one = all[i];
  }
  say("found: %d", found);
  CALL(ioctl(s, SIOCGIFADDR, &one));
  say("own: %d", is_own(&one.ifr_addr));
  CALL(ioctl(s, SIOCGIFNETMASK, &one));
  say("a mask of a network: %d", one.ifr_netmask.sa_data[2] == (char)255 && one.ifr_netmask.sa_data[5] == 0);
  CALL(ioctl(s, SIOCGIFFLAGS, &one));
  say("up: %d", (one.ifr_flags & IFF_UP) != 0);
  CALL(ioctl(s, SIOCGIFMTU, &one));
  say("mtu: %d", one.ifr_mtu >= 576);
  const int number = ioctl(s, SIOCGIFINDEX, &one) == 0 ? one.ifr_ifindex : 0;
  say("number: %d", number == (int)if_nametoindex(one.ifr_name));
  one.ifr_ifindex = number;
  one.ifr_name[0] = 0;
  CALL(ioctl(s, SIOCGIFNAME, &one));
  say("name: %d", (int)if_nametoindex(one.ifr_name) == number);
  strcpy(one.ifr_name, "no such");
  CALL(ioctl(s, SIOCGIFADDR, &one));
  CALL(ioctl(-1, SIOCGIFADDR, &one));
}

CASE(interface_configured, "getaddrinfo() with AI_ADDRCONFIG takes an address of a family that the host has") {
  union Address own;
  char text[INET6_ADDRSTRLEN];
  const struct addrinfo hints[] = {{.ai_flags = AI_ADDRCONFIG, .ai_socktype = SOCK_STREAM},
                                   {.ai_flags = AI_ADDRCONFIG, .ai_socktype = SOCK_STREAM, .ai_family = family}};
  own_address(&own, 0);
  inet_ntop(family, family == AF_INET ? (void*)&own.v4.sin_addr : (void*)&own.v6.sin6_addr, text, sizeof text);
  for (int i = 0; i < 3; ++i) {
    struct addrinfo* found = NULL;
    say("error: %d", getaddrinfo(text, "7", i < 2 ? &hints[i] : NULL, &found));
    say("own: %d", found != NULL && is_own(found->ai_addr));
    freeaddrinfo(found);
  }
}

// The link-local address, with scope id, of the interface that has the own address.
static int link_local(union Address* address) {
  char name[IF_NAMESIZE] = "";
  unsigned flags;
  struct ifaddrs* all;
  find_own(name, &flags);
  MUST(getifaddrs(&all));
  int found = 0;
  for (const struct ifaddrs* each = all; each != NULL && !found; each = each->ifa_next) {
    if (each->ifa_addr == NULL || each->ifa_addr->sa_family != AF_INET6 || strcmp(each->ifa_name, name) != 0) continue;
    memcpy(&address->v6, each->ifa_addr, sizeof address->v6);
    found = IN6_IS_ADDR_LINKLOCAL(&address->v6.sin6_addr);
  }
  freeifaddrs(all);
  return found && address->v6.sin6_scope_id == if_nametoindex(name);
}

static void say_scope(const char* what, const union Address* name, const union Address* own) {
  say("%s: link-local %d, its interface %d", what, IN6_IS_ADDR_LINKLOCAL(&name->v6.sin6_addr),
      name->v6.sin6_scope_id == own->v6.sin6_scope_id);
}

CASE(interface_scope, "names of link-local ends have the number of their interface") {
  union Address own, name;
  char byte;
  socklen_t length;
  if (family != AF_INET6) {
    say("skipped: of IPv6");
    return;
  }
  say("found: %d", link_local(&own));
  const int listener = OPEN(socket(AF_INET6, SOCK_STREAM, 0));
  CALL(bind(listener, &own.any, sizeof own.v6));
  CALL(listen(listener, 5));
  length = address_of(listener, &name);
  say_scope("listener", &name, &own);
  own.v6.sin6_port = name.v6.sin6_port;
  const int client = OPEN(socket(AF_INET6, SOCK_STREAM, 0));
  CALL(connect(client, &own.any, sizeof own.v6));
  address_of(client, &name);
  say_scope("client", &name, &own);
  length = sizeof name;
  MUST(getpeername(client, &name.any, &length));
  say_scope("its peer", &name, &own);
  await(listener, POLLIN);
  length = sizeof name;
  const int server = OPEN(accept(listener, &name.any, &length));
  say_scope("accepted", &name, &own);
  address_of(server, &name);
  say_scope("server", &name, &own);
  const int one = OPEN(socket(AF_INET6, SOCK_DGRAM, 0)), two = OPEN(socket(AF_INET6, SOCK_DGRAM, 0));
  own.v6.sin6_port = 0;
  CALL(bind(one, &own.any, sizeof own.v6));
  address_of(one, &name);
  CALL(bind(two, &own.any, sizeof own.v6));
  CALL(sendto(two, "x", 1, 0, &name.any, sizeof name.v6));
  await(one, POLLIN);
  length = sizeof name;
  CALL(recvfrom(one, &byte, 1, 0, &name.any, &length));
  say_scope("sender", &name, &own);
  CALL(sendto(one, "y", 1, 0, &name.any, length));
}

THEME(interfaces, &interface_list, &interface_requests, &interface_configured, &interface_scope);
