// port_lies_test.cc - records as bytes, and peers that lie in every field: forged rights, double claims, numbers of others, floods.
#include <catch2/catch.hpp>

#include <random>

#include "am/rpc/port/port_router.h"
#include "unet/base/test_seeds.h"

namespace unet::rpc::port_lies_test {
namespace {

constexpr PeerId kLiar = 1, kOther = 2;

struct Lab : PortCarrier {
  explicit Lab(const PortOptions& options = {}) : router(*this, "lab", options, 7) {}
  PeerId reach(std::string_view space) override { return space == "liar" ? kLiar : space == "other" ? kOther : kNoPeer; }
  std::string_view host_of(PeerId) const override { return {}; }
  // Returns the next record for a peer, with an owned copy of its body.
  std::optional<Record> next(PeerId peer) {
    Record record;
    if (!router.take(peer, record)) return std::nullopt;
    body.assign(record.body.begin(), record.body.end());
    record.body = body;
    return record;
  }
  Record expect(PeerId peer, RecordKind kind) {
    const auto record = next(peer);
    REQUIRE(record);
    REQUIRE(record->kind == kind);
    return *record;
  }
  // A peer looks up a published right. Returns the descriptor.
  RightDescriptor look_up(PeerId peer) {
    router.handle(peer, {.kind = RecordKind::look_up, .from = 1, .name = "port"});
    return expect(peer, RecordKind::found).rights.at(0);
  }
  uint32_t attach(PeerId peer, const RightDescriptor& right, uint8_t flags = RecordFlags::kFirst) {
    router.handle(peer, attach_record(right, flags));
    return expect(peer, RecordKind::attached).from;
  }
  static Record attach_record(const RightDescriptor& right, uint8_t flags = RecordFlags::kFirst) {
    return {.kind = RecordKind::attach, .flags = flags, .to = right.number, .from = 77, .stream = 5, .key = right.key};
  }
  uint32_t make_published() {
    const uint32_t port = router.make_port();
    REQUIRE(router.publish("port", router.make_send_right(port)) == Published::yes);
    return port;
  }
  std::vector<std::byte> body;
  PortRouter router;
};

Record random_record(std::mt19937_64& random) {
  const auto number = [&]() -> uint32_t {
    const uint32_t index = static_cast<uint32_t>(random() % 6);
    return random() % 8 == 0 ? static_cast<uint32_t>(random()) : (1u << 20) + index;
  };
  Record record{.kind = static_cast<RecordKind>(1 + random() % 15), .flags = static_cast<uint8_t>(random()),
                .error = static_cast<PortError>(random() % (kPortErrorMax + 1)), .to = number(), .from = number(), .number = number()};
  record.total = random() % 4 == 0 ? static_cast<uint32_t>(random()) : static_cast<uint32_t>(random() % 50);
  record.offset = random() % 2 == 0 ? 0 : static_cast<uint32_t>(random() % 50);
  record.sequence = random() % 8 == 0 ? random() : random() % 4;
  record.stream = random() % 3;
  record.name = random() % 2 == 0 ? "port" : random() % 2 == 0 ? "other" : "liar";
  for (uint64_t count = random() % 4; count != 0; --count) {
    record.rights.push_back({.receive = random() % 2 == 0, .number = number(), .transit = number(), .space = record.name});
  }
  return record;
}

}  // namespace

TEST_CASE("a record is the same after its way as bytes, and a part of it is no record") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 3000; ++i) {
    const Record record = random_record(random);
    std::vector<std::byte> bytes(head_size(record));
    REQUIRE(encode(record, bytes.data()) == bytes.size());
    const auto again = decode(bytes);
    REQUIRE(again);
    REQUIRE(again->kind == record.kind);
    std::vector<std::byte> twice(head_size(*again));
    REQUIRE(encode(*again, twice.data()) == twice.size());
    REQUIRE(twice == bytes);
    for (size_t size = 0; size < bytes.size(); ++size) REQUIRE(!decode(Bytes(bytes).first(size)));
    bytes[0] = static_cast<std::byte>(16 + random() % 200);
    REQUIRE(!decode(bytes));
  }
}

TEST_CASE("random bytes are no record, or one that can be written again") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> bytes(random() % 120);
    for (std::byte& each : bytes) each = static_cast<std::byte>(random());
    if (!bytes.empty()) bytes[0] = static_cast<std::byte>(random() % 17);
    if (const auto record = decode(bytes)) REQUIRE(head_size(*record) + record->body.size() == bytes.size());
  }
}

