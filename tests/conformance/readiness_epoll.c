// readiness_epoll.c - cases of epoll with sockets: level, edge, one-shot, exclusive, modified, deleted, closed, duplicated, nested.
#include <sys/epoll.h>

#include "tests/conformance/conformance.h"

static int epoll_of(int fd, unsigned events) {
  const int e = (int)MUST(epoll_create1(EPOLL_CLOEXEC));
  struct epoll_event event = {events, {.u64 = 7}};
  say("add: %s", epoll_ctl(e, EPOLL_CTL_ADD, fd, &event) == 0 ? "0" : error_name(errno));
  return e;
}

static int change(int e, int operation, int fd, unsigned events, unsigned mark) {
  struct epoll_event event = {events, {.u64 = mark}};
  return epoll_ctl(e, operation, fd, &event);
}

// Waits `ms`, and prints the events in the order of their marks.
static void say_events(const char* when, int e, int ms) {
  struct epoll_event events[8];
  const int n = epoll_wait(e, events, 8, ms);
  say("%s: %d", when, n);
  for (unsigned mark = 0; mark < 100; ++mark) {
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u64 == mark) say("  mark %u: %s", mark, events_name(events[i].events));
    }
  }
}

CASE(epoll_level, "level: the same again until it is read") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const int e = epoll_of(ends[0], EPOLLIN);
  say_events("nothing", e, 0);
  send(ends[1], "abc", 3, 0);
  say_events("data", e, 3000);
  say_events("again", e, 0);
  CALL(recv(ends[0], bytes, 2, 0));
  say_events("a part read", e, 0);
  CALL(recv(ends[0], bytes, 2, 0));
  say_events("all read", e, 0);
}

CASE(epoll_edge, "edge: once for each arrival") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const int e = epoll_of(ends[0], EPOLLIN | EPOLLET);
  say_events("nothing", e, 0);
  send(ends[1], "abc", 3, 0);
  say_events("data", e, 3000);
  say_events("again", e, 20);
  CALL(recv(ends[0], bytes, 1, 0));
  say_events("a part read", e, 20);
  send(ends[1], "def", 3, 0);
  say_events("more data", e, 3000);
  say_bytes("all", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
  say_events("all read", e, 20);
  shutdown(ends[1], SHUT_WR);
  say_events("the end", e, 3000);
  say_events("again", e, 20);
}

CASE(epoll_edge_out, "edge: writable once, and again after it was full") {
  int ends[2];
  static char bytes[1 << 16];
  streams(ends);
  const int e = epoll_of(ends[0], EPOLLOUT | EPOLLET);
  say_events("new", e, 1000);
  say_events("again", e, 20);
  nonblocking(ends[1]);
  send_until_full(ends[0]);
  say_events("full", e, 20);
  for (int idle = 0; idle < 20;) {
    if (read(ends[1], bytes, sizeof bytes) > 0) {
      idle = 0;
    } else {
      ++idle;
      pause_ms(5);
    }
  }
  say_events("read", e, 3000);
}

CASE(epoll_edge_both, "edge: in and out together") {
  int ends[2];
  streams(ends);
  const int e = epoll_of(ends[0], EPOLLIN | EPOLLOUT | EPOLLET);
  say_events("new", e, 1000);
  send(ends[1], "abc", 3, 0);
  say_events("data", e, 3000);
  say_events("again", e, 20);
}

CASE(epoll_edge_already, "edge: what is there at ADD is told, and told again after MOD") {
  int ends[2];
  streams(ends);
  send(ends[1], "abc", 3, 0);
  await(ends[0], POLLIN);
  const int e = epoll_of(ends[0], EPOLLIN | EPOLLET);
  say_events("first", e, 1000);
  say_events("again", e, 20);
  CALL(change(e, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET, 8));
  say_events("changed", e, 1000);
  say_events("again", e, 20);
}

CASE(epoll_oneshot, "EPOLLONESHOT: once, until MOD") {
  int ends[2];
  streams(ends);
  const int e = epoll_of(ends[0], EPOLLIN | EPOLLONESHOT);
  send(ends[1], "abc", 3, 0);
  say_events("once", e, 3000);
  say_events("again", e, 20);
  send(ends[1], "def", 3, 0);
  await_bytes(ends[0], 6);
  say_events("more data", e, 20);
  CALL(change(e, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 9));
  say_events("changed", e, 1000);
  say_events("again", e, 20);
  reset(ends[1]);
  await(ends[0], POLLERR);
  say_events("reset", e, 20);
}

