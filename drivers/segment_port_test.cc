// segment_port_test.cc - bursts through a port over a fake kernel: frames sent, received and refused.
#include "drivers/segment_port.h"

#include <sys/eventfd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <random>

#include "unet/base/bytes.h"

using namespace unet;
using namespace unet::drivers;

namespace {

using Content = std::vector<std::byte>;

Content content(size_t size, int seed) {
  Content bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + static_cast<size_t>(seed));
  return bytes;
}

// A frame of IPv4 and TCP, in the fields that a port reads.
Content stream_frame(size_t size, int seed) {
  Content bytes = content(size, seed);
  const std::array<uint8_t, 12> head{0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6};
  std::memcpy(bytes.data() + 12, head.data(), head.size());
  return bytes;
}

class TestSegmentPort final : public SegmentPort {
 public:
  explicit TestSegmentPort(bool segments) : SegmentPort({.address = {2, 0, 0, 0, 0, 1}}, ::eventfd(0, EFD_CLOEXEC), segments) {}
  std::string description() const override { return "test"; }

  struct Arriving {
    VnetHeader header{};
    Content bytes;
  };
  std::deque<Arriving> arriving;
  struct Sent {
    VnetHeader header{};
    Content bytes;
  };
  std::deque<Sent> sent;
  std::deque<int> errors;  // results of the next writes; 0: success
  uint32_t takes = 1000;   // frames that it still takes
  std::optional<std::byte> never;  // frames that begin with this byte are always refused
  bool busy = false;       // refuses every frame now
  size_t asked = 0;        // frames requested by the last read

 private:
  uint32_t read(std::span<Transfer> transfers) noexcept override {
    asked = transfers.size();
    uint32_t count = 0;
    for (; count < transfers.size() && !arriving.empty(); ++count, arriving.pop_front()) {
      Transfer& transfer = transfers[count];
      const Arriving& from = arriving.front();
      std::memcpy(transfer.pieces[0].iov_base, &from.header, sizeof from.header);
      const size_t bytes = std::min(from.bytes.size(), transfer.pieces[1].iov_len);
      if (bytes != 0) std::memcpy(transfer.pieces[1].iov_base, from.bytes.data(), bytes);
      transfer.length = static_cast<uint32_t>(sizeof from.header + bytes);
      transfer.cut = bytes == transfer.pieces[1].iov_len;
    }
    return count;
  }
  int write(std::span<Transfer> transfers) noexcept override {
    int error = 0;
    if (!errors.empty()) error = errors.front(), errors.pop_front();
    if (takes == 0 && error == 0) error = EAGAIN;
    if (error != 0) return errno = error, -1;
    int count = 0;
    for (; static_cast<size_t>(count) < transfers.size() && takes != 0; ++count, --takes) {
      const Transfer& transfer = transfers[static_cast<size_t>(count)];
      if (busy || (never && *static_cast<const std::byte*>(transfer.pieces[1].iov_base) == *never)) {
        return errno = ENOBUFS, count == 0 ? -1 : count;
      }
      Sent one;
      std::memcpy(&one.header, transfer.pieces[0].iov_base, sizeof one.header);
      for (uint32_t i = 1; i < transfer.count; ++i) {
        const auto* const from = static_cast<const std::byte*>(transfer.pieces[i].iov_base);
        one.bytes.insert(one.bytes.end(), from, from + transfer.pieces[i].iov_len);
      }
      sent.push_back(std::move(one));
    }
    return count;
  }
  bool is_full(int error) const noexcept override { return error == EAGAIN || error == ENOBUFS; }
};

uint64_t counter(const Driver& port, const std::string& name) {
  for (const DriverCounter& each : port.counters()) {
    if (each.name == name) return each.value;
  }
  FAIL("no counter " << name);
  return 0;
}

constexpr VnetHeader kSegments{.flags = VnetHeader::kNeedsChecksum, .kind = VnetHeader::kTcp4, .segment_size = 1448, .checksum_start = 34,
                               .checksum_offset = 16};

}  // namespace

