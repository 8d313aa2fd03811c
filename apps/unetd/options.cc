// options.cc - command line over configuration file over defaults.
#include "apps/unetd/options.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include <CLI/CLI.hpp>

#include "apps/drivers.h"
#include "apps/version_option.h"
#include "ni/service/ip_config.h"
#include "ni/service/toml_reader.h"
#include "unet/socket_path.h"

namespace unet::unetd {
namespace {

constexpr int kUsage = 2;

ParsedOptions refuse(const std::string& text) {
  std::fprintf(stderr, "unetd: %s\n", text.c_str());
  return {std::nullopt, kUsage};
}

// The command line's values, before they override the configuration file's.
struct Given {
  std::string config, socket, user, group, host, idle, policy;
  std::vector<std::string> ports, peers, ips;
  uint32_t engines = 1, takeover = 0;
  std::vector<uint32_t> cores, port_engines;
  bool no_seccomp = false, no_standby = false, inherit_policy = false;
};

// Under a supervisor the file was read by it, so that an NI that has served is restarted with the same configuration.
Status read_configuration(Options& options) {
  if (options.config_file.empty()) return {};
  if (options.config_fd < 0) return service::load_config(options.config_file, options.config);
  const Result<std::string> text = service::read_text(options.config_fd, options.config_file);
  close(options.config_fd);
  if (!text) return tl::unexpected(text.error());
  return service::parse_config(*text, options.config_file, options.config);
}

Status apply(const CLI::App& app, const Given& given, Options& options) {
  service::Config& config = options.config;
  options.config_file = given.config;
  if (Status status = read_configuration(options); !status) return status;
  service::NiOptions& ni = config.ni;
  if (!given.socket.empty()) ni.socket = given.socket;
  if (!given.group.empty()) ni.group = given.group;
  if (!given.host.empty()) ni.service.host = given.host;
  if (!given.policy.empty()) config.policy_file = given.policy;
  if (!given.ports.empty()) config.ports = given.ports;
  if (app.count("--engines") != 0) ni.engines = given.engines;
  if (app.count("--core") != 0) ni.cores = given.cores;
  if (app.count("--port-engines") != 0) ni.port_engines = given.port_engines;
  if (!given.idle.empty()) {
    const Result<service::Idle> idle = service::parse_idle(given.idle);
    if (!idle) return fail(idle.error().code, "--idle: " + idle.error().text);
    ni.idle = *idle;
  }
  for (const std::string& text : given.ips) {
    Result<engine::IpInterfaceOptions> ip = service::parse_ip_port(text);
    if (!ip) return tl::unexpected(ip.error());
    ni.engine.ip.ports.push_back(std::move(*ip));
  }
  for (const std::string& text : given.peers) {
    Result<service::StaticPeer> peer = service::parse_peer(text);
    if (!peer) return tl::unexpected(peer.error());
    ni.service.peers.push_back(std::move(*peer));
  }
  if (app.count("--takeover") != 0) config.takeover = given.takeover * kSecond;
  if (options.supervisor_fd >= 0 && config.takeover == 0) {
    return fail(Errc::invalid_argument, "takeover: this network interface has a supervisor, which no upgrade ends: stop and start unetd to "
                                        "do without");
  }
  if (given.no_standby) config.standby = false;
  if (given.no_seccomp) config.seccomp = false;
  if (!given.user.empty()) config.user = given.user;
  if (!config.user.empty()) {
    Result<Account> account = find_account(config.user);
    if (!account) return fail(account.error().code, "user: " + account.error().text);
    options.account = std::move(*account);
    ni.service.own_user = options.account->user;
    ni.service.policy = service::Policy(options.account->user);
  }
  ni.service.inherit_policy = given.inherit_policy;
  return service::finish_config(config);
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
  Options options;
  Given given;
  CLI::App app{"unetd - the U-Net network interface of a host, shared by its processes"};
  app.add_option("--config", given.config, "configuration file (TOML); --print-config shows one");
  app.add_option("--socket", given.socket, "control socket (default: that of $UNET_NI, " + default_socket_path() + ")");
  app.add_option("--user", given.user, "become this user, without privileges, once wires and socket are open (needs root)");
  app.add_option("--group", given.group, "group that may connect, besides this user and root");
  app.add_option("--host", given.host, "name by which other hosts find this one (default: the host name)");
  app.add_option("--port", given.ports, "a wire, as a driver specification; may be given several times")->allow_extra_args(false);
  app.add_option("--ip", given.ips,
                 "PORT=ADDRESS/PREFIX[,...][,gateway=ADDRESS][,route=NETWORK/PREFIX@GATEWAY...][,dhcp][,slaac][,unprobed]:\n"
                 "IP on that wire; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--peers,--peer", given.peers, "HOST=MAC[@PORT]: address of a host, which is then not searched")->allow_extra_args(false);
  app.add_option("--idle", given.idle, "spin, adaptive or block: how an idle engine waits (default: adaptive)");
  app.add_option("--engines", given.engines,
                 "number of engine threads, each with its own ports or queues (default: 1)")
      ->check(CLI::Range(uint32_t{1}, kEnginesMax));
  app.add_option("--core", given.cores, "the core of the engine; for several engines: 1,2")
      ->delimiter(',')->allow_extra_args(false)->check(CLI::Range(0, 1023));
  app.add_option("--port-engines", given.port_engines,
                 "the engine of each port, or of its first queue: 0,0,1 (default: port p has engine p modulo engines)")
      ->delimiter(',')->allow_extra_args(false)->check(CLI::Range(uint32_t{0}, kEnginesMax - 1));
  app.add_option("--policy", given.policy, "policy file (TOML): rights and quotas of users");
  app.add_option("--takeover", given.takeover, "keep clients for SECONDS until another unetd takes over, after a crash or upgrade (0: off)")
      ->check(CLI::Range(0, 3600));
  app.add_flag("--no-standby", given.no_standby, "with --takeover: start another unetd only when it is needed, not before");
  // For the supervisor alone.
  app.add_option("--keeper-fd", options.supervisor_fd)->group("");
  app.add_option("--config-fd", options.config_fd)->group("");
  app.add_flag("--inherit-policy", given.inherit_policy)->group("");
  app.add_flag("--no-seccomp", given.no_seccomp, "do not install the system call filter");
  app.add_option("--ready-fd", options.ready_fd, "write a byte to this descriptor when clients may connect")->check(CLI::Range(0, 1 << 20));
  app.add_option("--log", options.log, "trace, debug, info, warning, error or off (default: info)")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}));
  app.add_flag("--check", options.check, "only check configuration and policy");
  app.add_flag("--print-config", options.print_config, "print an annotated configuration file");
  apps::add_version(app, "unetd");
  app.footer("\nDriver specifications. " + apps::driver_help());
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return {std::nullopt, app.exit(help)};
  } catch (const CLI::ParseError& error) {
    return refuse(std::string(error.what()) + " (unetd --help lists the options)");
  }
  options.config = service::default_config();
  options.config.ni.socket = default_socket_path();
  if (options.print_config) return {options, 0};
  if (Status status = apply(app, given, options); !status) return refuse(status.error().text);
  if (options.supervisor_fd < 0 && options.ready_fd >= 0 && fcntl(options.ready_fd, F_GETFD) < 0) {
    return refuse("--ready-fd " + std::to_string(options.ready_fd) + " is not an open descriptor");
  }
  return {options, 0};
}

}  // namespace unet::unetd
