// vectors.c - cases of calls with several buffers or messages: readv, writev, sendmsg, recvmsg, sendmmsg, recvmmsg.
#include <limits.h>
#include <sys/mman.h>

#include "tests/conformance/conformance.h"

CASE(vector_stream, "writev() and readv() of a stream, also with empty buffers") {
  int ends[2];
  char one[3], two[4], three[20];
  streams(ends);
  const struct iovec out[] = {{"ab", 2}, {NULL, 0}, {"cde", 3}, {"", 0}, {"fghij", 5}};
  CALL(writev(ends[0], out, 5));
  await_bytes(ends[1], 10);
  const struct iovec in[] = {{one, 3}, {NULL, 0}, {two, 4}, {three, 20}};
  CALL(readv(ends[1], in, 4));
  say_bytes("one", one, 3);
  say_bytes("two", two, 4);
  say_bytes("three", three, 3);
}

CASE(vector_counts, "counts of buffers that are none") {
  int ends[2];
  char byte;
  static struct iovec many[IOV_MAX + 1];
  for (int i = 0; i <= IOV_MAX; ++i) many[i] = (struct iovec){"x", 1};
  streams(ends);
  CALL(writev(ends[0], many, 0));
  CALL(writev(ends[0], many, -1));
  CALL(writev(ends[0], many, IOV_MAX + 1));
  CALL(writev(ends[0], many, IOV_MAX));
  CALL(readv(ends[1], many, 0));
  CALL(readv(ends[1], many, -1));
  CALL(readv(ends[1], many, IOV_MAX + 1));
  struct msghdr message = {.msg_iov = many, .msg_iovlen = IOV_MAX + 1};
  CALL(sendmsg(ends[0], &message, 0));
  CALL(recvmsg(ends[1], &message, 0));
  message.msg_iovlen = 0;
  CALL(sendmsg(ends[0], &message, 0));
  CALL(recvmsg(ends[1], &message, MSG_DONTWAIT));
  struct iovec huge[] = {{&byte, 1}, {&byte, (size_t)-1}};
  CALL(writev(ends[0], huge, 2));
}

CASE(vector_bad_pointer, "buffers in memory that there is not") {
  int ends[2];
  char bytes[8];
  streams(ends);
  const struct iovec second_bad[] = {{"abc", 3}, {(void*)8, 3}};
  CALL(writev(ends[0], (struct iovec*)8, 2));
  CALL(sendmsg(ends[0], (struct msghdr*)8, 0));
  CALL(recvmsg(ends[0], NULL, MSG_DONTWAIT));
  const struct iovec first_bad[] = {{(void*)8, 3}, {bytes, 3}};
  CALL(writev(ends[0], first_bad, 2));
  CALL(send(ends[1], "abcdef", 6, 0));
  await_bytes(ends[0], 6);
  CALL(readv(ends[0], first_bad, 2));
  CALL(writev(ends[1], second_bad, 2) > 3);
}

CASE(vector_datagram, "writev() makes one datagram, readv() scatters one") {
  int ends[2];
  char one[3], two[4];
  datagrams(ends);
  const struct iovec out[] = {{"ab", 2}, {"cde", 3}};
  CALL(writev(ends[0], out, 2));
  CALL(writev(ends[0], out, 1));
  const struct iovec in[] = {{one, 3}, {two, 4}};
  CALL(readv(ends[1], in, 2));
  say_bytes("one", one, 3);
  say_bytes("two", two, 2);
  CALL(readv(ends[1], in, 2));
}

CASE(vector_preadv2, "preadv2() and pwritev2() at offset -1, and elsewhere") {
  int ends[2];
  char bytes[8];
  streams(ends);
  const struct iovec out = {"abc", 3}, in = {bytes, 8};
  CALL(pwritev2(ends[0], &out, 1, -1, 0));
  await_bytes(ends[1], 3);
  CALL(preadv2(ends[1], &in, 1, -1, 0));
  CALL(preadv2(ends[1], &in, 1, -1, RWF_NOWAIT));
  CALL(preadv(ends[1], &in, 1, 0));
  CALL(pwritev(ends[0], &out, 1, 0));
}

