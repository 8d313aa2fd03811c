// report.cc - the JSON document that unetctl shows: what one user may see of the NI.
//
// Root and the NI's own user see everything; anybody else their own clients and endpoints, and the names, hosts and ports that everybody
// may know of: names are bound to be found, and who tries to bind one learns as much. To whom the policy gives no right nobody talks.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <ctime>

#include <nlohmann/json.hpp>

#include "ipstack/wire/address.h"
#include "unet/capture_memory.h"
#include "unet/service/service.h"
#include "unet/version.h"

namespace unet::service {

using nlohmann::json;

namespace {

std::string text_of(const MacAddress& mac) {
  std::array<char, 18> text{};
  std::snprintf(text.data(), text.size(), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
  return text.data();
}

std::string hex(Tag tag) {
  std::array<char, 11> text{};
  std::snprintf(text.data(), text.size(), "0x%08x", static_cast<uint32_t>(tag));
  return text.data();
}

const char* text_of(ChannelRecord::State state) {
  switch (state) {
    case ChannelRecord::State::connecting: return "connecting";
    case ChannelRecord::State::confirming: return "confirming";
    case ChannelRecord::State::open: return "open";
    case ChannelRecord::State::closed: return "closed";
  }
  return "unknown";
}

uint64_t wall_clock() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * kSecond + static_cast<uint64_t>(t.tv_nsec);
}

// null: there is none
json limit(uint64_t rate) { return rate == 0 ? json() : json(rate); }

const char* path_of(const ChannelRecord& channel) {
  if (channel.wire) return "wire";
  if (channel.ip) return "ip";
  return channel.kind == control::ChannelKind::local ? "local" : "ni";
}

}  // namespace

class ReportBuilder {
 public:
  ReportBuilder(Service& service, const Credentials& who)
      : s_(service), who_(who), all_(who.uid == 0 || who.uid == service.options_.own_user) {}

  std::string build() {
    json document = {{"host", s_.options_.host}, {"version", control::kVersion}};
    document["time_ns"] = wall_clock();          // since 1970
    document["monotonic_ns"] = monotonic_now();  // for rates
    document["ni"] = identity();
    document["clients"] = clients();
    document["endpoints"] = json::array();
    document["channels"] = json::array();
    for (const auto& [id, endpoint] : s_.endpoints_) {
      if (sees(*endpoint)) add(document, *endpoint);
    }
    document["ip_claims"] = ip_claims();
    document["names"] = names();
    document["users"] = users();
    document["held"] = held();
    document["captures"] = captures();
    document["hosts"] = hosts();
    document["ports"] = ports();
    document["counters"] = counters();
    document["engines"] = engines();
    return document.dump(-1, ' ', true, json::error_handler_t::replace);
  }

 private:
  bool sees(const EndpointRecord& endpoint) const {
    return all_ || s_.clients_.at(endpoint.client)->who.uid == who_.uid;
  }

  json identity() const {
    return {{"pid", getpid()},
            {"uid", s_.options_.own_user},
            {"incarnation", s_.options_.incarnation},
            {"draining", s_.draining_},
            {"release", unet_version()}};
  }

  json clients() const {
    json list = json::array();
    for (const auto& [index, client] : s_.clients_) {
      if (!all_ && client->who.uid != who_.uid) continue;
      list.push_back({{"client", index},
                      {"pid", client->who.pid},
                      {"uid", client->who.uid},
                      {"program", client->program},
                      {"endpoints", client->endpoints.size()},
                      {"emulated", emulated_of(*client)},
                      {"ending", client->dropped}});
    }
    return list;
  }

  size_t emulated_of(const ClientRecord& client) const {
    size_t count = 0;
    for (const uint32_t id : client.endpoints) count += s_.endpoints_.at(id)->emulated.size();
    return count;
  }

