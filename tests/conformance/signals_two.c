// signals_two.c - cases of two handlers, one with SA_RESTART and one without: the handler that interrupted the call decides whether it
// restarts.
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/time.h>

#include "tests/conformance/conformance.h"

enum { RESTARTS = SIGUSR1, ENDS = SIGUSR2 };

// Installs both handlers in either order.
static void handle_both(int ends_last) {
  count_signal(ends_last ? RESTARTS : ENDS, ends_last ? SA_RESTART : 0);
  count_signal(ends_last ? ENDS : RESTARTS, ends_last ? 0 : SA_RESTART);
}

// Returns when the handler has run.
static void interrupt(pthread_t thread, int number) {
  const int before = signals_counted();
  pthread_kill(thread, number);
  for (int ms = 0; ms < 5000 && signals_counted() == before; ++ms) pause_ms(1);
  if (signals_counted() == before) say("no handler has run");
}

static void* accepts(void* fd) { return thread_result(accept(*(int*)fd, NULL, NULL) >= 0 ? 1 : -1); }

static void* polls(void* fd) {
  struct pollfd one = {*(int*)fd, POLLIN, 0};
  return thread_result(poll(&one, 1, -1));
}

static void* waits_in_epoll(void* fd) {
  struct epoll_event event = {.events = EPOLLIN};
  const int set = epoll_create1(0);
  if (epoll_ctl(set, EPOLL_CTL_ADD, *(int*)fd, &event) != 0) return thread_result(-1);
  return thread_result(epoll_wait(set, &event, 1, -1));
}

static void* fills(void* fd) {
  static char bytes[1000];
  return thread_result(send(*(int*)fd, bytes, sizeof bytes, 0));
}

// Prints how recv() at the first end fares under each handler.
static void say_receiver(int ends[2]) {
  pthread_t receiver = asleep(receives_once, &ends[0]);
  interrupt(receiver, RESTARTS);
  interrupt(receiver, RESTARTS);
  CALL(send(ends[1], "abc", 3, 0));
  say_result("with SA_RESTART", joined(receiver));
  receiver = asleep(receives_once, &ends[0]);
  interrupt(receiver, ENDS);
  say_result("without", joined(receiver));
}

CASE(signal_two_receive, "recv() goes on after a handler with SA_RESTART, and ends after one without, whichever was set last") {
  for (int ends_last = 0; ends_last < 2; ++ends_last) {
    int ends[2];
    streams(ends);
    handle_both(ends_last);
    say_receiver(ends);
    const pthread_t receiver = asleep(receives_once, &ends[0]);
    interrupt(receiver, RESTARTS);
    await_sleep();
    interrupt(receiver, ENDS);
    say_result("with, then without", joined(receiver));
  }
}

CASE(signal_two_datagram, "recv() of datagrams goes on, or ends, by the handler that has run") {
  int ends[2];
  datagrams(ends);
  handle_both(0);
  say_receiver(ends);
}

CASE(signal_two_accept, "accept() goes on, or ends, by the handler that has run, whichever was set last") {
  for (int ends_last = 0; ends_last < 2; ++ends_last) {
    int listener = listening();
    handle_both(ends_last);
    pthread_t acceptor = asleep(accepts, &listener);
    interrupt(acceptor, RESTARTS);
    connected(listener);
    say_result("with SA_RESTART", joined(acceptor));
    acceptor = asleep(accepts, &listener);
    interrupt(acceptor, ENDS);
    say_result("without", joined(acceptor));
  }
}

CASE(signal_two_send, "send() goes on, or ends, by the handler that has run") {
  int ends[2];
  streams(ends);
  send_until_full(ends[0]);
  handle_both(0);
  pthread_t sender = asleep(fills, &ends[0]);
  interrupt(sender, ENDS);
  say_result("without SA_RESTART", joined(sender));
  sender = asleep(fills, &ends[0]);
  interrupt(sender, RESTARTS);
  signal(SIGPIPE, SIG_IGN);
  CALL(shutdown(ends[0], SHUT_WR));
  say_result("with", joined(sender));
}

