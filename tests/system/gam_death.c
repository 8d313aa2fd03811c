// gam_death.c - a job of GAM 1.1 of which one process dies in am_disable(): the first process still waits for the last one. Prints a line
// on success.
#include <am.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/system/require.h"

enum { FIRST = 0, MORTAL = 1, LAST = 2, RANKS = 3 };

static int heard;

static void hear(vnn_t from) {
  REQUIRE(from == LAST);
  ++heard;
}
static void die(vnn_t from) {
  REQUIRE(from == LAST);
  _exit(0);
}
static void greet(vnn_t from) { (void)from; }

// Sleeps while it answers others.
static void nap(int milliseconds) {
  const struct timespec moment = {0, 1000000};
  for (int i = 0; i < milliseconds; ++i) REQUIRE(am_poll() == 0 && nanosleep(&moment, NULL) == 0);
}

// `ended` is a pipe; its end of file says that the mortal process is dead.
static void run(int rank, int ended) {
  char text[2] = {(char)('0' + rank), 0};
  REQUIRE(setenv("UNET_RANK", text, 1) == 0);
  text[0] = '0' + RANKS;
  REQUIRE(setenv("UNET_SIZE", text, 1) == 0);
  alarm(HANG_SECONDS);
  REQUIRE(am_enable() == 0 && am_my_proc() == rank && am_procs() == RANKS);
  if (rank == LAST) {
    REQUIRE(am_request_0(MORTAL, (handler_0_t)greet) == 0 && am_request_0(FIRST, (handler_0_t)greet) == 0);
    nap(100);  // both others are in am_disable(), and tell each other
    REQUIRE(am_request_0(MORTAL, (handler_0_t)die) == 0);
    char none;
    REQUIRE(read(ended, &none, 1) == 0);
    nap(400);  // the first process has noticed, too
    REQUIRE(am_request_0(FIRST, (handler_0_t)hear) == 0);
  }
  REQUIRE(am_disable() == 0 && rank != MORTAL && heard == (rank == FIRST ? 1 : 0));
}

int main(void) {
  int ended[2];
  pid_t all[RANKS];
  REQUIRE(pipe(ended) == 0);
  for (int rank = 0; rank < RANKS; ++rank) {
    all[rank] = fork();
    REQUIRE(all[rank] >= 0);
    if (all[rank] != 0) continue;
    if (rank != MORTAL) REQUIRE(close(ended[1]) == 0);
    run(rank, ended[0]);
    return 0;
  }
  REQUIRE(close(ended[1]) == 0);
  for (int rank = 0; rank < RANKS; ++rank) {
    int status = -1;
    REQUIRE(waitpid(all[rank], &status, 0) == all[rank] && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  puts("all well");
  return 0;
}
