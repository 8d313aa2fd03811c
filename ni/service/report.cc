// report.cc - the sections of the document, and where a part of it ends.
//
// Root and the NI's own user see everything. Other users see their own clients and endpoints, and all names, hosts and ports: names are
// bound to be found, and an attempt to bind one tells as much. A user to which the policy gives no right gets no connection.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "ni/service/report.h"
#include "ni/service/service.h"
#include "unet/base/bytes.h"
#include "unet/capture_memory.h"
#include "unet/version.h"
#include "unet/wire/address.h"
#include "unet/wire/ethernet.h"

namespace unet::service {

using nlohmann::json;

namespace {

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

// null: no limit
json limit(uint64_t rate) { return rate == 0 ? json() : json(rate); }

const char* path_of(const ChannelRecord& channel) {
  if (channel.wire) return "wire";
  if (channel.ip) return "ip";
  return channel.kind == control::ChannelKind::local ? "local" : "ni";
}

}  // namespace

class ReportBuilder {
 public:
  ReportBuilder(const Service& service, Report& report) : s_(service), r_(report), all_(report.reader_.all) {}

  // Writes one entry, skips one element that has none, or ends the section.
  void step();

 private:
  enum class Found { entry, nothing, end };
  struct Section {
    const char* name;
    json (ReportBuilder::*whole)() const;     // writes the whole section,
    Found (ReportBuilder::*entry)(json& out);  // or one entry of a list
  };
  static const Section kSections[];
  static const size_t kSectionCount;

  bool sees(const EndpointRecord& endpoint) const {
    return all_ || owner_of(*s_.clients_.at(endpoint.client)) == r_.reader_.owner;
  }
  void write(const json& value) { r_.text_ += value.dump(-1, ' ', true, json::error_handler_t::replace); }

  // The map's first entry at or behind Report::at_.
  template <typename Map>
  auto* next_of(const Map& map) {
    using Key = typename Map::key_type;
    const auto found = r_.at_ > std::numeric_limits<Key>::max() ? map.end() : map.lower_bound(static_cast<Key>(r_.at_));
    if (found == map.end()) return static_cast<decltype(&*found)>(nullptr);
    r_.at_ = uint64_t{found->first} + 1;
    return &*found;
  }

  json host() const { return s_.options_.host; }
  json version() const { return control::kVersion; }
  json time() const { return wall_now(); }          // nanoseconds since 1970
  json monotonic() const { return monotonic_now(); }  // the clock for computing rates

  json identity() const {
    return {{"pid", getpid()},
            {"uid", s_.options_.own_user},
            {"incarnation", s_.channels_.wires().signalling().incarnation()},
            {"draining", s_.operation_.draining()},
            {"release", unet_version()}};
  }

  Found client(json& out) {
    const auto* const next = next_of(s_.clients_.all());
    if (next == nullptr) return Found::end;
    const ClientRecord& client = *next->second;
    if (!all_ && owner_of(client) != r_.reader_.owner) return Found::nothing;
    out = {{"client", client.index},
           {"pid", client.who.pid},
           {"uid", client.who.uid},
           {"program", client.program},
           {"endpoints", client.endpoints.size()},
           {"emulated", emulated_of(client)},
           {"ending", client.dropped}};
    return Found::entry;
  }

  size_t emulated_of(const ClientRecord& client) const {
    size_t count = 0;
    for (const uint32_t id : client.endpoints) count += s_.endpoints_.at(id)->emulated.size();
    return count;
  }

  Found endpoint(json& out) {
    const auto* const next = next_of(s_.endpoints_.all());
    if (next == nullptr) return Found::end;
    const EndpointRecord& endpoint = *next->second;
    if (!sees(endpoint)) return Found::nothing;
    const ClientRecord& client = *s_.clients_.at(endpoint.client);
    // The messages of emulated endpoints are counted for their carrier; only libunet can tell them apart.
    json counters = json::object(), drops = json::object();
    for (size_t i = 0; !endpoint.carrier && i < kEndpointCounters; ++i) {
      const auto counter = static_cast<EndpointCounter>(i);
      json& into = counter < kFirstEndpointDrop ? counters : drops;
      const uint64_t value = endpoint.engine ? s_.engine_.endpoint_counter(*endpoint.engine, endpoint.id, counter) : 0;
      into[std::string(kEndpointCounterNames[i])] = value;
    }
    out = {{"endpoint", endpoint.id},
           {"client", endpoint.client},
           {"engine", endpoint.engine ? json(*endpoint.engine) : json()},
           {"pid", client.who.pid},
           {"uid", client.who.uid},
           {"name", std::string(s_.endpoints_.names().name_of(endpoint.id))},
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
           {"drops", drops}};
    return Found::entry;
  }

