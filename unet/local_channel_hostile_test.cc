// local_channel_hostile_test.cc - a peer that writes anything anywhere harms only the channel that it shares.
#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "unet/test_process.h"
#include "unet/test_victim.h"

namespace unet::local_channel_hostile_test {
namespace {

constexpr LocalOptions kOptions{.depth = 16, .data_bytes = 4 * kMessageMax};

// A liar that knows the layout. It mostly writes marks that the victim believes, over descriptors and words of every kind.
class Liar {
 public:
  Liar(const ChannelParts& parts, uint32_t victim, uint32_t seed)
      : memory_(parts.map()), geometry_(parts.geometry()), victim_(victim), random_(seed) {}

  void lie(uint32_t next_position) {
    switch (random_() % 8) {
      case 0: return random_words(0, geometry_.slots[0]);                                         // credits, sleep flags
      case 1: return random_words(geometry_.slots[0], geometry_.data[0] - geometry_.slots[0]);  // slots of both directions
      case 2: return credit();
      case 3: return forge(static_cast<uint32_t>(random_()));
      default: return forge(next_position + static_cast<uint32_t>(random_() % 3));
    }
  }
  void scribble() { random_words(0, geometry_.total); }

 private:
  uint64_t word() {
    switch (random_() % 4) {
      case 0: return 0;
      case 1: return ~uint64_t{0} >> (random_() % 64);
      case 2: return random_() % (2 * kMessageMax);
      default: return (uint64_t{random_()} << 32) | random_();
    }
  }
  void random_words(uint64_t from, uint64_t bytes) {
    const uint64_t at = from + random_() % (bytes / 8) * 8;
    reinterpret_cast<std::atomic<uint64_t>*>(memory_.data() + at)->store(word(), std::memory_order_relaxed);
  }
  void credit() {
    auto* control = reinterpret_cast<LocalControl*>(memory_.data() + geometry_.control[victim_]);
    const uint32_t now = control->consumed.value.load(std::memory_order_relaxed);
    control->consumed.value.store(now + static_cast<uint32_t>(random_() % 8), std::memory_order_relaxed);
  }
  // Writes a slot for the victim's position `position`, with fields at the limits of their ranges.
  void forge(uint32_t position) {
    auto* slots = reinterpret_cast<Slot*>(memory_.data() + geometry_.slots[1 - victim_]);
    Slot& slot = slots[position & (geometry_.depth - 1)];
    const uint64_t edges[] = {0, geometry_.data_bytes, geometry_.data_bytes - 1, Victim::kRegion, ~uint64_t{0}, word()};
    const uint64_t descriptor[2] = {edges[random_() % 6] - random_() % 2, word()};
    std::memcpy(slot.payload, descriptor, sizeof descriptor);
    const uint32_t lengths[] = {0, kInlineMax, kInlineMax + 1, kInSlotsMax, kInSlotsMax + 1, kMessageMax, kMessageMax + 1, 0xFF'FFFF,
                                static_cast<uint32_t>(random_())};
    const auto kind = static_cast<SlotKind>((random_() & 3) != 0 ? random_() % 10 : random_() % 256);
    slot.mark.store(Mark::pack(position + 1, lengths[random_() % 9], kind), std::memory_order_release);
  }

