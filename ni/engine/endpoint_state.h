// endpoint_state.h - the engine's private copy of every fact about an endpoint and its channels; private to ni/engine.
//
// Nothing here lies in memory that a client can write. The thread of the engine alone uses it, except the counters in `checkpoint`, which
// any thread may read. A state is created when its number is first attached, and stays at its address as long as the engine. Later
// endpoints of the number reuse it: `incarnation` tells them apart.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ni/driver.h"
#include "ni/engine/buffer_pool.h"
#include "ni/engine/engine_checkpoint.h"
#include "ni/engine/message_window.h"
#include "ni/engine/share.h"
#include "unet/base/bytes.h"
#include "unet/base/probe.h"
#include "unet/base/trust.h"
#include "unet/counters.h"
#include "unet/layout.h"
#include "unet/ring.h"
#include "unet/wire/frame.h"

namespace unet::engine {

struct EndpointState;
constexpr uint32_t kNone = ~uint32_t{0};
constexpr uint8_t kNotWaiting = 0xFF;
static_assert(kPortsMax < kNotWaiting);

enum class ChannelKind : uint8_t { closed, hairpin, wire, ip };

struct alignas(kCacheLine) ChannelState {
  ChannelKind kind = ChannelKind::closed;
  uint8_t port = 0;                  // wire
  MacAddress remote{};               // wire
  EndpointState* peer = nullptr;     // hairpin; valid while its incarnation is peer_incarnation
  uint32_t peer_incarnation = 0;
  uint32_t peer_channel = 0;
  Tag local_tag{};                   // wire: of arriving frames
  Tag remote_tag{};                  // wire: of outgoing frames
  uint32_t next_message = 0;         // wire: number of the next message sent
  MessageWindow window;              // wire: fragmented messages that arrive
};
static_assert(sizeof(ChannelState) == kCacheLine);

// Checked pieces of the segment of the sender: the bytes of a message to send.
struct Pieces {
  std::array<Bytes, kFragmentsMax + 1> pieces;  // one more for headers that the NI writes
  uint32_t count = 0;
  uint32_t length = 0;  // bytes of all pieces
};

// A message that did not fit into the port or the turn. Its checked values are stored here, and never read again from memory of the client.
struct Outgoing {
  bool active = false;
  uint8_t flags = 0;          // FrameFlags
  uint32_t channel = 0;
  uint32_t message = 0;
  uint32_t offset = 0;        // bytes in frames so far
  uint32_t piece = 0;         // next piece
  uint32_t piece_offset = 0;  // next byte in that piece
  uint64_t region_offset = 0;
  Pieces pieces;

  // Starts behind the first `head` bytes of the pieces, which are sent otherwise.
  void begin(uint32_t head) noexcept {
    piece = piece_offset = offset = 0;
    skip(head);
  }
  // Copies the next `length` bytes, which the caller knows to exist.
  void copy_next(std::byte* to, uint32_t length) noexcept {
    while (length != 0) {
      const Bytes from = pieces.pieces[piece];
      const auto part = static_cast<uint32_t>(std::min<uint64_t>(length, from.size() - piece_offset));
      copy_bytes(to, from.data() + piece_offset, part);
      to += part;
      length -= part;
      pass(part);
    }
  }
  // Skips the next `length` bytes, which the caller knows to exist.
  void skip(uint32_t length) noexcept {
    while (length != 0) {
      const auto part = static_cast<uint32_t>(std::min<uint64_t>(length, pieces.pieces[piece].size() - piece_offset));
      length -= part;
      pass(part);
    }
  }
  // Lends the next `length` bytes in place; nullptr: they are in several pieces.
  const std::byte* lend_next(uint32_t length) noexcept {
    if (left_of_piece() < length) return nullptr;
    const std::byte* const data = pieces.pieces[piece].data() + piece_offset;
    pass(length);
    return data;
  }
  // Lends the next `length` bytes as pieces; returns their number, 0: no room for them.
  uint32_t lend_pieces(uint32_t length, std::span<Bytes> into) noexcept {
    uint32_t count = 0;
    uint32_t at = piece_offset;
    uint32_t left = length;
    for (uint32_t i = piece; left != 0; ++i, at = 0) {
      if (count == into.size()) return 0;
      into[count] = pieces.pieces[i].subspan(at).first(std::min<size_t>(left, pieces.pieces[i].size() - at));
      left -= static_cast<uint32_t>(into[count++].size());
    }
    skip(length);
    return count;
  }
  // Bytes of the next `count` pieces.
  size_t left_of_pieces(uint32_t count) const noexcept {
    size_t bytes = left_of_piece();
    for (uint32_t i = piece + 1; i < pieces.count && i < piece + count; ++i) bytes += pieces.pieces[i].size();
    return bytes;
  }
  size_t left_of_piece() const noexcept { return pieces.pieces[piece].size() - piece_offset; }
  // Advances by `part` bytes of the current piece.
  void pass(uint32_t part) noexcept {
    piece_offset += part;
    if (piece_offset != pieces.pieces[piece].size()) return;
    ++piece;
    piece_offset = 0;
  }
};

// Send queue slots that ports still read from. Frames are charged to two generations in turn. All slots of a generation return to the
// client when it has no pending frames, which keeps the order of the queue.
struct ZeroCopy {
  TransmitCompletion completions[2];
  uint32_t current = 0;   // generation that is charged
  uint32_t boundary = 0;  // send position at which it began
  bool lingering = false; // in the list of the mux

