// others.c - what runs beside a case: threads, children, and signals that interrupt it.
#include <stdatomic.h>
#include <sys/time.h>

#include "tests/conformance/conformance.h"

pthread_t start(void* (*body)(void*), void* argument) {
  pthread_t thread;
  errno = pthread_create(&thread, NULL, body, argument);
  if (errno != 0) must("pthread_create", -1);
  return thread;
}

long joined(pthread_t thread) {
  void* result = NULL;
  pthread_join(thread, &result);
  return (long)result;
}

void* thread_result(long value) { return (void*)(value < 0 ? -(long)errno : value); }

void say_result(const char* what, long value) {
  if (value < 0) {
    say("%s: %s", what, error_name((int)-value));
  } else {
    say("%s: %ld", what, value);
  }
}

void* receives_once(void* fd) {
  char bytes[20];
  return thread_result(recv(*(int*)fd, bytes, sizeof bytes, 0));
}

pid_t child(void (*body)(int), int fd) {
  const pid_t pid = (pid_t)MUST(fork());
  if (pid != 0) return pid;
  body(fd);
  _exit(0);
}

void echoes(int fd) {
  char bytes[100];
  long length;
  while ((length = recv(fd, bytes, sizeof bytes, 0)) > 0) send(fd, bytes, (size_t)length, MSG_NOSIGNAL);
}

void say_ended(const char* who, pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFSIGNALED(status)) {
    say("%s: ended by SIG%s", who, signal_name(WTERMSIG(status)));
  } else {
    say("%s: ended with %d", who, WEXITSTATUS(status));
  }
}

static atomic_int counted;

static void count(int number) {
  (void)number;
  atomic_fetch_add(&counted, 1);
}

void count_signal(int number, int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = count;
  action.sa_flags = flags;
  MUST(sigaction(number, &action, NULL));
}

int signals_counted(void) { return atomic_load(&counted); }

void say_signals_since(int before) {
  for (int i = 0; i < 100 && signals_counted() == before; ++i) pause_ms(10);
  say("some: %d", signals_counted() > before);
}

void alarm_every(int ms) {
  const struct timeval every = {ms / 1000, ms % 1000 * 1000};
  const struct itimerval timer = {every, every};
  MUST(setitimer(ITIMER_REAL, &timer, NULL));
}

void alarm_once(int ms) {
  const struct itimerval timer = {{0, 0}, {ms / 1000, ms % 1000 * 1000}};
  MUST(setitimer(ITIMER_REAL, &timer, NULL));
}
