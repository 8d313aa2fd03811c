// endpoints.cc - the table of endpoints, and which of them a client may name.
#include "ni/service/endpoints.h"

#include <utility>

#include "unet/base/check.h"

namespace unet::service {

EndpointRecord* Endpoints::at(uint32_t id) const {
  const auto at = endpoints_.find(id);
  return at == endpoints_.end() ? nullptr : at->second.get();
}

EndpointRecord* Endpoints::own(ClientRecord& client, const control::Header& header) {
  EndpointRecord* endpoint = at(header.endpoint);
  if (endpoint != nullptr && endpoint->client == client.index && !endpoint->detaching) {
    persistence_.changed(JournalKind::endpoint, endpoint->id);
    return endpoint;
  }
  // One text for a free id and for another user's endpoint: ids of others must not be probed.
  clients_.fail_request(client, header, {Errc::not_found, "endpoint " + std::to_string(header.endpoint) + " is not one of yours"});
  return nullptr;
}

EndpointRecord* Endpoints::own_real(ClientRecord& client, const control::Header& header, const char* wanted) {
  EndpointRecord* endpoint = own(client, header);
  if (endpoint == nullptr || !endpoint->carrier) return endpoint;
  clients_.fail_request(client, header, {Errc::invalid_argument, "endpoint " + std::to_string(endpoint->id) + " is emulated and has no " +
                                                            wanted + ": create one with queues of its own for that"});
  return nullptr;
}

std::string Endpoints::describe(const EndpointRecord& endpoint) const {
  if (const std::string_view name = names_.name_of(endpoint.id); !name.empty()) return std::string(name);
  const ClientRecord* const client = clients_.at(endpoint.client);
  return "pid " + std::to_string(client == nullptr ? 0 : client->who.pid);
}

bool Endpoints::same_user(const EndpointRecord& one, const EndpointRecord& other) const {
  const ClientRecord *const a = clients_.at(one.client), *const b = clients_.at(other.client);
  return a != nullptr && b != nullptr && owner_of(*a) == owner_of(*b);
}

EndpointRecord& Endpoints::insert(uint32_t id, uint32_t client) {
  auto endpoint = std::make_unique<EndpointRecord>();
  endpoint->id = id;
  endpoint->client = client;
  return *(endpoints_[id] = std::move(endpoint));
}

EndpointRecord& Endpoints::insert(ClientRecord& client, uint32_t id) {
  client.endpoints.insert(id);
  ++real_;
  return insert(id, client.index);
}

EndpointRecord& Endpoints::insert_emulated(EndpointRecord& carrier, uint32_t id) {
  carrier.emulated.insert(id);
  EndpointRecord& endpoint = insert(id, carrier.client);
  endpoint.carrier = carrier.id;
  return endpoint;
}

void Endpoints::remove(EndpointRecord& endpoint) {
  const uint32_t id = endpoint.id;
  persistence_.changed(JournalKind::endpoint, id);
  if (endpoint.carrier) {
    UNET_CHECK(carrier_of(endpoint).emulated.erase(id) == 1);
  } else {
    clients_.at(endpoint.client)->endpoints.erase(id);
    --real_;
  }
  (endpoint.carrier ? free_emulated_ : free_).give_back(id);
  endpoints_.erase(id);  // unmaps segment and region, closes the wake descriptor
}

}  // namespace unet::service
