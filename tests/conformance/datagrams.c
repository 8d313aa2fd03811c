// datagrams.c - cases of datagrams: destinations, message boundaries, truncation, ICMP errors, and which socket receives.
#include <time.h>  // errqueue.h needs it

#include <linux/errqueue.h>

#include "tests/conformance/conformance.h"

CASE(datagram_to_and_from, "sendto(), and the source address of recvfrom()") {
  union Address to, from, sender;
  char bytes[20];
  const int one = bound(SOCK_DGRAM), two = bound(SOCK_DGRAM);
  const socklen_t length = address_of(two, &to);
  CALL(sendto(one, "abc", 3, 0, &to.any, length));
  socklen_t size = sizeof from;
  say_bytes("received", bytes, CALL(recvfrom(two, bytes, sizeof bytes, 0, &from.any, &size)));
  say_address("from", &from, size);
  address_of(one, &sender);
  say("from the sender: %s", memcmp(&from, &sender, size) == 0 ? "yes" : "no");
  CALL(sendto(two, "answer", 6, 0, &from.any, size));
  say_bytes("answer", bytes, CALL(recv(one, bytes, sizeof bytes, 0)));
}

CASE(datagram_unbound_sender, "sendto() of an unbound socket gives it a port") {
  union Address to;
  char bytes[20];
  const int two = bound(SOCK_DGRAM);
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  const socklen_t length = address_of(two, &to);
  CALL(sendto(s, "abc", 3, 0, &to.any, length));
  say_names("sender", s);
  CALL(recv(two, bytes, sizeof bytes, 0));
}

CASE(datagram_borders, "each recv() takes one datagram, read() too") {
  int ends[2];
  char bytes[20];
  datagrams(ends);
  CALL(send(ends[0], "abc", 3, 0));
  CALL(write(ends[0], "defgh", 5));
  CALL(send(ends[0], "i", 1, 0));
  say_bytes("first", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  say_bytes("second", bytes, CALL(read(ends[1], bytes, sizeof bytes)));
  say_bytes("third", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL)));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
}

CASE(datagram_empty, "datagrams without bytes come, too") {
  int ends[2];
  char bytes[20];
  datagrams(ends);
  CALL(send(ends[0], NULL, 0, 0));
  CALL(send(ends[0], "abc", 3, 0));
  await(ends[1], POLLIN);
  say_ready("empty one", ends[1]);
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  CALL(write(ends[0], NULL, 0));
  pause_ms(20);
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
}

CASE(datagram_truncated, "room for less than the datagram: the rest is lost; MSG_TRUNC tells its length") {
  int ends[2];
  char bytes[20];
  datagrams(ends);
  for (int i = 0; i < 4; ++i) CALL(send(ends[0], "abcdef", 6, 0));
  say_bytes("4", bytes, CALL(recv(ends[1], bytes, 4, 0)));
  say_bytes("4 of", bytes, CALL(recv(ends[1], bytes, 4, MSG_TRUNC)) > 4 ? 4 : 0);
  CALL(recv(ends[1], bytes, 0, 0));
  struct iovec room = {bytes, 2};
  struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1};
  CALL(recvmsg(ends[1], &message, 0));
  say("flags: MSG_TRUNC %d", (message.msg_flags & MSG_TRUNC) != 0);
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
}

