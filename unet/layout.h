// layout.h - the layout of all memory shared between processes: slots, communication segment, client page, local channel; used by both
// sides.
//
// Each field names its only writer; all others read it. A reader never trusts a writer on the other side of a protection boundary. It loads
// a value once into private memory, checks it against its own knowledge, then uses it.
//
// Communication segment (one per endpoint; mapped by its owner and by the NI):
//
//   0              SegmentHeader (one page)
//   send_queue     send_depth    x Slot         client -> NI
//   receive_queue  receive_depth x Slot         NI -> client
//   free_queue     free_depth    x FreeSlot     client -> NI   (free_depth: `buffers` rounded up to a power of two)
//   send_data      send_bytes                   client: messages longer than a slot are composed here
//   receive_data   buffers x buffer_size        NI: page aligned
//
// Local channel (mapped by exactly the two processes, 0 = the connecting side, 1 = the accepting side):
//
//   0              LocalControl of direction 0 -> 1, then of 1 -> 0
//   slots[0]       depth x Slot, written by side 0
//   slots[1]       depth x Slot, written by side 1
//   data[0]        data_bytes, written by side 0, read in place by side 1
//   data[1]        data_bytes, written by side 1
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "unet/counters.h"
#include "unet/limits.h"

namespace unet {

constexpr uint64_t kPage = 4096;
constexpr uint64_t round_up(uint64_t value, uint64_t to) noexcept { return (value + to - 1) / to * to; }

// Contents of a slot. Each queue allows some kinds only; any other is a bad descriptor, which is dropped and counted.
enum class SlotKind : uint8_t {
  none = 0,
  inline_data = 1,  // every queue: the message itself, length <= kInlineMax
  gather = 2,       // send queue: GatherDescriptor
  put = 3,          // send queue: PutDescriptor
  runs = 4,         // receive queue: RunsDescriptor
  local_data = 5,   // local channel: LocalDataDescriptor
  put_done = 6,     // receive queue and local channel: PutDoneDescriptor, a put with notification has arrived
  headed = 7,       // local channel: HeadedDescriptor
  in_slots = 8,     // local channel: a message in consecutive slots, kSlotBytes in each
  headed_in_slots = 9,  // likewise, behind a HeadedDescriptor
};

// The sequence mark: one 64-bit store publishes a whole slot. The sequence number is the slot's position + 1. A slot is full for a reader
// at `position` exactly when the numbers agree, so nothing is cleared, and no index is shared.
struct Mark {
  uint32_t sequence;
  uint32_t length;  // bytes of the message, 24 bits
  SlotKind kind;

  static constexpr uint32_t kLengthMax = 0xFF'FFFF;

  static constexpr uint64_t pack(uint32_t sequence, uint32_t length, SlotKind kind) noexcept {
    return uint64_t{sequence} | (uint64_t{length & kLengthMax} << 32) | (uint64_t{static_cast<uint8_t>(kind)} << 56);
  }
  static constexpr Mark unpack(uint64_t word) noexcept {
    return Mark{static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32) & kLengthMax,
                static_cast<SlotKind>(word >> 56)};
  }
};

// One descriptor of a send or receive queue or a local channel: one cache line.
struct alignas(kCacheLine) Slot {
  std::byte payload[kInlineMax];   // inline message or one of the descriptors below
  uint32_t channel;                // send queue: destination; receive queue: source; unused on a local channel
  uint32_t spare;
  std::atomic<uint64_t> mark;      // a Mark, stored last with release
};
static_assert(sizeof(Slot) == kCacheLine && offsetof(Slot, channel) == 48 && offsetof(Slot, mark) == 56);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// A message in consecutive slots of a local channel. Each slot has its mark, so the lines of the message travel at the same time.
constexpr uint32_t kSlotBytes = offsetof(Slot, mark);  // of the message, in each slot
constexpr uint32_t kInSlotsMax = 5 * kSlotBytes;       // bytes; longer ones are faster in the data ring
constexpr uint32_t slots_of(uint32_t bytes) noexcept { return (bytes + kSlotBytes - 1) / kSlotBytes; }

struct Fragment {
  uint32_t offset;  // from the start of the communication segment
  uint32_t length;  // bytes
};
struct GatherDescriptor {
  Fragment fragments[kFragmentsMax];  // unused ones have length 0; the lengths sum to the mark's length
};
static_assert(sizeof(GatherDescriptor) <= kInlineMax);

struct PutDescriptor {
  uint64_t region_offset;  // destination in the peer's exposed region
  uint32_t notify;         // 1: the peer gets a put_done descriptor when the whole message has arrived
  uint32_t spare;
  Fragment fragments[4];
};
static_assert(sizeof(PutDescriptor) <= kInlineMax);

