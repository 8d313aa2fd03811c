// display.cc - tables of short numbers.
#include "apps/unetctl/display.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <string_view>

#include "apps/unetctl/table.h"
#include "apps/unetctl/views.h"

namespace unet::unetctl {
namespace {

using nlohmann::json;

constexpr size_t kIntervals = 12;
constexpr size_t kNameMax = 20;  // bytes: a client's long name leaves room for the rates
constexpr std::string_view kLevels = " .:-=+*#";

const char* text_of(Sort by) {
  switch (by) {
    case Sort::messages: return "messages";
    case Sort::bytes: return "bytes";
    case Sort::drops: return "drops";
    case Sort::name: break;
  }
  return "name";
}

// The sums over a program's endpoints, with the program as name.
struct Program : EndpointRate {
  std::set<uint64_t> processes;
  size_t endpoints = 0;
};

std::map<std::string, Program> programs_of(const std::vector<EndpointRate>& endpoints) {
  std::map<std::string, Program> programs;
  for (const EndpointRate& each : endpoints) {
    Program& program = programs[each.program];
    program.name = each.program;
    program.processes.insert(each.pid);
    ++program.endpoints;
    for (double EndpointRate::*rate : {&EndpointRate::sent_messages, &EndpointRate::sent_bytes, &EndpointRate::received_messages,
                                       &EndpointRate::received_bytes, &EndpointRate::local_messages,
                                       &EndpointRate::local_bytes, &EndpointRate::drops}) {
      program.*rate += each.*rate;
    }
  }
  return programs;
}

// A name that a client chose, in at most `most` bytes of whole UTF-8 characters.
std::string short_name(const std::string& name, size_t most = kNameMax) {
  size_t end = std::min(name.size(), most);
  while (end > 0 && end < name.size() && (name[end] & 0xc0) == 0x80) --end;
  return name.empty() ? "-" : printable(name.substr(0, end));
}

// The cells of `first`, the rates, and the cells of `last`.
std::vector<std::string> row(std::vector<std::string> first, const EndpointRate& rate, const std::vector<std::string>& last) {
  for (const double each : {rate.sent_messages, rate.sent_bytes, rate.received_messages, rate.received_bytes, rate.local_messages,
                            rate.local_bytes, rate.drops}) {
    first.push_back(short_number(each));
  }
  first.insert(first.end(), last.begin(), last.end());
  return first;
}

Table table_of_programs(const Rates& rates, const History& history, Sort by) {
  const std::map<std::string, Program> programs = programs_of(rates.endpoints);
  std::vector<EndpointRate> all;
  for (const auto& [name, program] : programs) all.push_back(program);
  sort(all, by);
  Table table({"PROGRAM", "SENT/S", "SENT B/S", "RECEIVED/S", "RECEIVED B/S", "LOCAL/S", "LOCAL B/S", "DROPS/S",
               "PROCESSES", "ENDPOINTS", "HISTORY"});
  for (const EndpointRate& each : all) {
    const Program& program = programs.at(each.name);
    table.add(row({short_name(each.name)}, each,
                  {std::to_string(program.processes.size()), std::to_string(program.endpoints), history.of_program(each.name)}));
  }
  return table;
}

Table table_of_endpoints(const Rates& rates, const History& history, Sort by) {
  std::vector<EndpointRate> all = rates.endpoints;
  sort(all, by);
  Table table({"ENDPOINT", "NAME", "SENT/S", "SENT B/S", "RECEIVED/S", "RECEIVED B/S", "LOCAL/S", "LOCAL B/S", "DROPS/S", "PROGRAM",
               "PID", "UID", "HISTORY"});
  for (const EndpointRate& each : all) {
    table.add(row({std::to_string(each.endpoint), short_name(each.name)}, each,
                  {short_name(each.program), std::to_string(each.pid), std::to_string(each.uid), history.of_endpoint(each)}));
  }
  return table;
}

// Nothing, if there are no rows.
std::string part_of(const Table& table, size_t columns) {
  const std::string text = table.text("", columns);
  return text == "\n" ? "" : text + "\n";
}

}  // namespace

std::string short_number(double value) {
  constexpr std::string_view kUnits = "kMGT";
  size_t thousands = 0;
  for (; value >= 999.5 && thousands < kUnits.size(); ++thousands) value /= 1000;
  std::array<char, 32> text{};
  const int digits = thousands == 0 && value >= 10 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(text.data(), text.size(), "%.*f", value == std::floor(value) && thousands == 0 ? 0 : digits, value);
  return text.data() + std::string(thousands == 0 ? "" : kUnits.substr(thousands - 1, 1));
}

template <typename Key>
std::string History::text(const Rows<Key>& rows, const Key& key) {
  const auto found = rows.find(key);
  if (found == rows.end()) return "";
  const double greatest = *std::max_element(found->second.begin(), found->second.end());
  std::string text;
  for (const double rate : found->second) {
    text += kLevels[rate <= 0 ? 0 : 1 + std::min<size_t>(static_cast<size_t>(rate / greatest * (kLevels.size() - 1)), kLevels.size() - 2)];
  }
  return text;
}

void History::add(const Rates& rates) {
  const auto add_to = [](auto& rows, const auto& now) {
    std::erase_if(rows, [&](const auto& each) { return !now.contains(each.first); });
    for (const auto& [key, rate] : now) {
      std::deque<double>& row = rows[key];
      row.push_back(rate.sent_messages + rate.received_messages + rate.local_messages);
      if (row.size() > kIntervals) row.pop_front();
    }
  };
  std::map<std::pair<uint64_t, uint64_t>, EndpointRate> endpoints;
  for (const EndpointRate& each : rates.endpoints) endpoints.emplace(std::pair(each.endpoint, each.pid), each);
  add_to(endpoints_, endpoints);
  add_to(programs_, programs_of(rates.endpoints));
}

std::string display(const json& now, const Rates& rates, const History& history, const DisplayOptions& options) {
  Table engines({"ENGINE", "BUSY", "RECEIVED/S", "TRANSMITTED/S", "HAIRPIN/S", "LINKED/S"});
  for (const EngineRate& e : rates.engines) {
    engines.add({std::to_string(e.engine), std::to_string(std::lround(100 * e.busy)) + "%", short_number(e.received_frames),
                 short_number(e.transmitted_frames), short_number(e.hairpin_messages), short_number(e.linked_frames)});
  }
  Table ports({"PORT", "RECEIVED/S", "RECEIVED B/S", "SENT/S", "SENT B/S", "LINK", "ADDRESS"});
  for (const PortRate& p : rates.ports) {
    ports.add({std::to_string(p.port), short_number(p.received_frames), short_number(p.received_bytes), short_number(p.sent_frames),
               short_number(p.sent_bytes), p.link, p.address});
  }
  std::vector<DropRate> sorted = rates.drops;
  std::stable_sort(sorted.begin(), sorted.end(), [](const DropRate& a, const DropRate& b) { return a.rate > b.rate; });
  Table drops({"DROP", "PER SECOND", "TOTAL", "OF"});
  for (const DropRate& drop : sorted) {
    drops.add({drop.name, short_number(drop.rate), short_number(static_cast<double>(drop.total)), short_name(drop.of, 2 * kNameMax)});
  }
  const std::string counts = rates.seconds == 0 ? "the first rates come in " + short_number(options.interval) + " s"
                                                : std::to_string(rates.endpoints.size()) + " endpoints, " +
                                                      std::to_string(now.at("channels").size()) + " channels";
  const std::string lines = "host " + now.value("host", "") + ": " + counts + (is_draining(now) ? ", being drained" : "") +
                            ", every " + short_number(options.interval) + " s, by " + text_of(options.sort) + "\n" +
                            "q quit  m b d n: by messages, bytes, drops, name  p " + (options.programs ? "endpoints" : "programs") +
                            "  + - interval\n\n";
  std::string text;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at);
    text += lines.substr(at, std::min(end - at, options.columns)) + "\n";
    at = end + 1;
  }
  const Table traffic = (options.programs ? table_of_programs : table_of_endpoints)(rates, history, options.sort);
  return text + part_of(engines, options.columns) + part_of(ports, options.columns) + part_of(traffic, options.columns) +
         part_of(drops, options.columns);
}

}  // namespace unet::unetctl
