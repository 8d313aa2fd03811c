// command_line.cc - the options of a kernel. Only this file compiles CLI11, for all kernels.
#include "apps/kernels/command_line.h"

#include <cstdio>
#include <sstream>

#include <CLI/CLI.hpp>

namespace unet::kernels {
namespace {

constexpr int kUsage = 2;

template <typename T>
std::string with_default(const std::string& help, const T& value) {
  std::ostringstream text;
  text << help << " (default: " << value << ")";
  return text.str();
}

}  // namespace

struct CommandLine::App {
  CLI::App cli;
  bool takes_seed = true;
};

CommandLine::CommandLine(const std::string& about, const std::string& lesson) : app_(std::make_unique<App>()) {
  app_->cli.description(about);
  app_->cli.footer("\n" + lesson);
}

CommandLine::~CommandLine() = default;

void CommandLine::number(const std::string& name, uint32_t& value, uint32_t least, uint32_t most, const std::string& help) {
  app_->cli.add_option(name, value, with_default(help, value))->check(CLI::Range(least, most));
}

void CommandLine::number(const std::string& name, uint64_t& value, uint64_t least, uint64_t most, const std::string& help) {
  app_->cli.add_option(name, value, with_default(help, value))->check(CLI::Range(least, most));
}

void CommandLine::number(const std::string& name, double& value, double least, double most, const std::string& help) {
  app_->cli.add_option(name, value, with_default(help, value))->check(CLI::Range(least, most));
}

void CommandLine::flag(const std::string& name, bool& value, const std::string& help) { app_->cli.add_flag(name, value, help); }

void CommandLine::choice(const std::string& name, std::string& value, const std::vector<std::string>& which, const std::string& help) {
  app_->cli.add_option(name, value, with_default(help, value))->check(CLI::IsMember(which));
}

void CommandLine::fix_input() { app_->takes_seed = false; }

Parsed CommandLine::parse(int argc, char** argv, bool speaks) {
  CommonOptions options;
  bool no_verify = false;
  CLI::App& cli = app_->cli;
  if (app_->takes_seed) cli.add_option("--seed", options.seed, with_default("of the input", options.seed));
  cli.add_option("--repeat", options.repeat, with_default("times that it is measured, of which the best counts", options.repeat))
      ->check(CLI::Range(1u, 1000u));
  cli.add_flag("--no-verify", no_verify, "do not compare with the serial answer");
  cli.add_option("--json", options.json, "file for the records, one per rank; - for stdout");
  try {
    cli.parse(argc, argv);
  } catch (const CLI::Success& help) {
    if (speaks) cli.exit(help);
    return {};
  } catch (const CLI::ParseError& error) {
    return {std::nullopt, usage_error(argv[0], error.what(), speaks)};
  }
  options.verify = !no_verify;
  return {options, 0};
}

int usage_error(const char* program, const std::string& what, bool speaks) {
  if (speaks) std::fprintf(stderr, "%s: %s (--help lists the options)\n", program, what.c_str());
  return kUsage;
}

}  // namespace unet::kernels