CASE(epoll_modify, "MOD changes what is asked for, and the mark") {
  int ends[2];
  streams(ends);
  const int e = epoll_of(ends[0], EPOLLIN);
  say_events("in", e, 0);
  CALL(change(e, EPOLL_CTL_MOD, ends[0], EPOLLOUT, 3));
  say_events("out", e, 1000);
  CALL(change(e, EPOLL_CTL_MOD, ends[0], 0, 4));
  say_events("nothing", e, 0);
  shutdown(ends[0], SHUT_WR);
  shutdown(ends[1], SHUT_WR);
  say_events("errors and hang-ups come anyway", e, 3000);
}

CASE(epoll_delete, "DEL: no more events; ADD again") {
  int ends[2];
  streams(ends);
  const int e = epoll_of(ends[0], EPOLLOUT);
  say_events("there", e, 1000);
  CALL(change(e, EPOLL_CTL_DEL, ends[0], 0, 0));
  say_events("gone", e, 0);
  CALL(change(e, EPOLL_CTL_DEL, ends[0], 0, 0));
  CALL(change(e, EPOLL_CTL_MOD, ends[0], EPOLLOUT, 0));
  CALL(change(e, EPOLL_CTL_ADD, ends[0], EPOLLOUT, 1));
  CALL(change(e, EPOLL_CTL_ADD, ends[0], EPOLLOUT, 2));
  say_events("there", e, 1000);
  CALL(epoll_ctl(e, EPOLL_CTL_DEL, ends[0], NULL));
}

CASE(epoll_close_without_delete, "close() without DEL: no more events, and the number may be added again") {
  int ends[2], again[2];
  streams(ends);
  const int e = epoll_of(ends[0], EPOLLOUT);
  const int number = ends[0];
  say_events("there", e, 1000);
  CALL(close(ends[0]));
  say_events("closed", e, 20);
  CALL(change(e, EPOLL_CTL_DEL, number, 0, 0));
  streams(again);
  CALL(dup2(again[0], number) == number);
  CALL(change(e, EPOLL_CTL_ADD, number, EPOLLOUT, 5));
  say_events("another with its number", e, 1000);
}

CASE(epoll_duplicate, "a duplicate is another registration, and keeps that of what was closed") {
  int ends[2];
  streams(ends);
  const int e = epoll_of(ends[0], EPOLLOUT);
  const int copy = dup(ends[0]);
  CALL(change(e, EPOLL_CTL_ADD, copy, EPOLLOUT, 8));
  say_events("both", e, 1000);
  CALL(close(copy));
  say_events("after closing the copy", e, 1000);
}

CASE(epoll_duplicate_closed, "close() of a registered descriptor whose duplicate is open: events go on") {
  int ends[2];
  streams(ends);
  const int e = epoll_of(ends[0], EPOLLOUT);
  const int copy = dup(ends[0]);
  CALL(close(ends[0]));
  say_events("the copy is open", e, 1000);
  CALL(close(copy));
  say_events("all closed", e, 20);
}

