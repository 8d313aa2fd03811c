// process_ends.c - cases of a process that exits, in each way, or executes another program: all sent data arrives.
#include <stdlib.h>

#include "tests/conformance/conformance.h"

enum Way { EXIT, UNDERSCORE_EXIT, CAPITAL_EXIT, QUICK_EXIT, LAST_THREAD, EXEC, WAYS };
static const char* const ways[WAYS] = {"exit()", "_exit()", "_Exit()", "quick_exit()", "the last thread ends", "exec()"};

static void* ends_later(void* unused) {
  pause_ms(20);
  return unused;
}

static void end_by(enum Way way) {
  switch (way) {
    case EXIT: exit(0);
    case UNDERSCORE_EXIT: _exit(0);
    case CAPITAL_EXIT: _Exit(0);
    case QUICK_EXIT: quick_exit(0);
    case LAST_THREAD:
      pthread_detach(start(ends_later, NULL));
      pthread_exit(NULL);
    case EXEC: execl("/bin/true", "true", (char*)NULL); break;
    case WAYS: break;
  }
  _exit(1);
}

// A child sends until the buffers are full, and exits with the connection open or closed. Returns the number of bytes.
static long sent_by_child(const union Address* to, socklen_t length, enum Way way, int closes) {
  static char bytes[1 << 16];
  long sent = 0;
  int pipes[2];
  MUST(pipe(pipes));
  const pid_t pid = (pid_t)MUST(fork());
  if (pid == 0) {
    const int s = (int)MUST(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    MUST(connect(s, &to->any, length));
    nonblocking(s);
    for (long more; sent < 2000000 && (more = send(s, bytes, sizeof bytes, 0)) > 0;) sent += more;
    MUST(write(pipes[1], &sent, sizeof sent));
    if (closes) close(s);
    end_by(way);
  }
  close(pipes[1]);
  MUST(read(pipes[0], &sent, sizeof sent));
  close(pipes[0]);
  say_ended(ways[way], pid);
  return sent;
}

static void say_arrived(long sent, long came, int closes) {
  say("%s: %s", closes ? "closed" : "open", came == sent ? "all came, and the end" : "not all came");
  if (came != sent) say("%ld of %ld", came, sent);
}

CASE(process_ends, "what a process has sent arrives, however it ends") {
  static char bytes[1 << 16];
  union Address own;
  const int listener = listening();
  const socklen_t length = address_of(listener, &own);
  for (int i = 0; i < 2 * WAYS; ++i) {
    long came = 0, more;
    const long sent = sent_by_child(&own, length, (enum Way)(i / 2), i % 2);
    const int s = accepted(listener);
    while ((more = recv(s, bytes, sizeof bytes, 0)) > 0) came += more;
    say_arrived(sent, more < 0 ? more : came, i % 2);
    close(s);
  }
}

CASE(peer_process_ends, "what a process has sent arrives at a peer that reads it later, however it ends") {
  union Address peer;
  char text[32] = "";
  const socklen_t length = peer_address(&peer, PEER_TELLS);
  for (int i = 0; i < WAYS; ++i) {
    const int told = (int)MUST(socket(family, SOCK_STREAM, 0));
    MUST(connect(told, &peer.any, length));
    MUST(recv(told, text, 8, MSG_WAITALL));
    union Address to = peer;
    if (family == AF_INET) to.v4.sin_port = htons((uint16_t)atoi(text));
    else to.v6.sin6_port = htons((uint16_t)atoi(text));
    const long sent = sent_by_child(&to, length, (enum Way)i, i % 2);
    MUST(send(told, "", 1, 0));
    memset(text, 0, sizeof text);
    MUST(recv(told, text, sizeof text - 1, 0));
    say_arrived(sent, atol(text), i % 2);
    close(told);
  }
}

THEME(process_ends, &process_ends, &peer_process_ends);
