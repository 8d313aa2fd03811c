// mpi_kernel.h - what kernel.h is for Split-C, for MPI: a job, its traffic, measuring and a report; used by the programs here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/kernels/command_line.h"
#include "apps/kernels/report.h"
#include "apps/kernels/time_split.h"

namespace unet::kernels {

// What a program hands to MPI is counted: a collective as one message to every other rank.
class MpiJob {
 public:
  MpiJob(int* argc, char*** argv);
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  uint32_t rank() const noexcept { return rank_; }
  uint32_t size() const noexcept { return size_; }
  bool speaks() const noexcept { return rank_ == 0; }
  uint64_t messages() const noexcept { return messages_; }
  uint64_t message_bytes() const noexcept { return message_bytes_; }

  void count(uint64_t messages, uint64_t bytes) noexcept {
    messages_ += messages;
    message_bytes_ += bytes;
  }
  void barrier();
  double sum(double own);
  uint64_t sum(uint64_t own);
  // Of the ranks before this one.
  uint64_t sum_before(uint64_t own);
  // Every rank's `own`, one after the other.
  void all_gather(std::span<const uint32_t> own, std::span<uint32_t> all);
  // `keys` lie in the order of the ranks that they are for, `counts` of each; the result in the order of those that they come from.
  // Returns how many come from each.
  std::vector<uint64_t> all_to_all(std::span<const uint32_t> keys, std::span<const uint64_t> counts, std::vector<uint32_t>& received);

 private:
  uint32_t rank_ = 0, size_ = 1;
  uint64_t messages_ = 0, message_bytes_ = 0;
};

// As measure_best() of the report, by rank 0's time. Collective.
void measure_best(MpiJob& job, const CommonOptions& options, const Work& work, Measurement& result);

// Collective. The program's exit status.
int report(MpiJob& job, const CommonOptions& options, const Measurement& result);

}  // namespace unet::kernels
