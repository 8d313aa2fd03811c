// peer.c - the peer of peer_cases.c: one service for each way a peer can behave; used by main.c.
//
// Uses threads and plain calls only. Sockets shared by processes are what the cases test, so the peer must not depend on them.
#include "tests/conformance/conformance.h"

enum { BYTES = 65536 };

static void echo(int s) {
  char bytes[BYTES];
  long length;
  while ((length = recv(s, bytes, sizeof bytes, 0)) > 0) {
    for (long sent = 0; sent < length;) {
      const long taken = send(s, bytes + sent, (size_t)(length - sent), MSG_NOSIGNAL);
      if (taken <= 0) return;
      sent += taken;
    }
  }
}

static long discard(int s) {
  char bytes[BYTES];
  long length, all = 0;
  while ((length = recv(s, bytes, sizeof bytes, 0)) > 0) all += length;
  return all;
}

static void generate(int s) {
  char bytes[26 * 2500];
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = (char)('a' + i % 26);
  for (long sent = 0; sent < 1000000;) {
    const size_t from = (size_t)(sent % 26);
    const long room = (long)(sizeof bytes - from), left = 1000000 - sent;
    const long taken = send(s, bytes + from, (size_t)(left < room ? left : room), MSG_NOSIGNAL);
    if (taken <= 0) return;
    sent += taken;
  }
}

// Reports the number of bytes received up to the end of the stream.
static void count(int s) {
  char text[32];
  const int length = snprintf(text, sizeof text, "%ld", discard(s));
  send(s, text, (size_t)length, MSG_NOSIGNAL);
}

static void urge(int s) {
  char byte;
  struct pollfd urgent = {s, POLLPRI, 0};
  if (recv(s, &byte, 1, 0) != 1) return;
  send(s, "abcX", 4, MSG_OOB | MSG_NOSIGNAL);
  send(s, "def", 3, MSG_NOSIGNAL);
  if (poll(&urgent, 1, 5000) == 1 && recv(s, &byte, 1, MSG_OOB) == 1) send(s, &byte, 1, MSG_NOSIGNAL);
  discard(s);
}

// Sends a port number in 8 bytes and accepts one connection there, with a small window. Reads that connection only after a byte has come on
// `s`, then reports the number of bytes, or -1 if there was no end of stream.
static void tell(int s) {
  char text[32], bytes[BYTES];
  const int listener = listening(), few = 20000;
  setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
  snprintf(text, sizeof text, "%-8d", port_of(listener));
  send(s, text, 8, MSG_NOSIGNAL);
  const int other = accept(listener, NULL, NULL);
  close(listener);
  if (recv(s, bytes, 1, 0) != 1) return;
  long length, all = 0;
  while ((length = recv(other, bytes, sizeof bytes, 0)) > 0) all += length;
  close(other);
  send(s, text, (size_t)snprintf(text, sizeof text, "%ld", length < 0 ? length : all), MSG_NOSIGNAL);
}

static void serve(enum PeerService service, int s) {
  char byte;
  switch (service) {
    case PEER_ECHO: echo(s); break;
    case PEER_DISCARD: discard(s); break;
    case PEER_CHARGEN: generate(s); break;
    case PEER_CLOSES: break;
    case PEER_RESETS:
      pause_ms(20);  // after the client's connect() has returned: else it may fail, as the kernel's does
      reset(s);
      return;
    case PEER_RESETS_LATE:
      if (recv(s, &byte, 1, 0) == 1) reset(s);
      return;
    case PEER_HALF_CLOSES:
      shutdown(s, SHUT_WR);
      discard(s);
      break;
    case PEER_READS_NOTHING: pause_ms(8000); break;
    case PEER_COUNTS: count(s); break;
    case PEER_ECHOES_LATE:
      if (recv(s, &byte, 1, 0) != 1) break;
      pause_ms(10 * (unsigned char)byte);
      send(s, &byte, 1, MSG_NOSIGNAL);
      discard(s);
      break;
    case PEER_URGENT: urge(s); break;
    case PEER_TELLS: tell(s); break;
    case PEER_LAST: break;
  }
  close(s);
}

struct Job {
  enum PeerService service;
  int socket;
};

static void begin(void* (*body)(void*), enum PeerService service, int s) {
  struct Job* job = malloc(sizeof *job);
  *job = (struct Job){service, s};
  pthread_detach(start(body, job));
}

static struct Job taken_from(void* argument) {
  const struct Job job = *(struct Job*)argument;
  free(argument);
  return job;
}

static void* serve_connection(void* argument) {
  const struct Job job = taken_from(argument);
  serve(job.service, job.socket);
  return NULL;
}

// Serves each connection in a thread, so that no connection waits for another.
static void* serve_streams(void* argument) {
  const struct Job job = taken_from(argument);
  for (;;) {
    const int s = accept(job.socket, NULL, NULL);
    if (s < 0 && errno == EBADF) return NULL;
    if (s >= 0) begin(serve_connection, job.service, s);
  }
}

static void* echo_datagrams(void* argument) {
  const struct Job job = taken_from(argument);
  char bytes[BYTES];
  union Address from;
  for (;;) {
    socklen_t length = sizeof from;
    const long size = recvfrom(job.socket, bytes, sizeof bytes, 0, &from.any, &length);
    if (size < 0 && errno == EBADF) return NULL;
    if (size >= 0) sendto(job.socket, bytes, (size_t)size, 0, &from.any, length);
  }
}

static int open_service(enum PeerService service, int type) {
  const int on = 1;
  union Address address;
  const socklen_t length = own_address(&address, service);
  const int s = socket(family, type, 0);
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (bind(s, &address.any, length) != 0 || (type == SOCK_STREAM && listen(s, 64) != 0)) {
    fprintf(stderr, "conformance: peer: %s\n", strerror(errno));
    exit(2);
  }
  return s;
}

// Prints "ready" when all services listen, and serves until killed.
int serve_as_peer(const char* address) {
  family = strchr(address, ':') == NULL ? AF_INET : AF_INET6;
  setenv(family == AF_INET ? "CONFORMANCE_ADDRESS" : "CONFORMANCE_ADDRESS6", address, 1);
  for (int service = PEER_ECHO; service < PEER_LAST; ++service) {
    begin(serve_streams, (enum PeerService)service, open_service((enum PeerService)service, SOCK_STREAM));
  }
  begin(echo_datagrams, PEER_ECHO, open_service(PEER_ECHO, SOCK_DGRAM));
  say("ready");
  for (;;) pause();
}
