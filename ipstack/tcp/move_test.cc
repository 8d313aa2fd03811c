// move_test.cc - connections move to another object, as to a child that a server forks, at every step of every kind of transfer, in
// networks that lose, duplicate, delay and reorder. Both streams arrive, and no reset is sent. restore() refuses invalid records.
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "ipstack/tcp/sim_pair.h"
#include "unet/base/test_seeds.h"

using namespace unet;
using namespace unet::tcp;
using namespace unet::tcp::sim;

namespace {

Options options_of(std::mt19937_64& random) {
  Options options;
  options.mss = static_cast<uint16_t>(88 + random() % 1400);
  options.send_buffer = static_cast<uint32_t>(1000 + random() % 100'000);
  options.receive_buffer = static_cast<uint32_t>(1000 + random() % 100'000);
  options.receive_buffer_max = static_cast<uint32_t>(random() % 500'000);
  draw_options(random, options, false);
  return options;
}

void check_all_arrived(Pair& pair) {
  INFO(describe(pair));
  REQUIRE(pair.fault() == "");
  for (const size_t which : {0u, 1u}) {
    Side& side = pair.side(which);
    REQUIRE(side.read == pair.side(1 - which).plan.bytes);
    REQUIRE(side.ended);
    REQUIRE(side.urgent == pair.side(1 - which).urged);
    REQUIRE(side.connection->state() == State::closed);
    REQUIRE(side.connection->error() == Error::none);
    REQUIRE(side.counters.resets_sent <= side.counters.closed);  // duplicates may arrive after the end
    REQUIRE(side.chunks->available() == pair.pool(which).first);
    REQUIRE(side.records->available() == pair.pool(which).second);
  }
}

// Simulates one connection; the seed decides everything. Returns how many times the two ends moved.
uint64_t live(uint64_t seed) {
  std::mt19937_64 random(seed);
  SimLinkOptions link = draw_link(random, 15);
  if (random() % 2 == 0) link.mark = draw_percent(random, 20);
  Pair pair(link, seed);
  if (random() % 4 == 0) pair.mss_max = static_cast<uint16_t>(88 + random() % 1000);
  constexpr double kMoves[] = {1, 0.5, 0.1, 0.01};
  const uint64_t moving = random() % 3;  // one side, the other, or both
  for (const size_t which : {0u, 1u}) {
    Side& side = pair.side(which);
    side.options = options_of(random);
    side.plan.bytes = random() % 5 == 0 ? 0 : random() % 100'000;
    side.plan.write = static_cast<uint32_t>(1 + random() % 20'000);
    side.plan.read = static_cast<uint32_t>(1 + random() % 20'000);
    if (random() % 3 == 0) side.plan.pause = random() % (20 * kMillisecond);
    side.plan.close_early = random() % 2 == 0;
    side.plan.urges = seed % 5 == which;
    side.plan.fast_open = random() % 4 == 0;
    side.plan.switches = random() % 4 == 0;
    if (moving != which) side.plan.moves = kMoves[random() % 4];
    if (random() % 3 == 0) pair.set_pool(which, static_cast<uint32_t>(8 + random() % 20), static_cast<uint32_t>(2 + random() % 20));
  }
  if (!pair.side(0).plan.close_early) pair.side(1).plan.close_early = true;
  pair.open(random() % 4 == 0);
  pair.run(1'000'000 * kSecond);
  CAPTURE(seed, moving);
  check_all_arrived(pair);
  return pair.side(0).moved + pair.side(1).moved;
}

struct Way {
  const char* name;
  Plan client, server;
  bool bare;  // no SACK, timestamps or window scaling
  uint32_t receive_buffer = 256 * 1024;
};

const Way kWays[] = {
    {"bulk in both directions", {.bytes = 60'000, .close_early = true}, {.bytes = 60'000}, false},
    {"the same without options", {.bytes = 60'000, .close_early = true}, {.bytes = 60'000}, true},
    {"requests and answers", {.bytes = 20'000, .ahead = 2000, .close_early = true}, {.bytes = 20'000, .ahead = 0}, false},
    {"behind the peer's FIN", {.bytes = 100, .close_early = true}, {.bytes = 100'000}, false},
    {"a closed window", {.bytes = 60'000, .pause = 700 * kMillisecond, .close_early = true},
     {.bytes = 60'000, .read = 6000, .pause = 700 * kMillisecond}, false, 8000},
    {"the same without options", {.bytes = 60'000, .pause = 700 * kMillisecond, .close_early = true},
     {.bytes = 60'000, .read = 6000, .pause = 700 * kMillisecond}, true, 8000},
};

void prepare(Pair& pair, const Way& way) {
  for (const size_t which : {0u, 1u}) {
    Side& side = pair.side(which);
    side.plan = which == 0 ? way.client : way.server;
    side.options.send_buffer = side.options.send_buffer_max = 16'000;
    side.options.receive_buffer = way.receive_buffer;
    side.options.receive_buffer_max = 0;
    if (way.bare) side.options.sack = side.options.timestamps = side.options.window_scaling = false;
  }
}

}  // namespace

TEST_CASE("whatever the network does, and however often connections move, both streams arrive and no reset is sent") {
  uint64_t moved = 0;
  for (uint64_t seed = 1; seed <= test::seeds(400); ++seed) moved += live(seed);
  CHECK(moved > 100 * test::seeds(400));
}

TEST_CASE("a connection moves once, at each step of a transfer") {
  const bool lossy = GENERATE(false, true);
  SimLinkOptions link{.delay = 5 * kMillisecond, .bits_per_second = 100e6};
  if (lossy) link = {.delay = 5 * kMillisecond, .jitter = 5 * kMillisecond, .loss = 0.03, .duplicate = 0.03};
  for (const Way& way : kWays) {
    for (const size_t which : {0u, 1u}) {
      uint64_t steps = 1, moved = 0, sent_again = 0;  // `steps`: of the last transfer without a move
      for (uint64_t at = 0; at <= steps; at += test::kSanitized && at != 0 ? 10 : 1) {
        Pair pair(link, 7);
        prepare(pair, way);
        pair.side(which).plan.move_at = at;
        pair.open(false);
        pair.run(10'000 * kSecond);
        CAPTURE(way.name, which, at, lossy);
        check_all_arrived(pair);
        steps = pair.steps();
        moved += pair.side(which).moved;
        const uint64_t retransmitted = pair.side(0).counters.retransmitted + pair.side(1).counters.retransmitted;
        if (at == 0) sent_again = retransmitted;
        // Without loss, a move must not cause a retransmission.
        if (!lossy) CHECK(retransmitted == sent_again);
      }
      CAPTURE(way.name, which, steps);
      if (way.client.bytes != 100 || which == 1) CHECK(moved > (test::kSanitized ? 0 : 20));  // not while its FIN is in flight
    }
  }
}

namespace {

// One stack that connections move to.
struct Stack {
  explicit Stack(uint32_t chunk_count = 512, uint32_t record_count = 64) : chunks(2048, chunk_count), records(record_count) {}

  Options options;
  Counters counters;
  ChunkPool chunks;
  RecordPool records;
  Resources resources{chunks, records, counters};
};

constexpr Nanoseconds kNow = 1000 * kSecond;

// A record with 5000 bytes in flight, 3000 unsent and 700 unread.
MovedConnection record() {
  return {.first_sent_at = kNow - kMillisecond, .sent_at = kNow - kMillisecond, .heard_at = kNow, .since = kNow,
          .rto_at = kNow + 200 * kMillisecond, .srtt = kMillisecond, .rttvar = kMillisecond, .least_rtt = kMillisecond,
          .snd_una = 0xFFFF'F000, .snd_wnd = 5000, .snd_wnd_max = 100'000, .snd_wl1 = 7, .snd_wl2 = 0xFFFF'F000,
          .rcv_nxt = 300, .rcv_wnd = 250'000, .receive_limit = 256 * 1024, .timestamp_offset = 9, .ts_recent = 11, .ts_recent_second = 999,
          .congestion_window = 20'000, .threshold = ~0u, .unacknowledged = 5000, .to_send = 8000, .to_read = 700,
          .local_port = 80, .remote_port = 4000, .peer_mss = 1460, .path_mss = 1460, .peer_scale = 3, .our_scale = 4,
          .scales = 1, .stamps = 1, .sacks = 1};
}

bool restores(Stack& stack, const MovedConnection& from) {
  const std::vector<std::byte> to_send(from.to_send & 0xF'FFFF), to_read(from.to_read & 0xF'FFFF);
  Connection connection(stack.options, stack.resources, 80);
  const bool restored = connection.restore(from, to_send, to_read, kNow);
  if (!restored) {
    Segment segment;
    CHECK(connection.state() == State::closed);
    CHECK(!connection.poll_segment(kNow, 1 << 16, segment));
    CHECK(connection.next_timer() == kNever);
    CHECK(stack.chunks.available() == 512);
    CHECK(stack.records.available() == 64);
  }
  return restored;
}

// A random peer, clock and application use the connection.
void use(Connection& it, std::mt19937_64& random) {
  Nanoseconds now = kNow;
  const auto near = [&](Sequence of) { return of + static_cast<uint32_t>(random() % 4 == 0 ? random() : random() % 6000) - 3000u; };
  std::vector<std::byte> data(3000);
  for (int i = 0; i < 40; ++i) {
    Segment segment;
    std::array<Bytes, 64> pieces;
    for (int count = 0; it.poll_segment(now, 1 + static_cast<uint32_t>(random() % 65536), segment); ++count) {
      REQUIRE(count < 10'000);
      it.gather(segment, pieces);
    }
    const Connection::Ends ends = it.ends(now);
    ip::TcpView view{};
    view.source_port = it.remote_port();
    view.destination_port = it.local_port();
    view.sequence = random() % 2 == 0 ? ends.receive_next : near(ends.receive_next);
    view.acknowledgement = random() % 2 == 0 ? ends.send_next : near(ends.send_unacknowledged);
    view.flags = random() % 8 == 0 ? static_cast<uint8_t>(random()) : ip::TcpFlags::kAck;
    view.window = static_cast<uint16_t>(random());
    view.payload = Bytes(data).first(random() % 3 == 0 ? random() % data.size() : 0);
    view.options.has_timestamps = random() % 8 != 0 && ends.timestamps;
    view.options.timestamp = ends.timestamp_echo + static_cast<uint32_t>(random() % 3);
    view.options.timestamp_echo = ends.timestamp - static_cast<uint32_t>(random() % 100);
    view.options.sack_count = random() % 2 == 0 ? uint8_t{0} : uint8_t{1};
    view.options.sack[0].left = near(ends.send_unacknowledged);
    view.options.sack[0].right = view.options.sack[0].left + static_cast<uint32_t>(random() % 4000);
    it.handle_segment(view, now, static_cast<uint8_t>(random() % 4));
    if (random() % 4 == 0) it.receive(std::span(data).first(random() % data.size()));
    if (random() % 4 == 0) it.send(Bytes(data).first(random() % data.size()));
    if (random() % 8 == 0 && it.next_timer() != kNever) now = std::max(now, it.next_timer());
    it.handle_timer(now);
    it.info(now);
    if (random() % 32 == 0) it.shutdown();
    if (random() % 32 == 0) it.handle_too_big(static_cast<uint16_t>(random()), now);
    if (it.may_move()) it.save();
  }
}

}  // namespace

TEST_CASE("fuzz: restore() accepts or refuses any record, and an accepted connection works") {
  std::mt19937_64 random(1);
  uint32_t taken = 0;
  for (uint32_t i = 0; i < test::seeds(200'000); ++i) {
    Stack stack(64, 16);
    if (i % 2 == 0) stack.options.congestion = static_cast<Algorithm>(random() % kAlgorithmCount);
    MovedConnection from = record();
    std::array<std::byte, sizeof from> bytes;
    std::memcpy(bytes.data(), &from, sizeof from);
    const uint64_t changes = i % 10 == 0 ? 10 * sizeof from : random() % 8;
    for (uint64_t k = 0; k < changes; ++k) {
      constexpr uint8_t kEdges[] = {0, 1, 0x7F, 0x80, 0xFF};
      const size_t at = random() % sizeof from, width = random() % 2 == 0 ? 1 : 4;
      const uint8_t value = random() % 2 == 0 ? kEdges[random() % 5] : static_cast<uint8_t>(random());
      for (size_t place = at; place < std::min(at + width, sizeof from); ++place) bytes[place] = static_cast<std::byte>(value);
    }
    std::memcpy(&from, bytes.data(), sizeof from);
    const std::vector<std::byte> to_send(from.to_send < 200'000 ? from.to_send : 8000);
    const std::vector<std::byte> to_read(from.to_read < 200'000 ? from.to_read : 700);
    {
      Connection connection(stack.options, stack.resources, 80);
      if (connection.restore(from, to_send, to_read, kNow)) {
        ++taken;
        CAPTURE(i);
        use(connection, random);
      } else {
        CHECK(connection.state() == State::closed);
      }
    }
    REQUIRE(stack.chunks.available() == 64);
    REQUIRE(stack.records.available() == 16);
  }
  CHECK(taken > test::seeds(200'000) / 4);
  CHECK(taken < test::seeds(200'000));
}

TEST_CASE("a record that makes no sense is refused by restore()") {
  Stack stack;
  REQUIRE(restores(stack, record()));
  const auto refused = [&](auto change) {
    MovedConnection from = record();
    change(from);
    return !restores(stack, from);
  };
  using M = MovedConnection;
  CHECK(refused([](M& it) { it.local_port = 81; }));
  CHECK(refused([](M& it) { it.remote_port = 0; }));
  CHECK(refused([](M& it) { it.peer_scale = 15; }));
  CHECK(refused([](M& it) { it.our_scale = 15; }));
  CHECK(refused([](M& it) { it.scales = 0; }));  // but the windows are scaled
  CHECK(refused([](M& it) { it.peer_mss = 87; }));
  CHECK(refused([](M& it) { it.unacknowledged = 8001; }));
  CHECK(refused([](M& it) { it.lost = 5001; }));
  CHECK(refused([](M& it) { it.recovery_end = 5001; }));
  CHECK(refused([](M& it) { it.recovery = 3; }));
  CHECK(refused([](M& it) { it.to_send = 1u << 30; }));
  CHECK(refused([](M& it) { it.to_read = 1u << 31; }));
  CHECK(refused([](M& it) { it.snd_wnd = 0x10000 << 3; }));
  CHECK(refused([](M& it) { it.snd_wnd_max = it.snd_wnd - 1; }));
  CHECK(refused([](M& it) { it.snd_wnd_max = 1u << 30; }));
  CHECK(refused([](M& it) { it.rcv_wnd = 0x10000 << 4; }));
  CHECK(refused([](M& it) { it.persisting = 1; }));  // but something is in flight
  for (uint8_t M::*flag : {&M::scales, &M::stamps, &M::sacks, &M::ecn, &M::ecn_seen, &M::echo, &M::reduced, &M::fin_received,
                           &M::ack_due}) {
    CHECK(refused([&](M& it) { it.*flag = 2; }));
  }
}

TEST_CASE("restore() with exhausted pools fails, and leaks nothing") {
  const MovedConnection from = record();
  const std::vector<std::byte> to_send(from.to_send), to_read(from.to_read);
  const auto [chunks, records] = GENERATE(table<uint32_t, uint32_t>({{0, 8}, {4, 8}, {5, 0}, {7, 0}, {7, 1}}));
  Stack stack(chunks, records);
  {
    Connection connection(stack.options, stack.resources, 80);
    CAPTURE(chunks, records);
    CHECK(connection.restore(from, to_send, to_read, kNow) == (chunks == 7 && records == 1));
  }
  CHECK(stack.chunks.available() == chunks);
  CHECK(stack.records.available() == records);
}

TEST_CASE("save() after restore() gives the same record") {
  Stack stack;
  MovedConnection from = record();
  if (GENERATE(false, true)) {
    from.ecn = from.ecn_seen = from.echo = from.reduced = from.fin_received = from.ack_due = 1;
    from.congestion_window = 30'000;
    from.threshold = 25'000;
    from.backoff = 2;
    from.path_mss = 1000;
    from.lost = 3000;
    from.recovery = 2;
    from.recovery_end = 4000;
    from.scales = from.peer_scale = 0;
    from.snd_wnd_max = from.rcv_wnd = 0xFFFF;
  }
  std::vector<std::byte> to_send(from.to_send), to_read(from.to_read);
  for (size_t i = 0; i < to_send.size(); ++i) to_send[i] = static_cast<std::byte>(i / 7);
  for (size_t i = 0; i < to_read.size(); ++i) to_read[i] = static_cast<std::byte>(i / 3);
  Connection connection(stack.options, stack.resources, 80);
  REQUIRE(connection.restore(from, to_send, to_read, kNow));
  const MovedConnection again = connection.save();
  CHECK(std::memcmp(&again, &from, sizeof from) == 0);
  std::vector<std::byte> sends(from.to_send), reads(from.to_read);
  connection.copy_to_send(sends);
  connection.copy_to_read(reads);
  CHECK(sends == to_send);
  CHECK(reads == to_read);
  connection.leave();
  CHECK(connection.send(reads).error == Error::not_connected);
  CHECK(stack.chunks.available() == 512);
  CHECK(stack.records.available() == 64);
}

TEST_CASE("moving a connection copies its in-place messages (zero-copy receive) and releases them") {
  struct Keeper : ZeroCopyReceive {
    using ZeroCopyReceive::ZeroCopyReceive;
    void release(uint32_t) noexcept override { ++released; }
    uint32_t released = 0;
  } keeper(600);
  Stack stack;
  stack.chunks.set_kept(&keeper);
  const MovedConnection from = record();
  const std::vector<std::byte> to_send(from.to_send), to_read(from.to_read, std::byte{1}), message(1000, std::byte{2});
  Connection connection(stack.options, stack.resources, 80);
  REQUIRE(connection.restore(from, to_send, to_read, kNow));
  ip::TcpView data{};
  data.sequence = {300};
  data.acknowledgement = {0xFFFF'F000};
  data.flags = ip::TcpFlags::kAck;
  data.window = 5000;
  data.options.has_timestamps = true;
  data.options.timestamp = 11;
  data.payload = message;
  keeper.offer(message);
  connection.handle_segment(data, kNow);
  REQUIRE(keeper.withdraw());
  std::vector<std::byte> reads(1700);
  REQUIRE(connection.save().to_read == reads.size());
  connection.copy_to_read(reads);
  CHECK(std::count(reads.begin(), reads.begin() + 700, std::byte{1}) == 700);
  CHECK(std::count(reads.begin() + 700, reads.end(), std::byte{2}) == 1000);
  CHECK(keeper.released == 0);
  connection.leave();
  CHECK(keeper.released == 1);
  CHECK(stack.chunks.available() == 512);
}

TEST_CASE("pending ACKs, retransmissions and probes continue after a move") {
  Stack stack;
  MovedConnection from = record();
  const std::vector<std::byte> to_send(from.to_send), to_read(from.to_read);
  Segment segment;
  SECTION("a delayed ACK leaves at once, with the window that was promised") {
    from.ack_due = 1;
    Connection connection(stack.options, stack.resources, 80);
    REQUIRE(connection.restore(from, to_send, to_read, kNow));
    REQUIRE(connection.poll_segment(kNow, 1 << 16, segment));
    CHECK(segment.length == 0);
    CHECK(segment.fields.acknowledgement == Sequence{300});
    CHECK(segment.fields.window << 4 >= 249'000);
    CHECK(segment.fields.options.timestamp == 9 + 1'000'000);
    CHECK(!connection.poll_segment(kNow, 1 << 16, segment));
  }
  SECTION("a retransmission is not later for the move") {
    Connection connection(stack.options, stack.resources, 80);
    REQUIRE(connection.restore(from, to_send, to_read, kNow));
    CHECK(connection.next_timer() == from.rto_at);
    connection.handle_timer(from.rto_at);
    REQUIRE(connection.poll_segment(from.rto_at, 1 << 16, segment));
    CHECK(segment.fields.sequence == Sequence{0xFFFF'F000});
    CHECK(segment.length == 1448);
  }
  SECTION("data that was in flight gives no round trip (Karn)") {
    from.stamps = 0;
    Connection connection(stack.options, stack.resources, 80);
    REQUIRE(connection.restore(from, to_send, to_read, kNow));
    ip::TcpView ack{};
    ack.sequence = {300};
    ack.acknowledgement = connection.send_next();
    ack.flags = ip::TcpFlags::kAck;
    ack.window = 5000;
    connection.handle_segment(ack, kNow + kSecond / 10);
    CHECK(connection.unacknowledged() == 0);
    CHECK(connection.rtt().smooth() == from.srtt);
  }
  SECTION("a window that was closed is told of when it is open here") {
    from.rcv_wnd = 0;
    Connection connection(stack.options, stack.resources, 80);
    REQUIRE(connection.restore(from, to_send, to_read, kNow));
    REQUIRE(connection.poll_segment(kNow, 1 << 16, segment));
    CHECK(segment.fields.window != 0);
  }
  SECTION("a closed window of the peer is probed when it was to be") {
    from.snd_wnd = from.unacknowledged = 0;
    from.persisting = 1;
    Connection connection(stack.options, stack.resources, 80);
    REQUIRE(connection.restore(from, to_send, to_read, kNow));
    CHECK(!connection.poll_segment(kNow, 1 << 16, segment));
    CHECK(connection.next_timer() == from.rto_at);
    connection.handle_timer(from.rto_at);
    REQUIRE(connection.poll_segment(from.rto_at, 1 << 16, segment));
    CHECK(segment.length == 1);
  }
}
