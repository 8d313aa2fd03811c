// options.cc - the words before the program's name are this program's options, the rest the program's.
#include "apps/unet-sockets/options.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include <CLI/CLI.hpp>
#include <toml++/toml.h>

#include "apps/program_words.h"
#include "apps/version_option.h"
#include "ipstack/preload/rules.h"

namespace unet::wrapper {
namespace {

constexpr int kUsage = 2;
constexpr unsigned kSpinMax = 1'000'000;
constexpr const char* kSeeHelp = " (unet-sockets --help lists the options)";

ParsedOptions refuse(const std::string& text) {
  std::fprintf(stderr, "unet-sockets: %s\n", text.c_str());
  return {std::nullopt, kUsage};
}

constexpr const char* kRulesHelp =
    "routes traffic to U-Net ('ours') or the kernel; the first match counts: 'ours|kernel [tcp|udp] ADDRESS[/PREFIX]|* [PORT[-PORT]]', "
    "separated by ';'. Without a match, loopback is the kernel's, and addresses that the network interface has or reaches are ours";

void add_rules(Options& options, const std::string& more) { options.rules += (options.rules.empty() ? "" : ";") + more; }

// Sets what the command line has not set. The environment's rules come after the command line's: the first match counts.
void read_environment(Options& options) {
  const auto said = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text != nullptr ? text : "");
  };
  if (options.ni.empty()) options.ni = said("UNET_NI");
  if (const std::string rules = said("UNET_SOCKETS_RULES"); !rules.empty()) add_rules(options, rules);
}

// The file has the options under their names, and rules as a list.
Status read_file(const std::string& path, Options& options) {
  toml::table file;
  try {
    file = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    return fail(Errc::invalid_argument, path + ":" + std::to_string(error.source().begin.line) + ": " + std::string(error.description()));
  }
  for (const auto& [key, value] : file) {
    const std::string name(key.str());
    const auto wrong = [&](const char* wanted) { return fail(Errc::invalid_argument, path + ": '" + name + "' is " + wanted); };
    if (name == "ni") {
      if (!value.is_string()) return wrong("a string, as unix:PATH");
      if (options.ni.empty()) options.ni = value.value<std::string>().value();
    } else if (name == "rules") {
      const toml::array* const all = value.as_array();
      if (all == nullptr || !all->is_homogeneous<std::string>()) return wrong("a list of strings, each a rule");
      for (const auto& each : *all) add_rules(options, each.value<std::string>().value());
    } else if (name == "spin_us") {
      const auto spin = value.value<int64_t>();
      if (!spin || *spin < 0 || *spin > kSpinMax) return wrong("a number of microseconds, at most a million");
      if (!options.spin_us && std::getenv("UNET_SOCKETS_SPIN_US") == nullptr) options.spin_us = static_cast<unsigned>(*spin);
    } else if (name == "log") {
      if (!value.is_boolean()) return wrong("true or false");
      options.log = options.log || value.value<bool>().value();
    } else {
      return fail(Errc::invalid_argument, path + ": '" + name + "' is not known: ni, rules, spin_us, log");
    }
  }
  return {};
}

}  // namespace

ParsedOptions parse_options(int argc, char** argv) {
  Options options;
  std::string file;
  unsigned spin = 0;
  std::vector<std::string> rules;
  CLI::App app{
      "unet-sockets - runs a program whose TCP and UDP sockets are U-Net's instead of the kernel's\n\n"
      "  unetd --port nowhere --ip 0=10.9.0.1/24 &\n"
      "  unet-sockets iperf3 -s -B 10.9.0.1 &\n"
      "  unet-sockets iperf3 -c 10.9.0.1\n\n"
      "The program must be linked dynamically, and not written in Go; programs that it starts are included. Addresses are the network "
      "interface's (unetd --ip)."};
  app.add_option("--ni", options.ni,
                 "the network interface: unix:PATH, or embedded:SPECIFICATION (default: $UNET_NI, or this host's unetd)");
  app.add_option("--rule", rules, kRulesHelp)->allow_extra_args(false);
  app.add_option("--config", file, "a file (TOML) with ni, rules, spin_us and log; default: $UNET_SOCKETS_CONFIG");
  CLI::Option* const spins =
      app.add_option("--spin", spin, "microseconds that a waiting call polls before it sleeps (default: 20)");
  spins->check(CLI::Range(0u, kSpinMax));
  app.add_flag("--log", options.log, "print on standard error which sockets stay the kernel's");
  app.add_flag("--kernel", options.kernel, "start the program even if its sockets stay the kernel's: linked statically, or in Go");
  app.add_option("--library", options.preloaded, "the library to preload (default: this build's or installation's)");
  apps::add_version(app, "unet-sockets");
  app.prefix_command();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    app.add_option("program", options.program, "the program and its arguments")->required();
    return {std::nullopt, app.exit(help)};
  } catch (const CLI::ParseError& error) {
    return refuse(error.what() + std::string(kSeeHelp));
  }
  auto program = apps::program_words(app.remaining());
  if (!program) return refuse(program.error().text + kSeeHelp);
  options.program = std::move(*program);
  if (spins->count() != 0) options.spin_us = spin;
  for (const std::string& each : rules) add_rules(options, each);
  read_environment(options);
  if (const char* const named = std::getenv("UNET_SOCKETS_CONFIG"); file.empty() && named != nullptr) file = named;
  if (!file.empty()) {
    if (const Status status = read_file(file, options); !status) return refuse(status.error().text);
  }
  if (const auto read = preload::Rules::parse(options.rules); !read) return refuse(read.error().text);
  return {std::move(options), 0};
}

}  // namespace unet::wrapper
