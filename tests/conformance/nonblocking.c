// nonblocking.c - cases of nonblocking sockets, by fcntl(), ioctl(), SOCK_NONBLOCK or a flag of the call.
#include "tests/conformance/conformance.h"

CASE(nonblocking_calls, "every call that would wait says EAGAIN") {
  int ends[2];
  char bytes[20];
  struct iovec in = {bytes, sizeof bytes};
  struct msghdr message = {.msg_iov = &in, .msg_iovlen = 1};
  streams(ends);
  nonblocking(ends[0]);
  CALL(read(ends[0], bytes, sizeof bytes));
  CALL(readv(ends[0], &in, 1));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(recv(ends[0], bytes, sizeof bytes, MSG_WAITALL));
  CALL(recv(ends[0], bytes, sizeof bytes, MSG_PEEK));
  CALL(recvfrom(ends[0], bytes, sizeof bytes, 0, NULL, NULL));
  CALL(recvmsg(ends[0], &message, 0));
  send_until_full(ends[0]);
  CALL(write(ends[0], bytes, sizeof bytes));
  CALL(writev(ends[0], &in, 1));
  CALL(send(ends[0], bytes, sizeof bytes, 0));
  CALL(sendmsg(ends[0], &message, 0));
}

CASE(nonblocking_accept, "accept() without a pending connection: EAGAIN, by every way not to wait") {
  const int listener = listening();
  int on = 1, off = 0;
  nonblocking(listener);
  OPEN(accept(listener, NULL, NULL));
  OPEN(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
  CALL(ioctl(listener, FIONBIO, &off));
  CALL(fcntl(listener, F_GETFL) & O_NONBLOCK);
  CALL(ioctl(listener, FIONBIO, &on));
  OPEN(accept(listener, NULL, NULL));
  const int client = connected(listener);
  await(listener, POLLIN);
  OPEN(accept(listener, NULL, NULL));
  OPEN(accept(listener, NULL, NULL));
  close(client);
}

CASE(nonblocking_datagram, "datagram sockets that do not wait") {
  int ends[2];
  char bytes[20];
  datagrams(ends);
  nonblocking(ends[0]);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(read(ends[0], bytes, sizeof bytes));
  CALL(recv(ends[0], bytes, sizeof bytes, MSG_WAITALL));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
}

CASE(nonblocking_partial, "send() takes part of a large buffer") {
  int ends[2];
  static char bytes[32 << 20];
  streams(ends);
  nonblocking(ends[0]);
  const long taken = send(ends[0], bytes, sizeof bytes, 0);
  say("a part: %d", taken > 0 && taken < (long)sizeof bytes);
}

CASE(nonblocking_partial_vector, "writev() takes part of large buffers") {
  int ends[2];
  static char bytes[32 << 20];
  streams(ends);
  nonblocking(ends[0]);
  const struct iovec out[] = {{bytes, sizeof bytes / 2}, {bytes, sizeof bytes / 2}};
  const long taken = writev(ends[0], out, 2);
  say("a part: %d", taken > 0 && taken < (long)sizeof bytes);
}

CASE(nonblocking_back, "O_NONBLOCK set and cleared: recv() waits again") {
  int ends[2];
  char bytes[20];
  streams(ends);
  nonblocking(ends[0]);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(fcntl(ends[0], F_SETFL, 0));
  CALL(fcntl(ends[0], F_GETFL) & O_NONBLOCK);
  if (fork() == 0) {
    pause_ms(50);
    send(ends[1], "late", 4, 0);
    _exit(0);
  }
  say_bytes("waited", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
}

CASE(nonblocking_peer_blocks, "O_NONBLOCK is of one end, and of one socket of a pair") {
  int ends[2];
  streams(ends);
  nonblocking(ends[0]);
  CALL(fcntl(ends[1], F_GETFL) & O_NONBLOCK);
}

CASE(nonblocking_echo, "an echo between two ends that never wait, driven by poll()") {
  enum { ALL = 300000 };
  static char bytes[5000];
  int ends[2], sent = 0, echoed = 0, pending = 0, back = 0;
  streams(ends);
  nonblocking(ends[0]);
  nonblocking(ends[1]);
  while (back < ALL) {
    struct pollfd both[] = {{ends[0], (short)(POLLIN | (sent < ALL ? POLLOUT : 0)), 0},
                            {ends[1], (short)((pending == 0 ? POLLIN : 0) | (pending > 0 ? POLLOUT : 0)), 0}};
    if (poll(both, 2, 5000) <= 0) break;
    long n;
    if (sent < ALL && (n = send(ends[0], bytes, ALL - sent < 5000 ? (size_t)(ALL - sent) : 5000, 0)) > 0) sent += (int)n;
    if (pending == 0 && (n = recv(ends[1], bytes, sizeof bytes, 0)) > 0) pending = (int)n;
    if (pending > 0 && (n = send(ends[1], bytes, (size_t)pending, 0)) > 0) pending -= (int)n, echoed += (int)n;
    if ((n = recv(ends[0], bytes, sizeof bytes, 0)) > 0) back += (int)n;
  }
  say("sent %d, echoed %d, back %d", sent, echoed, back);
}

CASE(nonblocking_to_closed, "a program that only sends, and never waits, is told that the peer has closed") {
  int ends[2];
  streams(ends);
  close(ends[1]);
  while (send(ends[0], "word", 4, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
  say("%s", error_name(errno));
}

THEME(nonblocking, &nonblocking_calls, &nonblocking_accept, &nonblocking_datagram, &nonblocking_partial,
      &nonblocking_partial_vector, &nonblocking_back, &nonblocking_peer_blocks, &nonblocking_echo,
      &nonblocking_to_closed);
