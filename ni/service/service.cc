// service.cc - the loop, connections from the socket to the end, and the journal between them.
#include "ni/service/service.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <utility>

#include "ni/service/log.h"
#include "unet/base/check.h"

namespace unet::service {
namespace {

constexpr uint64_t kListenerKey = ~uint64_t{0};
constexpr uint64_t kPortKeys = uint64_t{1} << 32;  // behind the numbers of clients
constexpr uint64_t kSupervisorKey = kListenerKey - 1;
constexpr int kEventsPerPoll = 256;        // epoll events
constexpr Nanoseconds kClientsFor = 50 * kMicrosecond;  // in a poll, and kRequestsPerPoll requests
constexpr int kEngineEventsPerPoll = 256;
constexpr int kAcceptsPerPoll = 16;

}  // namespace

Result<std::unique_ptr<Service>> Service::create(ServiceOptions options, std::vector<PortInfo> ports,
                                                 std::vector<EngineLine> lines, EngineSide& engine) {
  UNET_CHECK(!lines.empty() && lines.size() <= kEnginesMax);
  if (!control::valid_name(options.host)) return fail(Errc::invalid_argument, "host name: " + name_rule(options.host));
  if (options.incarnation == 0) options.incarnation = wall_now();
  std::unique_ptr<Service> service(new Service(std::move(options), std::move(ports), std::move(lines), engine));
  if (!service->epoll_.valid()) return fail_errno("epoll_create1", errno);
  if (Status status = service->channels_.wires().reserve_static(); !status) return tl::unexpected(status.error());
  if (Status status = service->ports_.watch(service->epoll_.get(), kPortKeys); !status) return tl::unexpected(status.error());
  return service;
}

Service::Service(ServiceOptions options, std::vector<PortInfo> ports, std::vector<EngineLine> lines, EngineSide& engine)
    : options_(std::move(options)), ports_(std::move(ports)), engine_(engine), commands_(std::move(lines), engine),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

Service::~Service() {
  if (takeover_.resumable() && listener_ != nullptr) listener_->keep_path();
}

Status Service::listen(const std::string& path, const std::string& group) {
  const uid_t owner = options_.own_user == geteuid() ? Listener::kUnchanged : options_.own_user;
  Result<Listener> listener = Listener::open(path, group, owner);
  if (!listener) return tl::unexpected(listener.error());
  return listen_on(std::move(*listener));
}

Status Service::listen_on(Listener listener) {
  listener_ = std::make_unique<Listener>(std::move(listener));
  return watch(listener_->descriptor(), kListenerKey);
}

Status Service::watch(int descriptor, uint64_t key) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = key}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return fail_errno("epoll_ctl", errno);
  return {};
}

bool Service::poll(Nanoseconds now) {
  now_ = now;
  commands_.take_pushed();
  channels_.wires().ask_others();    // after a takeover, before clients have more for the engine
  bool worked = process_clients();
  if (ports_.poll()) ip_requests_.tell_changed();
  worked = on_engine_events() || worked;
  worked = channels_.end_late_requests() || worked;
  clients_.poll();                   // connections that did not say hello, answers that found no descriptors, ends
  worked = channels_.run_signalling() || worked;  // what the machine wants after all of that
  finish_drops();                    // clients that ended during this turn
  ip_requests_.poll_dead();
  commit_poll();                     // all of that counts, and what it says leaves:
  channels_.wires().send_signals();  // to other hosts, too
  commands_.flush();                 // to the engine, and wake it
  clients_.schedule_scan();
  return commands_.take_pushed() || worked;
}

Nanoseconds Service::next_timeout() const noexcept {
  Nanoseconds next = std::min(channels_.next_timeout(), clients_.next_timeout());
  if (backlogged() && now_ + kMillisecond < next) next = now_ + kMillisecond;
  if (commands_.has_events()) next = 0;
  if (engines_.has_unserved() || captures_.has_unserved()) next = 0;
  if (ip_.dead().has_work() && !backlogged()) next = 0;
  return next;
}

