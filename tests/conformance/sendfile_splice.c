// sendfile_splice.c - cases of sendfile() and splice(): bytes move between files, pipes and sockets without the program's buffers.
#include <sys/mman.h>
#include <sys/sendfile.h>

#include "tests/conformance/conformance.h"

static int file_of(const char* text) {
  const int file = (int)MUST(memfd_create("file", 0));
  MUST(write(file, text, strlen(text)));
  MUST(lseek(file, 0, SEEK_SET));
  return file;
}

CASE(sendfile_all, "sendfile() of a file to a stream, with an offset and without") {
  int ends[2];
  char bytes[40];
  off_t at = 3;
  streams(ends);
  const int file = file_of("0123456789");
  CALL(sendfile(ends[0], file, NULL, 4));
  say("at %ld", (long)lseek(file, 0, SEEK_CUR));
  CALL(sendfile(ends[0], file, &at, 4));
  say("at %ld, offset %ld", (long)lseek(file, 0, SEEK_CUR), (long)at);
  CALL(sendfile(ends[0], file, NULL, 100));
  CALL(sendfile(ends[0], file, NULL, 100));
  CALL(sendfile(ends[0], file, NULL, 0));
  say_bytes("received", bytes, CALL(recv(ends[1], bytes, 14, MSG_WAITALL)));
}

CASE(sendfile_large, "sendfile() of four megabytes to a reader") {
  int ends[2];
  enum { SIZE = 4 << 20 };
  static char bytes[1 << 16];
  off_t at = 0;
  streams(ends);
  const int file = (int)MUST(memfd_create("file", 0));
  MUST(ftruncate(file, SIZE));
  if (fork() == 0) {
    close(ends[1]);
    while (at < SIZE && sendfile(ends[0], file, &at, SIZE) > 0) continue;
    _exit(0);
  }
  close(ends[0]);
  long all = 0, length;
  while ((length = recv(ends[1], bytes, sizeof bytes, 0)) > 0) all += length;
  say("received %ld", all);
}

CASE(sendfile_nonblocking, "sendfile() to a stream that is full") {
  int ends[2];
  streams(ends);
  send_until_full(ends[0]);
  nonblocking(ends[0]);
  CALL(sendfile(ends[0], file_of("0123456789"), NULL, 10));
}

CASE(sendfile_wrong, "sendfile() from a socket, to one that is not connected, or has ended") {
  int ends[2];
  off_t negative = -1;
  streams(ends);
  const int file = file_of("0123456789");
  signal(SIGPIPE, SIG_IGN);
  CALL(sendfile(ends[0], ends[1], NULL, 10));
  CALL(sendfile(file, ends[1], NULL, 10));
  CALL(sendfile(ends[0], -1, NULL, 10));
  CALL(sendfile(-1, file, NULL, 10));
  CALL(sendfile(ends[0], file, &negative, 10));
  CALL(sendfile(socket(family, SOCK_STREAM, 0), file, NULL, 10));
  CALL(sendfile(listening(), file, NULL, 10));
  CALL(shutdown(ends[0], SHUT_WR));
  CALL(sendfile(ends[0], file, NULL, 10));
}

