// endpoint_map.cc - the translation table of an Active Message endpoint: channels opened at once or at the first request.
#include <algorithm>

#include "am/endpoint.h"

namespace unet::am {
namespace {

ReturnStatus to_return(Errc code) noexcept {
  const bool nobody = code == Errc::not_found || code == Errc::refused || code == Errc::not_permitted;
  return nobody ? ReturnStatus::bad_endpoint : ReturnStatus::unreachable;
}

}  // namespace

Status Endpoint::bind(std::string_view name) {
  const Status bound = endpoint_.bind(name);
  if (bound) name_ = name;
  return bound;
}

// ---- mapping

Status Endpoint::map(Index index, std::string_view target, Tag tag, const ConnectOptions& options) {
  constexpr Nanoseconds kPause = 20 * kMillisecond;  // between two questions for a name that is not bound yet
  const Nanoseconds deadline = monotonic_now() + options.wait;
  for (;;) {
    if (const Status started = start_map(index, target, tag, options); !started) return started;
    const Status there = finish_opening(index);
    if (!there) openings_.cancel(index);
    const Nanoseconds now = monotonic_now();
    if (there || there.error().code != Errc::not_found || now >= deadline) return there;
    for (Waiting waiting(*this); monotonic_now() < now + kPause;) waiting.serve();
  }
}

Status Endpoint::check_free(Index index) const {
  if (index >= kTranslationsMax) {
    return fail(Errc::invalid_argument, "a translation has an index from 0 to " + std::to_string(kTranslationsMax - 1));
  }
  if (handlers_.running()) return fail(Errc::invalid_argument, "a handler maps nothing");
  if (in_use(index)) return fail(Errc::already_exists, "translation " + std::to_string(index) + " is in use: unmap it first");
  return {};
}

Status Endpoint::start_map(Index index, std::string_view target, Tag tag, const ConnectOptions& options) {
  if (const Status free = check_free(index); !free) return free;
  reserved_.to = nullptr;
  Opening opening{.index = index, .tag = tag, .target = std::string(target), .options = options, .pending = {}, .failed = {}};
  // A reply must always find room, whatever the options ask for.
  opening.options.local.depth = std::max(options.local.depth, kLocalOptions.depth);
  opening.options.local.data_bytes = std::max(options.local.data_bytes, kLocalOptions.data_bytes);
  if (translations_.size() <= index) translations_.resize(index + 1);
  return openings_.add(std::move(opening));
}

Status Endpoint::map_back(Index index, uint64_t source, Tag tag) {
  if (const Status free = check_free(index); !free) return free;
  if (!both_ways_) return fail(Errc::invalid_argument, "map_back() needs Options::both_ways");
  const auto& all = peers_.all();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each->id == source; });
  if (found == all.end() || !(*found)->open || (*found)->translations != 0) {
    return fail(Errc::not_found, "no connected peer without a translation is number " + std::to_string(source));
  }
  reserved_.to = nullptr;
  if (translations_.size() <= index) translations_.resize(index + 1);
  Peer& peer = **found;
  peer.translations = 1;
  peer.index = index;
  translations_[index] = {&peer, tag};
  return {};
}

const Error* Endpoint::map_failure(Index index) noexcept {
  const Opening* const opening = openings_.find(index);
  return opening != nullptr && opening->failed ? &*opening->failed : nullptr;
}

Status Endpoint::unmap(Index index) {
  if (!in_use(index)) return fail(Errc::not_found, "translation " + std::to_string(index) + " is not in use");
  if (handlers_.running()) return fail(Errc::invalid_argument, "a handler unmaps nothing");
  reserved_.to = nullptr;
  if (openings_.has(index)) {
    openings_.cancel(index);
    return {};
  }
  Peer& peer = *translations_[index].peer;
  handle_arrived();
  dispatcher_.complete_gets();
  peers_.end(peer);
  remove_peer(peer);
  translations_[index] = {};
  return {};
}

bool Endpoint::is_local(Index index) const noexcept { return is_mapped(index) && translations_[index].peer->wire == nullptr; }

MutableBytes Endpoint::peer_segment(Index index) {
  if (!is_mapped(index)) return {};
  Peer& peer = *translations_[index].peer;
  peer.local.ask_again();
  return peer.has_region() ? endpoint_.peer_region(peer.channel) : MutableBytes();
}

bool Endpoint::in_use(Index index) const noexcept { return is_mapped(index) || openings_.has(index); }

// ---- channels that are not open yet

// Waits for the channel. The peer may be connecting to us at the same time, so we handle its request meanwhile; look_around() may then see
// the outcome before we do.
Status Endpoint::finish_opening(Index index) {
  for (Waiting waiting(*this);;) {
    Opening* const opening = openings_.find(index);
    if (opening == nullptr) return {};
    if (opening->failed) return tl::unexpected(*std::exchange(opening->failed, std::nullopt));
    if (!opening->pending) {
      if (const Status begun = openings_.begin(*opening); !begun) return begun;
    }
    look_at_openings();
    if (const Opening* const still = openings_.find(index); still != nullptr && still->pending) waiting.serve();
  }
}

// Finishes openings that have their channels now. Failed ones wait for the next request.
void Endpoint::look_at_openings() {
  while (const auto opened = openings_.take_open()) {
    const Opening& opening = opened->opening;
    Peer& peer = peers_.add(opened->channel, opening.target.find('@') == std::string::npos);
    peer.translations = 1;
    peer.may_request = both_ways_;
    peer.index = opening.index;
    peer.name = opening.target;
    translations_[opening.index] = {&peer, opening.tag};
    introduce(opening.index);
  }
}

// Opens the channel of a request that may wait; returns the reason if there is none. Tries again what failed before.
std::optional<ReturnStatus> Endpoint::open_late(Index index) {
  if (!in_use(index)) return ReturnStatus::bad_entry;
  if (Opening* const opening = openings_.find(index)) opening->failed.reset();
  const Status there = finish_opening(index);
  if (!there) return to_return(there.error().code);
  return std::nullopt;
}

// Opens the channel of a request that must not wait. Reports a failure once; the next request tries again.
std::optional<ReturnStatus> Endpoint::open_meanwhile(Index index) {
  if (!in_use(index)) return ReturnStatus::bad_entry;
  look_at_openings();
  Opening* const opening = openings_.find(index);
  if (opening == nullptr) return std::nullopt;
  if (const auto failed = std::exchange(opening->failed, std::nullopt)) return to_return(failed->code);
  if (opening->pending) return std::nullopt;
  const Status begun = openings_.begin(*opening);
  if (!begun) return to_return(begun.error().code);
  return std::nullopt;
}

// ---- names

// Tells our name to a peer on another host; a peer on this NI learns it from the NI. This is the channel's first message, so there is a
// credit. If it is returned, the program does not learn of it.
void Endpoint::introduce(Index index) {
  if (name_.empty() || !is_mapped(index) || translations_[index].peer->wire == nullptr) return;
  Translation& to = translations_[index];
  Peer& peer = *to.peer;
  PacketFields fields({.kind = Kind::medium_request, .flags = PacketFlags::kName});
  peer.add_tag(to.tag, fields);
  if (peers_.send(peer, to.tag, index, fields, as_bytes(name_.data(), name_.size())) != SendOutcome::sent) return;
  peer.pending(peer.begun - 1).kind = Kind::long_piece;
  --counters_.requests;
}

}  // namespace unet::am
