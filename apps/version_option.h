// version_option.h - the option --version; used by the programs.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "unet/version.h"

namespace unet::apps {

inline void add_version(CLI::App& app, const char* program) {
  app.set_version_flag("--version", std::string(program) + " " + unet_version(), "print the release");
}

}  // namespace unet::apps
