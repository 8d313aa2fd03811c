// sockets_stress_serve.c - the server: forked workers, each with an epoll set; every other set is edge-triggered. A killed worker is
// replaced. Workers share one listener, or each has its own (SO_REUSEPORT). Or, as in servers before epoll, they share one and have no set:
// each blocks in accept(), and serves a connection to its end before the next.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/system/sockets_stress.h"

struct Served {
  int fd;
  bool writes;  // waits for EPOLLOUT
  bool ended;   // the caller has sent everything
  size_t header_got;
  struct Header header;
  uint64_t got, sent;
  unsigned turn;
};

static int epoll = -1, shared = -1;  // shared: the common listener; -1: each worker has its own
static bool by_edges, has_each, one_by_one;
static struct sockaddr_storage place;
static socklen_t length;

static void let_go(struct Served* each, bool resets) {
  if (resets) reset_and_close(each->fd);
  else close(each->fd);
  free(each);
}

// False: the connection is over.
static bool take(struct Served* each) {
  unsigned char piece[kPiece];
  while (!each->ended) {
    const bool begins = each->header_got < sizeof each->header;
    void* const to = begins ? (char*)&each->header + each->header_got : (char*)piece;
    const ssize_t got = take_some(each->fd, to, begins ? sizeof each->header - each->header_got : sizeof piece, each->turn++);
    if (got < 0) return errno == EAGAIN;
    each->ended = got == 0;
    if (begins) {
      each->header_got += (size_t)got;
      continue;
    }
    verify_pattern(each->header.number, kUp, each->got, piece, (size_t)got);
    each->got += (uint64_t)got;
    if (each->got > each->header.up) wrong("connection %016lx has more than %lu bytes", each->header.number, each->header.up);
  }
  return true;
}

static bool give(struct Served* each) {
  unsigned char piece[kPiece];
  if (each->header_got < sizeof each->header) return true;
  const uint64_t most = each->header.resets_after != 0 ? each->header.resets_after : each->header.down;
  while (each->sent < most) {
    const size_t count = most - each->sent < sizeof piece ? (size_t)(most - each->sent) : sizeof piece;
    write_pattern(each->header.number, kDown, each->sent, piece, count);
    const ssize_t went = give_some(each->fd, piece, count, each->turn++);
    if (went < 0) return errno == EAGAIN;
    each->sent += (uint64_t)went;
  }
  return true;
}

static void want(struct Served* each, bool writes) {
  if (by_edges || each->writes == writes) return;
  each->writes = writes;
  if (one_by_one) return;
  struct epoll_event event = {.events = EPOLLIN | (writes ? EPOLLOUT : 0), .data.ptr = each};
  if (each->ended) event.events &= ~(uint32_t)EPOLLIN;
  if (epoll_ctl(epoll, EPOLL_CTL_MOD, each->fd, &event) != 0) wrong("epoll_ctl: %s", strerror(errno));
}

// False: the connection is over.
static bool handle(struct Served* each) {
  if (!take(each) || !give(each)) return let_go(each, false), false;
  const bool whole = each->header_got == sizeof each->header;
  const bool resets = whole && each->header.resets_after != 0 && each->sent == each->header.resets_after;
  if (resets || (each->ended && (!whole || each->sent == each->header.down))) return let_go(each, resets), false;
  return want(each, whole && each->sent < each->header.down), true;
}

static void accept_all(int listener) {
  for (int i = 0; i < 64; ++i) {
    const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EAGAIN || errno == ECONNABORTED || errno == ENETDOWN)) return;
    if (fd < 0) wrong("accept: %s", strerror(errno));
    struct Served* const each = calloc(1, sizeof *each);
    each->fd = fd;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = each};
    if (by_edges) event.events |= EPOLLOUT | EPOLLET;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) wrong("epoll_ctl: %s", strerror(errno));
  }
}

static void serve_next(int listener) {
  const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0 && errno != ECONNABORTED && errno != ENETDOWN) wrong("accept: %s", strerror(errno));
  if (fd < 0) return;
  struct Served* const each = calloc(1, sizeof *each);
  each->fd = fd;
  while (handle(each)) {
    const short in = each->ended ? 0 : POLLIN, out = each->writes ? POLLOUT : 0;
    struct pollfd wanted = {.fd = fd, .events = (short)(in | out)};
    if (poll(&wanted, 1, -1) < 0 && errno != EINTR) wrong("poll: %s", strerror(errno));
  }
}

static int listen_at(void) {
  const int one = 1, listener = socket(place.ss_family, SOCK_STREAM | (one_by_one ? 0 : SOCK_NONBLOCK), 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  ask_if_there(listener);
  if (has_each) setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
  if (bind(listener, (struct sockaddr*)&place, length) != 0) wrong("bind: %s", strerror(errno));
  if (listen(listener, 1024) != 0) wrong("listen: %s", strerror(errno));
  return listener;
}

static void work(int number) {
  const int listener = shared < 0 ? listen_at() : shared;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (one_by_one) {
    printf("worker %d\n", getpid());
    while (true) serve_next(listener);
  }
  epoll = epoll_create1(EPOLL_CLOEXEC);
  by_edges = number % 2 == 1;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) != 0) wrong("epoll_ctl: %s", strerror(errno));
  printf("worker %d\n", getpid());
  while (true) {
    struct epoll_event events[64];
    const int ready = epoll_wait(epoll, events, 64, -1);
    if (ready < 0 && errno != EINTR) wrong("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < ready; ++i) {
      if (events[i].data.ptr == NULL) accept_all(listener);
      else handle(events[i].data.ptr);
    }
  }
}

// Returns the pid of the new worker.
static pid_t begin(int number) {
  const pid_t pid = fork();
  if (pid < 0) wrong("fork: %s", strerror(errno));
  if (pid == 0) work(number);
  return pid;
}

int serve(int argc, char** argv) {
  length = read_place(argv[0], atoi(argv[1]), &place);
  const int workers = atoi(argv[2]);
  has_each = argc == 4 && strcmp(argv[3], "each") == 0;
  one_by_one = argc == 4 && strcmp(argv[3], "prefork") == 0;
  if (!has_each) shared = listen_at();
  pid_t* const pids = calloc((size_t)workers, sizeof *pids);
  for (int i = 0; i < workers; ++i) pids[i] = begin(i);
  while (true) {
    int status;
    const pid_t gone = wait(&status);
    if (gone < 0) continue;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) wrong("worker %d ended with %x", gone, status);
    for (int i = 0; i < workers; ++i) {
      if (pids[i] == gone) pids[i] = begin(i);
    }
  }
}
