// local_link.h - a peer on a local channel, which loses nothing and needs only credits; used by Peer.
//
// A request needs one of kFlowWindow credits. Each message says how many requests of the other side were handled so far. So at most a
// window of requests and a window of replies lie in each direction of the channel. kLocalOptions has room for them, so a reply never waits.
// If a peer cheats, replies to it that find no room are lost. A payload byte is copied once, into the channel; not at all if it was
// composed there.
#pragma once

#include <algorithm>
#include <optional>

#include "am/local_message.h"
#include "am/status.h"
#include "unet/base/bytes.h"
#include "unet/layer_endpoint.h"

namespace unet::am {

constexpr uint32_t kMediumMax = 16 * 1024;  // bytes of a medium payload

// The size that a connecting endpoint asks for: a window of requests and one of replies of kMediumMax, plus as many slots and bytes as the
// receiver may not have released yet. It releases them by the quarter. A message in slots takes more than one, as long as half are free.
constexpr LocalOptions kLocalOptions{.depth = 512, .data_bytes = 4 * 1024 * 1024 + 256 * 1024};
constexpr uint32_t kUnreleased = kLocalOptions.depth / 4, kInSlots = kLocalOptions.depth / 2;
static_assert(kLocalOptions.depth >= 2 * kFlowWindow + 16 + kUnreleased + kInSlots - kInSlots / slots_of(kInSlotsMax));
static_assert(kLocalOptions.data_bytes >= (2 * kFlowWindow + kUnreleased + 2) * uint64_t{kMediumMax + 128});

class LocalLink {
 public:
  static constexpr uint32_t kPutMax = 8 * 1024 * 1024;  // bytes of one put, at most

  LocalLink(unet::LayerEndpoint& endpoint, Channel channel) noexcept : endpoint_(&endpoint), channel_(channel) {}

  bool has_credit() const noexcept { return unhandled() < kFlowWindow; }
  // Returns the number of requests that the peer has not acknowledged as handled.
  uint32_t unhandled() const noexcept { return requests_ - handled_by_peer_; }

  // Sends a short message without a tag in one cache line. False: it does not fit, or send() will say why it cannot be sent. Credits as in
  // send().
  bool send_line(Kind kind, uint8_t handler, std::span<const uint32_t> arguments) noexcept {
    if (__builtin_expect(arguments.size() > kLineArguments, 0)) return false;
    const uint32_t handled = handled_with(kind);
    return compose(kind, sizeof(LocalHeader) + arguments.size_bytes(),
                   [&](std::byte* slot) { emit_line(slot, kind, handler, handled, arguments); });
  }
  // Sends a long request in one cache line; its bytes are in the peer's region already. False as above.
  bool send_long_line(uint8_t handler, std::span<const uint32_t> arguments, LocalLong part) noexcept {
    if (__builtin_expect(arguments.size() > kLongLineArguments, 0)) return false;
    return compose(Kind::long_request, sizeof(LocalHeader) + arguments.size_bytes() + sizeof(LocalLong),
                   [&](std::byte* slot) { emit_long_line(slot, handler, handled_, arguments, part); });
  }

  // A request needs a credit; a reply gives one back. `full`: not sent, and receiving may make room. `no_channel`: not sent, and never will
  // be.
  SendOutcome send(PacketFields& fields, Bytes payload) noexcept {
    const uint32_t head = local_head_size(fields.kind, fields.count, fields.flags, !payload.empty());
    const size_t size = head + payload.size();
    fields.handled = handled_with(fields.kind);
    SendOutcome outcome;
    if (size <= kInlineMax) {
      alignas(kPayloadAlignment) std::array<std::byte, kInlineMax> message;
      if (!payload.empty()) std::memset(message.data() + head - kPayloadAlignment, 0, kPayloadAlignment);  // zeroes the padding
      emit_local_head(message.data(), fields);
      copy_small(message.data() + head, payload.data(), payload.size());
      outcome = endpoint_->send(channel_, {message.data(), size});
    } else {
      const MutableBytes room = endpoint_->reserve(channel_, static_cast<uint32_t>(size));
      if (room.empty()) return refusal();
      emit_local_head(room.data(), fields);
      copy_bytes(room.data() + head, payload.data(), payload.size());
      outcome = endpoint_->post(channel_, static_cast<uint32_t>(size));
    }
    if (outcome == SendOutcome::sent) count(fields.kind);
    return outcome;
  }

