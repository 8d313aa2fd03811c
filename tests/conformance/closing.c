// closing.c - cases of a descriptor that close() or dup2() takes away while a thread sleeps in a call on it: the call goes on with the old
// file.
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include "tests/conformance/conformance.h"

static int ends[2];
static union Address to;
static socklen_t to_length;

static void* accepts(void* fd) { return thread_result(accept(*(int*)fd, NULL, NULL) >= 0 ? 1 : -1); }

static atomic_int connected_or_not;

static void* connects(void* fd) {
  const long result = connect(*(int*)fd, &to.any, to_length);
  void* const told = thread_result(result);
  atomic_store(&connected_or_not, 1);
  return told;
}

static void* waits_in_epoll(void* fd) {
  struct epoll_event event;
  const int n = epoll_wait(*(int*)fd, &event, 1, 3000);
  return thread_result(n == 1 ? (long)event.events : n);
}

// For waits in which no event is expected.
static void* waits_in_epoll_a_little(void* fd) {
  struct epoll_event event;
  return thread_result(epoll_wait(*(int*)fd, &event, 1, 400));
}

static void* selects(void* fd) {
  fd_set set;
  struct timeval time = {3, 0};
  FD_ZERO(&set);
  FD_SET(*(int*)fd, &set);
  return thread_result(select(*(int*)fd + 1, &set, NULL, NULL, &time));
}

static void* sends_much(void* fd) {
  static char bytes[32 << 20];
  const long sent = send(*(int*)fd, bytes, sizeof bytes, MSG_NOSIGNAL);
  return thread_result(sent > 0 ? 1 : sent);
}

static int new_socket(void) { return (int)MUST(socket(family, SOCK_STREAM, 0)); }

static int set_of(int fd, unsigned events) {
  struct epoll_event event = {events, {.u64 = 1}};
  const int e = (int)MUST(epoll_create1(0));
  MUST(epoll_ctl(e, EPOLL_CTL_ADD, fd, &event));
  return e;
}

CASE(close_while_accepting, "close() of a listener in whose accept() a thread waits: it accepts one client more, then the port is closed") {
  int listener = listening();
  to_length = address_of(listener, &to);
  const pthread_t acceptor = asleep(accepts, &listener);
  CALL(close(listener));
  pause_ms(50);
  CALL(connect(new_socket(), &to.any, to_length));
  say_result("acceptor", joined(acceptor));
  CALL(connect(new_socket(), &to.any, to_length));
}

CASE(close_while_connecting, "close() of a socket in whose connect() a thread waits: it is connected when there is room") {
  const int listener = listening_of(0);
  to_length = address_of(listener, &to);
  for (int i = 0; i < 3; ++i) connect(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0), &to.any, to_length);
  pause_ms(50);
  int s = new_socket();
  const pthread_t connector = asleep(connects, &s);
  CALL(close(s));
  pause_ms(50);
  nonblocking(listener);
  for (int ms = 0; ms < 8000 && !atomic_load(&connected_or_not); ++ms) {
    accept(listener, NULL, NULL);
    pause_ms(1);
  }
  say_result("connector", joined(connector));
}

CASE(close_while_sending, "close() of a stream in whose send() a thread waits: it sends the rest, and the end is behind that") {
  static char bytes[1 << 20];
  streams(ends);
  send_until_full(ends[0]);
  int copy = ends[0];
  const pthread_t sender = asleep(sends_much, &copy);
  CALL(close(ends[0]));
  long got, all = 0;
  while ((got = recv(ends[1], bytes, sizeof bytes, 0)) > 0) all += got;
  say("at the end: %ld, all of it: %d", got, all > 32 << 20);
  say_result("sender", joined(sender));
}

CASE(close_while_in_epoll, "close() of an epoll set in whose epoll_wait() a thread waits: it gets what happens") {
  streams(ends);
  int e = set_of(ends[0], EPOLLIN);
  const pthread_t waiter = asleep(waits_in_epoll, &e);
  CALL(close(e));
  pause_ms(50);
  CALL(send(ends[1], "abc", 3, 0));
  say("waiter: %s", events_name((unsigned)joined(waiter)));
}

CASE(close_of_member, "close() of a socket in a set in whose epoll_wait() a thread waits: it is no longer in it") {
  streams(ends);
  int e = set_of(ends[0], EPOLLIN);
  const pthread_t waiter = asleep(waits_in_epoll_a_little, &e);
  CALL(close(ends[0]));
  char byte;
  CALL(recv(ends[1], &byte, 1, 0));
  say_result("waiter", joined(waiter));
}

CASE(close_while_selecting, "close() of a socket for which a thread waits in select(): it goes on waiting") {
  streams(ends);
  int copy = ends[0];
  const pthread_t waiter = asleep(selects, &copy);
  CALL(close(ends[0]));
  pause_ms(50);
  CALL(send(ends[1], "abc", 3, MSG_NOSIGNAL));
  say_result("waiter", joined(waiter));
}

CASE(dup2_while_receiving, "dup2() of another connection to a descriptor in whose recv() a thread waits: that goes on with the old one") {
  int others[2];
  char bytes[20];
  streams(ends);
  streams(others);
  const pthread_t receiver = asleep(receives_once, &ends[0]);
  CALL(dup2(others[0], ends[0]) == ends[0]);
  CALL(send(others[1], "defg", 4, 0));
  pause_ms(50);
  CALL(send(ends[1], "abc", 3, MSG_NOSIGNAL));
  say_result("receiver", joined(receiver));
  say_bytes("by the number", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
  say_bytes("of the old one", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(dup2_while_accepting, "dup2() of another listener to a descriptor in whose accept() a thread waits: that goes on with the old one") {
  int listener = listening();
  const int other = listening();
  to_length = address_of(listener, &to);
  const pthread_t acceptor = asleep(accepts, &listener);
  CALL(dup2(other, listener) == listener);
  connected(other);
  pause_ms(50);
  CALL(connect(new_socket(), &to.any, to_length));
  say_result("acceptor", joined(acceptor));
  OPEN(accept(listener, NULL, NULL));
  CALL(connect(new_socket(), &to.any, to_length));
}

CASE(dup2_while_in_epoll, "dup2() of a pipe to a socket in a set in whose epoll_wait() a thread waits: neither is in it then") {
  int pipes[2];
  streams(ends);
  MUST(pipe(pipes));
  int e = set_of(ends[0], EPOLLIN);
  const pthread_t waiter = asleep(waits_in_epoll_a_little, &e);
  CALL(dup2(pipes[0], ends[0]) == ends[0]);
  CALL(write(pipes[1], "abc", 3));
  say_result("waiter", joined(waiter));
  char bytes[20];
  say_bytes("by the number", bytes, CALL(read(ends[0], bytes, sizeof bytes)));
}

THEME(closing, &close_while_accepting, &close_while_connecting, &close_while_sending, &close_while_in_epoll, &close_of_member,
      &close_while_selecting, &dup2_while_receiving, &dup2_while_accepting, &dup2_while_in_epoll);
