// options.cc - each command with its own options and help.
#include "apps/unetctl/options.h"

#include <cstdio>
#include <map>

#include <CLI/CLI.hpp>

#include "apps/unetctl/views.h"
#include "apps/version_option.h"
#include "unet/socket_path.h"

namespace unet::unetctl {
namespace {

constexpr int kUsage = 2;
constexpr uint32_t kCountMax = 1'000'000'000;

// Option values as words, before they are converted.
struct Given {
  std::string sort = "messages";
  std::string driver = "vfio";
};

Sort parse_sort(const std::string& word) {
  if (word == "bytes") return Sort::bytes;
  if (word == "drops") return Sort::drops;
  return word == "name" ? Sort::name : Sort::messages;
}

HandOver parse_driver(const std::string& word) {
  if (word == "noiommu") return HandOver::noiommu;
  return word == "uio" ? HandOver::uio : HandOver::vfio;
}

const std::map<std::string, std::string>& view_texts() {
  static const std::map<std::string, std::string> texts{
      {"endpoints", "the endpoints: process, queues and memory"},
      {"channels", "the channels: ends, path and state"},
      {"names", "the names that endpoints are bound to"},
      {"counters", "the counters that are not zero"},
      {"drops", "the drops by reason, without zeros"},
      {"clients", "the connected processes"},
      {"users", "the resources, weight and limits of each user"},
      {"held", "the objects that engine and service hold for clients, without zeros"},
      {"ports", "the wires"},
      {"hosts", "the known hosts"},
      {"all", "all of these"},
  };
  return texts;
}

void add_views(CLI::App& app, Options& options) {
  std::vector<std::string> views = view_names();
  views.emplace_back("all");
  for (const std::string& view : views) {
    CLI::App* command = app.add_subcommand(view, view_texts().at(view))->group("Commands that show");
    command->add_flag("--json", options.as_json, "print JSON");
    command->add_option("--watch", options.watch, "repeat after so many seconds")->check(CLI::Range(0.1, 3600.0));
    command->callback([&options, view] { options.view = view; });
  }
}

void add_top(CLI::App& app, Given& given, Options& options) {
  CLI::App* top = app.add_subcommand("top", "live: the programs and endpoints with most traffic, engines, ports, and drops by name")
                      ->group("Commands that show");
  top->add_option("--interval", options.top.interval, "seconds between two reports (default: 1)")
      ->check(CLI::Range(kIntervalMin, kIntervalMax));
  top->add_option("--sort", given.sort, "sort by messages, bytes, drops or name (default: messages)")
      ->check(CLI::IsMember({"messages", "bytes", "drops", "name"}));
  top->add_option("--count", options.top.count, "print so many plain tables, one per interval, and exit")->check(CLI::Range(1u, kCountMax));
  top->footer("Rates are per second. Only the picture on a terminal has the messages of local channels.\n"
              "The receivers count these messages; the NI does not verify the numbers.\n"
              "On a terminal the picture is drawn in place, by program or (key p) by endpoint, with the last intervals of each and\n"
              "short numbers (k, M, G). Its second line names the keys. Elsewhere plain tables follow one another.");
  top->callback([&options] { options.command = Options::Command::top; });
}

void add_stats(CLI::App& app, Options& options) {
  CLI::App* stats = app.add_subcommand("stats", "every counter at one moment, for programs")->group("Commands that show");
  CLI::Option* json = stats->add_flag("--json", options.as_json, "print one JSON object (default)");
  CLI::Option* prometheus =
      stats->add_flag("--prometheus", options.prometheus, "print the text format of Prometheus (0.0.4)")->excludes(json);
  stats->add_flag("--openmetrics", options.openmetrics, "print OpenMetrics (1.0), with the time of each sample")
      ->excludes(json)
      ->excludes(prometheus);
  stats->footer("Zeros are included. For Prometheus, let node_exporter's textfile collector read what this prints:\n"
                "  unetctl stats --prometheus > unet.prom.new && mv unet.prom.new unet.prom\n"
                "It refuses samples with a time. Those of --openmetrics can be stored and imported later, as by promtool.\n"
                "Rules for Prometheus and a dashboard for Grafana are in share/unet/monitoring.");
  stats->callback([&options] { options.command = Options::Command::stats; });
}

void add_sockets(CLI::App& app, Options& options) {
  CLI::App* ss = app.add_subcommand("ss", "the sockets of all applications, as ss shows the kernel's")->group("Commands that show");
  SocketsOptions& o = options.sockets;
  ss->add_flag("-t,--tcp", o.tcp, "only TCP");
  ss->add_flag("-u,--udp", o.udp, "only UDP");
  CLI::Option* listening = ss->add_flag("-l,--listening", o.listening, "only sockets without a peer: listening, or unconnected");
  ss->add_flag("-a,--all", o.all, "sockets with and without a peer (default: with)")->excludes(listening);
  ss->add_flag("-i,--info", o.info, "details of each TCP connection");
  ss->add_flag("-p,--processes", o.processes, "the process of each socket");
  ss->add_flag("--stacks", o.stacks, "the counters of each application's stack, without zeros, instead of sockets");
  ss->add_flag("--json", o.as_json, "print JSON");
  ss->add_option("FILTER", o.filter, "conditions that must all hold, see below");
  ss->footer("FILTER: state NAME    established, syn-sent, syn-recv, fin-wait-1, fin-wait-2, time-wait, closed, close-wait, last-ack,\n"
             "                      listening, closing, connected, all; several: any of them\n"
             "        sport = :80   dport != :443      the port of this side or of the other; = != < > <= >= or eq ne lt gt le ge\n"
             "        src 10.0.0.1  dst fd00::1        addresses\n"
             "        pid 4711\n"
             "Shows your own applications' sockets; root and the owner see all. Each application is asked for its current numbers.\n"
             "One that makes no call does not answer: its old numbers are shown with their age. They are not verified.\n"
             "  unetctl ss -tlp            unetctl ss -ti state established dport = :443");
  ss->callback([&options] { options.command = Options::Command::sockets; });
}

void add_doctor(CLI::App& app, Options& options) {
  CLI::App* doctor = app.add_subcommand("doctor", "what this machine lacks or slows down, and what mends it")->group("Commands that show");
  doctor->add_flag("--json", options.as_json, "print JSON");
  doctor->footer("Run it as the user of unetd, or as root. Not every check matters for every use: an application without a PCI\n"
                 "device needs no vfio, and only polling processes need cores of their own. The exit status is 0.");
  doctor->callback([&options] { options.command = Options::Command::doctor; });
}

void add_nic(CLI::App& app, Given& given, Options& options) {
  CLI::App* nic = app.add_subcommand("nic", "network cards on the PCI bus: list, take, give")
                      ->group("Commands that change (root and the owner)");
  nic->require_subcommand(1);
  CLI::App* list = nic->add_subcommand("list", "the cards: driver, IOMMU, NUMA node, interface, link, queues, offloads, process");
  list->add_flag("--json", options.as_json, "print JSON");
  list->footer("The kernel knows link, queues and offloads only while its own driver has the card. Then: unetctl ports");
  list->callback([&options] { options.command = Options::Command::nic_list; });
  CLI::App* take = nic->add_subcommand("take", "take a card from the kernel, for a unetd: unetd --port dpdk:ADDRESS");
  take->add_option("CARD", options.nic.card, "its PCI address, or its interface")->required();
  take->add_option("--driver", given.driver, "vfio: with an IOMMU (default); noiommu: VFIO without one; uio: uio_pci_generic")
      ->check(CLI::IsMember({"vfio", "noiommu", "uio"}));
  take->footer("Without an IOMMU the card can write to all memory, and unetd needs root and hugepages.\n"
               "  unetctl nic take eth1 && unetd --port dpdk:0000:03:00.0");
  take->callback([&options] { options.command = Options::Command::nic_take; });
  CLI::App* give = nic->add_subcommand("give", "give a card back to the kernel, also after a crash of its unetd");
  give->add_option("CARD", options.nic.card, "its PCI address")->required();
  give->callback([&options] { options.command = Options::Command::nic_give; });
}

void add_policy(CLI::App& app, Options& options) {
  CLI::App* policy = app.add_subcommand("policy", "rights and quotas of users: reload")->group("Commands that change (root and the owner)");
  policy->require_subcommand(1);
  CLI::App* reload = policy->add_subcommand("reload", "the network interface reads its policy file again, as after SIGHUP");
  reload->footer("Existing objects stay, even if the new policy does not allow them. New requests are under the new policy.\n"
                 "If the file has an error, the old policy stays, and the error and its line are printed.\n"
                 "A policy that shuts out all users shuts out this command, too: then send SIGHUP.");
  reload->callback([&options] { options.command = Options::Command::policy_reload; });
}

void add_drain(CLI::App& app, Options& options) {
  CLI::App* drain = app.add_subcommand("drain", "take no new endpoints, names and channels; existing ones go on")
                        ->group("Commands that change (root and the owner)");
  CLI::Option* undo = drain->add_flag("--undo", options.drain.undo, "take new endpoints, names and channels again");
  CLI::Option* wait = drain->add_flag("--wait", options.drain.wait, "return when no endpoint is left")->excludes(undo);
  drain->add_option("--timeout", options.drain.timeout, "time limit in seconds; then the command fails, and draining goes on")
      ->check(CLI::Range(0.1, 1e6))
      ->needs(wait);
  drain->footer("Before a restart without takeover: unetctl drain --wait && systemctl restart unetd\n"
                "Programs that request more meanwhile get the error that the network interface is being drained.");
  drain->callback([&options] { options.command = Options::Command::drain; });
}

void add_capture(CLI::App& app, Options& options) {
  CLI::App* capture = app.add_subcommand("capture", "capture frames of the network interface: start, stop, list")
                          ->group("Commands that show");
  capture->require_subcommand(1);
  CaptureOptions& o = options.capture;
  CLI::App* start = capture->add_subcommand("start", "write frames to a pcapng file until Ctrl-C");
  start->add_option("-w,--write", o.file, "the file; - for standard output")->required();
  start->add_option("--port", o.port, "only frames of this wire (unetctl ports)");
  CLI::Option* endpoint = start->add_option("--endpoint", o.endpoint, "only frames of this endpoint (unetctl endpoints)");
  start->add_option("--channel", o.channel, "only frames of this channel of the endpoint (unetctl channels)")->needs(endpoint);
  start->add_option("--filter", o.filter, "only frames that match this expression (man pcap-filter)");
  start->add_option("--snap", o.snap_length, "bytes stored of each frame (default: all)")->check(CLI::Range(14u, 65535u));
  start->add_option("--seconds", o.seconds, "end after so many seconds")->check(CLI::Range(0.01, 1e9));
  start->add_option("--count", o.count, "end after so many frames");
  start->add_option("--limit", o.limit, "end before the file exceeds so many bytes");
  start->add_option("--buffer", o.buffer, "buffer in bytes for frames not written yet, a power of two (default: 4194304)");
  start->footer("Captures frames on wires, not messages between endpoints of one network interface.\n"
                "Root and the owner may capture everything, others their own endpoints. Without a capture, frames cost nothing extra.\n"
                "A slow or full disk makes the capture lose frames, which are counted; it never delays the network interface.\n"
                "  unetctl capture start -w out.pcapng --port 0      then: tcpdump -r out.pcapng\n"
                "  unetctl capture start -w - | wireshark -k -X lua_script:tools/wireshark/unet.lua -i -");
  start->callback([&options] { options.command = Options::Command::capture_start; });
  CLI::App* stop = capture->add_subcommand("stop", "end a capture, also one started in another terminal");
  stop->add_option("NUMBER", options.capture_number, "its number (unetctl capture list)")->required();
  stop->callback([&options] { options.command = Options::Command::capture_stop; });
  CLI::App* list = capture->add_subcommand("list", "the running captures");
  list->add_flag("--json", options.as_json, "print JSON");
  list->callback([&options] { options.view = "captures"; });
}

void add_upgrade(CLI::App& app, Options& options) {
  CLI::App* upgrade = app.add_subcommand("upgrade", "a new unetd takes over endpoints and channels; applications see only a pause")
                          ->group("Commands that change (root and the owner)");
  upgrade->add_option("--binary", options.program, "the unetd to start (default: the file now at the old one's path)")
      ->check(CLI::ExistingFile);
  upgrade->footer("For network interfaces started with --takeover. Local channels do not pause; channels to other hosts go on if\n"
                  "their wire returns with its address and MTU. Returns when the new network interface serves. If it cannot,\n"
                  "the old one goes on, and the reason is printed.");
  upgrade->callback([&options] { options.command = Options::Command::upgrade; });
}

ParsedOptions refuse(const std::string& text) {
  std::fprintf(stderr, "unetctl: %s\n", text.c_str());
  return {std::nullopt, kUsage};
}

std::string command_list(const CLI::App& app) {
  std::string list;
  for (const CLI::App* command : app.get_subcommands({})) list += (list.empty() ? "" : ", ") + command->get_name();
  return list;
}

// Names the --help that explains the failed command.
std::string help_of(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return "unetctl " + (chosen.empty() ? "" : chosen.front()->get_name() + " ") + "--help";
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
  Options options;
  Given given;
  options.socket = default_socket_path();
  CLI::App app{"unetctl - shows the state of a U-Net network interface (your own objects; root and its owner see all), and controls it"};
  app.require_subcommand(0, 1);
  app.fallthrough();
  app.add_option("--ni,--socket", options.socket, "the network interface: unix:PATH, or PATH (default: $UNET_NI, " + options.socket + ")");
  apps::add_version(app, "unetctl");
  app.footer("unetctl COMMAND --help describes one command. Start with: unetctl all");
  add_views(app, options);
  add_top(app, given, options);
  add_stats(app, options);
  add_sockets(app, options);
  add_doctor(app, options);
  add_capture(app, options);
  add_nic(app, given, options);
  add_policy(app, options);
  add_drain(app, options);
  add_upgrade(app, options);
  app.set_help_all_flag("--help-all", "print the help of every command");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return {std::nullopt, app.exit(help)};
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> extra = app.remaining();
    if (app.get_subcommands().empty() && !extra.empty() && extra.front().rfind('-', 0) != 0) {
      return refuse("there is no command '" + extra.front() + "'; there are " + command_list(app));
    }
    return refuse(std::string(error.what()) + " (" + help_of(app) + " lists what there is)");
  }
  if (app.get_subcommands().empty()) return refuse("a command is required: " + command_list(app) + " (unetctl --help describes them)");
  options.top.sort = parse_sort(given.sort);
  options.nic.how = parse_driver(given.driver);
  const std::optional<std::string> socket = socket_path_of(options.socket);
  if (!socket) return refuse("--ni " + options.socket + ": an embedded network interface has no socket; name that of a unetd, unix:PATH");
  options.socket = *socket;
  return {options, 0};
}

}  // namespace unet::unetctl
