// options.c - cases of SOL_SOCKET's options: defaults, values after setsockopt(), and wrong lengths and levels.
#include <netinet/udp.h>

#include "tests/conformance/conformance.h"

// For options with a bound that the machine sets: prints only that the value is at least `least`.
static void say_at_least(const char* what, int s, int option, int least) {
  int value = 0;
  socklen_t length = sizeof value;
  getsockopt(s, SOL_SOCKET, option, &value, &length);
  say("%s: at least %d: %d", what, least, value >= least);
}

CASE(option_switches, "options that are on or off") {
  OF_ALL {
    OPTION(s, SOL_SOCKET, SO_REUSEADDR);
    SET_AND_GET(s, SOL_SOCKET, SO_REUSEADDR, 1);
    SET_AND_GET(s, SOL_SOCKET, SO_REUSEADDR, 0);
    SET_AND_GET(s, SOL_SOCKET, SO_REUSEADDR, 77);
    OPTION(s, SOL_SOCKET, SO_REUSEPORT);
    SET_AND_GET(s, SOL_SOCKET, SO_REUSEPORT, 5);
    OPTION(s, SOL_SOCKET, SO_KEEPALIVE);
    SET_AND_GET(s, SOL_SOCKET, SO_KEEPALIVE, 5);
    SET_AND_GET(s, SOL_SOCKET, SO_KEEPALIVE, 0);
    OPTION(s, SOL_SOCKET, SO_BROADCAST);
    SET_AND_GET(s, SOL_SOCKET, SO_BROADCAST, -1);
    OPTION(s, SOL_SOCKET, SO_OOBINLINE);
    SET_AND_GET(s, SOL_SOCKET, SO_OOBINLINE, 1);
    OPTION(s, SOL_SOCKET, SO_DONTROUTE);
    SET_AND_GET(s, SOL_SOCKET, SO_DONTROUTE, 1);
  }
}

CASE(option_read_only, "options that are only told") {
  OF_ALL {
    SET(s, SOL_SOCKET, SO_TYPE, 1);
    SET(s, SOL_SOCKET, SO_PROTOCOL, 1);
    SET(s, SOL_SOCKET, SO_DOMAIN, 1);
    SET(s, SOL_SOCKET, SO_ERROR, 1);
    SET(s, SOL_SOCKET, SO_ACCEPTCONN, 1);
    SET(s, SOL_SOCKET, SO_SNDLOWAT, 5);
    OPTION(s, SOL_SOCKET, SO_SNDLOWAT);
  }
}

CASE(option_buffers, "SO_RCVBUF and SO_SNDBUF: doubled, and their bounds") {
  OF_ALL {
    SET_AND_GET(s, SOL_SOCKET, SO_RCVBUF, 10000);
    SET_AND_GET(s, SOL_SOCKET, SO_SNDBUF, 10000);
    SET_AND_GET(s, SOL_SOCKET, SO_RCVBUF, 0);
    SET_AND_GET(s, SOL_SOCKET, SO_SNDBUF, 0);
    SET(s, SOL_SOCKET, SO_RCVBUF, -1);
    say_at_least("receive", s, SO_RCVBUF, 200000);
    SET(s, SOL_SOCKET, SO_SNDBUF, -1);
    say_at_least("send", s, SO_SNDBUF, 200000);
    SET(s, SOL_SOCKET, SO_RCVBUF, 0x7fffffff);
    say_at_least("receive", s, SO_RCVBUF, 200000);
    SET(s, SOL_SOCKET, SO_SNDBUF, 0x7fffffff);
    say_at_least("send", s, SO_SNDBUF, 200000);
    SET_AND_GET(s, SOL_SOCKET, SO_RCVBUF, 100000);
    SET_AND_GET(s, SOL_SOCKET, SO_SNDBUF, 100000);
  }
}

CASE(option_buffers_at_first, "SO_RCVBUF and SO_SNDBUF of new sockets are some") {
  OF_ALL {
    say_at_least("receive", s, SO_RCVBUF, 65536);
    say_at_least("send", s, SO_SNDBUF, 16384);
  }
}

CASE(option_buffers_forced, "SO_RCVBUFFORCE and SO_SNDBUFFORCE, as root") {
  OF_ALL {
    SET(s, SOL_SOCKET, SO_RCVBUFFORCE, 2000000);
    OPTION(s, SOL_SOCKET, SO_RCVBUF);
    SET(s, SOL_SOCKET, SO_SNDBUFFORCE, 2000000);
    OPTION(s, SOL_SOCKET, SO_SNDBUF);
  }
}

