// raw_calls.c - cases of system calls that bypass the C library's functions: by syscall(), and by the program's own instruction.
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

#include "tests/conformance/conformance.h"

#define RAW(name, ...) say_call(#name, (errno = 0, syscall(SYS_##name, __VA_ARGS__)))
#define RAW_OPEN(name, ...) ((int)MUST(syscall(SYS_##name, __VA_ARGS__)))

// ---- by syscall()

CASE(raw_stream, "a stream from socket() to close(), by syscall() alone") {
  union Address address;
  socklen_t length = own_address(&address, 0);
  char bytes[20] = "";
  struct iovec one = {bytes, 3}, two[2] = {{bytes, 2}, {bytes + 2, 3}};
  struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
  const int listener = RAW_OPEN(socket, family, SOCK_STREAM, 0), caller = RAW_OPEN(socket, family, SOCK_STREAM, 0);
  RAW(bind, listener, &address, length);
  RAW(listen, listener, 5);
  length = sizeof address;
  RAW(getsockname, listener, &address, &length);
  RAW(connect, caller, &address, length);
  const int end = RAW_OPEN(accept4, listener, NULL, NULL, SOCK_CLOEXEC);
  say("close-on-exec: %d", fcntl(end, F_GETFD));
  RAW(write, caller, "abc", 3);
  RAW(sendto, caller, "def", 3, 0, NULL, 0);
  await_bytes(end, 6);
  RAW(read, end, bytes, 2);
  RAW(recvfrom, end, bytes + 2, 4, 0, NULL, NULL);
  say_bytes("came", bytes, 6);
  RAW(writev, end, two, 2);
  RAW(sendmsg, end, &message, 0);
  await_bytes(caller, 8);
  RAW(readv, caller, two, 2);
  RAW(recvmsg, caller, &message, 0);
  say_bytes("came back", bytes, 5);
  RAW(shutdown, caller, SHUT_WR);
  await(end, POLLRDHUP);
  RAW(read, end, bytes, 2);
  RAW(close, caller);
  RAW(close, end);
  RAW(write, end, bytes, 1);
  RAW(close, listener);
}

CASE(raw_options, "options, flags and ioctl() by syscall()") {
  int ends[2], on = 1, value = 0;
  socklen_t length = sizeof value;
  streams(ends);
  RAW(setsockopt, ends[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  RAW(getsockopt, ends[0], IPPROTO_TCP, TCP_NODELAY, &value, &length);
  say("%d", value);
  RAW(fcntl, ends[0], F_SETFL, O_RDWR | O_NONBLOCK);
  RAW(recvfrom, ends[0], &value, 1, 0, NULL, NULL);
  RAW(ioctl, ends[1], FIONBIO, &on);
  CALL(recv(ends[1], &value, 1, 0));
  CALL(send(ends[1], "abc", 3, 0));
  await_bytes(ends[0], 3);
  RAW(ioctl, ends[0], FIONREAD, &value);
  say("%d", value);
}

CASE(raw_datagrams, "sendmmsg() and recvmmsg() by syscall()") {
  int ends[2];
  char bytes[3][4];
  union Address to;
  struct iovec pieces[3], room[3];
  struct mmsghdr out[3], in[3];
  datagrams(ends);
  const int third = bound(SOCK_DGRAM);
  const socklen_t length = address_of(third, &to);
  memset(out, 0, sizeof out);
  memset(in, 0, sizeof in);
  for (int i = 0; i < 3; ++i) {
    pieces[i] = (struct iovec){&"some words"[i], (size_t)i + 1};
    out[i].msg_hdr = (struct msghdr){.msg_iov = &pieces[i], .msg_iovlen = 1};
    room[i] = (struct iovec){bytes[i], sizeof bytes[i]};
    in[i].msg_hdr = (struct msghdr){.msg_iov = &room[i], .msg_iovlen = 1};
  }
  RAW(sendmmsg, ends[0], out, 3, 0);
  for (int i = 0; i < 3; ++i) await(ends[1], POLLIN);
  RAW(recvmmsg, ends[1], in, 3, MSG_WAITFORONE, NULL);
  for (int i = 0; i < 3; ++i) say_bytes("came", bytes[i], (long)in[i].msg_len);
  // From a socket without an address yet, as a resolver's.
  const int fresh = RAW_OPEN(socket, family, SOCK_DGRAM, 0);
  out[0].msg_hdr.msg_name = &to;
  out[0].msg_hdr.msg_namelen = length;
  RAW(sendmmsg, fresh, out, 1, 0);
  await(third, POLLIN);
  CALL(recv(third, bytes[0], 4, 0));
}

CASE(raw_waits, "poll(), select() and epoll by syscall()") {
  int ends[2];
  streams(ends);
  struct pollfd one = {.fd = ends[0], .events = POLLIN};
  struct timespec second = {.tv_sec = 1};
  struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = 7}}, told;
  sigset_t none;
  fd_set set;
  sigemptyset(&none);
  const struct {
    const sigset_t* signals;
    size_t size;
  } mask = {&none, 8};
  FD_ZERO(&set);
  FD_SET(ends[0], &set);
  const int epoll = RAW_OPEN(epoll_create1, 0);
  RAW(epoll_ctl, epoll, EPOLL_CTL_ADD, ends[0], &event);
  RAW(epoll_pwait, epoll, &told, 1, 0, NULL, 8L);
  CALL(send(ends[1], "x", 1, 0));
  RAW(ppoll, &one, 1, &second, &none, 8L);
  RAW(pselect6, ends[0] + 1, &set, NULL, NULL, &second, &mask);
  RAW(epoll_pwait, epoll, &told, 1, 1000, &none, 8L);
  say("%u", told.data.u32);
}

