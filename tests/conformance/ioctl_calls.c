// ioctl_calls.c - cases of ioctl() of sockets.
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/time.h>

#include "tests/conformance/conformance.h"

CASE(ioctl_readable, "FIONREAD of streams: what is there") {
  int ends[2], there = -1;
  char bytes[20];
  streams(ends);
  CALL(ioctl(ends[0], FIONREAD, &there));
  say("%d", there);
  CALL(send(ends[1], "abcdef", 6, 0));
  await_bytes(ends[0], 6);
  CALL(ioctl(ends[0], FIONREAD, &there));
  say("%d", there);
  CALL(recv(ends[0], bytes, 2, 0));
  CALL(ioctl(ends[0], SIOCINQ, &there));
  say("%d", there);
  CALL(shutdown(ends[1], SHUT_WR));
  await(ends[0], POLLRDHUP);
  CALL(ioctl(ends[0], FIONREAD, &there));
  say("%d", there);
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(ioctl(ends[0], FIONREAD, &there));
  say("%d", there);
}

CASE(ioctl_readable_datagram, "FIONREAD of datagrams: the first one's length") {
  int ends[2], there = -1;
  char bytes[20];
  datagrams(ends);
  CALL(ioctl(ends[0], FIONREAD, &there));
  say("%d", there);
  CALL(send(ends[1], "abcdef", 6, 0));
  CALL(send(ends[1], "gh", 2, 0));
  await(ends[0], POLLIN);
  pause_ms(20);
  CALL(ioctl(ends[0], FIONREAD, &there));
  say("%d", there);
  CALL(recv(ends[0], bytes, 2, 0));
  CALL(ioctl(ends[0], FIONREAD, &there));
  say("%d", there);
}

CASE(ioctl_readable_states, "FIONREAD of sockets that are new, or listen") {
  int there = -1;
  CALL(ioctl(socket(family, SOCK_STREAM, 0), FIONREAD, &there));
  CALL(ioctl(listening(), FIONREAD, &there));
  CALL(ioctl(socket(family, SOCK_STREAM, 0), FIONREAD, NULL));
}

CASE(ioctl_unsent, "SIOCOUTQ: nothing, and nothing again once all is acknowledged") {
  int ends[2], left = -1;
  streams(ends);
  CALL(ioctl(ends[0], SIOCOUTQ, &left));
  say("%d", left);
  CALL(send(ends[0], "abcdef", 6, 0));
  await_sent(ends[0]);
  CALL(ioctl(ends[0], SIOCOUTQ, &left));
  say("%d", left);
  send_until_full(ends[0]);
  CALL(ioctl(ends[0], SIOCOUTQ, &left));
  say("some: %d", left > 0);
  CALL(ioctl(ends[0], SIOCOUTQNSD, &left));
  say("some not sent: %d", left > 0);
  CALL(ioctl(listening(), SIOCOUTQ, &left));
}

CASE(ioctl_nonblocking, "FIONBIO, and that fcntl() sees it") {
  int on = 1, off = 0;
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  CALL(ioctl(s, FIONBIO, &on));
  CALL((fcntl(s, F_GETFL) & O_NONBLOCK) != 0);
  CALL(ioctl(s, FIONBIO, &off));
  CALL((fcntl(s, F_GETFL) & O_NONBLOCK) != 0);
  CALL(ioctl(s, FIONBIO, NULL));
}

CASE(ioctl_cloexec, "FIOCLEX and FIONCLEX") {
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(ioctl(s, FIOCLEX));
  CALL(fcntl(s, F_GETFD));
  CALL(ioctl(s, FIONCLEX));
  CALL(fcntl(s, F_GETFD));
}

CASE(ioctl_async, "FIOASYNC, FIOSETOWN, SIOCSPGRP") {
  int on = 1, own = getpid(), is = 0;
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(ioctl(s, FIOSETOWN, &own));
  CALL(ioctl(s, FIOGETOWN, &is));
  say("own: %d", is == own);
  CALL(ioctl(s, SIOCGPGRP, &is));
  CALL(ioctl(s, FIOASYNC, &on));
  CALL((fcntl(s, F_GETFL) & O_ASYNC) != 0);
}

CASE(ioctl_at_mark, "SIOCATMARK without urgent data, and of datagrams") {
  int ends[2], mark = -1;
  streams(ends);
  CALL(ioctl(ends[0], SIOCATMARK, &mark));
  say("%d", mark);
  say("sockatmark: %d", sockatmark(ends[0]));
  CALL(ioctl(bound(SOCK_DGRAM), SIOCATMARK, &mark));
}

CASE(ioctl_terminal, "what is asked of terminals: ENOTTY") {
  char room[100];
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  CALL(ioctl(s, TCGETS, room));
  CALL(ioctl(s, TIOCGWINSZ, room));
  CALL(ioctl(s, 0x12345678, room));
}

CASE(ioctl_interfaces, "what is asked of interfaces is answered by the kernel") {
  struct ifreq request;
  memset(&request, 0, sizeof request);
  const int s = OPEN(socket(family, SOCK_DGRAM, 0));
  strcpy(request.ifr_name, "lo");
  CALL(ioctl(s, SIOCGIFINDEX, &request));
  CALL(ioctl(s, SIOCGIFFLAGS, &request));
  say("up: %d", (request.ifr_flags & IFF_UP) != 0);
  strcpy(request.ifr_name, "none");
  CALL(ioctl(s, SIOCGIFINDEX, &request));
  say("lo: %d", if_nametoindex("lo") != 0);
}

CASE(ioctl_timestamp, "SIOCGSTAMP of a socket that has received nothing, and something") {
  int ends[2];
  char bytes[20];
  struct timespec when;
  datagrams(ends);
  CALL(ioctl(ends[0], SIOCGSTAMPNS, &when));
  CALL(send(ends[1], "abc", 3, 0));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  CALL(ioctl(ends[0], SIOCGSTAMPNS, &when));
}

CASE(ioctl_timestamp_none, "SIOCGSTAMP of a socket that has received nothing, and what it is of one that has") {
  int ends[2];
  struct timeval when = {0, 0}, now;
  struct timespec exact = {0, 0};
  const int s = bound(SOCK_DGRAM);
  CALL(ioctl(s, SIOCGSTAMP, &when));
  CALL(ioctl(s, SIOCGSTAMPNS, &exact));
  streams(ends);
  CALL(ioctl(ends[0], SIOCGSTAMP, &when));
  datagrams(ends);
  gettimeofday(&now, NULL);
  CALL(ioctl(ends[0], SIOCGSTAMP, &when));
  CALL(ioctl(ends[0], SIOCGSTAMPNS, &exact));
  say("of this minute: %d %d", labs(when.tv_sec - now.tv_sec) < 60, labs(exact.tv_sec - now.tv_sec) < 60);
}

THEME(ioctl_calls, &ioctl_readable, &ioctl_readable_datagram, &ioctl_readable_states, &ioctl_unsent,
      &ioctl_nonblocking, &ioctl_cloexec, &ioctl_async, &ioctl_at_mark, &ioctl_terminal, &ioctl_interfaces,
      &ioctl_timestamp, &ioctl_timestamp_none);
