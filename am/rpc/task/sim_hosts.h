// sim_hosts.h - launcher and agents in virtual time: a simulated network, processors, and tasks; for tests and unet-bench.
//
// Each machine has one processor, which does one thing at a time, and one wire. Links are reliable and in order, as Active Messages are.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "am/rpc/task/agent.h"
#include "am/rpc/task/launcher.h"
#include "unet/base/simulator.h"

namespace unet::rpc::sim {

// What steps cost, in about the proportions of a measured host.
struct Costs {
  Nanoseconds open = 60 * kMicrosecond;       // of a processor, to open a link
  Nanoseconds open_time = 200 * kMicrosecond; // until it is open
  Nanoseconds send = 5 * kMicrosecond, receive = 5 * kMicrosecond;  // of a processor, for a record
  Nanoseconds start = 1500 * kMicrosecond;    // of a processor, to start a runner and a task
  Nanoseconds delay = 10 * kMicrosecond;      // of the network, one way
  double bits_per_second = 10e9;              // of each wire
  Nanoseconds task = 10 * kMillisecond;       // that a task runs; kNever: until it is ended
};

class World;

// A machine: its processor, its wire, and the links of its state machine.
class Machine : public SimNode {
 public:
  Machine(World& world, uint32_t number);
  uint32_t number() const noexcept { return number_; }
  bool is_up() const noexcept { return up_; }
  // Occupies the processor. Returns when it is done.
  Nanoseconds work(Nanoseconds time);

 protected:
  friend class World;
  struct Link {
    uint32_t to = 0;
    bool open = false, closed = false;
  };
  Links::Id open_link(const std::string& target);
  void close_link(Links::Id id) { links_[static_cast<uint32_t>(id)].closed = true; }
  bool send_record(Links::Id id, uint64_t key, const TaskRecord& record);
  virtual void arrived(uint32_t from, uint64_t key, const TaskRecord& record) = 0;
  virtual void link_lost(Links::Id id, const TaskFailure& why) = 0;
  virtual void died() {}

  World& world_;
  const uint32_t number_;
  SimLink wire_;
  Nanoseconds busy_until_ = 0;
  std::map<uint32_t, Link> links_;
  uint32_t next_link_ = 1;
  bool up_ = true;
};

// A host with its agent. Its runner's tasks run for a time and exit with 0, unless a test says otherwise.
class SimHost final : public Machine, public Site {
 public:
  SimHost(World& world, uint32_t number) : Machine(world, number), agent(*this) {}
  ~SimHost() override { up_ = false; }

  // ---- for tests
  std::optional<TaskFailure> refusal;       // of prepare_runner()
  std::map<uint32_t, ExitStatus> exits; // of ranks that do not exit with 0
  uint32_t running = 0;                 // tasks
  uint64_t files = 0;                   // runners with files on the disk
  std::map<uint64_t, uint32_t> begun;   // how often each rank has been started, by rank
  bool deaf = false;                    // tasks ignore signals, and only SIGKILL ends them

  Nanoseconds process() override;

 private:
  struct Runner {
    uint64_t key;
    uint32_t node;
    JobSpec spec;
    uint64_t bytes = 0;
    uint32_t uncredited = 0;
    bool there = false, started = false, ending = false, over = false;
  };
  Id open(const std::string& target) override { return open_link(target); }
  Id open_back(uint64_t source) override;
  void close(Id link) override;
  bool send(Id link, uint64_t key, const TaskRecord& record) override;
  tl::expected<Id, TaskFailure> prepare_runner(const Caller& caller, const JobSpec& spec, uint32_t node, uint64_t key) override;
  bool start_runner(Id runner, const JobSpec& spec) override;
  uint64_t draw_key() override;
  void arrived(uint32_t from, uint64_t key, const TaskRecord& record) override;
  void link_lost(Id id, const TaskFailure& why) override;
  void died() override;
  void say(uint32_t number, RecordType type, uint32_t a = 0, uint32_t b = 0, Bytes payload = {});
  void start_tasks(uint32_t number);
  void end_tasks(uint32_t number, ExitStatus status);

  static constexpr uint32_t kFirstRunner = 1u << 30;
  std::map<uint32_t, Runner> runners_;
  uint32_t next_runner_ = kFirstRunner;

 public:
  Agent agent;  // declared last: its end closes links and runners
};

// The machine of unet-run. The files are zeroes.
class SimLauncher final : public Machine, public Links, public LaunchEvents {
 public:
  using Machine::Machine;
  Status start(JobSpec spec, const LaunchOptions& options);

  std::unique_ptr<Launcher> launcher;
  Nanoseconds started_at = 0;                 // all tasks; 0: not yet
  std::map<uint32_t, ExitStatus> exits;       // by rank
  std::map<uint32_t, std::string> text;       // by rank
  std::vector<std::pair<std::string, TaskFailure>> failures;
  uint64_t not_written = 0;

  Nanoseconds process() override { return launcher && up_ ? launcher->process(now()) : kNever; }

 private:
  Nanoseconds now() const;
  Id open(const std::string& target) override { return open_link(target); }
  void close(Id link) override { close_link(link); }
  bool send(Id link, uint64_t key, const TaskRecord& record) override { return send_record(link, key, record); }
  void arrived(uint32_t from, uint64_t key, const TaskRecord& record) override { launcher->receive(from + 1, key, record, now()); }
  void link_lost(Id id, const TaskFailure& why) override { launcher->lost(id, why, now()); }
  void all_started(Nanoseconds now) override { started_at = now; }
  void output(uint32_t rank, uint32_t, Bytes bytes) override {
    text[rank].append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  uint64_t unwritten() const override { return not_written; }
  void exited(uint32_t rank, ExitStatus status) override { exits[rank] = status; }
  void failed(const std::string& host, const TaskFailure& why) override { failures.emplace_back(host, why); }
  bool read_files(uint64_t, MutableBytes) override { return true; }
  uint64_t draw_key() override;
};

class World {
 public:
  World(uint32_t hosts, const Costs& costs, uint64_t seed);
  // Host n is called "h<n>".
  static std::string name(uint32_t host) { return 'h' + std::to_string(host); }
  static JobSpec job(uint32_t hosts, uint32_t tasks_each = 1);

  // The process of the agent, or the launcher, ends: its peers learn it soon. `machine`: number of a host; hosts(): the launcher.
  void kill(uint32_t machine) { stop(machine, 100 * kMicrosecond); }
  // The whole machine ends: its peers learn it by its silence.
  void unplug(uint32_t machine) { stop(machine, 4 * kSecond); }
  // Runs until the launcher is over, or until that time.
  void run(Nanoseconds until);
  Machine& machine(uint32_t number) noexcept { return number < hosts.size() ? static_cast<Machine&>(*hosts[number]) : launcher; }

  struct EdgeSeen {
    uint64_t key;
    uint32_t from, to;  // parent and child, as machines
  };

  Simulator simulator;
  const Costs costs;
  std::vector<EdgeSeen> edges;  // that have begun, for lies
  std::vector<std::unique_ptr<SimHost>> hosts;
  SimLauncher launcher;

 private:
  void stop(uint32_t machine, Nanoseconds noticed_after);
};

// How long it takes until all tasks run.
Nanoseconds creation_time(uint32_t hosts, uint64_t file_bytes, const Costs& costs, const LaunchOptions& options, uint32_t arity);

}  // namespace unet::rpc::sim
