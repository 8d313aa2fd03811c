// ancillary.c - cases of ancillary data: where a datagram arrived, with what TTL and when, and what may be sent along.
#include <sys/time.h>

#include "tests/conformance/conformance.h"

static char control[512];

// One datagram with room for ancillary data; says what kinds there were, not their values.
static struct msghdr receive(int s, size_t room) {
  static char bytes[20];
  static struct iovec in;
  in = (struct iovec){bytes, sizeof bytes};
  struct msghdr got = {.msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
  await(s, POLLIN);
  const long length = recvmsg(s, &got, MSG_DONTWAIT);
  say("recvmsg %ld, controllen %zu, flags %x", length, got.msg_controllen, (unsigned)got.msg_flags);
  if (length < 0) got.msg_controllen = 0;
  for (struct cmsghdr* each = CMSG_FIRSTHDR(&got); each != NULL; each = CMSG_NXTHDR(&got, each)) {
    say("level %d type %d length %zu", each->cmsg_level, each->cmsg_type, each->cmsg_len);
  }
  return got;
}

static int is_4(void) {
  if (family == AF_INET) return 1;
  say("skipped: of IPv4");
  return 0;
}

static int is_6(void) {
  if (family == AF_INET6) return 1;
  say("skipped: of IPv6");
  return 0;
}

CASE(ancillary_none, "no ancillary data unless asked for") {
  int ends[2];
  datagrams(ends);
  CALL(send(ends[0], "abc", 3, 0));
  receive(ends[1], sizeof control);
}

CASE(ancillary_pktinfo, "IP_PKTINFO: to which address it was sent") {
  int ends[2];
  if (!is_4()) return;
  datagrams(ends);
  SET_AND_GET(ends[1], IPPROTO_IP, IP_PKTINFO, 1);
  CALL(send(ends[0], "abc", 3, 0));
  struct msghdr got = receive(ends[1], sizeof control);
  const struct cmsghdr* first = CMSG_FIRSTHDR(&got);
  if (first == NULL) return;
  union Address own;
  struct in_pktinfo info;
  own_address(&own, 0);
  memcpy(&info, CMSG_DATA(first), sizeof info);
  say("to own: %d, interface: %d", info.ipi_addr.s_addr == own.v4.sin_addr.s_addr, info.ipi_ifindex != 0);
}

CASE(ancillary_pktinfo6, "IPV6_RECVPKTINFO: to which address it was sent") {
  int ends[2];
  if (!is_6()) return;
  datagrams(ends);
  SET_AND_GET(ends[1], IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
  CALL(send(ends[0], "abc", 3, 0));
  struct msghdr got = receive(ends[1], sizeof control);
  const struct cmsghdr* first = CMSG_FIRSTHDR(&got);
  if (first == NULL) return;
  union Address own;
  struct in6_pktinfo info;
  own_address(&own, 0);
  memcpy(&info, CMSG_DATA(first), sizeof info);
  say("to own: %d, interface: %d", memcmp(&info.ipi6_addr, &own.v6.sin6_addr, 16) == 0, info.ipi6_ifindex != 0);
}

CASE(ancillary_ttl_tos, "IP_RECVTTL and IP_RECVTOS, as the sender set them") {
  int ends[2];
  if (!is_4()) return;
  datagrams(ends);
  SET(ends[1], IPPROTO_IP, IP_RECVTTL, 1);
  SET(ends[1], IPPROTO_IP, IP_RECVTOS, 1);
  SET(ends[0], IPPROTO_IP, IP_TTL, 33);
  SET(ends[0], IPPROTO_IP, IP_TOS, 0x28);
  CALL(send(ends[0], "abc", 3, 0));
  struct msghdr got = receive(ends[1], sizeof control);
  for (struct cmsghdr* each = CMSG_FIRSTHDR(&got); each != NULL; each = CMSG_NXTHDR(&got, each)) say("value %d", *CMSG_DATA(each));
}

CASE(ancillary_hops_class, "IPV6_RECVHOPLIMIT and IPV6_RECVTCLASS, as the sender set them") {
  int ends[2];
  if (!is_6()) return;
  datagrams(ends);
  SET(ends[1], IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
  SET(ends[1], IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
  SET(ends[0], IPPROTO_IPV6, IPV6_UNICAST_HOPS, 33);
  SET(ends[0], IPPROTO_IPV6, IPV6_TCLASS, 0x28);
  CALL(send(ends[0], "abc", 3, 0));
  struct msghdr got = receive(ends[1], sizeof control);
  for (struct cmsghdr* each = CMSG_FIRSTHDR(&got); each != NULL; each = CMSG_NXTHDR(&got, each)) say("value %d", *CMSG_DATA(each));
}

CASE(ancillary_timestamp, "SO_TIMESTAMP and SO_TIMESTAMPNS: when it came") {
  int ends[2];
  datagrams(ends);
  SET_AND_GET(ends[1], SOL_SOCKET, SO_TIMESTAMP, 1);
  CALL(send(ends[0], "abc", 3, 0));
  struct msghdr got = receive(ends[1], sizeof control);
  struct timeval when = {0, 0}, now;
  if (CMSG_FIRSTHDR(&got) != NULL) memcpy(&when, CMSG_DATA(CMSG_FIRSTHDR(&got)), sizeof when);
  gettimeofday(&now, NULL);
  say("of the last minute: %d", when.tv_sec <= now.tv_sec && when.tv_sec > now.tv_sec - 60);
  SET_AND_GET(ends[1], SOL_SOCKET, SO_TIMESTAMPNS, 1);
  OPTION(ends[1], SOL_SOCKET, SO_TIMESTAMP);
  CALL(send(ends[0], "abc", 3, 0));
  receive(ends[1], sizeof control);
}

CASE(ancillary_no_room, "room for less ancillary data than there is: MSG_CTRUNC") {
  int ends[2];
  datagrams(ends);
  SET(ends[1], SOL_SOCKET, SO_TIMESTAMP, 1);
  for (int i = 0; i < 3; ++i) CALL(send(ends[0], "abc", 3, 0));
  receive(ends[1], 0);
  receive(ends[1], 8);
  receive(ends[1], CMSG_LEN(8));
}

// The kernel begins to look at its clock some time after the first socket of the host wants to know: whether it tells is chance.
CASE(ancillary_stream_timestamp, "SO_TIMESTAMP of a stream does no harm") {
  int ends[2];
  char bytes[20];
  streams(ends);
  SET_AND_GET(ends[1], SOL_SOCKET, SO_TIMESTAMP, 1);
  CALL(send(ends[0], "abc", 3, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

// A datagram to the second end with one number along.
static long send_with(int s, int level, int type, const void* value, size_t length) {
  struct iovec out = {"abc", 3};
  struct msghdr sent = {.msg_iov = &out, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(length)};
  memset(control, 0, sizeof control);
  struct cmsghdr* first = CMSG_FIRSTHDR(&sent);
  first->cmsg_level = level;
  first->cmsg_type = type;
  first->cmsg_len = CMSG_LEN(length);
  memcpy(CMSG_DATA(first), value, length);
  return sendmsg(s, &sent, 0);
}

CASE(ancillary_send_ttl_tos, "IP_TTL and IP_TOS for one datagram") {
  int ends[2];
  if (!is_4()) return;
  const int ttl = 44, tos = 0x10, wrong = 0;
  datagrams(ends);
  SET(ends[1], IPPROTO_IP, IP_RECVTTL, 1);
  SET(ends[1], IPPROTO_IP, IP_RECVTOS, 1);
  CALL(send_with(ends[0], IPPROTO_IP, IP_TTL, &ttl, sizeof ttl));
  struct msghdr got = receive(ends[1], sizeof control);
  say("ttl %d", CMSG_FIRSTHDR(&got) == NULL ? -1 : *CMSG_DATA(CMSG_FIRSTHDR(&got)));
  CALL(send_with(ends[0], IPPROTO_IP, IP_TOS, &tos, sizeof tos));
  receive(ends[1], sizeof control);
  CALL(send_with(ends[0], IPPROTO_IP, IP_TTL, &wrong, sizeof wrong));
  CALL(send_with(ends[0], IPPROTO_IP, IP_TTL, &wrong, 1));
}

CASE(ancillary_send_pktinfo, "IP_PKTINFO for one datagram: the own address, and one that is not ours") {
  union Address to;
  if (!is_4()) return;
  const int one = OPEN(socket(family, SOCK_DGRAM, 0)), two = bound(SOCK_DGRAM);
  const socklen_t length = address_of(two, &to);
  CALL(connect(one, &to.any, length));
  struct in_pktinfo info = {0};
  info.ipi_spec_dst = to.v4.sin_addr;
  CALL(send_with(one, IPPROTO_IP, IP_PKTINFO, &info, sizeof info));
  inet_pton(AF_INET, "192.0.2.77", &info.ipi_spec_dst);
  CALL(send_with(one, IPPROTO_IP, IP_PKTINFO, &info, sizeof info));
  info.ipi_ifindex = 9999;
  CALL(send_with(one, IPPROTO_IP, IP_PKTINFO, &info, sizeof info));
}

CASE(ancillary_two, "two kinds at once come in their order") {
  int ends[2];
  if (!is_4()) return;
  datagrams(ends);
  SET(ends[1], SOL_SOCKET, SO_TIMESTAMP, 1);
  SET(ends[1], IPPROTO_IP, IP_PKTINFO, 1);
  SET(ends[1], IPPROTO_IP, IP_RECVTTL, 1);
  CALL(send(ends[0], "abc", 3, 0));
  receive(ends[1], sizeof control);
}

CASE(ancillary_rxq_ovfl, "SO_RXQ_OVFL: how many were lost") {
  int ends[2];
  datagrams(ends);
  SET_AND_GET(ends[1], SOL_SOCKET, SO_RXQ_OVFL, 1);
  CALL(send(ends[0], "abc", 3, 0));
  receive(ends[1], sizeof control);
}

THEME(ancillary, &ancillary_none, &ancillary_pktinfo, &ancillary_pktinfo6, &ancillary_ttl_tos, &ancillary_hops_class,
      &ancillary_timestamp, &ancillary_no_room, &ancillary_stream_timestamp, &ancillary_send_ttl_tos,
      &ancillary_send_pktinfo, &ancillary_two, &ancillary_rxq_ovfl);
