// urgent.c - cases of urgent data: where reading stops, how long the urgent byte stays, and which process is notified.
#include <stdatomic.h>
#include <sys/epoll.h>

#include "tests/conformance/conformance.h"

// Makes a stream that has received `text`, its last byte urgent, and `more` behind it.
static void urgent_streams(int ends[2], const char* text, const char* more) {
  streams(ends);
  MUST(send(ends[0], text, strlen(text), MSG_OOB));
  await(ends[1], POLLPRI);
  if (*more == 0) return;
  MUST(send(ends[0], more, strlen(more), 0));
  pause_ms(20);  // no event announces data beyond the urgent byte
}

static void say_mark(int fd) {
  int unread = -1;
  say("at the mark: %d", sockatmark(fd));
  CALL(ioctl(fd, FIONREAD, &unread));
  say("unread: %d", unread);
}

CASE(urgent_alone, "an urgent byte and nothing else: it is not readable, and read over it is lost") {
  int ends[2];
  char bytes[20];
  urgent_streams(ends, "X", "");
  say_ready("urgent", ends[1]);
  say_mark(ends[1]);
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT));
  say_bytes("peeked", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_OOB | MSG_PEEK)));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_OOB));
  say_ready("lost", ends[1]);
  say_mark(ends[1]);
}

