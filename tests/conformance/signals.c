// signals.c - cases of signals that arrive while a call waits, with and without SA_RESTART, and of signals that sockets raise.
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>

#include "tests/conformance/conformance.h"

// Without SA_RESTART. Fires every 30 ms, because the first signal may come before the call waits.
static void interrupting(void) {
  count_signal(SIGALRM, 0);
  alarm_every(30);
}

static void say_interrupted(void) {
  alarm_once(0);
  say("signals: %d", signals_counted() > 0);
}

// With SA_RESTART: a child sends signals, and then the awaited event.
static void restarting(void (*later)(int), int fd) {
  count_signal(SIGALRM, SA_RESTART);
  if (fork() == 0) {
    pause_ms(150);
    later(fd);
    _exit(0);
  }
  alarm_every(30);
}

static void sends(int fd) { send(fd, "late", 4, 0); }

static void reads_much(int fd) {
  static char bytes[1 << 16];
  while (read(fd, bytes, sizeof bytes) > 0) continue;
}

CASE(signal_receive, "recv(), read(), recvmsg() are interrupted") {
  int ends[2];
  char bytes[20];
  struct iovec in = {bytes, sizeof bytes};
  struct msghdr message = {.msg_iov = &in, .msg_iovlen = 1};
  streams(ends);
  interrupting();
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(read(ends[0], bytes, sizeof bytes));
  CALL(readv(ends[0], &in, 1));
  CALL(recvmsg(ends[0], &message, 0));
  CALL(recv(ends[0], bytes, sizeof bytes, MSG_PEEK));
  say_interrupted();
}

CASE(signal_receive_restarts, "recv() goes on with SA_RESTART") {
  int ends[2];
  char bytes[20];
  streams(ends);
  restarting(sends, ends[1]);
  say_bytes("late", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
  say_interrupted();
}

CASE(signal_read_restarts, "read() goes on with SA_RESTART") {
  int ends[2];
  char bytes[20];
  streams(ends);
  restarting(sends, ends[1]);
  say_bytes("late", bytes, CALL(read(ends[0], bytes, sizeof bytes)));
  say_interrupted();
}

// Sends from a socket of its own: sharing of inherited datagram sockets is tested elsewhere.
static void sends_to(int port) {
  union Address to;
  const socklen_t length = own_address(&to, port);
  sendto((int)MUST(socket(family, SOCK_DGRAM, 0)), "late", 4, 0, &to.any, length);
}

CASE(signal_receive_datagram, "recv() of datagrams is interrupted, and goes on with SA_RESTART") {
  char bytes[20];
  const int s = bound(SOCK_DGRAM);
  interrupting();
  CALL(recv(s, bytes, sizeof bytes, 0));
  CALL(recvfrom(s, bytes, sizeof bytes, 0, NULL, NULL));
  say_interrupted();
  restarting(sends_to, port_of(s));
  CALL(recv(s, bytes, sizeof bytes, 0));
  say_interrupted();
}

CASE(signal_receive_part, "an interrupted MSG_WAITALL returns the bytes received so far") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(send(ends[1], "abc", 3, 0));
  await_bytes(ends[0], 3);
  interrupting();
  say_bytes("part", bytes, CALL(recv(ends[0], bytes, sizeof bytes, MSG_WAITALL)));
  say_interrupted();
}

