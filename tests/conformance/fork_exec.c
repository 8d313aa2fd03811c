// fork_exec.c - cases of sockets that children inherit, and of sockets that stay open or close at exec().
#include <spawn.h>
#include <sys/epoll.h>

#include "tests/conformance/conformance.h"

extern char** environ;

CASE(fork_connection, "a child uses the connection that its parent opened") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const pid_t pid = child(echoes, ends[1]);
  CALL(close(ends[1]));
  CALL(send(ends[0], "abc", 3, 0));
  say_bytes("echo", bytes, CALL(recv(ends[0], bytes, 3, MSG_WAITALL)));
  CALL(shutdown(ends[0], SHUT_WR));
  say_ended("child", pid);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
}

static void sends_x(int fd) { send(fd, "x", 1, 0); }

CASE(fork_both_use, "parent and child use the same end in turn") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(send(ends[0], "a", 1, 0));
  say_ended("child", child(sends_x, ends[0]));
  CALL(send(ends[0], "b", 1, 0));
  say_bytes("in order", bytes, CALL(recv(ends[1], bytes, 3, MSG_WAITALL)));
  CALL(send(ends[1], "c", 1, 0));
  CALL(recv(ends[0], bytes, 1, 0));
}

CASE(fork_close_is_not_end, "close() by the child is not the end while the parent has it") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    _exit(0);
  }
  say_ended("child", pid);
  pause_ms(30);
  say_ready("peer", ends[1]);
  CALL(send(ends[0], "abc", 3, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  CALL(close(ends[0]));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(fork_parent_closes, "the parent closes, the child goes on; its exit is the end") {
  int ends[2], pipes[2];
  char bytes[20];
  streams(ends);
  MUST(pipe(pipes));
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[1]);
    if (read(pipes[0], bytes, 1) == 1) send(ends[0], "child", 5, 0);
    _exit(0);
  }
  CALL(close(ends[0]));
  pause_ms(30);
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
  CALL(write(pipes[1], "x", 1));
  say_bytes("from the child", bytes, CALL(recv(ends[1], bytes, 5, MSG_WAITALL)));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  say_ended("child", pid);
}

CASE(fork_shutdown_is_end, "shutdown() by the child is the end for all") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const pid_t pid = fork();
  if (pid == 0) {
    shutdown(ends[0], SHUT_WR);
    _exit(0);
  }
  say_ended("child", pid);
  CALL(send(ends[0], "x", 1, MSG_NOSIGNAL));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

static void accepts_and_echoes(int listener) {
  const int s = accept(listener, NULL, NULL);
  close(listener);
  echoes(s);
}

CASE(fork_listener, "a child accepts from the listener that its parent opened") {
  const int listener = listening();
  const pid_t pid = child(accepts_and_echoes, listener);
  say_echoes(connected(listener), 1);
  say_ended("child", pid);
}

static void listens_and_echoes(int fd) {
  if (listen(fd, 5) == 0) accepts_and_echoes(fd);
}

// A client that retries until the child listens.
static void call_late(const union Address* to, socklen_t length) {
  char bytes[20];
  int client = -1, result = -1;
  for (int i = 0; i < 2000 && result != 0; ++i) {
    if (client >= 0) close(client);
    client = (int)MUST(socket(family, SOCK_STREAM, 0));
    result = connect(client, &to->any, length);
    if (result != 0) pause_ms(10);
  }
  say("connected: %d", result);
  CALL(send(client, "abc", 3, 0));
  say_bytes("echo", bytes, CALL(recv(client, bytes, 3, MSG_WAITALL)));
}

CASE(fork_bound, "a child listens at what its parent has bound") {
  union Address to;
  const int s = bound(SOCK_STREAM);
  const socklen_t length = address_of(s, &to);
  child(listens_and_echoes, s);
  call_late(&to, length);
}

static void leaves_a_daemon(int fd) {
  union Address to;
  const int s = bound(SOCK_STREAM);
  const socklen_t length = address_of(s, &to);
  if (write(fd, &to, length) != (ssize_t)length) _exit(1);
  if (fork() != 0) _exit(0);
  setsid();
  alarm(60);  // ends it if no client calls
  pause_ms(50);  // until its parent has exited
  listens_and_echoes(s);
}

