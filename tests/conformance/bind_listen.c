// bind_listen.c - cases of bind(), listen(), accept() and of the names of sockets in every state.
#include "tests/conformance/conformance.h"

CASE(bind_ephemeral, "bind() to port 0 and the names before and after") {
  union Address own;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  say_names("new", s);
  const socklen_t length = own_address(&own, 0);
  CALL(bind(s, &own.any, length));
  say_names("bound", s);
  CALL(bind(s, &own.any, length));
}

CASE(bind_datagram, "bind() of a datagram socket to port 0, and the names before and after") {
  union Address own;
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  say_names("new", s);
  const socklen_t length = own_address(&own, 0);
  CALL(bind(s, &own.any, length));
  say_names("bound", s);
  CALL(bind(s, &own.any, length));
}

CASE(bind_any, "bind() to the address of any") {
  union Address any;
  const int types[] = {SOCK_STREAM, SOCK_DGRAM};
  const socklen_t length = any_address(&any, 0);
  for (int i = 0; i < 2; ++i) {
    const int s = OPEN(socket(family, types[i], 0));
    CALL(bind(s, &any.any, length));
    say_names("bound", s);
  }
}

CASE(bind_taken, "bind() to a port that another socket has") {
  union Address own, any;
  const int types[] = {SOCK_STREAM, SOCK_DGRAM};
  for (int i = 0; i < 2; ++i) {
    const socklen_t length = own_address(&own, unused_port());
    const int s = OPEN(socket(family, types[i], 0));
    CALL(bind(s, &own.any, length));
    any_address(&any, port_of(s));
    const int other = OPEN(socket(family, types[i], 0));
    CALL(bind(other, &own.any, length));
    CALL(bind(other, &any.any, length));
    const int of_other_type = OPEN(socket(family, types[1 - i], 0));
    CALL(bind(of_other_type, &own.any, length));
    CALL(close(s));
    CALL(bind(other, &own.any, length));
  }
}

CASE(bind_any_taken, "bind() to an address whose port is bound to any address") {
  union Address own, any;
  const socklen_t length = any_address(&any, 0);
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(bind(s, &any.any, length));
  own_address(&own, port_of(s));
  const int other = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(bind(other, &own.any, length));
  CALL(listen(s, 1));
  SET(other, SOL_SOCKET, SO_REUSEADDR, 1);
  CALL(bind(other, &own.any, length));
}

CASE(bind_wrong_length, "bind() with lengths that are none") {
  union Address own;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const socklen_t length = own_address(&own, 0);
  CALL(bind(s, &own.any, 0));
  CALL(bind(s, &own.any, 2));
  CALL(bind(s, &own.any, length - 1));
  CALL(bind(s, &own.any, (socklen_t)-1));
  CALL(bind(s, &own.any, 1000));
  CALL(bind(s, &own.any, sizeof own));
  say_names("at last", s);
}

CASE(bind_wrong_family, "bind() to addresses of other families") {
  union Address own;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const socklen_t length = own_address(&own, 0);
  own.any.sa_family = AF_UNIX;
  CALL(bind(s, &own.any, length));
  own.any.sa_family = 77;
  CALL(bind(s, &own.any, length));
  own.any.sa_family = AF_UNSPEC;
  CALL(bind(s, &own.any, length));
  any_address(&own, 0);
  own.any.sa_family = AF_UNSPEC;
  CALL(bind(s, &own.any, length));
}

CASE(bind_not_ours, "bind() to an address that this host does not have") {
  union Address other;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const int d = OPEN(socket(family, SOCK_DGRAM, 0));
  const socklen_t length = own_address(&other, 0);
  if (family == AF_INET) inet_pton(AF_INET, "192.0.2.77", &other.v4.sin_addr);
  if (family == AF_INET6) inet_pton(AF_INET6, "2001:db8::77", &other.v6.sin6_addr);
  CALL(bind(s, &other.any, length));
  CALL(bind(d, &other.any, length));
  if (family == AF_INET) inet_pton(AF_INET, "255.255.255.255", &other.v4.sin_addr);
  CALL(bind(s, &other.any, length));
}

