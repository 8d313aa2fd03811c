// takeover_endpoints.cc - endpoints over a takeover: records of the endpoint, its segment, its region and its wake descriptor.
#include <string_view>
#include <utility>

#include "ni/service/endpoint_requests.h"
#include "ni/service/journal_records.h"
#include "ni/service/takeover_records.h"

namespace unet::service {

bool EndpointRequests::save(const JournalKey& key) {
  const uint32_t id = key.a;
  const EndpointRecord* const endpoint = endpoints_.at(id);
  if (endpoint == nullptr) return false;
  auto value = zeroed<EndpointValue>();
  value.region_bytes = endpoint->region_bytes;
  value.detach_cookie = endpoint->detach_cookie;
  value.region_sent = endpoint->region_sent ? 1 : 0;
  value.detaching = endpoint->detaching ? 1 : 0;
  value.answer_detach = endpoint->answer_detach ? 1 : 0;
  value.next_channel = endpoint->next_channel;
  value.carrier = endpoint->carrier.value_or(kNotEmulated);
  value.name.set(endpoints_.names().name_of(id));
  persistence_.put(JournalKind::endpoint, id, 0, value);
  return true;
}

Status EndpointRequests::restore(JournalItem& item) {
  switch (item.key.kind) {
    case JournalKind::segment: return restore_segment(item);
    case JournalKind::region: return restore_region(item);
    case JournalKind::wake: return restore_wake(item);
    default: return restore_endpoint(item);
  }
}

Status EndpointRequests::restore_segment(JournalItem& item) {
  const auto value = record_value<SegmentValue>(item, 1);
  if (!value) return tl::unexpected(value.error());
  ClientRecord* const client = clients_.at(value->client);
  const uint32_t id = item.key.a;
  const bool good = client != nullptr && client->greeted && valid_options(value->options) &&
                    value->doorbell < kEndpointsPerClientMax;
  EndpointRecord* const endpoint = good ? endpoints_.resume(*client, id) : nullptr;
  if (endpoint == nullptr) return wrong_record(item, "not an endpoint that could be");
  endpoint->weight = value->options.weight;
  endpoint->geometry = SegmentGeometry::of(value->options);
  Result<SharedMemory> segment = map_again(std::move(item.descriptors[0]), endpoint->geometry.total);
  if (!segment) return tl::unexpected(segment.error());
  endpoint->segment = std::move(*segment);
  endpoint->segment.descriptor.reset();
  endpoint->memory = endpoint->geometry.total;
  charges_.resume(client->who.uid, {.endpoints = 1, .memory = endpoint->memory});
  if (!engines_.resume(*endpoint, value->doorbell)) return wrong_record(item, "another endpoint's doorbell");
  return {};
}

Status EndpointRequests::restore_region(JournalItem& item) {
  const auto value = record_value<RegionValue>(item, 1);
  if (!value) return tl::unexpected(value.error());
  EndpointRecord* const endpoint = endpoints_.at(item.key.a);
  if (endpoint == nullptr || endpoint->region.mapping) return wrong_record(item, "of no endpoint");
  Result<SharedMemory> region = map_again(std::move(item.descriptors[0]), value->memory);
  if (!region) return tl::unexpected(region.error());
  endpoint->region = std::move(*region);
  endpoint->memory += value->memory;
  charges_.resume(clients_.at(endpoint->client)->who.uid, {.memory = value->memory});
  return {};
}

Status EndpointRequests::restore_wake(JournalItem& item) {
  if (const auto value = record_value<WakeValue>(item, 1); !value) return tl::unexpected(value.error());
  EndpointRecord* const endpoint = endpoints_.at(item.key.a);
  if (endpoint == nullptr || endpoint->wake.valid()) return wrong_record(item, "of no endpoint");
  if (!make_wake(item.descriptors[0].get())) return wrong_record(item, "something that wakes nobody");
  endpoint->wake = std::move(item.descriptors[0]);
  engines_.set_wake(*endpoint);
  return {};
}

Status EndpointRequests::restore_endpoint(const JournalItem& item) {
  const auto value = record_value<EndpointValue>(item, 0);
  if (!value) return tl::unexpected(value.error());
  if (value->carrier != kNotEmulated && !restore_emulated(item.key.a, value->carrier)) {
    return wrong_record(item, "not an emulated endpoint that could be");
  }
  EndpointRecord* const endpoint = endpoints_.at(item.key.a);
  if (endpoint != nullptr && endpoint->carrier && value->detaching != 0) {
    return wrong_record(item, "an emulated endpoint that ends in an engine");
  }
  if (endpoint == nullptr || value->region_bytes > endpoint->region.mapping.size()) {
    return wrong_record(item, "of no endpoint, or no region");
  }
  endpoint->region_bytes = value->region_bytes;
  endpoint->region_sent = value->region_sent != 0;
  endpoint->detaching = value->detaching != 0;
  endpoint->answer_detach = value->answer_detach != 0;
  endpoint->detach_cookie = value->detach_cookie;
  endpoint->next_channel = value->next_channel;
  if (const std::string_view name = value->name.view(); !name.empty()) {
    if (endpoint->detaching) return wrong_record(item, "the name of an endpoint that has ended");
    if (Status status = endpoints_.names().bind(name, endpoint->id); !status) return wrong_record(item, status.error().text.c_str());
  }
  engines_.set_region(*endpoint);
  return {};
}

// One that the network interface before this one had. Ids of real endpoints come first, so their carriers are there already.
bool EndpointRequests::restore_emulated(uint32_t id, uint32_t carrier_id) {
  EndpointRecord* const carrier = endpoints_.at(carrier_id);
  const bool carries = carrier != nullptr && !carrier->carrier && !carrier->detaching;
  if (!carries || endpoints_.resume_emulated(*carrier, id) == nullptr) return false;
  charges_.resume(clients_.at(carrier->client)->who.uid, {.emulated = 1});
  return true;
}

}  // namespace unet::service
