// service_journal.cc - what a service writes down for the one after it, and when that counts.
//
// Persistence has the keys of objects that changed. Their records are written, as the objects are then, when a request or a poll() is over:
// commit_changes(). Packets to clients wait for that and are written, too, so the next NI sends again what may not have left. Clients know
// a packet by its cookie.
#include <sys/epoll.h>

#include <array>
#include <cstring>
#include <utility>

#include "ni/service/journal_records.h"
#include "ni/service/log.h"
#include "ni/service/service.h"
#include "ni/service/takeover_records.h"

namespace unet::service {

Status Service::start_journal(std::unique_ptr<Journal> journal, int checkpoint, const std::string& path, const std::string& group,
                             Nanoseconds now) {
  now_ = now;
  listening_at_ = path;
  const bool resumes = resumable_ = journal->resumes();
  persistence_.start(std::move(journal));
  if (Status status = watch_supervisor(); !status) return status;
  if (resumes) {
    if (Status status = resume(persistence_.journal().take_inherited()); !status) return status;
  }
  if (Status status = operation_.prepare_policy(); !status || resumes) return status;
  if (!path.empty()) {
    if (Status status = listen(path, group); !status) return status;
  }
  auto value = zeroed<NiValue>();
  value.socket.set(path);
  if (listener_ != nullptr) persistence_.put(JournalKind::ni, 0, 0, value, {checkpoint, listener_->descriptor()});
  else persistence_.put(JournalKind::ni, 0, 0, value, {checkpoint});
  persistence_.changed(JournalKind::ni_state, 0);
  return {};
}

// That we serve counts together with the policy by which we do.
void Service::tell_ready() {
  if (!persistence_.active()) return;
  commit_poll();
  operation_.save_policy();
  persistence_.journal().order(JournalOp::ready);
  persistence_.journal().commit();
  resumable_ = true;
}

void Service::hand_over() {
  commit_poll();
  ip_.dead().save(engine_.take_orphans());
  if (listener_ != nullptr) listener_->keep_path();
}

void Service::tell_released() {
  persistence_.journal().order(JournalOp::released);
  persistence_.journal().commit();
}

void Service::on_supervisor() {
  while (std::optional<JournalItem> order = persistence_.journal().next_order()) {
    if (order->op == JournalOp::release) released_ = true;
    if (order->op == JournalOp::upgraded) operation_.end_upgrade({});
    if (order->op != JournalOp::refused) continue;
    const std::string why(reinterpret_cast<const char*>(order->value.data()), order->value.size());
    log::warn("no upgrade: {}", why);
    operation_.end_upgrade(fail(Errc::unavailable, why));
  }
  if (persistence_.journal().lost()) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, persistence_.journal().descriptor(), nullptr);
}

// ---- when it counts

// Everything that changed is written, and counts from here on; then what waits for that leaves. Clients that end by it are only noted:
// callers may go on with theirs.
void Service::commit_changes() {
  persistence_.reserve_ids(channels_.wires().signalling().next_id());
  if (!persistence_.has_uncommitted()) return;
  for (const uint32_t index : persistence_.take_flushed()) {
    if (ClientRecord* const client = clients_.at(index)) persistence_.erase_sent(*client);
  }
  write_changes();
  persistence_.journal().commit();
  for (const uint32_t index : persistence_.take_waiting()) {
    ClientRecord* const client = clients_.at(index);
    if (client == nullptr || client->dropped) continue;
    client->uncommitted = 0;
    clients_.flush(*client);
  }
}

// The end of a turn: of clients that end, too, everything is written.
void Service::commit_poll() {
  if (!persistence_.active()) return;
  do {
    finish_drops();
    commit_changes();
  } while (clients_.has_dropped());
}

void Service::on_journaled_packet(ClientRecord& client, Bytes packet) {
  if (!std::exchange(client.maybe_handled, false) || !Persistence::was_handled(client, packet)) {
    on_packet(client, packet);
    persistence_.record_handled(client, packet);
    commit_changes();
  }
  if (!client.dropped) client.socket.take();
}

// ---- records

void Service::write_changes() {
  for (const JournalKey& key : persistence_.take_changed()) {
    bool exists = true;
    switch (key.kind) {
      case JournalKind::client_state: exists = write_client(key.a); break;
      case JournalKind::endpoint: exists = endpoint_requests_.save(key); break;
      case JournalKind::channel:
      case JournalKind::request: exists = channels_.save(key); break;
      case JournalKind::ip_claim:
      case JournalKind::ip_lease:
      case JournalKind::ip_host: exists = ip_requests_.save(key); break;
      default: {
        const NiStateValue value{.next_request = channels_.requests().next_id(),
                                 .incarnation = channels_.wires().signalling().incarnation(),
                                 .ids = persistence_.reserved_ids(),
                                 .draining = operation_.draining() ? 1u : 0u,
                                 .spare = 0};
        persistence_.put(JournalKind::ni_state, 0, 0, value);
      }
    }
    if (exists) continue;
    persistence_.erase(key.kind, key.a, key.b);
    if (key.kind == JournalKind::client_state) {
      for (const JournalKind kind : {JournalKind::client, JournalKind::page}) persistence_.erase(kind, key.a);
    } else if (key.kind == JournalKind::endpoint && key.a < kEndpointsMax) {  // an emulated one has none of these
      for (const JournalKind kind : {JournalKind::segment, JournalKind::region, JournalKind::wake}) persistence_.erase(kind, key.a);
    }
  }
}

bool Service::write_client(uint32_t index) {
  const ClientRecord* const client = clients_.at(index);
  if (client == nullptr) return false;
  auto value = zeroed<ClientStateValue>();
  value.events = client->events_numbered;
  value.handled_cookie = client->handled_cookie;
  value.handled_op = client->handled_op;
  value.greeted = client->greeted ? 1 : 0;
  value.program.set(client->program);
  persistence_.put(JournalKind::client_state, index, 0, value);
  return true;
}

}  // namespace unet::service
