// options.cc - parses our options, up to the first -- or the first word that is no option; the rest belongs to the program.
#include "apps/unet-run/options.h"

#include <sched.h>

#include <charconv>
#include <cstdio>
#include <map>
#include <utility>

#include <CLI/CLI.hpp>

#include "apps/program_words.h"
#include "apps/version_option.h"
#include "ni/service/names.h"

namespace unet::run {
namespace {

constexpr int kUsage = 2;
constexpr uint32_t kSizeMax = 1024;
constexpr uint32_t kCoreMax = 1023;
constexpr const char* kSeeHelp = " (unet-run --help lists the options)";

ParsedOptions refuse(const std::string& text) {
  std::fprintf(stderr, "unet-run: %s\n", text.c_str());
  return {std::nullopt, kUsage};
}

std::optional<uint32_t> parse_core(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > kCoreMax) return std::nullopt;
  return value;
}

std::optional<uint32_t> parse_size(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kSizeMax) return std::nullopt;
  return value;
}

// Checks that processes can run on each core.
Status check_cores(const std::vector<uint32_t>& cores) {
  cpu_set_t ours;
  if (sched_getaffinity(0, sizeof ours, &ours) != 0) return {};  // the machine has more cores than the set has room for
  for (const uint32_t core : cores) {
    if (CPU_ISSET(core, &ours)) continue;
    std::string all;
    for (uint32_t each = 0; each < CPU_SETSIZE; ++each) {
      if (CPU_ISSET(each, &ours)) all += (all.empty() ? "" : " ") + std::to_string(each);
    }
    return fail(Errc::invalid_argument, "--cores: there is no core " + std::to_string(core) + " for unet-run, which may use " +
                                            std::to_string(CPU_COUNT(&ours)) + ": " + all);
  }
  return {};
}

// Parses a list: "0,2-4" is 0 2 3 4.
Result<std::vector<uint32_t>> parse_cores(std::string_view text) {
  std::vector<uint32_t> cores;
  const std::string whole(text);
  for (;;) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t dash = part.find('-');
    const std::optional<uint32_t> first = parse_core(part.substr(0, dash));
    const std::optional<uint32_t> last = dash == std::string_view::npos ? first : parse_core(part.substr(dash + 1));
    if (!first || !last || *last < *first) {
      return fail(Errc::invalid_argument, "--cores " + service::in_quotes(whole) + ": write numbers from 0 to " +
                                              std::to_string(kCoreMax) + " and ranges, like 0,2-4");
    }
    for (uint32_t core = *first; core <= *last; ++core) cores.push_back(core);
    if (comma == std::string_view::npos) return cores;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

void add_remote(CLI::App& app, RemoteOptions& remote) {
  app.add_option("--hosts", remote.hosts, "start the processes on the hosts in this file, through the unet-agent of each");
  const std::map<std::string, rpc::StartWay> ways{
      {"tree", rpc::StartWay::tree}, {"flat", rpc::StartWay::flat}, {"flat-threads", rpc::StartWay::flat_threads}};
  app.add_option("--start", remote.way, "tree, flat-threads or flat: how hosts are reached (default: tree)")
      ->transform(CLI::CheckedTransformer(ways).description(""));
  app.add_option("--arity", remote.arity, "children of a host in the tree, 1 to 16 (default: 4)")->check(CLI::Range(1, 16).description(""));
  app.add_option("--file", remote.files, "a file to bring along, into the private directory of the job")->allow_extra_args(false);
  app.add_option("--env", remote.environment, "a variable for the processes: NAME or NAME=VALUE")->allow_extra_args(false);
  app.add_option("--dir", remote.directory, "directory of the processes (default: the private one of the job)");
  app.add_flag("--in-place", remote.in_place, "the program is on each host already, even if its name contains a /");
  app.add_option("--secret", remote.secret, "file with the secret that the agents want to hear");
  app.add_option("--ni", remote.ni, "the network interface to reach the hosts by (default: that of UNET_NI or of this host)");
  app.add_flag("--time", remote.time, "print how long it took until all processes ran");
}

ParsedOptions parse_options(int argc, char** argv) {
  Options options;
  std::string size, cores, idle, host;
  std::vector<std::string> ports, peers;
  CLI::App app{"unet-run - starts a private network interface and N processes that use it, each with UNET_NI, UNET_RANK and UNET_SIZE"};
  app.add_option("-n,--size", size, "number of processes, 1 to 1024 (default: 1; with --hosts: as in the file)")->type_name("UINT");
  app.add_option("--port", ports, "a wire for the network interface, as a driver specification")->allow_extra_args(false);
  app.add_option("--peers,--peer", peers, "HOST=MAC[@PORT]: address of a host, which is then not searched")->allow_extra_args(false);
  app.add_option("--host", host, "name by which other hosts find the network interface");
  app.add_option("--idle", idle, "spin, adaptive or block: how an idle engine waits (default: adaptive)");
  app.add_option("--cores", cores, "cores of the processes, in order of rank and again from the front: 0,2-4");
  app.add_option("--simulate", options.simulate,
                 "run a Split-C program's N ranks in virtual time on a machine: cm-5, now, 100g ...; a wrong name lists all");
  app.add_flag("--label", options.label, "print each line of output behind its process's rank");
  add_remote(app, options.remote);
  apps::add_version(app, "unet-run");
  app.prefix_command();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    app.add_option("program", options.program, "the program and its arguments, after --")->required();
    return {std::nullopt, app.exit(help)};
  } catch (const CLI::ParseError& error) {
    return refuse(error.what() + std::string(kSeeHelp));
  }
  auto program = apps::program_words(app.remaining());
  if (!program) return refuse(program.error().text + kSeeHelp);
  options.program = std::move(*program);
  const bool remote = !options.remote.hosts.empty();
  const std::optional<uint32_t> processes = size.empty() ? (remote ? 0u : 1u) : parse_size(size);
  if (!processes) return refuse("-n " + service::in_quotes(size) + ": write a number of processes from 1 to " + std::to_string(kSizeMax));
  options.size = *processes;
  if (remote && !options.simulate.empty()) return refuse("--simulate needs no --hosts: one process simulates all");
  if (remote) return {options, 0};
  if (!options.simulate.empty()) {
    const bool alone = ports.empty() && peers.empty() && host.empty() && idle.empty() && cores.empty() && !options.label;
    if (!alone) return refuse("--simulate goes only with -n: there is one process, and no network interface");
    return {options, 0};
  }
  options.config = service::default_config();
  options.config.ports = ports;
  if (!host.empty()) options.config.ni.service.host = host;
  if (!idle.empty()) {
    const Result<service::Idle> parsed = service::parse_idle(idle);
    if (!parsed) return refuse("--idle: " + parsed.error().text);
    options.config.ni.idle = *parsed;
  }
  if (!cores.empty()) {
    Result<std::vector<uint32_t>> list = parse_cores(cores);
    if (!list) return refuse(list.error().text);
    if (const Status status = check_cores(*list); !status) return refuse(status.error().text);
    options.cores = std::move(*list);
  }
  for (const std::string& text : peers) {
    Result<service::StaticPeer> peer = service::parse_peer(text);
    if (!peer) return refuse(peer.error().text);
    options.config.ni.service.peers.push_back(std::move(*peer));
  }
  if (Status status = service::finish_config(options.config); !status) return refuse(status.error().text);
  return {options, 0};
}

}  // namespace unet::run
