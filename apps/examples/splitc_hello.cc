// splitc_hello.cc - Split-C: each rank writes into the memory of the next, then all add up what they got. splitc_hello.c: in C.
//
//   c++ -std=c++20 -o splitc_hello splitc_hello.cc $(pkg-config --cflags --libs unet-splitc)
//   unet-run -n 4 -- ./splitc_hello         (unet-run starts a network interface and four ranks; mpirun and srun work, too)
#include <am/splitc/splitc.h>

#include <cstdio>

namespace sc = unet::splitc;

namespace {

int program(int, char**) {
  const auto squares = sc::all_spread_malloc<unsigned>(sc::procs());  // one at each rank
  const sc::Rank next = (sc::my_proc() + 1) % sc::procs();
  sc::write(squares[next], next * next);
  sc::barrier();  // now every rank has its value
  const unsigned sum = sc::all_reduce_add(squares.mine(0)[0]);
  if (sc::my_proc() == 0) std::printf("%u ranks: the squares of 0 to %u add up to %u\n", sc::procs(), sc::procs() - 1, sum);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return sc::run(argc, argv, program); }
