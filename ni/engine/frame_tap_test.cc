// frame_tap_test.cc - which frames a capture has, and that the engine stays inside of its memory whatever the reader writes.
#include "ni/engine/frame_tap.h"

#include <catch2/catch.hpp>

#include <random>

namespace unet::engine::frame_tap_test {
namespace {

constexpr MacAddress kOwn{2, 0, 0, 0, 0, 1}, kPeer{2, 0, 0, 0, 0, 2}, kOther{2, 0, 0, 0, 0, 3};
constexpr uint32_t kBytes = kCaptureBytesMin;

// The memory between inaccessible pages.
struct Memory {
  static constexpr size_t kWall = 4096;
  struct alignas(kCapturePage) Page {
    std::byte bytes[kCapturePage];
  };
  Memory() : pages(1 + 1 + kBytes / kCapturePage + 1) {
    std::memset(static_cast<void*>(pages.data()), 0, pages.size() * sizeof(Page));
    std::memset(static_cast<void*>(&pages.front()), 0xCD, kWall);
    std::memset(static_cast<void*>(&pages.back()), 0xCD, kWall);
  }
  std::byte* data() { return pages[1].bytes; }
  CaptureHeader& header() { return *reinterpret_cast<CaptureHeader*>(data()); }
  bool walls_stand() const {
    for (size_t i = 0; i < kWall; ++i) {
      if (pages.front().bytes[i] != std::byte{0xCD} || pages.back().bytes[i] != std::byte{0xCD}) return false;
    }
    return true;
  }
  std::vector<Page> pages;
};

struct Seen {
  CaptureRecord record;
  std::vector<std::byte> bytes;
};

struct World {
  World() {
    endpoint.channel_memory.resize(4);
    endpoint.channels = endpoint.channel_memory.data();
    endpoint.channel_count = 4;
    open(endpoint, 1, kPeer, Tag{0x10001}, Tag{0x50005});
    open(endpoint, 2, kPeer, Tag{0x10002}, Tag{0x50006});
  }
  void open(EndpointState& e, uint32_t channel, const MacAddress& remote, Tag local, Tag there) {
    ChannelState& state = e.channels[channel];
    state.kind = ChannelKind::wire;
    state.remote = remote;
    state.local_tag = local;
    state.remote_tag = there;
    tags.open(local, {.endpoint = &e, .source = source_key(remote, 0), .tag = local, .channel = channel});
  }
  StartCapture what() {
    return {.capture = 3, .memory = memory.data(), .bytes = kBytes, .snap_length = 65535, .port = -1, .endpoint = kNone, .channel = kNone};
  }
  StartCapture what_endpoint(uint32_t channel = kNone) {
    StartCapture start = what();
    start.endpoint = 7;
    start.channel = channel;
    return start;
  }
  std::vector<std::byte> frame(const MacAddress& to, const MacAddress& from, Tag tag, uint32_t length) {
    std::vector<std::byte> bytes(kFrameOverhead + length, std::byte{0x77});
    emit_frame(bytes.data(), {.to = to, .from = from, .tag = tag, .total = length}, length);
    return bytes;
  }
  void receive(const MacAddress& from, Tag tag, uint32_t length = 20, uint32_t port = 0) {
    const auto bytes = frame(kOwn, from, tag, length);
    const ReceivedFrame received{.data = bytes.data(), .length = static_cast<uint32_t>(bytes.size())};
    taps.received(port, {&received, 1}, ++now);
  }
  void send(const MacAddress& to, Tag tag, uint32_t length = 20, uint32_t port = 0) {
    auto bytes = frame(to, kOwn, tag, length);
    const TransmitFrame sent{.data = bytes.data(), .length = static_cast<uint32_t>(bytes.size())};
    taps.sent(port, {&sent, 1}, ++now);
  }
  // Takes what there is, as the reader does.
  std::vector<Seen> read() {
    std::vector<Seen> all;
    while (reader.next()) all.push_back({reader.record(), {reader.frame().begin(), reader.frame().end()}});
    REQUIRE_FALSE(reader.broken());
    return all;
  }

  Memory memory;
  TagTable tags;
  EndpointState endpoint;
  FrameTaps taps{tags};
  Nanoseconds now = 100;
  CaptureReader reader{CaptureRing(memory.data(), kBytes)};
};

}  // namespace

TEST_CASE("a capture of everything keeps both directions, in order, with times and bytes") {
  World w;
  CHECK_FALSE(w.taps.wants_port(0));
  w.taps.start(w.what(), nullptr);
  CHECK(w.taps.wants_port(0));
  CHECK(w.taps.wants_port(9));
  w.receive(kPeer, Tag{0x10001}, 33);
  w.send(kOther, Tag{0x99}, 0);
  w.receive(kOther, kSignallingTag, 1000, 5);
  const auto seen = w.read();
  REQUIRE(seen.size() == 3);
  CHECK(seen[0].record.time == 101);
  CHECK(seen[0].record.outbound == 0);
  CHECK(seen[0].bytes == w.frame(kOwn, kPeer, Tag{0x10001}, 33));
  CHECK(seen[1].record.outbound == 1);
  CHECK(seen[1].bytes == w.frame(kOther, kOwn, Tag{0x99}, 0));
  CHECK(seen[2].record.port == 5);
  CHECK(seen[2].record.length == kFrameOverhead + 1000);
  CHECK(w.memory.header().frames == 3);
  w.taps.stop(3);
  CHECK(w.memory.header().ended == 1);
  CHECK_FALSE(w.taps.wants_port(0));
  w.receive(kPeer, Tag{0x10001});
  CHECK(w.read().empty());
}

TEST_CASE("a capture of a port, and one that keeps the beginnings only") {
  World w;
  StartCapture what = w.what();
  what.port = 2;
  what.snap_length = 40;
  w.taps.start(what, nullptr);
  CHECK(w.taps.wants_port(2));
  CHECK_FALSE(w.taps.wants_port(0));
  w.receive(kPeer, Tag{1}, 500, 0);
  w.receive(kPeer, Tag{1}, 500, 2);
  const auto seen = w.read();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].record.captured == 40);
  CHECK(seen[0].record.length == kFrameOverhead + 500);
}