CASE(signal_two_poll, "poll() and epoll_wait() end by either handler, and so does recv() with SO_RCVTIMEO") {
  for (int ends_last = 0; ends_last < 2; ++ends_last) {
    int ends[2];
    const struct timeval time = {60, 0};
    streams(ends);
    handle_both(ends_last);
    for (int i = 0; i < 2; ++i) {
      const int number = i == 0 ? RESTARTS : ENDS;
      pthread_t waits = asleep(polls, &ends[0]);
      interrupt(waits, number);
      say_result("poll", joined(waits));
      waits = asleep(waits_in_epoll, &ends[0]);
      interrupt(waits, number);
      say_result("epoll_wait", joined(waits));
    }
    MUST(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    const pthread_t receiver = asleep(receives_once, &ends[0]);
    interrupt(receiver, RESTARTS);
    say_result("with a time", joined(receiver));
  }
}

// The first signal's handler raises the second signal.
static int raised;

static void raises(int number) {
  (void)number;
  raise(raised);
}

static void handle_and_raise(int flags, int other) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = raises;
  action.sa_flags = flags;
  raised = other;
  MUST(sigaction(SIGALRM, &action, NULL));
}

CASE(signal_two_nested, "a handler that is interrupted by another: its own flags are those that count") {
  int ends[2];
  streams(ends);
  handle_both(0);
  handle_and_raise(SA_RESTART, ENDS);
  pthread_t receiver = asleep(receives_once, &ends[0]);
  interrupt(receiver, SIGALRM);
  CALL(send(ends[1], "abc", 3, 0));
  say_result("with SA_RESTART", joined(receiver));
  handle_and_raise(0, RESTARTS);
  receiver = asleep(receives_once, &ends[0]);
  interrupt(receiver, SIGALRM);
  say_result("without", joined(receiver));
}

// A handler that itself waits in recv(), and is interrupted by one without SA_RESTART.
static int pipe_ends[2];
static atomic_int in_handler, ended_in_handler;

static void reads_one(int number) {
  (void)number;
  char byte;
  atomic_store(&in_handler, 1);
  while (recv(pipe_ends[0], &byte, 1, 0) < 0 && errno == EINTR) atomic_store(&ended_in_handler, 1);
  atomic_store(&in_handler, 0);
}

static void await_value(const atomic_int* of, int value) {
  for (int ms = 0; ms < 5000 && atomic_load(of) != value; ++ms) pause_ms(1);
}

CASE(signal_two_waiting, "a handler with SA_RESTART waits in recv(), which one without ends: the interrupted recv() goes on") {
  int ends[2];
  struct sigaction action;
  streams(ends);
  streams(pipe_ends);
  handle_both(1);
  memset(&action, 0, sizeof action);
  action.sa_handler = reads_one;
  action.sa_flags = SA_RESTART;
  MUST(sigaction(SIGALRM, &action, NULL));
  const pthread_t receiver = asleep(receives_once, &ends[0]);
  pthread_kill(receiver, SIGALRM);
  await_value(&in_handler, 1);
  for (int tries = 0; tries < 500 && !atomic_load(&ended_in_handler); ++tries) {
    pthread_kill(receiver, ENDS);
    pause_ms(10);
  }
  say("ended in the handler: %d", atomic_load(&ended_in_handler));
  CALL(send(pipe_ends[1], "x", 1, 0));
  await_value(&in_handler, 0);
  CALL(send(ends[1], "abc", 3, 0));
  say_result("receiver", joined(receiver));
}

// Stops the parent until both signals are pending, so that both arrive at once.
static void come_at_once(int unused) {
  (void)unused;
  char path[64], state = 0;
  const pid_t parent = getppid();
  snprintf(path, sizeof path, "/proc/%d/stat", parent);
  kill(parent, SIGSTOP);
  while (state != 'T') {
    FILE* const file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%*d (%*[^)]) %c", &state) != 1) _exit(1);
    fclose(file);
  }
  kill(parent, SIGUSR2);
  kill(parent, SIGUSR1);
  kill(parent, SIGCONT);
}

// For a thread that blocks both signals.
static void interrupt_at_once(void) {
  const int before = signals_counted();
  say_ended("who stops this process", child(come_at_once, 0));
  for (int ms = 0; ms < 5000 && signals_counted() != before + 2; ++ms) pause_ms(1);
  say("handled: %d", signals_counted() - before);
}

