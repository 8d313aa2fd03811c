// dispatcher.h - arrived messages of an Active Message endpoint: which handler runs, which are refused, and which are returned; used by
// Endpoint.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "am/memory_segment.h"
#include "am/peer_table.h"
#include "am/tag_rule.h"

namespace unet::am {

constexpr uint32_t kLongReplyMax = 16 * 1024;  // bytes

class Dispatcher {
 public:
  // `endpoint` is only passed on, to handlers.
  Dispatcher(Endpoint& endpoint, unet::LayerEndpoint& channels, PeerTable& peers, HandlerTable& handlers, Counters& counters) noexcept
      : endpoint_(endpoint), channels_(channels), peers_(peers), handlers_(handlers), counters_(counters) {}
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  MemorySegment& segment() noexcept { return segment_; }
  const MemorySegment& segment() const noexcept { return segment_; }
  TagRule& tag_rule() noexcept { return tag_rule_; }
  const TagRule& tag_rule() const noexcept { return tag_rule_; }

  // Handles a message, and releases it. False: no peer has its channel, and nothing was done.
  bool handle(const Message& message) {
    Peer* const peer = peers_.find(message.channel);
    if (__builtin_expect(peer == nullptr, 0)) return false;
    if (__builtin_expect(!peer->open, 0)) {
      channels_.release(message);
    } else if (__builtin_expect(peer->wire == nullptr, 1)) {
      handle_local(*peer, message);
    } else {
      receive_wire(*peer, message);
    }
    return true;
  }
  // Handles time-outs of peers on wires, after arrived packets. `empty`: the poll has found none.
  void poll_wires(bool empty);

  // A get needed no message: its bytes are in `memory`. complete_gets() runs its handler.
  void complete_later(Peer& peer, uint8_t handler, std::span<const uint32_t> arguments, MutableBytes memory);
  bool has_completions() const noexcept { return !completions_.empty(); }
  void complete_gets();

 private:
  struct Completion {
    uint8_t handler;
    uint8_t count;
    Peer* peer;
    MutableBytes memory;
    std::array<uint32_t, kArgumentsMax> arguments;
  };

  bool is_plain(const Peer& peer, const Handler& handler) const noexcept;
  bool handle_line(Peer& peer, const Message& message);
  bool handle_long_line(Peer& peer, const Message& message);
  void run_line(Peer& peer, const Handler& handler, Bytes payload);
  void handle_local(Peer& peer, const Message& message);
  void receive_wire(Peer& peer, const Message& message);
  void handle_wire(Peer& peer);
  void dispatch(Peer& peer, const PacketFields& fields, Bytes payload);

  // Requests of peers.
  void dispatch_request(Peer& peer, const PacketFields& fields, Bytes payload);
  std::optional<ReturnStatus> refusal_of(const Peer& peer, const PacketFields& fields, Bytes payload) const noexcept;
  static void refuse(Token& token, ReturnStatus why) noexcept;
  void take_introduction(Peer& peer, const PacketFields& fields, Bytes payload);

  // Replies of peers.
  void dispatch_reply(Peer& peer, const PacketFields& fields, Bytes payload);
  void run_reply(Peer& peer, const PacketFields& fields, MutableBytes payload);
  void reject_reply(const Peer& peer, const PacketFields& fields, MutableBytes payload = {});
  void take_get(Peer& peer, const PacketFields& fields, Bytes payload);
  void end_get(Peer& peer);
  void run_get_reply(Peer& peer, uint8_t handler, std::span<const uint32_t> arguments, MutableBytes memory);
  void take_returned(Peer& peer, const PacketFields& fields);

  Endpoint& endpoint_;
  unet::LayerEndpoint& channels_;
  PeerTable& peers_;
  HandlerTable& handlers_;
  Counters& counters_;
  TagRule tag_rule_;
  MemorySegment segment_;
  PacketFields line_;            // the one-line message of the running handler
  std::vector<Completion> completions_;
};

}  // namespace unet::am
