// other_users.c - cases of processes that change user or root directory before they make a socket.
#include <grp.h>

#include "tests/conformance/conformance.h"

enum { USER = 65534 };

static void has_another_root(void) {
  MUST(chroot("/usr/share"));
  MUST(chdir("/"));
}

static void is_another_user(void) {
  MUST(setgroups(0, NULL));
  MUST(setgid(USER));
  MUST(setuid(USER));
}

// Sends a datagram and connects a stream to sockets of another process.
static void calls_both(const union Address* datagrams, const union Address* listener, socklen_t length) {
  char byte;
  const int s = bound(SOCK_DGRAM);
  MUST(sendto(s, "d", 1, 0, &datagrams->any, length));
  MUST(recv(s, &byte, 1, 0));
  const int t = (int)MUST(socket(family, SOCK_STREAM, 0));
  MUST(connect(t, &listener->any, length));
  MUST(send(t, "s", 1, 0));
}

static void say_child_of(void (*change)(void)) {
  union Address here, there, from;
  char byte = 0;
  const int inherited = bound(SOCK_DGRAM), s = bound(SOCK_DGRAM), listener = listening();
  const socklen_t length = address_of(s, &here);
  address_of(listener, &there);
  const pid_t pid = (pid_t)MUST(fork());
  if (pid == 0) {
    close(inherited);
    close(s);
    close(listener);
    change();
    calls_both(&here, &there, length);
    _exit(0);
  }
  socklen_t from_length = sizeof from;
  await(s, POLLIN);
  CALL(recvfrom(s, &byte, 1, 0, &from.any, &from_length));
  MUST(sendto(s, "x", 1, 0, &from.any, from_length));
  CALL(recv(accepted(listener), &byte, 1, 0));
  say_ended("child", pid);
}

CASE(root_of_child, "a child closes what it has inherited and calls chroot(): its new sockets work") { say_child_of(has_another_root); }
CASE(user_of_child, "a child closes what it has inherited and becomes another user's: its new sockets work") {
  say_child_of(is_another_user);
}

// Changes before the first socket, as a client that drops its rights at once.
static void say_own_after(void (*change)(void)) {
  int ends[2];
  char byte;
  change();
  streams(ends);
  CALL(send(ends[0], "x", 1, 0));
  CALL(recv(ends[1], &byte, 1, 0));
}

CASE(root_first, "a process calls chroot() before it has a socket") { say_own_after(has_another_root); }
CASE(user_first, "a process becomes another user's before it has a socket") { say_own_after(is_another_user); }

THEME(other_users, &root_of_child, &user_of_child, &root_first, &user_first);