  uint64_t pending() const noexcept { return completions[0].pending + completions[1].pending; }
};

struct Reassembling;  // reassembly.h
struct IpSend;        // ip_datapath.h

// One record, because a message must touch few cache lines: fields lie in the order of use, and two are stored twice. Objects for sending,
// receiving and set-up would each begin a line of their own.
struct alignas(kCacheLine) EndpointState {
  enum class Life : uint8_t { unused, attached, detaching };  // detaching: waits for ports that still read its segment

  // ---- sending
  SlotReader send;
  std::byte* segment = nullptr;
  SegmentHeader* header = nullptr;
  EndpointCheckpoint* checkpoint = nullptr;
  ChannelState* channels = nullptr;  // channel_count of them
  uint32_t channel_count = 0;
  uint32_t index = kNone;

  int64_t deficit = 0;               // bytes left in its turn (mux.h)
  int64_t quantum = 0;
  Share* share = nullptr;            // the share of its user
  EndpointState* next = nullptr;     // in the active list of its share, or the waiting list of a port
  uint64_t sent_messages = 0;        // in the present visit
  uint64_t sent_bytes = 0;
  bool active = false;               // in one of those lists, or deferred
  bool deferred = false;             // over its limit, waits for the clock
  bool granted = false;              // has got the quantum of this turn
  uint8_t waiting_port = kNotWaiting;  // the port of that list; kNotWaiting: the list is that of the share
  uint32_t watch = kNone;            // index in the watched set

  // ---- receiving
  alignas(kCacheLine) SlotWriter receive;
  SegmentHeader* receive_header = nullptr;  // header again, on this line
  EndpointCheckpoint* receive_checkpoint = nullptr;     // checkpoint again
  uint32_t incarnation = 0;
  Life life = Life::unused;
  bool touched = false;              // received in the present batch (delivery.h)

  uint64_t received_messages = 0;    // in that batch
  uint64_t received_bytes = 0;
  std::byte* receive_data = nullptr;
  uint32_t buffer_size = 0;

  BufferPool buffers;
  std::span<std::byte> region;
  int wake_descriptor = -1;
  std::atomic<uint32_t> wakes{0};    // wake-ups due by another thread; the wake descriptor stays open until 0 (wake.h)
  static constexpr uint32_t kWakeWanted = 1, kWakeWriting = 2, kWakeLeaving = 4;
  uint32_t reassemblies = 0;         // messages in reassembly, oldest first
  Reassembling* oldest = nullptr;
  Reassembling* newest = nullptr;

  // ---- rarely used
  uint32_t client = kNone;
  uint32_t doorbell = kNone;
  SegmentGeometry geometry{};
  uint64_t segment_bytes = 0;
  uint64_t registered_ports = 0;     // bit p: the segment is registered with port p
  uint64_t detach_by = 0;            // detaching: end of the wait for ports
  Buckets buckets;                   // limits of the endpoint
  uint32_t terms = 0;                // Share::terms at its last visit
  uint32_t deferrals = 0;            // number of deferrals
  Outgoing outgoing;
  ZeroCopy zero_copy;
  std::vector<ChannelState> channel_memory;
  EndpointCheckpoint own_checkpoint{};           // `checkpoint` of an engine without a successor
  std::vector<uint64_t> own_held;    // its buffer bits
  uint32_t ip_channel = kNone;       // its IP channel
  std::unique_ptr<IpSend> ip_send;   // created with its first IP channel
  std::vector<uint32_t> ip_claims;   // numbers of its claims

  EndpointState();
  ~EndpointState();
  EndpointState(const EndpointState&) = delete;
  EndpointState& operator=(const EndpointState&) = delete;

  bool attached() const noexcept { return life == Life::attached; }

  // Takes the slot at the send position, whatever becomes of the message.
  void take_slot() noexcept {
    send.advance();
    checkpoint->take_slot(send.position());
  }

  ChannelState* channel(uint32_t number) noexcept {
    return checked(number < channel_count && channels[number].kind != ChannelKind::closed) ? &channels[number] : nullptr;
  }

  // One writer, so a plain load and store. The copy in the segment is for the client.
  void count(EndpointCounter which, uint64_t amount = 1) noexcept {
    const auto i = static_cast<size_t>(which);
    const uint64_t value = checkpoint->counters[i].load(std::memory_order_relaxed) + amount;
    checkpoint->counters[i].store(value, std::memory_order_relaxed);
    header->counters[i].store(value, std::memory_order_relaxed);
    if (which >= kFirstEndpointDrop) UNET_PROBE(message_drop, index, static_cast<int>(which), kEndpointCounterNames[i].data(), amount);
  }
};

// Cache lines that each message touches: two at the sender, two at the receiver.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
static_assert(offsetof(EndpointState, channels) + sizeof(void*) == kCacheLine);
static_assert(offsetof(EndpointState, receive) == 2 * kCacheLine);
static_assert(offsetof(EndpointState, received_messages) == 3 * kCacheLine);
static_assert(offsetof(EndpointState, buffers) < 4 * kCacheLine);
#pragma GCC diagnostic pop

}  // namespace unet::engine