// A request at a time, of the user that has cost the least. A user that comes meanwhile is found soon, and what is left is ready in the
// next turn, too.
bool Service::process_clients() {
  bool worked = false;
  const auto look = [&] {
    std::array<epoll_event, kEventsPerPoll> ready;
    const int count = epoll_wait(epoll_.get(), ready.data(), kEventsPerPoll, 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = ready[static_cast<size_t>(i)];
      worked = true;
      if (event.data.u64 == kListenerKey) {
        on_listener();
      } else if (event.data.u64 == kSupervisorKey) {
        on_supervisor();
      } else if (event.data.u64 >= kPortKeys) {
        ports_.on_ready(event.data.u64 - kPortKeys);
      } else if (const ClientRecord* client = clients_.at(static_cast<uint32_t>(event.data.u64)); client != nullptr) {
        fair_queue_.add(client->who.uid, {client->index, event.events});
      }
    }
  };
  look();
  Nanoseconds looked = monotonic_now();
  const Nanoseconds end = looked + kClientsFor;
  served_ = 0;
  while (const std::optional<FairQueue::Next> next = fair_queue_.next()) {
    {
      const ChargedTime charged(fair_queue_, next->user);
      ClientRecord* const client = clients_.at(next->ready.client);
      if (client != nullptr && on_client(*client, next->ready.events)) fair_queue_.add(next->user, next->ready);
    }
    const Nanoseconds now = monotonic_now();
    if (++served_ >= kRequestsPerPoll && now >= end) break;
    if (now - looked < kClientsFor) continue;
    look();
    looked = now;
  }
  fair_queue_.clear();
  return worked;
}

void Service::on_listener() {
  for (int i = 0; i < kAcceptsPerPoll; ++i) {
    std::optional<Descriptor> connection = listener_->accept();
    if (!connection) return;
    if (Status status = adopt_connection(std::move(*connection)); !status) {
      ++counters_.refused_connections;
      if (now_ < next_refusal_log_) continue;
      next_refusal_log_ = now_ + kSecond;
      log::warn("a connection was refused, {} so far: {}", counters_.refused_connections, status.error().text);
    }
  }
}

Status Service::adopt_connection(Descriptor socket) {
  Result<Credentials> who = clients_.credentials_of(socket.get());
  if (!who) return tl::unexpected(who.error());
  const ChargedTime charged(fair_queue_, who->uid);
  return clients_.add(std::move(socket), std::move(*who));
}

// One request. With a journal, it stays in the socket until what came of it has left: see Takeover.
bool Service::on_client(ClientRecord& client, uint32_t epoll_events) {
  if (client.dropped) return false;
  if ((epoll_events & EPOLLOUT) != 0) clients_.flush(client);
  if (client.dropped) return false;
  // A client that does not take its replies gets no further requests served. If it is gone, they have no reader any more.
  if (client.blocked() || client.deferred) {
    if ((epoll_events & (EPOLLHUP | EPOLLERR)) != 0) clients_.drop(client, "it is gone");
    return false;
  }
  alignas(8) std::array<std::byte, control::kPacketMax> room;
  size_t size = 0;
  const bool stays = persistence_.active() || !ip_.dead().empty();
  switch (client.socket.receive(room, size, stays)) {
    case PacketSocket::Received::packet:
      if (ip_requests_.must_wait(client, Bytes(room.data(), size))) {
        ip_requests_.defer(client);
      } else if (persistence_.active()) {
        on_journaled_packet(client, Bytes(room.data(), size));
      } else {
        if (stays) client.socket.take();
        on_packet(client, Bytes(room.data(), size));
      }
      return true;
    case PacketSocket::Received::nothing:
      break;
    case PacketSocket::Received::closed:
      clients_.drop(client, "it closed the connection");
      break;
    case PacketSocket::Received::malformed:
      clients_.protocol_error(client, "a packet longer than any of the protocol, or with descriptors");
      break;
  }
  return false;
}

bool Service::on_engine_events() {
  bool worked = false;
  for (uint32_t engine = 0; engine < engines_.count(); ++engine) {
    engine::EventMailbox& events = commands_.events(engine);
    for (int i = 0; i < kEngineEventsPerPoll; ++i) {
      const engine::Event* event = events.front();
      if (event == nullptr) break;
      worked = true;
      on_engine_event(engine, *event);
      events.pop();
    }
  }
  for (const uint32_t endpoint : engines_.take_unserved()) on_endpoint_detached(endpoint);
  captures_.end_unserved();
  return worked;
}

