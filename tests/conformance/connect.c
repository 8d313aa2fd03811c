// connect.c - cases of connect(): blocking and not, refused, repeated, dissolved (AF_UNSPEC), and the life of SO_ERROR.
#include "tests/conformance/conformance.h"

// The address of a fresh listener.
static socklen_t of_listener(union Address* address) { return address_of(listening(), address); }

static socklen_t of_nobody(union Address* address) { return own_address(address, unused_port()); }

CASE(connect_blocking, "connect(), and the names of the client") {
  union Address to;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const socklen_t length = of_listener(&to);
  CALL(connect(s, &to.any, length));
  say_names("client", s);
  say_ready("client", s);
  OPTION(s, SOL_SOCKET, SO_ERROR);
}

CASE(connect_bound, "connect() from an address and port that bind() chose") {
  union Address to;
  const socklen_t length = of_listener(&to);
  const int s = bound(SOCK_STREAM);
  const int port = port_of(s);
  CALL(connect(s, &to.any, length));
  say("the port is the same: %s", port == port_of(s) ? "yes" : "no");
  say_names("client", s);
}

CASE(connect_bound_any, "connect() from any address with a port: the address becomes the own") {
  union Address to, any;
  const socklen_t length = of_listener(&to);
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  any_address(&any, 0);
  CALL(bind(s, &any.any, length));
  CALL(connect(s, &to.any, length));
  say_names("client", s);
}

CASE(connect_refused, "connect() to an unused port, blocking") {
  union Address to;
  char byte = 0;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const socklen_t length = of_nobody(&to);
  CALL(connect(s, &to.any, length));
  OPTION(s, SOL_SOCKET, SO_ERROR);
  say_ready("refused", s);
  CALL(recv(s, &byte, 1, 0));
  CALL(send(s, &byte, 1, MSG_NOSIGNAL));
  CALL(connect(s, &to.any, length));
  CALL(shutdown(s, SHUT_RDWR));
}

CASE(connect_refused_then_served, "a socket that was refused may connect elsewhere") {
  union Address to;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const socklen_t length = of_nobody(&to);
  CALL(connect(s, &to.any, length));
  of_listener(&to);
  CALL(connect(s, &to.any, length));
  CALL(send(s, "abc", 3, 0));
}

