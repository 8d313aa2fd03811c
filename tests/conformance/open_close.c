// open_close.c - cases of descriptors: socket() with valid and invalid arguments, file calls on a socket, and closing.
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/conformance/conformance.h"

CASE(open_types, "socket() of every type and protocol of the family") {
  const int types[] = {SOCK_STREAM, SOCK_DGRAM};
  const int protocols[] = {0, IPPROTO_TCP, IPPROTO_UDP};
  for (int t = 0; t < 2; ++t) {
    for (int p = 0; p < 3; ++p) {
      const int s = socket(family, types[t], protocols[p]);
      say("socket type %d protocol %d: %s", types[t], protocols[p], s >= 0 ? "a descriptor" : error_name(errno));
    }
  }
}

CASE(open_unknown, "socket() with families, types, protocols and flags that there are not") {
  OPEN(socket(-1, SOCK_STREAM, 0));
  OPEN(socket(200, SOCK_STREAM, 0));
  OPEN(socket(family, 0, 0));
  OPEN(socket(family, -1, 0));
  OPEN(socket(family, 11, 0));
  OPEN(socket(family, SOCK_STREAM, -1));
  OPEN(socket(family, SOCK_STREAM, 254));
  OPEN(socket(family, SOCK_STREAM, 1000));
  OPEN(socket(family, SOCK_DGRAM, 254));
  OPEN(socket(family, SOCK_STREAM | 0x1000, 0));
  OPEN(socket(family, SOCK_SEQPACKET, 0));
}

CASE(open_raw_and_others, "sockets of other families and types still come") {
  const int local = OPEN(socket(AF_UNIX, SOCK_STREAM, 0));
  OPTION(local, SOL_SOCKET, SO_DOMAIN);
  const int raw = OPEN(socket(family, SOCK_RAW, family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6));
  OPTION(raw, SOL_SOCKET, SO_TYPE);
  const int route = OPEN(socket(AF_NETLINK, SOCK_RAW, 0));
  OPTION(route, SOL_SOCKET, SO_DOMAIN);
  int ends[2];
  CALL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  CALL(write(ends[0], "abc", 3));
  char bytes[8];
  CALL(read(ends[1], bytes, sizeof bytes));
  CALL(socketpair(family, SOCK_STREAM, 0, ends));
}

CASE(open_flags, "SOCK_CLOEXEC and SOCK_NONBLOCK at socket()") {
  const int plain = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(fcntl(plain, F_GETFD));
  say("flags %o", (unsigned)fcntl(plain, F_GETFL));
  const int both = OPEN(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  CALL(fcntl(both, F_GETFD));
  say("flags %o", (unsigned)fcntl(both, F_GETFL));
  const int datagrams = OPEN(socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0));
  CALL(fcntl(datagrams, F_GETFD));
  say("flags %o", (unsigned)fcntl(datagrams, F_GETFL));
}

CASE(open_says_what_it_is, "SO_TYPE, SO_PROTOCOL, SO_DOMAIN, SO_ACCEPTCONN, SO_ERROR of new sockets") {
  const int stream = OPEN(socket(family, SOCK_STREAM, 0));
  const int datagram = OPEN(socket(family, SOCK_DGRAM, IPPROTO_UDP));
  const int each[] = {stream, datagram};
  for (int i = 0; i < 2; ++i) {
    const int s = each[i];
    OPTION(s, SOL_SOCKET, SO_TYPE);
    OPTION(s, SOL_SOCKET, SO_PROTOCOL);
    OPTION(s, SOL_SOCKET, SO_DOMAIN);
    OPTION(s, SOL_SOCKET, SO_ACCEPTCONN);
    OPTION(s, SOL_SOCKET, SO_ERROR);
  }
}

CASE(open_lowest_number, "a new socket has the lowest number that is free") {
  const int first = OPEN(socket(family, SOCK_STREAM, 0));
  const int second = OPEN(socket(family, SOCK_DGRAM, 0));
  say("the next: %s", second == first + 1 ? "yes" : "no");
  CALL(close(first));
  const int third = OPEN(socket(family, SOCK_STREAM, 0));
  say("the one that was closed: %s", third == first ? "yes" : "no");
  CALL(close(STDIN_FILENO));
  CALL(socket(family, SOCK_STREAM, 0));
  CALL(close(STDIN_FILENO));
  CALL(open("/dev/null", O_RDONLY));
}

