// main.cc - unetd: the NI as a daemon. Wires options, drivers and Ni together, and drops privileges that it no longer needs; signals end
// it, or reload its policy.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "apps/drivers.h"
#include "apps/open_ports.h"
#include "apps/standard_descriptors.h"
#include "apps/unetd/journal_sink.h"
#include "apps/unetd/supervisor.h"
#include "apps/unetd/notify.h"
#include "apps/unetd/options.h"
#include "apps/unetd/privileges.h"
#include "apps/unetd/syscall_filter.h"
#include "ni/service/ip_config.h"
#include "ni/service/journal.h"
#include "ni/service/log.h"
#include "ni/service/ni.h"
#include "unet/base/time.h"
#include "unet/base/trust.h"
#include "unet/socket_path.h"
#include "unet/version.h"

namespace unet::unetd {
namespace {

constexpr int kFailure = 1;

service::Ni* running = nullptr;  // for the signal handler only

void on_signal(int signal) {
  if (signal == SIGHUP) running->request_policy_reload();
  else running->request_stop();
}

void set_up_log(const Options& options) {
  const service::NiOptions& ni = options.config.ni;
  std::shared_ptr<spdlog::logger> logger;
  if (logs_to_journal()) {
    const auto sink = journal_sink(kJournalSocket,
                                   {{"SYSLOG_IDENTIFIER", "unetd"}, {"UNET_HOST", ni.service.host}, {"UNET_SOCKET", ni.socket}});
    if (sink != nullptr) logger = std::make_shared<spdlog::logger>("unetd", sink);
  }
  if (logger == nullptr) logger = spdlog::stderr_color_mt("unetd");
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e unetd %^%l%$ %v");
  logger->set_level(spdlog::level::from_str(options.log));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a client's request for more memory than ulimit -f allows gets an error
}

int refuse(const Error& error) {
  service::log::error("{}", error.text);
  return kFailure;
}

// Called when everything that needs privileges is open, and before a client is served.
Status give_up_rights(const Options& options) {
  const service::Config& config = options.config;
  if (options.account) {
    if (Status status = become(*options.account); !status) return status;
    service::log::info("user {} (uid {}), without capabilities but CAP_LINUX_IMMUTABLE", options.account->name, options.account->user);
    for (const std::string& port : config.ports) {
      if (port.find("net_af_xdp") == std::string::npos) continue;
      service::log::info("port {}: user {} may not take the XDP program off the interface at the end; it passes all traffic then, and "
                         "`ip link set INTERFACE xdp off` removes it", port, options.account->name);
    }
  }
  if (!config.seccomp) return {};
  if (!syscall_filter_available()) {
    service::log::info("system calls are not filtered: this unetd was built with a sanitizer");
    return {};
  }
  return install_syscall_filter(config.ports);
}

Descriptor supervisor_link(const Options& options) {
  fcntl(options.supervisor_fd, F_SETFD, FD_CLOEXEC);
  return Descriptor(options.supervisor_fd);
}

// The policy may have changed while this process loaded.
void renew_policy(service::ServiceOptions& service) {
  if (service.policy_file.empty() || service.inherit_policy) return;
  Result<service::Policy> policy = service::Policy::load(service.policy_file, service.own_user);
  if (policy) service.policy = std::move(*policy);
  else service::log::error("the policy stays as it was: {}", policy.error().text);
}

apps::OpenedPorts open_ports_now(const service::Config& config) {
  return apps::open_ports(config.ports, service::ports_with_ip(config.ni.engine.ip.ports));
}

// A configuration that has served had its wires, so whatever blocks them may go away: waits as long as clients are kept, minus the time to
// log why there is no wire. In an upgrade the old NI waits for this one to fail. But the kernel frees an AF_XDP interface only a moment
// after the death of its process.
apps::OpenedPorts open_ports_again(const service::Config& config) {
  const bool have_served = config.ni.service.inherit_policy;
  const Nanoseconds patience = have_served ? config.takeover - config.takeover / 4 : std::min<Nanoseconds>(kSecond, config.takeover / 2);
  const auto open = [&config, supervisor = getppid()]() -> apps::OpenedPorts {
    if (getppid() != supervisor) return fail(Errc::disconnected, "the supervisor has ended");
    return open_ports_now(config);
  };
  return apps::open_when_free(open, patience, [](const Error& error) { service::log::info("not free yet, trying again: {}", error.text); });
}

int run(const Options& options) {
  service::NiOptions ni_options = options.config.ni;
  if (Status status = forbid_new_privileges(); !status) return refuse(status.error());
  if (Status status = make_socket_directory(ni_options.socket, ni_options.service.own_user); !status) return refuse(status.error());
  if (options.account) {
    const bool reads_policy = !ni_options.service.inherit_policy;
    const Status status = check_access(*options.account, ni_options.socket, reads_policy ? options.config.policy_file : "");
    if (!status) return refuse(status.error());
  }
  std::unique_ptr<service::Journal> journal;
  if (options.supervisor_fd >= 0) {
    cycles_per_second();  // this and the next are slow; no client waits before our hello
    apps::prepare_drivers(options.config.ports);
    const service::JournalOptions told{.user = ni_options.service.own_user, .listening_at = ni_options.socket};
    Result<std::unique_ptr<service::Journal>> opened = service::Journal::open(supervisor_link(options), told);
    if (!opened) return refuse(opened.error());
    journal = std::move(*opened);
    prctl(PR_SET_NAME, "unetd-standby");
    if (Status status = journal->inherit(); !status) return refuse(status.error());
    prctl(PR_SET_NAME, "unetd");
    if (journal->resumes()) renew_policy(ni_options.service);
  }
  const bool again = journal != nullptr && journal->resumes();
  auto drivers = again ? open_ports_again(options.config) : open_ports_now(options.config);
  if (!drivers) return refuse(drivers.error());
  for (const auto& driver : *drivers) service::log::info("port: {}", driver->description());
  Result<std::unique_ptr<service::Ni>> ni = service::Ni::create(ni_options, std::move(*drivers), std::move(journal));
  if (!ni) return refuse(ni.error());
  if (Status status = give_up_rights(options); !status) return refuse(status.error());
  running = ni->get();
  catch_signals();
  if (!kChecked) service::log::warn("built with -Dtrust=unchecked: it believes whatever clients write, and is there to be measured only");
  service::log::info("host {} at {}", ni_options.service.host, ni_options.socket);
  if (options.supervisor_fd < 0) announce_ready(ni_options.socket, options.ready_fd);  // else the supervisor does
  const Status status = (*ni)->run();
  if (options.supervisor_fd < 0) notify_manager("STOPPING=1");
  for (const int each : {SIGINT, SIGTERM, SIGHUP}) signal(each, SIG_IGN);  // the handler's Ni is about to be destroyed
  if (!status) return refuse(status.error());
  service::log::info("stopped");
  return 0;
}

}  // namespace
}  // namespace unet::unetd

int main(int argc, char** argv) {
  using namespace unet::unetd;
  unet::apps::hold_standard_descriptors();
  const ParsedOptions parsed = parse_options(argc, argv);
  if (!parsed.options) return parsed.status;
  if (parsed.options->print_config) {
    std::fputs(std::string(unet::service::example_config()).c_str(), stdout);
    return 0;
  }
  if (parsed.options->check) {
    std::puts("the configuration is right");
    return 0;
  }
  set_up_log(*parsed.options);
  raise_descriptor_limit();
  const bool keeps = parsed.options->config.takeover != 0 && parsed.options->supervisor_fd < 0;
  return keeps ? run_supervisor(*parsed.options, {argv, argv + argc}) : run(*parsed.options);
}
