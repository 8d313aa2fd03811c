// reassembly_test.cc - packets fragmented in every way and order, invalid fragments, limits, and timeouts.
#include "ipstack/ip/reassembly.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace unet::ip::reassembly_test {
namespace {

using Outcome = Reassembly::Outcome;

std::byte byte_at(uint32_t id, size_t at) { return static_cast<std::byte>(id * 131 + at * 7 + (at >> 8)); }

// A fragment as received, with its bytes.
struct Fragment {
  std::vector<std::byte> bytes;
  IpView view;
};

struct Cut {
  uint32_t offset, length;
  bool more;
};

Fragment fragment(bool ipv4, uint32_t id, const Cut& cut, uint8_t traffic_class = 0, const char* from = nullptr) {
  IpFields of{.from = *parse_ip(from != nullptr ? from : ipv4 ? "10.0.1.2" : "fd00:1::2"), .to = *parse_ip(ipv4 ? "10.0.2.2" : "fd00:2::2"),
              .protocol = 200, .hop_limit = 60, .traffic_class = traffic_class, .dont_fragment = false, .more_fragments = cut.more,
              .offset = cut.offset, .id = id};
  Fragment made;
  made.bytes.resize(ip_header_size(of) + cut.length);
  const uint32_t header = emit_ip_header(made.bytes.data(), of, cut.length);
  for (uint32_t i = 0; i < cut.length; ++i) made.bytes[header + i] = byte_at(id, cut.offset + i);
  Problem problem;
  REQUIRE(parse_ip_packet(made.bytes, made.view, problem) == IpError::none);
  REQUIRE(made.view.is_fragment());
  return made;
}

std::vector<Cut> cut_up(uint32_t length, uint32_t piece) {
  std::vector<Cut> cuts;
  for (uint32_t at = 0; at < length; at += piece) cuts.push_back({at, std::min(piece, length - at), at + piece < length});
  return cuts;
}

bool is_whole(const IpView& whole, uint32_t id, uint32_t length) {
  if (whole.payload.size() != length || whole.is_fragment()) return false;
  for (uint32_t i = 0; i < length; ++i) {
    if (whole.payload[i] != byte_at(id, i)) return false;
  }
  return true;
}

struct World {
  Reassembly reassembly;
  IpView whole{};
  Problem problem{};
  Nanoseconds now = kSecond;

  Outcome add(bool ipv4, uint32_t id, const Cut& cut, uint8_t traffic_class = 0, const char* from = nullptr) {
    const Fragment made = fragment(ipv4, id, cut, traffic_class, from);
    return reassembly.add(made.view, now, whole, problem);
  }
};

}  // namespace

