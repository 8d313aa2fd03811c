// sleep_stress_test.cc - clients and an engine that sleep whenever they can: no message may be left in a queue; runs under TSan.
//
// Each thread sleeps in poll(2) with a time limit that only a lost wake-up can reach. The test counts those.
#include <poll.h>

#include <catch2/catch.hpp>
#include <thread>

#include "ni/engine/test_ni.h"
#include "unet/base/fence.h"
#include "unet/base/time.h"

namespace unet::engine::sleep_stress_test {
namespace {

constexpr int kLost = 60'000;  // a waking thread may be without a core for seconds

// An eventfd and a thread that sleeps on it.
class Bed {
 public:
  Bed() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Bed() { close(descriptor_); }
  int descriptor() const { return descriptor_; }
  // False: a lost wake-up.
  bool sleep() {
    pollfd each{.fd = descriptor_, .events = POLLIN, .revents = 0};
    if (::poll(&each, 1, kLost) != 1) return false;
    uint64_t value;
    return read(descriptor_, &value, sizeof value) == sizeof value;
  }
  void wake() {
    const uint64_t one = 1;
    static_cast<void>(!write(descriptor_, &one, sizeof one));
  }

 private:
  int descriptor_;
};

// Small waits that differ, so that the threads meet at every point of each other's way to sleep.
class Dither {
 public:
  explicit Dither(uint32_t seed) : state_(seed) {}
  uint32_t below(uint32_t limit) {
    state_ = state_ * 1664525u + 1013904223u;
    return (state_ >> 8) % limit;
  }
  void wait() {
    for (uint32_t i = below(4) == 0 ? below(2'000) : below(100); i > 0; --i) spin_pause();
  }

 private:
  uint32_t state_;
};

void send(TestEndpoint& e, ClientPage& page, Bed& engine, uint32_t value) {
  UNET_CHECK(e.post(0, SlotKind::inline_data, 4, &value, 4));
  light_fence();
  if (e.watched()) return;
  e.ring(page);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (page.engine_asleep.value.load(std::memory_order_relaxed) != 0) engine.wake();
}

// Waits for a message, or for room in the send queue. False: a wake-up was lost.
template <typename Ready>
bool wait(std::atomic<uint32_t>& announce, Bed& bed, Dither& dither, Ready&& ready) {
  for (uint32_t i = dither.below(1'000); i > 0 && !ready(); --i) spin_pause();
  while (!ready()) {
    announce.store(1, std::memory_order_relaxed);
    heavy_fence();
    if (ready()) break;
    if (!bed.sleep()) return false;
  }
  announce.store(0, std::memory_order_relaxed);
  return true;
}

}  // namespace

TEST_CASE("no wake-up is lost between clients and an engine that sleep whenever they can") {
  constexpr uint32_t kMessages = 40'000;
  TestNi ni(std::vector<TestWire*>{}, {.watch_time = 20 * kMicrosecond});
  constexpr EndpointOptions kShallow{.send_depth = 4, .receive_depth = 4096};
  TestEndpoint& a = ni.add_endpoint(kShallow);
  TestEndpoint& b = ni.add_endpoint(kShallow);
  ni.hairpin(a, 0, b, 0);
  Bed engine_bed, a_bed, b_bed;
  ni.command(SetWakeDescriptor{a.number, a_bed.descriptor()});
  ni.command(SetWakeDescriptor{b.number, b_bed.descriptor()});
  ni.poll();
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> lost{0};

  std::thread engine([&] {
    uint32_t idle = 0;
    Dither dither(1);
    while (!stop.load(std::memory_order_relaxed)) {
      ni.now += kMicrosecond;
      idle = ni.engine->poll(ni.now) != 0 ? 0 : idle + 1;
      if (idle <= dither.below(4) || !ni.engine->prepare_sleep(ni.now)) continue;
      if (!engine_bed.sleep() && !stop.load(std::memory_order_relaxed)) ++lost;
      ni.engine->wake_up();
      idle = 0;
    }
  });
  // a sends, now alone and now so many that it waits for room; b answers the last of each burst.
  const auto ends_burst = [](uint32_t i) { return i % 16 < 8 || i % 16 == 15; };
  std::thread client([&] {
    Mark mark{};
    Dither dither(2);
    for (uint32_t i = 0; i < kMessages; ++i) {
      dither.wait();
      if (!wait(a.header->sender_waiting.value, a_bed, dither, [&] { return a.writer.reserve() != nullptr; })) ++lost;
      if (a.writer.reserve() == nullptr) return;
      send(a, ni.page, engine_bed, i);
      if (!ends_burst(i)) continue;
      if (!wait(a.header->receiver_asleep.value, a_bed, dither, [&] { return a.reader.peek(mark) != nullptr; })) ++lost;
      if (!a.receive().has_value()) return;
    }
  });
  uint32_t wrong = 0;
  Dither dither(3);
  for (uint32_t i = 0; i < kMessages; ++i) {
    Mark mark{};
    if (!wait(b.header->receiver_asleep.value, b_bed, dither, [&] { return b.reader.peek(mark) != nullptr; })) ++lost;
    const auto message = b.receive();
    if (!message.has_value()) break;
    if (std::memcmp(message->bytes.data(), &i, 4) != 0) ++wrong;
    if (ends_burst(i)) {
      dither.wait();
      if (b.writer.reserve() == nullptr &&
          !wait(b.header->sender_waiting.value, b_bed, dither, [&] { return b.writer.reserve() != nullptr; }))
        ++lost;
      send(b, ni.page, engine_bed, i);
    }
  }
  client.join();
  stop = true;
  engine_bed.wake();
  engine.join();
  CHECK(lost == 0);
  CHECK(wrong == 0);
  CHECK(b.counter(EndpointCounter::received_messages) == kMessages);
  CHECK(ni.counter(NiCounter::wakeups) > 0);
}

}  // namespace unet::engine::sleep_stress_test
