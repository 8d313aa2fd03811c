// peer_cases.c - cases with another program (peer.c) at the other end, possibly on kernel sockets across a wire.
#include "tests/conformance/conformance.h"

static int called(enum PeerService service) {
  union Address to;
  const socklen_t length = peer_address(&to, service);
  const int s = (int)MUST(socket(family, SOCK_STREAM, 0));
  MUST(connect(s, &to.any, length));
  return s;
}

CASE(peer_echo, "what is sent comes back") {
  char bytes[20];
  const int s = called(PEER_ECHO);
  CALL(send(s, "hello", 5, 0));
  say_bytes("back", bytes, CALL(recv(s, bytes, 5, MSG_WAITALL)));
  CALL(shutdown(s, SHUT_WR));
  CALL(recv(s, bytes, sizeof bytes, 0));
}

CASE(peer_echo_sizes, "echoes of many sizes, whole and right") {
  static char out[70000], in[70000];
  const size_t sizes[] = {1, 2, 1447, 1448, 1449, 1460, 4096, 16384, 65535, 70000};
  const int s = called(PEER_ECHO);
  for (size_t i = 0; i < sizeof out; ++i) out[i] = (char)(i * 31 + i / 256);
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    MUST(send(s, out, sizes[i], 0));
    const long came = recv(s, in, sizes[i], MSG_WAITALL);
    say("%zu: %ld, %s", sizes[i], came, memcmp(in, out, sizes[i]) == 0 ? "right" : "wrong");
  }
}

CASE(peer_discard, "megabytes to a peer that reads them") {
  static char bytes[1 << 20];
  const int s = called(PEER_DISCARD);
  for (int i = 0; i < 4; ++i) CALL(send(s, bytes, sizeof bytes, 0));
  CALL(shutdown(s, SHUT_WR));
  CALL(recv(s, bytes, 1, 0));
}

CASE(peer_counts, "every byte arrives: the peer says how many") {
  static char bytes[1000003];
  char text[32] = "";
  const int s = called(PEER_COUNTS);
  CALL(send(s, bytes, sizeof bytes, 0));
  CALL(shutdown(s, SHUT_WR));
  CALL(recv(s, text, sizeof text - 1, MSG_WAITALL) > 0);
  say("%s", text);
}

CASE(peer_chargen, "a million bytes from the peer, in order, then the end") {
  static char bytes[65536];
  long all = 0, length, wrong = 0;
  const int s = called(PEER_CHARGEN);
  while ((length = recv(s, bytes, sizeof bytes, 0)) > 0) {
    for (long i = 0; i < length; ++i) wrong += bytes[i] != (char)('a' + (all + i) % 26);
    all += length;
  }
  say("%ld bytes, %ld wrong, then %ld", all, wrong, length);
}

CASE(peer_closes, "a peer that closes at once") {
  char byte = 0;
  const int s = called(PEER_CLOSES);
  await(s, POLLRDHUP);
  say_ready("own", s);
  CALL(recv(s, &byte, 1, 0));
  CALL(send(s, &byte, 1, MSG_NOSIGNAL));
  await(s, POLLERR);
  say_ready("own", s);
  CALL(send(s, &byte, 1, MSG_NOSIGNAL));
  CALL(recv(s, &byte, 1, 0));
}

CASE(peer_resets, "a peer that resets, unasked") {
  char byte = 0;
  const int s = called(PEER_RESETS);
  await(s, POLLERR);
  say_ready("own", s);
  CALL(recv(s, &byte, 1, 0));
  CALL(recv(s, &byte, 1, 0));
  CALL(send(s, &byte, 1, MSG_NOSIGNAL));
}

CASE(peer_resets_late, "a peer that resets when it has read a byte") {
  char byte = 0;
  const int s = called(PEER_RESETS_LATE);
  CALL(send(s, "x", 1, 0));
  CALL(recv(s, &byte, 1, 0));
  OPTION(s, SOL_SOCKET, SO_ERROR);
  say_ready("own", s);
}

