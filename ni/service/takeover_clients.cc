// takeover_clients.cc - clients over a takeover: their sockets, their pages, packets that may not have left.
#include <string>
#include <utility>

#include "ni/service/clients.h"
#include "ni/service/journal_records.h"
#include "ni/service/takeover_records.h"

namespace unet::service {

bool Clients::save(const JournalKey& key) {
  const uint32_t index = key.a;
  const ClientRecord* const client = at(index);
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

Status Clients::restore(JournalItem& item) {
  switch (item.key.kind) {
    case JournalKind::client: return restore_client(item);
    case JournalKind::client_state: return restore_state(item);
    case JournalKind::page: return restore_page(item);
    default: return restore_output(item);
  }
}

Status Clients::restore_client(JournalItem& item) {
  if (const auto value = record_value<ClientValue>(item, 1); !value) return tl::unexpected(value.error());
  const uint32_t index = item.key.a;
  if (!free_.take(index)) return wrong_record(item, "no such client can be");
  Result<Credentials> who = credentials_of(item.descriptors[0].get());
  if (!who) return tl::unexpected(who.error());
  charges_.resume(who->uid, {.connections = 1});
  return watch(index, std::move(item.descriptors[0]), std::move(*who));
}

Status Clients::restore_state(const JournalItem& item) {
  const auto value = record_value<ClientStateValue>(item, 0);
  if (!value) return tl::unexpected(value.error());
  ClientRecord* const client = at(item.key.a);
  if (client == nullptr) return wrong_record(item, "of no client");
  if (value->events >= kJournalNumbersMax) return wrong_record(item, "more events than there can have been");
  client->program = std::string(value->program.view());
  client->events_numbered = value->events;
  client->handled_cookie = value->handled_cookie;
  client->handled_op = value->handled_op;
  client->maybe_handled = value->handled_op != 0;
  return {};
}

Status Clients::restore_page(JournalItem& item) {
  if (const auto value = record_value<PageValue>(item, 2); !value) return tl::unexpected(value.error());
  ClientRecord* const client = at(item.key.a);
  if (client == nullptr || client->greeted) return wrong_record(item, "of no client");
  if (!make_wake(item.descriptors[1].get())) return wrong_record(item, "something that wakes nobody");
  Result<SharedMemory> page = map_again(std::move(item.descriptors[0]), sizeof(ClientPage));
  if (!page) return tl::unexpected(page.error());
  client->wake = std::move(item.descriptors[1]);
  client->page = std::move(*page);
  client->page.descriptor.reset();
  client->page.watch.reset();  // it is not charged
  client->greeted = true;
  auto* const memory = reinterpret_cast<ClientPage*>(client->page.mapping.data());
  client->events = memory->control_events.value.load(std::memory_order_relaxed);  // if the client wrote it, it fools itself
  return {};
}

Status Clients::restore_output(JournalItem& item) {
  ClientRecord* const client = at(item.key.a);
  if (client == nullptr || item.value.size() < sizeof(control::Header) || item.value.size() > control::kPacketMax) {
    return wrong_record(item, "a packet to nobody, or none");
  }
  if (client->outputs == 0) client->outputs = client->outputs_sent = item.key.b;
  if (item.key.b != client->outputs || item.key.b >= kJournalNumbersMax) return wrong_record(item, "a packet out of order");
  ++client->outputs;
  if (client->socket.keep(item.value, std::move(item.descriptors), ClientRecord::kWaitingMax * 1024) != PacketSocket::Outcome::sent) {
    return wrong_record(item, "more packets than may wait");
  }
  persistence_.wait_for_commit(client->index);
  return {};
}

}  // namespace unet::service