CASE(open_exhausted, "EMFILE at the limit of descriptors") {
  const struct rlimit few = {32, 32};
  CALL(setrlimit(RLIMIT_NOFILE, &few));
  int last = -1;
  for (int i = 0; i < 64; ++i) {
    const int s = socket(family, SOCK_STREAM, 0);
    if (s < 0) break;
    last = s;
  }
  say("no more: %s", error_name(errno));
  OPEN(socket(family, SOCK_DGRAM, 0));
  CALL(close(last));
  OPEN(socket(family, SOCK_DGRAM, 0));
}

CASE(open_exhausted_accept, "accept() at the limit of descriptors leaves the connection where it is") {
  const int listener = listening();
  const int client = connected(listener);
  await(listener, POLLIN);
  const int s = dup(listener);
  const struct rlimit few = {(rlim_t)s + 1, (rlim_t)s + 1};
  CALL(setrlimit(RLIMIT_NOFILE, &few));
  OPEN(accept(listener, NULL, NULL));
  say_ready("listener", listener);
  CALL(close(s));
  const int server = OPEN(accept(listener, NULL, NULL));
  CALL(send(client, "abc", 3, 0));
  char bytes[8];
  CALL(recv(server, bytes, sizeof bytes, 0));
}

CASE(close_twice, "a descriptor that is closed") {
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(close(s));
  CALL(close(s));
  CALL(close(-1));
  CALL(close(100000));
}

CASE(close_then_use, "every call on a descriptor that is not open") {
  union Address own;
  const socklen_t length = own_address(&own, 0);
  socklen_t size = sizeof own;
  struct msghdr message = {0};
  char byte = 0;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(close(s));
  CALL(bind(s, &own.any, length));
  CALL(connect(s, &own.any, length));
  CALL(listen(s, 1));
  CALL(accept(s, NULL, NULL));
  CALL(accept4(s, NULL, NULL, 0));
  CALL(getsockname(s, &own.any, &size));
  CALL(getpeername(s, &own.any, &size));
  CALL(send(s, &byte, 1, 0));
  CALL(sendto(s, &byte, 1, 0, &own.any, length));
  CALL(sendmsg(s, &message, 0));
  CALL(recv(s, &byte, 1, 0));
  CALL(recvfrom(s, &byte, 1, 0, NULL, NULL));
  CALL(recvmsg(s, &message, 0));
  CALL(read(s, &byte, 1));
  CALL(write(s, &byte, 1));
  CALL(shutdown(s, SHUT_RDWR));
  OPTION(s, SOL_SOCKET, SO_TYPE);
  SET(s, SOL_SOCKET, SO_REUSEADDR, 1);
  CALL(fcntl(s, F_GETFL));
  CALL(dup(s));
  CALL(ioctl(s, FIONREAD, &size));
}

CASE(close_no_socket, "every call of sockets on a file and a pipe: ENOTSOCK") {
  union Address own;
  const socklen_t length = own_address(&own, 0);
  socklen_t size = sizeof own;
  struct msghdr message = {0};
  char byte = 0;
  int ends[2];
  CALL(pipe(ends));
  const int file = open("/dev/null", O_RDWR);
  CALL(bind(file, &own.any, length));
  CALL(connect(file, &own.any, length));
  CALL(listen(file, 1));
  CALL(accept(file, NULL, NULL));
  CALL(getsockname(file, &own.any, &size));
  CALL(getpeername(file, &own.any, &size));
  CALL(send(ends[1], &byte, 1, 0));
  CALL(recv(ends[0], &byte, 1, MSG_DONTWAIT));
  CALL(sendmsg(ends[1], &message, 0));
  CALL(recvmsg(ends[0], &message, 0));
  CALL(shutdown(file, SHUT_RDWR));
  OPTION(file, SOL_SOCKET, SO_TYPE);
  SET(ends[0], SOL_SOCKET, SO_REUSEADDR, 1);
}

CASE(close_range_and_from, "close_range() closes sockets, too") {
  const int first = OPEN(socket(family, SOCK_STREAM, 0));
  const int second = OPEN(socket(family, SOCK_DGRAM, 0));
  CALL(close_range((unsigned)first, (unsigned)second, 0));
  OPTION(first, SOL_SOCKET, SO_TYPE);
  OPTION(second, SOL_SOCKET, SO_TYPE);
  const int third = OPEN(socket(family, SOCK_STREAM, 0));
  closefrom(third);
  OPTION(third, SOL_SOCKET, SO_TYPE);
}

