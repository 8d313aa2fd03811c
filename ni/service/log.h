// log.h - log lines for the network interface's operator, by spdlog's default logger.
//
// spdlog's own header has every file that logs instantiate all of fmt, which takes longer to compile than the file.
#pragma once

#include <fmt/core.h>

namespace unet::service::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// say - formats ARGUMENTS by FORMAT and writes the line, where the logger wants lines of LEVEL.
void say(Level level, fmt::string_view format, fmt::format_args arguments);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  say(Level::kDebug, format, fmt::make_format_args(args...));
}

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  say(Level::kInfo, format, fmt::make_format_args(args...));
}

template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  say(Level::kWarn, format, fmt::make_format_args(args...));
}

template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  say(Level::kError, format, fmt::make_format_args(args...));
}

}  // namespace unet::service::log