TEST_CASE("reassembly: up to five fragments, in every order") {
  const bool ipv4 = GENERATE(true, false);
  for (uint32_t count = 2; count <= 5; ++count) {
    const uint32_t length = count * 64 - 13;
    std::vector<Cut> cuts = cut_up(length, 64);
    std::vector<size_t> order(cuts.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    World world;
    uint32_t id = 1;
    do {
      for (size_t i = 0; i < order.size(); ++i) {
        const Outcome outcome = world.add(ipv4, id, cuts[order[i]]);
        REQUIRE(outcome == (i + 1 == order.size() ? Outcome::complete : Outcome::stored));
      }
      REQUIRE(is_whole(world.whole, id, length));
      REQUIRE(world.whole.hop_limit == 60);
      REQUIRE(world.reassembly.used() == 0);
      ++id;
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST_CASE("reassembly: the result parses, up to the largest packet") {
  const bool ipv4 = GENERATE(true, false);
  const uint32_t largest = ipv4 ? 65515 : 65535;
  for (const uint32_t length : {9u, 1480u * 3, largest}) {
    World world;
    for (const Cut& cut : cut_up(length, length == 9 ? 8 : 1440)) world.add(ipv4, 7, cut);
    REQUIRE(is_whole(world.whole, 7, length));
    IpView again;
    Problem problem;
    REQUIRE(parse_ip_packet(world.whole.packet, again, problem) == IpError::none);
    CHECK(again.payload.size() == length);
    CHECK(again.from == world.whole.from);
    CHECK_FALSE(again.is_fragment());
  }
}

TEST_CASE("reassembly: many packets at once, fragments in any order and duplicated") {
  std::mt19937 random(1);
  World world;
  struct Piece {
    uint32_t id, length;
    bool ipv4;
    Cut cut;
  };
  std::vector<Piece> pieces;
  for (uint32_t id = 0; id < 16; ++id) {
    const auto length = static_cast<uint32_t>(800 + random() % 5000);
    for (const Cut& cut : cut_up(length, 8 * static_cast<uint32_t>(1 + random() % 90))) pieces.push_back({id, length, id % 2 == 0, cut});
  }
  std::shuffle(pieces.begin(), pieces.end(), random);
  uint32_t completed = 0, duplicates = 0;
  for (const Piece& piece : pieces) {
    const Outcome outcome = world.add(piece.ipv4, piece.id, piece.cut);
    REQUIRE((outcome == Outcome::stored || outcome == Outcome::complete));
    if (outcome == Outcome::complete) {
      ++completed;
      REQUIRE(is_whole(world.whole, piece.id, piece.length));
    } else if (random() % 3 == 0) {
      REQUIRE(world.add(piece.ipv4, piece.id, piece.cut) == Outcome::duplicate);
      ++duplicates;
    }
  }
  CHECK(completed == 16);
  CHECK(world.reassembly.counters().completed == 16);
  CHECK(world.reassembly.counters().duplicates == duplicates);
  CHECK(world.reassembly.counters().fragments == pieces.size() + duplicates);
}

TEST_CASE("fragments that overlap or contradict end their packet, and nothing of it begins anew") {
  const bool ipv4 = GENERATE(true, false);
  struct Wrong {
    const char* what;
    std::vector<Cut> good;
    Cut wrong;
  };
  const Wrong all[] = {
      {"overlaps the end of another", {{0, 64, true}}, {56, 64, true}},
      {"overlaps the beginning of another", {{64, 64, true}}, {0, 72, true}},
      {"lies around another", {{64, 8, true}}, {0, 256, true}},
      {"goes on behind the end", {{64, 10, false}}, {80, 8, true}},
      {"overlaps the end of the packet", {{64, 10, false}}, {64, 24, true}},
      {"ends where others go on", {{128, 64, true}}, {64, 10, false}},
      {"ends before the end", {{64, 10, false}}, {0, 10, false}},
      {"ends where another said that it goes on", {{0, 64, true}}, {0, 64, false}},
  };
  for (const Wrong& each : all) {
    CAPTURE(each.what);
    World world;
    if (each.wrong.offset == 0 && !each.wrong.more) continue;  // not a fragment: tested below
    for (const Cut& cut : each.good) REQUIRE(world.add(ipv4, 5, cut) == Outcome::stored);
    CHECK(world.add(ipv4, 5, each.wrong) == Outcome::refused);
    CHECK(world.reassembly.counters().refused == 1);
    for (const Cut& cut : cut_up(300, 64)) CHECK(world.add(ipv4, 5, cut) == Outcome::late);
    CHECK(world.reassembly.counters().late == 5);
    // Other packets are unaffected, and after the timeout the identification can be reused.
    CHECK(world.add(ipv4, 6, {0, 64, true}) == Outcome::stored);
    CHECK(world.add(ipv4, 6, {64, 9, false}) == Outcome::complete);
    world.now += 60 * kSecond;
    IpView begun;
    REQUIRE(world.reassembly.expire(world.now, begun));
    CHECK(begun.payload.empty());  // no error is sent
    CHECK(world.add(ipv4, 5, {0, 64, true}) == Outcome::stored);
  }
}

TEST_CASE("reassembly: identical bytes are a duplicate, different ones end the packet") {
  World world;
  REQUIRE(world.add(true, 5, {0, 64, true}) == Outcome::stored);
  REQUIRE(world.add(true, 5, {64, 64, true}) == Outcome::stored);
  CHECK(world.add(true, 5, {0, 64, true}) == Outcome::duplicate);
  CHECK(world.add(true, 5, {0, 128, true}) == Outcome::duplicate);  // both at once
  CHECK(world.add(true, 5, {8, 16, true}) == Outcome::duplicate);
  Fragment other = fragment(true, 5, {0, 64, true});
  const_cast<std::byte&>(other.view.payload[63]) ^= std::byte{1};
  CHECK(world.reassembly.add(other.view, world.now, world.whole, world.problem) == Outcome::refused);
}

TEST_CASE("reassembly: CE on one fragment marks the packet; an invalid ECN combination is refused") {
  constexpr uint8_t kEct0 = 2, kEct1 = 1, kCe = 3, kDscp = 0xB8;
  World world;
  REQUIRE(world.add(true, 1, {0, 8, true}, kDscp | kEct0) == Outcome::stored);
  REQUIRE(world.add(true, 1, {8, 8, true}, kDscp | kCe) == Outcome::stored);
  REQUIRE(world.add(true, 1, {16, 8, false}, kDscp | kEct1) == Outcome::complete);
  CHECK(world.whole.traffic_class == (kDscp | kCe));
  REQUIRE(world.add(true, 2, {0, 8, true}, kDscp | kEct0) == Outcome::stored);
  REQUIRE(world.add(true, 2, {8, 8, false}, kDscp | kEct0) == Outcome::complete);
  CHECK(world.whole.traffic_class == (kDscp | kEct0));
  REQUIRE(world.add(true, 3, {0, 8, true}, kDscp) == Outcome::stored);
  CHECK(world.add(true, 3, {8, 8, false}, kDscp | kCe) == Outcome::refused);
}

TEST_CASE("reassembly: the key: addresses, identification and, in IPv4, the protocol") {
  World world;
  Fragment first = fragment(true, 5, {0, 8, true});
  REQUIRE(world.reassembly.add(first.view, world.now, world.whole, world.problem) == Outcome::stored);
  Fragment second = fragment(true, 5, {8, 8, false});
  second.view.protocol = 201;
  CHECK(world.reassembly.add(second.view, world.now, world.whole, world.problem) == Outcome::stored);
  CHECK(world.add(true, 6, {8, 8, false}) == Outcome::stored);
  CHECK(world.add(true, 5, {8, 8, false}, 0, "10.0.1.3") == Outcome::stored);
  CHECK(world.add(false, 5, {8, 8, false}) == Outcome::stored);
  CHECK(world.add(true, 5, {8, 8, false}) == Outcome::complete);
  // In IPv6, a later fragment may name another protocol: the first fragment's counts (RFC 8200, 4.5).
  Fragment six = fragment(false, 9, {8, 8, false});
  six.view.protocol = 201;
  REQUIRE(world.reassembly.add(six.view, world.now, world.whole, world.problem) == Outcome::stored);
  REQUIRE(world.add(false, 9, {0, 8, true}) == Outcome::complete);
  CHECK(world.whole.protocol == 200);
}

TEST_CASE("reassembly: the first IPv6 fragment must have all headers") {
  const auto first = [](uint8_t protocol, uint32_t length) {
    Fragment made = fragment(false, 3, {0, length, true});
    made.view.protocol = protocol;
    return made;
  };
  struct Row {
    uint8_t protocol;
    uint32_t length;
    bool good;
  };
  for (const Row& row : {Row{Protocol::kTcp, 16, false}, Row{Protocol::kTcp, 24, true}, Row{Protocol::kUdp, 8, true},
                         Row{Protocol::kIcmp6, 8, true}, Row{200, 8, true}}) {
    World world;
    const Fragment made = first(row.protocol, row.length);
    CHECK(world.reassembly.add(made.view, world.now, world.whole, world.problem) == (row.good ? Outcome::stored : Outcome::refused));
    CHECK(world.problem.report == !row.good);
    if (!row.good) CHECK(world.problem.code == 3);
  }
  // A header that continues in the next fragment.
  Fragment cut = first(Protocol::kIpv6Options, 8);
  const_cast<std::byte&>(cut.view.payload[0]) = std::byte{Protocol::kUdp};
  const_cast<std::byte&>(cut.view.payload[1]) = std::byte{4};
  World world;
  CHECK(world.reassembly.add(cut.view, world.now, world.whole, world.problem) == Outcome::refused);
}

TEST_CASE("reassembly: timeout, and time exceeded to the sender if the first fragment is there") {
  World world;
  CHECK(world.reassembly.next_event() == ~Nanoseconds{0});
  REQUIRE(world.add(true, 1, {0, 64, true}) == Outcome::stored);
  REQUIRE(world.add(true, 1, {64, 64, true}) == Outcome::stored);
  REQUIRE(world.add(true, 1, {192, 64, true}) == Outcome::stored);
  world.now += kSecond;
  REQUIRE(world.add(true, 2, {64, 64, true}) == Outcome::stored);
  CHECK(world.reassembly.next_event() == 61 * kSecond);
  IpView begun;
  CHECK_FALSE(world.reassembly.expire(61 * kSecond - 1, begun));
  REQUIRE(world.reassembly.expire(61 * kSecond, begun));
  CHECK(begun.id == 1);
  CHECK(is_whole(begun, 1, 128));  // up to the first gap
  CHECK_FALSE(world.reassembly.expire(61 * kSecond, begun));
  REQUIRE(world.reassembly.expire(62 * kSecond, begun));
  CHECK(begun.payload.empty());
  CHECK(world.reassembly.counters().timed_out == 2);
  CHECK(world.reassembly.used() == 0);
  // Further fragments do not extend the timeout.
  world.now = 100 * kSecond;
  REQUIRE(world.add(true, 3, {0, 64, true}) == Outcome::stored);
  world.now = 159 * kSecond;
  REQUIRE(world.add(true, 3, {64, 64, true}) == Outcome::stored);
  CHECK(world.reassembly.next_event() == 160 * kSecond);
}

TEST_CASE("a sender has its share of the places, and the oldest packet gives way") {
  World world{.reassembly = Reassembly({.places = 8, .per_sender = 3}), .whole = {}, .problem = {}};
  for (uint32_t id = 0; id < 100; ++id) {
    REQUIRE(world.add(true, id, {0, 64, true}) == Outcome::stored);
    ++world.now;
  }
  CHECK(world.reassembly.used() == 3);
  CHECK(world.reassembly.counters().overflow == 97);
  CHECK(world.add(true, 99, {64, 8, false}) == Outcome::complete);
  for (int sender = 0; sender < 20; ++sender) {
    const std::string from = "10.0.3." + std::to_string(sender + 1);
    REQUIRE(world.add(true, 7, {0, 64, true}, 0, from.c_str()) == Outcome::stored);
    ++world.now;
  }
  CHECK(world.reassembly.used() == 8);
  CHECK(world.add(true, 7, {64, 8, false}, 0, "10.0.3.20") == Outcome::complete);
  CHECK(world.add(true, 7, {64, 8, false}, 0, "10.0.3.12") == Outcome::stored);  // its first fragment is gone
  Reassembly none({.places = 0});
  const Fragment made = fragment(true, 1, {0, 64, true});
  CHECK(none.add(made.view, 0, world.whole, world.problem) == Outcome::late);
}

TEST_CASE("any fragments at all: what becomes whole is what was sent, or nothing does") {
  std::mt19937 random(5);
  uint32_t completed = 0;
  for (int round = 0; round < 3000; ++round) {
    World world{.reassembly = Reassembly({.places = 4}), .whole = {}, .problem = {}};
    for (int i = 0; i < 30; ++i) {
      const auto offset = static_cast<uint32_t>(random() % 6 * 8);
      const bool more = random() % 4 != 0;
      const auto length = static_cast<uint32_t>(more ? 8 * (1 + random() % 3) : 1 + random() % 20);
      if (offset == 0 && !more) continue;
      const auto id = static_cast<uint32_t>(random() % 3);
      if (world.add(random() % 2 == 0, id, {offset, length, more}) != Outcome::complete) continue;
      ++completed;
      REQUIRE(is_whole(world.whole, id, static_cast<uint32_t>(world.whole.payload.size())));
    }
  }
  CHECK(completed > 100);
}

}  // namespace unet::ip::reassembly_test