CASE(signal_receive_time, "recv() with SO_RCVTIMEO is interrupted even with SA_RESTART") {
  int ends[2];
  char bytes[20];
  const struct timeval time = {5, 0};
  streams(ends);
  CALL(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
  count_signal(SIGALRM, SA_RESTART);
  alarm_every(30);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  say_interrupted();
}

CASE(signal_send, "send() with nowhere to put it is interrupted") {
  int ends[2];
  static char bytes[1000];
  streams(ends);
  send_until_full(ends[0]);
  interrupting();
  CALL(send(ends[0], bytes, sizeof bytes, 0));
  CALL(write(ends[0], bytes, sizeof bytes));
  say_interrupted();
}

CASE(signal_send_part, "a large send() that is interrupted returns what was taken") {
  int ends[2];
  static char bytes[32 << 20];
  streams(ends);
  interrupting();
  const long taken = send(ends[0], bytes, sizeof bytes, 0);
  say("a part: %d", taken > 0 && taken < (long)sizeof bytes);
  say_interrupted();
}

CASE(signal_send_restarts, "send() goes on with SA_RESTART") {
  int ends[2];
  static char bytes[1000];
  streams(ends);
  send_until_full(ends[0]);
  restarting(reads_much, ends[1]);
  CALL(send(ends[0], bytes, sizeof bytes, 0));
  say_interrupted();
}

CASE(signal_accept, "accept() is interrupted") {
  const int listener = listening();
  interrupting();
  OPEN(accept(listener, NULL, NULL));
  OPEN(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
  say_interrupted();
}

// Calls from a socket of its own: on the inherited listener the child might serve the call itself.
static void calls(int port) {
  union Address to;
  const socklen_t length = own_address(&to, port);
  connect((int)MUST(socket(family, SOCK_STREAM, 0)), &to.any, length);
  pause_ms(300);
}

CASE(signal_accept_restarts, "accept() goes on with SA_RESTART") {
  const int listener = listening();
  restarting(calls, port_of(listener));
  OPEN(accept(listener, NULL, NULL));
  say_interrupted();
}

CASE(signal_connect, "connect() is interrupted, and goes on beneath") {
  union Address to;
  const int listener = listening_of(0);
  const socklen_t length = address_of(listener, &to);
  for (int i = 0; i < 3; ++i) connect(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0), &to.any, length);
  pause_ms(50);
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  count_signal(SIGALRM, 0);
  alarm_once(200);
  CALL(connect(s, &to.any, length));
  CALL(fcntl(s, F_SETFL, O_NONBLOCK));
  CALL(connect(s, &to.any, length));
  say_interrupted();
}

CASE(signal_poll, "poll(), select(), epoll_wait() are interrupted, with SA_RESTART too") {
  int ends[2];
  streams(ends);
  struct pollfd one = {ends[0], POLLIN, 0};
  struct epoll_event event = {EPOLLIN, {.u64 = 1}};
  const int e = (int)MUST(epoll_create1(0));
  MUST(epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &event));
  fd_set reads;
  for (int i = 0; i < 2; ++i) {
    count_signal(SIGALRM, i == 0 ? 0 : SA_RESTART);
    alarm_every(30);
    CALL(poll(&one, 1, -1));
    FD_ZERO(&reads);
    FD_SET(ends[0], &reads);
    CALL(select(ends[0] + 1, &reads, NULL, NULL, NULL));
    CALL(epoll_wait(e, &event, 1, -1));
    CALL(ppoll(&one, 1, NULL, NULL));
    CALL(pselect(ends[0] + 1, &reads, NULL, NULL, NULL, NULL));
    say_interrupted();
  }
}

// SIGUSR1 is blocked, except in `open`. The first of two streams is in `reads` and in the epoll set returned.
static int blocked_and_asked(int ends[2], sigset_t* open, fd_set* reads) {
  sigset_t blocked;
  struct epoll_event event = {EPOLLIN, {.u64 = 1}};
  streams(ends);
  const int e = (int)MUST(epoll_create1(0));
  MUST(epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &event));
  FD_ZERO(reads);
  FD_SET(ends[0], reads);
  sigemptyset(open);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  sigprocmask(SIG_BLOCK, &blocked, NULL);
  return e;
}

CASE(signal_masked, "ppoll(), pselect(), epoll_pwait() let a blocked signal through, and only then") {
  int ends[2];
  sigset_t open;
  struct epoll_event event;
  fd_set reads;
  const int e = blocked_and_asked(ends, &open, &reads);
  struct pollfd one = {ends[0], POLLIN, 0};
  count_signal(SIGUSR1, 0);
  CALL(kill(getpid(), SIGUSR1));
  CALL(poll(&one, 1, 20));
  say("signals: %d", signals_counted());
  CALL(ppoll(&one, 1, NULL, &open));
  say("signals: %d", signals_counted());
  CALL(kill(getpid(), SIGUSR1));
  CALL(epoll_pwait(e, &event, 1, -1, &open));
  say("signals: %d", signals_counted());
  CALL(kill(getpid(), SIGUSR1));
  CALL(pselect(ends[0] + 1, &reads, NULL, NULL, NULL, &open));
  say("signals: %d", signals_counted());
  sigprocmask(SIG_BLOCK, NULL, &open);
  say("blocked again: %d", sigismember(&open, SIGUSR1));
}

