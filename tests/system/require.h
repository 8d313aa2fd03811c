// require.h - instead of a test framework, for test programs in C: a check that ends the program, and a limit for hangs.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define REQUIRE(condition)                                                                \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      fprintf(stderr, "%s:%d: required: %s\n", __FILE__, __LINE__, #condition);           \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

#define HANG_SECONDS 60  // an event that takes longer is lost

static inline time_t seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

// Repeats `step` until `condition` holds.
#define UNTIL(condition, step)                                          \
  do {                                                                  \
    const time_t end_ = seconds_now() + HANG_SECONDS;                   \
    while (!(condition)) {                                              \
      step;                                                             \
      REQUIRE(seconds_now() < end_ && "in time: " #condition);          \
    }                                                                   \
  } while (0)