struct Run {
  uint16_t first;  // receive buffer number
  uint16_t count;  // adjacent buffers, > 0
};
struct RunsDescriptor {
  Run runs[kRunsMax];  // ends at the first run with count 0
};
static_assert(sizeof(RunsDescriptor) <= kInlineMax);

struct LocalDataDescriptor {
  uint64_t offset;  // offset of the message in the sender's data ring
};
// Data with the head of a higher protocol beside it. Data of one line thus costs two lines, and starts at a line.
struct HeadedDescriptor {
  uint32_t offset;       // offset of the data in the sender's data ring
  uint32_t head_length;  // at most kHeadedMax
  std::byte head[kHeadedMax];
};
static_assert(sizeof(HeadedDescriptor) == kInlineMax && kLocalDataMax <= ~uint32_t{0});
struct PutDoneDescriptor {
  uint64_t region_offset;
  uint64_t length;
};

// One entry of the free queue: a receive buffer given to the NI.
struct FreeSlot {
  std::atomic<uint64_t> mark;  // low 32 bits: position + 1; high 32 bits: buffer number
};
static_assert(sizeof(FreeSlot) == 8);

// A word with its own cache line.
struct alignas(kCacheLine) LineWord {
  std::atomic<uint32_t> value;
};
static_assert(sizeof(LineWord) == kCacheLine);

// The sleep state of a receiver, with its own cache line. The receiver sets `value` before it sleeps; the sender clears it and wakes the
// receiver. A receiver that sleeps often sets `fenced`. Then the sender executes a full fence between a message and its load of `value`,
// and the receiver needs no heavy_fence(). Either side may clear `fenced`.
struct alignas(kCacheLine) SleepWord {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> fenced;
};
static_assert(sizeof(SleepWord) == kCacheLine);
// Announces the receiver's sleep. Returns true if the sender executes fences.
inline bool announce(SleepWord& word, bool often) noexcept {
  word.value.store(1, std::memory_order_relaxed);
  const bool fences = often && word.fenced.exchange(1, std::memory_order_acq_rel) != 0;
  if (!often) word.fenced.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return fences;
}

// The doorbell of an endpoint, as its segment stores it: a bit in the client's page, and the engine that reads it.
struct Doorbell {
  static constexpr uint32_t kNone = ~uint32_t{0};
  uint32_t bit = 0, engine = 0;

  constexpr uint32_t pack() const noexcept { return bit | engine << 24; }
  static constexpr Doorbell unpack(uint32_t word) noexcept { return {word & 0xFFFFFF, word >> 24}; }
};

// The first page of a communication segment.
struct SegmentHeader {
  LineWord send_consumed;     // NI: slots of the send queue that the NI has finished with, data included
  LineWord engine_watching;   // NI: 1 the engine polls this send queue; 0 ring the doorbell after a send
  LineWord receive_consumed;  // client: slots of the receive queue that the NI may reuse (published lazily)
  SleepWord receiver_asleep;  // client sets before it sleeps; NI clears and wakes it
  LineWord sender_waiting;    // client sets before it sleeps for room; NI clears and wakes it
  LineWord doorbell;          // NI: the bit to set, see Doorbell; all ones while no engine serves the endpoint
  LineWord spare[2];
  std::atomic<uint64_t> counters[kEndpointCounters];  // NI: EndpointCounter
};
static_assert(sizeof(SegmentHeader) <= kPage && offsetof(SegmentHeader, counters) == 512);

// Options for creating an endpoint. Depths are rounded up to powers of two.
struct EndpointOptions {
  uint32_t send_depth = 256;               // slots
  uint32_t receive_depth = 256;            // slots
  uint32_t buffers = 256;                  // receive buffers
  uint32_t buffer_size = 2048;             // bytes of one receive buffer
  uint32_t send_bytes = 512 * 1024;        // bytes of the segment for outgoing messages
  uint32_t emulated = 0;                   // 1: no queues of its own (emulated.h); the options above bound its waiting messages
  uint32_t weight = 1;                     // its part of the user's share, relative to the user's other endpoints; emulated endpoints: 1
};

// Positions in a segment. NI and client compute them from the same options.
struct SegmentGeometry {
  uint32_t send_depth, receive_depth, free_depth, buffers, buffer_size;
  uint64_t send_queue, receive_queue, free_queue, send_data, send_bytes, receive_data, receive_bytes, total;