CASE(bind_bad_pointer, "bind() with addresses of memory that there is not") {
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(bind(s, NULL, sizeof(struct sockaddr_in)));
  CALL(bind(s, (const struct sockaddr*)8, sizeof(struct sockaddr_in6)));
}

CASE(bind_after_connect, "bind() of a socket that is connected, or listens") {
  union Address own;
  int ends[2];
  streams(ends);
  const socklen_t length = own_address(&own, 0);
  CALL(bind(ends[0], &own.any, length));
  CALL(bind(ends[1], &own.any, length));
  const int listener = listening();
  CALL(bind(listener, &own.any, length));
  datagrams(ends);
  CALL(bind(ends[0], &own.any, length));
}

CASE(bind_low_port, "bind() to a port below 1024, as root") {
  union Address own;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const socklen_t length = own_address(&own, 733);
  CALL(bind(s, &own.any, length));
  say("port %d", port_of(s));
}

CASE(bind_address_no_port, "IP_BIND_ADDRESS_NO_PORT: the port comes with connect()") {
  union Address own;
  const int listener = listening();
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  SET_AND_GET(s, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  const socklen_t length = own_address(&own, 0);
  CALL(bind(s, &own.any, length));
  say_names("bound", s);
  address_of(listener, &own);
  CALL(connect(s, &own.any, length));
  say_names("connected", s);
}

CASE(listen_unbound, "listen() without bind(): any address, some port") {
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(listen(s, 5));
  say_names("listener", s);
  OPTION(s, SOL_SOCKET, SO_ACCEPTCONN);
  say_ready("listener", s);
}

CASE(listen_backlogs, "listen() again, and with invalid backlogs") {
  const int s = bound(SOCK_STREAM);
  CALL(listen(s, -1));
  CALL(listen(s, 0));
  CALL(listen(s, 1000000));
  CALL(listen(s, 5));
}

CASE(listen_wrong_socket, "listen() of datagrams, and of connected streams") {
  int ends[2];
  const int datagram = bound(SOCK_DGRAM);
  CALL(listen(datagram, 1));
  streams(ends);
  CALL(listen(ends[0], 1));
  CALL(listen(ends[1], 1));
}

CASE(listen_is_no_stream, "what a listener answers to calls of a connection") {
  union Address own;
  char byte = 0;
  int there = 0;
  const int s = listening();
  const socklen_t length = address_of(s, &own);
  CALL(send(s, &byte, 1, MSG_NOSIGNAL));
  CALL(recv(s, &byte, 1, 0));
  CALL(read(s, &byte, 1));
  CALL(connect(s, &own.any, length));
  CALL(ioctl(s, FIONREAD, &there));
  say_names("listener", s);
}

CASE(listen_backlog_zero, "a backlog of 0 takes one") {
  const int listener = listening_of(0);
  const int client = connected(listener);
  const int server = accepted(listener);
  CALL(send(client, "abc", 3, 0));
  char bytes[8];
  CALL(recv(server, bytes, sizeof bytes, 0));
}

CASE(listen_shutdown, "shutdown() of a listener: accept() says EINVAL, and it can listen again") {
  const int s = listening();
  CALL(shutdown(s, SHUT_WR));
  say_ready("after SHUT_WR", s);
  CALL(shutdown(s, SHUT_RD));
  say_ready("after SHUT_RD", s);
  OPEN(accept(s, NULL, NULL));
  OPTION(s, SOL_SOCKET, SO_ACCEPTCONN);
  CALL(listen(s, 1));
  const int client = connected(s);
  OPEN(accept(s, NULL, NULL));
  close(client);
}

CASE(accept_names, "accept() and the names of both ends") {
  union Address from, name;
  const int listener = listening();
  const int client = connected(listener);
  socklen_t length = sizeof from;
  const int server = OPEN(accept(listener, &from.any, &length));
  say_address("from", &from, length);
  address_of(client, &name);
  say("from is the client's name: %s", memcmp(&from, &name, length) == 0 ? "yes" : "no");
  say("server's port is the listener's: %s", port_of(server) == port_of(listener) ? "yes" : "no");
  say_names("client", client);
  say_names("server", server);
}

CASE(accept_short_address, "accept() with room for less than the address") {
  union Address from;
  const int listener = listening();
  connected(listener);
  connected(listener);
  connected(listener);
  memset(&from, 0x55, sizeof from);
  socklen_t length = 4;
  OPEN(accept(listener, &from.any, &length));
  say("length %u, untouched behind it: %s", length, ((unsigned char*)&from)[4] == 0x55 ? "yes" : "no");
  length = 0;
  OPEN(accept(listener, &from.any, &length));
  say("length %u", length);
  length = (socklen_t)-1;
  OPEN(accept(listener, &from.any, &length));
}

CASE(accept_flags, "accept4() with SOCK_CLOEXEC, SOCK_NONBLOCK, and flags that there are not") {
  const int listener = listening();
  connected(listener);
  connected(listener);
  connected(listener);
  await(listener, POLLIN);
  OPEN(accept4(listener, NULL, NULL, 0x4));
  const int plain = OPEN(accept4(listener, NULL, NULL, 0));
  CALL(fcntl(plain, F_GETFD));
  say("flags %o", (unsigned)fcntl(plain, F_GETFL));
  const int both = OPEN(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
  CALL(fcntl(both, F_GETFD));
  say("flags %o", (unsigned)fcntl(both, F_GETFL));
}

CASE(accept_inherits_no_flags, "a listener's O_NONBLOCK and FD_CLOEXEC are not its connections'") {
  const int listener = listening();
  CALL(fcntl(listener, F_SETFD, FD_CLOEXEC));
  nonblocking(listener);
  const int client = connected(listener);
  const int server = accepted(listener);
  CALL(fcntl(server, F_GETFD));
  say("flags %o", (unsigned)fcntl(server, F_GETFL));
  close(client);
}

CASE(accept_inherits_options, "a listener's options are its connections'") {
  const int listener = listening();
  const struct linger linger = {1, 3};
  SET(listener, SOL_SOCKET, SO_KEEPALIVE, 1);
  SET(listener, SOL_SOCKET, SO_RCVBUF, 50000);
  SET(listener, SOL_SOCKET, SO_PRIORITY, 3);
  SET(listener, SOL_SOCKET, SO_RCVLOWAT, 7);
  SET(listener, IPPROTO_TCP, TCP_NODELAY, 1);
  SET(listener, IPPROTO_TCP, TCP_KEEPIDLE, 77);
  SET(listener, IPPROTO_TCP, TCP_USER_TIMEOUT, 7777);
  CALL(setsockopt(listener, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
  const struct timeval soon = {0, 40000};
  CALL(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
  const int client = connected(listener);
  const int server = accepted(listener);
  struct timeval within = {0, 0};
  socklen_t within_length = sizeof within;
  CALL(getsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &within, &within_length));
  say("receives within %ld us", (long)within.tv_usec);
  char byte;
  CALL(recv(server, &byte, 1, 0));
  OPTION(server, SOL_SOCKET, SO_KEEPALIVE);
  OPTION(server, SOL_SOCKET, SO_RCVBUF);
  OPTION(server, SOL_SOCKET, SO_PRIORITY);
  OPTION(server, SOL_SOCKET, SO_RCVLOWAT);
  OPTION(server, SOL_SOCKET, SO_REUSEADDR);
  OPTION(server, IPPROTO_TCP, TCP_NODELAY);
  OPTION(server, IPPROTO_TCP, TCP_KEEPIDLE);
  OPTION(server, IPPROTO_TCP, TCP_USER_TIMEOUT);
  struct linger is = {0, 0};
  socklen_t length = sizeof is;
  CALL(getsockopt(server, SOL_SOCKET, SO_LINGER, &is, &length));
  say("linger %d %d", is.l_onoff, is.l_linger);
  OPTION(client, SOL_SOCKET, SO_KEEPALIVE);
}

CASE(accept_order, "accept() in the order of arrival") {
  const int listener = listening();
  int clients[3];
  for (int i = 0; i < 3; ++i) {
    clients[i] = connected(listener);
    const char mark = (char)('a' + i);
    MUST(send(clients[i], &mark, 1, 0));
  }
  for (int i = 0; i < 3; ++i) {
    char mark = 0;
    const int server = accepted(listener);
    CALL(recv(server, &mark, 1, 0));
    say("%c", mark);
  }
}

CASE(accept_wrong_socket, "accept() of what does not listen") {
  int ends[2];
  OPEN(accept(bound(SOCK_STREAM), NULL, NULL));
  OPEN(accept(bound(SOCK_DGRAM), NULL, NULL));
  streams(ends);
  OPEN(accept(ends[0], NULL, NULL));
}

CASE(accept_bad_pointer, "accept() with an address in memory that there is not") {
  const int listener = listening();
  socklen_t length = 16;
  connected(listener);
  await(listener, POLLIN);
  OPEN(accept(listener, (struct sockaddr*)8, &length));
  connected(listener);
  await(listener, POLLIN);
  union Address from;
  OPEN(accept(listener, &from.any, NULL));
}

CASE(accept_client_gone, "accept() of a connection whose client has closed, or has reset it") {
  char bytes[8];
  const int listener = listening();
  const int closes = connected(listener);
  MUST(send(closes, "abc", 3, 0));
  close(closes);
  const int server = accepted(listener);
  CALL(recv(server, bytes, sizeof bytes, MSG_WAITALL));
  CALL(recv(server, bytes, sizeof bytes, 0));
  const int resets = connected(listener);
  await(listener, POLLIN);
  reset(resets);
  pause_ms(50);
  const int dead = OPEN(accept(listener, NULL, NULL));
  await(dead, POLLERR);
  CALL(recv(dead, bytes, sizeof bytes, 0));
  CALL(recv(dead, bytes, sizeof bytes, 0));
}

CASE(names_bad_arguments, "getsockname() and getpeername() with wrong lengths and pointers") {
  union Address name;
  int ends[2];
  streams(ends);
  memset(&name, 0x55, sizeof name);
  socklen_t length = 4;
  CALL(getsockname(ends[0], &name.any, &length));
  say("length %u, untouched behind it: %s", length, ((unsigned char*)&name)[4] == 0x55 ? "yes" : "no");
  length = 0;
  CALL(getpeername(ends[0], &name.any, &length));
  say("length %u", length);
  length = (socklen_t)-1;
  CALL(getsockname(ends[0], &name.any, &length));
  length = sizeof name;
  CALL(getsockname(ends[0], NULL, &length));
  CALL(getpeername(ends[0], (struct sockaddr*)8, &length));
  CALL(getsockname(ends[0], &name.any, NULL));
}

CASE(names_after_end, "names once the other end has closed, and after a reset") {
  int ends[2];
  char byte;
  streams(ends);
  close(ends[1]);
  await(ends[0], POLLRDHUP);
  say_names("half closed", ends[0]);
  CALL(shutdown(ends[0], SHUT_RDWR));
  pause_ms(50);
  say_names("closed", ends[0]);
  streams(ends);
  reset(ends[1]);
  await(ends[0], POLLERR);
  say_names("reset", ends[0]);
  CALL(recv(ends[0], &byte, 1, 0));
  say_names("reset and read", ends[0]);
}

THEME(bind_listen, &bind_ephemeral, &bind_datagram, &bind_any, &bind_taken, &bind_any_taken, &bind_wrong_length,
      &bind_wrong_family, &bind_not_ours, &bind_bad_pointer, &bind_after_connect, &bind_low_port,
      &bind_address_no_port, &listen_unbound, &listen_backlogs, &listen_wrong_socket, &listen_is_no_stream,
      &listen_backlog_zero, &listen_shutdown, &accept_names, &accept_short_address, &accept_flags,
      &accept_inherits_no_flags, &accept_inherits_options, &accept_order, &accept_wrong_socket, &accept_bad_pointer,
      &accept_client_gone, &names_bad_arguments, &names_after_end);
