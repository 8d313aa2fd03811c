// signalling_accept.cc - the accepting side: requests, their answers, and their duplicates.
#include <algorithm>

#include "ni/service/signalling.h"
#include "ni/service/signalling_times.h"

namespace unet::service {

using control::CloseReason;

namespace {

Rejected rejection(Errc code, std::string_view text) {
  Rejected body{};
  body.code = static_cast<uint32_t>(code);
  std::string clean;
  for (const char c : text) clean += c >= ' ' && c <= '~' ? c : '?';
  body.text.set(clean);
  return body;
}

}  // namespace

// The time in which the connecting NI must send its next message about a request.
Nanoseconds Signalling::confirm_for(const Peer& peer) noexcept { return std::min(peer.lost_after + kSecond, kConfirmFor); }

void Signalling::handle(Peer& peer, const SignalHeader& header, const ConnectBody& body, Nanoseconds now) {
  const RequestKey key{peer.address, header.from_incarnation, header.number};
  if (const auto known = request_ids_.find(key); known != request_ids_.end()) {
    Request& request = requests_.at(known->second);
    if (request.state == Request::State::offered) {
      // A repeated request shows that the connecting NI still waits.
      set_timer(request.timer, now + confirm_for(peer), TimerKind::request, known->second);
    }
    return send(peer.address, header.number, request.answer);
  }
  if (requests_.size() - answered_.size() >= kOfferedMax) {
    ++counters_.overflow;
    return send(peer.address, header.number, rejection(Errc::quota_exceeded, "host '" + options_.host + "' has too many requests waiting"));
  }
  const uint64_t id = new_request(key, Tag{uint32_t{body.tag}});
  Request& request = requests_.at(id);
  const uint32_t mtu = options_.port_mtus[peer.address.port];
  if (body.mtu != mtu) {
    // Frames longer than the receiving port's MTU would be lost without an error.
    const std::string text = "the MTU of host '" + options_.host + "' is " + std::to_string(mtu) + ", yours is " +
                             std::to_string(body.mtu) + ": configure both ports alike";
    return answer(id, request, rejection(Errc::unavailable, text), now);
  }
  if (const std::string_view claimed = body.host.view(); !may_be(claimed, peer.address)) {
    const std::string text = "host '" + options_.host + "' has another address for host '" + std::string(claimed) + "' among its peers";
    return answer(id, request, rejection(Errc::not_permitted, text), now);
  }
  events_.push_back(Requested{id, std::string(body.target.view()), std::string(body.host.view()), body.pid});
  set_timer(request.timer, now + confirm_for(peer), TimerKind::request, id);
  send(peer.address, header.number, request.answer);
}

// Whether a host at this address may have this name. A configured host has only its configured addresses.
bool Signalling::may_be(std::string_view host, const WireAddress& address) const noexcept {
  const auto named = [host](const StaticPeer& peer) { return peer.host == host; };
  const auto same = [&](const StaticPeer& peer) { return named(peer) && peer.address == address; };
  return std::none_of(options_.peers.begin(), options_.peers.end(), named) ||
         std::any_of(options_.peers.begin(), options_.peers.end(), same);
}

uint64_t Signalling::new_request(const RequestKey& key, Tag remote_tag) {
  const uint64_t id = next_id_++;
  request_ids_[key] = id;
  Request& request = requests_[id];
  request.key = key;
  request.remote_tag = remote_tag;
  return id;
}

// Sends the answer, and stores it for a while for duplicates of the request.
void Signalling::answer(uint64_t id, Request& request, const SignalBody& body, Nanoseconds now) {
  request.state = Request::State::answered;
  request.answer = body;
  set_timer(request.timer, now + kAnswerKept, TimerKind::request, id);
  const auto& [address, incarnation, number] = request.key;
  if (std::holds_alternative<Rejected>(body)) send(address, number, body);
  answered_.push_back(id);
  if (answered_.size() > kAnsweredMax) forget_request(requests_.find(answered_.front()));
}

void Signalling::forget_request(Requests::iterator at) {
  Request& request = at->second;
  set_timer(request.timer, 0, TimerKind::request, at->first);
  // Answered ones time out in the order they were answered, so this one is among the first.
  if (request.state == Request::State::answered) answered_.erase(std::find(answered_.begin(), answered_.end(), at->first));
  request_ids_.erase(request.key);
  requests_.erase(at);
}

Result<Signalling::Accepted> Signalling::accept(uint64_t id, Tag local_tag, Nanoseconds now) {
  const auto at = requests_.find(id);
  const auto withdrawn = [] { return fail(Errc::not_found, "the request was withdrawn: the other side gave up or is gone"); };
  if (at == requests_.end() || at->second.state != Request::State::offered) return withdrawn();
  Request& request = at->second;
  const auto& [address, incarnation, number] = request.key;
  Peer* peer = find_peer(address);
  if (peer == nullptr || peer->incarnation != incarnation) {
    forget_request(at);
    return withdrawn();
  }
  request.state = Request::State::accepted;
  request.local_tag = local_tag;
  request.answer = AcceptedBody{.tag = static_cast<uint32_t>(local_tag), .connect_tag = static_cast<uint32_t>(request.remote_tag)};
  request.interval = kFirstInterval;
  request.deadline = now + confirm_for(*peer);
  attach(*peer, local_tag, {.peer = peer->id, .remote_tag = request.remote_tag, .number = number, .request = id}, now);
  send(address, number, request.answer);
  set_timer(request.timer, now + request.interval, TimerKind::request, id);
  return Accepted{address, request.remote_tag};
}

void Signalling::reject(uint64_t id, Errc code, std::string_view text, Nanoseconds now) {
  const auto at = requests_.find(id);
  if (at == requests_.end() || at->second.state != Request::State::offered) return;
  answer(id, at->second, rejection(code, text), now);
}

void Signalling::on_request_timer(Requests::iterator at, Nanoseconds now) {
  Request& request = at->second;
  const auto& [address, incarnation, number] = request.key;
  switch (request.state) {
    case Request::State::offered:  // the connecting NI has stopped repeating its request
      events_.push_back(Withdrawn{at->first});
      return forget_request(at);
    case Request::State::accepted:
      if (now >= request.deadline) return lose_channel(request.local_tag, CloseReason::wire_lost, now);
      ++counters_.repeated;
      send(address, number, request.answer);
      request.interval = doubled(request.interval);
      return set_timer(request.timer, now + request.interval, TimerKind::request, at->first);
    case Request::State::answered:
      return forget_request(at);
  }
}

void Signalling::handle(Peer& peer, const SignalHeader& header, const Confirm&, Nanoseconds now) {
  const auto known = request_ids_.find(RequestKey{peer.address, header.from_incarnation, header.number});
  if (known == request_ids_.end()) {
    ++counters_.unexpected;
    return;
  }
  Request& request = requests_.at(known->second);
  if (request.state != Request::State::accepted) return;  // a duplicate
  channels_.at(static_cast<uint32_t>(request.local_tag)).request = 0;
  events_.push_back(Confirmed{request.local_tag});
  answer(known->second, request, request.answer, now);
}

}  // namespace unet::service
