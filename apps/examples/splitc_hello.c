// splitc_hello.c - Split-C by its classic names: each processor writes into the memory of the next, then all add up what they got.
// splitc_hello.cc: in C++.
//
//   cc -o splitc_hello_c splitc_hello.c $(pkg-config --cflags --libs unet-splitc)
//   unet-run -n 4 -- ./splitc_hello_c       (unet-run starts a network interface and four processors; mpirun and srun work, too)
#include <am/splitc/split_c.h>
#include <stdio.h>

static int program(int argc, char **argv) {
  (void)argc;
  (void)argv;
  spread_ptr squares = all_spread_malloc((uint64_t)PROCS, sizeof(int));  // int squares[PROCS]::
  int next = (MYPROC + 1) % PROCS;
  splitc_write_int(spread_at(squares, (uint64_t)next), next * next);     // squares[next] = next * next
  barrier();  // now every processor has its value
  int sum = all_reduce_to_all_add(*(int *)splitc_spread_local(squares));
  on_one printf("%d ranks: the squares of 0 to %d add up to %d\n", PROCS, PROCS - 1, sum);
  return 0;
}

int main(int argc, char **argv) { return splitc_run(argc, argv, program); }
