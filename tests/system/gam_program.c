// gam_program.c - a program written to GAM 1.1, run as several processes by unet-run. Prints a line on success.
#include <am.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "tests/system/require.h"

enum { ROUNDS = 1000, BYTES = 200000, LAST = 60, LAST_STORES = 60 };

static int rank, size, next, previous;

// ---- requests and replies

static int pings, pongs;
static long last[4];
static double last_double;

static void pong(vnn_t from, long round) {
  REQUIRE(from == next && round == pongs);
  REQUIRE(am_reply_0(from, (handler_0_t)pong) == -1 && AM_errno == EPERM);
  ++pongs;
}

static void ping(vnn_t from, long round) {
  REQUIRE(from == previous && round == pings);
  ++pings;
  REQUIRE(am_request_0(next, (handler_0_t)pong) == -1 && AM_errno == EPERM);
  if (size > 2) REQUIRE(am_reply_1(next, (handler_1_t)pong, round) == -1 && AM_errno == EPERM);
  REQUIRE(am_reply_1(from, (handler_1_t)pong, round) == 0);
  REQUIRE(am_reply_1(from, (handler_1_t)pong, round) == -1 && AM_errno == EPERM);
}

static int answers;
static void note_0(vnn_t from) { (void)from, ++answers; }
static void note_slowly(vnn_t from) {
  const struct timespec moment = {0, 200000};
  nanosleep(&moment, NULL);
  note_0(from);
}
static void note_2(vnn_t from, long a, long b) { (void)from, last[0] = a, last[1] = b, ++answers; }
static void note_3(vnn_t from, long a, long b, long c) { (void)from, last[0] = a, last[1] = b, last[2] = c, ++answers; }
static void note_4(vnn_t from, long a, long b, long c, long d) {
  (void)from, last[0] = a, last[1] = b, last[2] = c, last[3] = d, ++answers;
}
static void note_df(vnn_t from, long a, long b, double c) { (void)from, last[0] = a, last[1] = b, last_double = c, ++answers; }
static void back_0(vnn_t from) { REQUIRE(am_reply_0(from, (handler_0_t)note_0) == 0); }
static void back_2(vnn_t from, long a, long b) { REQUIRE(am_reply_2(from, (handler_2_t)note_2, b, a) == 0); }
static void back_3(vnn_t from, long a, long b, long c) { REQUIRE(am_reply_3(from, (handler_3_t)note_3, c, b, a) == 0); }
static void back_4(vnn_t from, long a, long b, long c, long d) { REQUIRE(am_reply_4(from, (handler_4_t)note_4, d, c, b, a) == 0); }
static void back_df(vnn_t from, long a, long b, double c) { REQUIRE(am_reply_df(from, (handler_df_t)note_df, b, a, -c) == 0); }

#define ANSWERED(call)                         \
  do {                                         \
    int before_ = answers;                     \
    REQUIRE((call) == 0);                      \
    UNTIL(answers == before_ + 1, am_poll());  \
  } while (0)

static void requests_to(vnn_t dest) {
  const long large = -0x123456789ABCDEF0L;
  ANSWERED(am_request_0(dest, (handler_0_t)back_0));
  ANSWERED(am_request_2(dest, (handler_2_t)back_2, 1, large));
  REQUIRE(last[0] == large && last[1] == 1);
  ANSWERED(am_request_3(dest, (handler_3_t)back_3, 1, 2, 3));
  REQUIRE(last[0] == 3 && last[1] == 2 && last[2] == 1);
  ANSWERED(am_request_4(dest, (handler_4_t)back_4, 1, 2, 3, large));
  REQUIRE(last[0] == large && last[1] == 3 && last[2] == 2 && last[3] == 1);
  ANSWERED(am_request_df(dest, (handler_df_t)back_df, 7, 8, 2.5));
  REQUIRE(last[0] == 8 && last[1] == 7 && last_double == -2.5);
}

// ---- memory: a variable has the same address in every process

static unsigned char from[BYTES], to[BYTES], got[BYTES];
static int stores, ends, gets, last_stores;
static int barriers;

