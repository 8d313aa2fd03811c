// options_tcp.c - cases of TCP's options.
#include "tests/conformance/conformance.h"

CASE(tcp_switches, "TCP_NODELAY, TCP_CORK, TCP_QUICKACK") {
  OF_STREAMS {
    OPTION(s, IPPROTO_TCP, TCP_NODELAY);
    SET_AND_GET(s, IPPROTO_TCP, TCP_NODELAY, 1);
    SET_AND_GET(s, IPPROTO_TCP, TCP_NODELAY, 5);
    SET_AND_GET(s, IPPROTO_TCP, TCP_NODELAY, 0);
    OPTION(s, IPPROTO_TCP, TCP_CORK);
    SET_AND_GET(s, IPPROTO_TCP, TCP_CORK, 1);
    SET_AND_GET(s, IPPROTO_TCP, TCP_CORK, 0);
    SET(s, IPPROTO_TCP, TCP_QUICKACK, 0);
    SET_AND_GET(s, IPPROTO_TCP, TCP_QUICKACK, 1);
  }
}

CASE(tcp_cork, "TCP_CORK: what is held back comes with the uncorking, all of it") {
  int ends[2];
  char bytes[20];
  streams(ends);
  SET(ends[0], IPPROTO_TCP, TCP_CORK, 1);
  CALL(send(ends[0], "abc", 3, 0));
  CALL(send(ends[0], "def", 3, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
  SET(ends[0], IPPROTO_TCP, TCP_CORK, 0);
  say_bytes("both", bytes, CALL(recv(ends[1], bytes, 6, MSG_WAITALL)));
}

CASE(tcp_keep_alive, "TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT and their bounds") {
  OF_STREAMS {
    OPTION(s, IPPROTO_TCP, TCP_KEEPIDLE);
    OPTION(s, IPPROTO_TCP, TCP_KEEPINTVL);
    OPTION(s, IPPROTO_TCP, TCP_KEEPCNT);
    SET_AND_GET(s, IPPROTO_TCP, TCP_KEEPIDLE, 60);
    SET_AND_GET(s, IPPROTO_TCP, TCP_KEEPINTVL, 10);
    SET_AND_GET(s, IPPROTO_TCP, TCP_KEEPCNT, 3);
    SET_AND_GET(s, IPPROTO_TCP, TCP_KEEPIDLE, 0);
    SET_AND_GET(s, IPPROTO_TCP, TCP_KEEPINTVL, 0);
    SET_AND_GET(s, IPPROTO_TCP, TCP_KEEPCNT, 0);
    SET_AND_GET(s, IPPROTO_TCP, TCP_KEEPIDLE, 32768);
    SET_AND_GET(s, IPPROTO_TCP, TCP_KEEPINTVL, 32768);
    SET_AND_GET(s, IPPROTO_TCP, TCP_KEEPCNT, 128);
  }
}

CASE(tcp_times, "TCP_USER_TIMEOUT, TCP_LINGER2, TCP_SYNCNT, TCP_DEFER_ACCEPT and their bounds") {
  OF_STREAMS {
    OPTION(s, IPPROTO_TCP, TCP_USER_TIMEOUT);
    SET_AND_GET(s, IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
    SET_AND_GET(s, IPPROTO_TCP, TCP_USER_TIMEOUT, -1);
    OPTION(s, IPPROTO_TCP, TCP_LINGER2);
    SET_AND_GET(s, IPPROTO_TCP, TCP_LINGER2, 5);
    SET_AND_GET(s, IPPROTO_TCP, TCP_LINGER2, -1);
    SET_AND_GET(s, IPPROTO_TCP, TCP_LINGER2, 1000);
    OPTION(s, IPPROTO_TCP, TCP_SYNCNT);
    SET_AND_GET(s, IPPROTO_TCP, TCP_SYNCNT, 3);
    SET_AND_GET(s, IPPROTO_TCP, TCP_SYNCNT, 0);
    SET_AND_GET(s, IPPROTO_TCP, TCP_SYNCNT, 128);
    OPTION(s, IPPROTO_TCP, TCP_DEFER_ACCEPT);
    SET_AND_GET(s, IPPROTO_TCP, TCP_DEFER_ACCEPT, 1);
    SET_AND_GET(s, IPPROTO_TCP, TCP_DEFER_ACCEPT, 5);
    SET_AND_GET(s, IPPROTO_TCP, TCP_DEFER_ACCEPT, 0);
  }
}

CASE(tcp_segment, "TCP_MAXSEG of a socket that is not connected, and its bounds") {
  OF_SUBJECTS(NEW_STREAM, LISTENER) {
    OPTION(s, IPPROTO_TCP, TCP_MAXSEG);
    SET_AND_GET(s, IPPROTO_TCP, TCP_MAXSEG, 1000);
    SET_AND_GET(s, IPPROTO_TCP, TCP_MAXSEG, 10);
    SET_AND_GET(s, IPPROTO_TCP, TCP_MAXSEG, 100000);
    SET_AND_GET(s, IPPROTO_TCP, TCP_MAXSEG, 0);
  }
}

CASE(tcp_segment_connected, "TCP_MAXSEG before connect() bounds the connection's") {
  union Address to;
  const int listener = listening();
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  SET(s, IPPROTO_TCP, TCP_MAXSEG, 700);
  const socklen_t length = address_of(listener, &to);
  CALL(connect(s, &to.any, length));
  int value = 0;
  socklen_t size = sizeof value;
  CALL(getsockopt(s, IPPROTO_TCP, TCP_MAXSEG, &value, &size));
  say("at most 700: %d", value > 0 && value <= 700);
}

CASE(tcp_window_clamp, "TCP_WINDOW_CLAMP, TCP_NOTSENT_LOWAT") {
  OF_STREAMS {
    SET_AND_GET(s, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384);
    SET_AND_GET(s, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0);
    SET_AND_GET(s, IPPROTO_TCP, TCP_NOTSENT_LOWAT, -1);
    if (i <= BOUND_STREAM) SET_AND_GET(s, IPPROTO_TCP, TCP_WINDOW_CLAMP, 0);
    SET_AND_GET(s, IPPROTO_TCP, TCP_WINDOW_CLAMP, 65536);
  }
}

CASE(tcp_congestion, "TCP_CONGESTION: which, and one that there is not") {
  OF_STREAMS {
    char name[20] = "";
    socklen_t length = sizeof name;
    CALL(getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, &length));
    say("length %u", length);
    CALL(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "no-such", 7));
    CALL(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "", 0));
    CALL(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
    memset(name, 0, sizeof name);
    length = sizeof name;
    CALL(getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, &length));
    say("%s, length %u", name, length);
    CALL(setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5));
    length = 3;
    memset(name, 0, sizeof name);
    CALL(getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, &length));
    say("%s, length %u", name, length);
  }
}

