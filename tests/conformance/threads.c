// threads.c - cases of threads that share sockets: readers, writers, wake-ups, and a close while another thread waits.
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>

#include "tests/conformance/conformance.h"

static int ends[2];

static void* accepts(void* fd) { return thread_result(accept(*(int*)fd, NULL, NULL) >= 0 ? 1 : -1); }

static void* polls(void* fd) {
  struct pollfd one = {*(int*)fd, POLLIN, 0};
  const int ready = poll(&one, 1, 5000);
  return thread_result(ready < 0 ? -1 : one.revents);
}

CASE(thread_wakes_receiver, "send() by one thread wakes recv() of another") {
  streams(ends);
  const pthread_t receiver = start(receives_once, &ends[0]);
  pause_ms(50);
  CALL(send(ends[1], "abc", 3, 0));
  say_result("receiver", joined(receiver));
}

CASE(thread_shutdown_wakes_receiver, "shutdown() wakes recv() of another thread") {
  streams(ends);
  const pthread_t receiver = start(receives_once, &ends[0]);
  pause_ms(50);
  CALL(shutdown(ends[0], SHUT_RD));
  say_result("receiver", joined(receiver));
}

CASE(thread_shutdown_wakes_datagram_receiver, "shutdown() wakes recv() of datagrams") {
  datagrams(ends);
  const pthread_t receiver = start(receives_once, &ends[0]);
  pause_ms(50);
  CALL(shutdown(ends[0], SHUT_RDWR));
  say_result("receiver", joined(receiver));
}

CASE(thread_shutdown_wakes_accept, "shutdown() of a listener wakes accept()") {
  int listener = listening();
  const pthread_t acceptor = start(accepts, &listener);
  pause_ms(50);
  CALL(shutdown(listener, SHUT_RD));
  say_result("acceptor", joined(acceptor));
}

CASE(thread_shutdown_wakes_poll, "shutdown() wakes poll()") {
  streams(ends);
  const pthread_t poller = start(polls, &ends[0]);
  pause_ms(50);
  CALL(shutdown(ends[0], SHUT_RD));
  say("poller: %s", events_name((unsigned)joined(poller)));
}

CASE(thread_peer_wakes, "the peer's end, or reset, wakes recv()") {
  streams(ends);
  pthread_t receiver = start(receives_once, &ends[0]);
  pause_ms(50);
  CALL(shutdown(ends[1], SHUT_WR));
  say_result("receiver", joined(receiver));
  streams(ends);
  receiver = start(receives_once, &ends[0]);
  pause_ms(50);
  reset(ends[1]);
  say_result("receiver", joined(receiver));
}

static void* sends_much(void* fd) {
  static char bytes[32 << 20];
  const long sent = send(*(int*)fd, bytes, sizeof bytes, MSG_NOSIGNAL);
  return thread_result(sent > 0 ? 1 : sent);
}

CASE(thread_shutdown_wakes_sender, "shutdown() and a reset wake send()") {
  streams(ends);
  send_until_full(ends[0]);
  pthread_t sender = start(sends_much, &ends[0]);
  pause_ms(50);
  CALL(shutdown(ends[0], SHUT_WR));
  say_result("sender", joined(sender));
  streams(ends);
  send_until_full(ends[0]);
  sender = start(sends_much, &ends[0]);
  pause_ms(50);
  reset(ends[1]);
  say_result("sender", joined(sender));
}

CASE(thread_close_while_receiving, "close() while another thread waits in recv(): it goes on waiting, and gets what comes") {
  streams(ends);
  int copy = ends[0];
  const pthread_t receiver = start(receives_once, &copy);
  pause_ms(100);
  CALL(close(ends[0]));
  pause_ms(50);
  CALL(send(ends[1], "abc", 3, MSG_NOSIGNAL));
  say_result("receiver", joined(receiver));
}

CASE(thread_close_while_polling, "close() while another thread waits in poll(): it goes on waiting") {
  streams(ends);
  int copy = ends[0];
  const pthread_t poller = start(polls, &copy);
  pause_ms(100);
  CALL(close(ends[0]));
  pause_ms(50);
  CALL(send(ends[1], "abc", 3, MSG_NOSIGNAL));
  say("poller: %s", events_name((unsigned)joined(poller)));
}

static atomic_int taken;

static void* takes_datagrams(void* fd) {
  char bytes[20];
  long mine = 0;
  while (recv(*(int*)fd, bytes, sizeof bytes, 0) > 1) ++mine, atomic_fetch_add(&taken, 1);
  return (void*)mine;
}

