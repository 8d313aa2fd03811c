// fabric_check.h - what the MPI programs for the libfabric provider share: the place of a rank, checks, and bytes to send.
#pragma once

#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

static int rank, size;

static inline void require(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "rank %d of %d: wrong: %s\n", rank, size, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Handles SIGALRM: tells where a rank hangs, before the test gives up. */
static const char *stage = "start";
static inline void hangs(int signal) {
  (void)signal;
  fprintf(stderr, "rank %d of %d hangs in %s\n", rank, size, stage);
  _exit(1);
}

static inline unsigned char byte_at(int seed, size_t i) { return (unsigned char)(seed * 31 + (int)(i * 7 % 251)); }
