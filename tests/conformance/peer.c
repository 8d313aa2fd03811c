// peer.c - what stands at the other end for the cases of peer_cases.c: a service for each way a peer can behave; used by main.c.
#include <stdbool.h>

#include "tests/conformance/conformance.h"

static void echo(int s) {
  static char bytes[65536];
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
  static char bytes[65536];
  long length, all = 0;
  while ((length = recv(s, bytes, sizeof bytes, 0)) > 0) all += length;
  return all;
}

static void generate(int s) {
  static char bytes[65536];
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = (char)('a' + i % 26);
  for (long left = 1000000; left > 0;) {
    const long taken = send(s, bytes, left < 65520 ? (size_t)left : 65520, MSG_NOSIGNAL);  // a multiple of the alphabet
    if (taken != 65520 && taken != left) return;
    left -= taken;
  }
}

// Tells how much came once the other end has sent its end.
static void count(int s) {
  char text[32];
  const int length = snprintf(text, sizeof text, "%ld", discard(s));
  send(s, text, (size_t)length, MSG_NOSIGNAL);
}

static void serve_one(enum PeerService service, int s) {
  char byte;
  switch (service) {
    case PEER_ECHO: echo(s); break;
    case PEER_DISCARD: discard(s); break;
    case PEER_CHARGEN: generate(s); break;
    case PEER_CLOSES: break;
    case PEER_RESETS: reset(s); return;
    case PEER_RESETS_LATE:
      if (recv(s, &byte, 1, 0) == 1) reset(s);
      return;
    case PEER_HALF_CLOSES:
      shutdown(s, SHUT_WR);
      discard(s);
      break;
    case PEER_READS_NOTHING: pause_ms(8000); break;
    case PEER_COUNTS: count(s); break;
    case PEER_LAST: break;
  }
  close(s);
}

static int open_service(const union Address* address, socklen_t length, int type) {
  const int on = 1;
  const int s = socket(address->any.sa_family, type, 0);
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->any.sa_family == AF_INET6) setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (bind(s, &address->any, length) != 0 || (type == SOCK_STREAM && listen(s, 64) != 0)) {
    fprintf(stderr, "conformance: peer: %s\n", strerror(errno));
    exit(2);
  }
  return s;
}

static void echo_datagrams(int s) {
  static char bytes[65536];
  union Address from;
  for (;;) {
    socklen_t length = sizeof from;
    const long size = recvfrom(s, bytes, sizeof bytes, 0, &from.any, &length);
    if (size >= 0) sendto(s, bytes, (size_t)size, 0, &from.any, length);
  }
}

// One process for each connection: no service waits for another.
static void serve_streams(enum PeerService service, int listener) {
  for (;;) {
    const int s = accept(listener, NULL, NULL);
    if (s < 0) continue;
    if (fork() == 0) {
      close(listener);
      serve_one(service, s);
      _exit(0);
    }
    close(s);
  }
}

// Says "ready" when all services listen, and serves until it is killed, with its process group.
int serve_as_peer(const char* text) {
  union Address address;
  signal(SIGCHLD, SIG_IGN);
  setenv(strchr(text, ':') == NULL ? "CONFORMANCE_ADDRESS" : "CONFORMANCE_ADDRESS6", text, 1);
  family = strchr(text, ':') == NULL ? AF_INET : AF_INET6;
  for (int service = PEER_ECHO; service < PEER_LAST; ++service) {
    const socklen_t length = own_address(&address, service);
    const int listener = open_service(&address, length, SOCK_STREAM);
    if (fork() == 0) serve_streams((enum PeerService)service, listener);
    close(listener);
  }
  const socklen_t length = own_address(&address, PEER_ECHO);
  const int datagram = open_service(&address, length, SOCK_DGRAM);
  say("ready");
  echo_datagrams(datagram);
  return 0;
}