  void add(json& document, const EndpointRecord& endpoint) const {
    const ClientRecord& client = *s_.clients_.at(endpoint.client);
    // What emulated endpoints send and receive is counted for the one that carries them; libunet knows whose it was.
    json counters = json::object(), drops = json::object();
    for (size_t i = 0; !endpoint.carrier && i < kEndpointCounters; ++i) {
      const auto counter = static_cast<EndpointCounter>(i);
      json& into = counter < kFirstEndpointDrop ? counters : drops;
      const uint64_t value = endpoint.engine ? s_.engine_.endpoint_counter(*endpoint.engine, endpoint.id, counter) : 0;
      into[std::string(kEndpointCounterNames[i])] = value;
    }
    document["endpoints"].push_back({{"endpoint", endpoint.id},
                                     {"client", endpoint.client},
                                     {"engine", endpoint.engine ? json(*endpoint.engine) : json()},
                                     {"pid", client.who.pid},
                                     {"uid", client.who.uid},
                                     {"name", std::string(s_.names_.name_of(endpoint.id))},
                                     {"weight", endpoint.carrier ? json() : json(endpoint.weight)},
                                     {"segment_bytes", endpoint.geometry.total},
                                     {"region_bytes", endpoint.region_bytes},
                                     {"send_depth", endpoint.geometry.send_depth},
                                     {"receive_depth", endpoint.geometry.receive_depth},
                                     {"buffers", endpoint.geometry.buffers},
                                     {"buffer_size", endpoint.geometry.buffer_size},
                                     {"channels", endpoint.channels.size()},
                                     {"requests", endpoint.requests.size()},
                                     {"ending", endpoint.detaching},
                                     {"carrier", endpoint.carrier ? json(*endpoint.carrier) : json()},
                                     {"emulated", endpoint.emulated.size()},
                                     {"counters", counters},
                                     {"drops", drops}});
    for (const auto& [number, channel] : endpoint.channels) document["channels"].push_back(channel_entry(endpoint, channel));
  }

  static json channel_entry(const EndpointRecord& endpoint, const ChannelRecord& channel) {
    json entry = {{"endpoint", endpoint.id},
                  {"channel", channel.number},
                  {"path", path_of(channel)},
                  {"state", text_of(channel.state)},
                  {"peer", channel.peer},
                  {"side", channel.side == 0 ? "connected" : "accepted"}};
    if (channel.wire) {
      entry["tag"] = hex(channel.local_tag);
      entry["port"] = channel.port;
      entry["static"] = channel.fixed;
    }
    if (channel.kind == control::ChannelKind::local) entry["memory"] = LocalGeometry::of(channel.local).total;
    return entry;
  }

  // Ports of TCP and UDP, as a list of sockets would have them.
  json ip_claims() const {
    json list = json::array();
    const auto text = [](const ip::IpAddress& address) { return address.is_unspecified() ? json() : json(ip::text_of(address)); };
    for (const auto& [number, record] : s_.ip_ports_.all()) {
      const EndpointRecord& endpoint = *s_.endpoints_.at(record.endpoint);
      if (!sees(endpoint)) continue;
      const ClientRecord& client = *s_.clients_.at(endpoint.client);
      list.push_back({{"claim", number},
                      {"endpoint", record.endpoint},
                      {"pid", client.who.pid},
                      {"uid", client.who.uid},
                      {"protocol", record.claim.protocol == 6 ? "tcp" : "udp"},
                      {"local", text(record.claim.local)},
                      {"port", record.claim.port},
                      {"ports", record.claim.ports},
                      {"remote", text(record.claim.remote)},
                      {"remote_port", record.claim.remote_port},
                      {"shared", record.claim.group != 0},
                      {"takes_new", static_cast<uint32_t>(record.claim.takes_new)}});
    }
    return list;
  }

  json names() const {
    json list = json::array();
    for (const auto& [name, id] : s_.names_.all()) {
      const EndpointRecord& endpoint = *s_.endpoints_.at(id);
      json entry = {{"name", name}};
      if (sees(endpoint)) {
        entry["endpoint"] = id;
        entry["pid"] = s_.clients_.at(endpoint.client)->who.pid;
      }
      list.push_back(std::move(entry));
    }
    return list;
  }