static void stored(vnn_t node, void *rva, int bytes, void *arg) {
  REQUIRE(node == previous && rva == to && (long)arg == 77);
  for (int i = 0; i < bytes; ++i) REQUIRE(to[i] == (unsigned char)(i * 7 + previous));
  ++stores;
}

static void stored_slowly(vnn_t node, void *rva, int bytes, void *arg) {
  REQUIRE(rva == to && bytes == BYTES && arg == NULL);
  note_slowly(node);
  ++last_stores;
}

static void ended(vnn_t node, void *lva, int bytes, void *arg) {
  REQUIRE(node == next && lva == from && bytes == BYTES && arg == &ends);
  REQUIRE(am_request_0(next, (handler_0_t)note_0) == -1 && AM_errno == EPERM && am_poll() == 0);
  ++ends;
}

static void has_got(vnn_t node, void *lva, int bytes, void *arg) {
  REQUIRE(node == next && lva == got && arg == &gets);
  for (int i = 0; i < bytes; ++i) REQUIRE(got[i] == (unsigned char)(i * 7 + next));
  REQUIRE(am_reply_0(node, (handler_0_t)note_0) == -1);
  ++gets;
}

// A barrier as GAM programs wrote it: a mark goes around the ring twice.
static void barrier(void) {
  static int mark;
  ++barriers;
  int one = 2 * barriers - 1, two = 2 * barriers;
  if (rank == 0) REQUIRE(am_store(next, &one, &mark, sizeof one, NULL, NULL) == 0);
  UNTIL(*(volatile int *)&mark >= one, am_poll());  // tidy: allow volatile because handlers of the library write it
  REQUIRE(am_store(next, rank == 0 ? &two : &one, &mark, sizeof one, NULL, NULL) == 0);
  UNTIL(*(volatile int *)&mark >= two, am_poll());  // tidy: allow volatile because handlers of the library write it
  if (rank != 0) REQUIRE(am_store(next, &two, &mark, sizeof two, NULL, NULL) == 0);
}

static void memory(void) {
  for (int i = 0; i < BYTES; ++i) from[i] = (unsigned char)(i * 7 + rank);
  barrier();
  int sent = 0;
  for (int bytes = 0; bytes <= BYTES; bytes = bytes * 3 + 1, ++sent) {
    REQUIRE(am_store(next, from, to, bytes, (handler_mem_t)stored, (void *)77) == 0);
  }
  UNTIL(stores >= sent, am_poll());
  for (int i = 0; i < 5; ++i, ++sent) {
    REQUIRE(am_store_async(next, from, to, BYTES, (handler_mem_t)stored, (void *)77, (handler_mem_t)ended, &ends) == 0);
  }
  REQUIRE(am_store_async(next, from, to, 10, (handler_mem_t)stored, (void *)77, NULL, NULL) == 0);
  UNTIL(stores == sent + 1 && ends == 5, am_poll());
  sent = 0;
  for (int bytes = 0; bytes <= BYTES; bytes = bytes * 3 + 1, ++sent) {
    memset(got, 0, sizeof got);
    REQUIRE(am_get(next, from, got, bytes, (handler_mem_t)has_got, &gets) == 0);
    UNTIL(gets == sent + 1, am_poll());
  }
  // A process may also use addresses that another process sent it, such as one on that process's heap.
  barrier();
}

static long heap_of_next;
static void tell(vnn_t node, long address) {
  REQUIRE(node == next);
  heap_of_next = address;
}

static void heaps(void) {
  unsigned char *heap = malloc(1000);
  REQUIRE(heap != NULL);
  memset(heap, 0, 1000);
  REQUIRE(am_request_1(previous, (handler_1_t)tell, (long)heap) == 0);
  UNTIL(heap_of_next != 0, am_poll());
  REQUIRE(am_store(next, from, (void *)heap_of_next, 1000, NULL, NULL) == 0);
  UNTIL(heap[999] == (unsigned char)(999 * 7 + previous) && heap[1] == (unsigned char)(7 + previous), am_poll());
  barrier();
  free(heap);
}

// ---- a handler that polls while other processes send

static void poll_and_reply(vnn_t from) {
  const int before = answers;
  const struct timespec moment = {0, 1000000};
  for (int i = 0; i < 100; ++i) REQUIRE(am_poll() == 0 && nanosleep(&moment, NULL) == 0);
  REQUIRE(answers == before && am_reply_0(from, (handler_0_t)note_0) == 0);
}

