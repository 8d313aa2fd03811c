// benchmarks.h - what unet-bench can measure: names, sizes, limits, and the text of `info`.
#pragma once

#include <string>
#include <vector>

#include "apps/bench/frame/path.h"
#include "apps/bench/results/stats.h"

namespace unet::bench {

// The function of each is in methods.h, if no other file is named.
enum class Method : uint8_t {
  slices,     // interleaved slices between slices of the limit (measure.h)
  endpoints,  // the same with idle endpoints added
  idle,       // processor time of sleeping processes
  connect,    // connections, step by step (connect.h)
  fairness,   // a pair beside a hostile client and alone
  emulated,   // slices, and what thousands of endpoints without queues cost
  logp,       // several kinds of slices, and what they say together
  loss,       // streams over a wire that loses more and more (loss.h)
  peers,      // memory of peers that are idle
  incast,     // a simulated network
  traffic,    // the same, with other patterns, and without a session
  fibers,     // slices of each operation of threads, between slices of a procedure call
  splitc,     // slices of each kind of access, beside its own limit
  rpc,        // slices of each procedure call, beside the limit of calls
  rpc_cost,   // slices of the parts of a call
  rpc_scale,  // slices of many callers
  rpc_death,  // servers that are killed
  ports,      // slices of message ports, for each kind of flow
  techniques, // slices without one technique, beside slices with it
  restart,    // traffic while the network interface is replaced
  programs,   // programs of others, each for seconds, without a session (programs/programs.h)
  mpi,        // jobs of MPI on several transports, without a session (programs/mpi.h)
  fabric,     // slices of each operation of libfabric, beside its own limit
  tasks,      // tasks on many hosts, without a session (programs/tasks.h)
  many,       // a pair beside connections that stay and say nothing
};

struct Benchmark {
  std::string name = {};
  Method method = Method::slices;
  Workload workload = Workload::rtt;
  Set<Ability> needs = {Ability::messages};
  bool own_paths = false;     // only paths that name it take part
  std::string what = {};      // one line for `list`
  std::string detail = {};    // the text of `info`
  std::string metric = {};    // as in JSON
  std::string unit = {};      // of every figure in JSON
  Relation relation = Relation::over;
  std::vector<uint32_t> sizes = {}; // unless --size says otherwise; empty: it carries no messages
  uint32_t size_min = 1;        // of what `counts` names
  uint32_t size_max = kMessageMax;
  std::string counts = {};      // what --size counts, if not bytes
  std::string limit = {};        // path of the limit, or of what all are compared with
  std::string large_limit = {};  // above kSmallMax bytes, if it is another

  std::vector<std::string> more_limits = {};  // other paths that it needs, whatever is chosen

  static constexpr uint32_t kSmallMax = 64;
  const std::string& limit_path(uint32_t size) const { return size <= kSmallMax || large_limit.empty() ? limit : large_limit; }
  // Whether the two processes of a session measure it.
  bool has_session() const {
    return method != Method::programs && method != Method::tasks && method != Method::mpi && method != Method::traffic;
  }
  // Whether it measures sockets; whether it measures paths that stand above another, beside which each is measured.
  bool of_sockets() const { return needs.has(Ability::tcp) || needs.has(Ability::udp); }
  bool layers() const { return needs.has(Ability::layer); }
  // Whether a larger value is better.
  bool is_rate() const { return is_stream(workload) || workload == Workload::connections; }
  // A size as it is said of this benchmark: "8 KiB", "16 under way".
  std::string size_text(uint32_t size) const;
};

const std::vector<Benchmark>& all_benchmarks();
// Its parts: messages, sockets and Active Messages; calls.
std::vector<Benchmark> message_benchmarks();
std::vector<Benchmark> simulated_benchmarks();
std::vector<Benchmark> call_benchmarks();

// nullptr when there is none of this name.
const Benchmark* find_benchmark(const std::string& name);

// The sizes to measure at when `chosen` are those of --size, if any; 0 stands for no message.
std::vector<uint32_t> sizes_of(const Benchmark& benchmark, const std::vector<uint32_t>& chosen);

// Whether the path takes part in it, at some size at least; the error says why not, in a few words.
Status takes_part(const Benchmark& benchmark, const Path& path);

}  // namespace unet::bench
