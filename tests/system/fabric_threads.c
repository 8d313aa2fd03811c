// fabric_threads.c - threads of MPI ranks that send and receive at once (MPI_THREAD_MULTIPLE); for fabric_mpi.py.
//
// Run it with two ranks or more; it prints "ok" once, or "no threads" where MPI offers less than MPI_THREAD_MULTIPLE.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/system/fabric_check.h"

enum { THREADS = 4, ROUNDS = 300, MOST = 100000 };

struct thread {
  int number;
  MPI_Comm communicator;
};

/* Each thread has a ring of its own with the threads of its number. Every second one uses any tag in its own communicator. */
static void *ring(void *argument) {
  const struct thread *const own = argument;
  const int thread = own->number;
  static const int sizes[] = {8, 3000, 0, 20000, 64, MOST};
  const int next = (rank + 1) % size, before = (rank + size - 1) % size, tag = thread % 2 == 0 ? thread : MPI_ANY_TAG;
  unsigned char *out = malloc(MOST), *in = malloc(MOST);
  for (int round = 0; round < ROUNDS; ++round) {
    const int bytes = sizes[(round + thread) % 6], seed = rank * 1000 + thread * 100 + round;
    const int expected = before * 1000 + thread * 100 + round;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    for (int i = 0; i < bytes; ++i) out[i] = byte_at(seed, (size_t)i);
    MPI_Irecv(in, MOST, MPI_BYTE, before, tag, own->communicator, &requests[0]);
    MPI_Isend(out, bytes, MPI_BYTE, next, thread, own->communicator, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    int count = 0;
    MPI_Get_count(&statuses[0], MPI_BYTE, &count);
    require(count == bytes && statuses[0].MPI_TAG == thread, "the status of a thread's message");
    for (int i = 0; i < bytes; ++i) require(in[i] == byte_at(expected, (size_t)i), "the bytes of a thread's message");
  }
  free(out);
  free(in);
  return NULL;
}

int main(int argc, char **argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int count = provided == MPI_THREAD_MULTIPLE ? THREADS : 0;
  struct thread arguments[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < count; ++i) {
    arguments[i].number = i;
    arguments[i].communicator = MPI_COMM_WORLD;
    if (i % 2 == 1) MPI_Comm_dup(MPI_COMM_WORLD, &arguments[i].communicator);
  }
  for (int i = 0; i < count; ++i) pthread_create(&threads[i], NULL, ring, &arguments[i]);
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf(count > 0 ? "ok\n" : "no threads\n");
  MPI_Finalize();
  return 0;
}