  // The options must have passed valid_options().
  static constexpr SegmentGeometry of(const EndpointOptions& o) noexcept {
    SegmentGeometry g{};
    g.send_depth = std::bit_ceil(o.send_depth);
    g.receive_depth = std::bit_ceil(o.receive_depth);
    g.free_depth = std::bit_ceil(o.buffers);
    g.buffers = o.buffers;
    g.buffer_size = o.buffer_size;
    g.send_queue = kPage;
    g.receive_queue = g.send_queue + uint64_t{g.send_depth} * sizeof(Slot);
    g.free_queue = g.receive_queue + uint64_t{g.receive_depth} * sizeof(Slot);
    g.send_data = round_up(g.free_queue + uint64_t{g.free_depth} * sizeof(FreeSlot), kPage);
    g.send_bytes = round_up(o.send_bytes, kPage);
    g.receive_data = g.send_data + g.send_bytes;
    g.receive_bytes = round_up(uint64_t{o.buffers} * o.buffer_size, kPage);
    g.total = g.receive_data + g.receive_bytes;
    return g;
  }
};

constexpr bool valid_options(const EndpointOptions& o) noexcept {
  const auto depth_ok = [](uint32_t d) { return d >= kQueueDepthMin && d <= kQueueDepthMax; };
  const uint32_t weight_max = o.emulated == 0 ? kEndpointWeightMax : 1;
  return o.emulated <= 1 && o.weight >= 1 && o.weight <= weight_max && depth_ok(o.send_depth) && depth_ok(o.receive_depth) &&
         o.buffers >= kQueueDepthMin &&
         o.buffers <= kBuffersMax && o.buffer_size >= kBufferSizeMin && o.buffer_size <= kBufferSizeMax &&
         o.buffer_size % kCacheLine == 0 && o.send_bytes >= kMessageMax && o.send_bytes <= kSegmentMax &&
         uint64_t{o.buffers} * o.buffer_size <= kSegmentMax && SegmentGeometry::of(o).total <= kSegmentMax;
}

// One page per control connection (client process), with doorbells of endpoints that the engine does not poll now.
struct ClientPage {
  static constexpr uint32_t kWords = kEndpointsPerClientMax / 64;

  LineWord engine_asleep;                        // NI: bit e: engine e sleeps; write the wake descriptor after its doorbell
  LineWord control_events;                       // NI: counts events put on the control socket, so polling costs no call
  struct alignas(kCacheLine) {
    std::atomic<uint64_t> words[kWords / 64];    // client sets, NI clears: bit w says that doorbells[w] has bits
  } summary;
  alignas(kCacheLine) std::atomic<uint64_t> doorbells[kWords];  // client sets, NI clears: bit i is endpoint index i
};
static_assert(sizeof(ClientPage) <= kPage);

// Flow control and sleeping for one direction of a local channel. Each line normally has one writer.
struct LocalControl {
  struct alignas(kCacheLine) {
    std::atomic<uint32_t> value;     // receiver: slots that the sender may reuse, with their data (published lazily)
    std::atomic<uint64_t> messages;  // receiver, with `value`: messages that have arrived, for reports of the NI
    std::atomic<uint64_t> bytes;
  } consumed;
  SleepWord receiver_asleep;  // receiver sets before it sleeps; sender clears and wakes it
  LineWord sender_waiting;   // sender sets before it sleeps for room; receiver clears and wakes it
  LineWord seldom;           // set by the side that wakes the other: the other's sleeps must be short
};
static_assert(sizeof(LocalControl) == 256);

struct LocalOptions {
  uint32_t depth = 256;                   // slots per direction, rounded up to a power of two
  uint32_t data_bytes = 4 * 1024 * 1024;  // data ring per direction; one larger than a core's own cache streams better
};

struct LocalGeometry {
  uint32_t depth;
  uint64_t data_bytes;
  uint64_t control[2], slots[2], data[2], total;

  static constexpr LocalGeometry of(const LocalOptions& o) noexcept {
    LocalGeometry g{};
    g.depth = std::bit_ceil(o.depth);
    g.data_bytes = round_up(o.data_bytes, kPage);
    g.control[0] = 0;
    g.control[1] = sizeof(LocalControl);
    g.slots[0] = kPage;
    g.slots[1] = g.slots[0] + round_up(uint64_t{g.depth} * sizeof(Slot), kPage);
    g.data[0] = g.slots[1] + round_up(uint64_t{g.depth} * sizeof(Slot), kPage);
    g.data[1] = g.data[0] + g.data_bytes;
    g.total = g.data[1] + g.data_bytes;
    return g;
  }
};

// Room for at least four of the largest messages, so that some are written while others are read. Data is freed with the slots, a quarter
// ring at a time. Four messages may never reach that: a receiver without messages therefore returns all credits.
constexpr bool valid_options(const LocalOptions& o) noexcept {
  return o.depth >= kQueueDepthMin && o.depth <= kQueueDepthMax && o.data_bytes >= 4 * kMessageMax && o.data_bytes <= kLocalDataMax;
}

}  // namespace unet
