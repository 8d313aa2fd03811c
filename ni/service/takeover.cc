// takeover.cc - the order in which records are written and read again.
#include "ni/service/takeover.h"

#include <utility>

#include "ni/service/journal_records.h"
#include "ni/service/log.h"
#include "ni/service/takeover_records.h"

namespace unet::service {
namespace {

// The parts of a key that its kind does not use are 0; otherwise two records could be about one object.
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

}  // namespace

// After an error in restore(), the socket stays for another NI.
Takeover::~Takeover() {
  if (listener_) listener_->keep_path();
}

void Takeover::start(std::unique_ptr<Journal> journal, const std::string& path) {
  path_ = path;
  resumes_ = resumable_ = journal->resumes();
  parts_.persistence.start(std::move(journal));
}

void Takeover::save_socket(int checkpoint, const Listener* listener) {
  auto value = zeroed<NiValue>();
  value.socket.set(path_);
  if (listener != nullptr) parts_.persistence.put(JournalKind::ni, 0, 0, value, {checkpoint, listener->descriptor()});
  else parts_.persistence.put(JournalKind::ni, 0, 0, value, {checkpoint});
  parts_.persistence.changed(JournalKind::ni_state, 0);
}

void Takeover::tell_ready() {
  parts_.operation.save_policy();
  parts_.persistence.journal().order(JournalOp::ready);
  parts_.persistence.journal().commit();
  resumable_ = true;
}

void Takeover::tell_released() {
  parts_.persistence.journal().order(JournalOp::released);
  parts_.persistence.journal().commit();
}

void Takeover::take_orders() {
  while (std::optional<JournalItem> order = parts_.persistence.journal().next_order()) {
    if (order->op == JournalOp::release) released_ = true;
    if (order->op == JournalOp::upgraded) parts_.operation.end_upgrade({});
    if (order->op != JournalOp::refused) continue;
    const std::string why(reinterpret_cast<const char*>(order->value.data()), order->value.size());
    log::warn("no upgrade: {}", why);
    parts_.operation.end_upgrade(fail(Errc::unavailable, why));
  }
}

// ---- what is written

void Takeover::commit() {
  Persistence& persistence = parts_.persistence;
  persistence.reserve_ids(parts_.channels.wires().signalling().next_id());
  if (!persistence.has_uncommitted()) return;
  for (const uint32_t index : persistence.take_flushed()) {
    if (ClientRecord* const client = parts_.clients.at(index)) persistence.erase_sent(*client);
  }
  for (const JournalKey& key : persistence.take_changed()) save(key);
  persistence.journal().commit();
  for (const uint32_t index : persistence.take_waiting()) {
    ClientRecord* const client = parts_.clients.at(index);
    if (client == nullptr || client->dropped) continue;
    client->uncommitted = 0;
    parts_.clients.flush(*client);
  }
}

// An object that is gone has no records any more.
void Takeover::save(const JournalKey& key) {
  bool exists = true;
  switch (key.kind) {
    case JournalKind::client_state: exists = parts_.clients.save(key); break;
    case JournalKind::endpoint: exists = parts_.endpoint_requests.save(key); break;
    case JournalKind::channel:
    case JournalKind::request: exists = parts_.channels.save(key); break;
    case JournalKind::ip_claim:
    case JournalKind::ip_lease:
    case JournalKind::ip_host: exists = parts_.ip_requests.save(key); break;
    default: return save_state();
  }
  if (exists) return;
  Persistence& persistence = parts_.persistence;
  persistence.erase(key.kind, key.a, key.b);
  if (key.kind == JournalKind::client_state) {
    for (const JournalKind kind : {JournalKind::client, JournalKind::page}) persistence.erase(kind, key.a);
  } else if (key.kind == JournalKind::endpoint && key.a < kEndpointsMax) {  // an emulated one has none of these
    for (const JournalKind kind : {JournalKind::segment, JournalKind::region, JournalKind::wake}) persistence.erase(kind, key.a);
  }
}

void Takeover::save_state() {
  const NiStateValue value{.next_request = parts_.channels.requests().next_id(),
                           .incarnation = parts_.channels.wires().signalling().incarnation(),
                           .ids = parts_.persistence.reserved_ids(),
                           .draining = parts_.operation.draining() ? 1u : 0u,
                           .spare = 0};
  parts_.persistence.put(JournalKind::ni_state, 0, 0, value);
}

// ---- what is read again

Result<std::optional<Listener>> Takeover::restore() {
  if (!resumes_) return std::optional<Listener>();
  parts_.channels.wires().shuffle_tags();
  std::vector<JournalItem> items = parts_.persistence.journal().take_inherited();
  for (JournalItem& item : items) {
    if (Status status = restore(item); !status) return tl::unexpected(status.error());
  }
  if (!path_.empty() && !listener_) return fail(Errc::protocol, "the journal has no control socket");
  resume();
  log::info("took over {} clients with {} endpoints", parts_.clients.all().size(), parts_.endpoints.real());
  Result<std::optional<Listener>> listener(std::move(listener_));
  listener_.reset();
  return listener;
}

Status Takeover::restore(JournalItem& item) {
  if (!is_plain(item.key)) return wrong_record(item, "an unknown kind, or a key that none of it has");
  switch (item.key.kind) {
    case JournalKind::ni: return restore_socket(item);
    case JournalKind::ni_state: return restore_state(item);
    case JournalKind::policy: return parts_.operation.resume_policy(item);
    case JournalKind::client:
    case JournalKind::client_state:
    case JournalKind::output: return parts_.clients.restore(item);
    case JournalKind::page: return restore_page(item);
    case JournalKind::segment:
    case JournalKind::region:
    case JournalKind::wake:
    case JournalKind::endpoint: return parts_.endpoint_requests.restore(item);
    case JournalKind::channel:
    case JournalKind::request: return parts_.channels.restore(item);
    case JournalKind::upgrade: return restore_upgrade(item);
    case JournalKind::capture: return parts_.captures.end_inherited(item) ? Status{} : Status(wrong_record(item, "no memory of a capture"));
    case JournalKind::held_memory:
      parts_.clients.scan_soon();
      return parts_.charges.resume_held(item) ? Status{} : Status(wrong_record(item, "no memory that could be held"));
    case JournalKind::ip_claim:
    case JournalKind::socket_table:
    case JournalKind::orphans:
    case JournalKind::ip_lease:
    case JournalKind::ip_host: return parts_.ip_requests.restore(item);
  }
  return wrong_record(item, "an unknown kind");
}

Status Takeover::restore_socket(JournalItem& item) {
  const auto value = record_value<NiValue>(item, path_.empty() ? 1 : 2);
  if (!value) return tl::unexpected(value.error());
  if (path_.empty()) return {};
  Result<Listener> listener = Listener::inherit(path_, std::move(item.descriptors[1]));
  if (!listener) return tl::unexpected(listener.error());
  listener_.emplace(std::move(*listener));
  return {};
}

Status Takeover::restore_page(JournalItem& item) {
  if (Status status = parts_.clients.restore(item); !status) return status;
  return parts_.engines.attach(*parts_.clients.at(item.key.a));
}

// Other hosts are to see the NI that they know, so its life goes on.
Status Takeover::restore_state(const JournalItem& item) {
  const auto value = record_value<NiStateValue>(item, 0);
  if (!value) return tl::unexpected(value.error());
  if (value->incarnation == 0) return wrong_record(item, "no life of a network interface");
  if (value->next_request >= kJournalNumbersMax || value->ids >= kJournalNumbersMax) {
    return wrong_record(item, "numbers that no network interface has got to");
  }
  parts_.channels.requests().resume_ids(value->next_request);
  parts_.operation.resume_draining(value->draining != 0);
  parts_.channels.wires().signalling().resume(value->incarnation, value->ids);
  return {};
}

Status Takeover::restore_upgrade(const JournalItem& item) {
  if (const auto value = record_value<UpgradeValue>(item, 0); !value) return tl::unexpected(value.error());
  return parts_.operation.resume_upgrade(item.key.a, item.key.b) ? Status{} : Status(wrong_record(item, "two upgrades at once"));
}

void Takeover::resume() {
  std::vector<uint32_t> ids;
  for (const auto& [id, endpoint] : parts_.endpoints.all()) ids.push_back(id);
  for (const uint32_t id : ids) parts_.channels.end_halves(*parts_.endpoints.at(id));
  parts_.ip_requests.begin_resume();
  for (const uint32_t id : ids) {
    EndpointRecord& endpoint = *parts_.endpoints.at(id);
    parts_.channels.resume(endpoint);
    parts_.ip_requests.resume(endpoint);
    if (endpoint.detaching) parts_.engines.detach(endpoint);  // and its end is told as ever
    else parts_.ip.send_flows(endpoint);
  }
  parts_.commands.push(0, engine::Resumed{});
  parts_.channels.wires().begin_asking();
  parts_.commands.begin_countdown();
}

}  // namespace unet::service
