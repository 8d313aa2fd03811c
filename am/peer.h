// peer.h - the state of one channel of an Active Message endpoint: its link, and requests without an answer; used by Endpoint.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "am/local_link.h"
#include "am/status.h"
#include "am/wire_link.h"

namespace unet::am {

// A request that the peer has not acknowledged as handled.
struct PendingRequest {
  Kind kind{};
  uint8_t handler = 0;
  uint8_t count = 0;
  bool last = true;        // get_request: the last piece of its transfer
  uint32_t index = 0;      // the translation
  uint32_t length = 0;     // get_request: bytes of this piece
  uint64_t at = 0;         // get_request: offset of this piece in `memory`
  MutableBytes memory;     // get_request: destination of the whole transfer
  std::array<uint32_t, kArgumentsMax> arguments{};
};

// Bytes per packet of a long message: over a wire three frames of 1,500 bytes, so that one lost frame costs little; to a local peer without
// an exposed segment.
constexpr uint32_t kPieceMax = 4 * 1024, kLocalPieceMax = 16 * 1024;

struct Peer {
  Peer(unet::LayerEndpoint& endpoint, Channel channel_number, uint64_t identity) noexcept
      : channel(channel_number), id(identity), local(endpoint, channel_number) {}

  // A peer may return credits without answering a get. The unanswered get keeps its place among the requests, so it also limits new ones.
  bool has_credit() const noexcept {
    const bool gets_room = gets_begun == gets_answered || begun - gets[gets_answered % kFlowWindow] < kFlowWindow;
    return gets_room && (wire == nullptr ? local.has_credit() : wire->has_credit());
  }
  uint32_t unhandled() const noexcept { return wire == nullptr ? local.unhandled() : wire->unhandled(); }
  uint32_t piece_max() const noexcept { return wire == nullptr ? kLocalPieceMax : kPieceMax; }
  // Returns whether the peer exposes its segment, so that we access it directly.
  bool has_region() { return wire == nullptr && local.find_region(); }
  // Adds `tag` if the peer does not know it. Set tag_told once the fields are sent.
  void add_tag(uint64_t tag, PacketFields& fields) const noexcept {
    if (__builtin_expect(tag_told == tag, 1)) return;
    fields.flags |= PacketFlags::kTag;
    fields.tag = tag;
  }
  // Records a request that is sent, in case it comes back.
  void record(uint32_t translation, Kind kind, uint8_t handler, std::span<const uint32_t> arguments) noexcept {
    PendingRequest& request = pending(begun++);
    request.kind = kind;
    request.handler = handler;
    request.count = static_cast<uint8_t>(arguments.size());
    request.index = translation;
    copy_words(request.arguments.data(), arguments.data(), request.count);
  }
  PendingRequest& pending(uint32_t number) noexcept { return requests[number % kFlowWindow]; }
  // Returns the oldest unanswered get; there must be one.
  PendingRequest& oldest_get() noexcept { return pending(gets[gets_answered % kFlowWindow]); }

  Channel channel;
  uint64_t id;
  uint32_t index = ~uint32_t{0};  // a translation that leads to this peer
  bool open = true;
  std::optional<control::CloseReason> closed;  // why the channel has closed, as the NI says
  bool in_untold = false;        // listed in Endpoint::untold_
  uint32_t translations = 0;     // number of translations to this peer; 0: we send it no requests
  bool may_request = true;       // false: we opened the channel, and only for our own requests
  LocalLink local;
  std::unique_ptr<WireLink> wire;  // nullptr on a local channel
  uint64_t tag_told = 1;         // the tag that our requests carried last; kAnyTag is never sent
  uint64_t tag_heard = 1;        // the tag that the peer's requests carried last
  std::optional<ReturnStatus> get_failed;  // the error of a piece of the oldest get
  bool in_get = false;           // a get has sent only some of its pieces
  uint32_t begun = 0;            // requests sent
  uint32_t gets_begun = 0, gets_answered = 0;
  std::array<uint32_t, kFlowWindow> gets{};  // ring of the gets' request numbers
  std::array<PendingRequest, kFlowWindow> requests{};
  std::string host;              // the peer's host; empty: this one
  int user = -1;                 // of a process of this NI that connected to us, as the NI sees it
  int process = -1;              // of a peer on this NI and of our user, as the NI sees it
  std::string name;              // the name that the peer has told, or by which it was mapped
};

}  // namespace unet::am