CASE(option_linger, "SO_LINGER, and of wrong lengths") {
  OF_ALL {
    struct linger is = {9, 9}, on = {1, 7}, off = {0, 7}, negative = {1, -1};
    socklen_t length = sizeof is;
    CALL(getsockopt(s, SOL_SOCKET, SO_LINGER, &is, &length));
    say("%d %d, length %u", is.l_onoff, is.l_linger, length);
    CALL(setsockopt(s, SOL_SOCKET, SO_LINGER, &on, sizeof on));
    CALL(getsockopt(s, SOL_SOCKET, SO_LINGER, &is, &length));
    say("%d %d", is.l_onoff, is.l_linger);
    CALL(setsockopt(s, SOL_SOCKET, SO_LINGER, &off, sizeof off));
    CALL(getsockopt(s, SOL_SOCKET, SO_LINGER, &is, &length));
    say("%d %d", is.l_onoff, is.l_linger);
    CALL(setsockopt(s, SOL_SOCKET, SO_LINGER, &negative, sizeof negative));
    CALL(setsockopt(s, SOL_SOCKET, SO_LINGER, &on, 4));
    CALL(setsockopt(s, SOL_SOCKET, SO_LINGER, &on, 1000));
    length = 4;
    CALL(getsockopt(s, SOL_SOCKET, SO_LINGER, &is, &length));
    say("length %u", length);
  }
}

CASE(option_low_water, "SO_RCVLOWAT") {
  OF_ALL {
    OPTION(s, SOL_SOCKET, SO_RCVLOWAT);
    SET_AND_GET(s, SOL_SOCKET, SO_RCVLOWAT, 100);
    SET_AND_GET(s, SOL_SOCKET, SO_RCVLOWAT, 0);
    SET(s, SOL_SOCKET, SO_RCVLOWAT, -1);
    say_at_least("low water", s, SO_RCVLOWAT, 100000);
  }
}

CASE(option_priority_mark, "SO_PRIORITY and SO_MARK, as root") {
  OF_ALL {
    OPTION(s, SOL_SOCKET, SO_PRIORITY);
    SET_AND_GET(s, SOL_SOCKET, SO_PRIORITY, 6);
    SET_AND_GET(s, SOL_SOCKET, SO_PRIORITY, 7);
    OPTION(s, SOL_SOCKET, SO_MARK);
    SET_AND_GET(s, SOL_SOCKET, SO_MARK, 33);
  }
}

CASE(option_device, "SO_BINDTODEVICE: none, one that there is not, and of new sockets lo") {
  OF_ALL {
    char name[20] = "unset";
    socklen_t length = sizeof name;
    CALL(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, &length));
    say("length %u", length);
    CALL(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "none-such", 9));
    CALL(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "", 0));
    CALL(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "", 1));
    if (i != NEW_STREAM && i != NEW_DATAGRAMS) continue;
    CALL(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
    length = sizeof name;
    CALL(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, &length));
    say("length %u %s", length, length > 0 ? name : "");
    length = 2;
    CALL(getsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, &length));
  }
}

CASE(option_polling, "SO_BUSY_POLL, SO_INCOMING_CPU, SO_INCOMING_NAPI_ID, SO_PREFER_BUSY_POLL, SO_BUSY_POLL_BUDGET") {
  OF_ALL {
    OPTION(s, SOL_SOCKET, SO_BUSY_POLL);
    SET_AND_GET(s, SOL_SOCKET, SO_BUSY_POLL, 50);
    SET_AND_GET(s, SOL_SOCKET, SO_BUSY_POLL, -1);
    if (i != CONNECTION && i != CONNECTED_DATAGRAMS) OPTION(s, SOL_SOCKET, SO_INCOMING_CPU);  // the CPU of the last packet
    SET_AND_GET(s, SOL_SOCKET, SO_INCOMING_CPU, 1);
    OPTION(s, SOL_SOCKET, SO_INCOMING_NAPI_ID);
    SET_AND_GET(s, SOL_SOCKET, SO_PREFER_BUSY_POLL, 1);
    SET_AND_GET(s, SOL_SOCKET, SO_BUSY_POLL_BUDGET, 8);
  }
}

