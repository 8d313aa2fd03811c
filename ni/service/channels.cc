// channels.cc - channels between two endpoints of this NI: asked for, accepted, rejected; numbers of channels.
#include "ni/service/channels.h"

#include <algorithm>
#include <optional>
#include <string>

#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/base/probe.h"
#include "unet/wire/frame.h"

namespace unet::service {

using control::ChannelKind;
using control::Op;
using State = ChannelRecord::State;

namespace {

constexpr uint32_t kChannelNumbersMin = 64;  // an endpoint's numbers are reused late: not before so many

Error wrong_local_options(const LocalOptions& o) {
  return {Errc::invalid_argument,
          "local channel options: depth " + std::to_string(o.depth) + " (allowed: " + std::to_string(kQueueDepthMin) + " to " +
              std::to_string(kQueueDepthMax) + "), data_bytes " + std::to_string(o.data_bytes) + " (allowed: " +
              std::to_string(4 * kMessageMax) + " to " + std::to_string(kLocalDataMax) + ")"};
}

// The memory of a local channel and the two eventfds with what their sleepers hold.
struct LocalParts {
  Descriptor memory;
  Descriptor wake[2];   // written by the other side
  Descriptor sleep[2];  // side 0 and side 1 sleep on it
};

Result<LocalParts> make_local_parts(const LocalOptions& options) {
  LocalParts parts;
  Result<Descriptor> memory = create_sealed("unet-channel", LocalGeometry::of(options).total);
  if (!memory) return tl::unexpected(memory.error());
  parts.memory = std::move(*memory);
  for (int side = 0; side < 2; ++side) {
    Result<Descriptor> wake = create_eventfd();
    if (!wake) return tl::unexpected(wake.error());
    Result<Descriptor> sleep = create_wake_descriptor(wake->get());
    if (!sleep) return tl::unexpected(sleep.error());
    parts.wake[side] = std::move(*wake);
    parts.sleep[side] = std::move(*sleep);
  }
  return parts;
}

// An open one. nullptr: there is none.
const ChannelRecord* local_channel_to(const EndpointRecord& endpoint, uint32_t peer) noexcept {
  const auto found = std::find_if(endpoint.channels.begin(), endpoint.channels.end(), [&](const auto& each) {
    const ChannelRecord& channel = each.second;
    return channel.state == State::open && channel.kind == ChannelKind::local && channel.peer_endpoint == peer;
  });
  return found == endpoint.channels.end() ? nullptr : &found->second;
}

}  // namespace

Channels::Channels(const Uses& uses)
    : options_(uses.options), ports_(uses.ports), now_(uses.now), persistence_(uses.persistence), charges_(uses.charges),
      clients_(uses.clients), endpoints_(uses.endpoints), operation_(uses.operation), ip_(uses.ip),
      requests_(persistence_, clients_, endpoints_),
      engine_channels_(options_.seed, uses.commands, ports_, endpoints_, uses.engines),
      wires_(options_, ports_, now_, uses.counters, uses.commands, engine_channels_, uses.engines, clients_, endpoints_) {}

Nanoseconds Channels::next_timeout() const noexcept { return std::min(wires_.next_timeout(), requests_.next_deadline()); }

control::ChannelInfo Channels::info_of(const EndpointRecord& endpoint, const ChannelRecord& channel) {
  const EndpointRecord* const peer = channel.wire || channel.ip ? nullptr : endpoints_.at(channel.peer_endpoint);
  auto info = zeroed<control::ChannelInfo>();
  info.channel = channel.number;
  info.kind = channel.kind;
  info.side = channel.side;
  info.wire_mtu = channel.wire ? fragment_payload(ports_[channel.port].mtu, false) : 0;
  info.same_user = peer != nullptr && endpoints_.same_user(endpoint, *peer) ? 1 : 0;
  info.peer_pid = info.same_user == 1 ? clients_.at(peer->client)->who.pid : -1;
  info.shared = channel.shared ? 1 : 0;
  info.local = channel.local;
  info.peer.set(channel.peer);
  return info;
}

Result<ChannelRecord*> Channels::create(EndpointRecord& endpoint, uint64_t memory) {
  EndpointRecord& numbered = endpoints_.carrier_of(endpoint);
  const size_t count = numbered.channels.size() + numbered.lent.size();
  if (count >= kChannelsPerEndpointMax) {
    const char* const whose = endpoint.carrier ? "the emulated endpoints of a connection have together " : "the endpoint has ";
    const char* const also = endpoint.carrier ? ", or open another connection" : "";
    return fail(Errc::quota_exceeded,
                whose + std::to_string(kChannelsPerEndpointMax) + " channels, which is the maximum; close some" + also);
  }
  ClientRecord& client = *clients_.at(endpoint.client);
  if (Status status = persistence_.takes(0); !status) return tl::unexpected(status.error());
  if (Status status = charges_.take_memory(client, {.channels = 1, .memory = memory}); !status) {
    return tl::unexpected(status.error());
  }
  // The engine has a place for each number up to the largest: an endpoint with few channels does not get to the large ones.
  const uint32_t numbers =
      std::clamp(4 * static_cast<uint32_t>(count + 1), kChannelNumbersMin, kChannelsPerEndpointMax);
  uint32_t number = numbered.next_channel % numbers;
  while (numbered.channels.count(number) != 0 || numbered.lent.count(number) != 0) number = (number + 1) % numbers;
  numbered.next_channel = number + 1;
  if (endpoint.carrier) numbered.lent.insert(number);
  client.channels_peak = std::max(client.channels_peak, ++client.channels);
  ChannelRecord& channel = endpoint.channels[number];
  channel.number = number;
  channel.memory = memory;
  persistence_.changed(JournalKind::channel, endpoint.id, number);
  persistence_.changed(JournalKind::endpoint, numbered.id);
  return &channel;
}

ChannelRecord* Channels::own(ClientRecord& client, EndpointRecord& endpoint, const control::Header& header, uint32_t number) {
  const auto at = endpoint.channels.find(number);
  const bool known = at != endpoint.channels.end() && (at->second.state == State::open || at->second.state == State::closed);
  if (known) return &at->second;
  clients_.fail_request(client, header, {Errc::not_found, "the endpoint has no channel " + std::to_string(number)});
  return nullptr;
}

void Channels::handle(ClientRecord& client, const control::Connect& packet) {
  EndpointRecord* endpoint = endpoints_.own(client, packet.header);
  if (endpoint == nullptr) return;
  const std::string_view target = packet.target.view();
  const size_t at = target.find('@');
  const std::string_view name = target.substr(0, at);
  const std::string_view host = at == std::string_view::npos ? std::string_view() : target.substr(at + 1);
  if (Status more = operation_.takes_more(); !more) return clients_.fail_request(client, packet.header, more.error());
  Status status;
  if (control::names_claim(target)) {
    const Result<IpPorts::Found> claimer = ip_.find(target);
    // One channel to a local peer serves all its ports, however often a client asks.
    if (const ChannelRecord* known = claimer && packet.path != control::Path::ni ? local_channel_to(*endpoint, claimer->endpoint)
                                                                                      : nullptr) {
      control::Reply reply = make_reply(packet.header);
      reply.channel = info_of(*endpoint, *known);
      reply.channel.known = 1;
      reply.channel.shared = claimer->shared ? 1 : 0;  // of this question, not of the one that opened it
      clients_.send_packet(client, reply);
      return;
    }
    status = claimer ? connect_to(client, *endpoint, packet, target, claimer->endpoint, claimer->shared)
                     : Status(tl::unexpected(claimer.error()));
  } else if (!control::valid_name(name)) {
    status = fail(Errc::invalid_argument, "target: " + name_rule(name));
  } else if (at != std::string_view::npos && !control::valid_name(host)) {
    status = fail(Errc::invalid_argument, "target " + in_quotes(target) + ": host " + name_rule(host));
  } else if (packet.path != control::Path::automatic && packet.path != control::Path::local && packet.path != control::Path::ni) {
    status = fail(Errc::invalid_argument, "path " + std::to_string(static_cast<uint32_t>(packet.path)) +
                                              " is none of automatic (0), local (1), ni (2)");
  } else if (host.empty() || host == options_.host) {
    status = connect_here(client, *endpoint, packet, name);
  } else if (packet.path == control::Path::local) {
    status = fail(Errc::invalid_argument, in_quotes(target) + " is on another host: a local channel cannot reach it");
  } else {
    status = connect_wire(*endpoint, packet, name, host);
  }
  if (!status) clients_.fail_request(client, packet.header, status.error());
}

Status Channels::connect_here(ClientRecord& client, EndpointRecord& endpoint, const control::Connect& packet,
                             std::string_view name) {
  const std::optional<uint32_t> target = endpoints_.names().find(name);
  if (!target) return fail(Errc::not_found, "no endpoint is bound to the name " + in_quotes(name) + " on this network interface");
  return connect_to(client, endpoint, packet, name, *target);
}

Status Channels::connect_to(ClientRecord& client, EndpointRecord& endpoint, const control::Connect& packet, std::string_view name,
                           uint32_t target, bool shared) {
  // Thousands of emulated endpoints must not have thousands of local channels, with memory and descriptors each, unless the client asks.
  const bool emulated = endpoint.carrier || endpoints_.at(target)->carrier;
  const bool local = packet.path == control::Path::local || (packet.path == control::Path::automatic && !emulated);
  if (local && !valid_options(packet.local)) return tl::unexpected(wrong_local_options(packet.local));
  const Result<ChannelRecord*> made = create(endpoint, local ? LocalGeometry::of(packet.local).total : 0);
  if (!made) return tl::unexpected(made.error());
  ChannelRecord& channel = **made;
  channel.kind = local ? ChannelKind::local : ChannelKind::ni;
  channel.local = local ? packet.local : LocalOptions{0, 0};
  channel.peer = std::string(name);
  channel.cookie = packet.header.cookie;
  channel.shared = shared;

  RequestRecord request;
  request.id = requests_.take_id();
  request.target = target;
  request.from = endpoints_.describe(endpoint);
  request.connector = endpoint.id;
  request.connector_channel = channel.number;
  request.path = local ? packet.path : control::Path::ni;
  request.deadline = now_ + connect_timeout(packet);
  channel.request = request.id;
  if (Status status = requests_.offer(request, static_cast<int32_t>(client.who.uid), client.who.pid,
                            endpoints_.same_user(endpoint, *endpoints_.at(target)));
      !status) {
    channel.request = 0;
    end(endpoint, channel.number, control::CloseReason::closed_by_peer);
    return status;
  }
  return {};
}

// The connecting side's answer when there will be no channel. The request is removed already.
void Channels::fail_connect(const RequestRecord& request, const Error& error) {
  if (request.wire) return wires_.reject(request.wire_request, error);
  EndpointRecord* connector = endpoints_.at(request.connector);
  if (connector == nullptr) return;
  const auto at = connector->channels.find(request.connector_channel);
  if (at == connector->channels.end() || at->second.state != State::connecting || at->second.request != request.id) return;
  const control::Header header{.op = Op::connect, .endpoint = connector->id, .cookie = at->second.cookie};
  at->second.request = 0;
  end(*connector, request.connector_channel, control::CloseReason::closed_by_peer);
  clients_.fail_request(*clients_.at(connector->client), header, error);
}

void Channels::handle(ClientRecord& client, const control::Accept& packet) {
  EndpointRecord* endpoint = endpoints_.own(client, packet.header);
  if (endpoint == nullptr) return;
  const RequestRecord* found = requests_.find(*endpoint, packet.request);
  if (found == nullptr) {
    return clients_.fail_request(client, packet.header, {Errc::not_found, "the request was withdrawn: the other side gave up or is gone"});
  }
  const RequestRecord request = *found;
  if (request.wire) {
    const Status status = accept_wire(*endpoint, request, packet.header);
    if (!status) clients_.fail_request(client, packet.header, status.error());
  } else if (request.path == control::Path::ni) {
    accept_hairpin(*endpoint, request, packet.header);
  } else {
    accept_local(*endpoint, request, packet.header);
  }
}

void Channels::handle(ClientRecord& client, const control::Reject& packet) {
  EndpointRecord* endpoint = endpoints_.own(client, packet.header);
  if (endpoint == nullptr) return;
  if (const RequestRecord* found = requests_.find(*endpoint, packet.request); found != nullptr) {
    const RequestRecord request = *found;
    requests_.remove(request.id);
    fail_connect(request, {Errc::refused, "the endpoint " + in_quotes(endpoints_.describe(*endpoint)) + " refused the channel"});
  }
  clients_.ok(client, packet.header);
}

// The reply that a channel is open, to either side.
bool Channels::finish_connect(EndpointRecord& endpoint, ChannelRecord& channel, Op op, uint64_t cookie,
                             std::initializer_list<int> descriptors) {
  channel.state = State::open;
  UNET_PROBE(channel_open, endpoint.id, channel.number, static_cast<int>(channel.kind));
  channel.request = 0;
  persistence_.changed(JournalKind::channel, endpoint.id, channel.number);
  control::Reply reply = make_reply({.op = op, .endpoint = endpoint.id, .cookie = cookie});
  reply.channel = info_of(endpoint, channel);
  return clients_.send_packet(*clients_.at(endpoint.client), reply, descriptors);
}

namespace {

// Tells each end of a channel on this NI which is the other.
void join(const EndpointRecord& connector, ChannelRecord& connecting, const EndpointRecord& acceptor, ChannelRecord& accepting,
          const RequestRecord& request) {
  accepting.side = 1;
  accepting.peer = request.from;
  accepting.peer_endpoint = connector.id;
  accepting.peer_channel = connecting.number;
  connecting.peer_endpoint = acceptor.id;
  connecting.peer_channel = accepting.number;
}

}  // namespace

// The first page of a local channel's memory, for reading; nullptr if too many are mapped.
std::shared_ptr<const Mapping> Channels::map_local_page(int memory) {
  if (*local_pages_ >= kLocalPagesMax) return nullptr;
  Result<Mapping> page = Mapping::map(memory, kPage, false);
  if (!page) return nullptr;
  ++*local_pages_;
  return {new Mapping(std::move(*page)), [count = local_pages_](const Mapping* each) {
            delete each;
            --*count;
          }};
}

void Channels::accept_local(EndpointRecord& endpoint, const RequestRecord& request, const control::Header& header) {
  EndpointRecord& connector = *endpoints_.at(request.connector);
  ClientRecord& client = *clients_.at(endpoint.client);
  ChannelRecord& connecting = connector.channels.at(request.connector_channel);
  const Result<LocalParts> parts = make_local_parts(connecting.local);
  const Result<ChannelRecord*> made = parts ? create(endpoint, 0) : Result<ChannelRecord*>(tl::unexpected(parts.error()));
  requests_.remove(request.id);
  if (!made) {
    fail_connect(request, made.error());
    return clients_.fail_request(client, header, made.error());
  }
  ChannelRecord& accepting = **made;
  accepting.kind = ChannelKind::local;
  accepting.local = connecting.local;
  connecting.local_page = accepting.local_page = map_local_page(parts->memory.get());
  join(connector, connecting, endpoint, accepting, request);
  // Side s sleeps on sleep[s]; its peer writes wake[s].
  if (!finish_connect(endpoint, accepting, Op::accept, header.cookie,
                      {parts->memory.get(), parts->sleep[1].get(), parts->wake[0].get()})) {
    end(endpoint, accepting.number, control::CloseReason::closed_by_peer);
    return fail_connect(request,
                        {Errc::refused, "the endpoint " + in_quotes(endpoints_.describe(endpoint)) + " could not take the channel"});
  }
  if (!finish_connect(connector, connecting, Op::connect, connecting.cookie,
                      {parts->memory.get(), parts->sleep[0].get(), parts->wake[1].get()})) {
    end(connector, connecting.number, control::CloseReason::closed_by_peer);
  }
}

void Channels::accept_hairpin(EndpointRecord& endpoint, const RequestRecord& request, const control::Header& header) {
  EndpointRecord& connector = *endpoints_.at(request.connector);
  ClientRecord& client = *clients_.at(endpoint.client);
  ChannelRecord& connecting = connector.channels.at(request.connector_channel);
  const Result<ChannelRecord*> made = create(endpoint, 0);
  requests_.remove(request.id);
  if (!made) {
    fail_connect(request, made.error());
    return clients_.fail_request(client, header, made.error());
  }
  ChannelRecord& accepting = **made;
  accepting.kind = ChannelKind::ni;
  join(connector, connecting, endpoint, accepting, request);
  if (Status status = engine_channels_.open_hairpin(connector, connecting, endpoint, accepting); !status) {
    end(endpoint, accepting.number, control::CloseReason::closed_by_peer);
    fail_connect(request, status.error());
    return clients_.fail_request(client, header, status.error());
  }
  finish_connect(endpoint, accepting, Op::accept, header.cookie, {});
  finish_connect(connector, connecting, Op::connect, connecting.cookie, {});
}

void Channels::handle(ClientRecord& client, const control::CloseChannel& packet) {
  EndpointRecord* endpoint = endpoints_.own(client, packet.header);
  if (endpoint == nullptr) return;
  if (own(client, *endpoint, packet.header, packet.channel) == nullptr) return;
  end(*endpoint, packet.channel, control::CloseReason::closed_by_peer);
  clients_.ok(client, packet.header);
}

}  // namespace unet::service
