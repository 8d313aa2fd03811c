// service.cc - the loop, connections, and the way to the engine.
#include "ni/service/service.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ni/service/journal_records.h"
#include "ni/service/log.h"
#include "unet/base/check.h"

namespace unet::service {
namespace {

constexpr uint64_t kListenerKey = ~uint64_t{0};
constexpr uint64_t kPortKeys = uint64_t{1} << 32;  // behind the numbers of clients
constexpr uint64_t kSupervisorKey = kListenerKey - 1;
constexpr int kEventsPerPoll = 256;        // epoll events
constexpr Nanoseconds kClientsFor = 50 * kMicrosecond;  // and so many requests: then signals, timers and the engine have their turn
constexpr uint32_t kRequestsPerPoll = 16;
constexpr int kEngineEventsPerPoll = 256;
constexpr int kAcceptsPerPoll = 16;
constexpr int kSendBuffer = 64 * 1024;     // bytes the kernel keeps for a client that does not read

}  // namespace

Result<std::unique_ptr<Service>> Service::create(ServiceOptions options, std::vector<PortInfo> ports,
                                                 std::vector<EngineLine> lines, EngineSide& engine) {
  UNET_CHECK(!lines.empty() && lines.size() <= kEnginesMax);
  if (!control::valid_name(options.host)) return fail(Errc::invalid_argument, "host name: " + name_rule(options.host));
  if (options.incarnation == 0) options.incarnation = wall_now();
  std::unique_ptr<Service> service(new Service(std::move(options), std::move(ports), std::move(lines), engine));
  if (!service->epoll_.valid()) return fail_errno("epoll_create1", errno);
  if (Status status = service->reserve_static_channels(); !status) return tl::unexpected(status.error());
  if (Status status = service->ports_.watch(service->epoll_.get(), kPortKeys); !status) return tl::unexpected(status.error());
  return service;
}

Service::Service(ServiceOptions options, std::vector<PortInfo> ports, std::vector<EngineLine> lines, EngineSide& engine)
    : options_(std::move(options)), ports_(std::move(ports)), engine_(engine), commands_(std::move(lines), engine),
      epoll_(epoll_create1(EPOLL_CLOEXEC)), tags_(options_.seed) {
  SignallingOptions signalling{.host = options_.host,
                               .port_mtus = {},
                               .incarnation = options_.incarnation,
                               .lost_after = options_.lost_after,
                               .peers = options_.peers};
  for (const PortInfo& port : ports_.all()) signalling.port_mtus.push_back(port.mtu);
  signalling_ = std::make_unique<Signalling>(std::move(signalling));
}

Service::~Service() {
  if (resumable_ && listener_ != nullptr) listener_->keep_path();
}

Status Service::listen(const std::string& path, const std::string& group) {
  const uid_t owner = options_.own_user == geteuid() ? Listener::kUnchanged : options_.own_user;
  Result<Listener> listener = Listener::open(path, group, owner);
  if (!listener) return tl::unexpected(listener.error());
  return listen_on(std::move(*listener));
}

Status Service::listen_on(Listener listener) {
  listener_ = std::make_unique<Listener>(std::move(listener));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListenerKey}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_->descriptor(), &event) != 0) return fail_errno("epoll_ctl", errno);
  return {};
}

Status Service::watch_supervisor() {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kSupervisorKey}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, persistence_.journal().descriptor(), &event) != 0) return fail_errno("epoll_ctl", errno);
  return {};
}

bool Service::poll(Nanoseconds now) {
  now_ = now;
  worked_ = false;
  commands_.take_pushed();
  ask_others();           // after a takeover, before clients have more for the engine
  process_clients();
  if (ports_.poll()) tell_ip_changed();
  on_engine_events();
  on_deadlines();         // connects to endpoints that did not answer
  end_silent();           // connections that did not say hello
  flush_starved();        // answers that found no descriptors
  scan_ended();
  run_signalling();       // what the machine wants after all of that
  finish_drops();         // clients that ended during this turn
  if (const auto owner = ip_.dead().poll()) resume_deferred(*owner);
  commit_poll();               // all of that counts, and what it says leaves:
  send_signals();         // to other hosts, too
  commands_.flush();      // to the engine, and wake it
  if (has_ended()) next_scan_ = std::min(next_scan_, now_ + kScanEvery);
  return commands_.take_pushed() || worked_;
}

