// takeover_ip.cc - IP over a takeover: claims, tables of sockets, leases, addresses, connections of dead processes.
#include <cstring>
#include <set>
#include <utility>

#include "ni/service/ip_control.h"
#include "ni/service/ip_requests.h"
#include "ni/service/journal_records.h"
#include "ni/service/takeover_records.h"
#include "unet/base/bytes.h"
#include "unet/wire/ip.h"

namespace unet::service {

bool IpRequests::save(const JournalKey& key) {
  if (key.kind == JournalKind::ip_claim) return ip_.write_claim(key.a, static_cast<uint32_t>(key.b));
  return key.kind == JournalKind::ip_lease ? ip_.hosts().write_lease(key.a) : ip_.hosts().write_host(key.a);
}

Status IpRequests::restore(JournalItem& item) {
  const uint32_t a = item.key.a;
  EndpointRecord* const endpoint = endpoints_.at(a);
  switch (item.key.kind) {
    case JournalKind::ip_claim:
      return take_record<IpClaimValue>(item, "not a claim that could be", [&](const auto& v) {
        return endpoint != nullptr && ip_.resume_claim(*clients_.at(endpoint->client), *endpoint, item.key.b, v);
      });
    case JournalKind::ip_lease:
      return take_record<IpLeaseValue>(item, "not a lease that could be",
                                       [&](const auto& v) { return ip_.hosts().resume_lease(a, v); });
    case JournalKind::ip_host:
      return take_record<IpHostValue>(item, "not addresses that could be",
                                      [&](const auto& v) { return ip_.hosts().resume_host(a, v); });
    default: break;
  }
  bool good = item.descriptors.size() == 1;
  if (item.key.kind == JournalKind::orphans) good = good && ip_.dead().restore(item);
  else good = good && endpoint != nullptr && ip_.resume_table(*clients_.at(endpoint->client), *endpoint, item);
  return good ? Status{} : Status(wrong_record(item, "not a table of sockets that could be"));
}

void IpRequests::begin_resume() {
  ip_.hosts().resume(ports_.all());
  ip_.dead().send_inherited(ip_.ports());
}

// An NI that has no IP any longer closes the channels that the NI before it had.
void IpRequests::resume(EndpointRecord& endpoint) {
  if (!endpoint.ip_channel) return;
  if (!ip_.hosts().empty()) return ip_.resume(endpoint);
  channels_.tell_closed(endpoint, endpoint.channels.at(*endpoint.ip_channel), control::CloseReason::wire_lost);
}

bool IpControl::write_claim(uint32_t endpoint, uint32_t number) {
  const IpPorts::Record* const record = ports_.at(number);
  if (record == nullptr || record->endpoint != endpoint) return false;
  const IpClaim& claim = record->claim;
  auto value = zeroed<IpClaimValue>();
  std::memcpy(value.local, claim.local.bytes.data(), sizeof value.local);
  std::memcpy(value.remote, claim.remote.bytes.data(), sizeof value.remote);
  value.port = claim.port;
  value.ports = claim.ports;
  value.remote_port = claim.remote_port;
  value.protocol = claim.protocol;
  value.takes_new = static_cast<uint8_t>(claim.accepts_new_flows);
  value.group = claim.group;
  value.token = record->token;
  value.reuses = claim.reuses;
  persistence_.put(JournalKind::ip_claim, endpoint, number, value);
  return true;
}

bool IpControl::resume_claim(const ClientRecord& client, EndpointRecord& endpoint, uint64_t number, const IpClaimValue& value) {
  if (!endpoint.ip_channel || number >= kIpClaimsMax) return false;
  IpPorts::Record record{.endpoint = endpoint.id, .user = owner_of(client), .claim = {}};
  std::memcpy(record.claim.local.bytes.data(), value.local, sizeof value.local);
  std::memcpy(record.claim.remote.bytes.data(), value.remote, sizeof value.remote);
  record.claim.port = value.port;
  record.claim.ports = value.ports;
  record.claim.remote_port = value.remote_port;
  record.claim.protocol = value.protocol;
  record.claim.accepts_new_flows = static_cast<AcceptsNewFlows>(value.takes_new);
  record.claim.group = value.group;
  record.claim.reuses = value.reuses != 0 ? 1 : 0;
  record.token = value.token;
  if (!ports_.resume(static_cast<uint32_t>(number), record)) return false;
  endpoint.ip_claims.insert(static_cast<uint32_t>(number));
  charges_.resume(client.who.uid, {.ip_claims = 1, .ip_ports = record.claim.ports});
  return true;
}

bool IpControl::resume_table(const ClientRecord& client, EndpointRecord& endpoint, JournalItem& item) {
  if (SocketTableValue value; !item.read(value)) return false;
  if (!endpoint.ip_channel || item.key.b != endpoint.socket_tables.size() || item.key.b >= kSocketTablesMax) {
    return false;
  }
  const uint64_t bytes = SocketTableGeometry::of_table(static_cast<uint32_t>(item.key.b)).total;
  Result<Mapping> mapping = Mapping::map(item.descriptors[0].get(), bytes);
  if (!mapping) return false;
  Result<Descriptor> watch = watch_memory(item.descriptors[0].get());
  if (!watch) return false;
  endpoint.socket_tables.push_back({std::move(item.descriptors[0]), std::move(*mapping), std::move(*watch)});
  with_tables_.insert(endpoint.id);
  charges_.resume(client.who.uid, {.memory = bytes});
  return true;
}

void IpControl::resume(const EndpointRecord& endpoint) {
  commands_.push(0, engine::OpenIp{.endpoint = endpoint.id, .channel = *endpoint.ip_channel});
  for (const uint32_t number : endpoint.ip_claims) {
    const IpPorts::Record& record = *ports_.at(number);
    commands_.push(0, engine::ClaimIp{.endpoint = endpoint.id, .number = number, .claim = record.claim, .user = record.user});
  }
}

void IpControl::send_flows(const EndpointRecord& endpoint) {
  std::set<uint16_t> shared;
  for (const uint32_t number : endpoint.ip_claims) {
    const IpClaim& claim = ports_.at(number)->claim;
    if (claim.group != 0 && claim.protocol == ip::Protocol::kTcp) shared.insert(claim.port);
  }
  engine::ResumeFlows command{.endpoint = endpoint.id, .count = 0, .flows = {}};
  const auto send = [&] {
    if (command.count != 0) commands_.push(0, command);
    command.count = 0;
  };
  for (size_t table = 0; !shared.empty() && table < endpoint.socket_tables.size(); ++table) {
    const auto geometry = SocketTableGeometry::of_table(static_cast<uint32_t>(table));
    const SocketTableView view(endpoint.socket_tables[table].mapping.data(), geometry);
    for (uint32_t place = 0; place < view.used(); ++place) {
      SocketRecord record;
      const bool whole = view.slot(place).read(record);
      const auto state = static_cast<SocketState>(record.state);
      const bool open = state > SocketState::syn_sent && state < SocketState::time_wait && (record.flags & SocketFlags::kNear) == 0;
      if (!whole || record.protocol != ip::Protocol::kTcp || !open || shared.count(record.local_port) == 0) continue;
      command.flows[command.count++] = {.local = record.local, .remote = record.remote, .local_port = record.local_port,
                                        .remote_port = record.remote_port};
      if (command.count == engine::ResumeFlows::kMax) send();
    }
  }
  send();
}

}  // namespace unet::service
