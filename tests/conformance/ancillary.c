// ancillary.c - cases of ancillary data: a datagram's destination, TTL and time of arrival, and the ancillary data that sendmsg() accepts.
#include <sys/time.h>

#include "tests/conformance/conformance.h"

static char control[512];

// Receives one datagram with `room` bytes for ancillary data. Prints the kinds that came, not their values.
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

// Prints no time stamp: the kernel turns its clock on some time after the host's first socket asks, so whether one comes is chance.
CASE(ancillary_stream_timestamp, "SO_TIMESTAMP of a stream does no harm") {
  int ends[2];
  char bytes[20];
  streams(ends);
  SET_AND_GET(ends[1], SOL_SOCKET, SO_TIMESTAMP, 1);
  CALL(send(ends[0], "abc", 3, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

// Sends a datagram to the second end with one ancillary value.
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

static void say_values(struct msghdr* got) {
  for (struct cmsghdr* each = CMSG_FIRSTHDR(got); each != NULL; each = CMSG_NXTHDR(got, each)) say("value %d", *CMSG_DATA(each));
}

CASE(ancillary_send_six, "IPV6_HOPLIMIT, IPV6_TCLASS and IPV6_PKTINFO for one datagram") {
  int ends[2];
  union Address own;
  if (!is_6()) return;
  datagrams(ends);
  own_address(&own, 0);
  SET(ends[1], IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
  SET(ends[1], IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
  const int values[] = {-1, 0, 44, -2, 256};
  for (int i = 0; i < 5; ++i) {
    for (int type = IPV6_HOPLIMIT; type <= IPV6_TCLASS; type += IPV6_TCLASS - IPV6_HOPLIMIT) {
      if (type == IPV6_TCLASS && values[i] == -1) continue;  // kernels differ here
      if (CALL(send_with(ends[0], IPPROTO_IPV6, type, &values[i], sizeof values[i])) < 0) continue;
      struct msghdr got = receive(ends[1], sizeof control);
      say_values(&got);
    }
  }
  CALL(send_with(ends[0], IPPROTO_IPV6, IPV6_HOPLIMIT, values, 1));
  struct in6_pktinfo info = {0};
  CALL(send_with(ends[0], IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info));
  info.ipi6_addr = own.v6.sin6_addr;
  CALL(send_with(ends[0], IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info));
  CALL(send_with(ends[0], IPPROTO_IPV6, IPV6_PKTINFO, &info, 8));
  inet_pton(AF_INET6, "2001:db8::77", &info.ipi6_addr);
  CALL(send_with(ends[0], IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info));
  info.ipi6_ifindex = 9999;
  CALL(send_with(ends[0], IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info));
}

CASE(ancillary_congestion_bits, "IP_TOS and IPV6_TCLASS have all eight bits of a datagram, as an option and for one") {
  int ends[2];
  const unsigned char byte = 0x2B;
  const int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, type = family == AF_INET ? IP_TOS : IPV6_TCLASS, number = 0x29;
  datagrams(ends);
  SET(ends[1], level, family == AF_INET ? IP_RECVTOS : IPV6_RECVTCLASS, 1);
  SET_AND_GET(ends[0], level, type, 0x2A);
  CALL(send(ends[0], "abc", 3, 0));
  struct msghdr got = receive(ends[1], sizeof control);
  say_values(&got);
  CALL(send_with(ends[0], level, type, &number, sizeof number));
  got = receive(ends[1], sizeof control);
  say_values(&got);
  if (family == AF_INET) {
    CALL(send_with(ends[0], level, type, &byte, 1));
    got = receive(ends[1], sizeof control);
    say_values(&got);
  }
  SET(ends[0], level, type, 0);
  CALL(send(ends[0], "abc", 3, 0));
  got = receive(ends[1], sizeof control);
  say_values(&got);
}

CASE(ancillary_source, "a datagram of a socket at all addresses leaves from the one that is said") {
  union Address to, from;
  socklen_t length = sizeof from;
  char bytes[10];
  const int two = bound(SOCK_DGRAM), one = OPEN(socket(family, SOCK_DGRAM, 0));
  address_of(two, &to);
  CALL(connect(one, &to.any, own_address(&from, 0) == sizeof to.v4 ? sizeof to.v4 : sizeof to.v6));
  if (family == AF_INET) {
    struct in_pktinfo info = {.ipi_spec_dst = to.v4.sin_addr};
    CALL(send_with(one, IPPROTO_IP, IP_PKTINFO, &info, sizeof info));
    CALL(send_with(one, IPPROTO_IP, IP_PKTINFO, &info, 4));
    info.ipi_ifindex = 9999;
    CALL(send_with(one, IPPROTO_IP, IP_PKTINFO, &info, sizeof info));
  } else {
    struct in6_pktinfo info = {.ipi6_addr = to.v6.sin6_addr};
    CALL(send_with(one, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info));
  }
  await(two, POLLIN);
  CALL(recvfrom(two, bytes, sizeof bytes, 0, &from.any, &length));
  say_address("from", &from, length);
}

CASE(ancillary_peeked, "a peek tells it, too, and recvmmsg(), whatever room there is for the data") {
  int ends[2];
  char bytes[2][4], controls[2][64];
  datagrams(ends);
  SET(ends[1], SOL_SOCKET, SO_TIMESTAMPNS, 1);
  for (int i = 0; i < 3; ++i) CALL(send(ends[0], "abcdef", 6, 0));
  struct iovec in[3] = {{bytes[0], 1}, {bytes[0] + 1, 0}, {bytes[1], 2}};
  struct msghdr one = {.msg_iov = in, .msg_iovlen = 3, .msg_control = controls[0], .msg_controllen = 64};
  await(ends[1], POLLIN);
  CALL(recvmsg(ends[1], &one, MSG_PEEK));
  say("%c%c%c, controllen %zu, flags %x", bytes[0][0], bytes[1][0], bytes[1][1], one.msg_controllen, (unsigned)one.msg_flags);
  one.msg_controllen = 64;
  CALL(recvmsg(ends[1], &one, MSG_TRUNC));
  say("controllen %zu, flags %x", one.msg_controllen, (unsigned)one.msg_flags);
  struct mmsghdr two[2];
  memset(two, 0, sizeof two);
  for (int i = 0; i < 2; ++i) {
    two[i].msg_hdr = (struct msghdr){.msg_iov = &in[2 * i], .msg_iovlen = 1, .msg_control = controls[i], .msg_controllen = 64};
  }
  CALL(recvmmsg(ends[1], two, 2, 0, NULL));
  for (int i = 0; i < 2; ++i) say("%u bytes, controllen %zu", two[i].msg_len, two[i].msg_hdr.msg_controllen);
}

CASE(ancillary_segments, "UDP_SEGMENT for one call, and UDP_GRO") {
  int ends[2];
  const unsigned short two = 2;
  datagrams(ends);
  CALL(send_with(ends[0], IPPROTO_UDP, 103, &two, sizeof two));
  receive(ends[1], sizeof control);
  receive(ends[1], sizeof control);
  SET_AND_GET(ends[1], IPPROTO_UDP, 104, 1);
  CALL(send_with(ends[0], IPPROTO_UDP, 103, &two, sizeof two));
  struct msghdr got = receive(ends[1], sizeof control);
  say_values(&got);
  CALL(send_with(ends[0], IPPROTO_UDP, 103, &two, 1));
  CALL(send_with(ends[0], IPPROTO_UDP, 77, &two, sizeof two));
}

CASE(ancillary_lost, "SO_RXQ_OVFL after some were lost, and the new names of SO_TIMESTAMP") {
  int ends[2], names[] = {63, 64};
  static char bytes[1000];
  datagrams(ends);
  SET(ends[1], SOL_SOCKET, SO_RXQ_OVFL, 1);
  SET(ends[1], SOL_SOCKET, SO_RCVBUF, 5000);
  for (int i = 0; i < 1000; ++i) send(ends[0], bytes, sizeof bytes, 0);
  pause_ms(50);
  while (recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
  for (int i = 0; i < 2; ++i) {
    SET_AND_GET(ends[1], SOL_SOCKET, names[i], 1);
    CALL(send(ends[0], "abc", 3, 0));
    receive(ends[1], sizeof control);
  }
  SET_AND_GET(ends[1], SOL_SOCKET, 64, 0);
  SET(ends[1], SOL_SOCKET, SO_RXQ_OVFL, 0);
  CALL(send(ends[0], "abc", 3, 0));
  receive(ends[1], sizeof control);
}

THEME(ancillary, &ancillary_none, &ancillary_pktinfo, &ancillary_pktinfo6, &ancillary_ttl_tos, &ancillary_hops_class,
      &ancillary_timestamp, &ancillary_no_room, &ancillary_stream_timestamp, &ancillary_send_ttl_tos,
      &ancillary_send_pktinfo, &ancillary_two, &ancillary_rxq_ovfl, &ancillary_send_six, &ancillary_congestion_bits,
      &ancillary_source, &ancillary_peeked, &ancillary_segments, &ancillary_lost);
