// ip_control.cc - claims and tables of an endpoint, from the request to the end.
#include "ni/service/ip_control.h"

#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "ni/service/journal_records.h"
#include "ni/service/names.h"
#include "unet/wire/address.h"
#include "unet/wire/ip.h"

namespace unet::service {

Result<IpClaimed> IpControl::claim(const ClientRecord& client, EndpointRecord& endpoint, const IpClaim& claim) {
  if (!endpoint.ip_channel) return fail(Errc::invalid_argument, "the endpoint has no IP channel: open one first");
  if (Status status = check_ip_claim(claim); !status) return tl::unexpected(status.error());
  if (!claim.local.is_unspecified() && !claim.local.is_multicast() && !hosts_.has_address(claim.local)) {
    return fail(Errc::not_found, ip::text_of(claim.local) + " is not an address of this network interface");
  }
  if (Status status = persistence_.takes(0); !status) return tl::unexpected(status.error());
  const Usage wanted{.ip_claims = 1, .ip_ports = claim.ports};
  if (Status status = charges_.take(client.who.uid, client.rights, wanted); !status) return tl::unexpected(status.error());
  Result<IpClaimed> claimed = ports_.claim(endpoint.id, owner_of(client), claim, client.rights);
  if (!claimed) {
    charges_.give_back(client.who.uid, wanted);
    return claimed;
  }
  const Usage used = charges_.of(client.who.uid);
  claimed->plenty = claimed->plenty && used.ip_claims <= client.rights.ip_claims / 4 && used.ip_ports <= client.rights.ip_ports_at_once / 4;
  endpoint.ip_claims.insert(claimed->claim);
  persistence_.changed(JournalKind::ip_claim, endpoint.id, claimed->claim);
  commands_.push(0, engine::ClaimIp{.endpoint = endpoint.id, .number = claimed->claim, .claim = ports_.at(claimed->claim)->claim,
                           .user = owner_of(client)});
  return claimed;
}

Status IpControl::set(const EndpointRecord& endpoint, uint32_t number, uint32_t accepts_new_flows) {
  const auto wanted = static_cast<AcceptsNewFlows>(accepts_new_flows);
  if (accepts_new_flows > static_cast<uint32_t>(AcceptsNewFlows::yes)) {
    return fail(Errc::invalid_argument, "accepts_new_flows is none of no, if_no_other_does, yes");
  }
  if (Status set = ports_.set(number, wanted); !set) return set;
  commands_.push(0, engine::SetClaim{.number = number, .accepts_new_flows = wanted});
  persistence_.changed(JournalKind::ip_claim, endpoint.id, number);
  return {};
}

Status IpControl::own_flow(uint32_t number, const engine::IpFlow& flow) {
  const IpClaim& claim = ports_.at(number)->claim;
  if (claim.protocol != ip::Protocol::kTcp || claim.group == 0 || claim.port != flow.local_port) {
    return fail(Errc::invalid_argument, "only connections of a shared port of TCP change their owner");
  }
  commands_.push(0, engine::SetFlowOwner{.number = number, .flow = flow});
  return {};
}

void IpControl::release(const ClientRecord& client, EndpointRecord& endpoint, uint32_t number) {
  const uint32_t ports = ports_.at(number)->claim.ports;
  charges_.give_back(client.who.uid, {.ip_claims = 1, .ip_ports = ports});
  ports_.release(number);
  endpoint.ip_claims.erase(number);
  persistence_.changed(JournalKind::ip_claim, endpoint.id, number);
}

Result<IpPorts::Found> IpControl::find(std::string_view target) {
  const auto none = [&] { return fail(Errc::not_found, "no endpoint of this network interface claims " + in_quotes(target)); };
  const uint8_t protocol = target.substr(0, 4) == "tcp:" ? 6 : 17;
  uint16_t port = 0;
  const char* const begin = target.data() + 4;
  const char* const end = target.data() + target.size();
  const auto [at, error] = std::from_chars(begin, end, port);
  if (error != std::errc() || at == end || *at != ':' || port == 0) {
    return fail(Errc::invalid_argument, in_quotes(target) + ": write tcp:PORT:ADDRESS or udp:PORT:ADDRESS");
  }
  const Result<ip::IpAddress> address = ip::parse_ip({at + 1, static_cast<size_t>(end - at - 1)});
  if (!address) return fail(Errc::invalid_argument, in_quotes(target) + ": " + address.error().text);
  // A router or server may still assign the address, so this is not "no claim".
  if (!hosts_.has_address(*address)) return fail(Errc::refused, ip::text_of(*address) + " is not an address of this network interface");
  const std::optional<IpPorts::Found> found = ports_.find(protocol, *address, port);
  if (found) return *found;
  if (!ports_.claims_any(protocol, port)) return none();
  return fail(Errc::refused, "who claims " + in_quotes(target) + " hears one remote end only, or is at another address");
}

Status IpControl::make_table(const ClientRecord& client, EndpointRecord& endpoint) {
  if (!endpoint.ip_channel) return fail(Errc::invalid_argument, "the endpoint has no IP channel: open one first");
  const auto table = static_cast<uint32_t>(endpoint.socket_tables.size());
  if (table == kSocketTablesMax) {
    return fail(Errc::already_exists, "the endpoint has " + std::to_string(kSocketTablesMax) + " tables of sockets, which is the maximum");
  }
  if (Status status = persistence_.takes(1); !status) return status;
  const uint64_t bytes = SocketTableGeometry::of_table(table).total;
  if (Status status = charges_.take_memory(client, {.memory = bytes}); !status) return status;
  Result<SharedMemory> memory = create_charged("unet-sockets", bytes);
  if (!memory) {
    charges_.give_back(client.who.uid, {.memory = bytes});
    return tl::unexpected(memory.error());
  }
  endpoint.socket_tables.push_back(std::move(*memory));
  with_tables_.insert(endpoint.id);
  persistence_.put(JournalKind::socket_table, endpoint.id, table, SocketTableValue{}, {endpoint.socket_tables.back().descriptor.get()});
  return {};
}

void IpControl::remove_table(const ClientRecord& client, EndpointRecord& endpoint) {
  const uint64_t bytes = endpoint.socket_tables.back().mapping.size();
  endpoint.socket_tables.pop_back();
  charges_.give_back(client.who.uid, {.memory = bytes});
  persistence_.erase(JournalKind::socket_table, endpoint.id, endpoint.socket_tables.size());
  if (endpoint.socket_tables.empty()) with_tables_.erase(endpoint.id);
}

void IpControl::expect_end(EndpointRecord& endpoint) {
  if (!endpoint.socket_tables.empty()) endpoint.orphans_number = dead_.expect(endpoint.id);
}

void IpControl::end(const ClientRecord& client, EndpointRecord& endpoint) {
  if (!endpoint.socket_tables.empty()) leave_tables(client, endpoint);
  while (!endpoint.ip_claims.empty()) release(client, endpoint, *endpoint.ip_claims.begin());
  endpoint.ip_channel.reset();
}

// Call while the endpoint's claims are still known.
void IpControl::leave_tables(const ClientRecord& client, EndpointRecord& endpoint) {
  std::vector<IpClaim> claims;
  for (const uint32_t number : endpoint.ip_claims) claims.push_back(ports_.at(number)->claim);
  for (uint32_t i = 0; i < endpoint.socket_tables.size(); ++i) {
    endpoint.socket_tables[i].descriptor.reset();
    persistence_.erase(JournalKind::socket_table, endpoint.id, i);
  }
  dead_.add({client.who.uid, owner_of(client), endpoint.orphans_number, std::move(endpoint.socket_tables), claims});
  endpoint.socket_tables.clear();
  with_tables_.erase(endpoint.id);
}

}  // namespace unet::service