static void polling_in_handlers(void) {
  answers = 0;
  barrier();
  if (rank == 0) {
    REQUIRE(am_request_0(rank, (handler_0_t)poll_and_reply) == 0);
    UNTIL(answers == size, am_poll());
  } else {
    const struct timespec moment = {0, 30000000};  // until rank 0 is in the handler
    REQUIRE(nanosleep(&moment, NULL) == 0 && am_request_0(0, (handler_0_t)note_0) == 0);
  }
}

static void what_is_refused(void) {
  REQUIRE(am_request_0(size, (handler_0_t)note_0) == -1 && AM_errno == EINVAL);
  REQUIRE(am_request_0(-1, (handler_0_t)note_0) == -1 && AM_errno == EINVAL);
  REQUIRE(am_request_0(next, NULL) == -1 && AM_errno == EINVAL);
  REQUIRE(am_request_0(next, (handler_0_t)&heap_of_next) == -1 && AM_errno == EINVAL);
  REQUIRE(am_store(next, from, to, -1, NULL, NULL) == -1 && AM_errno == EINVAL);
  REQUIRE(am_store(next, from, NULL, 1, NULL, NULL) == -1 && AM_errno == EINVAL);
  REQUIRE(am_get(size, from, to, 1, NULL, NULL) == -1 && AM_errno == EINVAL);
}

// Under another launcher this interface would see jobs of one process, so it refuses.
static void launched_otherwise(void) {
  char own_size[16];
  REQUIRE(snprintf(own_size, sizeof own_size, "%s", getenv("UNET_SIZE")) < (int)sizeof own_size);
  REQUIRE(unsetenv("UNET_SIZE") == 0 && setenv("OMPI_COMM_WORLD_SIZE", "2", 1) == 0);
  REQUIRE(am_enable() == -1 && AM_errno == ENOTSUP && am_my_proc() == -1);
  REQUIRE(unsetenv("OMPI_COMM_WORLD_SIZE") == 0 && setenv("UNET_SIZE", own_size, 1) == 0);
}

int main(int argc, char **argv) {
  launched_otherwise();
  REQUIRE(am_my_proc() == -1 && AM_errno == ENOTCONN && am_request_0(0, (handler_0_t)note_0) == -1 && am_disable() == -1);
  REQUIRE(am_enable(argc, argv) == 0);
  rank = am_my_proc();
  size = am_procs();
  REQUIRE(rank >= 0 && rank < size && am_max_size() >= BYTES);
  REQUIRE(am_max_size() <= INT_MAX / 100);  // programs compute multiples of it
  next = (rank + 1) % size;
  previous = (rank + size - 1) % size;
  for (int i = 0; i < ROUNDS; ++i) REQUIRE(am_request_1(next, (handler_1_t)ping, i) == 0);
  UNTIL(pings == ROUNDS && pongs == ROUNDS, am_poll());
  for (int i = 0; i < size; ++i) requests_to(i);
  memory();
  heaps();
  what_is_refused();
  polling_in_handlers();
  // Every sent message is handled before a process leaves am_disable(). Unsent stores are among them: most are unsent when all processes
  // have arrived.
  answers = 0;
  barrier();
  const int end = size - 1, senders = size > 2 ? size - 2 : 0;
  if (rank != 0 && rank != end) {
    const struct timespec moment = {0, 50000000};  // until the last process is in am_disable()
    nanosleep(&moment, NULL);
    for (int i = 0; i < LAST; ++i) REQUIRE(am_request_0(end, (handler_0_t)note_slowly) == 0);
    for (int i = 0; i < LAST_STORES; ++i) {
      REQUIRE(am_store_async(end, from, to, BYTES, (handler_mem_t)stored_slowly, NULL, NULL, NULL) == 0);
    }
  }
  REQUIRE(am_disable() == 0);
  REQUIRE(last_stores == (rank == end ? LAST_STORES * senders : 0) && answers == (rank == end ? LAST * senders : 0) + last_stores);
  printf("rank %d of %d: all well\n", rank, size);
  return 0;
}
