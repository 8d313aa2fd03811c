// signalling.cc - the table of other NIs and their keepalive; dispatch of their messages; timers.
#include "ni/service/signalling.h"

#include <algorithm>
#include <utility>

#include "ni/service/signalling_times.h"
#include "unet/base/check.h"

namespace unet::service {

using control::CloseReason;

Signalling::Signalling(SignallingOptions options) : options_(std::move(options)) {
  UNET_CHECK(options_.incarnation != 0);
  for (const StaticPeer& peer : options_.peers) fixed_hosts_[peer.host] = peer.address;
}

std::optional<SignallingEvent> Signalling::poll_event() {
  if (events_.empty()) return std::nullopt;
  SignallingEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

std::optional<SignalTransmit> Signalling::poll_transmit() {
  if (transmits_.empty()) return std::nullopt;
  const SignalTransmit transmit = transmits_.front();
  transmits_.pop_front();
  return transmit;
}

std::vector<StaticPeer> Signalling::known_hosts() const {
  std::vector<StaticPeer> list;
  for (const auto& [host, address] : fixed_hosts_) list.push_back({host, address});
  for (const auto& [host, address] : hosts_) list.push_back({host, address});
  return list;
}

std::optional<StaticPeer> Signalling::known_host_after(std::string_view host, bool learned) const {
  const auto& hosts = learned ? hosts_ : fixed_hosts_;
  const auto next = hosts.upper_bound(host);
  if (next == hosts.end()) return std::nullopt;
  return StaticPeer{next->first, next->second};
}

// ---- output and timers

void Signalling::send(const WireAddress& to, uint64_t number, const SignalBody& body) {
  if (transmits_.size() >= kTransmitsMax) {
    ++counters_.overflow;  // signalling repeats messages that matter
    return;
  }
  const Peer* peer = find_peer(to);
  const SignalHeader header{.version = 0,
                            .type = 0,
                            .length = 0,
                            .lost_after_ms = static_cast<uint32_t>(options_.lost_after / kMillisecond),
                            .from_incarnation = options_.incarnation,
                            .to_incarnation = peer == nullptr ? 0 : peer->incarnation,
                            .number = number};
  SignalTransmit& transmit = transmits_.emplace_back();
  transmit.to = to;
  transmit.length = emit_signal(transmit.bytes, header, body);
  ++counters_.sent;
}

void Signalling::set_timer(Nanoseconds& slot, Nanoseconds at, TimerKind kind, uint64_t id) {
  if (slot != 0) timers_.erase({slot, kind, id});
  slot = at;
  if (at != 0) timers_.insert({at, kind, id});
}

void Signalling::handle_timeout(Nanoseconds now) {
  while (!timers_.empty() && std::get<0>(*timers_.begin()) <= now) {
    const auto [at, kind, id] = *timers_.begin();
    timers_.erase(timers_.begin());
    switch (kind) {
      case TimerKind::connect: {
        const auto connect = connects_.find(id);
        connect->second.timer = 0;
        on_connect_timer(connect, now);
        break;
      }
      case TimerKind::request: {
        const auto request = requests_.find(id);
        request->second.timer = 0;
        on_request_timer(request, now);
        break;
      }
      case TimerKind::closing:
        closings_.at(id).timer = 0;
        on_closing_timer(id, now);
        break;
      case TimerKind::peer:
        peers_.at(id).timer = 0;
        on_peer_timer(peers_.at(id), now);
        break;
    }
  }
}

// ---- other NIs

Signalling::Peer* Signalling::find_peer(const WireAddress& address) {
  const auto at = peer_ids_.find(address);
  return at == peer_ids_.end() ? nullptr : &peers_.at(at->second);
}

Signalling::Peer* Signalling::new_peer(const WireAddress& address) {
  if (peers_.size() >= kPeersMax) {
    // Replaces the NI without channels that was silent for longest.
    const Peer* oldest = nullptr;
    for (const auto& [id, peer] : peers_) {
      if (peer.channels.empty() && (oldest == nullptr || peer.last_heard < oldest->last_heard)) oldest = &peer;
    }
    if (oldest == nullptr) {
      ++counters_.overflow;
      return nullptr;
    }
    peer_ids_.erase(oldest->address);
    peers_.erase(oldest->id);
  }
  const uint64_t id = next_id_++;
  peer_ids_[address] = id;
  Peer& peer = peers_[id];
  peer.id = id;
  peer.address = address;
  return &peer;
}

// The NI that sent the message; nullptr: the message is of an earlier incarnation, and must be ignored.
Signalling::Peer* Signalling::update_peer(const WireAddress& from, const SignalHeader& header, Nanoseconds now) {
  Peer* peer = find_peer(from);
  if (peer == nullptr) peer = new_peer(from);
  if (peer == nullptr) return nullptr;
  // Its clock may have gone back before a restart, so any incarnation is accepted while we share no channel with it.
  if (header.from_incarnation < peer->incarnation && !peer->channels.empty()) {
    ++counters_.stale;
    return nullptr;
  }
  if (header.from_incarnation != peer->incarnation) {
    if (!peer->channels.empty()) {
      ++counters_.peers_restarted;
      lose_channels(*peer, CloseReason::wire_lost, now);
    }
    peer->incarnation = header.from_incarnation;
  }
  peer->lost_after = std::clamp(header.lost_after_ms * kMillisecond, kLostAfterMin, kLostAfterMax);
  peer->last_heard = now;
  peer->unanswered = 0;
  return peer;
}

void Signalling::attach(Peer& peer, Tag tag, const Channel& channel, Nanoseconds now) {
  channels_[static_cast<uint32_t>(tag)] = channel;
  peer.channels.insert(tag);
  if (peer.timer == 0) {
    peer.unanswered = 0;
    set_timer(peer.timer, now + peer.lost_after / kQuestions, TimerKind::peer, peer.id);
  }
}

void Signalling::detach(Tag tag) {
  const auto at = channels_.find(static_cast<uint32_t>(tag));
  Peer& peer = peers_.at(at->second.peer);
  peer.channels.erase(tag);
  if (peer.channels.empty()) set_timer(peer.timer, 0, TimerKind::peer, peer.id);
  channels_.erase(at);
}

void Signalling::lose_channels(Peer& peer, CloseReason reason, Nanoseconds now) {
  const std::set<Tag> all = peer.channels;
  for (const Tag tag : all) lose_channel(tag, reason, now);
}

void Signalling::on_peer_timer(Peer& peer, Nanoseconds now) {
  const Nanoseconds interval = peer.lost_after / kQuestions;
  if (peer.unanswered >= kQuestions) {
    ++counters_.peers_lost;
    for (auto host = hosts_.begin(); host != hosts_.end();) {
      host = host->second == peer.address ? hosts_.erase(host) : std::next(host);
    }
    return lose_channels(peer, CloseReason::wire_lost, now);
  }
  // Counts questions, not only time: an NI that was not polled for long must not consider others dead.
  if (!peer.unasked && now - peer.last_heard < interval) {
    return set_timer(peer.timer, peer.last_heard + interval, TimerKind::peer, peer.id);
  }
  // Asks at most kAskedAtOnce peers in a millisecond, however late the call is. The others have turns in the next milliseconds.
  if (now < asked_since_ || now - asked_since_ >= kMillisecond) {
    asked_since_ = now;
    asked_ = deferred_ = 0;
  }
  if (asked_ >= kAskedAtOnce) {
    const Nanoseconds turn = 1 + deferred_++ / kAskedAtOnce;
    return set_timer(peer.timer, asked_since_ + turn * kMillisecond, TimerKind::peer, peer.id);
  }
  ++asked_;
  peer.unasked = false;
  ++peer.unanswered;
  ask(peer);
  set_timer(peer.timer, now + interval, TimerKind::peer, peer.id);
}

// Sends a keepalive question that lists the next channels in turn.
void Signalling::ask(Peer& peer) {
  Keepalive body{};
  uint32_t count = 0;
  auto at = peer.channels.upper_bound(peer.listed);
  for (size_t i = 0; i < peer.channels.size() && count < Keepalive::kChannels; ++i) {
    if (at == peer.channels.end()) at = peer.channels.begin();
    const Channel& channel = channels_.at(static_cast<uint32_t>(*at));
    if (channel.request == 0) {  // a confirmed channel, which both sides must know
      body.channels[count++] = {static_cast<uint32_t>(*at), static_cast<uint32_t>(channel.remote_tag)};
    }
    peer.listed = *at++;
  }
  body.count = count;
  send(peer.address, 0, body);
}

void Signalling::goodbye() {
  for (const auto& [id, peer] : peers_) {
    if (!peer.channels.empty()) send(peer.address, 0, Goodbye{});
  }
  timers_.clear();
  channels_.clear();
  connects_.clear();
  requests_.clear();
  request_ids_.clear();
  answered_.clear();
  closings_.clear();
  peers_.clear();
  peer_ids_.clear();
  events_.clear();
}

// ---- input

void Signalling::handle_signal(const WireAddress& from, Bytes message, Nanoseconds now) {
  const std::optional<Signal> signal = parse_signal(message);
  if (!signal || from.port >= options_.port_mtus.size()) {
    ++counters_.malformed;
    return;
  }
  ++counters_.received;
  const SignalHeader& header = signal->header;
  if (header.from_incarnation == options_.incarnation) {
    ++counters_.unexpected;  // our own broadcast returned
    return;
  }
  Peer* peer = update_peer(from, header, now);
  if (peer == nullptr) return;
  if (header.to_incarnation != 0 && header.to_incarnation != options_.incarnation) {
    ++counters_.stale;  // addressed to an earlier incarnation; the header of the answer shows ours
    if (!std::holds_alternative<Alive>(signal->body)) send(from, 0, Alive{});
    return;
  }
  std::visit([&](const auto& body) { handle(*peer, header, body, now); }, signal->body);
}

void Signalling::handle(Peer& peer, const SignalHeader& header, const Resolve& body, Nanoseconds) {
  if (body.host.view() != options_.host) return;
  Resolved answer;
  answer.host.set(options_.host);
  send(peer.address, header.number, answer);
}

void Signalling::handle(Peer& peer, const SignalHeader&, const Keepalive& body, Nanoseconds) {
  send(peer.address, 0, Alive{});
  for (uint32_t i = 0; i < body.count; ++i) {
    const KnownChannel& known = body.channels[i];
    if (known.from_tag == 0 || known.to_tag == 0) continue;
    const auto at = channels_.find(known.to_tag);
    const bool same = at != channels_.end() && at->second.peer == peer.id &&
                      at->second.remote_tag == Tag{static_cast<uint32_t>(known.from_tag)};
    if (same) continue;
    ++counters_.unexpected;
    if (transmits_.size() >= kUnaskedMax) {
      ++counters_.overflow;  // the question will be repeated
      return;
    }
    send(peer.address, 0,
         Close{.to_tag = known.from_tag, .from_tag = known.to_tag, .reason = static_cast<uint32_t>(CloseReason::closed_by_peer)});
  }
}

void Signalling::handle(Peer&, const SignalHeader&, const Alive&, Nanoseconds) {}  // update_peer() has recorded the sign of life

void Signalling::handle(Peer& peer, const SignalHeader&, const Goodbye&, Nanoseconds now) {
  lose_channels(peer, CloseReason::ni_stopped, now);
}

}  // namespace unet::service
