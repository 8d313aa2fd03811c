// stream_data.c - cases of sending and receiving on streams: all calls and flags, zero lengths, and invalid memory.
#include "tests/conformance/conformance.h"

CASE(stream_read_write, "read() and write()") {
  int ends[2];
  char bytes[100];
  streams(ends);
  CALL(write(ends[0], "abcdef", 6));
  await_bytes(ends[1], 6);
  say_bytes("read 4", bytes, CALL(read(ends[1], bytes, 4)));
  say_bytes("read rest", bytes, CALL(read(ends[1], bytes, sizeof bytes)));
  close(ends[0]);
  CALL(read(ends[1], bytes, sizeof bytes));
  CALL(read(ends[1], bytes, sizeof bytes));
}

CASE(stream_nothing, "nothing sent and nothing received") {
  int ends[2];
  char bytes[8];
  streams(ends);
  CALL(write(ends[0], NULL, 0));
  CALL(send(ends[0], bytes, 0, 0));
  CALL(recv(ends[1], bytes, 0, MSG_DONTWAIT));
  CALL(read(ends[1], NULL, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
  CALL(send(ends[0], "abc", 3, 0));
  await_bytes(ends[1], 3);
  CALL(recv(ends[1], bytes, 0, 0));
  say_bytes("still there", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(stream_coalesces, "what several calls sent is one sequence of bytes") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(send(ends[0], "abc", 3, 0));
  CALL(write(ends[0], "def", 3));
  CALL(sendto(ends[0], "ghi", 3, 0, NULL, 0));
  await_bytes(ends[1], 9);
  say_bytes("all", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(stream_peek, "MSG_PEEK, also with less room, and then recv()") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(send(ends[0], "abcdef", 6, 0));
  await_bytes(ends[1], 6);
  say_bytes("peek", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_PEEK)));
  say_bytes("peek 2", bytes, CALL(recv(ends[1], bytes, 2, MSG_PEEK)));
  say_bytes("recv 2", bytes, CALL(recv(ends[1], bytes, 2, 0)));
  say_bytes("peek", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT)));
  say_bytes("recv", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT));
  close(ends[0]);
  await(ends[1], POLLIN);
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_PEEK));
}

CASE(stream_peek_offset, "SO_PEEK_OFF of a stream") {
  int ends[2];
  char bytes[20];
  streams(ends);
  OPTION(ends[1], SOL_SOCKET, SO_PEEK_OFF);
  SET_AND_GET(ends[1], SOL_SOCKET, SO_PEEK_OFF, 2);
  CALL(send(ends[0], "abcdef", 6, 0));
  await_bytes(ends[1], 6);
  say_bytes("peek", bytes, CALL(recv(ends[1], bytes, 2, MSG_PEEK)));
  say_bytes("peek", bytes, CALL(recv(ends[1], bytes, 2, MSG_PEEK)));
}

static void* sends_in_pieces(void* fd) {
  for (int i = 0; i < 5; ++i) {
    pause_ms(20);
    send(*(int*)fd, "0123456789", 10, 0);
  }
  return NULL;
}

CASE(stream_waitall, "MSG_WAITALL waits for all, or for the end") {
  int ends[2];
  char bytes[100];
  streams(ends);
  const pthread_t sender = start(sends_in_pieces, &ends[0]);
  say_bytes("45", bytes, CALL(recv(ends[1], bytes, 45, MSG_WAITALL)));
  joined(sender);
  close(ends[0]);
  say_bytes("to the end", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL)));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL));
}

CASE(stream_waitall_dontwait, "MSG_WAITALL and MSG_DONTWAIT: what is there") {
  int ends[2];
  char bytes[100];
  streams(ends);
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL | MSG_DONTWAIT));
  CALL(send(ends[0], "abc", 3, 0));
  await_bytes(ends[1], 3);
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL | MSG_DONTWAIT));
}

CASE(stream_waitall_reset, "MSG_WAITALL and a reset after some bytes") {
  int ends[2];
  char bytes[100];
  streams(ends);
  CALL(send(ends[0], "abc", 3, 0));
  await_bytes(ends[1], 3);
  reset(ends[0]);
  await(ends[1], POLLERR);
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL));
}

CASE(stream_dontwait, "MSG_DONTWAIT with nothing there, and with nowhere to put it") {
  int ends[2];
  char bytes[100];
  streams(ends);
  CALL(recv(ends[0], bytes, sizeof bytes, MSG_DONTWAIT));
  say("took something: %d", send_until_full(ends[0]));
  CALL(send(ends[0], bytes, sizeof bytes, MSG_DONTWAIT));
  say_ready("full", ends[0]);
  CALL(fcntl(ends[0], F_GETFL));
}