CASE(connect_nonblocking, "connect() that does not wait, and again when it is there") {
  union Address to;
  const int s = OPEN(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
  const socklen_t length = of_listener(&to);
  CALL(connect(s, &to.any, length));
  await(s, POLLOUT);
  OPTION(s, SOL_SOCKET, SO_ERROR);
  CALL(connect(s, &to.any, length));
  CALL(connect(s, &to.any, length));
  say_ready("connected", s);
}

CASE(connect_nonblocking_refused, "nonblocking connect() that is refused: SO_ERROR reports it once") {
  union Address to;
  char byte = 0;
  const int s = OPEN(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
  const socklen_t length = of_nobody(&to);
  CALL(connect(s, &to.any, length));
  await(s, POLLOUT);
  say_ready("refused", s);
  OPTION(s, SOL_SOCKET, SO_ERROR);
  OPTION(s, SOL_SOCKET, SO_ERROR);
  say_ready("told", s);
  CALL(recv(s, &byte, 1, 0));
  CALL(send(s, &byte, 1, MSG_NOSIGNAL));
}

CASE(connect_nonblocking_refused_recv, "nonblocking connect() that is refused: recv() reports it once") {
  union Address to;
  char byte = 0;
  const int s = OPEN(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
  const socklen_t length = of_nobody(&to);
  CALL(connect(s, &to.any, length));
  await(s, POLLOUT);
  CALL(recv(s, &byte, 1, 0));
  CALL(recv(s, &byte, 1, 0));
  OPTION(s, SOL_SOCKET, SO_ERROR);
}

CASE(connect_nonblocking_refused_connect, "nonblocking connect() that is refused: connect() reports it, and the next one begins anew") {
  union Address to;
  const int s = OPEN(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
  const socklen_t length = of_nobody(&to);
  CALL(connect(s, &to.any, length));
  await(s, POLLOUT);
  CALL(connect(s, &to.any, length));
  CALL(connect(s, &to.any, length));
}

CASE(connect_twice, "connect() of what is connected") {
  union Address to;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const socklen_t length = of_listener(&to);
  CALL(connect(s, &to.any, length));
  CALL(connect(s, &to.any, length));
  of_nobody(&to);
  CALL(connect(s, &to.any, length));
  int ends[2];
  streams(ends);
  CALL(connect(ends[1], &to.any, length));
}

CASE(connect_wrong_length, "connect() with lengths and families that are none") {
  union Address to;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const socklen_t length = of_listener(&to);
  CALL(connect(s, &to.any, 0));
  CALL(connect(s, &to.any, 1));
  CALL(connect(s, &to.any, length - 5));
  CALL(connect(s, &to.any, 1000));
  CALL(connect(s, &to.any, (socklen_t)-1));
  to.any.sa_family = 77;
  CALL(connect(s, &to.any, length));
  CALL(connect(s, NULL, length));
  CALL(connect(s, (struct sockaddr*)8, length));
}

CASE(connect_port_zero, "connect() to port 0") {
  union Address to;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const int d = OPEN(socket(family, SOCK_DGRAM, 0));
  const socklen_t length = own_address(&to, 0);
  CALL(connect(s, &to.any, length));
  CALL(connect(d, &to.any, length));
}

CASE(connect_to_any, "connect() to the address of any is to this host") {
  union Address to;
  const int listener = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(listen(listener, 1));
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const socklen_t length = any_address(&to, port_of(listener));
  CALL(connect(s, &to.any, length));
}

CASE(connect_to_broadcast, "connect() to everybody, and to a group") {
  union Address to;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const int d = OPEN(socket(family, SOCK_DGRAM, 0));
  const socklen_t length = own_address(&to, 7777);
  if (family == AF_INET) inet_pton(AF_INET, "255.255.255.255", &to.v4.sin_addr);
  if (family == AF_INET6) inet_pton(AF_INET6, "ff02::1", &to.v6.sin6_addr);
  CALL(connect(s, &to.any, length));
  if (family == AF_INET) CALL(connect(d, &to.any, length));
}

CASE(connect_self, "connect() of a socket to its own address: a stream to itself") {
  union Address own;
  char bytes[8];
  const int s = bound(SOCK_STREAM);
  const socklen_t length = address_of(s, &own);
  CALL(connect(s, &own.any, length));
  say_names("itself", s);
  CALL(send(s, "abc", 3, 0));
  CALL(recv(s, bytes, sizeof bytes, 0));
}

CASE(connect_dissolve_stream, "connect() to AF_UNSPEC ends a stream, and the socket can connect anew") {
  int ends[2];
  char byte;
  union Address to = {{AF_UNSPEC, {0}}};
  streams(ends);
  CALL(connect(ends[0], &to.any, sizeof to.any));
  say_names("dissolved", ends[0]);
  await(ends[1], POLLERR);
  CALL(recv(ends[1], &byte, 1, 0));
  const socklen_t length = of_listener(&to);
  CALL(connect(ends[0], &to.any, length));
  CALL(send(ends[0], "abc", 3, 0));
}

CASE(connect_dissolve_new, "connect() to AF_UNSPEC of sockets that are not connected, and of listeners") {
  const union Address to = {{AF_UNSPEC, {0}}};
  CALL(connect(socket(family, SOCK_STREAM, 0), &to.any, sizeof to.any));
  CALL(connect(bound(SOCK_STREAM), &to.any, sizeof to.any));
  CALL(connect(socket(family, SOCK_DGRAM, 0), &to.any, sizeof to.any));
  const int listener = listening();
  CALL(connect(listener, &to.any, sizeof to.any));
  OPTION(listener, SOL_SOCKET, SO_ACCEPTCONN);
}

CASE(connect_datagram, "connect() of datagrams: names, again, and dissolved") {
  union Address to;
  union Address none = {{AF_UNSPEC, {0}}};
  const int one = bound(SOCK_DGRAM);
  const int two = bound(SOCK_DGRAM);
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  const socklen_t length = address_of(one, &to);
  CALL(connect(s, &to.any, length));
  say_names("connected", s);
  const int port = port_of(s);
  address_of(two, &to);
  CALL(connect(s, &to.any, length));
  say("the port is the same: %s", port == port_of(s) ? "yes" : "no");
  CALL(connect(s, &none.any, sizeof none.any));
  say_names("dissolved", s);
  CALL(send(s, "abc", 3, 0));
}

CASE(connect_after_shutdown, "shutdown() of a new socket, then connect()") {
  union Address to;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(shutdown(s, SHUT_WR));
  const socklen_t length = of_listener(&to);
  CALL(connect(s, &to.any, length));
}

CASE(connect_after_end, "connect() again after both ends have closed") {
  union Address to;
  int ends[2];
  char byte;
  streams(ends);
  close(ends[1]);
  await(ends[0], POLLRDHUP);
  CALL(recv(ends[0], &byte, 1, 0));
  const socklen_t length = of_listener(&to);
  CALL(connect(ends[0], &to.any, length));
  CALL(shutdown(ends[0], SHUT_WR));
  pause_ms(50);
  CALL(connect(ends[0], &to.any, length));
}

CASE(connect_then_listen, "a socket that was refused listens") {
  union Address to;
  const int s = bound(SOCK_STREAM);
  const socklen_t length = of_nobody(&to);
  CALL(connect(s, &to.any, length));
  say_names("refused", s);
  CALL(listen(s, 1));
}

CASE(connect_not_there_yet, "calls on a socket whose connect() cannot succeed: no answer comes") {
  union Address to;
  char byte = 0;
  // A listener with a full queue answers no further SYN.
  const int listener = listening_of(0);
  const socklen_t length = address_of(listener, &to);
  int s = -1;
  for (int i = 0; i < 4; ++i) {
    s = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect(s, &to.any, length);
    pause_ms(30);
  }
  say_ready("last", s);
  CALL(connect(s, &to.any, length));
  CALL(recv(s, &byte, 1, 0));
  CALL(send(s, &byte, 1, MSG_NOSIGNAL));
  OPTION(s, SOL_SOCKET, SO_ERROR);
  say_names("last", s);
  CALL(listen(s, 1));
}

CASE(connect_error_told_once, "SO_ERROR after a reset: told and cleared, then the end") {
  int ends[2];
  char byte = 0;
  streams(ends);
  reset(ends[1]);
  await(ends[0], POLLERR);
  say_ready("reset", ends[0]);
  OPTION(ends[0], SOL_SOCKET, SO_ERROR);
  OPTION(ends[0], SOL_SOCKET, SO_ERROR);
  say_ready("told", ends[0]);
  CALL(recv(ends[0], &byte, 1, 0));
  CALL(send(ends[0], &byte, 1, MSG_NOSIGNAL));
}

CASE(connect_reset_send, "after a reset, send() tells, then EPIPE") {
  int ends[2];
  char byte = 0;
  streams(ends);
  reset(ends[1]);
  await(ends[0], POLLERR);
  CALL(send(ends[0], &byte, 1, MSG_NOSIGNAL));
  CALL(send(ends[0], &byte, 1, MSG_NOSIGNAL));
  CALL(recv(ends[0], &byte, 1, 0));
  OPTION(ends[0], SOL_SOCKET, SO_ERROR);
}

CASE(connect_many, "a hundred connections to one listener, one after the other") {
  const int listener = listening();
  int served = 0;
  for (int i = 0; i < 100; ++i) {
    char bytes[4] = "";
    const int client = connected(listener);
    const int server = accepted(listener);
    MUST(send(client, "abc", 3, 0));
    served += recv(server, bytes, 3, MSG_WAITALL) == 3 && memcmp(bytes, "abc", 3) == 0;
    close(client);
    close(server);
  }
  say("served %d", served);
}

static int wakes[2];

static void wakes_and_calls(int listener) {
  union Address to;
  const socklen_t length = address_of(listener, &to);
  const int s = (int)MUST(socket(family, SOCK_STREAM, 0));
  const struct timeval within = {2, 0};
  close(listener);
  MUST(setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &within, sizeof within));
  pause_ms(400);
  MUST(write(wakes[1], "x", 1));
  pause_ms(50);
  CALL(connect(s, &to.any, length));
}

CASE(connect_to_busy, "a thread woken by another event, and then busy, is connected all the same") {
  const int listener = listening();
  MUST(pipe(wakes));
  const pid_t caller = child(wakes_and_calls, listener);
  struct pollfd wanted[] = {{.fd = listener, .events = POLLIN}, {.fd = wakes[0], .events = POLLIN}};
  CALL(poll(wanted, 2, 5000));
  say_ended("who calls", caller);
}

THEME(connect, &connect_blocking, &connect_bound, &connect_bound_any, &connect_refused, &connect_refused_then_served,
      &connect_nonblocking, &connect_nonblocking_refused, &connect_nonblocking_refused_recv,
      &connect_nonblocking_refused_connect, &connect_twice, &connect_wrong_length, &connect_port_zero, &connect_to_any,
      &connect_to_broadcast, &connect_self, &connect_dissolve_stream, &connect_dissolve_new, &connect_datagram,
      &connect_after_shutdown, &connect_after_end, &connect_then_listen, &connect_not_there_yet,
      &connect_error_told_once, &connect_reset_send, &connect_many, &connect_to_busy);
