// test_ni.h - an engine with its mailboxes, and endpoints with shared memory that a test can write byte by byte; for unit tests.
#pragma once

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ni/engine/engine.h"
#include "ni/engine/link.h"
#include "ni/engine/test_wire.h"
#include "unet/base/check.h"
#include "unet/ring.h"

namespace unet::engine {

constexpr EndpointOptions kSmallEndpoint{
    .send_depth = 64, .receive_depth = 64, .buffers = 64, .buffer_size = 2048, .send_bytes = 128 * 1024};

inline std::vector<std::byte> pattern(size_t size, uint32_t seed) {
  std::vector<std::byte> bytes(size);
  uint32_t state = seed * 2654435761u + 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

// A message as the client finds it.
struct Arrived {
  uint32_t channel = 0;
  SlotKind kind = SlotKind::none;
  std::vector<std::byte> bytes;
  PutDoneDescriptor put_done{};
  RunsDescriptor runs{};
};

// The client's side of an endpoint, without any of the client library's care.
class TestEndpoint {
 public:
  TestEndpoint(uint32_t number, const EndpointOptions& options) : number(number), geometry(SegmentGeometry::of(options)) {
    // Between two inaccessible pages: an access outside of the segment ends the test.
    guarded = mmap(nullptr, geometry.total + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    UNET_CHECK(guarded != MAP_FAILED);
    segment = static_cast<std::byte*>(guarded) + kPage;
    UNET_CHECK(mprotect(segment, geometry.total, PROT_READ | PROT_WRITE) == 0);
    header = reinterpret_cast<SegmentHeader*>(segment);
    writer = SlotWriter(send_slots(), geometry.send_depth, &header->send_consumed.value);
    reader = SlotReader(receive_slots(), geometry.receive_depth, &header->receive_consumed.value);
    free_writer = FreeWriter(reinterpret_cast<FreeSlot*>(segment + geometry.free_queue), geometry.free_depth);
  }
  ~TestEndpoint() { munmap(guarded, geometry.total + 2 * kPage); }
  TestEndpoint(const TestEndpoint&) = delete;
  TestEndpoint& operator=(const TestEndpoint&) = delete;

  Slot* send_slots() const { return reinterpret_cast<Slot*>(segment + geometry.send_queue); }
  Slot* receive_slots() const { return reinterpret_cast<Slot*>(segment + geometry.receive_queue); }
  MutableBytes send_data() const { return {segment + geometry.send_data, geometry.send_bytes}; }

  void post_all_buffers() {
    for (uint32_t buffer = 0; buffer < geometry.buffers; ++buffer) free_writer.push(buffer);
  }

  // Writes any descriptor. False: no room.
  bool post(uint32_t channel, SlotKind kind, uint32_t length, const void* payload, size_t size) {
    Slot* const slot = writer.reserve();
    if (slot == nullptr) return false;
    std::memset(slot->payload, 0, sizeof slot->payload);
    if (size != 0) std::memcpy(slot->payload, payload, size);
    slot->channel = channel;
    writer.publish(slot, length, kind);
    return true;
  }
  // A correct message: inline, or composed at `at` of the send data.
  bool send(uint32_t channel, Bytes message, uint32_t at = 0) {
    const auto length = static_cast<uint32_t>(message.size());
    if (length <= kInlineMax) return post(channel, SlotKind::inline_data, length, message.data(), length);
    std::memcpy(send_data().data() + at, message.data(), length);
    const GatherDescriptor descriptor{{{static_cast<uint32_t>(geometry.send_data) + at, length}}};
    return post(channel, SlotKind::gather, length, &descriptor, sizeof descriptor);
  }
  bool put(uint32_t channel, uint64_t region_offset, Bytes message, bool notify, uint32_t at = 0) {
    const auto length = static_cast<uint32_t>(message.size());
    if (length != 0) std::memcpy(send_data().data() + at, message.data(), length);
    PutDescriptor descriptor{};
    descriptor.region_offset = region_offset;
    descriptor.notify = notify ? 1 : 0;
    descriptor.fragments[0] = {static_cast<uint32_t>(geometry.send_data) + at, length};
    return post(channel, SlotKind::put, length, &descriptor, sizeof descriptor);
  }
  void ring(ClientPage& page) const {
    page.doorbells[number / 64].fetch_or(uint64_t{1} << (number % 64), std::memory_order_release);
    page.summary.words[number / 64 / 64].fetch_or(uint64_t{1} << (number / 64 % 64), std::memory_order_release);
  }
  bool watched() const { return header->engine_watching.value.load(std::memory_order_relaxed) != 0; }

  // Takes the next message and gives its slot and buffers back at once (unless `keep`).
  std::optional<Arrived> receive(bool keep = false) {
    Mark mark{};
    const Slot* const slot = reader.peek(mark);
    if (slot == nullptr) return std::nullopt;
    Arrived arrived{.channel = slot->channel, .kind = mark.kind, .bytes = {}};
    arrived.bytes.resize(mark.kind == SlotKind::put_done ? 0 : mark.length);
    if (mark.kind == SlotKind::inline_data) {
      UNET_CHECK(mark.length <= kInlineMax);
      if (mark.length != 0) std::memcpy(arrived.bytes.data(), slot->payload, mark.length);
    } else if (mark.kind == SlotKind::put_done) {
      std::memcpy(&arrived.put_done, slot->payload, sizeof arrived.put_done);
      UNET_CHECK(arrived.put_done.length == mark.length);
    } else {
      UNET_CHECK(mark.kind == SlotKind::runs);
      std::memcpy(&arrived.runs, slot->payload, sizeof arrived.runs);
      gather(arrived, keep);
    }
    reader.advance();
    if (!keep) reader.give_back_now(reader.position());
    return arrived;
  }

  uint64_t counter(EndpointCounter which) const { return header->counters[static_cast<size_t>(which)].load(std::memory_order_relaxed); }

  uint32_t number;
  SegmentGeometry geometry;
  void* guarded = nullptr;
  std::byte* segment = nullptr;
  SegmentHeader* header = nullptr;
  SlotWriter writer;
  SlotReader reader;
  FreeWriter free_writer;

 private:
  void gather(Arrived& arrived, bool keep) {
    size_t done = 0;
    for (const Run& run : arrived.runs.runs) {
      if (run.count == 0) break;
      UNET_CHECK(uint32_t{run.first} + run.count <= geometry.buffers);
      const size_t part = std::min<size_t>(arrived.bytes.size() - done, size_t{run.count} * geometry.buffer_size);
      std::memcpy(arrived.bytes.data() + done, segment + geometry.receive_data + size_t{run.first} * geometry.buffer_size, part);
      done += part;
      for (uint32_t i = 0; i < run.count && !keep; ++i) free_writer.push(run.first + i);
    }
    UNET_CHECK(done == arrived.bytes.size());
  }
};

// An engine, one client, and endpoints numbered from 0, with doorbells of the same numbers.
class TestNi {
 public:
  static constexpr uint32_t kClient = 0;

  explicit TestNi(std::vector<TestWire*> wires = {}, EngineOptions options = {}, EngineCheckpoint checkpoint = {}) {
    std::vector<std::unique_ptr<Driver>> drivers;
    for (TestWire* wire : wires) drivers.push_back(std::make_unique<TestPort>(*wire));
    start(std::move(drivers), options, nullptr, std::move(checkpoint));
  }
  TestNi(std::vector<std::unique_ptr<Driver>>&& drivers, EngineOptions options) { start(std::move(drivers), options); }
  // One of several engines. Its endpoints have numbers, and so doorbells, that are its own.
  TestNi(std::vector<std::unique_ptr<Driver>>&& drivers, Links& links)
      : first_number(links.engine() * 64) {
    start(std::move(drivers), {}, &links);
  }
  explicit TestNi(std::unique_ptr<Driver> driver, EngineOptions options = {}) {
    std::vector<std::unique_ptr<Driver>> drivers;
    drivers.push_back(std::move(driver));
    start(std::move(drivers), options);
  }
  ~TestNi() {
    engine.reset();
    if (wake >= 0) close(wake);
  }

  TestEndpoint& add_endpoint(const EndpointOptions& options = kSmallEndpoint, uint32_t weight = 1, uint32_t user = 0) {
    const auto number = first_number + static_cast<uint32_t>(endpoints.size());
    endpoints.push_back(std::make_unique<TestEndpoint>(number, options));
    TestEndpoint& e = *endpoints.back();
    command(AttachEndpoint{.endpoint = number, .client = kClient, .doorbell = number, .segment = e.segment, .geometry = e.geometry,
                           .user = user, .weight = weight});
    e.post_all_buffers();
    return e;
  }
  // Takes over the endpoints of an engine that has ended.
  void take_over(TestNi& other) {
    other.engine.reset();
    endpoints = std::move(other.endpoints);
    for (const auto& e : endpoints) {
      command(AttachEndpoint{.endpoint = e->number, .client = kClient, .doorbell = e->number, .segment = e->segment,
                             .geometry = e->geometry, .user = 0, .resume = true});
    }
  }
  // Both directions of a channel between endpoints of this NI.
  void hairpin(TestEndpoint& a, uint32_t channel_a, TestEndpoint& b, uint32_t channel_b) {
    command(OpenHairpin{a.number, channel_a, b.number, channel_b});
    command(OpenHairpin{b.number, channel_b, a.number, channel_a});
  }
  void wire(TestEndpoint& e, uint32_t channel, uint32_t local_tag, uint32_t remote_tag, MacAddress remote, uint32_t port = 0) {
    command(OpenWire{e.number, channel, Tag{local_tag}, Tag{remote_tag}, remote, port});
  }
  // Makes the eventfd that wakes the endpoint, and keeps it open.
  int wake_descriptor(TestEndpoint& e) {
    wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    command(SetWakeDescriptor{e.number, wake});
    return wake;
  }
  void command(const Command& command) { UNET_CHECK(commands.push(command)); }

  uint32_t poll(uint32_t turns = 1) {
    uint32_t work = 0;
    for (uint32_t i = 0; i < turns; ++i) work += engine->poll(now);
    return work;
  }
  // Rings for every endpoint, then polls until nothing is left to do.
  void run() {
    for (const auto& e : endpoints) e->ring(page);
    for (uint32_t idle = 0, turns = 0; idle < 3; ++turns) {
      UNET_CHECK(turns < 1'000'000);
      idle = engine->poll(now) == 0 ? idle + 1 : 0;
    }
  }
  template <typename T>
  std::optional<T> event() {
    const Event* front = events.front();
    if (!std::is_same_v<T, HostCheckpointed>) {  // skipped unless it is the awaited event
      for (; front != nullptr && std::holds_alternative<HostCheckpointed>(*front); front = events.front()) events.pop();
    }
    if (front == nullptr || !std::holds_alternative<T>(*front)) return std::nullopt;
    const T event = std::get<T>(*front);
    events.pop();
    return event;
  }
  uint64_t counter(NiCounter which) const { return engine->ni_counter(which); }

  CommandMailbox commands;
  EventMailbox events;
  ClientPage page{};
  Nanoseconds now = kSecond;
  std::vector<std::unique_ptr<TestEndpoint>> endpoints;
  std::unique_ptr<Engine> engine;
  int wake = -1;
  uint32_t first_number = 0;

 private:
  void start(std::vector<std::unique_ptr<Driver>> drivers, const EngineOptions& options, Links* links = nullptr,
             EngineCheckpoint checkpoint = {}) {
    engine = std::make_unique<Engine>(options, std::move(drivers), commands, events, -1, links, std::move(checkpoint));
    command(AttachClient{kClient, &page});
  }
};

// The sum of all drops of an endpoint, and of the NI; for tests that expect one counter and no other.
inline uint64_t endpoint_drops(const TestEndpoint& e) {
  uint64_t sum = 0;
  for (auto i = static_cast<size_t>(kFirstEndpointDrop); i < kEndpointCounters; ++i) sum += e.counter(static_cast<EndpointCounter>(i));
  return sum;
}
inline uint64_t ni_drops(const TestNi& ni) {
  uint64_t sum = 0;
  for (auto i = static_cast<size_t>(kFirstNiDrop); i < kNiCounters; ++i) sum += ni.counter(static_cast<NiCounter>(i));
  return sum;
}

}  // namespace unet::engine
