// views.cc - the fields of each view.
#include "apps/unetctl/views.h"

#include "apps/unetctl/table.h"

namespace unet::unetctl {

using nlohmann::json;

namespace {

std::string cell(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return "-";
  if (at->is_string()) return at->get<std::string>().empty() ? "-" : printable(at->get<std::string>());
  if (at->is_boolean()) return at->get<bool>() ? "yes" : "no";
  return at->dump();
}

// One row per element of `list`, one column per key.
std::string rows(const json& list, const std::vector<std::string>& heading, const std::vector<const char*>& keys,
                 const std::string& nothing) {
  Table table(heading);
  for (const json& element : list) {
    std::vector<std::string> row;
    for (const char* key : keys) row.push_back(cell(element, key));
    table.add(std::move(row));
  }
  return table.text(nothing);
}

// Every counter under `part` ("counters" or "drops"): the NI's own, plus the sum over the objects that this user may see.
std::string counter_rows(const json& list, const std::string& nothing) {
  Table table({"OF", "COUNTER", "VALUE"});
  for (const json& entry : list) table.add({cell(entry, "of"), cell(entry, "counter"), cell(entry, "value")});
  return table.text(nothing);
}

void add_counters(json& list, const std::string& of, const json& counters) {
  for (const auto& [name, value] : counters.items()) {
    if (value != 0) list.push_back({{"of", of}, {"counter", name}, {"value", value}});
  }
}

// The NI's counters of all engines together, and of each if there are several.
void add_engines(json& list, const json& report, const char* part) {
  const json engines = report.value("engines", json::array());
  for (const json& engine : engines) {
    if (engines.size() > 1) add_counters(list, "engine " + engine.at("engine").dump(), engine.at(part));
  }
}

// Counters that are not zero, as a flat list.
json flat_counters(const json& report, bool drops) {
  json list = json::array();
  const json& ni = report.at("counters");
  if (drops) {
    if (ni.contains("drops")) add_counters(list, "NI", ni.at("drops"));
    add_engines(list, report, "drops");
  } else {
    for (const char* part : {"engine", "service", "signalling"}) {
      if (ni.contains(part)) add_counters(list, std::string(part), ni.at(part));
    }
    add_engines(list, report, "counters");
    for (const json& port : report.at("ports")) {
      add_counters(list, "port " + port.at("port").dump(), part(port, "counters"));
      add_counters(list, "ip of port " + port.at("port").dump(), part(part(port, "ip"), "counters"));
    }
  }
  for (const json& endpoint : report.at("endpoints")) add_counters(list, name_of(endpoint), endpoint.at(drops ? "drops" : "counters"));
  return list;
}

json flat_held(const json& report) {
  json list = json::array();
  for (const auto& [part, values] : report.at("held").items()) add_counters(list, part, values);
  add_engines(list, report, "held");
  return list;
}

}  // namespace

const json& part(const json& object, const char* key) {
  static const json nothing = json::object();
  const auto at = object.find(key);
  return at != object.end() && at->is_object() ? *at : nothing;
}

std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

bool is_draining(const json& report) {
  const auto ni = report.find("ni");
  return ni != report.end() && ni->value("draining", false);
}

std::string name_of(const json& endpoint) {
  const std::string name = endpoint.value("name", "");
  const std::string id = "endpoint " + endpoint.at("endpoint").dump();
  return name.empty() ? id : id + " (" + name + ")";
}

const std::vector<std::string>& view_names() {
  static const std::vector<std::string> names{"endpoints", "channels", "names", "counters", "drops",
                                              "clients",   "users",    "held",  "ports",    "hosts"};
  return names;
}

json select(const json& report, const std::string& view) {
  if (view == "counters") return flat_counters(report, false);
  if (view == "drops") return flat_counters(report, true);
  if (view == "held") return flat_held(report);
  return report.at(view);
}

std::string show(const json& report, const std::string& view) {
  const json part = select(report, view);
  if (view == "endpoints") {
    return rows(part, {"ENDPOINT", "NAME", "PID", "UID", "CARRIER", "WEIGHT", "CHANNELS", "SEGMENT", "REGION", "SEND", "RECEIVE", "BUFFERS",
                 "SIZE"},
                {"endpoint", "name", "pid", "uid", "carrier", "weight", "channels", "segment_bytes", "region_bytes", "send_depth",
                 "receive_depth", "buffers", "buffer_size"},
                "no endpoints");
  }
  if (view == "channels") {
    return rows(part, {"ENDPOINT", "CHANNEL", "PATH", "STATE", "SIDE", "PEER", "TAG", "PORT"},
                {"endpoint", "channel", "path", "state", "side", "peer", "tag", "port"}, "no channels");
  }
  if (view == "names") return rows(part, {"NAME", "ENDPOINT", "PID"}, {"name", "endpoint", "pid"}, "no names");
  if (view == "clients") {
    return rows(part, {"CLIENT", "PID", "UID", "PROGRAM", "ENDPOINTS", "EMULATED"},
                {"client", "pid", "uid", "program", "endpoints", "emulated"}, "no clients");
  }
  if (view == "users") {
    return rows(part,
                {"UID", "CONNECTIONS", "ENDPOINTS", "EMULATED", "CHANNELS", "MEMORY", "WEIGHT", "MESSAGES/S", "BYTES/S", "EACH MESSAGES/S",
                 "EACH BYTES/S"},
                {"uid", "connections", "endpoints", "emulated", "channels", "memory", "weight", "messages_per_s", "bytes_per_s",
                 "endpoint_messages_per_s", "endpoint_bytes_per_s"},
                "no users");
  }
  if (view == "ports") {
    return rows(part, {"PORT", "ENGINE", "QUEUES", "ADDRESS", "MTU", "LINK", "WIRE"},
                {"port", "engine", "queues", "address", "mtu", "link", "description"},
                "no ports");
  }
  if (view == "hosts") return rows(part, {"HOST", "ADDRESS", "PORT"}, {"host", "address", "port"}, "no other hosts are known");
  if (view == "captures") {
    return rows(part, {"CAPTURE", "PID", "UID", "PORT", "ENDPOINT", "CHANNEL", "SNAP", "FRAMES", "DROPPED"},
                {"capture", "pid", "uid", "port", "endpoint", "channel", "snap_length", "frames", "dropped"}, "no captures");
  }
  if (view == "held") return counter_rows(part, "nothing is held, or it is the operator's to know");
  return counter_rows(part, view == "drops" ? "nothing was dropped" : "nothing was counted");
}

}  // namespace unet::unetctl
