// rates.cc - divides the differences of counters by the time between two reports.
#include "apps/unetctl/rates.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "apps/unetctl/table.h"
#include "apps/unetctl/views.h"

namespace unet::unetctl {

using nlohmann::json;

namespace {

uint64_t number(const json& object, const std::string& key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

// Finds the endpoint in the earlier report: its number may have belonged to another one then.
const json* find_before(const json& before, const json& endpoint) {
  for (const json& other : before.at("endpoints")) {
    if (other.at("endpoint") == endpoint.at("endpoint") && other.at("client") == endpoint.at("client") &&
        other.at("pid") == endpoint.at("pid")) {
      return &other;
    }
  }
  return nullptr;
}

// The element of the earlier report's list with the same number.
const json& same_before(const json& before, const char* list, const json& now, const char* number) {
  static const json nothing = json::object();
  const auto all = before.find(list);
  if (all == before.end()) return nothing;
  const auto found = std::find_if(all->begin(), all->end(), [&](const json& each) { return each.at(number) == now.at(number); });
  return found == all->end() ? nothing : *found;
}

// Rates of one object's counters. A counter that is smaller than before was reset.
class Difference {
 public:
  Difference(const json& before, const json& now, double seconds) : before_(before), now_(now), seconds_(seconds) {}
  double rate(const std::string& counter) const {
    const uint64_t then = number(before_, counter), value = number(now_, counter);
    return static_cast<double>(value >= then ? value - then : value) / seconds_;
  }

 private:
  const json& before_;
  const json& now_;
  double seconds_;
};

// Adds all nonzero drop counters; returns the rate of all of them.
double add_drops(std::vector<DropRate>& drops, const std::string& of, const json& before, const json& now, double seconds) {
  const Difference difference(before, now, seconds);
  double sum = 0;
  for (const auto& [name, value] : now.items()) {
    if (number(now, name) == 0) continue;
    drops.push_back({of, name, difference.rate(name), number(now, name)});
    sum += drops.back().rate;
  }
  return sum;
}

struct LocalRate {
  double messages = 0, bytes = 0;
};

// The earlier report's record of each endpoint, by number; nullptr: the endpoint is new.
using EndpointsBefore = std::map<uint64_t, const json*>;

// The rates of all local channels of each endpoint.
std::map<uint64_t, LocalRate> local_rates(const json& before, const json& now, const EndpointsBefore& endpoints_before, double seconds) {
  std::map<std::pair<uint64_t, uint64_t>, const json*> counted_before;
  const auto key = [](const json& channel) { return std::pair(number(channel, "endpoint"), number(channel, "channel")); };
  for (const json& channel : before.at("channels")) {
    const auto same = endpoints_before.find(number(channel, "endpoint"));
    if (same != endpoints_before.end() && same->second != nullptr) counted_before.emplace(key(channel), &part(channel, "counters"));
  }
  std::map<uint64_t, LocalRate> rates;
  for (const json& channel : now.at("channels")) {
    if (!channel.contains("counters")) continue;
    const auto same = counted_before.find(key(channel));
    const json nothing;
    const Difference counted(same == counted_before.end() ? nothing : *same->second, channel.at("counters"), seconds);
    LocalRate& rate = rates[number(channel, "endpoint")];
    rate.messages += counted.rate("sent_messages") + counted.rate("received_messages");
    rate.bytes += counted.rate("sent_bytes") + counted.rate("received_bytes");
  }
  return rates;
}

std::string whole(double rate) { return std::to_string(std::llround(rate)); }

double weight_of(const EndpointRate& endpoint, Sort by) {
  switch (by) {
    case Sort::messages: return endpoint.sent_messages + endpoint.received_messages + endpoint.local_messages;
    case Sort::bytes: return endpoint.sent_bytes + endpoint.received_bytes + endpoint.local_bytes;
    case Sort::drops: return endpoint.drops;
    case Sort::name: break;
  }
  return 0;
}

// These tables leave messages of local channels out, so this line counts the channels.
std::string local_line(const json& now) {
  size_t ends = 0;
  for (const json& channel : now.at("channels")) ends += channel.value("path", "") == "local" ? 1 : 0;
  if (ends == 0) return "";
  return std::to_string(ends) + " ends of local channels: their messages go from process to process and are not counted below\n";
}

}  // namespace

Rates rates_between(const json& before, const json& now) {
  Rates rates;
  const uint64_t from = number(before, "monotonic_ns"), to = number(now, "monotonic_ns");
  rates.seconds = to > from ? static_cast<double>(to - from) / 1e9 : 1e-9;
  static const json nothing = json::object();
  add_drops(rates.drops, "NI", part(before.at("counters"), "drops"), part(now.at("counters"), "drops"), rates.seconds);
  for (const json& engine : now.value("engines", json::array())) {
    const json& counters = part(engine, "counters");
    const Difference counted(part(same_before(before, "engines", engine, "engine"), "counters"), counters, rates.seconds);
    rates.engines.push_back({.engine = number(engine, "engine"),
                             .busy = counters.contains("idle_ns") ? std::clamp(1 - counted.rate("idle_ns") / 1e9, 0.0, 1.0) : 0,
                             .received_frames = counted.rate("received_frames"),
                             .transmitted_frames = counted.rate("transmitted_frames"),
                             .hairpin_messages = counted.rate("hairpin_messages"),
                             .linked_frames = counted.rate("linked_frames")});
  }
  for (const json& port : now.value("ports", json::array())) {
    const Difference counted(part(same_before(before, "ports", port, "port"), "counters"), part(port, "counters"), rates.seconds);
    rates.ports.push_back({.port = number(port, "port"),
                           .address = port.value("address", ""),
                           .link = port.value("link", ""),
                           .received_frames = counted.rate("rx_frames"),
                           .received_bytes = counted.rate("rx_bytes"),
                           .sent_frames = counted.rate("tx_frames"),
                           .sent_bytes = counted.rate("tx_bytes")});
  }
  EndpointsBefore endpoints_before;
  for (const json& each : now.at("endpoints")) endpoints_before.emplace(number(each, "endpoint"), find_before(before, each));
  const std::map<uint64_t, LocalRate> locals = local_rates(before, now, endpoints_before, rates.seconds);
  for (const json& endpoint : now.at("endpoints")) {
    if (!endpoint.value("carrier", json()).is_null()) continue;  // emulated: counted with its carrier
    const json* same = endpoints_before.at(number(endpoint, "endpoint"));
    const Difference counted(same != nullptr ? part(*same, "counters") : nothing, part(endpoint, "counters"), rates.seconds);
    EndpointRate rate;
    rate.endpoint = number(endpoint, "endpoint");
    rate.name = endpoint.value("name", "");
    rate.program = same_before(now, "clients", endpoint, "client").value("program", "");
    rate.pid = number(endpoint, "pid");
    rate.uid = number(endpoint, "uid");
    rate.sent_messages = counted.rate("sent_messages");
    rate.sent_bytes = counted.rate("sent_bytes");
    rate.received_messages = counted.rate("received_messages");
    rate.received_bytes = counted.rate("received_bytes");
    if (const auto local = locals.find(rate.endpoint); local != locals.end()) {
      rate.local_messages = local->second.messages;
      rate.local_bytes = local->second.bytes;
    }
    rate.drops = add_drops(rates.drops, name_of(endpoint), same != nullptr ? part(*same, "drops") : nothing, part(endpoint, "drops"),
                           rates.seconds);
    rates.endpoints.push_back(std::move(rate));
  }
  return rates;
}

void sort(std::vector<EndpointRate>& endpoints, Sort by) {
  std::sort(endpoints.begin(), endpoints.end(), [by](const EndpointRate& a, const EndpointRate& b) {
    if (by == Sort::name && a.name != b.name) return a.name.empty() || b.name.empty() ? b.name.empty() : a.name < b.name;
    const double x = weight_of(a, by), y = weight_of(b, by);
    return x != y ? x > y : a.endpoint < b.endpoint;
  });
}

std::string picture(const json& now, Rates rates, Sort by) {
  sort(rates.endpoints, by);
  std::stable_sort(rates.drops.begin(), rates.drops.end(), [](const DropRate& a, const DropRate& b) { return a.rate > b.rate; });
  Table endpoints({"ENDPOINT", "NAME", "PID", "UID", "SENT/S", "SENT B/S", "RECEIVED/S", "RECEIVED B/S", "DROPS/S"});
  for (const EndpointRate& e : rates.endpoints) {
    endpoints.add({std::to_string(e.endpoint), e.name.empty() ? "-" : e.name, std::to_string(e.pid), std::to_string(e.uid),
                   whole(e.sent_messages), whole(e.sent_bytes), whole(e.received_messages), whole(e.received_bytes), whole(e.drops)});
  }
  Table engines({"ENGINE", "RECEIVED/S", "TRANSMITTED/S", "HAIRPIN/S", "LINKED/S"});
  for (const EngineRate& e : rates.engines) {
    engines.add({std::to_string(e.engine), whole(e.received_frames), whole(e.transmitted_frames), whole(e.hairpin_messages),
                 whole(e.linked_frames)});
  }
  Table drops({"OF", "DROP", "PER SECOND", "TOTAL"});
  for (const DropRate& drop : rates.drops) drops.add({drop.of, drop.name, whole(drop.rate), std::to_string(drop.total)});
  return "host " + now.value("host", "") + ": " + std::to_string(rates.endpoints.size()) + " endpoints, " +
         std::to_string(now.at("channels").size()) + " channels" + (is_draining(now) ? ", being drained" : "") + "\n" +
         local_line(now) + "\n" +
         (rates.engines.size() > 1 ? engines.text("") + "\n" : "") +
         endpoints.text("no endpoints") + "\n" + drops.text("nothing was dropped");
}

}  // namespace unet::unetctl