CASE(peer_half_closes, "a peer that has ended, and reads on") {
  static char bytes[100000];
  const int s = called(PEER_HALF_CLOSES);
  CALL(recv(s, bytes, 1, 0));
  say_ready("own", s);
  CALL(send(s, bytes, sizeof bytes, MSG_NOSIGNAL));
  CALL(shutdown(s, SHUT_WR));
  await(s, POLLHUP);
  say_ready("own", s);
}

CASE(peer_reads_nothing, "a peer that reads nothing: full, and EAGAIN") {
  char byte = 0;
  const int s = called(PEER_READS_NOTHING);
  say("took something: %d", send_until_full(s));
  say_ready("full", s);
  CALL(send(s, &byte, 1, MSG_DONTWAIT));
}

CASE(peer_lingers, "close() with a linger time: until all is acknowledged") {
  static char bytes[1000000];
  const struct linger much = {1, 20};
  const int s = called(PEER_DISCARD);
  MUST(setsockopt(s, SOL_SOCKET, SO_LINGER, &much, sizeof much));
  CALL(send(s, bytes, sizeof bytes, 0));
  const long began = now_ms();
  CALL(close(s));
  say("soon: %d", now_ms() - began < 5000);
}

CASE(peer_lingers_long, "close() with a linger time: until that is over, or a signal comes") {
  const struct linger some = {1, 1}, much = {1, 20};
  int s = called(PEER_READS_NOTHING);
  nonblocking(s);
  MUST(setsockopt(s, SOL_SOCKET, SO_LINGER, &some, sizeof some));
  say("took something: %d", send_until_full(s));
  long began = now_ms();
  CALL(close(s));
  const long took = now_ms() - began;
  say("a second: %d", took >= 900 && took < 3000);
  s = called(PEER_READS_NOTHING);
  MUST(setsockopt(s, SOL_SOCKET, SO_LINGER, &much, sizeof much));
  say("took something: %d", send_until_full(s));
  count_signal(SIGALRM, SA_RESTART);
  alarm_once(1000);  // during close()
  began = now_ms();
  CALL(close(s));
  say("interrupted: %d, %d signal", now_ms() - began < 5000, signals_counted());
}

