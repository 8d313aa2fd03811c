// stats.cc - the counters of `unetctl counters` and `drops`, zeros included.
#include "apps/unetctl/stats.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/unetctl/views.h"

namespace unet::unetctl {

using nlohmann::json;

namespace {

// ---- Prometheus and OpenMetrics

using Labels = std::vector<std::pair<std::string, std::string>>;

std::string replaced(const std::string& text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') out += "\\\\";
    else if (c == '\n') out += "\\n";
    else if (c == '"' && quotes) out += "\\\"";
    else out += c;
  }
  return out;
}

std::string text_of(const Labels& labels) {
  std::string out;
  for (const auto& [name, value] : labels) out += (out.empty() ? "" : ",") + name + "=\"" + replaced(value, true) + "\"";
  return out.empty() ? out : "{" + out + "}";
}

// Drivers name their counters freely: a run of other characters than letters and digits becomes one underscore.
std::string snake_case(const std::string& name) {
  std::string out;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      out += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!out.empty() && out.back() != '_') {
      out += '_';
    }
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  return out.empty() ? "unnamed" : out;
}

// The samples of a family stand together, under one HELP and one TYPE; families are sorted by name.
class Exposition {
  static constexpr std::string_view kTotal = "_total";

 public:
  void counter(const std::string& name, const std::string& help, const Labels& labels, const json& value) {
    add(name + std::string(kTotal), "counter", help, labels, value);
  }
  void gauge(const std::string& name, const std::string& help, const Labels& labels, const json& value) {
    add(name, "gauge", help, labels, value);
  }

  std::string prometheus() const {
    std::string out;
    for (const auto& [name, family] : families_) {
      out += "# HELP " + name + " " + replaced(family.help, false) + "\n# TYPE " + name + " " + family.type + "\n";
      for (const auto& [labels, value] : family.samples) out += name + labels + " " + value + "\n";
    }
    return out;
  }

  // A counter's family has no _total here, and each sample has its time.
  std::string openmetrics(const std::string& seconds) const {
    std::string out;
    for (const auto& [name, family] : families_) {
      const std::string of = family.type == "counter" ? name.substr(0, name.size() - kTotal.size()) : name;
      out += "# HELP " + of + " " + replaced(family.help, true) + "\n# TYPE " + of + " " + family.type + "\n";
      if (of.ends_with("_bytes")) out += "# UNIT " + of + " bytes\n";
      for (const auto& [labels, value] : family.samples) out += name + labels + " " + value + " " + seconds + "\n";
    }
    return out + "# EOF\n";
  }

 private:
  struct Family {
    std::string help, type;
    std::map<std::string, std::string> samples;  // by labels: each at most once
  };

  void add(const std::string& name, const char* type, const std::string& help, const Labels& labels, const json& value) {
    if (!value.is_number()) return;
    Family& family = families_.try_emplace(name, Family{help, type, {}}).first->second;
    family.samples.emplace(text_of(labels), value.dump());
  }

  std::map<std::string, Family> families_;
};

void add_all(Exposition& out, const std::string& prefix, const std::string& whose, const Labels& labels, const json& counters) {
  for (const auto& [name, value] : counters.items()) {
    out.counter(prefix + snake_case(name), whose + ": " + name, labels, value);
  }
}

void add_drops(Exposition& out, const std::string& family, const std::string& help, const Labels& labels, const json& drops) {
  for (const auto& [name, value] : drops.items()) {
    Labels with_reason = labels;
    with_reason.emplace_back("reason", name);
    out.counter(family, help, with_reason, value);
  }
}

bool is_emulated(const json& endpoint) { return !endpoint.value("carrier", json()).is_null(); }

// Emulated endpoints, possibly thousands, get no series of their own: their carrier has their traffic, and their number.
void add_endpoint(Exposition& out, const json& endpoint) {
  if (is_emulated(endpoint)) return;
  const Labels labels{{"endpoint", endpoint.at("endpoint").dump()},
                      {"name", endpoint.value("name", "")},
                      {"pid", endpoint.at("pid").dump()},
                      {"uid", endpoint.at("uid").dump()}};
  add_all(out, "unet_endpoint_", "Of an endpoint since it was created, without its local channels", labels, part(endpoint, "counters"));
  add_drops(out, "unet_endpoint_drops", "Messages and descriptors of an endpoint that were dropped, by reason", labels,
            part(endpoint, "drops"));
  out.gauge("unet_endpoint_channels", "Channels of an endpoint, in any state", labels, endpoint.value("channels", json()));
  out.gauge("unet_endpoint_emulated", "Emulated endpoints that an endpoint carries", labels, endpoint.value("emulated", json(0)));
}

