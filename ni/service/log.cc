// log.cc - implementation of log.h.
#include "ni/service/log.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace unet::service::log {
namespace {

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
    case Level::kError: break;
  }
  return spdlog::level::err;
}

}  // namespace

void say(Level level, fmt::string_view format, fmt::format_args arguments) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  const auto at = spdlog_level(level);
  if (!logger->should_log(at)) return;
  fmt::memory_buffer line;
  fmt::vformat_to(fmt::appender(line), format, arguments);
  logger->log(at, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace unet::service::log
