// mpi_kernel.h - the frame of the MPI kernels, as kernel.h for Split-C: a job, its traffic, measuring and a report; used by the programs
// here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/kernels/command_line.h"
#include "apps/kernels/report.h"
#include "apps/kernels/time_split.h"

namespace unet::kernels {

// Counts the messages that a program gives to MPI; a collective counts as one message to every other rank.
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
  // Returns the sum over the ranks before this one.
  uint64_t sum_before(uint64_t own);
  // Gathers every rank's `own`, one after the other.
  void all_gather(std::span<const uint32_t> own, std::span<uint32_t> all);
  // `keys` are ordered by destination, with `counts` for each. `received` is ordered by sender. Returns the number of keys from each
  // sender.
  std::vector<uint64_t> all_to_all(std::span<const uint32_t> keys, std::span<const uint64_t> counts, std::vector<uint32_t>& received);

 private:
  uint32_t rank_ = 0, size_ = 1;
  uint64_t messages_ = 0, message_bytes_ = 0;
};

// Collective: measure_best() of the report, by rank 0's time.
void measure_best(MpiJob& job, const CommonOptions& options, const Work& work, Measurement& result);

// Collective. Returns the program's exit status.
int report(MpiJob& job, const CommonOptions& options, const Measurement& result);

}  // namespace unet::kernels
