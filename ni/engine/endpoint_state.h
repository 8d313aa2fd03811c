// endpoint_state.h - the engine's own copy of every fact about an endpoint and its channels; private to ni/engine.
//
// Nothing here lies in memory that a client can write. The engine's thread alone uses it, but for the counters in `kept`, which
// any thread may read. A state is created when its number is first attached, stays at its address as long as the engine, and
// serves the next endpoint of that number: `incarnation` tells them apart.
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
  EndpointState* peer = nullptr;     // hairpin; still the peer while its incarnation is peer_incarnation
  uint32_t peer_incarnation = 0;
  uint32_t peer_channel = 0;
  Tag local_tag{};                   // wire: what arrives
  Tag remote_tag{};                  // wire: what is sent
  uint32_t next_message = 0;         // wire: number of the next message sent
  MessageWindow window;              // wire: fragmented messages that arrive
};
static_assert(sizeof(ChannelState) == kCacheLine);

// Where the bytes of a message to be sent lie: pieces of its sender's segment, already checked.
struct Pieces {
  std::array<Bytes, kFragmentsMax + 1> pieces;  // one more: headers that the NI has written itself
  uint32_t count = 0;
  uint32_t length = 0;  // of all
};

// A message that is going out on a wire and did not fit into the port or the turn: what has been checked is kept here,
// never read from the client's memory again.
struct Outgoing {
  bool active = false;
  uint8_t flags = 0;          // FrameFlags
  uint32_t channel = 0;
  uint32_t message = 0;
  uint32_t offset = 0;        // bytes that are in frames
  uint32_t piece = 0;         // continue in this piece,
  uint32_t piece_offset = 0;  // at this byte of it
  uint64_t region_offset = 0;
  Pieces pieces;

  // From the beginning of the pieces on, but for the first `head` bytes, which go another way.
  void begin(uint32_t head) noexcept {
    piece = piece_offset = offset = 0;
    skip(head);
  }
  // Copies the next `length` bytes of the message; the caller knows that there are as many.
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
  // Goes on behind the next `length` bytes, which there are.
  void skip(uint32_t length) noexcept {
    while (length != 0) {
      const auto part = static_cast<uint32_t>(std::min<uint64_t>(length, pieces.pieces[piece].size() - piece_offset));
      length -= part;
      pass(part);
    }
  }
  // The next `length` bytes where they lie, or nullptr if they are in several pieces.
  const std::byte* lend_next(uint32_t length) noexcept {
    if (left_of_piece() < length) return nullptr;
    const std::byte* const data = pieces.pieces[piece].data() + piece_offset;
    pass(length);
    return data;
  }
  // The same in pieces: how many, or 0 if there is no room for them.
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
  // Bytes of the next so many pieces.
  size_t left_of_pieces(uint32_t count) const noexcept {
    size_t bytes = left_of_piece();
    for (uint32_t i = piece + 1; i < pieces.count && i < piece + count; ++i) bytes += pieces.pieces[i].size();
    return bytes;
  }
  size_t left_of_piece() const noexcept { return pieces.pieces[piece].size() - piece_offset; }
  // Of the piece.
  void pass(uint32_t part) noexcept {
    piece_offset += part;
    if (piece_offset != pieces.pieces[piece].size()) return;
    ++piece;
    piece_offset = 0;
  }
};

// Send queue slots whose data ports still read from. Frames are charged to one of two generations in turn; all slots of
// a generation are given back to the client when it has no pending frames, which keeps the order of the queue.
struct ZeroCopy {
  TransmitCompletion completions[2];
  uint32_t current = 0;   // generation that is charged
  uint32_t boundary = 0;  // send position at which it began
  bool lingering = false; // in the list that the mux looks at each turn

  uint64_t pending() const noexcept { return completions[0].pending + completions[1].pending; }
};

struct Reassembling;  // reassembly.h
struct IpSend;        // ip_datapath.h

struct alignas(kCacheLine) EndpointState {
  enum class Life : uint8_t { unused, attached, detaching };  // leaving: waits for ports that still read its segment

  // ---- sending
  SlotReader send;
  std::byte* segment = nullptr;
  SegmentHeader* header = nullptr;
  EndpointCheckpoint* checkpoint = nullptr;
  ChannelState* channels = nullptr;  // channel_count of them
  uint32_t channel_count = 0;
  uint32_t index = kNone;