CASE(option_others, "SO_NO_CHECK, SO_LOCK_FILTER, SO_MAX_PACING_RATE, SO_TXTIME, SO_COOKIE, SO_MEMINFO and the like") {
  OF_ALL {
    SET_AND_GET(s, SOL_SOCKET, SO_NO_CHECK, 1);
    OPTION(s, SOL_SOCKET, SO_MAX_PACING_RATE);
    SET_AND_GET(s, SOL_SOCKET, SO_MAX_PACING_RATE, 1000000);
    SET_AND_GET(s, SOL_SOCKET, SO_LOCK_FILTER, 0);
    SET_AND_GET(s, SOL_SOCKET, SO_PASSCRED, 1);
    SET_AND_GET(s, SOL_SOCKET, SO_RESERVE_MEM, 0);
    unsigned long long cookie = 0;
    socklen_t length = sizeof cookie;
    CALL(getsockopt(s, SOL_SOCKET, SO_COOKIE, &cookie, &length));
    say("some: %d, length %u", cookie != 0, length);
    int info[20];
    length = sizeof info;
    CALL(getsockopt(s, SOL_SOCKET, SO_MEMINFO, info, &length));
    CALL(setsockopt(s, SOL_SOCKET, SO_DETACH_FILTER, info, 4));
  }
}

CASE(option_off, "what few have, switched off") {
  OF_ALL {
    SET_AND_GET(s, SOL_SOCKET, SO_SELECT_ERR_QUEUE, 0);
    SET_AND_GET(s, SOL_SOCKET, SO_WIFI_STATUS, 0);
    SET_AND_GET(s, SOL_SOCKET, SO_RCVMARK, 0);
    SET_AND_GET(s, IPPROTO_IP, IP_MINTTL, 0);
    SET_AND_GET(s, IPPROTO_IP, IP_RECVOPTS, 0);
    SET_AND_GET(s, IPPROTO_IP, IP_RETOPTS, 0);
    SET_AND_GET(s, IPPROTO_IP, IP_RECVORIGDSTADDR, 0);
    SET_AND_GET(s, IPPROTO_IP, IP_CHECKSUM, 0);
    SET_AND_GET(s, IPPROTO_IP, IP_TRANSPARENT, 0);
    SET_AND_GET(s, IPPROTO_IPV6, IPV6_DONTFRAG, 0);
    SET_AND_GET(s, IPPROTO_TCP, TCP_SAVE_SYN, 0);
    SET_AND_GET(s, IPPROTO_UDP, UDP_NO_CHECK6_TX, 0);
  }
}

CASE(option_refused, "options that U-Net does not support, switched on") {
  OF_ALL {
    SET(s, SOL_SOCKET, SO_SELECT_ERR_QUEUE, 1);
    SET(s, SOL_SOCKET, SO_WIFI_STATUS, 1);
    SET(s, SOL_SOCKET, SO_RCVMARK, 1);
    CALL(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
    SET(s, IPPROTO_IP, IP_MINTTL, 5);
    SET(s, IPPROTO_IP, IP_RECVOPTS, 1);
    SET(s, IPPROTO_IP, IP_RETOPTS, 1);
    SET(s, IPPROTO_IP, IP_RECVORIGDSTADDR, 1);
    SET(s, IPPROTO_IP, IP_CHECKSUM, 1);
    SET(s, IPPROTO_IP, IP_TRANSPARENT, 1);
    SET(s, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
    SET(s, IPPROTO_TCP, TCP_SAVE_SYN, 1);
    SET(s, IPPROTO_UDP, UDP_NO_CHECK6_TX, 1);
  }
}

CASE(option_peer_credentials, "SO_PEERCRED, SO_PEERSEC, SO_PEERNAME of a stream of the network") {
  int ends[2];
  char room[200];
  socklen_t length = 12;
  streams(ends);
  CALL(getsockopt(ends[0], SOL_SOCKET, SO_PEERCRED, room, &length));
  say("length %u, pid %d", length, *(int*)room);
  length = sizeof room;
  CALL(getsockopt(ends[0], SOL_SOCKET, SO_PEERGROUPS, room, &length));
  length = sizeof room;
  CALL(getsockopt(ends[0], SOL_SOCKET, SO_PEERNAME, room, &length));
  say("length %u", length);
}

CASE(option_timestamps, "SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING") {
  OF_ALL {
    SET_AND_GET(s, SOL_SOCKET, SO_TIMESTAMP, 1);
    SET_AND_GET(s, SOL_SOCKET, SO_TIMESTAMPNS, 1);
    OPTION(s, SOL_SOCKET, SO_TIMESTAMP);
    SET_AND_GET(s, SOL_SOCKET, SO_TIMESTAMP, 0);
    OPTION(s, SOL_SOCKET, SO_TIMESTAMPNS);
    SET_AND_GET(s, SOL_SOCKET, SO_TIMESTAMPING, 0);
    SET_AND_GET(s, SOL_SOCKET, SO_TIMESTAMPING, 0x7fffffff);
  }
}

CASE(option_lengths, "lengths of getsockopt() and setsockopt() that are too small, too large, or negative") {
  OF_STREAMS {
    int value = 1;
    long long large = -1;
    CALL(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &value, 0));
    CALL(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &value, 1));
    CALL(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &value, 3));
    CALL(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &large, sizeof large));
    CALL(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &value, (socklen_t)-1));
    CALL(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, 1));
    CALL(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, 0));
    CALL(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, (socklen_t)-1));
    const socklen_t lengths[] = {0, 1, 2, 3, 5, 8, (socklen_t)-1};
    for (unsigned l = 0; l < sizeof lengths / sizeof *lengths; ++l) {
      socklen_t length = lengths[l];
      large = -1;
      CALL(getsockopt(s, SOL_SOCKET, SO_TYPE, &large, &length));
      say("length %d, value %llx", (int)length, large);
    }
    for (unsigned l = 0; l < sizeof lengths / sizeof *lengths; ++l) {
      socklen_t length = lengths[l];
      large = -1;
      CALL(getsockopt(s, IPPROTO_TCP, TCP_NODELAY, &large, &length));
      say("length %d, value %llx", (int)length, large);
    }
  }
}

