// put_test.cc - puts over a wire that loses: what did not arrive does not count, and nothing waits for it for ever.
#include "apps/bench/workloads/put.h"

#include <catch2/catch.hpp>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

namespace unet::bench::put_workload_test {

namespace {

constexpr size_t kRegion = 64 * 1024;
constexpr uint32_t kSize = 1000;

// A wire between two threads. Packets with a number in `lost` do not arrive.
struct LossyWire {
  struct Packet {
    size_t offset;
    std::vector<std::byte> data;  // empty: a mark
  };
  std::mutex mutex;
  std::deque<Packet> packets;
  std::set<uint64_t> lost;
  uint64_t number = 0;
  uint64_t bytes = 0;
  std::vector<std::byte> region = std::vector<std::byte>(kRegion);

  bool put(size_t offset, const std::byte* data, size_t size, bool) {
    const std::lock_guard lock(mutex);
    if (lost.count(number++) == 0) packets.push_back({offset, {data, data + size}});
    return true;
  }
  bool notify(size_t offset) { return put(offset, nullptr, 0, false); }
  void poll() { std::this_thread::yield(); }
  bool notified(uint64_t offset) {
    const std::lock_guard lock(mutex);
    if (packets.empty()) return false;
    const Packet packet = packets.front();
    packets.pop_front();
    std::copy(packet.data.begin(), packet.data.end(), region.begin() + static_cast<std::ptrdiff_t>(packet.offset));
    bytes += packet.data.size();
    return packet.data.empty() && packet.offset == offset;
  }
  uint64_t deposited() {
    const std::lock_guard lock(mutex);
    return bytes;
  }
};

struct Run {
  ControlBlock control;
  Slice slice{.workload = Workload::put, .size = kSize, .iterations = 200, .warm_up = 20};
  Outcome outcome;

  void over(LossyWire& wire) {
    std::vector<uint64_t> samples;
    const auto side = [&](Side which) {
      MessageBuffers buffers(kSize);
      RunContext context{which, control, StopFlag(control, true), samples};
      return WirePuts(wire, slice, wire.region, kRegion, buffers, context).run();
    };
    std::thread b([&] { side(Side::b); });
    outcome = side(Side::a);
    b.join();
  }
};

}  // namespace

TEST_CASE("put: consecutive offsets, and never past the region") {
  PutCursor cursor(1000, 3000);
  for (const size_t expected : {0u, 1000u, 2000u, 0u, 1000u}) {
    CHECK(cursor.next() == expected);
    CHECK(cursor.last() == expected);
  }
  PutCursor whole(kMessageMax, kMessageMax);
  CHECK((whole.next() == 0 && whole.next() == 0));
}

TEST_CASE("put: over a wire that loses nothing everything counts") {
  LossyWire wire;
  Run run;
  run.over(wire);
  CHECK(run.outcome.messages == 200);
  CHECK(run.control.stop.load() == StopReason::none);
}

TEST_CASE("put: what a wire loses does not count, in the warm-up or after") {
  LossyWire wire;
  wire.lost = {3, 21, 60, 219};  // the marks are 20 and 221
  Run run;
  run.over(wire);
  CHECK(run.outcome.messages == 197);
}

TEST_CASE("put: silence stands in for a mark that was lost") {
  LossyWire wire;
  wire.lost = {20, 100, 221};
  Run run;
  run.over(wire);
  CHECK(run.outcome.messages == 199);
}

TEST_CASE("put: what is late of an earlier slice ends nothing and does not count") {
  LossyWire wire;
  Run run;
  run.control.command_sequence.store(7);
  const std::vector<std::byte> late(kSize);
  for (const size_t mark : {12u, 13u}) {  // of slice 6
    wire.packets.push_back({0, late});
    wire.packets.push_back({mark, {}});
  }
  wire.lost = {21, 22};
  run.over(wire);
  CHECK(run.outcome.messages == 198);
}

TEST_CASE("put: bytes that arrive changed are noticed") {
  struct Changing : LossyWire {
    bool put(size_t offset, const std::byte* data, size_t size, bool more) {
      std::vector<std::byte> changed(data, data + size);
      if (size != 0) changed[0] ^= std::byte{1};
      return LossyWire::put(offset, changed.data(), size, more);
    }
    bool notify(size_t offset) { return LossyWire::put(offset, nullptr, 0, false); }
  };
  Changing wire;
  ControlBlock control;
  std::vector<uint64_t> samples;
  const Slice slice{.workload = Workload::put, .size = kSize, .iterations = 64, .warm_up = 1};
  const auto side = [&](Side which) {
    MessageBuffers buffers(kSize);
    RunContext context{which, control, StopFlag(control, true), samples};
    return WirePuts(wire, slice, wire.region, kRegion, buffers, context).run();
  };
  std::thread b([&] { side(Side::b); });
  side(Side::a);
  b.join();
  CHECK(control.stop.load() == StopReason::failed);
  CHECK(std::string(control.error_text) == "a put arrived changed");
}

namespace {

// Memory that both sides have. `wrong`: the reader gets something else.
struct Readable {
  ControlBlock& control;
  std::vector<std::byte>& region;
  bool wrong = false;
  uint64_t gets = 0;

  void poll() { std::this_thread::yield(); }
  bool get(std::byte* into, size_t offset, size_t size) {
    ++gets;
    std::memcpy(into, region.data() + offset, size);
    if (wrong) into[0] ^= std::byte{1};
    return true;
  }
  bool finish() { return true; }
  bool wait_until_over() {
    while (control.sent.load(std::memory_order_acquire) == 0) std::this_thread::yield();
    return true;
  }
};

struct Got {
  Outcome outcome;
  uint64_t gets = 0;
  bool failed = false;
};

Got get_over(uint32_t size, bool wrong) {
  ControlBlock control;
  std::vector<std::byte> region(kRegion);
  std::vector<uint64_t> samples;
  const Slice slice{.workload = Workload::get, .size = size, .iterations = 100, .warm_up = 10};
  Got got;
  const auto side = [&](Side which) {
    MessageBuffers buffers(kRegion);
    RunContext context{which, control, StopFlag(control, true), samples};
    Readable link{control, region, wrong};
    const Outcome outcome = get_loop(link, slice, {region.data(), region.size()}, buffers, context);
    if (which == Side::a) got.gets = link.gets, got.outcome = outcome;
  };
  std::thread b([&] { side(Side::b); });
  side(Side::a);
  b.join();
  got.failed = control.stop.load() == StopReason::failed;
  return got;
}

}  // namespace

TEST_CASE("get: what was read is what the other side wrote there, or the slice fails") {
  for (const uint32_t size : {8u, 1000u, 65536u}) {
    const Got got = get_over(size, false);
    CAPTURE(size);
    CHECK_FALSE(got.failed);
    CHECK(got.gets == 110);
    CHECK(got.outcome.messages == 100);
    CHECK(get_over(size, true).failed);
  }
}

}  // namespace unet::bench::put_workload_test