CASE(epoll_exclusive, "EPOLLEXCLUSIVE: only with ADD, and with few others") {
  const int listener = listening();
  const int e = epoll_of(listener, EPOLLIN | EPOLLEXCLUSIVE);
  CALL(change(e, EPOLL_CTL_MOD, listener, EPOLLIN, 1));
  CALL(change(e, EPOLL_CTL_MOD, listener, EPOLLIN | EPOLLEXCLUSIVE, 1));
  const int other = bound(SOCK_DGRAM);
  CALL(change(e, EPOLL_CTL_ADD, other, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
  CALL(change(e, EPOLL_CTL_ADD, other, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, 1));
  const int client = connected(listener);
  say_events("one", e, 3000);
  close(client);
}

CASE(epoll_states, "what epoll says of streams in every state") {
  const int e = (int)MUST(epoll_create1(0));
  const unsigned all = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP;
  int ends[2], others[2], thirds[2];
  CALL(change(e, EPOLL_CTL_ADD, socket(family, SOCK_STREAM, 0), all, 1));
  CALL(change(e, EPOLL_CTL_ADD, listening(), all, 2));
  streams(ends);
  CALL(change(e, EPOLL_CTL_ADD, ends[0], all, 3));
  streams(others);
  shutdown(others[1], SHUT_WR);
  await(others[0], POLLRDHUP);
  CALL(change(e, EPOLL_CTL_ADD, others[0], all, 4));
  streams(thirds);
  reset(thirds[1]);
  await(thirds[0], POLLERR);
  CALL(change(e, EPOLL_CTL_ADD, thirds[0], all, 5));
  CALL(change(e, EPOLL_CTL_ADD, bound(SOCK_DGRAM), all, 6));
  say_events("all", e, 1000);
}

CASE(epoll_wrong, "epoll calls with invalid arguments") {
  int ends[2];
  struct epoll_event event = {EPOLLIN, {.u64 = 1}};
  streams(ends);
  const int e = (int)MUST(epoll_create1(0));
  CALL(epoll_ctl(e, 77, ends[0], &event));
  CALL(epoll_ctl(e, EPOLL_CTL_ADD, ends[0], NULL));
  CALL(epoll_ctl(e, EPOLL_CTL_ADD, e, &event));
  CALL(epoll_ctl(e, EPOLL_CTL_ADD, -1, &event));
  CALL(epoll_ctl(-1, EPOLL_CTL_ADD, ends[0], &event));
  CALL(epoll_ctl(ends[0], EPOLL_CTL_ADD, ends[1], &event));
  CALL(epoll_wait(ends[0], &event, 1, 0));
  CALL(epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &event));
  CALL(epoll_wait(e, &event, 0, 0));
  CALL(epoll_wait(e, &event, -1, 0));
  send(ends[1], "abc", 3, 0);
  await(ends[0], POLLIN);
  CALL(epoll_wait(e, (struct epoll_event*)8, 1, 0));
  const int file = open("/proc/self/exe", O_RDONLY);
  CALL(epoll_ctl(e, EPOLL_CTL_ADD, file, &event));
}

CASE(epoll_few_at_once, "with room for one event, each comes in turn") {
  const int e = (int)MUST(epoll_create1(0));
  int ends[3][2], seen[3] = {0, 0, 0};
  for (unsigned i = 0; i < 3; ++i) {
    streams(ends[i]);
    CALL(change(e, EPOLL_CTL_ADD, ends[i][0], EPOLLOUT, i));
  }
  for (int i = 0; i < 6; ++i) {
    struct epoll_event one;
    if (epoll_wait(e, &one, 1, 1000) == 1) ++seen[one.data.u64];
  }
  say("seen %d %d %d", seen[0], seen[1], seen[2]);
}

CASE(epoll_nested, "an epoll in an epoll, in poll() and in select()") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const int inner = epoll_of(ends[0], EPOLLIN);
  const int outer = epoll_of(inner, EPOLLIN);
  say_events("outer, nothing", outer, 0);
  say_ready("inner", inner);
  send(ends[1], "abc", 3, 0);
  say_events("outer", outer, 3000);
  say_events("inner", inner, 0);
  say_ready("inner", inner);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  say_events("outer, read", outer, 0);
  say_ready("inner", inner);
}

CASE(epoll_nested_edge, "an epoll in an epoll, edge triggered: once for each arrival") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const int inner = epoll_of(ends[0], EPOLLIN);
  const int outer = epoll_of(inner, EPOLLIN | EPOLLET);
  say_events("nothing", outer, 0);
  send(ends[1], "abc", 3, 0);
  say_events("data", outer, 3000);
  say_events("again", outer, 20);
  send(ends[1], "def", 3, 0);
  say_events("more data", outer, 3000);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  say_events("read", outer, 20);
}

CASE(epoll_nested_once, "an epoll in an epoll, once, and changed") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const int inner = epoll_of(ends[0], EPOLLIN);
  const int outer = epoll_of(inner, EPOLLIN | EPOLLONESHOT);
  send(ends[1], "abc", 3, 0);
  say_events("data", outer, 3000);
  say_events("again", outer, 20);
  say_ready("outer", outer);
  CALL(change(outer, EPOLL_CTL_MOD, inner, EPOLLIN, 8));
  say_events("changed", outer, 3000);
  CALL(change(outer, EPOLL_CTL_MOD, inner, EPOLLOUT, 8));
  say_events("for nothing that it can be", outer, 20);
  CALL(change(outer, EPOLL_CTL_DEL, inner, 0, 0));
  CALL(change(outer, EPOLL_CTL_DEL, inner, 0, 0));
  say_events("deleted", outer, 20);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
}

CASE(epoll_nested_mixed, "an epoll with a pipe and a socket, in an epoll: told once") {
  int ends[2], pipes[2];
  streams(ends);
  MUST(pipe(pipes));
  const int inner = epoll_of(ends[0], EPOLLIN);
  CALL(change(inner, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 9));
  const int outer = epoll_of(inner, EPOLLIN);
  CALL(change(outer, EPOLL_CTL_ADD, ends[1], EPOLLIN, 3));
  MUST(write(pipes[1], "x", 1));
  say_events("the pipe", outer, 3000);
  send(ends[1], "abc", 3, 0);
  await(ends[0], POLLIN);
  say_events("both", outer, 3000);
  send(ends[0], "abc", 3, 0);
  await(ends[1], POLLIN);
  say_events("and the other end", outer, 3000);
  CALL(close(inner));
  say_events("closed", outer, 0);
}