CASE(datagram_peek, "MSG_PEEK leaves the datagram, with MSG_TRUNC it tells the length") {
  int ends[2];
  char bytes[20];
  datagrams(ends);
  CALL(send(ends[0], "abcdef", 6, 0));
  CALL(send(ends[0], "gh", 2, 0));
  say_bytes("peek", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_PEEK)));
  CALL(recv(ends[1], bytes, 1, MSG_PEEK | MSG_TRUNC));
  CALL(recv(ends[1], NULL, 0, MSG_PEEK | MSG_TRUNC));
  say_bytes("recv", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  say_bytes("recv", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(datagram_largest, "the largest datagram, and one byte more") {
  int ends[2];
  static char bytes[70000];
  datagrams(ends);
  const size_t largest = family == AF_INET ? 65507 : 65527;
  SET(ends[1], SOL_SOCKET, SO_RCVBUF, 400000);
  CALL(send(ends[0], bytes, largest, 0));
  await(ends[1], POLLIN);
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  CALL(send(ends[0], bytes, largest + 1, 0));
  CALL(send(ends[0], bytes, 70000, 0));
}

CASE(datagram_no_destination, "send() without a destination") {
  char byte = 0;
  union Address to;
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  const socklen_t length = own_address(&to, 0);
  CALL(send(s, &byte, 1, 0));
  CALL(write(s, &byte, 1));
  CALL(sendto(s, &byte, 1, 0, NULL, length));
  CALL(sendto(s, &byte, 1, 0, &to.any, 0));
  CALL(sendto(s, &byte, 1, 0, &to.any, 3));
  CALL(sendto(s, &byte, 1, 0, &to.any, length));
  CALL(sendto(s, &byte, 1, 0, &to.any, 1000));
  to.any.sa_family = 77;
  CALL(sendto(s, &byte, 1, 0, &to.any, length));
  CALL(sendto(s, &byte, 1, 0, (struct sockaddr*)8, length));
}

CASE(datagram_connected_elsewhere, "sendto() of a connected socket goes where it says, the connection stays") {
  union Address to;
  int ends[2];
  char bytes[20];
  datagrams(ends);
  const int third = bound(SOCK_DGRAM);
  const socklen_t length = address_of(third, &to);
  CALL(sendto(ends[0], "third", 5, 0, &to.any, length));
  CALL(send(ends[0], "peer", 4, 0));
  say_bytes("third", bytes, CALL(recv(third, bytes, sizeof bytes, 0)));
  say_bytes("peer", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(datagram_connected_filters, "a connected socket hears its peer only") {
  union Address to;
  int ends[2];
  char bytes[20];
  datagrams(ends);
  const int stranger = bound(SOCK_DGRAM);
  const socklen_t length = address_of(ends[0], &to);
  CALL(sendto(stranger, "strange", 7, 0, &to.any, length));
  CALL(send(ends[1], "peer", 4, 0));
  say_bytes("received", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
  pause_ms(30);
  CALL(recv(ends[0], bytes, sizeof bytes, MSG_DONTWAIT));
}

CASE(datagram_filter_begins, "what came before connect() is still received") {
  union Address to, peer;
  char bytes[20];
  const int s = bound(SOCK_DGRAM), stranger = bound(SOCK_DGRAM), friendly = bound(SOCK_DGRAM);
  socklen_t length = address_of(s, &to);
  CALL(sendto(stranger, "before", 6, 0, &to.any, length));
  await(s, POLLIN);
  length = address_of(friendly, &peer);
  CALL(connect(s, &peer.any, length));
  CALL(sendto(stranger, "after", 5, 0, &to.any, length));
  pause_ms(30);
  say_bytes("received", bytes, CALL(recv(s, bytes, sizeof bytes, MSG_DONTWAIT)));
  CALL(recv(s, bytes, sizeof bytes, MSG_DONTWAIT));
}

CASE(datagram_refused, "port unreachable: a connected socket's next call returns ECONNREFUSED") {
  union Address to;
  char byte = 0;
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  const int gone = bound(SOCK_DGRAM);
  const socklen_t length = address_of(gone, &to);
  close(gone);
  CALL(connect(s, &to.any, length));
  CALL(send(s, &byte, 1, 0));
  await(s, POLLERR);
  say_ready("refused", s);
  CALL(send(s, &byte, 1, 0));
  CALL(send(s, &byte, 1, 0));
  await(s, POLLERR);
  OPTION(s, SOL_SOCKET, SO_ERROR);
  CALL(send(s, &byte, 1, 0));
  await(s, POLLERR);
  CALL(recv(s, &byte, 1, 0));
  CALL(recv(s, &byte, 1, MSG_DONTWAIT));
}

CASE(datagram_refused_unconnected, "port unreachable: an unconnected socket reports no error") {
  union Address to;
  char byte = 0;
  const int s = bound(SOCK_DGRAM);
  const int gone = bound(SOCK_DGRAM);
  const socklen_t length = address_of(gone, &to);
  close(gone);
  CALL(sendto(s, &byte, 1, 0, &to.any, length));
  pause_ms(50);
  say_ready("not told", s);
  CALL(sendto(s, &byte, 1, 0, &to.any, length));
  OPTION(s, SOL_SOCKET, SO_ERROR);
}

CASE(datagram_error_queue, "IP_RECVERR: what was refused is in the error queue") {
  union Address to;
  char byte = 'x', control[512];
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  const int gone = bound(SOCK_DGRAM);
  const socklen_t length = address_of(gone, &to);
  close(gone);
  SET(s, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, family == AF_INET ? IP_RECVERR : IPV6_RECVERR, 1);
  CALL(sendto(s, &byte, 1, 0, &to.any, length));
  await(s, POLLERR);
  say_ready("refused", s);
  struct iovec room = {&byte, 1};
  union Address name;
  struct msghdr message = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &room, .msg_iovlen = 1, .msg_control = control,
                           .msg_controllen = sizeof control};
  if (CALL(recvmsg(s, &message, MSG_ERRQUEUE | MSG_DONTWAIT)) < 0) return;
  say("flags: MSG_ERRQUEUE %d", (message.msg_flags & MSG_ERRQUEUE) != 0);
  for (struct cmsghdr* each = CMSG_FIRSTHDR(&message); each != NULL; each = CMSG_NXTHDR(&message, each)) {
    const struct sock_extended_err* error = (const struct sock_extended_err*)CMSG_DATA(each);
    say("level %d type %d: %s, origin %d", each->cmsg_level, each->cmsg_type, error_name((int)error->ee_errno), error->ee_origin);
  }
  OPTION(s, SOL_SOCKET, SO_ERROR);
}

CASE(datagram_broadcast_forbidden, "sending to everybody wants SO_BROADCAST") {
  union Address to;
  const int s = OPEN(socket(AF_INET, SOCK_DGRAM, 0));
  family = AF_INET;
  own_address(&to, 7777);
  to.v4.sin_addr.s_addr |= htonl(255);  // broadcast address of a /24
  CALL(sendto(s, "x", 1, 0, &to.any, sizeof to.v4));
  CALL(connect(s, &to.any, sizeof to.v4));
  SET_AND_GET(s, SOL_SOCKET, SO_BROADCAST, 1);
  CALL(sendto(s, "x", 1, 0, &to.any, sizeof to.v4));
  CALL(connect(s, &to.any, sizeof to.v4));
}

CASE(datagram_any_hears_all, "a socket with any address hears what is sent to the own, and answers from there") {
  union Address any, to, from;
  char bytes[20];
  const int server = OPEN(socket(family, SOCK_DGRAM, 0));
  const socklen_t length = any_address(&any, 0);
  CALL(bind(server, &any.any, length));
  own_address(&to, port_of(server));
  const int client = OPEN(socket(family, SOCK_DGRAM, 0));
  CALL(connect(client, &to.any, length));
  CALL(send(client, "abc", 3, 0));
  socklen_t size = sizeof from;
  CALL(recvfrom(server, bytes, sizeof bytes, 0, &from.any, &size));
  say_address("from", &from, size);
  CALL(sendto(server, "def", 3, 0, &from.any, size));
  CALL(recv(client, bytes, sizeof bytes, 0));
}

CASE(datagram_to_itself, "a socket sends to itself") {
  union Address own;
  char bytes[20];
  const int s = bound(SOCK_DGRAM);
  const socklen_t length = address_of(s, &own);
  CALL(sendto(s, "abc", 3, 0, &own.any, length));
  CALL(recv(s, bytes, sizeof bytes, 0));
  CALL(connect(s, &own.any, length));
  CALL(send(s, "defg", 4, 0));
  CALL(recv(s, bytes, sizeof bytes, 0));
}

CASE(datagram_shutdown, "shutdown() of datagram sockets, connected and not") {
  int ends[2];
  char byte = 0;
  const int s = bound(SOCK_DGRAM);
  CALL(shutdown(s, SHUT_RDWR));
  say_ready("not connected", s);
  datagrams(ends);
  CALL(shutdown(ends[0], SHUT_WR));
  CALL(send(ends[0], &byte, 1, MSG_NOSIGNAL));
  say_ready("writes no more", ends[0]);
  CALL(shutdown(ends[1], SHUT_RD));
  CALL(recv(ends[1], &byte, 1, 0));
  say_ready("reads no more", ends[1]);
  CALL(send(ends[1], &byte, 1, 0));
  CALL(recv(ends[0], &byte, 1, 0));
}

CASE(datagram_peek_offset, "SO_PEEK_OFF goes on from one datagram to the next") {
  int ends[2];
  char bytes[20];
  datagrams(ends);
  OPTION(ends[1], SOL_SOCKET, SO_PEEK_OFF);
  SET_AND_GET(ends[1], SOL_SOCKET, SO_PEEK_OFF, 0);
  CALL(send(ends[0], "", 0, 0));
  CALL(send(ends[0], "abcd", 4, 0));
  CALL(send(ends[0], "efg", 3, 0));
  await(ends[1], POLLIN);
  pause_ms(20);
  for (int i = 0; i < 5; ++i) say_bytes("peek", bytes, CALL(recv(ends[1], bytes, 3, MSG_PEEK | MSG_DONTWAIT)));
  OPTION(ends[1], SOL_SOCKET, SO_PEEK_OFF);
  say_bytes("recv", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  say_bytes("recv", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  OPTION(ends[1], SOL_SOCKET, SO_PEEK_OFF);
  SET_AND_GET(ends[1], SOL_SOCKET, SO_PEEK_OFF, 1);
  say_bytes("peek", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_PEEK | MSG_TRUNC)));
  SET_AND_GET(ends[1], SOL_SOCKET, SO_PEEK_OFF, -1);
  say_bytes("recv", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_PEEK)));
}

CASE(datagram_more_makes_one, "MSG_MORE gathers one datagram") {
  int ends[2];
  char bytes[20];
  datagrams(ends);
  CALL(send(ends[0], "abc", 3, MSG_MORE));
  pause_ms(20);
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
  CALL(send(ends[0], "def", 3, MSG_MORE));
  CALL(send(ends[0], "ghi", 3, 0));
  say_bytes("one", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(datagram_cork, "UDP_CORK gathers one datagram") {
  int ends[2];
  char bytes[20];
  datagrams(ends);
  SET_AND_GET(ends[0], IPPROTO_UDP, 1, 1);
  CALL(send(ends[0], "abc", 3, 0));
  CALL(send(ends[0], "def", 3, 0));
  SET(ends[0], IPPROTO_UDP, 1, 0);
  say_bytes("one", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
}

CASE(datagram_gathered_rules, "what is gathered goes where the first call said, and is lost when it is too long") {
  int ends[2];
  static char bytes[70000];
  union Address elsewhere;
  datagrams(ends);
  const socklen_t length = own_address(&elsewhere, 1);
  SET_AND_GET(ends[0], IPPROTO_UDP, 1, 1);
  SET(ends[0], IPPROTO_UDP, 1, 0);
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
  CALL(send(ends[0], "abc", 3, MSG_MORE));
  CALL(sendto(ends[0], "de", 2, MSG_MORE, &elsewhere.any, length));
  CALL(send(ends[0], "", 0, MSG_MORE));
  CALL(send(ends[0], bytes, 70000, MSG_MORE));
  SET(ends[0], IPPROTO_UDP, 1, 0);
  pause_ms(20);
  say_bytes("one", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT)));
  memset(bytes, 'x', sizeof bytes);
  CALL(send(ends[0], bytes, 40000, MSG_MORE));
  CALL(send(ends[0], bytes, 40000, 0));
  CALL(send(ends[0], "f", 1, 0));
  say_bytes("one", bytes, CALL(recv(ends[1], bytes, sizeof bytes, 0)));
  CALL(send(ends[0], "", 0, MSG_MORE));
  CALL(send(ends[0], "", 0, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
}

CASE(datagram_queue_full, "what a full queue has no room for is lost, and send() does not care") {
  int ends[2], sent = 0, received = 0;
  static char bytes[1000];
  datagrams(ends);
  SET(ends[1], SOL_SOCKET, SO_RCVBUF, 5000);
  for (int i = 0; i < 1000; ++i) sent += send(ends[0], bytes, sizeof bytes, 0) == sizeof bytes;
  pause_ms(50);
  while (recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT) > 0) ++received;
  say("sent %d, received some: %d, lost some: %d", sent, received > 0, received < 1000);
  say_ready("sender", ends[0]);
}

CASE(datagram_close_forgets, "what waits in a socket that is closed does not come to the next with its port") {
  union Address own;
  char bytes[20];
  const int sender = bound(SOCK_DGRAM);
  const int first = bound(SOCK_DGRAM);
  const socklen_t length = address_of(first, &own);
  CALL(sendto(sender, "first", 5, 0, &own.any, length));
  await(first, POLLIN);
  close(first);
  const int second = OPEN(socket(family, SOCK_DGRAM, 0));
  CALL(bind(second, &own.any, length));
  CALL(recv(second, bytes, sizeof bytes, MSG_DONTWAIT));
  CALL(sendto(sender, "second", 6, 0, &own.any, length));
  say_bytes("received", bytes, CALL(recv(second, bytes, sizeof bytes, 0)));
}

CASE(datagram_bad_pointer, "EFAULT of datagrams: what could not be stored is lost") {
  int ends[2];
  char bytes[20];
  datagrams(ends);
  CALL(send(ends[0], (void*)8, 10, 0));
  CALL(send(ends[0], "abc", 3, 0));
  CALL(send(ends[0], "def", 3, 0));
  CALL(recv(ends[1], (void*)8, 10, 0));
  await(ends[1], POLLIN);
  say_bytes("then", bytes, CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT)));
  CALL(recvfrom(ends[1], bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr*)8, NULL));
}

CASE(datagram_oob, "MSG_OOB of datagrams") {
  int ends[2];
  char byte = 0;
  datagrams(ends);
  if (CALL(send(ends[0], &byte, 1, MSG_OOB)) == 1) await(ends[1], POLLIN);
  CALL(recv(ends[1], &byte, 1, MSG_OOB | MSG_DONTWAIT));
}

// Prints the peer's name, what the peer receives, and its answer.
static void say_talk(int s, int peer) {
  char bytes[8];
  union Address from;
  socklen_t length = sizeof from;
  CALL(getpeername(s, &from.any, &length));
  say_address("the peer", &from, length);
  length = sizeof from;
  CALL(send(s, "to", 2, 0));
  await(peer, POLLIN);
  CALL(recvfrom(peer, bytes, sizeof bytes, 0, &from.any, &length));
  CALL(sendto(peer, "back", 4, 0, &from.any, length));
  await(s, POLLIN);
  CALL(recv(s, bytes, sizeof bytes, 0));
}

CASE(datagram_connected_to_loopback, "a datagram socket at all addresses, connected to loopback and to the own address by turns") {
  union Address address;
  socklen_t length = any_address(&address, 0);
  const struct sockaddr none = {.sa_family = AF_UNSPEC};
  const int s = MUST(socket(family, SOCK_DGRAM, 0)), own = bound(SOCK_DGRAM), loopback = MUST(socket(family, SOCK_DGRAM, 0));
  MUST(bind(s, &address.any, length));
  if (family == AF_INET) {
    address.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    address.v6.sin6_addr = in6addr_loopback;
  }
  length = family == AF_INET ? sizeof address.v4 : sizeof address.v6;
  MUST(bind(loopback, &address.any, length));
  for (int i = 0; i < 2; ++i) {
    length = address_of(loopback, &address);
    CALL(connect(s, &address.any, length));
    say_talk(s, loopback);
    if (i == 0) CALL(connect(s, &none, sizeof none));
    if (i == 0) CALL(send(s, "to", 2, 0));
    length = address_of(own, &address);
    CALL(connect(s, &address.any, length));
    say_talk(s, own);
  }
}

THEME(datagrams, &datagram_to_and_from, &datagram_unbound_sender, &datagram_borders, &datagram_empty,
      &datagram_truncated, &datagram_peek, &datagram_largest, &datagram_no_destination, &datagram_connected_elsewhere,
      &datagram_connected_filters, &datagram_filter_begins, &datagram_refused, &datagram_refused_unconnected,
      &datagram_error_queue, &datagram_broadcast_forbidden, &datagram_any_hears_all, &datagram_to_itself,
      &datagram_shutdown, &datagram_peek_offset, &datagram_more_makes_one, &datagram_cork, &datagram_gathered_rules, &datagram_queue_full,
      &datagram_close_forgets, &datagram_bad_pointer, &datagram_oob, &datagram_connected_to_loopback);