  Found channel(json& out) {
    const auto endpoint = s_.endpoints_.all().lower_bound(static_cast<uint32_t>(r_.at_));
    if (endpoint == s_.endpoints_.all().end()) return Found::end;
    if (endpoint->first != r_.at_) r_.within_ = 0;
    r_.at_ = endpoint->first;
    const auto& channels = endpoint->second->channels;
    const auto next = sees(*endpoint->second) ? channels.lower_bound(static_cast<uint32_t>(r_.within_)) : channels.end();
    if (next == channels.end()) {
      ++r_.at_;
      r_.within_ = 0;
      return Found::nothing;
    }
    r_.within_ = uint64_t{next->first} + 1;
    out = channel_entry(*endpoint->second, next->second);
    return Found::entry;
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
    if (channel.local_page != nullptr) {
      // The receivers count, and may write anything. Side 1 receives the messages of side 0.
      const auto* const controls = reinterpret_cast<const LocalControl*>(channel.local_page->data());
      const auto &sent = controls[channel.side].consumed, &received = controls[1 - channel.side].consumed;
      entry["counters"] = {{"sent_messages", sent.messages.load(std::memory_order_relaxed)},
                           {"sent_bytes", sent.bytes.load(std::memory_order_relaxed)},
                           {"received_messages", received.messages.load(std::memory_order_relaxed)},
                           {"received_bytes", received.bytes.load(std::memory_order_relaxed)}};
    }
    return entry;
  }

  // A claim of TCP or UDP ports.
  Found ip_claim(json& out) {
    const auto text = [](const ip::IpAddress& address) { return address.is_unspecified() ? json() : json(ip::text_of(address)); };
    const auto* const next = next_of(s_.ip_.ports().all());
    if (next == nullptr) return Found::end;
    const auto& [number, record] = *next;
    const EndpointRecord& endpoint = *s_.endpoints_.at(record.endpoint);
    if (!sees(endpoint)) return Found::nothing;
    const ClientRecord& client = *s_.clients_.at(endpoint.client);
    out = {{"claim", number},
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
           {"takes_new", static_cast<uint32_t>(record.claim.accepts_new_flows)}};
    return Found::entry;
  }

  Found name(json& out) {
    const auto next = s_.endpoints_.names().all().upper_bound(r_.behind_);
    if (next == s_.endpoints_.names().all().end()) return Found::end;
    r_.behind_ = next->first;
    const EndpointRecord& endpoint = *s_.endpoints_.at(next->second);
    out = {{"name", next->first}};
    if (sees(endpoint)) {
      out["endpoint"] = next->second;
      out["pid"] = s_.clients_.at(endpoint.client)->who.pid;
    }
    return Found::entry;
  }

  // Each user's charges now, its share, and its limits.
  Found user(json& out) {
    const auto* const next = next_of(s_.charges_.all());
    if (next == nullptr) return Found::end;
    const auto& [user, usage] = *next;
    if (!all_ && user != r_.reader_.user) return Found::nothing;
    // An endpoint with claims has a channel.
    const bool idle =
        usage.connections == 0 && usage.endpoints == 0 && usage.emulated == 0 && usage.channels == 0 && usage.memory == 0;
    if (idle) return Found::nothing;
    const EndpointEngines::Terms terms = s_.engines_.terms_of(user);
    out = {{"uid", user},
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
           {"burst_ms", terms.limits.any() ? json(terms.limits.burst / kMillisecond) : json()}};
    return Found::entry;
  }

  // Resources that the NI holds for clients, by the counts of its parts. They must return to their old values when the clients are gone.
  json held() const {
    if (!all_) return json::object();
    json engine = json::object();
    for (size_t i = 0; i < kNiGauges; ++i) {
      uint64_t sum = 0;
      for (uint32_t e = 0; e < s_.engines_.count(); ++e) sum += s_.engine_.ni_gauge(e, static_cast<NiGauge>(i));
      engine[std::string(kNiGaugeNames[i])] = sum;
    }
    size_t packets = 0;
    for (const auto& [index, client] : s_.clients_.all()) packets += client->socket.packets_waiting();
    const SignallingHoldings signals = s_.channels_.wires().signalling().holdings();
    return {{"engine", std::move(engine)},
            {"service",
             {{"clients", s_.clients_.all().size()},
              {"endpoints", s_.endpoints_.real()},
              {"emulated", s_.endpoints_.emulated()},
              {"names", s_.endpoints_.names().all().size()},
              {"ip_claims", s_.ip_.ports().all().size()},
              {"requests", s_.channels_.requests().all().size()},
              {"tags", s_.channels_.tags().used()},
              {"commands_waiting", s_.commands_.waiting()},
              {"packets_waiting", packets}}},
            {"signalling",
             {{"channels", signals.channels},
              {"connects", signals.connects},
              {"requests", signals.requests},
              {"closings", signals.closings}}}};
  }