CASE(option_bad_pointers, "values and lengths in memory that there is not") {
  OF_STREAMS {
    int value = 1;
    socklen_t length = sizeof value;
    CALL(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, NULL, 4));
    CALL(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, (void*)8, 4));
    CALL(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, NULL, 4));
    CALL(getsockopt(s, SOL_SOCKET, SO_TYPE, NULL, &length));
    CALL(getsockopt(s, SOL_SOCKET, SO_TYPE, &value, NULL));
    CALL(getsockopt(s, IPPROTO_TCP, TCP_NODELAY, (void*)8, &length));
  }
}

CASE(option_unknown, "levels and options that there are not, and those of another type") {
  OF_ALL {
    OPTION(s, SOL_SOCKET, 9999);
    SET(s, SOL_SOCKET, 9999, 1);
    OPTION(s, IPPROTO_TCP, 9999);
    SET(s, IPPROTO_TCP, 9999, 1);
    OPTION(s, IPPROTO_UDP, 9999);
    SET(s, IPPROTO_UDP, 9999, 1);
    OPTION(s, IPPROTO_IP, 9999);
    SET(s, IPPROTO_IP, 9999, 1);
    OPTION(s, 7777, 1);
    SET(s, 7777, 1, 1);
    OPTION(s, IPPROTO_TCP, TCP_NODELAY);
    SET(s, IPPROTO_TCP, TCP_NODELAY, 1);
    OPTION(s, IPPROTO_UDP, 1);
    SET(s, IPPROTO_UDP, 1, 1);
    OPTION(s, IPPROTO_RAW, 1);
  }
}

CASE(option_of_ended, "options of a connection that has ended, or was reset") {
  int ends[2];
  streams(ends);
  CALL(shutdown(ends[0], SHUT_RDWR));
  SET_AND_GET(ends[0], SOL_SOCKET, SO_KEEPALIVE, 1);
  SET_AND_GET(ends[0], IPPROTO_TCP, TCP_NODELAY, 1);
  reset(ends[0]);
  await(ends[1], POLLERR);
  SET_AND_GET(ends[1], SOL_SOCKET, SO_KEEPALIVE, 1);
  SET_AND_GET(ends[1], IPPROTO_TCP, TCP_NODELAY, 1);
  OPTION(ends[1], SOL_SOCKET, SO_TYPE);
}

THEME(options, &option_switches, &option_read_only, &option_buffers, &option_buffers_at_first, &option_buffers_forced,
      &option_linger, &option_low_water, &option_priority_mark, &option_device, &option_polling, &option_others, &option_off,
      &option_refused, &option_peer_credentials, &option_timestamps, &option_lengths, &option_bad_pointers, &option_unknown,
      &option_of_ended);
