// epoll_mixed.c - cases of sockets in an epoll set beside timers, eventfds, pipes, signalfds and kernel sockets.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#include "tests/conformance/conformance.h"

static int e;

static void add(int fd, unsigned events, unsigned mark) {
  struct epoll_event event = {events, {.u64 = mark}};
  if (e == 0) e = (int)MUST(epoll_create1(0));
  MUST(epoll_ctl(e, EPOLL_CTL_ADD, fd, &event));
}

static void say_events(const char* when, int ms) {
  struct epoll_event events[8];
  const int n = epoll_wait(e, events, 8, ms);
  say("%s: %d", when, n);
  for (unsigned mark = 0; mark < 100; ++mark) {
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u64 == mark) say("  mark %u: %s", mark, events_name(events[i].events));
    }
  }
}

CASE(mixed_eventfd, "a socket and an eventfd in one epoll") {
  int ends[2];
  char bytes[8];
  streams(ends);
  const int event = eventfd(0, EFD_NONBLOCK);
  add(ends[0], EPOLLIN, 1);
  add(event, EPOLLIN, 2);
  say_events("nothing", 20);
  CALL(eventfd_write(event, 1));
  say_events("event", 1000);
  send(ends[1], "abc", 3, 0);
  await(ends[0], POLLIN);
  say_events("both", 1000);
  eventfd_t value;
  CALL(eventfd_read(event, &value));
  say_events("data", 1000);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  say_events("nothing", 20);
}

CASE(mixed_timerfd, "a timer wakes an epoll with sockets in it") {
  int ends[2];
  streams(ends);
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  const struct itimerspec soon = {{0, 0}, {0, 30000000}};
  add(ends[0], EPOLLIN, 1);
  add(timer, EPOLLIN, 2);
  CALL(timerfd_settime(timer, 0, &soon, NULL));
  say_events("timer", -1);
}

CASE(mixed_pipe_and_local, "pipes and sockets of AF_UNIX beside ours") {
  int ends[2], pipes[2], locals[2];
  streams(ends);
  MUST(pipe(pipes));
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, locals));
  add(ends[0], EPOLLIN, 1);
  add(pipes[0], EPOLLIN, 2);
  add(locals[0], EPOLLIN | EPOLLRDHUP, 3);
  say_events("nothing", 0);
  CALL(write(pipes[1], "x", 1));
  CALL(write(locals[1], "x", 1));
  say_events("two", 1000);
  send(ends[1], "abc", 3, 0);
  await(ends[0], POLLIN);
  say_events("three", 1000);
  close(pipes[1]);
  close(locals[1]);
  close(ends[1]);
  await(ends[0], POLLRDHUP);
  say_events("all ended", 1000);
}

CASE(mixed_signalfd, "a signal as an event beside a socket") {
  int ends[2];
  sigset_t set;
  streams(ends);
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, NULL);
  const int signals = signalfd(-1, &set, SFD_NONBLOCK);
  add(ends[0], EPOLLIN, 1);
  add(signals, EPOLLIN, 2);
  say_events("nothing", 0);
  CALL(kill(getpid(), SIGUSR1));
  say_events("signal", 1000);
  struct signalfd_siginfo info;
  CALL(read(signals, &info, sizeof info));
  say_events("nothing", 0);
}

CASE(mixed_loopback, "sockets of the loopback address beside those of the own") {
  union Address loopback;
  int ends[2];
  char bytes[20];
  memset(&loopback, 0, sizeof loopback);
  loopback.any.sa_family = (sa_family_t)family;
  if (family == AF_INET) loopback.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (family == AF_INET6) loopback.v6.sin6_addr = in6addr_loopback;
  socklen_t length = family == AF_INET ? sizeof loopback.v4 : sizeof loopback.v6;
  const int listener = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(bind(listener, &loopback.any, length));
  CALL(listen(listener, 1));
  length = address_of(listener, &loopback);
  const int client = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(connect(client, &loopback.any, length));
  const int server = OPEN(accept(listener, NULL, NULL));
  say_names("server", server);
  streams(ends);
  add(server, EPOLLIN, 1);
  add(ends[0], EPOLLIN, 2);
  send(client, "abc", 3, 0);
  say_events("loopback", 3000);
  send(ends[1], "abc", 3, 0);
  await(ends[0], POLLIN);
  say_events("both", 3000);
  CALL(recv(server, bytes, sizeof bytes, 0));
}

