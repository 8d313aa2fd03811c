// machine.cc - the machines that a job can be simulated on.
//
// Overhead, round trip and bandwidth of cm-5, cs-2 and unet-atm are those of the U-Net paper (SOSP 1995): half of the overhead at each end,
// and latency = round trip / 2 - overhead. Gaps, and the parameters of paragon and now: Culler et al., Assessing Fast Network Interfaces
// (IEEE Micro 1996); where no gap is published it is the overhead. unet-fe: Welsh et al. (HPCA 1997). The speeds of processors are
// estimates: the ratio of clock rates, times 6 for what a core of today does more in a cycle than a SPARC or a Pentium. Nothing is
// published of the last three: a host with our Active Messages, and a network of 1.5 us.
#include "am/splitc/machine.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <system_error>
#include <vector>

namespace unet::splitc {
namespace {

constexpr double slowness_of(double megahertz) {
  constexpr double kMegahertzHere = 3000, kPerCycle = 6;
  return kMegahertzHere / megahertz * kPerCycle;
}

const std::vector<Machine>& machines() {
  static const std::vector<Machine> all{
      {.name = "cm-5", .text = "TMC CM-5: 33 MHz SPARC, 10 MB/s, round trip 12 us", .send = 1500, .receive = 1500, .latency = 3000,
       .gap = 4000, .bytes_per_second = 10e6, .slowness = slowness_of(33)},
      {.name = "cs-2", .text = "Meiko CS-2: 40 MHz SuperSPARC, 39 MB/s, round trip 25 us", .send = 5500, .receive = 5500, .latency = 1500,
       .gap = 13600, .bytes_per_second = 39e6, .slowness = slowness_of(40)},
      {.name = "paragon", .text = "Intel Paragon: 50 MHz i860, 141 MB/s, round trip 20 us", .send = 1800, .receive = 1800, .latency = 6500,
       .gap = 7600, .bytes_per_second = 141e6, .slowness = slowness_of(50)},
      {.name = "unet-atm", .text = "U-Net on 140 Mbit/s ATM: 60 MHz SuperSPARC, 14 MB/s, round trip 71 us", .send = 3000, .receive = 3000,
       .latency = 29500, .gap = 6000, .bytes_per_second = 14e6, .slowness = slowness_of(60)},
      {.name = "unet-fe", .text = "U-Net on Fast Ethernet: 133 MHz Pentium, 12 MB/s, round trip 60 us", .send = 4200, .receive = 4100,
       .latency = 21700, .gap = 4200, .bytes_per_second = 12.1e6, .slowness = slowness_of(133), .packet = 1408},
      {.name = "now", .text = "Berkeley NOW: 167 MHz UltraSPARC on Myrinet, 38 MB/s, round trip 22 us", .send = 2900, .receive = 2900,
       .latency = 5000, .gap = 5800, .bytes_per_second = 38e6, .slowness = slowness_of(167)},
      {.name = "25g", .text = "today: 25 Gbit/s Ethernet, round trip 3.4 us", .send = 100, .receive = 100, .latency = 1500, .gap = 100,
       .bytes_per_second = 3.1e9},
      {.name = "100g", .text = "today: 100 Gbit/s Ethernet, round trip 3.4 us", .send = 100, .receive = 100, .latency = 1500, .gap = 100,
       .bytes_per_second = 12.3e9},
      {.name = "400g", .text = "today: 400 Gbit/s Ethernet, round trip 3.4 us", .send = 100, .receive = 100, .latency = 1500, .gap = 100,
       .bytes_per_second = 49e9},
  };
  return all;
}

struct Parameter {
  const char* name;
  bool is_time;
  double most;
  void (*set)(Machine& machine, double value);
};
constexpr double kMost = 1e15;
constexpr std::array kParameters{
    Parameter{"send", true, kMost, [](Machine& machine, double value) { machine.send = static_cast<Nanoseconds>(value); }},
    Parameter{"receive", true, kMost, [](Machine& machine, double value) { machine.receive = static_cast<Nanoseconds>(value); }},
    Parameter{"latency", true, kMost, [](Machine& machine, double value) { machine.latency = static_cast<Nanoseconds>(value); }},
    Parameter{"gap", true, kMost, [](Machine& machine, double value) { machine.gap = static_cast<Nanoseconds>(value); }},
    Parameter{"rate", false, kMost, [](Machine& machine, double value) { machine.bytes_per_second = value; }},
    Parameter{"slowness", false, 1e6, [](Machine& machine, double value) { machine.slowness = value; }},
};

// "10us" is 10,000.
std::optional<double> parse_number(const Parameter& parameter, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  if (error != std::errc() || !(unit.empty() || parameter.is_time)) return std::nullopt;
  if (unit == "us") value *= kMicrosecond;
  else if (unit == "ms") value *= kMillisecond;
  else if (!unit.empty() && unit != "ns") return std::nullopt;
  return value >= 0 && value <= parameter.most ? std::optional(value) : std::nullopt;
}

}  // namespace

std::span<const Machine> known_machines() { return machines(); }

Result<Machine> parse_machine(std::string_view text) {
  const auto refused = [&](std::string_view word, std::string what) {
    return fail(Errc::invalid_argument, "machine '" + std::string(text) + "': '" + std::string(word) + "' " + std::move(what));
  };
  const size_t comma = text.find(',');
  const std::string_view name = text.substr(0, comma);
  const auto found = std::find_if(machines().begin(), machines().end(), [&](const Machine& each) { return each.name == name; });
  if (found == machines().end()) {
    std::string names;
    for (const Machine& each : machines()) names += " " + each.name;
    return refused(name, "is none of" + names);
  }
  Machine machine = *found;
  for (std::string_view rest = comma == text.npos ? "" : text.substr(comma + 1); !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const size_t equals = std::min(word.find('='), word.size());
    const auto parameter = std::find_if(kParameters.begin(), kParameters.end(),
                                        [&](const Parameter& each) { return word.substr(0, equals) == each.name; });
    const std::string_view number = word.substr(std::min(equals + 1, word.size()));
    const auto value = parameter == kParameters.end() ? std::nullopt : parse_number(*parameter, number);
    if (!value) {
      return refused(word, "is not send, receive, latency, gap (in ns, us or ms), rate (bytes/s) or slowness, with =NUMBER");
    }
    parameter->set(machine, *value);
  }
  if (machine.bytes_per_second < 1) return refused("rate", "must be one byte per second at least");
  return machine;
}

}  // namespace unet::splitc
