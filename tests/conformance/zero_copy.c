// zero_copy.c - cases of MSG_ZEROCOPY: the option, completions on the error queue, and reuse of the sent memory.
#include <time.h>  // errqueue.h needs it

#include <linux/errqueue.h>

#include "tests/conformance/conformance.h"

static void say_completion(int s) {
  char control[200], byte;
  struct iovec in = {&byte, 1};
  struct msghdr got = {.msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  const long result = recvmsg(s, &got, MSG_ERRQUEUE | MSG_DONTWAIT);
  if (result < 0) {
    say("error queue: %s", error_name(errno));
    return;
  }
  say("error queue: %ld, MSG_ERRQUEUE %d", result, (got.msg_flags & MSG_ERRQUEUE) != 0);
  for (struct cmsghdr* each = CMSG_FIRSTHDR(&got); each != NULL; each = CMSG_NXTHDR(&got, each)) {
    const struct sock_extended_err* error = (const struct sock_extended_err*)CMSG_DATA(each);
    say("errno %u, origin %d, from %u to %u", error->ee_errno, error->ee_origin, error->ee_info, error->ee_data);
  }
}

CASE(zero_copy_option, "SO_ZEROCOPY: at first, set, and values that are none") {
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  OPTION(s, SOL_SOCKET, SO_ZEROCOPY);
  SET_AND_GET(s, SOL_SOCKET, SO_ZEROCOPY, 1);
  SET_AND_GET(s, SOL_SOCKET, SO_ZEROCOPY, 2);
  SET_AND_GET(s, SOL_SOCKET, SO_ZEROCOPY, -1);
  SET_AND_GET(s, SOL_SOCKET, SO_ZEROCOPY, 0);
  const int d = OPEN(socket(family, SOCK_DGRAM, 0));
  SET_AND_GET(d, SOL_SOCKET, SO_ZEROCOPY, 1);
  int ends[2];
  streams(ends);
  SET_AND_GET(ends[0], SOL_SOCKET, SO_ZEROCOPY, 1);
}

CASE(zero_copy_not_asked, "MSG_ZEROCOPY without the option is ignored") {
  int ends[2];
  char bytes[20];
  streams(ends);
  CALL(send(ends[0], "abc", 3, MSG_ZEROCOPY));
  say_bytes("received", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  pause_ms(30);
  say_completion(ends[0]);
}

CASE(zero_copy_send, "two sends with MSG_ZEROCOPY: all comes, and the error queue tells when their memory is free") {
  int ends[2];
  static char bytes[30000];
  streams(ends);
  SET(ends[0], SOL_SOCKET, SO_ZEROCOPY, 1);
  CALL(send(ends[0], bytes, sizeof bytes, MSG_ZEROCOPY));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL));
  await(ends[0], POLLERR);
  say_ready("sent", ends[0]);
  say_completion(ends[0]);
  say_ready("told", ends[0]);
  OPTION(ends[0], SOL_SOCKET, SO_ERROR);
  CALL(send(ends[0], bytes, sizeof bytes, MSG_ZEROCOPY));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL));
  await(ends[0], POLLERR);
  say_completion(ends[0]);
  say_completion(ends[0]);
}

CASE(zero_copy_datagram, "MSG_ZEROCOPY of datagrams") {
  int ends[2];
  static char bytes[2000];
  datagrams(ends);
  SET(ends[0], SOL_SOCKET, SO_ZEROCOPY, 1);
  CALL(send(ends[0], bytes, 1000, MSG_ZEROCOPY));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  await(ends[0], POLLERR);
  say_completion(ends[0]);
}

CASE(zero_copy_receive, "TCP_ZEROCOPY_RECEIVE") {
  int ends[2], room[20] = {0};
  socklen_t length = sizeof room;
  streams(ends);
  CALL(getsockopt(ends[0], IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, room, &length));
}

THEME(zero_copy, &zero_copy_option, &zero_copy_not_asked, &zero_copy_send, &zero_copy_datagram, &zero_copy_receive);
