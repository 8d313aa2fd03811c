// rates.cc - divides the differences of counters by the time between two reports.
#include "apps/unetctl/rates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "apps/unetctl/table.h"
#include "apps/unetctl/views.h"

namespace unet::unetctl {

using nlohmann::json;

namespace {

uint64_t number(const json& object, const std::string& key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

const json kNothing = json::object();

// A list of a report, by the number of each element.
class Listed {
 public:
  Listed(const json& report, const char* list, const char* key) {
    const auto found = report.find(list);
    if (found == report.end()) return;
    for (const json& each : *found) by_number_.emplace(number(each, key), &each);
  }
  // An empty object if the list has no such element.
  const json& at(uint64_t number) const {
    const auto found = by_number_.find(number);
    return found == by_number_.end() ? kNothing : *found->second;
  }

 private:
  std::map<uint64_t, const json*> by_number_;
};

// The endpoint in the earlier report, or an empty object: its number may have belonged to another one then.
const json& find_before(const Listed& endpoints_before, const json& endpoint) {
  const json& same = endpoints_before.at(number(endpoint, "endpoint"));
  return !same.empty() && same.at("client") == endpoint.at("client") && same.at("pid") == endpoint.at("pid") ? same : kNothing;
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

// The rates of all local channels of each endpoint. `continued`: the endpoints that both reports have.
std::map<uint64_t, LocalRate> local_rates(const json& before, const json& now, const std::set<uint64_t>& continued, double seconds) {
  std::map<std::pair<uint64_t, uint64_t>, const json*> counted_before;
  const auto key = [](const json& channel) { return std::pair(number(channel, "endpoint"), number(channel, "channel")); };
  for (const json& channel : before.at("channels")) {
    if (continued.contains(number(channel, "endpoint"))) counted_before.emplace(key(channel), &part(channel, "counters"));
  }
  std::map<uint64_t, LocalRate> rates;
  for (const json& channel : now.at("channels")) {
    if (!channel.contains("counters")) continue;
    const auto same = counted_before.find(key(channel));
    const Difference counted(same == counted_before.end() ? kNothing : *same->second, channel.at("counters"), seconds);
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
  const Listed engines_before(before, "engines", "engine"), ports_before(before, "ports", "port");
  const Listed endpoints_before(before, "endpoints", "endpoint"), clients(now, "clients", "client");
  add_drops(rates.drops, "NI", part(before.at("counters"), "drops"), part(now.at("counters"), "drops"), rates.seconds);
  for (const json& engine : now.value("engines", json::array())) {
    const json& counters = part(engine, "counters");
    const Difference counted(part(engines_before.at(number(engine, "engine")), "counters"), counters, rates.seconds);
    rates.engines.push_back({.engine = number(engine, "engine"),
                             .busy = counters.contains("idle_ns") ? std::clamp(1 - counted.rate("idle_ns") / 1e9, 0.0, 1.0) : 0,
                             .received_frames = counted.rate("received_frames"),
                             .transmitted_frames = counted.rate("transmitted_frames"),
                             .hairpin_messages = counted.rate("hairpin_messages"),
                             .linked_frames = counted.rate("linked_frames")});
  }
  for (const json& port : now.value("ports", json::array())) {
    const Difference counted(part(ports_before.at(number(port, "port")), "counters"), part(port, "counters"), rates.seconds);
    rates.ports.push_back({.port = number(port, "port"),
                           .address = port.value("address", ""),
                           .link = port.value("link", ""),
                           .received_frames = counted.rate("rx_frames"),
                           .received_bytes = counted.rate("rx_bytes"),
                           .sent_frames = counted.rate("tx_frames"),
                           .sent_bytes = counted.rate("tx_bytes")});
  }
  std::set<uint64_t> continued;
  for (const json& each : now.at("endpoints")) {
    if (!find_before(endpoints_before, each).empty()) continued.insert(number(each, "endpoint"));
  }
  const std::map<uint64_t, LocalRate> locals = local_rates(before, now, continued, rates.seconds);
  for (const json& endpoint : now.at("endpoints")) {
    if (!endpoint.value("carrier", json()).is_null()) continue;  // emulated: counted with its carrier
    const json& same = find_before(endpoints_before, endpoint);
    const Difference counted(part(same, "counters"), part(endpoint, "counters"), rates.seconds);
    EndpointRate rate;
    rate.endpoint = number(endpoint, "endpoint");
    rate.name = endpoint.value("name", "");
    rate.program = clients.at(number(endpoint, "client")).value("program", "");
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
    rate.drops = add_drops(rates.drops, name_of(endpoint), part(same, "drops"), part(endpoint, "drops"), rates.seconds);
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
