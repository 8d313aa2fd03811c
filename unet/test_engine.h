// test_engine.h - plays the NI's side of one endpoint's queues, correctly and one step at a time; for unit tests.
#pragma once

#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "unet/ni_queues.h"
#include "unet/test_channel.h"

namespace unet {

// A client's message, as the NI takes it off the send queue.
struct TakenMessage {
  uint32_t channel = 0;
  SlotKind kind = SlotKind::none;
  std::vector<std::byte> bytes;
  PutDescriptor put{};
};

class TestEngine {
 public:
  explicit TestEngine(const EndpointOptions& options)
      : geometry(SegmentGeometry::of(options)), fd_(sealed_memory(geometry.total)), memory_(map_all(fd_, geometry.total)) {
    header = reinterpret_cast<SegmentHeader*>(memory_.data());
    send_ = SlotReader(reinterpret_cast<Slot*>(at(geometry.send_queue)), geometry.send_depth, &header->send_consumed.value);
    receive_ = SlotWriter(reinterpret_cast<Slot*>(at(geometry.receive_queue)), geometry.receive_depth, &header->receive_consumed.value);
    free_ = FreeReader(reinterpret_cast<FreeSlot*>(at(geometry.free_queue)), geometry.free_depth);
  }

  // The client's mapping, as Endpoint makes it.
  Mapping map_for_client() const {
    auto mapping = Mapping::map(fd_.get(), geometry.total);
    UNET_CHECK(mapping);
    return std::move(*mapping);
  }

  // ---- what the client sent

  std::optional<TakenMessage> take() {
    Mark mark{};
    const Slot* slot = send_.peek(mark);
    if (slot == nullptr) return std::nullopt;
    TakenMessage message{.channel = slot->channel, .kind = mark.kind, .bytes = {}, .put = {}};
    std::vector<Fragment> fragments;
    if (mark.kind == SlotKind::inline_data) {
      UNET_CHECK(mark.length <= kInlineMax);
      message.bytes.assign(slot->payload, slot->payload + mark.length);
    } else if (mark.kind == SlotKind::gather) {
      GatherDescriptor gather;
      std::memcpy(&gather, slot->payload, sizeof gather);
      fragments.assign(std::begin(gather.fragments), std::end(gather.fragments));
    } else {
      UNET_CHECK(mark.kind == SlotKind::put);
      std::memcpy(&message.put, slot->payload, sizeof message.put);
      fragments.assign(std::begin(message.put.fragments), std::end(message.put.fragments));
    }
    for (const Fragment& each : fragments) {
      if (each.length == 0) continue;
      UNET_CHECK(each.offset >= geometry.send_data && each.length <= geometry.send_data + geometry.send_bytes - each.offset);
      message.bytes.insert(message.bytes.end(), at(each.offset), at(each.offset) + each.length);
    }
    UNET_CHECK(message.bytes.size() == mark.length);
    send_.advance();
    return message;
  }
  // Gives back all taken slots and their data.
  void consume() { send_.give_back_now(send_.position()); }

  // ---- what the client receives

  std::optional<uint32_t> pop_buffer() {
    uint32_t buffer = 0;
    if (!free_.pop(buffer)) return std::nullopt;
    UNET_CHECK(buffer < geometry.buffers);
    return buffer;
  }
  std::vector<uint32_t> pop_buffers(size_t most = ~size_t{0}) {
    std::vector<uint32_t> buffers;
    while (buffers.size() < most) {
      const auto buffer = pop_buffer();
      if (!buffer) break;
      buffers.push_back(*buffer);
    }
    return buffers;
  }
  uint32_t buffers_for(size_t length) const { return static_cast<uint32_t>((length + geometry.buffer_size - 1) / geometry.buffer_size); }

