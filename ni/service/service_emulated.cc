// service_emulated.cc - endpoints without queues: a record, a name and channels whose numbers a real endpoint of the same client lends.
//
// The engine does not know them: to it their channels are channels of the endpoint that carries them, with that one's tags, shares
// and limits. So an emulated endpoint can reach nothing that its carrier could not, and one client can confuse only its own.
#include "ni/service/service.h"
#include "unet/base/bytes.h"
#include "unet/base/probe.h"

namespace unet::service {

Result<uint32_t> Service::create_emulated(ClientRecord& client, EndpointRecord& carrier) {
  if (Status more = operation_.takes_more(); !more) return tl::unexpected(more.error());
  if (carrier.carrier) {
    return fail(Errc::invalid_argument, "endpoint " + std::to_string(carrier.id) + " is emulated itself: it has no queues to share");
  }
  if (endpoints_.full_of_emulated()) {
    return fail(Errc::quota_exceeded, "this network interface has " + std::to_string(kEmulatedMax) +
                                          " emulated endpoints, which is the maximum");
  }
  if (Status status = persistence_.takes(0); !status) return tl::unexpected(status.error());
  if (Status status = charges_.take(client.who.uid, client.rights, {.emulated = 1}); !status) return tl::unexpected(status.error());
  const uint32_t id = endpoints_.add_emulated(carrier).id;
  persistence_.changed(JournalKind::endpoint, id);
  UNET_PROBE(endpoint_open, id, client.who.uid, client.who.pid);
  return id;
}

void Service::handle(ClientRecord& client, const control::CreateEmulated& packet) {
  EndpointRecord* carrier = endpoints_.own(client, packet.header);
  if (carrier == nullptr) return;
  const Result<uint32_t> id = create_emulated(client, *carrier);
  if (!id) return clients_.fail_request(client, packet.header, id.error());
  control::Reply reply = make_reply(packet.header);
  reply.create_endpoint = {.endpoint = *id, .doorbell = 0};
  clients_.send_packet(client, reply);
}

// At once: the engine has nothing of it to let go of but its channels, which it closes in its own time.
void Service::destroy_emulated(EndpointRecord& endpoint, control::CloseReason reason) {
  end_parts(endpoint, reason);
  charges_.give_back(clients_.at(endpoint.client)->who.uid, {.emulated = 1});
  endpoints_.remove(endpoint);
}

// One that the network interface before this one had. Ids of real endpoints come first, so their carriers are there already.
bool Service::resume_emulated(uint32_t id, uint32_t carrier_id) {
  EndpointRecord* const carrier = endpoints_.at(carrier_id);
  const bool carries = carrier != nullptr && !carrier->carrier && !carrier->detaching;
  if (!carries || endpoints_.resume_emulated(*carrier, id) == nullptr) return false;
  charges_.resume(clients_.at(carrier->client)->who.uid, {.emulated = 1});
  return true;
}

}  // namespace unet::service
