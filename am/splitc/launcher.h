// launcher.h - a launcher other than unet-run that has started this process as one of many (Open MPI's mpirun, Slurm's srun --mpi=pmix). By
// PMIx it tells this process its rank and the places of the others, and ends all; used by run().
//
// Each host has a unetd. Its ranks connect to that as any program does ($UNET_NI, or the default socket). UNET_HOST gives that unetd's name
// if it is not the host's name. launcher_pmix.cc is built where libpmix exists, launcher_none.cc elsewhere.
#pragma once

#include <memory>
#include <string>

#include "am/splitc/job.h"
#include "unet/base/result.h"

namespace unet::splitc {

class Launcher final : public JobEnder {
 public:
  // Finds the launcher that has started this process; nullptr: unet-run or a user has, and the environment says everything (job.h). Errors:
  // unavailable, if the launcher has no PMIx, or this build has none.
  static Result<std::unique_ptr<Launcher>> find();
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Meets the other ranks. Sets rank, size and hosts to those of the launcher's job, and a random name and key. Errors: unavailable.
  Status join(Job& job);
  void end_all(int status, const std::string& text) noexcept override;
  // This rank has finished, as all others have. Without this call the destructor ends the job.
  void leave() noexcept;

 private:
  Launcher(std::string job, Rank rank) : job_(std::move(job)), rank_(rank) {}

  const std::string job_;  // the launcher's name of it
  const Rank rank_;
  bool left_ = false;
};

namespace detail {

// Returns the variable by which a launcher without PMIx says that this process is one of several; empty if there is none.
std::string launched_by_variable();
// Returns true if PMIx is there and the environment does not say which rank this is.
bool launched_by_pmix();
// Returns UNET_HOST, or the name that a unetd of this host has by default.
std::string own_host();
// Returns `count` random hexadecimal digits, an even number.
Result<std::string> random_digits(size_t count);

}  // namespace detail

}  // namespace unet::splitc