CASE(epoll_nested_three, "an epoll in an epoll in an epoll; none in itself") {
  int ends[2];
  streams(ends);
  const int inner = epoll_of(ends[0], EPOLLIN), middle = epoll_of(inner, EPOLLIN), outer = epoll_of(middle, EPOLLIN);
  CALL(change(inner, EPOLL_CTL_ADD, inner, EPOLLIN, 1));
  CALL(change(inner, EPOLL_CTL_ADD, outer, EPOLLIN, 1));
  CALL(change(middle, EPOLL_CTL_ADD, inner, EPOLLIN, 1));
  CALL(change(outer, EPOLL_CTL_ADD, inner, EPOLLIN | EPOLLEXCLUSIVE, 1));
  say_events("nothing", outer, 0);
  send(ends[1], "abc", 3, 0);
  say_events("data", outer, 3000);
  CALL(change(inner, EPOLL_CTL_DEL, ends[0], 0, 0));
  say_events("deleted", outer, 0);
}

static void* sends_late(void* fd) {
  pause_ms(50);
  send(*(int*)fd, "late", 4, 0);
  return NULL;
}

static void* polls_inner(void* fd) {
  struct pollfd one = {*(int*)fd, POLLIN, 0};
  return (void*)(long)poll(&one, 1, 3000);
}

CASE(epoll_nested_waits, "threads wait with an epoll in an epoll, and in poll(): all are woken") {
  int ends[2];
  streams(ends);
  int inner = epoll_of(ends[0], EPOLLIN), outer = epoll_of(inner, EPOLLIN);
  const pthread_t one = start(polls_inner, &inner), two = start(polls_inner, &outer), sender = start(sends_late, &ends[1]);
  say_events("outer", outer, 3000);
  say("inner: %ld, outer: %ld", joined(one), joined(two));
  joined(sender);
}

static int added;

static void* adds_late(void* fd) {
  pause_ms(50);
  return (void*)(long)change(*(int*)fd, EPOLL_CTL_ADD, added, EPOLLIN, 5);
}

CASE(epoll_nested_later, "a socket comes into an epoll in an epoll while that is waited for") {
  int ends[2];
  streams(ends);
  send(ends[1], "abc", 3, 0);
  added = ends[0];
  int inner = (int)MUST(epoll_create1(0));
  const int outer = epoll_of(inner, EPOLLIN);
  const pthread_t other = start(adds_late, &inner);
  say_events("outer", outer, 3000);
  joined(other);
}

CASE(epoll_waits, "epoll_wait() without a limit, and epoll_pwait2() with one") {
  int ends[2];
  struct timespec some = {0, 20000000};
  struct epoll_event event;
  streams(ends);
  const int e = epoll_of(ends[0], EPOLLIN);
  CALL(epoll_pwait2(e, &event, 1, &some, NULL));
  const pthread_t sender = start(sends_late, &ends[1]);
  say_events("late", e, -1);
  joined(sender);
  CALL(epoll_pwait2(e, &event, 1, &some, NULL));
  CALL(epoll_pwait(e, &event, 1, 0, NULL));
}

CASE(epoll_added_while_waiting, "ADD by another thread wakes epoll_wait()") {
  int ends[2];
  streams(ends);
  const int e = (int)MUST(epoll_create1(0));
  if (fork() == 0) {
    struct epoll_event event = {EPOLLOUT, {.u64 = 6}};
    pause_ms(50);
    epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &event);
    pause_ms(500);
    _exit(0);
  }
  say_events("added by a child", e, 5000);
}

CASE(epoll_accept_loop, "a server: listener edge triggered, many clients, no event lost") {
  const int listener = listening();
  nonblocking(listener);
  const int e = epoll_of(listener, EPOLLIN | EPOLLET);
  int clients[20], served = 0;
  for (int i = 0; i < 20; ++i) {
    clients[i] = connected(listener);
    send(clients[i], "x", 1, 0);
    if (i % 5 != 4) continue;
    struct epoll_event events[32];
    for (int n; served <= i && (n = epoll_wait(e, events, 32, 3000)) > 0;) {
      for (int k = 0; k < n; ++k) {
        char byte;
        if (events[k].data.u64 != 7) {
          served += recv((int)events[k].data.u64 - 1000, &byte, 1, 0) == 1;
          continue;
        }
        for (int s; (s = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
          change(e, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLET, (unsigned)s + 1000);
        }
      }
    }
  }
  say("served %d", served);
}

THEME(readiness_epoll, &epoll_level, &epoll_edge, &epoll_edge_out, &epoll_edge_both, &epoll_edge_already,
      &epoll_oneshot, &epoll_modify, &epoll_delete, &epoll_close_without_delete, &epoll_duplicate,
      &epoll_duplicate_closed, &epoll_exclusive, &epoll_states, &epoll_wrong, &epoll_few_at_once, &epoll_nested,
      &epoll_nested_edge, &epoll_nested_once, &epoll_nested_mixed, &epoll_nested_three, &epoll_nested_waits,
      &epoll_nested_later, &epoll_waits, &epoll_added_while_waiting, &epoll_accept_loop);
