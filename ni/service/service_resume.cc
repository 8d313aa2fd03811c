// service_resume.cc - a service goes on where the one before it stopped: its journal, read in order of the keys, becomes clients,
// endpoints, channels and requests again, and the engine attaches what is in use.
//
// Only a network interface can have written it. Still, nothing is believed that would make this one fall: a record that refers to
// what is not there, or is not of its kind's size, ends the takeover with an error.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "ni/service/journal_records.h"
#include "ni/service/log.h"
#include "ni/service/service.h"
#include "ni/service/takeover_records.h"
#include "unet/base/check.h"

namespace unet::service {

using State = ChannelRecord::State;

namespace {

tl::unexpected<Error> wrong(const JournalItem& item, const char* what) {
  return fail(Errc::protocol, "the journal of the network interface before this one: record " +
                                  std::to_string(static_cast<uint32_t>(item.key.kind)) + "/" + std::to_string(item.key.a) + "/" +
                                  std::to_string(item.key.b) + ": " + what);
}

template <typename T>
Result<T> value_of(const JournalItem& item, size_t descriptors) {
  T value;
  if (!item.read(value)) return wrong(item, "a value of another size");
  if (item.descriptors.size() != descriptors) return wrong(item, "other descriptors than it should have");
  return value;
}

// A record that is one value, which is believed or not.
template <typename T, typename Take>
Status take_value(const JournalItem& item, const char* what, Take take) {
  return value_of<T>(item, 0).and_then([&](const T& value) { return take(value) ? Status{} : Status(wrong(item, what)); });
}

// Numbers that only grow: none has got so far, and from there on the next ones could be those that have been.
constexpr uint64_t kNumbersMax = uint64_t{1} << 63;

// What the kind does not use of a key is 0: two records would be about one thing.
bool is_plain(const JournalKey& key) {
  switch (key.kind) {
    case JournalKind::ni:
    case JournalKind::ni_state:
    case JournalKind::orphans:
    case JournalKind::policy: return key.a == 0 && key.b == 0;
    case JournalKind::client:
    case JournalKind::client_state:
    case JournalKind::page:
    case JournalKind::segment:
    case JournalKind::region:
    case JournalKind::wake:
    case JournalKind::endpoint:
    case JournalKind::ip_lease:
    case JournalKind::ip_host:
    case JournalKind::capture: return key.b == 0;
    case JournalKind::held_memory:
    case JournalKind::request: return key.a == 0;
    case JournalKind::channel:
    case JournalKind::output:
    case JournalKind::ip_claim:
    case JournalKind::socket_table:
    case JournalKind::upgrade: return true;
  }
  return false;
}

Result<SharedMemory> map_again(Descriptor memory, uint64_t bytes) {
  Result<Mapping> mapping = Mapping::map(memory.get(), bytes);
  if (!mapping) return tl::unexpected(mapping.error());
  make_immutable(memory.get());  // the NI before us may have been a release without that
  Result<Descriptor> watch = watch_memory(memory.get());
  if (!watch) return tl::unexpected(watch.error());
  return SharedMemory{std::move(memory), std::move(*mapping), std::move(*watch)};
}

// An engine writes to it in its turn, and must not wait there: it is an eventfd, and one that does not block. Where there is no /proc, what
// it is cannot be seen; whatever it is, it does not block.
bool make_wake(int descriptor) {
  std::array<char, 64> kind;
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), kind.data(), kind.size());
  if (length >= 0 && std::string_view(kind.data(), static_cast<size_t>(length)) != "anon_inode:[eventfd]") return false;
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0;
}

template <size_t N>
std::string text_of(const control::Text<N>& text) {
  return std::string(text.view());
}

}  // namespace

Status Service::resume(std::vector<JournalItem> items) {
  engine_channels_.tags().shuffle();
  for (JournalItem& item : items) {
    if (Status status = resume_item(item); !status) return status;
  }
  if (!listening_at_.empty() && listener_ == nullptr) return fail(Errc::protocol, "the journal has no control socket");
  finish_resume();
  log::info("took over {} clients with {} endpoints", clients_.all().size(), endpoints_.real());
  return {};
}

