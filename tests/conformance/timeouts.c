// timeouts.c - cases of calls with a time limit: SO_RCVTIMEO, SO_SNDTIMEO, and the least time that they wait.
#include <sys/time.h>

#include "tests/conformance/conformance.h"

static void set_time(int s, int which, int ms) {
  const struct timeval time = {ms / 1000, ms % 1000 * 1000};
  CALL(setsockopt(s, SOL_SOCKET, which, &time, sizeof time));
}

static void say_time(int s, int which) {
  struct timeval time = {-1, -1};
  socklen_t length = sizeof time;
  CALL(getsockopt(s, SOL_SOCKET, which, &time, &length));
  say("%ld s, %s, length %u", time.tv_sec, time.tv_usec == 0 ? "no more" : "and some", length);
}

CASE(timeout_option, "SO_RCVTIMEO and SO_SNDTIMEO set and read, and wrong") {
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  say_time(s, SO_RCVTIMEO);
  set_time(s, SO_RCVTIMEO, 2000);
  say_time(s, SO_RCVTIMEO);
  say_time(s, SO_SNDTIMEO);
  set_time(s, SO_SNDTIMEO, 1500);
  say_time(s, SO_SNDTIMEO);
  set_time(s, SO_SNDTIMEO, 0);
  say_time(s, SO_SNDTIMEO);
  const struct timeval wrong = {1, 2000000}, negative = {-1, 0};
  CALL(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wrong, sizeof wrong));
  CALL(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &negative, sizeof negative));
  say_time(s, SO_RCVTIMEO);
  CALL(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wrong, 4));
}

CASE(timeout_receive, "SO_RCVTIMEO ends recv(), read(), recvmsg() with EAGAIN, not before its time") {
  int ends[2];
  char bytes[20];
  streams(ends);
  set_time(ends[0], SO_RCVTIMEO, 60);
  const long began = now_ms();
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  say("took its time: %d", now_ms() - began >= 55);
  CALL(read(ends[0], bytes, sizeof bytes));
  CALL(recv(ends[0], bytes, sizeof bytes, MSG_WAITALL));
  CALL(send(ends[1], "abc", 3, 0));
  await_bytes(ends[0], 3);
  CALL(recv(ends[0], bytes, sizeof bytes, MSG_WAITALL));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
}

CASE(timeout_receive_datagram, "SO_RCVTIMEO of datagrams") {
  int ends[2];
  char bytes[20];
  datagrams(ends);
  set_time(ends[0], SO_RCVTIMEO, 60);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(send(ends[1], "abc", 3, 0));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
}

CASE(timeout_accept, "SO_RCVTIMEO ends accept()") {
  const int listener = listening();
  set_time(listener, SO_RCVTIMEO, 60);
  OPEN(accept(listener, NULL, NULL));
  const int client = connected(listener);
  OPEN(accept(listener, NULL, NULL));
  close(client);
}

CASE(timeout_send, "SO_SNDTIMEO ends send()") {
  int ends[2];
  static char bytes[1000];
  streams(ends);
  set_time(ends[0], SO_SNDTIMEO, 60);
  send_until_full(ends[0]);
  CALL(send(ends[0], bytes, sizeof bytes, 0));
  CALL(write(ends[0], bytes, sizeof bytes));
}

CASE(timeout_send_part, "SO_SNDTIMEO ends a large send() with what it has taken") {
  int ends[2];
  static char bytes[32 << 20];
  streams(ends);
  set_time(ends[0], SO_SNDTIMEO, 100);
  const long taken = send(ends[0], bytes, sizeof bytes, 0);
  say("a part: %d", taken > 0 && taken < (long)sizeof bytes);
}

CASE(timeout_connect, "SO_SNDTIMEO ends connect() with EINPROGRESS") {
  union Address to;
  const int listener = listening_of(0);
  const socklen_t length = address_of(listener, &to);
  for (int i = 0; i < 3; ++i) connect(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0), &to.any, length);
  pause_ms(50);
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  set_time(s, SO_SNDTIMEO, 60);
  CALL(connect(s, &to.any, length));
  CALL(connect(s, &to.any, length));
}

CASE(timeout_recvmmsg, "recvmmsg() with a time") {
  int ends[2];
  char bytes[20];
  struct iovec in = {bytes, sizeof bytes};
  struct mmsghdr got = {{.msg_iov = &in, .msg_iovlen = 1}, 0};
  struct timespec some = {0, 50000000};
  datagrams(ends);
  CALL(send(ends[1], "abc", 3, 0));
  CALL(recvmmsg(ends[0], &got, 1, 0, &some));
}

CASE(timeout_poll, "poll(), select(), epoll_wait() do not return before their time") {
  int ends[2];
  streams(ends);
  struct pollfd one = {ends[0], POLLIN, 0};
  const long began = now_ms();
  CALL(poll(&one, 1, 50));
  say("took its time: %d", now_ms() - began >= 49);
}

CASE(timeout_keeps_nonblocking, "times do not count for sockets that do not wait") {
  int ends[2];
  char bytes[20];
  streams(ends);
  set_time(ends[0], SO_RCVTIMEO, 9000);
  nonblocking(ends[0]);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(fcntl(ends[0], F_SETFL, 0));
  CALL(recv(ends[0], bytes, sizeof bytes, MSG_DONTWAIT));
}

THEME(timeouts, &timeout_option, &timeout_receive, &timeout_receive_datagram, &timeout_accept, &timeout_send,
      &timeout_send_part, &timeout_connect, &timeout_recvmmsg, &timeout_poll, &timeout_keeps_nonblocking);