CASE(open_is_a_file, "fstat, isatty, lseek, pread, fsync, ftruncate, mmap of a socket") {
  int ends[2];
  char byte = 0;
  struct stat is;
  streams(ends);
  CALL(fstat(ends[0], &is));
  say("S_ISSOCK %d, permissions %o, size %ld", S_ISSOCK(is.st_mode), is.st_mode & 0777, (long)is.st_size);
  CALL(isatty(ends[0]));
  CALL(lseek(ends[0], 0, SEEK_CUR));
  CALL(lseek(ends[0], 0, SEEK_END));
  CALL(pread(ends[0], &byte, 1, 0));
  CALL(pwrite(ends[0], &byte, 1, 0));
  CALL(fsync(ends[0]));
  CALL(fdatasync(ends[0]));
  CALL(ftruncate(ends[0], 10));
  CALL(fchmod(ends[0], 0600));
  CALL(posix_fadvise(ends[0], 0, 0, POSIX_FADV_NORMAL));
}

CASE(open_proc_says_socket, "/proc/self/fd and /dev/fd of a socket") {
  char path[64], target[64] = "";
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  snprintf(path, sizeof path, "/proc/self/fd/%d", s);
  const long length = readlink(path, target, sizeof target - 1);
  say("a link of some length %d, begins with %.8s", length > 0, target);
  OPEN(open(path, O_RDWR));
  struct stat is;
  CALL(stat(path, &is));
  say("S_ISSOCK %d", S_ISSOCK(is.st_mode));
}

CASE(open_inode_of_its_own, "sockets differ in fstat's inode; duplicates do not") {
  struct stat one, other, copy;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  fstat(s, &one);
  fstat(OPEN(socket(family, SOCK_STREAM, 0)), &other);
  fstat(OPEN(dup(s)), &copy);
  say("the same: of two sockets %d, of duplicates %d", one.st_ino == other.st_ino, one.st_ino == copy.st_ino);
}

CASE(close_linger_zero, "close() with linger of no time resets") {
  int ends[2];
  char byte;
  streams(ends);
  reset(ends[0]);
  await(ends[1], POLLERR | POLLHUP);
  say_ready("the other", ends[1]);
  CALL(recv(ends[1], &byte, 1, 0));
  CALL(recv(ends[1], &byte, 1, 0));
}

CASE(close_unread_resets, "close() with bytes unread resets") {
  int ends[2];
  char byte;
  streams(ends);
  CALL(send(ends[1], "unread", 6, 0));
  await_bytes(ends[0], 6);
  CALL(close(ends[0]));
  await(ends[1], POLLERR | POLLHUP);
  say_ready("the other", ends[1]);
  CALL(recv(ends[1], &byte, 1, 0));
  CALL(send(ends[1], &byte, 1, MSG_NOSIGNAL));
}

CASE(close_sends_what_is_left, "close() right after a large write: the peer gets all, then the end") {
  int ends[2];
  static char bytes[100000];
  streams(ends);
  CALL(send(ends[0], bytes, sizeof bytes, 0));
  CALL(close(ends[0]));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(close_lingers, "close() with a linger time returns once all is acknowledged") {
  int ends[2];
  static char bytes[50000];
  const struct linger long_time = {1, 5};
  streams(ends);
  CALL(setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &long_time, sizeof long_time));
  CALL(send(ends[0], bytes, sizeof bytes, 0));
  CALL(close(ends[0]));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(close_listener_with_waiting, "closing a listener resets unaccepted connections") {
  char byte;
  const int listener = listening();
  const int client = connected(listener);
  await(listener, POLLIN);
  CALL(close(listener));
  await(client, POLLERR | POLLHUP);
  say_ready("client", client);
  CALL(recv(client, &byte, 1, 0));
  OPTION(client, SOL_SOCKET, SO_ERROR);
}

THEME(open_close, &open_types, &open_unknown, &open_raw_and_others, &open_flags, &open_says_what_it_is,
      &open_lowest_number, &open_exhausted, &open_exhausted_accept, &close_twice, &close_then_use, &close_no_socket,
      &close_range_and_from, &open_is_a_file, &open_proc_says_socket, &open_inode_of_its_own, &close_linger_zero,
      &close_unread_resets, &close_sends_what_is_left, &close_lingers, &close_listener_with_waiting);
