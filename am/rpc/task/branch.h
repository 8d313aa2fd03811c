// branch.h - the children of a node of a job, and what each of them may say; used by Job and Launcher.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "am/rpc/task/edge.h"
#include "am/rpc/task/spec.h"

namespace unet::rpc {

constexpr const char* kAgentName = "unet-agent";  // what each agent binds
constexpr Nanoseconds kKillAfter = 2 * kSecond;   // from the signal of `end` to SIGKILL
constexpr Nanoseconds kEndTime = 6 * kSecond;     // from `end` to `done`, and kEndTimePerLevel for each level below
constexpr Nanoseconds kEndTimePerLevel = kSecond / 2;

constexpr bool is_end_signal(uint32_t signal) noexcept { return signal == 1 || signal == 2 || signal == 3 || signal == 15; }
constexpr bool is_task_signal(uint32_t signal) noexcept { return is_end_signal(signal) || signal == 10 || signal == 12; }

struct Child {
  Edge edge;
  uint32_t node;
  bool runner;            // the tasks of this host; else an agent
  bool started = false;   // all tasks of the subtree run
  bool done = false;      // or lost
  uint64_t source = 0;    // what the link calls the sender; 0: nothing has come yet
  uint32_t failures = 0;
  uint32_t owed = 0;      // cost of its output that we could not pass on yet
};

class Branch {
 public:
  // `tree` outlives the branch.
  explicit Branch(const Tree& tree) : tree_(tree), exited_(tree.ranks()) {}
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;

  Child& add(uint32_t node, bool runner, uint64_t key, Links::Id link, Nanoseconds now);
  // Adds an agent, and tells it the job.
  Child& add_agent(uint32_t node, uint64_t key, Links::Id link, const std::vector<Payload>& spec, Nanoseconds now);
  Child* find(uint64_t key) noexcept;
  const std::vector<std::unique_ptr<Child>>& all() const noexcept { return children_; }

  enum class Heard : uint8_t { nothing, pass_up, lied };
  // Checks and notes a record of a child. pass_up: it concerns the launcher.
  Heard hear(Child& child, uint64_t source, const TaskRecord& record, Nanoseconds now);

  void push_all(RecordType type, uint32_t a, const Payload& payload = {});
  // Ends all that are not done; they have until the time that is returned.
  Nanoseconds end_all(uint32_t signal, Nanoseconds now);
  void flush(Links& links, Nanoseconds now);
  bool all_started() const noexcept;
  bool all_done() const noexcept;
  // The highest cost of bulk records that wait for one of them.
  uint32_t waiting() const noexcept;
  Nanoseconds due() const noexcept;
  // Whether the task of a rank has ended.
  bool has_exited(uint32_t rank) const noexcept { return exited_[rank]; }

 private:
  bool is_rank_of(const Child& child, uint32_t rank) const noexcept;
  bool is_node_of(const Child& child, uint32_t node) const noexcept;

  const Tree& tree_;
  std::vector<std::unique_ptr<Child>> children_;
  std::unordered_map<uint64_t, Child*> by_key_;
  std::vector<bool> exited_;  // ranks
};

// Returns `bytes` as payloads of at most kRecordMax bytes.
std::vector<Payload> in_pieces(Bytes bytes);
Payload payload_of(Bytes bytes);

}  // namespace unet::rpc
