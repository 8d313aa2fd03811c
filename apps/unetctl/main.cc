// main.cc - unetctl: shows the state of an NI as tables or JSON, and passes its operator's orders.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

#include "apps/standard_descriptors.h"
#include "apps/unetctl/capture.h"
#include "apps/unetctl/doctor.h"
#include "apps/unetctl/interface.h"
#include "apps/unetctl/nic.h"
#include "apps/unetctl/options.h"
#include "apps/unetctl/sockets.h"
#include "apps/unetctl/stats.h"
#include "apps/unetctl/top.h"
#include "apps/unetctl/views.h"

namespace unet::unetctl {
namespace {

constexpr int kFailure = 1;
constexpr useconds_t kDrainLookEvery = 50'000;  // microseconds

std::string render(const nlohmann::json& report, const Options& options) {
  if (options.as_json) {
    return (options.view == "all" ? report : select(report, options.view)).dump(2) + "\n";
  }
  if (options.view != "all") return show(report, options.view);
  std::string out = "host " + report.value("host", "") + (is_draining(report) ? ", being drained" : "") + "\n";
  for (const std::string& view : view_names()) out += "\n" + view + "\n" + show(report, view);
  return out;
}

Status print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return fail_errno("write(standard output)", errno);
  return {};
}

Status print_sentence(const Result<std::string>& sentence) {
  return sentence ? print(*sentence) : Status(tl::unexpected(sentence.error()));
}

Status show_views(Interface& ni, const Options& options) {
  for (;;) {
    const Result<nlohmann::json> report = ni.report();
    if (!report) return tl::unexpected(report.error());
    const std::string text = render(*report, options);
    if (options.watch > 0 && isatty(STDOUT_FILENO) != 0) std::fputs("\033[H\033[2J", stdout);
    if (Status status = print(text); !status || options.watch <= 0) return status;
    usleep(static_cast<useconds_t>(options.watch * 1e6));
  }
}

Status print_stats(Interface& ni, const Options& options) {
  const Result<nlohmann::json> report = ni.report();
  if (!report) return tl::unexpected(report.error());
  if (options.openmetrics) return print(stats_openmetrics(*report));
  return print(options.prometheus ? stats_prometheus(*report) : stats_json(*report).dump(2) + "\n");
}

Status print_sockets(const Options& options) {
  const Result<SocketFilter> filter = SocketFilter::parse(options.sockets);
  if (!filter) return tl::unexpected(filter.error());
  const Result<SocketList> list = list_sockets(options.socket);
  if (!list) return tl::unexpected(list.error());
  return print(show_sockets(*list, *filter, options.sockets));
}

Status look(const Options& options) {
  Result<Interface> ni = Interface::open(options.socket);
  if (!ni) return tl::unexpected(ni.error());
  if (options.command == Options::Command::top) return top(*ni, options.top);
  if (options.command == Options::Command::stats) return print_stats(*ni, options);
  return show_views(*ni, options);
}

std::string endpoints_left(const nlohmann::json& report) {
  const size_t left = report.at("endpoints").size();
  return left == 1 ? "1 endpoint is left" : std::to_string(left) + " endpoints are left";
}

Status drain_and_wait(const Options& options) {
  using Time = std::chrono::steady_clock;
  const auto begin = Time::now();
  if (Status status = drain(options.socket, !options.drain.undo); !status) return status;
  if (options.drain.undo) return print("new endpoints, names and channels are taken again\n");
  Result<Interface> ni = Interface::open(options.socket);
  if (!ni) return tl::unexpected(ni.error());
  for (;;) {
    const Result<nlohmann::json> report = ni->report();
    if (!report) return tl::unexpected(report.error());
    if (report->at("endpoints").empty()) return print("drained: no endpoint is left\n");
    if (!options.drain.wait) return print("draining: " + endpoints_left(*report) + "\n");
    if (options.drain.timeout > 0 && Time::now() - begin > std::chrono::duration<double>(options.drain.timeout)) {
      return fail(Errc::timed_out, "not drained in time: " + endpoints_left(*report) + " (unetctl endpoints shows their processes)");
    }
    usleep(kDrainLookEvery);
  }
}

Status run(const Options& options) {
  switch (options.command) {
    case Options::Command::show:
    case Options::Command::top:
    case Options::Command::stats:
      return look(options);
    case Options::Command::sockets:
      return print_sockets(options);
    case Options::Command::doctor:
      return print(show_findings(examine({.socket = options.socket}), options.as_json));
    case Options::Command::policy_reload:
      if (Status status = reload_policy(options.socket); !status) return status;
      return print("the policy was read again\n");
    case Options::Command::capture_start:
      return capture(options.socket, options.capture);
    case Options::Command::capture_stop:
      return stop_capture(options.socket, options.capture_number);
    case Options::Command::drain:
      return drain_and_wait(options);
    case Options::Command::nic_list:
      return print(show_nics(find_nics(), options.as_json));
    case Options::Command::nic_take:
      return print_sentence(take_nic(options.nic));
    case Options::Command::nic_give:
      return print_sentence(give_nic(options.nic.card));
    case Options::Command::upgrade:
      if (Status status = upgrade(options.socket, options.program); !status) return status;
      return print("upgraded: another network interface serves now\n");
  }
  return {};
}

}  // namespace
}  // namespace unet::unetctl

int main(int argc, char** argv) {
  using namespace unet::unetctl;
  unet::apps::hold_standard_descriptors();
  const ParsedOptions parsed = parse_options(argc, argv);
  if (!parsed.options) return parsed.status;
  if (unet::Status status = run(*parsed.options); !status) {
    std::fprintf(stderr, "unetctl: %s\n", status.error().text.c_str());
    return kFailure;
  }
  return 0;
}
