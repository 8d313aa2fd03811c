// sockets_stress_load.c - the client: a number of connections at a time, of mixed sizes. Chance decides how each ends: complete, reset or
// closed by one side, refused, or given up before an answer.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tests/system/sockets_stress.h"

enum Kind { kWhole, kReset, kLeft, kResetThere, kRefused, kNobody, kSlow };

struct Call {
  enum Kind kind;
  int fd;  // -1: no connection
  bool connected, writes, shut;
  struct Header header;
  uint64_t header_sent, sent, got, ends_at;  // ends_at: kReset and kLeft end after so many bytes of either direction
  uint64_t moved_us;
  unsigned turn;
};

static struct {
  uint64_t whole, cut, early, refused, wanted, bytes;  // cut: by an unplanned reset; early: by an unplanned end
} counts;

static const uint64_t kStuckUs = 60 * 1000 * 1000, kGivenUpUs = 30 * 1000, kSlowTickUs = 20 * 1000;
static const uint64_t kSlowPiece = 2048;

static int epoll = -1;
static uint64_t state;
static struct sockaddr_storage place, refusing, nobody;
static socklen_t place_length;
static bool slow, steady, has_nobody;  // steady: no connection may end early
static uint64_t seconds;

static uint64_t chance(uint64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % below;
}

static uint64_t size_by_chance(void) {
  const uint64_t kind = chance(10);
  return chance(kind < 6 ? 1024 : kind < 9 ? 64 * 1024 : 1024 * 1024);
}

static enum Kind kind_by_chance(void) {
  const uint64_t kind = chance(100);
  if (kind < 72) return kWhole;
  if (kind < 79) return kReset;
  if (kind < 86) return kLeft;
  if (kind < 92) return kResetThere;
  return kind < 96 || !has_nobody ? kRefused : kNobody;
}

static void end_call(struct Call* each, uint64_t* counter, bool resets) {
  ++*counter;
  counts.bytes += each->sent + each->got;
  if (resets) reset_and_close(each->fd);
  else close(each->fd);
  each->fd = -1;
}

// Ends with an error, or (NULL) before its server would have ended it.
static void is_cut(struct Call* each, const char* by) {
  uint64_t* const cut = by != NULL ? &counts.cut : &counts.early;
  if (steady) wrong("a steady connection ends by %s at %lu of %lu", by != NULL ? by : "itself", each->got, each->header.down);
  const bool expected = (each->kind == kResetThere && each->connected) || each->kind == kRefused || each->kind == kNobody;
  end_call(each, expected ? &counts.wanted : each->connected ? cut : &counts.refused, false);
}

static void choose(struct Call* each) {
  *each = (struct Call){.kind = slow ? kSlow : kind_by_chance(), .fd = -1, .writes = true, .moved_us = now_us()};
  each->header.number = (state << 20) ^ now_us();
  each->header.up = size_by_chance();
  each->header.down = slow ? seconds * (1000 * 1000 / kSlowTickUs) * kSlowPiece : 1 + size_by_chance();
  each->ends_at = chance(each->header.up + each->header.down + 1);
  if (each->kind == kResetThere) each->header.resets_after = 1 + chance(each->header.down);
}

// A slow connection reads only at its tick.
static struct epoll_event wanted_of(struct Call* each) {
  const uint32_t in = each->kind == kSlow ? EPOLLET : EPOLLIN;
  return (struct epoll_event){.events = in | (each->writes ? EPOLLOUT : 0), .data.ptr = each};
}

static void begin_call(struct Call* each) {
  choose(each);
  const struct sockaddr_storage* const to = each->kind == kRefused ? &refusing : each->kind == kNobody ? &nobody : &place;
  each->fd = socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (each->fd < 0) wrong("socket: %s", strerror(errno));
  ask_if_there(each->fd);
  struct epoll_event event = wanted_of(each);
  if (chance(2) == 0) {  // before the connection is established, or after
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, each->fd, &event) != 0) wrong("epoll_ctl: %s", strerror(errno));
    event.data.ptr = NULL;
  }
  const int result = connect(each->fd, (const struct sockaddr*)to, place_length);
  if (result != 0 && errno != EINPROGRESS) {
    is_cut(each, strerror(errno));
    return;
  }
  if (event.data.ptr != NULL && epoll_ctl(epoll, EPOLL_CTL_ADD, each->fd, &event) != 0) wrong("epoll_ctl: %s", strerror(errno));
}

static void want(struct Call* each, bool writes) {
  if (each->writes == writes) return;
  each->writes = writes;
  struct epoll_event event = wanted_of(each);
  if (epoll_ctl(epoll, EPOLL_CTL_MOD, each->fd, &event) != 0) wrong("epoll_ctl: %s", strerror(errno));
}

// False: the connection is over.
static bool connect_done(struct Call* each, uint32_t events) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(each->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) wrong("SO_ERROR: %s", strerror(errno));
  if (error != 0) {
    is_cut(each, strerror(error));
    return false;
  }
  if (each->kind == kRefused || each->kind == kNobody) {
    struct tcp_info info = {0};
    length = sizeof info;
    getsockopt(each->fd, IPPROTO_TCP, TCP_INFO, &info, &length);
    wrong("connected where nobody %s: events %x, state %u", each->kind == kNobody ? "is" : "listens", events, info.tcpi_state);
  }
  each->connected = true;
  return true;
}