Nanoseconds Service::next_timeout() const noexcept {
  Nanoseconds next = signalling_->next_timeout();
  next = std::min({next, requests_.next_deadline(), next_hello_, next_flush_, next_scan_});
  if ((backlogged() || others_unasked_) && now_ + kMillisecond < next) next = now_ + kMillisecond;
  if (commands_.has_events()) next = 0;
  if (!unserved_ends_.empty() || captures_.has_unserved()) next = 0;
  if (ip_.dead().has_work() && !backlogged()) next = 0;
  return next;
}

// A request at a time, of the user that has cost the least. A user that comes meanwhile is found soon, and what is left is ready in the
// next turn, too.
void Service::process_clients() {
  const auto look = [this] {
    std::array<epoll_event, kEventsPerPoll> ready;
    const int count = epoll_wait(epoll_.get(), ready.data(), kEventsPerPoll, 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = ready[static_cast<size_t>(i)];
      worked_ = true;
      if (event.data.u64 == kListenerKey) {
        on_listener();
      } else if (event.data.u64 == kSupervisorKey) {
        on_supervisor();
      } else if (event.data.u64 >= kPortKeys) {
        ports_.on_ready(event.data.u64 - kPortKeys);
      } else if (const ClientRecord* client = client_at(static_cast<uint32_t>(event.data.u64)); client != nullptr) {
        fair_queue_.add(client->who.uid, {client->index, event.events});
      }
    }
  };
  look();
  Nanoseconds looked = monotonic_now();
  const Nanoseconds end = looked + kClientsFor;
  uint32_t served = 0;
  while (const std::optional<FairQueue::Next> next = fair_queue_.next()) {
    {
      const ChargedTime charged(fair_queue_, next->user);
      ClientRecord* const client = client_at(next->ready.client);
      if (client != nullptr && on_client(*client, next->ready.events)) fair_queue_.add(next->user, next->ready);
    }
    const Nanoseconds now = monotonic_now();
    if (++served >= kRequestsPerPoll && now >= end) break;
    if (now - looked < kClientsFor) continue;
    look();
    looked = now;
  }
  fair_queue_.clear();
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
  Result<Credentials> who = peer_credentials(socket.get(), unknown_user_);
  if (!who) return tl::unexpected(who.error());
  const ChargedTime charged(fair_queue_, who->uid);
  if (free_clients_.empty()) {
    return fail(Errc::quota_exceeded, std::to_string(kClientsMax) + " connections are open, which is the maximum");
  }
  if (Status status = persistence_.takes_client(); !status) return status;
  Rights rights = options_.policy.rights(*who);
  if (Status status = charges_.take(who->uid, rights, {.connections = 1}); !status) return status;
  // The kernel's own queue for a client that does not read stays small; ours is bounded, too.
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  const uint32_t index = free_clients_.front();
  epoll_event event{.events = EPOLLIN, .data = {.u64 = index}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    charges_.give_back(who->uid, {.connections = 1});
    return fail_errno("epoll_ctl", errno);
  }
  free_clients_.take();
  persistence_.put(JournalKind::client, index, 0, ClientValue{}, {socket.get()});
  persistence_.changed(JournalKind::client_state, index);
  next_hello_ = 0;  // to be known in the next turn
  ++counters_.connections;
  clients_.emplace(index, std::make_unique<ClientRecord>(index, std::move(socket), std::move(*who), std::move(rights)));
  return {};
}