TEST_CASE("a forged right is refused, and a stale number is a dead name") {
  Lab lab;
  lab.make_published();
  RightDescriptor right = lab.look_up(kLiar);
  const uint64_t bit = GENERATE(uint64_t{1}, uint64_t{1} << 63);
  right.key.second ^= bit;
  lab.router.handle(kLiar, Lab::attach_record(right));
  CHECK(lab.expect(kLiar, RecordKind::refused).error == PortError::bad_right);
  right.key.second ^= bit;
  right.number += 1u << 20;
  lab.router.handle(kLiar, Lab::attach_record(right));
  CHECK(lab.expect(kLiar, RecordKind::refused).error == PortError::dead_name);
  right.number -= 1u << 20;
  // The secret of a send right is no right to receive, nor to send a queue that comes from a former home.
  for (const uint8_t flags : {RecordFlags::kReceive, RecordFlags::kTransfer}) {
    lab.router.handle(kLiar, Lab::attach_record(right, RecordFlags::kFirst | flags));
    CHECK(lab.expect(kLiar, RecordKind::refused).error == PortError::bad_right);
  }
  CHECK(lab.router.counters().refused == 3);
  // A sender that claims to have been attached elsewhere would skip messages, or repeat them.
  lab.router.handle(kLiar, Lab::attach_record(right, 0));
  CHECK(lab.expect(kLiar, RecordKind::refused).error == PortError::lost);
}

TEST_CASE("a receive right that is sent twice can be claimed once") {
  Lab lab;
  lab.make_published();
  // The program sends a receive right to the liar, which passes it on and uses it, too.
  const uint32_t port = lab.router.make_port();
  const uint32_t right = lab.router.look_up("liar", "inbox");
  lab.expect(kLiar, RecordKind::look_up);
  lab.router.handle(kLiar, {.kind = RecordKind::found, .to = right, .rights = {{.number = 9, .transit = 3, .space = "liar"}}});
  const Record attach = lab.expect(kLiar, RecordKind::attach);
  lab.router.handle(kLiar, {.kind = RecordKind::attached, .to = attach.from, .from = 4, .sequence = 1});
  lab.expect(kLiar, RecordKind::done);
  const Given given{port, true};
  REQUIRE(lab.router.send(right, {}, {&given, 1}) == SendResult::sent);
  const RightDescriptor offer = lab.expect(kLiar, RecordKind::message).rights.at(0);
  REQUIRE(offer.receive);
  const uint8_t flags = RecordFlags::kFirst | RecordFlags::kReceive;
  const uint32_t first = lab.attach(kLiar, offer, flags), second = lab.attach(kOther, offer, flags);
  lab.router.handle(kOther, {.kind = RecordKind::claim, .to = second, .number = 8, .name = "other"});
  CHECK(lab.expect(kLiar, RecordKind::refused).error == PortError::bad_right);
  lab.router.handle(kLiar, {.kind = RecordKind::claim, .to = first, .number = 8, .name = "liar"});
  CHECK(!lab.next(kLiar));
  lab.router.handle(kLiar, Lab::attach_record(offer, flags));
  CHECK(lab.expect(kLiar, RecordKind::refused).error == PortError::bad_right);
  CHECK(lab.expect(kOther, RecordKind::state).number == 64);
  // The other takes the message port, and dies. Its senders hear of it.
  lab.expect(kOther, RecordKind::attach);
  lab.router.peer_lost(kOther);
  lab.router.handle(kLiar, {.kind = RecordKind::done, .to = offer.transit});
  CHECK(lab.router.ports() == 1);
}

TEST_CASE("a peer cannot use what belongs to another peer") {
  Lab lab;
  const uint32_t port = lab.make_published();
  const RightDescriptor right = lab.look_up(kOther);
  const uint32_t attachment = lab.attach(kOther, right);
  const auto bytes = std::vector<std::byte>(5);
  const Record message{.kind = RecordKind::message, .to = attachment, .total = 5, .sequence = 1, .body = bytes};
  lab.router.handle(kLiar, message);
  lab.router.handle(kLiar, {.kind = RecordKind::claim, .to = attachment, .name = "liar"});
  lab.router.handle(kLiar, {.kind = RecordKind::detach, .to = attachment});
  lab.router.handle(kLiar, {.kind = RecordKind::done, .to = right.transit});
  CHECK(lab.router.counters().bad_records == 2);
  CHECK(lab.router.transits() == 1);
  CHECK(!lab.router.receive(port));
  lab.router.handle(kOther, message);
  CHECK(lab.router.receive(port));
  // Nor may it answer for another home.
  const uint32_t looked_up = lab.router.look_up("other", "port");
  lab.expect(kOther, RecordKind::look_up);
  lab.router.handle(kLiar, {.kind = RecordKind::found, .to = looked_up, .rights = {{.space = "liar"}}});
  lab.router.handle(kLiar, {.kind = RecordKind::refused, .error = PortError::dead_name, .to = looked_up});
  CHECK(lab.router.error_of(looked_up) == PortError::none);
}

