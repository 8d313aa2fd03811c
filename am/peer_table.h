// peer_table.h - the peers of an Active Message endpoint; used by Endpoint and its parts.
//
// It makes, finds and ends peers, and sends to them. It also has the time-outs of wires.
#pragma once

#include <memory>
#include <vector>

#include "am/absence.h"
#include "am/buffer_pool.h"
#include "am/handler_table.h"
#include "am/peer.h"
#include "am/tag_rule.h"
#include "am/wire_clock.h"

namespace unet::am {

class PeerTable {
 public:
  PeerTable(unet::LayerEndpoint& endpoint, HandlerTable& handlers, Counters& counters, const FlowOptions& flow_options);
  PeerTable(const PeerTable&) = delete;
  PeerTable& operator=(const PeerTable&) = delete;

  Peer& add(Channel channel, bool on_this_ni);
  // Returns to the error handler each request that the peer has not acknowledged as handled, and each unanswered get even if acknowledged.
  void end(Peer& peer) noexcept;
  // Closes the channel of an ended peer, and forgets the peer.
  void remove(Peer& peer) noexcept;
  Peer* find(Channel channel) noexcept {
    const auto index = static_cast<uint32_t>(channel);
    return index < by_channel_.size() ? by_channel_[index] : nullptr;
  }
  const std::vector<std::unique_ptr<Peer>>& all() const noexcept { return peers_; }
  const std::vector<Peer*>& wires() const noexcept { return wires_; }
  // Returns how often a peer has come or ended.
  uint64_t changes() const noexcept { return changes_; }

  // Sends a request that has its credit, and its tag by Peer::add_tag().
  SendOutcome send(Peer& peer, Tag tag, Index index, PacketFields& fields, Bytes payload);
  // Records a request that is sent, in case it comes back.
  void record(Peer& peer, Index index, const PacketFields& fields) noexcept {
    peer.record(index, fields.kind, fields.handler, {fields.arguments.data(), fields.count});
    ++counters_.requests;
  }
  // Sends what the flow of a wire's peer has to send, and ends the peer if its flow has ended.
  void pump(Peer& peer);

  // Counts a request that was handled without a reply.
  void handled(Peer& peer) {
    if (peer.wire != nullptr) return peer.wire->handled();
    peer.local.handled();
    if (peer.local.untold() >= kFlowWindow / 4) peer.local.tell();
    if (peer.local.untold() != 0 && !peer.in_untold) {
      peer.in_untold = true;
      untold_.push_back(&peer);
    }
  }
  // Tells local peers which requests were handled.
  bool has_untold() const noexcept { return !untold_.empty(); }
  void tell_credits() noexcept;
  // Tells all peers, for at most `limit`.
  void tell_all(Nanoseconds limit) noexcept;

  // The time for wires, and how long this thread has not looked at them.
  WireClock& clock() noexcept { return clock_; }
  const WireClock& clock() const noexcept { return clock_; }
  Absence& absence() noexcept { return absence_; }

 private:
  unet::LayerEndpoint& endpoint_;
  HandlerTable& handlers_;
  Counters& counters_;
  FlowOptions flow_options_;
  uint64_t identities_ = 0, changes_ = 0;
  std::vector<Peer*> by_channel_;
  std::vector<Peer*> untold_;    // local peers that have to be told of requests handled without a reply
  std::vector<Peer*> wires_;
  WireClock clock_;
  Absence absence_;
  BufferPool pool_;
  HoldBudget budget_;
  std::vector<std::unique_ptr<Peer>> peers_;  // declared last: links are destroyed before the members they use
};

}  // namespace unet::am