  bool deliver_inline(uint32_t channel, Bytes data) {
    return publish(channel, data.data(), data.size(), data.size(), SlotKind::inline_data);
  }
  bool deliver_put_done(uint32_t channel, uint64_t offset, uint32_t length) {
    const PutDoneDescriptor descriptor{.region_offset = offset, .length = length};
    return publish(channel, &descriptor, sizeof descriptor, length, SlotKind::put_done);
  }
  // Delivers into these buffers, in this order. Adjacent buffers become one run unless `split`.
  bool deliver(uint32_t channel, Bytes data, const std::vector<uint32_t>& buffers, bool split = false) {
    UNET_CHECK(buffers.size() == buffers_for(data.size()));
    RunsDescriptor descriptor{};
    size_t run = 0, done = 0;
    for (size_t i = 0; i < buffers.size(); ++i) {
      const size_t part = std::min<size_t>(geometry.buffer_size, data.size() - done);
      std::memcpy(at(geometry.receive_data) + uint64_t{buffers[i]} * geometry.buffer_size, data.data() + done, part);
      done += part;
      if (i > 0 && !split && buffers[i] == buffers[i - 1] + 1) {
        ++descriptor.runs[run].count;
      } else {
        run += i > 0 ? 1 : 0;
        UNET_CHECK(run < kRunsMax);
        descriptor.runs[run] = {static_cast<uint16_t>(buffers[i]), 1};
      }
    }
    return publish(channel, &descriptor, sizeof descriptor, data.size(), SlotKind::runs);
  }
  // Number of receive slots that the client has given back.
  uint32_t receive_room() {
    receive_.refresh();
    return receive_.room();
  }

  const Descriptor& memory() const { return fd_; }

  const SegmentGeometry geometry;
  SegmentHeader* header = nullptr;

 private:
  std::byte* at(uint64_t offset) const { return memory_.data() + offset; }
  bool publish(uint32_t channel, const void* payload, size_t size, size_t length, SlotKind kind) {
    Slot* slot = receive_.reserve();
    if (slot == nullptr) return false;
    if (size != 0) std::memcpy(slot->payload, payload, size);
    slot->channel = channel;
    receive_.publish(slot, static_cast<uint32_t>(length), kind);
    return true;
  }

  Descriptor fd_;
  Mapping memory_;
  SlotReader send_;
  SlotWriter receive_;
  FreeReader free_;
};

// The page and the descriptor of a client's doorbells.
class TestDoorbells {
 public:
  TestDoorbells() : fd_(sealed_memory(kPage)), memory_(map_all(fd_, kPage)), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    bells = Doorbells(map_all(fd_, kPage), duplicate(event_));
  }
  ClientPage& page() { return *reinterpret_cast<ClientPage*>(memory_.data()); }
  // Whether this bit was rung; clears it.
  bool rung(uint32_t bit) {
    const uint64_t old = page().doorbells[bit / 64].fetch_and(~(uint64_t{1} << (bit % 64)));
    return ((old >> (bit % 64)) & 1) != 0;
  }
  bool summarised(uint32_t bit) { return ((page().summary.words[bit / 4096].load() >> (bit / 64 % 64)) & 1) != 0; }
  uint64_t wakeups() {
    uint64_t count = 0;
    return ::read(event_.get(), &count, sizeof count) == sizeof count ? count : 0;
  }

  const Descriptor& memory() const { return fd_; }
  const Descriptor& event() const { return event_; }

  Doorbells bells;

 private:
  Descriptor fd_;
  Mapping memory_;
  Descriptor event_;
};

// An endpoint's queues with an NI that the test steps.
struct TestQueues {
  explicit TestQueues(const EndpointOptions& options, uint32_t doorbell = 70)
      : engine(options),
        segment(engine.map_for_client()),
        base(segment.data()),
        queues(std::move(segment), engine.geometry, doorbells.bells, doorbell) {}
  const std::byte* buffer(uint32_t number) const {
    return base + engine.geometry.receive_data + uint64_t{number} * engine.geometry.buffer_size;
  }

  TestEngine engine;
  TestDoorbells doorbells;
  Mapping segment;  // moved from
  std::byte* base;
  NiQueues queues;
};

}  // namespace unet
