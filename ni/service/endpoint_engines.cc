// endpoint_engines.cc - the choice of an engine, doorbells, and commands about clients and endpoints.
#include "ni/service/endpoint_engines.h"

#include <bit>

#include "ni/engine/doorbells.h"
#include "unet/base/check.h"

namespace unet::service {

uint32_t EndpointEngines::of(uint32_t port) const noexcept {
  const PortInfo& info = ports_[port];
  uint32_t mask = 0;
  for (uint32_t queue = 0; queue < info.queues; ++queue) mask |= 1u << (info.engine + queue) % count();
  return mask;
}

uint32_t EndpointEngines::least_busy(uint32_t among) const {
  std::optional<uint32_t> best;
  for (uint32_t engine = 0; engine < count(); ++engine) {
    if ((among >> engine & 1) != 0 && (!best || served_[engine] < served_[*best])) best = engine;
  }
  UNET_CHECK(best);
  return *best;
}

void EndpointEngines::assign(EndpointRecord& endpoint, uint32_t engine) {
  if (endpoint.engine) return;
  ClientRecord& client = *clients_.at(endpoint.client);
  const std::optional<uint32_t> doorbell = take_doorbell(client, engine);
  UNET_CHECK(doorbell);  // there are as many as endpoints
  endpoint.engine = engine;
  ++served_[engine];
  endpoint.doorbell = *doorbell;
  if ((client.engines >> engine & 1) == 0) {
    if (!side_.watch_client(engine, client.wake.get())) clients_.drop(client, "an engine could not be told to wake for it");
    push_client(client, engine);
  }
  auto* header = reinterpret_cast<SegmentHeader*>(endpoint.segment.mapping.data());
  header->doorbell.value.store(Doorbell{.bit = endpoint.doorbell, .engine = engine}.pack(), std::memory_order_release);
  push_endpoint(endpoint, false);
  captures_.on_endpoint_assigned(endpoint.id, engine);
}

void EndpointEngines::assign_one(EndpointRecord& one, EndpointRecord& other) {
  if (!one.engine && !other.engine) assign(one, least_busy());
  if (one.engine) assign(other, *one.engine);
  assign(one, *other.engine);
}

// One that `engine` looks at; if the client has all of these, of another engine, which `engine` is then.
std::optional<uint32_t> EndpointEngines::take_doorbell(ClientRecord& client, uint32_t& engine) {
  for (uint32_t tried = 0; tried < count(); ++tried, engine = (engine + 1) % count()) {
    for (uint32_t word = 0; word < client.doorbells.size(); ++word) {
      uint64_t& taken = client.doorbells[word];
      if (taken == ~uint64_t{0} || !engine::Doorbells::own_word(word, engine, count())) continue;
      const auto bit = static_cast<uint32_t>(std::countr_one(taken));
      taken |= uint64_t{1} << bit;
      return word * 64 + bit;
    }
  }
  return std::nullopt;
}

Status EndpointEngines::attach(ClientRecord& client) {
  if (count() != 1) return {};
  if (Status status = side_.watch_client(0, client.wake.get()); !status) return status;
  push_client(client, 0);
  return {};
}

void EndpointEngines::push_client(ClientRecord& client, uint32_t engine) {
  client.engines |= 1u << engine;
  commands_.push(engine, engine::AttachClient{.client = client.index, .page = reinterpret_cast<ClientPage*>(client.page.mapping.data())});
}

bool EndpointEngines::detach(ClientRecord& client) {
  client.told_engine = true;
  commands_.push_each(client.engines, engine::DetachClient{.client = client.index});
  return client.engines == 0;
}

bool EndpointEngines::on_detached(uint32_t engine, ClientRecord& client) {
  side_.forget_client(engine, client.wake.get());
  client.engines &= ~(1u << engine);
  return client.engines == 0;
}

// Everything that the engine must know of the endpoint, in the state in which it is.
void EndpointEngines::push_endpoint(const EndpointRecord& endpoint, bool resume) {
  commands_.push(*endpoint.engine, engine::AttachEndpoint{.endpoint = endpoint.id,
                                                          .client = endpoint.client,
                                                          .doorbell = endpoint.doorbell,
                                                          .segment = endpoint.segment.mapping.data(),
                                                          .geometry = endpoint.geometry,
                                                          .user = clients_.at(endpoint.client)->who.uid,
                                                          .weight = endpoint.weight,
                                                          .resume = resume});
  set_region(endpoint);
  set_wake(endpoint);
}

void EndpointEngines::set_region(const EndpointRecord& endpoint) {
  if (!endpoint.engine || endpoint.region_bytes == 0) return;
  const MutableBytes region = endpoint.region.mapping.bytes().first(endpoint.region_bytes);
  commands_.push(*endpoint.engine, engine::SetRegion{.endpoint = endpoint.id, .region = region});
}

void EndpointEngines::set_wake(const EndpointRecord& endpoint) {
  if (!endpoint.engine || !endpoint.wake.valid()) return;
  commands_.push(*endpoint.engine, engine::SetWakeDescriptor{.endpoint = endpoint.id, .descriptor = endpoint.wake.get()});
}

void EndpointEngines::detach(EndpointRecord& endpoint) {
  if (endpoint.engine) commands_.push(*endpoint.engine, engine::DetachEndpoint{.endpoint = endpoint.id});
  else unserved_.push_back(endpoint.id);
}

void EndpointEngines::release(const EndpointRecord& endpoint) {
  if (!endpoint.engine) return;
  --served_[*endpoint.engine];
  clients_.at(endpoint.client)->doorbells[endpoint.doorbell / 64] &= ~(uint64_t{1} << (endpoint.doorbell % 64));
}

bool EndpointEngines::resume(EndpointRecord& endpoint, uint32_t doorbell) {
  ClientRecord& client = *clients_.at(endpoint.client);
  uint64_t& bells = client.doorbells[doorbell / 64];
  const uint64_t bell = uint64_t{1} << (doorbell % 64);
  if ((bells & bell) != 0) return false;
  bells |= bell;
  endpoint.engine = 0;
  ++served_[0];
  endpoint.doorbell = doorbell;
  tell_terms(client);
  push_endpoint(endpoint, true);
  return true;
}

void EndpointEngines::tell_terms(const ClientRecord& client) {
  const Terms terms{.weight = client.rights.weight, .limits = client.rights.send};
  Terms& known = terms_[client.who.uid];
  if (terms == known) return;
  known = terms;
  commands_.push_each(commands_.all(), engine::SetUser{.user = client.who.uid, .weight = terms.weight, .limits = terms.limits});
}

EndpointEngines::Terms EndpointEngines::terms_of(uid_t user) const {
  const auto known = terms_.find(user);
  return known == terms_.end() ? Terms{} : known->second;
}

}  // namespace unet::service
