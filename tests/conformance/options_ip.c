// options_ip.c - cases of the options of IP, version 4, version 6, and of UDP.
#include <netinet/udp.h>

#include "tests/conformance/conformance.h"

CASE(ip_tos_ttl, "IP_TOS and IP_TTL, also as one byte, and out of bounds") {
  unsigned char byte = 0x20;
  OF_ALL {
    OPTION(s, IPPROTO_IP, IP_TOS);
    SET_AND_GET(s, IPPROTO_IP, IP_TOS, 0x10);
    SET_AND_GET(s, IPPROTO_IP, IP_TOS, 0x103);
    SET_AND_GET(s, IPPROTO_IP, IP_TOS, 0xff);
    SET_AND_GET(s, IPPROTO_IP, IP_TOS, -1);
    CALL(setsockopt(s, IPPROTO_IP, IP_TOS, &byte, 1));
    OPTION(s, IPPROTO_IP, IP_TOS);
    OPTION(s, SOL_SOCKET, SO_PRIORITY);
    OPTION(s, IPPROTO_IP, IP_TTL);
    SET_AND_GET(s, IPPROTO_IP, IP_TTL, 5);
    SET_AND_GET(s, IPPROTO_IP, IP_TTL, 0);
    SET_AND_GET(s, IPPROTO_IP, IP_TTL, 256);
    SET_AND_GET(s, IPPROTO_IP, IP_TTL, -1);
  }
}

CASE(ip_tos_short, "IP_TOS read into less than an int") {
  OF_STREAMS {
    SET(s, IPPROTO_IP, IP_TOS, 0x10);
    const socklen_t lengths[] = {0, 1, 2, 4, 8};
    for (unsigned l = 0; l < 5; ++l) {
      long value = -1;
      socklen_t length = lengths[l];
      CALL(getsockopt(s, IPPROTO_IP, IP_TOS, &value, &length));
      say("length %u, value %lx", length, (unsigned long)value);
    }
  }
}

