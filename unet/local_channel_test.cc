// local_channel_test.cc - messages between the two sides: all sizes, all ways of sending, full channels and recovery.
#include "unet/local_channel.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "unet/test_channel.h"

namespace unet::local_channel_test {
namespace {

std::vector<std::byte> pattern(size_t size, uint32_t seed) {
  std::mt19937 random(seed * 7919 + static_cast<uint32_t>(size));
  std::vector<std::byte> bytes(size);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

bool equal(Bytes a, Bytes b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

SendOutcome send(LocalChannel& channel, Bytes data) { return channel.send(data.data(), static_cast<uint32_t>(data.size())); }

// All small sizes, and sizes near each boundary.
std::vector<uint32_t> sizes() {
  std::vector<uint32_t> all(200);
  std::iota(all.begin(), all.end(), 0);
  for (uint32_t edge = 256; edge <= kMessageMax; edge *= 2) {
    for (const uint32_t base : {edge, edge + edge / 2}) {
      for (const uint32_t size : {base - 65, base - 64, base - 63, base - 1, base, base + 1, base + 63, base + 64, base + 65}) {
        if (size <= kMessageMax) all.push_back(size);
      }
    }
  }
  return all;
}

TEST_CASE("messages of every size arrive as they were sent, both ways") {
  TestChannel channel;
  for (const size_t from : {0, 1}) {
    LocalChannel &sender = channel[from], &receiver = channel[1 - from];
    uint64_t bytes = 0, messages = 0;
    for (const uint32_t size : sizes()) {
      const std::vector<std::byte> data = pattern(size, 1);
      REQUIRE(send(sender, data) == SendOutcome::sent);
      Message message;
      CHECK(receiver.has_message());
      REQUIRE(receiver.receive(message));
      CHECK((message.channel == receiver.id() && message.kind == MessageKind::message && message.length == size));
      REQUIRE(equal(message.bytes(), data));
      receiver.release(message);
      CHECK_FALSE(receiver.receive(message));
      bytes += size;
      ++messages;
    }
    CHECK((sender.counters().sent_messages == messages && sender.counters().sent_bytes == bytes));
    CHECK((receiver.counters().received_messages == messages && receiver.counters().received_bytes == bytes));
    receiver.flush_credits();
    const Mapping memory = channel.parts.map();
    const auto& told = reinterpret_cast<const LocalControl*>(memory.data())[from].consumed;
    CHECK((told.messages.load() == messages && told.bytes.load() == bytes));
    CHECK((receiver.counters().bad_descriptor == 0 && sender.counters().wakeups == 0 && receiver.counters().wakeups == 0));
  }
}

TEST_CASE("a message longer than the largest is refused, and nothing is sent") {
  TestChannel channel;
  const std::vector<std::byte> data(kMessageMax + 1);
  CHECK(send(channel[0], data) == SendOutcome::too_long);
  CHECK(channel[0].send(nullptr, ~0u) == SendOutcome::too_long);
  CHECK(channel[0].reserve(kMessageMax + 1).empty());
  CHECK(channel[0].post(1) == SendOutcome::too_long);
  CHECK_FALSE(channel[1].has_message());
  CHECK(channel[0].counters().sent_messages == 0);
}

TEST_CASE("many messages in flight, of mixed sizes, arrive in order and are read in place at the end") {
  TestChannel channel({.depth = 64, .data_bytes = 16 * kMessageMax});
  std::mt19937 random(4);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::vector<std::byte>> sent;
    while (sent.size() < 64) {
      const auto size = static_cast<uint32_t>((random() & 1) != 0 ? random() % 100 : random() % kMessageMax);
      std::vector<std::byte> data = pattern(size, static_cast<uint32_t>(random()));
      if (send(channel[0], data) != SendOutcome::sent) break;
      sent.push_back(std::move(data));
    }
    CHECK(sent.size() > 15);
    std::vector<Message> received(sent.size());
    for (Message& each : received) REQUIRE(channel[1].receive(each));
    for (size_t i = 0; i < sent.size(); ++i) REQUIRE(equal(received[i].bytes(), sent[i]));
    for (const Message& each : received) channel[1].release(each);
    channel[1].flush_credits();
  }
}

// ---- messages in slots: the two sides take turns

// Sends a message from `side`, so that the next one of the other side follows a received one.
void take_turn(TestChannel& channel, size_t side) {
  REQUIRE(channel[side].send(nullptr, 0) == SendOutcome::sent);
  Message message;
  REQUIRE(channel[1 - side].receive(message));
  channel[1 - side].release(message);
}

TEST_CASE("messages that answer each other travel in slots up to kInSlotsMax bytes, and arrive as they were sent") {
  TestChannel channel({.depth = 64, .data_bytes = 4 * kMessageMax});
  const std::vector<std::byte> head = pattern(kHeadedMax, 3);
  for (int lap = 0; lap < 3; ++lap) {
    for (uint32_t size = kInlineMax + 1; size <= kInSlotsMax + 60; ++size) {
      const std::vector<std::byte> data = pattern(size, static_cast<uint32_t>(lap));
      take_turn(channel, 1);
      if (lap == 0) {
        REQUIRE(send(channel[0], data) == SendOutcome::sent);
      } else if (lap == 1) {
        const MutableBytes room = channel[0].reserve(size + 7);
        REQUIRE(room.size() >= size);
        std::copy(data.begin(), data.end(), room.begin());
        REQUIRE(channel[0].post(size) == SendOutcome::sent);
      } else {
        REQUIRE(channel[0].send_headed(head, data) == SendOutcome::sent);
      }
      Message message;
      REQUIRE(channel[1].receive(message));
      REQUIRE((message.length == size && equal(message.bytes(), data)));
      CHECK(message.kind == (lap == 2 ? MessageKind::headed : MessageKind::message));
      if (lap == 2) REQUIRE(equal(channel[1].head(message), head));
      channel[1].release(message);
      CHECK_FALSE(channel[1].receive(message));
    }
  }
  CHECK(channel[1].counters().bad_descriptor == 0);
}

TEST_CASE("a reservation in slots is posted with a head, and shorter than a slot") {
  TestChannel channel;
  const std::vector<std::byte> head = pattern(11, 3), data = pattern(150, 4);
  for (const uint32_t length : {1u, kInlineMax, kInlineMax + 1, 150u}) {
    for (const bool headed : {false, true}) {
      take_turn(channel, 1);
      const MutableBytes room = channel[0].reserve(150);
      REQUIRE(room.size() == 150);
      std::copy(data.begin(), data.end(), room.begin());
      REQUIRE((headed ? channel[0].post_headed(length, head) : channel[0].post(length)) == SendOutcome::sent);
      CHECK(channel[0].post(1) == SendOutcome::too_long);
      Message message;
      REQUIRE(channel[1].receive(message));
      REQUIRE(equal(message.bytes(), Bytes(data).first(length)));
      if (headed) CHECK(equal(channel[1].head(message), head));
      channel[1].release(message);
    }
  }
}

TEST_CASE("messages in slots leave half of the slots to messages of one slot each") {
  TestChannel channel({.depth = 64, .data_bytes = 4 * kMessageMax});
  const std::vector<std::byte> data = pattern(kInSlotsMax, 1);
  uint32_t sent = 0;
  for (take_turn(channel, 1); send(channel[0], data) == SendOutcome::sent; take_turn(channel, 1)) {
    Message held;
    REQUIRE(channel[1].receive(held));
    ++sent;
  }
  CHECK(sent == 32 / slots_of(kInSlotsMax) + 64 - 32 / slots_of(kInSlotsMax) * slots_of(kInSlotsMax));
}

TEST_CASE("messages in slots are held and released in any order") {
  TestChannel channel({.depth = 64, .data_bytes = 4 * kMessageMax});
  std::mt19937 random(5);
  std::vector<std::pair<Message, std::vector<std::byte>>> held;
  const auto release_one = [&] {
    const size_t which = random() % held.size();
    REQUIRE(equal(held[which].first.bytes(), held[which].second));
    channel[1].release(held[which].first);
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
  };
  for (uint32_t i = 0; i < 20'000; ++i) {
    take_turn(channel, 1);
    std::vector<std::byte> data = pattern(49 + random() % (kInSlotsMax - 48), i);
    const SendOutcome outcome = send(channel[0], data);
    if (outcome == SendOutcome::full) {
      REQUIRE(!held.empty());
      while (!held.empty()) release_one();
      channel[1].flush_credits();
      continue;
    }
    REQUIRE(outcome == SendOutcome::sent);
    Message message;
    REQUIRE(channel[1].receive(message));
    held.emplace_back(message, std::move(data));
    if (i / 512 % 2 == 0) {
      while (held.size() > random() % 20) release_one();
    }
  }
  CHECK(channel[1].counters().bad_descriptor == 0);
}

// ---- reserve and post

TEST_CASE("a message composed in place arrives without a copy, also when it became shorter") {
  TestChannel channel;
  for (const uint32_t size : sizes()) {
    const MutableBytes room = channel[0].reserve(size);
    REQUIRE(room.size() >= size);
    const uint32_t length = size - size / 3;
    const std::vector<std::byte> data = pattern(length, 2);
    std::copy(data.begin(), data.end(), room.begin());
    REQUIRE(channel[0].post(length) == SendOutcome::sent);
    Message message;
    REQUIRE(channel[1].receive(message));
    REQUIRE(equal(message.bytes(), data));
    channel[1].release(message);
  }
}

TEST_CASE("a head travels beside the data, which begins at a line") {
  TestChannel channel;
  const std::vector<std::byte> head = pattern(kHeadedMax + 1, 4);
  for (const uint32_t size : sizes()) {
    const std::vector<std::byte> data = pattern(size, 2);
    const Bytes front = Bytes(head).first(size % (kHeadedMax + 1));
    if (size % 2 == 0) {
      REQUIRE(channel[0].send_headed(front, data) == SendOutcome::sent);
    } else {
      const MutableBytes room = channel[0].reserve(std::max(size, 1u));
      std::copy(data.begin(), data.end(), room.begin());
      REQUIRE(channel[0].post_headed(size, front) == SendOutcome::sent);
    }
    Message message;
    REQUIRE(channel[1].receive(message));
    CHECK(message.kind == MessageKind::headed);
    CHECK(equal(message.bytes(), data));
    CHECK(equal(channel[1].head(message), front));
    CHECK(reinterpret_cast<uintptr_t>(message.data) % kCacheLine == 0);
    channel[1].release(message);
  }
  CHECK(channel[0].send_headed(head, {}) == SendOutcome::too_long);
  CHECK(channel[0].send_headed({}, std::vector<std::byte>(kMessageMax + 1)) == SendOutcome::too_long);
  CHECK(channel[0].post_headed(1, {}) == SendOutcome::too_long);
  CHECK(channel[1].counters().bad_descriptor == 0);
  while (channel[0].send_headed({}, pattern(1000, 1)) == SendOutcome::sent) continue;
  CHECK(channel[0].send_headed({}, pattern(1000, 1)) == SendOutcome::full);
}

TEST_CASE("posting more than was reserved, or without a reservation, sends nothing") {
  TestChannel channel;
  CHECK(channel[0].post(1) == SendOutcome::too_long);
  CHECK(channel[0].post(0) == SendOutcome::too_long);
  REQUIRE(channel[0].reserve(100).size() == 100);
  CHECK(channel[0].post(101) == SendOutcome::too_long);
  CHECK(channel[0].post(100) == SendOutcome::sent);
  CHECK(channel[0].post(0) == SendOutcome::too_long);
  CHECK(channel[0].post(1) == SendOutcome::too_long);
  Message message;
  REQUIRE(channel[1].receive(message));
  CHECK(message.length == 100);
  CHECK_FALSE(channel[1].receive(message));
  CHECK(channel[1].counters().bad_descriptor == 0);
  // Later messages arrive correctly.
  const std::vector<std::byte> data = pattern(5000, 3);
  REQUIRE(send(channel[0], data) == SendOutcome::sent);
  REQUIRE(channel[1].receive(message));
  CHECK(equal(message.bytes(), data));
}

TEST_CASE("a reservation is replaced by the next, and one that was never posted takes nothing") {
  TestChannel channel;
  for (int i = 0; i < 1000; ++i) REQUIRE(channel[0].reserve(kMessageMax).size() == kMessageMax);
  REQUIRE(channel[0].reserve(200).size() == 200);
  const std::vector<std::byte> small = pattern(20, 1), large = pattern(60'000, 1);
  CHECK(send(channel[0], small) == SendOutcome::sent);
  CHECK(send(channel[0], large) == SendOutcome::sent);
  CHECK(channel[0].post(200) == SendOutcome::too_long);
  Message message;
  REQUIRE(channel[1].receive(message));
  CHECK(equal(message.bytes(), small));
  REQUIRE(channel[1].receive(message));
  CHECK(equal(message.bytes(), large));
  CHECK_FALSE(channel[1].receive(message));
}

// ---- direct access

struct Regions {
  explicit Regions(TestChannel& channel, uint64_t bytes = 3 * kPage) : memory(sealed_memory(bytes)), own(map_all(memory, bytes)) {
    channel[0].set_peer_region(map_all(memory, bytes));
    channel[1].set_own_region(bytes);
  }
  Descriptor memory;
  Mapping own;
};

TEST_CASE("a put lies in the exposed region before its notification arrives") {
  TestChannel channel;
  const Regions regions(channel, 20 * kPage);
  const struct {
    uint64_t offset;
    uint32_t size;
  } puts[] = {{0, 1}, {1, 4096}, {4095, 2}, {20 * kPage - 1, 1}, {0, 20 * kPage}, {20 * kPage, 0}, {77, 0}};
  for (const auto& each : puts) {
    const std::vector<std::byte> data = pattern(each.size, static_cast<uint32_t>(each.offset));
    REQUIRE(channel[0].put(each.offset, data, true) == SendOutcome::sent);
    Message message;
    REQUIRE(channel[1].receive(message));
    CHECK((message.kind == MessageKind::put_done && message.data == nullptr && message.bytes().empty()));
    CHECK((message.region_offset == each.offset && message.length == each.size));
    CHECK(equal(regions.own.bytes().subspan(each.offset, each.size), data));
    channel[1].release(message);
  }
}

TEST_CASE("a put without notification arrives silently, before any later message") {
  TestChannel channel;
  const Regions regions(channel);
  const std::vector<std::byte> data = pattern(500, 1);
  REQUIRE(channel[0].put(100, data, false) == SendOutcome::sent);
  CHECK_FALSE(channel[1].has_message());
  CHECK(equal(regions.own.bytes().subspan(100, 500), data));
}

TEST_CASE("a put outside the peer's region, or without one, changes nothing") {
  TestChannel channel;
  const std::vector<std::byte> data = pattern(100, 1);
  CHECK(channel[0].put(0, data, true) == SendOutcome::out_of_bounds);
  CHECK(channel[0].put(0, {}, true) == SendOutcome::sent);  // an empty put at offset 0 of an empty region
  const Regions regions(channel);
  for (const uint64_t offset : {3 * kPage - 99, 3 * kPage, 3 * kPage + 1, ~uint64_t{0}, ~uint64_t{0} - 99}) {
    CHECK(channel[0].put(offset, data, true) == SendOutcome::out_of_bounds);
  }
  CHECK(std::all_of(regions.own.bytes().begin(), regions.own.bytes().end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("a put with notification is refused whole when there is no slot") {
  TestChannel channel({.depth = 4, .data_bytes = 4 * kMessageMax});
  const Regions regions(channel);
  const std::vector<std::byte> data = pattern(10, 1);
  for (int i = 0; i < 4; ++i) REQUIRE(send(channel[0], data) == SendOutcome::sent);
  CHECK(channel[0].put(0, data, true) == SendOutcome::full);
  CHECK(regions.own.data()[0] == std::byte{0});
  CHECK(channel[0].put(0, data, false) == SendOutcome::sent);
}

// ---- giving back

TEST_CASE("messages released in any order return to the sender in order of arrival") {
  std::vector<int> order{0, 1, 2, 3, 4, 5};
  do {
    TestChannel channel({.depth = 8, .data_bytes = 4 * kMessageMax});
    std::vector<Message> messages(6);
    for (size_t i = 0; i < 6; ++i) {
      REQUIRE(send(channel[0], pattern(i % 2 == 0 ? 10 : 30'000, static_cast<uint32_t>(i))) == SendOutcome::sent);
      REQUIRE(channel[1].receive(messages[i]));
    }
    std::vector<bool> released(6);
    const Mapping shared = channel.parts.map();
    const auto* control = reinterpret_cast<const LocalControl*>(shared.data() + channel.parts.geometry().control[0]);
    for (const int i : order) {
      channel[1].release(messages[static_cast<size_t>(i)]);
      channel[1].release(messages[static_cast<size_t>(i)]);  // releasing twice does nothing
      released[static_cast<size_t>(i)] = true;
      const auto first_held = static_cast<uint32_t>(std::find(released.begin(), released.end(), false) - released.begin());
      channel[1].flush_credits();
      REQUIRE(control->consumed.value == first_held);
      for (uint32_t k = first_held; k < 6; ++k) {
        if (!released[k]) REQUIRE(equal(messages[k].bytes(), pattern(k % 2 == 0 ? 10 : 30'000, k)));
      }
    }
    // The whole ring is free again.
    for (int i = 0; i < 8; ++i) REQUIRE(channel[0].send(nullptr, 0) == SendOutcome::sent);
    REQUIRE(channel[0].send(nullptr, 0) == SendOutcome::full);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("a message that was not received yet cannot be released") {
  TestChannel channel({.depth = 4, .data_bytes = 4 * kMessageMax});
  Message message;
  channel[1].release(message);
  channel[1].flush_credits();
  for (uint32_t i = 0; i < 4; ++i) REQUIRE(channel[0].send(reinterpret_cast<const std::byte*>(&i), 4) == SendOutcome::sent);
  for (uint32_t i = 0; i < 4; ++i) {
    REQUIRE(channel[1].receive(message));
    CHECK(equal(message.bytes(), as_bytes(&i, 4)));
  }
  message.position += 1;
  channel[1].release(message);
  channel[1].flush_credits();
  CHECK(channel[0].send(nullptr, 0) == SendOutcome::full);
}

// ---- full

TEST_CASE("a full ring of slots pushes back until messages are released, and loses nothing") {
  const uint32_t depth = GENERATE(uint32_t{4}, uint32_t{5}, uint32_t{64});
  TestChannel channel({.depth = depth, .data_bytes = 4 * kMessageMax});
  uint32_t sent = 0, received = 0;
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    while (channel[0].send(reinterpret_cast<const std::byte*>(&sent), sizeof sent) == SendOutcome::sent) ++sent;
    REQUIRE(sent - received == std::bit_ceil(depth));
    Message message;
    for (auto take = static_cast<uint32_t>(1 + random() % (sent - received)); take > 0; --take) {
      REQUIRE(channel[1].receive(message));
      REQUIRE(equal(message.bytes(), as_bytes(&received, 4)));
      ++received;
      channel[1].release(message);
    }
    channel[1].flush_credits();
  }
}

TEST_CASE("a full data ring pushes back long messages while small ones still pass") {
  TestChannel channel({.depth = 64, .data_bytes = 4 * kMessageMax});
  const std::vector<std::byte> large = pattern(kMessageMax, 1);
  for (int round = 0; round < 50; ++round) {
    uint32_t count = 0;
    while (send(channel[0], large) == SendOutcome::sent) ++count;
    REQUIRE(count == 4);
    REQUIRE(channel[0].reserve(1).empty());
    REQUIRE(send(channel[0], pattern(48, 1)) == SendOutcome::sent);
    Message message;
    for (uint32_t i = 0; i < 5; ++i) {
      REQUIRE(channel[1].receive(message));
      REQUIRE(equal(message.bytes(), i < 4 ? large : pattern(48, 1)));
      channel[1].release(message);
    }
    channel[1].flush_credits();
  }
}

TEST_CASE("after a refusal for lack of data, has_room() waits for data; after one for lack of slots, for a slot alone") {
  TestChannel channel({.depth = 8, .data_bytes = 4 * kMessageMax});
  const std::vector<std::byte> large = pattern(kMessageMax, 1), small = pattern(10, 1);
  for (int i = 0; i < 3; ++i) REQUIRE(send(channel[0], small) == SendOutcome::sent);
  for (int i = 0; i < 4; ++i) REQUIRE(send(channel[0], large) == SendOutcome::sent);
  CHECK(send(channel[0], large) == SendOutcome::full);
  CHECK_FALSE(channel[0].has_room());
  CHECK(send(channel[0], small) == SendOutcome::sent);
  CHECK(send(channel[0], small) == SendOutcome::full);
  CHECK_FALSE(channel[0].has_room());
  Message message;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(channel[1].receive(message));
    channel[1].release(message);
  }
  // Slots are free, but data memory is not.
  CHECK(channel[0].has_room());
  CHECK(send(channel[0], small) == SendOutcome::sent);
  CHECK(send(channel[0], large) == SendOutcome::full);
  CHECK_FALSE(channel[0].has_room());
  while (channel[1].receive(message)) channel[1].release(message);
  channel[1].flush_credits();
  CHECK(channel[0].has_room());
  CHECK(send(channel[0], large) == SendOutcome::sent);
}

// ---- opening

TEST_CASE("a channel that the NI describes wrongly is not opened") {
  const ChannelParts parts({.depth = 16, .data_bytes = 4 * kMessageMax});
  const auto open = [&](control::ChannelInfo info, Descriptor memory, bool sleep = true, bool wake = true) {
    Descriptor event(eventfd(0, EFD_CLOEXEC));
    const auto channel = LocalChannel::open(Channel{0}, info, std::move(memory), sleep ? wake_descriptor(event) : Descriptor(),
                                            wake ? duplicate(event) : Descriptor());
    return channel ? Errc::ok : channel.error().code;
  };
  control::ChannelInfo info = parts.info(1);
  CHECK(open(info, duplicate(parts.memory())) == Errc::ok);
  CHECK(open(info, duplicate(parts.memory()), false) == Errc::protocol);
  CHECK(open(info, duplicate(parts.memory()), true, false) == Errc::protocol);
  CHECK(open(info, sealed_memory(parts.geometry().total - 1)) == Errc::protocol);
  CHECK(open(info, Descriptor()) == Errc::system);
  info.side = 2;
  CHECK(open(info, duplicate(parts.memory())) == Errc::protocol);
  info = parts.info(0);
  info.local.depth = ~0u;
  CHECK(open(info, duplicate(parts.memory())) == Errc::protocol);
  info = parts.info(0);
  info.local.data_bytes += 1;
  CHECK(open(info, duplicate(parts.memory())) == Errc::protocol);
}

}  // namespace
}  // namespace unet::local_channel_test
