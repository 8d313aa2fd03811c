// endpoint_requests.cc - endpoints, real and emulated, from the request to the end; names, regions, wake descriptors.
#include "ni/service/endpoint_requests.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ni/service/journal_records.h"
#include "unet/base/bytes.h"
#include "unet/base/probe.h"

namespace unet::service {

using control::CloseReason;

namespace {

std::string wrong_options(const EndpointOptions& o) {
  const auto range = [](const char* what, uint64_t is, uint64_t least, uint64_t most) {
    if (is >= least && is <= most) return std::string();
    return std::string(what) + " " + std::to_string(is) + " is not between " + std::to_string(least) + " and " +
           std::to_string(most);
  };
  for (const std::string& text :
       {range("send_depth", o.send_depth, kQueueDepthMin, kQueueDepthMax),
        range("receive_depth", o.receive_depth, kQueueDepthMin, kQueueDepthMax),
        range("buffers", o.buffers, kQueueDepthMin, kBuffersMax),
        range("buffer_size", o.buffer_size, kBufferSizeMin, kBufferSizeMax),
        range("send_bytes", o.send_bytes, kMessageMax, kSegmentMax),
        range("weight", o.weight, 1, kEndpointWeightMax)}) {
    if (!text.empty()) return "endpoint options: " + text;
  }
  if (o.buffer_size % kCacheLine != 0) {
    return "endpoint options: buffer_size " + std::to_string(o.buffer_size) + " is not a multiple of " + std::to_string(kCacheLine);
  }
  return "endpoint options: the communication segment would be larger than " + std::to_string(kSegmentMax) + " bytes";
}

}  // namespace

Result<uint32_t> EndpointRequests::create(ClientRecord& client, const EndpointOptions& options) {
  if (Status more = operation_.takes_more(); !more) return tl::unexpected(more.error());
  if (options.emulated != 0) {
    return fail(Errc::invalid_argument, "endpoint options: an emulated endpoint is not created with queues of its own");
  }
  if (!valid_options(options)) return fail(Errc::invalid_argument, wrong_options(options));
  const SegmentGeometry geometry = SegmentGeometry::of(options);
  if (endpoints_.full()) {
    return fail(Errc::quota_exceeded, "this network interface has " + std::to_string(kEndpointsMax) +
                                          " endpoints, which is the maximum");
  }
  if (Status status = persistence_.takes(1); !status) return tl::unexpected(status.error());
  const Usage wanted{.endpoints = 1, .memory = geometry.total};
  if (Status status = charges_.take_memory(client, wanted); !status) return tl::unexpected(status.error());
  Result<SharedMemory> segment = create_charged("unet-segment", geometry.total);
  if (!segment || client.endpoints.size() >= kEndpointsPerClientMax) {
    charges_.give_back(client.who.uid, wanted);
    if (!segment) return tl::unexpected(segment.error());
    return fail(Errc::quota_exceeded, "this connection has the maximum of endpoints");
  }
  engines_.tell_terms(client);
  EndpointRecord& made = endpoints_.add(client);
  const uint32_t id = made.id;
  made.weight = options.weight;
  made.geometry = geometry;
  made.segment = std::move(*segment);
  made.memory = geometry.total;
  // If there are several engines, the first channel chooses the endpoint's.
  reinterpret_cast<SegmentHeader*>(made.segment.mapping.data())->doorbell.value.store(Doorbell::kNone, std::memory_order_relaxed);
  // The next NI may find it before our engine has attached it.
  if (persistence_.active()) side_.begin_endpoint(id, geometry.buffers);
  if (engines_.count() == 1) engines_.assign(made, 0);
  if (persistence_.active()) {
    const SegmentValue value{.options = options, .client = client.index, .doorbell = made.doorbell};
    persistence_.put(JournalKind::segment, id, 0, value, {made.segment.descriptor.get()});
    persistence_.changed(JournalKind::endpoint, id);
  }
  UNET_PROBE(endpoint_open, id, client.who.uid, client.who.pid);
  return id;
}

void EndpointRequests::handle(ClientRecord& client, const control::CreateEndpoint& packet) {
  const Result<uint32_t> id = create(client, packet.options);
  if (!id) return clients_.fail_request(client, packet.header, id.error());
  EndpointRecord& endpoint = *endpoints_.at(*id);
  control::Reply reply = make_reply(packet.header);
  reply.create_endpoint = {.endpoint = *id, .doorbell = endpoint.engine ? endpoint.doorbell : Doorbell::kNone};
  const bool sent = clients_.send_packet(client, reply, {endpoint.segment.descriptor.get()});
  endpoint.segment.descriptor.reset();  // its watch is enough
  if (!sent) destroy(endpoint, CloseReason::closed_by_peer);
}

Result<uint32_t> EndpointRequests::create_emulated(ClientRecord& client, EndpointRecord& carrier) {
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

void EndpointRequests::handle(ClientRecord& client, const control::CreateEmulated& packet) {
  EndpointRecord* carrier = endpoints_.own(client, packet.header);
  if (carrier == nullptr) return;
  const Result<uint32_t> id = create_emulated(client, *carrier);
  if (!id) return clients_.fail_request(client, packet.header, id.error());
  control::Reply reply = make_reply(packet.header);
  reply.create_endpoint = {.endpoint = *id, .doorbell = 0};
  clients_.send_packet(client, reply);
}

void EndpointRequests::handle(ClientRecord& client, const control::Bind& packet) {
  EndpointRecord* endpoint = endpoints_.own(client, packet.header);
  if (endpoint == nullptr) return;
  if (Status more = operation_.takes_more(); !more) return clients_.fail_request(client, packet.header, more.error());
  const std::string_view name = packet.name.view();
  if (control::valid_name(name) && !client.rights.may_bind(name)) {
    return clients_.fail_request(client, packet.header,
                        {Errc::not_permitted, "the policy of this network interface gives user " +
                                                  std::to_string(client.who.uid) + " no right to the name " + in_quotes(name)});
  }
  const Status bound = endpoints_.names().bind(name, endpoint->id);
  if (!bound) return clients_.fail_request(client, packet.header, bound.error());
  channels_.open_static(*endpoint, name);  // before the answer, so that a client that has it knows of them
  clients_.ok(client, packet.header);
}

void EndpointRequests::handle(ClientRecord& client, const control::Unbind& packet) {
  EndpointRecord* endpoint = endpoints_.own(client, packet.header);
  if (endpoint == nullptr) return;
  if (endpoints_.names().unbind(endpoint->id).empty()) {
    return clients_.fail_request(client, packet.header, {Errc::not_found, "the endpoint is bound to no name"});
  }
  channels_.close_static(*endpoint);
  clients_.ok(client, packet.header);
}

void EndpointRequests::handle(ClientRecord& client, const control::Expose& packet) {
  EndpointRecord* endpoint = endpoints_.own_real(client, packet.header, "region that others could put into");
  if (endpoint == nullptr) return;
  if (packet.bytes == 0 || packet.bytes > kRegionMax) {
    return clients_.fail_request(client, packet.header, {Errc::invalid_argument, "a region of " + std::to_string(packet.bytes) +
                                                                            " bytes: 1 to " + std::to_string(kRegionMax) + " are allowed"});
  }
  const Status made = make_region(client, *endpoint, packet.bytes);
  if (!made) return clients_.fail_request(client, packet.header, made.error());
  endpoint->region_bytes = packet.bytes;
  engines_.set_region(*endpoint);
  control::Reply reply = make_reply(packet.header);
  reply.region = {.bytes = packet.bytes};
  endpoint->region_sent = clients_.send_packet(client, reply, {endpoint->region.descriptor.get()});
}

// The engine may use a region until the endpoint ends. If the answer found no descriptor, the region stays for the next request.
Status EndpointRequests::make_region(ClientRecord& client, EndpointRecord& endpoint, uint64_t wanted) {
  const uint64_t bytes = round_up(wanted, kPage);
  if (endpoint.region_sent) {
    return fail(Errc::already_exists, "the endpoint exposes a region already; it stays until the endpoint is destroyed");
  }
  if (endpoint.region.mapping) {
    const uint64_t kept = endpoint.region.mapping.size();
    if (bytes <= kept) return {};
    return fail(Errc::already_exists, "the endpoint has a region of " + std::to_string(kept) +
                                          " bytes from a request that could not be answered: ask for that much or less");
  }
  if (Status status = persistence_.takes(1); !status) return status;
  if (Status status = charges_.take_memory(client, {.memory = bytes}); !status) return status;
  Result<SharedMemory> region = create_charged("unet-region", bytes);
  if (!region) {
    charges_.give_back(client.who.uid, {.memory = bytes});
    return tl::unexpected(region.error());
  }
  endpoint.memory += bytes;
  endpoint.region = std::move(*region);
  persistence_.put(JournalKind::region, endpoint.id, 0, RegionValue{bytes}, {endpoint.region.descriptor.get()});
  return {};
}

void EndpointRequests::handle(ClientRecord& client, const control::PeerRegion& packet) {
  EndpointRecord* endpoint = endpoints_.own(client, packet.header);
  if (endpoint == nullptr) return;
  const ChannelRecord* channel = channels_.own(client, *endpoint, packet.header, packet.channel);
  if (channel == nullptr) return;
  if (channel->kind != control::ChannelKind::local) {
    return clients_.fail_request(client, packet.header,
                        {Errc::invalid_argument, "only the peer of a local channel shares its region; puts work without"});
  }
  const EndpointRecord* peer = channel->state == ChannelRecord::State::open ? endpoints_.at(channel->peer_endpoint) : nullptr;
  if (peer == nullptr) return clients_.fail_request(client, packet.header, {Errc::disconnected, "the channel is closed"});
  if (!peer->region_sent) {
    return clients_.fail_request(client, packet.header, {Errc::not_found, "the peer exposes no region yet"});
  }
  control::Reply reply = make_reply(packet.header);
  reply.region = {.bytes = peer->region_bytes};
  clients_.send_packet(client, reply, {peer->region.descriptor.get()});
}

void EndpointRequests::handle(ClientRecord& client, const control::GetDescriptor& packet) {
  EndpointRecord* endpoint = endpoints_.own_real(client, packet.header, "wake descriptor");
  if (endpoint == nullptr) return;
  if (!endpoint->wake.valid()) {
    if (Status status = persistence_.takes(1); !status) return clients_.fail_request(client, packet.header, status.error());
    Result<Descriptor> wake = create_eventfd();
    if (!wake) return clients_.fail_request(client, packet.header, wake.error());
    endpoint->wake = std::move(*wake);
    persistence_.put(JournalKind::wake, endpoint->id, 0, WakeValue{}, {endpoint->wake.get()});
    engines_.set_wake(*endpoint);
  }
  if (!endpoint->sleep.valid()) {
    Result<Descriptor> sleep = create_wake_descriptor(endpoint->wake.get());
    if (!sleep) return clients_.fail_request(client, packet.header, sleep.error());
    endpoint->sleep = std::move(*sleep);
  }
  clients_.ok(client, packet.header, {endpoint->sleep.get()});
}

void EndpointRequests::handle(ClientRecord& client, const control::DestroyEndpoint& packet) {
  EndpointRecord* endpoint = endpoints_.own(client, packet.header);
  if (endpoint == nullptr) return;
  if (endpoint->carrier) {
    destroy_emulated(*endpoint, CloseReason::closed_by_peer);
    return clients_.ok(client, packet.header);
  }
  endpoint->answer_detach = true;
  endpoint->detach_cookie = packet.header.cookie;
  destroy(*endpoint, CloseReason::closed_by_peer);
}

void EndpointRequests::destroy(EndpointRecord& endpoint, CloseReason reason) {
  endpoint.detaching = true;
  while (!endpoint.emulated.empty()) destroy_emulated(*endpoints_.at(*endpoint.emulated.begin()), reason);
  end_parts(endpoint, reason);
  engines_.detach(endpoint);
}

// At once: the engine has nothing of it to let go of but its channels, which it closes in its own time.
void EndpointRequests::destroy_emulated(EndpointRecord& endpoint, CloseReason reason) {
  end_parts(endpoint, reason);
  charges_.give_back(clients_.at(endpoint.client)->who.uid, {.emulated = 1});
  endpoints_.remove(endpoint);
}

// Ends the name, requests and channels of an endpoint of either kind.
void EndpointRequests::end_parts(EndpointRecord& endpoint, CloseReason reason) {
  UNET_PROBE(endpoint_close, endpoint.id, static_cast<int>(reason));
  persistence_.changed(JournalKind::endpoint, endpoint.id);
  captures_.stop_of_endpoint(endpoint.id);
  channels_.end_all(endpoint, reason);
  endpoints_.names().unbind(endpoint.id);
}

void EndpointRequests::on_detached(EndpointRecord& endpoint) {
  ClientRecord& client = *clients_.at(endpoint.client);
  const bool answer = endpoint.answer_detach;
  const control::Header header{.op = control::Op::destroy_endpoint, .endpoint = endpoint.id, .cookie = endpoint.detach_cookie};
  const Usage usage{.endpoints = 1, .memory = endpoint.memory};
  std::vector<Descriptor> watches;
  for (SharedMemory* memory : {&endpoint.segment, &endpoint.region}) watches.push_back(std::move(memory->watch));
  engines_.release(endpoint);
  endpoints_.remove(endpoint);
  charges_.give_back(client.who.uid, usage, std::move(watches));
  if (answer) clients_.ok(client, header);
}

}  // namespace unet::service
