// conformance.h - a case of the sockets API, what it is made of, and how it says what it sees; for all files here.
//
// A case is one function that calls and says what came back. It runs in a process of its own, on the kernel's sockets and on ours, and
// has to say the same each time: so it says nothing that differs by run (numbers of ports and descriptors, addresses of memory, times),
// waits for what arrives later before it looks (await()), and closes nothing that its end closes anyway.
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

// CASE(name, "what it looks at") { ... }, and at the end of the file THEME(theme, &name, ...), which themes.c has in its table.
#define CASE(name, what)                                     \
  static void name##_run(void);                              \
  static const struct Case name = {#name, what, name##_run}; \
  static void name##_run(void)
#define THEME(name, ...) const struct Case* const name##_cases[] = {__VA_ARGS__, NULL}

const struct Case* case_named(const char* name);
// Calls of each case, in the order of the tables.
void each_case(void (*visit)(const struct Case*));

// ---- saying: one line each

void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The text of a call, and what it returned: the number, or errno's name. CALL's value is what the call returned, errno is as it left it.
#define CALL(call) say_call(#call, (errno = 0, (long)(call)))
int say_call(const char* text, long result);
// The same of a call that returns a descriptor, which is not said.
#define OPEN(call) say_opened(#call, (errno = 0, (call)))
int say_opened(const char* text, int descriptor);

void say_bytes(const char* what, const void* bytes, long length);
// What poll() says now, of all that it may say.
void say_ready(const char* who, int fd);
const char* error_name(int error);         // "0", "EAGAIN"; a static string
const char* events_name(unsigned events);  // "POLLIN|POLLHUP"; good until the next call
const char* signal_name(int number);

// An option of an int: what it is, and how long; SET: what setting it returned.
#define OPTION(fd, level, name) say_option(#fd " " #name, fd, level, name)
int say_option(const char* what, int fd, int level, int name);
#define SET(fd, level, name, value) say_set(#fd " " #name " " #value, fd, level, name, value)
int say_set(const char* what, int fd, int level, int name, int value);
// Set, and what it is then.
#define SET_AND_GET(fd, level, name, value) \
  (say_set(#fd " " #name " " #value, fd, level, name, value), say_option(#fd " " #name, fd, level, name))

// Whose the address is (own, any, loopback, other), whether it has a port, and its length.
void say_address(const char* what, const void* address, socklen_t length);
void say_names(const char* who, int fd);  // getsockname() and getpeername()

// ---- the ends: of `family`, with the process's own address. Whatever fails here says so and ends the case.

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
int unused_port(void);  // nobody listens there

#define MUST(call) must(#call, (call))
long must(const char* text, long result);

int bound(int type);       // a socket with the own address, and a port
int listening(void);       // a stream socket that listens there
int listening_of(int backlog);
int connected(int listener);  // calls it
int accepted(int listener);
void streams(int ends[2]);    // the caller, and what was accepted
void datagrams(int ends[2]);  // each connected to the other
// What cases of options look at, one after another: sockets that are nobody's yet, of which the kernel is asked, and others.
enum Subject { NEW_STREAM, BOUND_STREAM, LISTENER, CONNECTION, NEW_DATAGRAMS, BOUND_DATAGRAMS, CONNECTED_DATAGRAMS };
#define OF_SUBJECTS(first, last) for (int i = first, s; i <= last && (s = subject((enum Subject)i)) >= 0; ++i)
#define OF_ALL OF_SUBJECTS(NEW_STREAM, CONNECTED_DATAGRAMS)
#define OF_STREAMS OF_SUBJECTS(NEW_STREAM, CONNECTION)
#define OF_DATAGRAMS OF_SUBJECTS(NEW_DATAGRAMS, CONNECTED_DATAGRAMS)
int subject(enum Subject which);  // says which it is
void nonblocking(int fd);
void await(int fd, short events);       // until poll() says one of them
void await_bytes(int fd, int bytes);    // until so many can be read
void await_sent(int fd);                // until nothing is unacknowledged
int send_until_full(int fd);            // a stream: until it is not writable, and stays so; whether it took something
void reset(int fd);                     // closes it so that its peer gets a reset
void pause_ms(int ms);                  // for what has no other sign than that nothing happens
long now_ms(void);                      // a clock that is never set

// ---- others that run: threads and processes

pthread_t start(void* (*body)(void*), void* argument);
// The same; its call on `fd` has begun, and sleeps.
pthread_t asleep(void* (*body)(void*), int* fd);
void await_sleep(void);  // of the last of those: until it has not run for a tenth of a second
long joined(pthread_t thread);
void* thread_result(long value);  // of a thread: what its call returned, the number or minus errno
void say_result(const char* what, long value);
void* receives_once(void* fd);  // a thread: recv(), once
void* receives_all(void* fd);   // and of twenty bytes, with MSG_WAITALL
pid_t child(void (*body)(int), int fd);  // a process that does this and ends
void say_ended(const char* who, pid_t pid);
void echoes(int fd);  // what comes, until the end
void say_echoes(int s, int rounds);  // of who does that, and its end

void count_signal(int number, int flags);  // counts it from now on, with these flags of sigaction()
int signals_counted(void);
void say_signals_since(int before);        // waits for it: whether any came since there were so many
void alarm_every(int ms);  // SIGALRM; 0: no more
void alarm_once(int ms);

// ---- the peer, a program with services of which some cases want one: `conformance peer`

// Their ports.
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
  PEER_ECHOES_LATE,  // a byte, after as many hundredths of a second as it says
  PEER_URGENT,       // "abcX", the X urgent, and "def", after a byte; then what it was told by urgent data
  PEER_TELLS,        // of another connection, how much came
  PEER_LAST
};
int serve_as_peer(const char* address);

#ifdef __cplusplus
}
#endif