CASE(fork_bound_daemon, "a server that becomes a daemon between bind() and listen()") {
  union Address to;
  int pipes[2];
  MUST(pipe(pipes));
  const pid_t pid = child(leaves_a_daemon, pipes[1]);
  const long length = MUST(read(pipes[0], &to, sizeof to));
  say_ended("the first child", pid);
  call_late(&to, (socklen_t)length);
}

CASE(fork_bound_connects, "a child calls from what its parent has bound") {
  union Address own, peer;
  const int s = bound(SOCK_STREAM), listener = listening();
  address_of(s, &own);
  const socklen_t length = address_of(listener, &peer);
  const int port = port_of(s);
  const pid_t pid = fork();
  if (pid == 0) _exit(connect(s, &peer.any, length) == 0 && port_of(s) == port ? 0 : 1);
  accepted(listener);
  say_ended("child", pid);
}

CASE(fork_ended, "a child reads what is left of a connection that both ends have ended") {
  int ends[2];
  char bytes[20];
  streams(ends);
  MUST(send(ends[0], "abc", 3, 0));
  CALL(shutdown(ends[0], SHUT_WR));
  CALL(shutdown(ends[1], SHUT_WR));
  await_bytes(ends[1], 3);
  pause_ms(30);
  const pid_t pid = fork();
  if (pid == 0) _exit(recv(ends[1], bytes, sizeof bytes, 0) == 3 && recv(ends[1], bytes, sizeof bytes, 0) == 0 ? 0 : 1);
  say_ended("child", pid);
}

CASE(fork_workers, "three children accept from one listener: all connections are served") {
  const int listener = listening();
  pid_t workers[3];
  int right = 0;
  for (int i = 0; i < 3; ++i) {
    if ((workers[i] = fork()) != 0) continue;
    for (;;) {
      const int s = accept(listener, NULL, NULL);
      echoes(s);
      close(s);
    }
  }
  for (int i = 0; i < 12; ++i) {
    char bytes[4] = "";
    const int client = connected(listener);
    send(client, "abc", 3, 0);
    right += recv(client, bytes, 3, MSG_WAITALL) == 3 && memcmp(bytes, "abc", 3) == 0;
    close(client);
  }
  say("right: %d", right);
  for (int i = 0; i < 3; ++i) kill(workers[i], SIGKILL);
}

// Serves one connection after another. 's' makes it sleep for good, 'w' makes it wait for more data of that client.
static void answers_or_is_busy(int listener) {
  for (;;) {
    char what = 0;
    const int s = accept(listener, NULL, NULL);
    if (recv(s, &what, 1, 0) == 1 && what == 's') pause();
    if (what == 'w') while (recv(s, &what, 1, 0) == 1) {}
    send(s, &what, 1, 0);
    close(s);
  }
}

static int calls_twelve(int listener) {
  int right = 0, clients[12];
  for (int i = 0; i < 12; ++i) MUST(send(clients[i] = connected(listener), "e", 1, 0));
  for (int i = 0; i < 12; ++i) {
    char byte = 0;
    right += recv(clients[i], &byte, 1, 0) == 1 && byte == 'e';
    close(clients[i]);
  }
  return right;
}

static void makes_busy_and_calls(int listener) {
  MUST(send(connected(listener), "s", 1, 0));
  pause_ms(200);
  say("right: %d", calls_twelve(listener));
  MUST(send(connected(listener), "w", 1, 0));
  pause_ms(200);
  say("right: %d", calls_twelve(listener));
}

static void makes_both_busy_and_calls(int listener) {
  const int first = connected(listener), second = connected(listener);
  pause_ms(50);
  MUST(send(first, "w", 1, 0));
  MUST(send(second, "s", 1, 0));
  pause_ms(200);
  say("right: %d", calls_twelve(listener) + calls_twelve(listener));
}

static void with_three_workers(void (*body)(int)) {
  const int listener = listening();
  pid_t workers[3];
  for (int i = 0; i < 3; ++i) workers[i] = child(answers_or_is_busy, listener);
  say_ended("who calls", child(body, listener));
  for (int i = 0; i < 3; ++i) kill(workers[i], SIGKILL);
}

