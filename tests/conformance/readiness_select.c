// readiness_select.c - cases of select() and pselect().
#include <sys/select.h>

#include "tests/conformance/conformance.h"

static fd_set reads, writes, others;

static void ask(int fd) {
  FD_ZERO(&reads);
  FD_ZERO(&writes);
  FD_ZERO(&others);
  FD_SET(fd, &reads);
  FD_SET(fd, &writes);
  FD_SET(fd, &others);
}

static void say_sets(const char* who, int fd) {
  say("%s: read %d, write %d, except %d", who, FD_ISSET(fd, &reads) != 0, FD_ISSET(fd, &writes) != 0, FD_ISSET(fd, &others) != 0);
}

static void say_selected(const char* who, int fd) {
  struct timeval none = {0, 0};
  ask(fd);
  const int ready = select(fd + 1, &reads, &writes, &others, &none);
  say("select: %d", ready);
  say_sets(who, fd);
}

CASE(select_states, "what select() says of streams in every state") {
  int ends[2];
  say_selected("new", socket(family, SOCK_STREAM, 0));
  const int listener = listening();
  say_selected("listener", listener);
  const int client = connected(listener);
  await(listener, POLLIN);
  say_selected("listener with one", listener);
  say_selected("client", client);
  streams(ends);
  say_selected("connected", ends[0]);
  send(ends[1], "abc", 3, 0);
  await(ends[0], POLLIN);
  say_selected("with data", ends[0]);
  reset(ends[1]);
  await(ends[0], POLLERR);
  say_selected("reset", ends[0]);
}

CASE(select_end, "select() at the end of a stream, and after one's own end") {
  int ends[2];
  streams(ends);
  shutdown(ends[1], SHUT_WR);
  await(ends[0], POLLRDHUP);
  say_selected("peer has ended", ends[0]);
  shutdown(ends[0], SHUT_WR);
  say_selected("both have ended", ends[0]);
}

CASE(select_refused, "select() of a connect() that was refused") {
  union Address to;
  const int s = OPEN(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
  const socklen_t length = own_address(&to, unused_port());
  CALL(connect(s, &to.any, length));
  await(s, POLLERR);
  say_selected("refused", s);
  OPTION(s, SOL_SOCKET, SO_ERROR);
}

CASE(select_urgent, "urgent data is exceptional") {
  int ends[2];
  char byte;
  streams(ends);
  send(ends[1], "X", 1, MSG_OOB);
  await(ends[0], POLLPRI);
  say_selected("urgent", ends[0]);
  CALL(recv(ends[0], &byte, 1, MSG_OOB));
  say_selected("read", ends[0]);
}

CASE(select_mixed, "select() of sockets and pipes together") {
  int ends[2], pipes[2];
  struct timeval some = {1, 0};
  streams(ends);
  MUST(pipe(pipes));
  CALL(write(pipes[1], "x", 1));
  ask(ends[0]);
  FD_SET(pipes[0], &reads);
  FD_SET(pipes[1], &writes);
  CALL(select(64, &reads, &writes, &others, &some));
  say_sets("socket", ends[0]);
  say("pipe: read %d, write %d", FD_ISSET(pipes[0], &reads) != 0, FD_ISSET(pipes[1], &writes) != 0);
}

static void* sends_late(void* fd) {
  pause_ms(50);
  send(*(int*)fd, "late", 4, 0);
  return NULL;
}

CASE(select_waits, "select() without a limit waits; with one, what is left of it is told") {
  int ends[2];
  streams(ends);
  const pthread_t sender = start(sends_late, &ends[1]);
  FD_ZERO(&reads);
  FD_SET(ends[0], &reads);
  CALL(select(ends[0] + 1, &reads, NULL, NULL, NULL));
  say("read %d", FD_ISSET(ends[0], &reads) != 0);
  joined(sender);
  struct timeval left = {5, 0};
  CALL(select(ends[0] + 1, &reads, NULL, NULL, &left));
  say("some left: %d", left.tv_sec >= 4);
  left = (struct timeval){0, 30000};
  CALL(select(ends[1] + 1, NULL, NULL, NULL, &left));
  say("left: %ld", left.tv_sec * 1000000 + left.tv_usec);
}

CASE(select_closed, "select() of a closed descriptor, and invalid arguments") {
  struct timeval none = {0, 0}, wrong = {-1, 0};
  int ends[2];
  streams(ends);
  const int closed = dup(ends[0]);
  close(closed);
  ask(closed);
  CALL(select(closed + 1, &reads, NULL, NULL, &none));
  ask(ends[0]);
  CALL(select(-1, &reads, NULL, NULL, &none));
  CALL(select(ends[0] + 1, &reads, &writes, NULL, &wrong));
  CALL(select(ends[0], &reads, &writes, NULL, &none));
  CALL(select(0, NULL, NULL, NULL, &none));
  CALL(select(ends[0] + 1, (fd_set*)8, NULL, NULL, &none));
}

CASE(pselect_basic, "pselect() with a time and without signals") {
  int ends[2];
  const struct timespec none = {0, 0}, some = {0, 20000000};
  streams(ends);
  ask(ends[0]);
  CALL(pselect(ends[0] + 1, &reads, &writes, &others, &none, NULL));
  say_sets("connected", ends[0]);
  FD_ZERO(&reads);
  FD_SET(ends[0], &reads);
  CALL(pselect(ends[0] + 1, &reads, NULL, NULL, &some, NULL));
  say("read %d, time untouched: %d", FD_ISSET(ends[0], &reads) != 0, some.tv_nsec == 20000000);
}

static int handler_fd, selected_in_handler;

static void selects(int number) {
  (void)number;
  fd_set inner;
  struct timeval some = {0, 20000};
  FD_ZERO(&inner);
  FD_SET(handler_fd, &inner);
  selected_in_handler = select(handler_fd + 1, &inner, NULL, NULL, &some);
}

CASE(select_in_handler, "a handler waits in select() while its thread does, for the same socket") {
  int ends[2];
  char bytes[8];
  streams(ends);
  handler_fd = ends[0];
  signal(SIGALRM, selects);
  for (int i = 0; i < 3; ++i) {
    alarm_once(30);
    FD_ZERO(&reads);
    FD_SET(ends[0], &reads);
    CALL(select(ends[0] + 1, &reads, NULL, NULL, NULL));
    say("in the handler: %d", selected_in_handler);
    const pthread_t sender = start(sends_late, &ends[1]);
    FD_ZERO(&reads);
    FD_SET(ends[0], &reads);
    CALL(select(ends[0] + 1, &reads, NULL, NULL, NULL));
    joined(sender);
    CALL(recv(ends[0], bytes, sizeof bytes, 0));
  }
}

THEME(readiness_select, &select_states, &select_end, &select_refused, &select_urgent, &select_mixed, &select_waits,
      &select_closed, &pselect_basic, &select_in_handler);
