// passing.c - cases of sockets passed over AF_UNIX (SCM_RIGHTS), to another process or to the own, and by pidfd_getfd().
#include <sys/syscall.h>

#include "tests/conformance/conformance.h"

static void pass(int over, int fd) {
  char control[CMSG_SPACE(sizeof fd)];
  struct iovec out = {"x", 1};
  struct msghdr sent = {.msg_iov = &out, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  memset(control, 0, sizeof control);
  struct cmsghdr* first = CMSG_FIRSTHDR(&sent);
  first->cmsg_level = SOL_SOCKET;
  first->cmsg_type = SCM_RIGHTS;
  first->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(first), &fd, sizeof fd);
  MUST(sendmsg(over, &sent, 0));
}

static int passed(int over, int flags) {
  char control[CMSG_SPACE(sizeof(int))], byte;
  struct iovec in = {&byte, 1};
  struct msghdr got = {.msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  int fd = -1;
  MUST(recvmsg(over, &got, flags));
  const struct cmsghdr* first = CMSG_FIRSTHDR(&got);
  if (first != NULL) memcpy(&fd, CMSG_DATA(first), sizeof fd);
  return (int)MUST(fd);
}

static int locals[2];

static void echoes_what_is_passed(int over) {
  char bytes[20];
  const int s = passed(over, 0);
  const long length = recv(s, bytes, sizeof bytes, 0);
  if (length > 0) send(s, bytes, (size_t)length, 0);
}

CASE(pass_connection, "a connection is passed to a child that was there before it") {
  int ends[2];
  char bytes[20];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, locals));
  const pid_t pid = child(echoes_what_is_passed, locals[1]);
  streams(ends);
  pass(locals[0], ends[1]);
  CALL(close(ends[1]));
  CALL(send(ends[0], "abc", 3, 0));
  say_bytes("echo", bytes, CALL(recv(ends[0], bytes, 3, MSG_WAITALL)));
  say_ended("child", pid);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
}

static void passes_and_ends(int listener) {
  const int s = connected(listener);
  pass(locals[0], s);
}

CASE(pass_and_end, "a process passes a connection by SCM_RIGHTS and ends: the receiver goes on with it") {
  char bytes[20];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, locals));
  const pid_t other = child(echoes_what_is_passed, locals[1]);
  const int listener = listening();
  say_ended("who had it", child(passes_and_ends, listener));
  const int s = accepted(listener);
  CALL(send(s, "abc", 3, 0));
  say_bytes("echo", bytes, CALL(recv(s, bytes, 3, MSG_WAITALL)));
  say_ended("who has it", other);
  CALL(recv(s, bytes, sizeof bytes, 0));
}

static void accepts_from_what_is_passed(int over) {
  const int s = accept(passed(over, 0), NULL, NULL);
  send(s, "served", 6, 0);
}

// The child runs `body`, which accepts.
static void listener_is_passed(void (*body)(int)) {
  char bytes[20];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, locals));
  const pid_t pid = child(body, locals[1]);
  const int listener = listening();
  pass(locals[0], listener);
  const int client = connected(listener);
  say_bytes("client", bytes, CALL(recv(client, bytes, 6, MSG_WAITALL)));
  say_ended("child", pid);
}

CASE(pass_listener, "a listener is passed, and accepts there") { listener_is_passed(accepts_from_what_is_passed); }

static void peeks_and_accepts(int over) {
  close(passed(over, MSG_PEEK));
  accepts_from_what_is_passed(over);
}

CASE(pass_peeked, "recvmsg() with MSG_PEEK at a passed listener leaves it to the later receiver") { listener_is_passed(peeks_and_accepts); }

CASE(pass_datagram_socket, "a datagram socket is passed") {
  int ends[2];
  char bytes[20];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, locals));
  const pid_t pid = child(echoes_what_is_passed, locals[1]);
  datagrams(ends);
  pass(locals[0], ends[1]);
  CALL(send(ends[0], "abc", 3, 0));
  say_bytes("echo", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
  say_ended("child", pid);
}

