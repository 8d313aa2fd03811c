// main.cc - unetctl: what a network interface is doing, as tables or JSON.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "apps/unetctl/views.h"
#include "unet/context.h"
#include "unet/socket_path.h"

namespace unet::unetctl {
namespace {

constexpr int kUsage = 2, kFailure = 1;

struct Options {
  std::string what;
  std::string socket = default_socket_path();
  bool as_json = false;
  double watch = 0;  // seconds; 0: once
};

Result<nlohmann::json> fetch(const Options& options) {
  Result<Context> context = Context::open("unix:" + options.socket, "unetctl");
  if (!context) return tl::unexpected(context.error());
  Result<std::string> text = context->report();
  if (!text) return tl::unexpected(text.error());
  nlohmann::json report = nlohmann::json::parse(*text, nullptr, false);
  if (report.is_discarded()) return fail(Errc::protocol, "the network interface sent a report that is not JSON");
  return report;
}

std::string render(const nlohmann::json& report, const Options& options) {
  if (options.as_json) {
    return (options.what == "all" ? report : select(report, options.what)).dump(2) + "\n";
  }
  if (options.what != "all") return show(report, options.what);
  std::string out = "host " + report.value("host", "") + "\n";
  for (const std::string& view : view_names()) out += "\n" + view + "\n" + show(report, view);
  return out;
}

int run(const Options& options) {
  for (;;) {
    const Result<nlohmann::json> report = fetch(options);
    if (!report) {
      std::fprintf(stderr, "unetctl: %s\n", report.error().text.c_str());
      return kFailure;
    }
    const std::string text = render(*report, options);
    if (options.watch > 0 && isatty(STDOUT_FILENO) != 0) std::fputs("\033[H\033[2J", stdout);
    std::fputs(text.c_str(), stdout);
    if (std::fflush(stdout) != 0) return kFailure;
    if (options.watch <= 0) return 0;
    usleep(static_cast<useconds_t>(options.watch * 1e6));
  }
}

}  // namespace
}  // namespace unet::unetctl

int main(int argc, char** argv) {
  using namespace unet::unetctl;
  Options options;
  std::vector<std::string> views = view_names();
  views.emplace_back("all");
  CLI::App app{"unetctl - shows what a U-Net network interface is doing (your own things; everything to root and its owner)"};
  app.add_option("what", options.what, "endpoints, channels, names, counters, drops, clients, ports, hosts or all")
      ->required()
      ->check(CLI::IsMember(views));
  app.add_flag("--json", options.as_json, "print JSON");
  app.add_option("--socket", options.socket, "control socket (default: $UNET_SOCKET, " + options.socket + ")");
  app.add_option("--watch", options.watch, "print again every so many seconds")->check(CLI::Range(0.1, 3600.0));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "unetctl: %s (unetctl --help lists what there is)\n", error.what());
    return kUsage;
  }
  return run(options);
}