CASE(ip_path, "IP_MTU_DISCOVER, IP_MTU, IP_RECVERR") {
  int ends[2];
  OF_ALL {
    OPTION(s, IPPROTO_IP, IP_MTU_DISCOVER);
    SET_AND_GET(s, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
    SET_AND_GET(s, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT);
    SET_AND_GET(s, IPPROTO_IP, IP_MTU_DISCOVER, 77);
    OPTION(s, IPPROTO_IP, IP_MTU);
    SET(s, IPPROTO_IP, IP_MTU, 1000);
    SET_AND_GET(s, IPPROTO_IP, IP_RECVERR, 1);
  }
  datagrams(ends);
  int value = 0;
  socklen_t length = sizeof value;
  CALL(getsockopt(ends[0], IPPROTO_IP, IP_MTU, &value, &length));
  if (family == AF_INET) say("at least 1500: %d", value >= 1500);
}

CASE(ip_receives, "what IP tells along with datagrams: switches") {
  OF_ALL {
    SET_AND_GET(s, IPPROTO_IP, IP_PKTINFO, 1);
    SET_AND_GET(s, IPPROTO_IP, IP_RECVTTL, 1);
    SET_AND_GET(s, IPPROTO_IP, IP_RECVTOS, 1);
  }
}

CASE(ip_binding, "IP_FREEBIND, IP_BIND_ADDRESS_NO_PORT, IP_UNICAST_IF, IP_HDRINCL, IP_NODEFRAG") {
  OF_ALL {
    SET_AND_GET(s, IPPROTO_IP, IP_FREEBIND, 1);
    SET_AND_GET(s, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    SET_AND_GET(s, IPPROTO_IP, IP_HDRINCL, 1);
    SET_AND_GET(s, IPPROTO_IP, IP_NODEFRAG, 1);
    OPTION(s, IPPROTO_IP, IP_UNICAST_IF);
  }
}

CASE(ip_multicast, "IP_MULTICAST_TTL, IP_MULTICAST_LOOP, IP_MULTICAST_ALL, IP_MULTICAST_IF") {
  OF_ALL {
    struct in_addr interface = {0};
    socklen_t length = sizeof interface;
    OPTION(s, IPPROTO_IP, IP_MULTICAST_TTL);
    SET_AND_GET(s, IPPROTO_IP, IP_MULTICAST_TTL, 5);
    SET_AND_GET(s, IPPROTO_IP, IP_MULTICAST_TTL, 256);
    SET_AND_GET(s, IPPROTO_IP, IP_MULTICAST_TTL, -1);
    OPTION(s, IPPROTO_IP, IP_MULTICAST_LOOP);
    SET_AND_GET(s, IPPROTO_IP, IP_MULTICAST_LOOP, 0);
    OPTION(s, IPPROTO_IP, IP_MULTICAST_ALL);
    SET_AND_GET(s, IPPROTO_IP, IP_MULTICAST_ALL, 0);
    CALL(getsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &interface, &length));
    say("length %u", length);
    CALL(setsockopt(s, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface));
  }
}

CASE(ip_membership, "IP_ADD_MEMBERSHIP and IP_DROP_MEMBERSHIP: joined, joined again, left, left again, no group") {
  union Address own;
  struct ip_mreq group;
  if (family != AF_INET) {
    say("skipped: of IPv4");
    return;
  }
  own_address(&own, 0);
  const int s = bound(SOCK_DGRAM);
  inet_pton(AF_INET, "239.1.2.3", &group.imr_multiaddr);
  group.imr_interface = own.v4.sin_addr;
  CALL(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
  CALL(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
  CALL(setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &group, sizeof group));
  CALL(setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &group, sizeof group));
  CALL(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, 4));
  inet_pton(AF_INET, "10.1.2.3", &group.imr_multiaddr);
  CALL(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
  inet_pton(AF_INET, "239.1.2.3", &group.imr_multiaddr);
  inet_pton(AF_INET, "192.0.2.77", &group.imr_interface);
  CALL(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
}

// A group membership on the interface with the own address (IPv4) or with a route to the group (IPv6).
static struct ip_mreq own_membership(const union Address* group) {
  union Address own;
  own_address(&own, 0);
  return (struct ip_mreq){.imr_multiaddr = group->v4.sin_addr, .imr_interface = own.v4.sin_addr};
}
static int joins(int s, const union Address* group) {
  const struct ip_mreq four = own_membership(group);
  const struct ipv6_mreq six = {.ipv6mr_multiaddr = group->v6.sin6_addr};
  return family == AF_INET ? setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &four, sizeof four)
                           : setsockopt(s, IPPROTO_IPV6, IPV6_JOIN_GROUP, &six, sizeof six);
}
static int leaves(int s, const union Address* group) {
  const struct ip_mreq four = own_membership(group);
  const struct ipv6_mreq six = {.ipv6mr_multiaddr = group->v6.sin6_addr};
  return family == AF_INET ? setsockopt(s, IPPROTO_IP, IP_DROP_MEMBERSHIP, &four, sizeof four)
                           : setsockopt(s, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &six, sizeof six);
}

CASE(ip_membership_first, "a group is joined, joined again, left and left again before bind(); what is sent to it then comes") {
  union Address group, to;
  char bytes[20];
  memset(&group, 0, sizeof group);
  group.any.sa_family = (sa_family_t)family;
  if (family == AF_INET) inet_pton(AF_INET, "239.1.2.4", &group.v4.sin_addr);
  else inet_pton(AF_INET6, "ff15::1:2:4", &group.v6.sin6_addr);
  const int s = OPEN(socket(family, SOCK_DGRAM, 0)), sender = bound(SOCK_DGRAM);
  const struct ip_mreq own = own_membership(&group);
  if (family == AF_INET) MUST(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &own.imr_interface, sizeof own.imr_interface));
  CALL(joins(s, &group));
  CALL(joins(s, &group));
  CALL(leaves(s, &group));
  CALL(leaves(s, &group));
  CALL(joins(s, &group));
  const socklen_t length = any_address(&to, 0);
  CALL(bind(s, &to.any, length));
  if (family == AF_INET) group.v4.sin_port = htons((uint16_t)port_of(s));
  else group.v6.sin6_port = htons((uint16_t)port_of(s));
  CALL(sendto(sender, "abc", 3, 0, &group.any, length));
  await(s, POLLIN);
  say_bytes("member", bytes, CALL(recv(s, bytes, sizeof bytes, MSG_DONTWAIT)));
}