CASE(message_stream, "sendmsg() and recvmsg() of a stream: what becomes of the fields") {
  int ends[2];
  char one[2], two[20], control[100];
  union Address name;
  streams(ends);
  struct iovec out[] = {{"ab", 2}, {"cde", 3}};
  struct msghdr sent = {.msg_iov = out, .msg_iovlen = 2};
  CALL(sendmsg(ends[0], &sent, 0));
  await_bytes(ends[1], 5);
  struct iovec in[] = {{one, 2}, {two, 20}};
  struct msghdr got = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = in, .msg_iovlen = 2, .msg_control = control,
                       .msg_controllen = sizeof control, .msg_flags = 0x7fff};
  CALL(recvmsg(ends[1], &got, 0));
  say("namelen %u, controllen %zu, flags %x, iovlen %zu, second length %zu", got.msg_namelen, got.msg_controllen, (unsigned)got.msg_flags,
      got.msg_iovlen, in[1].iov_len);
}

CASE(message_datagram, "sendmsg() with a name, recvmsg() with room for one, and with less") {
  union Address to, from;
  char bytes[20];
  const int one = bound(SOCK_DGRAM), two = bound(SOCK_DGRAM);
  struct iovec out = {"abc", 3}, in = {bytes, sizeof bytes};
  const socklen_t length = address_of(two, &to);
  struct msghdr sent = {.msg_name = &to, .msg_namelen = length, .msg_iov = &out, .msg_iovlen = 1};
  CALL(sendmsg(one, &sent, 0));
  CALL(sendmsg(one, &sent, 0));
  CALL(sendmsg(one, &sent, 0));
  struct msghdr got = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &in, .msg_iovlen = 1};
  CALL(recvmsg(two, &got, 0));
  say_address("from", &from, got.msg_namelen);
  say("flags %x", (unsigned)got.msg_flags);
  got.msg_namelen = 3;
  CALL(recvmsg(two, &got, 0));
  say("namelen %u", got.msg_namelen);
  got.msg_name = NULL;
  got.msg_namelen = 77;
  CALL(recvmsg(two, &got, 0));
  say("namelen %u", got.msg_namelen);
}

CASE(message_peek_trunc, "recvmsg() with MSG_PEEK and MSG_TRUNC tells both") {
  int ends[2];
  char bytes[4];
  datagrams(ends);
  CALL(send(ends[0], "abcdefgh", 8, 0));
  struct iovec in = {bytes, sizeof bytes};
  struct msghdr got = {.msg_iov = &in, .msg_iovlen = 1};
  CALL(recvmsg(ends[1], &got, MSG_PEEK));
  say("flags %x", (unsigned)got.msg_flags);
  CALL(recvmsg(ends[1], &got, MSG_TRUNC));
  say("flags %x", (unsigned)got.msg_flags);
}

CASE(message_wrong_name, "sendmsg() with names of wrong lengths") {
  union Address to;
  struct iovec out = {"abc", 3};
  const int s = bound(SOCK_DGRAM);
  const socklen_t length = address_of(s, &to);
  struct msghdr sent = {.msg_name = &to, .msg_namelen = 3, .msg_iov = &out, .msg_iovlen = 1};
  CALL(sendmsg(s, &sent, 0));
  sent.msg_namelen = 1000;
  CALL(sendmsg(s, &sent, 0));
  sent.msg_namelen = (socklen_t)-1;
  CALL(sendmsg(s, &sent, 0));
  sent.msg_name = NULL;
  sent.msg_namelen = length;
  CALL(sendmsg(s, &sent, 0));
}

