// main.cc - unet-agent: starts tasks on this host for launchers on others (unet-run --hosts), as far as its policy permits.
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <CLI/CLI.hpp>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "apps/descendants.h"
#include "apps/standard_descriptors.h"
#include "apps/unet-agent/site.h"
#include "apps/version_option.h"

namespace unet::agent {
namespace {

constexpr int kFailure = 1, kUsage = 2;

int refuse(const Error& error, int status) {
  std::fprintf(stderr, "unet-agent: %s\n", error.text.c_str());
  return status;
}

int serve(SiteOptions options, int ready_fd) {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, each);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const Descriptor stop(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  Result<std::unique_ptr<AgentSite>> site = AgentSite::create(std::move(options));
  if (!site) return refuse(site.error(), kFailure);
  std::puts("unet-agent ready");
  std::fflush(stdout);
  if (ready_fd >= 0) {
    static_cast<void>(!write(ready_fd, "\n", 1));
    close(ready_fd);
  }
  const Status served = (*site)->run(stop.get());
  site->reset();  // the runners see the end of their sockets, and end their tasks
  if (!served) return refuse(served.error(), kFailure);
  return 0;
}

}  // namespace
}  // namespace unet::agent

int main(int argc, char** argv) {
  using namespace unet;
  apps::hold_standard_descriptors();
  std::string policy_file, log = "info";
  agent::SiteOptions options;
  const char* const ni = std::getenv("UNET_NI");
  const char* const directory = std::getenv("TMPDIR");
  options.ni = ni == nullptr ? "" : ni;
  options.directory = directory == nullptr || *directory == '\0' ? "/tmp" : directory;
  int ready_fd = -1;
  bool check = false;
  CLI::App app{"unet-agent - starts tasks on this host for unet-run --hosts on others"};
  app.add_option("--policy", policy_file, "file with the rights of callers (TOML); without one, no caller has any");
  app.add_option("--ni", options.ni, "the network interface, as in UNET_NI (default: $UNET_NI, else that of this host)");
  app.add_option("--dir", options.directory, "directory for the private directories of jobs (default: $TMPDIR or /tmp)");
  app.add_option("--ready-fd", ready_fd, "write a byte to this open descriptor when callers may come");
  app.add_option("--log", log, "trace, debug, info, warning, error or off (default: info)");
  app.add_flag("--check", check, "only check the policy");
  apps::add_version(app, "unet-agent");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return agent::refuse({Errc::invalid_argument, error.what() + std::string(" (unet-agent --help lists the options)")}, agent::kUsage);
  }
  auto logger = spdlog::stderr_color_mt("unet-agent");
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e unet-agent %^%l%$ %v");
  logger->set_level(spdlog::level::from_str(log));
  spdlog::set_default_logger(logger);
  if (!policy_file.empty()) {
    Result<agent::Policy> policy = agent::Policy::load(policy_file);
    if (!policy) return agent::refuse(policy.error(), agent::kUsage);
    options.policy = std::move(*policy);
  }
  if (check) {
    std::puts("the policy is right");
    return 0;
  }
  return agent::serve(std::move(options), ready_fd);
}
