// port_lies_test.cc - records as bytes, and peers that lie in every field: forged rights, double claims, numbers of others, floods.
#include <catch2/catch.hpp>

#include <random>

#include "am/rpc/port/port_router.h"
#include "unet/base/test_seeds.h"

namespace unet::rpc::port_lies_test {
namespace {

constexpr PeerId kLiar = 1, kOther = 2, kThird = 3;
constexpr Nanoseconds kGrace = PortOptions().grace;

struct Lab : PortCarrier {
  explicit Lab(const PortOptions& options = {}) : router(*this, "lab", options, 7) {}
  PeerId reach(std::string_view space) override { return space == "liar" ? kLiar : space == "other" ? kOther : kNoPeer; }
  std::string_view host_of(PeerId) const override { return host; }
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
  // A peer sends a message, or its first piece. Returns the answer, if it comes at once.
  std::optional<Record> message(PeerId peer, uint32_t attachment, uint32_t total, uint32_t size, uint64_t sequence = 1) {
    const std::vector<std::byte> bytes(size);
    router.handle(peer, {.kind = RecordKind::message, .flags = RecordFlags::kAckNow, .to = attachment, .total = total,
                         .sequence = sequence, .body = bytes});
    return next(peer);
  }
  static bool is_wait(const std::optional<Record>& answer) {
    return answer && answer->kind == RecordKind::ack && (answer->flags & RecordFlags::kWait) != 0;
  }
  // A right of the program to a message port of the liar.
  uint32_t right_to_liar() {
    const uint32_t right = router.look_up("liar", "inbox");
    expect(kLiar, RecordKind::look_up);
    router.handle(kLiar, {.kind = RecordKind::found, .to = right, .rights = {{.number = 9, .transit = 3, .space = "liar"}}});
    const Record attach = expect(kLiar, RecordKind::attach);
    router.handle(kLiar, {.kind = RecordKind::attached, .to = attach.from, .from = 4, .sequence = 1});
    expect(kLiar, RecordKind::done);
    return right;
  }
  // The program receives a receive right of the liar, which begins to send its queue. Returns the message port.
  uint32_t arriving_port(uint32_t& feeder, Record& claim) {
    const uint32_t port = make_published();
    const uint32_t attachment = attach(kLiar, look_up(kLiar));
    router.handle(kLiar, {.kind = RecordKind::message, .to = attachment, .sequence = 1,
                          .rights = {{.receive = true, .number = 9, .transit = 3, .space = "liar"}}});
    const Record offer = expect(kLiar, RecordKind::attach);
    router.handle(kLiar, {.kind = RecordKind::attached, .to = offer.from, .from = 4, .sequence = 1});
    expect(kLiar, RecordKind::done);
    const uint32_t made = router.receive(port)->rights.at(0).number;
    claim = expect(kLiar, RecordKind::claim);
    claim.from = offer.from;
    router.handle(kLiar, {.kind = RecordKind::state, .to = offer.from, .number = 1000, .key = {8, 8}});
    feeder = attach(kLiar, {.number = claim.number, .key = {8, 8}}, RecordFlags::kFirst | RecordFlags::kTransfer);
    return made;
  }
  void pass(Nanoseconds time) {
    for (const Nanoseconds end = now + time; now < end;) router.poll(now += kGrace / 16, true);
  }
  Nanoseconds now = 0;
  std::string host;
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
    REQUIRE(encode_record(record, bytes.data()) == bytes.size());
    const auto again = decode_record(bytes);
    REQUIRE(again);
    REQUIRE(again->kind == record.kind);
    std::vector<std::byte> twice(head_size(*again));
    REQUIRE(encode_record(*again, twice.data()) == twice.size());
    REQUIRE(twice == bytes);
    for (size_t size = 0; size < bytes.size(); ++size) REQUIRE(!decode_record(Bytes(bytes).first(size)));
    bytes[0] = static_cast<std::byte>(16 + random() % 200);
    REQUIRE(!decode_record(bytes));
  }
}

TEST_CASE("random bytes are no record, or one that can be written again") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> bytes(random() % 120);
    for (std::byte& each : bytes) each = static_cast<std::byte>(random());
    if (!bytes.empty()) bytes[0] = static_cast<std::byte>(random() % 17);
    if (const auto record = decode_record(bytes)) REQUIRE(head_size(*record) + record->body.size() == bytes.size());
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
  const uint32_t right = lab.right_to_liar();
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

TEST_CASE("memory for messages of which pieces are missing has a share for each peer") {
  PortOptions options;
  options.memory = 1'000'000;
  Lab lab(options);
  lab.make_published();
  for (const PeerId peer : {kLiar, kOther, kThird}) {
    const RightDescriptor right = lab.look_up(peer);
    CHECK(!lab.message(peer, lab.attach(peer, right), 100'000, 4096)->flags);
    while (!lab.message(peer, lab.attach(peer, right), 100'000, 4096)->flags) {
    }
  }
}

TEST_CASE("unfinished messages leave places of the queue to other peers, and end after the grace time") {
  PortOptions options;
  options.queue_limit = 8;
  Lab lab(options);
  const uint32_t port = lab.make_published();
  std::vector<uint32_t> attachments;
  for (int i = 0; i < 20; ++i) {
    attachments.push_back(lab.attach(kLiar, lab.look_up(kLiar)));
    lab.message(kLiar, attachments.back(), 1000, 10);
  }
  const uint32_t other = lab.attach(kOther, lab.look_up(kOther));
  CHECK(!Lab::is_wait(lab.message(kOther, other, 5, 5)));
  CHECK(lab.router.receive(port));
  // Pieces that are shorter than an honest sender's gain no time.
  for (uint32_t i = 0; i < 20; ++i) {
    const std::vector<std::byte> bytes(1);
    lab.router.handle(kLiar, {.kind = RecordKind::message, .flags = RecordFlags::kPiece, .to = attachments[0], .total = 1000,
                              .offset = 10 + i, .sequence = 1, .body = bytes});
    lab.pass(kGrace / 16);
  }
  lab.pass(kGrace);
  CHECK(lab.router.memory() == 0);
  // A sender that was slow is asked to send its message again when it has its turn, and may do so.
  lab.pass(10 * kGrace);
  bool waits = false;
  while (const auto record = lab.next(kLiar)) {
    if (record->to == 77 && record->kind == RecordKind::ack) waits = Lab::is_wait(record);
  }
  CHECK(!waits);
  CHECK(!Lab::is_wait(lab.message(kLiar, attachments[0], 1000, 1000)));
  CHECK(lab.router.receive(port)->bytes.size() == 1000);
}

TEST_CASE("promised places that a peer does not use are a part of the queue, and for a time") {
  PortOptions options;
  options.queue_limit = 8;
  Lab lab(options);
  const uint32_t port = lab.make_published();
  const uint32_t own = lab.router.make_send_right(port);
  for (int i = 0; i < 8; ++i) lab.router.send(own, {}, {});
  for (int i = 0; i < 20; ++i) CHECK(Lab::is_wait(lab.message(kLiar, lab.attach(kLiar, lab.look_up(kLiar)), 5, 5)));
  const uint32_t other = lab.attach(kOther, lab.look_up(kOther));
  CHECK(Lab::is_wait(lab.message(kOther, other, 5, 5)));
  for (int i = 0; i < 4; ++i) CHECK(lab.router.receive(port));
  const auto promise = lab.next(kOther);
  REQUIRE(promise);
  CHECK(promise->kind == RecordKind::ack);
  CHECK(!Lab::is_wait(promise));
  lab.pass(20 * kGrace);  // each of the liar's rights has its turn
  for (int i = 0; i < 4; ++i) lab.router.send(own, {}, {});
  uint32_t count = 0;
  while (lab.router.receive(port)) ++count;
  CHECK(count == 8);
}

TEST_CASE("senders that wait and go leave nothing in the queue of those that wait") {
  PortOptions options;
  options.queue_limit = 1;
  Lab lab(options);
  const uint32_t port = lab.make_published();
  const RightDescriptor right = lab.look_up(kLiar);
  lab.message(kLiar, lab.attach(kLiar, right), 5, 5);
  for (int i = 0; i < 1000; ++i) {
    const uint32_t attachment = lab.attach(kLiar, right);
    CHECK(Lab::is_wait(lab.message(kLiar, attachment, 5, 5)));
    lab.router.handle(kLiar, {.kind = RecordKind::detach, .to = attachment});
  }
  CHECK(lab.router.waiting(port) == 0);
}

TEST_CASE("a home that does not answer an attachment holds up others for the grace time at most") {
  Lab lab;
  const uint32_t out = lab.right_to_liar();
  const uint32_t silent = lab.router.look_up("other", "port");
  lab.expect(kOther, RecordKind::look_up);
  lab.router.handle(kOther, {.kind = RecordKind::found, .to = silent, .rights = {{.number = 9, .transit = 3, .space = "other"}}});
  const Record attach = lab.expect(kOther, RecordKind::attach);
  const uint32_t mute = lab.router.look_up("other", "port");  // nor does it answer this
  const uint32_t watcher = lab.router.make_port();
  lab.router.notify_dead_name(mute, watcher, 5);
  const Given given[] = {{silent, false}, {mute, false}};
  REQUIRE(lab.router.send(out, {}, given) == SendResult::sent);
  REQUIRE(lab.router.send(out, {}, {}) == SendResult::sent);
  lab.pass(kGrace / 2);
  CHECK(!lab.next(kLiar));
  lab.pass(kGrace);
  const Record first = lab.expect(kLiar, RecordKind::message);
  REQUIRE(first.rights.size() == 2);
  CHECK(first.rights[0].error == PortError::unreachable);
  CHECK(first.rights[1].error == PortError::unreachable);
  lab.expect(kLiar, RecordKind::message);
  CHECK(lab.router.receive(watcher)->event == PortEvent::dead_name);
  // The answer comes at last. The home must not count the right.
  while (lab.next(kOther)) {
  }
  lab.router.handle(kOther, {.kind = RecordKind::attached, .to = attach.from, .from = 6, .sequence = 1});
  CHECK(lab.expect(kOther, RecordKind::detach).to == 6);
}

TEST_CASE("a pause of this space is no silence of its peers") {
  Lab lab;
  const uint32_t right = lab.router.look_up("other", "port");
  lab.router.poll(lab.now += 100 * kGrace, true);
  CHECK(lab.router.error_of(right) == PortError::none);
  lab.pass(2 * kGrace);
  CHECK(lab.router.error_of(right) == PortError::unreachable);
}

TEST_CASE("a peer that looks up a right and does not report its end delays flush() for a time") {
  Lab lab;
  lab.make_published();
  lab.look_up(kLiar);
  CHECK(!lab.router.is_settled());
  lab.pass(3 * kGrace);
  CHECK(lab.router.is_settled());
  CHECK(lab.router.transits() == 0);
}

TEST_CASE("a former home sends one queue, and nothing after its end") {
  PortOptions options;
  options.queue_limit = 8;
  Lab lab(options);
  uint32_t feeder = 0;
  Record claim;
  const uint32_t port = lab.arriving_port(feeder, claim);
  const uint8_t flags = RecordFlags::kFirst | RecordFlags::kTransfer;
  lab.router.handle(kLiar, Lab::attach_record({.number = claim.number, .key = {8, 8}}, flags));
  CHECK(lab.expect(kLiar, RecordKind::refused).error == PortError::bad_right);
  const uint64_t cookie = 1;
  const auto event = [&](uint64_t sequence) {
    const auto kind = static_cast<uint8_t>(static_cast<uint8_t>(PortEvent::dead_name) << RecordFlags::kEventShift);
    lab.router.handle(kLiar, {.kind = RecordKind::message, .flags = kind, .to = feeder, .total = 8, .sequence = sequence,
                              .body = as_bytes(&cookie, sizeof cookie)});
  };
  for (uint64_t i = 1; i <= 100; ++i) event(i);
  uint32_t count = 0;
  while (lab.router.receive(port)) ++count;
  CHECK(count == 8);
  lab.router.handle(kLiar, {.kind = RecordKind::opened, .to = claim.from});
  for (uint64_t i = 9; i <= 100; ++i) event(i);
  CHECK(!lab.router.receive(port));
}

TEST_CASE("a message that is too long for its new home is lost, and its message port goes on") {
  PortOptions options;
  options.message_max = 1000;
  Lab lab(options);
  uint32_t feeder = 0;
  Record claim;
  const uint32_t port = lab.arriving_port(feeder, claim);
  lab.message(kLiar, feeder, 3000, 2000);
  const std::vector<std::byte> rest(1000);
  lab.router.handle(kLiar, {.kind = RecordKind::message, .flags = RecordFlags::kPiece, .to = feeder, .total = 3000, .offset = 2000,
                            .sequence = 1, .body = rest});
  const auto answer = lab.message(kLiar, feeder, 10, 10, 2);
  REQUIRE(answer);
  CHECK(answer->kind == RecordKind::ack);
  CHECK(answer->sequence == 3);
  CHECK(lab.router.receive(port)->bytes.size() == 10);
  lab.router.handle(kLiar, {.kind = RecordKind::opened, .to = claim.from});
  CHECK(lab.router.error_of_port(port) == PortError::none);
  CHECK(lab.router.memory() == 0);
}

TEST_CASE("a name that no space can have leads nowhere") {
  Lab lab;
  lab.make_published();
  const uint32_t port = lab.router.make_port();
  const uint32_t right = lab.right_to_liar();
  const Given given{port, true};
  REQUIRE(lab.router.send(right, {}, {&given, 1}) == SendResult::sent);
  const RightDescriptor offer = lab.expect(kLiar, RecordKind::message).rights.at(0);
  const uint32_t attachment = lab.attach(kLiar, offer, RecordFlags::kFirst | RecordFlags::kReceive);
  lab.host = std::string(60, 'h');
  lab.router.handle(kLiar, {.kind = RecordKind::claim, .to = attachment, .number = 8, .name = std::string(250, 'n')});
  CHECK(lab.expect(kLiar, RecordKind::refused).error == PortError::unreachable);
  const uint32_t looked_up = lab.router.look_up("other", std::string(256, 'n'));
  CHECK(lab.router.error_of(looked_up) == PortError::not_found);
  CHECK(!lab.next(kOther));
}

TEST_CASE("a table of objects refuses one more when all its numbers are in use") {
  Slots<int, 3> slots;
  std::vector<uint32_t> numbers;
  for (int i = 0; i < 8; ++i) numbers.push_back(slots.insert(i));
  CHECK(slots.insert(8) == 0);
  for (int i = 0; i < 8; ++i) CHECK(*slots.find(numbers[static_cast<size_t>(i)]) == i);
  slots.erase(numbers[3]);
  CHECK(slots.find(slots.insert(9)) != nullptr);
  CHECK(slots.size() == 8);
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
  CHECK(attached == (PortOptions().senders_max - 1) / 2);
  lab.attach(kOther, lab.look_up(kOther));
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
