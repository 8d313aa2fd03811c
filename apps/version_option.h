// version_option.h - the options that every program has: --version, and hidden from help --option-table.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "apps/option_table.h"
#include "unet/version.h"

namespace unet::apps {

// The parser prints what such an exception says, and ends well.
inline void add_version(CLI::App& app, const char* program) {
  app.set_version_flag("--version", std::string(program) + " " + unet_version(), "print the release");
  app.add_flag_callback("--option-table", [&app] { throw CLI::CallForVersion(option_table(app), 0); })->group("");
}

}  // namespace unet::apps
