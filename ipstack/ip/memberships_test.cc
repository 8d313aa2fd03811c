// memberships_test.cc - filter changes and queries of every kind, in virtual time: which reports, when, and how often.
#include "ipstack/ip/memberships.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

namespace unet::ip::memberships_test {
namespace {

using Kind = Memberships::Message::Kind;

struct Said {
  Nanoseconds at;
  std::string text;  // "to_exclude GROUP SOURCE...", "report VERSION GROUP", "leave GROUP"
};

struct Run {
  explicit Run(bool ipv4_ = true, uint64_t seed = 1) : ipv4(ipv4_), groups(ipv4_, seed) {}

  IpAddress group(int number) const {
    return *parse_address((ipv4 ? "239.0.0." : "ff0e::") + std::to_string(number));
  }
  IpAddress source(int number) const { return *parse_ip((ipv4 ? "10.0.0." : "fd00::") + std::to_string(number)); }
  bool listen(int number, FilterMode mode, const std::vector<int>& sources) {
    std::vector<IpAddress> list;
    for (const int each : sources) list.push_back(source(each));
    return groups.listen(group(number), mode, list, now);
  }
  bool join(int number) { return listen(number, FilterMode::exclude, {}); }
  bool leave(int number) { return listen(number, FilterMode::include, {}); }

  void query(uint8_t version, int number, uint32_t response_ms, const std::vector<int>& sources = {}) {
    bytes.clear();
    for (const int each : sources) {
      const IpAddress address = source(each);
      const auto* const at = reinterpret_cast<const std::byte*>(address.wire());
      bytes.insert(bytes.end(), at, at + address.wire_size());
    }
    GroupMessage message{.kind = GroupMessage::Kind::query, .version = version, .group = number == 0 ? IpAddress{} : group(number),
                         .response_ms = response_ms, .ipv4 = ipv4, .sources = bytes};
    groups.handle_message(message, now);
  }

