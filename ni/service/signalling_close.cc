// signalling_close.cc - closes a channel from either side, in any state of the other.
#include <algorithm>

#include "ni/service/signalling.h"
#include "ni/service/signalling_times.h"

namespace unet::service {

using control::CloseReason;

namespace {

Rejected gone() {
  Rejected body{};
  body.code = static_cast<uint32_t>(Errc::disconnected);
  body.text.set("the channel was closed before it was open");
  return body;
}

}  // namespace

void Signalling::close(Tag local_tag, CloseReason reason, Nanoseconds now) {
  const auto at = channels_.find(static_cast<uint32_t>(local_tag));
  if (at == channels_.end()) return;
  const Channel channel = at->second;
  const WireAddress remote = peers_.at(channel.peer).address;
  detach(local_tag);
  if (channel.request != 0) answer(channel.request, requests_.at(channel.request), gone(), now);
  start_closing({.remote = remote,
                 .number = channel.number,
                 .local_tag = local_tag,
                 .remote_tag = channel.remote_tag,
                 .reason = reason}, now);
}

// An accepted or open channel ends, but not by close().
void Signalling::lose_channel(Tag tag, CloseReason reason, Nanoseconds now) {
  const Channel channel = channels_.at(static_cast<uint32_t>(tag));
  detach(tag);
  if (channel.request != 0) answer(channel.request, requests_.at(channel.request), gone(), now);
  events_.push_back(ChannelLost{tag, reason});
}

void Signalling::start_closing(const Closing& closing, Nanoseconds now) {
  const uint64_t key = static_cast<uint32_t>(closing.local_tag);
  if (closings_.size() >= kClosingsMax && closings_.count(key) == 0) {
    ++counters_.overflow;
    return send_close(closing);
  }
  Closing& entry = closings_[key];
  set_timer(entry.timer, 0, TimerKind::closing, key);
  const Peer* peer = find_peer(closing.remote);
  entry = closing;
  entry.interval = kFirstInterval;
  entry.deadline = now + std::clamp(peer == nullptr ? 0 : peer->lost_after, kCloseFor, kConfirmFor);
  repeat_close(entry, now);
}

void Signalling::send_close(const Closing& closing) {
  send(closing.remote, closing.number,
       Close{.to_tag = static_cast<uint32_t>(closing.remote_tag),
             .from_tag = static_cast<uint32_t>(closing.local_tag),
             .reason = static_cast<uint32_t>(closing.reason)});
}

void Signalling::repeat_close(Closing& closing, Nanoseconds now) {
  send_close(closing);
  set_timer(closing.timer, now + closing.interval, TimerKind::closing, static_cast<uint32_t>(closing.local_tag));
  closing.interval = doubled(closing.interval);
}

void Signalling::on_closing_timer(uint64_t tag, Nanoseconds now) {
  Closing& closing = closings_.at(tag);
  if (now >= closing.deadline) {
    closings_.erase(tag);  // a living remote NI learns it from its next question
    return;
  }
  ++counters_.repeated;
  repeat_close(closing, now);
}

// The connecting side has cancelled; `from_tag` is its tag.
void Signalling::withdraw(Requests::iterator at, Tag from_tag, CloseReason reason, Nanoseconds now) {
  Request& request = at->second;
  switch (request.state) {
    case Request::State::offered:
      events_.push_back(Withdrawn{at->first});
      return answer(at->first, request, gone(), now);
    case Request::State::accepted:
      return lose_channel(request.local_tag, reason, now);
    case Request::State::answered: {
      const auto channel = channels_.find(static_cast<uint32_t>(request.local_tag));
      const auto peer = peer_ids_.find(std::get<0>(request.key));
      if (std::holds_alternative<AcceptedBody>(request.answer) && channel != channels_.end() && peer != peer_ids_.end() &&
          channel->second.peer == peer->second && channel->second.remote_tag == from_tag) {
        lose_channel(request.local_tag, reason, now);
      }
      return;
    }
  }
}

void Signalling::handle(Peer& peer, const SignalHeader& header, const Close& body, Nanoseconds now) {
  const auto reason = static_cast<CloseReason>(static_cast<uint32_t>(body.reason));
  const Tag from_tag{uint32_t{body.from_tag}};
  if (body.to_tag != 0) {
    const auto at = channels_.find(body.to_tag);
    if (at != channels_.end() && at->second.peer == peer.id && at->second.remote_tag == from_tag) {
      lose_channel(Tag{uint32_t{body.to_tag}}, reason, now);
    }
  } else {
    const auto known = request_ids_.find(RequestKey{peer.address, header.from_incarnation, header.number});
    if (known != request_ids_.end()) withdraw(requests_.find(known->second), from_tag, reason, now);
  }
  send(peer.address, header.number, Closed{.to_tag = body.from_tag, .from_tag = body.to_tag});
}

void Signalling::handle(Peer& peer, const SignalHeader&, const Closed& body, Nanoseconds) {
  const auto at = closings_.find(body.to_tag);
  if (at == closings_.end() || at->second.remote != peer.address) return;  // a duplicate
  set_timer(at->second.timer, 0, TimerKind::closing, at->first);
  closings_.erase(at);
}

}  // namespace unet::service
