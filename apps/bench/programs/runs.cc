// runs.cc - command lines of iperf3, sockperf, redis, nginx with wrk and PostgreSQL, each in the setting that is best for it.
#include "apps/bench/programs/runs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>

#include "apps/bench/machine/child.h"
#include "apps/bench/machine/command.h"
#include "apps/bench/machine/cpu_time.h"
#include "apps/bench/machine/other_user.h"
#include "apps/bench/programs/output.h"

namespace unet::bench {

namespace {

using RunFigures = std::vector<ProgramFigure>;
using CommandLine = std::vector<std::string>;

constexpr Nanoseconds kProgramPatience = 20 * kSecond;  // beyond what it should take
constexpr uint32_t kIdleSeconds = 2;
constexpr useconds_t kSettleUs = 500'000, kLookUs = 2000;
constexpr uint32_t kRedisFirst = 3'000, kRedisMost = 20'000'000;  // requests of each kind
constexpr uint32_t kPageBytes = 1024;

struct Measured {
  std::string said;
  double client_ns = 0, server_ns = 0, services_ns = 0;  // processor time while the client ran, or asked
};

// Words that a client prints when its requests begin, and when they end.
struct BusyWords {
  const char *begin, *end;
};

struct Used {
  Nanoseconds client = 0, server = 0, services = 0;
};

// `clients`: none before it has started, and none when it has ended.
Result<Used> used_so_far(const std::vector<int>& clients, const std::vector<int>& servers, const std::vector<int>& services) {
  auto client = cpu_time_of(clients), server = cpu_time_of(servers), service = cpu_time_of(services);
  if (!client) return tl::unexpected(client.error());
  if (!server || !service) return tl::unexpected((server ? service : server).error());
  return Used{*client, *server, *service};
}

// Server processes of one client end soon after it. Their time is then counted with their parent.
void await_ended_children(const Child& server, size_t before) {
  for (const Nanoseconds until = monotonic_now() + kSecond; server.processes().size() > before && monotonic_now() < until;) usleep(kLookUs);
}

// Runs a client and measures the processor time of all processes from its start to its end. With `asks` only while it sends requests:
// polling processes use time before and after that, too.
Result<Measured> measure(const ProgramSetting& setting, const Child& server, const CommandLine& command,
                         const std::optional<BusyWords>& asks = std::nullopt) {
  const std::vector<int> servers = server.processes();
  const auto& services = setting.place.services;
  const Nanoseconds patience = kProgramPatience + 4 * setting.seconds * kSecond;
  auto before = used_so_far({}, servers, services);
  auto client = Child::start(command, setting.place.client);
  if (!client) return tl::unexpected(client.error());
  Result<Used> after = Used{};
  if (asks) {
    if (auto begun = client->await(asks->begin, patience); !begun) return tl::unexpected(begun.error());
    before = used_so_far(client->processes(), servers, services);
    if (auto ended = client->await(asks->end, patience); !ended) return tl::unexpected(ended.error());
    after = used_so_far(client->processes(), servers, services);
  }
  auto end = client->finish(patience);
  if (!end) return tl::unexpected(end.error());
  if (!asks) {
    await_ended_children(server, servers.size());
    after = used_so_far({}, servers, services);
    if (after) after->client = end->cpu;
  }
  if (!before || !after) return tl::unexpected((before ? after : before).error());
  return Measured{std::move(end->said), static_cast<double>(after->client - before->client),
                  static_cast<double>(after->server - before->server), static_cast<double>(after->services - before->services)};
}

// Adds processor time for each of `count` bytes, datagrams or requests: of all processes, and of the two sides.
void add_cpu(RunFigures& figures, const std::string& name, const char* unit, const Measured& measured, double count) {
  figures.push_back({name + "_cpu", unit, (measured.client_ns + measured.server_ns + measured.services_ns) / count});
  figures.push_back({name + "_cpu_client", unit, measured.client_ns / count});
  figures.push_back({name + "_cpu_server", unit, measured.server_ns / count});
}

Result<Child> start_server(const ProgramSetting& setting, const CommandLine& command, const std::string& ready) {
  auto server = Child::start(command, setting.place.server);
  if (!server) return server;
  if (auto is_ready = server->await(ready); !is_ready) return tl::unexpected(is_ready.error());
  return server;
}

// Runs a stream (0), or datagrams of this size.
Status run_iperf3(const ProgramSetting& setting, uint32_t datagram, RunFigures& figures) {
  const std::string port = std::to_string(setting.port), seconds = std::to_string(setting.seconds), bytes = std::to_string(datagram);
  auto server = start_server(setting, {"iperf3", "-s", "-p", port, "--forceflush"}, "Server listening");
  if (!server) return tl::unexpected(server.error());
  CommandLine command{"iperf3", "-c", setting.place.address, "-p", port, "-t", seconds, "-J"};
  if (datagram != 0) command.insert(command.end(), {"-u", "-b", "0", "-l", bytes});
  auto measured = measure(setting, *server, command);
  if (!measured) return tl::unexpected(measured.error());
  auto transferred = parse_iperf3(measured->said);
  if (!transferred) return tl::unexpected(transferred.error());
  if (datagram == 0) {
    figures.push_back({"iperf3-tcp", "GB/s", transferred->bytes / transferred->seconds / 1e9});
    add_cpu(figures, "iperf3-tcp", "s/GB", *measured, transferred->bytes);
    return {};
  }
  figures.push_back({"iperf3-udp-" + bytes, "msg/s", transferred->datagrams / transferred->seconds});
  add_cpu(figures, "iperf3-udp-" + bytes, "ns", *measured, transferred->datagrams);
  return {};
}

struct SockperfKind {
  bool tcp, polls;
};

// Options by which the kernel polls devices that it can poll; our sockets poll anyway.
void add_sockperf_options(CommandLine& command, SockperfKind kind, const ChildPlace& side) {
  if (kind.tcp) command.push_back("--tcp");
  if (!kind.polls) return;
  command.push_back("--nonblocked");
  if (side.wrapper.empty()) command.insert(command.end(), {"--lls", "50"});
}

Status run_sockperf(const ProgramSetting& setting, SockperfKind kind, RunFigures& figures) {
  const std::string port = std::to_string(setting.port);
  const std::string name = std::string("sockperf-") + (kind.tcp ? "tcp" : "udp") + (kind.polls ? "" : "-blocked");
  CommandLine serve{"sockperf", "server", "-i", setting.place.address, "-p", port};
  // sockperf allocates records for this rate; by itself it assumes 600,000 a second.
  CommandLine ask{"sockperf", "ping-pong", "-i", setting.place.address, "-p", port, "-m", "64", "--full-rtt", "--mps", "5000000", "-t",
              std::to_string(setting.seconds)};
  add_sockperf_options(serve, kind, setting.place.server);
  add_sockperf_options(ask, kind, setting.place.client);
  auto server = start_server(setting, serve, "to block on socket");
  if (!server) return tl::unexpected(server.error());
  // A run of three seconds spends two on starting and counting.
  auto measured = measure(setting, *server, ask, BusyWords{"Starting test", "Test end"});
  if (!measured) return tl::unexpected(measured.error());
  auto answered = parse_sockperf(measured->said);
  if (!answered) return tl::unexpected(answered.error());
  figures.push_back({name + "_p50", "ns", answered->p50});
  figures.push_back({name + "_p99", "ns", answered->p99});
  add_cpu(figures, name, "ns", *measured, answered->count);
  return {};
}

// Processor time of a server and unetd without requests.
Status measure_idle(const ProgramSetting& setting, const Child& server, const std::string& name, RunFigures& figures) {
  std::vector<int> counted = server.processes();
  counted.insert(counted.end(), setting.place.services.begin(), setting.place.services.end());
  usleep(kSettleUs);
  const Nanoseconds begin = monotonic_now();
  auto before = cpu_time_of(counted);
  if (!before) return tl::unexpected(before.error());
  sleep(kIdleSeconds);
  auto after = cpu_time_of(counted);
  if (!after) return tl::unexpected(after.error());
  figures.push_back({name, "%", 100.0 * static_cast<double>(*after - *before) / static_cast<double>(monotonic_now() - begin)});
  return {};
}

Result<Measured> ask_redis(const ProgramSetting& setting, const Child& server, const std::string& clients, uint64_t requests) {
  return measure(setting, server, {"redis-benchmark", "-h", setting.place.address, "-p", std::to_string(setting.port), "-t", "set,get",
                                   "-c", clients, "-n", std::to_string(requests), "--csv"});
}

// redis-benchmark counts requests, not seconds: a short run finds out how many fill the time.
Status run_redis_clients(const ProgramSetting& setting, const Child& server, const std::string& clients, RunFigures& figures) {
  auto first = ask_redis(setting, server, clients, kRedisFirst);
  if (!first) return tl::unexpected(first.error());
  auto pace = parse_redis_benchmark(first->said, "SET");
  if (!pace) return tl::unexpected(pace.error());
  const auto requests = static_cast<uint64_t>(std::clamp(pace->rate * setting.seconds / 2, 1.0 * kRedisFirst, 1.0 * kRedisMost));
  auto measured = ask_redis(setting, server, clients, requests);
  if (!measured) return tl::unexpected(measured.error());
  for (const auto& [command, name] : {std::pair("SET", "redis-set-"), std::pair("GET", "redis-get-")}) {
    auto answered = parse_redis_benchmark(measured->said, command);
    if (!answered) return tl::unexpected(answered.error());
    figures.push_back({name + clients, "req/s", answered->rate});
    figures.push_back({name + clients + "_p50", "ns", answered->p50});
    figures.push_back({name + clients + "_p99", "ns", answered->p99});
  }
  add_cpu(figures, "redis-" + clients, "ns", *measured, 2.0 * static_cast<double>(requests));
  return {};
}

Status run_redis(const ProgramSetting& setting, RunFigures& figures) {
  const CommandLine serve{"redis-server", "--bind", setting.place.address, "--port", std::to_string(setting.port), "--save", "",
                      "--appendonly", "no", "--protected-mode", "no", "--dir", setting.directory};
  auto server = start_server(setting, serve, "Ready to accept connections");
  if (!server) return tl::unexpected(server.error());
  if (auto done = measure_idle(setting, *server, "redis-idle", figures); !done) return done;
  for (const char* const clients : {"1", "50"}) {
    if (auto done = run_redis_clients(setting, *server, clients, figures); !done) return done;
  }
  return {};
}

// One worker, because the server has one core.
std::string nginx_configuration(const ProgramSetting& setting) {
  const std::string& d = setting.directory;
  return "daemon off; user root; worker_processes 1; pid " + d + "/nginx.pid; error_log stderr notice;\n"
         "events { worker_connections 512; }\n"
         "http { access_log off; root " + d + "; sendfile on; tcp_nopush on; keepalive_requests 1000000000; open_file_cache max=10;\n"
         "client_body_temp_path " + d + "/t1; proxy_temp_path " + d + "/t2; fastcgi_temp_path " + d + "/t3; uwsgi_temp_path " + d +
         "/t4; scgi_temp_path " + d + "/t5;\n"
         "server { listen " + setting.place.address + ":" + std::to_string(setting.port) + "; } }\n";
}

Status run_wrk(const ProgramSetting& setting, RunFigures& figures) {
  const std::string& d = setting.directory;
  std::ofstream(d + "/page") << std::string(kPageBytes, 'x');
  std::ofstream(d + "/nginx.conf") << nginx_configuration(setting);
  const CommandLine serve{path_of("nginx"), "-p", d, "-c", d + "/nginx.conf", "-e", "stderr"};
  auto server = start_server(setting, serve, "start worker process ");
  if (!server) return tl::unexpected(server.error());
  if (auto done = measure_idle(setting, *server, "nginx-idle", figures); !done) return done;
  const std::string url = "http://" + setting.place.address + ":" + std::to_string(setting.port) + "/page";
  auto measured = measure(setting, *server, {"wrk", "-t", "1", "-c", "32", "-d", std::to_string(setting.seconds) + "s", "--latency", url});
  if (!measured) return tl::unexpected(measured.error());
  auto answered = parse_wrk(measured->said);
  if (!answered) return tl::unexpected(answered.error());
  figures.push_back({"wrk", "req/s", answered->rate});
  figures.push_back({"wrk_p50", "ns", answered->p50});
  figures.push_back({"wrk_p99", "ns", answered->p99});
  add_cpu(figures, "wrk", "ns", *measured, answered->count);
  return {};
}

Status run_to_its_end(const CommandLine& command, const ChildPlace& place) {
  auto child = Child::start(command, place);
  if (!child) return tl::unexpected(child.error());
  auto end = child->finish(kProgramPatience);
  return end ? Status{} : Status(tl::unexpected(end.error()));
}

// PostgreSQL refuses to run as root.
CommandLine of_other_user(const std::string& program, const CommandLine& arguments) {
  const std::string user = std::to_string(kOtherUser);
  CommandLine command{"setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups", program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

// The database, once for all places.
Status make_cluster(const ProgramSetting& setting, const std::string& data) {
  if (access((data + "/PG_VERSION").c_str(), F_OK) == 0) return {};
  if (chmod(setting.directory.c_str(), 0711) != 0) return fail_errno("chmod(" + setting.directory + ")", errno);
  if (mkdir(data.c_str(), 0700) != 0 || chown(data.c_str(), kOtherUser, kOtherUser) != 0) return fail_errno(data, errno);
  const CommandLine arguments{"-D", data, "-U", "unet", "-A", "trust", "--no-locale", "--no-sync"};
  if (auto done = run_to_its_end(of_other_user(path_of("initdb"), arguments), {.core = setting.place.server.core}); !done) return done;
  std::ofstream(data + "/pg_hba.conf", std::ios::app) << "host all all all trust\n";
  return {};
}

// Four connections, each with a process of the server; queries of one row, which is in memory.
Status run_pgbench(const ProgramSetting& setting, RunFigures& figures) {
  const std::string data = setting.directory + "/postgres", port = std::to_string(setting.port);
  // Debian's pgbench in PATH is a script, which would be counted, too.
  const std::filesystem::path server_program = std::filesystem::canonical(path_of("postgres"));
  const std::string client_program = server_program.parent_path() / "pgbench";
  if (auto made = make_cluster(setting, data); !made) return made;
  const CommandLine serve{"-D", data, "-h", setting.place.address, "-p", port, "-k", "", "-F", "-c", "shared_buffers=64MB",
                          "-c", "autovacuum=off"};
  auto server = start_server(setting, of_other_user(server_program, serve), "ready to accept connections");
  if (!server) return tl::unexpected(server.error());
  const size_t processes = server->processes().size();
  const auto command = [&](CommandLine options) {
    options.insert(options.begin(), {client_program, "-h", setting.place.address, "-p", port, "-U", "unet"});
    options.push_back("postgres");
    return options;
  };
  if (auto done = run_to_its_end(command({"-i", "-q"}), setting.place.client); !done) return done;
  await_ended_children(*server, processes);
  auto measured = measure(setting, *server, command({"-n", "-S", "-M", "prepared", "-c", "4", "-T", std::to_string(setting.seconds)}));
  if (!measured) return tl::unexpected(measured.error());
  auto answered = parse_pgbench(measured->said);
  if (!answered) return tl::unexpected(answered.error());
  figures.push_back({"pgbench", "req/s", answered->rate});
  add_cpu(figures, "pgbench", "ns", *measured, answered->count);
  return {};
}

}  // namespace

const std::vector<BenchProgram>& bench_programs() {
  using Setting = const ProgramSetting&;
  static constexpr SockperfKind kTcp{true, true}, kUdp{false, true}, kTcpBlocked{true, false}, kUdpBlocked{false, false};
  static const std::vector<BenchProgram> programs = {
      {"iperf3-tcp", {"iperf3"}, "iperf3", false, [](Setting s, RunFigures& f) { return run_iperf3(s, 0, f); }},
      {"iperf3-udp-64", {"iperf3"}, "iperf3", false, [](Setting s, RunFigures& f) { return run_iperf3(s, 64, f); }},
      {"iperf3-udp-1472", {"iperf3"}, "iperf3", false, [](Setting s, RunFigures& f) { return run_iperf3(s, 1472, f); }},
      {"sockperf-tcp", {"sockperf"}, "sockperf", false, [](Setting s, RunFigures& f) { return run_sockperf(s, kTcp, f); }},
      {"sockperf-udp", {"sockperf"}, "sockperf", false, [](Setting s, RunFigures& f) { return run_sockperf(s, kUdp, f); }},
      {"sockperf-tcp-blocked", {"sockperf"}, "sockperf", false, [](Setting s, RunFigures& f) { return run_sockperf(s, kTcpBlocked, f); }},
      {"sockperf-udp-blocked", {"sockperf"}, "sockperf", false, [](Setting s, RunFigures& f) { return run_sockperf(s, kUdpBlocked, f); }},
      {"redis", {"redis-server", "redis-benchmark"}, "redis-server and redis-tools", false, run_redis},
      {"wrk", {"nginx", "wrk"}, "nginx-light and wrk", true, run_wrk},
      {"pgbench", {"pgbench", "postgres", "setpriv"}, "postgresql-15 and util-linux", true, run_pgbench},
  };
  return programs;
}

}  // namespace unet::bench
