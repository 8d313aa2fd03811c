// endpoints.h - the endpoints of all clients: their table, numbers and names; used by Service and its parts.
//
// An emulated endpoint has no queues: a real endpoint of the same client, its carrier, lends the numbers of its channels. The engine does
// not know emulated endpoints. Their channels are the carrier's channels there, with its tags, shares and limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ni/service/clients.h"
#include "ni/service/names.h"
#include "ni/service/number_pool.h"
#include "ni/service/persistence.h"
#include "ni/service/records.h"

namespace unet::service {

class Endpoints {
 public:
  Endpoints(Clients& clients, Persistence& persistence) noexcept : clients_(clients), persistence_(persistence) {}

  EndpointRecord* at(uint32_t id) const;  // nullptr: there is none
  const std::map<uint32_t, std::unique_ptr<EndpointRecord>>& all() const noexcept { return endpoints_; }
  size_t real() const noexcept { return real_; }
  size_t emulated() const noexcept { return endpoints_.size() - real_; }
  // A real endpoint is its own carrier.
  EndpointRecord& carrier_of(EndpointRecord& endpoint) const { return endpoint.carrier ? *at(*endpoint.carrier) : endpoint; }
  Names& names() noexcept { return names_; }
  const Names& names() const noexcept { return names_; }

  // The endpoint that a request names. nullptr: the client has no such endpoint, or none with `wanted`, and has got the error.
  EndpointRecord* own(ClientRecord& client, const control::Header& header);
  EndpointRecord* own_real(ClientRecord& client, const control::Header& header, const char* wanted);

  std::string describe(const EndpointRecord& endpoint) const;  // for people
  bool same_user(const EndpointRecord& one, const EndpointRecord& other) const;

  bool full() const noexcept { return free_.empty(); }
  bool full_of_emulated() const noexcept { return free_emulated_.empty(); }
  EndpointRecord& add(ClientRecord& client) { return insert(client, free_.take()); }
  EndpointRecord& add_emulated(EndpointRecord& carrier) { return insert_emulated(carrier, free_emulated_.take()); }
  void remove(EndpointRecord& endpoint);

  // After a takeover. nullptr: the number is in use, or cannot be.
  EndpointRecord* resume(ClientRecord& client, uint32_t id) { return free_.take(id) ? &insert(client, id) : nullptr; }
  EndpointRecord* resume_emulated(EndpointRecord& carrier, uint32_t id) {
    return free_emulated_.take(id) ? &insert_emulated(carrier, id) : nullptr;
  }

 private:
  EndpointRecord& insert(ClientRecord& client, uint32_t id);
  EndpointRecord& insert_emulated(EndpointRecord& carrier, uint32_t id);
  EndpointRecord& insert(uint32_t id, uint32_t client);

  Clients& clients_;
  Persistence& persistence_;
  std::map<uint32_t, std::unique_ptr<EndpointRecord>> endpoints_;
  size_t real_ = 0;  // of these; the others are emulated
  NumberPool free_{0, kEndpointsMax};
  NumberPool free_emulated_{kEndpointsMax, kEmulatedMax};
  Names names_;
};

}  // namespace unet::service