CASE(raw_close, "close() by syscall(): the peer is told, and a file has the number") {
  int ends[2];
  char bytes[20] = "";
  streams(ends);
  RAW(close, ends[0]);
  const int file = MUST(memfd_create("file", 0));
  say("the number: %d", file == ends[0]);
  CALL(write(file, "for the file", 12));
  await(ends[1], POLLIN);
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  CALL(lseek(file, 0, SEEK_SET));
  CALL(read(file, bytes, sizeof bytes));
  say("%s", bytes);
}

CASE(raw_close_range, "close_range() by syscall()") {
  int ends[2];
  char byte;
  streams(ends);
  RAW(close_range, ends[0], ends[0], 0);
  await(ends[1], POLLIN);
  CALL(recv(ends[1], &byte, 1, 0));
  CALL(send(ends[0], &byte, 1, 0));
}

CASE(raw_dup, "dup(), dup3() and F_DUPFD by syscall()") {
  int ends[2], pair[2];
  char byte;
  streams(ends);
  const int two = RAW_OPEN(dup, ends[0]), three = RAW_OPEN(fcntl, ends[0], F_DUPFD_CLOEXEC, 0);
  RAW(close, ends[0]);
  CALL(send(two, "a", 1, 0));
  CALL(send(three, "b", 1, 0));
  await_bytes(ends[1], 2);
  CALL(close(two));
  MUST(pipe(pair));
  say("the number: %d", (int)syscall(SYS_dup3, pair[1], three, 0) == three);
  CALL(write(three, "x", 1));
  CALL(read(pair[0], &byte, 1));
  await(ends[1], POLLRDHUP);
  say_ready("the peer", ends[1]);
}

CASE(raw_no_rings, "io_uring_setup() by syscall()") {
  char room[256] = "";
  say("a ring: %d", syscall(SYS_io_uring_setup, 1, room) >= 0);
}

// ---- by the program's own instruction

static long bare(long number, long a, long b, long c, void* d) {
#if defined(__x86_64__)
  long result;
  register long fourth __asm__("r10") = (long)d;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long which __asm__("x8") = number;
  register long first __asm__("x0") = a;
  register long second __asm__("x1") = b;
  register long third __asm__("x2") = c;
  register long fourth __asm__("x3") = (long)d;
  __asm__ volatile("svc 0" : "+r"(first) : "r"(which), "r"(second), "r"(third), "r"(fourth) : "memory");
  return first;
#else
  return syscall(number, a, b, c, d);
#endif
}

static long bare_close(int fd) { return bare(SYS_close, fd, 0, 0, NULL); }

// Receives a descriptor by SCM_RIGHTS, which gets the number `fd`.
static int in_rights(int fd) {
  int ends[2];
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  char byte = 'x';
  struct iovec one = {&byte, 1};
  struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  const int passed = MUST(eventfd(0, 0));
  memcpy(CMSG_DATA(&control.head), &passed, sizeof passed);
  MUST(sendmsg(ends[0], &message, 0));
  MUST(bare_close(fd));
  MUST(recvmsg(ends[1], &message, 0));
  memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
  return fd;
}

// Duplicates the descriptor to a high number.
static int high(int fd) {
  const int moved = MUST(fcntl(MUST(fd), F_DUPFD, 500));
  MUST(close(fd));
  return moved;
}

static int accepted_of_kernel(void) {
  struct sockaddr_un {
    sa_family_t family;
    char path[40];
  } address = {.family = AF_UNIX};
  const int listener = high(socket(AF_UNIX, SOCK_STREAM, 0)), caller = high(socket(AF_UNIX, SOCK_STREAM, 0));
  MUST(bind(listener, (struct sockaddr*)&address, sizeof(sa_family_t)));  // the kernel chooses a name
  socklen_t length = sizeof address;
  MUST(getsockname(listener, (struct sockaddr*)&address, &length));
  MUST(listen(listener, 1));
  MUST(connect(caller, (struct sockaddr*)&address, length));
  return MUST(accept(listener, NULL, NULL));
}

static int first_of(int (*make)(int made[2])) {
  int made[2];
  MUST(make(made));
  return made[0];
}
static int unix_pair(int made[2]) { return socketpair(AF_UNIX, SOCK_DGRAM, 0, made); }

