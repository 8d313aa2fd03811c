// launcher.h - a launcher other than unet-run that has started this process as one of many (Open MPI's mpirun, Slurm's srun --mpi=pmix):
// it says by PMIx who this is, where the others are, and ends all; used by run().
//
// Each host has a unetd, to which its ranks go as any program does ($UNET_NI, or the default socket); UNET_HOST says how that calls itself,
// if not by the host's name. launcher_pmix.cc is the one that is built where libpmix is there, launcher_none.cc elsewhere.
#pragma once

#include <memory>
#include <string>

#include "am/splitc/job.h"
#include "unet/base/result.h"

namespace unet::splitc {

class Launcher final : public JobEnder {
 public:
  // The one that has started this process; nullptr: unet-run or a person has, and the environment says all (job.h). Errors: unavailable,
  // if there is one that does not talk, or talks PMIx and this build does not.
  static Result<std::unique_ptr<Launcher>> find();
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Meets the other ranks. Rank, size, hosts, a name and a key at random become those of the launcher's job. Errors: unavailable.
  Status join(Job& job);
  void end_all(int status, const std::string& text) noexcept override;
  // This rank has done its part, as all others have; the destructor without it ends the job.
  void leave() noexcept;

 private:
  Launcher(std::string job, Rank rank) : job_(std::move(job)), rank_(rank) {}

  const std::string job_;  // as the launcher calls it
  const Rank rank_;
  bool left_ = false;
};

namespace detail {

// What a launcher without PMIx says of this process: the variable that tells of several, or empty.
std::string launched_by_variable();
// PMIx is there, and nobody else has said who this process is.
bool launched_by_pmix();
// UNET_HOST, or what a unetd of this host calls itself by default.
std::string own_host();
// `count` hexadecimal digits at random, an even number.
Result<std::string> random_digits(size_t count);

}  // namespace detail

}  // namespace unet::splitc
