// raw_queues.h - the memory of a raw client, mapped and written without libunet: a segment, a client page, a local channel; for lies.
//
// Each knows only as much of the protocol as makes the other side read what is written: where it reads next.
#pragma once

#include <atomic>
#include <cstring>
#include <utility>

#include "tests/system/raw_client.h"
#include "unet/base/check.h"

namespace unet {

// Refills a ring with `length` and `kind` in every slot, after its marks and credits were overwritten.
inline void fill(std::byte* slots, uint32_t depth, uint32_t sent, uint32_t length, SlotKind kind) {
  for (uint32_t at = sent - depth; at != sent; ++at) {
    reinterpret_cast<Slot*>(slots)[at & (depth - 1)].mark.store(Mark::pack(at + 1, length, kind), std::memory_order_release);
  }
}

struct RawPage {
  RawPage(Mapping memory, Descriptor wake) : mapping(std::move(memory)), wake_engine(std::move(wake)) {}

  ClientPage& page() const { return *reinterpret_cast<ClientPage*>(mapping.data()); }
  void ring(uint32_t doorbell) const {
    page().doorbells[doorbell / 64].fetch_or(uint64_t{1} << (doorbell % 64), std::memory_order_release);
    page().summary.words[doorbell / 4096].fetch_or(uint64_t{1} << (doorbell / 64 % 64), std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (page().engine_asleep.value.load(std::memory_order_relaxed) != 0) wake();
  }
  void wake() const {
    const uint64_t one = 1;
    static_cast<void>(!::write(wake_engine.get(), &one, sizeof one));
  }

  Mapping mapping;
  Descriptor wake_engine;
};

class RawSegment {
 public:
  RawSegment(const EndpointOptions& options, const control::Reply& reply, Mapping memory)
      : id(reply.create_endpoint.endpoint), doorbell(reply.create_endpoint.doorbell), geometry(SegmentGeometry::of(options)),
        mapping(std::move(memory)) {}

  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(mapping.data()); }
  uint64_t counter(EndpointCounter which) const { return header().counters[static_cast<size_t>(which)].load(std::memory_order_relaxed); }
  bool consumed() const { return header().send_consumed.value.load(std::memory_order_acquire) == sent; }
  bool full() const { return sent - header().send_consumed.value.load(std::memory_order_acquire) >= geometry.send_depth; }

  // Writes the slot that the engine reads next.
  void send(uint32_t channel, const void* payload, size_t size, uint32_t length, SlotKind kind) {
    Slot& slot = reinterpret_cast<Slot*>(mapping.data() + geometry.send_queue)[sent & (geometry.send_depth - 1)];
    if (size != 0) std::memcpy(slot.payload, payload, std::min(size, sizeof slot.payload));
    slot.channel = channel;
    slot.mark.store(Mark::pack(++sent, length, kind), std::memory_order_release);
  }
  void fill_queue(uint32_t length, SlotKind kind) const {
    fill(mapping.data() + geometry.send_queue, geometry.send_depth, sent, length, kind);
  }
  void give(uint32_t buffer) {
    FreeSlot& slot = reinterpret_cast<FreeSlot*>(mapping.data() + geometry.free_queue)[given & (geometry.free_depth - 1)];
    slot.mark.store(uint64_t{++given} | (uint64_t{buffer} << 32), std::memory_order_release);
  }

  uint32_t id, doorbell;
  SegmentGeometry geometry;
  Mapping mapping;
  uint32_t sent = 0, given = 0;
};

class RawLocal {
 public:
  RawLocal(const control::ChannelInfo& info, Mapping memory, std::vector<Descriptor> descriptors)
      : channel(info.channel), side(info.side), geometry(LocalGeometry::of(info.local)), mapping(std::move(memory)),
        held(std::move(descriptors)) {}

  LocalControl& control(uint32_t of) const { return *reinterpret_cast<LocalControl*>(mapping.data() + geometry.control[of]); }
  bool full() const { return sent - control(side).consumed.value.load(std::memory_order_acquire) >= geometry.depth; }
  // Writes the slot that the peer reads next.
  void send(const void* payload, size_t size, uint32_t length, SlotKind kind) {
    Slot& slot = reinterpret_cast<Slot*>(mapping.data() + geometry.slots[side])[sent & (geometry.depth - 1)];
    if (size != 0) std::memcpy(slot.payload, payload, std::min(size, sizeof slot.payload));
    slot.mark.store(Mark::pack(++sent, length, kind), std::memory_order_release);
  }
  void fill_queue(uint32_t length, SlotKind kind) const {
    fill(mapping.data() + geometry.slots[side], geometry.depth, sent, length, kind);
  }
  void wake_peer() const {
    const uint64_t one = 1;
    if (held.size() > 2) static_cast<void>(!::write(held[2].get(), &one, sizeof one));
  }

  uint32_t channel, side;
  LocalGeometry geometry;
  Mapping mapping;
  std::vector<Descriptor> held;  // memory, this side's wake-up descriptor, the peer's
  uint32_t sent = 0;
};

// Takes the memory from a reply, if it is the expected one.
inline std::optional<RawPage> page_of(const std::optional<RawPacket>& hello) {
  if (!hello || hello->code() != Errc::ok || hello->descriptors.size() != 2) return std::nullopt;
  auto mapping = Mapping::map(hello->descriptors[0].get(), sizeof(ClientPage));
  if (!mapping) return std::nullopt;
  return RawPage(std::move(*mapping), Descriptor(::dup(hello->descriptors[1].get())));
}
inline std::optional<RawSegment> segment_of(const EndpointOptions& options, const std::optional<RawPacket>& created) {
  if (!created || created->code() != Errc::ok || created->descriptors.size() != 1) return std::nullopt;
  auto mapping = Mapping::map(created->descriptors[0].get(), SegmentGeometry::of(options).total);
  if (!mapping) return std::nullopt;
  return RawSegment(options, created->as<control::Reply>(), std::move(*mapping));
}
inline std::optional<RawLocal> local_of(std::optional<RawPacket> connected) {
  if (!connected || connected->code() != Errc::ok || connected->descriptors.size() != 3) return std::nullopt;
  const auto info = connected->as<control::Reply>().channel;
  auto mapping = Mapping::map(connected->descriptors[0].get(), LocalGeometry::of(info.local).total);
  if (!mapping) return std::nullopt;
  return RawLocal(info, std::move(*mapping), std::move(connected->descriptors));
}

}  // namespace unet
