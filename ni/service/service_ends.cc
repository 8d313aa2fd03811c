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
using State = ChannelRecord::State;

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
  const std::string who = endpoints_.describe(endpoint);
  endpoints_.names().unbind(endpoint.id);
  captures_.stop_of_endpoint(endpoint.id);
  while (!endpoint.requests.empty()) {
    const RequestRecord request = requests_.at(*endpoint.requests.begin());
    remove_request(request.id);
    fail_connect(request, {Errc::refused, "the endpoint " + in_quotes(who) + " is gone"});
  }
  while (!endpoint.channels.empty()) {
    const ChannelRecord& channel = endpoint.channels.begin()->second;
    const bool accepting = channel.state == State::confirming, connecting = channel.state == State::connecting;
    const control::Header asked{
        .op = accepting ? control::Op::accept : control::Op::connect, .endpoint = endpoint.id, .cookie = channel.cookie};
    end_channel(endpoint, channel.number, reason);
    if (!accepting && !connecting) continue;
    clients_.fail_request(*clients_.at(endpoint.client), asked,
                          {Errc::disconnected, "the endpoint was destroyed while the channel was being opened"});
  }
}

// Ends our side of a channel, whatever state it is in, and tells the other side `reason`.
void Service::end_channel(EndpointRecord& endpoint, uint32_t number, CloseReason reason) {
  const auto at = endpoint.channels.find(number);
  UNET_CHECK(at != endpoint.channels.end());
  ChannelRecord channel = std::move(at->second);
  endpoint.channels.erase(at);
  persistence_.changed(JournalKind::channel, endpoint.id, number);
  if (endpoint.carrier) endpoints_.carrier_of(endpoint).lent.erase(number);
  ClientRecord& client = *clients_.at(endpoint.client);
  --client.channels;
  charges_.give_back(client.who.uid, {.channels = 1, .memory = channel.memory});

  if (channel.state == State::connecting) {
    if (channel.wire) {
      wires_.cancel(channel);
    } else if (channel.request != 0) {
      remove_request(channel.request);
    }
    return;
  }
  if (channel.state == State::closed) return;  // the other side ended it, and everything with it
  UNET_PROBE(channel_close, endpoint.id, number, static_cast<int>(reason));
  if (channel.ip) ip_.expect_end(endpoint);
  engine_channels_.close(endpoint, channel);
  if (channel.ip) return ip_.end(client, endpoint);
  if (channel.wire) return wires_.close(channel, reason);
  if (EndpointRecord* peer = endpoints_.at(channel.peer_endpoint); peer != nullptr) {
    if (const auto other = peer->channels.find(channel.peer_channel); other != peer->channels.end()) {
      tell_closed(*peer, other->second, reason);
    }
  }
}

// The other side ended the channel: our client is told, and keeps the number until it closes, too.
void Service::tell_closed(EndpointRecord& endpoint, ChannelRecord& channel, CloseReason reason) {
  if (channel.state != State::open) return;
  channel.state = State::closed;
  UNET_PROBE(channel_close, endpoint.id, channel.number, static_cast<int>(reason));
  persistence_.changed(JournalKind::channel, endpoint.id, channel.number);
  if (channel.ip) ip_.expect_end(endpoint);
  engine_channels_.close(endpoint, channel);
  if (channel.ip) ip_.end(*clients_.at(endpoint.client), endpoint);
  if (channel.wire) wires_.release(channel);
  const ClientRecord& owner = *clients_.at(endpoint.client);
  charges_.give_back(owner.who.uid, {.memory = channel.memory});
  channel.memory = 0;
  auto event = zeroed<control::ChannelClosed>();
  event.header = {.op = control::Op::channel_closed, .endpoint = endpoint.id, .cookie = 0};
  event.channel = channel.number;
  event.reason = reason;
  clients_.send_packet(*clients_.at(endpoint.client), event);
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
