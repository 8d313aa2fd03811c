// mpi_kernel.cc - the job, measuring and report of the MPI kernels.
#include "apps/kernels/mpi/mpi_kernel.h"

#include <sched.h>

#include <functional>

#include <mpi.h>

namespace unet::kernels {
namespace {

constexpr int kWrong = 1;

// MPI ends the job by itself if a call fails. Its counts are ints.
int count_of(uint64_t elements) noexcept { return static_cast<int>(elements); }

}  // namespace

MpiJob::MpiJob(int* argc, char*** argv) {
  MPI_Init(argc, argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  rank_ = static_cast<uint32_t>(rank);
  size_ = static_cast<uint32_t>(size);
}

MpiJob::~MpiJob() { MPI_Finalize(); }

void MpiJob::barrier() { MPI_Barrier(MPI_COMM_WORLD); }

double MpiJob::sum(double own) {
  double all = 0;
  MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  count(size_ - 1, (size_ - 1) * sizeof own);
  return all;
}

uint64_t MpiJob::sum(uint64_t own) {
  uint64_t all = 0;
  MPI_Allreduce(&own, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  count(size_ - 1, (size_ - 1) * sizeof own);
  return all;
}

uint64_t MpiJob::sum_before(uint64_t own) {
  uint64_t up_to = 0;
  MPI_Scan(&own, &up_to, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return up_to - own;
}

void MpiJob::all_gather(std::span<const uint32_t> own, std::span<uint32_t> all) {
  MPI_Allgather(own.data(), count_of(own.size()), MPI_UINT32_T, all.data(), count_of(own.size()), MPI_UINT32_T, MPI_COMM_WORLD);
  count(size_ - 1, (size_ - 1) * own.size_bytes());
}

std::vector<uint64_t> MpiJob::all_to_all(std::span<const uint32_t> keys, std::span<const uint64_t> counts,
                                         std::vector<uint32_t>& received) {
  std::vector<int> sent(size_), sent_at(size_), got(size_), got_at(size_);
  for (uint32_t to = 0; to < size_; ++to) sent[to] = count_of(counts[to]);
  MPI_Alltoall(sent.data(), 1, MPI_INT, got.data(), 1, MPI_INT, MPI_COMM_WORLD);
  for (uint32_t rank = 1; rank < size_; ++rank) {
    sent_at[rank] = sent_at[rank - 1] + sent[rank - 1];
    got_at[rank] = got_at[rank - 1] + got[rank - 1];
  }
  received.resize(static_cast<size_t>(got_at[size_ - 1] + got[size_ - 1]));
  MPI_Alltoallv(keys.data(), sent.data(), sent_at.data(), MPI_UINT32_T, received.data(), got.data(), got_at.data(), MPI_UINT32_T,
                MPI_COMM_WORLD);
  count(2 * uint64_t{size_ - 1}, (size_ - 1) * sizeof(int) + (keys.size() - counts[rank_]) * sizeof(uint32_t));
  return {got.begin(), got.end()};
}

namespace {

Run measure(MpiJob& job, const std::function<void(TimeSplit& time)>& body) {
  Run run;
  job.barrier();
  const uint64_t messages = job.messages(), bytes = job.message_bytes();
  const double start = MPI_Wtime();
  run.time.start(Part::computation);
  body(run.time);
  run.time.enter(Part::communication);
  job.barrier();
  run.time.stop();
  run.seconds = MPI_Wtime() - start;
  run.messages = job.messages() - messages;
  run.message_bytes = job.message_bytes() - bytes;
  return run;
}

// Collective: returns whether the ranks of this host outnumber the cores that any of them may use. Split-C's ranks use the same rule.
bool is_oversubscribed() {
  MPI_Comm host;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int ranks = 0;
  MPI_Comm_size(host, &ranks);
  cpu_set_t own, all;
  CPU_ZERO(&own);
  CPU_ZERO(&all);
  sched_getaffinity(0, sizeof own, &own);  // empty if it fails
  MPI_Allreduce(&own, &all, sizeof own, MPI_BYTE, MPI_BOR, host);
  MPI_Comm_free(&host);
  return ranks > CPU_COUNT(&all);
}

}  // namespace

void measure_best(MpiJob& job, const CommonOptions& options, const Work& work, Measurement& result) {
  const auto agree = [](double seconds) {
    MPI_Bcast(&seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return seconds;
  };
  measure_best(options, work, [&] { return measure(job, work.run); }, agree, result);
}

int report(MpiJob& job, const CommonOptions& options, const Measurement& result) {
  const Run& run = result.run;
  const RankReport own{run.seconds, run.time.seconds(Part::computation), run.time.seconds(Part::communication), result.wrong.value_or(0),
                       run.messages, run.message_bytes, 0, 0};
  std::vector<RankReport> ranks(job.size());
  MPI_Allgather(&own, sizeof own, MPI_BYTE, ranks.data(), sizeof own, MPI_BYTE, MPI_COMM_WORLD);
  uint64_t failures = 0;
  for (const RankReport& each : ranks) failures += each.wrong;
  const JobKind kind{job.size(), "mpi", is_oversubscribed()};
  if (job.speaks() && !publish(options, result, kind, ranks)) ++failures;
  MPI_Bcast(&failures, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  return failures == 0 ? 0 : kWrong;
}

}  // namespace unet::kernels