CASE(thread_two_receivers, "two threads receive datagrams: each comes once") {
  datagrams(ends);
  const pthread_t one = start(takes_datagrams, &ends[0]), two = start(takes_datagrams, &ends[0]);
  for (int i = 0; i < 50; ++i) {
    MUST(send(ends[1], "ab", 2, 0));
    for (int ms = 0; ms < 2000 && atomic_load(&taken) <= i; ++ms) pause_ms(1);
  }
  MUST(send(ends[1], "x", 1, 0));
  MUST(send(ends[1], "x", 1, 0));
  const long sum = joined(one) + joined(two);
  say("received %ld", sum);
}

CASE(thread_two_acceptors, "two threads accept: each connection comes once") {
  int listener = listening();
  const pthread_t one = start(accepts, &listener), two = start(accepts, &listener);
  pause_ms(50);
  const int first = connected(listener), second = connected(listener);
  say_result("one", joined(one));
  say_result("two", joined(two));
  CALL(close(first));
  CALL(close(second));
}

static void* writes_many(void* fd) {
  for (int i = 0; i < 2000; ++i) {
    if (send(*(int*)fd, "0123456789", 10, MSG_NOSIGNAL) != 10) return (void*)1;
  }
  return NULL;
}

CASE(thread_reads_and_writes, "one thread writes, another reads, of the same socket, both ways") {
  streams(ends);
  const pthread_t one = start(writes_many, &ends[0]), two = start(writes_many, &ends[1]);
  static char bytes[20000];
  CALL(recv(ends[0], bytes, sizeof bytes, MSG_WAITALL));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL));
  say("writers %ld %ld", joined(one), joined(two));
}

CASE(thread_two_writers, "two threads write to one socket: no call's bytes are torn apart when they are few") {
  streams(ends);
  const pthread_t one = start(writes_many, &ends[0]), two = start(writes_many, &ends[0]);
  static char bytes[40000];
  int torn = 0;
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL));
  for (int i = 0; i < 40000; ++i) torn += bytes[i] != '0' + i % 10;
  say("writers %ld %ld, torn %d", joined(one), joined(two), torn);
}

static void* waits_in_epoll(void* fd) {
  struct epoll_event event;
  const int n = epoll_wait(*(int*)fd, &event, 1, 5000);
  return thread_result(n == 1 ? (long)event.events : n);
}

CASE(thread_epoll_shared, "two threads in one epoll, edge triggered: one is woken for one arrival") {
  streams(ends);
  int e = (int)MUST(epoll_create1(0));
  struct epoll_event event = {EPOLLIN | EPOLLET, {.u64 = 1}};
  MUST(epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &event));
  const pthread_t one = start(waits_in_epoll, &e), two = start(waits_in_epoll, &e);
  pause_ms(100);
  CALL(send(ends[1], "a", 1, 0));
  pause_ms(200);
  CALL(send(ends[1], "b", 1, 0));
  say("one: %s", events_name((unsigned)joined(one)));
  say("two: %s", events_name((unsigned)joined(two)));
}

static void* waits_in_its_own(void* fd) {
  struct epoll_event event = {EPOLLIN | EPOLLEXCLUSIVE, {.u64 = 1}};
  const int e = (int)MUST(epoll_create1(0));
  MUST(epoll_ctl(e, EPOLL_CTL_ADD, *(int*)fd, &event));
  return thread_result(epoll_wait(e, &event, 1, 2000));
}

CASE(thread_epoll_exclusive, "EPOLLEXCLUSIVE: of threads with a set each one is woken for one connection") {
  int listener = listening();
  pthread_t all[4];
  long woken = 0;
  for (int i = 0; i < 4; ++i) all[i] = asleep(waits_in_its_own, &listener);
  const int client = connected(listener);
  for (int i = 0; i < 4; ++i) woken += joined(all[i]);
  say("woken: %ld", woken);
  close(client);
}

CASE(thread_epoll_ctl_wakes, "epoll_ctl() by another thread wakes epoll_wait()") {
  streams(ends);
  int e = (int)MUST(epoll_create1(0));
  const pthread_t one = start(waits_in_epoll, &e);
  pause_ms(50);
  struct epoll_event event = {EPOLLOUT, {.u64 = 1}};
  CALL(epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &event));
  say("one: %s", events_name((unsigned)joined(one)));
}

