// endpoint.cc - set-up of an Active Message endpoint, and the life of its peers.
#include "am/endpoint.h"

#include <sched.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "am/bundle.h"
#include "am/clock.h"
#include "unet/base/misuse.h"

namespace unet::am {
namespace {

constexpr uint32_t kDrainMax = 4096;               // messages handled before a peer is given up
constexpr Nanoseconds kTellTime = 100 * kMillisecond;  // how long the end of an endpoint waits for room at the network interface
constexpr Nanoseconds kTransferNap = kMillisecond;  // time between checks whether a channel has room for a transfer
constexpr Nanoseconds kOwnPeersNap = kMillisecond;  // time between polls of peers in this process
constexpr uint32_t kBatch = 32;                    // messages per poll
constexpr uint32_t kLookEvery = 1024;              // polls between two looks for new peers; an empty poll counts kEmptyWeight times
constexpr uint32_t kEmptyWeight = 16;
constexpr uint32_t kPollsBeforeTelling = 4;         // empty polls; an answer often comes earlier, and carries the credits
constexpr uint32_t kPollsBeforeSleep = 64;         // empty polls: some microseconds

// All endpoints of this process, and those that it had before fork(). Never destroyed, because an endpoint may outlive every static object.
struct Everyone {
  std::mutex mutex;
  std::vector<Endpoint*> endpoints;
};
Everyone& everyone() {
  static auto* const all = new Everyone;
  return *all;
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::create(Context& context, const Options& options) {
  if (options.endpoint.emulated != 0) return fail(Errc::invalid_argument, "an Active Message endpoint has queues of its own");
  auto endpoint = context.create_endpoint(options.endpoint);
  if (!endpoint) return tl::unexpected(endpoint.error());
  return std::unique_ptr<Endpoint>(new Endpoint(context, std::move(*endpoint), options));
}

Endpoint::Endpoint(const Context& context, unet::Endpoint endpoint, const Options& options)
    : context_(context), endpoint_(std::move(endpoint)),
      admission_(options.admit, options.admit_context, options.same_user_only, options.other_hosts), owner_(::getpid()),
      both_ways_(options.both_ways),
      openings_(endpoint_, admission_), handlers_(*this, counters_), peers_(endpoint_, handlers_, counters_, options.flow),
      transfers_(*this, peers_, handlers_, counters_), dispatcher_(*this, endpoint_, peers_, handlers_, counters_) {
  const std::lock_guard held(everyone().mutex);
  everyone().endpoints.push_back(this);
}

Endpoint::~Endpoint() {
  if (bundle_ != nullptr) bundle_->remove(*this);
  if (handlers_.running()) misused("a handler does not destroy its own endpoint: do so when poll() or wait() has returned");
  if (handlers_.is_waited_for()) misused("a handler does not destroy an endpoint by which a call waits: do so when that has returned");
  // A handled request that its peer does not know of would be returned to that peer. In a child after fork() the channels belong to the
  // parent, which continues them.
  if (::getpid() == owner_) peers_.tell_all(kTellTime);
  transfers_.release_all();
  const std::lock_guard held(everyone().mutex);
  std::erase(everyone().endpoints, this);
}

const Flow* Endpoint::flow(Index to) const noexcept {
  return is_mapped(to) && translations_[to].peer->wire != nullptr ? &translations_[to].peer->wire->flow() : nullptr;
}

// ---- peers

void Endpoint::remove_peer(Peer& peer) noexcept {
  transfers_.end_all(peer);
  peers_.remove(peer);
}

bool Endpoint::may_be_peer(const ConnectionRequest& request) {
  if (!admission_.allows(request.same_user, request.peer_uid == -1)) return false;
  bool may = true;
  if (admission_.has_function()) handlers_.call([&] { may = admission_.admits(request); });
  return may;
}

void Endpoint::let_in(const ConnectionRequest& request) {
  if (!may_be_peer(request)) {
    ++counters_.not_admitted;
    endpoint_.reject(request.id);
    return;
  }
  // The requester may have given up meanwhile.
  const auto channel = endpoint_.accept(request.id);
  if (!channel) return;
  const bool on_this_ni = request.peer_uid != -1;
  Peer& peer = peers_.add(*channel, on_this_ni);
  // For its own processes the NI reports the bound name, or else the process ("pid 123"). For another host it reports only the host.
  peer.user = request.peer_uid;
  if (!on_this_ni) {
    peer.host = request.peer;
  } else if (control::valid_name(request.peer)) {
    peer.name = request.peer;
  }
}

// Handles what a peer sent before its end, before the end itself is reported. Bounded, because other peers may never stop sending.
void Endpoint::handle_arrived() {
  Message message;
  for (uint32_t count = 0; count < kDrainMax; ++count) {
    if (endpoint_.receive(message)) {
      handle(message);
    } else if (!endpoint_.has_message()) {
      break;
    }
  }
}

// Accepts new peers, and ends those with a closed channel.
void Endpoint::look_around() {
  looks_ = 0;
  while (const auto request = endpoint_.next_request()) let_in(*request);
  while (const auto event = endpoint_.next_event()) {
    if (event->kind == ChannelEvent::Kind::opened) {
      if (may_be_peer({.peer = event->peer})) {
        peers_.add(event->channel, false);
      } else {
        ++counters_.not_admitted;
        endpoint_.close(event->channel);
      }
      continue;
    }
    Peer* const peer = peers_.find(event->channel);
    if (peer == nullptr) {
      endpoint_.close(event->channel);
      continue;
    }
    handle_arrived();
    peer->closed = event->reason;
    peers_.end(*peer);
    if (peer->translations == 0) remove_peer(*peer);
  }
  if (__builtin_expect(!openings_.empty(), 0)) look_at_openings();
}

// ---- progress

uint32_t Endpoint::poll() {
  if (handlers_.running()) return 0;
  unpolled_ = 0;
  peers_.clock().begin_poll();
  uint32_t count = 0;
  Message message;
  if (endpoint_.receive(message)) {
    empty_polls_ = 0;
    do {
      handle(message);
      ++count;
    } while (count < kBatch && endpoint_.receive_next(message));
  } else if (++empty_polls_ >= kPollsBeforeTelling && peers_.has_untold()) {
    peers_.tell_credits();
  }
  if (dispatcher_.has_completions()) dispatcher_.complete_gets();
  if (__builtin_expect(!transfers_.empty(), 0)) transfers_.poll();
  if (!peers_.wires().empty()) dispatcher_.poll_wires(count == 0);
  looks_ += count == 0 ? kEmptyWeight : 1;
  if (looks_ >= kLookEvery) look_around();
  return count;
}

void Endpoint::handle(const Message& message) {
  if (__builtin_expect(dispatcher_.handle(message), 1)) return;
  look_around();  // a static channel, which we have not seen opening yet
  if (dispatcher_.handle(message)) return;
  ++counters_.unknown_channel;
  endpoint_.release(message);
}

// ---- waiting

// Polls, with what a layer above adds, and always looks for new and ended channels.
uint32_t Endpoint::turn() {
  if (handlers_.running()) return 0;
  look_around();
  return poll_function_ == nullptr ? poll() : poll_function_(poll_context_);
}

// Returns how long the endpoint may rest unless something arrives.
Nanoseconds Endpoint::rest(Nanoseconds limit) const noexcept {
  if (!transfers_.empty()) limit = std::min(limit, kTransferNap);
  const Nanoseconds next = peers_.clock().next_timeout();
  if (next == kNever) return limit;
  const Nanoseconds now = flow_now();
  return std::min(limit, next > now ? next - now : 0);
}

// Returns the same as a point in time; 0: soon, or at once.
Nanoseconds Endpoint::due() const noexcept { return transfers_.empty() ? peers_.clock().next_timeout() : 0; }

// Prepares a sleep. False if there was work: the caller may be waiting for what a handler did, and handlers also run without a message. The
// caller may also be waiting for a peer to come or to end.
bool Endpoint::settle(Nanoseconds& limit) {
  if (handlers_.running()) return false;
  peers_.tell_credits();
  const uint64_t before = handlers_.ended(), peers_before = peers_.changes();
  if (turn() != 0 || handlers_.ended() != before || peers_.changes() != peers_before) return false;
  limit = rest(limit);
  peers_.absence().sleeps();
  return true;
}

bool Endpoint::arm(Nanoseconds& limit) { return settle(limit) && endpoint_.arm(); }

WaitOutcome Endpoint::wait(Nanoseconds timeout, Nanoseconds spin) {
  if (handlers_.running()) return WaitOutcome::ready;
  Nanoseconds limit = timeout;
  if (const auto arrived = turn_own_peers()) {
    if (*arrived != 0) {
      turn();  // a busy own peer must not keep this endpoint from its messages
      return WaitOutcome::ready;
    }
    limit = std::min(limit, kOwnPeersNap);  // what is on its way to them does not wake this endpoint
  }
  if (!settle(limit)) return WaitOutcome::ready;
  const WaitOutcome outcome = endpoint_.wait(limit, spin);
  turn();
  return outcome == WaitOutcome::timed_out && limit != timeout ? WaitOutcome::ready : outcome;
}

// The caller may rely on this to poll the endpoints of its bundle, or this endpoint if it is in no bundle.
void Endpoint::serve(uint32_t& empty, Nanoseconds limit) {
  const uint32_t arrived = bundle_ != nullptr ? bundle_->poll() : poll();
  if (bundle_ != nullptr) bundle_->step_back();
  empty = arrived != 0 ? 0 : empty + 1;
  if (empty < kPollsBeforeSleep) return;
  if (turn_own_peers().value_or(0) != 0) {
    empty = 0;
    return;
  }
  ::sched_yield();  // the peer may need this core
  if (bundle_ != nullptr) {
    bundle_->wait(limit);
  } else {
    wait(limit);
  }
}

// In a process with one thread, the peer that a call waits for may be another endpoint of the same thread. Polls only those: the program
// may want its other endpoints unpolled. Returns nothing if there are none.
std::optional<uint32_t> Endpoint::turn_own_peers() {
  std::optional<uint32_t> arrived;
  if (__libc_single_threaded == 0) return arrived;
  const std::vector<Endpoint*>& all = everyone().endpoints;  // indexed, because handlers make and destroy endpoints
  for (size_t i = 0; i < all.size(); ++i) {
    const bool served = all[i] == this || (bundle_ != nullptr && all[i]->bundle_ == bundle_);
    if (!served && all[i]->owner_ == owner_ && leads_to(all[i]->name_)) arrived = arrived.value_or(0) + all[i]->turn();
  }
  return arrived;
}

// Returns whether one of our translations may lead to an endpoint of this name.
bool Endpoint::leads_to(std::string_view name) const noexcept {
  return openings_.lead_to(name) || std::any_of(peers_.all().begin(), peers_.all().end(), [&](const auto& each) {
    return each->translations != 0 && Openings::is_target(each->name, name);
  });
}

bool Endpoint::flush(Nanoseconds timeout) {
  const auto all_arrived = [&] {
    return std::all_of(peers_.wires().begin(), peers_.wires().end(), [](const Peer* peer) {
      return !peer->open || (peer->wire->flow().unacknowledged() == 0 && peer->wire->flow().in_flight() == 0);
    });
  };
  if (handlers_.running()) return false;
  peers_.tell_credits();
  Waiting waiting(*this);
  Nanoseconds waited = 0;
  for (const Nanoseconds start = monotonic_now(); !transfers_.empty() || !all_arrived(); waited = monotonic_now() - start) {
    if (waited >= timeout) return false;
    waiting.serve(std::min(timeout - waited, kMillisecond));
  }
  peers_.tell_all(std::min(timeout - std::min(waited, timeout), kTellTime));  // the program may end without the destructor
  return true;
}

}  // namespace unet::am
