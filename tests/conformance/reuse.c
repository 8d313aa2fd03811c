// reuse.c - cases of ports that are used again: SO_REUSEADDR, SO_REUSEPORT, and TIME-WAIT.
#include "tests/conformance/conformance.h"

// Binds a new socket of the type, with the option, to this address.
static int binds(int type, int option, const union Address* address, socklen_t length) {
  const int on = 1;
  const int s = (int)MUST(socket(family, type, 0));
  if (option != 0) MUST(setsockopt(s, SOL_SOCKET, option, &on, sizeof on));
  const int result = bind(s, &address->any, length);
  say("%s, %s: bind: %s", type == SOCK_STREAM ? "stream" : "datagram",
      option == 0 ? "no option" : option == SO_REUSEADDR ? "SO_REUSEADDR" : "SO_REUSEPORT", result == 0 ? "0" : error_name(errno));
  return s;
}

CASE(reuse_address_datagrams, "two datagram sockets with SO_REUSEADDR share a port; a third without does not") {
  union Address own;
  const socklen_t length = own_address(&own, unused_port());
  binds(SOCK_DGRAM, SO_REUSEADDR, &own, length);
  binds(SOCK_DGRAM, SO_REUSEADDR, &own, length);
  binds(SOCK_DGRAM, 0, &own, length);
  binds(SOCK_DGRAM, SO_REUSEPORT, &own, length);
}

CASE(reuse_address_streams, "two streams with SO_REUSEADDR may be bound, one may listen") {
  union Address own;
  const socklen_t length = own_address(&own, unused_port());
  const int one = binds(SOCK_STREAM, SO_REUSEADDR, &own, length);
  const int two = binds(SOCK_STREAM, SO_REUSEADDR, &own, length);
  CALL(listen(one, 1));
  CALL(listen(two, 1));
  binds(SOCK_STREAM, SO_REUSEADDR, &own, length);
}

CASE(reuse_port_streams, "SO_REUSEPORT: several listeners of a port, all connections are accepted by one of them") {
  union Address own;
  const socklen_t length = own_address(&own, unused_port());
  int listeners[3], clients[12], accepted_by_all = 0;
  for (int i = 0; i < 3; ++i) {
    listeners[i] = binds(SOCK_STREAM, SO_REUSEPORT, &own, length);
    CALL(listen(listeners[i], 16));
    nonblocking(listeners[i]);
  }
  binds(SOCK_STREAM, 0, &own, length);
  for (int i = 0; i < 12; ++i) {
    clients[i] = (int)MUST(socket(family, SOCK_STREAM, 0));
    MUST(connect(clients[i], &own.any, length));
  }
  pause_ms(50);
  for (int i = 0; i < 3; ++i) {
    while (accept(listeners[i], NULL, NULL) >= 0) ++accepted_by_all;
  }
  say("accepted %d", accepted_by_all);
}

CASE(reuse_port_datagrams, "SO_REUSEPORT: each datagram comes to one of the sockets") {
  union Address own;
  const socklen_t length = own_address(&own, unused_port());
  int sockets[3], received = 0;
  char byte;
  for (int i = 0; i < 3; ++i) {
    sockets[i] = binds(SOCK_DGRAM, SO_REUSEPORT, &own, length);
    nonblocking(sockets[i]);
  }
  for (int i = 0; i < 20; ++i) MUST(sendto(bound(SOCK_DGRAM), "x", 1, 0, &own.any, length));
  pause_ms(50);
  for (int i = 0; i < 3; ++i) {
    while (recv(sockets[i], &byte, 1, 0) == 1) ++received;
  }
  say("received %d", received);
}

CASE(reuse_port_late, "SO_REUSEPORT set by the second only, or after bind()") {
  union Address own;
  const socklen_t length = own_address(&own, unused_port());
  const int one = binds(SOCK_STREAM, 0, &own, length);
  binds(SOCK_STREAM, SO_REUSEPORT, &own, length);
  SET(one, SOL_SOCKET, SO_REUSEPORT, 1);
  binds(SOCK_STREAM, SO_REUSEPORT, &own, length);
}

// Makes a connection that the listener's side closes first, so that TIME-WAIT is at its port. Returns the listener's address.
static void closed_first(union Address* own, socklen_t* length, int reuses) {
  char byte;
  const int listener = listening();
  MUST(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &reuses, sizeof reuses));
  *length = address_of(listener, own);
  const int client = connected(listener);
  const int server = accepted(listener);
  close(server);
  await(client, POLLRDHUP);
  recv(client, &byte, 1, 0);
  close(client);
  close(listener);
  pause_ms(50);
}

