// service_ends.cc - how channels, endpoints and connections end: everything is given back, exactly once.
//
// An ending endpoint first loses its name, requests and channels; then the engine is told to let go; when it has
// (EndpointDetached), the memory is unmapped and the quota given back. A connection ends after its endpoints.
#include <utility>

#include "ni/service/journal_records.h"
#include "ni/service/service.h"
#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/base/probe.h"

namespace unet::service {

using control::CloseReason;

void Service::finish_drops() {
  while (ClientRecord* const next = clients_.next_dropped()) {
    ClientRecord& client = *next;
    const ChargedTime charged(fair_queue_, client.who.uid);
    captures_.stop_of_client(client.index);
    for (const uint32_t id : client.endpoints) {
      EndpointRecord& endpoint = *endpoints_.at(id);
      endpoint.answer_detach = false;
      if (!endpoint.detaching) destroy(endpoint, CloseReason::peer_died);
    }
    const bool detached = client.greeted && client.endpoints.empty();
    if (!client.greeted || (detached && engines_.detach(client))) forget(client);
  }
}

void Service::destroy(EndpointRecord& endpoint, CloseReason reason) {
  endpoint.detaching = true;
  while (!endpoint.emulated.empty()) destroy_emulated(*endpoints_.at(*endpoint.emulated.begin()), reason);
  end_parts(endpoint, reason);
  engines_.detach(endpoint);
}

// What every endpoint has: a name, requests, channels.
void Service::end_parts(EndpointRecord& endpoint, CloseReason reason) {
  UNET_PROBE(endpoint_close, endpoint.id, static_cast<int>(reason));
  persistence_.changed(JournalKind::endpoint, endpoint.id);
  captures_.stop_of_endpoint(endpoint.id);
  channels_.end_all(endpoint, reason);
  endpoints_.names().unbind(endpoint.id);
}

void Service::on_endpoint_detached(uint32_t id) {
  EndpointRecord* endpoint = endpoints_.at(id);
  UNET_CHECK(endpoint != nullptr && endpoint->detaching);
  ClientRecord& client = *clients_.at(endpoint->client);
  const ChargedTime charged(fair_queue_, client.who.uid);
  const bool answer = endpoint->answer_detach;
  const control::Header header{.op = control::Op::destroy_endpoint, .endpoint = id, .cookie = endpoint->detach_cookie};
  const Usage usage{.endpoints = 1, .memory = endpoint->memory};
  std::vector<Descriptor> watches;
  for (SharedMemory* memory : {&endpoint->segment, &endpoint->region}) watches.push_back(std::move(memory->watch));
  engines_.release(*endpoint);
  endpoints_.remove(*endpoint);
  charges_.give_back(client.who.uid, usage, std::move(watches));
  if (answer) clients_.ok(client, header);
  if (client.dropped && client.endpoints.empty() && !client.told_engine && !clients_.has_dropped(client.index)) {
    if (engines_.detach(client)) forget(client);
  }
}

void Service::on_client_detached(uint32_t engine, uint32_t index) {
  ClientRecord& client = *clients_.at(index);
  if (engines_.on_detached(engine, client)) forget(client);
}

// No engine knows it any longer.
void Service::forget(ClientRecord& client) {
  operation_.forget_upgrade_of(client);
  clients_.remove(client);
}

}  // namespace unet::service
