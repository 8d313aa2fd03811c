// readiness_poll.c - cases of poll() and ppoll(): readiness in each state, several descriptors, and invalid arguments.
#include <sys/select.h>

#include "tests/conformance/conformance.h"

CASE(poll_states, "what poll() says of streams in every state") {
  int ends[2];
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  say_ready("new", s);
  say_ready("bound", bound(SOCK_STREAM));
  const int listener = listening();
  say_ready("listener", listener);
  const int client = connected(listener);
  await(listener, POLLIN);
  say_ready("listener with one", listener);
  say_ready("client", client);
  streams(ends);
  say_ready("connected", ends[0]);
  send(ends[1], "abc", 3, 0);
  await(ends[0], POLLIN);
  say_ready("with data", ends[0]);
  shutdown(ends[1], SHUT_WR);
  await(ends[0], POLLRDHUP);
  say_ready("with data and the end", ends[0]);
  say_ready("its peer", ends[1]);
}

CASE(poll_datagram_states, "what poll() says of datagram sockets") {
  int ends[2];
  say_ready("new", socket(family, SOCK_DGRAM, 0));
  datagrams(ends);
  say_ready("connected", ends[0]);
  send(ends[1], "abc", 3, 0);
  await(ends[0], POLLIN);
  say_ready("with one", ends[0]);
}

CASE(poll_asked_only, "poll() says what was asked for, and errors") {
  int ends[2];
  streams(ends);
  send(ends[1], "abc", 3, 0);
  await(ends[0], POLLIN);
  const short asked[] = {0, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM, POLLPRI, POLLRDHUP, POLLERR, POLLRDBAND, POLLWRBAND};
  for (unsigned i = 0; i < sizeof asked / sizeof *asked; ++i) {
    struct pollfd one = {ends[0], asked[i], 0};
    CALL(poll(&one, 1, 0));
    say("%s", events_name((unsigned short)one.revents));
  }
  reset(ends[1]);
  await(ends[0], POLLERR);
  struct pollfd one = {ends[0], 0, 0};
  CALL(poll(&one, 1, 0));
  say("%s", events_name((unsigned short)one.revents));
}

CASE(poll_several, "poll() of several: ours, closed ones, negative ones, files, pipes") {
  int ends[2], pipes[2];
  streams(ends);
  CALL(pipe(pipes));
  CALL(write(pipes[1], "x", 1));
  const int file = open("/dev/null", O_RDWR);
  const int closed = dup(file);
  close(closed);
  struct pollfd all[] = {{ends[0], POLLIN | POLLOUT, 0}, {closed, POLLIN, 0}, {-1, POLLIN, 0},           {file, POLLIN | POLLOUT, 0},
                         {pipes[0], POLLIN, 0},          {ends[1], POLLIN, 0}, {ends[0], POLLOUT, 0}, {pipes[1], POLLOUT, 0}};
  CALL(poll(all, 8, 1000));
  for (int i = 0; i < 8; ++i) say("%d: %s", i, events_name((unsigned short)all[i].revents));
}

CASE(poll_none, "poll() of no descriptors, and with invalid arguments") {
  struct pollfd one = {-1, POLLIN, 0x7fff};
  CALL(poll(NULL, 0, 10));
  CALL(poll(&one, 1, 10));
  say("%s", events_name((unsigned short)one.revents));
  CALL(poll((struct pollfd*)8, 1, 0));
  CALL(poll(&one, (nfds_t)-1, 0));
  const struct timespec wrong = {0, 2000000000};
  CALL(ppoll(&one, 1, &wrong, NULL));
  const struct timespec none = {0, 0};
  CALL(ppoll(&one, 1, &none, NULL));
}

static void* sends_late(void* fd) {
  pause_ms(50);
  send(*(int*)fd, "late", 4, 0);
  return NULL;
}

CASE(poll_waits, "poll() without a limit waits for what comes") {
  int ends[2];
  streams(ends);
  const pthread_t sender = start(sends_late, &ends[1]);
  struct pollfd one = {ends[0], POLLIN, 0};
  CALL(poll(&one, 1, -1));
  say("%s", events_name((unsigned short)one.revents));
  joined(sender);
}

static void* writes_pipe_late(void* fd) {
  pause_ms(50);
  if (write(*(int*)fd, "x", 1) != 1) return (void*)1;
  return NULL;
}

