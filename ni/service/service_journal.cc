// service_journal.cc - what a service writes down for the one after it, and when that counts.
//
// Objects that changed are noted by their keys, and written as they are when a request or a turn is over: commit_poll(). Packets to clients
// wait for that, and are written down, too; so whoever takes over sends again what may not have left. Clients know by its cookie
// what they have had already.
#include <sys/epoll.h>

#include <array>
#include <cstring>
#include <utility>

#include "ni/service/journal_records.h"
#include "ni/service/log.h"
#include "ni/service/service.h"

namespace unet::service {
namespace {

constexpr uint64_t kIdsAhead = 4096;  // a record for so many ids

}  // namespace

Status Service::start_journal(std::unique_ptr<Journal> journal, int kept, const std::string& path, const std::string& group,
                             Nanoseconds now) {
  now_ = now;
  listening_at_ = path;
  const bool resumes = resumable_ = journal->resumes();
  journal_ = std::move(journal);
  if (Status status = watch_supervisor(); !status) return status;
  if (resumes) {
    if (Status status = resume(journal_->take_inherited()); !status) return status;
  }
  Result<Descriptor> text = create_text("unet-policy", options_.policy.text());
  if (!text) return tl::unexpected(text.error());
  policy_text_ = std::move(*text);
  if (resumes) return {};
  if (!path.empty()) {
    if (Status status = listen(path, group); !status) return status;
  }
  auto value = zeroed<NiValue>();
  value.socket.set(path);
  if (listener_ != nullptr) journal_->put(JournalKind::ni, 0, 0, value, {kept, listener_->descriptor()});
  else journal_->put(JournalKind::ni, 0, 0, value, {kept});
  changed(JournalKind::ni_state, 0);
  return {};
}

// That we serve counts together with the policy by which we do.
void Service::tell_ready() {
  if (journal_ == nullptr) return;
  commit_poll();
  journal_->put(JournalKind::policy, 0, 0, PolicyValue{}, {policy_text_.get()});
  journal_->order(JournalOp::ready);
  journal_->commit();
  policy_text_.reset();
  resumable_ = true;
}

void Service::hand_over() {
  commit_poll();
  save_orphans();
  if (listener_ != nullptr) listener_->keep_path();
}

void Service::tell_released() {
  journal_->order(JournalOp::released);
  journal_->commit();
}

void Service::on_supervisor() {
  while (std::optional<JournalItem> order = journal_->next_order()) {
    if (order->op == JournalOp::release) released_ = true;
    if (order->op == JournalOp::upgraded) end_upgrade({});
    if (order->op != JournalOp::refused) continue;
    const std::string why(reinterpret_cast<const char*>(order->value.data()), order->value.size());
    log::warn("no upgrade: {}", why);
    end_upgrade(fail(Errc::unavailable, why));
  }
  if (journal_->lost()) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, journal_->descriptor(), nullptr);
}

// Asked before anything is made that stays: a supervisor without descriptors would be the end of everybody.
Status Service::supervisor_takes(size_t descriptors) const {
  if (journal_ == nullptr) return {};
  if (!journal_->has_room_for_records()) {
    return fail(Errc::quota_exceeded, "the supervisor of this network interface holds as many records as it may, which are " +
                                          std::to_string(journal_->records_max()) + ": end what is not needed");
  }
  if (descriptors == 0 || journal_->has_room(descriptors)) return {};
  return fail(Errc::quota_exceeded, "the supervisor of this network interface holds as many descriptors as its limit of open files allows "
                                    "(" + std::to_string(journal_->descriptors_max()) +
                                        "): raise the limit (ulimit -n, LimitNOFILE=), or end what is not needed");
}

// ---- when it counts

