// signalling_resume.cc - takeover: the state that the next NI needs, and how it continues.
//
// Other state is found out again. A connect asks for its host anew, and hosts repeat their answers. A close without an answer gets one when
// the other NI lists the channel in a question.
#include <algorithm>

#include "ni/service/signalling.h"
#include "ni/service/signalling_times.h"
#include "unet/base/check.h"

namespace unet::service {

// ---- state for the next NI

std::optional<Shared> Signalling::shared_channel(Tag local_tag) const {
  const auto at = channels_.find(static_cast<uint32_t>(local_tag));
  if (at == channels_.end()) return std::nullopt;
  const Peer& peer = peers_.at(at->second.peer);
  return Shared{.remote = peer.address,
                .incarnation = peer.incarnation,
                .lost_after = peer.lost_after,
                .number = at->second.number,
                .remote_tag = at->second.remote_tag};
}

std::optional<Shared> Signalling::shared_request(uint64_t id) const {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return std::nullopt;
  const auto& [address, incarnation, number] = at->second.key;
  const auto peer = peer_ids_.find(address);
  return Shared{.remote = address,
                .incarnation = incarnation,
                .lost_after = peer == peer_ids_.end() ? 0 : peers_.at(peer->second).lost_after,
                .number = number,
                .remote_tag = at->second.remote_tag};
}

Nanoseconds Signalling::deadline_of(uint64_t connect) const {
  const auto at = connects_.find(connect);
  return at == connects_.end() ? 0 : at->second.deadline;
}

// ---- the next NI

void Signalling::resume(uint64_t incarnation, uint64_t next_id) {
  UNET_CHECK(incarnation != 0 && channels_.empty() && connects_.empty() && requests_.empty());
  options_.incarnation = incarnation;
  next_id_ = std::max(next_id_, next_id);
}

// nullptr: the record is invalid. All channels with a remote NI are of one incarnation.
Signalling::Peer* Signalling::resume_peer(const Shared& shared, Nanoseconds now) {
  const bool possible = shared.remote.port < options_.port_mtus.size() && shared.incarnation != 0 &&
                        shared.incarnation != options_.incarnation && shared.remote_tag != kSignallingTag;
  if (!possible) return nullptr;
  Peer* peer = find_peer(shared.remote);
  if (peer == nullptr) peer = new_peer(shared.remote);
  if (peer == nullptr || (!peer->channels.empty() && peer->incarnation != shared.incarnation)) return nullptr;
  peer->incarnation = std::max(peer->incarnation, shared.incarnation);
  peer->lost_after = std::clamp(shared.lost_after, kLostAfterMin, kLostAfterMax);
  peer->last_heard = now;
  return peer;
}

bool Signalling::resume_channel(Tag local_tag, Stage stage, const Shared& shared, Nanoseconds now) {
  const RequestKey key{shared.remote, shared.incarnation, shared.number};
  const bool asked = stage != Stage::connected;
  if (channels_.count(static_cast<uint32_t>(local_tag)) != 0 || (asked && request_ids_.count(key) != 0)) return false;
  Peer* const peer = resume_peer(shared, now);
  if (peer == nullptr || peer->incarnation != shared.incarnation) return false;
  Channel channel{.peer = peer->id, .remote_tag = shared.remote_tag, .number = shared.number, .request = 0};
  if (asked) {
    // A repeated connect gets the answer that it would have got.
    const uint64_t id = new_request(key, shared.remote_tag);
    Request& request = requests_.at(id);
    request.local_tag = local_tag;
    request.answer = AcceptedBody{.tag = static_cast<uint32_t>(local_tag), .connect_tag = static_cast<uint32_t>(shared.remote_tag)};
    if (stage == Stage::confirmed) {
      answer(id, request, request.answer, now);
    } else {
      request.state = Request::State::accepted;
      request.interval = kFirstInterval;
      request.deadline = now + confirm_for(*peer);
      set_timer(request.timer, now + request.interval, TimerKind::request, id);
      channel.request = id;
    }
  }
  attach(*peer, local_tag, channel, now);
  return true;
}

// The restored connect has time for an answer, even if its deadline has passed meanwhile.
bool Signalling::resume_connect(uint64_t id, std::string_view host, std::string_view target, Tag local_tag, uint32_t pid,
                                Nanoseconds timeout, Nanoseconds now) {
  if (id == 0 || id >= next_id_ || connects_.count(id) != 0) return false;
  begin_connect(id, host, target, local_tag, pid, std::max(timeout, kLastInterval), now);
  return true;
}

uint64_t Signalling::resume_request(const Shared& shared, Nanoseconds now) {
  const RequestKey key{shared.remote, shared.incarnation, shared.number};
  if (request_ids_.count(key) != 0) return 0;
  const Peer* const peer = resume_peer(shared, now);
  if (peer == nullptr) return 0;
  const uint64_t id = new_request(key, shared.remote_tag);
  set_timer(requests_.at(id).timer, now + confirm_for(*peer), TimerKind::request, id);
  return id;
}

void Signalling::resume_host(std::string_view host, const WireAddress& address) {
  if (fixed_hosts_.count(host) != 0 || hosts_.size() >= kPeersMax) return;
  hosts_[std::string(host)] = address;
}

void Signalling::resumed(Nanoseconds now) {
  for (auto& [id, peer] : peers_) {
    if (peer.channels.empty()) continue;
    peer.unasked = true;
    set_timer(peer.timer, now + 1, TimerKind::peer, id);  // on_peer_timer() limits how many are asked at once
  }
}

}  // namespace unet::service
