// daemon.cc - finding, starting and ending unetd.
#include "apps/bench/machine/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "apps/bench/machine/command.h"
#include "apps/bench/machine/stale_names.h"
#include "unet/base/time.h"

namespace unet::bench {

namespace {

constexpr const char* kDirectoryStem = "/tmp/unet-bench-";
constexpr int kReadyMs = 60'000;
constexpr Nanoseconds kDaemonStopTime = 3 * kSecond;

std::string find_unetd() {
  const char* const named = std::getenv("UNETD");
  return named != nullptr ? named : find_program("unetd", "unetd");
}

// `name` tells it from others of this process.
std::string directory_of(const std::string& name) { return kDirectoryStem + std::to_string(getpid()) + "-" + name; }

void remove_directory(const std::string& directory) {
  for (const char* const file : {"/unet.sock", "/memif.sock"}) unlink((directory + file).c_str());
  unlink((directory + "/policy.toml").c_str());
  rmdir(directory.c_str());
}

// Those of killed runs.
void remove_stale_directories() {
  const std::string stem = std::string(kDirectoryStem).substr(5);
  const auto owner = [&](const std::string& name) { return name.rfind(stem, 0) == 0 ? std::atoi(name.c_str() + stem.size()) : 0; };
  for (const std::string& name : stale_names("/tmp", owner)) remove_directory("/tmp/" + name);
}

// Waits for unetd's ready byte; false if it ended or took too long.
bool wait_ready(int fd) {
  pollfd wait{fd, POLLIN, 0};
  const Nanoseconds deadline = monotonic_now() + kReadyMs * kMillisecond;
  while (monotonic_now() < deadline) {
    char byte;
    if (poll(&wait, 1, 100) > 0) return read(fd, &byte, 1) == 1;
  }
  return false;
}

Status write_policy(const std::string& file) {
  std::FILE* const out = std::fopen(file.c_str(), "w");
  if (out == nullptr) return fail_errno("fopen(" + file + ")", errno);
  for (uint32_t i = 0; i < kLimitedGroups; ++i) {
    std::fprintf(out, "[[rule]]\ngid = %u\nendpoints = 256\nmessages_per_s = %u\n", kLimitedGroup + i, 1000 * (i + 1));
  }
  std::fputs("[[rule]]\nany = true\nendpoints = 256\nnames = [\"*\"]\n", out);
  return std::fclose(out) == 0 ? Status{} : Status(fail_errno("fclose(" + file + ")", errno));
}

std::string text_of(std::optional<int> core) { return core ? std::to_string(*core) : "any"; }

[[noreturn]] void become_unetd(const std::string& program, const std::string& socket, const std::string& policy, std::optional<int> core,
                               bool takeover, const std::vector<std::string>& more, int ready_fd) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setpgid(0, 0);  // a terminal sends SIGINT to the whole group: unet-bench decides
  // Its stdout is not among our results.
  if (const int null = open("/dev/null", O_WRONLY | O_CLOEXEC); null >= 0) dup2(null, STDOUT_FILENO);
  const std::string ready_text = std::to_string(ready_fd);
  std::vector<std::string> arguments = {takeover ? program : "unetd", "--socket", socket, "--idle", "adaptive",
                                        "--ready-fd", ready_text, "--log", "error"};
  const auto add = [&](const char* option, const std::string& value) { arguments.insert(arguments.end(), {option, value}); };
  if (core) add("--core", std::to_string(*core));
  if (!policy.empty()) add("--policy", policy);
  if (takeover) add("--takeover", "60");
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::vector<char*> pointers;
  for (std::string& each : arguments) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  execvp(program.c_str(), pointers.data());
  _exit(127);
}

}  // namespace

Daemon::Daemon(std::string directory) : directory_(std::move(directory)), owner_(getpid()) {}

Daemon::Daemon(Daemon&& other) noexcept
    : directory_(std::move(other.directory_)), owner_(other.owner_), process_(other.process_) {
  other.owner_ = 0;
}

