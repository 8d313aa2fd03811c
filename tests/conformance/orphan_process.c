// orphan_process.c - cases of processes that exec or exit while their connections stay in use: an orphan process goes on with them.
#include <sys/file.h>

#include "tests/conformance/conformance.h"

// cat exits when the connection ends.
static void say_cat(int s, pid_t pid) {
  say_echoes(s, 1);
  say_ended("cat", pid);
}

static void becomes_cat(int s) {
  dup2(s, STDIN_FILENO);
  dup2(s, STDOUT_FILENO);
  close(s);
  execl("/bin/cat", "cat", (char*)NULL);
  _exit(1);
}

static void calls_and_becomes_cat(int listener) {
  const int s = connected(listener);
  close(listener);
  becomes_cat(s);
}

CASE(exec_own_connection, "a process keeps a connection that it has made itself when it becomes another program") {
  const int listener = listening();
  const pid_t pid = child(calls_and_becomes_cat, listener);
  say_cat(accepted(listener), pid);
}

static void serves_and_becomes_cat(int fd) {
  union Address to;
  const int listener = listening();
  const socklen_t length = address_of(listener, &to);
  if (write(fd, &to, length) != (ssize_t)length) _exit(1);
  const int s = accept(listener, NULL, NULL);
  close(listener);
  becomes_cat(s);
}

CASE(exec_accepted, "a server becomes another program for the connection that it has accepted itself") {
  union Address to;
  int pipes[2];
  MUST(pipe(pipes));
  const pid_t pid = child(serves_and_becomes_cat, pipes[1]);
  const int s = (int)MUST(socket(family, SOCK_STREAM, 0));
  const socklen_t length = (socklen_t)MUST(read(pipes[0], &to, sizeof to));
  CALL(connect(s, &to.any, length));
  say_cat(s, pid);
}

static void fails_to_become(int listener) {
  const int s = connected(listener);
  count_signal(SIGCHLD, SA_RESTART);
  execl("/nowhere", "nowhere", (char*)NULL);
  const int failed = errno == ENOENT;
  echoes(s);
  _exit(failed && waitpid(-1, NULL, 0) < 0 ? 7 + signals_counted() : 1);
}

CASE(exec_fails, "a process whose exec() fails keeps its connections, and has no child") {
  const int listener = listening();
  const pid_t pid = child(fails_to_become, listener);
  say_echoes(accepted(listener), 1);
  say_ended("child", pid);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void locks(void) { pthread_mutex_lock(&mutex); }
static void unlocks(void) { pthread_mutex_unlock(&mutex); }

static void* sends_with_the_mutex(void* unused) {
  const int s = bound(SOCK_DGRAM);
  union Address own;
  const socklen_t length = address_of(s, &own);
  for (char byte;;) {
    locks();
    sendto(s, "x", 1, MSG_DONTWAIT, &own.any, length);
    unlocks();
    recv(s, &byte, 1, MSG_DONTWAIT);
  }
  return unused;
}

static void becomes_cat_beside_a_thread(int listener) {
  pthread_t thread;
  pthread_atfork(locks, unlocks, unlocks);
  pthread_create(&thread, NULL, sends_with_the_mutex, NULL);
  pause_ms(20);
  calls_and_becomes_cat(listener);
}

CASE(exec_handlers, "a program has handlers of fork(), and a thread that sends with the mutex that they lock") {
  const int listener = listening();
  const pid_t pid = child(becomes_cat_beside_a_thread, listener);
  say_cat(accepted(listener), pid);
}

static void leaves_it_to_its_child(int listener) {
  const int s = connected(listener);
  const pid_t pid = child(becomes_cat, s);
  close(s);
  pause_ms(100);  // until the child runs cat
  if (pid > 0) execl("/bin/sleep", "sleep", "0.2", (char*)NULL);
  _exit(1);
}

CASE(exec_of_parent, "a child goes on with a connection of its parent, which becomes another program and ends") {
  const int listener = listening();
  const pid_t pid = child(leaves_it_to_its_child, listener);
  const int s = accepted(listener);
  say_ended("parent", pid);
  say_echoes(s, 1);
}

static void goes_to_background(int listener) {
  const int s = connected(listener);
  if (fork() != 0) _exit(0);
  pause_ms(100);  // until the parent has exited
  echoes(s);
}

CASE(fork_to_background, "a client goes to the background once it is connected, as ssh -f does") {
  const int listener = listening();
  const pid_t pid = child(goes_to_background, listener);
  const int s = accepted(listener);
  say_ended("parent", pid);
  say_echoes(s, 2);
}

static void leaves_it(int listener) {
  const int s = connected(listener);
  child(echoes, s);
  pause_ms(100);  // until the child has begun
}

CASE(fork_parent_ends, "a child goes on with a connection that it uses when its parent ends") {
  char bytes[20];
  const int listener = listening();
  const pid_t pid = child(leaves_it, listener);
  const int s = accepted(listener);
  CALL(send(s, "abc", 3, 0));
  say_bytes("echo", bytes, CALL(recv(s, bytes, 3, MSG_WAITALL)));
  say_ended("parent", pid);
  say_echoes(s, 2);
}

static char locked[32];

// The child goes on with the connection but does not hold the lock.
static void locks_and_leaves(int listener) {
  const int lock = (int)MUST(open(locked, O_RDONLY));
  MUST(flock(lock, LOCK_EX));
  const int s = connected(listener);
  if (fork() != 0) _exit(0);
  close(lock);
  send(s, "x", 1, 0);
  echoes(s);
}

CASE(fork_lock, "a lock is free when its process has ended, though its connections go on") {
  char byte, name[] = "/tmp/unet-conformance-XXXXXX";
  const int listener = listening(), lock = (int)MUST(mkstemp(name));
  int held = 0;
  unlink(name);
  snprintf(locked, sizeof locked, "/proc/self/fd/%d", lock);
  for (int i = 0; i < 10; ++i) {
    const pid_t pid = child(locks_and_leaves, listener);
    const int s = accepted(listener);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    MUST(recv(s, &byte, 1, 0));
    held += flock(lock, LOCK_EX | LOCK_NB) != 0;
    flock(lock, LOCK_UN);
    close(s);
  }
  say("held: %d", held);
}

THEME(orphan_process, &exec_own_connection, &exec_accepted, &exec_fails, &exec_handlers, &exec_of_parent, &fork_to_background,
      &fork_parent_ends, &fork_lock);
