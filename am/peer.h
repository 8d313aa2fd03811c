// peer.h - what an Active Message endpoint knows of one channel: how to reach who is there, and what was asked of it; used by Endpoint.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "am/local_link.h"
#include "am/status.h"
#include "am/wire_link.h"

namespace unet::am {

// A request that the peer has not said it has handled.
struct PendingRequest {
  Kind kind{};
  uint8_t handler = 0;
  uint8_t count = 0;
  bool last = true;        // get_request: of its transfer
  uint32_t index = 0;      // of the translation
  uint32_t length = 0;     // get_request: bytes of this piece, which go to
  uint64_t at = 0;         // this place in
  MutableBytes memory;     // the whole
  std::array<uint32_t, kArgumentsMax> arguments{};
};

struct Peer {
  Peer(unet::Endpoint& endpoint, Channel channel_number, uint64_t identity) noexcept
      : channel(channel_number), id(identity), local(endpoint, channel_number) {}

  // A peer may give credits back without the reply to a get: then the get keeps its place among the requests, and there are no more.
  bool has_credit() const noexcept {
    const bool gets_room = gets_begun == gets_answered || begun - gets[gets_answered % kFlowWindow] < kFlowWindow;
    return gets_room && (wire == nullptr ? local.has_credit() : wire->has_credit());
  }
  uint32_t unhandled() const noexcept { return wire == nullptr ? local.unhandled() : wire->unhandled(); }
  PendingRequest& pending(uint32_t number) noexcept { return requests[number % kFlowWindow]; }
  // The oldest get without its reply; there is one.
  PendingRequest& oldest_get() noexcept { return pending(gets[gets_answered % kFlowWindow]); }

  Channel channel;
  uint64_t id;
  uint32_t index = ~uint32_t{0};  // of the translation that leads here, if one does
  bool open = true;
  bool in_untold = false;        // listed as one to be told of credits
  uint32_t translations = 0;     // that lead here; 0: it connected to us
  LocalLink local;
  std::unique_ptr<WireLink> wire;  // nullptr: on a local channel
  uint64_t tag_told = 1;         // that our requests have said last; kAnyTag needs no saying
  uint64_t tag_heard = 1;        // that the peer's have
  uint64_t region = 0;           // bytes that a local peer exposes; 0: nothing, as far as we know
  uint32_t looks_at_region = 0;
  std::optional<ReturnStatus> get_failed;  // of a piece of the oldest get
  bool in_get = false;           // a get has sent some of its pieces only
  uint32_t begun = 0;            // requests
  uint32_t gets_begun = 0, gets_answered = 0;
  std::array<uint32_t, kFlowWindow> gets{};  // their numbers as requests
  std::array<PendingRequest, kFlowWindow> requests{};
  std::string host;              // that it is on; empty: this one
  std::string name;              // that it has said, or that it was mapped by
};

}  // namespace unet::am