CASE(mixed_any_hears_loopback, "a listener of any address is reached by loopback and by the own address") {
  union Address to;
  const int listener = OPEN(socket(family, SOCK_STREAM, 0));
  socklen_t length = any_address(&to, 0);
  CALL(bind(listener, &to.any, length));
  CALL(listen(listener, 5));
  const int port = port_of(listener);
  length = own_address(&to, port);
  const int one = OPEN(socket(family, SOCK_STREAM, 0)), two = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(connect(one, &to.any, length));
  say_names("first", accepted(listener));
  if (family == AF_INET) to.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (family == AF_INET6) to.v6.sin6_addr = in6addr_loopback;
  CALL(connect(two, &to.any, length));
  say_names("second", accepted(listener));
}

CASE(mixed_poll_many_kinds, "poll() of all kinds at once, twenty of ours among them") {
  struct pollfd all[24];
  int ends[2], pipes[2], ready = 0;
  for (int i = 0; i < 20; i += 2) {
    streams(ends);
    all[i] = (struct pollfd){ends[0], POLLIN, 0};
    all[i + 1] = (struct pollfd){ends[1], POLLIN, 0};
    if (i % 4 == 0) send(ends[0], "x", 1, 0), await(ends[1], POLLIN);
  }
  MUST(pipe(pipes));
  all[20] = (struct pollfd){pipes[0], POLLIN, 0};
  all[21] = (struct pollfd){eventfd(1, 0), POLLIN, 0};
  all[22] = (struct pollfd){socket(AF_UNIX, SOCK_DGRAM, 0), POLLIN, 0};
  all[23] = (struct pollfd){open("/dev/zero", O_RDONLY), POLLIN, 0};
  CALL(poll(all, 24, 1000));
  for (int i = 0; i < 24; ++i) ready |= (all[i].revents == POLLIN) << i;
  say("ready: %x", (unsigned)ready);
}

// Prints how often each of the marks 1 to 3 is reported in `calls` calls with room for `room` events.
static void say_turns(int calls, int room) {
  int told[4] = {0};
  for (int i = 0; i < calls; ++i) {
    struct epoll_event events[4];
    const int n = epoll_wait(e, events, room, 1000);
    for (int k = 0; k < n; ++k) ++told[events[k].data.u64];
  }
  say("room for %d: %d, %d, %d", room, told[1], told[2], told[3]);
}

CASE(mixed_turns, "where there is room for few events, all that are ready have their turn") {
  int ends[2], more[2];
  streams(ends);
  streams(more);
  const int event = eventfd(1, EFD_NONBLOCK);
  add(ends[0], EPOLLIN, 1);
  add(event, EPOLLIN, 2);
  send(ends[1], "abc", 3, 0);
  await(ends[0], POLLIN);
  say_turns(8, 1);
  say_turns(4, 2);
  add(more[0], EPOLLIN, 3);
  send(more[1], "abc", 3, 0);
  await(more[0], POLLIN);
  say_turns(4, 3);
  eventfd_t value;
  CALL(eventfd_read(event, &value));
  say_turns(8, 1);
}

CASE(mixed_hardly_any_time, "a wait with a very short time-out still reports the kernel's descriptors, after a long idle wait") {
  int ends[2], pipes[2];
  const struct timespec hardly_any = {0, 1};
  struct epoll_event event;
  streams(ends);
  MUST(pipe(pipes));
  add(ends[0], EPOLLIN, 1);
  add(pipes[0], EPOLLIN, 2);
  struct pollfd both[] = {{ends[0], POLLIN, 0}, {pipes[0], POLLIN, 0}};
  say_events("nothing", 30);
  CALL(write(pipes[1], "x", 1));
  CALL(epoll_pwait2(e, &event, 1, &hardly_any, NULL));
  CALL(ppoll(both, 2, &hardly_any, NULL));
}

THEME(epoll_mixed, &mixed_eventfd, &mixed_timerfd, &mixed_pipe_and_local, &mixed_signalfd, &mixed_loopback,
      &mixed_any_hears_loopback, &mixed_poll_many_kinds, &mixed_turns, &mixed_hardly_any_time);
