// site.cc - one loop over the endpoint and the sockets of runners.
#include "apps/unet-agent/site.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <vector>

#include "apps/descendants.h"
#include "apps/task_secret.h"
#include "apps/unet-agent/job_directory.h"
#include "apps/unet-agent/packets.h"
#include "ni/service/log.h"
#include "ni/service/names.h"

namespace unet::agent {
namespace {

constexpr int kRunnerSocket = 3;
constexpr uint32_t kPacketsMax = 64;  // of one runner in a turn
constexpr Nanoseconds kRunnerEnd = 10 * kSecond;  // a runner without its socket, and the removal of a directory, may take so long
constexpr Nanoseconds kFarewell = 200 * kMillisecond;  // the end of the agent waits so long for its last records to arrive

// Runs in the child. Of our descriptors it has the socket and the standard ones only: with the connection to the network interface, its
// end would not be noticed.
[[noreturn]] void become_runner(int socket, const RunnerOptions& options) {
  if (dup2(socket, kRunnerSocket) < 0) _exit(127);
  close_range(kRunnerSocket + 1, ~0u, 0);
  fcntl(kRunnerSocket, F_SETFD, FD_CLOEXEC);
  prctl(PR_SET_NAME, "unet-agent-job");
  setsid();
  _exit(run_tasks(Descriptor(kRunnerSocket), options) ? 0 : 1);
}

std::string shown(const rpc::Caller& caller) {
  return caller.host.empty() ? "user " + std::to_string(caller.user) + " of this host" : "host " + caller.host;
}

}  // namespace

Result<std::unique_ptr<AgentSite>> AgentSite::create(SiteOptions options) {
  Result<Context> context = Context::open(options.ni, "unet-agent");
  if (!context) return tl::unexpected(context.error());
  std::unique_ptr<AgentSite> site(new AgentSite(std::move(options), std::move(*context)));
  auto links = rpc::AmLinks::create(site->context_, rpc::kAgentName, site->options_.policy.secret, *site);
  if (!links) return tl::unexpected(links.error());
  site->links_ = std::move(*links);
  return site;
}

// ---- links

void AgentSite::close(Id link) {
  if (!is_runner(link)) return links_->close(link);
  const auto runner = runners_.find(static_cast<uint32_t>(link));
  if (runner == runners_.end()) return;
  runner->second.socket.reset();  // its end of file ends the runner, if it still runs
  runner->second.kill_at = monotonic_now() + kRunnerEnd;
  if (runner->second.process == 0) runners_.erase(runner);
}

bool AgentSite::send(Id link, uint64_t key, const rpc::TaskRecord& record) {
  if (!is_runner(link)) return links_->send(link, key, record);
  const auto found = runners_.find(static_cast<uint32_t>(link));
  if (found == runners_.end() || !found->second.socket.valid()) return false;
  Runner& runner = found->second;
  const Sent sent = send_packet(runner.socket.get(), record);
  runner.full = sent == Sent::full;
  return sent == Sent::yes;
}

uint64_t AgentSite::draw_key() { return apps::random_key(); }

tl::expected<rpc::Links::Id, rpc::TaskFailure> AgentSite::prepare_runner(const rpc::Caller& caller, const rpc::JobSpec& spec, uint32_t node,
                                                                     uint64_t key) {
  const auto refuse = [&](rpc::Reason reason, const std::string& text) {
    service::log::info("{}: refused: {}", shown(caller), text);
    return tl::unexpected(rpc::TaskFailure{reason, text});
  };
  const Rule* const rule = options_.policy.find(caller.host, caller.user);
  if (rule == nullptr) return refuse(rpc::Reason::not_permitted, "its policy has no rule for " + shown(caller));
  if (const Status right = permits(*rule, spec); !right) return refuse(rpc::Reason::not_permitted, right.error().text);
  const auto number = static_cast<size_t>(rule - options_.policy.rules.data());
  const uint32_t tasks = spec.hosts[node].tasks;
  uint32_t running = 0;
  for (const auto& [link, runner] : runners_) running += runner.rule == number ? runner.tasks : 0;
  if (tasks > rule->tasks - std::min(running, rule->tasks)) {
    return refuse(rpc::Reason::too_many, std::to_string(running) + " tasks run by that rule of its policy, of " +
                                             std::to_string(rule->tasks) + "; " + std::to_string(tasks) + " more are too many");
  }
  if (++last_runner_ == 0) last_runner_ = kFirstRunner;
  Runner& runner = runners_[last_runner_];
  runner.key = key;
  runner.rule = number;
  runner.tasks = tasks;
  runner.options = {.node = node, .user = rule->as.user, .group = rule->as.group, .name = rule->as.name, .home = rule->as.home,
                    .ni = options_.ni, .directory = options_.directory + "/unet-task-" + std::to_string(draw_key())};
  service::log::info("{}: starts {} x {} as {}", shown(caller), tasks, service::in_quotes(spec.program[0]), rule->as.name);
  return Id{last_runner_};
}

bool AgentSite::start_runner(Id link, const rpc::JobSpec& spec) {
  Runner& runner = runners_.at(static_cast<uint32_t>(link));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  const pid_t process = fork();
  if (process == 0) {
    RunnerOptions options = runner.options;
    options.job = spec;
    become_runner(theirs.get(), options);
  }
  if (process < 0) return false;
  runner.process = process;
  runner.socket = std::move(ours);
  return true;
}

// ---- arrivals

void AgentSite::receive(const rpc::Caller& from, uint64_t key, const rpc::TaskRecord& record) {
  agent_.receive(from, key, record, monotonic_now());
}

void AgentSite::lost(Id link, const rpc::TaskFailure& why) { agent_.lost(link, why, monotonic_now()); }

void AgentSite::read_runner(uint32_t number, Runner& runner) {
  Packet packet;
  for (uint32_t i = 0; i < kPacketsMax && runner.socket.valid(); ++i) {
    switch (packet.receive(runner.socket.get())) {
      case Packet::Got::record: agent_.receive({.source = number}, runner.key, packet.record(), monotonic_now()); break;
      case Packet::Got::none: return;
      case Packet::Got::closed:
        runner.socket.reset();
        agent_.lost(Id{number}, {rpc::Reason::lost, "the process that starts its tasks has ended"}, monotonic_now());
    }
  }
}

// Runners that end, and what some of them leave: orphans of tasks become our children. A runner with status 0 has left none. Nothing here
// waits: a task may stop or hold up any process of its user.
void AgentSite::reap() {
  const Nanoseconds now = monotonic_now();
  int status = 0;
  for (pid_t process = 0; (process = waitpid(-1, &status, WNOHANG)) > 0;) {
    removers_.erase(process);
    inherited_.erase(process);
    for (auto& [number, runner] : runners_) {
      if (runner.process != process) continue;
      runner.ended = true;
      if (status == 0) continue;
      orphans_until_ = now + kRunnerEnd;
      remove_left(runner);
    }
  }
  std::set<pid_t> kept = inherited_;
  for (auto at = runners_.begin(); at != runners_.end();) {
    const Runner& runner = at->second;
    if (!runner.ended && runner.process != 0) {
      if (now >= runner.kill_at) kill(runner.process, SIGKILL);
      kept.insert(runner.process);
    }
    at = runner.ended && !runner.socket.valid() ? runners_.erase(at) : std::next(at);
  }
  for (const auto& [process, kill_at] : removers_) {
    if (now >= kill_at) kill(process, SIGKILL);
    kept.insert(process);
  }
  if (now >= orphans_until_) return;
  for (const pid_t child : apps::children()) {
    if (!kept.contains(child)) kill(child, SIGKILL);
  }
}

// Removes the directory of a runner that was killed, with the rights of the tasks' user, which could place links there.
void AgentSite::remove_left(const Runner& runner) {
  const pid_t process = fork();
  if (process == 0) {
    if (become_user(runner.options)) remove_directory(runner.options.directory);
    _exit(0);
  }
  if (process > 0) removers_[process] = monotonic_now() + kRunnerEnd;
}

// ---- the loop

Status AgentSite::sleep(Nanoseconds until, int stop, bool& stopped) {
  const Result<int> endpoint = links_->descriptor();
  if (!endpoint) return tl::unexpected(endpoint.error());
  std::vector<pollfd> polled{{stop, POLLIN, 0}, {*endpoint, POLLIN, 0}};
  std::vector<uint32_t> numbers;
  for (auto& [number, runner] : runners_) {
    polled.push_back({runner.socket.get(), static_cast<short>(POLLIN | (runner.full ? POLLOUT : 0)), 0});
    runner.full = false;
    numbers.push_back(number);
  }
  const Nanoseconds now = monotonic_now();
  Nanoseconds limit = std::min(until > now ? until - now : 0, kSecond);
  if (!links_->arm(limit)) limit = 0;
  const timespec time{static_cast<time_t>(limit / kSecond), static_cast<long>(limit % kSecond)};
  ppoll(polled.data(), polled.size(), &time, nullptr);
  stopped = polled[0].revents != 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if ((polled[i + 2].revents & ~POLLOUT) != 0) read_runner(numbers[i], runners_.at(numbers[i]));
  }
  return {};
}

Status AgentSite::run(int stop) {
  inherited_ = apps::children();
  apps::adopt_descendants();
  for (bool stopped = false; !stopped;) {
    if (!context_.alive()) return fail(Errc::disconnected, "the network interface is gone");
    links_->poll(monotonic_now());
    const Nanoseconds next = agent_.process(monotonic_now());
    if (!runners_.empty() || !removers_.empty() || monotonic_now() < orphans_until_) reap();
    if (const Status slept = sleep(next, stop, stopped); !slept) return slept;
  }
  links_->flush(kFarewell);
  return {};
}

}  // namespace unet::agent