  // What each user is charged with now, its share, and the limits it has.
  json users() const {
    json list = json::array();
    for (const auto& [user, usage] : s_.accounts_.all()) {
      if (!all_ && user != who_.uid) continue;
      // Who has claims has a channel.
      if (usage.connections == 0 && usage.endpoints == 0 && usage.emulated == 0 && usage.channels == 0 && usage.memory == 0) continue;
      const auto known = s_.terms_.find(user);
      const Service::Terms terms = known == s_.terms_.end() ? Service::Terms{} : known->second;
      list.push_back({{"uid", user},
                      {"connections", usage.connections},
                      {"endpoints", usage.endpoints},
                      {"emulated", usage.emulated},
                      {"channels", usage.channels},
                      {"memory", usage.memory},
                      {"ip_claims", usage.ip_claims},
                      {"ip_ports", usage.ip_ports},
                      {"weight", terms.weight},
                      {"messages_per_s", limit(terms.limits.messages)},
                      {"bytes_per_s", limit(terms.limits.bytes)},
                      {"endpoint_messages_per_s", limit(terms.limits.endpoint_messages)},
                      {"endpoint_bytes_per_s", limit(terms.limits.endpoint_bytes)},
                      {"burst_ms", terms.limits.any() ? json(terms.limits.burst / kMillisecond) : json()}});
    }
    return list;
  }

  // Whatever the NI keeps for clients and that must be as before when they are gone, as each part of it counts.
  json held() const {
    if (!all_) return json::object();
    json engine = json::object();
    for (size_t i = 0; i < kNiGauges; ++i) {
      uint64_t sum = 0;
      for (uint32_t e = 0; e < s_.engines(); ++e) sum += s_.engine_.ni_gauge(e, static_cast<NiGauge>(i));
      engine[std::string(kNiGaugeNames[i])] = sum;
    }
    size_t packets = 0;
    for (const auto& [index, client] : s_.clients_) packets += client->socket.packets_waiting();
    const SignallingHoldings signals = s_.signalling_->holdings();
    return {{"engine", std::move(engine)},
            {"service",
             {{"clients", s_.clients_.size()},
              {"endpoints", s_.real_endpoints_},
              {"emulated", s_.emulated_endpoints()},
              {"names", s_.names_.all().size()},
              {"ip_claims", s_.ip_ports_.all().size()},
              {"requests", s_.requests_.size()},
              {"tags", s_.tags_.used()},
              {"commands_waiting", s_.commands_waiting()},
              {"packets_waiting", packets}}},
            {"signalling",
             {{"channels", signals.channels},
              {"connects", signals.connects},
              {"requests", signals.requests},
              {"closings", signals.closings}}}};
  }

  json captures() const {
    json list = json::array();
    for (const auto& [number, capture] : s_.captures_) {
      if (capture.stopping || (!all_ && capture.user != who_.uid)) continue;
      const auto& header = *reinterpret_cast<const CaptureHeader*>(capture.shared.mapping.data());
      json entry = {{"capture", number}, {"pid", capture.pid}, {"uid", capture.user}, {"snap_length", capture.snap_length},
                    {"frames", header.frames.load(std::memory_order_relaxed)}, {"dropped", header.dropped.load(std::memory_order_relaxed)}};
      entry["port"] = capture.port < 0 ? json() : json(capture.port);
      entry["endpoint"] = capture.endpoint ? json(*capture.endpoint) : json();
      entry["channel"] = capture.channel ? json(*capture.channel) : json();
      list.push_back(std::move(entry));
    }
    return list;
  }

  json hosts() const {
    json list = json::array();
    for (const StaticPeer& peer : s_.signalling_->known_hosts()) {
      list.push_back({{"host", peer.host}, {"address", text_of(peer.address.mac)}, {"port", peer.address.port}});
    }
    return list;
  }

  json ports() const {
    json list = json::array();
    const auto counters = all_ ? s_.engine_.port_counters() : std::vector<std::vector<DriverCounter>>();
    for (size_t i = 0; i < s_.ports_.size(); ++i) {
      const PortInfo& port = s_.ports_[i];
      json entry = {{"port", i}, {"address", text_of(port.address)}, {"mtu", port.mtu}, {"description", port.description},
                    {"engine", port.engine}, {"queues", port.queues}};
      if (i < counters.size()) {
        json values = json::object();
        for (const DriverCounter& counter : counters[i]) values[counter.name] = counter.value;
        entry["counters"] = std::move(values);
      }
      const auto ip = s_.ip_status_.find(static_cast<uint32_t>(i));
      if (ip != s_.ip_status_.end()) entry["ip"] = ip_entry(ip->first, ip->second);
      list.push_back(std::move(entry));
    }
    return list;
  }