Status Service::resume_item(JournalItem& item) {
  if (!is_plain(item.key)) return wrong(item, "an unknown kind, or a key that none of it has");
  const uint32_t a = item.key.a;
  switch (item.key.kind) {
    case JournalKind::ni: return resume_socket(item);
    case JournalKind::ni_state: return resume_state(item);
    case JournalKind::policy: return operation_.resume_policy(item);
    case JournalKind::client: return resume_client(item);
    case JournalKind::client_state: return resume_client_state(item);
    case JournalKind::page: return resume_page(item);
    case JournalKind::segment: return resume_segment(item);
    case JournalKind::region: return resume_region(item);
    case JournalKind::wake: return resume_wake(item);
    case JournalKind::endpoint: return resume_endpoint(item);
    case JournalKind::channel: return resume_channel(item);
    case JournalKind::request: return resume_request(item);
    case JournalKind::output: return resume_output(item);
    case JournalKind::upgrade: return resume_upgrade(item);
    case JournalKind::capture: return captures_.end_inherited(item) ? Status{} : Status(wrong(item, "no memory of a capture"));
    case JournalKind::held_memory:
      clients_.scan_soon();
      return charges_.resume_held(item) ? Status{} : Status(wrong(item, "no memory that could be held"));
    case JournalKind::ip_claim:
      return take_value<IpClaimValue>(item, "not a claim that could be", [&](const auto& v) {
        EndpointRecord* const endpoint = endpoints_.at(a);
        return endpoint != nullptr && ip_.resume_claim(*clients_.at(endpoint->client), *endpoint, item.key.b, v);
      });
    case JournalKind::socket_table:
    case JournalKind::orphans: return resume_sockets(item);
    case JournalKind::ip_lease:
      return take_value<IpLeaseValue>(item, "not a lease that could be", [&](const auto& v) { return ip_.hosts().resume_lease(a, v); });
    case JournalKind::ip_host:
      return take_value<IpHostValue>(item, "not addresses that could be", [&](const auto& v) { return ip_.hosts().resume_host(a, v); });
  }
  return wrong(item, "an unknown kind");
}

Status Service::resume_socket(JournalItem& item) {
  const auto value = value_of<NiValue>(item, listening_at_.empty() ? 1 : 2);
  if (!value) return tl::unexpected(value.error());
  if (listening_at_.empty()) return {};
  Result<Listener> listener = Listener::inherit(listening_at_, std::move(item.descriptors[1]));
  if (!listener) return tl::unexpected(listener.error());
  return listen_on(std::move(*listener));
}

// Other hosts are to see the NI that they know, so its life goes on.
Status Service::resume_state(const JournalItem& item) {
  const auto value = value_of<NiStateValue>(item, 0);
  if (!value) return tl::unexpected(value.error());
  if (value->incarnation == 0) return wrong(item, "no life of a network interface");
  if (value->next_request >= kNumbersMax || value->ids >= kNumbersMax) return wrong(item, "numbers that no network interface has got to");
  requests_.resume_ids(value->next_request);
  operation_.resume_draining(value->draining != 0);
  wires_.signalling().resume(value->incarnation, value->ids);
  return {};
}

Status Service::resume_client(JournalItem& item) {
  if (const auto value = value_of<ClientValue>(item, 1); !value) return tl::unexpected(value.error());
  const uint32_t index = item.key.a;
  if (!clients_.take_number(index)) return wrong(item, "no such client can be");
  Result<Credentials> who = clients_.credentials_of(item.descriptors[0].get());
  if (!who) return tl::unexpected(who.error());
  charges_.resume(who->uid, {.connections = 1});
  return clients_.watch(index, std::move(item.descriptors[0]), std::move(*who));
}

Status Service::resume_client_state(const JournalItem& item) {
  const auto value = value_of<ClientStateValue>(item, 0);
  if (!value) return tl::unexpected(value.error());
  ClientRecord* const client = clients_.at(item.key.a);
  if (client == nullptr) return wrong(item, "of no client");
  if (value->events >= kNumbersMax) return wrong(item, "more events than there can have been");
  client->program = text_of(value->program);
  client->events_numbered = value->events;
  client->handled_cookie = value->handled_cookie;
  client->handled_op = value->handled_op;
  client->maybe_handled = value->handled_op != 0;
  return {};
}