CASE(message_wrong_control, "sendmsg() with invalid ancillary data") {
  int ends[2];
  char control[100];
  struct iovec out = {"abc", 3};
  datagrams(ends);
  struct msghdr sent = {.msg_iov = &out, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(4)};
  struct cmsghdr* first = CMSG_FIRSTHDR(&sent);
  memset(control, 0, sizeof control);
  first->cmsg_level = IPPROTO_IP;
  first->cmsg_type = 250;
  first->cmsg_len = CMSG_LEN(4);
  CALL(sendmsg(ends[0], &sent, 0));
  first->cmsg_level = 250;
  CALL(sendmsg(ends[0], &sent, 0));
  first->cmsg_level = SOL_SOCKET;
  CALL(sendmsg(ends[0], &sent, 0));
  first->cmsg_len = 1;
  CALL(sendmsg(ends[0], &sent, 0));
  first->cmsg_len = 1000;
  CALL(sendmsg(ends[0], &sent, 0));
  sent.msg_control = (void*)8;
  CALL(sendmsg(ends[0], &sent, 0));
  sent.msg_controllen = 0;
  CALL(sendmsg(ends[0], &sent, 0));
}

CASE(message_rights_refused, "SCM_RIGHTS over a stream of the network") {
  int ends[2];
  char control[CMSG_SPACE(sizeof(int))];
  struct iovec out = {"abc", 3};
  streams(ends);
  struct msghdr sent = {.msg_iov = &out, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr* first = CMSG_FIRSTHDR(&sent);
  first->cmsg_level = SOL_SOCKET;
  first->cmsg_type = SCM_RIGHTS;
  first->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(first), &ends[0], sizeof(int));
  CALL(sendmsg(ends[0], &sent, 0));
}

CASE(many_datagrams, "sendmmsg() and recvmmsg()") {
  int ends[2];
  static char rooms[4][10];
  struct iovec out[] = {{"a", 1}, {"bb", 2}, {"ccc", 3}}, in[4];
  struct mmsghdr sent[3], got[4];
  datagrams(ends);
  memset(sent, 0, sizeof sent);
  memset(got, 0, sizeof got);
  for (int i = 0; i < 3; ++i) sent[i].msg_hdr = (struct msghdr){.msg_iov = &out[i], .msg_iovlen = 1};
  for (int i = 0; i < 4; ++i) {
    in[i] = (struct iovec){rooms[i], sizeof rooms[i]};
    got[i].msg_hdr = (struct msghdr){.msg_iov = &in[i], .msg_iovlen = 1};
  }
  CALL(sendmmsg(ends[0], sent, 3, 0));
  say("lengths %u %u %u", sent[0].msg_len, sent[1].msg_len, sent[2].msg_len);
  await(ends[1], POLLIN);
  pause_ms(30);
  CALL(recvmmsg(ends[1], got, 2, 0, NULL));
  CALL(recvmmsg(ends[1], got + 2, 2, MSG_WAITFORONE, NULL));
  for (int i = 0; i < 3; ++i) say_bytes("got", rooms[i], got[i].msg_len);
  CALL(recvmmsg(ends[1], got, 4, MSG_DONTWAIT, NULL));
}

CASE(many_of_none, "sendmmsg() and recvmmsg() with invalid counts and pointers") {
  int ends[2];
  struct mmsghdr none = {0};
  struct timespec wrong = {0, 2000000000};
  datagrams(ends);
  CALL(sendmmsg(ends[0], &none, 0, 0));
  CALL(recvmmsg(ends[0], &none, 0, MSG_DONTWAIT, NULL));
  CALL(sendmmsg(ends[0], (struct mmsghdr*)8, 1, 0));
  CALL(recvmmsg(ends[0], &none, 1, MSG_DONTWAIT, &wrong));
}

CASE(many_error_in_the_middle, "sendmmsg() with an invalid second message sends the first") {
  int ends[2];
  static char huge[70000];
  char bytes[10];
  struct iovec out[] = {{"a", 1}, {huge, sizeof huge}, {"c", 1}};
  struct mmsghdr sent[3];
  datagrams(ends);
  memset(sent, 0, sizeof sent);
  for (int i = 0; i < 3; ++i) sent[i].msg_hdr = (struct msghdr){.msg_iov = &out[i], .msg_iovlen = 1};
  CALL(sendmmsg(ends[0], sent, 3, 0));
  CALL(sendmmsg(ends[0], sent + 1, 2, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, 0));
  pause_ms(20);
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
}