CASE(tcp_fast_open_options, "TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE") {
  OF_STREAMS {
    OPTION(s, IPPROTO_TCP, TCP_FASTOPEN);
    SET_AND_GET(s, IPPROTO_TCP, TCP_FASTOPEN, 5);
    SET_AND_GET(s, IPPROTO_TCP, TCP_FASTOPEN, -1);
    OPTION(s, IPPROTO_TCP, TCP_FASTOPEN_CONNECT);
    SET_AND_GET(s, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1);
    SET_AND_GET(s, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 2);
    if (i != CONNECTION) SET_AND_GET(s, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 1);
    const int listener = listening();
    SET_AND_GET(listener, IPPROTO_TCP, TCP_FASTOPEN, 7);
    SET(listener, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1);
  }
}

CASE(tcp_fast_open_send, "sendto() with MSG_FASTOPEN connects and sends") {
  union Address to;
  char bytes[20];
  const int listener = listening();
  SET(listener, IPPROTO_TCP, TCP_FASTOPEN, 5);
  const socklen_t length = address_of(listener, &to);
  for (int i = 0; i < 2; ++i) {
    const int s = OPEN(socket(family, SOCK_STREAM, 0));
    CALL(sendto(s, "abc", 3, MSG_FASTOPEN, &to.any, length));
    say_names("client", s);
    const int server = accepted(listener);
    say_bytes("server", bytes, CALL(recv(server, bytes, sizeof bytes, 0)));
    CALL(sendto(s, "def", 3, MSG_FASTOPEN, &to.any, length));
  }
}

CASE(tcp_fast_open_connect, "TCP_FASTOPEN_CONNECT: connect(), then write()") {
  union Address to;
  char bytes[20];
  const int listener = listening();
  SET(listener, IPPROTO_TCP, TCP_FASTOPEN, 5);
  const socklen_t length = address_of(listener, &to);
  const int s = OPEN(socket(family, SOCK_STREAM, 0));
  SET(s, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1);
  CALL(connect(s, &to.any, length));
  CALL(write(s, "abc", 3));
  const int server = accepted(listener);
  say_bytes("server", bytes, CALL(recv(server, bytes, sizeof bytes, 0)));
}

CASE(tcp_info, "TCP_INFO: states and counters of a connection at rest") {
  int ends[2];
  struct tcp_info info;
  socklen_t length = sizeof info;
  streams(ends);
  CALL(send(ends[0], "abc", 3, 0));
  await_sent(ends[0]);
  memset(&info, 0x55, sizeof info);
  CALL(getsockopt(ends[0], IPPROTO_TCP, TCP_INFO, &info, &length));
  say("length %u", length);
  say("state %d, ca_state %d, retransmits %d, probes %d, backoff %d", info.tcpi_state, info.tcpi_ca_state, info.tcpi_retransmits,
      info.tcpi_probes, info.tcpi_backoff);
  say("timestamps %d, SACK %d, window scale %d", (info.tcpi_options & TCPI_OPT_TIMESTAMPS) != 0, (info.tcpi_options & TCPI_OPT_SACK) != 0,
      (info.tcpi_options & TCPI_OPT_WSCALE) != 0);
  say("unacked %u, sacked %u, lost %u, retrans %u, total_retrans %u", info.tcpi_unacked, info.tcpi_sacked, info.tcpi_lost,
      info.tcpi_retrans, info.tcpi_total_retrans);
  say("some rtt %d, rto %d, cwnd %d, mss %d", info.tcpi_rtt > 0, info.tcpi_rto > 0, info.tcpi_snd_cwnd > 0, info.tcpi_snd_mss > 0);
  length = 8;
  CALL(getsockopt(ends[0], IPPROTO_TCP, TCP_INFO, &info, &length));
  say("length %u", length);
  length = 4;
  CALL(setsockopt(ends[0], IPPROTO_TCP, TCP_INFO, &info, length));
}

