// rates.h - from two reports of an NI to rates per second, and to the picture of `unetctl top`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace unet::unetctl {

enum class Sort { messages, bytes, drops, name };

struct EndpointRate {
  uint64_t endpoint = 0;
  std::string name;
  uint64_t pid = 0, uid = 0;
  // Per second.
  double sent_messages = 0, sent_bytes = 0, received_messages = 0, received_bytes = 0, drops = 0;
};

struct EngineRate {
  uint64_t engine = 0;
  // Per second.
  double received_frames = 0, transmitted_frames = 0, hairpin_messages = 0, linked_frames = 0;
};

struct DropRate {
  std::string of, name;
  double rate = 0;     // per second
  uint64_t total = 0;  // since the endpoint or the NI began
};

struct Rates {
  double seconds = 0;  // between the two reports
  std::vector<EndpointRate> endpoints;
  std::vector<EngineRate> engines;
  std::vector<DropRate> drops;  // without those that never happened
};

// What happened between two reports of the same NI. An endpoint that only `now` has began at 0, and so did one whose number
// another endpoint had before.
Rates rates_between(const nlohmann::json& before, const nlohmann::json& now);

// The largest first, or the names in order; endpoints that are equal in it by their numbers.
void sort(std::vector<EndpointRate>& endpoints, Sort by);

// The tables, with a line about the NI above them.
std::string picture(const nlohmann::json& now, Rates rates, Sort by);

}  // namespace unet::unetctl
