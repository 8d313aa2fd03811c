// peers.cc - see peers.h.
#include "fabric/peers.h"

#include <algorithm>

#include "fabric/provider.h"

namespace unet::fabric {
namespace {

constexpr Nanoseconds kPatience = kSecond;  // how long the other side's channel is waited for

constexpr bool is_between(Peer::State state) noexcept { return state != Peer::State::closed && state != Peer::State::open; }

// What a hello or welcome says: the version is its first word.
struct Greeting {
  uint32_t version = 0;
  Answer answer = Answer::other_version;
  Identity identity{};
};

Greeting greeting_of(const am::Token& token) noexcept {
  Greeting greeting;
  const auto words = token.arguments();
  if (words.empty() || token.payload().size() != sizeof(Identity)) return greeting;
  greeting.version = words[0];
  if (words.size() > 1) greeting.answer = static_cast<Answer>(words[1]);
  greeting.identity = read_as<Identity>(token.payload().data());
  return greeting;
}

int errno_of(const Error& error) noexcept {
  switch (error.code) {
    case Errc::not_found: return FI_EHOSTUNREACH;
    case Errc::timed_out: return FI_ETIMEDOUT;
    case Errc::not_permitted: return FI_EACCES;
    case Errc::quota_exceeded: return FI_ENOSPC;
    case Errc::out_of_memory: return FI_ENOMEM;
    default: return FI_ECONNREFUSED;
  }
}

}  // namespace

Peers::Peers(am::Endpoint& endpoint, AddressVector& vector, const Address& own) : endpoint_(endpoint), vector_(vector), own_(own),
      own_full_(own.name + '@' + own.host) {
  endpoint_.set_handler(Handlers::kHello, on_hello, this);
  endpoint_.set_handler(Handlers::kWelcome, on_welcome, this);
}

// ---- peers by address

Peer& Peers::named(const Address& address) {
  const auto [at, added] = all_.try_emplace(address.target(own_.host));
  Peer& peer = at->second;
  if (!added) return peer;
  peer.target = at->first;
  peer.full = address.name + '@' + address.host;
  peer.is_self = address == own_;
  if (peer.is_self) set_state(peer, Peer::State::open);
  return peer;
}

Peer* Peers::find(fi_addr_t number) {
  const Address* const address = vector_.get(number);
  if (address == nullptr) return nullptr;
  Peer& peer = named(*address);
  if (by_number_.size() <= number) by_number_.resize(number + 1);
  by_number_[number] = &peer;
  if (peer.number == FI_ADDR_NOTAVAIL) peer.number = number;
  return &peer;
}

void Peers::forget(fi_addr_t number, const std::string& target) noexcept {
  if (number < by_number_.size()) by_number_[number] = nullptr;
  const auto at = all_.find(target);
  if (at != all_.end() && at->second.number == number) at->second.number = FI_ADDR_NOTAVAIL;
}

// ---- channels

void Peers::set_state(Peer& peer, Peer::State state) noexcept {
  unsettled_ = unsettled_ - (is_between(peer.state) ? 1 : 0) + (is_between(state) ? 1 : 0);
  peer.state = state;
  peer.update();
}

am::Index Peers::take_index(Peer& peer) {
  if (free_.empty()) {
    free_.push_back(static_cast<am::Index>(by_index_.size()));
    by_index_.push_back(nullptr);
  }
  peer.index = free_.back();
  free_.pop_back();
  by_index_[peer.index] = &peer;
  return peer.index;
}

void Peers::drop(Peer& peer) {
  if (peer.index == am::kNoIndex) return;
  [[maybe_unused]] const Status unmapped = endpoint_.unmap(peer.index);
  by_index_[peer.index] = nullptr;
  free_.push_back(peer.index);
  peer.index = am::kNoIndex;
}

void Peers::fail(Peer& peer, int error) {
  drop(peer);
  peer.error = error;
  set_state(peer, Peer::State::closed);
}

int Peers::open(Peer& peer) {
  if (peer.state == Peer::State::open) return 0;
  if (peer.state != Peer::State::closed) return -FI_EAGAIN;
  if (peer.error != 0) return -std::exchange(peer.error, 0);
  const Status started = endpoint_.start_map(take_index(peer), peer.target);
  if (!started) {
    drop(peer);
    return failed(FI_LOG_EP_CTRL, started.error());
  }
  set_state(peer, Peer::State::opening);
  return -FI_EAGAIN;
}

// Notes whether the channel leads over a wire. A wire loses frames also while the program does not poll, so a thread repeats them.
void Peers::note_path(Peer& peer) {
  peer.over_wire = !endpoint_.is_local(peer.index);
  if (peer.over_wire) vector_.domain().progress_thread().start();
}

void Peers::greet(Peer& peer) {
  note_path(peer);
  const Identity identity = identity_.identity(peer.over_wire ? -1 : peer.memory.offer());
  if (endpoint_.request_now(peer.index, Handlers::kHello, as_bytes(&identity, sizeof identity), std::array{kProtocolVersion}) ==
      am::Outcome::sent) {
    set_state(peer, Peer::State::greeting);
  }
}

// What a peer is told that has opened a channel to us.
Answer Peers::answer(Peer* peer, uint32_t version) const noexcept {
  if (version != kProtocolVersion) return Answer::other_version;
  const bool ours = peer->state == Peer::State::opening || peer->state == Peer::State::greeting;
  const bool is_open = peer->state == Peer::State::open && (peer->is_self || peer->index == am::kNoIndex || endpoint_.is_open(peer->index));
  return is_open || (ours && own_full_ < peer->full) ? Answer::use_other : Answer::accepted;
}

void Peers::on_hello(am::Token& token, void* context) {
  Peers& peers = *static_cast<Peers*>(context);
  const Greeting greeting = greeting_of(token);
  const auto address = parse_target(token.source_name(), peers.own_.host);
  if (!address) return;  // an endpoint of libfabric has a name
  Peer& peer = peers.named(*address);
  const Answer answer = peers.answer(&peer, greeting.version);
  if (answer == Answer::accepted) {
    peers.by_source_[token.source()] = &peer;
    peers.accepted_.push_back({&peer, token.source(), greeting.identity, token.source_process()});
  }
  const Identity identity = peers.identity_.identity(-1);
  token.reply_medium(Handlers::kWelcome, as_bytes(&identity, sizeof identity),
                     std::array{kProtocolVersion, static_cast<uint32_t>(answer)});
}

void Peers::on_welcome(am::Token& token, void* context) {
  Peers& peers = *static_cast<Peers*>(context);
  const am::Index index = token.index();
  Peer* const peer = index < peers.by_index_.size() ? peers.by_index_[index] : nullptr;
  if (peer == nullptr || peer->state != Peer::State::greeting) return;
  const Greeting greeting = greeting_of(token);
  switch (greeting.answer) {
    case Answer::accepted:
      if (!peer->over_wire) peer->memory.find(greeting.identity, token.source_process());
      peers.set_state(*peer, Peer::State::open);
      return;
    case Answer::use_other:
      peer->give_up = monotonic_now() + kPatience;
      return peers.set_state(*peer, Peer::State::waiting);
    case Answer::other_version: break;
  }
  warn(FI_LOG_EP_CTRL, peer->target + " has another version of this provider");
  peer->error = FI_ENOPROTOOPT;
  peer->give_up = 0;
  peers.set_state(*peer, Peer::State::waiting);
}

void Peers::note_returned(am::Index index) noexcept {
  Peer* const peer = index < by_index_.size() ? by_index_[index] : nullptr;
  if (peer == nullptr || peer->state != Peer::State::greeting) return;
  peer->error = FI_ECONNREFUSED;
  peer->give_up = 0;
  set_state(*peer, Peer::State::waiting);
}

// ---- progress

// Advances a peer that is between closed and open.
void Peers::settle(Peer& peer) {
  switch (peer.state) {
    case Peer::State::opening:
      if (endpoint_.is_mapped(peer.index)) return endpoint_.is_open(peer.index) ? greet(peer) : fail(peer, FI_ECONNREFUSED);
      if (const Error* const why = endpoint_.map_failure(peer.index)) {
        inform(FI_LOG_EP_CTRL, peer.target + ": " + why->text);
        fail(peer, errno_of(*why));
      }
      return;
    case Peer::State::greeting:
      if (!endpoint_.is_open(peer.index)) fail(peer, FI_ECONNREFUSED);
      return;
    case Peer::State::waiting:
      if (peer.index != am::kNoIndex) drop(peer);
      if (peer.error != 0 || monotonic_now() > peer.give_up) set_state(peer, Peer::State::closed);
      return;
    case Peer::State::closed:
    case Peer::State::open: return;
  }
}

void Peers::settle(const Accepted& accepted) {
  Peer& peer = *accepted.peer;
  drop(peer);  // runs handlers: the source must be known until it has an index
  const Status mapped = endpoint_.map_back(take_index(peer), accepted.source);
  by_source_.erase(accepted.source);
  if (!mapped) return fail(peer, 0);
  peer.error = 0;
  note_path(peer);
  if (!peer.over_wire) peer.memory.find(accepted.identity, accepted.process);
  set_state(peer, Peer::State::open);
}

std::vector<Peer*> Peers::progress() {
  std::vector<Peer*> lost;
  const auto lose = [&](Peer& peer) {
    peer.died = endpoint_.close_reason(peer.index) != control::CloseReason::closed_by_peer;
    fail(peer, 0);
    peer.memory.forget();
    peer.pace = peer.told = Pace::early;
    lost.push_back(&peer);
  };
  // A handler may add to both lists.
  for (size_t i = 0; i < accepted_.size(); ++i) {
    const Accepted accepted = accepted_[i];
    if (accepted.peer->state == Peer::State::open && accepted.peer->index != am::kNoIndex) lose(*accepted.peer);
    settle(accepted);
  }
  accepted_.clear();
  for (size_t index = 0; index < by_index_.size(); ++index) {
    Peer* const peer = by_index_[index];
    if (peer == nullptr) continue;
    if (is_between(peer->state)) {
      settle(*peer);
    } else if (!endpoint_.is_open(peer->index)) {
      lose(*peer);
    }
  }
  if (unsettled_ == 0) return lost;
  for (auto& [target, peer] : all_) {
    if (peer.state == Peer::State::waiting) settle(peer);
  }
  return lost;
}

}  // namespace unet::fabric
