// readiness_late.c - cases of threads that wait on a set before it has a socket: another thread adds one meanwhile.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>

#include "tests/conformance/conformance.h"

static int set_with(int fd, unsigned mark) {
  const int e = (int)MUST(epoll_create1(0));
  struct epoll_event event = {EPOLLIN, {.u64 = mark}};
  if (fd >= 0) MUST(epoll_ctl(e, EPOLL_CTL_ADD, fd, &event));
  return e;
}

static void add(int e, int fd, unsigned events, unsigned mark) {
  struct epoll_event event = {events, {.u64 = mark}};
  CALL(epoll_ctl(e, EPOLL_CTL_ADD, fd, &event));
}

// Thread body: waits five seconds; returns 1000 times the mark plus the events.
static void* waits(void* e) {
  struct epoll_event event;
  const int n = epoll_wait(*(int*)e, &event, 1, 5000);
  return thread_result(n == 1 ? (long)(1000 * event.data.u64 + event.events) : n);
}

static void* waits_by_nanoseconds(void* e) {
  const struct timespec limit = {5, 0};
  struct epoll_event event;
  const int n = epoll_pwait2(*(int*)e, &event, 1, &limit, NULL);
  return thread_result(n == 1 ? (long)(1000 * event.data.u64 + event.events) : n);
}

static void* waits_for_ever(void* e) {
  struct epoll_event event;
  const int n = epoll_wait(*(int*)e, &event, 1, -1);
  return thread_result(n == 1 ? (long)(1000 * event.data.u64 + event.events) : n);
}

static void* polls_set(void* e) {
  struct pollfd one = {*(int*)e, POLLIN, 0};
  return thread_result(poll(&one, 1, 5000));
}

static void* selects_set(void* e) {
  fd_set set;
  struct timeval limit = {5, 0};
  FD_ZERO(&set);
  FD_SET(*(int*)e, &set);
  return thread_result(select(*(int*)e + 1, &set, NULL, NULL, &limit));
}

static void say_waited(const char* who, pthread_t thread) {
  const long got = joined(thread);
  if (got < 1000) say_result(who, got);
  else say("%s: mark %ld: %s", who, got / 1000, events_name((unsigned)(got % 1000)));
}

// Adds a listener to the set, and connects to it.
static void bring_listener(int e) {
  const int listener = listening();
  add(e, listener, EPOLLIN, 5);
  connected(listener);
}

CASE(late_listener, "epoll_wait() with an empty set, to which another thread adds a listener") {
  int e = set_with(-1, 0);
  const pthread_t waiter = asleep(waits, &e);
  bring_listener(e);
  say_waited("waiter", waiter);
}

static void bring_to_waiter(void* (*waits_so)(void*)) {
  int e = set_with(eventfd(0, EFD_NONBLOCK), 1);
  const pthread_t waiter = asleep(waits_so, &e);
  bring_listener(e);
  say_waited("waiter", waiter);
}

CASE(late_beside_event, "epoll_wait() to whose set another thread adds a socket, beside an eventfd; each call of epoll that waits") {
  bring_to_waiter(waits);
  bring_to_waiter(waits_by_nanoseconds);
  bring_to_waiter(waits_for_ever);
}

CASE(late_poll, "poll() of an epoll set to which another thread adds a socket") { bring_to_waiter(polls_set); }

CASE(late_select, "select() of an epoll set to which another thread adds a socket") { bring_to_waiter(selects_set); }

CASE(late_event_first, "epoll_wait() on an eventfd still reports it after a socket is added to the set") {
  const int event = eventfd(0, EFD_NONBLOCK);
  int e = set_with(event, 1);
  const pthread_t waiter = asleep(waits, &e);
  add(e, listening(), EPOLLIN, 5);
  pause_ms(50);
  CALL(eventfd_write(event, 1));
  say_waited("waiter", waiter);
}