TEST_CASE("payload that the port reads in place is put behind the headers") {
  World w;
  StartCapture what = w.what();
  w.taps.start(what, nullptr);
  std::vector<std::byte> headers(kFrameOverhead, std::byte{1}), payload(1000, std::byte{2});
  const TransmitFrame sent{.data = headers.data(), .length = kFrameOverhead, .external = payload.data(), .external_length = 1000};
  w.taps.sent(0, {&sent, 1}, 5);
  const auto seen = w.read();
  REQUIRE(seen.size() == 1);
  REQUIRE(seen[0].bytes.size() == kFrameOverhead + 1000);
  CHECK(seen[0].bytes[kFrameOverhead - 1] == std::byte{1});
  CHECK(seen[0].bytes[kFrameOverhead] == std::byte{2});
}

TEST_CASE("a capture of an endpoint sees its own frames and nobody else's") {
  World w;
  EndpointState other;
  other.channel_memory.resize(1);
  other.channels = other.channel_memory.data();
  other.channel_count = 1;
  w.open(other, 0, kPeer, Tag{0x10009}, Tag{0x50009});
  w.taps.start(w.what_endpoint(), &w.endpoint);
  w.receive(kPeer, Tag{0x10001}, 1);
  w.receive(kPeer, Tag{0x10002}, 2);
  w.send(kPeer, Tag{0x50005}, 3);
  w.send(kPeer, Tag{0x50006}, 4);
  CHECK(w.read().size() == 4);
  w.receive(kPeer, Tag{0x10009});        // another endpoint's
  w.receive(kOther, Tag{0x10001});       // the tag, from another station
  w.receive(kPeer, Tag{0x10001}, 20, 1); // ... by another port
  w.receive(kPeer, Tag{0x20001});        // of another time
  w.receive(kPeer, kSignallingTag);
  w.send(kPeer, Tag{0x50009});
  w.send(kOther, Tag{0x50005});
  w.send(kPeer, Tag{0x50005}, 20, 1);
  w.send(kPeer, kSignallingTag);
  CHECK(w.read().empty());
  CHECK(w.memory.header().frames == 4);
}

TEST_CASE("a capture of a channel, with channels that open and close meanwhile") {
  World w;
  w.taps.start(w.what_endpoint(2), &w.endpoint);
  w.receive(kPeer, Tag{0x10001});
  w.send(kPeer, Tag{0x50005});
  CHECK(w.read().empty());
  w.receive(kPeer, Tag{0x10002});
  w.send(kPeer, Tag{0x50006});
  CHECK(w.read().size() == 2);
  w.taps.closed(w.endpoint, 2, w.endpoint.channels[2]);
  w.send(kPeer, Tag{0x50006});
  CHECK(w.read().empty());
  w.endpoint.channels[2].remote_tag = Tag{0x60006};
  w.taps.opened(w.endpoint, 2, w.endpoint.channels[2]);
  w.send(kPeer, Tag{0x60006});
  CHECK(w.read().size() == 1);
}

TEST_CASE("a reader that does not read costs frames of the capture, which are counted") {
  World w;
  w.taps.start(w.what(), nullptr);
  for (int i = 0; i < 1000; ++i) w.receive(kPeer, Tag{1}, 1000);
  const uint64_t dropped = w.memory.header().dropped;
  const auto seen = w.read();
  CHECK(w.memory.header().frames == 1000);
  CHECK(seen.size() + dropped == 1000);
  CHECK(seen.size() == kBytes / capture_record_size(kFrameOverhead + 1000));
  w.receive(kPeer, Tag{1}, 1000);
  CHECK(w.read().size() == 1);
  CHECK(w.memory.walls_stand());
}

TEST_CASE("whatever the reader writes, the engine stays inside the memory, and a lie gives no room") {
  World w;
  w.taps.start(w.what(), nullptr);
  while (w.memory.header().dropped == 0) w.receive(kPeer, Tag{1}, 100);
  for (const uint64_t lie : {~uint64_t{0}, uint64_t{1}, w.memory.header().written + 8, uint64_t{kBytes} * 2, uint64_t{1} << 63}) {
    const uint64_t dropped = w.memory.header().dropped, written = w.memory.header().written;
    w.memory.header().read.store(lie);
    w.receive(kPeer, Tag{1}, 100);
    CHECK(w.memory.header().dropped == dropped + 1);
    CHECK(w.memory.header().written == written);
  }
  std::mt19937_64 random(11);
  for (int i = 0; i < 20000; ++i) {
    if (i % 7 == 0) w.memory.header().read.store(random() % 3 == 0 ? random() : w.memory.header().written - random() % 4096 / 8 * 8);
    if (i % 11 == 0) w.memory.data()[random() % (kCapturePage + kBytes)] = static_cast<std::byte>(random());
    w.receive(kPeer, Tag{1}, static_cast<uint32_t>(random() % 9000));
  }
  CHECK(w.memory.walls_stand());
}

}  // namespace unet::engine::frame_tap_test