  Mapping memory_;
  LocalGeometry geometry_;
  uint32_t victim_;
  std::mt19937 random_;
};

TEST_CASE("whatever stands in the memory, every call of the victim stays in range") {
  const uint32_t side = GENERATE(0u, 1u);
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    const ChannelParts parts(kOptions);
    Victim victim(parts, side);
    Liar liar(parts, side, seed);
    std::mt19937 random(seed + 1000);
    bool right = true;
    for (int i = 0; i < 20'000 && right; ++i) {
      liar.lie(victim.next_position());
      right = victim.turn(static_cast<uint32_t>(random()));
    }
    CAPTURE(side, seed);
    CHECK(right);
    CHECK(victim.received() > 100);
    CHECK(victim.channel().counters().bad_descriptor > 100);
  }
}

// The victim reports its progress to the liar, so that lies are believed.
struct Progress {
  std::atomic<uint32_t> position;
  std::atomic<uint32_t> lies;
};

TEST_CASE("a peer process that scribbles over all of the memory while the victim works in it") {
  const ChannelParts parts(kOptions);
  const Descriptor page = sealed_memory(kPage);
  const Mapping shared = map_all(page, kPage);
  auto* progress = reinterpret_cast<Progress*>(shared.data());
  ChildProcess child([&] {
    Liar liar(parts, 0, 1);
    while (true) {
      for (int i = 0; i < 8; ++i) liar.scribble();
      for (int i = 0; i < 8; ++i) liar.lie(progress->position.load(std::memory_order_relaxed));
      progress->lies.fetch_add(1, std::memory_order_relaxed);
    }
    return 0;
  });
  Victim victim(parts, 0);
  std::mt19937 random(2);
  bool right = true;
  const auto enough = [&] {
    const uint64_t lies = progress->lies.load(std::memory_order_relaxed);
    return victim.received() > 100 && victim.channel().counters().bad_descriptor > 100 && lies > 20'000;
  };
  for (int i = 0; right && (i < 200'000 || !enough()); ++i) {
    right = victim.turn(static_cast<uint32_t>(random()));
    progress->position.store(victim.next_position(), std::memory_order_relaxed);
    if (i % 256 == 0) std::this_thread::yield();
  }
  child.kill();
  CHECK(right);
  for (int i = 0; i < 10'000 && right; ++i) right = victim.turn(static_cast<uint32_t>(random()));
  CHECK(right);
}

TEST_CASE("a channel whose peer lied for a while still ends in full or sent, never in anything else") {
  const ChannelParts parts(kOptions);
  Victim victim(parts, 1);
  Liar liar(parts, 1, 3);
  std::mt19937 random(4);
  for (int i = 0; i < 5'000; ++i) {
    liar.lie(victim.next_position());
    REQUIRE(victim.turn(static_cast<uint32_t>(random())));
  }
  victim.release_all();
  Message message;
  // Finite memory holds a finite number of lies.
  uint32_t left = 0;
  while (victim.channel().has_message()) {
    if (victim.channel().receive(message)) victim.channel().release(message);
    REQUIRE(++left <= parts.geometry().depth);
  }
  uint32_t sent = 0;
  while (victim.channel().send(nullptr, 0) == SendOutcome::sent) REQUIRE(++sent <= parts.geometry().depth);
  CHECK(victim.channel().send(nullptr, 0) == SendOutcome::full);
}

// ---- single lies, each with its consequence

struct Honest {
  TestChannel channel{kOptions};
  Mapping memory = channel.parts.map();
  const LocalGeometry& geometry = channel.parts.geometry();
  Slot& slot(uint32_t side, uint32_t position) {
    return reinterpret_cast<Slot*>(memory.data() + geometry.slots[side])[position & (geometry.depth - 1)];
  }
  LocalControl& control(uint32_t side) { return *reinterpret_cast<LocalControl*>(memory.data() + geometry.control[side]); }
};

TEST_CASE("each field of a descriptor that cannot be is dropped and counted, and the next message arrives") {
  const struct {
    SlotKind kind;
    uint32_t length;
    uint64_t offset;
  } lies[] = {
      {SlotKind::none, 8, 0},
      {SlotKind::inline_data, kInlineMax + 1, 0},
      {SlotKind::gather, 8, 0},
      {SlotKind::put, 8, 0},
      {SlotKind::runs, 8, 0},
      {static_cast<SlotKind>(255), 8, 0},
      {SlotKind::local_data, kMessageMax + 1, 0},
      {SlotKind::local_data, 1, 4 * kMessageMax},
      {SlotKind::local_data, 2, 4 * kMessageMax - 1},
      {SlotKind::local_data, 0, 4 * kMessageMax + 1},
      {SlotKind::local_data, 64, ~uint64_t{0} - 31},
      {SlotKind::headed, kMessageMax + 1, 0},
      {SlotKind::headed, 1, 4 * kMessageMax},
      {SlotKind::headed, 2, 4 * kMessageMax - 1},
      {SlotKind::headed, 64, ~uint32_t{0} - 31},
      {SlotKind::in_slots, kInlineMax, 0},
      {SlotKind::in_slots, kInSlotsMax + 1, 0},
      {SlotKind::in_slots, kInSlotsMax, 0},  // without the third slot
      {SlotKind::headed_in_slots, kInSlotsMax, 0},
      {SlotKind::headed_in_slots, 0xFF'FFFF, 0},
      {SlotKind::put_done, 1, 0},  // the victim exposes no region
      {SlotKind::put_done, 0, 1},
  };
  Honest world;
  uint64_t bad = 0;
  uint32_t position = 0;
  for (const auto& lie : lies) {
    Slot& slot = world.slot(0, position);
    std::memcpy(slot.payload, &lie.offset, sizeof lie.offset);
    slot.mark = Mark::pack(position + 1, lie.length, lie.kind);
    Slot& after = world.slot(0, position + 1);
    std::memset(after.payload, 7, kInlineMax);
    after.mark = Mark::pack(position + 2, 5, SlotKind::inline_data);
    position += 2;

    Message message;
    CAPTURE(static_cast<int>(lie.kind), lie.length, lie.offset);
    CHECK(world.channel[1].has_message());
    CHECK_FALSE(world.channel[1].receive(message));
    CHECK(world.channel[1].counters().bad_descriptor == ++bad);
    REQUIRE(world.channel[1].receive(message));
    CHECK((message.length == 5 && message.data[0] == std::byte{7}));
    world.channel[1].release(message);
  }
  world.channel[1].flush_credits();
  CHECK(world.control(0).consumed.value == position);  // dropped slots are given back, too
}

TEST_CASE("a head that cannot be is none") {
  Honest world;
  for (const uint32_t length : {0u, 1u, kHeadedMax, kHeadedMax + 1, ~0u}) {
    REQUIRE(world.channel[0].send_headed({}, {}) == SendOutcome::sent);
    Message message;
    REQUIRE(world.channel[1].receive(message));
    std::memcpy(world.slot(0, message.position).payload + offsetof(HeadedDescriptor, head_length), &length, sizeof length);
    CHECK(world.channel[1].head(message).size() == (length <= kHeadedMax ? length : 0));
    world.channel[1].release(message);
  }
}

TEST_CASE("a put_done is checked against the region that this side exposes") {
  Honest world;
  world.channel[1].set_own_region(1000);
  uint32_t position = 0;
  const auto arrives = [&](uint64_t offset, uint32_t length) {
    Slot& slot = world.slot(0, position);
    const PutDoneDescriptor descriptor{.region_offset = offset, .length = ~uint64_t{0}};
    std::memcpy(slot.payload, &descriptor, sizeof descriptor);
    slot.mark = Mark::pack(++position, length, SlotKind::put_done);
    Message message;
    const bool got = world.channel[1].receive(message);
    if (got) world.channel[1].release(message);
    return got && message.region_offset == offset && message.length == length;
  };
  CHECK(arrives(0, 1000));
  CHECK(arrives(1000, 0));
  CHECK_FALSE(arrives(0, 1001));
  CHECK_FALSE(arrives(1000, 1));
  CHECK_FALSE(arrives(1001, 0));
  CHECK_FALSE(arrives(~uint64_t{0}, 1));
}

TEST_CASE("a credit for more than was sent frees nothing: what lies in the ring stays as it is") {
  for (const uint32_t lie : {17u, 1u << 31, ~0u}) {
    Honest world;
    world.control(0).consumed.value = lie;
    uint32_t sent = 0, received = 0;
    while (world.channel[0].send(reinterpret_cast<const std::byte*>(&sent), sizeof sent) == SendOutcome::sent) ++sent;
    CHECK(sent == world.geometry.depth);
    CHECK_FALSE(world.channel[0].has_room());
    for (Message message; world.channel[1].receive(message); ++received) {
      REQUIRE(std::memcmp(message.data, &received, sizeof received) == 0);
    }
    CHECK(received == sent);
  }
}

}  // namespace
}  // namespace unet::local_channel_hostile_test
