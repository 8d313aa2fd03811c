// service_emulated.cc - endpoints without queues: a record, a name and channels whose numbers a real endpoint of the same client lends.
//
// The engine does not know them: to it their channels are channels of the endpoint that carries them, with that one's tags, shares
// and limits. So an emulated endpoint can reach nothing that its carrier could not, and one client can confuse only its own.
#include "ni/service/service.h"
#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/base/probe.h"

namespace unet::service {

Result<uint32_t> Service::create_emulated(ClientRecord& client, EndpointRecord& carrier) {
  if (Status more = takes_more(); !more) return tl::unexpected(more.error());
  if (carrier.carrier) {
    return fail(Errc::invalid_argument, "endpoint " + std::to_string(carrier.id) + " is emulated itself: it has no queues to share");
  }
  if (free_emulated_.empty()) {
    return fail(Errc::quota_exceeded, "this network interface has " + std::to_string(kEmulatedMax) +
                                          " emulated endpoints, which is the maximum");
  }
  if (Status status = persistence_.takes(0); !status) return tl::unexpected(status.error());
  if (Status status = charges_.take(client.who.uid, client.rights, {.emulated = 1}); !status) return tl::unexpected(status.error());
  const uint32_t id = free_emulated_.take();
  auto endpoint = std::make_unique<EndpointRecord>();
  endpoint->id = id;
  endpoint->client = client.index;
  endpoint->carrier = carrier.id;
  carrier.emulated.insert(id);
  persistence_.changed(JournalKind::endpoint, id);
  endpoints_[id] = std::move(endpoint);
  UNET_PROBE(endpoint_open, id, client.who.uid, client.who.pid);
  return id;
}

void Service::handle(ClientRecord& client, const control::CreateEmulated& packet) {
  EndpointRecord* carrier = own_endpoint(client, packet.header);
  if (carrier == nullptr) return;
  const Result<uint32_t> id = create_emulated(client, *carrier);
  if (!id) return clients_.fail_request(client, packet.header, id.error());
  control::Reply reply = make_reply(packet.header);
  reply.create_endpoint = {.endpoint = *id, .doorbell = 0};
  clients_.send_packet(client, reply);
}

// At once: the engine has nothing of it to let go of but its channels, which it closes in its own time.
void Service::destroy_emulated(EndpointRecord& endpoint, control::CloseReason reason) {
  const uint32_t id = endpoint.id;
  const ClientRecord& client = *clients_.at(endpoint.client);
  end_parts(endpoint, reason);
  UNET_CHECK(carrier_of(endpoint).emulated.erase(id) == 1);
  charges_.give_back(client.who.uid, {.emulated = 1});
  persistence_.changed(JournalKind::endpoint, id);
  endpoints_.erase(id);
  free_emulated_.give_back(id);
}

// One that the network interface before this one had. Ids of real endpoints come first, so their carriers are there already.
bool Service::resume_emulated(uint32_t id, uint32_t carrier_id) {
  EndpointRecord* const carrier = endpoint_at(carrier_id);
  const bool carries = carrier != nullptr && !carrier->carrier && !carrier->detaching;
  if (!carries || !free_emulated_.take(id)) return false;
  charges_.resume(clients_.at(carrier->client)->who.uid, {.emulated = 1});
  auto endpoint = std::make_unique<EndpointRecord>();
  endpoint->id = id;
  endpoint->client = carrier->client;
  endpoint->carrier = carrier_id;
  carrier->emulated.insert(id);
  endpoints_[id] = std::move(endpoint);
  return true;
}

EndpointRecord& Service::carrier_of(EndpointRecord& endpoint) {
  return endpoint.carrier ? *endpoint_at(*endpoint.carrier) : endpoint;
}

EndpointRecord* Service::own_real_endpoint(ClientRecord& client, const control::Header& header, const char* wanted) {
  EndpointRecord* endpoint = own_endpoint(client, header);
  if (endpoint == nullptr || !endpoint->carrier) return endpoint;
  clients_.fail_request(client, header, {Errc::invalid_argument, "endpoint " + std::to_string(endpoint->id) + " is emulated and has no " +
                                                            wanted + ": create one with queues of its own for that"});
  return nullptr;
}

}  // namespace unet::service
