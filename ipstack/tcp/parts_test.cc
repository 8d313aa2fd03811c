// parts_test.cc - the parts of a connection, each against a plain model: buffers, scoreboard, windows, states, resets.
#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "ipstack/tcp/congestion.h"
#include "ipstack/tcp/connection.h"
#include "ipstack/tcp/reset.h"

using namespace unet;
using namespace unet::tcp;

namespace {

std::byte at(uint64_t place) { return static_cast<std::byte>(place * 13 + place / 256); }

std::vector<std::byte> stretch(uint64_t from, uint64_t length) {
  std::vector<std::byte> bytes(length);
  for (uint64_t i = 0; i < length; ++i) bytes[i] = at(from + i);
  return bytes;
}

}  // namespace

TEST_CASE("send buffer: gather() returns the appended bytes, from any offset") {
  std::mt19937_64 random(1);
  ChunkPool pool(512, 40);
  SendBuffer buffer;
  const Sequence first{0xFFFFF000};
  buffer.start(first);
  uint64_t released = 0, appended = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto data = stretch(appended, random() % 3000);
    const uint32_t before = pool.available();
    const uint32_t taken = buffer.append(pool, data);
    if (taken < data.size()) REQUIRE(pool.available() == 10);  // a quarter is reserved for reception
    if (taken == 0 && !data.empty()) REQUIRE(before == 10);
    appended += taken;
    REQUIRE(buffer.size() == appended - released);
    if (buffer.size() != 0) {
      const auto from = static_cast<uint32_t>(random() % buffer.size());
      const auto length = static_cast<uint32_t>(random() % (buffer.size() - from) + 1);
      std::array<Bytes, 64> pieces;
      const uint32_t count = buffer.gather(pool, buffer.start() + from, length, pieces);
      REQUIRE(count <= length / 512 + 2);
      uint64_t place = released + from;
      for (uint32_t piece = 0; piece < count; ++piece) {
        for (const std::byte each : pieces[piece]) REQUIRE(each == at(place++));
      }
      REQUIRE(place == released + from + length);
    }
    const auto gone = static_cast<uint32_t>(random() % (buffer.size() + 1));
    buffer.release(pool, buffer.start() + gone);
    released += gone;
    REQUIRE(buffer.start() == first + static_cast<uint32_t>(released));
    if (buffer.size() == 0) REQUIRE(pool.available() == 40);
  }
  buffer.clear(pool);
  CHECK(pool.available() == 40);
}

TEST_CASE("chunk pool: a lent chunk becomes free when its reader is done, not before") {
  std::vector<std::byte> memory(6 * 512);
  ChunkPool pool(512, 16, memory);
  CHECK(pool.available() == 16);
  const auto is_lendable = [&](ChunkIndex chunk) { return pool.is_lendable({pool.data(chunk), 512}); };
  const ChunkIndex received = pool.take();
  CHECK_FALSE(is_lendable(received));  // received data is never lent
  std::vector<ChunkIndex> chunks;
  for (ChunkIndex chunk; (chunk = pool.take_to_send()) != kNoChunk;) chunks.push_back(chunk);
  CHECK((chunks.size() == 11 && std::count_if(chunks.begin(), chunks.end(), is_lendable) == 6));
  for (size_t i = 0; i < 6; ++i) REQUIRE(is_lendable(chunks[i]));
  CHECK_FALSE(pool.is_lendable({pool.data(chunks[6]), 1}));
  for (uint64_t i = 0; i < 5; ++i) pool.lend({pool.data(chunks[i]) + 100, 50}, i + 1);
  pool.lend({pool.data(chunks[0]) + 150, 1}, 6);  // lent again
  for (const ChunkIndex chunk : chunks) pool.give_back(chunk);
  CHECK((pool.available() == 10 && pool.has_waiting()));
  pool.take_back(5);
  CHECK((pool.available() == 10 && pool.has_waiting()));  // in the order in which they were returned
  pool.take_back(6);
  CHECK((pool.available() == 15 && !pool.has_waiting()));
  pool.give_back(received);
  std::set<const std::byte*> places;
  for (int i = 0; i < 16; ++i) places.insert(pool.data(pool.take()));
  CHECK((places.size() == 16 && pool.take() == kNoChunk));
}

