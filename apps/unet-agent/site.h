// site.h - an agent with a network interface and processes: gives records to the state machine, and starts runners; used by main().
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "am/rpc/task/agent.h"
#include "am/rpc/task/am_links.h"
#include "apps/unet-agent/policy.h"
#include "apps/unet-agent/runner.h"

namespace unet::agent {

struct SiteOptions {
  Policy policy;
  std::string ni;          // as for Context::open()
  std::string directory;   // where jobs have their private directories
};

class AgentSite final : public rpc::Site, public rpc::LinkOwner {
 public:
  // Errors: those of the network interface.
  static Result<std::unique_ptr<AgentSite>> create(SiteOptions options);
  AgentSite(const AgentSite&) = delete;
  AgentSite& operator=(const AgentSite&) = delete;

  // Serves until `stop` is readable, then ends all tasks. Errors: the network interface is gone.
  Status run(int stop);

 private:
  static constexpr uint32_t kFirstRunner = 1u << 31;  // link numbers from here on lead to runners
  struct Runner {
    pid_t process = 0;   // 0: not started yet
    Descriptor socket;
    uint64_t key = 0;
    size_t rule = 0;
    uint32_t tasks = 0;
    bool full = false;   // its socket has no room
    bool ended = false;  // the process has exited
    Nanoseconds kill_at = kNever;
    RunnerOptions options;  // without the job
  };

  AgentSite(SiteOptions options, Context context) : options_(std::move(options)), context_(std::move(context)), agent_(*this) {}

  // Links of the state machine, over the network or to runners.
  Id open(const std::string& target) override { return links_->open(target); }
  Id open_back(uint64_t source) override { return links_->open_back(source); }
  void close(Id link) override;
  bool send(Id link, uint64_t key, const rpc::TaskRecord& record) override;
  tl::expected<Id, rpc::TaskFailure> prepare_runner(const rpc::Caller& caller, const rpc::JobSpec& spec, uint32_t node,
                                                    uint64_t key) override;
  bool start_runner(Id link, const rpc::JobSpec& spec) override;
  uint64_t draw_key() override;

  bool admits(const std::string& host, int user) override { return options_.policy.find(host, user) != nullptr; }
  void receive(const rpc::Caller& from, uint64_t key, const rpc::TaskRecord& record) override;
  void lost(Id link, const rpc::TaskFailure& why) override;

  static bool is_runner(Id link) noexcept { return static_cast<uint32_t>(link) >= kFirstRunner; }
  void read_runner(uint32_t number, Runner& runner);
  void reap();
  void remove_left(const Runner& runner);
  Status sleep(Nanoseconds until, int stop, bool& stopped);

  SiteOptions options_;
  Context context_;
  std::unique_ptr<rpc::AmLinks> links_;
  std::map<uint32_t, Runner> runners_;  // by link number
  uint32_t last_runner_ = kFirstRunner;
  std::map<pid_t, Nanoseconds> removers_;  // processes that remove directories, and when they are killed
  std::set<pid_t> inherited_;              // children that the process had before it became the agent
  Nanoseconds orphans_until_ = 0;          // a runner has left orphans, which become our children
  rpc::Agent agent_;                       // declared last: its end closes links and runners
};

}  // namespace unet::agent
