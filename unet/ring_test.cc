// ring_test.cc - the ring between one writer and one reader: every interleaving of small rings, two threads, false data from either end.
#include "unet/ring.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace unet::ring_test {
namespace {

// Slots and the credit word, in the state after another pair of ends has used them up to `start`.
struct Memory {
  explicit Memory(uint32_t depth, uint32_t start = 0) : slots(depth), consumed(start) {
    for (uint32_t back = 1; back <= depth; ++back) {
      const uint32_t position = start - back;
      if (start != 0) slots[position & (depth - 1)].mark = Mark::pack(position + 1, 0, SlotKind::inline_data);
    }
  }
  std::vector<Slot> slots;
  std::atomic<uint32_t> consumed;
};

// ---- every interleaving
//
// Each step below touches shared memory at most once, so the schedules of these steps cover everything that two cores can do. (A mark is
// stored with release and loaded with acquire, so no access moves across it.) The reader may hold messages before it gives them back. The
// search skips states that it has seen.
struct World {
  enum class WriterStep : uint8_t { reserve, first_half, second_half, publish };
  enum class ReaderStep : uint8_t { peek, first_half, second_half, advance };

  World(uint32_t depth, uint32_t start, uint32_t messages, uint32_t held_max)
      : memory(depth, start),
        writer(memory.slots.data(), depth, &memory.consumed, start),
        reader(memory.slots.data(), depth, &memory.consumed, start),
        start(start),
        messages(messages),
        held_max(held_max),
        released(start) {}

  uint32_t sent() const { return writer.position() - start; }
  uint32_t received() const { return reader.position() - start; }
  uint32_t depth() const { return writer.depth(); }

  // Runs one step of the writer. Returns false if it changed nothing.
  bool write() {
    if (sent() == messages) return false;
    const auto value = static_cast<uint8_t>(sent() + 1);
    switch (writer_step) {
      case WriterStep::reserve: {
        const uint32_t known = writer.consumed();
        slot = writer.reserve();
        if (slot == nullptr) return writer.consumed() != known;
        // The writer must not write slots that the reader has not given back.
        if (writer.position() - released >= depth()) return fail("the writer got a slot that the reader still holds");
        writer_step = WriterStep::first_half;
        return true;
      }
      case WriterStep::first_half:
        std::memset(slot->payload, value, kInlineMax / 2);
        writer_step = WriterStep::second_half;
        return true;
      case WriterStep::second_half:
        std::memset(slot->payload + kInlineMax / 2, value, kInlineMax / 2);
        writer_step = WriterStep::publish;
        return true;
      case WriterStep::publish:
        writer.publish(slot, value, SlotKind::inline_data);
        writer_step = WriterStep::reserve;
        return true;
    }
    return false;
  }

  bool read() {
    if (received() == messages) return false;
    const auto value = static_cast<uint8_t>(received() + 1);
    switch (reader_step) {
      case ReaderStep::peek: {
        Mark mark{};
        if (reader.position() - released >= held_max || reader.peek(mark) == nullptr) return false;
        if (mark.length != value || mark.kind != SlotKind::inline_data) return fail("a mark is not the message's");
        reader_step = ReaderStep::first_half;
        return true;
      }
      case ReaderStep::first_half: return check_half(0, value, ReaderStep::second_half);
      case ReaderStep::second_half: return check_half(kInlineMax / 2, value, ReaderStep::advance);
      case ReaderStep::advance:
        reader.advance();
        reader_step = ReaderStep::peek;
        return true;
    }
    return false;
  }

  bool release() {
    if (released == reader.position()) return false;
    // The oldest unreleased message must be unchanged.
    const Slot& oldest = memory.slots[released & (depth() - 1)];
    if (oldest.payload[0] != static_cast<std::byte>(released - start + 1)) return fail("a held message was overwritten");
    ++released;
    reader.give_back(released);
    return true;
  }

  // Runs the step of a reader without messages.
  bool flush() {
    if (reader.published() == released) return false;
    reader.give_back_now(released);
    return true;
  }

