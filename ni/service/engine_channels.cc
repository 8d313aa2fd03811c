// engine_channels.cc - commands that open and close channels in the engines.
#include "ni/service/engine_channels.h"

#include <optional>
#include <string>

#include "ni/engine/link.h"

namespace unet::service {

Error EngineChannels::no_tags() {
  return {Errc::quota_exceeded, "all " + std::to_string(kChannelsMax - 1) + " tags of this network interface are in use"};
}

Status EngineChannels::open_hairpin(EndpointRecord& connector, ChannelRecord& connecting, EndpointRecord& acceptor,
                                    ChannelRecord& accepting) {
  EndpointRecord &from = endpoints_.carrier_of(connector), &to = endpoints_.carrier_of(acceptor);
  engines_.assign_one(from, to);
  if (from.engine == to.engine) {
    commands_.push(*from.engine, engine::OpenHairpin{.endpoint = from.id, .channel = connecting.number, .peer = to.id,
                                                     .peer_channel = accepting.number});
    commands_.push(*to.engine, engine::OpenHairpin{.endpoint = to.id, .channel = accepting.number, .peer = from.id,
                                                   .peer_channel = connecting.number});
    return {};
  }
  const std::optional<Tag> one = tags_.allocate(), other = one ? tags_.allocate() : std::nullopt;
  if (!other) {
    if (one) tags_.release(*one);
    return tl::unexpected(no_tags());
  }
  connecting.local_tag = *one;
  accepting.local_tag = *other;
  connecting.linked = accepting.linked = true;
  const auto open = [this](const EndpointRecord& near, const ChannelRecord& channel, const EndpointRecord& far, Tag remote_tag) {
    commands_.push(*near.engine, engine::OpenWire{.endpoint = near.id,
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

void EngineChannels::resume_hairpin(const EndpointRecord& endpoint, const ChannelRecord& channel) {
  const uint32_t peer = endpoints_.at(channel.peer_endpoint)->engine_id();
  commands_.push(0, engine::OpenHairpin{.endpoint = endpoint.engine_id(), .channel = channel.number, .peer = peer,
                                        .peer_channel = channel.peer_channel});
}

void EngineChannels::open_wire(EndpointRecord& endpoint, ChannelRecord& channel, Tag remote_tag, const WireAddress& remote) {
  const uint32_t owners = engines_.of(remote.port);
  EndpointRecord& served = endpoints_.carrier_of(endpoint);
  engines_.assign(served, engines_.least_busy(owners));
  // It may be served elsewhere already, and what arrives at another queue is its, too.
  channel.relays = owners & ~(1u << *served.engine);
  commands_.push_each(channel.relays, engine::OpenRelay{.local_tag = channel.local_tag, .engine = *served.engine});
  commands_.push(*served.engine, engine::OpenWire{.endpoint = served.id,
                                                  .channel = channel.number,
                                                  .local_tag = channel.local_tag,
                                                  .remote_tag = remote_tag,
                                                  .remote = remote.mac,
                                                  .port = remote.port});
}

void EngineChannels::close(EndpointRecord& endpoint, ChannelRecord& channel) {
  const EndpointRecord& served = endpoints_.carrier_of(endpoint);
  if (channel.kind != control::ChannelKind::ni || !served.engine) return;
  commands_.push(*served.engine, engine::CloseChannel{.endpoint = served.id, .channel = channel.number});
  commands_.push_each(channel.relays, engine::CloseRelay{.local_tag = channel.local_tag});
  if (channel.linked) tags_.release(channel.local_tag);
  channel.relays = 0;
  channel.linked = false;
}

}  // namespace unet::service
