// launcher_none.cc - a build without PMIx: launchers are noticed, and refused.
#include "am/splitc/launcher.h"

namespace unet::splitc {

Result<std::unique_ptr<Launcher>> Launcher::find() {
  const std::string variable = detail::launched_by_variable();
  if (variable.empty() && !detail::launched_by_pmix()) return nullptr;
  return fail(Errc::unavailable, (variable.empty() ? "PMIX_RANK" : variable) +
                                     " is set: this process was started as one of several by a launcher of which it can ask nothing, as "
                                     "this U-Net was built without PMIx (libpmix-dev). unet-run starts jobs on one host");
}

// find() of this build makes no Launcher.
Launcher::~Launcher() = default;
Status Launcher::join(Job&) { return fail(Errc::unavailable, "rank " + std::to_string(rank_) + " of " + job_ + ": built without PMIx"); }
void Launcher::end_all(int, const std::string&) noexcept { left_ = true; }
void Launcher::leave() noexcept { left_ = true; }

}  // namespace unet::splitc