CASE(signal_two_at_once, "of two signals at once the lower number's handler says whether recv() goes on") {
  int ends[2];
  sigset_t both;
  streams(ends);
  handle_both(0);
  pthread_t receiver = asleep(receives_once, &ends[0]);
  sigemptyset(&both);
  sigaddset(&both, SIGUSR1);
  sigaddset(&both, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &both, NULL);
  interrupt_at_once();
  CALL(send(ends[1], "abc", 3, 0));
  say_result("SIGUSR1 with SA_RESTART, SIGUSR2 without", joined(receiver));
  count_signal(SIGUSR1, 0);
  count_signal(SIGUSR2, SA_RESTART);
  pthread_sigmask(SIG_UNBLOCK, &both, NULL);
  receiver = asleep(receives_once, &ends[0]);
  pthread_sigmask(SIG_BLOCK, &both, NULL);
  interrupt_at_once();
  say_result("the other way", joined(receiver));
}

static void* receives_two(void* fd) {
  char bytes[2][20];
  struct mmsghdr two[2];
  memset(two, 0, sizeof two);
  struct iovec pieces[2] = {{bytes[0], sizeof bytes[0]}, {bytes[1], sizeof bytes[1]}};
  for (int i = 0; i < 2; ++i) two[i].msg_hdr.msg_iov = &pieces[i], two[i].msg_hdr.msg_iovlen = 1;
  return thread_result(recvmmsg(*(int*)fd, two, 2, 0, NULL));
}

CASE(signal_two_parts, "a datagram and a signal at once: recvmmsg() of two has one, and does not wait for the other") {
  int ends[2];
  handle_both(1);
  for (int i = 0; i < 6; ++i) {
    datagrams(ends);  // a pair for each round: the kernel reports a pending error to the next call
    const pthread_t receiver = asleep(receives_two, &ends[1]);
    MUST(send(ends[0], "a", 1, 0));
    pthread_kill(receiver, i % 2 == 0 ? ENDS : RESTARTS);
    say_result("received", joined(receiver));
  }
}

static void* sends_much(void* fd) {
  static char bytes[64 << 20];
  return thread_result(send(*(int*)fd, bytes, sizeof bytes, 0) < (long)sizeof bytes);
}

CASE(signal_two_restart_part, "recv() with a part of its data returns it, also after a handler with SA_RESTART") {
  int ends[2];
  streams(ends);
  handle_both(1);
  MUST(send(ends[0], "abc", 3, 0));
  const pthread_t receiver = asleep(receives_all, &ends[1]);
  interrupt(receiver, RESTARTS);
  say_result("of twenty", joined(receiver));
  const pthread_t sender = asleep(sends_much, &ends[0]);
  interrupt(sender, RESTARTS);
  say_result("a part", joined(sender));
}

static void drains_pipe(int number) {
  char bytes[4096];
  (void)number;
  for (int i = 0; i < 16 && read(pipe_ends[0], bytes, sizeof bytes) > 0; ++i) {}
}

static void* splices(void* fd) { return thread_result(splice(*(int*)fd, NULL, pipe_ends[1], NULL, 20, 0)); }

CASE(signal_two_splice, "a handler that makes room in the pipe for which splice() waits: it ends all the same") {
  static const char zeros[65536];
  int ends[2];
  struct sigaction action = {.sa_handler = drains_pipe};
  streams(ends);
  MUST(pipe(pipe_ends));
  MUST(write(pipe_ends[1], zeros, sizeof zeros));
  MUST(sigaction(SIGALRM, &action, NULL));
  const pthread_t splicer = asleep(splices, &ends[1]);
  pthread_kill(splicer, SIGALRM);
  say_result("splice", joined(splicer));
}

THEME(signals_two, &signal_two_receive, &signal_two_datagram, &signal_two_accept, &signal_two_send, &signal_two_poll,
      &signal_two_nested, &signal_two_waiting, &signal_two_at_once, &signal_two_parts, &signal_two_restart_part,
      &signal_two_splice);