void add_port(Exposition& out, const json& port) {
  const Labels labels{{"port", port.at("port").dump()}, {"address", port.value("address", "")}};
  add_all(out, "unet_port_", "Of a wire, as its driver counts", labels, part(port, "counters"));
  add_all(out, "unet_port_ip_", "Of the IP host on a wire", labels, part(part(port, "ip"), "counters"));
}

void add_ni(Exposition& out, const json& report) {
  const json& ni = part(report, "ni");
  const auto text = [](const json& object, const char* key) {
    const json value = object.value(key, json());
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  out.gauge("unet_ni_info", "The network interface that these numbers are of; always 1",
            {{"host", text(report, "host")},
             {"pid", text(ni, "pid")},
             {"uid", text(ni, "uid")},
             {"release", text(ni, "release")},
             {"incarnation", text(ni, "incarnation")}},
            1);
  out.gauge("unet_ni_draining", "1 while the network interface takes no new endpoints, names and channels", {},
            ni.value("draining", false) ? 1 : 0);
  const json& endpoints = report.at("endpoints");
  const auto emulated = static_cast<size_t>(std::count_if(endpoints.begin(), endpoints.end(), is_emulated));
  out.gauge("unet_clients", "How many clients this user sees", {}, report.at("clients").size());
  out.gauge("unet_endpoints", "How many endpoints with queues this user sees", {}, endpoints.size() - emulated);
  out.gauge("unet_emulated_endpoints", "How many emulated endpoints this user sees", {}, emulated);
  out.gauge("unet_channels", "How many channels this user sees", {}, report.at("channels").size());
  const json& counters = part(report, "counters");
  for (const char* of : {"engine", "service", "signalling"}) {
    add_all(out, "unet_" + std::string(of) + "_", "Of the network interface's " + std::string(of), {}, part(counters, of));
  }
  for (const json& engine : report.value("engines", json::array())) {
    const Labels labels{{"engine", engine.at("engine").dump()}};
    add_all(out, "unet_of_engine_", "Of one of the network interface's engines", labels, part(engine, "counters"));
    add_drops(out, "unet_of_engine_drops", "Frames that an engine dropped and no endpoint is charged with, by reason", labels,
              part(engine, "drops"));
  }
  add_drops(out, "unet_ni_drops", "Frames that no endpoint is charged with and that were dropped, by reason", {}, part(counters, "drops"));
}

Exposition exposition(const json& report) {
  Exposition out;
  add_ni(out, report);
  for (const json& port : report.at("ports")) add_port(out, port);
  for (const json& endpoint : report.at("endpoints")) add_endpoint(out, endpoint);
  return out;
}

}  // namespace

json stats_json(const json& report) {
  const json& all = part(report, "counters");
  json ni = part(report, "ni");
  ni["host"] = report.value("host", "");
  ni["protocol"] = report.value("version", json());
  json counters = json::object();
  for (const char* of : {"engine", "service", "signalling"}) {
    if (all.contains(of)) counters[of] = all.at(of);
  }
  json ports = json::array(), endpoints = json::array();
  for (const json& port : report.at("ports")) {
    ports.push_back({{"port", port.at("port")}, {"address", port.value("address", "")}, {"counters", part(port, "counters")}});
  }
  for (const json& endpoint : report.at("endpoints")) {
    json entry;
    for (const char* key : {"endpoint", "name", "pid", "uid", "channels", "counters", "drops"}) entry[key] = endpoint.at(key);
    entry["carrier"] = endpoint.value("carrier", json());
    entry["emulated"] = endpoint.value("emulated", json(0));
    endpoints.push_back(std::move(entry));
  }
  return {{"time_ns", report.value("time_ns", json())}, {"ni", std::move(ni)},       {"counters", std::move(counters)},
          {"drops", part(all, "drops")},                {"ports", std::move(ports)}, {"endpoints", std::move(endpoints)},
          {"engines", report.value("engines", json::array())}};
}

std::string stats_prometheus(const json& report) { return exposition(report).prometheus(); }

std::string stats_openmetrics(const json& report) {
  return exposition(report).openmetrics(std::to_string(report.at("time_ns").get<double>() / 1e9));
}

}  // namespace unet::unetctl
