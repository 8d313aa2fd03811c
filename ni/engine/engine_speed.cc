// engine_speed.cc - what the engine costs, in nanoseconds: idle turns, messages, traversals between cores; for profiling.
//
//   engine_speed [NAME...]     idle hairpin wire wire48 wire1472 traversal rate; all of them if none is named
//
// No test: it judges nothing. `perf record engine_speed hairpin` shows where a message's time goes. The numbers are the
// best of several runs, so that what else the machine does shows least. traversal and rate use cores 0 and 1.
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <thread>

#include "ni/engine/test_ni.h"
#include "unet/base/time.h"

namespace unet::engine {
namespace {

constexpr EndpointOptions kOptions{.send_depth = 256, .receive_depth = 256, .buffers = 256, .buffer_size = 2048, .send_bytes = 512 * 1024};

// The two ends of a wire that costs as little as a wire can: frames are handed over in place.
struct Loop {
  static constexpr uint32_t kFrames = 256;
  struct Frame {
    alignas(kCacheLine) std::byte data[2048];
    uint32_t length;
  };
  std::vector<Frame> frames{kFrames};
  std::vector<uint32_t> unused;
  std::deque<uint32_t>::size_type head[2] = {0, 0}, tail[2] = {0, 0};
  uint32_t queue[2][kFrames];
  Loop() {
    for (uint32_t i = 0; i < kFrames; ++i) unused.push_back(i);
  }
};

class LoopPort : public Driver {
 public:
  LoopPort(Loop& loop, uint32_t side) : loop_(loop), side_(side) {
    capabilities_.address = {2, 0, 0, 0, 0, static_cast<uint8_t>(side)};
  }
  const DriverCapabilities& capabilities() const noexcept override { return capabilities_; }
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds) noexcept override {
    uint32_t count = 0;
    for (; count < frames.size() && loop_.head[side_] != loop_.tail[side_]; ++count) {
      const uint32_t index = loop_.queue[side_][loop_.head[side_]++ % Loop::kFrames];
      frames[count] = {.data = loop_.frames[index].data, .length = loop_.frames[index].length, .handle = handle(index)};
    }
    return count;
  }
  void release(std::span<const ReceivedFrame> frames) noexcept override {
    for (const auto& frame : frames) loop_.unused.push_back(index(frame.handle));
  }
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override {
    uint32_t count = 0;
    for (; count < frames.size() && !loop_.unused.empty(); ++count) {
      const uint32_t index = loop_.unused.back();
      loop_.unused.pop_back();
      frames[count].data = loop_.frames[index].data;
      frames[count].handle = handle(index);
    }
    return count;
  }
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds) noexcept override {
    const uint32_t to = side_ ^ 1;
    for (const auto& frame : frames) {
      loop_.frames[index(frame.handle)].length = frame.length;
      loop_.queue[to][loop_.tail[to]++ % Loop::kFrames] = index(frame.handle);
    }
    return static_cast<uint32_t>(frames.size());
  }
  void discard(std::span<const TransmitFrame> frames) noexcept override {
    for (const auto& frame : frames) loop_.unused.push_back(index(frame.handle));
  }
  std::vector<DriverCounter> counters() const override { return {}; }
  std::string description() const override { return "loop"; }

 private:
  static void* handle(uint32_t index) noexcept { return reinterpret_cast<void*>(uintptr_t{index}); }
  static uint32_t index(void* handle) noexcept { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(handle)); }
  Loop& loop_;
  uint32_t side_;
  DriverCapabilities capabilities_;
};

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// Best of several runs of `count` calls, in nanoseconds per call.
template <typename F>
double best_of(uint32_t runs, uint32_t count, F&& f) {
  double best = 1e30;
  for (uint32_t run = 0; run < runs; ++run) {
    const uint64_t start = cycles();
    for (uint32_t i = 0; i < count; ++i) f();
    best = std::min(best, static_cast<double>(cycles() - start) / count);
  }
  return best * 1e9 / cycles_per_second();
}