CASE(many_on_a_stream, "sendmmsg() and recvmmsg() of a stream") {
  int ends[2];
  static char room[20];
  struct iovec out[] = {{"a", 1}, {"bb", 2}}, in = {room, sizeof room};
  struct mmsghdr sent[2], got = {0};
  streams(ends);
  memset(sent, 0, sizeof sent);
  for (int i = 0; i < 2; ++i) sent[i].msg_hdr = (struct msghdr){.msg_iov = &out[i], .msg_iovlen = 1};
  got.msg_hdr = (struct msghdr){.msg_iov = &in, .msg_iovlen = 1};
  CALL(sendmmsg(ends[0], sent, 2, 0));
  await_bytes(ends[1], 3);
  CALL(recvmmsg(ends[1], &got, 1, 0, NULL));
  say_bytes("got", room, got.msg_len);
}

static void* sends_in_parts(void* fd) {
  static char bytes[100008];
  memset(bytes, 'x', sizeof bytes);
  for (size_t at = 0; at < sizeof bytes; at += 8334) {
    send(*(int*)fd, bytes + at, 8334, 0);
    pause_ms(5);
  }
  return NULL;
}

CASE(message_wait_for_all, "MSG_WAITALL into several large pieces waits for all of them; readv() returns the available bytes") {
  static char bytes[100008];
  int ends[2], others = 0;
  struct iovec in[] = {{bytes, 8}, {NULL, 0}, {bytes + 8, 70000}, {bytes + 70008, 30000}};
  struct msghdr message = {.msg_iov = in, .msg_iovlen = 4};
  streams(ends);
  const pthread_t sender = start(sends_in_parts, &ends[1]);
  CALL(recvmsg(ends[0], &message, MSG_WAITALL));
  joined(sender);
  for (size_t i = 0; i < sizeof bytes; ++i) others += bytes[i] != 'x';
  say("others: %d", others);
  CALL(send(ends[1], bytes, 80000, 0));
  await_bytes(ends[0], 80000);
  CALL(readv(ends[0], in, 4));
  CALL(send(ends[1], bytes, 80000, 0));
  CALL(shutdown(ends[1], SHUT_WR));
  CALL(recvmsg(ends[0], &message, MSG_WAITALL));
  CALL(recvmsg(ends[0], &message, MSG_WAITALL));
}

static void* discards(void* fd) {
  static char bytes[1 << 20];
  while (recv(*(int*)fd, bytes, sizeof bytes, 0) > 0) continue;
  return NULL;
}

CASE(vector_two_gibibytes, "one call sends less than 2 GiB, however much it is given") {
  enum { PIECES = 33, LENGTH = 64 << 20 };
  struct iovec pieces[PIECES];
  int ends[2];
  if (family != AF_INET) {
    say("skipped: once is enough");
    return;
  }
  void* const zeroes = mmap(NULL, LENGTH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (int i = 0; i < PIECES; ++i) pieces[i] = (struct iovec){zeroes, LENGTH};
  streams(ends);
  const pthread_t reader = start(discards, &ends[1]);
  CALL(writev(ends[0], pieces, PIECES));
  shutdown(ends[0], SHUT_WR);
  joined(reader);
}

THEME(vectors, &vector_stream, &vector_counts, &vector_bad_pointer, &vector_datagram, &vector_preadv2, &message_stream,
      &message_datagram, &message_peek_trunc, &message_wait_for_all, &message_wrong_name, &message_wrong_control, &message_rights_refused,
      &many_datagrams, &many_of_none, &many_error_in_the_middle, &many_on_a_stream, &vector_two_gibibytes);