// Waits until `waiting` connections are queued: the ACK of a handshake may arrive after connect() has returned.
static void say_waiting(int listener, unsigned waiting) {
  struct tcp_info info;
  socklen_t length = sizeof info;
  for (int ms = 0; ms < 5000; ++ms) {
    MUST(getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &length));
    if (info.tcpi_unacked >= waiting) break;
    pause_ms(1);
  }
  say("state %d, %u of %u, total_retrans %u, rtt %u", info.tcpi_state, info.tcpi_unacked, info.tcpi_sacked, info.tcpi_total_retrans,
      info.tcpi_rtt);
}

CASE(tcp_info_listener, "TCP_INFO of a listener: how many wait for accept(), and how many may") {
  const int listener = listening_of(5);
  say_waiting(listener, 0);
  connected(listener);
  say_waiting(listener, 1);
  connected(listener);
  say_waiting(listener, 2);
  accepted(listener);
  CALL(listen(listener, 7));
  say_waiting(listener, 1);
}

CASE(tcp_defer_accept, "TCP_DEFER_ACCEPT: accept() once data has come") {
  const int listener = listening();
  char bytes[20];
  SET(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, 5);
  const int client = connected(listener);
  pause_ms(50);
  say_ready("no data yet", listener);
  CALL(send(client, "abc", 3, 0));
  await(listener, POLLIN);
  const int server = OPEN(accept(listener, NULL, NULL));
  say_bytes("server", bytes, CALL(recv(server, bytes, sizeof bytes, 0)));
}

CASE(tcp_not_sent, "TCP_NOTSENT_LOWAT: not writable while more than this is not sent") {
  int ends[2];
  static char bytes[100000];
  streams(ends);
  SET(ends[0], IPPROTO_TCP, TCP_NOTSENT_LOWAT, 1);
  say_ready("new", ends[0]);
  send_until_full(ends[0]);
  say_ready("full", ends[0]);
  CALL(send(ends[0], bytes, 1, MSG_DONTWAIT));
}

CASE(tcp_repair_and_more, "TCP_REPAIR, TCP_MD5SIG, TCP_ULP, TCP_SAVE_SYN, TCP_INQ, TCP_TX_DELAY") {
  OF_STREAMS {
    char name[20] = "";
    socklen_t length = sizeof name;
    OPTION(s, IPPROTO_TCP, TCP_REPAIR);
    OPTION(s, IPPROTO_TCP, TCP_SAVE_SYN);
    SET_AND_GET(s, IPPROTO_TCP, TCP_INQ, 1);
    SET(s, IPPROTO_TCP, TCP_INQ, 2);
    CALL(getsockopt(s, IPPROTO_TCP, TCP_ULP, name, &length));
    say("length %u", length);
    CALL(setsockopt(s, IPPROTO_TCP, TCP_ULP, "no-such", 7));
    SET_AND_GET(s, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
    OPTION(s, IPPROTO_TCP, TCP_THIN_DUPACK);
  }
}

CASE(tcp_inq, "TCP_INQ: recvmsg() tells what is left") {
  int ends[2];
  char bytes[4], control[100];
  streams(ends);
  SET(ends[1], IPPROTO_TCP, TCP_INQ, 1);
  CALL(send(ends[0], "abcdefghij", 10, 0));
  await_bytes(ends[1], 10);
  struct iovec in = {bytes, sizeof bytes};
  struct msghdr got = {.msg_iov = &in, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  CALL(recvmsg(ends[1], &got, 0));
  struct cmsghdr* first = CMSG_FIRSTHDR(&got);
  if (first != NULL) say("level %d type %d: %d", first->cmsg_level, first->cmsg_type, *(int*)CMSG_DATA(first));
  CALL(shutdown(ends[0], SHUT_WR));
  for (int i = 0; i < 3; ++i) {
    pause_ms(20);
    got.msg_controllen = sizeof control;
    CALL(recvmsg(ends[1], &got, 0));
    if ((first = CMSG_FIRSTHDR(&got)) != NULL) say("left: %d", *(int*)CMSG_DATA(first));
  }
}

THEME(options_tcp, &tcp_switches, &tcp_cork, &tcp_keep_alive, &tcp_times, &tcp_segment, &tcp_segment_connected,
      &tcp_window_clamp, &tcp_congestion, &tcp_fast_open_options, &tcp_fast_open_send, &tcp_fast_open_connect,
      &tcp_info, &tcp_info_listener, &tcp_defer_accept, &tcp_not_sent, &tcp_repair_and_more, &tcp_inq);