// Returns a descriptor that the kernel makes, each time by another call.
static int made_by(int way) {
  sigset_t none;
  sigemptyset(&none);
  char path[] = "/tmp/unet-conformance-XXXXXX";
  switch (way) {
    case 0: return open("/dev/null", O_RDWR);
    case 1: return openat(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY);
    case 2: return (int)syscall(SYS_openat, AT_FDCWD, "/dev/zero", O_RDONLY);
    case 3: return first_of(pipe);
    case 4: return first_of(unix_pair);
    case 5: return eventfd(0, 0);
    case 6: return timerfd_create(CLOCK_MONOTONIC, 0);
    case 7: return signalfd(-1, &none, 0);
    case 8: return inotify_init1(0);
    case 9: return memfd_create("file", 0);
    case 10: return epoll_create1(0);
    case 11: return dup(STDOUT_FILENO);
    case 12: return fcntl(STDOUT_FILENO, F_DUPFD, 0);
    case 13: return socket(AF_UNIX, SOCK_STREAM, 0);
    case 14: return accepted_of_kernel();
    case 15: return fileno(fopen("/dev/null", "r"));
    case 16: return dirfd(opendir("/"));
    case 17: return mkstemp(path) + 0 * unlink(path);
    case 18: return socket(family, SOCK_STREAM, 0);
    default: return -1;
  }
}

CASE(number_again, "a number closed behind the C library names the kernel's next file at it") {
  for (int way = 0; way <= 18; ++way) {
    int ends[2];
    char byte = 'x';
    streams(ends);
    while (MUST(open("/dev/null", O_RDONLY)) < ends[0]) continue;  // until no lower number is free
    const int high = fcntl(ends[1], F_DUPFD, 500);
    close(ends[1]);
    bare_close(ends[0]);
    const int made = made_by(way);
    say("way %d: the number: %d", way, made == ends[0]);
    CALL(send(made, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
    await(high, POLLIN);
    CALL(recv(high, &byte, 1, 0));
    for (int fd = 3; fd < 60; ++fd) close(fd);
    close(high);
  }
}

CASE(number_again_rights, "a number closed behind the C library, taken by a descriptor received in a message (SCM_RIGHTS)") {
  int ends[2];
  char byte;
  streams(ends);
  const int number = ends[0], came = in_rights(number);
  say("the number: %d", came == number);
  CALL(send(came, "a", 1, MSG_DONTWAIT));
  await(ends[1], POLLIN);
  CALL(recv(ends[1], &byte, 1, 0));
}

CASE(closed_behind, "a socket closed behind the C library: its peer gets the end, though the number is not reused") {
  int ends[2], others[2];
  char byte;
  streams(ends);
  streams(others);
  bare_close(ends[0]);
  MUST(send(others[0], "x", 1, 0));  // wakes the library's helper, which then notices the close
  await(ends[1], POLLIN);
  CALL(recv(ends[1], &byte, 1, 0));
}

CASE(number_again_copied, "a copy of a number that the C library has opened by itself is a copy of its file") {
  int ends[2];
  streams(ends);
  while (MUST(open("/dev/null", O_RDONLY)) < ends[0]) continue;
  bare_close(ends[0]);
  fopen("/dev/null", "r");
  CALL(send(dup(ends[0]), "x", 1, MSG_DONTWAIT));
  CALL(send(fcntl(ends[0], F_DUPFD, 0), "x", 1, MSG_DONTWAIT));
  CALL(send(dup2(ends[0], 100), "x", 1, MSG_DONTWAIT));
}

static void* writes_late(void* fd) {
  pause_ms(50);
  return thread_result(write(*(int*)fd, "x", 1));
}

CASE(epoll_added_behind, "a pipe that was added to a set behind the C library, beside a connection") {
  int ends[2], pair[2];
  char byte;
  struct epoll_event event = {.events = EPOLLIN, .data = {.u32 = 1}}, told[2] = {0};
  streams(ends);
  MUST(pipe(pair));
  const int epoll = MUST(epoll_create1(0));
  MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
  event.data.u32 = 2;
  MUST(bare(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, pair[0], &event));
  CALL(epoll_wait(epoll, told, 2, 0));
  const pthread_t thread = start(writes_late, &pair[1]);
  CALL(epoll_wait(epoll, told, 2, 5000));
  say("%u", told[0].data.u32);
  joined(thread);
  CALL(epoll_wait(epoll, told, 2, 0));
  CALL(read(pair[0], &byte, 1));
  CALL(epoll_wait(epoll, told, 2, 0));
  CALL(send(ends[1], "x", 1, 0));
  CALL(epoll_wait(epoll, told, 2, 5000));
  say("%u", told[0].data.u32);
}

THEME(raw_calls, &raw_stream, &raw_options, &raw_datagrams, &raw_waits, &raw_close, &raw_close_range, &raw_dup, &raw_no_rings,
      &number_again, &number_again_rights, &number_again_copied, &closed_behind,
      &epoll_added_behind);
