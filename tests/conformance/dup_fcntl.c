// dup_fcntl.c - cases of duplicates and of flags: dup(), dup2(), dup3(), fcntl().
#include "tests/conformance/conformance.h"

CASE(dup_shares, "a duplicate is the same socket: bytes, options, names, and flags of the file") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const int copy = OPEN(dup(ends[0]));
  nonblocking(copy);
  say("O_NONBLOCK: %d", (fcntl(ends[0], F_GETFL) & O_NONBLOCK) != 0);
  SET(copy, IPPROTO_TCP, TCP_NODELAY, 1);
  OPTION(ends[0], IPPROTO_TCP, TCP_NODELAY);
  CALL(send(ends[1], "abcdef", 6, 0));
  await_bytes(copy, 6);
  say_bytes("copy", bytes, CALL(recv(copy, bytes, 3, 0)));
  say_bytes("first", bytes, CALL(recv(ends[0], bytes, 3, 0)));
  CALL(close(ends[0]));
  CALL(send(copy, "still", 5, 0));
  say_bytes("peer", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  CALL(close(copy));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(dup_own_descriptor_flags, "FD_CLOEXEC is of each descriptor") {
  const int s = OPEN(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CALL(fcntl(dup(s), F_GETFD));
  CALL(fcntl(fcntl(s, F_DUPFD, 0), F_GETFD));
  CALL(fcntl(fcntl(s, F_DUPFD_CLOEXEC, 0), F_GETFD));
  CALL(fcntl(dup3(s, 50, O_CLOEXEC), F_GETFD));
  CALL(fcntl(dup3(s, 51, 0), F_GETFD));
  CALL(fcntl(dup2(s, 52), F_GETFD));
  CALL(fcntl(s, F_SETFD, 0));
  CALL(fcntl(s, F_GETFD));
  CALL(fcntl(50, F_GETFD));
}

CASE(dup_numbers, "the numbers that dup(), dup2() and F_DUPFD give") {
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  say("dup: the next: %d", dup(s) == s + 1);
  CALL(dup2(s, 40));
  CALL(dup2(s, s) == s);
  CALL(fcntl(s, F_DUPFD, 60));
  CALL(fcntl(s, F_DUPFD, 60));
  CALL(fcntl(s, F_DUPFD_CLOEXEC, 40));
  CALL(dup3(s, s, 0));
  CALL(dup3(s, 70, 0x7fffffff));
  CALL(dup2(s, -1));
  CALL(dup2(-1, 5));
  CALL(fcntl(s, F_DUPFD, -1));
  CALL(fcntl(s, F_DUPFD, 100000000));
}

CASE(dup_over_a_socket, "dup2() of a socket over another closes it") {
  int one[2], two[2];
  char bytes[20];
  streams(one);
  streams(two);
  CALL(dup2(one[0], two[0]) == two[0]);
  CALL(recv(two[1], bytes, sizeof bytes, 0));
  CALL(send(two[0], "abc", 3, 0));
  say_bytes("first's peer", bytes, CALL(recv(one[1], bytes, sizeof bytes, 0)));
}

CASE(dup_nothing_over_a_socket, "dup2() and dup3() that fail leave the socket at the number alone") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(dup2(777, ends[1]));
  CALL(dup3(777, ends[1], O_CLOEXEC));
  CALL(dup3(ends[0], ends[1], O_APPEND));
  CALL(send(ends[0], "abc", 3, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  say_names("socket", ends[1]);
}

CASE(dup_file_over_a_socket, "dup2() of a file over a socket: a file, and the peer hears the end") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const int file = open("/dev/zero", O_RDONLY);
  CALL(dup2(file, ends[0]) == ends[0]);
  CALL(read(ends[0], bytes, 4));
  CALL(send(ends[0], bytes, 4, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(dup_socket_over_a_file, "dup2() of a socket over stdin and a file, as inetd does") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const int file = open("/dev/null", O_RDWR);
  CALL(dup2(ends[0], STDIN_FILENO));
  CALL(dup2(ends[0], file) == file);
  CALL(close(ends[0]));
  CALL(send(ends[1], "abcdef", 6, 0));
  await_bytes(STDIN_FILENO, 6);
  say_bytes("stdin", bytes, CALL(read(STDIN_FILENO, bytes, 3)));
  say_bytes("file", bytes, CALL(read(file, bytes, 3)));
  CALL(write(file, "out", 3));
  say_bytes("peer", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(dup_listener, "a duplicate of a listener accepts") {
  const int listener = listening();
  const int copy = OPEN(dup(listener));
  CALL(close(listener));
  const int client = connected(copy);
  OPEN(accept(copy, NULL, NULL));
  say_names("client", client);
}

CASE(dup_datagram, "a duplicate of a datagram socket") {
  int ends[2];
  char bytes[20];
  datagrams(ends);
  const int copy = OPEN(dup(ends[0]));
  CALL(close(ends[0]));
  CALL(send(copy, "abc", 3, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  CALL(send(ends[1], "def", 3, 0));
  CALL(recv(copy, bytes, sizeof bytes, 0));
}

CASE(dup_shutdown, "shutdown() of a duplicate is of the connection") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const int copy = OPEN(dup(ends[0]));
  CALL(shutdown(copy, SHUT_WR));
  CALL(send(ends[0], "x", 1, MSG_NOSIGNAL));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(fcntl_flags, "F_SETFL takes what can be changed") {
  int ends[2];
  streams(ends);
  CALL(fcntl(ends[0], F_SETFL, O_NONBLOCK | O_APPEND));
  say("flags %o", (unsigned)fcntl(ends[0], F_GETFL));
  CALL(fcntl(ends[0], F_SETFL, O_RDONLY));
  say("flags %o", (unsigned)fcntl(ends[0], F_GETFL));
  CALL(fcntl(ends[0], F_SETFL, O_NONBLOCK | O_CLOEXEC | O_TRUNC));
  say("flags %o", (unsigned)fcntl(ends[0], F_GETFL));
  CALL(fcntl(ends[0], F_SETFL, O_ASYNC));
  say("flags %o", (unsigned)fcntl(ends[0], F_GETFL));
}

CASE(fcntl_others, "F_GETOWN, F_SETOWN, F_SETSIG, locks, pipe sizes and commands that there are not") {
  struct flock lock = {.l_type = F_WRLCK};
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(fcntl(s, F_GETOWN));
  CALL(fcntl(s, F_SETOWN, getpid()));
  say("own: %d", fcntl(s, F_GETOWN) == getpid());
  CALL(fcntl(s, F_GETSIG));
  CALL(fcntl(s, F_SETSIG, SIGUSR1));
  CALL(fcntl(s, F_GETSIG) == SIGUSR1);
  CALL(fcntl(s, F_SETLK, &lock));
  CALL(fcntl(s, F_GETPIPE_SZ));
  CALL(fcntl(s, 7777, 0));
  CALL(fcntl(s, F_SETFD, 77));
  CALL(fcntl(s, F_GETFD));
}

CASE(fcntl_sigio, "O_ASYNC and F_SETOWN: SIGIO when data comes, and the end of it") {
  int ends[2];
  char bytes[8];
  streams(ends);
  count_signal(SIGIO, 0);
  CALL(fcntl(ends[0], F_SETOWN, getpid()));
  CALL(fcntl(ends[0], F_SETFL, O_ASYNC));
  int before = signals_counted();
  CALL(send(ends[1], "abc", 3, 0));
  say_signals_since(before);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  before = signals_counted();
  CALL(send(ends[1], "def", 3, 0));
  say_signals_since(before);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  before = signals_counted();
  CALL(shutdown(ends[1], SHUT_WR));
  say_signals_since(before);
}

CASE(fcntl_sigio_drawn, "clearing O_ASYNC stops SIGIO; a socket without an owner sends none") {
  int ends[2];
  streams(ends);
  count_signal(SIGIO, 0);
  CALL(fcntl(ends[1], F_SETFL, O_ASYNC));
  CALL(fcntl(ends[0], F_SETOWN, getpid()));
  CALL(fcntl(ends[0], F_SETFL, O_ASYNC));
  CALL(fcntl(ends[0], F_SETFL, 0));
  CALL(send(ends[1], "abc", 3, 0));
  CALL(send(ends[0], "abc", 3, 0));
  await(ends[0], POLLIN);
  await(ends[1], POLLIN);
  pause_ms(50);
  say("signals: %d", signals_counted());
}

CASE(fcntl_sigio_others, "SIGIO of a listener, of datagrams by FIOASYNC, and of a connection that is made") {
  int ends[2], on = 1;
  const int listener = listening();
  count_signal(SIGIO, SA_RESTART);
  CALL(fcntl(listener, F_SETOWN, getpid()));
  CALL(fcntl(listener, F_SETFL, O_ASYNC));
  int before = signals_counted();
  const int caller = connected(listener);
  say_signals_since(before);
  CALL(fcntl(accepted(listener), F_GETFL) & O_ASYNC);
  datagrams(ends);
  CALL(fcntl(ends[0], F_SETOWN, getpid()));
  CALL(ioctl(ends[0], FIOASYNC, &on));
  before = signals_counted();
  CALL(send(ends[1], "abc", 3, 0));
  say_signals_since(before);
  CALL(close(caller));
}

CASE(fcntl_sigio_own, "what a program sends and reads itself is no SIGIO for it, nor what its peer reads of it") {
  int ends[2], on = 1;
  char bytes[8];
  streams(ends);
  count_signal(SIGIO, SA_RESTART);
  CALL(send(ends[1], "abcdef", 6, 0));
  await(ends[0], POLLIN);
  CALL(fcntl(ends[0], F_SETOWN, getpid()));
  CALL(fcntl(ends[0], F_SETFL, O_ASYNC));
  CALL(send(ends[0], "abc", 3, 0));
  CALL(recv(ends[0], bytes, 2, 0));
  CALL(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  pause_ms(50);
  CALL(recv(ends[0], bytes, 2, 0));
  say("signals: %d", signals_counted());
  const int before = signals_counted();
  CALL(send(ends[1], "abc", 3, 0));  // behind the unread data
  say_signals_since(before);
  const int own = signals_counted();
  CALL(shutdown(ends[0], SHUT_RD));
  pause_ms(50);
  say("by shutdown: %d", signals_counted() - own);
}

CASE(fcntl_sigio_urgent, "SIGIO of an urgent byte, and of the peer that goes without reading what waits for it") {
  int ends[2];
  streams(ends);
  count_signal(SIGIO, SA_RESTART);
  CALL(fcntl(ends[0], F_SETOWN, getpid()));
  CALL(fcntl(ends[0], F_SETFL, O_ASYNC));
  int before = signals_counted();
  CALL(send(ends[1], "a", 1, MSG_OOB));
  say_signals_since(before);
  CALL(send(ends[0], "abc", 3, 0));
  await(ends[1], POLLIN);
  before = signals_counted();
  CALL(close(ends[1]));
  say_signals_since(before);
}

CASE(fcntl_sigio_room, "SIGIO when a full socket has room again") {
  static char bytes[64 * 1024];
  int ends[2];
  ssize_t got;
  streams(ends);
  count_signal(SIGIO, SA_RESTART);
  CALL(fcntl(ends[0], F_SETOWN, getpid()));
  CALL(fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK));
  do {
    while (send(ends[0], bytes, sizeof bytes, 0) > 0);
    pause_ms(50);
  } while (send(ends[0], bytes, sizeof bytes, 0) > 0);
  const int before = signals_counted();
  nonblocking(ends[1]);
  for (int i = 0; i < 100 && signals_counted() == before; ++i) {
    while ((got = recv(ends[1], bytes, sizeof bytes, 0)) > 0);
    pause_ms(10);
  }
  say("some: %d", signals_counted() > before);
}

// The child's exit status is 0 if SIGIO came.
static pid_t waits_for_sigio(int s, int pipe_in) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  count_signal(SIGIO, SA_RESTART);
  fcntl(s, F_SETOWN, getpid());
  fcntl(s, F_SETFL, O_ASYNC);
  const int before = signals_counted();
  if (write(pipe_in, "x", 1) != 1) _exit(2);
  for (int i = 0; i < 200 && signals_counted() == before; ++i) pause_ms(10);
  _exit(signals_counted() == before);
}

CASE(fcntl_sigio_child, "a child waits by SIGIO for what comes at its parent's listener, and at its datagram socket") {
  int pipes[2], status = -1;
  char byte;
  MUST(pipe(pipes));
  const int listener = listening();
  pid_t pid = waits_for_sigio(listener, pipes[1]);
  CALL(read(pipes[0], &byte, 1));
  CALL(close(connected(listener)));
  MUST(waitpid(pid, &status, 0));
  say("status: %d", status);
  const int s = bound(SOCK_DGRAM), client = bound(SOCK_DGRAM);
  union Address to;
  const socklen_t length = address_of(s, &to);
  pid = waits_for_sigio(s, pipes[1]);
  CALL(read(pipes[0], &byte, 1));
  CALL(sendto(client, "abc", 3, 0, &to.any, length));
  MUST(waitpid(pid, &status, 0));
  say("status: %d", status);
}

static _Atomic int told_fd = -1, told_band;

static void keep_what_is_told(int number, siginfo_t* info, void* context) {
  (void)number;
  (void)context;
  told_band = (int)info->si_band;
  told_fd = info->si_fd;
}

CASE(fcntl_setsig, "F_SETSIG: another signal, which says of which descriptor, to a thread") {
  int ends[2];
  const struct f_owner_ex owner = {.type = F_OWNER_TID, .pid = gettid()};
  const struct sigaction action = {.sa_sigaction = keep_what_is_told, .sa_flags = SA_SIGINFO};
  streams(ends);
  MUST(sigaction(SIGRTMIN, &action, NULL));
  CALL(fcntl(ends[0], F_SETSIG, SIGRTMIN));
  CALL(fcntl(ends[0], F_SETOWN_EX, &owner));
  CALL(fcntl(ends[0], F_SETFL, O_ASYNC));
  CALL(send(ends[1], "abc", 3, 0));
  for (int i = 0; i < 100 && told_fd < 0; ++i) pause_ms(10);
  say("of it: %d, to read: %d", told_fd == ends[0], (told_band & POLLIN) != 0);
  say("band: %#x", told_band);
  // si_fd names the descriptor on which O_ASYNC was set.
  char bytes[8];
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  const int other = dup(ends[0]);
  CALL(fcntl(ends[0], F_SETFL, 0));
  CALL(fcntl(other, F_SETFL, O_ASYNC));
  told_fd = -1;
  CALL(send(ends[1], "abc", 3, 0));
  for (int i = 0; i < 100 && told_fd < 0; ++i) pause_ms(10);
  say("of the other: %d", told_fd == other);
}

CASE(dup2_high, "dup2() to numbers far above those in use") {
  int ends[2], pipes[2], others = 0;
  streams(ends);
  await(ends[0], POLLOUT);
  MUST(pipe(pipes));
  for (int number = 900; number < 1000; ++number) others += dup2(pipes[1], number) != number;
  say("not there: %d", others);
}

CASE(dup2_high_goes_on, "dup2() to numbers far above those in use: sockets go on, and no data goes to the wrong file") {
  int ends[2], pipes[2];
  char bytes[20];
  streams(ends);
  await(ends[0], POLLOUT);
  MUST(pipe(pipes));
  for (int number = 900; number < 1000; ++number) dup2(pipes[1], number);
  CALL(send(ends[0], "abc", 3, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  CALL(send(ends[1], "abc", 3, 0));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  nonblocking(pipes[0]);
  CALL(read(pipes[0], bytes, sizeof bytes));
}

static void receives_and_ends(int listener) {
  char bytes[20];
  const int client = connected(listener);
  _exit((int)recv(client, bytes, sizeof bytes, 0));
}

CASE(dup2_high_between, "dup2() to numbers far above those in use, between two processes, of which the other waits") {
  int pipes[2];
  char bytes[20];
  const int listener = listening();
  const pid_t pid = child(receives_and_ends, listener);
  const int server = accepted(listener);
  MUST(pipe(pipes));
  nonblocking(pipes[0]);
  pause_ms(300);
  for (int number = 900; number < 1000; ++number) dup2(pipes[1], number);
  CALL(send(server, "abc", 3, 0));
  say_ended("receiver", pid);
  CALL(read(pipes[0], bytes, sizeof bytes));
}

THEME(dup_fcntl, &dup_shares, &dup_own_descriptor_flags, &dup_numbers, &dup_over_a_socket, &dup_nothing_over_a_socket,
      &dup_file_over_a_socket, &dup_socket_over_a_file, &dup_listener, &dup_datagram, &dup_shutdown, &fcntl_flags, &fcntl_others,
      &fcntl_sigio, &fcntl_sigio_drawn, &fcntl_sigio_others, &fcntl_sigio_own, &fcntl_sigio_urgent, &fcntl_sigio_room,
      &fcntl_sigio_child, &fcntl_setsig, &dup2_high, &dup2_high_goes_on,
      &dup2_high_between);
