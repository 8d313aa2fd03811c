// stats.h - every counter of an NI at one moment, for programs: one JSON object, or text for Prometheus or OpenMetrics.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace unet::unetctl {

// {"time_ns": since 1970, "ni": identity of the NI, "counters", "drops", "ports": [...], "endpoints": [...]}.
nlohmann::json stats_json(const nlohmann::json& report);

// Text exposition format 0.0.4: a family of metrics per counter, a sample per object.
std::string stats_prometheus(const nlohmann::json& report);

// OpenMetrics 1.0: the same samples, each with the time of the report.
std::string stats_openmetrics(const nlohmann::json& report);

}  // namespace unet::unetctl
