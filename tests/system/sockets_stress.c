// sockets_stress.c - a program with thousands of short connections and verified data, for sockets_stress.py. It is an
// unmodified program, which unet-sockets runs.
//
//   sockets_stress serve ADDRESS PORT WORKERS [each | prefork]
//   sockets_stress load ADDRESS PORT SECONDS CONNECTIONS SEED [UNUSED | slow | steady]
//
// load: UNUSED is an unused address. slow: every connection lasts until SECONDS are over. steady: as slow, and none may end early.
#include "tests/system/sockets_stress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static uint64_t word_of(uint64_t number, int direction, uint64_t index) {
  uint64_t word = number * 0x9E3779B97F4A7C15u + index * 0xBF58476D1CE4E5B9u + (uint64_t)direction;
  word = (word ^ (word >> 30)) * 0x94D049BB133111EBu;
  return word ^ (word >> 29);
}

void write_pattern(uint64_t number, int direction, uint64_t offset, unsigned char* to, size_t length) {
  for (size_t i = 0; i < length;) {
    const uint64_t word = word_of(number, direction, (offset + i) / 8);
    for (size_t at = (offset + i) % 8; at < 8 && i < length; ++at) to[i++] = (unsigned char)(word >> (8 * at));
  }
}

void verify_pattern(uint64_t number, int direction, uint64_t offset, const unsigned char* from, size_t length) {
  unsigned char expected[kPiece];
  write_pattern(number, direction, offset, expected, length);
  if (memcmp(from, expected, length) == 0) return;
  size_t at = 0;
  while (from[at] == expected[at]) ++at;
  wrong("connection %016lx, direction %d: byte %lu is %02x, not %02x", number, direction, offset + at, from[at], expected[at]);
}

ssize_t take_some(int fd, void* to, size_t length, unsigned which) {
  struct iovec parts[2] = {{to, length / 3}, {(char*)to + length / 3, length - length / 3}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  switch (which % 4) {
    case 0: return read(fd, to, length);
    case 1: return readv(fd, parts, 2);
    case 2: return recv(fd, to, length, 0);
    default: return recvmsg(fd, &message, 0);
  }
}

ssize_t give_some(int fd, const void* from, size_t length, unsigned which) {
  struct iovec parts[2] = {{(void*)from, length / 3}, {(char*)from + length / 3, length - length / 3}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  switch (which % 4) {
    case 0: return write(fd, from, length);
    case 1: return writev(fd, parts, 2);
    case 2: return send(fd, from, length, MSG_NOSIGNAL);
    default: return sendmsg(fd, &message, MSG_NOSIGNAL);
  }
}

void reset_and_close(int fd) {
  const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(fd);
}

// A busy machine loses packets, also the reset of a dead peer. A side without data to send must probe by keep-alive to learn of it.
void ask_if_there(int fd) {
  const int one = 1, idle_seconds = 10, interval_seconds = 5, most = 20;
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof interval_seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof most);
  if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one) != 0) wrong("SO_KEEPALIVE: %s", strerror(errno));
}

uint64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void wrong(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  printf("WRONG ");
  vprintf(format, arguments);
  printf("\n");
  va_end(arguments);
  fflush(stdout);
  _exit(3);
}

socklen_t read_place(const char* address, int port, struct sockaddr_storage* to) {
  memset(to, 0, sizeof *to);
  struct sockaddr_in* const four = (struct sockaddr_in*)to;
  struct sockaddr_in6* const six = (struct sockaddr_in6*)to;
  if (inet_pton(AF_INET, address, &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons((uint16_t)port);
    return sizeof *four;
  }
  if (inet_pton(AF_INET6, address, &six->sin6_addr) != 1) wrong("%s is no address", address);
  six->sin6_family = AF_INET6;
  six->sin6_port = htons((uint16_t)port);
  return sizeof *six;
}

int main(int argc, char** argv) {
  struct rlimit limit = {8192, 8192};
  setrlimit(RLIMIT_NOFILE, &limit);
  signal(SIGPIPE, SIG_IGN);
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc >= 5 && strcmp(argv[1], "serve") == 0) return serve(argc - 2, argv + 2);
  if (argc >= 7 && strcmp(argv[1], "load") == 0) return load(argc - 2, argv + 2);
  fprintf(stderr, "usage: see the head of sockets_stress.c\n");
  return 2;
}