CASE(fork_busy_workers, "three children accept from one listener, and two are busy for good: all other connections are served") {
  with_three_workers(makes_busy_and_calls);
}

CASE(fork_busy_at_once, "three children accept from one listener, and two become busy at once") {
  with_three_workers(makes_both_busy_and_calls);
}

// The parent is stopped between accept() and close(). The kernel does not need the parent here; the library must not either.
static void closes_what_is_in_its_set(int listener) {
  int told = 0;
  const int set = (int)MUST(epoll_create1(0));
  for (int i = 0; i < 8; ++i) {
    char byte;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)i};
    const int s = (int)MUST(accept(listener, NULL, NULL));
    MUST(kill(getppid(), SIGSTOP));
    MUST(epoll_ctl(set, EPOLL_CTL_ADD, s, &event));
    recv(s, &byte, 1, MSG_DONTWAIT);  // data that the stopped parent carries does not arrive now
    MUST(close(s));
    told += epoll_wait(set, &event, 1, 60);
    MUST(kill(getppid(), SIGCONT));
  }
  say("told: %d", told);
}

static int have_called[2];

static void calls_and_goes_on(int listener) {
  int clients[8];
  MUST(send(connected(listener), "s", 1, 0));
  pause_ms(50);
  for (int i = 0; i < 8; ++i) clients[i] = connected(listener);
  MUST(write(have_called[1], "x", 1));
  for (;;) {
    for (int i = 0; i < 8; ++i) send(clients[i], "e", 1, MSG_NOSIGNAL);
    pause_ms(5);
  }
}

CASE(fork_closed_in_set, "an epoll set tells nothing of a connection that was closed: also of one that came to a child that is busy") {
  char byte;
  const int listener = listening();
  MUST(pipe(have_called));
  const pid_t busy = child(answers_or_is_busy, listener), caller = child(calls_and_goes_on, listener);
  MUST(read(have_called[0], &byte, 1));
  say_ended("who serves", child(closes_what_is_in_its_set, listener));
  kill(busy, SIGKILL);
  kill(caller, SIGKILL);
}

// ---- a child that closes the listener, and gets no core then

static union Address listens_at;
static socklen_t listens_at_length;
static int calls_were_made[2];
enum { kBeforeSecondSyn = 900 };  // ms: a connection in this time needed one SYN

static void accepts_closes_and_stops(int listener) {
  MUST(accept(listener, NULL, NULL));
  close(listener);
  raise(SIGSTOP);
}

static void calls_eight(int listener) {
  int made = 0;
  close(listener);
  for (int i = 0; i < 8; ++i) {
    struct pollfd client = {.fd = (int)MUST(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0)), .events = POLLOUT};
    connect(client.fd, &listens_at.any, listens_at_length);
    made += poll(&client, 1, kBeforeSecondSyn) == 1 && client.revents == POLLOUT && send(client.fd, "e", 1, 0) == 1;
  }
  say("connected: %d", made);
  MUST(write(calls_were_made[1], "x", 1));
  pause();
}

CASE(fork_closed_and_stopped, "a child closes the listener and is stopped at once: new connections do not wait for it") {
  char byte;
  int served = 0;
  const int listener = listening();
  MUST(pipe(calls_were_made));
  listens_at_length = address_of(listener, &listens_at);
  const pid_t stopped = child(accepts_closes_and_stops, listener);
  connected(listener);
  MUST(waitpid(stopped, NULL, WUNTRACED));
  const pid_t caller = child(calls_eight, listener);
  MUST(read(calls_were_made[0], &byte, 1));
  for (struct pollfd ready = {.fd = listener, .events = POLLIN}; served < 8 && poll(&ready, 1, kBeforeSecondSyn) == 1;) {
    served += recv(accept(listener, NULL, NULL), &byte, 1, 0) == 1;
  }
  say("served: %d", served);
  kill(stopped, SIGKILL);
  kill(caller, SIGKILL);
}