CASE(pass_to_itself, "a connection passed to the own process is a duplicate") {
  int ends[2];
  char bytes[20];
  MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, locals));
  streams(ends);
  pass(locals[0], ends[0]);
  CALL(close(ends[0]));
  pause_ms(20);
  say_ready("peer, while it is on its way", ends[1]);
  const int copy = passed(locals[1], MSG_CMSG_CLOEXEC);
  CALL(fcntl(copy, F_GETFD));
  CALL(send(ends[1], "abc", 3, 0));
  say_bytes("copy", bytes, CALL(recv(copy, bytes, sizeof bytes, 0)));
  CALL(close(copy));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(pass_with_data, "a connection with unread bytes is passed with them") {
  int ends[2];
  char bytes[20];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, locals));
  const pid_t pid = child(echoes_what_is_passed, locals[1]);
  streams(ends);
  CALL(send(ends[0], "before", 6, 0));
  await_bytes(ends[1], 6);
  pass(locals[0], ends[1]);
  say_bytes("echo", bytes, CALL(recv(ends[0], bytes, 6, MSG_WAITALL)));
  say_ended("child", pid);
}

CASE(pass_lost, "a connection in flight over SCM_RIGHTS ends if the receiving socket is closed") {
  int ends[2];
  char bytes[20];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, locals));
  streams(ends);
  pass(locals[0], ends[0]);
  CALL(close(ends[0]));
  CALL(close(locals[1]));
  CALL(close(locals[0]));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

static void passes_its_own(int over) {
  const int listener = listening();
  pass(over, connected(listener));
  send(accepted(listener), "from the child", 14, 0);
  char byte;
  if (read(over, &byte, 1) < 0) _exit(1);
}

CASE(pass_from_a_child, "a child passes a connection that it opened to its parent") {
  char bytes[20];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, locals));
  const pid_t pid = child(passes_its_own, locals[1]);
  const int s = passed(locals[0], 0);
  say_bytes("received", bytes, CALL(recv(s, bytes, 14, MSG_WAITALL)));
  say_names("passed", s);
  CALL(write(locals[0], "x", 1));
  say_ended("child", pid);
}

CASE(pass_several, "SCM_RIGHTS with sockets and files mixed") {
  int ends[2], fds[4];
  char control[CMSG_SPACE(sizeof fds)], bytes[20];
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, locals));
  streams(ends);
  const int sent_fds[4] = {ends[0], open("/dev/zero", O_RDONLY), listening(), bound(SOCK_DGRAM)};
  struct iovec one = {bytes, 1};
  struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr* first = CMSG_FIRSTHDR(&message);
  first->cmsg_level = SOL_SOCKET;
  first->cmsg_type = SCM_RIGHTS;
  first->cmsg_len = CMSG_LEN(sizeof fds);
  memcpy(CMSG_DATA(first), sent_fds, sizeof sent_fds);
  CALL(sendmsg(locals[0], &message, 0));
  memset(control, 0, sizeof control);
  CALL(recvmsg(locals[1], &message, 0));
  memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
  CALL(send(ends[1], "abc", 3, 0));
  CALL(recv(fds[0], bytes, sizeof bytes, 0));
  CALL(read(fds[1], bytes, 4));
  OPTION(fds[2], SOL_SOCKET, SO_ACCEPTCONN);
  OPTION(fds[3], SOL_SOCKET, SO_TYPE);
}

CASE(pass_pidfd, "pidfd_getfd() of a child's connection") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[1]);
    pause();
  }
  const int process = (int)syscall(SYS_pidfd_open, pid, 0);
  const int number = ends[0];
  CALL(close(ends[0]));
  const int copy = OPEN((int)syscall(SYS_pidfd_getfd, process, number, 0));
  CALL(send(ends[1], "abc", 3, 0));
  CALL(recv(copy, bytes, sizeof bytes, 0));
  kill(pid, SIGKILL);
}

THEME(passing, &pass_connection, &pass_and_end, &pass_listener, &pass_peeked, &pass_datagram_socket, &pass_to_itself, &pass_with_data,
      &pass_lost, &pass_from_a_child, &pass_several, &pass_pidfd);