CASE(urgent_reads, "reading up to the mark, over it, and beside it") {
  int ends[2];
  char bytes[20];
  urgent_streams(ends, "abcX", "def");
  say_mark(ends[1]);
  say_bytes("two", bytes, CALL(recv(ends[1], bytes, 2, 0)));
  say_mark(ends[1]);
  say_bytes("peeked", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_PEEK)));
  say_bytes("one", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  say_ready("at the mark", ends[1]);
  say_mark(ends[1]);
  say_bytes("peeked over", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_PEEK)));
  say_mark(ends[1]);
  say_bytes("urgent", bytes, CALL(recv(ends[1], bytes, 1, MSG_OOB)));
  say_ready("taken", ends[1]);
  say_bytes("behind", bytes, CALL(recv(ends[1], bytes, 2, 0)));
  say_mark(ends[1]);
  say_bytes("the rest", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(urgent_rooms, "MSG_OOB with no room, room nowhere, MSG_TRUNC, and by recvfrom(), recvmsg(), readv()") {
  int ends[2];
  char bytes[20] = "", more[4] = "";
  union Address from;
  socklen_t length = sizeof from;
  struct iovec pieces[] = {{bytes, 1}, {more, sizeof more}};
  struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
  urgent_streams(ends, "abX", "cd");
  CALL(recv(ends[1], bytes, 0, MSG_OOB | MSG_PEEK));
  CALL(recv(ends[1], NULL, 1, MSG_OOB | MSG_PEEK));
  CALL(recv(ends[1], bytes, 5, MSG_OOB | MSG_PEEK | MSG_WAITALL));
  CALL(recvfrom(ends[1], bytes, 5, MSG_OOB | MSG_PEEK, &from.any, &length));
  CALL(recvmsg(ends[1], &message, MSG_OOB | MSG_PEEK));
  say_bytes("beside", bytes, 1);
  say("flags: %s", (message.msg_flags & MSG_OOB) != 0 ? "MSG_OOB" : "0");
  CALL(readv(ends[1], pieces, 2));
  say_bytes("one", bytes, 1);
  say_bytes("two", more, 2);
  CALL(recv(ends[1], bytes, 5, MSG_OOB | MSG_TRUNC));
  CALL(recv(ends[1], bytes, 5, MSG_OOB));
}

CASE(urgent_stops, "MSG_WAITALL and readv() stop at the mark") {
  int ends[2];
  char bytes[20], one[2], two[8];
  const struct iovec pieces[] = {{one, 2}, {two, 8}};
  urgent_streams(ends, "abX", "cde");
  say_bytes("all", bytes, CALL(recv(ends[1], bytes, 5, MSG_WAITALL)));
  say_bytes("all", bytes, CALL(recv(ends[1], bytes, 3, MSG_WAITALL)));
  MUST(send(ends[0], "fgY", 3, MSG_OOB));
  await(ends[1], POLLPRI);
  MUST(send(ends[0], "hi", 2, 0));
  pause_ms(20);
  CALL(readv(ends[1], pieces, 2));
  say_mark(ends[1]);
  CALL(readv(ends[1], pieces, 2));
  say_bytes("behind", one, 2);
}

CASE(urgent_again, "a further urgent byte: the one before is like any other, but not at the mark") {
  int ends[2];
  char bytes[20];
  urgent_streams(ends, "aX", "bc");
  say_bytes("first", bytes, CALL(recv(ends[1], bytes, 1, MSG_OOB)));
  MUST(send(ends[0], "dY", 2, MSG_OOB));
  await(ends[1], POLLPRI);
  say_bytes("second", bytes, CALL(recv(ends[1], bytes, 1, MSG_OOB)));
  say_bytes("up to it", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  say_mark(ends[1]);
  MUST(send(ends[0], "eZ", 2, MSG_OOB));
  await(ends[1], POLLPRI);
  say_mark(ends[1]);
  say_bytes("up to the third", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  say_bytes("third", bytes, CALL(recv(ends[1], bytes, 1, MSG_OOB)));
}

CASE(urgent_inline_later, "SO_OOBINLINE when the byte is there already, and off again") {
  int ends[2];
  char bytes[20];
  urgent_streams(ends, "aX", "b");
  SET_AND_GET(ends[1], SOL_SOCKET, SO_OOBINLINE, 7);
  CALL(recv(ends[1], bytes, 1, MSG_OOB));
  say_mark(ends[1]);
  say_bytes("before", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  say_ready("at the mark", ends[1]);
  say_mark(ends[1]);
  SET_AND_GET(ends[1], SOL_SOCKET, SO_OOBINLINE, 0);
  say_mark(ends[1]);
  say_bytes("beside", bytes, CALL(recv(ends[1], bytes, 1, MSG_OOB)));
  say_bytes("behind", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(urgent_inherited, "SO_OOBINLINE goes from a listener to what it accepts") {
  char bytes[20];
  const int listener = listening();
  SET(listener, SOL_SOCKET, SO_OOBINLINE, 1);
  const int client = connected(listener), server = accepted(listener);
  OPTION(server, SOL_SOCKET, SO_OOBINLINE);
  MUST(send(client, "aX", 2, MSG_OOB));
  await(server, POLLPRI);
  say_bytes("before", bytes, CALL(recv(server, bytes, sizeof bytes, 0)));
  say_bytes("in line", bytes, CALL(recv(server, bytes, sizeof bytes, 0)));
}

CASE(urgent_end, "urgent data at the end of a stream") {
  int ends[2];
  char bytes[20];
  urgent_streams(ends, "aX", "");
  MUST(shutdown(ends[0], SHUT_WR));
  await(ends[1], POLLRDHUP);
  say_ready("ended", ends[1]);
  say_bytes("before", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  say_ready("at the mark", ends[1]);
  say_bytes("urgent", bytes, CALL(recv(ends[1], bytes, 1, MSG_OOB)));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  CALL(recv(ends[1], bytes, 1, MSG_OOB));
}

CASE(urgent_vectors, "sendmsg() and writev() of several buffers, and of nothing") {
  int ends[2];
  char bytes[20];
  struct iovec pieces[] = {{"ab", 2}, {"", 0}, {"cX", 2}};
  struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
  streams(ends);
  CALL(send(ends[0], bytes, 0, MSG_OOB));
  CALL(sendmsg(ends[0], &message, MSG_OOB | MSG_MORE));
  await(ends[1], POLLPRI);
  say_bytes("urgent", bytes, CALL(recv(ends[1], bytes, 1, MSG_OOB)));
  say_bytes("before", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(urgent_nobody, "urgent data on sockets that are not connected") {
  char byte;
  const int stream = OPEN(socket(family, SOCK_STREAM, 0)), datagram = bound(SOCK_DGRAM), listener = listening();
  CALL(recv(stream, &byte, 1, MSG_OOB));
  CALL(send(stream, "X", 1, MSG_OOB | MSG_NOSIGNAL));
  CALL(recv(listener, &byte, 1, MSG_OOB));
  CALL(recv(datagram, &byte, 1, MSG_OOB | MSG_DONTWAIT));
  SET_AND_GET(datagram, SOL_SOCKET, SO_OOBINLINE, 1);
  say("stream: %d", sockatmark(stream));
  CALL(recv(-1, &byte, 1, MSG_OOB));
}

CASE(urgent_epoll, "EPOLLPRI: level, and edge once for each") {
  int ends[2];
  char byte;
  struct epoll_event event = {EPOLLPRI, {.u64 = 1}}, got[2];
  streams(ends);
  const int level = (int)MUST(epoll_create1(0)), edge = (int)MUST(epoll_create1(0));
  MUST(epoll_ctl(level, EPOLL_CTL_ADD, ends[1], &event));
  event.events |= EPOLLET;
  MUST(epoll_ctl(edge, EPOLL_CTL_ADD, ends[1], &event));
  MUST(send(ends[0], "a", 1, 0));
  await_bytes(ends[1], 1);
  CALL(epoll_wait(level, got, 2, 0));
  CALL(epoll_wait(edge, got, 2, 0));
  MUST(send(ends[0], "X", 1, MSG_OOB));
  await(ends[1], POLLPRI);
  CALL(epoll_wait(level, got, 2, 1000));
  say("level: %s", events_name(got[0].events));
  CALL(epoll_wait(edge, got, 2, 1000));
  say("edge: %s", events_name(got[0].events));
  CALL(epoll_wait(level, got, 2, 0));
  CALL(epoll_wait(edge, got, 2, 0));
  CALL(recv(ends[1], &byte, 1, MSG_OOB));
  CALL(epoll_wait(level, got, 2, 0));
}

static atomic_int read_by_handler;
static int reads_from;

static void reads_urgent(int number) {
  (void)number;
  char byte = 0;
  if (recv(reads_from, &byte, 1, MSG_OOB) == 1) read_by_handler = byte;
}

// Directs SIGURG to this thread.
static void own(int fd) {
  struct f_owner_ex owner = {F_OWNER_TID, gettid()};
  CALL(fcntl(fd, F_SETOWN_EX, &owner));
}

// Installs a SIGURG handler that reads the urgent byte.
static void read_when_told(int fd) {
  struct sigaction action = {.sa_handler = reads_urgent, .sa_flags = SA_RESTART};
  reads_from = fd;
  MUST(sigaction(SIGURG, &action, NULL));
  own(fd);
}

CASE(urgent_signal_reads, "SIGURG's handler reads the byte, while its thread waits for data") {
  int ends[2];
  char bytes[20];
  streams(ends);
  read_when_told(ends[1]);
  say("owned by the thread: %d", fcntl(ends[1], F_GETOWN) == gettid());
  MUST(send(ends[0], "X", 1, MSG_OOB));
  for (int i = 0; i < 100 && read_by_handler == 0; ++i) {
    await(ends[1], POLLOUT);
    pause_ms(10);
  }
  say("the handler has read: %c", read_by_handler);
  MUST(send(ends[0], "a", 1, 0));
  say_bytes("behind", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

static void* urges_later(void* fd) {
  pause_ms(60);
  MUST(send(*(int*)fd, "X", 1, MSG_OOB));
  pause_ms(500);  // the notified thread must run before another event comes
  MUST(send(*(int*)fd, "a", 1, 0));
  return NULL;
}

CASE(urgent_signal_in_recv, "SIGURG's handler reads the byte, while its thread is in recv()") {
  int ends[2];
  char bytes[20];
  streams(ends);
  read_when_told(ends[1]);
  const pthread_t sender = start(urges_later, &ends[0]);
  say_bytes("behind", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  joined(sender);
  say("the handler has read: %c", read_by_handler);
}

CASE(urgent_signal_ends_recv, "SIGURG without SA_RESTART: recv() is interrupted, and the byte is still there") {
  int ends[2];
  char bytes[20];
  streams(ends);
  count_signal(SIGURG, 0);
  own(ends[1]);
  const pthread_t sender = start(urges_later, &ends[0]);
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  say("signals: %d", signals_counted());
  say_bytes("urgent", bytes, CALL(recv(ends[1], bytes, 1, MSG_OOB)));
  joined(sender);
  say_bytes("behind", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

static void* owns_and_receives(void* fd) {
  own(*(int*)fd);
  return receives_once(fd);
}

CASE(urgent_signal_ends_each, "SIGURG again and again, for a thread that sleeps: the wake-up comes with the signal") {
  int ends[2];
  char byte;
  streams(ends);
  count_signal(SIGURG, 0);
  for (int i = 0; i < 10; ++i) {
    const pthread_t receiver = asleep(owns_and_receives, &ends[1]);
    MUST(send(ends[0], "X", 1, MSG_OOB));
    say_result("received", joined(receiver));
    CALL(recv(ends[1], &byte, 1, MSG_OOB));
  }
  say("signals: %d", signals_counted());
}

CASE(urgent_signals_each, "SIGURG and POLLPRI for each urgent byte, also when the one before was taken") {
  int ends[2];
  char byte;
  streams(ends);
  count_signal(SIGURG, SA_RESTART);
  CALL(fcntl(ends[1], F_SETOWN, getpid()));
  for (int i = 1; i <= 3; ++i) {
    MUST(send(ends[0], "X", 1, MSG_OOB));
    await(ends[1], POLLPRI);
    for (int j = 0; j < 100 && signals_counted() < i; ++j) pause_ms(10);
    say("signals: %d", signals_counted());
    CALL(recv(ends[1], &byte, 1, MSG_OOB));
    say_ready("taken", ends[1]);
  }
}

CASE(urgent_ends_waiting, "MSG_WAITALL that waits ends at a mark that comes meanwhile") {
  int ends[2];
  char bytes[20];
  streams(ends);
  const pthread_t reader = start(receives_all, &ends[1]);
  MUST(send(ends[0], "abcde", 5, 0));
  pause_ms(60);
  MUST(send(ends[0], "X", 1, MSG_OOB));
  MUST(send(ends[0], "fgh", 3, 0));
  say("received: %ld", joined(reader));
  say("at the mark: %d", sockatmark(ends[1]));
  say_bytes("behind", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(urgent_low_water, "SO_RCVLOWAT counts what lies behind the mark, and not the urgent byte") {
  int ends[2];
  char bytes[20];
  streams(ends);
  SET(ends[1], SOL_SOCKET, SO_RCVLOWAT, 3);
  MUST(send(ends[0], "X", 1, MSG_OOB));
  MUST(send(ends[0], "ab", 2, 0));
  await(ends[1], POLLPRI);
  pause_ms(20);
  say_ready("two behind", ends[1]);
  MUST(send(ends[0], "c", 1, 0));
  await(ends[1], POLLIN);
  say_ready("three behind", ends[1]);
  say_mark(ends[1]);
  say_bytes("all", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(urgent_no_room, "recv() of nothing at the mark") {
  int ends[2];
  char bytes[20];
  urgent_streams(ends, "X", "a");
  CALL(recv(ends[1], bytes, 0, MSG_DONTWAIT));
  say("at the mark: %d", sockatmark(ends[1]));
  say_bytes("urgent", bytes, CALL(recv(ends[1], bytes, 1, MSG_OOB)));
}

CASE(urgent_not_accepted, "urgent data of a connection that is not accepted yet") {
  char bytes[20];
  const int listener = listening(), client = connected(listener);
  MUST(send(client, "X", 1, MSG_OOB));
  MUST(send(client, "bY", 2, MSG_OOB));
  MUST(send(client, "c", 1, 0));
  pause_ms(20);
  const int server = accepted(listener);
  say_bytes("urgent", bytes, CALL(recv(server, bytes, 1, MSG_OOB)));
  say_bytes("before", bytes, CALL(recv(server, bytes, sizeof bytes, 0)));
  say_bytes("behind", bytes, CALL(recv(server, bytes, sizeof bytes, 0)));
}

THEME(urgent, &urgent_alone, &urgent_reads, &urgent_rooms, &urgent_stops, &urgent_again, &urgent_inline_later, &urgent_inherited,
      &urgent_end, &urgent_vectors, &urgent_nobody, &urgent_epoll, &urgent_signal_reads, &urgent_signal_in_recv,
      &urgent_signal_ends_recv, &urgent_signal_ends_each, &urgent_signals_each, &urgent_ends_waiting, &urgent_low_water, &urgent_no_room,
      &urgent_not_accepted);
