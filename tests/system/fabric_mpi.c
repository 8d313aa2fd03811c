// fabric_mpi.c - an MPI program that checks what arrives: messages of all sizes, modes and orders, probes, and collectives; for fabric.py.
//
// Run it with any number of ranks; it prints "ok" once.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/fabric_check.h"

enum { MOST = 4 << 20, FLOOD = 3000, ROUNDS = 20 };

static unsigned char *out, *in;

static void run(const char *name, void (*part)(void)) {
  stage = name;
  alarm(60);
  part();
  MPI_Barrier(MPI_COMM_WORLD);  /* receives from any source must not take messages of the next part */
  alarm(0);
}

static void fill(int seed, size_t length) {
  for (size_t i = 0; i < length; ++i) out[i] = byte_at(seed, i);
}
static void check(int seed, size_t length, const char *what) {
  for (size_t i = 0; i < length; ++i) require(in[i] == byte_at(seed, i), what);
}

/* Each rank sends to the next, at once, with messages around the limits of the provider. */
static void rings(void) {
  static const int sizes[] = {0, 1, 8, 20, 24, 25, 28, 29, 64, 4096, 16383, 16384, 16385, 65536, 1 << 20, MOST};
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    MPI_Status status;
    int count = 0;
    fill(rank + (int)i, (size_t)sizes[i]);
    memset(in, 0, MOST);
    MPI_Sendrecv(out, sizes[i], MPI_BYTE, next, 7, in, MOST, MPI_BYTE, before, 7, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    require(count == sizes[i] && status.MPI_SOURCE == before && status.MPI_TAG == 7, "a status");
    check(before + (int)i, (size_t)sizes[i], "the bytes of a ring");
  }
}

/* Unexpected messages of many sizes, received in another order of tags. */
static void flood(void) {
  if (size < 2 || rank > 1) return;
  static const int sizes[] = {4, 100, 12000, 40000};
  MPI_Request *requests = malloc(FLOOD * sizeof *requests);
  if (rank == 0) {
    fill(3, 40000);
    for (int i = 0; i < FLOOD; ++i) MPI_Isend(out, sizes[i % 4], MPI_BYTE, 1, i % 4, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(FLOOD, requests, MPI_STATUSES_IGNORE);
  } else {
    for (int tag = 3; tag >= 0; --tag) {
      for (int i = 0; i < FLOOD / 4; ++i) {
        memset(in, 0, (size_t)sizes[tag]);
        MPI_Recv(in, sizes[tag], MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(3, (size_t)sizes[tag], "the bytes of a flood");
      }
    }
  }
  free(requests);
}

/* Messages with equal tags stay in order, also between small and large ones, and for a receive from any source. */
static void orders(void) {
  if (rank == 0) {
    for (int i = 0; i < (size - 1) * 100; ++i) {
      MPI_Status status;
      static int next[1024];
      MPI_Recv(in, MOST, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
      int number = 0;
      memcpy(&number, in, sizeof number);
      require(number == next[status.MPI_SOURCE]++ && status.MPI_TAG == number, "the order of a source");
    }
  } else {
    for (int i = 0; i < 100; ++i) {
      memcpy(out, &i, sizeof i);
      MPI_Send(out, i % 3 == 0 ? 50000 : i % 3 == 1 ? 8 : 3000, MPI_BYTE, 0, i, MPI_COMM_WORLD);
    }
  }
}

static void probes(void) {
  if (size < 2 || rank > 1) return;
  if (rank == 0) {
    fill(9, 30000);
    MPI_Ssend(out, 100, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Request request;
    MPI_Isend(out, 30000, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &request);
    MPI_Send(out, 200, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    MPI_Status status;
    MPI_Message message;
    int count = 0, there = 1;
    MPI_Request request;
    MPI_Irecv(in, 10, MPI_BYTE, 0, 99, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &there);
    require(there, "a cancelled receive");
    MPI_Iprobe(0, 98, MPI_COMM_WORLD, &there, &status);
    require(!there, "a probe for nothing");
    MPI_Probe(0, 1, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    require(count == 100, "the length that a probe tells");
    MPI_Recv(in, 100, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &status);
    check(9, 100, "the bytes after a probe");
    MPI_Mprobe(0, 2, MPI_COMM_WORLD, &message, &status);
    MPI_Recv(in, 200, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &status);
    check(9, 200, "the bytes behind a claimed message");
    memset(in, 0, 30000);
    MPI_Mrecv(in, 30000, MPI_BYTE, &message, &status);
    check(9, 30000, "the bytes of a claimed message");
  }
}

/* Every second int of an array, and messages to itself. */
static void types_and_self(void) {
  int values[64], others[32];
  MPI_Datatype stripes;
  for (int i = 0; i < 64; ++i) values[i] = rank * 100 + i;
  MPI_Type_vector(32, 1, 2, MPI_INT, &stripes);
  MPI_Type_commit(&stripes);
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  MPI_Sendrecv(values, 1, stripes, next, 5, others, 32, MPI_INT, before, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < 32; ++i) require(others[i] == before * 100 + 2 * i, "a strided message");
  MPI_Type_free(&stripes);
  static const int sizes[] = {0, 8, 1000, 16384, 200000};
  for (int i = 0; i < 5; ++i) {
    MPI_Request request;
    fill(i, (size_t)sizes[i]);
    memset(in, 0, 200000);
    MPI_Isend(out, sizes[i], MPI_BYTE, rank, 6, MPI_COMM_WORLD, &request);
    MPI_Recv(in, sizes[i], MPI_BYTE, rank, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(i, (size_t)sizes[i], "a message to itself");
  }
}

static void collectives(void) {
  static const int counts[] = {1, 1000, 50000};
  for (int round = 0; round < ROUNDS; ++round) {
    const int n = counts[round % 3];
    double *a = malloc((size_t)n * (size_t)size * sizeof *a), *b = malloc((size_t)n * (size_t)size * sizeof *b);
    for (int i = 0; i < n * size; ++i) a[i] = rank + i;
    MPI_Allreduce(a, b, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; ++i) require(b[i] == size * (size - 1) / 2.0 + (double)size * i, "allreduce");
    MPI_Alltoall(a, n, MPI_DOUBLE, b, n, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int r = 0; r < size; ++r) require(b[(r + 1) * n - 1] == r + (double)(rank + 1) * n - 1, "alltoall");
    MPI_Allgather(a, n, MPI_DOUBLE, b, n, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int r = 0; r < size; ++r) require(b[r * n] == r, "allgather");
    if (rank == round % size) a[0] = 4711 + round;
    MPI_Bcast(a, n, MPI_DOUBLE, round % size, MPI_COMM_WORLD);
    require(a[0] == 4711 + round, "bcast");
    MPI_Barrier(MPI_COMM_WORLD);
    free(a);
    free(b);
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  signal(SIGALRM, hangs);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  out = calloc(MOST, 1);
  in = calloc(MOST, 1);
  run("rings", rings);
  run("flood", flood);
  run("orders", orders);
  run("probes", probes);
  run("types_and_self", types_and_self);
  run("collectives", collectives);
  if (rank == 0) printf("ok\n");
  free(out);
  free(in);
  MPI_Finalize();
  return 0;
}
