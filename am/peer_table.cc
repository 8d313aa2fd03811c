// peer_table.cc - the life of an Active Message endpoint's peers.
#include "am/peer_table.h"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace unet::am {
namespace {

constexpr uint64_t kHeldMax = 8 * 1024 * 1024;  // bytes of early packets, over all peers

}  // namespace

PeerTable::PeerTable(unet::LayerEndpoint& endpoint, HandlerTable& handlers, Counters& counters, const FlowOptions& flow_options)
    : endpoint_(endpoint), handlers_(handlers), counters_(counters), flow_options_(flow_options), budget_{.left = kHeldMax} {
  flow_options_.session = wall_sixteenths() | 1;  // not 0
}

Peer& PeerTable::add(Channel channel, bool on_this_ni) {
  peers_.push_back(std::make_unique<Peer>(endpoint_, channel, ++identities_));
  ++changes_;
  Peer& peer = *peers_.back();
  peer.process = endpoint_.peer_pid(channel);
  if (endpoint_.kind(channel) != control::ChannelKind::local) {
    FlowOptions options = flow_options_;
    // The delay here is that of processes that share cores, so only the credits limit what is in flight.
    if (on_this_ni) options.congestion.no_wire = true;
    peer.wire = std::make_unique<WireLink>(endpoint_, channel, options, pool_, budget_);
    if (wires_.empty()) absence_.begin(clock_.now());
    wires_.push_back(&peer);
  }
  const auto index = static_cast<uint32_t>(channel);
  if (by_channel_.size() <= index) by_channel_.resize(index + 1);
  by_channel_[index] = &peer;
  return peer;
}

void PeerTable::end(Peer& peer) noexcept {
  if (!peer.open) return;
  peer.open = false;
  ++changes_;
  const auto comes_back = [&](const PendingRequest& request) {
    if (request.kind == Kind::long_piece || (request.kind == Kind::get_request && !request.last)) return;
    handlers_.come_back(ReturnStatus::unreachable, request.kind, request.handler, request.index, {request.arguments.data(), request.count},
                        request.kind == Kind::get_request ? request.memory : MutableBytes());
  };
  // First forget the gets: their owner may free the memory when it gets them back.
  const uint32_t answered = std::exchange(peer.gets_answered, peer.gets_begun);
  peer.get_failed.reset();
  const uint32_t unhandled = peer.unhandled();
  for (uint32_t each = answered; each != peer.gets_begun; ++each) {
    const uint32_t number = peer.gets[each % kFlowWindow];
    if (peer.begun - number > unhandled) comes_back(peer.pending(number));
  }
  for (uint32_t number = peer.begun - unhandled; number != peer.begun; ++number) comes_back(peer.pending(number));
}

void PeerTable::remove(Peer& peer) noexcept {
  by_channel_[static_cast<uint32_t>(peer.channel)] = nullptr;
  std::erase(wires_, &peer);
  std::erase(untold_, &peer);
  peer.wire.reset();  // releases its messages before the channel closes
  endpoint_.close(peer.channel);
  std::erase_if(peers_, [&](const auto& each) { return each.get() == &peer; });
}

SendOutcome PeerTable::send(Peer& peer, Tag tag, Index index, PacketFields& fields, Bytes payload) {
  if (peer.wire == nullptr) {
    if (const SendOutcome outcome = peer.local.send(fields, payload); __builtin_expect(outcome != SendOutcome::sent, 0)) return outcome;
  }
  peer.tag_told = tag;
  record(peer, index, fields);
  if (peer.wire != nullptr) {
    peer.wire->begin(fields, payload);
    pump(peer);
  }
  return SendOutcome::sent;
}

void PeerTable::pump(Peer& peer) {
  const bool done = peer.wire->pump(clock_.pump_time());
  clock_.schedule(done ? peer.wire->next_timeout() : 0);  // if the NI has no room, the next poll tries again
  if (peer.wire->flow().state() != Flow::State::open) end(peer);
}

void PeerTable::tell_credits() noexcept {
  for (Peer* const peer : untold_) {
    if (peer->local.untold() != 0) peer->local.tell();
    peer->in_untold = peer->local.untold() != 0;  // no room: try again later
  }
  std::erase_if(untold_, [](const Peer* peer) { return !peer->in_untold; });
}

void PeerTable::tell_all(Nanoseconds limit) noexcept {
  tell_credits();
  const Nanoseconds start = monotonic_now();
  for (Peer* const peer : wires_) {
    while (peer->open && !peer->wire->tell(clock_.now()) && monotonic_now() - start < limit) ::sched_yield();
  }
}

}  // namespace unet::am
