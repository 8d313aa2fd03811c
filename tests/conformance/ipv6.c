// ipv6.c - cases of IPv6 beyond the run of every case over IPv6: dual-stack sockets, mapped addresses, scopes.
#include "tests/conformance/conformance.h"

static socklen_t mapped(union Address* address, int port) {
  union Address four;
  family = AF_INET;
  own_address(&four, port);
  family = AF_INET6;
  memset(address, 0, sizeof *address);
  address->v6.sin6_family = AF_INET6;
  address->v6.sin6_port = htons((uint16_t)port);
  address->v6.sin6_addr.s6_addr[10] = address->v6.sin6_addr.s6_addr[11] = 0xff;
  memcpy(&address->v6.sin6_addr.s6_addr[12], &four.v4.sin_addr, 4);
  return sizeof address->v6;
}

static socklen_t own_of_4(union Address* address, int port) {
  family = AF_INET;
  const socklen_t length = own_address(address, port);
  family = AF_INET6;
  return length;
}

static int listening_both(void) {
  union Address any;
  family = AF_INET6;
  const int s = (int)MUST(socket(AF_INET6, SOCK_STREAM, 0));
  const socklen_t length = any_address(&any, 0);
  MUST(bind(s, &any.any, length));
  MUST(listen(s, 5));
  return s;
}

CASE(six_serves_four, "a listener of any IPv6 address serves IPv4 by mapped addresses") {
  union Address to, from;
  const int listener = listening_both();
  socklen_t length = own_of_4(&to, port_of(listener));
  const int client = OPEN(socket(AF_INET, SOCK_STREAM, 0));
  CALL(connect(client, &to.any, length));
  length = sizeof from;
  const int server = OPEN(accept(listener, &from.any, &length));
  say_address("from", &from, length);
  say_names("server", server);
  OPTION(server, SOL_SOCKET, SO_DOMAIN);
  OPTION(client, SOL_SOCKET, SO_DOMAIN);
}