CASE(signal_masked_no_time, "what a mask lets through interrupts poll() and select() that have no time, but not epoll_pwait()") {
  int ends[2];
  const struct timespec none = {0, 0}, wrong = {0, 1000000000};
  sigset_t open;
  struct epoll_event event;
  fd_set reads;
  const int e = blocked_and_asked(ends, &open, &reads);
  struct pollfd one = {ends[0], POLLIN, 0};
  count_signal(SIGUSR1, SA_RESTART);
  CALL(ppoll(&one, 1, &none, &open));
  CALL(pselect(ends[0] + 1, &reads, NULL, NULL, &none, &open));
  CALL(kill(getpid(), SIGUSR1));
  CALL(poll(&one, 1, 0));
  CALL(epoll_pwait(e, &event, 1, 0, &open));
  say("signals: %d", signals_counted());
  one.events = POLLIN | POLLOUT;
  CALL(ppoll(&one, 1, &none, &open));
  say("signals: %d", signals_counted());
  one.events = POLLIN;
  CALL(ppoll(&one, 1, &none, &open));
  say("signals: %d", signals_counted());
  CALL(kill(getpid(), SIGUSR1));
  FD_SET(ends[0], &reads);
  CALL(pselect(ends[0] + 1, &reads, NULL, NULL, &none, &open));
  say("signals: %d", signals_counted());
  CALL(pselect(ends[0] + 1, &reads, NULL, NULL, &wrong, &open));
  CALL(epoll_pwait2(e, &event, 1, &wrong, &open));
}

CASE(signal_close_lingers, "close() with a linger time is not lost when it is interrupted") {
  int ends[2];
  const struct linger some = {1, 1};
  streams(ends);
  send_until_full(ends[0]);
  CALL(setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &some, sizeof some));
  interrupting();
  CALL(close(ends[0]));
  say_interrupted();
  OPTION(ends[0], SOL_SOCKET, SO_TYPE);
}

static int handler_fd;

static void uses_socket(int number) {
  (void)number;
  char bytes[4];
  // send() and recv() are async-signal-safe.
  if (send(handler_fd, "sig", 3, MSG_DONTWAIT) == 3) recv(handler_fd, bytes, sizeof bytes, MSG_DONTWAIT);
}

