// channels_end.cc - how channels end: both sides are told, and everything is given back, exactly once.
#include <string>
#include <utility>

#include "ni/service/channels.h"
#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/base/probe.h"

namespace unet::service {

using control::CloseReason;
using State = ChannelRecord::State;

void Channels::end_all(EndpointRecord& endpoint, CloseReason reason) {
  const std::string who = endpoints_.describe(endpoint);
  while (!endpoint.requests.empty()) {
    const RequestRecord request = requests_.at(*endpoint.requests.begin());
    requests_.remove(request.id);
    fail_connect(request, {Errc::refused, "the endpoint " + in_quotes(who) + " is gone"});
  }
  while (!endpoint.channels.empty()) {
    const ChannelRecord& channel = endpoint.channels.begin()->second;
    const bool accepting = channel.state == State::confirming, connecting = channel.state == State::connecting;
    const control::Header asked{
        .op = accepting ? control::Op::accept : control::Op::connect, .endpoint = endpoint.id, .cookie = channel.cookie};
    end(endpoint, channel.number, reason);
    if (!accepting && !connecting) continue;
    clients_.fail_request(*clients_.at(endpoint.client), asked,
                          {Errc::disconnected, "the endpoint was destroyed while the channel was being opened"});
  }
}

bool Channels::end_late_requests() {
  const bool any = requests_.next_deadline() <= now_;
  while (requests_.next_deadline() <= now_) {
    const RequestRecord request = requests_.at(requests_.first_due());
    const EndpointRecord* target = endpoints_.at(request.target);
    requests_.remove(request.id);
    fail_connect(request, {Errc::timed_out, "the endpoint " + (target != nullptr ? in_quotes(endpoints_.describe(*target)) : "") +
                                                " did not accept the channel in time"});
  }
  return any;
}

// Ends our side of a channel, whatever state it is in, and tells the other side `reason`.
void Channels::end(EndpointRecord& endpoint, uint32_t number, CloseReason reason) {
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
      requests_.remove(channel.request);
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

void Channels::tell_closed(EndpointRecord& endpoint, ChannelRecord& channel, CloseReason reason) {
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

}  // namespace unet::service
