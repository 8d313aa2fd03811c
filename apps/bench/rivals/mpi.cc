// mpi.cc - how fast MPI is over a transport, which mpirun's options choose; `unet-bench run mpi` starts it (programs/mpi.cc).
//
// Usage: mpirun -n RANKS bench_mpi [SECONDS]      for each figure; rank 0 prints a line for each: METRIC BYTES UNIT VALUE
//
// Two ranks measure all figures, more of them the collective ones. Bandwidth and rate have 64 messages under way, in one buffer.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

constexpr int kWindow = 64;
constexpr int kMost = 1 << 20;
constexpr double kSlice = 5e-3;  // seconds; of what is timed together
constexpr int kSlicesMin = 5;

int rank, ranks;
double seconds = 0.3;
std::vector<char> out(kMost), in(kMost);

// Runs `loop` so many times, and returns the time by the clock of rank 0, which all ranks use.
double time_of(const std::function<void()>& loop, int count) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < count; ++i) loop();
  double elapsed = MPI_Wtime() - start;
  MPI_Bcast(&elapsed, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  return elapsed;
}

// The median of the slices, in seconds for each run of `loop`.
double measure(const std::function<void()>& loop) {
  int count = 1;
  double elapsed = time_of(loop, count);
  while (elapsed < kSlice / 2) {
    count = std::max(2 * count, static_cast<int>(count * kSlice / (elapsed + kSlice / 100)));
    elapsed = time_of(loop, count);
  }
  std::vector<double> slices;
  double spent = 0;
  while (spent < seconds || slices.size() < kSlicesMin) {
    elapsed = time_of(loop, count);
    spent += elapsed;
    slices.push_back(elapsed / count);
  }
  std::nth_element(slices.begin(), slices.begin() + static_cast<long>(slices.size() / 2), slices.end());
  return slices[slices.size() / 2];
}

void say(const char* metric, int bytes, const char* unit, double value) {
  if (rank == 0) std::printf("%s %d %s %.9g\n", metric, bytes, unit, value);
}

void round_trip(int bytes) {
  const auto send = [&] { MPI_Send(out.data(), bytes, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD); };
  const auto receive = [&] { MPI_Recv(in.data(), bytes, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE); };
  if (rank == 0) send();
  receive();
  if (rank == 1) send();
}

void window(int bytes) {
  MPI_Request requests[kWindow];
  for (MPI_Request& request : requests) {
    if (rank == 0) MPI_Isend(out.data(), bytes, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &request);
    else MPI_Irecv(in.data(), bytes, MPI_CHAR, 0, 2, MPI_COMM_WORLD, &request);
  }
  MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE);
  if (rank == 0) MPI_Recv(nullptr, 0, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  else MPI_Send(nullptr, 0, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
}

void all_reduce(int bytes) {
  MPI_Allreduce(out.data(), in.data(), bytes / static_cast<int>(sizeof(double)), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc > 1) seconds = std::atof(argv[1]);
  if (ranks == 2) {
    say("latency", 8, "ns", measure([] { round_trip(8); }) / 2 * 1e9);
    for (const int bytes : {4096, 65536, kMost}) {
      say("bandwidth", bytes, "GB/s", kWindow * bytes / measure([=] { window(bytes); }) / 1e9);
    }
    say("rate", 8, "msg/s", kWindow / measure([] { window(8); }));
  }
  for (const int bytes : {8, kMost}) {
    say(ranks == 2 ? "allreduce" : "allreduce_crowded", bytes, "ns", measure([=] { all_reduce(bytes); }) * 1e9);
  }
  MPI_Finalize();
  return 0;
}