// Everything that changed is written, and counts from here on; then what waits for that leaves. Clients that end by it are only noted:
// callers may go on with theirs.
void Service::commit_changes() {
  if (signalling_->next_id() > reserved_ids_) {
    reserved_ids_ = signalling_->next_id() + kIdsAhead;
    changed(JournalKind::ni_state, 0);
  }
  if (changed_.empty() && outputs_waiting_.empty() && sent_outputs_.empty() && !journal_->pending()) return;
  for (const uint32_t index : std::exchange(sent_outputs_, {})) {
    if (ClientRecord* const client = client_at(index)) erase_outputs(*client, client->outputs - client->socket.packets_waiting());
  }
  write_changes();
  journal_->commit();
  for (const uint32_t index : std::exchange(outputs_waiting_, {})) {
    ClientRecord* const client = client_at(index);
    if (client == nullptr || client->dropped) continue;
    client->uncommitted = 0;
    flush(*client);
  }
}

// The end of a turn: of clients that end, too, everything is written.
void Service::commit_poll() {
  if (journal_ == nullptr) return;
  do {
    finish_drops();
    commit_changes();
  } while (!dropped_.empty());
}

void Service::on_journaled_packet(ClientRecord& client, Bytes packet) {
  if (!std::exchange(client.maybe_handled, false) || !was_handled(client, packet)) {
    on_packet(client, packet);
    record_handled(client, packet);
    commit_changes();
  }
  if (!client.dropped) client.socket.take();
}

void Service::record_handled(ClientRecord& client, Bytes packet) {
  control::Header header{};
  if (client.dropped || packet.size() < sizeof header) return;
  std::memcpy(&header, packet.data(), sizeof header);
  client.handled_cookie = header.cookie;
  client.handled_op = static_cast<uint32_t>(header.op);
  changed(JournalKind::client_state, client.index);
}

bool Service::was_handled(ClientRecord& client, Bytes packet) {
  control::Header header{};
  if (packet.size() < sizeof header) return false;
  std::memcpy(&header, packet.data(), sizeof header);
  return client.handled_op == static_cast<uint32_t>(header.op) && client.handled_cookie == header.cookie;
}

PacketSocket::Outcome Service::journal_output(ClientRecord& client, Bytes packet, std::span<const int> descriptors) {
  if (!descriptors.empty() && !journal_->has_room(descriptors.size(), true)) return PacketSocket::Outcome::no_descriptors;
  std::array<std::byte, control::kPacketMax> room;
  std::memcpy(room.data(), packet.data(), packet.size());
  control::Header header{};
  std::memcpy(&header, room.data(), sizeof header);
  if (header.op >= control::Op::connect_request) {
    header.cookie = ++client.events_numbered;
    std::memcpy(room.data(), &header, sizeof header);
    changed(JournalKind::client_state, client.index);
  }
  const Bytes numbered(room.data(), packet.size());
  const PacketSocket::Outcome outcome = client.socket.keep(numbered, descriptors, client.waiting_max());
  if (outcome != PacketSocket::Outcome::sent) return outcome;
  journal_->put_bytes({JournalKind::output, client.index, client.outputs++}, numbered, descriptors);
  ++client.uncommitted;
  outputs_waiting_.insert(client.index);
  return outcome;
}

void Service::erase_outputs(ClientRecord& client, uint64_t up_to) {
  for (; client.outputs_sent < up_to; ++client.outputs_sent) journal_->erase(JournalKind::output, client.index, client.outputs_sent);
}

// ---- records

void Service::write_changes() {
  for (const JournalKey& key : std::exchange(changed_, {})) {
    bool exists = true;
    switch (key.kind) {
      case JournalKind::client_state: exists = write_client(key.a); break;
      case JournalKind::endpoint: exists = write_endpoint(key.a); break;
      case JournalKind::channel: exists = write_channel(key.a, static_cast<uint32_t>(key.b)); break;
      case JournalKind::ip_claim: exists = write_ip_claim(key.a, static_cast<uint32_t>(key.b)); break;
      case JournalKind::ip_lease: exists = write_ip_lease(key.a); break;
      case JournalKind::ip_host: exists = write_ip_host(key.a); break;
      case JournalKind::request: exists = write_request(key.b); break;
      default: {
        const NiStateValue value{.next_request = next_request_,
                                 .incarnation = options_.incarnation,
                                 .ids = reserved_ids_,
                                 .draining = draining_ ? 1u : 0u,
                                 .spare = 0};
        journal_->put(JournalKind::ni_state, 0, 0, value);
      }
    }
    if (exists) continue;
    journal_->erase(key.kind, key.a, key.b);
    if (key.kind == JournalKind::client_state) {
      for (const JournalKind kind : {JournalKind::client, JournalKind::page}) journal_->erase(kind, key.a);
    } else if (key.kind == JournalKind::endpoint && key.a < kEndpointsMax) {  // an emulated one has none of these
      for (const JournalKind kind : {JournalKind::segment, JournalKind::region, JournalKind::wake}) journal_->erase(kind, key.a);
    }
  }
}