  std::string key() const {
    std::string bytes;
    const auto add = [&](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
    for (const Slot& each : memory.slots) {
      add(each.mark.load(std::memory_order_relaxed));
      add(each.payload[0]);
      add(each.payload[kInlineMax / 2]);
    }
    add(memory.consumed.load(std::memory_order_relaxed));
    add(writer.position());
    add(writer.consumed());
    add(writer_step);
    add(reader.position());
    add(reader.published());
    add(reader_step);
    add(released);
    return bytes;
  }

  bool check_half(size_t from, uint8_t value, ReaderStep next) {
    const Slot& at = memory.slots[reader.position() & (depth() - 1)];
    for (size_t i = 0; i < kInlineMax / 2; ++i) {
      if (at.payload[from + i] != static_cast<std::byte>(value)) return fail("a payload is not the message's");
    }
    reader_step = next;
    return true;
  }
  bool fail(const char* what) {
    problem = what;
    return true;
  }

  Memory memory;
  SlotWriter writer;
  SlotReader reader;
  const uint32_t start, messages, held_max;
  uint32_t released;
  Slot* slot = nullptr;
  WriterStep writer_step = WriterStep::reserve;
  ReaderStep reader_step = ReaderStep::peek;
  const char* problem = nullptr;
};

// The changing parts of a World, to restore them.
struct Saved {
  explicit Saved(const World& world)
      : consumed(world.memory.consumed.load(std::memory_order_relaxed)),
        writer(world.writer),
        reader(world.reader),
        released(world.released),
        slot(world.slot),
        writer_step(world.writer_step),
        reader_step(world.reader_step) {
    for (const Slot& each : world.memory.slots) {
      marks.push_back(each.mark.load(std::memory_order_relaxed));
      payloads.insert(payloads.end(), each.payload, each.payload + kInlineMax);
    }
  }
  void restore(World& world) const {
    for (size_t i = 0; i < marks.size(); ++i) {
      world.memory.slots[i].mark = marks[i];
      std::memcpy(world.memory.slots[i].payload, payloads.data() + i * kInlineMax, kInlineMax);
    }
    world.memory.consumed = consumed;
    world.writer = writer;
    world.reader = reader;
    world.released = released;
    world.slot = slot;
    world.writer_step = writer_step;
    world.reader_step = reader_step;
  }
  std::vector<uint64_t> marks;
  std::vector<std::byte> payloads;
  uint32_t consumed;
  SlotWriter writer;
  SlotReader reader;
  uint32_t released;
  Slot* slot;
  World::WriterStep writer_step;
  World::ReaderStep reader_step;
};

struct Exploration {
  size_t states = 0;
  size_t ends = 0;  // states without a possible step
  std::string problem;
};

Exploration explore(uint32_t depth, uint32_t start, uint32_t messages, uint32_t held_max) {
  World world(depth, start, messages, held_max);
  Exploration result;
  std::set<std::string> seen{world.key()};
  std::vector<Saved> todo{Saved(world)};
  bool (World::*const steps[])() = {&World::write, &World::read, &World::release, &World::flush};
  while (!todo.empty() && result.problem.empty()) {
    const Saved here = std::move(todo.back());
    todo.pop_back();
    ++result.states;
    bool stuck = true;
    for (const auto step : steps) {
      here.restore(world);
      if (!(world.*step)()) continue;
      stuck = false;
      if (world.problem != nullptr) result.problem = world.problem;
      if (seen.insert(world.key()).second) todo.emplace_back(world);
    }
    if (!stuck) continue;
    here.restore(world);
    ++result.ends;
    if (world.received() != messages || world.released - start != messages) result.problem = "both ends wait for each other";
  }
  return result;
}

TEST_CASE("every interleaving of writer and reader delivers every message once, whole and in order") {
  const uint32_t start = GENERATE(uint32_t{0}, uint32_t{5}, ~uint32_t{0} - 2, ~uint32_t{0}, uint32_t{1} << 31);
  const auto [depth, messages, held_max] =
      GENERATE(table<uint32_t, uint32_t, uint32_t>({{4, 4, 4}, {4, 6, 1}, {4, 6, 4}, {4, 9, 2}, {8, 11, 8}, {8, 12, 3}}));
  CAPTURE(start, depth, messages, held_max);
  const Exploration result = explore(depth, start, messages, held_max);
  CHECK(result.problem == "");
  CHECK(result.ends > 0);
  CHECK(result.states > 100);
}

// The exploration detects a planted error.
TEST_CASE("a reader that gives back slots it still holds is caught by the exploration") {
  World world(4, 0, 6, 4);
  for (int i = 0; i < 16; ++i) REQUIRE(world.write());
  for (int i = 0; i < 4; ++i) REQUIRE(world.read());
  CHECK_FALSE(world.write());
  world.memory.consumed = 1;
  CHECK(world.write());
  CHECK(world.problem != nullptr);
}

// ---- credits

TEST_CASE("the reader publishes credits once per quarter ring, and at once when asked") {
  Memory memory(16);
  SlotReader reader(memory.slots.data(), 16, &memory.consumed);
  CHECK_FALSE(reader.give_back(1));
  CHECK_FALSE(reader.give_back(3));
  CHECK(memory.consumed == 0);
  CHECK(reader.give_back(4));
  CHECK(memory.consumed == 4);
  reader.give_back_now(5);
  CHECK(memory.consumed == 5);
  CHECK_FALSE(reader.give_back(8));
  CHECK(reader.give_back(9));
  CHECK(reader.published() == 9);
}

TEST_CASE("a writer reads the credit word only when it knows of no room") {
  Memory memory(4);
  SlotWriter writer(memory.slots.data(), 4, &memory.consumed);
  for (uint32_t i = 0; i < 4; ++i) {
    CHECK(writer.room() == 4 - i);
    writer.publish(writer.reserve(), 0, SlotKind::inline_data);
  }
  CHECK(writer.room() == 0);
  CHECK(writer.reserve() == nullptr);
  memory.consumed = 3;
  CHECK(writer.reserve() != nullptr);
  CHECK(writer.consumed() == 3);
  memory.consumed = 4;
  CHECK(writer.reserve() != nullptr);
  CHECK(writer.consumed() == 3);
  CHECK(writer.refresh());
  CHECK(writer.consumed() == 4);
}

TEST_CASE("a credit for what was not sent or was credited before changes nothing") {
  const uint32_t start = GENERATE(uint32_t{0}, uint32_t{1000}, ~uint32_t{0} - 3);
  for (uint32_t consumed = 0; consumed <= 4; ++consumed) {
    for (uint32_t sent = consumed; sent <= consumed + 4; ++sent) {
      const auto claim = [&](uint32_t claimed) {
        Memory memory(4, start);
        SlotWriter writer(memory.slots.data(), 4, &memory.consumed, start);
        for (uint32_t i = 0; i < sent; ++i) {
          if (i == 4) memory.consumed = start + consumed;
          writer.publish(writer.reserve(), 0, SlotKind::inline_data);
        }
        memory.consumed = start + consumed;
        writer.refresh();
        REQUIRE(writer.consumed() == start + consumed);
        memory.consumed = claimed;
        const bool room = writer.refresh();
        const bool honest = claimed - (start + consumed) <= sent - consumed;
        const uint32_t expected = honest ? claimed : start + consumed;
        const Slot* slot = writer.reserve();
        return writer.consumed() == expected && room == (start + sent - expected < 4) && (slot != nullptr) == room &&
               (slot == nullptr || slot == &memory.slots[(start + sent) & 3]);
      };
      CAPTURE(start, consumed, sent);
      bool all = true;
      for (uint32_t offset = 0; offset < 64; ++offset) all = all && claim(start - 32 + offset);
      for (const uint32_t far : {uint32_t{1} << 31, (uint32_t{1} << 31) - 1, uint32_t{0xDEADBEEF}}) all = all && claim(start + sent + far);
      CHECK(all);
    }
  }
}

TEST_CASE("a writer stays inside the ring whatever the credit word says, and never gets ahead of it by more than the depth") {
  std::mt19937 random(1);
  Memory memory(8);
  SlotWriter writer(memory.slots.data(), 8, &memory.consumed);
  bool inside = true;
  for (int i = 0; i < 100'000; ++i) {
    memory.consumed = (random() & 1) != 0 ? static_cast<uint32_t>(random()) : writer.position() - 8 + (random() & 15);
    if ((random() & 1) != 0) writer.refresh();
    Slot* slot = writer.reserve();
    inside = inside && writer.position() - writer.consumed() <= 8;
    if (slot == nullptr) continue;
    inside = inside && slot == &memory.slots[writer.position() & 7] && writer.position() - writer.consumed() < 8;
    writer.publish(slot, 1, SlotKind::inline_data);
  }
  CHECK(inside);
}

// ---- marks

TEST_CASE("a mark holds sequence, length and kind apart") {
  for (const uint32_t sequence : {0u, 1u, 0x8000'0000u, 0xFFFF'FFFFu}) {
    for (const uint32_t length : {0u, 1u, 48u, 65536u, 0xFF'FFFFu}) {
      for (const auto kind : {SlotKind::none, SlotKind::inline_data, SlotKind::put_done, static_cast<SlotKind>(0xFF)}) {
        const Mark mark = Mark::unpack(Mark::pack(sequence, length, kind));
        CHECK((mark.sequence == sequence && mark.length == length && mark.kind == kind));
      }
    }
  }
  CHECK(Mark::unpack(Mark::pack(7, 0x1FF'FFFF, SlotKind::runs)).kind == SlotKind::runs);
}

TEST_CASE("a slot is full for the position its mark names and for no other") {
  const uint32_t start = GENERATE(uint32_t{0}, uint32_t{77}, ~uint32_t{0} - 1);
  Memory memory(4, start);
  SlotReader reader(memory.slots.data(), 4, &memory.consumed, start);
  for (uint32_t step = 0; step < 12; ++step) {
    const uint32_t position = start + step;
    Slot& slot = memory.slots[position & 3];
    Mark mark{};
    for (const uint32_t sequence : {position, position + 2, position + 5, position - 3, position + 0x8000'0001u}) {
      slot.mark = Mark::pack(sequence, 5, SlotKind::inline_data);
      CHECK(reader.peek(mark) == nullptr);
    }
    slot.mark = Mark::pack(position + 1, step, SlotKind::runs);
    CHECK(reader.peek(mark) == &slot);
    CHECK((mark.length == step && mark.kind == SlotKind::runs && mark.sequence == position + 1));
    CHECK(&reader.slot_at(position) == &slot);
    CHECK(reader.peek_at(position + 1, mark) == nullptr);
    reader.advance();
  }
}

TEST_CASE("fresh memory holds no message for a reader that starts at 0") {
  Memory memory(4);
  SlotReader reader(memory.slots.data(), 4, &memory.consumed);
  Mark mark{};
  for (uint32_t at = 0; at < 4; ++at) CHECK(reader.peek_at(at, mark) == nullptr);
}

TEST_CASE("a reader of random marks stays inside the ring and takes each slot's word once") {
  std::mt19937_64 random(2);
  Memory memory(8);
  SlotReader reader(memory.slots.data(), 8, &memory.consumed);
  bool inside = true;
  uint32_t taken = 0;
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t word = (random() & 3) != 0 ? (random() & ~uint64_t{0xFFFF'FFFF}) | (reader.position() + 1) : random();
    memory.slots[random() & 7].mark = word;
    Mark mark{};
    const Slot* slot = reader.peek(mark);
    if (slot == nullptr) continue;
    inside = inside && slot == &memory.slots[reader.position() & 7] && mark.length <= 0xFF'FFFF;
    reader.advance();
    reader.give_back(reader.position());
    ++taken;
  }
  CHECK(inside);
  CHECK(taken > 1000);
  CHECK(reader.position() == taken);
}

// ---- the free queue

TEST_CASE("the free queue hands buffers over in order, over its end and over 2^32") {
  std::vector<FreeSlot> slots(8);
  FreeWriter writer(slots.data(), 8);
  FreeReader reader(slots.data(), 8);
  uint32_t buffer = 0, pushed = 0, popped = 0;
  CHECK_FALSE(reader.pop(buffer));
  std::mt19937 random(3);
  bool in_order = true;
  for (int i = 0; i < 10'000; ++i) {
    if ((random() & 1) != 0 && pushed - popped < 8) {
      writer.push(pushed++ * 2654435761u);
    } else if (reader.pop(buffer)) {
      in_order = in_order && popped < pushed && buffer == popped * 2654435761u;
      ++popped;
    } else {
      in_order = in_order && popped == pushed;
    }
  }
  CHECK(in_order);
  CHECK(popped > 1000);
}

// ---- two threads

TEST_CASE("two threads: messages of all small sizes arrive whole and in order") {
  const uint32_t depth = GENERATE(uint32_t{4}, uint32_t{64});
  constexpr uint32_t kMessages = 100'000;
  Memory memory(depth, ~uint32_t{0} - 1000);  // the position wraps during the test
  SlotWriter writer(memory.slots.data(), depth, &memory.consumed, memory.consumed);
  SlotReader reader(memory.slots.data(), depth, &memory.consumed, memory.consumed);

  std::thread sender([&] {
    for (uint32_t i = 0; i < kMessages; ++i) {
      Slot* slot;
      while ((slot = writer.reserve()) == nullptr) std::this_thread::yield();
      const uint32_t length = i % (kInlineMax + 1);
      std::memset(slot->payload, static_cast<int>(i & 0xFF), length);
      slot->channel = i;
      writer.publish(slot, length, SlotKind::inline_data);
    }
  });
  bool whole = true;
  uint32_t received = 0, released = reader.position();
  while (received < kMessages) {
    Mark mark{};
    const Slot* slot = reader.peek(mark);
    if (slot == nullptr) {
      reader.give_back_now(released = reader.position());
      std::this_thread::yield();
      continue;
    }
    whole = whole && slot->channel == received && mark.length == received % (kInlineMax + 1);
    for (uint32_t i = 0; i < mark.length; ++i) whole = whole && slot->payload[i] == static_cast<std::byte>(received & 0xFF);
    reader.advance();
    ++received;
    // Hold at most two messages.
    if (reader.position() - released > 2) reader.give_back(++released);
  }
  sender.join();
  CHECK(whole);
}

}  // namespace
}  // namespace unet::ring_test