static bool give(struct Call* each) {
  unsigned char piece[kPiece];
  const uint64_t whole = sizeof each->header + each->header.up;
  while (each->header_sent + each->sent < whole) {
    ssize_t went;
    if (each->header_sent < sizeof each->header) {
      went = give_some(each->fd, (char*)&each->header + each->header_sent, sizeof each->header - each->header_sent, each->turn++);
      if (went > 0) each->header_sent += (uint64_t)went;
    } else {
      const uint64_t left = each->header.up - each->sent;
      const size_t length = left < sizeof piece ? (size_t)left : sizeof piece;
      write_pattern(each->header.number, kUp, each->sent, piece, length);
      went = give_some(each->fd, piece, length, each->turn++);
      if (went > 0) each->sent += (uint64_t)went;
    }
    if (went < 0 && errno == EAGAIN) return want(each, true), true;
    if (went < 0) return is_cut(each, strerror(errno)), false;
    each->moved_us = now_us();
  }
  if (!each->shut) {
    each->shut = true;
    if (shutdown(each->fd, SHUT_WR) != 0) return is_cut(each, strerror(errno)), false;
  }
  return want(each, false), true;
}

static bool take(struct Call* each) {
  unsigned char piece[kPiece];
  for (int i = 0; i < 4; ++i) {
    const ssize_t got = take_some(each->fd, piece, each->kind == kSlow ? kSlowPiece : sizeof piece, each->turn++);
    if (got < 0 && errno == EAGAIN) return true;
    if (got < 0) return is_cut(each, strerror(errno)), false;
    if (got == 0) {
      if (each->got < each->header.down || !each->shut) return is_cut(each, NULL), false;
      return end_call(each, &counts.whole, false), false;
    }
    verify_pattern(each->header.number, kDown, each->got, piece, (size_t)got);
    each->got += (uint64_t)got;
    if (each->got > each->header.down) wrong("connection %016lx has more than %lu bytes", each->header.number, each->header.down);
    each->moved_us = now_us();
    if (each->kind == kSlow) return true;
  }
  return true;
}

static void handle(struct Call* each, uint32_t events) {
  if (!each->connected && ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0 || !connect_done(each, events))) return;
  if ((events & (EPOLLOUT | EPOLLERR)) != 0 && !give(each)) return;
  if (each->kind == kSlow && (events & EPOLLERR) == 0) return;
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0 && !take(each)) return;
  const bool ends = each->kind == kReset || each->kind == kLeft;
  if (ends && each->sent + each->got >= each->ends_at) end_call(each, &counts.wanted, each->kind == kReset);
}

// Does what is due at this time.
static void look(struct Call* each, uint64_t now) {
  if (each->fd < 0) return;
  if (each->kind == kNobody && now - each->moved_us > kGivenUpUs) {
    end_call(each, &counts.wanted, false);
    return;
  }
  if (each->kind == kSlow && each->connected && now - each->moved_us > kSlowTickUs) {
    take(each);
    return;
  }
  if (now - each->moved_us > kStuckUs) {
    wrong("connection %016lx of kind %d does not move: %s, %lu of %lu bytes up, %lu of %lu down, %s", each->header.number, (int)each->kind,
          each->connected ? "connected" : "not connected", each->sent, each->header.up, each->got, each->header.down,
          each->shut ? "ended" : "not ended");
  }
}

static void say(const char* what, int open) {
  printf("%s whole=%lu cut=%lu early=%lu refused=%lu wanted=%lu bytes=%lu open=%d\n", what, counts.whole, counts.cut, counts.early,
         counts.refused, counts.wanted, counts.bytes, open);
}

static void run(struct Call* calls, int most) {
  const uint64_t end = now_us() + seconds * 1000 * 1000;
  uint64_t said = now_us();
  for (int open = 1; open != 0 || now_us() < end;) {
    const uint64_t now = now_us();
    open = 0;
    for (int i = 0; i < most; ++i) {
      look(&calls[i], now);
      // New connections start gradually, and a refused one is not retried at once.
      if (calls[i].fd < 0 && now < end && chance(4) == 0) begin_call(&calls[i]);
      if (calls[i].fd >= 0) ++open;
    }
    if (now - said > 200 * 1000) {
      say("so far", open);
      said = now;
    }
    struct epoll_event events[64];
    const int ready = epoll_wait(epoll, events, 64, 5);
    if (ready < 0 && errno != EINTR) wrong("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < ready; ++i) {
      struct Call* const each = events[i].data.ptr;
      if (each->fd >= 0) handle(each, events[i].events);
    }
  }
}

int load(int argc, char** argv) {
  const char* const last = argc > 5 ? argv[5] : "";
  const int most = atoi(argv[3]);
  seconds = strtoull(argv[2], NULL, 10);
  steady = strcmp(last, "steady") == 0;
  slow = steady || strcmp(last, "slow") == 0;
  has_nobody = argc > 5 && !slow;
  place_length = read_place(argv[0], atoi(argv[1]), &place);
  read_place(argv[0], atoi(argv[1]) + 1, &refusing);
  if (has_nobody) read_place(last, atoi(argv[1]), &nobody);
  state = strtoull(argv[4], NULL, 10) * 0x9E3779B97F4A7C15u + 1;
  epoll = epoll_create1(EPOLL_CLOEXEC);
  struct Call* const calls = calloc((size_t)most, sizeof *calls);
  for (int i = 0; i < most; ++i) calls[i].fd = -1;
  run(calls, most);
  say("done", 0);
  return 0;
}
