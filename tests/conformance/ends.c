// ends.c - fixtures of the cases: addresses, listeners, pairs of streams and datagram sockets, and waiting for data in flight.
#include <linux/sockios.h>

#include "tests/conformance/conformance.h"

int family = AF_INET;

enum { PATIENCE_MS = 5000 };  // limit of a wait that takes milliseconds on an idle machine; below a case's limit

long must(const char* text, long result) {
  if (result >= 0) return result;
  say("cannot go on: %s: %s", text, error_name(errno));
  _exit(0);
}

static socklen_t fill(union Address* address, const char* text, int port) {
  memset(address, 0, sizeof *address);
  if (inet_pton(AF_INET6, text, &address->v6.sin6_addr) == 1) {
    address->v6.sin6_family = AF_INET6;
    address->v6.sin6_port = htons((uint16_t)port);
    return sizeof address->v6;
  }
  inet_pton(AF_INET, text, &address->v4.sin_addr);
  address->v4.sin_family = AF_INET;
  address->v4.sin_port = htons((uint16_t)port);
  return sizeof address->v4;
}

static const char* given(const char* of_4, const char* of_6) {
  const char* text = getenv(family == AF_INET ? of_4 : of_6);
  return text != NULL && text[0] != 0 ? text : NULL;
}

socklen_t own_address(union Address* address, int port) {
  const char* text = given("CONFORMANCE_ADDRESS", "CONFORMANCE_ADDRESS6");
  if (text == NULL) text = family == AF_INET ? "127.0.0.1" : "::1";
  return fill(address, text, port);
}

socklen_t peer_address(union Address* address, int port) {
  const char* text = given("CONFORMANCE_PEER", "CONFORMANCE_PEER6");
  if (text == NULL) {
    say("skipped: no peer");
    _exit(0);
  }
  return fill(address, text, port);
}

socklen_t any_address(union Address* address, int port) { return fill(address, family == AF_INET ? "0.0.0.0" : "::", port); }

socklen_t address_of(int fd, union Address* address) {
  socklen_t length = sizeof *address;
  MUST(getsockname(fd, &address->any, &length));
  return length;
}

int port_of(int fd) {
  union Address address;
  address_of(fd, &address);
  return ntohs(address.any.sa_family == AF_INET ? address.v4.sin_port : address.v6.sin6_port);
}

int bound(int type) {
  union Address own;
  const int s = (int)MUST(socket(family, type, 0));
  const socklen_t length = own_address(&own, 0);
  MUST(bind(s, &own.any, length));
  return s;
}

// Takes no ephemeral port: a client that is given this one by chance would connect to itself. Takes no port in TIME-WAIT either.
int unused_port(void) {
  union Address own;
  for (int port = 20000 + getpid() % 5000; port < 32000; ++port) {
    const int s = (int)MUST(socket(family, SOCK_STREAM, 0));
    const socklen_t length = own_address(&own, port);
    const int free = bind(s, &own.any, length) == 0;
    close(s);
    if (free) return port;
  }
  say("cannot go on: no unused port");
  _exit(0);
}

int listening_of(int backlog) {
  const int s = bound(SOCK_STREAM);
  MUST(listen(s, backlog));
  return s;
}

int listening(void) { return listening_of(16); }

int connected(int listener) {
  union Address address;
  const socklen_t length = address_of(listener, &address);
  const int s = (int)MUST(socket(family, SOCK_STREAM, 0));
  MUST(connect(s, &address.any, length));
  return s;
}

int accepted(int listener) {
  await(listener, POLLIN);
  return (int)MUST(accept(listener, NULL, NULL));
}

void streams(int ends[2]) {
  const int listener = listening();
  ends[0] = connected(listener);
  ends[1] = accepted(listener);
  close(listener);
}

void datagrams(int ends[2]) {
  union Address address;
  ends[0] = bound(SOCK_DGRAM);
  ends[1] = bound(SOCK_DGRAM);
  for (int i = 0; i < 2; ++i) {
    const socklen_t length = address_of(ends[1 - i], &address);
    MUST(connect(ends[i], &address.any, length));
  }
  // Warm up both directions: while the first datagrams await address resolution, later ones may overtake them.
  char byte = 0;
  for (int i = 0; i < 4; ++i) {
    MUST(send(ends[i % 2], &byte, 1, 0));
    await(ends[1 - i % 2], POLLIN);
    MUST(recv(ends[1 - i % 2], &byte, 1, 0));
  }
  pause_ms(5);
}

int subject(enum Subject which) {
  static const char* const names[] = {"new stream", "bound stream", "listener", "connection", "new datagrams", "bound datagrams",
                                      "connected datagrams"};
  int ends[2];
  say("-- %s", names[which]);
  switch (which) {
    case NEW_STREAM: return (int)MUST(socket(family, SOCK_STREAM, 0));
    case BOUND_STREAM: return bound(SOCK_STREAM);
    case LISTENER: return listening();
    case CONNECTION: streams(ends); return ends[0];
    case NEW_DATAGRAMS: return (int)MUST(socket(family, SOCK_DGRAM, 0));
    case BOUND_DATAGRAMS: return bound(SOCK_DGRAM);
    case CONNECTED_DATAGRAMS: datagrams(ends); return ends[0];
  }
  return -1;
}

void nonblocking(int fd) { MUST(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK)); }

void await(int fd, short events) {
  struct pollfd one = {fd, events, 0};
  int ready;
  while ((ready = poll(&one, 1, PATIENCE_MS)) < 0 && errno == EINTR) continue;
  if (ready == 0) say("waited in vain for %s", events_name((unsigned short)events));
}

void await_bytes(int fd, int bytes) {
  int there = 0;
  for (int ms = 0; ms < PATIENCE_MS; ++ms) {
    if (ioctl(fd, FIONREAD, &there) != 0 || there >= bytes) return;
    pause_ms(1);
  }
  say("waited in vain for %d bytes: %d", bytes, there);
}

void await_sent(int fd) {
  int left = 0;
  for (int ms = 0; ms < PATIENCE_MS; ++ms) {
    if (ioctl(fd, SIOCOUTQ, &left) != 0 || left == 0) return;
    pause_ms(1);
  }
  say("waited in vain for acknowledgements");
}

int send_until_full(int fd) {
  static char block[16384];
  int took = 0;
  // Full means unwritable for half a second: data in flight, and retransmissions after 200 ms, still make room.
  for (int full = 0; full < 100;) {
    const long sent = send(fd, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      took = 1;
      full = 0;
    } else {
      ++full;
      pause_ms(5);
    }
  }
  return took;
}

void reset(int fd) {
  const struct linger now = {1, 0};
  MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
  MUST(close(fd));
}

void pause_ms(int ms) {
  struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
