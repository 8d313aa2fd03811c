// path.h - one way of moving messages between two processes that unet-bench measures: a limit of the machine, a
// path of U-Net, the kernel, or a bare driver. A new path is one .cc file below paths/, and lines in
// paths.h, all_paths.cc and meson.build.
//
// Life: prepare() in the parent before the fork; then in both processes set_up(), any number of run() (both sides at
// the same time, with the same Slice), tear_down(). Side B's object is the fork's copy of side A's.
#pragma once

#include <fnmatch.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "apps/bench/frame/control.h"
#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::bench {

class Environment;  // environment.h: cores, namespaces

// The time that one side's set_up() waits for the other's, on a busy machine.
constexpr Nanoseconds kConnectTime = 60 * kSecond;

enum class Kind : uint8_t { limit, ours, kernel, raw };

// A benchmark needs some of these of a path (Benchmark::needs).
enum class Ability : uint8_t {
  messages,        // is measured in the benchmarks of messages
  tcp,             // is measured as TCP sockets
  udp,             // is measured as UDP sockets
  layer,           // stands above the path `baseline`: compared with that, and with the limit
  idle_endpoints,  // set_idle_endpoints() works
  emulated,        // is our endpoints without queues, or what `emulated` compares them with
  sleeps,          // a receiver with nothing to do sleeps
};

// A set of values of an enum.
template <typename Enum>
class Set {
 public:
  constexpr Set(std::initializer_list<Enum> values) {
    for (const Enum value : values) bits_ |= bit(value);
  }
  constexpr bool has(Enum value) const { return (bits_ & bit(value)) != 0; }
  constexpr Set operator|(Set other) const {
    other.bits_ |= bits_;
    return other;
  }

 private:
  static constexpr uint64_t bit(Enum value) { return uint64_t{1} << static_cast<unsigned>(value); }
  uint64_t bits_ = 0;
};

constexpr Set<Workload> kMessageWorkloads{Workload::rtt, Workload::bandwidth, Workload::rate};
constexpr Set<Workload> kConnectionWorkloads{Workload::connections, Workload::many};

struct PathInfo {
  std::string name = {};     // as --path takes it
  Kind kind = Kind::kernel;
  std::string what = {};     // one line for `list`
  std::string setting = {};  // how it was set to its best: congestion control, offloads, polling, batching
  Set<Workload> workloads = {};                  // the loops that its run() has
  Set<Ability> abilities = {Ability::messages};
  std::vector<std::string> only = {};            // the benchmarks it takes part in, and no others; empty: all that it can
  std::string baseline = {};                     // path to compare with instead of the limit; empty: the benchmark's limit
  std::vector<std::string> more_baselines = {};  // paths to compare with in a further record each, where they take part
                                                 // (fairness: the control, a client that does the same without the attack)
  bool wire = false;           // messages go as frames: its put is compared with its own messages, not with memcpy
  bool shares_cores = false;   // with an engine of its own: waits for a core belong to the path (set by prepare())
  bool side_b_parked = false;  // side B leaves its core to the engine during a slice

  bool can(Ability ability) const { return abilities.has(ability); }
};

// Everything that a side needs while it runs a slice.
struct RunContext {
  Side side;
  ControlBlock& control;
  StopFlag stop;
  std::vector<uint64_t>& samples;  // rtt, side A: cycles per batch of round trips; connect: per step; has room for all of a slice
};

class Path {
 public:
  explicit Path(PathInfo info) : info_(std::move(info)) {}
  virtual ~Path() = default;
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

  const PathInfo& info() const { return info_; }

  // Whether it can do this workload at this size; the error says why not, in a few words.
  Status supports(Workload workload, uint32_t size) const {
    if (!info_.workloads.has(workload)) return fail(Errc::unavailable, "is not measured on this path");
    return fits(workload, size);
  }

  // Before the fork, in the parent: makes the resources that both sides inherit (shared memory, pipes, sockets, namespaces).
  virtual Status prepare(Environment&) { return {}; }
  // After the fork, in both processes at once, each on its core. It may wait for the other side, but must look at `stop`.
  virtual Status set_up(const RunContext&, Environment&) { return {}; }
  // Runs one slice. Stops early when context.stop is raised; reports errors through context.control.fail().
  virtual Outcome run(const Slice& slice, RunContext& context) = 0;
  // Brings the number of idle endpoints beside the active pair to `count`, in this process.
  virtual Status set_idle_endpoints(const RunContext&, uint32_t /*count*/) {
    return fail(Errc::unavailable, "has no endpoints to add");
  }
  // Processes beside the two sides that work for this path (its unetd): their processor time belongs to it.
  virtual std::vector<int> service_processes() const { return {}; }
  virtual void tear_down(const RunContext&) {}

 protected:
  // Whether messages of this size fit, in one of its workloads.
  virtual Status fits(Workload, uint32_t /*size*/) const { return {}; }

  PathInfo info_;
};

// A path of a benchmark without a session. It has no slices.
class PathWithoutSession final : public Path {
 public:
  using Path::Path;
  Outcome run(const Slice&, RunContext&) override { return {}; }
};

using Paths = std::vector<std::unique_ptr<Path>>;

// Whether `pattern`, which may hold * and ? ("kernel-*"), names this path or condition.
inline bool name_matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace unet::bench