CASE(fork_per_connection, "a child for each connection, as classic servers do") {
  const int listener = listening();
  int right = 0;
  signal(SIGCHLD, SIG_IGN);
  for (int i = 0; i < 6; ++i) {
    char bytes[4] = "";
    const int client = connected(listener);
    const int server = accepted(listener);
    if (fork() == 0) {
      close(listener);
      close(client);
      echoes(server);
      _exit(0);
    }
    close(server);
    send(client, "abc", 3, 0);
    right += recv(client, bytes, 3, MSG_WAITALL) == 3;
    shutdown(client, SHUT_WR);
    right += recv(client, bytes, 3, 0) == 0;
    close(client);
  }
  say("right: %d", right);
}

CASE(fork_datagram, "a child receives from, and sends to, its parent's datagram socket") {
  int ends[2];
  char bytes[20];
  datagrams(ends);
  const pid_t pid = child(sends_x, ends[0]);
  say_bytes("from the child", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  say_ended("child", pid);
  CALL(send(ends[1], "abc", 3, 0));
  say_bytes("parent", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
}

CASE(fork_opens_its_own, "a child opens sockets of its own and talks to its parent") {
  union Address to;
  char bytes[20];
  const int listener = listening();
  const socklen_t length = address_of(listener, &to);
  const pid_t pid = fork();
  if (pid == 0) {
    const int s = socket(family, SOCK_STREAM, 0);
    if (connect(s, &to.any, length) != 0) _exit(1);
    send(s, "child", 5, 0);
    _exit(recv(s, bytes, sizeof bytes, 0) == 0 ? 0 : 2);
  }
  const int server = accepted(listener);
  say_bytes("from the child", bytes, CALL(recv(server, bytes, 5, MSG_WAITALL)));
  CALL(shutdown(server, SHUT_WR));
  say_ended("child", pid);
}

CASE(fork_killed, "a child that is killed: its peer hears the end") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[1]);
    pause();
  }
  CALL(close(ends[0]));
  CALL(kill(pid, SIGKILL));
  say_ended("child", pid);
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(fork_flags_shared, "O_NONBLOCK set by the child is set for the parent, options too") {
  int ends[2];
  streams(ends);
  const pid_t pid = fork();
  if (pid == 0) {
    const int on = 1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    _exit(0);
  }
  say_ended("child", pid);
  CALL((fcntl(ends[0], F_GETFL) & O_NONBLOCK) != 0);
  OPTION(ends[0], IPPROTO_TCP, TCP_NODELAY);
  CALL(fcntl(ends[0], F_GETFD));
}

CASE(exec_connection, "a program gets a connection as its standard input and output") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDIN_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl("/bin/cat", "cat", (char*)NULL);
    _exit(1);
  }
  CALL(close(ends[1]));
  CALL(send(ends[0], "through cat", 11, 0));
  say_bytes("echo", bytes, CALL(recv(ends[0], bytes, 11, MSG_WAITALL)));
  CALL(shutdown(ends[0], SHUT_WR));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  say_ended("cat", pid);
}

CASE(exec_closes, "FD_CLOEXEC: exec() ends the connection, and without it does not") {
  int closed[2], kept[2];
  char bytes[20];
  streams(closed);
  streams(kept);
  CALL(fcntl(closed[0], F_SETFD, FD_CLOEXEC));
  const pid_t pid = fork();
  if (pid == 0) {
    close(closed[1]);
    close(kept[1]);
    execl("/bin/sleep", "sleep", "1", (char*)NULL);
    _exit(1);
  }
  CALL(close(closed[0]));
  CALL(close(kept[0]));
  CALL(recv(closed[1], bytes, sizeof bytes, 0));
  CALL(recv(kept[1], bytes, sizeof bytes, MSG_DONTWAIT));
  say_ended("sleep", pid);
  CALL(recv(kept[1], bytes, sizeof bytes, 0));
}

CASE(exec_shell_writes, "a shell writes to an inherited descriptor, by posix_spawn()") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(dup2(ends[1], 9));
  char* const arguments[] = {"sh", "-c", "echo hello >&9", NULL};
  pid_t pid;
  CALL(posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ));
  say_bytes("from the shell", bytes, CALL(recv(ends[0], bytes, 6, MSG_WAITALL)));
  say_ended("shell", pid);
}