CASE(poll_waits_for_both, "poll() of a socket and a pipe: the pipe wakes it, the socket wakes it") {
  int ends[2], pipes[2];
  char byte;
  streams(ends);
  MUST(pipe(pipes));
  struct pollfd both[] = {{ends[0], POLLIN, 0}, {pipes[0], POLLIN, 0}};
  pthread_t other = start(writes_pipe_late, &pipes[1]);
  CALL(poll(both, 2, -1));
  say("socket %s", events_name((unsigned short)both[0].revents));
  say("pipe %s", events_name((unsigned short)both[1].revents));
  joined(other);
  CALL(read(pipes[0], &byte, 1));
  other = start(sends_late, &ends[1]);
  CALL(poll(both, 2, -1));
  say("socket %s", events_name((unsigned short)both[0].revents));
  say("pipe %s", events_name((unsigned short)both[1].revents));
  joined(other);
}

CASE(poll_one_twice, "the same socket twice in one poll()") {
  int ends[2];
  streams(ends);
  struct pollfd twice[] = {{ends[0], POLLIN, 0}, {ends[0], POLLOUT, 0}};
  CALL(poll(twice, 2, 0));
  say("%s", events_name((unsigned short)twice[0].revents));
  say("%s", events_name((unsigned short)twice[1].revents));
}

CASE(poll_lowat, "SO_RCVLOWAT: not readable with less") {
  int ends[2];
  streams(ends);
  SET(ends[0], SOL_SOCKET, SO_RCVLOWAT, 10);
  send(ends[1], "12345", 5, 0);
  await_bytes(ends[0], 5);
  say_ready("5", ends[0]);
  send(ends[1], "67890", 5, 0);
  await_bytes(ends[0], 10);
  say_ready("10", ends[0]);
  SET(ends[0], SOL_SOCKET, SO_RCVLOWAT, 11);
  say_ready("wants 11", ends[0]);
  shutdown(ends[1], SHUT_WR);
  await(ends[0], POLLRDHUP);
  say_ready("the end", ends[0]);
}

CASE(poll_level, "poll() says the same again until it is read") {
  int ends[2];
  char bytes[20];
  streams(ends);
  send(ends[1], "abc", 3, 0);
  await(ends[0], POLLIN);
  say_ready("once", ends[0]);
  say_ready("again", ends[0]);
  CALL(recv(ends[0], bytes, 2, 0));
  say_ready("a part read", ends[0]);
  CALL(recv(ends[0], bytes, 2, 0));
  say_ready("all read", ends[0]);
}

static void ask_many(struct pollfd* all, int count) {
  fd_set reads;
  CALL(poll(all, (nfds_t)count, 20));
  say("first: %s", events_name((unsigned short)all[0].revents));
  say("last: %s", events_name((unsigned short)all[count - 1].revents));
  FD_ZERO(&reads);
  for (int i = 0; i < count; ++i) FD_SET(all[i].fd, &reads);
  struct timeval some = {0, 20000};
  CALL(select(FD_SETSIZE, &reads, NULL, NULL, &some));
  say("first: %d, last: %d", FD_ISSET(all[0].fd, &reads) != 0, FD_ISSET(all[count - 1].fd, &reads) != 0);
}

CASE(poll_many, "poll() and select() of a hundred descriptors, sockets and a pipe's") {
  enum { kMany = 100 };
  int ends[2], pipes[2];
  struct pollfd all[kMany];
  streams(ends);
  MUST(pipe(pipes));
  all[0] = (struct pollfd){ends[0], POLLIN, 0};
  for (int i = 1; i < kMany - 1; ++i) all[i] = (struct pollfd){(int)MUST(dup(pipes[0])), POLLIN, 0};
  all[kMany - 1] = (struct pollfd){ends[1], POLLIN, 0};
  ask_many(all, kMany);
  CALL(send(ends[0], "abc", 3, 0));
  await(ends[1], POLLIN);
  ask_many(all, kMany);
  CALL(write(pipes[1], "x", 1));
  ask_many(all, kMany);
  ask_many(all, kMany - 1);
}

THEME(readiness_poll, &poll_states, &poll_datagram_states, &poll_asked_only, &poll_several, &poll_none, &poll_waits,
      &poll_waits_for_both, &poll_one_twice, &poll_lowat, &poll_level, &poll_many);