  std::vector<Said> run_for(Nanoseconds time) {
    std::vector<Said> said;
    for (const Nanoseconds until = now + time; groups.next_event() <= until;) {
      now = std::max(now, groups.next_event());
      while (poll(said)) REQUIRE(said.size() < 10'000);
    }
    now += time - std::min(time, now - start_of_run);
    start_of_run = now;
    return said;
  }
  std::vector<std::string> texts(Nanoseconds time) {
    start_of_run = now;
    std::vector<std::string> texts;
    for (const Said& each : run_for(time)) texts.push_back(each.text);
    return texts;
  }

  const bool ipv4;
  Memberships groups;
  Nanoseconds now = 1000 * kSecond, start_of_run = now;
  uint32_t room = 1400;

 private:
  bool poll(std::vector<Said>& said) {
    std::vector<std::byte> text(room);
    GroupReportWriter writer(text, ipv4);
    Memberships::Message message;
    if (!groups.poll_message(now, writer, message)) return false;
    if (message.kind == Kind::leave) said.push_back({now, "leave " + text_of(message.group)});
    if (message.kind == Kind::old_report) said.push_back({now, "report " + std::to_string(message.version) + " " + text_of(message.group)});
    if (message.kind != Kind::report) return true;
    const uint32_t size = writer.finish(0);
    CHECK(message.records != 0);
    const char* const names[] = {"", "is_include", "is_exclude", "to_include", "to_exclude", "allow", "block"};
    const uint32_t each = ipv4 ? 4 : 16;
    uint32_t at = kGroupReportBytes;
    for (uint32_t i = 0; i < message.records; ++i) {
      std::string line = names[std::to_integer<uint8_t>(text[at])];
      const uint32_t count = std::to_integer<uint32_t>(text[at + 2]) << 8 | std::to_integer<uint32_t>(text[at + 3]);
      for (uint32_t j = 0; j <= count; ++j) {
        const std::byte* const address = &text[at + 4 + j * each];
        line += " " + text_of(ipv4 ? ipv4_address(address) : ipv6_address(address));
      }
      at += group_record_bytes(ipv4, count);
      said.push_back({now, line});
    }
    CHECK(at == size);
    return true;
  }
  std::vector<std::byte> bytes;
};

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("IGMP and MLD: join and leave are reported at once, and again within a second") {
  for (const bool ipv4 : {true, false}) {
    Run run(ipv4);
    const std::string group = text_of(run.group(1));
    REQUIRE(run.join(1));
    CHECK(run.groups.is_member(run.group(1)));
    CHECK(run.groups.accepts(run.group(1), run.source(1)));
    CHECK(run.groups.has_station(group_station(run.group(1))));
    const std::vector<Said> said = run.run_for(10 * kSecond);
    REQUIRE(said.size() == 2);
    for (const Said& each : said) CHECK(each.text == "to_exclude " + group);
    CHECK(said[0].at == 1000 * kSecond);
    CHECK(said[1].at <= 1001 * kSecond);
    CHECK(run.groups.next_event() == ~Nanoseconds{0});
    REQUIRE(run.join(1));  // again: no change
    CHECK(run.texts(10 * kSecond).empty());
    REQUIRE(run.leave(1));
    CHECK_FALSE(run.groups.is_member(run.group(1)));
    CHECK_FALSE(run.groups.accepts(run.group(1), run.source(1)));
    CHECK_FALSE(run.groups.has_station(group_station(run.group(1))));
    CHECK(run.texts(10 * kSecond) == Lines{"to_include " + group, "to_include " + group});
    REQUIRE(run.leave(1));
    CHECK(run.texts(10 * kSecond).empty());
  }
}

TEST_CASE("IGMP and MLD: source filters: changes are reported, and reception follows") {
  Run run;
  REQUIRE(run.listen(1, FilterMode::include, {1, 2}));
  CHECK(run.groups.accepts(run.group(1), run.source(1)));
  CHECK_FALSE(run.groups.accepts(run.group(1), run.source(3)));
  CHECK(run.texts(5 * kSecond) == Lines{"allow 239.0.0.1 10.0.0.1 10.0.0.2", "allow 239.0.0.1 10.0.0.1 10.0.0.2"});
  REQUIRE(run.listen(1, FilterMode::include, {2, 3}));
  const Lines both{"allow 239.0.0.1 10.0.0.3", "block 239.0.0.1 10.0.0.1"};
  CHECK(run.texts(5 * kSecond) == Lines{both[0], both[1], both[0], both[1]});
  REQUIRE(run.listen(1, FilterMode::exclude, {4}));
  CHECK(run.groups.accepts(run.group(1), run.source(3)));
  CHECK_FALSE(run.groups.accepts(run.group(1), run.source(4)));
  CHECK(run.texts(5 * kSecond) == Lines{"to_exclude 239.0.0.1 10.0.0.4", "to_exclude 239.0.0.1 10.0.0.4"});
  REQUIRE(run.listen(1, FilterMode::exclude, {5}));
  CHECK(run.texts(5 * kSecond).front() == "allow 239.0.0.1 10.0.0.4");
  // A source that comes and goes before the report: the report has the final state.
  REQUIRE(run.listen(1, FilterMode::exclude, {5, 6}));
  REQUIRE(run.listen(1, FilterMode::exclude, {5}));
  CHECK(run.texts(5 * kSecond) == Lines{"allow 239.0.0.1 10.0.0.6", "allow 239.0.0.1 10.0.0.6"});
  // A change while another is still being reported.
  REQUIRE(run.listen(1, FilterMode::include, {1}));
  CHECK(run.texts(0) == Lines{"to_include 239.0.0.1 10.0.0.1"});
  REQUIRE(run.listen(1, FilterMode::include, {1, 2}));
  CHECK(run.texts(5 * kSecond) == Lines{"to_include 239.0.0.1 10.0.0.1 10.0.0.2", "allow 239.0.0.1 10.0.0.2"});
  REQUIRE(run.listen(1, FilterMode::include, {}));
  CHECK(run.texts(5 * kSecond).size() == 2);
  CHECK(run.groups.next_event() == ~Nanoseconds{0});
}

TEST_CASE("IGMP and MLD: the host's own membership receives from all sources, whatever the application filters") {
  Run run(false);
  REQUIRE(run.groups.hold(run.group(1), run.now));
  REQUIRE(run.groups.hold(run.group(1), run.now));
  CHECK(run.texts(5 * kSecond) == Lines{"to_exclude ff0e::1", "to_exclude ff0e::1"});
  REQUIRE(run.listen(1, FilterMode::include, {1}));
  CHECK(run.groups.accepts(run.group(1), run.source(2)));
  run.groups.release(run.group(1), run.now);
  CHECK(run.texts(5 * kSecond).empty());
  run.groups.release(run.group(1), run.now);
  CHECK(run.texts(5 * kSecond) == Lines{"to_include ff0e::1 fd00::1", "to_include ff0e::1 fd00::1"});
  CHECK_FALSE(run.groups.accepts(run.group(1), run.source(2)));
  run.groups.release(run.group(1), run.now);  // without a hold
  CHECK(run.groups.accepts(run.group(1), run.source(1)));
}

TEST_CASE("IGMP and MLD: a general query is answered once for all groups, within its response time") {
  Nanoseconds first = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    Run run(true, seed);
    REQUIRE(run.join(1));
    REQUIRE(run.listen(2, FilterMode::include, {7}));
    run.run_for(10 * kSecond);
    const Nanoseconds asked = run.now;
    run.query(3, 0, 10'000);
    run.query(3, 0, 10'000);
    run.start_of_run = run.now;
    const std::vector<Said> said = run.run_for(20 * kSecond);
    REQUIRE(said.size() == 2);
    CHECK(said[0].text == "is_exclude 239.0.0.1");
    CHECK(said[1].text == "is_include 239.0.0.2 10.0.0.7");
    CHECK(said[0].at == said[1].at);
    CHECK(said[0].at <= asked + 10 * kSecond);
    CHECK(said[0].at - asked != first);
    first = said[0].at - asked;
  }
  // More groups than a report has room for: several reports in sequence.
  Run many(false);
  for (int i = 1; i <= 64; ++i) REQUIRE(many.listen(i, FilterMode::include, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
  CHECK_FALSE(many.join(65));
  many.run_for(10 * kSecond);
  many.query(3, 0, 1000);
  const uint64_t before = many.groups.counters().reports;
  CHECK(many.texts(2 * kSecond).size() == 64);
  CHECK(many.groups.counters().reports - before == 13);
}

TEST_CASE("queries for a group, and for sources of it") {
  Run run;
  REQUIRE(run.listen(1, FilterMode::include, {1, 2, 3}));
  REQUIRE(run.listen(2, FilterMode::exclude, {1, 2}));
  run.run_for(10 * kSecond);
  run.query(3, 1, 1000);
  CHECK(run.texts(2 * kSecond) == Lines{"is_include 239.0.0.1 10.0.0.1 10.0.0.2 10.0.0.3"});
  run.query(3, 1, 1000, {2, 9, 3});
  CHECK(run.texts(2 * kSecond) == Lines{"is_include 239.0.0.1 10.0.0.2 10.0.0.3"});
  run.query(3, 2, 1000, {2, 9, 3});
  CHECK(run.texts(2 * kSecond) == Lines{"is_include 239.0.0.2 10.0.0.9 10.0.0.3"});
  run.query(3, 1, 1000, {9});  // not received: no report
  CHECK(run.texts(2 * kSecond).empty());
  run.query(3, 3, 1000);       // nor is that group joined
  CHECK(run.texts(2 * kSecond).empty());
  // Several queries before the first answer: their sources are merged, or the whole group is reported.
  run.query(3, 1, 1000, {1});
  run.query(3, 1, 1000, {3});
  CHECK(run.texts(2 * kSecond) == Lines{"is_include 239.0.0.1 10.0.0.1 10.0.0.3"});
  run.query(3, 1, 1000, {1});
  run.query(3, 1, 1000);
  run.query(3, 1, 1000, {3});
  CHECK(run.texts(2 * kSecond) == Lines{"is_include 239.0.0.1 10.0.0.1 10.0.0.2 10.0.0.3"});
  std::vector<int> many;
  for (int i = 1; i <= 40; ++i) many.push_back(i);
  run.query(3, 1, 1000, many);
  CHECK(run.texts(2 * kSecond) == Lines{"is_include 239.0.0.1 10.0.0.1 10.0.0.2 10.0.0.3"});
  // A general response that is due earlier covers everything.
  run.query(3, 0, 0);
  run.query(3, 1, 100'000'000);
  CHECK(run.texts(2 * kSecond) == Lines{"is_include 239.0.0.1 10.0.0.1 10.0.0.2 10.0.0.3", "is_exclude 239.0.0.2 10.0.0.1 10.0.0.2"});
  CHECK(run.groups.next_event() == ~Nanoseconds{0});
}

TEST_CASE("while an old querier is there, its version is spoken") {
  for (const uint8_t version : {uint8_t{1}, uint8_t{2}}) {
    Run run;
    REQUIRE(run.join(1));
    run.run_for(10 * kSecond);
    run.query(version, 0, 10'000);
    CHECK(run.groups.version() == version);
    const std::string report = "report " + std::to_string(version) + " 239.0.0.";
    CHECK(run.texts(11 * kSecond) == Lines{report + "1"});
    REQUIRE(run.join(2));
    CHECK(run.texts(30 * kSecond) == Lines{report + "2", report + "2"});
    REQUIRE(run.listen(2, FilterMode::include, {1}));  // which the old version cannot express
    CHECK(run.texts(30 * kSecond).empty());
    if (version == 2) {
      run.query(2, 2, 1000);
      CHECK(run.texts(2 * kSecond) == Lines{report + "2"});
    }
    // A version 3 query does not change that.
    run.query(3, 0, 1000);
    CHECK(run.texts(2 * kSecond).size() == 2);
    CHECK(run.groups.version() == version);
    REQUIRE(run.leave(2));
    CHECK(run.texts(30 * kSecond) == (version == 1 ? Lines{} : Lines{"leave 239.0.0.2"}));
    // The old querier expires after twice its interval.
    run.texts(300 * kSecond);
    run.query(3, 0, 1000);
    CHECK(run.groups.version() == 3);
    CHECK(run.texts(2 * kSecond) == Lines{"is_exclude 239.0.0.1"});
  }
}

TEST_CASE("IGMP and MLD, old versions: report suppression, and a leave only by the last reporter") {
  Run run(false);
  REQUIRE(run.join(1));
  run.run_for(10 * kSecond);
  run.query(2, 0, 10'000);
  run.groups.handle_message({.kind = GroupMessage::Kind::report, .version = 2, .group = run.group(1), .ipv4 = false}, run.now);
  run.groups.handle_message({.kind = GroupMessage::Kind::report, .version = 2, .group = run.group(2), .ipv4 = false}, run.now);
  CHECK(run.texts(20 * kSecond).empty());
  CHECK(run.groups.counters().suppressed == 1);
  REQUIRE(run.leave(1));
  CHECK(run.texts(20 * kSecond).empty());
  CHECK(run.groups.next_event() == ~Nanoseconds{0});
}

TEST_CASE("IGMP and MLD: invalid groups, and groups that are never reported") {
  Run four, six(false);
  CHECK_FALSE(four.groups.listen(*parse_ip("10.0.0.1"), FilterMode::exclude, {}, four.now));
  CHECK_FALSE(four.groups.listen(*parse_address("ff0e::1"), FilterMode::exclude, {}, four.now));
  CHECK_FALSE(six.groups.listen(*parse_address("239.0.0.1"), FilterMode::exclude, {}, six.now));
  const IpAddress group_as_source[] = {four.group(1)}, other_version[] = {six.source(1)};
  CHECK_FALSE(four.groups.listen(four.group(1), FilterMode::exclude, group_as_source, four.now));
  CHECK_FALSE(four.groups.listen(four.group(1), FilterMode::exclude, other_version, four.now));
  std::vector<IpAddress> many(Memberships::kSourcesMax + 1, four.source(1));
  CHECK_FALSE(four.groups.listen(four.group(1), FilterMode::exclude, many, four.now));
  CHECK(four.groups.listen(*parse_address("224.0.0.1"), FilterMode::exclude, {}, four.now));
  CHECK(six.groups.listen(*parse_address("ff02::1"), FilterMode::include, {}, six.now));
  CHECK(six.groups.listen(*parse_address("ff01::7"), FilterMode::exclude, {}, six.now));
  CHECK(six.groups.is_member(*parse_address("ff01::7")));
  six.query(3, 0, 1000);
  CHECK(six.texts(10 * kSecond).empty());
  CHECK(four.texts(10 * kSecond).empty());
  CHECK(six.groups.listen(*parse_address("ff01::7"), FilterMode::include, {}, six.now));
  CHECK_FALSE(six.groups.is_member(*parse_address("ff01::7")));
}

TEST_CASE("who asks without end is answered a bounded number of times") {
  Run run;
  for (int i = 1; i <= 64; ++i) REQUIRE(run.join(i));
  run.run_for(10 * kSecond);
  const uint64_t before = run.groups.counters().reports;
  for (int i = 0; i < 10'000; ++i) {
    run.query(3, i % 3 == 0 ? 1 : 0, 0, i % 3 == 0 ? std::vector<int>{i % 200} : std::vector<int>{});
    run.texts(kMillisecond);
  }
  CHECK(run.groups.counters().reports - before <= 1000);  // in ten seconds
  CHECK(run.groups.counters().reports - before >= 100);
}

TEST_CASE("fuzz: any filters and queries: everything is reported in the end, and all places become free") {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random(seed);
    Run run(seed % 2 == 0, seed);
    run.room = group_record_bytes(run.ipv4, 40) + 8;
    for (int i = 0; i < 200; ++i) {
      const int group = static_cast<int>(random() % 80) + 1;
      std::vector<int> sources;
      while (sources.size() < 16 && random() % 4 != 0) sources.push_back(static_cast<int>(random() % 60) + 1);
      switch (random() % 6) {
        case 0:
          run.query(static_cast<uint8_t>(random() % 20 == 0 ? 2 : 3), random() % 2 == 0 ? 0 : group,
                    static_cast<uint32_t>(random() % 5000), sources);
          break;
        case 1: run.groups.hold(run.group(group), run.now); break;
        case 2: run.groups.release(run.group(group), run.now); break;
        default:
          run.listen(group, random() % 2 == 0 ? FilterMode::include : FilterMode::exclude,
                     random() % 3 == 0 ? std::vector<int>{} : sources);
      }
      if (random() % 2 == 0) run.texts(random() % (2 * kSecond));
    }
    run.texts(1000 * kSecond);
    CHECK(run.groups.next_event() == ~Nanoseconds{0});
    for (int i = 1; i <= 80; ++i) {
      for (int holds = 0; holds < 30; ++holds) run.groups.release(run.group(i), run.now);
      run.leave(i);
      run.texts(2 * kSecond);
    }
    run.texts(100 * kSecond);
    for (int i = 1; i <= 64; ++i) REQUIRE(run.join(i + 100));  // all places are free again
  }
}

}  // namespace unet::ip::memberships_test