  Found capture(json& out) {
    const auto* const next = next_of(s_.captures_.all());
    if (next == nullptr) return Found::end;
    const CaptureRecord& capture = next->second;
    if (capture.stopping || (!all_ && capture.owner != r_.reader_.owner)) return Found::nothing;
    const auto& header = *reinterpret_cast<const CaptureHeader*>(capture.shared.mapping.data());
    out = {{"capture", capture.capture}, {"pid", capture.pid}, {"uid", capture.user}, {"snap_length", capture.snap_length},
           {"frames", header.frames.load(std::memory_order_relaxed)}, {"dropped", header.dropped.load(std::memory_order_relaxed)}};
    out["port"] = capture.port < 0 ? json() : json(capture.port);
    out["endpoint"] = capture.endpoint ? json(*capture.endpoint) : json();
    out["channel"] = capture.channel ? json(*capture.channel) : json();
    return Found::entry;
  }

  // The configured hosts, then the learned ones.
  Found known_host(json& out) {
    const std::optional<StaticPeer> next = s_.channels_.wires().signalling().known_host_after(r_.behind_, r_.at_ != 0);
    if (!next) {
      if (r_.at_ != 0) return Found::end;
      r_.at_ = 1;
      r_.behind_.clear();
      return Found::nothing;
    }
    r_.behind_ = next->host;
    out = {{"host", next->host}, {"address", mac_text(next->address.mac).data()}, {"port", next->address.port}};
    return Found::entry;
  }

