// zero_copy_receive_test.cc - zero-copy receive: in-place messages of several streams, against a plain model of the streams.
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <vector>

#include "ipstack/tcp/receive_buffer.h"

using namespace unet;
using namespace unet::tcp;

namespace {

std::byte at(uint64_t place) { return static_cast<std::byte>(place * 31 + place / 512); }

// Owns messages until release(), and frees their memory then.
struct Keeper : ZeroCopyReceive {
  using ZeroCopyReceive::ZeroCopyReceive;
  void release(uint32_t number) noexcept override { UNET_CHECK(there.erase(number) == 1); }
  std::map<uint32_t, std::vector<std::byte>> there;
};

}  // namespace

TEST_CASE("zero-copy receive: in-place messages read like copies, and are copied when they are old") {
  const uint32_t chunks = GENERATE(20u, 60u, 2000u);
  std::mt19937_64 random(chunks);
  Keeper keeper(600, 30'000);
  ChunkPool pool(512, chunks);
  pool.set_kept(&keeper);
  struct Stream {
    ReceiveBuffer buffer;
    uint64_t read = 0, next = 0;
  };
  std::array<Stream, 3> streams;
  const Sequence first{0xFFFFC000};
  for (Stream& each : streams) each.buffer.start(first);
  uint64_t kept = 0;
  for (int i = 0; i < 12'000; ++i) {
    Stream& stream = streams[random() % 3];
    const uint64_t from = stream.next + (random() % 8 == 0 ? random() % 3000 : 0), length = 1 + random() % 4000;
    std::vector<std::byte> message(40 + length);  // with headers
    for (uint64_t place = 0; place < length; ++place) message[40 + place] = at(from + place);
    const uint32_t number = keeper.offer(message);
    REQUIRE(keeper.there.emplace(number, std::move(message)).second);
    while (keeper.is_late()) ReceiveBuffer::copy_oldest(pool);
    const auto result = stream.buffer.insert(pool, first + static_cast<uint32_t>(from), Bytes(keeper.there.at(number)).subspan(40));
    if (keeper.withdraw()) {
      REQUIRE((length >= 600 && from == stream.next && result.missing == 0 && !stream.buffer.has_gaps()));
      ++kept;
    } else {
      keeper.there.erase(number);
    }
    REQUIRE(keeper.there.size() <= ZeroCopyReceive::kMost);
    const uint64_t next = stream.read + stream.buffer.readable();
    REQUIRE(next >= (from == stream.next ? from + length - result.missing : stream.next));
    stream.next = next;
    if (random() % 4 != 0) continue;
    std::array<Bytes, 64> pieces;
    const uint32_t count = stream.buffer.gather(pool, pieces);
    uint64_t place = stream.read;
    bool same = true;
    for (uint32_t piece = 0; piece < count; ++piece) {
      for (const std::byte each : pieces[piece]) same = same && each == at(place++);
    }
    REQUIRE(same);
    REQUIRE((place == next || count == pieces.size()));
    const auto used = static_cast<uint32_t>(random() % 3 == 0 ? random() % (place - stream.read + 1) : place - stream.read);
    stream.buffer.consume(pool, used);
    stream.read += used;
  }
  CHECK(kept > 1000);
  for (Stream& each : streams) {
    CHECK(each.next > 100'000);
    each.buffer.clear(pool);
  }
  CHECK(keeper.there.empty());
  CHECK(pool.available() == chunks);
}

TEST_CASE("zero-copy receive: intake is limited to what the reader soon reads, and unread messages are copied") {
  constexpr uint32_t kMost = ZeroCopyReceive::kMost, kBytes = 1000;
  Keeper keeper(100);
  ChunkPool pool(512, 400);
  pool.set_kept(&keeper);
  ReceiveBuffer buffer;
  buffer.start({0});
  const auto come = [&] {
    std::vector<std::byte> message(kBytes);
    for (uint32_t i = 0; i < kBytes; ++i) message[i] = at(buffer.next().value + i);
    const uint32_t number = keeper.offer(message);
    keeper.there[number] = std::move(message);
    REQUIRE(buffer.insert(pool, buffer.next(), keeper.there[number]).missing == 0);
    const bool kept = keeper.withdraw();
    if (!kept) keeper.there.erase(number);
    return kept;
  };
  Nanoseconds now = kSecond;
  CHECK(keeper.intake(now) == kMost);
  for (uint32_t i = 0; i < kMost; ++i) CHECK(come());
  CHECK_FALSE(come());
  CHECK(keeper.intake(now) == kMost);  // the reader has been idle
  buffer.consume(pool, kBytes + kBytes / 2);
  CHECK(keeper.there.size() == kMost - 1);
  CHECK(keeper.intake(now) == 1);
  CHECK(come());
  CHECK(keeper.intake(now += ZeroCopyReceive::kPatience - 1) == 0);
  CHECK(keeper.intake(++now) == kMost);
  CHECK_FALSE(come());
  CHECK(keeper.there.size() == kMost);
  CHECK_FALSE(keeper.is_stale());
  static_cast<void>(keeper.intake(now += 2 * ZeroCopyReceive::kStale));
  for (; keeper.is_stale(); ReceiveBuffer::copy_oldest(pool)) {}
  CHECK(keeper.there.empty());
  std::array<Bytes, 64> pieces;
  uint64_t place = kBytes + kBytes / 2;
  for (uint32_t i = 0, count = buffer.gather(pool, pieces); i < count; ++i) {
    for (const std::byte each : pieces[i]) REQUIRE(each == at(place++));
  }
  CHECK(place == buffer.next().value);
  buffer.clear(pool);
  CHECK(pool.available() == 400);
}

TEST_CASE("zero-copy receive: a message is copied after a span of arrivals, however small they are") {
  Keeper keeper(100, 10 * ZeroCopyReceive::kOfEach);
  ChunkPool pool(512, 400);
  pool.set_kept(&keeper);
  ReceiveBuffer buffer;
  buffer.start({0});
  std::vector<std::byte> message(1000);
  const uint32_t number = keeper.offer(message);
  keeper.there[number] = std::move(message);
  buffer.insert(pool, {0}, keeper.there[number]);
  REQUIRE(keeper.withdraw());
  for (int i = 0; i < 10; ++i, keeper.count(0)) CHECK_FALSE(keeper.is_late());
  keeper.count(1);
  CHECK(keeper.is_late());
  ReceiveBuffer::copy_oldest(pool);
  CHECK_FALSE(keeper.is_late());
  CHECK(buffer.readable() == 1000);
  buffer.clear(pool);
}
