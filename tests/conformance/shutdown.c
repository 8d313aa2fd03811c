// shutdown.c - cases of shutdown(): one half or both, in either order, with data in flight, and the readiness that follows.
#include "tests/conformance/conformance.h"

CASE(shutdown_write, "SHUT_WR: the peer reads to the end and may still write") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(send(ends[0], "abc", 3, 0));
  CALL(shutdown(ends[0], SHUT_WR));
  say_bytes("peer", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL)));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  say_ready("peer", ends[1]);
  CALL(send(ends[1], "defg", 4, 0));
  say_bytes("own", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
  CALL(send(ends[0], "x", 1, MSG_NOSIGNAL));
  say_ready("own", ends[0]);
}

CASE(shutdown_read, "SHUT_RD: recv() says the end, but what comes is still there") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(send(ends[1], "abc", 3, 0));
  await_bytes(ends[0], 3);
  CALL(shutdown(ends[0], SHUT_RD));
  say_ready("own", ends[0]);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(send(ends[1], "def", 3, MSG_NOSIGNAL));
  await_bytes(ends[0], 3);
  CALL(recv(ends[0], bytes, sizeof bytes, MSG_DONTWAIT));
  CALL(send(ends[0], "ghi", 3, 0));
  say_bytes("peer", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(shutdown_both, "SHUT_RDWR") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(shutdown(ends[0], SHUT_RDWR));
  say_ready("own", ends[0]);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(send(ends[0], "x", 1, MSG_NOSIGNAL));
  await(ends[1], POLLRDHUP);
  say_ready("peer", ends[1]);
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  CALL(shutdown(ends[0], SHUT_RDWR));
}

CASE(shutdown_both_sides, "both ends SHUT_WR: POLLHUP, and what calls say then") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(shutdown(ends[0], SHUT_WR));
  CALL(shutdown(ends[1], SHUT_WR));
  await(ends[0], POLLHUP);
  await(ends[1], POLLHUP);
  say_ready("own", ends[0]);
  say_ready("peer", ends[1]);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  CALL(send(ends[1], "x", 1, MSG_NOSIGNAL));
  OPTION(ends[0], SOL_SOCKET, SO_ERROR);
  CALL(shutdown(ends[1], SHUT_WR));
  CALL(shutdown(ends[1], SHUT_RD));
}

CASE(shutdown_twice, "shutdown() again, and with values that are none") {
  int ends[2];
  streams(ends);
  CALL(shutdown(ends[0], 3));
  CALL(shutdown(ends[0], -1));
  CALL(shutdown(ends[0], SHUT_WR));
  CALL(shutdown(ends[0], SHUT_WR));
  CALL(shutdown(ends[0], SHUT_RD));
  CALL(shutdown(ends[0], SHUT_RD));
}

CASE(shutdown_not_connected, "shutdown() of new, bound and listening sockets") {
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(shutdown(s, SHUT_RD));
  CALL(shutdown(s, SHUT_WR));
  CALL(shutdown(s, SHUT_RDWR));
  say_ready("new", s);
  CALL(shutdown(bound(SOCK_STREAM), SHUT_RDWR));
  const int listener = listening();
  CALL(shutdown(listener, SHUT_RDWR));
  say_ready("listener", listener);
}

CASE(shutdown_data_first, "megabytes on their way come before the end") {
  enum { SIZE = 200000 };
  static char bytes[SIZE];
  int ends[2];
  streams(ends);
  nonblocking(ends[0]);
  int sent = 0, got = 0;
  while (sent < SIZE) {
    const long taken = send(ends[0], bytes + sent, (size_t)(SIZE - sent), 0);
    if (taken > 0) sent += (int)taken;
    const long came = recv(ends[1], bytes, SIZE, MSG_DONTWAIT);
    if (came > 0) got += (int)came;
  }
  CALL(shutdown(ends[0], SHUT_WR));
  for (long came; (came = recv(ends[1], bytes, SIZE, 0)) > 0;) got += (int)came;
  say("sent %d, received %d", sent, got);
}

CASE(shutdown_write_after_peer_closed, "the first write after the peer has closed goes, the second fails") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(close(ends[1]));
  await(ends[0], POLLRDHUP);
  say_ready("own", ends[0]);
  CALL(send(ends[0], "x", 1, MSG_NOSIGNAL));
  await(ends[0], POLLERR | POLLHUP);
  say_ready("own", ends[0]);
  CALL(send(ends[0], "x", 1, MSG_NOSIGNAL));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  OPTION(ends[0], SOL_SOCKET, SO_ERROR);
}

CASE(shutdown_reset_with_data, "a reset after unread data") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(send(ends[1], "abc", 3, 0));
  await_bytes(ends[0], 3);
  reset(ends[1]);
  await(ends[0], POLLERR);
  say_ready("own", ends[0]);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
}

CASE(shutdown_reset_half_closed, "a reset of a connection whose own half is closed") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(shutdown(ends[0], SHUT_WR));
  await(ends[1], POLLRDHUP);
  reset(ends[1]);
  await(ends[0], POLLERR);
  say_ready("own", ends[0]);
  CALL(send(ends[0], "x", 1, MSG_NOSIGNAL));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
}

CASE(shutdown_reset_after_end, "a reset after the peer's end") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(shutdown(ends[1], SHUT_WR));
  await(ends[0], POLLRDHUP);
  reset(ends[1]);
  await(ends[0], POLLERR);
  say_ready("own", ends[0]);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
}

CASE(shutdown_lingers_read, "a closed end, whose peer sends on, is reset") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(close(ends[0]));
  await(ends[1], POLLRDHUP);
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  CALL(write(ends[1], "abc", 3));
  await(ends[1], POLLERR);
  OPTION(ends[1], SOL_SOCKET, SO_ERROR);
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(shutdown_states, "TCP_INFO's state through the life of a connection") {
  int ends[2];
  struct tcp_info info;
  socklen_t length = sizeof info;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &length));
  say("new: %d", info.tcpi_state);
  const int listener = listening();
  CALL(getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &length));
  say("listener: %d", info.tcpi_state);
  streams(ends);
  CALL(getsockopt(ends[0], IPPROTO_TCP, TCP_INFO, &info, &length));
  say("connected: %d", info.tcpi_state);
  CALL(shutdown(ends[0], SHUT_WR));
  await(ends[1], POLLRDHUP);
  await_sent(ends[0]);
  pause_ms(50);
  CALL(getsockopt(ends[0], IPPROTO_TCP, TCP_INFO, &info, &length));
  say("has ended: %d", info.tcpi_state);
  CALL(getsockopt(ends[1], IPPROTO_TCP, TCP_INFO, &info, &length));
  say("was ended: %d", info.tcpi_state);
  CALL(shutdown(ends[1], SHUT_WR));
  await(ends[0], POLLHUP);
  await(ends[1], POLLHUP);
  pause_ms(50);
  CALL(getsockopt(ends[0], IPPROTO_TCP, TCP_INFO, &info, &length));
  say("first: %d", info.tcpi_state);
  CALL(getsockopt(ends[1], IPPROTO_TCP, TCP_INFO, &info, &length));
  say("second: %d", info.tcpi_state);
}

THEME(shutdown, &shutdown_write, &shutdown_read, &shutdown_both, &shutdown_both_sides, &shutdown_twice,
      &shutdown_not_connected, &shutdown_data_first, &shutdown_write_after_peer_closed, &shutdown_reset_with_data,
      &shutdown_reset_half_closed, &shutdown_reset_after_end, &shutdown_lingers_read, &shutdown_states);
