// ni_queues_test.cc - an endpoint's queues against an NI that the test steps: sending, messages in pieces, buffers back and forth,
// doorbells.
#include "unet/ni_queues.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "unet/test_engine.h"

namespace unet::ni_queues_test {
namespace {

constexpr EndpointOptions kSmall{.send_depth = 8, .receive_depth = 8, .buffers = 16, .buffer_size = 256, .send_bytes = 4 * kMessageMax};

std::vector<std::byte> pattern(size_t size, uint32_t seed) {
  std::mt19937 random(seed * 7919 + static_cast<uint32_t>(size));
  std::vector<std::byte> bytes(size);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

bool equal(Bytes a, Bytes b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

SendOutcome send(NiQueues& queues, uint32_t channel, Bytes data) {
  return queues.send(Channel{channel}, data.data(), static_cast<uint32_t>(data.size()));
}

using Buffers = std::vector<uint32_t>;

// ---- sending

TEST_CASE("messages of every size reach the NI, with their channel") {
  TestQueues world(kSmall);
  for (uint32_t size = 0; size <= kIpMessageMax; size = size < 300 ? size + 1 : size + size / 7) {
    const std::vector<std::byte> data = pattern(size, 1);
    REQUIRE(send(world.queues, size, data) == SendOutcome::sent);
    const auto taken = world.engine.take();
    REQUIRE(taken);
    CHECK((taken->channel == size && taken->kind == (size <= kInlineMax ? SlotKind::inline_data : SlotKind::gather)));
    REQUIRE(equal(taken->bytes, data));
    world.engine.consume();
  }
  CHECK(send(world.queues, 0, pattern(kIpMessageMax, 1)) == SendOutcome::sent);
  CHECK(send(world.queues, 0, pattern(kIpMessageMax + 1, 1)) == SendOutcome::too_long);
}

TEST_CASE("what an application keeps in the segment goes behind what it composes, and may be sent again") {
  TestQueues world(kSmall);
  CHECK(world.queues.register_send_memory(uint64_t{4} * kMessageMax).empty());  // no room would remain for other messages
  const MutableBytes kept = world.queues.register_send_memory(100'000);
  REQUIRE(kept.size() >= 100'000);
  const std::vector<std::byte> data = pattern(kept.size(), 3);
  std::copy(data.begin(), data.end(), kept.begin());
  for (int i = 0; i < 30; ++i) {
    const MutableBytes room = world.queues.reserve(100);
    REQUIRE(!room.empty());
    std::fill(room.begin(), room.end(), std::byte{7});
    std::array<Bytes, kSendPiecesMax> pieces;
    for (size_t k = 0; k < pieces.size(); ++k) pieces[k] = Bytes(kept).subspan(k * 20'000 + static_cast<size_t>(i), 5000);
    const uint64_t before = world.queues.submitted();
    REQUIRE(world.queues.post(Channel{3}, 54, pieces) == SendOutcome::sent);
    CHECK(world.queues.submitted() == before + 1);
    CHECK(world.queues.completed() <= before);
    const auto taken = world.engine.take();
    REQUIRE(taken);
    std::vector<std::byte> expected(54, std::byte{7});
    for (const Bytes& each : pieces) expected.insert(expected.end(), each.begin(), each.end());
    CHECK((taken->channel == 3 && equal(taken->bytes, expected)));
    world.engine.consume();
    CHECK(world.queues.completed() == before + 1);
    REQUIRE(send(world.queues, 0, pattern(40'000, 4)) == SendOutcome::sent);  // uses other memory
    REQUIRE(world.engine.take());
    world.engine.consume();
  }
  // A caller of notify_completion() does not wake for room only.
  REQUIRE(send(world.queues, 0, pattern(100, 1)) == SendOutcome::sent);
  world.queues.notify_completion(world.queues.submitted());
  CHECK(!world.queues.has_room());
  REQUIRE(!world.queues.reserve(100).empty());
  CHECK(!world.queues.has_room());
  REQUIRE(world.engine.take());
  world.engine.consume();
  CHECK(world.queues.has_room());
  CHECK(equal(kept, data));
  CHECK(world.queues.register_send_memory(1).empty());
  REQUIRE(!world.queues.reserve(100).empty());
  CHECK(world.queues.post(Channel{3}, 101, {}) == SendOutcome::too_long);
  const std::array<Bytes, 1> all{Bytes(kept).first(kMessageMax)};
  CHECK(world.queues.post(Channel{3}, 1, all) == SendOutcome::too_long);
}

TEST_CASE("a message composed in place reaches the NI") {
  TestQueues world(kSmall);
  for (const uint32_t size : {0u, 1u, 48u, 49u, 5000u, kIpMessageMax}) {
    const MutableBytes room = world.queues.reserve(size);
    REQUIRE(room.size() >= size);
    const std::vector<std::byte> data = pattern(size - size / 4, 2);
    std::copy(data.begin(), data.end(), room.begin());
    CHECK(world.queues.post(Channel{1}, size + 1 + (size == 0 ? 1 : 0)) == SendOutcome::too_long);
    REQUIRE(world.queues.post(Channel{3}, static_cast<uint32_t>(data.size())) == SendOutcome::sent);
    const auto taken = world.engine.take();
    REQUIRE(taken);
    CHECK((taken->channel == 3 && equal(taken->bytes, data)));
    world.engine.consume();
  }
  CHECK(world.queues.reserve(kIpMessageMax + 1).empty());
  CHECK(world.queues.post(Channel{0}, 0) == SendOutcome::too_long);
  CHECK_FALSE(world.engine.take());
}

TEST_CASE("what the memory for outgoing messages never holds is too long, and nobody waits for room") {
  TestQueues world({.send_depth = 8, .receive_depth = 8, .buffers = 16, .buffer_size = 256, .send_bytes = kMessageMax});
  REQUIRE(send(world.queues, 0, pattern(kMessageMax, 1)) == SendOutcome::sent);
  CHECK(send(world.queues, 0, pattern(100, 1)) == SendOutcome::full);
  CHECK_FALSE(world.queues.has_room());
  CHECK(world.queues.reserve(kIpMessageMax).empty());
  CHECK(world.queues.has_room());
  CHECK(send(world.queues, 0, pattern(kIpMessageMax, 1)) == SendOutcome::too_long);
  REQUIRE(world.engine.take());
  world.engine.consume();
  CHECK(send(world.queues, 0, pattern(kMessageMax, 1)) == SendOutcome::sent);
}

TEST_CASE("a put reaches the NI with its offset and its wish to be announced") {
  TestQueues world(kSmall);
  for (const bool notify : {false, true}) {
    for (const uint32_t size : {0u, 1u, 48u, 49u, kMessageMax}) {
      const std::vector<std::byte> data = pattern(size, 3);
      REQUIRE(world.queues.put(Channel{4}, 0x1'2345'6789, data, notify) == SendOutcome::sent);
      const auto taken = world.engine.take();
      REQUIRE(taken);
      CHECK((taken->channel == 4 && taken->kind == SlotKind::put && equal(taken->bytes, data)));
      CHECK((taken->put.region_offset == 0x1'2345'6789 && taken->put.notify == (notify ? 1 : 0)));
      world.engine.consume();
    }
  }
  CHECK(world.queues.put(Channel{4}, 0, pattern(kMessageMax + 1, 1), false) == SendOutcome::too_long);
}

TEST_CASE("a full send queue refuses until the NI has taken something, and has_room() says when") {
  TestQueues world(kSmall);
  for (uint32_t i = 0; i < 8; ++i) REQUIRE(send(world.queues, i, {}) == SendOutcome::sent);
  CHECK(send(world.queues, 9, {}) == SendOutcome::full);
  CHECK(world.queues.put(Channel{9}, 0, {}, true) == SendOutcome::full);
  CHECK_FALSE(world.queues.has_room());
  REQUIRE(world.engine.take());
  CHECK(send(world.queues, 9, {}) == SendOutcome::full);  // taken, but not yet given back
  world.engine.consume();
  CHECK(world.queues.has_room());
  CHECK(send(world.queues, 9, {}) == SendOutcome::sent);
}

TEST_CASE("send memory that is full refuses long messages while small ones pass, and has_room() asks for what was refused") {
  TestQueues world(kSmall);
  const std::vector<std::byte> large = pattern(kMessageMax, 1);
  for (uint32_t i = 0; i < 4; ++i) REQUIRE(send(world.queues, i, large) == SendOutcome::sent);
  CHECK(send(world.queues, 9, large) == SendOutcome::full);
  CHECK_FALSE(world.queues.has_room());
  for (uint32_t i = 0; i < 4; ++i) REQUIRE(send(world.queues, i, pattern(48, 1)) == SendOutcome::sent);
  CHECK(send(world.queues, 9, {}) == SendOutcome::full);
  for (uint32_t i = 0; i < 2; ++i) REQUIRE(equal(world.engine.take()->bytes, large));
  world.engine.consume();
  CHECK(world.queues.has_room());
  for (uint32_t i = 0; i < 2; ++i) CHECK(send(world.queues, 9, large) == SendOutcome::sent);
  CHECK(send(world.queues, 9, large) == SendOutcome::full);
  CHECK_FALSE(world.queues.has_room());
}

// ---- receiving

TEST_CASE("all receive buffers are with the NI at the beginning, in address order") {
  TestQueues world(kSmall);
  Buffers all(16);
  std::iota(all.begin(), all.end(), 0);
  CHECK(world.engine.pop_buffers() == all);
  CHECK_FALSE(world.queues.has_message());
}

TEST_CASE("inline messages and announced puts arrive with their channel") {
  TestQueues world(kSmall);
  Message message;
  CHECK_FALSE(world.queues.receive(message));
  for (uint32_t size = 0; size <= kInlineMax; ++size) {
    const std::vector<std::byte> data = pattern(size, 1);
    REQUIRE(world.engine.deliver_inline(size + 3, data));
    CHECK(world.queues.has_message());
    REQUIRE(world.queues.receive(message));
    CHECK((message.channel == Channel{size + 3} && message.kind == MessageKind::message && !message.from_local));
    CHECK(equal(message.bytes(), data));
    world.queues.release(message);
  }
  REQUIRE(world.engine.deliver_put_done(2, 0x1'0000'0001, 500));
  REQUIRE(world.queues.receive(message));
  CHECK((message.kind == MessageKind::put_done && message.channel == Channel{2} && message.data == nullptr));
  CHECK((message.region_offset == 0x1'0000'0001 && message.length == 500 && message.bytes().empty()));
  world.queues.release(message);
  REQUIRE(world.engine.deliver_inline(1, {}));
  REQUIRE(world.queues.receive(message));
  CHECK((message.kind == MessageKind::message && message.length == 0));
}

// Delivers a message into `buffers`, and returns where the client found it.
struct Found {
  bool right = false;
  const std::byte* data = nullptr;
};
Found deliver(TestQueues& world, size_t length, const Buffers& buffers, bool split = false) {
  const std::vector<std::byte> data = pattern(length, buffers.front());
  Message message;
  if (!world.engine.deliver(1, data, buffers, split) || !world.queues.receive(message)) return {};
  const Found found{message.length == length && equal(message.bytes(), data), message.data};
  world.queues.release(message);
  return found;
}

TEST_CASE("a message in neighbouring buffers is read in place") {
  for (uint32_t count = 1; count <= 12; ++count) {
    for (const uint32_t length : {count * 256, count * 256 - 1, count * 256 - 255}) {
      TestQueues world(kSmall);
      world.engine.pop_buffers();
      Buffers buffers(count);
      std::iota(buffers.begin(), buffers.end(), 2);
      const Found found = deliver(world, length, buffers);
      CAPTURE(count, length);
      CHECK(found.right);
      CHECK(found.data == world.buffer(2));
      CHECK(world.queues.gathered() == 0);
    }
  }
}

TEST_CASE("a scattered message is gathered, each into memory of its own, and the counter says how often") {
  TestQueues world(kSmall);
  world.engine.pop_buffers();
  const std::vector<std::byte> first = pattern(1000, 1), second = pattern(600, 2), third = pattern(256, 3);
  REQUIRE(world.engine.deliver(1, first, {3, 1, 5, 7}));
  REQUIRE(world.engine.deliver(1, second, {9, 8, 10}));
  REQUIRE(world.engine.deliver(1, third, {2}));
  Message a, b, c;
  REQUIRE((world.queues.receive(a) && world.queues.receive(b) && world.queues.receive(c)));
  CHECK((equal(a.bytes(), first) && equal(b.bytes(), second) && equal(c.bytes(), third)));
  CHECK(world.queues.gathered() == 2);
  CHECK(c.data == world.buffer(2));
}

TEST_CASE("a message over as many runs as a descriptor holds, or around the end, is gathered") {
  for (const Buffers& buffers : {Buffers{15, 0, 13, 2, 11, 4, 9, 6, 7, 8, 5, 10}, Buffers{15, 0, 14, 1}, Buffers{14, 15, 0, 1}}) {
    TestQueues world(kSmall);
    world.engine.pop_buffers();
    CHECK(deliver(world, buffers.size() * 256 - 100, buffers, true).right);
    CHECK(world.queues.gathered() == 1);
  }
}

TEST_CASE("the longest message of all is gathered") {
  TestQueues world({.send_depth = 8, .receive_depth = 8, .buffers = 512, .buffer_size = 256, .send_bytes = 128 * 1024});
  world.engine.pop_buffers();
  Buffers buffers(257);
  std::iota(buffers.begin(), buffers.end(), 2);
  std::rotate(buffers.begin(), buffers.begin() + 100, buffers.end());
  CHECK(deliver(world, kIpMessageMax, buffers).right);
  CHECK(world.queues.gathered() == 1);
}

// ---- giving back

TEST_CASE("slots go back in order of arrival, lazily, and at once when there is nothing else to do") {
  TestQueues world(kSmall);
  Message messages[8];
  for (Message& each : messages) {
    REQUIRE(world.engine.deliver_inline(0, {}));
    REQUIRE(world.queues.receive(each));
  }
  CHECK_FALSE(world.engine.deliver_inline(0, {}));
  world.queues.release(messages[0]);
  CHECK(world.engine.receive_room() == 0);
  world.queues.release(messages[1]);
  CHECK(world.engine.receive_room() == 2);  // a quarter of the ring
  world.queues.release(messages[3]);
  world.queues.release(messages[4]);
  world.queues.release(messages[3]);
  world.queues.flush_credits();
  CHECK(world.engine.receive_room() == 2);
  world.queues.release(messages[2]);
  CHECK(world.engine.receive_room() == 5);
  world.queues.release(messages[5]);
  world.queues.flush_credits();
  CHECK(world.engine.receive_room() == 6);
}

TEST_CASE("released buffers go back at once, in the order in which their messages came") {
  TestQueues world(kSmall);
  world.engine.pop_buffers();
  Message a, b, c;
  REQUIRE(world.engine.deliver(0, pattern(1024, 1), {4, 5, 6, 7}));
  REQUIRE(world.engine.deliver(0, pattern(1024, 1), {0, 1, 2, 3}));
  REQUIRE(world.engine.deliver(0, pattern(256, 1), {12}));
  REQUIRE((world.queues.receive(a) && world.queues.receive(b) && world.queues.receive(c)));
  world.queues.release(c);
  world.queues.release(b);
  CHECK(world.engine.pop_buffers().empty());  // the oldest message is not released
  world.queues.release(a);
  CHECK(world.engine.pop_buffers() == Buffers{4, 5, 6, 7, 0, 1, 2, 3, 12});
}

// The NI delivers random messages into its buffers, and delays some, as reassembly does. The client releases them in random order. No
// buffer is ever in two places or lost.
TEST_CASE("random traffic: no buffer is lost or given twice, and every message is whole while it is held") {
  EndpointOptions options = kSmall;
  options.buffers = GENERATE(4u, 15u, 16u, 40u);
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    TestQueues world(options);
    std::mt19937 random(seed);
    std::vector<uint32_t> at_engine;
    std::set<uint32_t> known;
    struct Held {
      Message message;
      std::vector<std::byte> data;
    };
    std::vector<Held> held;
    std::deque<std::vector<std::byte>> expected;
    bool right = true;
    uint32_t delivered = 0;
    const auto pop = [&] {
      for (const uint32_t each : world.engine.pop_buffers()) {
        right = right && known.insert(each).second;
        at_engine.push_back(each);
      }
    };
    for (int step = 0; step < 3000 && right; ++step) {
      pop();
      const auto choice = random() % 4;
      if (choice == 0 && !at_engine.empty()) {
        const size_t count = 1 + random() % std::min<size_t>(at_engine.size(), kRunsMax);
        if (random() % 3 == 0) std::shuffle(at_engine.begin(), at_engine.end(), random);
        const size_t length = count * options.buffer_size - random() % options.buffer_size;
        const std::vector<std::byte> data = pattern(length, static_cast<uint32_t>(random()));
        const Buffers buffers(at_engine.begin(), at_engine.begin() + static_cast<std::ptrdiff_t>(count));
        if (!world.engine.deliver(1, data, buffers)) continue;
        at_engine.erase(at_engine.begin(), at_engine.begin() + static_cast<std::ptrdiff_t>(count));
        for (const uint32_t each : buffers) known.erase(each);
        expected.push_back(data);
        ++delivered;
      } else if (choice == 1) {
        const std::vector<std::byte> data = pattern(random() % 49, static_cast<uint32_t>(random()));
        if (world.engine.deliver_inline(1, data)) expected.push_back(data);
      } else if (choice == 2) {
        Message message;
        if (!world.queues.receive(message)) {
          world.queues.flush_credits();
          continue;
        }
        right = right && !expected.empty() && equal(message.bytes(), expected.front());
        held.push_back({message, std::move(expected.front())});
        expected.pop_front();
      } else if (!held.empty()) {
        const size_t which = random() % held.size();
        right = right && equal(held[which].message.bytes(), held[which].data);
        world.queues.release(held[which].message);
        if ((random() & 1) != 0) world.queues.release(held[which].message);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      }
    }
    // Receive and release the other messages: then the NI has all buffers again.
    for (const Held& each : held) world.queues.release(each.message);
    for (Message message; world.queues.receive(message);) world.queues.release(message);
    pop();
    CAPTURE(options.buffers, seed);
    CHECK(right);
    CHECK(delivered > 100);
    CHECK(known.size() == at_engine.size());
    CHECK(known.size() == options.buffers);
  }
}

TEST_CASE("a message of the queues that was not received yet cannot be released") {
  TestQueues world(kSmall);
  world.engine.pop_buffers();
  Message message;
  world.queues.release(message);
  REQUIRE(world.engine.deliver(1, pattern(256, 1), {0}));
  world.queues.release(message);
  REQUIRE(world.queues.receive(message));
  CHECK(equal(message.bytes(), pattern(256, 1)));
  CHECK(world.engine.pop_buffers().empty());
  world.queues.release(message);
  CHECK(world.engine.pop_buffers() == Buffers{0});
}

// ---- doorbells and sleeping

TEST_CASE("a send rings the doorbell only while the engine does not watch the queue, and wakes it only when it sleeps") {
  const uint32_t bit = GENERATE(0u, 63u, 64u, 4095u, 4096u, kEndpointsPerClientMax - 1);
  TestQueues world(kSmall, bit);
  world.engine.header->engine_watching.value = 1;
  world.doorbells.page().engine_asleep.value = 1;
  REQUIRE(send(world.queues, 0, {}) == SendOutcome::sent);
  REQUIRE(send(world.queues, 0, pattern(100, 1)) == SendOutcome::sent);
  CHECK_FALSE(world.doorbells.rung(bit));
  CHECK_FALSE(world.doorbells.summarised(bit));
  CHECK(world.doorbells.wakeups() == 0);

  world.engine.header->engine_watching.value = 0;
  world.doorbells.page().engine_asleep.value = 0;
  REQUIRE(send(world.queues, 0, {}) == SendOutcome::sent);
  CHECK(world.doorbells.rung(bit));
  CHECK(world.doorbells.summarised(bit));
  CHECK(world.doorbells.wakeups() == 0);

  world.doorbells.page().engine_asleep.value = 1;
  REQUIRE(world.queues.put(Channel{0}, 0, {}, false) == SendOutcome::sent);
  CHECK(world.doorbells.rung(bit));
  CHECK(world.doorbells.wakeups() == 1);

  // Other bits are untouched.
  for (uint32_t i = 0; i < ClientPage::kWords; ++i) CHECK(world.doorbells.page().doorbells[i] == 0);
}

TEST_CASE("a refused send rings nothing") {
  TestQueues world(kSmall);
  for (uint32_t i = 0; i < 8; ++i) REQUIRE(send(world.queues, i, {}) == SendOutcome::sent);
  CHECK(world.doorbells.rung(70));
  CHECK(send(world.queues, 9, {}) == SendOutcome::full);
  CHECK(send(world.queues, 9, pattern(kIpMessageMax + 1, 1)) == SendOutcome::too_long);
  CHECK_FALSE(world.doorbells.rung(70));
}

TEST_CASE("before sleeping the client says so and gives back its slots; afterwards it takes both words back") {
  TestQueues world(kSmall);
  Message message;
  REQUIRE(world.engine.deliver_inline(0, {}));
  REQUIRE(world.queues.receive(message));
  world.queues.release(message);
  CHECK(world.engine.receive_room() == 7);
  world.queues.announce_sleep(false);
  CHECK(world.engine.receive_room() == 8);
  CHECK(world.engine.header->receiver_asleep.value == 1);
  CHECK(world.engine.header->sender_waiting.value == 0);
  world.queues.announce_sleep(true);
  CHECK(world.engine.header->sender_waiting.value == 1);
  world.queues.end_sleep();
  CHECK(world.engine.header->receiver_asleep.value == 0);
  CHECK(world.engine.header->sender_waiting.value == 0);
}

TEST_CASE("the counters are the NI's") {
  TestQueues world(kSmall);
  world.engine.header->counters[static_cast<size_t>(EndpointCounter::no_free_buffer)] = 17;
  CHECK(world.queues.counter(EndpointCounter::no_free_buffer) == 17);
  CHECK(world.queues.counter(EndpointCounter::sent_messages) == 0);
  std::set<std::string_view> names(kEndpointCounterNames.begin(), kEndpointCounterNames.end());
  CHECK(names.size() == kEndpointCounters);
}

}  // namespace
}  // namespace unet::ni_queues_test