void Service::on_engine_event(uint32_t engine, const engine::Event& event) {
  if (const auto* detached = std::get_if<engine::EndpointDetached>(&event)) {
    on_endpoint_detached(detached->endpoint);
  } else if (const auto* client = std::get_if<engine::ClientDetached>(&event)) {
    on_client_detached(engine, client->client);
  } else if (const auto* stopped = std::get_if<engine::CaptureStopped>(&event)) {
    captures_.on_stopped(engine, stopped->capture);
  } else if (const auto* changed = std::get_if<engine::IpChanged>(&event)) {
    ip_requests_.on_changed(*changed);
  } else if (const auto* checkpoint = std::get_if<engine::HostCheckpointed>(&event)) {
    ip_.hosts().on_checkpoint(*checkpoint, ports_[checkpoint->port].address);
  } else if (const auto* signal = std::get_if<engine::SignalReceived>(&event)) {
    channels_.wires().handle_signal(*signal);
  }
}

void Service::stop(Nanoseconds now) {
  now_ = now;
  if (persistence_.active()) {
    commit_poll();
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, persistence_.journal().descriptor(), nullptr);
    persistence_.stop();
  }
  listener_.reset();
  channels_.wires().stop();
  clients_.drop_all("the network interface stops");
  channels_.run_signalling();
  channels_.wires().send_signals();
  finish_drops();
  commands_.flush();
}

// ---- the journal

Status Service::start_journal(std::unique_ptr<Journal> journal, int checkpoint, const std::string& path, const std::string& group,
                              Nanoseconds now) {
  now_ = now;
  takeover_.start(std::move(journal), path);
  if (Status status = watch(persistence_.journal().descriptor(), kSupervisorKey); !status) return status;
  Result<std::optional<Listener>> inherited = takeover_.restore();
  if (!inherited) return tl::unexpected(inherited.error());
  if (*inherited) {
    if (Status status = listen_on(std::move(**inherited)); !status) return status;
  }
  if (Status status = operation_.prepare_policy(); !status || takeover_.resumes()) return status;
  if (!path.empty()) {
    if (Status status = listen(path, group); !status) return status;
  }
  takeover_.save_socket(checkpoint, listener_.get());
  return {};
}

void Service::tell_ready() {
  if (!persistence_.active()) return;
  commit_poll();
  takeover_.tell_ready();
}

void Service::hand_over() {
  commit_poll();
  ip_.dead().save(engine_.take_orphans());
  if (listener_ != nullptr) listener_->keep_path();
}

void Service::on_supervisor() {
  takeover_.take_orders();
  if (persistence_.lost()) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, persistence_.journal().descriptor(), nullptr);
}

// The end of a turn: of clients that end, too, everything is written.
void Service::commit_poll() {
  if (!persistence_.active()) return;
  do {
    finish_drops();
    takeover_.commit();
  } while (clients_.has_dropped());
}

void Service::on_journaled_packet(ClientRecord& client, Bytes packet) {
  if (!std::exchange(client.maybe_handled, false) || !Persistence::was_handled(client, packet)) {
    on_packet(client, packet);
    persistence_.record_handled(client, packet);
    takeover_.commit();
  }
  if (!client.dropped) client.socket.take();
}

// ---- the end of a connection, after its endpoints

void Service::finish_drops() {
  while (ClientRecord* const next = clients_.next_dropped()) {
    ClientRecord& client = *next;
    const ChargedTime charged(fair_queue_, client.who.uid);
    captures_.stop_of_client(client.index);
    for (const uint32_t id : client.endpoints) {
      EndpointRecord& endpoint = *endpoints_.at(id);
      endpoint.answer_detach = false;
      if (!endpoint.detaching) endpoint_requests_.destroy(endpoint, control::CloseReason::peer_died);
    }
    const bool detached = client.greeted && client.endpoints.empty();
    if (!client.greeted || (detached && engines_.detach(client))) forget(client);
  }
}

void Service::on_endpoint_detached(uint32_t id) {
  EndpointRecord* endpoint = endpoints_.at(id);
  UNET_CHECK(endpoint != nullptr && endpoint->detaching);
  ClientRecord& client = *clients_.at(endpoint->client);
  const ChargedTime charged(fair_queue_, client.who.uid);
  endpoint_requests_.on_detached(*endpoint);
  const bool ends = client.dropped && client.endpoints.empty() && !client.told_engine && !clients_.has_dropped(client.index);
  if (ends && engines_.detach(client)) forget(client);
}

void Service::on_client_detached(uint32_t engine, uint32_t index) {
  ClientRecord& client = *clients_.at(index);
  if (engines_.on_detached(engine, client)) forget(client);
}

// No engine knows it any longer.
void Service::forget(ClientRecord& client) {
  operation_.forget_upgrade_of(client);
  clients_.remove(client);
}

}  // namespace unet::service