Status Service::resume_page(JournalItem& item) {
  if (const auto value = value_of<PageValue>(item, 2); !value) return tl::unexpected(value.error());
  ClientRecord* const client = clients_.at(item.key.a);
  if (client == nullptr || client->greeted) return wrong(item, "of no client");
  if (!make_wake(item.descriptors[1].get())) return wrong(item, "something that wakes nobody");
  Result<SharedMemory> page = map_again(std::move(item.descriptors[0]), sizeof(ClientPage));
  if (!page) return tl::unexpected(page.error());
  client->wake = std::move(item.descriptors[1]);
  client->page = std::move(*page);
  client->page.descriptor.reset();
  client->page.watch.reset();  // it is not charged
  client->greeted = true;
  auto* const memory = reinterpret_cast<ClientPage*>(client->page.mapping.data());
  client->events = memory->control_events.value.load(std::memory_order_relaxed);  // if the client wrote it, it fools itself
  return engines_.attach(*client);
}

Status Service::resume_segment(JournalItem& item) {
  const auto value = value_of<SegmentValue>(item, 1);
  if (!value) return tl::unexpected(value.error());
  ClientRecord* const client = clients_.at(value->client);
  const uint32_t id = item.key.a;
  const bool good = client != nullptr && client->greeted && valid_options(value->options) &&
                    value->doorbell < kEndpointsPerClientMax;
  EndpointRecord* const endpoint = good ? endpoints_.resume(*client, id) : nullptr;
  if (endpoint == nullptr) return wrong(item, "not an endpoint that could be");
  endpoint->weight = value->options.weight;
  endpoint->geometry = SegmentGeometry::of(value->options);
  Result<SharedMemory> segment = map_again(std::move(item.descriptors[0]), endpoint->geometry.total);
  if (!segment) return tl::unexpected(segment.error());
  endpoint->segment = std::move(*segment);
  endpoint->segment.descriptor.reset();
  endpoint->memory = endpoint->geometry.total;
  charges_.resume(client->who.uid, {.endpoints = 1, .memory = endpoint->memory});
  if (!engines_.resume(*endpoint, value->doorbell)) return wrong(item, "another endpoint's doorbell");
  return {};
}

Status Service::resume_region(JournalItem& item) {
  const auto value = value_of<RegionValue>(item, 1);
  if (!value) return tl::unexpected(value.error());
  EndpointRecord* const endpoint = endpoints_.at(item.key.a);
  if (endpoint == nullptr || endpoint->region.mapping) return wrong(item, "of no endpoint");
  Result<SharedMemory> region = map_again(std::move(item.descriptors[0]), value->memory);
  if (!region) return tl::unexpected(region.error());
  endpoint->region = std::move(*region);
  endpoint->memory += value->memory;
  charges_.resume(clients_.at(endpoint->client)->who.uid, {.memory = value->memory});
  return {};
}

Status Service::resume_wake(JournalItem& item) {
  if (const auto value = value_of<WakeValue>(item, 1); !value) return tl::unexpected(value.error());
  EndpointRecord* const endpoint = endpoints_.at(item.key.a);
  if (endpoint == nullptr || endpoint->wake.valid()) return wrong(item, "of no endpoint");
  if (!make_wake(item.descriptors[0].get())) return wrong(item, "something that wakes nobody");
  endpoint->wake = std::move(item.descriptors[0]);
  engines_.set_wake(*endpoint);
  return {};
}

