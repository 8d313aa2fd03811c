// service_requests.cc - requests about endpoints, names and memory; what every request passes first.
#include <sys/epoll.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "ni/service/journal_records.h"
#include "ni/service/log.h"
#include "ni/service/service.h"
#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/base/probe.h"

namespace unet::service {

using control::Op;

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

template <size_t N>
bool lies(const control::Text<N>& text) {
  return text.length > N;
}
template <typename Packet>
bool lies(const Packet&) {
  return false;
}
bool lies(const control::Hello& p) { return lies(p.program); }
bool lies(const control::Bind& p) { return lies(p.name); }
bool lies(const control::Connect& p) { return lies(p.target); }
bool lies(const control::Upgrade& p) { return lies(p.program); }

// A libunet of another release may have another hello, but its version stands where ours does.
bool of_another_version(Bytes packet) {
  uint32_t version = 0;
  if (packet.size() < offsetof(control::Hello, version) + sizeof version) return false;
  std::memcpy(&version, packet.data() + offsetof(control::Hello, version), sizeof version);
  return version != control::kVersion;
}

}  // namespace

template <typename Packet, typename Part>
void Service::dispatch(Part& part, ClientRecord& client, Bytes bytes) {
  static_assert(std::is_trivially_copyable_v<Packet> && sizeof(Packet) <= control::kPacketMax);
  if (bytes.size() != sizeof(Packet)) return clients_.protocol_error(client, "a request of a wrong length");
  Packet packet;
  std::memcpy(static_cast<void*>(&packet), bytes.data(), sizeof packet);
  if (lies(packet)) return clients_.protocol_error(client, "a text longer than its room");
  ++counters_.requests;
  part.handle(client, packet);
}

void Service::on_packet(ClientRecord& client, Bytes bytes) {
  uint32_t op = 0;
  if (bytes.size() < sizeof(control::Header)) return clients_.protocol_error(client, "a packet shorter than a header");
  std::memcpy(&op, bytes.data() + offsetof(control::Header, op), sizeof op);
  if (!client.greeted && op != static_cast<uint32_t>(Op::hello)) return clients_.protocol_error(client, "a request before hello");
  if (static_cast<Op>(op) == Op::hello && !client.greeted && of_another_version(bytes)) {
    control::Hello hello{};
    std::memcpy(static_cast<void*>(&hello), bytes.data(), offsetof(control::Hello, program));
    ++counters_.requests;
    return handle(client, hello);
  }
  switch (static_cast<Op>(op)) {
    case Op::hello: return dispatch<control::Hello>(*this, client, bytes);
    case Op::create_endpoint: return dispatch<control::CreateEndpoint>(*this, client, bytes);
    case Op::create_emulated: return dispatch<control::CreateEmulated>(*this, client, bytes);
    case Op::destroy_endpoint: return dispatch<control::DestroyEndpoint>(*this, client, bytes);
    case Op::bind: return dispatch<control::Bind>(*this, client, bytes);
    case Op::unbind: return dispatch<control::Unbind>(*this, client, bytes);
    case Op::connect: return dispatch<control::Connect>(channels_, client, bytes);
    case Op::accept: return dispatch<control::Accept>(channels_, client, bytes);
    case Op::reject: return dispatch<control::Reject>(channels_, client, bytes);
    case Op::close_channel: return dispatch<control::CloseChannel>(channels_, client, bytes);
    case Op::expose: return dispatch<control::Expose>(*this, client, bytes);
    case Op::peer_region: return dispatch<control::PeerRegion>(*this, client, bytes);
    case Op::open_ip: return dispatch<control::OpenIp>(ip_requests_, client, bytes);
    case Op::claim_ip: return dispatch<control::ClaimIp>(ip_requests_, client, bytes);
    case Op::release_ip: return dispatch<control::ReleaseIp>(ip_requests_, client, bytes);
    case Op::set_ip_claim: return dispatch<control::SetIpClaim>(ip_requests_, client, bytes);
    case Op::own_ip_flow: return dispatch<control::OwnIpFlow>(ip_requests_, client, bytes);
    case Op::ip_configuration: return dispatch<control::GetIpConfiguration>(ip_requests_, client, bytes);
    case Op::open_sockets: return dispatch<control::OpenSockets>(ip_requests_, client, bytes);
    case Op::list_sockets: return dispatch<control::ListSockets>(ip_requests_, client, bytes);
    case Op::get_descriptor: return dispatch<control::GetDescriptor>(*this, client, bytes);
    case Op::report: return dispatch<control::Report>(*this, client, bytes);
    case Op::policy_reload: return dispatch<control::PolicyReload>(operation_, client, bytes);
    case Op::drain: return dispatch<control::Drain>(operation_, client, bytes);
    case Op::capture_start: return dispatch<control::CaptureStart>(capture_requests_, client, bytes);
    case Op::capture_stop: return dispatch<control::CaptureStop>(capture_requests_, client, bytes);
    case Op::upgrade: return dispatch<control::Upgrade>(operation_, client, bytes);
    case Op::connect_request:
    case Op::channel_opened:
    case Op::channel_closed:
    case Op::ip_changed:
      break;
  }
  clients_.protocol_error(client, "an unknown request");
}

