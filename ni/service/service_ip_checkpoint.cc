// service_ip_checkpoint.cc - claims in the journal, and IP channels after a takeover.
#include <cstring>

#include "ni/service/journal_records.h"
#include "ni/service/service.h"

namespace unet::service {

bool Service::write_ip_claim(uint32_t endpoint, uint32_t number) {
  const IpPorts::Record* const record = ip_ports_.at(number);
  if (record == nullptr || record->endpoint != endpoint) return false;
  const IpClaim& claim = record->claim;
  auto value = zeroed<IpClaimValue>();
  std::memcpy(value.local, claim.local.bytes.data(), sizeof value.local);
  std::memcpy(value.remote, claim.remote.bytes.data(), sizeof value.remote);
  value.port = claim.port;
  value.ports = claim.ports;
  value.remote_port = claim.remote_port;
  value.protocol = claim.protocol;
  value.takes_new = static_cast<uint8_t>(claim.takes_new);
  value.group = claim.group;
  value.token = record->token;
  value.reuses = claim.reuses;
  persistence_.put(JournalKind::ip_claim, endpoint, number, value);
  return true;
}

bool Service::resume_ip_claim(uint32_t id, uint64_t number, const IpClaimValue& value) {
  EndpointRecord* const endpoint = endpoint_at(id);
  if (endpoint == nullptr || !endpoint->ip_channel || number >= kIpClaimsMax) return false;
  const ClientRecord& client = *client_at(endpoint->client);
  IpPorts::Record record{.endpoint = id, .user = owner_of(client), .claim = {}};
  std::memcpy(record.claim.local.bytes.data(), value.local, sizeof value.local);
  std::memcpy(record.claim.remote.bytes.data(), value.remote, sizeof value.remote);
  record.claim.port = value.port;
  record.claim.ports = value.ports;
  record.claim.remote_port = value.remote_port;
  record.claim.protocol = value.protocol;
  record.claim.takes_new = static_cast<TakesNew>(value.takes_new);
  record.claim.group = value.group;
  record.claim.reuses = value.reuses != 0 ? 1 : 0;
  record.token = value.token;
  if (!ip_ports_.resume(static_cast<uint32_t>(number), record)) return false;
  endpoint->ip_claims.insert(static_cast<uint32_t>(number));
  charges_.resume(client.who.uid, {.ip_claims = 1, .ip_ports = record.claim.ports});
  return true;
}

// The engine is told of the endpoint's channel and claims. An NI that has no IP any longer closes them.
void Service::resume_ip(EndpointRecord& endpoint) {
  if (!endpoint.ip_channel) return;
  const uint32_t number = *endpoint.ip_channel;
  if (ip_hosts_.empty()) return tell_closed(endpoint, endpoint.channels.at(number), control::CloseReason::wire_lost);
  push(0, engine::OpenIp{.endpoint = endpoint.id, .channel = number});
  for (const uint32_t claim : endpoint.ip_claims) {
    push(0, engine::ClaimIp{.endpoint = endpoint.id, .number = claim, .claim = ip_ports_.at(claim)->claim,
                             .user = ip_ports_.at(claim)->user});
  }
}

}  // namespace unet::service