CASE(reuse_time_wait_refused, "bind() to a port in TIME-WAIT is refused if its socket had no SO_REUSEADDR") {
  union Address own;
  socklen_t length;
  closed_first(&own, &length, 0);
  binds(SOCK_STREAM, 0, &own, length);
  binds(SOCK_STREAM, SO_REUSEADDR, &own, length);
}

CASE(reuse_time_wait, "the port of a connection in TIME-WAIT: not without SO_REUSEADDR") {
  union Address own;
  socklen_t length;
  closed_first(&own, &length, 1);
  binds(SOCK_STREAM, 0, &own, length);
  const int s = binds(SOCK_STREAM, SO_REUSEADDR, &own, length);
  CALL(listen(s, 1));
}

CASE(reuse_with_connection, "a restarted server binds its port while an old connection lives") {
  union Address own;
  const int listener = listening();
  const socklen_t length = address_of(listener, &own);
  const int client = connected(listener);
  const int server = accepted(listener);
  CALL(close(listener));
  binds(SOCK_STREAM, 0, &own, length);
  binds(SOCK_STREAM, SO_REUSEADDR, &own, length);
  close(client);
  close(server);
}

CASE(reuse_with_connection_all_set, "a restarted server binds its port beside an old connection; the old listener had SO_REUSEADDR, too") {
  union Address own;
  char bytes[4];
  const socklen_t length = own_address(&own, unused_port());
  const int listener = binds(SOCK_STREAM, SO_REUSEADDR, &own, length);
  CALL(listen(listener, 5));
  const int client = connected(listener);
  const int server = accepted(listener);
  CALL(close(listener));
  const int again = binds(SOCK_STREAM, SO_REUSEADDR, &own, length);
  CALL(listen(again, 5));
  const int second = connected(again);
  CALL(send(second, "new", 3, 0));
  CALL(recv(accepted(again), bytes, 4, 0));
  CALL(send(client, "old", 3, 0));
  CALL(recv(server, bytes, 4, 0));
}

CASE(reuse_same_four, "two sockets with SO_REUSEADDR, one port, connect to the same listener") {
  union Address own, to;
  const int listener = listening();
  const socklen_t length = address_of(listener, &to);
  own_address(&own, unused_port());
  const int one = binds(SOCK_STREAM, SO_REUSEADDR, &own, length);
  const int two = binds(SOCK_STREAM, SO_REUSEADDR, &own, length);
  CALL(connect(one, &to.any, length));
  CALL(connect(two, &to.any, length));
}

CASE(reuse_client_port, "a client binds the port of its last connection, with and without SO_REUSEADDR") {
  union Address to, own;
  const int listener = listening();
  const socklen_t length = address_of(listener, &to);
  const int first = bound(SOCK_STREAM);
  address_of(first, &own);
  MUST(connect(first, &to.any, length));
  const int server = accepted(listener);
  close(first);
  await(server, POLLRDHUP);
  close(server);
  pause_ms(50);
  binds(SOCK_STREAM, 0, &own, length);
  binds(SOCK_STREAM, SO_REUSEADDR, &own, length);
}

CASE(reuse_after_reset, "the port of a connection that was reset is free") {
  union Address own;
  const int listener = listening();
  const socklen_t length = address_of(listener, &own);
  const int client = connected(listener);
  const int server = accepted(listener);
  close(listener);
  reset(server);
  await(client, POLLERR);
  close(client);
  binds(SOCK_STREAM, 0, &own, length);
}