  // Returns room to compose a payload of up to `length` bytes for post(), valid until the next message is sent. Empty: no room now, or the
  // channel is closed.
  MutableBytes reserve(const PacketFields& fields, uint32_t length) noexcept {
    const uint32_t head = local_head_size(fields.kind, fields.count, fields.flags, true);
    const MutableBytes room = endpoint_->reserve(channel_, head + length);
    if (room.empty()) return {};
    reserved_ = room.data();
    return room.subspan(head, length);
  }
  SendOutcome post(PacketFields& fields, uint32_t length) noexcept {
    const uint32_t head = local_head_size(fields.kind, fields.count, fields.flags, length != 0);
    fields.handled = handled_with(fields.kind);
    emit_local_head(reserved_, fields);
    const SendOutcome outcome = endpoint_->post(channel_, head + length);
    if (outcome == SendOutcome::sent) count(fields.kind);
    return outcome;
  }

  // Takes the credits of a message; false if they exceed the requests sent.
  bool take_credits(uint32_t handled) noexcept {
    if (handled - handled_by_peer_ > unhandled()) return false;
    handled_by_peer_ = handled;
    return true;
  }
  // Counts a request that was handled without a reply.
  void handled() noexcept { ++handled_; }
  // Returns the number of handled requests that the peer does not know of.
  uint32_t untold() const noexcept { return handled_ - told_; }
  void tell() noexcept {
    PacketFields fields;
    fields.kind = Kind::ack;
    fields.handled = handled_;
    std::array<std::byte, sizeof(LocalHeader)> message;
    emit_local_head(message.data(), fields);
    if (endpoint_->send(channel_, message) == SendOutcome::sent) told_ = handled_;
  }

  // The peer's segment, if the peer exposes it: its bytes as far as we know, 0 for none. find_region() asks the service at first, and again
  // after many calls; ask_again() lets the next one ask.
  uint64_t region() const noexcept { return region_; }
  bool find_region() {
    if (region_ == 0 && looks_at_region_++ % kLookAgain == 0) {
      if (const auto bytes = endpoint_->map_peer_region(channel_)) region_ = *bytes;
    }
    return region_ != 0;
  }
  void ask_again() noexcept { looks_at_region_ = 0; }
  // Writes at most kPutMax bytes that lie in the region; false: the channel is closed.
  bool put(uint64_t offset, Bytes payload) noexcept { return endpoint_->put(channel_, offset, payload, false) == SendOutcome::sent; }
  // Writes any number of bytes. nullopt: they are there; else why they are not.
  std::optional<ReturnStatus> put_all(uint64_t offset, Bytes payload) noexcept {
    if (const auto why = outside_segment(region_, offset, payload.size())) return why;
    for (uint64_t at = 0; at < payload.size(); at += kPutMax) {
      if (!put(offset + at, payload.subspan(at, std::min<uint64_t>(kPutMax, payload.size() - at)))) return ReturnStatus::unreachable;
    }
    return std::nullopt;
  }
  // Copies bytes of the region to `memory`.
  std::optional<ReturnStatus> get(uint64_t offset, MutableBytes memory) noexcept {
    if (const auto why = outside_segment(region_, offset, memory.size())) return why;
    if (!memory.empty()) copy_bytes(memory.data(), endpoint_->peer_region(channel_).data() + offset, memory.size());
    return std::nullopt;
  }

 private:
  static constexpr uint32_t kLookAgain = 256;  // long messages between two questions to the service

  SendOutcome refusal() const noexcept { return endpoint_->is_open(channel_) ? SendOutcome::full : SendOutcome::no_channel; }
  template <typename Emit>
  bool compose(Kind kind, size_t bytes, Emit emit) noexcept {
    if (__builtin_expect(endpoint_->send_composed(channel_, static_cast<uint32_t>(bytes), emit) != SendOutcome::sent, 0)) return false;
    count(kind);
    return true;
  }
  // Returns the handled count for a message of this kind: a reply also counts the request that it answers.
  uint32_t handled_with(Kind kind) const noexcept { return handled_ + (is_request(kind) ? 0 : 1); }
  void count(Kind kind) noexcept {
    if (is_request(kind)) {
      ++requests_;
    } else {
      ++handled_;
    }
    told_ = handled_;
  }

  unet::LayerEndpoint* endpoint_;
  Channel channel_;
  uint32_t requests_ = 0;  // requests sent
  uint32_t handled_by_peer_ = 0;
  uint32_t handled_ = 0;   // requests of the peer that were handled
  uint32_t told_ = 0;
  uint32_t looks_at_region_ = 0;
  uint64_t region_ = 0;
  std::byte* reserved_ = nullptr;
};

}  // namespace unet::am
