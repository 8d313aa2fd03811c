// signals_jumps.c - cases of handlers that leave a call by siglongjmp(), and of the state of its sockets afterwards.
#include <setjmp.h>
#include <sys/epoll.h>

#include "tests/conformance/conformance.h"

static sigjmp_buf back;

static void jumps(int number) {
  (void)number;
  siglongjmp(back, 1);
}

CASE(signal_handler_jumps, "a handler leaves a waiting call by siglongjmp(), and the socket goes on") {
  int ends[2];
  char bytes[20];
  streams(ends);
  signal(SIGALRM, jumps);
  if (sigsetjmp(back, 1) == 0) {
    alarm_once(50);
    CALL(recv(ends[0], bytes, sizeof bytes, 0));
  } else {
    say("jumped");
  }
  CALL(send(ends[1], "abc", 3, 0));
  say_bytes("received", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
}

// Leaves recv(), poll() or epoll_wait() on the descriptor.
static void jump_out(int fd, int how) {
  char bytes[20];
  struct pollfd one = {fd, POLLIN, 0};
  struct epoll_event event = {.events = EPOLLIN};
  signal(SIGALRM, jumps);
  if (sigsetjmp(back, 1) != 0) return;
  alarm_once(50);
  if (how == 0) {
    recv(fd, bytes, sizeof bytes, 0);
  } else if (how == 1) {
    poll(&one, 1, -1);
  } else {
    const int set = epoll_create1(0);
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    epoll_wait(set, &event, 1, -1);
  }
  say("not left");
}

CASE(signal_handler_jumps_and_closes, "what a handler has left by siglongjmp() can be closed, of which the peer is told") {
  for (int how = 0; how < 3; ++how) {
    int ends[2];
    char bytes[20];
    streams(ends);
    jump_out(ends[0], how);
    CALL(close(ends[0]));
    CALL(recv(ends[1], bytes, sizeof bytes, 0));
  }
}

static void* jumps_and_ends(void* fd) {
  jump_out(*(int*)fd, 0);
  return NULL;
}

CASE(signal_jumped_thread_ends, "a thread whose handler has left recv() by siglongjmp() ends, and another one receives") {
  int ends[2];
  char bytes[20];
  streams(ends);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  const pthread_t thread = start(jumps_and_ends, &ends[0]);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  joined(thread);
  CALL(send(ends[1], "abc", 3, 0));
  say_bytes("received", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
  CALL(close(ends[0]));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(signal_pipe_jumps, "SIGPIPE's handler leaves send() by siglongjmp()") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(shutdown(ends[0], SHUT_WR));
  signal(SIGPIPE, jumps);
  if (sigsetjmp(back, 1) == 0) CALL(send(ends[0], "x", 1, 0));
  else say("jumped");
  CALL(send(ends[1], "abc", 3, 0));
  say_bytes("received", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
}

THEME(signals_jumps, &signal_handler_jumps, &signal_handler_jumps_and_closes, &signal_jumped_thread_ends, &signal_pipe_jumps);