CASE(thread_eventfd_wakes_poll, "an eventfd written by another thread wakes poll() of sockets") {
  streams(ends);
  const int event = eventfd(0, 0);
  struct pollfd both[] = {{ends[0], POLLIN, 0}, {event, POLLIN, 0}};
  const pid_t other = fork();
  if (other == 0) {
    pause_ms(50);
    eventfd_write(event, 1);
    _exit(0);
  }
  CALL(poll(both, 2, 5000));
  say("eventfd: %s", events_name((unsigned short)both[1].revents));
}

static void* serves_echo(void* fd) {
  char bytes[64];
  long length;
  while ((length = recv(*(int*)fd, bytes, sizeof bytes, 0)) > 0) send(*(int*)fd, bytes, (size_t)length, MSG_NOSIGNAL);
  close(*(int*)fd);
  return NULL;
}

CASE(thread_per_connection, "a server with a thread for each of eight connections") {
  static int servers[8];
  int clients[8], right = 0;
  pthread_t threads[8];
  const int listener = listening();
  for (int i = 0; i < 8; ++i) {
    clients[i] = connected(listener);
    servers[i] = accepted(listener);
    threads[i] = start(serves_echo, &servers[i]);
  }
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 8; ++i) {
      char text[10], back[10] = "";
      const int length = sprintf(text, "%d %d", round, i);
      send(clients[i], text, (size_t)length, 0);
      right += recv(clients[i], back, (size_t)length, MSG_WAITALL) == length && memcmp(text, back, (size_t)length) == 0;
    }
  }
  for (int i = 0; i < 8; ++i) {
    close(clients[i]);
    joined(threads[i]);
  }
  say("right: %d", right);
}

static void* opens_and_closes(void* unused) {
  (void)unused;
  long opened = 0;
  for (int i = 0; i < 300; ++i) {
    const int s = socket(family, i % 2 == 0 ? SOCK_STREAM : SOCK_DGRAM, 0);
    opened += s >= 0;
    close(s);
  }
  return (void*)opened;
}

CASE(thread_opens_and_closes, "four threads open and close sockets at once") {
  pthread_t threads[4];
  long sum = 0;
  for (int i = 0; i < 4; ++i) threads[i] = start(opens_and_closes, NULL);
  for (int i = 0; i < 4; ++i) sum += joined(threads[i]);
  say("opened %ld", sum);
}

CASE(thread_cancelled, "pthread_cancel() ends a thread in recv()") {
  streams(ends);
  char bytes[20];
  const pthread_t receiver = start(receives_once, &ends[0]);
  pause_ms(50);
  CALL(pthread_cancel(receiver));
  say("cancelled: %d", joined(receiver) == (long)PTHREAD_CANCELED);
  CALL(send(ends[1], "abc", 3, 0));
  say_bytes("received", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
}

static void* accepts_all(void* fd) {
  while (accept(*(int*)fd, NULL, NULL) >= 0) continue;
  return NULL;
}

static void* waits_for_ever(void* fd) {
  struct epoll_event event;
  while (epoll_wait(*(int*)fd, &event, 1, -1) == 0) continue;
  return NULL;
}

static void* polls_for_ever(void* fd) {
  struct pollfd one = {*(int*)fd, POLLIN, 0};
  return (void*)(long)poll(&one, 1, -1);
}

static void* selects_for_ever(void* fd) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(*(int*)fd, &set);
  return (void*)(long)select(*(int*)fd + 1, &set, NULL, NULL, NULL);
}

static void* reads_vectors(void* fd) {
  char bytes[20];
  struct iovec piece = {bytes, sizeof bytes};
  return (void*)(long)readv(*(int*)fd, &piece, 1);
}

static void* peeks_at_messages(void* fd) {
  char bytes[20];
  struct iovec piece = {bytes, sizeof bytes};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
  return (void*)(long)recvmsg(*(int*)fd, &message, MSG_PEEK);
}

static void cancel(const char* what, void* (*body)(void*), int fd) {
  const pthread_t thread = start(body, &fd);
  pause_ms(30);
  pthread_cancel(thread);
  say("%s: cancelled %d", what, joined(thread) == (long)PTHREAD_CANCELED);
}