Status Service::resume_endpoint(const JournalItem& item) {
  const auto value = value_of<EndpointValue>(item, 0);
  if (!value) return tl::unexpected(value.error());
  if (value->carrier != kNotEmulated && !resume_emulated(item.key.a, value->carrier)) {
    return wrong(item, "not an emulated endpoint that could be");
  }
  EndpointRecord* const endpoint = endpoints_.at(item.key.a);
  if (endpoint != nullptr && endpoint->carrier && value->detaching != 0) return wrong(item, "an emulated endpoint that ends in an engine");
  if (endpoint == nullptr || value->region_bytes > endpoint->region.mapping.size()) return wrong(item, "of no endpoint, or no region");
  endpoint->region_bytes = value->region_bytes;
  endpoint->region_sent = value->region_sent != 0;
  endpoint->detaching = value->detaching != 0;
  endpoint->answer_detach = value->answer_detach != 0;
  endpoint->detach_cookie = value->detach_cookie;
  endpoint->next_channel = value->next_channel;
  if (const std::string_view name = value->name.view(); !name.empty()) {
    if (endpoint->detaching) return wrong(item, "the name of an endpoint that has ended");
    if (Status status = endpoints_.names().bind(name, endpoint->id); !status) return wrong(item, status.error().text.c_str());
  }
  engines_.set_region(*endpoint);
  return {};
}

