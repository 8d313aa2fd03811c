// first_datagrams.c - cases of datagram sockets, neither bound nor used, on which a thread already waits to receive.
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "tests/conformance/conformance.h"

static int waited_for;

static void* receives_message(void* fd) {
  char bytes[20];
  struct iovec piece = {bytes, sizeof bytes};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
  return thread_result(recvmsg(*(int*)fd, &message, 0));
}

static void* polls(void* fd) {
  struct pollfd one = {*(int*)fd, POLLIN, 0};
  return thread_result(poll(&one, 1, 5000));
}

static void* selects(void* fd) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(*(int*)fd, &set);
  struct timeval limit = {5, 0};
  return thread_result(select(*(int*)fd + 1, &set, NULL, NULL, &limit));
}

static void* waits_in_epoll(void* fd) {
  struct epoll_event event = {.events = EPOLLIN};
  const int set = epoll_create1(0);
  if (epoll_ctl(set, EPOLL_CTL_ADD, *(int*)fd, &event) < 0) return thread_result(-1);
  const long count = epoll_wait(set, &event, 1, 5000);
  close(set);
  return thread_result(count);
}

// Another thread sends from the socket; the waiting thread gets the answer.
static void answered(const char* who, void* (*waits)(void*)) {
  union Address to, from;
  char bytes[20];
  const int other = bound(SOCK_DGRAM);
  waited_for = OPEN(socket(family, SOCK_DGRAM, 0));
  const socklen_t length = address_of(other, &to);
  const pthread_t waiter = start(waits, &waited_for);
  pause_ms(50);
  CALL(sendto(waited_for, "abc", 3, 0, &to.any, length));
  socklen_t size = sizeof from;
  CALL(recvfrom(other, bytes, sizeof bytes, 0, &from.any, &size));
  CALL(sendto(other, "answer", 6, 0, &from.any, size));
  say_result(who, joined(waiter));
}

CASE(first_datagram_receivers, "recv() and recvmsg() get the answer to what another thread sends") {
  answered("recv", receives_once);
  answered("recvmsg", receives_message);
}

CASE(first_datagram_waiters, "poll(), select() and epoll_wait() hear of it") {
  answered("poll", polls);
  answered("select", selects);
  answered("epoll_wait", waits_in_epoll);
}

static void* receives_for_a_time(void* fd) {
  const struct timeval limit = {0, 100000};
  if (setsockopt(*(int*)fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0) return thread_result(-1);
  return receives_once(fd);
}

CASE(first_datagram_never_comes, "SO_RCVTIMEO ends the wait for it, and so does a signal") {
  waited_for = OPEN(socket(family, SOCK_DGRAM, 0));
  say_result("for a time", joined(start(receives_for_a_time, &waited_for)));
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  char bytes[20];
  count_signal(SIGALRM, 0);
  alarm_once(50);
  CALL(recv(s, bytes, sizeof bytes, 0));
  CALL(recv(s, bytes, sizeof bytes, MSG_DONTWAIT));
}

// Another thread binds the socket to the loopback address, which only this host reaches.
static void bound_meanwhile(const char* who, void* (*waits)(void*)) {
  union Address name;
  waited_for = OPEN(socket(AF_INET, SOCK_DGRAM, 0));
  const pthread_t waiter = start(waits, &waited_for);
  pause_ms(50);
  memset(&name, 0, sizeof name);
  name.v4.sin_family = AF_INET;
  name.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CALL(bind(waited_for, &name.any, sizeof name.v4));
  socklen_t size = sizeof name;
  CALL(getsockname(waited_for, &name.any, &size));
  const int other = OPEN(socket(AF_INET, SOCK_DGRAM, 0));
  CALL(sendto(other, "abcd", 4, 0, &name.any, size));
  say_result(who, joined(waiter));
}

CASE(first_datagram_after_bind, "what comes to the loopback address to which another thread binds the socket") {
  bound_meanwhile("recv", receives_once);
  bound_meanwhile("recvmsg", receives_message);
  bound_meanwhile("poll", polls);
}

static atomic_int errors_read;

static void* receives_twice(void* fd) {
  const struct timeval limit = {1, 0};
  if (setsockopt(*(int*)fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0) return thread_result(-1);
  receives_once(fd);  // returns the error
  receives_once(fd);  // returns nothing, though poll() reports POLLERR
  return thread_result(atomic_load(&errors_read));
}

CASE(first_datagram_error_waits, "a thread that waits while the error queue is not empty blocks no other") {
  union Address name;
  memset(&name, 0, sizeof name);
  name.v4.sin_family = AF_INET;
  name.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  name.v4.sin_port = htons(9);
  waited_for = OPEN(socket(AF_INET, SOCK_DGRAM, 0));
  SET(waited_for, IPPROTO_IP, IP_RECVERR, 1);
  CALL(sendto(waited_for, "abc", 3, 0, &name.any, sizeof name.v4));
  const pthread_t waiter = start(receives_twice, &waited_for);
  pause_ms(200);
  char bytes[20];
  CALL(recv(waited_for, bytes, sizeof bytes, MSG_ERRQUEUE));
  atomic_store(&errors_read, 1);
  say_result("read meanwhile", joined(waiter));
}

THEME(first_datagrams, &first_datagram_receivers, &first_datagram_waiters, &first_datagram_never_comes, &first_datagram_after_bind,
      &first_datagram_error_waits);