  json ip_entry(uint32_t port, const ip::HostStatus& status) const {
    json addresses = json::array(), gateways = json::array();
    for (uint32_t i = 0; i < status.count; ++i) {
      const ip::HostStatus::Address& each = status.addresses[i];
      addresses.push_back({{"address", ip::text_of(each.address)}, {"prefix", each.prefix}, {"tentative", each.tentative}});
    }
    for (const ip::IpAddress& each : {status.gateway4, status.gateway6}) {
      if (!each.is_unspecified()) gateways.push_back(ip::text_of(each));
    }
    json routes = json::array();
    for (const engine::IpPortOptions& each : s_.options_.ip) {
      if (each.port != port) continue;
      for (const ip::HostRoute& route : each.routes) {
        routes.push_back({{"network", ip::text_of(route.network)}, {"prefix", route.prefix}, {"gateway", ip::text_of(route.gateway)}});
      }
    }
    json entry = {{"addresses", std::move(addresses)}, {"gateways", std::move(gateways)}, {"routes", std::move(routes)}};
    if (!all_) return entry;
    json counters = json::object();
    for (size_t i = 0; i < static_cast<size_t>(ip::HostCounter::count); ++i) {
      counters[ip::name_of(static_cast<ip::HostCounter>(i))] = s_.engine_.ip_counter(port, i);
    }
    entry["counters"] = std::move(counters);
    return entry;
  }

  // What `counters` and `held` have of all engines, of each.
  json engines() const {
    json list = json::array();
    if (!all_) return list;
    for (uint32_t e = 0; e < s_.engines(); ++e) {
      json counters = json::object(), drops = json::object(), held = json::object(), ports = json::array();
      for (size_t i = 0; i < kNiCounters; ++i) {
        const auto counter = static_cast<NiCounter>(i);
        (counter < kFirstNiDrop ? counters : drops)[std::string(kNiCounterNames[i])] = s_.engine_.ni_counter(e, counter);
      }
      for (size_t i = 0; i < kNiGauges; ++i) held[std::string(kNiGaugeNames[i])] = s_.engine_.ni_gauge(e, static_cast<NiGauge>(i));
      for (size_t i = 0; i < s_.ports_.size(); ++i) {
        if ((s_.engines_of(s_.ports_[i]) >> e & 1) != 0) ports.push_back(i);
      }
      list.push_back({{"engine", e}, {"ports", std::move(ports)}, {"counters", std::move(counters)}, {"drops", std::move(drops)},
                      {"held", std::move(held)}});
    }
    return list;
  }

  // Of the whole NI: traffic of others is nobody's business but the operator's.
  json counters() const {
    if (!all_) return json::object();
    json engine = json::object(), drops = json::object();
    for (size_t i = 0; i < kNiCounters; ++i) {
      const auto counter = static_cast<NiCounter>(i);
      uint64_t sum = 0;
      for (uint32_t e = 0; e < s_.engines(); ++e) sum += s_.engine_.ni_counter(e, counter);
      (counter < kFirstNiDrop ? engine : drops)[std::string(kNiCounterNames[i])] = sum;
    }
    const SignallingCounters& signals = s_.signalling_->counters();
    const ServiceCounters& service = s_.counters_;
    return {{"engine", std::move(engine)},
            {"drops", std::move(drops)},
            {"signalling",
             {{"sent", signals.sent},
              {"received", signals.received},
              {"repeated", signals.repeated},
              {"malformed", signals.malformed},
              {"stale", signals.stale},
              {"unexpected", signals.unexpected},
              {"overflow", signals.overflow},
              {"peers_lost", signals.peers_lost},
              {"peers_restarted", signals.peers_restarted}}},
            {"service",
             {{"connections", service.connections},
              {"refused_connections", service.refused_connections},
              {"protocol_errors", service.protocol_errors},
              {"slow_clients", service.slow_clients},
              {"requests", service.requests},
              {"failed_requests", service.failed_requests},
              {"dropped_signals", service.dropped_signals}}}};
  }

  Service& s_;
  const Credentials& who_;
  bool all_;
};

std::string Service::report(const Credentials& who) { return ReportBuilder(*this, who).build(); }

}  // namespace unet::service