CASE(six_only, "IPV6_V6ONLY: IPv4 is refused, and may have the port itself") {
  union Address to, any;
  family = AF_INET6;
  const int listener = OPEN(socket(AF_INET6, SOCK_STREAM, 0));
  SET(listener, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  const int both = listening_both();  // its port is free in both versions, also of TIME-WAIT
  socklen_t length = any_address(&any, port_of(both));
  close(both);
  CALL(bind(listener, &any.any, length));
  CALL(listen(listener, 1));
  SET(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  length = own_of_4(&to, port_of(listener));
  const int client = OPEN(socket(AF_INET, SOCK_STREAM, 0));
  CALL(connect(client, &to.any, length));
  const int other = OPEN(socket(AF_INET, SOCK_STREAM, 0));
  CALL(bind(other, &to.any, length));
}

CASE(six_takes_both_ports, "any address of both versions conflicts with IPv4's port") {
  union Address to;
  const int listener = listening_both();
  const socklen_t length = own_of_4(&to, port_of(listener));
  const int other = OPEN(socket(AF_INET, SOCK_STREAM, 0));
  CALL(bind(other, &to.any, length));
}

CASE(six_and_four_addresses, "the own addresses of both versions have ports of their own, whatever IPV6_V6ONLY says") {
  union Address four, six;
  const int both = listening_both();
  const int port = port_of(both);
  close(both);
  const socklen_t four_length = own_of_4(&four, port), six_length = own_address(&six, port);
  const int types[] = {SOCK_STREAM, SOCK_DGRAM};
  for (int i = 0; i < 2; ++i) {
    CALL(bind(socket(AF_INET, types[i], 0), &four.any, four_length));
    CALL(bind(socket(AF_INET6, types[i], 0), &six.any, six_length));
  }
}

CASE(six_connects_mapped, "an IPv6 socket connects to a mapped address") {
  union Address to;
  family = AF_INET;
  const int listener = listening();
  const int port = port_of(listener);
  const socklen_t length = mapped(&to, port);
  const int s = OPEN(socket(AF_INET6, SOCK_STREAM, 0));
  CALL(connect(s, &to.any, length));
  say_names("client", s);
  const int only = OPEN(socket(AF_INET6, SOCK_STREAM, 0));
  SET(only, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  CALL(connect(only, &to.any, length));
}

CASE(six_datagrams_mapped, "datagrams between an IPv6 socket and IPv4") {
  union Address to, from;
  char bytes[20];
  family = AF_INET;
  const int four = bound(SOCK_DGRAM);
  socklen_t length = mapped(&to, port_of(four));
  const int six = OPEN(socket(AF_INET6, SOCK_DGRAM, 0));
  CALL(sendto(six, "abc", 3, 0, &to.any, length));
  length = sizeof from;
  CALL(recvfrom(four, bytes, sizeof bytes, 0, &from.any, &length));
  say("family %d", from.any.sa_family);
  CALL(sendto(four, "def", 3, 0, &from.any, length));
  length = sizeof from;
  CALL(recvfrom(six, bytes, sizeof bytes, 0, &from.any, &length));
  say_address("from", &from, length);
}

CASE(six_to_four_address, "sockaddr_in for an IPv6 socket, sockaddr_in6 for an IPv4 socket") {
  union Address four, six;
  const socklen_t four_length = own_of_4(&four, 7777);
  const socklen_t six_length = own_address(&six, 7777);
  const int s6 = OPEN(socket(AF_INET6, SOCK_STREAM, 0)), s4 = OPEN(socket(AF_INET, SOCK_STREAM, 0));
  CALL(bind(s6, &four.any, four_length));
  CALL(bind(s4, &six.any, six_length));
  CALL(connect(s6, &four.any, four_length));
  CALL(connect(s4, &six.any, six_length));
  const int d6 = OPEN(socket(AF_INET6, SOCK_DGRAM, 0)), d4 = OPEN(socket(AF_INET, SOCK_DGRAM, 0));
  CALL(sendto(d6, "x", 1, 0, &four.any, four_length));
  CALL(sendto(d4, "x", 1, 0, &six.any, six_length));
}

CASE(six_fields, "the fields of sockaddr_in6 that accept() and getsockname() fill") {
  union Address name;
  family = AF_INET6;
  const int listener = listening();
  const int client = connected(listener);
  socklen_t length = sizeof name;
  memset(&name, 0x55, sizeof name);
  CALL(accept(listener, &name.any, &length) >= 0);
  say("flow %x, scope %u", name.v6.sin6_flowinfo, name.v6.sin6_scope_id);
  memset(&name, 0x55, sizeof name);
  address_of(client, &name);
  say("flow %x, scope %u", name.v6.sin6_flowinfo, name.v6.sin6_scope_id);
}

CASE(six_link_local, "a link-local address without a scope") {
  union Address to;
  family = AF_INET6;
  const socklen_t length = own_address(&to, 7777);
  inet_pton(AF_INET6, "fe80::77", &to.v6.sin6_addr);
  const int s = OPEN(socket(AF_INET6, SOCK_STREAM, 0)), d = OPEN(socket(AF_INET6, SOCK_DGRAM, 0));
  CALL(bind(s, &to.any, length));
  CALL(connect(s, &to.any, length));
  CALL(sendto(d, "x", 1, 0, &to.any, length));
}

CASE(six_short_address, "sockaddr_in6 without its scope, 24 bytes, as of old") {
  union Address own;
  family = AF_INET6;
  own_address(&own, 0);
  const int s = OPEN(socket(AF_INET6, SOCK_STREAM, 0));
  CALL(bind(s, &own.any, 24));
  CALL(bind(s, &own.any, 23));
}

CASE(six_addrform, "IPV6_ADDRFORM makes an IPv4 socket of one with mapped addresses") {
  union Address to;
  family = AF_INET;
  const int listener = listening();
  const socklen_t length = mapped(&to, port_of(listener));
  const int s = OPEN(socket(AF_INET6, SOCK_STREAM, 0));
  SET(s, IPPROTO_IPV6, IPV6_ADDRFORM, AF_INET);
  CALL(connect(s, &to.any, length));
  SET(s, IPPROTO_IPV6, IPV6_ADDRFORM, AF_INET);
  OPTION(s, SOL_SOCKET, SO_DOMAIN);
  say_names("client", s);
}

THEME(ipv6, &six_serves_four, &six_only, &six_takes_both_ports, &six_and_four_addresses, &six_connects_mapped,
      &six_datagrams_mapped, &six_to_four_address, &six_fields, &six_link_local, &six_short_address, &six_addrform);
