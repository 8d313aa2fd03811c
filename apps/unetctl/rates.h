// rates.h - rates per second from two reports of an NI, and the picture of `unetctl top`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace unet::unetctl {

enum class Sort { messages, bytes, drops, name };

struct EndpointRate {
  uint64_t endpoint = 0;
  std::string name, program;
  uint64_t pid = 0, uid = 0;
  // Per second.
  double sent_messages = 0, sent_bytes = 0, received_messages = 0, received_bytes = 0, drops = 0;
  // Both directions of local channels are added. The receivers count these messages; the NI does not verify the numbers.
  double local_messages = 0, local_bytes = 0;
};

struct EngineRate {
  uint64_t engine = 0;
  double busy = 0;  // share of the time in which it had work
  // Per second.
  double received_frames = 0, transmitted_frames = 0, hairpin_messages = 0, linked_frames = 0;
};

struct PortRate {
  uint64_t port = 0;
  std::string address, link;
  // Per second.
  double received_frames = 0, received_bytes = 0, sent_frames = 0, sent_bytes = 0;
};

struct DropRate {
  std::string of, name;
  double rate = 0;     // per second
  uint64_t total = 0;  // since the start of the endpoint or the NI
};

struct Rates {
  double seconds = 0;  // between the two reports
  std::vector<EndpointRate> endpoints;
  std::vector<EngineRate> engines;
  std::vector<PortRate> ports;
  std::vector<DropRate> drops;  // nonzero ones only
};

// Compares two reports of one NI. An endpoint that is only in `now` started at 0, and so did one with a number that belonged to another
// endpoint before.
Rates rates_between(const nlohmann::json& before, const nlohmann::json& now);

// By rate, largest first, or by name; equal endpoints by their numbers.
void sort(std::vector<EndpointRate>& endpoints, Sort by);

// The tables, with a line about the NI above them.
std::string picture(const nlohmann::json& now, Rates rates, Sort by);

}  // namespace unet::unetctl
