// absent.cc - a path that says why it is not measured.
#include "apps/bench/paths/fabric/paths.h"

namespace unet::bench {

namespace {

class AbsentFabric final : public Path {
 public:
  using Path::Path;
  Status prepare(Environment&) override { return fail(Errc::unavailable, "not available: install libfabric-dev, and build again"); }
  Outcome run(const Slice&, RunContext&) override { return {}; }
};

}  // namespace

std::unique_ptr<Path> make_fabric_path(PathInfo info, const std::string&, const std::string&) {
  return std::make_unique<AbsentFabric>(std::move(info));
}

}  // namespace unet::bench