bool take(TestEndpoint& e) {
  Mark mark{};
  const Slot* const slot = e.reader.peek(mark);
  if (slot == nullptr) return false;
  if (mark.kind == SlotKind::runs) {
    RunsDescriptor runs;
    std::memcpy(&runs, slot->payload, sizeof runs);
    for (const Run& run : runs.runs) {
      if (run.count == 0) break;  // what stands behind is of an earlier message
      for (uint32_t i = 0; i < run.count; ++i) e.free_writer.push(run.first + i);
    }
  }
  e.reader.advance();
  static_cast<void>(e.reader.give_back(e.reader.position()));
  return true;
}

void idle() {
  const auto turn = [](TestNi& ni) { return best_of(20, 20'000, [&] { ni.engine->poll(++ni.now); }); };
  for (const uint32_t watched : {0u, 1u, 2u, 16u, 64u}) {
    TestNi ni(std::vector<TestWire*>{}, {.watch_time = kSecond});
    for (uint32_t i = 0; i < watched; ++i) ni.add_endpoint(kOptions);
    ni.run();
    std::printf("idle turn, no port, %2u queues watched            %7.1f ns\n", watched, turn(ni));
  }
  Loop loop;
  TestNi ni(std::make_unique<LoopPort>(loop, 0), {.watch_time = kSecond});
  ni.add_endpoint(kOptions);
  ni.run();
  std::printf("idle turn, a port, 1 queue watched               %7.1f ns\n", turn(ni));
}

constexpr uint32_t kSizes[] = {8, 48, 49, 1'024, 1'472, 8'192, 65'536};

void one_core(const char* name, TestNi& ni, TestEndpoint& a, TestEndpoint& b, std::span<const uint32_t> sizes = kSizes) {
  const auto data = pattern(kMessageMax, 1);
  for (const uint32_t size : sizes) {
    const uint32_t count = size > 4'096 ? 500 : 5'000;
    const double single = best_of(20, count, [&] {
      UNET_CHECK(a.send(0, {data.data(), size}));
      while (!take(b)) ni.engine->poll(++ni.now);
    });
    const double burst = best_of(20, count / 32, [&] {
      for (int i = 0; i < 32 && a.send(0, {data.data(), size}); ++i) {
      }
      while (ni.engine->poll(++ni.now) != 0) {
        while (take(b)) {
        }
      }
    });
    std::printf("%s, one core, %5u B: alone %8.1f ns, in bursts of 32 %8.1f ns\n", name, size, single, burst / 32);
  }
}

void hairpin() {
  TestNi ni(std::vector<TestWire*>{}, {.watch_time = kSecond});
  TestEndpoint& a = ni.add_endpoint(kOptions);
  TestEndpoint& b = ni.add_endpoint(kOptions);
  ni.hairpin(a, 0, b, 0);
  ni.run();
  one_core("hairpin", ni, a, b);
}

void wire_of(std::span<const uint32_t> sizes) {
  Loop loop;
  std::vector<std::unique_ptr<Driver>> drivers;
  drivers.push_back(std::make_unique<LoopPort>(loop, 0));
  drivers.push_back(std::make_unique<LoopPort>(loop, 1));
  TestNi ni(std::move(drivers), {.watch_time = kSecond});
  TestEndpoint& a = ni.add_endpoint(kOptions);
  TestEndpoint& b = ni.add_endpoint(kOptions);
  ni.wire(a, 0, 0x10001, 0x10002, {2, 0, 0, 0, 0, 1}, 0);
  ni.wire(b, 0, 0x10002, 0x10001, {2, 0, 0, 0, 0, 0}, 1);
  ni.run();
  one_core("wire", ni, a, b, sizes);
}
void wire() { wire_of(kSizes); }
void wire48() {
  for (int i = 0; i < 10; ++i) wire_of({&kSizes[1], 1});
}
void wire1472() {
  for (int i = 0; i < 10; ++i) wire_of({&kSizes[4], 1});
}

// The engine on core 1 while `measure` runs on core 0.
template <typename F>
void with_engine(TestNi& ni, F&& measure) {
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    pin(1);
    const Clock clock;
    while (!stop.load(std::memory_order_relaxed)) ni.engine->poll(clock.now());
  });
  measure();
  stop.store(true, std::memory_order_relaxed);
  thread.join();
}