static void handler_uses_socket(int flags) {
  int ends[2];
  char bytes[20];
  streams(ends);
  handler_fd = ends[1];
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = uses_socket;
  action.sa_flags = SA_RESTART | flags;
  CALL(sigaction(SIGALRM, &action, NULL));
  alarm_once(50);
  say_bytes("from the handler", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
  CALL(close(ends[0]));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(signal_handler_uses_sockets, "a handler sends while a call of the same process waits") { handler_uses_socket(0); }

static void* uses_stack_above(void* above) {
  stack_t other = {.ss_sp = above, .ss_size = 64 << 10};
  MUST(sigaltstack(&other, NULL));
  handler_uses_socket(SA_ONSTACK);
  other.ss_flags = SS_DISABLE;
  MUST(sigaltstack(&other, NULL));
  return NULL;
}

CASE(signal_handler_on_other_stack, "... on a stack of its own, which is above the one of the thread") {
  char above[64 << 10];  // the main thread's stack lies above other threads' stacks
  pthread_t thread;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  thread = start(uses_stack_above, above);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  joined(thread);
}

CASE(signal_ignored, "SIGPIPE that is ignored, and that is blocked") {
  int ends[2];
  sigset_t set, pending;
  streams(ends);
  CALL(shutdown(ends[0], SHUT_WR));
  signal(SIGPIPE, SIG_IGN);
  CALL(write(ends[0], "x", 1));
  signal(SIGPIPE, SIG_DFL);
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  sigprocmask(SIG_BLOCK, &set, NULL);
  CALL(write(ends[0], "x", 1));
  sigpending(&pending);
  say("pending: %d", sigismember(&pending, SIGPIPE));
}

CASE(signal_urgent, "SIGURG to the owner of a socket when urgent data comes") {
  int ends[2];
  streams(ends);
  count_signal(SIGURG, 0);
  CALL(fcntl(ends[0], F_SETOWN, getpid()));
  CALL(send(ends[1], "X", 1, MSG_OOB));
  await(ends[0], POLLPRI);
  say_signals_since(0);
}

// ---- handlers that do more than count, while their thread is in a call or between two calls

static void exits(int number) {
  (void)number;
  exit(3);
}

CASE(signal_pipe_exits, "SIGPIPE's handler calls exit()") {
  int ends[2];
  streams(ends);
  CALL(shutdown(ends[0], SHUT_WR));
  signal(SIGPIPE, exits);
  CALL(write(ends[0], "x", 1));
}

static int pipe_ends[2];

static void uses_and_closes(int number) {
  (void)number;
  char bytes[8];
  CALL(write(pipe_ends[0], "from it", 7));
  say_bytes("in the handler", bytes, CALL(recv(pipe_ends[1], bytes, 7, MSG_WAITALL)));
  CALL(close(handler_fd));
  errno = EDOM;
}

CASE(signal_pipe_uses_sockets, "SIGPIPE's handler writes to other sockets, and closes the one that it is of: the call says EPIPE") {
  int ends[2];
  char bytes[4];
  streams(ends);
  streams(pipe_ends);
  handler_fd = ends[0];
  CALL(shutdown(ends[0], SHUT_WR));
  signal(SIGPIPE, uses_and_closes);
  CALL(write(ends[0], "x", 1));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  CALL(write(ends[0], "x", 1));
}

// Passes bytes from one end to the other without a pause, so that the thread is always in or near a call.
static void bustle(const int ends[2]) {
  static char bytes[2000];
  while (send(ends[0], bytes, sizeof bytes, 0) > 0) {
    for (size_t got = 0; got < sizeof bytes;) {
      const ssize_t more = recv(ends[1], bytes, sizeof bytes - got, 0);
      if (more <= 0) return;
      got += (size_t)more;
    }
  }
}

static int handled, handled_wrong;

static void converses(int number) {
  (void)number;
  char bytes[4] = "";
  if (handled == 100) return;  // a signal that comes before the interrupted call returns
  handled_wrong += write(pipe_ends[0], "sig", 3) != 3;
  handled_wrong += recv(pipe_ends[1], bytes, 3, MSG_WAITALL) != 3 || strcmp(bytes, "sig") != 0;
  if (++handled == 100) shutdown(handler_fd, SHUT_RDWR);
}

// Runs bustle() until the handler, called every `every_ms`, shuts the connection down.
static void bustle_under(void (*handler)(int), int every_ms) {
  int ends[2];
  streams(ends);
  handler_fd = ends[0];
  signal(SIGPIPE, SIG_IGN);
  signal(SIGALRM, handler);
  alarm_every(every_ms);
  bustle(ends);
  alarm_once(0);
  say("handled: %d, wrong: %d", handled, handled_wrong);
}

CASE(signal_busy_uses_sockets, "a handler sends and receives a hundred times while its thread is busy with other sockets") {
  streams(pipe_ends);
  bustle_under(converses, 2);
}

static void busy_until_exit(int unused) {
  (void)unused;
  int ends[2];
  streams(ends);
  signal(SIGALRM, exits);
  alarm_once(3);
  bustle(ends);
}

CASE(signal_busy_exits, "a handler calls exit() while its thread is busy, twenty times") {
  for (int i = 0; i < 20; ++i) say_ended("it", child(busy_until_exit, 0));
}

static sigjmp_buf back;

static void jumps(int number) {
  (void)number;
  siglongjmp(back, 1);
}

CASE(signal_busy_jumps, "a handler leaves by siglongjmp() while its thread is busy, a hundred times") {
  static int jumped;
  int ends[2];
  char bytes[20];
  signal(SIGALRM, jumps);
  while (sigsetjmp(back, 1) != 0) ++jumped;
  if (jumped < 100) {
    streams(ends);
    alarm_once(2);
    bustle(ends);
  }
  say("jumped: %d", jumped);
  streams(ends);
  CALL(send(ends[1], "abc", 3, 0));
  say_bytes("received", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
}

static void forks(int number) {
  (void)number;
  if (handled == 20) return;
  const pid_t pid = fork();
  if (pid == 0) _exit(5);
  int status = 0;
  handled_wrong += waitpid(pid, &status, 0) != pid || status != 5 << 8;
  if (++handled == 20) shutdown(handler_fd, SHUT_RDWR);
}

CASE(signal_busy_forks, "a handler calls fork() twenty times while its thread is busy") { bustle_under(forks, 5); }

static void sends_pieces(int number) {
  (void)number;
  static char bytes[4096];
  struct iovec pieces[] = {{bytes, 2048}, {bytes + 2048, 2048}};
  const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
  handled_wrong += sendmsg(pipe_ends[0], &message, 0) != sizeof bytes;
  ++handled;
}

static long read_late, read_wrong;

static void* reads_later(void* fd) {
  static char bytes[60000];
  long more;
  pause_ms(150);
  while ((more = recv(*(int*)fd, bytes, sizeof bytes, 0)) > 0) {
    for (long i = 0; i < more; ++i) read_wrong += bytes[i] != 'x';
    read_late += more;
  }
  return NULL;
}

CASE(signal_handler_sends_pieces, "a handler calls sendmsg() while its thread waits in sendmsg()") {
  static char bytes[60000];
  int ends[2];
  sigset_t alarms;
  struct iovec pieces[] = {{bytes, 30000}, {bytes + 30000, 30000}};
  const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
  memset(bytes, 'x', sizeof bytes);
  streams(ends);
  streams(pipe_ends);
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  sigprocmask(SIG_BLOCK, &alarms, NULL);
  const pthread_t reader = start(reads_later, &ends[1]);
  sigprocmask(SIG_UNBLOCK, &alarms, NULL);
  while (send(ends[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
  signal(SIGALRM, sends_pieces);
  alarm_once(50);
  CALL(sendmsg(ends[0], &message, 0));
  say("handled: %d, wrong: %d", handled, handled_wrong);
  CALL(shutdown(ends[0], SHUT_WR));
  joined(reader);
  say("read some: %d, wrong: %ld", read_late > 0, read_wrong);
}

// ---- sigaction() returns what it was given, and handlers get the right arguments

static void is_told(int number, siginfo_t* info, void* context) {
  struct sigaction action;
  sigset_t mask;
  sigaction(number, NULL, &action);
  sigprocmask(SIG_BLOCK, NULL, &mask);
  say("%s, code %d, value %d, context %d, to come again %d, masked %d %d", signal_name(number), info->si_code, info->si_value.sival_int,
      context != NULL, action.sa_sigaction == is_told, sigismember(&mask, number), sigismember(&mask, SIGUSR2));
}

CASE(signal_action, "sigaction() tells what it was told; SA_SIGINFO, SA_RESETHAND, SA_NODEFER and the mask of a handler") {
  static const int all[] = {SA_SIGINFO, SA_SIGINFO | SA_RESETHAND, SA_SIGINFO | SA_NODEFER, SA_SIGINFO | SA_RESTART};
  for (int i = 0; i < 4; ++i) {
    struct sigaction action, told;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = is_told;
    action.sa_flags = all[i];
    sigaddset(&action.sa_mask, SIGUSR2);
    CALL(sigaction(SIGUSR1, &action, &told));
    CALL(sigaction(SIGUSR1, NULL, &told));
    say("the same: %d, flags: %x, mask: %d", told.sa_sigaction == is_told, (unsigned)told.sa_flags & ~0x4000000u,
        sigismember(&told.sa_mask, SIGUSR2));
    CALL(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 42 + i}));
  }
  say("before: %d", signal(SIGUSR1, exits) == (sighandler_t)(void*)is_told);
  say("before: %d", signal(SIGUSR1, SIG_IGN) == exits);
  say("before: %d", signal(SIGUSR1, SIG_DFL) == SIG_IGN);
  CALL(sigaction(SIGKILL, &(struct sigaction){.sa_handler = exits}, NULL));
  CALL(sigaction(99, &(struct sigaction){.sa_handler = exits}, NULL));
}

CASE(signal_siginterrupt, "siginterrupt() and sysv_signal(): the handler ends calls, though signal()'s does not") {
  int ends[2];
  char bytes[20];
  streams(ends);
  count_signal(SIGALRM, SA_RESTART);
  CALL(siginterrupt(SIGALRM, 1));
  alarm_every(30);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  struct sigaction counts;
  sigaction(SIGALRM, NULL, &counts);
  signal(SIGALRM, counts.sa_handler);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  alarm_once(0);
  CALL(siginterrupt(SIGALRM, 0));
  sysv_signal(SIGALRM, counts.sa_handler);
  alarm_once(30);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  say("once: %d", signal(SIGALRM, SIG_IGN) == SIG_DFL);
}

THEME(signals, &signal_receive, &signal_receive_restarts, &signal_read_restarts, &signal_receive_datagram,
      &signal_receive_part, &signal_receive_time, &signal_send, &signal_send_part, &signal_send_restarts,
      &signal_accept, &signal_accept_restarts, &signal_connect, &signal_poll, &signal_masked, &signal_masked_no_time, &signal_close_lingers,
      &signal_handler_uses_sockets, &signal_handler_on_other_stack,
      &signal_ignored, &signal_urgent,
      &signal_pipe_exits, &signal_pipe_uses_sockets, &signal_busy_uses_sockets, &signal_busy_exits,
      &signal_busy_jumps, &signal_busy_forks, &signal_handler_sends_pieces,
      &signal_action, &signal_siginterrupt);