TEST_CASE("receive buffer: bytes in their places, and SACK blocks of those behind gaps") {
  const uint32_t chunks = GENERATE(4u, 12u, 400u);
  std::mt19937_64 random(chunks);
  ChunkPool pool(512, chunks);
  ReceiveBuffer buffer;
  const Sequence first{0xFFFFE000};
  buffer.start(first);
  std::vector<bool> have(400'000);
  uint64_t read = 0, next = 0;
  for (int i = 0; i < 6000 && next + 40'000 < have.size(); ++i) {
    const uint64_t from = next + (random() % 2 == 0 ? 0 : random() % 20'000);
    const uint64_t length = 1 + random() % 3000;
    const auto result = buffer.insert(pool, first + static_cast<uint32_t>(from), stretch(from, length));
    const uint64_t now_next = read + buffer.readable();
    if (from == next) {
      REQUIRE(now_next >= next + length - result.missing);
      if (result.missing == 0 && result.reneged == 0) {
        for (uint64_t place = from; place < from + length; ++place) have[place] = true;
        while (have[next]) ++next;
        REQUIRE(now_next == next);
      }
    } else {
      REQUIRE(now_next == next);
      if (result.outcome == ReceiveBuffer::Outcome::out_of_order) std::fill_n(have.begin() + static_cast<ptrdiff_t>(from), length, true);
    }
    if (result.reneged != 0 || result.outcome == ReceiveBuffer::Outcome::no_memory) {
      std::fill(have.begin() + static_cast<ptrdiff_t>(now_next), have.end(), false);
      REQUIRE_FALSE(buffer.has_gaps());
    }
    if (now_next > next) std::fill(have.begin() + static_cast<ptrdiff_t>(next), have.begin() + static_cast<ptrdiff_t>(now_next), true);
    next = now_next;
    // Each reported SACK block is complete.
    std::array<ip::SackBlock, 4> blocks;
    const uint32_t count = buffer.sack(pool, blocks);
    REQUIRE((count != 0) == buffer.has_gaps());
    for (uint32_t block = 0; block < count; ++block) {
      const uint64_t left = next + (blocks[block].left - buffer.next()), right = next + (blocks[block].right - buffer.next());
      REQUIRE((left > next && left < right && right < have.size()));
      for (uint64_t place = left; place < right; ++place) REQUIRE(have[place]);
      REQUIRE_FALSE((have[left - 1] || have[right]));
    }
    if (random() % 3 == 0) {
      std::array<Bytes, 256> pieces;
      const uint32_t pieces_count = buffer.gather(pool, pieces);
      uint64_t place = read;
      for (uint32_t piece = 0; piece < pieces_count; ++piece) {
        for (const std::byte each : pieces[piece]) REQUIRE(each == at(place++));
      }
      REQUIRE((place == next || pieces_count == pieces.size()));
      const auto used = static_cast<uint32_t>(random() % (place - read + 1));
      buffer.consume(pool, used);
      read += used;
    }
  }
  CHECK(next > 10'000);
  buffer.clear(pool);
  CHECK(pool.available() == chunks);
}

TEST_CASE("what waits behind gaps of one stream leaves chunks to what comes in order on another") {
  ChunkPool pool(1024, 64);
  std::vector<ReceiveBuffer> hostile(8);
  const std::vector<std::byte> data(1000);
  for (ReceiveBuffer& each : hostile) {
    each.start({0});
    for (uint32_t at = 1; at < 60; ++at) each.insert(pool, {at * 2048}, data);  // a gap before each segment is never filled
  }
  ReceiveBuffer good;
  good.start({0});
  for (uint32_t i = 0; i < 1000; ++i) {
    REQUIRE(good.insert(pool, {i * 1000}, data).missing == 0);
    good.consume(pool, 1000);
  }
  for (ReceiveBuffer& each : hostile) each.clear(pool);
  good.clear(pool);
  CHECK(pool.available() == 64);
}

TEST_CASE("a connection that has records leaves some to those that have none") {
  RecordPool pool(64);
  Scoreboard many, first;
  Sequence next{0};
  for (int i = 0; i < 200; ++i, next += 100) many.append(pool, next, 100, false, kSecond);
  CHECK(pool.available() == 8);
  REQUIRE(first.may_append(pool));
  CHECK(first.append(pool, {0}, 100, false, kSecond));
  many.clear(pool);
  first.clear(pool);
  CHECK(pool.available() == 64);
}

TEST_CASE("scoreboard: bytes in flight, SACKed and lost, against a model") {
  std::mt19937_64 random(3);
  RecordPool pool(300);
  for (int life = 0; life < 300; ++life) {
    Scoreboard board;
    const Sequence first{static_cast<uint32_t>(random())};
    const uint32_t mss = 100;
    uint32_t una = 0, nxt = 0;
    Nanoseconds now = kSecond;
    for (int i = 0; i < 60; ++i) {
      now += random() % (10 * kMillisecond);
      const auto length = static_cast<uint32_t>(1 + random() % 500);
      board.append(pool, first + nxt, length, false, now);
      nxt += length;
      if (random() % 2 == 0) {
        Delivery delivery{.now = now + kMillisecond};
        const uint32_t before = board.in_flight() + board.lost();
        if (random() % 2 == 0) {
          una += static_cast<uint32_t>(random() % (nxt - una + 1));
          board.acknowledge(pool, first + una, delivery);
        } else {
          const auto left = una + static_cast<uint32_t>(random() % (nxt - una + 1));
          const auto right = left + static_cast<uint32_t>(random() % (nxt - left + 1));
          board.sack(pool, first + left, first + right, mss, delivery);
          REQUIRE(delivery.bytes <= right - left);
          REQUIRE(delivery.bytes == delivery.newly_sacked);
        }
        REQUIRE(board.in_flight() + board.lost() == before - delivery.bytes);
      }
      Nanoseconds again = 0;
      if (random() % 3 == 0) board.detect_lost(pool, now, random() % kMillisecond, &again);
      if (const RecordIndex lost = board.first_lost(pool); lost != kNoRecord && random() % 2 == 0) {
        REQUIRE(pool[lost].lost);
        board.cut(pool, lost, mss);
        board.resent(pool, lost, true, now);
      }
      if (random() % 30 == 0) board.time_out(pool, now, 0, random() % 2 == 0);
      REQUIRE(board.in_flight() + board.lost() + board.sacked() == nxt - una);
      // The records are contiguous.
      Sequence place = first + una;
      for (RecordIndex each = board.first(); each != kNoRecord; each = pool[each].next) {
        REQUIRE(pool[each].start == place);
        REQUIRE(pool[each].length != 0);
        place = pool[each].end();
      }
      REQUIRE(place == first + nxt);
    }
    board.clear(pool);
    REQUIRE(pool.available() == 300);
  }
}

TEST_CASE("RTT estimator and RTO, by the numbers of RFC 6298") {
  Options options;
  options.rto_min = 1;
  RttEstimator rtt;
  rtt.start(options.rto_first);
  CHECK(rtt.rto(options) == kSecond);
  rtt.handle_sample(100 * kMillisecond, options);
  CHECK(rtt.rto(options) == 300 * kMillisecond);
  rtt.handle_sample(200 * kMillisecond, options);
  CHECK(rtt.smooth() == 112'500'000);
  CHECK(rtt.variation() == 62'500'000);
  CHECK(rtt.rto(options) == 362'500'000);
  rtt.back_off();
  CHECK(rtt.rto(options) == 725'000'000);
  for (int i = 0; i < 40; ++i) rtt.back_off();
  CHECK(rtt.rto(options) == options.rto_max);
  rtt.handle_sample(1, options);
  CHECK(rtt.backoff() == 0);
  CHECK(rtt.least() == 16);
  rtt.handle_sample(1000 * kSecond, options);
  CHECK(rtt.variation() < 18 * kSecond);
  options.rto_min = 200 * kMillisecond;
  for (int i = 0; i < 100; ++i) rtt.handle_sample(kMicrosecond, options);
  CHECK(rtt.rto(options) == rtt.smooth() + 200 * kMillisecond);
}

TEST_CASE("CUBIC: the window reaches W_max after K seconds, and grows on") {
  Options options;
  Congestion congestion;
  const uint32_t mss = 1000;
  congestion.start(options, mss, 1'000'000);
  congestion.handle_loss(1'000'000);
  congestion.set_window(congestion.threshold());
  CHECK(congestion.window() == Approx(700'000).margin(1));
  // RFC 9438, 4.2: K is the cube root of (W_max - cwnd) / C: of 300 segments / 0.4.
  const double k = std::cbrt(300 / 0.4);
  const Nanoseconds rtt = 100 * kMillisecond;
  Nanoseconds now = kSecond;
  const Nanoseconds start = now;
  uint32_t at_k = 0, at_half = 0;
  while (now < start + static_cast<Nanoseconds>(2 * k * 1e9)) {
    const double passed = static_cast<double>(now - start) / 1e9;
    if (at_half == 0 && passed >= k / 2) at_half = congestion.window();
    if (at_k == 0 && passed >= k) at_k = congestion.window();
    // One window per RTT, with an ACK for each second segment.
    const uint32_t window = congestion.window();
    for (uint32_t acked = 0; acked < window; acked += 2 * mss) {
      congestion.handle_ack(2 * mss, 2 * mss, rtt, now + rtt * acked / window);
    }
    now += rtt;
  }
  CHECK(at_half == Approx(1'000'000 - 0.4 * std::pow(k / 2, 3) * 1000).epsilon(0.02));
  CHECK(at_k == Approx(1'000'000).epsilon(0.01));
  CHECK(congestion.window() == Approx(1'000'000 + 0.4 * std::pow(k, 3) * 1000).epsilon(0.05));
}

TEST_CASE("CUBIC: fast convergence") {
  Options options;
  Congestion congestion;
  congestion.start(options, 1000, 1'000'000);
  for (const uint32_t flight : {1'000'000u, 700'000u}) {
    congestion.handle_loss(flight);
    congestion.set_window(congestion.threshold());
  }
  CHECK(congestion.window() == Approx(490'000).margin(2));
  // RFC 9438, 4.7 (fast convergence): the plateau is 595 segments instead of 700, reached after the cube root of 105 / 0.4 seconds.
  const double k = std::cbrt(105 / 0.4);
  for (Nanoseconds now = kSecond; now < kSecond + static_cast<Nanoseconds>(k * 1e9); now += 100 * kMillisecond) {
    for (uint32_t acked = 0; acked < 500'000; acked += 2000) congestion.handle_ack(2000, 2000, 100 * kMillisecond, now);
  }
  CHECK(congestion.window() == Approx(595'000).epsilon(0.01));
}

TEST_CASE("undo of a spurious loss restores NewReno and CUBIC, on the same curve") {
  for (const Algorithm algorithm : {Algorithm::newreno, Algorithm::cubic}) {
    Options options;
    options.congestion = algorithm;
    std::array<Congestion, 2> both;
    for (Congestion& it : both) {
      it.start(options, 1000, 400'000);
      it.handle_loss(400'000);
      it.handle_recovered(true);
    }
    Nanoseconds now = kSecond;
    const auto run = [&](Congestion& it, Nanoseconds from) {
      for (Nanoseconds at = from; at < from + kSecond; at += 100 * kMillisecond) {
        for (uint32_t acked = 0; acked < it.window(); acked += 2000) it.handle_ack(2000, 2000, 100 * kMillisecond, at);
      }
    };
    for (Congestion& it : both) run(it, now);
    const uint32_t window = both[1].window(), threshold = both[1].threshold();
    CHECK(window > threshold);
    both[1].handle_loss(window);
    CHECK(both[1].threshold() < threshold);
    both[1].handle_recovered(true);
    both[1].undo_loss();
    CHECK(both[1].window() == Approx(window).margin(1));
    CHECK(both[1].threshold() == threshold);
    for (int second = 1; second < 5; ++second) {
      for (Congestion& it : both) run(it, now + static_cast<Nanoseconds>(second) * kSecond);
    }
    CHECK(both[1].window() == Approx(both[0].window()).epsilon(0.02));
  }
  // A first slow start continues after the undo.
  Congestion first;
  first.start({}, 1000, 10'000);
  first.handle_loss(10'000);
  first.handle_recovered(true);
  first.undo_loss();
  CHECK(first.window() == 10'000);
  CHECK(first.in_slow_start());
}

TEST_CASE("CUBIC is no slower than NewReno on short paths (Reno-friendly region)") {
  Options options;
  Congestion congestion;
  congestion.start(options, 1000, 100'000);
  congestion.handle_loss(100'000);
  congestion.set_window(congestion.threshold());
  congestion.handle_loss(70'000);  // before the window had recovered: RFC 9438, 4.7
  congestion.set_window(congestion.threshold());
  CHECK(congestion.window() == Approx(49'000).margin(2));
  // With an RTT of 1 ms, the cubic function hardly grows in a second. RFC 9438, 4.3: 0.53 segments per window.
  Nanoseconds now = kSecond;
  for (int round = 0; round < 20; ++round, now += kMillisecond) {
    for (uint32_t acked = 0; acked < 49'000; acked += 1000) congestion.handle_ack(1000, 2000, kMillisecond, now);
  }
  CHECK(congestion.window() > 56'000);
  CHECK(congestion.window() < 62'000);
}

TEST_CASE("state transitions of RFC 9293, figure 5") {
  uint32_t steps = 0;
  for (uint32_t from = 0; from < kStates; ++from) {
    for (uint32_t to = 0; to < kStates; ++to) steps += may_step(static_cast<State>(from), static_cast<State>(to)) ? 1 : 0;
  }
  CHECK(steps == kStates + 2 + 1 + 2 + 1 + 2 + 3 + 1 + 1 + 1);
  CHECK(may_step(State::fin_wait_1, State::closing));
  CHECK_FALSE(may_step(State::time_wait, State::established));
  CHECK_FALSE(may_step(State::listen, State::established));
}

TEST_CASE("a segment of no connection is answered by a reset, except a reset") {
  using Flags = ip::TcpFlags;
  const std::vector<std::byte> payload(10);
  ip::TcpView view;
  view.source_port = 7;
  view.destination_port = 8;
  view.sequence = {1000};
  view.acknowledgement = {2000};
  view.payload = payload;
  view.flags = Flags::kSyn;
  auto fields = reset_for(view);
  REQUIRE(fields);
  CHECK((fields->source_port == 8 && fields->destination_port == 7));
  CHECK(fields->flags == (Flags::kRst | Flags::kAck));
  CHECK(fields->sequence.value == 0);
  CHECK(fields->acknowledgement.value == 1011);
  view.flags = Flags::kFin | Flags::kAck;
  fields = reset_for(view);
  REQUIRE(fields);
  CHECK(fields->flags == Flags::kRst);
  CHECK(fields->sequence.value == 2000);
  view.flags = Flags::kRst;
  CHECK_FALSE(reset_for(view));
  view.flags = Flags::kRst | Flags::kAck;
  CHECK_FALSE(reset_for(view));
}

TEST_CASE("header prediction has the same effect as the slow path") {
  // The urgent flag has no effect here, except that it prevents header prediction.
  uint64_t in = 0, acked = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    Options options;
    options.mss = 1000;
    options.receive_buffer = static_cast<uint32_t>(2000 + random() % 60'000);
    options.receive_buffer_max = static_cast<uint32_t>(random() % 200'000);
    options.sack = random() % 2 == 0;
    options.timestamps = random() % 2 == 0;
    options.pacing = random() % 4 == 0;
    options.ecn = Ecn::passive;
    options.ack_delay = random() % 2 == 0 ? 40 * kMillisecond : 0;
    options.ack_gather = random() % 2 == 0 ? kMillisecond : 0;
    options.congestion = static_cast<Algorithm>(random() % kAlgorithmCount);
    Counters counters[2];
    ChunkPool chunks[2]{{1024, 200}, {1024, 200}};
    RecordPool records[2]{RecordPool(200), RecordPool(200)};
    const Resources resources[2]{{chunks[0], records[0], counters[0]}, {chunks[1], records[1], counters[1]}};
    Connection it[2]{{options, resources[0], 80}, {options, resources[1], 80}};
    Nanoseconds now = kSecond;
    Sequence theirs{static_cast<uint32_t>(random())}, ours[2]{{static_cast<uint32_t>(random())}, {}};
    for (Connection& each : it) each.listen(ours[0]);
    const std::vector<std::byte> payload(3000);
    for (int i = 0; i < 500; ++i) {
      ip::TcpView view;
      view.source_port = 9;
      view.flags = i == 0 ? ip::TcpFlags::kSyn | ip::TcpFlags::kEce | ip::TcpFlags::kCwr : ip::TcpFlags::kAck;
      view.options.mss = 1000;
      view.options.sack_permitted = i == 0;
      view.options.has_timestamps = random() % 50 != 0;
      view.options.timestamp = static_cast<uint32_t>(now / kMillisecond - (random() % 20 == 0 ? random() % 50 : 0));
      view.options.timestamp_echo = static_cast<uint32_t>(now / kMillisecond - random() % 10);
      view.window = static_cast<uint16_t>(random() % 20 == 0 ? random() % 3000 : 60'000);
      view.sequence = theirs + static_cast<uint32_t>(random() % 20 == 0 ? random() % 2000 - 500 : 0);
      const uint32_t flight = it[0].unacknowledged();
      view.acknowledgement = ours[0] - static_cast<uint32_t>(random() % 3 == 0 || flight == 0 ? flight : random() % flight);
      if (random() % 2 == 0) view.payload = Bytes(payload).first(random() % 1001);
      const auto ecn = static_cast<uint8_t>(random() % 40 == 0 ? 3 : 2);
      const bool writes = random() % 2 == 0, reads = random() % 3 == 0, waits = random() % 4 == 0;
      const size_t bytes = random() % payload.size();
      const uint32_t most = random() % 2 == 0 ? 1000 : 9000;
      now += random() % (5 * kMillisecond);
      if (waits) now = std::max(now, std::min(it[0].next_timer(), now + kSecond));
      std::string sent[2];
      for (const size_t which : {0u, 1u}) {
        Connection& each = it[which];
        if (which == 1) view.flags |= ip::TcpFlags::kUrg;
        each.handle_segment(view, now, ecn);
        if (writes) each.send(Bytes(payload).first(bytes));
        std::array<std::byte, 2500> out;
        if (reads) each.receive(out);
        if (waits) each.handle_timer(now);
        Segment segment;
        while (each.poll_segment(now, most, segment)) {
          std::array<std::byte, ip::kTcpHeaderMax> head;
          const uint32_t length = ip::emit_tcp(head.data(), segment.fields);
          sent[which].append(reinterpret_cast<const char*>(head.data()), length);
          sent[which] += std::to_string(segment.length) + (segment.ecn_capable ? "e" : "");
          ours[which] = segment.fields.sequence + segment.length + ((segment.fields.flags & ip::TcpFlags::kSyn) != 0 ? 1u : 0u);
          theirs = segment.fields.acknowledgement;
        }
      }
      INFO("seed " << seed << ", step " << i);
      REQUIRE(sent[0] == sent[1]);
      REQUIRE(it[0].next_timer() == it[1].next_timer());
      REQUIRE(it[0].congestion().window() == it[1].congestion().window());
      REQUIRE(it[0].in_flight() == it[1].in_flight());
    }
    const Info info[2]{it[0].info(now), it[1].info(now)};
    CHECK((info[0].rto == info[1].rto && info[0].rcv_ssthresh == info[1].rcv_ssthresh && info[0].bytes_acked == info[1].bytes_acked));
    CHECK((info[0].bytes_received == info[1].bytes_received && info[0].delivery_rate == info[1].delivery_rate));
    CHECK((info[0].delivered == info[1].delivered && info[0].last_data_recv == info[1].last_data_recv));
    in += info[0].bytes_received;
    acked += info[0].bytes_acked;
  }
  CHECK(in > 10'000'000);
  CHECK(acked > 10'000'000);
}

TEST_CASE("any segments at all: nothing breaks, and all that was taken is given back") {
  Counters all;
  uint32_t established = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    std::mt19937_64 random(seed);
    Options options;
    options.receive_buffer = static_cast<uint32_t>(1000 + random() % 100'000);
    options.sack = random() % 2 == 0;
    options.timestamps = random() % 2 == 0;
    options.nagle = random() % 2 == 0;
    ChunkPool chunks(1024, static_cast<uint32_t>(4 + random() % 100));
    RecordPool records(static_cast<uint32_t>(1 + random() % 100));
    const uint32_t chunk_count = chunks.available(), record_count = records.available();
    {
      const Resources resources{chunks, records, all};
      Connection connection(options, resources, 80);
      const Sequence iss{static_cast<uint32_t>(random())};
      Sequence theirs{static_cast<uint32_t>(random())}, ours = iss + 1;
      Nanoseconds now = kSecond;
      if (random() % 2 == 0) {
        connection.listen(iss, static_cast<uint32_t>(random()));
      } else {
        connection.connect(9, iss, now, static_cast<uint32_t>(random()));
      }
      const std::vector<std::byte> payload(3000);
      for (int i = 0; i < 400; ++i) {
        // Close to valid numbers, so that some segments are accepted.
        ip::TcpView view;
        view.source_port = 9;
        view.destination_port = 80;
        view.sequence = theirs + static_cast<uint32_t>(random() % 3 == 0 ? random() % 5000 - 500 : 0);
        view.acknowledgement = ours - static_cast<uint32_t>(random() % 3 == 0 ? random() % 9000 : 0);
        view.flags = connection.state() < State::established ? ip::TcpFlags::kSyn : ip::TcpFlags::kAck;
        if (random() % 2 == 0) view.flags |= ip::TcpFlags::kAck;
        if (connection.state() == State::syn_received) view.flags = ip::TcpFlags::kAck;
        if (random() % 50 == 0) view.flags = static_cast<uint8_t>(random());
        if (random() % 2 == 0) view.payload = Bytes(payload).first(random() % payload.size());
        view.window = static_cast<uint16_t>(random() % 3 == 0 ? random() % 1000 : random());
        view.options.mss = static_cast<uint16_t>(random() % 2000);
        view.options.sack_permitted = true;
        view.options.has_timestamps = random() % 10 != 0;
        view.options.timestamp = static_cast<uint32_t>(i + (random() % 10 == 0 ? random() : 0));
        view.options.window_scale = static_cast<uint8_t>(random());
        view.options.sack_count = static_cast<uint8_t>(random() % 5);
        for (auto& block : view.options.sack) {
          block.left = ours - static_cast<uint32_t>(random() % 9000);
          block.right = block.left + static_cast<uint32_t>(random() % 9000);
        }
        connection.handle_segment(view, now);
        if (random() % 3 == 0) connection.send(Bytes(payload).first(random() % payload.size()));
        Segment segment;
        uint32_t segments = 0;
        while (connection.poll_segment(now, static_cast<uint32_t>(1 + random() % 9000), segment)) {
          REQUIRE(++segments < 5000);
          std::array<Bytes, 64> pieces;
          connection.gather(segment, pieces);
          if ((segment.fields.flags & ip::TcpFlags::kRst) != 0) continue;
          ours = segment.fields.sequence + segment.length;
          if ((segment.fields.flags & ip::TcpFlags::kSyn) != 0) ours += 1;
          if ((segment.fields.flags & ip::TcpFlags::kAck) != 0) theirs = segment.fields.acknowledgement;
        }
        established += is_synchronized(connection.state()) ? 1 : 0;
        if (random() % 5 == 0) {
          now = std::max(now, std::min(connection.next_timer(), now + kSecond));
          connection.handle_timer(now);
        }
        std::array<std::byte, 700> out;
        if (random() % 5 == 0) connection.receive(out);
        if (random() % 200 == 0) connection.shutdown();
        if (random() % 600 == 0) connection.close(now);
      }
    }
    REQUIRE(chunks.available() == chunk_count);
    REQUIRE(records.available() == record_count);
  }
  // The segments reached all of these paths.
  CHECK(established > 50'000);
  CHECK(all.retransmitted != 0);
  CHECK(all.timeouts != 0);
  CHECK(all.recoveries != 0);
  CHECK(all.tail_probes != 0);
  CHECK(all.window_probes != 0);
  CHECK(all.challenges != 0);
  CHECK(all.out_of_window != 0);
  CHECK(all.old_timestamp != 0);
  CHECK(all.blind_syn != 0);
  CHECK(all.bad_ack != 0);
  CHECK(all.bad_sack != 0);
  CHECK(all.duplicate != 0);
  CHECK(all.no_memory != 0);
  CHECK(all.reneged != 0);
  CHECK(all.send_no_memory != 0);
  CHECK(all.no_record != 0);
  CHECK(all.beyond_end != 0);
}