// One request. With a journal, it stays in the socket until what came of it has left: see service_journal.cc.
bool Service::on_client(ClientRecord& client, uint32_t epoll_events) {
  if (client.dropped) return false;
  if ((epoll_events & EPOLLOUT) != 0) flush(client);
  if (client.dropped) return false;
  // A client that does not take its replies gets no further requests served. If it is gone, they have no reader any more.
  if (client.blocked() || client.deferred) {
    if ((epoll_events & (EPOLLHUP | EPOLLERR)) != 0) drop(client, "it is gone");
    return false;
  }
  alignas(8) std::array<std::byte, control::kPacketMax> room;
  size_t size = 0;
  const bool stays = persistence_.active() || !ip_.dead().empty();
  switch (client.socket.receive(room, size, stays)) {
    case PacketSocket::Received::packet:
      if (must_wait(client, Bytes(room.data(), size))) {
        defer(client);
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
      drop(client, "it closed the connection");
      break;
    case PacketSocket::Received::malformed:
      protocol_error(client, "a packet longer than any of the protocol, or with descriptors");
      break;
  }
  return false;
}

void Service::flush(ClientRecord& client) {
  const PacketSocket::Outcome outcome = client.socket.flush(client.uncommitted);
  persistence_.flushed(client);
  if (outcome == PacketSocket::Outcome::broken) return drop(client, "the connection broke");
  client.starved = outcome == PacketSocket::Outcome::no_descriptors;
  if (client.starved) next_flush_ = std::min(next_flush_, now_ + kFlushAgain);
  announce(client);
  watch_for_room(client);
}

// Answers of these clients wait for descriptors that the kernel does not take; it does not tell when it would.
void Service::flush_starved() {
  if (now_ < next_flush_) return;
  next_flush_ = ~Nanoseconds{0};
  for (const auto& [index, client] : clients_) {
    if (client->starved && !client->dropped) flush(*client);
  }
}

bool Service::send(ClientRecord& client, Bytes packet, std::initializer_list<int> descriptors) {
  if (client.dropped) return true;
  const bool refused = descriptors.size() != 0 && !reads_descriptors(client);
  PacketSocket::Outcome outcome = PacketSocket::Outcome::no_descriptors;
  if (!refused && persistence_.active()) outcome = persistence_.send(client, packet, {descriptors.begin(), descriptors.size()});
  else if (!refused) outcome = client.socket.send(packet, descriptors, client.waiting_max());
  switch (outcome) {
    case PacketSocket::Outcome::sent:
      if (persistence_.active()) return true;
      announce(client);
      watch_for_room(client);
      return true;
    case PacketSocket::Outcome::no_descriptors: {
      control::Header header;
      std::memcpy(&header, packet.data(), sizeof header);
      fail_request(client, header,
                   {Errc::out_of_memory, refused ? "your connections have left too many answers with descriptors unread; take them first"
                                                 : "the network interface has no descriptors left; try again later"});
      return false;
    }
    case PacketSocket::Outcome::broken:
      ++counters_.slow_clients;
      drop(client, "it does not read what it is sent, or is gone");
      return true;
  }
  return true;
}

// The kernel bounds the descriptors that the NI's user has under way by its limit of open files, unless it is privileged. No user's
// unread answers get more than a quarter of that: they are not to keep all the others from set-up.
bool Service::reads_descriptors(const ClientRecord& client) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  size_t unread = 0;
  for (const auto& [index, each] : clients_) {
    if (each->who.uid == client.who.uid) unread += each->socket.unread_descriptors();
  }
  for (auto& [user, socket] : unread_ends_) {
    if (user == client.who.uid) unread += socket.unread_descriptors();
  }
  constexpr rlim_t kAlways = 16;  // an NI with as few as that has other cares
  return unread < std::max(limit.rlim_cur / 4, kAlways);
}

// Something is on its socket that was not there before, or its end: a client that polls looks only when this count has changed.
void Service::announce(ClientRecord& client) {
  if (!client.greeted) return;
  auto* page = reinterpret_cast<ClientPage*>(client.page.mapping.data());
  page->control_events.value.store(++client.events, std::memory_order_release);
}