bool Service::write_client(uint32_t index) {
  const ClientRecord* const client = client_at(index);
  if (client == nullptr) return false;
  auto value = zeroed<ClientStateValue>();
  value.events = client->events_numbered;
  value.handled_cookie = client->handled_cookie;
  value.handled_op = client->handled_op;
  value.greeted = client->greeted ? 1 : 0;
  value.program.set(client->program);
  journal_->put(JournalKind::client_state, index, 0, value);
  return true;
}

bool Service::write_endpoint(uint32_t id) {
  const EndpointRecord* const endpoint = endpoint_at(id);
  if (endpoint == nullptr) return false;
  auto value = zeroed<EndpointValue>();
  value.region_bytes = endpoint->region_bytes;
  value.detach_cookie = endpoint->detach_cookie;
  value.region_sent = endpoint->region_sent ? 1 : 0;
  value.detaching = endpoint->detaching ? 1 : 0;
  value.answer_detach = endpoint->answer_detach ? 1 : 0;
  value.next_channel = endpoint->next_channel;
  value.carrier = endpoint->carrier.value_or(kNotEmulated);
  value.name.set(names_.name_of(id));
  journal_->put(JournalKind::endpoint, id, 0, value);
  return true;
}

SharedValue Service::shared_value(const Shared& shared) const {
  const PortInfo& port = ports_[shared.remote.port];
  return {.number = shared.number,
          .incarnation = shared.incarnation,
          .lost_after = shared.lost_after,
          .remote_tag = static_cast<uint32_t>(shared.remote_tag),
          .port = shared.remote.port,
          .mtu = port.mtu,
          .mac = shared.remote.mac,
          .own = port.address};
}

// Each service's time begins with itself.
uint64_t Service::monotonic_of(Nanoseconds at) const { return at - now_ + monotonic_now(); }

bool Service::write_channel(uint32_t endpoint, uint32_t number) {
  const EndpointRecord* const owner = endpoint_at(endpoint);
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
  if (channel.wire && channel.state == ChannelRecord::State::connecting) {
    value.deadline = monotonic_of(signalling_->deadline_of(channel.request));
  } else if (channel.wire && channel.fixed) {
    if (const StaticChannel* const fixed = static_channel_of(channel.local_tag)) {
      value.shared.remote_tag = static_cast<uint32_t>(fixed->remote_tag);
      value.shared.port = fixed->port;
      value.shared.mac = fixed->peer;
    }
  } else if (channel.wire) {
    if (const auto shared = signalling_->shared_channel(channel.local_tag)) value.shared = shared_value(*shared);
  }
  value.peer.set(channel.peer);
  journal_->put(JournalKind::channel, endpoint, number, value);
  return true;
}

bool Service::write_request(uint64_t id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return false;
  const RequestRecord& request = at->second;
  auto value = zeroed<RequestValue>();
  value.deadline = request.deadline == ~Nanoseconds{0} ? request.deadline : monotonic_of(request.deadline);
  value.target = request.target;
  value.wire = request.wire ? 1 : 0;
  value.connector = request.connector;
  value.connector_channel = request.connector_channel;
  value.path = request.path;
  if (request.wire) {
    if (const auto shared = signalling_->shared_request(request.wire_request)) value.shared = shared_value(*shared);
  }
  value.from.set(request.from);
  journal_->put(JournalKind::request, 0, id, value);
  return true;
}

}  // namespace unet::service
