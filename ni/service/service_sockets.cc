// service_sockets.cc - tables of applications' sockets (unet/socket_table.h): made, listed, and read when their process is gone.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "ni/service/journal_records.h"
#include "ni/service/service.h"
#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/wire/ip.h"

namespace unet::service {
namespace {

constexpr uint32_t kNoEndpoint = ~uint32_t{0};

control::Reply reply_to(const control::Header& header) {
  auto reply = zeroed<control::Reply>();
  reply.header = header;
  reply.sockets = {};
  return reply;
}

// The same memory for one who is to read it only.
Result<Descriptor> for_reading(int memory) {
  Descriptor descriptor(::open(("/proc/self/fd/" + std::to_string(memory)).c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.valid()) return fail_errno("open(/proc/self/fd)", errno);
  return descriptor;
}

}  // namespace

Status Service::make_socket_table(ClientRecord& client, EndpointRecord& endpoint) {
  if (Status more = takes_more(); !more) return more;
  if (!endpoint.ip_channel) return fail(Errc::invalid_argument, "the endpoint has no IP channel: open one first");
  const auto table = static_cast<uint32_t>(endpoint.socket_tables.size());
  if (table == kSocketTablesMax) {
    return fail(Errc::already_exists, "the endpoint has " + std::to_string(kSocketTablesMax) + " tables of sockets, which is the maximum");
  }
  if (Status status = persistence_.takes(1); !status) return status;
  const uint64_t bytes = SocketTableGeometry::of_table(table).total;
  if (Status status = charges_.take_memory(client.who.uid, client.rights, {.memory = bytes}); !status) return status;
  Result<SharedMemory> memory = create_charged("unet-sockets", bytes);
  if (!memory) {
    charges_.give_back(client.who.uid, {.memory = bytes});
    return tl::unexpected(memory.error());
  }
  endpoint.socket_tables.push_back(std::move(*memory));
  with_sockets_.insert(endpoint.id);
  persistence_.put(JournalKind::socket_table, endpoint.id, table, SocketTableValue{}, {endpoint.socket_tables.back().descriptor.get()});
  return {};
}

void Service::handle(ClientRecord& client, const control::OpenSockets& packet) {
  EndpointRecord* endpoint = own_real_endpoint(client, packet.header, "table of sockets");
  if (endpoint == nullptr) return;
  if (Status status = make_socket_table(client, *endpoint); !status) return fail_request(client, packet.header, status.error());
  control::Reply reply = reply_to(packet.header);
  const auto table = static_cast<uint32_t>(endpoint->socket_tables.size() - 1);
  reply.sockets.endpoint = endpoint->id;
  reply.sockets.table = table;
  reply.sockets.sockets = SocketTableGeometry::of_table(table).sockets;
  if (send_packet(client, reply, {endpoint->socket_tables.back().descriptor.get()})) return;
  const uint64_t bytes = endpoint->socket_tables.back().mapping.size();
  endpoint->socket_tables.pop_back();
  charges_.give_back(client.who.uid, {.memory = bytes});
  persistence_.erase(JournalKind::socket_table, endpoint->id, table);
  if (endpoint->socket_tables.empty()) with_sockets_.erase(endpoint->id);
}

// ---- lists

bool Service::sees(const ClientRecord& client, const EndpointRecord& endpoint) const {
  if (is_operator(client.who)) return true;
  return owner_of(client) == owner_of(*clients_.at(endpoint.client));
}

void Service::handle(ClientRecord& client, const control::ListSockets& packet) {
  const bool first = packet.header.endpoint == kNoEndpoint;
  control::Reply reply = reply_to(packet.header);
  for (auto at = first ? with_sockets_.begin() : with_sockets_.lower_bound(packet.header.endpoint); at != with_sockets_.end(); ++at) {
    EndpointRecord& endpoint = *endpoint_at(*at);
    if (!sees(client, endpoint)) continue;
    const uint64_t table = !first && *at == packet.header.endpoint ? uint64_t{packet.table} + 1 : 0;
    if (table >= endpoint.socket_tables.size()) continue;
    const SharedMemory& memory = endpoint.socket_tables[table];
    const Result<Descriptor> descriptor = for_reading(memory.descriptor.get());
    if (!descriptor) return fail_request(client, packet.header, descriptor.error());
    const ClientRecord& owner = *clients_.at(endpoint.client);
    if (table == 0) ask_sockets(endpoint);
    reply.sockets.endpoint = endpoint.id;
    reply.sockets.table = static_cast<uint32_t>(table);
    reply.sockets.sockets = SocketTableGeometry::of_table(static_cast<uint32_t>(table)).sockets;
    reply.sockets.pid = owner.who.pid;
    reply.sockets.uid = static_cast<int32_t>(owner.who.uid);
    reply.sockets.asked = endpoint.sockets_asked;
    reply.sockets.program.set(owner.program);
    send_packet(client, reply, {descriptor->get()});
    return;
  }
  reply.sockets.endpoint = kNoEndpoint;
  send_packet(client, reply);
}

// Its stack sees it in its next turn; if it sleeps, it is woken for that.
void Service::ask_sockets(EndpointRecord& endpoint) {
  endpoint.sockets_asked = monotonic_now();
  auto& header = *reinterpret_cast<SocketTableHeader*>(endpoint.socket_tables.front().mapping.data());
  header.asked.store(endpoint.sockets_asked, std::memory_order_release);
  const uint64_t one = 1;
  if (endpoint.wake.valid()) static_cast<void>(!::write(endpoint.wake.get(), &one, sizeof one));
}

// ---- what is left

// Its IP channel is closed, and its claims are still known.
void Service::orphan_sockets(EndpointRecord& endpoint) {
  if (endpoint.socket_tables.empty()) return;
  std::vector<IpClaim> claims;
  for (const uint32_t number : endpoint.ip_claims) claims.push_back(ip_ports_.at(number)->claim);
  for (uint32_t i = 0; i < endpoint.socket_tables.size(); ++i) {
    endpoint.socket_tables[i].descriptor.reset();
    persistence_.erase(JournalKind::socket_table, endpoint.id, i);
  }
  const ClientRecord& client = *client_at(endpoint.client);
  dead_sockets_.add({client.who.uid, owner_of(client), endpoint.orphans_number, std::move(endpoint.socket_tables), claims});
  endpoint.socket_tables.clear();
  with_sockets_.erase(endpoint.id);
}

// A connection that begins at a port is not to meet the end of the one before. The engine takes commands in their order, so a claim waits
// until it has been told all of the same user's that were there. It stays in the socket, with what is behind it.
bool Service::must_wait(const ClientRecord& client, Bytes packet) const {
  control::ClaimIp request;
  if (dead_sockets_.empty() || !client.greeted || packet.size() != sizeof request) return false;
  std::memcpy(static_cast<void*>(&request), packet.data(), sizeof request);
  if (request.header.op != control::Op::claim_ip) return false;
  const auto endpoint = endpoints_.find(request.header.endpoint);
  if (endpoint == endpoints_.end() || endpoint->second->client != client.index) return false;  // it is refused
  return dead_sockets_.has_claimed(owner_of(client), request.claim);
}

void Service::defer(ClientRecord& client) {
  client.deferred = true;
  deferred_.insert(client.index);
  watch_for_room(client);
}

void Service::resume_deferred(uint64_t owner) {
  for (auto at = deferred_.begin(); at != deferred_.end();) {
    ClientRecord* const client = client_at(*at);
    if (client != nullptr && owner_of(*client) != owner) {
      ++at;
      continue;
    }
    at = deferred_.erase(at);
    if (client == nullptr || !std::exchange(client->deferred, false) || client->dropped) continue;
    watch_for_room(*client);
  }
}

// ---- over a takeover

// Connections of ports that the endpoint shares: the engine is to know that they are its. What the table lies about ports that are not the
// endpoint's, or not shared, the engine does not believe.
void Service::tell_flows(EndpointRecord& endpoint) {
  std::set<uint16_t> shared;
  for (const uint32_t number : endpoint.ip_claims) {
    const IpClaim& claim = ip_ports_.at(number)->claim;
    if (claim.group != 0 && claim.protocol == ip::Protocol::kTcp) shared.insert(claim.port);
  }
  engine::OwnFlows command{.endpoint = endpoint.id, .count = 0, .flows = {}};
  const auto tell = [&] {
    if (command.count != 0) push(0, command);
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
      if (command.count == engine::OwnFlows::kMax) tell();
    }
  }
  tell();
}

bool Service::resume_socket_table(JournalItem& item) {
  EndpointRecord* const endpoint = endpoint_at(item.key.a);
  if (SocketTableValue value; !item.read(value)) return false;
  if (endpoint == nullptr || !endpoint->ip_channel || item.key.b != endpoint->socket_tables.size() || item.key.b >= kSocketTablesMax) {
    return false;
  }
  const uint64_t bytes = SocketTableGeometry::of_table(static_cast<uint32_t>(item.key.b)).total;
  Result<Mapping> mapping = Mapping::map(item.descriptors[0].get(), bytes);
  if (!mapping) return false;
  Result<Descriptor> watch = watch_memory(item.descriptors[0].get());
  if (!watch) return false;
  endpoint->socket_tables.push_back({std::move(item.descriptors[0]), std::move(*mapping), std::move(*watch)});
  with_sockets_.insert(endpoint->id);
  charges_.resume(client_at(endpoint->client)->who.uid, {.memory = bytes});
  return true;
}

}  // namespace unet::service