CASE(sendfile_datagram, "sendfile() to a datagram socket") {
  int ends[2];
  char bytes[40];
  datagrams(ends);
  CALL(sendfile(ends[0], file_of("0123456789"), NULL, 10));
  say_bytes("received", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(sendfile_from, "sendfile() from a pipe, a device, a directory, and from what is not open") {
  int ends[2], pipes[2];
  char bytes[40];
  off_t at = 0;
  streams(ends);
  MUST(pipe(pipes));
  CALL(sendfile(ends[0], pipes[0], NULL, 10));
  CALL(sendfile(ends[0], pipes[0], &at, 10));
  CALL(write(pipes[1], "abc", 3));
  CALL(sendfile(ends[0], pipes[0], NULL, 10));
  CALL(read(pipes[0], bytes, sizeof bytes));
  CALL(sendfile(ends[0], (int)MUST(open("/dev/zero", O_RDONLY)), NULL, 10));
  CALL(recv(ends[1], bytes, 10, MSG_WAITALL));
  CALL(sendfile(ends[0], (int)MUST(open("/", O_RDONLY | O_DIRECTORY)), NULL, 10));
  CALL(sendfile(ends[0], 999, NULL, 10));
}

CASE(splice_through, "splice() of a stream to a pipe, and of a pipe to a stream") {
  int ends[2], pipes[2];
  char bytes[40];
  streams(ends);
  MUST(pipe(pipes));
  CALL(send(ends[0], "abcdef", 6, 0));
  await_bytes(ends[1], 6);
  CALL(splice(ends[1], NULL, pipes[1], NULL, 4, 0));
  say_bytes("pipe", bytes, CALL(read(pipes[0], bytes, sizeof bytes)));
  CALL(splice(ends[1], NULL, pipes[1], NULL, 100, 0));
  say_bytes("pipe", bytes, CALL(read(pipes[0], bytes, sizeof bytes)));
  nonblocking(ends[1]);
  CALL(splice(ends[1], NULL, pipes[1], NULL, 100, 0));
  CALL(fcntl(ends[1], F_SETFL, 0));
  CALL(write(pipes[1], "from the pipe", 13));
  CALL(splice(pipes[0], NULL, ends[1], NULL, 100, SPLICE_F_MORE));
  CALL(close(pipes[1]));
  CALL(splice(pipes[0], NULL, ends[1], NULL, 100, 0));
  say_bytes("stream", bytes, CALL(recv(ends[0], bytes, 13, MSG_WAITALL)));
}

CASE(splice_ends, "splice() at the end of a stream, and after a reset") {
  int ends[2], pipes[2];
  streams(ends);
  MUST(pipe(pipes));
  CALL(shutdown(ends[0], SHUT_WR));
  CALL(splice(ends[1], NULL, pipes[1], NULL, 100, 0));
  reset(ends[0]);
  await(ends[1], POLLERR);
  CALL(splice(ends[1], NULL, pipes[1], NULL, 100, 0));
}

CASE(splice_wrong, "splice() between sockets, with offsets, with files, of listeners") {
  int ends[2], pipes[2];
  loff_t at = 0;
  streams(ends);
  MUST(pipe(pipes));
  CALL(send(ends[0], "abc", 3, 0));
  await_bytes(ends[1], 3);
  CALL(splice(ends[1], NULL, ends[0], NULL, 100, 0));
  CALL(splice(ends[1], &at, pipes[1], NULL, 100, 0));
  CALL(splice(ends[1], NULL, file_of("x"), NULL, 100, 0));
  CALL(splice(listening(), NULL, pipes[1], NULL, 100, 0));
  CALL(splice(ends[1], NULL, pipes[1], NULL, 0, 0));
}

CASE(splice_vmsplice_tee, "vmsplice() and tee() of what goes to a stream") {
  int ends[2], pipes[2], others[2];
  char bytes[40];
  streams(ends);
  MUST(pipe(pipes));
  MUST(pipe(others));
  struct iovec out = {"abcdef", 6};
  CALL(vmsplice(pipes[1], &out, 1, 0));
  CALL(tee(pipes[0], others[1], 100, 0));
  CALL(splice(pipes[0], NULL, ends[0], NULL, 100, 0));
  CALL(splice(others[0], NULL, ends[0], NULL, 100, 0));
  say_bytes("stream", bytes, CALL(recv(ends[1], bytes, 12, MSG_WAITALL)));
}

CASE(splice_proxy, "a proxy: from one connection to another through a pipe") {
  int in[2], out[2], pipes[2];
  static char bytes[100000];
  streams(in);
  streams(out);
  MUST(pipe(pipes));
  if (fork() == 0) {
    for (long n; (n = splice(in[1], NULL, pipes[1], NULL, 65536, SPLICE_F_MOVE)) > 0;) {
      while (n > 0) {
        const long moved = splice(pipes[0], NULL, out[0], NULL, (size_t)n, SPLICE_F_MOVE);
        if (moved <= 0) _exit(1);
        n -= moved;
      }
    }
    shutdown(out[0], SHUT_WR);
    _exit(0);
  }
  CALL(send(in[0], bytes, sizeof bytes, 0));
  CALL(shutdown(in[0], SHUT_WR));
  CALL(recv(out[1], bytes, sizeof bytes, MSG_WAITALL));
  CALL(recv(out[1], bytes, sizeof bytes, 0));
}

CASE(splice_copy_file_range, "copy_file_range() to and from a socket") {
  int ends[2];
  streams(ends);
  CALL(copy_file_range(file_of("abc"), NULL, ends[0], NULL, 3, 0));
  CALL(copy_file_range(ends[0], NULL, file_of(""), NULL, 3, 0));
}

static void fill(int pipe) {
  static char bytes[4096];
  nonblocking(pipe);
  while (write(pipe, bytes, sizeof bytes) > 0) continue;
  MUST(fcntl(pipe, F_SETFL, 0));
}

CASE(splice_pipe_not_empty, "splice() to a pipe that has little room moves what fits, and says EAGAIN when there is none") {
  static char bytes[60000];
  int ends[2], pipes[2];
  streams(ends);
  MUST(pipe(pipes));
  CALL(write(pipes[1], bytes, 40000));
  CALL(send(ends[0], bytes, sizeof bytes, 0));
  await_bytes(ends[1], sizeof bytes);
  say("some: %d", splice(ends[1], NULL, pipes[1], NULL, 65536, SPLICE_F_NONBLOCK) > 0);
  fill(pipes[1]);
  CALL(splice(ends[1], NULL, pipes[1], NULL, 65536, SPLICE_F_NONBLOCK));
  nonblocking(pipes[1]);
  CALL(splice(ends[1], NULL, pipes[1], NULL, 65536, 0));
  signal(SIGPIPE, SIG_IGN);
  CALL(close(pipes[0]));
  CALL(splice(ends[1], NULL, pipes[1], NULL, 65536, 0));
}

CASE(splice_pipe_empty, "splice() of an empty pipe: EAGAIN with SPLICE_F_NONBLOCK, end of file without a writer") {
  int ends[2], pipes[2];
  streams(ends);
  MUST(pipe(pipes));
  CALL(splice(pipes[0], NULL, ends[0], NULL, 100, SPLICE_F_NONBLOCK));
  CALL(close(pipes[1]));
  CALL(splice(pipes[0], NULL, ends[0], NULL, 100, SPLICE_F_NONBLOCK));
  CALL(splice(pipes[0], NULL, ends[0], NULL, 100, 0));
}

// Uses other sockets while another thread waits in splice(), and then uses that thread's pipe.
static int pipe_waited_for[2], conversing[2];

static void converse(void) {
  char byte = 'c';
  int wrong = 0;
  pause_ms(50);
  for (int i = 0; i < 10; ++i) wrong += send(conversing[0], &byte, 1, 0) != 1 || recv(conversing[1], &byte, 1, 0) != 1;
  say("wrong: %d", wrong);
}

static void* empties(void* unused) {
  static char bytes[1 << 16];
  (void)unused;
  converse();
  say("emptied: %d", read(pipe_waited_for[0], bytes, sizeof bytes) > 0);
  return NULL;
}

static void* fills(void* unused) {
  (void)unused;
  converse();
  CALL(write(pipe_waited_for[1], "abc", 3));
  return NULL;
}

CASE(splice_waits_for_pipe, "splice() waits for a full pipe, and for an empty one, while other threads use sockets") {
  int ends[2];
  char bytes[20];
  streams(ends);
  streams(conversing);
  MUST(pipe(pipe_waited_for));
  fill(pipe_waited_for[1]);
  CALL(send(ends[0], "abc", 3, 0));
  pthread_t other = start(empties, NULL);
  const long out = splice(ends[1], NULL, pipe_waited_for[1], NULL, 100, 0);
  joined(other);
  CALL((int)out);
  nonblocking(pipe_waited_for[0]);
  while (read(pipe_waited_for[0], bytes, sizeof bytes) > 0) continue;
  MUST(fcntl(pipe_waited_for[0], F_SETFL, 0));
  other = start(fills, NULL);
  const long in = splice(pipe_waited_for[0], NULL, ends[0], NULL, 100, 0);
  joined(other);
  CALL((int)in);
  say_bytes("received", bytes, CALL(recv(ends[1], bytes, 3, MSG_WAITALL)));
}

THEME(sendfile_splice, &sendfile_all, &sendfile_from, &sendfile_large, &sendfile_nonblocking, &sendfile_wrong,
      &sendfile_datagram, &splice_through, &splice_ends, &splice_wrong, &splice_vmsplice_tee, &splice_proxy,
      &splice_copy_file_range, &splice_pipe_not_empty, &splice_pipe_empty, &splice_waits_for_pipe);
