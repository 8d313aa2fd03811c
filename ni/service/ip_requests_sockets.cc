// ip_requests_sockets.cc - tables of applications' sockets (unet/socket_table.h): made, listed, and read when their process is gone.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "ni/service/ip_requests.h"
#include "unet/base/bytes.h"

namespace unet::service {
namespace {

constexpr uint32_t kNoEndpoint = ~uint32_t{0};

// Opens the memory again, for a process that may only read it.
Result<Descriptor> for_reading(int memory) {
  Descriptor descriptor(::open(("/proc/self/fd/" + std::to_string(memory)).c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.valid()) return fail_errno("open(/proc/self/fd)", errno);
  return descriptor;
}

}  // namespace

void IpRequests::handle(ClientRecord& client, const control::OpenSockets& packet) {
  EndpointRecord* endpoint = endpoints_.own_real(client, packet.header, "table of sockets");
  if (endpoint == nullptr) return;
  Status made = operation_.takes_more();
  if (made) made = ip_.make_table(client, *endpoint);
  if (!made) return clients_.fail_request(client, packet.header, made.error());
  control::Reply reply = make_reply(packet.header);
  reply.sockets = {};
  const auto table = static_cast<uint32_t>(endpoint->socket_tables.size() - 1);
  reply.sockets.endpoint = endpoint->id;
  reply.sockets.table = table;
  reply.sockets.sockets = SocketTableGeometry::of_table(table).sockets;
  if (!clients_.send_packet(client, reply, {endpoint->socket_tables.back().descriptor.get()})) ip_.remove_table(client, *endpoint);
}

// ---- lists

bool IpRequests::sees(const ClientRecord& client, const EndpointRecord& endpoint) const {
  if (operation_.is_operator(client.who)) return true;
  return owner_of(client) == owner_of(*clients_.at(endpoint.client));
}

void IpRequests::handle(ClientRecord& client, const control::ListSockets& packet) {
  const bool first = packet.header.endpoint == kNoEndpoint;
  const std::set<uint32_t>& tables = ip_.with_tables();
  control::Reply reply = make_reply(packet.header);
  reply.sockets = {};
  for (auto at = first ? tables.begin() : tables.lower_bound(packet.header.endpoint); at != tables.end(); ++at) {
    EndpointRecord& endpoint = *endpoints_.at(*at);
    if (!sees(client, endpoint)) continue;
    const uint64_t table = !first && *at == packet.header.endpoint ? uint64_t{packet.table} + 1 : 0;
    if (table >= endpoint.socket_tables.size()) continue;
    const SharedMemory& memory = endpoint.socket_tables[table];
    const Result<Descriptor> descriptor = for_reading(memory.descriptor.get());
    if (!descriptor) return clients_.fail_request(client, packet.header, descriptor.error());
    const ClientRecord& owner = *clients_.at(endpoint.client);
    if (table == 0) ask_sockets(endpoint);
    reply.sockets.endpoint = endpoint.id;
    reply.sockets.table = static_cast<uint32_t>(table);
    reply.sockets.sockets = SocketTableGeometry::of_table(static_cast<uint32_t>(table)).sockets;
    reply.sockets.pid = owner.who.pid;
    reply.sockets.uid = static_cast<int32_t>(owner.who.uid);
    reply.sockets.asked = endpoint.sockets_asked;
    reply.sockets.program.set(owner.program);
    clients_.send_packet(client, reply, {descriptor->get()});
    return;
  }
  reply.sockets.endpoint = kNoEndpoint;
  clients_.send_packet(client, reply);
}

// Its stack sees it in its next turn; if it sleeps, it is woken for that.
void IpRequests::ask_sockets(EndpointRecord& endpoint) {
  endpoint.sockets_asked = monotonic_now();
  auto& header = *reinterpret_cast<SocketTableHeader*>(endpoint.socket_tables.front().mapping.data());
  header.asked.store(endpoint.sockets_asked, std::memory_order_release);
  const uint64_t one = 1;
  if (endpoint.wake.valid()) static_cast<void>(!::write(endpoint.wake.get(), &one, sizeof one));
}

// ---- what is left

bool IpRequests::must_wait(const ClientRecord& client, Bytes packet) const {
  control::ClaimIp request;
  if (ip_.dead().empty() || !client.greeted || packet.size() != sizeof request) return false;
  std::memcpy(static_cast<void*>(&request), packet.data(), sizeof request);
  if (request.header.op != control::Op::claim_ip) return false;
  const EndpointRecord* const endpoint = endpoints_.at(request.header.endpoint);
  if (endpoint == nullptr || endpoint->client != client.index) return false;  // it is refused
  return ip_.dead().has_claimed(owner_of(client), request.claim);
}

void IpRequests::defer(ClientRecord& client) {
  client.deferred = true;
  deferred_.insert(client.index);
  clients_.watch_for_room(client);
}

void IpRequests::poll_dead() {
  const auto owner = ip_.dead().poll();
  if (!owner) return;
  for (auto at = deferred_.begin(); at != deferred_.end();) {
    ClientRecord* const client = clients_.at(*at);
    if (client != nullptr && owner_of(*client) != *owner) {
      ++at;
      continue;
    }
    at = deferred_.erase(at);
    if (client == nullptr || !std::exchange(client->deferred, false) || client->dropped) continue;
    clients_.watch_for_room(*client);
  }
}

}  // namespace unet::service