TEST_CASE("memory for messages of which pieces are missing is bounded") {
  PortOptions options;
  options.memory = 1'000'000;
  options.message_max = 200'000;
  Lab lab(options);
  lab.make_published();
  const RightDescriptor right = lab.look_up(kLiar);
  for (int i = 0; i < 200; ++i) {
    const uint32_t attachment = lab.attach(kLiar, right);
    const auto bytes = std::vector<std::byte>(10);
    lab.router.handle(kLiar, {.kind = RecordKind::message, .to = attachment, .total = 150'000, .sequence = 1, .body = bytes});
    while (lab.next(kLiar)) {
    }
  }
  CHECK(lab.router.memory() <= options.memory / 2);
  lab.router.handle(kLiar, {.kind = RecordKind::message, .to = lab.attach(kLiar, right), .total = 200'001, .sequence = 1});
  CHECK(lab.expect(kLiar, RecordKind::refused).error == PortError::too_long);
  lab.router.peer_lost(kLiar);
  CHECK(lab.router.memory() == 0);
  CHECK(lab.router.attachments() == 1);
}

TEST_CASE("a peer that asks and takes no answers is given up") {
  Lab lab;
  lab.make_published();
  for (uint32_t i = 0; i < 100'000; ++i) lab.router.handle(kLiar, {.kind = RecordKind::look_up, .from = i, .name = "nothing"});
  CHECK(lab.router.is_overrun(kLiar));
  uint32_t answers = 0;
  while (lab.next(kLiar)) ++answers;
  CHECK(answers < 20'000);
  // The count of a peer's rights is bounded, too.
  lab.router.peer_lost(kLiar);
  const RightDescriptor right = lab.look_up(kLiar);
  uint32_t attached = 0;
  for (uint32_t i = 0; i < 5000; ++i) {
    lab.router.handle(kLiar, Lab::attach_record(right));
    attached += lab.next(kLiar)->kind == RecordKind::attached ? 1 : 0;
  }
  CHECK(attached == PortOptions().senders_max - 1);
}

TEST_CASE("peers that send random records leave nothing behind, thousands of seeds") {
  for (uint64_t seed = 1; seed <= test::seeds(2000); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    PortOptions options{.queue_limit = 4, .message_max = 1000, .memory = 10'000, .rights_max = 200, .senders_max = 10,
                        .peer_rights_max = 20, .grace = 100};
    Lab lab(options);
    std::vector<uint32_t> ports{lab.make_published()}, rights;
    RightDescriptor known[2];
    for (const PeerId peer : {kLiar, kOther}) {
      known[peer - 1] = lab.look_up(peer);
      lab.attach(peer, known[peer - 1]);
    }
    const auto bytes = std::vector<std::byte>(1000);
    for (Nanoseconds now = 1; now < 200; ++now) {
      const auto peer = static_cast<PeerId>(1 + random() % 2);
      Record record = random_record(random);
      if (record.kind == RecordKind::attach && random() % 2 == 0) record.key = known[peer - 1].key;
      record.body = Bytes(bytes).first(random() % 50);
      lab.router.handle(peer, record);
      if (random() % 10 == 0) rights.push_back(lab.router.look_up(random() % 2 == 0 ? "liar" : "other", "port"));
      if (random() % 20 == 0) ports.push_back(lab.router.make_port());
      if (random() % 10 == 0 && !rights.empty()) {
        const Given given{ports[random() % ports.size()], true};
        lab.router.send(rights[random() % rights.size()], {}, {&given, random() % 2});
      }
      if (const auto got = lab.router.receive(ports[random() % ports.size()])) {
        for (const Given& each : got->rights) (each.receive ? ports : rights).push_back(each.number);
      }
      if (random() % 100 == 0) lab.router.peer_lost(peer);
      lab.router.poll(now, random() % 2 == 0);
      REQUIRE(lab.router.memory() <= options.memory + 64 * 1024);
      while (lab.next(peer)) {
      }
    }
    for (const uint32_t each : rights) lab.router.close(each);
    lab.router.peer_lost(kLiar);
    lab.router.peer_lost(kOther);
    lab.router.unpublish("port");
    for (const uint32_t each : ports) lab.router.destroy_port(each);
    lab.router.poll(10'000, true);
    REQUIRE(lab.router.ports() == 0);
    REQUIRE(lab.router.rights() == 0);
    REQUIRE(lab.router.attachments() == 0);
    REQUIRE(lab.router.transits() == 0);
    REQUIRE(lab.router.memory() == 0);
  }
}

}  // namespace unet::rpc::port_lies_test