CASE(thread_cancelled_anywhere, "pthread_cancel() ends threads in every call that waits, and what they waited for goes on") {
  char bytes[20];
  int listener = listening();
  streams(ends);
  int e = (int)MUST(epoll_create1(0));
  struct epoll_event event = {EPOLLIN, {.u64 = 1}};
  MUST(epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &event));
  cancel("accept", accepts_all, listener);
  cancel("epoll_wait", waits_for_ever, e);
  cancel("poll", polls_for_ever, ends[0]);
  cancel("poll of an epoll", polls_for_ever, e);
  cancel("select", selects_for_ever, ends[0]);
  cancel("readv", reads_vectors, ends[0]);
  cancel("recvmsg", peeks_at_messages, ends[0]);
  const int caller = connected(listener), called = accepted(listener);
  CALL(send(caller, "abc", 3, 0));
  say_bytes("received", bytes, CALL(recv(called, bytes, sizeof bytes, 0)));
  send(ends[1], "def", 3, 0);
  CALL(epoll_wait(e, &event, 1, 3000));
  say_bytes("received", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
  send_until_full(ends[0]);
  cancel("send", sends_much, ends[0]);
  say_ready("ends[0]", ends[0]);
}

static atomic_int may_go, cleaned;

static void cleans(void* unused) {
  (void)unused;
  atomic_fetch_add(&cleaned, 1);
}

static void* receives_late(void* fd) {
  char byte;
  int before;
  pthread_cleanup_push(cleans, NULL);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  while (!atomic_load(&may_go)) pause_ms(1);
  recv(*(int*)fd, &byte, 1, 0);
  atomic_fetch_add(&cleaned, 10);
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
  recv(*(int*)fd, &byte, 1, 0);
  pthread_cleanup_pop(0);
  return NULL;
}

CASE(thread_cancelled_before, "a call at the beginning of which its thread is cancelled takes nothing; none is where that is not allowed") {
  char bytes[20];
  streams(ends);
  send(ends[1], "abc", 3, 0);
  await_bytes(ends[0], 3);
  const pthread_t receiver = start(receives_late, &ends[0]);
  CALL(pthread_cancel(receiver));
  atomic_store(&may_go, 1);
  const long end = joined(receiver);
  say("cancelled: %d, cleaned: %d", end == (long)PTHREAD_CANCELED, atomic_load(&cleaned));
  say_bytes("left", bytes, CALL(recv(ends[0], bytes, sizeof bytes, 0)));
}

CASE(thread_cancelled_in_turn, "threads wait for one epoll or socket, and one after another is cancelled: a remaining one gets the event") {
  char bytes[20];
  pthread_t threads[4];
  streams(ends);
  int e = (int)MUST(epoll_create1(0));
  struct epoll_event event = {EPOLLIN | EPOLLET, {.u64 = 1}};
  MUST(epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &event));
  for (int i = 0; i < 3; ++i) threads[i] = start(waits_for_ever, &e);
  threads[3] = start(waits_in_epoll, &e);
  pause_ms(50);
  for (int i = 0; i < 3; ++i) {
    pthread_cancel(threads[i]);
    say("%d: cancelled %d", i, joined(threads[i]) == (long)PTHREAD_CANCELED);
  }
  send(ends[1], "abc", 3, 0);
  say("left: %s", events_name((unsigned)joined(threads[3])));
  CALL(recv(ends[0], bytes, sizeof bytes, 0));
  for (int i = 0; i < 4; ++i) threads[i] = start(receives_once, &ends[0]);
  pause_ms(50);
  for (int i = 0; i < 3; ++i) {
    pthread_cancel(threads[i]);
    say("%d: cancelled %d", i, joined(threads[i]) == (long)PTHREAD_CANCELED);
  }
  send(ends[1], "abc", 3, 0);
  say_result("left", joined(threads[3]));
}

// Threads waiting in every kind of call, beside one that never waits long.
static void* sends_and_receives(void* unused) {
  char byte = 0;
  int own[2];
  (void)unused;
  streams(own);
  while (send(own[0], &byte, 1, MSG_NOSIGNAL) == 1 && recv(own[1], &byte, 1, 0) == 1) continue;
  return NULL;
}

static void begin_to_wait(void) {
  static int listener, e, both[2], few[2];
  streams(ends);
  streams(both);
  datagrams(few);
  listener = listening();
  e = (int)MUST(epoll_create1(0));
  struct epoll_event event = {EPOLLIN, {.u64 = 1}};
  MUST(epoll_ctl(e, EPOLL_CTL_ADD, ends[0], &event));
  start(accepts_all, &listener);
  start(receives_once, &both[0]);
  start(receives_once, &few[0]);
  start(polls_for_ever, &ends[0]);
  start(selects_for_ever, &ends[0]);
  start(waits_for_ever, &e);
  start(sends_and_receives, NULL);
  pause_ms(50);
}

CASE(thread_end_by_return, "main() returns while other threads are in calls") {
  begin_to_wait();
  say("returns");
}

CASE(thread_end_by_exit, "exit() while other threads are in calls") {
  begin_to_wait();
  exit(3);
}