void Service::watch_for_room(ClientRecord& client) {
  const bool want = client.blocked();
  if (!want) client.channels_peak = client.channels;
  const uint32_t events = client.starved ? 0u : want ? uint32_t{EPOLLOUT} : client.deferred ? 0u : uint32_t{EPOLLIN};
  if (events == client.watched || client.dropped) return;
  client.watched = events;
  epoll_event event{.events = events, .data = {.u64 = client.index}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.socket.descriptor(), &event);
}

void Service::on_engine_events() {
  for (uint32_t engine = 0; engine < engines(); ++engine) {
    engine::EventMailbox& events = commands_.events(engine);
    for (int i = 0; i < kEngineEventsPerPoll; ++i) {
      const engine::Event* event = events.front();
      if (event == nullptr) break;
      worked_ = true;
      on_engine_event(engine, *event);
      events.pop();
    }
  }
  for (const uint32_t endpoint : std::exchange(unserved_ends_, {})) on_endpoint_detached(endpoint);
  captures_.end_unserved();
}

void Service::on_engine_event(uint32_t engine, const engine::Event& event) {
  if (const auto* detached = std::get_if<engine::EndpointDetached>(&event)) {
    on_endpoint_detached(detached->endpoint);
  } else if (const auto* client = std::get_if<engine::ClientDetached>(&event)) {
    on_client_detached(engine, client->client);
  } else if (const auto* stopped = std::get_if<engine::CaptureStopped>(&event)) {
    captures_.on_stopped(engine, stopped->capture);
  } else if (const auto* changed = std::get_if<engine::IpChanged>(&event)) {
    on_ip_changed(*changed);
  } else if (const auto* checkpoint = std::get_if<engine::HostCheckpointed>(&event)) {
    ip_.hosts().on_checkpoint(*checkpoint, ports_[checkpoint->port].address);
  } else if (const auto* signal = std::get_if<engine::SignalReceived>(&event)) {
    UNET_CHECK(signal->length <= engine::kSignalMax);
    signalling_->handle_signal({signal->port, signal->from}, Bytes(signal->bytes.data(), signal->length), now_);
  }
}

void Service::on_deadlines() {
  while (requests_.next_deadline() <= now_) {
    worked_ = true;
    const RequestRecord request = requests_.at(requests_.first_due());
    const EndpointRecord* target = endpoint_at(request.target);
    remove_request(request.id);
    fail_connect(request, {Errc::timed_out, "the endpoint " + (target != nullptr ? in_quotes(describe(*target)) : "") +
                                                " did not accept the channel in time"});
  }
}

void Service::end_silent() {
  if (now_ < next_hello_) return;
  next_hello_ = ~Nanoseconds{0};
  for (const auto& [index, client] : clients_) {
    if (client->greeted || client->dropped) continue;
    if (client->hello_by == 0) client->hello_by = now_ + kHelloFor;
    if (now_ >= client->hello_by) {
      drop(*client, "it did not say hello");
    } else {
      next_hello_ = std::min(next_hello_, client->hello_by);
    }
  }
}

void Service::push_signal(const engine::SendSignal& signal) {
  const PortInfo& port = ports_[signal.port];
  if (!commands_.push_signal(port.engine, engines_of(port), signal)) ++counters_.dropped_signals;
}

void Service::stop(Nanoseconds now) {
  now_ = now;
  if (persistence_.active()) {
    commit_poll();
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, persistence_.journal().descriptor(), nullptr);
    persistence_.stop();
  }
  listener_.reset();
  others_unasked_ = false;
  signalling_->goodbye();
  std::vector<uint32_t> all;
  for (const auto& [index, client] : clients_) all.push_back(index);
  for (const uint32_t index : all) {
    ClientRecord* client = client_at(index);
    if (client != nullptr && !client->dropped) drop(*client, "the network interface stops");
  }
  run_signalling();
  send_signals();
  finish_drops();
  commands_.flush();
}

ClientRecord* Service::client_at(uint32_t index) {
  const auto at = clients_.find(index);
  return at == clients_.end() ? nullptr : at->second.get();
}

EndpointRecord* Service::endpoint_at(uint32_t id) {
  const auto at = endpoints_.find(id);
  return at == endpoints_.end() ? nullptr : at->second.get();
}

}  // namespace unet::service