CASE(exec_spawn_closes, "posix_spawn() closes a listener: its number is whatever the program opens next") {
  const int listener = listening();
  CALL(dup2(listener, 3));  // cat's first open() would get number 3
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addclose(&actions, 3);
  if (listener != 3) posix_spawn_file_actions_addclose(&actions, listener);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  char* const arguments[] = {"cat", "/etc/passwd", NULL};
  pid_t pid;
  CALL(posix_spawn(&pid, "/bin/cat", &actions, NULL, arguments, environ));
  say_ended("cat", pid);
}

CASE(exec_epoll, "what a program has that a child became is not its parent's epoll set's") {
  int ends[2], pipes[2];
  struct epoll_event event = {.events = EPOLLIN}, events[4];
  streams(ends);
  MUST(pipe(pipes));
  const int set = (int)MUST(epoll_create1(0));
  MUST(epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event));
  MUST(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event));
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/bin/sleep", "sleep", "5", (char*)NULL);
    _exit(1);
  }
  pause_ms(200);
  CALL(epoll_ctl(set, EPOLL_CTL_DEL, ends[1], NULL));
  CALL(shutdown(ends[1], SHUT_RDWR));
  CALL(close(ends[1]));
  CALL(close(ends[0]));
  CALL(epoll_wait(set, events, 4, 100));
  kill(pid, SIGKILL);
}

CASE(exec_popen, "popen() and system() leave sockets alone") {
  int ends[2];
  char bytes[20] = "";
  streams(ends);
  FILE* output = popen("echo from the shell", "r");
  say("%s", fgets(bytes, sizeof bytes, output));
  CALL(pclose(output));
  CALL(system("exit 3") >> 8);
  CALL(send(ends[0], "abc", 3, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

static void answers_and_leaves_the_rest(int fd) {
  char byte;
  recv(fd, &byte, 1, 0);
  send(fd, "answer", 6, 0);
}

CASE(fork_leaves_unread, "a child ends with bytes that it has not read: what it has sent arrives") {
  char bytes[20];
  for (int i = 0; i < 10; ++i) {
    int ends[2];
    streams(ends);
    send(ends[0], "question", 8, 0);
    const pid_t pid = child(answers_and_leaves_the_rest, ends[1]);
    CALL(close(ends[1]));
    say_bytes("peer", bytes, CALL(recv(ends[0], bytes, 6, MSG_WAITALL)));
    say_ended("child", pid);
    close(ends[0]);
  }
}

CASE(fork_vfork, "vfork() and exec(): the parent's sockets go on") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const pid_t pid = vfork();
  if (pid == 0) {
    execl("/bin/true", "true", (char*)NULL);
    _exit(1);
  }
  say_ended("true", pid);
  CALL(send(ends[0], "abc", 3, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(fork_daemon, "a server that becomes a daemon after listen(): its child serves") {
  char bytes[20];
  const int listener = listening();
  const pid_t pid = fork();
  if (pid == 0) {
    if (fork() != 0) _exit(0);
    accepts_and_echoes(listener);
    _exit(0);
  }
  say_ended("the first child", pid);
  const int client = connected(listener);
  CALL(send(client, "abc", 3, 0));
  say_bytes("echo", bytes, CALL(recv(client, bytes, 3, MSG_WAITALL)));
}

THEME(fork_exec, &fork_connection, &fork_both_use, &fork_close_is_not_end, &fork_parent_closes, &fork_shutdown_is_end,
      &fork_listener, &fork_bound, &fork_bound_daemon, &fork_bound_connects, &fork_ended, &fork_workers, &fork_busy_workers,
      &fork_busy_at_once, &fork_closed_in_set, &fork_closed_and_stopped, &fork_per_connection, &fork_datagram, &fork_opens_its_own,
      &fork_killed, &fork_flags_shared, &exec_connection, &exec_closes, &exec_shell_writes, &exec_spawn_closes, &exec_epoll, &exec_popen,
      &fork_leaves_unread, &fork_vfork, &fork_daemon);
