// fabric_windows.c - one-sided communication of MPI, with a check of every word; for fabric_mpi.py.
//
// Run it with any number of ranks; it prints "ok" once. An argument leaves out MPI_Compare_and_swap().
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/fabric_check.h"

enum { WORDS = 40000, ROUNDS = 50 };

static int swaps;
static long *memory;
static MPI_Win window;

static void fence(const char *next) {
  stage = next;
  alarm(60);
  MPI_Win_fence(0, window);
}

/* Each rank writes to the next, and reads back from there. */
static void put_and_get(int words) {
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  long *out = malloc((size_t)words * sizeof *out), *in = calloc((size_t)words, sizeof *in);
  for (int i = 0; i < words; ++i) out[i] = rank * 1000000L + i;
  fence("put");
  MPI_Put(out, words, MPI_LONG, next, 0, words, MPI_LONG, window);
  fence("get");
  for (int i = 0; i < words; ++i) require(memory[i] == before * 1000000L + i, "a word that was put");
  MPI_Get(in, words, MPI_LONG, next, 0, words, MPI_LONG, window);
  fence("the end of a get");
  require(memcmp(in, out, (size_t)words * sizeof *in) == 0, "words that were got");
  free(out);
  free(in);
}

/* Every second word, by a derived datatype on the target's side. */
static void strides(void) {
  enum { COUNT = 100 };
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  long out[COUNT];
  MPI_Datatype stripes;
  MPI_Type_vector(COUNT, 1, 2, MPI_LONG, &stripes);
  MPI_Type_commit(&stripes);
  for (int i = 0; i < COUNT; ++i) out[i] = rank + 10 * i;
  fence("strides");
  for (int i = 0; i < 2 * COUNT; ++i) memory[i] = -1;
  fence("a strided put");
  MPI_Put(out, COUNT, MPI_LONG, next, 0, 1, stripes, window);
  fence("the end of a strided put");
  for (int i = 0; i < COUNT; ++i) require(memory[2 * i] == before + 10 * i && memory[2 * i + 1] == -1, "a strided put");
  MPI_Type_free(&stripes);
}

/* All ranks add to the words of rank 0, take numbers there, and guard a word by a lock. */
static void atomics(void) {
  fence("atomics");
  for (int i = 0; i < 8; ++i) memory[i] = 0;
  fence("accumulate");
  for (int i = 0; i < ROUNDS; ++i) {
    const long ones[4] = {1, 2, 3, 4};
    MPI_Accumulate(ones, 4, MPI_LONG, 0, 0, 4, MPI_LONG, MPI_SUM, window);
  }
  fence("the end of accumulate");
  for (int i = 0; rank == 0 && i < 4; ++i) require(memory[i] == (i + 1L) * ROUNDS * size, "a sum");
  MPI_Win_fence(MPI_MODE_NOSUCCEED, window);

  stage = "fetch_and_op";
  long sum = 0, total = 0;
  MPI_Win_lock_all(0, window);
  for (int i = 0; i < ROUNDS; ++i) {
    const long one = 1;
    long number = -1;
    MPI_Fetch_and_op(&one, &number, MPI_LONG, 0, 4, MPI_SUM, window);
    MPI_Win_flush(0, window);
    require(number >= 0 && number < (long)ROUNDS * size, "a number that was taken");
    sum += number;
  }
  stage = "compare_and_swap";
  for (int i = 0; swaps && i < ROUNDS / 10; ++i) {
    const long free_value = 0, mine = rank + 1;
    long found = -1;
    do {
      MPI_Compare_and_swap(&mine, &free_value, &found, MPI_LONG, 0, 5, window);
      MPI_Win_flush(0, window);
    } while (found != 0);
    MPI_Compare_and_swap(&free_value, &mine, &found, MPI_LONG, 0, 5, window);
    MPI_Win_flush(0, window);
    require(found == mine, "a word that was locked");
  }
  MPI_Win_unlock_all(window);
  MPI_Allreduce(&sum, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  const long numbers = (long)ROUNDS * size;
  require(total == numbers * (numbers - 1) / 2, "each number was taken once");

  stage = "lock";
  for (int i = 0; i < ROUNDS; ++i) {
    long value = 0;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    MPI_Get(&value, 1, MPI_LONG, 0, 6, 1, MPI_LONG, window);
    MPI_Win_flush(0, window);
    ++value;
    MPI_Put(&value, 1, MPI_LONG, 0, 6, 1, MPI_LONG, window);
    MPI_Win_unlock(0, window);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    require(memory[6] == numbers, "a word behind a lock");
    MPI_Win_unlock(0, window);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  signal(SIGALRM, hangs);
  alarm(60);
  swaps = argc < 2;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Win_allocate(WORDS * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  static const int counts[] = {1, 100, 3000, WORDS};
  for (int i = 0; i < 4; ++i) put_and_get(counts[i]);
  strides();
  atomics();
  stage = "free";
  MPI_Win_free(&window);
  if (rank == 0) printf("ok\n");
  MPI_Finalize();
  return 0;
}