CASE(stream_trunc, "MSG_TRUNC of a stream throws away") {
  int ends[2];
  char bytes[20] = "untouched";
  streams(ends);
  CALL(send(ends[0], "abcdef", 6, 0));
  await_bytes(ends[1], 6);
  CALL(recv(ends[1], bytes, 4, MSG_TRUNC));
  say_bytes("room", bytes, 4);
  say_bytes("rest", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(stream_more, "what MSG_MORE may hold back comes with what follows, or with the end") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(send(ends[0], "abc", 3, MSG_MORE));
  CALL(send(ends[0], "def", 3, 0));
  await_bytes(ends[1], 6);
  say_bytes("both", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  CALL(send(ends[0], "ghi", 3, MSG_MORE));
  CALL(shutdown(ends[0], SHUT_WR));
  say_bytes("with the end", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL)));
}

CASE(stream_oob, "one byte of urgent data: POLLPRI, MSG_OOB, SIOCATMARK") {
  int ends[2], mark = -1;
  char bytes[20];
  streams(ends);
  CALL(recv(ends[1], bytes, 1, MSG_OOB));
  CALL(send(ends[0], "abc", 3, 0));
  CALL(send(ends[0], "X", 1, MSG_OOB));
  CALL(send(ends[0], "def", 3, 0));
  await(ends[1], POLLPRI);
  await_bytes(ends[1], 3);
  say_ready("urgent", ends[1]);
  say_bytes("oob", bytes, CALL(recv(ends[1], bytes, 1, MSG_OOB)));
  CALL(recv(ends[1], bytes, 1, MSG_OOB));
  say_bytes("up to the mark", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  CALL(ioctl(ends[1], SIOCATMARK, &mark));
  say("at the mark: %d", mark);
}

CASE(stream_oob_inline, "SO_OOBINLINE: the byte stays where it was sent") {
  int ends[2], mark = -1;
  char bytes[20];
  streams(ends);
  SET_AND_GET(ends[1], SOL_SOCKET, SO_OOBINLINE, 1);
  CALL(send(ends[0], "abc", 3, 0));
  CALL(send(ends[0], "X", 1, MSG_OOB));
  await_bytes(ends[1], 3);
  await(ends[1], POLLPRI);
  CALL(recv(ends[1], bytes, 1, MSG_OOB));
  say_bytes("before", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  CALL(ioctl(ends[1], SIOCATMARK, &mark));
  say("at the mark: %d", mark);
  say_bytes("urgent", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(stream_unknown_flags, "flags that mean nothing to a stream") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(send(ends[0], "a", 1, MSG_CONFIRM));
  CALL(send(ends[0], "b", 1, MSG_DONTROUTE));
  CALL(send(ends[0], "c", 1, MSG_EOR));
  CALL(send(ends[0], "d", 1, 0x800000));
  await_bytes(ends[1], 4);
  CALL(recv(ends[1], bytes, 1, MSG_CMSG_CLOEXEC));
  CALL(recv(ends[1], bytes, 1, 0x800000));
  CALL(recv(ends[1], bytes, 1, MSG_NOSIGNAL));
  CALL(recv(ends[1], bytes, 1, MSG_ERRQUEUE | MSG_DONTWAIT));
}

CASE(stream_addresses_ignored, "sendto() with an address on a stream, recvfrom() with room for one") {
  int ends[2];
  char bytes[20];
  union Address to;
  streams(ends);
  const socklen_t length = own_address(&to, 7777);
  CALL(sendto(ends[0], "abc", 3, 0, &to.any, length));
  await_bytes(ends[1], 3);
  memset(&to, 0x55, sizeof to);
  socklen_t size = sizeof to;
  CALL(recvfrom(ends[1], bytes, sizeof bytes, 0, &to.any, &size));
  say("length %u, untouched: %s", size, to.any.sa_family == 0x5555 ? "yes" : "no");
  size = (socklen_t)-1;
  CALL(send(ends[0], "abc", 3, 0));
  await_bytes(ends[1], 3);
  CALL(recvfrom(ends[1], bytes, sizeof bytes, 0, &to.any, &size));
}

CASE(stream_not_connected, "every way of sending and receiving before connect()") {
  char bytes[8] = "";
  union Address to;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  const socklen_t length = own_address(&to, 7777);
  count_signal(SIGPIPE, 0);
  CALL(send(s, bytes, 1, 0));
  say("SIGPIPE: %d", signals_counted());
  CALL(write(s, bytes, 1));
  CALL(sendto(s, bytes, 1, MSG_NOSIGNAL, &to.any, length));
  CALL(recv(s, bytes, 1, 0));
  CALL(recv(s, bytes, 0, 0));
  CALL(recv(s, bytes, 1, MSG_PEEK));
  CALL(read(s, bytes, 1));
  CALL(shutdown(s, SHUT_RD));
  say_ready("new", s);
  say("SIGPIPE: %d", signals_counted());
}

CASE(stream_bad_pointer, "EFAULT of send() and recv()") {
  int ends[2];
  char bytes[8];
  streams(ends);
  CALL(send(ends[0], (void*)8, 10, 0));
  CALL(write(ends[0], NULL, 10));
  CALL(send(ends[0], "abc", 3, 0));
  await_bytes(ends[1], 3);
  CALL(recv(ends[1], (void*)8, 10, 0));
  CALL(read(ends[1], NULL, 10));
  say_bytes("still there", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(stream_large, "four megabytes through blocking calls, both ways at once") {
  enum { SIZE = 4 << 20 };
  int ends[2];
  streams(ends);
  const pid_t other = (pid_t)MUST(fork());
  const int fd = other ? ends[0] : ends[1];
  close(other ? ends[1] : ends[0]);
  static unsigned char out[SIZE], in[SIZE];
  for (int i = 0; i < SIZE; ++i) out[i] = (unsigned char)(i * 7 + i / 251);
  nonblocking(fd);
  int sent = 0, got = 0, wrong = 0;
  while (sent < SIZE || got < SIZE) {
    struct pollfd one = {fd, (short)((sent < SIZE ? POLLOUT : 0) | POLLIN), 0};
    poll(&one, 1, -1);
    const long taken = sent < SIZE ? send(fd, out + sent, (size_t)(SIZE - sent), MSG_NOSIGNAL) : 0;
    if (taken > 0) sent += (int)taken;
    const long came = got < SIZE ? recv(fd, in + got, (size_t)(SIZE - got), 0) : 0;
    if (came == 0 && got < SIZE) break;
    if (came > 0) got += (int)came;
  }
  for (int i = 0; i < SIZE; ++i) wrong += in[i] != out[i];
  if (!other) _exit(wrong != 0 || got != SIZE);
  say("sent %d, received %d, wrong %d", sent, got, wrong);
  say_ended("other", other);
}

static void* reads_all(void* fd) {
  static char bytes[1 << 16];
  long all = 0, length;
  while ((length = read(*(int*)fd, bytes, sizeof bytes)) > 0) all += length;
  return (void*)all;
}

CASE(stream_blocking_send, "a blocking send() of more than there is room for returns all") {
  int ends[2];
  static char bytes[8 << 20];
  streams(ends);
  const pthread_t reader = start(reads_all, &ends[1]);
  CALL(send(ends[0], bytes, sizeof bytes, 0));
  CALL(write(ends[0], bytes, sizeof bytes));
  close(ends[0]);
  say("received %ld", joined(reader));
}

CASE(stream_full_wakes, "what is full becomes writable once the peer has read") {
  int ends[2];
  static char bytes[1 << 16];
  streams(ends);
  nonblocking(ends[1]);
  say("took something: %d", send_until_full(ends[0]));
  say_ready("full", ends[0]);
  for (int idle = 0; idle < 20;) {
    if (read(ends[1], bytes, sizeof bytes) > 0) {
      idle = 0;
    } else {
      ++idle;
      pause_ms(5);
    }
  }
  await(ends[0], POLLOUT);
  say_ready("read", ends[0]);
  CALL(send(ends[0], "abc", 3, 0));
}

CASE(stream_sigpipe, "SIGPIPE after the peer has gone, and none with MSG_NOSIGNAL") {
  int ends[2];
  streams(ends);
  count_signal(SIGPIPE, 0);
  CALL(shutdown(ends[0], SHUT_WR));
  CALL(send(ends[0], "a", 1, 0));
  say("SIGPIPE: %d", signals_counted());
  CALL(send(ends[0], "a", 1, MSG_NOSIGNAL));
  say("SIGPIPE: %d", signals_counted());
  CALL(write(ends[0], "a", 1));
  say("SIGPIPE: %d", signals_counted());
  CALL(write(ends[0], "", 0));
  say("SIGPIPE: %d", signals_counted());
}

CASE(stream_sigpipe_kills, "SIGPIPE without a handler ends the process") {
  int ends[2];
  streams(ends);
  CALL(shutdown(ends[0], SHUT_WR));
  CALL(write(ends[0], "a", 1));
  say("still here");
}

CASE(stream_two_streams, "two connections between the same ends do not mix") {
  char bytes[20];
  const int listener = listening();
  const int first = connected(listener), second = connected(listener);
  const int one = accepted(listener), two = accepted(listener);
  CALL(send(second, "second", 6, 0));
  CALL(send(first, "first", 5, 0));
  say_bytes("one", bytes, CALL(recv(one, bytes, 5, MSG_WAITALL)));
  say_bytes("two", bytes, CALL(recv(two, bytes, 6, MSG_WAITALL)));
}

THEME(stream_data, &stream_read_write, &stream_nothing, &stream_coalesces, &stream_peek, &stream_peek_offset,
      &stream_waitall, &stream_waitall_dontwait, &stream_waitall_reset, &stream_dontwait, &stream_trunc, &stream_more,
      &stream_oob, &stream_oob_inline, &stream_unknown_flags, &stream_addresses_ignored, &stream_not_connected,
      &stream_bad_pointer, &stream_large, &stream_blocking_send, &stream_full_wakes, &stream_sigpipe,
      &stream_sigpipe_kills, &stream_two_streams);
