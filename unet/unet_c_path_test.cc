// unet_c_path_test.cc - the data path of the C ABI: messages of all sizes over both paths, puts, and all ways to wait.
#include <poll.h>
#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "unet/test_daemon.h"
#include "unet/unet.h"

namespace unet {
namespace {

std::vector<unsigned char> pattern(size_t size, size_t seed) {
  std::vector<unsigned char> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(seed * 31 + i * 7 + (i >> 8));
  return bytes;
}

bool equal(const unet_message& message, const std::vector<unsigned char>& bytes) {
  return message.length == bytes.size() && (bytes.empty() || std::memcmp(message.data, bytes.data(), bytes.size()) == 0);
}

TEST_CASE("messages of all sizes, copied and composed in place") {
  const int path = GENERATE(as<int>(), UNET_PATH_LOCAL, UNET_PATH_NI);
  const TestDaemon daemon;
  TestPair pair(daemon);
  pair.connect(path);
  REQUIRE(unet_channel_kind(pair.b, pair.b_to_a) == (path == UNET_PATH_LOCAL ? UNET_KIND_LOCAL : UNET_KIND_NI));
  for (const size_t size : {0, 1, 8, 47, 48, 49, 64, 1000, 2048, 2049, 9000, 65535, 65536}) {
    const auto bytes = pattern(size, size);
    REQUIRE(unet_send(pair.a, pair.a_to_b, bytes.data(), size, UNET_MORE) == 0);
    void* room = nullptr;
    REQUIRE(unet_reserve(pair.a, pair.a_to_b, size, &room) == 0);
    std::copy(bytes.begin(), bytes.end(), static_cast<unsigned char*>(room));
    REQUIRE(unet_post(pair.a, pair.a_to_b, size, 0) == 0);
    for (int i = 0; i < 2; ++i) {
      const unet_message message = TestPair::next(pair.b);
      REQUIRE(message.kind == UNET_MESSAGE);
      REQUIRE(message.channel == pair.b_to_a);
      REQUIRE(equal(message, bytes));
      unet_release(pair.b, &message);
    }
  }
}

TEST_CASE("what cannot be sent") {
  const int path = GENERATE(as<int>(), UNET_PATH_LOCAL, UNET_PATH_NI);
  const TestDaemon daemon;
  TestPair pair(daemon);
  pair.connect(path);
  const std::vector<unsigned char> bytes(UNET_MESSAGE_MAX + 1);
  void* room = nullptr;
  REQUIRE(unet_send(pair.a, pair.a_to_b, bytes.data(), bytes.size(), 0) == UNET_ETOOLONG);
  REQUIRE(unet_send(pair.a, pair.a_to_b, bytes.data(), SIZE_MAX, 0) == UNET_ETOOLONG);
  REQUIRE(unet_send(pair.a, pair.a_to_b, bytes.data(), 1, 4) == UNET_EINVALID);
  REQUIRE(unet_send(pair.a, pair.a_to_b, bytes.data(), 1, UNET_NOTIFY) == UNET_EINVALID);
  REQUIRE(unet_reserve(pair.a, pair.a_to_b, bytes.size(), &room) == UNET_ETOOLONG);
  REQUIRE(unet_post(pair.a, pair.a_to_b, 0, 0) == UNET_ETOOLONG);  // there is no reservation
  REQUIRE(unet_reserve(pair.a, pair.a_to_b, 100, &room) == 0);
  REQUIRE(unet_post(pair.a, pair.a_to_b, 101, 0) == UNET_ETOOLONG);
  REQUIRE(unet_post(pair.a, pair.a_to_b, 100, 4) == UNET_EINVALID);
  REQUIRE(unet_post(pair.a, pair.a_to_b, SIZE_MAX, 0) == UNET_ETOOLONG);
  for (const int wrong : {-1, 77, 4096}) {
    REQUIRE(unet_send(pair.a, wrong, bytes.data(), 1, 0) == UNET_ENOCHANNEL);
    REQUIRE(unet_reserve(pair.a, wrong, 1, &room) == UNET_ENOCHANNEL);
    REQUIRE(unet_post(pair.a, wrong, 1, 0) == UNET_ENOCHANNEL);
    REQUIRE(unet_put(pair.a, wrong, 0, bytes.data(), 1, 0) == UNET_ENOCHANNEL);
  }
  unet_message message{};
  REQUIRE(unet_wait(pair.b, 1'000'000, 0) == UNET_TIMED_OUT);
  REQUIRE(unet_receive(pair.b, &message) == 0);
}

TEST_CASE("a full channel refuses, and has room again") {
  const size_t size = GENERATE(as<size_t>(), 8, 20000);
  const TestDaemon daemon;
  TestPair pair(daemon);
  const unet_connect_options options{.size = sizeof options, .local_depth = 64, .local_bytes = 262144};
  pair.connect(UNET_PATH_LOCAL, &options);
  unsigned sent = 0;
  int result;
  while ((result = unet_send(pair.a, pair.a_to_b, pattern(size, sent).data(), size, 0)) == 0) ++sent;
  REQUIRE(result == UNET_EFULL);
  REQUIRE(sent == (size == 8 ? 64 : 262144 / 20032));
  REQUIRE(unet_wait_room(pair.a, pair.a_to_b, 20'000'000, 0) == UNET_TIMED_OUT);
  pollfd room{.fd = unet_descriptor(pair.a), .events = POLLIN, .revents = 0};
  REQUIRE(room.fd >= 0);
  for (int tries = 0; unet_arm_room(pair.a, pair.a_to_b) == 0 || ::poll(&room, 1, 0) != 0; ++tries) REQUIRE(tries < 1000);

  std::vector<unet_message> messages(100);
  REQUIRE(unet_receive_batch(pair.b, messages.data(), 3) == 3);
  REQUIRE(unet_receive_batch(pair.b, messages.data() + 3, 97) == sent - 3);
  for (unsigned i = 0; i < sent; ++i) REQUIRE(equal(messages[i], pattern(size, i)));
  // Release from last to first, and each twice: memory returns once.
  for (unsigned i = sent; i-- > 0;) {
    unet_release(pair.b, &messages[i]);
    unet_release(pair.b, &messages[i]);
  }
  REQUIRE(unet_receive(pair.b, messages.data()) == 0);
  REQUIRE(::poll(&room, 1, static_cast<int>(kHang / 1'000'000)) == 1);
  REQUIRE(unet_arm_room(pair.a, pair.a_to_b) == 0);
  REQUIRE(unet_wait_room(pair.a, pair.a_to_b, kHang, -1) == UNET_ROOM);
  for (unsigned i = 0; i < sent; ++i) REQUIRE(unet_send(pair.a, pair.a_to_b, pattern(size, i).data(), size, 0) == 0);
}

TEST_CASE("a sleeping sender wakes when there is room", "[threads]") {
  const TestDaemon daemon;
  TestPair pair(daemon);
  const unet_connect_options options{.size = sizeof options, .local_depth = 4, .local_bytes = 262144};
  pair.connect(UNET_PATH_LOCAL, &options);
  constexpr uint32_t kMessages = 20'000;
  std::atomic<bool> ok{true};
  std::thread receiver([&] {
    for (uint32_t i = 0; i < kMessages; ++i) {
      unet_message message{};
      while (unet_receive(pair.b, &message) == 0) {
        if (unet_wait(pair.b, kHang, 0) != UNET_READY) {
          ok.store(false, std::memory_order_relaxed);
          return;
        }
      }
      uint32_t number;
      std::memcpy(&number, message.data, sizeof number);
      if (number != i) ok.store(false, std::memory_order_relaxed);
      unet_release(pair.b, &message);
    }
  });
  bool lost = false;
  for (uint32_t i = 0; i < kMessages && !lost; ++i) {
    while (!lost && unet_send(pair.a, pair.a_to_b, &i, sizeof i, 0) == UNET_EFULL) {
      lost = unet_wait_room(pair.a, pair.a_to_b, kHang, 0) != UNET_ROOM;
    }
  }
  receiver.join();
  REQUIRE_FALSE(lost);
  REQUIRE(ok.load(std::memory_order_relaxed));
}

TEST_CASE("puts into exposed memory") {
  const int path = GENERATE(as<int>(), UNET_PATH_LOCAL, UNET_PATH_NI);
  const TestDaemon daemon;
  TestPair pair(daemon);
  void* memory = nullptr;
  REQUIRE(unet_expose(pair.b, 0, &memory) == UNET_EINVALID);
  REQUIRE(unet_expose(pair.b, 100'000, nullptr) == UNET_EINVALID);
  REQUIRE(unet_expose(pair.b, 100'000, &memory) == 0);
  REQUIRE(unet_expose(pair.b, 100'000, &memory) == UNET_EEXISTS);
  pair.connect(path);
  uint64_t bytes = 0;
  if (path == UNET_PATH_LOCAL) {
    REQUIRE(unet_map_peer_region(pair.a, pair.a_to_b, &bytes) == 0);
    REQUIRE(bytes == 100'000);
    REQUIRE(unet_put(pair.a, pair.a_to_b, 99'999, "xy", 2, UNET_NOTIFY) == UNET_EBOUNDS);
    REQUIRE(unet_put(pair.a, pair.a_to_b, UINT64_MAX, "xy", 2, 0) == UNET_EBOUNDS);
  }
  REQUIRE(unet_map_peer_region(pair.b, pair.b_to_a, &bytes) == UNET_ENOTFOUND);
  REQUIRE(unet_put(pair.a, pair.a_to_b, 0, "xy", 2, 4) == UNET_EINVALID);

  const auto data = pattern(50'000, 3);
  REQUIRE(unet_put(pair.a, pair.a_to_b, 1, data.data(), data.size(), UNET_NOTIFY | UNET_MORE) == 0);
  REQUIRE(unet_put(pair.a, pair.a_to_b, 99'999, "z", 1, UNET_NOTIFY) == 0);
  for (const uint64_t offset : {1, 99'999}) {
    const unet_message done = TestPair::next(pair.b);
    REQUIRE(done.kind == UNET_PUT_DONE);
    REQUIRE(done.data == nullptr);
    REQUIRE(done.region_offset == offset);
    REQUIRE(done.length == (offset == 1 ? data.size() : 1));
    unet_release(pair.b, &done);
  }
  const auto* region = static_cast<const unsigned char*>(memory);
  REQUIRE(region[0] == 0);
  REQUIRE(std::memcmp(region + 1, data.data(), data.size()) == 0);
  REQUIRE(std::all_of(region + 50'001, region + 99'999, [](unsigned char byte) { return byte == 0; }));
  REQUIRE(region[99'999] == 'z');
}

TEST_CASE("waiting") {
  const int path = GENERATE(as<int>(), UNET_PATH_LOCAL, UNET_PATH_NI);
  const TestDaemon daemon;
  TestPair pair(daemon);
  pair.connect(path);
  REQUIRE(unet_wait(pair.b, 0, 0) == UNET_TIMED_OUT);
  REQUIRE(unet_wait(pair.b, 5'000'000, 0) == UNET_TIMED_OUT);
  REQUIRE(unet_wait(pair.b, 5'000'000, UNET_SPIN_DEFAULT) == UNET_TIMED_OUT);
  REQUIRE(unet_send(pair.a, pair.a_to_b, "x", 1, 0) == 0);
  REQUIRE(unet_wait(pair.b, UNET_FOREVER, 0) == UNET_READY);
  const unet_message message = TestPair::next(pair.b);
  unet_release(pair.b, &message);

  SECTION("a descriptor, armed before each sleep") {
    const int descriptor = unet_descriptor(pair.b);
    REQUIRE(descriptor >= 0);
    REQUIRE(unet_descriptor(pair.b) == descriptor);
    for (int i = 0; i < 20; ++i) {
      // It may be readable without a reason for a short time.
      pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
      int tries = 0;
      for (; unet_arm(pair.b) == 0 || ::poll(&wanted, 1, 0) != 0; ::usleep(1000)) REQUIRE(++tries < 60'000);
      REQUIRE(unet_send(pair.a, pair.a_to_b, "y", 1, 0) == 0);
      while (unet_arm(pair.b) == 1) REQUIRE(::poll(&wanted, 1, static_cast<int>(kHang / 1'000'000)) == 1);
      const unet_message other = TestPair::next(pair.b);
      REQUIRE(other.length == 1);
      unet_release(pair.b, &other);
    }
  }
}

void ignore_signal(int) {}

TEST_CASE("a signal ends a wait") {
  const TestDaemon daemon;
  TestPair pair(daemon);
  struct sigaction action {}, before {};
  action.sa_handler = ignore_signal;
  REQUIRE(::sigaction(SIGALRM, &action, &before) == 0);
  const itimerval often{.it_interval = {.tv_sec = 0, .tv_usec = 20'000}, .it_value = {.tv_sec = 0, .tv_usec = 20'000}};
  REQUIRE(::setitimer(ITIMER_REAL, &often, nullptr) == 0);
  const int outcome = unet_wait(pair.a, kHang, 0);
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  REQUIRE(outcome == UNET_EINTERRUPTED);
}

TEST_CASE("a wait ends with the network interface", "[daemon]") {
  TestDaemon daemon;
  TestPair pair(daemon);
  pair.connect(UNET_PATH_NI);
  daemon.end(SIGKILL);
  REQUIRE(unet_wait(pair.a, kHang, -1) == UNET_READY);
  unet_event event{};
  event.size = sizeof event;
  REQUIRE(unet_next_event(pair.a, &event) == 1);
  REQUIRE(event.kind == UNET_EVENT_CLOSED);
  REQUIRE(event.reason == UNET_REASON_NI_STOPPED);
  REQUIRE(unet_send(pair.a, pair.a_to_b, "x", 1, 0) == UNET_ENOCHANNEL);
  REQUIRE(unet_wait(pair.a, kHang, -1) == UNET_EDISCONNECTED);
}

// An upcall that takes messages and counts them.
struct Taken {
  std::atomic<int> messages{0};
  std::atomic<bool> masked{false}, ran_masked{false};
};

void take(unet_endpoint* endpoint, void* argument) {
  auto* taken = static_cast<Taken*>(argument);
  if (taken->masked.load(std::memory_order_acquire)) taken->ran_masked.store(true, std::memory_order_relaxed);
  unet_message message{};
  while (unet_receive(endpoint, &message) == 1) {
    unet_release(endpoint, &message);
    taken->messages.fetch_add(1, std::memory_order_acq_rel);
  }
}

TEST_CASE("upcalls", "[threads]") {
  const int path = GENERATE(as<int>(), UNET_PATH_LOCAL, UNET_PATH_NI);
  Taken taken;  // declared first: an upcall may run until its endpoint is destroyed
  const TestDaemon daemon;
  TestPair pair(daemon);
  pair.connect(path);
  const auto wait_for = [&](int messages) {
    for (int i = 0; i < 60'000 && taken.messages.load(std::memory_order_acquire) < messages; ++i) ::usleep(1000);
    return taken.messages.load(std::memory_order_acquire);
  };
  unet_stop_upcall(pair.b);  // no upcall was started: does nothing
  REQUIRE(unet_start_upcall(pair.b, nullptr, nullptr) == UNET_EINVALID);
  REQUIRE(unet_start_upcall(pair.b, take, &taken) == 0);
  REQUIRE(unet_start_upcall(pair.b, take, nullptr) == UNET_EEXISTS);
  for (int i = 0; i < 10; ++i) {
    REQUIRE(unet_send(pair.a, pair.a_to_b, "x", 1, 0) == 0);
    REQUIRE(wait_for(i + 1) == i + 1);
  }

  unet_mask(pair.b);
  taken.masked.store(true, std::memory_order_release);
  REQUIRE(unet_send(pair.a, pair.a_to_b, "x", 1, 0) == 0);
  ::usleep(50'000);
  taken.masked.store(false, std::memory_order_release);
  unet_unmask(pair.b);
  REQUIRE(wait_for(11) == 11);
  REQUIRE_FALSE(taken.ran_masked.load(std::memory_order_relaxed));

  unet_stop_upcall(pair.b);
  REQUIRE(unet_send(pair.a, pair.a_to_b, "x", 1, 0) == 0);
  const unet_message message = TestPair::next(pair.b);
  unet_release(pair.b, &message);
  REQUIRE(taken.messages.load(std::memory_order_acquire) == 11);
  REQUIRE(unet_start_upcall(pair.b, take, &taken) == 0);
  REQUIRE(unet_send(pair.a, pair.a_to_b, "x", 1, 0) == 0);
  REQUIRE(wait_for(12) == 12);
  // Destroying the endpoint also ends the upcall.
}

}  // namespace
}  // namespace unet
