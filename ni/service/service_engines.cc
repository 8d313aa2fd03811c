// service_engines.cc - which engine serves which endpoint, and what the engines are told of it.
//
// An endpoint stays with one engine from its first channel that is not local. A channel over a wire chooses the engine of its port; of a
// port's several engines, the one with the fewest endpoints. A channel on this NI chooses its peer's engine, or the one with the fewest
// endpoints. So most messages never leave an engine. Others go over the link of two engines (ni/engine/link.h): those of a second channel
// over another engine's port, of a channel between endpoints of two engines, and those that arrive at another engine's queue. A single
// engine has every endpoint from its creation.
#include <bit>
#include <optional>

#include "ni/engine/doorbells.h"
#include "ni/engine/link.h"
#include "ni/service/service.h"
#include "unet/base/check.h"

namespace unet::service {

uint32_t Service::engines_of(const PortInfo& port) const noexcept {
  uint32_t mask = 0;
  for (uint32_t queue = 0; queue < port.queues; ++queue) mask |= 1u << (port.engine + queue) % engines();
  return mask;
}

// Of those whose bits are set, which are not none.
uint32_t Service::least_busy_engine(uint32_t among) const {
  std::optional<uint32_t> best;
  for (uint32_t engine = 0; engine < engines(); ++engine) {
    if ((among >> engine & 1) != 0 && (!best || served_[engine] < served_[*best])) best = engine;
  }
  UNET_CHECK(best);
  return *best;
}

void Service::assign_engine(EndpointRecord& endpoint, uint32_t engine) {
  if (endpoint.engine) return;
  ClientRecord& client = *clients_.at(endpoint.client);
  const std::optional<uint32_t> doorbell = take_doorbell(client, engine);
  UNET_CHECK(doorbell);  // there are as many as endpoints
  endpoint.engine = engine;
  ++served_[engine];
  endpoint.doorbell = *doorbell;
  attach_client(client, engine);
  attach_endpoint(endpoint);
  captures_.on_endpoint_assigned(endpoint.id, engine);
}

void Service::assign_one_engine(EndpointRecord& one, EndpointRecord& other) {
  if (!one.engine && !other.engine) assign_engine(one, least_busy_engine());
  if (one.engine) assign_engine(other, *one.engine);
  assign_engine(one, *other.engine);
}

// One that `engine` looks at; if the client has all of these, of another engine, which `engine` is then.
std::optional<uint32_t> Service::take_doorbell(ClientRecord& client, uint32_t& engine) {
  for (uint32_t tried = 0; tried < engines(); ++tried, engine = (engine + 1) % engines()) {
    for (uint32_t word = 0; word < client.doorbells.size(); ++word) {
      uint64_t& taken = client.doorbells[word];
      if (taken == ~uint64_t{0} || !engine::Doorbells::own_word(word, engine, engines())) continue;
      const auto bit = static_cast<uint32_t>(std::countr_one(taken));
      taken |= uint64_t{1} << bit;
      return word * 64 + bit;
    }
  }
  return std::nullopt;
}

void Service::attach_client(ClientRecord& client, uint32_t engine) {
  if ((client.engines >> engine & 1) != 0) return;
  client.engines |= 1u << engine;
  if (!engine_.watch_client(engine, client.wake.get())) clients_.drop(client, "an engine could not be told to wake for it");
  push(engine, engine::AttachClient{.client = client.index, .page = reinterpret_cast<ClientPage*>(client.page.mapping.data())});
}

// It has no endpoints any more.
void Service::detach_client(ClientRecord& client) {
  client.told_engine = true;
  commands_.push_each(client.engines, engine::DetachClient{.client = client.index});
  if (client.engines == 0) forget(client);
}

// Everything that the engine must know of the endpoint, in the state in which it is.
void Service::attach_endpoint(EndpointRecord& endpoint) {
  const uint32_t engine = *endpoint.engine;
  auto* header = reinterpret_cast<SegmentHeader*>(endpoint.segment.mapping.data());
  const Doorbell doorbell{.bit = endpoint.doorbell, .engine = engine};
  header->doorbell.value.store(doorbell.pack(), std::memory_order_release);
  push(engine, engine::AttachEndpoint{.endpoint = endpoint.id,
                                      .client = endpoint.client,
                                      .doorbell = endpoint.doorbell,
                                      .segment = endpoint.segment.mapping.data(),
                                      .geometry = endpoint.geometry,
                                      .user = clients_.at(endpoint.client)->who.uid,
                                      .weight = endpoint.weight});
  if (endpoint.region_bytes != 0) {
    push(engine, engine::SetRegion{.endpoint = endpoint.id, .region = endpoint.region.mapping.bytes().first(endpoint.region_bytes)});
  }
  if (endpoint.wake.valid()) push(engine, engine::SetWakeDescriptor{.endpoint = endpoint.id, .descriptor = endpoint.wake.get()});
}

// A channel on this NI. Between two engines it is one over their link, with tags as over a wire.
Status Service::open_hairpin(EndpointRecord& connector, ChannelRecord& connecting, EndpointRecord& acceptor, ChannelRecord& accepting) {
  EndpointRecord &from = endpoints_.carrier_of(connector), &to = endpoints_.carrier_of(acceptor);
  assign_one_engine(from, to);
  if (from.engine == to.engine) {
    push(*from.engine, engine::OpenHairpin{.endpoint = from.id, .channel = connecting.number, .peer = to.id,
                                           .peer_channel = accepting.number});
    push(*to.engine, engine::OpenHairpin{.endpoint = to.id, .channel = accepting.number, .peer = from.id,
                                         .peer_channel = connecting.number});
    return {};
  }
  const std::optional<Tag> one = tags_.allocate(), other = one ? tags_.allocate() : std::nullopt;
  if (!other) {
    if (one) tags_.release(*one);
    return fail(Errc::quota_exceeded, "all " + std::to_string(kChannelsMax - 1) + " tags of this network interface are in use");
  }
  connecting.local_tag = *one;
  accepting.local_tag = *other;
  connecting.linked = accepting.linked = true;
  const auto open = [this](const EndpointRecord& near, const ChannelRecord& channel, const EndpointRecord& far, Tag remote_tag) {
    push(*near.engine, engine::OpenWire{.endpoint = near.id,
                                        .channel = channel.number,
                                        .local_tag = channel.local_tag,
                                        .remote_tag = remote_tag,
                                        .remote = engine::LinkFabric::engine_address(*far.engine),
                                        .port = static_cast<uint32_t>(ports_.size()) + *far.engine});
  };
  open(from, connecting, to, *other);
  open(to, accepting, from, *one);
  return {};
}

}  // namespace unet::service
