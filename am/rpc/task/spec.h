// spec.h - the specification of a job: hosts, tree, program and files; how it goes over an edge, and which node has which part of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "am/rpc/codec.h"
#include "am/rpc/task/record.h"
#include "unet/base/result.h"

namespace unet::rpc {

struct JobHost {
  std::string name;     // as network interfaces know it
  uint32_t tasks = 1;   // the ranks are counted through the hosts
  using Fields = rpc::Fields<&JobHost::name, &JobHost::tasks>;
};

// Lies in the private directory of the job, under the last part of its name.
struct JobFile {
  std::string name;
  uint64_t bytes = 0;
  bool executable = false;
  using Fields = rpc::Fields<&JobFile::name, &JobFile::bytes, &JobFile::executable>;
};

struct JobSpec {
  std::vector<JobHost> hosts;
  uint32_t arity = 4;                    // children of a node; 0: all nodes are the launcher's
  bool carried = false;                  // the program is files[0]; else it is on each host
  std::vector<JobFile> files;
  std::vector<std::string> program;      // with its arguments
  std::vector<std::string> environment;  // NAME=VALUE
  std::string directory;                 // of the tasks; empty: the private one of the job
  std::string secret;                    // 32 hexadecimal digits for UNET_JOB_KEY

  uint32_t tasks() const noexcept;
  uint64_t file_bytes() const noexcept;  // of the records `data`, with the check sums
  using Fields = rpc::Fields<&JobSpec::hosts, &JobSpec::arity, &JobSpec::carried, &JobSpec::files, &JobSpec::program,
                             &JobSpec::environment, &JobSpec::directory, &JobSpec::secret>;
};

// Errors: invalid_argument, with the reason, if there is too much of something or a name is not one. `bytes` begin at a multiple of
// kAlignment.
Result<std::vector<std::byte>> encode_job(const JobSpec& spec);
Result<JobSpec> decode_job(Bytes bytes);

// The tree of a job. Node n is the agent of host n; its children are nodes arity * n + 1 ... arity * n + arity.
class Tree {
 public:
  explicit Tree(const JobSpec& spec);

  uint32_t nodes() const noexcept { return static_cast<uint32_t>(first_rank_.size() - 1); }
  uint32_t ranks() const noexcept { return first_rank_.back(); }
  std::vector<uint32_t> children(uint32_t node) const;
  std::vector<uint32_t> children_of_launcher() const;
  // Whether `node` is `top` or below it.
  bool is_below(uint32_t top, uint32_t node) const noexcept;
  uint32_t tasks_below(uint32_t top) const noexcept;
  // The number of levels below a node.
  uint32_t height(uint32_t node) const noexcept;
  uint32_t first_rank(uint32_t node) const noexcept { return first_rank_[node]; }
  uint32_t node_of(uint32_t rank) const noexcept;  // rank < ranks()

 private:
  uint32_t arity_;
  std::vector<uint32_t> first_rank_;  // of each node, and the number of ranks
};

}  // namespace unet::rpc