TEST_CASE("a port says what it can") {
  TestSegmentPort port(true), plain(false);
  CHECK((port.capabilities().segments_max > 60'000 && port.capabilities().external_payload));
  CHECK((plain.capabilities().segments_max == 0 && !plain.capabilities().udp_segments && plain.capabilities().external_payload));
}

TEST_CASE("frames arrive with what their headers say, for ever") {
  TestSegmentPort port(true);
  std::array<ReceivedFrame, 32> frames{};
  for (int round = 0; round < 50; ++round) {
    std::vector<Content> expected;
    for (int i = 0; i < 8; ++i) {
      expected.push_back(stream_frame(i % 2 == 0 ? 65'000 : 60, round + i));
      port.arriving.push_back({i % 2 == 0 ? kSegments : VnetHeader{}, expected.back()});
    }
    for (size_t seen = 0; seen < expected.size();) {
      const uint32_t count = port.receive(frames, 0);
      REQUIRE(count != 0);
      for (uint32_t i = 0; i < count; ++i, ++seen) {
        CHECK(Content(frames[i].data, frames[i].data + frames[i].length) == expected[seen]);
        CHECK(frames[i].segment_size == (seen % 2 == 0 ? 1448 : 0));
        CHECK(frames[i].checked == (seen % 2 == 0));
      }
      port.release({frames.data(), count});
    }
  }
  CHECK(counter(port, "rx_frames") == 400);
  CHECK(counter(port, "rx_segments") == 200);
}

TEST_CASE("after long frames few are read at a time, and many again after short ones") {
  TestSegmentPort port(true);
  std::array<ReceivedFrame, 32> frames{};
  const auto receive = [&](size_t size, int count) {
    for (int i = 0; i < count; ++i) port.arriving.push_back({size > 1514 ? kSegments : VnetHeader{}, stream_frame(size, i)});
    const uint32_t came = port.receive(frames, 0);
    port.release({frames.data(), came});
    return came;
  };
  CHECK(receive(1000, 32) == 32);
  CHECK(receive(1000, 3) == 3);
  CHECK(receive(60'000, 3) == 3);
  CHECK(receive(60'000, 8) == 4);
  CHECK(receive(60'000, 0) == 4);
  CHECK(receive(100, 4) == 4);
  CHECK(receive(100, 32) == 32);
  CHECK(receive(100, 0) == 0);
  CHECK(receive(100, 8) == 1);  // after an empty read it asks for one
  CHECK(receive(100, 0) == 7);
}

TEST_CASE("what does not fit or contradicts itself is dropped and counted, and the others arrive") {
  TestSegmentPort port(true);
  std::array<ReceivedFrame, 32> frames{};
  VnetHeader bad = kSegments;
  bad.checksum_start = 65'535;
  port.arriving.push_back({{}, stream_frame(1515, 1)});      // one packet, longer than the MTU
  port.arriving.push_back({kSegments, stream_frame(65'550, 1)});
  port.arriving.push_back({bad, stream_frame(3000, 1)});
  port.arriving.push_back({{}, stream_frame(60, 1)});
  port.arriving.push_back({{}, content(13, 1)});
  port.arriving.push_back({{}, {}});
  port.arriving.push_back({kSegments, stream_frame(65'549, 1)});
  const uint32_t count = port.receive(frames, 0);
  REQUIRE(count == 2);
  CHECK((frames[0].length == 60 && frames[1].length == 65'549));
  port.release({frames.data(), count});
  CHECK(counter(port, "rx_oversize") == 2);
  CHECK(counter(port, "rx_bad_header") == 3);
  CHECK(counter(port, "rx_frames") == 2);
}

TEST_CASE("frames that nobody gives back leave the others where they are") {
  TestSegmentPort port(true);
  std::vector<ReceivedFrame> held;
  std::array<ReceivedFrame, 32> frames{};
  for (int i = 0; i < 200; ++i) port.arriving.push_back({{}, stream_frame(60, i)});
  for (int i = 0; i < 20; ++i) {
    const uint32_t count = port.receive(frames, 0);
    held.insert(held.end(), frames.begin(), frames.begin() + count);
  }
  CHECK((held.size() < 200 && held.size() + port.arriving.size() == 200));
  port.release(held);
  const size_t before = port.arriving.size();
  CHECK(port.receive(frames, 0) == std::min<size_t>(before, 32));
}

TEST_CASE("what is sent is what the engine wrote and what lies behind it") {
  TestSegmentPort port(true);
  const Content payload = content(60'000, 5);
  TransmitCompletion completion{.pending = 2};
  std::array<TransmitFrame, 3> frames{};
  REQUIRE(port.allocate(frames) == 3);
  for (TransmitFrame& frame : frames) {
    std::memset(frame.data, 0x45, 54);
    frame.length = 54;
  }
  for (TransmitFrame& frame : std::span(frames).first(2)) {
    frame.offload = {.segment_size = 1448, .transport_at = 34, .transport = TransmitOffload::Transport::tcp};
    frame.external = payload.data();
    frame.external_length = static_cast<uint32_t>(payload.size());
    frame.completion = &completion;
  }
  CHECK(port.transmit(frames, 0) == 3);
  CHECK(completion.pending == 0);
  REQUIRE(port.sent.size() == 3);
  CHECK((port.sent[0].header.kind == VnetHeader::kTcp4 && port.sent[0].header.segment_size == 1448));
  CHECK((port.sent[0].bytes.size() == 60'054 && std::equal(payload.begin(), payload.end(), port.sent[1].bytes.begin() + 54)));
  CHECK((port.sent[2].header.kind == VnetHeader::kNone && port.sent[2].bytes.size() == 54));
  CHECK((counter(port, "tx_frames") == 3 && counter(port, "tx_segments") == 2 && counter(port, "tx_bytes") == 2 * 60'054 + 54));
}

TEST_CASE("what lies behind it may be several pieces") {
  TestSegmentPort port(true);
  const uint32_t most = port.capabilities().external_pieces;
  REQUIRE(most > 1);
  const Content payload = content(60'000, 5);
  std::vector<Bytes> pieces;
  for (uint32_t i = 0; i < most; ++i) {
    const size_t begin = payload.size() * i * i / most / most, end = payload.size() * (i + 1) * (i + 1) / most / most;
    pieces.push_back(Bytes(payload).subspan(begin, end - begin));
  }
  TransmitCompletion completion{.pending = 1};
  TransmitFrame frame{};
  REQUIRE(port.allocate({&frame, 1}) == 1);
  std::memset(frame.data, 0x45, 54);
  frame.length = 54;
  frame.external = pieces[0].data();
  frame.external_length = static_cast<uint32_t>(pieces[0].size());
  frame.further = std::span(pieces).subspan(1);
  frame.completion = &completion;
  CHECK(frame.size() == 60'054);
  CHECK(port.transmit({&frame, 1}, 0) == 1);
  CHECK(completion.pending == 0);
  REQUIRE(port.sent.size() == 1);
  CHECK((port.sent[0].bytes.size() == 60'054 && std::equal(payload.begin(), payload.end(), port.sent[0].bytes.begin() + 54)));
  CHECK(counter(port, "tx_bytes") == 60'054);
}

TEST_CASE("a kernel that takes no more is asked again, and what it refuses is lost and counted") {
  TestSegmentPort port(true);
  const Content payload = content(2000, 5);
  TransmitCompletion completion{.pending = 4};
  std::array<TransmitFrame, 4> frames{};
  REQUIRE(port.allocate(frames) == 4);
  for (TransmitFrame& frame : frames) {
    std::memset(frame.data, 0x45, 54);
    frame.length = 54;
    frame.external = payload.data();
    frame.external_length = 2000;
    frame.completion = &completion;
  }
  port.takes = 1;
  CHECK(port.transmit(frames, 0) == 1);
  CHECK((completion.pending == 3 && counter(port, "tx_full") == 1));
  port.takes = 10;
  port.errors = {EMSGSIZE, ENXIO, 0};
  CHECK(port.transmit(std::span(frames).subspan(1), 0) == 3);
  CHECK((completion.pending == 0 && port.sent.size() == 2));
  CHECK((counter(port, "tx_oversize") == 1 && counter(port, "tx_errors") == 1 && counter(port, "tx_frames") == 2));
  // All buffers are free again.
  for (int i = 0; i < 100; ++i) {
    REQUIRE(port.allocate(frames) == 4);
    i % 2 == 0 ? port.discard(frames) : void();
    if (i % 2 != 0) {
      for (TransmitFrame& frame : frames) frame = {.data = frame.data, .length = 54, .handle = frame.handle};
      port.takes = 10;
      REQUIRE(port.transmit(frames, 0) == 4);
    }
  }
}

namespace {

// An engine with frames to send: refused frames stay at the front.
struct Queue {
  explicit Queue(Driver& port) : port(port) {}
  void put(uint8_t content) {
    TransmitFrame frame{};
    REQUIRE(port.allocate({&frame, 1}) == 1);
    std::memset(frame.data, content, 60);
    frame.length = 60;
    frames.push_back(frame);
  }
  // Returns the time until the queue is empty.
  Nanoseconds drain() {
    const Nanoseconds begin = now;
    for (; !frames.empty() && now - begin < 100 * kSecond; now += 50 * kMicrosecond) {
      const uint32_t taken = port.transmit(frames, now);
      frames.erase(frames.begin(), frames.begin() + taken);
    }
    return now - begin;
  }
  Driver& port;
  std::vector<TransmitFrame> frames;
  Nanoseconds now = 1000 * kSecond;
};

}  // namespace

TEST_CASE("a frame that the kernel refuses for ever stops nobody, and whoever sends such frames soon has no way to") {
  TestSegmentPort port(true);
  port.never = std::byte{0xBB};
  Queue queue(port);
  queue.put(0xBB);
  queue.put(1);
  CHECK(queue.drain() <= Refusals::kPatience + kMillisecond);
  CHECK((counter(port, "tx_refused") == 1 && port.sent.size() == 1));
  // Send them alone, in bursts, and among frames that the kernel takes at once. After the first one, they cost almost no time.
  for (const int burst : {1, 32}) {
    CAPTURE(burst);
    Nanoseconds took = 0;
    constexpr int kBursts = 1000;
    const uint64_t before = counter(port, "tx_refused");
    for (int i = 0; i < kBursts; ++i) {
      for (int k = 0; k < burst; ++k) queue.put(0xBB);
      queue.put(static_cast<uint8_t>(i % 100));
      took += queue.drain();
      port.takes = 1000;
    }
    const auto refused = static_cast<Nanoseconds>(kBursts * burst);
    CHECK(counter(port, "tx_refused") == before + refused);
    CHECK(took < (refused + kBursts) * 60 * kMicrosecond + 2 * Refusals::kPatience);  // a poll every 50 us
  }
  CHECK(port.sent.size() == 1 + 2 * 1000);
}

TEST_CASE("however a full queue and frames that are never taken mix, what is waited in vain is bounded") {
  std::mt19937_64 random(11);
  for (int run = 0; run < 20; ++run) {
    CAPTURE(run);
    Refusals refusals;
    Nanoseconds now = 1000 * kSecond, vain = 0, worth = 0;
    const Nanoseconds begin = now;
    const Nanoseconds longest = 50 * kMicrosecond << random() % 9;
    for (int i = 0; i < 5000; ++i) {
      const Nanoseconds from = now;
      const bool never = random() % 3 != 0;
      const Nanoseconds room_at = now + random() % longest;  // for the other frames
      while (true) {
        if (!never && now >= room_at) {
          refusals.taken(now);
          worth += now - from;
          break;
        }
        if (refusals.give_up(now)) {
          vain += now - from;
          break;
        }
        now += 10 * kMicrosecond;
      }
      now += random() % (20 * kMicrosecond);
    }
    CHECK(vain <= Refusals::kPatience + worth + (now - begin) / Refusals::kShare + 5000 * 10 * kMicrosecond);
    CHECK(vain >= Refusals::kPatience);  // the port did wait
  }
}

TEST_CASE("a queue of the kernel's that is full loses nothing while it has room from time to time") {
  TestSegmentPort port(true);
  Queue queue(port);
  for (int i = 0; i < 2000; ++i) {
    queue.put(static_cast<uint8_t>(i % 100));
    port.busy = i % 10 != 0;
    port.takes = 1000;
    queue.frames.erase(queue.frames.begin(), queue.frames.begin() + port.transmit(queue.frames, queue.now));
    queue.now += kMillisecond;
  }
  port.busy = false;
  queue.drain();
  CHECK(counter(port, "tx_refused") == 0);
  CHECK(port.sent.size() == 2000);
  // A kernel that stays full for longer loses the waiting frames; after some time the port waits again.
  for (int i = 0; i < 20; ++i) queue.put(7);
  const auto stand_still = [&](Nanoseconds time) {
    port.busy = true;
    for (const Nanoseconds until = queue.now + time; queue.now < until; queue.now += kMillisecond) {
      queue.frames.erase(queue.frames.begin(), queue.frames.begin() + port.transmit(queue.frames, queue.now));
    }
    port.busy = false;
  };
  stand_still(Refusals::kPatience - kMillisecond);
  CHECK(counter(port, "tx_refused") == 0);
  stand_still(100 * kMillisecond);
  CHECK(counter(port, "tx_refused") == 20);
  queue.now += Refusals::kShare * Refusals::kPatience;
  queue.put(7);
  stand_still(Refusals::kPatience - kMillisecond);
  queue.drain();
  CHECK(counter(port, "tx_refused") == 20);
  CHECK(port.sent.size() == 2001);
}
