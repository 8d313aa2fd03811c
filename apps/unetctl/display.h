// display.h - what `unetctl top` draws on a terminal: programs or endpoints with most traffic, engines, ports and drops.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>

#include "apps/unetctl/rates.h"

namespace unet::unetctl {

// A number with up to three digits, and k, M, G or T: "7", "1.50", "12", "12.3k".
std::string short_number(double value);

// The messages per second of programs and endpoints in the last intervals.
class History {
 public:
  // Adds the rates of the last interval. Forgets programs and endpoints that are gone.
  void add(const Rates& rates);
  // One character for each interval, by its share of the greatest rate: " .:-=+*#".
  std::string of_program(const std::string& program) const { return text(programs_, program); }
  std::string of_endpoint(const EndpointRate& endpoint) const { return text(endpoints_, {endpoint.endpoint, endpoint.pid}); }

 private:
  template <typename Key>
  using Rows = std::map<Key, std::deque<double>>;
  template <typename Key>
  static std::string text(const Rows<Key>& rows, const Key& key);

  Rows<std::string> programs_;
  Rows<std::pair<uint64_t, uint64_t>> endpoints_;  // by number and process
};

struct DisplayOptions {
  Sort sort = Sort::messages;
  bool programs = true;  // false: endpoints
  double interval = 1;   // seconds
  size_t columns = 80;
};

// No line is longer than the terminal has columns: tables lose their last columns, and names are cut.
// `rates.seconds` is 0 before the first rates.
std::string display(const nlohmann::json& now, const Rates& rates, const History& history, const DisplayOptions& options);

}  // namespace unet::unetctl
