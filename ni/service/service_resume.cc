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

namespace {

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

}  // namespace

Status Service::resume(std::vector<JournalItem> items) {
  channels_.wires().shuffle_tags();
  for (JournalItem& item : items) {
    if (Status status = resume_item(item); !status) return status;
  }
  if (!listening_at_.empty() && listener_ == nullptr) return fail(Errc::protocol, "the journal has no control socket");
  finish_resume();
  log::info("took over {} clients with {} endpoints", clients_.all().size(), endpoints_.real());
  return {};
}

Status Service::resume_item(JournalItem& item) {
  if (!is_plain(item.key)) return wrong_record(item, "an unknown kind, or a key that none of it has");
  switch (item.key.kind) {
    case JournalKind::ni: return resume_socket(item);
    case JournalKind::ni_state: return resume_state(item);
    case JournalKind::policy: return operation_.resume_policy(item);
    case JournalKind::client: return resume_client(item);
    case JournalKind::client_state: return resume_client_state(item);
    case JournalKind::page: return resume_page(item);
    case JournalKind::segment:
    case JournalKind::region:
    case JournalKind::wake:
    case JournalKind::endpoint: return endpoint_requests_.restore(item);
    case JournalKind::channel:
    case JournalKind::request: return channels_.restore(item);
    case JournalKind::output: return resume_output(item);
    case JournalKind::upgrade: return resume_upgrade(item);
    case JournalKind::capture: return captures_.end_inherited(item) ? Status{} : Status(wrong_record(item, "no memory of a capture"));
    case JournalKind::held_memory:
      clients_.scan_soon();
      return charges_.resume_held(item) ? Status{} : Status(wrong_record(item, "no memory that could be held"));
    case JournalKind::ip_claim:
    case JournalKind::socket_table:
    case JournalKind::orphans:
    case JournalKind::ip_lease:
    case JournalKind::ip_host: return ip_requests_.restore(item);
  }
  return wrong_record(item, "an unknown kind");
}

Status Service::resume_socket(JournalItem& item) {
  const auto value = record_value<NiValue>(item, listening_at_.empty() ? 1 : 2);
  if (!value) return tl::unexpected(value.error());
  if (listening_at_.empty()) return {};
  Result<Listener> listener = Listener::inherit(listening_at_, std::move(item.descriptors[1]));
  if (!listener) return tl::unexpected(listener.error());
  return listen_on(std::move(*listener));
}

// Other hosts are to see the NI that they know, so its life goes on.
Status Service::resume_state(const JournalItem& item) {
  const auto value = record_value<NiStateValue>(item, 0);
  if (!value) return tl::unexpected(value.error());
  if (value->incarnation == 0) return wrong_record(item, "no life of a network interface");
  if (value->next_request >= kJournalNumbersMax || value->ids >= kJournalNumbersMax) {
    return wrong_record(item, "numbers that no network interface has got to");
  }
  channels_.requests().resume_ids(value->next_request);
  operation_.resume_draining(value->draining != 0);
  channels_.wires().signalling().resume(value->incarnation, value->ids);
  return {};
}

Status Service::resume_client(JournalItem& item) {
  if (const auto value = record_value<ClientValue>(item, 1); !value) return tl::unexpected(value.error());
  const uint32_t index = item.key.a;
  if (!clients_.take_number(index)) return wrong_record(item, "no such client can be");
  Result<Credentials> who = clients_.credentials_of(item.descriptors[0].get());
  if (!who) return tl::unexpected(who.error());
  charges_.resume(who->uid, {.connections = 1});
  return clients_.watch(index, std::move(item.descriptors[0]), std::move(*who));
}

Status Service::resume_client_state(const JournalItem& item) {
  const auto value = record_value<ClientStateValue>(item, 0);
  if (!value) return tl::unexpected(value.error());
  ClientRecord* const client = clients_.at(item.key.a);
  if (client == nullptr) return wrong_record(item, "of no client");
  if (value->events >= kJournalNumbersMax) return wrong_record(item, "more events than there can have been");
  client->program = std::string(value->program.view());
  client->events_numbered = value->events;
  client->handled_cookie = value->handled_cookie;
  client->handled_op = value->handled_op;
  client->maybe_handled = value->handled_op != 0;
  return {};
}

Status Service::resume_page(JournalItem& item) {
  if (const auto value = record_value<PageValue>(item, 2); !value) return tl::unexpected(value.error());
  ClientRecord* const client = clients_.at(item.key.a);
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
  return engines_.attach(*client);
}

Status Service::resume_output(JournalItem& item) {
  ClientRecord* const client = clients_.at(item.key.a);
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

Status Service::resume_upgrade(const JournalItem& item) {
  if (const auto value = record_value<UpgradeValue>(item, 0); !value) return tl::unexpected(value.error());
  return operation_.resume_upgrade(item.key.a, item.key.b) ? Status{} : Status(wrong_record(item, "two upgrades at once"));
}

void Service::finish_resume() {
  std::vector<uint32_t> ids;
  for (const auto& [id, endpoint] : endpoints_.all()) ids.push_back(id);
  for (const uint32_t id : ids) channels_.end_halves(*endpoints_.at(id));
  ip_requests_.begin_resume();
  for (const uint32_t id : ids) {
    EndpointRecord& endpoint = *endpoints_.at(id);
    channels_.resume(endpoint);
    ip_requests_.resume(endpoint);
    if (endpoint.detaching) commands_.push(0, engine::DetachEndpoint{.endpoint = id});  // and its end is told as ever
    else ip_.send_flows(endpoint);
  }
  commands_.push(0, engine::Resumed{});
  channels_.wires().begin_asking();
  commands_.begin_countdown();
}

}  // namespace unet::service