  int64_t deficit = 0;               // bytes it may still send in its turn (mux.h)
  int64_t quantum = 0;
  Share* share = nullptr;            // its user's
  EndpointState* next = nullptr;     // in its share's list of active endpoints, or a port's list of waiting ones
  uint64_t sent_messages = 0;        // of the visit under way
  uint64_t sent_bytes = 0;
  bool active = false;               // is in one of those lists, or held
  bool deferred = false;             // waits until its limit has room
  bool granted = false;              // has its quantum for the turn under way
  uint8_t waiting_port = kNotWaiting;  // whose list that is; kNotWaiting: the share's
  uint32_t watch = kNone;            // index in the watched set

  // ---- receiving
  alignas(kCacheLine) SlotWriter receive;
  SegmentHeader* receive_header = nullptr;  // header again, on this line
  EndpointCheckpoint* receive_checkpoint = nullptr;     // kept again
  uint32_t incarnation = 0;
  Life life = Life::unused;
  bool touched = false;              // got something in the batch under way (delivery.h)

  uint64_t received_messages = 0;    // of that batch
  uint64_t received_bytes = 0;
  std::byte* receive_data = nullptr;
  uint32_t buffer_size = 0;

  BufferPool buffers;
  std::span<std::byte> region;
  int wake_descriptor = -1;
  std::atomic<uint32_t> wakes{0};    // that another thread has still to do; the wake descriptor stays open until none (wake.h)
  static constexpr uint32_t kWakeWanted = 1, kWakeWriting = 2;
  uint32_t reassemblies = 0;         // messages in reassembly, oldest first
  Reassembling* oldest = nullptr;
  Reassembling* newest = nullptr;

  // ---- rarely used
  uint32_t client = kNone;
  uint32_t doorbell = kNone;
  SegmentGeometry geometry{};
  uint64_t segment_bytes = 0;
  uint64_t registered_ports = 0;     // bit p: port p may read the segment in place
  uint64_t detach_by = 0;            // leaving: when ports are no longer waited for
  Buckets buckets;                   // of its own limits
  uint32_t terms = 0;                // its share's, when it was last served
  uint32_t deferrals = 0;            // counts how often it was held
  Outgoing outgoing;
  ZeroCopy zero_copy;
  std::vector<ChannelState> channel_memory;
  EndpointCheckpoint own_checkpoint{};           // where `kept` leads if nobody takes over, and
  std::vector<uint64_t> own_held;    // what goes with it
  uint32_t ip_channel = kNone;       // its IP channel
  std::unique_ptr<IpSend> ip_send;   // has been made if it ever had one
  std::vector<uint32_t> ip_claims;   // their numbers

  EndpointState();
  ~EndpointState();
  EndpointState(const EndpointState&) = delete;
  EndpointState& operator=(const EndpointState&) = delete;

  bool attached() const noexcept { return life == Life::attached; }

  // The slot at the send position is served now, whatever comes of it.
  void take_slot() noexcept {
    send.advance();
    checkpoint->take_slot(send.position());
  }

  ChannelState* channel(uint32_t number) noexcept {
    return checked(number < channel_count && channels[number].kind != ChannelKind::closed) ? &channels[number] : nullptr;
  }

  // One writer, so a plain load and store; the copy in the segment is for the owner to read.
  void count(EndpointCounter which, uint64_t amount = 1) noexcept {
    const auto i = static_cast<size_t>(which);
    const uint64_t value = checkpoint->counters[i].load(std::memory_order_relaxed) + amount;
    checkpoint->counters[i].store(value, std::memory_order_relaxed);
    header->counters[i].store(value, std::memory_order_relaxed);
    if (which >= kFirstEndpointDrop) UNET_PROBE(message_drop, index, static_cast<int>(which), kEndpointCounterNames[i].data(), amount);
  }
};

// What each message touches on its way: two lines at the sender, two at the receiver.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
static_assert(offsetof(EndpointState, channels) + sizeof(void*) == kCacheLine);
static_assert(offsetof(EndpointState, receive) == 2 * kCacheLine);
static_assert(offsetof(EndpointState, received_messages) == 3 * kCacheLine);
static_assert(offsetof(EndpointState, buffers) < 4 * kCacheLine);
#pragma GCC diagnostic pop

}  // namespace unet::engine
