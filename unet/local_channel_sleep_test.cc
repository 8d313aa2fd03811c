// local_channel_sleep_test.cc - no wake-up is lost, between processes and between threads, for messages and for room; no wake-up is sent
// without a request.
#include <poll.h>

#include <catch2/catch.hpp>
#include <random>
#include <thread>
#include <vector>

#include "unet/test_channel.h"
#include "unet/test_long_sleep.h"
#include "unet/test_process.h"

namespace unet::local_channel_sleep_test {
namespace {

// Sleeps like an endpoint: announces, fences, checks once more, sleeps, for at most kSleepMax while the peer wakes it seldom. Returns false
// if nothing woke it for far too long.
template <typename Ready>
bool sleep_until(LocalChannel& channel, bool for_room, Ready ready, bool often = false) {
  while (true) {
    if (!channel.announce_sleep(for_room, often)) heavy_fence();
    if (ready()) break;
    const bool seldom = channel.woken_seldom();
    pollfd wanted{.fd = channel.descriptor(), .events = POLLIN, .revents = 0};
    const int woken = poll(&wanted, 1, seldom ? LocalChannel::kSleepMax / kMillisecond : kHangSeconds * 1000);
    epoll_event edge{};
    static_cast<void>(epoll_wait(channel.descriptor(), &edge, 1, 0));
    channel.end_sleep();
    if (woken <= 0 && !seldom && !ready()) return false;
    if (ready()) return true;
  }
  channel.end_sleep();
  return true;
}

// Waits a random time, so that the two sides meet in all phases.
void dawdle(std::mt19937& random) {
  for (auto i = random() % 512; i > 0; --i) std::atomic_signal_fence(std::memory_order_relaxed);
}

bool receive_one(LocalChannel& channel, uint32_t expected) {
  Message message;
  if (!channel.receive(message)) return false;
  uint32_t value = 0;
  if (message.length >= sizeof value) std::memcpy(&value, message.data, sizeof value);
  channel.release(message);
  return value == expected;
}

// Each side answers the other, and sleeps for each message. All but one of every `often` sleeps are announced as frequent; 0: none. Returns
// 0 on success.
int ping_pong(LocalChannel& channel, bool begins, uint32_t rounds, uint32_t often = 0) {
  std::mt19937 random(begins ? 1 : 2);
  const auto has_message = [&] { return channel.has_message(); };
  for (uint32_t i = 0; i < rounds; ++i) {
    if (!begins || i > 0) {
      dawdle(random);
      if (!sleep_until(channel, false, has_message, often != 0 && random() % often != 0)) return 10;
      if (!receive_one(channel, begins ? i - 1 : i)) return 11;
    }
    dawdle(random);
    if (channel.send(reinterpret_cast<const std::byte*>(&i), sizeof i) != SendOutcome::sent) return 12;
  }
  return 0;
}

// One side streams messages of many sizes and sleeps when there is no room. The other side sleeps when there are no messages.
int stream_out(LocalChannel& channel, uint32_t messages) {
  std::mt19937 random(3);
  std::vector<std::byte> data(kMessageMax);
  for (uint32_t i = 0; i < messages; ++i) {
    const auto length = static_cast<uint32_t>(i % 16 == 0 ? 4 + random() % (kMessageMax - 3) : 4 + random() % 200);
    std::memcpy(data.data(), &i, sizeof i);
    SendOutcome outcome;
    while ((outcome = channel.send(data.data(), length)) == SendOutcome::full) {
      dawdle(random);
      if (!sleep_until(channel, true, [&] { return channel.has_room(); })) return 20;
    }
    if (outcome != SendOutcome::sent) return 21;
  }
  return 0;
}
int stream_in(LocalChannel& channel, uint32_t messages) {
  std::mt19937 random(4);
  for (uint32_t i = 0; i < messages; ++i) {
    if (!channel.has_message()) {
      channel.flush_credits();
      dawdle(random);
      if (!sleep_until(channel, false, [&] { return channel.has_message(); })) return 30;
    }
    if (!receive_one(channel, i)) return 31;
  }
  return 0;
}

constexpr uint32_t kRounds = 4000;
constexpr LocalOptions kSmall{.depth = 4, .data_bytes = 4 * kMessageMax};

TEST_CASE("two processes that sleep for every message lose no wake-up") {
  const ChannelParts parts(kSmall);
  ChildProcess child([&] { return ping_pong(*parts.open(1), false, kRounds); });
  CHECK(ping_pong(*parts.open(0), true, kRounds) == 0);
  CHECK(child.wait() == 0);
}

TEST_CASE("two processes that sleep often, and have each other fence, lose no wake-up") {
  const ChannelParts parts(kSmall);
  const uint32_t often = GENERATE(4, 1000);
  ChildProcess child([&] { return ping_pong(*parts.open(1), false, 10 * kRounds, often); });
  CHECK(ping_pong(*parts.open(0), true, 10 * kRounds, often) == 0);
  CHECK(child.wait() == 0);
}

TEST_CASE("a sender fences for a receiver that sleeps often, until that one is awake for long") {
  TestChannel channel(LocalOptions{.depth = 512, .data_bytes = 4 * kMessageMax});
  const std::byte data[8]{};
  CHECK_FALSE(channel[1].announce_sleep(false, true));  // the peer has not been asked before
  channel[1].end_sleep();
  CHECK(channel[1].announce_sleep(false, true));
  channel[1].end_sleep();
  CHECK_FALSE(channel[1].announce_sleep(true, true));  // sleeps for room get no fences
  channel[1].end_sleep();
  Message message;
  for (int i = 0; i < 300; ++i) {
    REQUIRE(channel[0].send(data, sizeof data) == SendOutcome::sent);
    REQUIRE(channel[1].receive(message));
    channel[1].release(message);
  }
  CHECK_FALSE(channel[1].announce_sleep(false, true));
  channel[1].end_sleep();
  CHECK(channel[1].announce_sleep(false, true));
  CHECK_FALSE(channel[1].announce_sleep(false, false));  // it sleeps seldom now
  CHECK_FALSE(channel[1].announce_sleep(false, true));
}

TEST_CASE("two threads lose no wake-up while the wake-ups of one of them take long") {
  TestChannel channel(kSmall);
  const LongSleep sleep(LongSleep::set_of(channel.parts.event(1)));
  int result = -1;
  std::thread other([&] { result = ping_pong(channel[1], false, 50); });
  CHECK(ping_pong(channel[0], true, 50) == 0);
  other.join();
  CHECK(result == 0);
}

TEST_CASE("two processes, one full and one empty, lose no wake-up") {
  const ChannelParts parts(kSmall);
  ChildProcess child([&] { return stream_in(*parts.open(1), 5 * kRounds); });
  CHECK(stream_out(*parts.open(0), 5 * kRounds) == 0);
  CHECK(child.wait() == 0);
}

TEST_CASE("two threads that sleep for every message lose no wake-up") {
  TestChannel channel(kSmall);
  int result = -1;
  std::thread other([&] { result = ping_pong(channel[1], false, kRounds); });
  CHECK(ping_pong(channel[0], true, kRounds) == 0);
  other.join();
  CHECK(result == 0);
}

TEST_CASE("two threads, one full and one empty, lose no wake-up") {
  TestChannel channel(kSmall);
  int result = -1;
  std::thread other([&] { result = stream_in(channel[1], 2 * kRounds); });
  CHECK(stream_out(channel[0], 2 * kRounds) == 0);
  other.join();
  CHECK(result == 0);
}

TEST_CASE("sending and receiving in two threads of one side, both directions busy") {
  TestChannel channel({.depth = 16, .data_bytes = 4 * kMessageMax});
  int results[4] = {-1, -1, -1, -1};
  const auto out = [&](size_t side) {
    for (uint32_t i = 0; i < kRounds; ++i) {
      while (channel[side].send(reinterpret_cast<const std::byte*>(&i), sizeof i) == SendOutcome::full) std::this_thread::yield();
    }
    return 0;
  };
  const auto in = [&](size_t side) {
    for (uint32_t i = 0; i < kRounds; ++i) {
      while (!channel[side].has_message()) {
        channel[side].flush_credits();
        std::this_thread::yield();
      }
      if (!receive_one(channel[side], i)) return 1;
    }
    return 0;
  };
  std::thread threads[] = {std::thread([&] { results[0] = out(0); }), std::thread([&] { results[1] = in(0); }),
                           std::thread([&] { results[2] = out(1); }), std::thread([&] { results[3] = in(1); })};
  for (std::thread& each : threads) each.join();
  for (const int result : results) CHECK(result == 0);
}

// ---- what a wake-up costs

TEST_CASE("a receiver that polls causes no system call at the sender, one that sleeps exactly one") {
  TestChannel channel(kSmall);
  Message message;
  for (int i = 0; i < 100; ++i) {
    REQUIRE(channel[0].send(nullptr, 0) == SendOutcome::sent);
    REQUIRE(channel[1].receive(message));
    channel[1].release(message);
  }
  CHECK(channel[0].counters().wakeups == 0);
  CHECK(channel.parts.wakeups(1) == 0);

  channel[1].announce_sleep(false);
  for (int i = 0; i < 3; ++i) REQUIRE(channel[0].send(nullptr, 0) == SendOutcome::sent);
  CHECK(channel[0].counters().wakeups == 1);
  CHECK(channel.parts.wakeups(1) == 1);

  // A receiver that has withdrawn its announcement is not woken.
  channel[1].announce_sleep(false);
  channel[1].end_sleep();
  REQUIRE(channel[0].send(nullptr, 0) == SendOutcome::sent);
  CHECK(channel[0].counters().wakeups == 1);
  CHECK(channel.parts.wakeups(1) == 0);
}

TEST_CASE("a sender that waits for room is woken once, when credits come back") {
  TestChannel channel(kSmall);
  while (channel[0].send(nullptr, 0) == SendOutcome::sent) {}
  channel[0].announce_sleep(true);
  CHECK_FALSE(channel[0].has_room());
  Message message;
  REQUIRE(channel[1].receive(message));
  CHECK(channel[1].counters().wakeups == 0);
  channel[1].release(message);
  channel[1].flush_credits();
  CHECK(channel[1].counters().wakeups == 1);
  CHECK(channel.parts.wakeups(0) == 1);
  CHECK(channel[0].has_room());
  while (channel[1].receive(message)) channel[1].release(message);
  CHECK(channel[1].counters().wakeups == 1);
}

TEST_CASE("one who sleeps for messages only is not woken by room") {
  TestChannel channel(kSmall);
  while (channel[0].send(nullptr, 0) == SendOutcome::sent) {}
  channel[0].announce_sleep(false);
  Message message;
  while (channel[1].receive(message)) channel[1].release(message);
  channel[1].flush_credits();
  CHECK(channel[1].counters().wakeups == 0);
  REQUIRE(channel[1].send(nullptr, 0) == SendOutcome::sent);
  CHECK(channel[1].counters().wakeups == 1);
}

// A side returns its credits before it sleeps. Otherwise both could sleep: one for room, one for messages.
TEST_CASE("a receiver gives its credits back before it sleeps") {
  TestChannel channel({.depth = 64, .data_bytes = 4 * kMessageMax});
  std::vector<std::byte> large(kMessageMax);
  while (channel[0].send(large.data(), kMessageMax) == SendOutcome::sent) {}
  channel[0].announce_sleep(true);
  Message message;
  for (int i = 0; i < 4; ++i) {
    REQUIRE(channel[1].receive(message));
    channel[1].release(message);
  }
  CHECK(channel[1].counters().wakeups == 0);
  channel[1].announce_sleep(false);
  CHECK(channel[1].counters().wakeups == 1);
  CHECK(channel[0].has_room());
}

TEST_CASE("a put with notification wakes a sleeping receiver") {
  TestChannel channel(kSmall);
  const Descriptor memory = sealed_memory(kPage);
  channel[0].set_peer_region(map_all(memory, kPage));
  channel[1].set_own_region(kPage);
  channel[1].announce_sleep(false);
  REQUIRE(channel[0].put(0, as_bytes("x", 1), false) == SendOutcome::sent);
  CHECK(channel.parts.wakeups(1) == 0);
  REQUIRE(channel[0].put(0, as_bytes("x", 1), true) == SendOutcome::sent);
  CHECK(channel.parts.wakeups(1) == 1);
}

TEST_CASE("the halves of a side count for themselves, in threads of their own") {
  TestChannel channel({.depth = 4, .data_bytes = 4 * kMessageMax});
  const Mapping memory = channel.parts.map();
  auto* const control = reinterpret_cast<LocalControl*>(memory.data());
  constexpr uint64_t kRounds = 100'000;
  // Each direction has a thread. Every round wakes; side 0 counts wake-ups in both directions.
  std::thread sending([&] {
    for (uint64_t i = 0; i < kRounds; ++i) {
      control[0].receiver_asleep.value.store(1, std::memory_order_relaxed);
      UNET_CHECK(channel[0].send(nullptr, 0) == SendOutcome::sent);
      Message message;
      UNET_CHECK(channel[1].receive(message));
      channel[1].release(message);
    }
  });
  for (uint64_t i = 0; i < kRounds; ++i) {
    UNET_CHECK(channel[1].send(nullptr, 0) == SendOutcome::sent);
    control[1].sender_waiting.value.store(1, std::memory_order_relaxed);
    Message message;
    UNET_CHECK(channel[0].receive(message));
    channel[0].release(message);
    channel[0].flush_credits();
  }
  sending.join();
  const LocalCounters counted = channel[0].counters();
  CHECK(counted.wakeups == 2 * kRounds);
  CHECK((counted.sent_messages == kRounds && counted.received_messages == kRounds));
}

}  // namespace
namespace {

// The receiver announces a sleep, and a message is sent to it. Returns whether the sender wrote to its eventfd.
bool is_woken_by_message(TestChannel& channel) {
  channel[1].announce_sleep(false);
  const uint64_t before = channel[0].counters().wakeups;
  CHECK(channel[0].send(nullptr, 0) == SendOutcome::sent);
  Message message;
  while (channel[1].receive(message)) channel[1].release(message);
  return channel[0].counters().wakeups != before;
}

}  // namespace

TEST_CASE("a peer with long wake-ups has them seldom, and is woken all the same") {
  TestChannel channel;
  const LongSleep sleep(::dup(channel[1].descriptor()));
  const auto send = [&] {
    sleep.wait_until_asleep();
    return is_woken_by_message(channel);
  };
  uint32_t woken = 0, sent = 0;
  for (; woken == sent && sent < 1'000; ++sent) woken += send() ? 1 : 0;
  CHECK(woken < sent);  // the long wake-ups were detected
  const Nanoseconds deadline = monotonic_now() + kHangSeconds * kSecond;
  while (!send() && monotonic_now() < deadline) {
  }
  CHECK(monotonic_now() < deadline);
}

TEST_CASE("short wake-ups between long ones do not hide these") {
  TestChannel channel;
  bool all = true;
  for (int round = 0; round < 50 && all; ++round) {
    const LongSleep sleep(::dup(channel[1].descriptor()));
    for (int i = 0; i < 2; ++i) {
      sleep.wait_until_asleep();
      all = is_woken_by_message(channel) && all;
    }
    all = is_woken_by_message(channel) && all;  // the threads have left poll(), or are about to
  }
  CHECK(!all);
}

}  // namespace unet::local_channel_sleep_test
