// clients.cc - connections from the first packet to the end, and packets that wait for room or descriptors.
#include "ni/service/clients.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "ni/service/journal_records.h"
#include "ni/service/log.h"
#include "unet/base/check.h"

namespace unet::service {
namespace {

constexpr int kSendBuffer = 64 * 1024;     // bytes the kernel keeps for a client that does not read

}  // namespace

Status Clients::add(Descriptor socket, Credentials who) {
  if (free_.empty()) return fail(Errc::quota_exceeded, std::to_string(kClientsMax) + " connections are open, which is the maximum");
  if (Status status = persistence_.takes_client(); !status) return status;
  const uid_t user = who.uid;
  if (Status status = charges_.take(user, policy_.rights(who), {.connections = 1}); !status) return status;
  // The kernel's own queue for a client that does not read stays small; ours is bounded, too.
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  const uint32_t index = free_.front();
  const int descriptor = socket.get();
  if (Status status = watch(index, std::move(socket), std::move(who)); !status) {
    charges_.give_back(user, {.connections = 1});
    return status;
  }
  free_.take();
  persistence_.put(JournalKind::client, index, 0, ClientValue{}, {descriptor});
  persistence_.changed(JournalKind::client_state, index);
  ++counters_.connections;
  return {};
}

Status Clients::watch(uint32_t index, Descriptor socket, Credentials who) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = index}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, socket.get(), &event) != 0) return fail_errno("epoll_ctl", errno);
  next_hello_ = 0;  // to be known in the next turn
  Rights rights = policy_.rights(who);
  clients_.emplace(index, std::make_unique<ClientRecord>(index, std::move(socket), std::move(who), std::move(rights)));
  return {};
}

ClientRecord* Clients::at(uint32_t index) const {
  const auto at = clients_.find(index);
  return at == clients_.end() ? nullptr : at->second.get();
}

void Clients::poll() {
  end_silent();
  flush_starved();
  scan_ended();
}

void Clients::schedule_scan() {
  if (!unread_ends_.empty() || charges_.holds_memory()) next_scan_ = std::min(next_scan_, now_ + kScanEvery);
}

Nanoseconds Clients::next_timeout() const noexcept { return std::min({next_hello_, next_flush_, next_scan_}); }

void Clients::end_silent() {
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

void Clients::flush(ClientRecord& client) {
  const PacketSocket::Outcome outcome = client.socket.flush(client.uncommitted);
  persistence_.flushed(client);
  if (outcome == PacketSocket::Outcome::broken) return drop(client, "the connection broke");
  client.starved = outcome == PacketSocket::Outcome::no_descriptors;
  if (client.starved) next_flush_ = std::min(next_flush_, now_ + kFlushAgain);
  announce(client);
  watch_for_room(client);
}

// Answers of these clients wait for descriptors that the kernel does not take; it does not tell when it would.
void Clients::flush_starved() {
  if (now_ < next_flush_) return;
  next_flush_ = ~Nanoseconds{0};
  for (const auto& [index, client] : clients_) {
    if (client->starved && !client->dropped) flush(*client);
  }
}

bool Clients::send(ClientRecord& client, Bytes packet, std::initializer_list<int> descriptors) {
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

void Clients::ok(ClientRecord& client, const control::Header& header, std::initializer_list<int> descriptors) {
  send_packet(client, make_reply(header), descriptors);
}

void Clients::fail_request(ClientRecord& client, const control::Header& header, const Error& error) {
  ++counters_.failed_requests;
  control::Reply reply = make_reply(header);
  reply.code = static_cast<int32_t>(error.code);
  reply.error.set(error.text);
  send_packet(client, reply);
}

// The kernel bounds the descriptors that the NI's user has under way by its limit of open files, unless it is privileged. No user's
// unread answers get more than a quarter of that: they are not to keep all the others from set-up.
bool Clients::reads_descriptors(const ClientRecord& client) {
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
void Clients::announce(ClientRecord& client) {
  if (!client.greeted) return;
  auto* page = reinterpret_cast<ClientPage*>(client.page.mapping.data());
  page->control_events.value.store(++client.events, std::memory_order_release);
}

void Clients::watch_for_room(ClientRecord& client) {
  const bool want = client.blocked();
  if (!want) client.channels_peak = client.channels;
  const uint32_t events = client.starved ? 0u : want ? uint32_t{EPOLLOUT} : client.deferred ? 0u : uint32_t{EPOLLIN};
  if (events == client.watched || client.dropped) return;
  client.watched = events;
  epoll_event event{.events = events, .data = {.u64 = client.index}};
  epoll_ctl(epoll_, EPOLL_CTL_MOD, client.socket.descriptor(), &event);
}

void Clients::protocol_error(ClientRecord& client, std::string_view what) {
  if (client.dropped) return;
  ++counters_.protocol_errors;
  const control::Header header{.op = control::Op::hello, .endpoint = 0, .cookie = 0};
  fail_request(client, header, {Errc::protocol, "the control protocol was broken: " + std::string(what) + "; the connection is closed"});
  drop(client, what);
}

// Ends the connection now; what it had is given back by finish_drops() at the end of the turn, so that no handler loses
// the ground under its feet.
void Clients::drop(ClientRecord& client, std::string_view why) {
  if (client.dropped) return;
  log::debug("client {} (pid {}, user {}) ends: {}", client.index, client.who.pid, client.who.uid, why);
  client.dropped = true;
  if (persistence_.active()) static_cast<void>(client.socket.flush());  // what it did wrong
  epoll_ctl(epoll_, EPOLL_CTL_DEL, client.socket.descriptor(), nullptr);
  end_socket(client);
  announce(client);
  dropped_.insert(client.index);
}

// Descriptors that it has not read stay charged to us for as long as it keeps its end open: they go on counting as its user's.
void Clients::end_socket(ClientRecord& client) {
  const bool all_read = client.socket.unread_descriptors() == 0;
  if (!all_read || persistence_.active()) client.socket.end();  // the supervisor has it, too
  if (all_read) return client.socket.close();
  unread_ends_.emplace_back(client.who.uid, std::exchange(client.socket, PacketSocket()));
}

void Clients::scan_ended() {
  if (now_ < next_scan_) return;
  std::erase_if(unread_ends_, [](auto& end) { return end.second.unread_descriptors() == 0; });
  charges_.scan_all();
  next_scan_ = ~Nanoseconds{0};
}

void Clients::drop_all(std::string_view why) {
  for (const auto& [index, client] : clients_) drop(*client, why);
}

ClientRecord* Clients::next_dropped() {
  if (dropped_.empty()) return nullptr;
  return at(dropped_.extract(dropped_.begin()).value());
}

void Clients::remove(ClientRecord& client) {
  UNET_CHECK(client.dropped && client.endpoints.empty());
  const uint32_t index = client.index;
  charges_.give_back(client.who.uid, {.connections = 1});
  if (persistence_.active()) persistence_.erase_outputs(client, client.outputs);
  persistence_.changed(JournalKind::client_state, index);
  clients_.erase(index);
  free_.give_back(index);
}

}  // namespace unet::service
