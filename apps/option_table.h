// option_table.h - the commands and options of a program as lines, from which apps/completion makes the shells' completion.
#pragma once

#include <algorithm>
#include <string>

#include <CLI/CLI.hpp>

namespace unet::apps {

// COMMAND, WORD, VALUES and the description, between tabs. VALUES is `-` for a word without a value, and {a,b} if only these are right.
inline std::string option_line(const std::string& command, const std::string& word, const std::string& values, std::string description) {
  std::replace(description.begin(), description.end(), '\n', ' ');
  return command + "\t" + word + "\t" + values + "\t" + description + "\n";
}

inline std::string option_lines(const CLI::App& app, const std::string& command) {
  std::string lines;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    const std::string type = option->get_type_name();  // TEXT:{a,b}
    const size_t set = type.find('{');
    const std::string values = option->get_expected_max() == 0 ? "-" : set == std::string::npos ? "" : type.substr(set);
    for (const std::string& name : option->get_lnames()) lines += option_line(command, "--" + name, values, option->get_description());
    for (const std::string& name : option->get_snames()) lines += option_line(command, "-" + name, values, option->get_description());
  }
  // A command takes the options of its program, too.
  if (app.get_fallthrough() && app.get_parent() != nullptr) lines += option_lines(*app.get_parent(), command);
  return lines;
}

inline std::string option_table(const CLI::App& app, const std::string& command = "") {
  std::string lines = option_lines(app, command);
  for (const CLI::App* each : app.get_subcommands({})) {
    lines += option_line(command, each->get_name(), "-", each->get_description());
    lines += option_table(*each, command.empty() ? each->get_name() : command + " " + each->get_name());
  }
  return lines;
}

}  // namespace unet::apps
