// paths.cc - the providers that are measured, and why they are not in a build without libfabric.
#include "apps/bench/paths/fabric/paths.h"

#include "apps/bench/paths/paths.h"

namespace unet::bench {

#ifdef UNET_BENCH_WITHOUT_LIBFABRIC
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
#endif

void add_fabric_paths(Paths& paths) {
  const auto add = [&](const char* name, Kind kind, const char* what, const char* provider, const char* node) {
    paths.push_back(make_fabric_path({.name = name,
                                      .kind = kind,
                                      .what = what,
                                      .setting = std::string("provider ") + provider + ", manual progress, both sides poll",
                                      .workloads = {Workload::rtt, Workload::bandwidth, Workload::rate, Workload::put, Workload::get},
                                      .only = {"fabric"}},
                                     provider, node));
  };
  add("fabric-unet", Kind::ours, "libfabric by our provider, both of one unetd", kOurProvider, "");
  add("fabric-shm", Kind::kernel, "libfabric by its provider for shared memory", "shm", "");
  add("fabric-tcp", Kind::kernel, "libfabric by its provider for TCP, on loopback", "tcp;ofi_rxm", "127.0.0.1");
  add("fabric-udp", Kind::kernel, "libfabric by its reliable datagrams over UDP, on loopback", "udp;ofi_rxd", "127.0.0.1");
}

}  // namespace unet::bench
