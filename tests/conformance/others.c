// others.c - helpers that run beside a case: threads, children, and signals that interrupt it.
#include <stdatomic.h>
#include <sys/syscall.h>
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

static void* (*body_of_sleeper)(void*);
static atomic_int sleeper;

static void* sleeps(void* fd) {
  atomic_store(&sleeper, (int)syscall(SYS_gettid));
  return body_of_sleeper(fd);
}

static int is_asleep(int thread) {
  char path[64], state = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  FILE* const file = fopen(path, "r");
  if (file == NULL) return 0;
  if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 0;
  fclose(file);
  return state == 'S';
}

void await_sleep(void) {
  int seen = 0;
  for (int tries = 0; seen < 10 && tries < 500; ++tries) {
    pause_ms(10);
    const int id = atomic_load(&sleeper);
    seen = id != 0 && is_asleep(id) ? seen + 1 : 0;
  }
  if (seen < 10) say("it does not sleep");
}

pthread_t asleep(void* (*body)(void*), int* fd) {
  body_of_sleeper = body;
  atomic_store(&sleeper, 0);
  const pthread_t thread = start(sleeps, fd);
  await_sleep();
  return thread;
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

void* receives_all(void* fd) {
  char bytes[20];
  return thread_result(recv(*(int*)fd, bytes, sizeof bytes, MSG_WAITALL));
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

void say_echoes(int s, int rounds) {
  char bytes[20];
  for (int i = 0; i < rounds; ++i) {
    CALL(send(s, "abc", 3, 0));
    say_bytes("echo", bytes, CALL(recv(s, bytes, 3, MSG_WAITALL)));
  }
  CALL(shutdown(s, SHUT_WR));
  CALL(recv(s, bytes, sizeof bytes, 0));
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
