// conformance.h - a case of the sockets API: its macros, its helpers, and how it prints what it sees; for all files here.
//
// A case is one function that makes calls and prints their results. It runs in a process of its own, on the kernel's sockets and on
// U-Net's, and must print the same each time. It prints nothing that differs by run (port and descriptor numbers, memory addresses, times).
// It awaits what arrives later before it looks (await()). It closes nothing that the end of the process closes anyway.
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

struct Case {
  const char* name;
  const char* what;
  void (*run)(void);
};

// CASE(name, "what the case checks") { ... }. The file ends with THEME(theme, &name, ...), which themes.c lists.
#define CASE(name, what)                                     \
  static void name##_run(void);                              \
  static const struct Case name = {#name, what, name##_run}; \
  static void name##_run(void)
#define THEME(name, ...) const struct Case* const name##_cases[] = {__VA_ARGS__, NULL}

const struct Case* case_named(const char* name);
// Visits each case in the order of the tables.
void each_case(void (*visit)(const struct Case*));

// ---- saying: one line each

void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Prints the text of a call and its result: the number, or errno's name. CALL's value is the call's result, and errno stays as the call
// left it.
#define CALL(call) say_call(#call, (errno = 0, (long)(call)))
int say_call(const char* text, long result);
// Like CALL, for a call that returns a descriptor; the number is not printed.
#define OPEN(call) say_opened(#call, (errno = 0, (call)))
int say_opened(const char* text, int descriptor);

void say_bytes(const char* what, const void* bytes, long length);
// Prints all events that poll() reports now.
void say_ready(const char* who, int fd);
const char* error_name(int error);         // "0", "EAGAIN"; a static string
const char* events_name(unsigned events);  // "POLLIN|POLLHUP"; good until the next call
const char* signal_name(int number);

// OPTION prints an int option's value and length; SET prints what setsockopt() returned.
#define OPTION(fd, level, name) say_option(#fd " " #name, fd, level, name)
int say_option(const char* what, int fd, int level, int name);
#define SET(fd, level, name, value) say_set(#fd " " #name " " #value, fd, level, name, value)
int say_set(const char* what, int fd, int level, int name, int value);
// Sets the option and prints its value afterwards.
#define SET_AND_GET(fd, level, name, value) \
  (say_set(#fd " " #name " " #value, fd, level, name, value), say_option(#fd " " #name, fd, level, name))

// Prints the kind of address (own, any, loopback, other), whether it has a port, and its length.
void say_address(const char* what, const void* address, socklen_t length);
void say_names(const char* who, int fd);  // getsockname() and getpeername()

// ---- sockets of `family` at the process's own address; a failure in a helper is printed and ends the case

extern int family;  // AF_INET, or AF_INET6 when the whole suite is run for it

union Address {
  struct sockaddr any;
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
  struct sockaddr_storage storage;
};

socklen_t own_address(union Address* address, int port);
socklen_t any_address(union Address* address, int port);
socklen_t peer_address(union Address* address, int port);  // ends the case if no peer was given
socklen_t address_of(int fd, union Address* address);
int port_of(int fd);
int unused_port(void);  // no socket listens there

#define MUST(call) must(#call, (call))
long must(const char* text, long result);

int bound(int type);       // a socket bound to the own address and a port
int listening(void);       // a stream socket that listens at the own address
int listening_of(int backlog);
int connected(int listener);  // a client connected to the listener
int accepted(int listener);
void streams(int ends[2]);    // client, accepted socket
void datagrams(int ends[2]);  // each connected to the other
// The kinds of socket that the option cases visit in turn.
enum Subject { NEW_STREAM, BOUND_STREAM, LISTENER, CONNECTION, NEW_DATAGRAMS, BOUND_DATAGRAMS, CONNECTED_DATAGRAMS };
#define OF_SUBJECTS(first, last) for (int i = first, s; i <= last && (s = subject((enum Subject)i)) >= 0; ++i)
#define OF_ALL OF_SUBJECTS(NEW_STREAM, CONNECTED_DATAGRAMS)
#define OF_STREAMS OF_SUBJECTS(NEW_STREAM, CONNECTION)
#define OF_DATAGRAMS OF_SUBJECTS(NEW_DATAGRAMS, CONNECTED_DATAGRAMS)
int subject(enum Subject which);  // makes the socket and prints its kind
void nonblocking(int fd);
void await(int fd, short events);       // until poll() reports one of them
void await_bytes(int fd, int bytes);    // until so many can be read
void await_sent(int fd);                // until nothing is unacknowledged
int send_until_full(int fd);            // fills a stream until it stays unwritable; returns whether it took a byte
void reset(int fd);                     // closes the socket so that its peer gets a reset
void pause_ms(int ms);                  // for conditions that no event announces
long now_ms(void);                      // the monotonic clock

// ---- concurrency: threads and processes

pthread_t start(void* (*body)(void*), void* argument);
// Starts a thread, and returns when the thread sleeps in its call on `fd`.
pthread_t asleep(void* (*body)(void*), int* fd);
void await_sleep(void);  // until the last thread of asleep() has not run for a tenth of a second
long joined(pthread_t thread);
void* thread_result(long value);  // a thread's return value: the call's result, or minus errno
void say_result(const char* what, long value);
void* receives_once(void* fd);  // thread body: one recv()
void* receives_all(void* fd);   // thread body: recv() of twenty bytes with MSG_WAITALL
pid_t child(void (*body)(int), int fd);  // a process that runs `body` and exits
void say_ended(const char* who, pid_t pid);
void echoes(int fd);  // until end of file
void say_echoes(int s, int rounds);  // talks to a process in echoes(), and ends it

void count_signal(int number, int flags);  // installs a counting handler with these sigaction() flags
int signals_counted(void);
void say_signals_since(int before);        // waits, and prints whether the count exceeds `before`
void alarm_every(int ms);  // SIGALRM; 0: stops
void alarm_once(int ms);

// ---- the peer: a program with services for some cases, `conformance peer`

// Port numbers of the peer's services.
enum PeerService {
  PEER_ECHO = 7001,
  PEER_DISCARD,
  PEER_CHARGEN,
  PEER_CLOSES,
  PEER_RESETS,
  PEER_RESETS_LATE,
  PEER_HALF_CLOSES,
  PEER_READS_NOTHING,
  PEER_COUNTS,
  PEER_ECHOES_LATE,  // echoes a byte after as many hundredths of a second as its value
  PEER_URGENT,       // after one byte: sends "abcX" (X urgent) and "def", then echoes the urgent byte it receives
  PEER_TELLS,        // reports how many bytes another connection received
  PEER_LAST
};
int serve_as_peer(const char* address);

#ifdef __cplusplus
}
#endif