CASE(peer_refuses, "connection refused: no socket listens there") {
  union Address to;
  const socklen_t length = peer_address(&to, 6999);
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(connect(s, &to.any, length));
  OPTION(s, SOL_SOCKET, SO_ERROR);
  const int n = OPEN(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
  CALL(connect(n, &to.any, length));
  await(n, POLLERR);
  OPTION(n, SOL_SOCKET, SO_ERROR);
}

CASE(peer_nonblocking_connect, "connect() that does not wait, to the peer") {
  union Address to;
  char bytes[20];
  const socklen_t length = peer_address(&to, PEER_ECHO);
  const int s = OPEN(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
  CALL(connect(s, &to.any, length));
  await(s, POLLOUT);
  OPTION(s, SOL_SOCKET, SO_ERROR);
  CALL(connect(s, &to.any, length));
  CALL(send(s, "hello", 5, 0));
  await_bytes(s, 5);
  CALL(recv(s, bytes, sizeof bytes, 0));
}

CASE(peer_bound, "from a port that bind() chose") {
  union Address to;
  char bytes[20];
  const socklen_t length = peer_address(&to, PEER_ECHO);
  const int s = bound(SOCK_STREAM);
  const int port = port_of(s);
  CALL(connect(s, &to.any, length));
  say("the port is the same: %d", port == port_of(s));
  CALL(send(s, "hello", 5, 0));
  CALL(recv(s, bytes, 5, MSG_WAITALL));
}

CASE(peer_datagrams, "datagrams come back, whole") {
  union Address to, from;
  static char bytes[2000];
  const socklen_t length = peer_address(&to, PEER_ECHO);
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  const size_t sizes[] = {0, 1, 100, 1472};
  for (unsigned i = 0; i < 4; ++i) {
    MUST(sendto(s, bytes, sizes[i], 0, &to.any, length));
    socklen_t size = sizeof from;
    CALL(recvfrom(s, bytes, sizeof bytes, 0, &from.any, &size));
    say("from the peer: %d", memcmp(&from, &to, size) == 0);
  }
}

CASE(peer_datagram_refused, "no such port there: a connected socket is told") {
  union Address to;
  char byte = 0;
  const socklen_t length = peer_address(&to, 6999);
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  CALL(connect(s, &to.any, length));
  CALL(send(s, &byte, 1, 0));
  await(s, POLLERR);
  CALL(recv(s, &byte, 1, MSG_DONTWAIT));
}

CASE(peer_datagram_large, "a datagram of more than a frame, there and back") {
  union Address to;
  static char bytes[9000];
  const socklen_t length = peer_address(&to, PEER_ECHO);
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  CALL(connect(s, &to.any, length));
  CALL(send(s, bytes, 8000, 0));
  CALL(recv(s, bytes, sizeof bytes, 0));
}

CASE(peer_many, "thirty connections at once") {
  int all[30], right = 0;
  for (int i = 0; i < 30; ++i) all[i] = called(PEER_ECHO);
  for (int i = 0; i < 30; ++i) MUST(send(all[i], "hello", 5, 0));
  for (int i = 0; i < 30; ++i) {
    char bytes[6] = "";
    right += recv(all[i], bytes, 5, MSG_WAITALL) == 5 && strcmp(bytes, "hello") == 0;
  }
  say("right: %d", right);
}

CASE(peer_urgent, "urgent data comes back as ordinary: the peer does not look") {
  char bytes[20];
  const int s = called(PEER_ECHO);
  CALL(send(s, "abc", 3, MSG_OOB));
  say_bytes("back", bytes, CALL(recv(s, bytes, 2, MSG_WAITALL)));
}

CASE(peer_urgent_both, "urgent data from the peer, and to it") {
  char bytes[20];
  const int s = called(PEER_URGENT);
  CALL(send(s, "!", 1, 0));
  await(s, POLLPRI);
  say_bytes("before", bytes, CALL(recv(s, bytes, sizeof bytes, MSG_WAITALL)));
  say("at the mark: %d", sockatmark(s));
  say_bytes("urgent", bytes, CALL(recv(s, bytes, 1, MSG_OOB)));
  say_bytes("behind", bytes, CALL(recv(s, bytes, 3, MSG_WAITALL)));
  CALL(send(s, "nothing of this but the last: Y", 31, MSG_OOB));
  say_bytes("the peer has read", bytes, CALL(recv(s, bytes, 1, MSG_WAITALL)));
}

CASE(peer_keep_alive, "keep-alive with short times does no harm") {
  char bytes[20];
  const int s = called(PEER_ECHO);
  SET(s, SOL_SOCKET, SO_KEEPALIVE, 1);
  SET(s, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  SET(s, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  pause_ms(2200);
  CALL(send(s, "hello", 5, 0));
  CALL(recv(s, bytes, 5, MSG_WAITALL));
}

// A local stream has no segments to hold back (docs/SOCKETS.md).
static void only_over_a_wire(void) {
  union Address own, peer;
  own_address(&own, 0);
  peer_address(&peer, 0);
  if (memcmp(&own, &peer, sizeof own) != 0) return;
  say("skipped: on one host");
  _exit(0);
}

// Sends to an echo what must stay unsent. It is held back for 200 ms; if a busy machine lets that time pass, tries again.
static void send_held(int s, int flags) {
  char bytes[3];
  struct pollfd back = {s, POLLIN, 0};
  long took, ready;
  do {
    const long began = now_ms();
    MUST(send(s, "abc", 3, flags));
    ready = MUST(poll(&back, 1, 50));
    took = now_ms() - began;
  } while (ready > 0 && took > 150 && recv(s, bytes, sizeof bytes, MSG_WAITALL) == 3);
  say("it has come: %ld", ready);
}

CASE(peer_more, "MSG_MORE holds back, and what follows takes it along") {
  char bytes[20];
  only_over_a_wire();
  const int s = called(PEER_ECHO);
  send_held(s, MSG_MORE);
  CALL(send(s, "def", 3, 0));
  say_bytes("both", bytes, CALL(recv(s, bytes, 6, MSG_WAITALL)));
}

CASE(peer_delivered, "TCP_INFO counts segments that have arrived, the SYN among them") {
  char bytes[20];
  uint32_t info[50];  // the C library's struct tcp_info has only the first 26
  only_over_a_wire();
  const int s = called(PEER_ECHO);
  SET(s, IPPROTO_TCP, TCP_NODELAY, 1);
  for (int i = 0; i < 3; ++i) {
    CALL(send(s, "0123456789", 10, 0));
    CALL(recv(s, bytes, 10, MSG_WAITALL));
  }
  socklen_t length = sizeof info;
  CALL(getsockopt(s, IPPROTO_TCP, TCP_INFO, info, &length));
  say("delivered %u", info[48]);
}

CASE(peer_more_no_delay, "TCP_NODELAY lets go what MSG_MORE holds back, though it was set before") {
  char bytes[20];
  only_over_a_wire();
  const int s = called(PEER_ECHO);
  SET(s, IPPROTO_TCP, TCP_NODELAY, 1);
  send_held(s, MSG_MORE);
  SET(s, IPPROTO_TCP, TCP_NODELAY, 1);
  say_bytes("all", bytes, CALL(recv(s, bytes, 3, MSG_WAITALL)));
}

CASE(peer_cork, "TCP_CORK holds back, until it is taken off") {
  char bytes[20];
  only_over_a_wire();
  const int s = called(PEER_ECHO);
  SET(s, IPPROTO_TCP, TCP_CORK, 1);
  send_held(s, 0);
  SET(s, IPPROTO_TCP, TCP_CORK, 0);
  say_bytes("all", bytes, CALL(recv(s, bytes, 3, MSG_WAITALL)));
}

static void* receives_byte(void* fd) {
  char byte;
  return (void*)(recv(*(int*)fd, &byte, 1, 0) == 1 ? now_ms() : 0);
}

static void* polls_for_a_while(void* fd) {
  struct pollfd one = {*(int*)fd, POLLIN, 0};
  const long ready = poll(&one, 1, 1300);
  pause_ms(1000);  // an application that computes
  return (void*)ready;
}

CASE(peer_wakes_who_stays, "two threads wait, and one times out: the other's event wakes it at once") {
  int quiet = called(PEER_ECHO), answered = called(PEER_ECHOES_LATE);
  const pthread_t poller = start(polls_for_a_while, &quiet);
  pause_ms(50);
  const long began = now_ms();
  const pthread_t receiver = start(receives_byte, &answered);
  MUST(send(answered, "\x82", 1, 0));
  const long late = joined(receiver) - began - 1300;
  say("in time: %d", late >= -50 && late < 100);
  if (late < -50 || late >= 100) say("late: %ld ms", late);
  say("poller: %ld", joined(poller));
}

static int waiting;

static void calls_too(int number) {
  char byte = 0;
  const int s = called(PEER_ECHO);
  MUST(send(s, "x", 1, 0));
  MUST(recv(s, &byte, 1, 0));
  say("%s: %c", signal_name(number), byte);
  MUST(send(waiting, "y", 1, 0));
}

CASE(peer_called_by_handler, "a handler of a signal calls the peer while its thread has waited for long") {
  const struct sigaction action = {.sa_handler = calls_too, .sa_flags = SA_RESTART};
  char byte = 0;
  waiting = called(PEER_ECHO);
  MUST(sigaction(SIGALRM, &action, NULL));
  alarm_once(400);
  say_bytes("back", &byte, CALL(recv(waiting, &byte, 1, 0)));
}

THEME(peer_cases, &peer_echo, &peer_echo_sizes, &peer_discard, &peer_counts, &peer_chargen, &peer_closes, &peer_resets,
      &peer_resets_late, &peer_half_closes, &peer_reads_nothing, &peer_lingers, &peer_lingers_long,
      &peer_refuses, &peer_nonblocking_connect, &peer_bound,
      &peer_datagrams, &peer_datagram_refused, &peer_datagram_large, &peer_many, &peer_urgent, &peer_urgent_both, &peer_keep_alive,
      &peer_delivered, &peer_more, &peer_more_no_delay, &peer_cork, &peer_wakes_who_stays, &peer_called_by_handler);