Result<Daemon> Daemon::start(int core, Clients clients, Takeover takeover, const std::string& mark) {
  const std::string kind = std::string(clients == Clients::own ? "" : "-all") + (takeover == Takeover::no ? "" : "-kept");
  return start_in(directory_of(std::to_string(core) + kind + mark), core, clients, takeover, {});
}

Result<Daemon> Daemon::start_with_ip(std::optional<int> core, Clients clients) {
  const std::string ip = "0=" + std::string(kIpAddress) + "/24,unprobed";
  return start_in(directory_of(text_of(core) + "-ip"), core, clients, Takeover::no, {"--port", "nowhere", "--ip", ip});
}

Result<Daemon> Daemon::start_on_wire(std::optional<int> core, Clients clients, const std::string& mark, const std::string& port,
                                     const std::string& address) {
  const std::string ip = "0=" + address + "/24,unprobed";
  return start_in(directory_of(text_of(core) + "-wire" + mark), core, clients, Takeover::no, {"--port", port, "--ip", ip});
}

Result<Daemon> Daemon::start_host(int core, const std::string& host, const std::string& role, const std::string& server_directory) {
  const std::string directory = directory_of(host);
  const std::string socket = (server_directory.empty() ? directory : server_directory) + "/memif.sock";
  const std::string wire = "dpdk:net_memif0,role=" + role + ",socket=" + socket;
  return start_in(directory, core, Clients::own, Takeover::no, {"--host", host, "--port", wire});
}

Result<Daemon> Daemon::start_in(const std::string& directory, std::optional<int> core, Clients clients, Takeover takeover,
                                const std::vector<std::string>& more) {
  remove_stale_directories();
  if (mkdir(directory.c_str(), 0700) != 0) return fail_errno("mkdir(" + directory + ")", errno);
  Daemon daemon(directory);
  if (auto launched = daemon.launch(core, clients, takeover, more); !launched) return tl::unexpected(launched.error());
  return daemon;
}

Status Daemon::launch(std::optional<int> core, Clients clients, Takeover takeover, const std::vector<std::string>& more) {
  const std::string program = find_unetd();
  const std::string socket = directory_ + "/unet.sock";
  const std::string policy = clients == Clients::own ? "" : directory_ + "/policy.toml";
  if (!policy.empty()) {
    if (auto written = write_policy(policy); !written) return written;
  }
  int ready[2];
  if (pipe(ready) != 0) return fail_errno("pipe", errno);
  fcntl(ready[0], F_SETFD, FD_CLOEXEC);
  process_ = fork();
  if (process_ == 0) become_unetd(program, socket, policy, core, takeover == Takeover::yes, more, ready[1]);
  const int fork_error = errno;
  close(ready[1]);
  const bool started = process_ > 0 && wait_ready(ready[0]);
  close(ready[0]);
  if (process_ < 0) {
    process_ = 0;
    return fail_errno("fork", fork_error);
  }
  // The policy decides alone.
  const bool open = policy.empty() || (chmod(socket.c_str(), 0666) == 0 && chmod(directory_.c_str(), 0711) == 0);
  if (started && open) return {};
  return fail(Errc::unavailable, "unetd (" + program + ") did not start; build it, or name it in the environment variable UNETD");
}

// Its oldest child: the one that stands by was started after it.
pid_t Daemon::serving() const {
  const std::string process = std::to_string(process_);
  std::ifstream children("/proc/" + process + "/task/" + process + "/children");
  pid_t first = -1;
  return children >> first ? first : -1;
}

Daemon::~Daemon() {
  if (owner_ != getpid()) return;
  if (process_ > 0) {
    kill(process_, SIGTERM);
    const Nanoseconds patience = monotonic_now() + kDaemonStopTime;
    int status = 0;
    while (waitpid(process_, &status, WNOHANG) == 0) {
      if (monotonic_now() > patience) kill(process_, SIGKILL);
      usleep(1000);
    }
  }
  remove_directory(directory_);
}

}  // namespace unet::bench
