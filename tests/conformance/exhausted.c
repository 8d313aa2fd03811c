// exhausted.c - cases of a process out of descriptors or memory: calls fail with the right error, and open sockets still work.
#include <sys/epoll.h>
#include <sys/resource.h>

#include "tests/conformance/conformance.h"

// Opens files until no descriptor is free.
static void exhaust_descriptors(void) {
  const int last = dup(STDIN_FILENO);
  const struct rlimit few = {(rlim_t)last + 1, (rlim_t)last + 1};
  MUST(setrlimit(RLIMIT_NOFILE, &few));
}

static void talk(int one, int other) {
  char bytes[8];
  CALL(send(one, "abc", 3, 0));
  await(other, POLLIN);
  CALL(recv(other, bytes, sizeof bytes, 0));
}

CASE(exhausted_calls, "every call that makes a descriptor, at the limit") {
  int ends[2], pair[2];
  streams(ends);
  const int listener = listening();
  exhaust_descriptors();
  CALL(socket(family, SOCK_STREAM, 0));
  CALL(socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0));
  CALL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  CALL(epoll_create1(EPOLL_CLOEXEC));
  CALL(epoll_create(1));
  CALL(dup(ends[0]));
  CALL(fcntl(ends[0], F_DUPFD_CLOEXEC, 0));
  CALL(dup2(ends[0], ends[1] + 1000));
  say_ready("listener", listener);
  talk(ends[0], ends[1]);
  talk(ends[1], ends[0]);
}

CASE(exhausted_epoll, "an epoll set goes on at the limit") {
  int ends[2];
  streams(ends);
  const int e = (int)MUST(epoll_create1(0));
  exhaust_descriptors();
  struct epoll_event event = {EPOLLIN, {.u64 = 7}};
  CALL(epoll_ctl(e, EPOLL_CTL_ADD, ends[1], &event));
  CALL(epoll_wait(e, &event, 1, 20));
  CALL(send(ends[0], "abc", 3, 0));
  CALL(epoll_wait(e, &event, 1, 5000));
  say("%s %lu", events_name(event.events), (unsigned long)event.data.u64);
}

static void* receives(void* end) {
  char bytes[8];
  return (void*)recv(*(int*)end, bytes, sizeof bytes, 0);
}

CASE(exhausted_threads, "threads that wait for the first time at the limit are woken") {
  int one[2], other[2];
  streams(one);
  streams(other);
  exhaust_descriptors();
  const pthread_t first = start(receives, &one[1]), second = start(receives, &other[1]);
  pause_ms(100);
  CALL(send(other[0], "abcd", 4, 0));
  say("second: %ld", joined(second));
  CALL(send(one[0], "abc", 3, 0));
  say("first: %ld", joined(first));
}

CASE(exhausted_first, "the first sockets at the limit") {
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  exhaust_descriptors();
  CALL(listen(s, 1));
  CALL(close(STDIN_FILENO));
  OPEN(socket(family, SOCK_STREAM, 0));
}

// The address space that this process uses.
static rlim_t address_space(void) {
  unsigned long pages = 0;
  FILE* const file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%lu", &pages) != 1) exit(1);
  fclose(file);
  return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

// Waits until usage is stable: a starting library thread may reserve 64 MiB of addresses, which would exceed the limit.
static void limit_memory(rlim_t more) {
  rlim_t used = 0;
  for (int same = 0; same < 5; pause_ms(2)) {
    const rlim_t now = address_space();
    same = now == used ? same + 1 : 0;
    used = now;
  }
  const struct rlimit little = {used + more, RLIM_INFINITY};
  MUST(setrlimit(RLIMIT_AS, &little));
}

static int is_exhaustion(int error) { return error == EMFILE || error == ENOMEM || error == ENOBUFS; }

// Opens listeners until one fails, at most `most`.
static void listen_until_full(int most) {
  int error = 0;
  for (int i = 0; i < most && error == 0; ++i) {
    union Address own;
    const socklen_t length = own_address(&own, 0);
    const int s = socket(family, SOCK_STREAM, 0);
    if (s < 0 || bind(s, &own.any, length) != 0 || listen(s, 5) != 0) error = errno;
  }
  say("full: %s", error == 0 || is_exhaustion(error) ? "yes" : error_name(error));
}

CASE(exhausted_memory, "a process without memory goes on with what it has") {
  int ends[2];
  streams(ends);
  limit_memory(2 << 20);
  listen_until_full(900);
  talk(ends[0], ends[1]);
  talk(ends[1], ends[0]);
}

CASE(exhausted_memory_first, "the first sockets of a process without memory") {
  limit_memory(2 << 20);
  const int s = socket(family, SOCK_STREAM, 0);
  union Address own;
  const socklen_t length = own_address(&own, 0);
  say("a socket: %s", s >= 0 || is_exhaustion(errno) ? "yes" : "no");
  const int error = s < 0 || bind(s, &own.any, length) == 0 ? 0 : errno;
  say("bound: %s", error == 0 || is_exhaustion(error) ? "yes or exhausted" : error_name(error));
}

// A port without a listener refuses.
static const char* outcome_of(long result) {
  return result >= 0 || errno == ECONNREFUSED || is_exhaustion(errno) ? "done, refused or exhausted" : error_name(errno);
}

CASE(exhausted_memory_calls, "the first calls to others of a process without memory") {
  union Address to;
  const socklen_t length = own_address(&to, 9);
  limit_memory(2 << 20);
  say("connect: %s", outcome_of(connect(socket(family, SOCK_STREAM, 0), &to.any, length)));
  say("sendto: %s", outcome_of(sendto(socket(family, SOCK_DGRAM, 0), "x", 1, 0, &to.any, length)));
}

CASE(exhausted_memory_connections, "connections to a process without memory") {
  int ends[2];
  streams(ends);
  const int listener = listening_of(128);
  limit_memory(256 << 10);
  int error = 0;
  for (int i = 0; i < 400 && error == 0; ++i) {
    const int s = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    union Address to;
    const socklen_t length = address_of(listener, &to);
    if (s < 0 || (connect(s, &to.any, length) != 0 && errno != EINPROGRESS)) error = errno;
    const int accepted = error == 0 ? accept4(listener, NULL, NULL, 0) : -1;
    if (accepted < 0 && error == 0) error = errno;
  }
  say("full: %s", error == 0 || is_exhaustion(error) ? "yes" : error_name(error));
  talk(ends[0], ends[1]);
}

THEME(exhausted, &exhausted_calls, &exhausted_epoll, &exhausted_threads, &exhausted_first, &exhausted_memory, &exhausted_memory_first,
      &exhausted_memory_calls, &exhausted_memory_connections);