CASE(late_connect, "epoll_wait() and a socket that is added to the set and connected then") {
  union Address to;
  int e = set_with(eventfd(0, 0), 1);
  const pthread_t waiter = asleep(waits, &e);
  const int listener = listening();
  const socklen_t length = address_of(listener, &to);
  const int s = OPEN(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
  CALL(connect(s, &to.any, length) == 0 || errno == EINPROGRESS);
  add(e, s, EPOLLIN, 5);
  CALL(send(accepted(listener), "abc", 3, 0));
  say_waited("waiter", waiter);
}

CASE(late_datagram, "epoll_wait() and a datagram socket that is bound after it was added to the set") {
  union Address to;
  int e = set_with(-1, 0);
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  const pthread_t waiter = asleep(waits, &e);
  add(e, s, EPOLLIN, 5);
  pause_ms(50);
  socklen_t length = own_address(&to, 0);
  CALL(bind(s, &to.any, length));
  length = address_of(s, &to);
  CALL(sendto(bound(SOCK_DGRAM), "abc", 3, 0, &to.any, length));
  say_waited("waiter", waiter);
}

CASE(late_in_inner_set, "a listener comes into a set in the set that a thread waits with; poll() of the outer one") {
  int inner = set_with(-1, 0), outer = set_with(inner, 3);
  const pthread_t waiter = asleep(waits, &outer), poller = asleep(polls_set, &outer);
  bring_listener(inner);
  say_waited("waiter", waiter);
  say_waited("poller", poller);
}

CASE(late_inner_set, "a set with a listener comes into the set that a thread waits with") {
  int inner = set_with(-1, 0), outer = set_with(-1, 0);
  const pthread_t waiter = asleep(waits, &outer);
  add(outer, inner, EPOLLIN, 3);
  bring_listener(inner);
  say_waited("waiter", waiter);
}

CASE(late_inner_marks, "a set in a set, before there is any socket: each tells its own mark") {
  int pipes[2];
  MUST(pipe(pipes));
  int inner = set_with(pipes[0], 2), outer = set_with(inner, 3);
  CALL(write(pipes[1], "x", 1));
  say_waited("outer", start(waits, &outer));
  say_waited("inner", start(waits, &inner));
}

CASE(late_two_waiters, "two threads wait with an empty set: each gets one of two connections") {
  int e = set_with(-1, 0);
  const pthread_t one = asleep(waits, &e), two = asleep(waits, &e);
  const int listener = listening();
  add(e, listener, EPOLLIN | EPOLLET, 5);
  connected(listener);
  pause_ms(500);
  connected(listener);
  say_waited("one", one);
  say_waited("two", two);
}

CASE(late_duplicate, "the set is duplicated, and the number that a thread waits with is closed") {
  int e = set_with(eventfd(0, 0), 1), copy = e;
  const pthread_t waiter = asleep(waits, &copy);
  const int other = OPEN(dup(e));
  CALL(close(e));
  bring_listener(other);
  say_waited("waiter", waiter);
}

CASE(late_and_again, "the set loses its only socket, and gets another, while threads wait") {
  const int event = eventfd(0, EFD_NONBLOCK);
  eventfd_t value;
  int e = set_with(event, 1);
  for (int i = 0; i < 3; ++i) {
    pthread_t waiter = asleep(waits, &e);
    const int listener = listening();
    add(e, listener, EPOLLIN, 5);
    const int client = connected(listener);
    say_waited("waiter", waiter);
    CALL(close(listener));
    CALL(close(client));
    waiter = asleep(waits, &e);
    CALL(eventfd_write(event, 1));
    say_waited("waiter", waiter);
    CALL(eventfd_read(event, &value));
  }
}

static void* waits_a_little(void* e) {
  struct epoll_event event;
  const long began = now_ms();
  const int n = epoll_wait(*(int*)e, &event, 1, 600);
  const long took = now_ms() - began;
  return (void*)(long)(n == 0 && took >= 590 && took < 5000);
}

CASE(late_time, "a wait on a set to which a quiet socket is added ends at its time-out") {
  int e = set_with(-1, 0);
  const pthread_t waiter = asleep(waits_a_little, &e);
  add(e, listening(), EPOLLIN, 5);
  say("in time: %ld", joined(waiter));
}

CASE(late_cancelled, "pthread_cancel() of a thread that waits with an empty set; what is added then wakes another") {
  int e = set_with(eventfd(0, 0), 1);
  const pthread_t one = asleep(waits_for_ever, &e), two = asleep(waits, &e);
  CALL(pthread_cancel(one));
  say("cancelled: %d", joined(one) == (long)PTHREAD_CANCELED);
  bring_listener(e);
  say_waited("two", two);
  int other = (int)MUST(epoll_create1(0));
  const pthread_t three = asleep(waits_for_ever, &other);
  bring_listener(other);
  say_waited("three", three);
}

static void waits_in_child(int e) {
  bring_listener(e);
  struct epoll_event event;
  const int n = epoll_wait(e, &event, 1, 5000);
  say("child: %d, mark %d", n, n == 1 ? (int)event.data.u64 : 0);
}

CASE(late_child, "a child has the set in which a thread of its parent waits") {
  int e = set_with(eventfd(0, 0), 1);
  const pthread_t waiter = asleep(waits, &e);
  const pid_t pid = child(waits_in_child, set_with(eventfd(0, 0), 1));
  say_ended("child", pid);
  bring_listener(e);
  say_waited("waiter", waiter);
}

CASE(late_kernels, "a pipe comes into a set of sockets alone, while threads wait with it and with one that it is in") {
  int pipes[2];
  int e = set_with(listening(), 5), outer = set_with(e, 3);
  const pthread_t waiter = asleep(waits, &e), above = asleep(waits, &outer), poller = asleep(polls_set, &e);
  MUST(pipe(pipes));
  add(e, pipes[0], EPOLLIN, 7);
  pause_ms(50);
  CALL(write(pipes[1], "x", 1));
  say_waited("waiter", waiter);
  say_waited("above", above);
  say_waited("poller", poller);
}

THEME(readiness_late, &late_listener, &late_beside_event, &late_poll, &late_select, &late_event_first, &late_connect,
      &late_datagram, &late_in_inner_set, &late_inner_set, &late_inner_marks, &late_two_waiters, &late_duplicate, &late_and_again,
      &late_time, &late_cancelled, &late_child, &late_kernels);