// A client connected from a port of its own with SO_REUSEADDR; `server` is the other end.
static int client_of(int listener, union Address* own, int* server) {
  const int on = 1;
  union Address to;
  const socklen_t length = address_of(listener, &to);
  const int client = bound(SOCK_STREAM);
  MUST(setsockopt(client, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
  address_of(client, own);
  MUST(connect(client, &to.any, length));
  *server = accepted(listener);
  return client;
}

// Another client from the same port to the same listener.
static int client_again(int listener, const union Address* own) {
  union Address to;
  const socklen_t length = address_of(listener, &to);
  const int again = binds(SOCK_STREAM, SO_REUSEADDR, own, length);
  CALL(connect(again, &to.any, length));
  return again;
}

CASE(reuse_client_port_allowed, "a client binds the port of its last connection, which had SO_REUSEADDR, also to the same listener") {
  union Address own;
  int server;
  const int listener = listening();
  const int first = client_of(listener, &own, &server);
  close(server);
  await(first, POLLRDHUP);
  close(first);
  pause_ms(50);
  client_again(listener, &own);
}

CASE(reuse_client_port_kept, "a client binds the port of its last connection, which the server ended first; the server keeps its socket") {
  union Address own;
  int server;
  char byte;
  const int listener = listening();
  const int first = client_of(listener, &own, &server);
  CALL(shutdown(server, SHUT_WR));
  await(first, POLLRDHUP);
  close(first);
  await(server, POLLHUP);
  const int again = client_again(listener, &own);
  const int next = accepted(listener);
  CALL(send(again, "x", 1, 0));
  await_bytes(next, 1);
  CALL(recv(server, &byte, 1, 0));
  CALL(recv(next, &byte, 1, 0));
}

static union Address server_name;
static socklen_t server_length;

static int server_socket(void) {
  const int on = 1;
  const int s = (int)MUST(socket(family, SOCK_STREAM, 0));
  MUST(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
  MUST(bind(s, &server_name.any, server_length));
  return s;
}

static void tell(int to) { MUST(write(to, "x", 1)); }
static void hear(int from) {
  char byte;
  MUST(read(from, &byte, 1));
}

static void accepts_one(int told) {
  const int listener = server_socket();
  MUST(listen(listener, 1));
  tell(told);
  const int s = accepted(listener);
  MUST(close(listener));
  tell(told);
  echoes(s);
}

CASE(reuse_by_other_process, "a server has a connection and no listener: another process may listen there, one that asks for it") {
  int told[2];
  server_length = own_address(&server_name, unused_port());
  MUST(pipe(told));
  const pid_t server = child(accepts_one, told[1]);
  hear(told[0]);
  const int before = (int)MUST(socket(family, SOCK_STREAM, 0));
  MUST(connect(before, &server_name.any, server_length));
  hear(told[0]);
  binds(SOCK_STREAM, 0, &server_name, server_length);
  const int next = binds(SOCK_STREAM, SO_REUSEADDR, &server_name, server_length);
  CALL(listen(next, 1));
  const int client = (int)MUST(socket(family, SOCK_STREAM, 0));
  CALL(connect(client, &server_name.any, server_length));
  const int accepted_one = accepted(next);
  CALL(send(client, "x", 1, 0));
  await_bytes(accepted_one, 1);
  say_echoes(before, 3);
  MUST(close(before));
  say_ended("the first server", server);
}

static void binds_first(int told) {
  const int s = server_socket();
  tell(told);
  pause_ms(50);  // until the other has bound
  say("first: listen: %d", listen(s, 1));
  tell(told);
  pause_ms(100);
}

CASE(reuse_by_two_processes, "two processes bind a port, and one of them may listen") {
  int told[2];
  server_length = own_address(&server_name, unused_port());
  MUST(pipe(told));
  const pid_t first = child(binds_first, told[1]);
  hear(told[0]);
  const int s = binds(SOCK_STREAM, SO_REUSEADDR, &server_name, server_length);
  hear(told[0]);
  CALL(listen(s, 1));
  say_ended("first", first);
}

enum { kCalls = 200 };

static void ends_and_keeps(int listener) {
  for (int i = 0; i < kCalls; ++i) MUST(shutdown(accepted(listener), SHUT_WR));
}

CASE(reuse_server_keeps_all, "a client calls often; the server ends each connection and keeps its socket") {
  union Address to;
  char byte;
  int connected_ones = 0, ended = 0;
  const int listener = listening();
  const socklen_t length = address_of(listener, &to);
  const pid_t server = child(ends_and_keeps, listener);
  for (int i = 0; i < kCalls; ++i) {
    const int s = (int)MUST(socket(family, SOCK_STREAM, 0));
    connected_ones += connect(s, &to.any, length) == 0;
    ended += recv(s, &byte, 1, 0) == 0;
    MUST(close(s));
  }
  say("connected %d, ended %d", connected_ones, ended);
  say_ended("the server", server);
}

CASE(reuse_listener_closed, "the port of a listener without connections is free at once") {
  union Address own;
  const int listener = listening();
  const socklen_t length = address_of(listener, &own);
  CALL(close(listener));
  binds(SOCK_STREAM, 0, &own, length);
}

THEME(reuse, &reuse_address_datagrams, &reuse_address_streams, &reuse_port_streams, &reuse_port_datagrams,
      &reuse_port_late, &reuse_time_wait_refused, &reuse_time_wait, &reuse_with_connection,
      &reuse_with_connection_all_set, &reuse_same_four, &reuse_client_port, &reuse_after_reset,
      &reuse_by_other_process, &reuse_by_two_processes, &reuse_client_port_allowed, &reuse_client_port_kept, &reuse_server_keeps_all,
      &reuse_listener_closed);