CASE(ip_group_heard, "what is sent to a group comes to its members on this host, unless IP_MULTICAST_LOOP is off") {
  union Address own, to;
  struct ip_mreq group;
  char bytes[20];
  if (family != AF_INET) {
    say("skipped: of IPv4");
    return;
  }
  own_address(&own, 0);
  const int s = OPEN(socket(AF_INET, SOCK_DGRAM, 0)), sender = bound(SOCK_DGRAM);
  socklen_t length = any_address(&to, 0);
  CALL(bind(s, &to.any, length));
  to.v4.sin_port = htons((uint16_t)port_of(s));
  inet_pton(AF_INET, "239.1.2.3", &to.v4.sin_addr);
  group.imr_multiaddr = to.v4.sin_addr;
  group.imr_interface = own.v4.sin_addr;
  CALL(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
  CALL(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &own.v4.sin_addr, sizeof own.v4.sin_addr));
  CALL(sendto(sender, "abc", 3, 0, &to.any, length));
  await(s, POLLIN);
  say_bytes("member", bytes, CALL(recv(s, bytes, sizeof bytes, MSG_DONTWAIT)));
  SET(sender, IPPROTO_IP, IP_MULTICAST_LOOP, 0);
  CALL(sendto(sender, "def", 3, 0, &to.any, length));
  pause_ms(50);
  CALL(recv(s, bytes, sizeof bytes, MSG_DONTWAIT));
}

CASE(ip_options_of_6, "options of IPv6, on sockets of the family") {
  OF_ALL {
    OPTION(s, IPPROTO_IPV6, IPV6_V6ONLY);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    OPTION(s, IPPROTO_IPV6, IPV6_TCLASS);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_TCLASS, 0x20);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_TCLASS, 256);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_TCLASS, -1);
    OPTION(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 7);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS, -1);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 256);
    OPTION(s, IPPROTO_IPV6, IPV6_MTU_DISCOVER);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
    // The MTU of a connected socket depends on its route, which the kernel looks up anew after such changes.
    if (i != CONNECTION && i != CONNECTED_DATAGRAMS) OPTION(s, IPPROTO_IPV6, IPV6_MTU);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_RECVERR, 1);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 3);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 0);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_FREEBIND, 1);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 1);
  }
}

CASE(ip_options_of_4_on_6, "IP_TOS and IP_TTL of an IPv6 socket, and IPv6's of an IPv4 socket") {
  const int six = OPEN(socket(AF_INET6, SOCK_STREAM, 0));
  SET_AND_GET(six, IPPROTO_IP, IP_TOS, 0x10);
  SET_AND_GET(six, IPPROTO_IP, IP_TTL, 9);
  const int four = OPEN(socket(AF_INET, SOCK_STREAM, 0));
  SET(four, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  OPTION(four, IPPROTO_IPV6, IPV6_V6ONLY);
}

CASE(udp_options, "UDP_CORK, UDP_SEGMENT, UDP_GRO, UDP_ENCAP and those that there are not") {
  OF_DATAGRAMS {
    OPTION(s, IPPROTO_UDP, UDP_CORK);
    SET_AND_GET(s, IPPROTO_UDP, UDP_CORK, 1);
    SET_AND_GET(s, IPPROTO_UDP, UDP_CORK, 0);
    OPTION(s, IPPROTO_UDP, UDP_SEGMENT);
    SET_AND_GET(s, IPPROTO_UDP, UDP_SEGMENT, 1000);
    SET_AND_GET(s, IPPROTO_UDP, UDP_SEGMENT, 100000);
    SET_AND_GET(s, IPPROTO_UDP, UDP_SEGMENT, -1);
    OPTION(s, IPPROTO_UDP, UDP_GRO);
    SET_AND_GET(s, IPPROTO_UDP, UDP_GRO, 1);
    OPTION(s, IPPROTO_UDP, UDP_NO_CHECK6_TX);
  }
}

CASE(udp_segment, "UDP_SEGMENT cuts one send() into datagrams") {
  int ends[2];
  static char bytes[3000];
  datagrams(ends);
  SET(ends[0], IPPROTO_UDP, UDP_SEGMENT, 1000);
  CALL(send(ends[0], bytes, 2500, 0));
  await(ends[1], POLLIN);
  pause_ms(30);
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
}

THEME(options_ip, &ip_tos_ttl, &ip_tos_short, &ip_path, &ip_receives, &ip_binding, &ip_multicast, &ip_membership, &ip_membership_first,
      &ip_group_heard, &ip_options_of_6, &ip_options_of_4_on_6, &udp_options, &udp_segment);