Status Service::greet(ClientRecord& client, const control::Hello& packet) {
  if (packet.version != control::kVersion) {
    if (now_ >= next_refusal_log_) {
      next_refusal_log_ = now_ + kSecond;
      log::info("pid {} of user {} speaks version {} of the control protocol, and not {}: its libunet is of another release",
                client.who.pid, client.who.uid, packet.version, control::kVersion);
    }
    return fail(Errc::protocol, "this network interface speaks version " + std::to_string(control::kVersion) +
                                    " of the control protocol, not " + std::to_string(packet.version) +
                                    ": use a libunet of the same release");
  }
  if (client.rights.none()) {
    return fail(Errc::not_permitted, "the policy of this network interface gives user " + std::to_string(client.who.uid) +
                                         " no right to use it: its administrator can add a [[rule]]");
  }
  if (Status status = persistence_.takes(2); !status) return status;
  Result<SharedMemory> page = create_shared("unet-client", sizeof(ClientPage));
  if (!page) return tl::unexpected(page.error());
  Result<Descriptor> wake = create_eventfd();
  if (!wake) return tl::unexpected(wake.error());
  client.page = std::move(*page);
  client.wake = std::move(*wake);
  return engines_.attach(client);
}

void Service::handle(ClientRecord& client, const control::Hello& packet) {
  if (client.greeted) return clients_.protocol_error(client, "a second hello");
  if (Status status = greet(client, packet); !status) {
    clients_.fail_request(client, packet.header, status.error());
    return clients_.drop(client, status.error().text);
  }
  client.program = std::string(packet.program.view());
  client.greeted = true;
  persistence_.changed(JournalKind::client_state, client.index);
  persistence_.put(JournalKind::page, client.index, 0, PageValue{}, {client.page.descriptor.get(), client.wake.get()});
  control::Reply reply = make_reply(packet.header);
  reply.hello = {.version = control::kVersion, .client = client.index};
  const bool sent = clients_.send_packet(client, reply, {client.page.descriptor.get(), client.wake.get()});
  if (!sent) clients_.drop(client, "no descriptors for its page");
  client.page.descriptor.reset();
}

Result<uint32_t> Service::create_endpoint(ClientRecord& client, const EndpointOptions& options) {
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
  // Of several engines, the first channel chooses.
  reinterpret_cast<SegmentHeader*>(made.segment.mapping.data())->doorbell.value.store(Doorbell::kNone, std::memory_order_relaxed);
  // The next NI may find it before our engine has attached it.
  if (persistence_.active()) engine_.begin_endpoint(id, geometry.buffers);
  if (engines_.count() == 1) engines_.assign(made, 0);
  if (persistence_.active()) {
    const SegmentValue value{.options = options, .client = client.index, .doorbell = made.doorbell};
    persistence_.put(JournalKind::segment, id, 0, value, {made.segment.descriptor.get()});
    persistence_.changed(JournalKind::endpoint, id);
  }
  UNET_PROBE(endpoint_open, id, client.who.uid, client.who.pid);
  return id;
}

void Service::handle(ClientRecord& client, const control::CreateEndpoint& packet) {
  const Result<uint32_t> id = create_endpoint(client, packet.options);
  if (!id) return clients_.fail_request(client, packet.header, id.error());
  EndpointRecord& endpoint = *endpoints_.at(*id);
  control::Reply reply = make_reply(packet.header);
  reply.create_endpoint = {.endpoint = *id, .doorbell = endpoint.engine ? endpoint.doorbell : Doorbell::kNone};
  const bool sent = clients_.send_packet(client, reply, {endpoint.segment.descriptor.get()});
  endpoint.segment.descriptor.reset();  // its watch is enough
  if (!sent) destroy(endpoint, control::CloseReason::closed_by_peer);
}

void Service::handle(ClientRecord& client, const control::DestroyEndpoint& packet) {
  EndpointRecord* endpoint = endpoints_.own(client, packet.header);
  if (endpoint == nullptr) return;
  if (endpoint->carrier) {
    destroy_emulated(*endpoint, control::CloseReason::closed_by_peer);
    return clients_.ok(client, packet.header);
  }
  endpoint->answer_detach = true;
  endpoint->detach_cookie = packet.header.cookie;
  destroy(*endpoint, control::CloseReason::closed_by_peer);
}

void Service::handle(ClientRecord& client, const control::Bind& packet) {
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

void Service::handle(ClientRecord& client, const control::Unbind& packet) {
  EndpointRecord* endpoint = endpoints_.own(client, packet.header);
  if (endpoint == nullptr) return;
  if (endpoints_.names().unbind(endpoint->id).empty()) {
    return clients_.fail_request(client, packet.header, {Errc::not_found, "the endpoint is bound to no name"});
  }
  channels_.close_static(*endpoint);
  clients_.ok(client, packet.header);
}

void Service::handle(ClientRecord& client, const control::Expose& packet) {
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
Status Service::make_region(ClientRecord& client, EndpointRecord& endpoint, uint64_t wanted) {
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

void Service::handle(ClientRecord& client, const control::PeerRegion& packet) {
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

void Service::handle(ClientRecord& client, const control::GetDescriptor& packet) {
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

}  // namespace unet::service
