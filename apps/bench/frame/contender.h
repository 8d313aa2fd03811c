// contender.h - one way of moving messages between two processes that unet-bench measures: a limit of the machine, a
// path of U-Net, the kernel, or a bare driver. A new contender is one .cc file and one line in all_paths.cc.
//
// Life: prepare() in the parent before the fork; then in both processes set_up(), any number of run() (both sides at
// the same time, with the same Slice), tear_down(). Side B's object is the fork's copy of side A's.
#pragma once

#include <fnmatch.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/bench/frame/control.h"
#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::bench {

class Environment;  // environment.h: cores, namespaces

// How long one side's set_up() waits for the other's, on a machine with more to do.
constexpr Nanoseconds kConnectTime = 60 * kSecond;

enum class Kind : uint8_t { limit, ours, kernel, raw };

struct ContenderInfo {
  std::string path = {};     // as --path names it
  Kind kind = Kind::kernel;
  std::string what = {};     // one line for `list`
  std::string setting = {};  // how it was set to its best: congestion control, offloads, polling, batching
  std::string only = {};     // the benchmarks it takes part in, and no others; empty: whatever it supports
  std::string sockets = {};  // "tcp" or "udp": takes part in the benchmarks of these sockets; ours in no others,
  bool sockets_only = false; // nor this one
  std::string baseline = {}; // path to compare with instead of the limit; empty: the benchmark's limit
  std::vector<std::string> more_baselines = {};  // with these, too, where they take part: a further record each
                                                 // (fairness: the control, a client that does the same without the attack)
  bool wire = false;       // messages go as frames: its put is compared with its own messages, not with memcpy
  bool endpoints = false;  // set_idle_endpoints() works (takes part in `endpoints`)
  bool beside = false;     // a pair beside somebody else, or alone: takes part in `fairness`, and in nothing else
  bool emulated = false;   // takes part in `emulated`: our endpoints without queues, and what they are compared with
  bool restarts = false;   // has its network interface replaced: takes part in `restart`, and in nothing else
  bool engines = false;    // takes part in `engines`, and in nothing else
  bool shares_cores = false;   // with an engine of its own: waits for a core belong to the path (set by prepare())
  bool side_b_parked = false;  // side B leaves its core to somebody else during a slice (the engine)
  bool layer = false;    // stands above the path `baseline`: compared with that, and with the limit
  bool sleeps = false;   // a receiver with nothing to do sleeps (takes part in `wakeup` and `idle`)
};

// What a side needs while it runs a slice.
struct RunContext {
  Side side;
  ControlBlock& control;
  StopFlag stop;
  std::vector<uint64_t>& samples;  // rtt, side A: cycles per batch of round trips; connect: per step; has room for all of a slice
};

class Contender {
 public:
  explicit Contender(ContenderInfo info) : info_(std::move(info)) {}
  virtual ~Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;

  const ContenderInfo& info() const { return info_; }

  // Whether it can do this workload at this size; the error says why not, in a few words.
  virtual Status supports(Workload workload, uint32_t size) const = 0;

  // Before the fork, in the parent: what both sides inherit (shared memory, pipes, sockets, namespaces).
  virtual Status prepare(Environment&) { return {}; }
  // After the fork, in both processes at once, each on its core. May wait for the other side, but asks `stop`.
  virtual Status set_up(const RunContext&, Environment&) { return {}; }
  // One slice. Stops early when context.stop is raised; reports errors through context.control.fail().
  virtual Outcome run(const Slice& slice, RunContext& context) = 0;
  // `endpoints`: brings the number of idle endpoints beside the active pair to `count`, in this process.
  virtual Status set_idle_endpoints(const RunContext&, uint32_t /*count*/) {
    return fail(Errc::unavailable, "has no endpoints to add");
  }
  // `idle`: processes beside the two sides whose processor time belongs to this contender (a daemon it started).
  virtual std::vector<int> service_processes() const { return {}; }
  virtual void tear_down(const RunContext&) {}

 protected:
  ContenderInfo info_;
};

using Contenders = std::vector<std::unique_ptr<Contender>>;

// Whether `pattern`, which may hold * and ? ("kernel-*"), names this path or condition.
inline bool name_matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace unet::bench
