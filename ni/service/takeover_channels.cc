// takeover_channels.cc - channels and requests over a takeover: their records, and their ends where the other half is not there.
#include <vector>

#include "ni/service/channels.h"
#include "ni/service/journal_records.h"
#include "ni/service/takeover_records.h"

namespace unet::service {

using State = ChannelRecord::State;

bool Channels::save(const JournalKey& key) {
  return key.kind == JournalKind::request ? save_request(key.b) : save_channel(key.a, static_cast<uint32_t>(key.b));
}

Status Channels::restore(JournalItem& item) {
  return item.key.kind == JournalKind::request ? restore_request(item) : restore_channel(item);
}

bool Channels::save_channel(uint32_t endpoint, uint32_t number) {
  const EndpointRecord* const owner = endpoints_.at(endpoint);
  if (owner == nullptr) return false;
  const auto at = owner->channels.find(number);
  if (at == owner->channels.end()) return false;
  const ChannelRecord& channel = at->second;
  auto value = zeroed<ChannelValue>();
  value.memory = channel.memory;
  value.cookie = channel.cookie;
  value.request = channel.request;
  value.local = channel.local;
  value.state = static_cast<uint32_t>(channel.state);
  value.kind = channel.kind;
  value.side = channel.side;
  value.peer_endpoint = channel.peer_endpoint;
  value.peer_channel = channel.peer_channel;
  value.wire = channel.wire ? 1 : 0;
  value.fixed = channel.fixed ? 1 : 0;
  value.local_tag = static_cast<uint32_t>(channel.local_tag);
  value.port = channel.port;
  value.ip = channel.ip ? 1 : 0;
  value.shared_claim = channel.shared ? 1 : 0;
  if (channel.wire) wires_.save(channel, value);
  value.peer.set(channel.peer);
  persistence_.put(JournalKind::channel, endpoint, number, value);
  return true;
}

bool Channels::save_request(uint64_t id) {
  const RequestRecord* const found = requests_.find(id);
  if (found == nullptr) return false;
  const RequestRecord& request = *found;
  auto value = zeroed<RequestValue>();
  value.deadline = request.deadline == ~Nanoseconds{0} ? request.deadline : monotonic_of(request.deadline, now_);
  value.target = request.target;
  value.wire = request.wire ? 1 : 0;
  value.connector = request.connector;
  value.connector_channel = request.connector_channel;
  value.path = request.path;
  if (request.wire) wires_.save(request, value);
  value.from.set(request.from);
  persistence_.put(JournalKind::request, 0, id, value);
  return true;
}

Status Channels::restore_channel(const JournalItem& item) {
  const auto value = record_value<ChannelValue>(item, 0);
  if (!value) return tl::unexpected(value.error());
  EndpointRecord* const endpoint = endpoints_.at(item.key.a);
  const auto number = static_cast<uint32_t>(item.key.b);
  // An endpoint that ends has lost its channels before.
  const bool good = endpoint != nullptr && !endpoint->detaching && item.key.b < kChannelsPerEndpointMax &&
                    value->state <= static_cast<uint32_t>(State::closed) && value->kind <= control::ChannelKind::ni && value->side <= 1 &&
                    value->port < kPortsMax && (value->wire != 0 || value->state != static_cast<uint32_t>(State::confirming)) &&
                    (value->kind != control::ChannelKind::local || valid_options(value->local)) &&
                    (value->memory == 0 || (valid_options(value->local) && value->memory == LocalGeometry::of(value->local).total));
  // One of IP is open, or closed because IP has gone; an endpoint has one.
  const bool ip_open = value->ip != 0 && value->state == static_cast<uint32_t>(State::open);
  const bool good_ip = value->ip == 0 || (value->ip == 1 && value->wire == 0 && value->kind == control::ChannelKind::ni &&
                                          value->state >= static_cast<uint32_t>(State::open));
  if (!good || !good_ip || (ip_open && (endpoint->carrier || endpoint->ip_channel))) {
    return wrong_record(item, "not a channel that could be");
  }
  ClientRecord& client = *clients_.at(endpoint->client);
  if (endpoint->carrier) {
    EndpointRecord& carrier = endpoints_.carrier_of(*endpoint);
    const bool taken = carrier.channels.count(number) != 0 || !carrier.lent.insert(number).second;
    if (taken) return wrong_record(item, "two channels of one number");
  }
  ChannelRecord& channel = endpoint->channels[number];
  channel.number = number;
  channel.state = static_cast<State>(value->state);
  channel.kind = value->kind;
  channel.side = value->side;
  channel.peer = std::string(value->peer.view());
  channel.memory = value->memory;
  channel.local = value->local;
  channel.cookie = value->cookie;
  channel.request = value->request;
  channel.peer_endpoint = value->peer_endpoint;
  channel.peer_channel = value->peer_channel;
  channel.wire = value->wire != 0;
  channel.fixed = value->fixed != 0;
  channel.local_tag = Tag{value->local_tag};
  channel.port = value->port;
  channel.ip = value->ip != 0, channel.shared = value->shared_claim != 0;
  if (channel.ip && channel.state == State::open) endpoint->ip_channel = number;
  wires_.restore(*endpoint, channel, *value);
  client.channels_peak = ++client.channels;
  charges_.resume(client.who.uid, {.channels = 1, .memory = channel.memory});
  return {};
}

Status Channels::restore_request(const JournalItem& item) {
  const auto value = record_value<RequestValue>(item, 0);
  if (!value) return tl::unexpected(value.error());
  EndpointRecord* const target = endpoints_.at(value->target);
  const bool here = value->wire == 0;
  if (item.key.b == 0 || item.key.b >= kJournalNumbersMax) return wrong_record(item, "a number that no request has got");
  if (target == nullptr || target->detaching || (here && !asks(*value, item.key.b))) {
    return wrong_record(item, "a request from nobody, or to nobody");
  }
  const uint64_t wire_request = here ? 0 : wires_.restore_request(*value);
  if (!here && wire_request == 0) {
    persistence_.changed(JournalKind::request, 0, item.key.b);
    return {};
  }
  RequestRecord request;
  request.wire = !here;
  request.wire_request = wire_request;
  request.id = item.key.b;
  request.target = value->target;
  request.from = std::string(value->from.view());
  request.connector = value->connector;
  request.connector_channel = value->connector_channel;
  request.path = value->path;
  if (here || value->deadline != ~uint64_t{0}) {
    request.deadline = now_ + time_left(value->deadline);
  }
  requests_.resume(std::move(request));
  return {};
}

// The channel of a request on this NI waits for it, and is of the kind that was asked for.
bool Channels::asks(const RequestValue& value, uint64_t request) {
  const EndpointRecord* const connector = endpoints_.at(value.connector);
  if (connector == nullptr) return false;
  const auto at = connector->channels.find(value.connector_channel);
  if (at == connector->channels.end()) return false;
  const ChannelRecord& channel = at->second;
  const auto kind = value.path == control::Path::ni ? control::ChannelKind::ni : control::ChannelKind::local;
  return channel.state == State::connecting && !channel.wire && channel.request == request && channel.kind == kind;
}

// Both ends of a channel on this NI are written down in one step, whatever becomes of it: one that is there alone never was.
void Channels::end_halves(EndpointRecord& endpoint) {
  const auto is_asked_for = [&](const ChannelRecord& channel) {
    const RequestRecord* const request = requests_.find(channel.request);
    return request != nullptr && !request->wire && request->connector == endpoint.id && request->connector_channel == channel.number;
  };
  std::vector<uint32_t> unasked;
  for (auto& [number, channel] : endpoint.channels) {
    if (channel.wire || channel.ip) continue;
    if (channel.state == State::connecting && !is_asked_for(channel)) unasked.push_back(number);
    if (channel.state == State::open && !has_other_half(endpoint, channel)) tell_closed(endpoint, channel, control::CloseReason::peer_died);
  }
  for (const uint32_t number : unasked) {
    const control::Header asked{.op = control::Op::connect, .endpoint = endpoint.id, .cookie = endpoint.channels.at(number).cookie};
    endpoint.channels.at(number).request = 0;  // it may be another's
    end(endpoint, number, control::CloseReason::closed_by_peer);
    clients_.fail_request(*clients_.at(endpoint.client), asked, {Errc::disconnected, "the network interface was replaced: try again"});
  }
}

bool Channels::has_other_half(const EndpointRecord& endpoint, const ChannelRecord& channel) {
  const EndpointRecord* const peer = endpoints_.at(channel.peer_endpoint);
  if (peer == nullptr) return false;
  const auto at = peer->channels.find(channel.peer_channel);
  if (at == peer->channels.end()) return false;
  const ChannelRecord& other = at->second;
  if (&other == &channel) return false;
  return other.state == State::open && !other.wire && !other.ip && other.kind == channel.kind && other.peer_endpoint == endpoint.id &&
         other.peer_channel == channel.number;
}

// Hairpins first, and then wires: a wire that is lost changes the endpoint's channels.
void Channels::resume(EndpointRecord& endpoint) {
  std::vector<uint32_t> wires;
  for (const auto& [number, channel] : endpoint.channels) {
    if (channel.state == State::closed || channel.ip) continue;
    if (channel.wire) wires.push_back(number);
    else if (channel.kind == control::ChannelKind::ni && channel.state == State::open) engine_channels_.resume_hairpin(endpoint, channel);
  }
  for (const uint32_t number : wires) {
    ChannelRecord& channel = endpoint.channels.at(number);
    if (!wires_.resume(endpoint, channel)) lose_wire(endpoint, channel);
  }
}

// Its port is not what it was, or it makes no sense: the other NI, if there is one, learns it by our silence about the channel.
void Channels::lose_wire(EndpointRecord& endpoint, ChannelRecord& channel) {
  if (channel.state == State::open) return tell_closed(endpoint, channel, control::CloseReason::wire_lost);
  const bool accepting = channel.state == State::confirming;
  const control::Header asked{
      .op = accepting ? control::Op::accept : control::Op::connect, .endpoint = endpoint.id, .cookie = channel.cookie};
  end(endpoint, channel.number, control::CloseReason::wire_lost);
  clients_.fail_request(*clients_.at(endpoint.client), asked,
               {Errc::disconnected, "the network interface was replaced while the channel was being opened: try again"});
}

}  // namespace unet::service