Status Service::resume_channel(const JournalItem& item) {
  const auto value = value_of<ChannelValue>(item, 0);
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
  if (!good || !good_ip || (ip_open && (endpoint->carrier || endpoint->ip_channel))) return wrong(item, "not a channel that could be");
  ClientRecord& client = *clients_.at(endpoint->client);
  if (endpoint->carrier) {
    EndpointRecord& carrier = endpoints_.carrier_of(*endpoint);
    const bool taken = carrier.channels.count(number) != 0 || !carrier.lent.insert(number).second;
    if (taken) return wrong(item, "two channels of one number");
  }
  ChannelRecord& channel = endpoint->channels[number];
  channel.number = number;
  channel.state = static_cast<State>(value->state);
  channel.kind = value->kind;
  channel.side = value->side;
  channel.peer = text_of(value->peer);
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

Status Service::resume_request(const JournalItem& item) {
  const auto value = value_of<RequestValue>(item, 0);
  if (!value) return tl::unexpected(value.error());
  EndpointRecord* const target = endpoints_.at(value->target);
  const bool here = value->wire == 0;
  if (item.key.b == 0 || item.key.b >= kNumbersMax) return wrong(item, "a number that no request has got");
  if (target == nullptr || target->detaching || (here && !asks(*value, item.key.b))) {
    return wrong(item, "a request from nobody, or to nobody");
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
  request.from = text_of(value->from);
  request.connector = value->connector;
  request.connector_channel = value->connector_channel;
  request.path = value->path;
  if (here || value->deadline != ~uint64_t{0}) {
    request.deadline = now_ + time_left(value->deadline);
  }
  target->requests.insert(request.id);
  requests_.resume(std::move(request));
  return {};
}

Status Service::resume_output(JournalItem& item) {
  ClientRecord* const client = clients_.at(item.key.a);
  if (client == nullptr || item.value.size() < sizeof(control::Header) || item.value.size() > control::kPacketMax) {
    return wrong(item, "a packet to nobody, or none");
  }
  if (client->outputs == 0) client->outputs = client->outputs_sent = item.key.b;
  if (item.key.b != client->outputs || item.key.b >= kNumbersMax) return wrong(item, "a packet out of order");
  ++client->outputs;
  if (client->socket.keep(item.value, std::move(item.descriptors), ClientRecord::kWaitingMax * 1024) != PacketSocket::Outcome::sent) {
    return wrong(item, "more packets than may wait");
  }
  persistence_.wait_for_commit(client->index);
  return {};
}

Status Service::resume_upgrade(const JournalItem& item) {
  if (const auto value = value_of<UpgradeValue>(item, 0); !value) return tl::unexpected(value.error());
  return operation_.resume_upgrade(item.key.a, item.key.b) ? Status{} : Status(wrong(item, "two upgrades at once"));
}

Status Service::resume_sockets(JournalItem& item) {
  EndpointRecord* const endpoint = item.key.kind == JournalKind::orphans ? nullptr : endpoints_.at(item.key.a);
  bool good = item.descriptors.size() == 1;
  if (item.key.kind == JournalKind::orphans) good = good && ip_.dead().restore(item);
  else good = good && endpoint != nullptr && ip_.resume_table(*clients_.at(endpoint->client), *endpoint, item);
  if (!good) return wrong(item, "not a table of sockets that could be");
  return {};
}

// The channel of a request on this NI waits for it, and is of the kind that was asked for.
bool Service::asks(const RequestValue& value, uint64_t request) {
  const EndpointRecord* const connector = endpoints_.at(value.connector);
  if (connector == nullptr) return false;
  const auto at = connector->channels.find(value.connector_channel);
  if (at == connector->channels.end()) return false;
  const ChannelRecord& channel = at->second;
  const auto kind = value.path == control::Path::ni ? control::ChannelKind::ni : control::ChannelKind::local;
  return channel.state == State::connecting && !channel.wire && channel.request == request && channel.kind == kind;
}

// Both ends of a channel on this NI are written down in one step, whatever becomes of it: one that is there alone never was.
void Service::end_halves(EndpointRecord& endpoint) {
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
    end_channel(endpoint, number, control::CloseReason::closed_by_peer);
    clients_.fail_request(*clients_.at(endpoint.client), asked, {Errc::disconnected, "the network interface was replaced: try again"});
  }
}

bool Service::has_other_half(const EndpointRecord& endpoint, const ChannelRecord& channel) {
  const EndpointRecord* const peer = endpoints_.at(channel.peer_endpoint);
  if (peer == nullptr) return false;
  const auto at = peer->channels.find(channel.peer_channel);
  if (at == peer->channels.end()) return false;
  const ChannelRecord& other = at->second;
  if (&other == &channel) return false;
  return other.state == State::open && !other.wire && !other.ip && other.kind == channel.kind && other.peer_endpoint == endpoint.id &&
         other.peer_channel == channel.number;
}

// Both ends of channels through the engine.
void Service::resume_hairpins(EndpointRecord& endpoint) {
  for (const auto& [number, channel] : endpoint.channels) {
    if (channel.kind != control::ChannelKind::ni || channel.wire || channel.ip || channel.state != State::open) continue;
    engine_channels_.resume_hairpin(endpoint, channel);
  }
}

void Service::resume_wires(EndpointRecord& endpoint) {
  std::vector<uint32_t> wires;
  for (const auto& [number, channel] : endpoint.channels) {
    if (channel.wire && channel.state != State::closed) wires.push_back(number);
  }
  for (const uint32_t number : wires) {
    ChannelRecord& channel = endpoint.channels.at(number);
    if (!wires_.resume(endpoint, channel)) lose_wire(endpoint, channel);
  }
}

// Its port is not what it was, or it makes no sense: the other NI, if there is one, learns it by our silence about the channel.
void Service::lose_wire(EndpointRecord& endpoint, ChannelRecord& channel) {
  if (channel.state == State::open) return tell_closed(endpoint, channel, control::CloseReason::wire_lost);
  const bool accepting = channel.state == State::confirming;
  const control::Header asked{
      .op = accepting ? control::Op::accept : control::Op::connect, .endpoint = endpoint.id, .cookie = channel.cookie};
  end_channel(endpoint, channel.number, control::CloseReason::wire_lost);
  clients_.fail_request(*clients_.at(endpoint.client), asked,
               {Errc::disconnected, "the network interface was replaced while the channel was being opened: try again"});
}

void Service::finish_resume() {
  std::vector<uint32_t> ids;
  for (const auto& [id, endpoint] : endpoints_.all()) ids.push_back(id);
  for (const uint32_t id : ids) end_halves(*endpoints_.at(id));
  ip_.hosts().resume(ports_.all());
  ip_.dead().send_inherited(ip_.ports());
  for (const uint32_t id : ids) {
    EndpointRecord& endpoint = *endpoints_.at(id);
    resume_hairpins(endpoint);
    resume_ip(endpoint);
    resume_wires(endpoint);
    if (endpoint.detaching) commands_.push(0, engine::DetachEndpoint{.endpoint = id});  // and its end is told as ever
    else ip_.send_flows(endpoint);
  }
  commands_.push(0, engine::Resumed{});
  wires_.begin_asking();
  commands_.begin_countdown();
}

}  // namespace unet::service