  Found port(json& out) {
    const auto i = static_cast<size_t>(r_.at_++);
    if (i >= s_.ports_.size()) return Found::end;
    const PortInfo& port = s_.ports_[i];
    out = {{"port", i}, {"address", mac_text(port.address).data()}, {"mtu", s_.ports_.mtu_now(static_cast<uint32_t>(i))},
           {"link", s_.ports_.link_text(static_cast<uint32_t>(i))}, {"description", port.description},
           {"engine", port.engine}, {"queues", port.queues}};
    const auto counters = all_ ? s_.engine_.port_counters() : std::vector<std::vector<DriverCounter>>();
    if (i < counters.size()) {
      json values = json::object();
      for (const DriverCounter& counter : counters[i]) values[counter.name] = counter.value;
      if (port.state != nullptr && port.state->descriptor() >= 0) values["rx_unfinished_checksum"] = port.state->unfinished();
      out["counters"] = std::move(values);
    }
    const auto ip = s_.ip_.hosts().all().find(static_cast<uint32_t>(i));
    if (ip != s_.ip_.hosts().all().end()) out["ip"] = ip_entry(ip->first, ip->second);
    return Found::entry;
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
    for (const engine::IpInterfaceOptions& each : s_.options_.ip) {
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

  // The counters and gauges of one engine; `counters` and `held` have the sums over all engines.
  Found engine(json& out) {
    const auto e = static_cast<uint32_t>(r_.at_++);
    if (!all_ || e >= s_.engines_.count()) return Found::end;
    json counters = json::object(), drops = json::object(), held = json::object(), ports = json::array();
    for (size_t i = 0; i < kNiCounters; ++i) {
      const auto counter = static_cast<NiCounter>(i);
      (counter < kFirstNiDrop ? counters : drops)[std::string(kNiCounterNames[i])] = s_.engine_.ni_counter(e, counter);
    }
    for (size_t i = 0; i < kNiGauges; ++i) held[std::string(kNiGaugeNames[i])] = s_.engine_.ni_gauge(e, static_cast<NiGauge>(i));
    for (size_t i = 0; i < s_.ports_.size(); ++i) {
      if ((s_.engines_.of(static_cast<uint32_t>(i)) >> e & 1) != 0) ports.push_back(i);
    }
    out = {{"engine", e}, {"ports", std::move(ports)}, {"counters", std::move(counters)}, {"drops", std::move(drops)},
           {"held", std::move(held)}};
    return Found::entry;
  }

  // Counters of the whole NI, which only the operator sees, as they show the traffic of other users.
  json counters() const {
    if (!all_) return json::object();
    if (s_.ports_.size() == 0) (void)s_.engine_.port_counters();  // wakes engines, which count the idle time until now
    json engine = json::object(), drops = json::object();
    for (size_t i = 0; i < kNiCounters; ++i) {
      const auto counter = static_cast<NiCounter>(i);
      uint64_t sum = 0;
      for (uint32_t e = 0; e < s_.engines_.count(); ++e) sum += s_.engine_.ni_counter(e, counter);
      (counter < kFirstNiDrop ? engine : drops)[std::string(kNiCounterNames[i])] = sum;
    }
    const SignallingCounters& signals = s_.channels_.wires().signalling().counters();
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

  const Service& s_;
  Report& r_;
  const bool all_;
};

using Builder = ReportBuilder;
const Builder::Section Builder::kSections[] = {
    {"host", &Builder::host, nullptr},
    {"version", &Builder::version, nullptr},
    {"time_ns", &Builder::time, nullptr},
    {"monotonic_ns", &Builder::monotonic, nullptr},
    {"ni", &Builder::identity, nullptr},
    {"clients", nullptr, &Builder::client},
    {"endpoints", nullptr, &Builder::endpoint},
    {"channels", nullptr, &Builder::channel},
    {"ip_claims", nullptr, &Builder::ip_claim},
    {"names", nullptr, &Builder::name},
    {"users", nullptr, &Builder::user},
    {"held", &Builder::held, nullptr},
    {"captures", nullptr, &Builder::capture},
    {"hosts", nullptr, &Builder::known_host},
    {"ports", nullptr, &Builder::port},
    {"counters", &Builder::counters, nullptr},
    {"engines", nullptr, &Builder::engine},
};
const size_t Builder::kSectionCount = std::size(kSections);

void ReportBuilder::step() {
  const Section& section = kSections[r_.section_];
  const auto open = [&] { r_.text_ += (r_.section_ == 0 ? "{\"" : ",\"") + std::string(section.name) + "\":"; };
  if (section.whole != nullptr) {
    open();
    write((this->*section.whole)());
  } else {
    json entry;
    const Found found = (this->*section.entry)(entry);
    if (found == Found::nothing) return;
    if (!r_.begun_) open();
    if (found == Found::entry) {
      r_.text_ += std::exchange(r_.begun_, true) ? ',' : '[';
      return write(entry);
    }
    r_.text_ += r_.begun_ ? "]" : "[]";
  }
  r_.begun_ = false;
  r_.at_ = r_.within_ = 0;
  r_.behind_.clear();
  if (++r_.section_ < kSectionCount) return;
  r_.text_ += '}';
  r_.section_ = Report::kEnd;
}

std::string Report::next(const Service& service, size_t room) {
  // A part ends by this time, so a user with few endpoints among many others gets empty parts. Its last entry may take as long again.
  constexpr Nanoseconds kTime = 30 * kMicrosecond;
  ++parts_;
  ReportBuilder builder(service, *this);
  const Nanoseconds begin = monotonic_now();
  while (section_ != kEnd && text_.size() < room && monotonic_now() - begin < kTime) builder.step();
  std::string part = text_.substr(0, room);
  text_.erase(0, room);
  return part;
}


std::string Service::report(const Credentials& who) const {
  Report whole({.owner = owner_of(who, kClientsMax), .user = who.uid, .all = operation_.is_operator(who)});
  std::string text;
  while (!whole.done()) text += whole.next(*this, ~size_t{0});
  return text;
}

void Service::handle(ClientRecord& client, const control::Report& packet) {
  served_ += kRequestsPerPoll;  // others wait for one part, not for many
  if (packet.part == 0) {
    // The report must show only charges for memory that is still held.
    if (operation_.is_operator(client.who)) charges_.scan_all();
    else charges_.scan_user(client.who.uid);
    client.report = std::make_unique<Report>(Reader{owner_of(client), client.who.uid, operation_.is_operator(client.who)});
  } else if (client.report == nullptr || client.report->parts() != packet.part) {
    return clients_.fail_request(client, packet.header,
                                 {Errc::invalid_argument, "this is not the report's next part: begin again with part 0"});
  }
  auto reply = zeroed<control::ReportPart>();
  reply.header = packet.header;
  const std::string text = client.report->next(*this, sizeof reply.bytes);
  reply.length = static_cast<uint32_t>(text.size());
  reply.more = client.report->done() ? 0 : 1;
  std::memcpy(reply.bytes, text.data(), text.size());
  if (reply.more == 0) client.report.reset();
  clients_.send_packet(client, reply);
}

}  // namespace unet::service