// A cache line that goes to core 1 and back.
double line_round_trip() {
  static LineWord ping, pong;
  ping.value = 0;
  pong.value = 0;
  constexpr uint32_t kTrips = 100'000;
  std::thread thread([] {
    pin(1);
    for (uint32_t i = 1; i <= kTrips * 5; ++i) {
      while (ping.value.load(std::memory_order_acquire) != i) {
      }
      pong.value.store(i, std::memory_order_release);
    }
  });
  uint32_t i = 0;
  const double trip = best_of(5, kTrips, [&] {
    ping.value.store(++i, std::memory_order_release);
    while (pong.value.load(std::memory_order_acquire) != i) {
    }
  });
  thread.join();
  return trip;
}

void traversal() {
  pin(0);
  for (int repetition = 0; repetition < 3; ++repetition) {
    const double limit = line_round_trip();
    TestNi ni;
    TestEndpoint& a = ni.add_endpoint(kOptions);
    TestEndpoint& b = ni.add_endpoint(kOptions);
    ni.hairpin(a, 0, b, 0);
    ni.run();
    const auto data = pattern(48, 1);
    with_engine(ni, [&] {
      for (const uint32_t size : {8u, 48u}) {
        const double trip = best_of(10, 50'000, [&] {
          a.send(0, {data.data(), size});
          if (!a.watched()) a.ring(ni.page);
          while (!take(b)) {
          }
        });
        std::printf("traversal of core 1, %2u B: %6.1f ns, cache line %6.1f ns: %.2f x\n", size, trip, limit, trip / limit);
      }
    });
  }
}

void rate() {
  pin(0);
  for (int repetition = 0; repetition < 3; ++repetition) {
    TestNi ni;
    TestEndpoint& a = ni.add_endpoint(kOptions);
    TestEndpoint& b = ni.add_endpoint(kOptions);
    ni.hairpin(a, 0, b, 0);
    ni.run();
    const auto data = pattern(48, 1);
    with_engine(ni, [&] {
      for (const uint32_t size : {8u, 48u}) {
        uint32_t on_the_way = 0;
        constexpr uint32_t kMessages = 200'000;
        const double run = best_of(10, 1, [&] {
          for (uint32_t got = 0; got < kMessages;) {
            while (on_the_way < 192 && a.send(0, {data.data(), size})) {
              ++on_the_way;
              if (!a.watched()) a.ring(ni.page);
              if (on_the_way % 16 == 0) break;
            }
            while (take(b)) {
              ++got;
              --on_the_way;
            }
          }
        });
        std::printf("rate through core 1, %2u B: %6.2f M/s (%.1f ns)\n", size, 1e3 * kMessages / run, run / kMessages);
      }
    });
  }
}

}  // namespace
}  // namespace unet::engine

int main(int argc, char** argv) {
  using namespace unet::engine;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const struct {
    std::string_view name;
    void (*run)();
  } parts[] = {{"idle", idle},         {"hairpin", hairpin},     {"wire", wire}, {"wire48", wire48},
               {"wire1472", wire1472}, {"traversal", traversal}, {"rate", rate}};
  for (const auto& part : parts) {
    const bool named = std::any_of(argv + 1, argv + argc, [&](const char* argument) { return part.name == argument; });
    if (argc == 1 || named) part.run();
  }
  return 0;
}