CASE(thread_end_at_once, "_exit() while other threads are in calls") {
  begin_to_wait();
  _exit(4);
}

static void* exits(void* unused) {
  (void)unused;
  pause_ms(50);
  exit(5);
}

CASE(thread_end_by_other, "exit() by another thread while the first one is in a call, as others are") {
  char byte;
  begin_to_wait();
  start(exits, NULL);
  recv(ends[1], &byte, 1, 0);
  _exit(9);  // the first thread's calls must not return
}

static void* executes(void* unused) {
  (void)unused;
  execl("/bin/sh", "sh", "-c", "exit 6", (char*)NULL);
  return NULL;
}

CASE(thread_end_by_exec, "another program begins while other threads are in calls") {
  begin_to_wait();
  joined(start(executes, NULL));
}

CASE(thread_end_of_child, "a child ends, which has none of the threads that are in calls, and they go on") {
  begin_to_wait();
  for (int i = 0; i < 3; ++i) {
    const pid_t pid = fork();
    if (pid == 0) exit(7);
    say_ended("child", pid);
  }
  int own[2];
  char bytes[4];
  streams(own);
  CALL(send(own[0], "abc", 3, 0));
  CALL(recv(own[1], bytes, 3, MSG_WAITALL));
}

static struct iovec two_pieces[2];

static void* writes_two(void* fd) { return (void*)(long)writev(*(int*)fd, two_pieces, 2); }

CASE(thread_close_while_writing, "close() while another thread is in writev(): the call goes on to its end, and the peer has all of it") {
  static char bytes[3 << 20];
  int ends[2];
  long received = 0, more;
  streams(ends);
  for (int i = 0; i < 2; ++i) two_pieces[i] = (struct iovec){bytes, sizeof bytes};
  const pthread_t writer = start(writes_two, &ends[0]);
  pause_ms(50);
  CALL(close(ends[0]));
  while ((more = recv(ends[1], bytes, sizeof bytes, 0)) > 0) received += more;
  say("written: %ld, received: %ld, then: %ld", joined(writer), received, more);
}

// Exchanges messages in two pieces, and checks that no other memory changes.
static void converse_in_pieces(void) {
  enum { kBlocks = 8, kBlock = 1 << 16 };
  static char bytes[50000];
  struct iovec pieces[] = {{bytes, 30000}, {bytes + 30000, 20000}};
  const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
  char* blocks[kBlocks];
  int changed = 0;
  for (int i = 0; i < kBlocks; ++i) memset(blocks[i] = malloc(kBlock), 0x55, kBlock);
  CALL(sendmsg(ends[0], &message, 0));
  CALL(recv(ends[1], bytes, sizeof bytes, MSG_WAITALL));
  for (int i = 0; i < kBlocks; ++i) {
    for (int at = 0; at < kBlock; ++at) changed += blocks[i][at] != 0x55;
    free(blocks[i]);
  }
  say("changed: %d", changed);
}

static pthread_key_t key;

static void converses_at_end(void* unused) {
  (void)unused;
  converse_in_pieces();
}

static void* converses(void* unused) {
  (void)unused;
  converse_in_pieces();
  pthread_setspecific(key, &key);
  return NULL;
}

CASE(thread_key_ends, "a thread calls in the destructor of a key of its own") {
  streams(ends);
  pthread_key_create(&key, converses_at_end);
  joined(start(converses, NULL));
}

CASE(thread_exit_calls, "functions of atexit() call") {
  streams(ends);
  atexit(converse_in_pieces);
  converse_in_pieces();
}

THEME(threads, &thread_wakes_receiver, &thread_shutdown_wakes_receiver, &thread_shutdown_wakes_datagram_receiver,
      &thread_shutdown_wakes_accept, &thread_shutdown_wakes_poll, &thread_peer_wakes, &thread_shutdown_wakes_sender,
      &thread_close_while_receiving, &thread_close_while_polling, &thread_close_while_writing, &thread_two_receivers, &thread_two_acceptors,
      &thread_reads_and_writes, &thread_two_writers, &thread_epoll_shared, &thread_epoll_exclusive,
      &thread_epoll_ctl_wakes,
      &thread_eventfd_wakes_poll, &thread_per_connection, &thread_opens_and_closes, &thread_cancelled, &thread_cancelled_anywhere,
      &thread_cancelled_before, &thread_cancelled_in_turn, &thread_end_by_return, &thread_end_by_exit, &thread_end_at_once,
      &thread_end_by_other, &thread_end_by_exec, &thread_end_of_child, &thread_key_ends, &thread_exit_calls);
