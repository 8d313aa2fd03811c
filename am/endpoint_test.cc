// endpoint_test.cc - two Active Message endpoints of one unetd, over a local channel and through the NI, as a program sees them.
#include "am/endpoint.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "unet/test_daemon.h"
#include "unet/test_process.h"

using namespace unet;
using namespace unet::am;

namespace {

std::atomic<uint32_t> unanswered{0};  // counted by b's thread, which must not use Catch

// Two endpoints with a thread each, so that one can wait for the other.
class Pair {
 public:
  explicit Pair(control::Path path, uint64_t exposed = 0) : path_(path), context_(*Context::open(daemon_.ni(), "test")) {
    unanswered = 0;
    a = make();
    b = make();
    if (exposed != 0) REQUIRE(b->expose(exposed));
    REQUIRE(b->bind("b"));
  }
  ~Pair() { stop(); }

  // From here on thread b serves its endpoint; no other code touches that until stop().
  void start() {
    thread_ = std::thread([this] {
      while (!stop_.load(std::memory_order_acquire)) {
        if (b->poll() == 0) std::this_thread::yield();
      }
    });
    ConnectOptions options{.path = path_, .local = kLocalOptions};
    REQUIRE(a->map(0, "b", tag, options));
    REQUIRE(a->is_local(0) == (path_ == control::Path::local));
  }
  void stop() {
    stop_.store(true, std::memory_order_release);
    if (thread_.joinable()) thread_.join();
  }
  void until(const std::function<bool()>& done) {
    const Nanoseconds end = monotonic_now() + 60 * kSecond;
    while (!done()) {
      REQUIRE(monotonic_now() < end);
      if (a->poll() == 0) std::this_thread::yield();
    }
  }

  // Makes an endpoint of the layer below Active Messages.
  std::unique_ptr<unet::Endpoint> raw() {
    auto made = context_.create_endpoint();
    REQUIRE(made);
    return std::make_unique<unet::Endpoint>(std::move(*made));
  }

  Tag tag = kAnyTag;
  std::unique_ptr<am::Endpoint> a, b;

 private:
  std::unique_ptr<am::Endpoint> make() {
    auto made = am::Endpoint::create(context_);
    REQUIRE(made);
    return std::move(*made);
  }
  control::Path path_;
  TestDaemon daemon_;
  Context context_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
};

#define EITHER_PATH GENERATE(control::Path::local, control::Path::ni)

std::vector<std::byte> pattern(size_t size, uint32_t seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(seed * 31 + i * 7 + (i >> 8));
  return bytes;
}

bool equal(Bytes a, Bytes b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

std::vector<uint32_t> some_words(uint32_t count) {
  std::vector<uint32_t> words;
  for (uint32_t i = 0; i < count; ++i) words.push_back(0xA0B0C000 + i);
  return words;
}

constexpr uint8_t kEcho = 1, kAnswer = 2, kAdd = 3, kSum = 4, kSilent = 5, kEchoLong = 6, kFirst = 0, kLast = 255;

// Echoes a message: short ones as short replies, others as medium ones.
void echo(Token& token, void*) {
  const Outcome outcome = token.payload().empty() ? token.reply_short(kAnswer, token.arguments())
                                                  : token.reply_medium(kAnswer, token.payload(), token.arguments());
  if (outcome != Outcome::sent) ++unanswered;
}

struct Heard {
  uint32_t count = 0;
  std::vector<uint32_t> arguments;
  std::vector<std::byte> payload;
};
void hear(Token& token, void* context) {
  Heard& heard = *static_cast<Heard*>(context);
  ++heard.count;
  heard.arguments.assign(token.arguments().begin(), token.arguments().end());
  heard.payload.assign(token.payload().begin(), token.payload().end());
}

struct CameBack {
  std::vector<ReturnStatus> status;
  std::vector<uint8_t> handler;
  std::vector<Index> index;
  std::vector<uint32_t> arguments;
};
void note(am::Endpoint&, const Returned& returned, void* context) {
  CameBack& back = *static_cast<CameBack*>(context);
  back.status.push_back(returned.status);
  back.handler.push_back(returned.handler);
  back.index.push_back(returned.index);
  back.arguments.assign(returned.arguments.begin(), returned.arguments.end());
}

void add(Token& token, uint32_t x, uint64_t y) { token.reply(kSum, x + y); }
void add_four(Token& token, uint8_t a, int64_t b, double c, float d) {
  token.reply(kSum, static_cast<double>(a) + static_cast<double>(b) + c + static_cast<double>(d));
}
double sum = 0;
void take_sum(Token&, double value) { sum = value; }

}  // namespace

TEST_CASE("short messages with every number of arguments, there and back") {
  Pair pair(EITHER_PATH);
  Heard heard;
  for (const uint8_t handler : {kFirst, kEcho, kLast}) pair.b->set_handler(handler, echo, nullptr);
  pair.a->set_handler(kAnswer, hear, &heard);
  pair.start();
  uint32_t sent = 0;
  for (const uint8_t handler : {kFirst, kEcho, kLast}) {
    for (uint32_t count = 0; count <= kArgumentsMax; ++count) {
      const auto words = some_words(count);
      REQUIRE(pair.a->request_short(0, handler, words) == Outcome::sent);
      ++sent;
      pair.until([&] { return heard.count == sent; });
      REQUIRE(heard.arguments == words);
      REQUIRE(heard.payload.empty());
    }
  }
  REQUIRE(pair.a->request_short(0, kEcho, some_words(kArgumentsMax + 1)) == Outcome::bad_call);
  CHECK(pair.a->counters().requests == sent);
  CHECK(pair.a->counters().handled == sent);
  CHECK(unanswered == 0);
}

TEST_CASE("medium messages of every kind of size, copied and composed in place") {
  Pair pair(EITHER_PATH);
  Heard heard;
  pair.b->set_handler(kEcho, echo, nullptr);
  pair.a->set_handler(kAnswer, hear, &heard);
  pair.start();
  uint32_t sent = 0;
  for (const size_t size : {0, 1, 7, 8, 31, 32, 40, 41, 48, 100, 1400, 4096, 16383, 16384}) {
    for (const uint32_t count : {0u, 1u, 2u, 10u, 11u, 16u}) {
      const auto words = some_words(count);
      const auto bytes = pattern(size, count);
      REQUIRE(pair.a->request_medium(0, kEcho, bytes, words) == Outcome::sent);
      pair.until([&] { return heard.count == sent + 1; });
      ++sent;
      REQUIRE(heard.arguments == words);
      REQUIRE(heard.payload == bytes);
      if (size == 0) continue;
      const MutableBytes room = pair.a->reserve(0, kMediumMax, static_cast<uint8_t>(count));
      REQUIRE(room.size() == kMediumMax);
      std::copy(bytes.begin(), bytes.end(), room.begin());
      REQUIRE(pair.a->commit(kEcho, static_cast<uint32_t>(size), words) == Outcome::sent);
      pair.until([&] { return heard.count == sent + 1; });
      ++sent;
      REQUIRE(heard.payload == bytes);
    }
  }
  CHECK(pair.a->request_medium(0, kEcho, pattern(kMediumMax + 1, 0), {}) == Outcome::bad_call);
  CHECK(pair.a->reserve(0, kMediumMax + 1, 0).empty());
  CHECK(pair.a->commit(kEcho, 1, {}) == Outcome::bad_call);
}

TEST_CASE("long messages go to where they are sent, before the handler runs") {
  const auto path = EITHER_PATH;
  const bool exposed = GENERATE(true, false);
  constexpr size_t kSegment = 1 << 20;
  Pair pair(path, exposed ? kSegment : 0);
  std::vector<std::byte> own(kSegment);
  if (!exposed) REQUIRE(pair.b->set_segment(own));
  CHECK(pair.b->set_segment(own).has_value() == !exposed);
  const MutableBytes segment = pair.b->segment();
  struct Seen {
    MutableBytes segment;
    std::vector<std::byte> wanted;
    uint64_t offset = 0;
    bool right = true;
  } seen{segment, {}, 0, true};
  pair.b->set_handler(kEchoLong, [](Token& token, void* context) {
    Seen& it = *static_cast<Seen*>(context);
    it.right = token.offset() == it.offset && equal(token.payload(), it.wanted) &&
               (token.payload().empty() || token.payload().data() == it.segment.data() + it.offset);
    token.reply(kAnswer, token.argument(0));
  }, &seen);
  Heard heard;
  pair.a->set_handler(kAnswer, hear, &heard);
  pair.start();
  uint32_t sent = 0;
  for (const size_t size : {0, 1, 4095, 4096, 4097, 16384, 16385, 700'001}) {
    for (const uint64_t offset : {uint64_t{0}, uint64_t{13}, kSegment - size}) {
      seen.wanted = pattern(size, sent);
      seen.offset = offset;
      REQUIRE(pair.a->request_long(0, kEchoLong, offset, seen.wanted, some_words(1)) == Outcome::sent);
      pair.until([&] { return heard.count == sent + 1; });
      ++sent;
      REQUIRE(seen.right);
      REQUIRE(heard.arguments == some_words(1));
    }
  }
}

TEST_CASE("get brings what is there, then runs the handler here; long replies") {
  const auto path = EITHER_PATH;
  const bool exposed = GENERATE(true, false);
  constexpr size_t kSegment = 300'000;
  Pair pair(path, exposed ? kSegment : 0);
  std::vector<std::byte> own(kSegment), mine(kSegment);
  if (!exposed) REQUIRE(pair.b->set_segment(own));
  const auto content = pattern(kSegment, 5);
  std::copy(content.begin(), content.end(), pair.b->segment().begin());
  REQUIRE(pair.a->set_segment(mine));
  Heard heard;
  CameBack back;
  pair.a->set_handler(kAnswer, hear, &heard);
  pair.a->set_error_handler(note, &back);
  pair.b->set_handler(kEchoLong, [](Token& token, void*) {
    const uint64_t length = token.wide(0);
    const MutableBytes from = token.endpoint().segment().subspan(0, length);
    if (token.reply_long(kAnswer, 77, from, token.arguments()) != Outcome::sent) ++unanswered;
  }, nullptr);
  pair.start();
  uint32_t sent = 0;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{4097}, size_t{16385}, kSegment}) {
    std::vector<std::byte> memory(size);
    REQUIRE(pair.a->get(0, kAnswer, kSegment - size, memory, some_words(3)) == Outcome::sent);
    pair.until([&] { return heard.count == sent + 1; });
    ++sent;
    REQUIRE(equal(memory, Bytes(content).last(size)));
    REQUIRE(heard.payload == memory);
    REQUIRE(heard.arguments == some_words(3));
  }
  std::vector<std::byte> memory(10'000);
  pair.a->get(0, kAnswer, kSegment - 9'999, memory, {});
  pair.a->get(0, kAnswer, kSegment + 1, memory, {});
  pair.until([&] { return back.status.size() == 2; });
  CHECK(back.status[0] == ReturnStatus::bad_length);
  CHECK(back.status[1] == ReturnStatus::bad_segment_offset);
  CHECK(heard.count == sent);
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{kLongReplyMax}}) {
    std::fill(mine.begin(), mine.end(), std::byte{0});
    REQUIRE(pair.a->request(0, kEchoLong, size) == Outcome::sent);
    pair.until([&] { return heard.count == sent + 1; });
    ++sent;
    REQUIRE(equal(heard.payload, Bytes(content).first(size)));
    REQUIRE(equal(Bytes(mine).subspan(77, size), heard.payload));
  }
}

TEST_CASE("what cannot be delivered comes back with its reason") {
  const auto path = EITHER_PATH;
  Pair pair(path);
  std::vector<std::byte> segment(1000);
  REQUIRE(pair.b->set_segment(segment));
  CameBack back;
  pair.a->set_error_handler(note, &back);
  pair.b->set_handler(kSilent, [](Token&, void*) {}, nullptr);
  pair.b->set_handler(kAdd, handler_of<add>());
  pair.start();
  const auto returns = [&](ReturnStatus status, uint8_t handler, const std::vector<uint32_t>& arguments) {
    const size_t before = back.status.size();
    pair.until([&] { return back.status.size() > before; });
    CHECK(back.status.back() == status);
    CHECK(back.handler.back() == handler);
    CHECK(back.index.back() == 0);
    CHECK(back.arguments == arguments);
  };
  CHECK(pair.a->request(7, kSilent, 1u) == Outcome::returned);
  CHECK(back.status.back() == ReturnStatus::bad_entry);
  CHECK(back.index.back() == 7);
  pair.a->request_short(0, 99, some_words(16));
  returns(ReturnStatus::bad_handler, 99, some_words(16));
  pair.a->request(0, kAdd, 1u);
  returns(ReturnStatus::bad_arguments, kAdd, {1});
  pair.a->request_long(0, kSilent, 1001, pattern(1, 0), some_words(2));
  returns(ReturnStatus::bad_segment_offset, kSilent, some_words(2));
  pair.a->request_long(0, kSilent, 990, pattern(11, 0), {});
  returns(ReturnStatus::bad_length, kSilent, {});
  pair.a->request_long(0, kSilent, 0, pattern(100'000, 0), {});
  returns(ReturnStatus::bad_length, kSilent, {});
  CHECK(std::all_of(segment.begin() + 990, segment.end(), [](std::byte b) { return b == std::byte{0}; }));
  CHECK(pair.a->counters().returned == back.status.size());
}

TEST_CASE("tags decide what is delivered") {
  Pair pair(EITHER_PATH);
  CameBack back;
  Heard heard;
  pair.a->set_error_handler(note, &back);
  pair.a->set_handler(kAnswer, hear, &heard);
  pair.b->set_handler(kEcho, echo, nullptr);
  const Tag wanted = GENERATE(Tag{kAnyTag}, Tag{kNoTag}, Tag{0x1234'5678'9ABC'DEF0});
  const bool right = GENERATE(true, false);
  pair.tag = right ? 0x1234'5678'9ABC'DEF0 : 55;
  pair.b->set_tag(wanted);
  pair.start();
  for (int i = 0; i < 3; ++i) pair.a->request(0, kEcho, 1u);
  pair.until([&] { return heard.count + back.status.size() == 3; });
  const bool delivered = wanted == kAnyTag || (wanted != kNoTag && right);
  CHECK(heard.count == (delivered ? 3 : 0));
  for (const ReturnStatus each : back.status) CHECK(each == ReturnStatus::bad_tag);
}

static_assert(!std::is_copy_constructible_v<Token> && !std::is_move_constructible_v<Token> && !std::is_copy_assignable_v<Token>);

TEST_CASE("the rules: one reply, none from a reply, no request and no poll in a handler") {
  Pair pair(EITHER_PATH);
  struct Seen {
    Outcome first{}, second{}, request{};
    uint32_t polled = 1;
  } seen;
  pair.b->set_handler(kEcho, [](Token& token, void* context) {
    Seen& it = *static_cast<Seen*>(context);
    it.first = token.reply(kAnswer);
    it.second = token.reply(kAnswer);
    it.request = token.endpoint().request(0, kEcho);
    it.polled = token.endpoint().poll();
  }, &seen);
  Outcome from_reply = Outcome::sent;
  uint32_t answers = 0;
  struct Context {
    Outcome& outcome;
    uint32_t& answers;
  } context{from_reply, answers};
  pair.a->set_handler(kAnswer, [](Token& token, void* argument) {
    Context& it = *static_cast<Context*>(argument);
    CHECK(!token.can_reply());
    it.outcome = token.reply(kAnswer);
    ++it.answers;
  }, &context);
  pair.start();
  pair.a->request(0, kEcho);
  pair.until([&] { return answers == 1; });
  pair.stop();
  CHECK(seen.first == Outcome::sent);
  CHECK(seen.second == Outcome::bad_call);
  CHECK(seen.request == Outcome::bad_call);
  CHECK(seen.polled == 0);
  CHECK(from_reply == Outcome::bad_call);
}

TEST_CASE("many requests, more than there are credits: once and in order") {
  Pair pair(EITHER_PATH);
  const bool replies = GENERATE(true, false);
  struct Order {
    uint32_t next = 0;
    bool replies = false, right = true;
  } order{0, replies, true};
  pair.b->set_handler(kEcho, [](Token& token, void* context) {
    Order& it = *static_cast<Order*>(context);
    if (token.argument(0) != it.next++) it.right = false;
    if (it.replies) token.reply(kAnswer, token.argument(0));
  }, &order);
  Order back;
  pair.a->set_handler(kAnswer, [](Token& token, void* context) {
    Order& it = *static_cast<Order*>(context);
    if (token.argument(0) != it.next++) it.right = false;
  }, &back);
  pair.b->set_handler(kSilent, [](Token& token, void*) { token.reply(kSum); }, nullptr);
  bool over = false;
  pair.a->set_handler(kSum, [](Token&, void* context) { *static_cast<bool*>(context) = true; }, &over);
  pair.start();
  constexpr uint32_t kMany = 20'000;
  for (uint32_t i = 0; i < kMany; ++i) {
    const bool medium = i % 7 == 0;
    const Outcome outcome =
        medium ? pair.a->request_medium(0, kEcho, pattern(i % 3000, i), std::vector<uint32_t>{i}) : pair.a->request(0, kEcho, i);
    REQUIRE(outcome == Outcome::sent);
  }
  pair.a->request(0, kSilent);
  pair.until([&] { return over; });
  pair.stop();
  CHECK(order.next == kMany);
  CHECK(order.right);
  CHECK(back.next == (replies ? kMany : 0));
  CHECK(back.right);
}

TEST_CASE("a peer that goes: what it has not handled comes back, and so does all later") {
  Pair pair(EITHER_PATH);
  CameBack back;
  pair.a->set_error_handler(note, &back);
  pair.b->set_handler(kSilent, [](Token&, void*) {}, nullptr);
  pair.start();
  pair.stop();
  for (uint32_t i = 0; i < 10; ++i) REQUIRE(pair.a->request(0, kSilent, i) == Outcome::sent);
  pair.b.reset();
  pair.until([&] { return back.status.size() >= 10; });
  CHECK(back.status == std::vector<ReturnStatus>(10, ReturnStatus::unreachable));
  CHECK(back.arguments == std::vector<uint32_t>{9});
  CHECK(pair.a->close_reason(0) == control::CloseReason::closed_by_peer);
  CHECK(pair.a->request(0, kSilent, 1u) == Outcome::returned);
  REQUIRE(pair.a->unmap(0));
  CHECK(!pair.a->close_reason(0));
  CHECK(pair.a->request(0, kSilent, 1u) == Outcome::returned);
  CHECK(back.status.back() == ReturnStatus::bad_entry);
}

TEST_CASE("a translation that is unmapped: what has arrived is handled, and the rest comes back") {
  const auto path = EITHER_PATH;
  Pair pair(path, 4096);
  CameBack back;
  Heard heard;
  pair.a->set_error_handler(note, &back);
  pair.a->set_handler(kAnswer, hear, &heard);
  pair.b->set_handler(kEcho, echo, nullptr);
  pair.b->set_handler(kSilent, [](Token&, void*) {}, nullptr);
  pair.start();
  pair.stop();
  for (uint32_t i = 0; i < 3; ++i) REQUIRE(pair.a->request(0, kEcho, i) == Outcome::sent);
  for (const Nanoseconds end = monotonic_now() + 60 * kSecond; pair.b->counters().replies < 3 && monotonic_now() < end;) pair.b->poll();
  for (uint32_t i = 0; i < 5; ++i) REQUIRE(pair.a->request(0, kSilent, i) == Outcome::sent);
  std::vector<std::byte> memory(100);
  REQUIRE(pair.a->get(0, kAnswer, 0, memory, {}) == Outcome::sent);
  REQUIRE(pair.a->unmap(0));
  // Through the NI, answers and the request of the get may still be on their way.
  if (path == control::Path::local) {
    CHECK(heard.count == 4);
    CHECK(back.handler == std::vector<uint8_t>(5, kSilent));
  }
  CHECK(heard.count + back.status.size() == 9);
  CHECK(back.status == std::vector<ReturnStatus>(back.status.size(), ReturnStatus::unreachable));
  CHECK(back.index == std::vector<Index>(back.status.size(), 0));
  CHECK(pair.a->counters().returned == back.status.size());
}

TEST_CASE("a peer that sends what it likes harms nobody, and writes nowhere but into the segment") {
  const auto path = EITHER_PATH;
  Pair pair(path);
  // The segment lies between two guards that must not change.
  constexpr size_t kSegment = 8192, kGuard = 4096;
  std::vector<std::byte> memory(kSegment + 2 * kGuard, std::byte{0x5A});
  REQUIRE(pair.b->set_segment(MutableBytes(memory).subspan(kGuard, kSegment)));
  pair.b->set_handler(kEcho, echo, nullptr);
  pair.b->set_handler(kSilent, [](Token&, void*) {}, nullptr);
  Heard heard;
  pair.a->set_handler(kAnswer, hear, &heard);
  pair.start();
  const auto liar = pair.raw();
  const auto channel = liar->connect("b", {.path = path, .local = kLocalOptions});
  REQUIRE(channel);
  std::mt19937_64 random(GENERATE(range(1u, 4u)));
  const auto near = [&] { return random() % 2 == 0 ? random() % (kSegment + 10) : random(); };
  for (uint32_t i = 0; i < 20'000; ++i) {
    PacketFields fields;
    fields.kind = static_cast<Kind>(1 + random() % kKindMax);
    fields.handler = random() % 2 == 0 ? kEcho : static_cast<uint8_t>(random() % 8);
    fields.count = static_cast<uint8_t>(random() % (kArgumentsMax + 1));
    fields.flags = static_cast<uint8_t>(random() % 3 == 0 ? random() : 0);
    fields.session = 1;
    fields.sequence = {static_cast<uint32_t>(random() % 4 == 0 ? random() : i)};
    fields.acked = {static_cast<uint32_t>(random() % 4 == 0 ? random() % 200 : 0)};
    fields.handled = static_cast<uint32_t>(random() % 4 == 0 ? random() : 0);
    fields.tag = random();
    for (uint32_t& each : fields.arguments) each = static_cast<uint32_t>(random());
    fields.offset = near();
    fields.total = near();
    std::vector<std::byte> message(kHeadMax + random() % 3000, std::byte{0xEE});
    const bool local = path == control::Path::local;
    if (local) {
      emit_local_head(message.data(), fields);
    } else {
      emit_head(message.data(), fields);
    }
    const size_t head = local ? local_head_size(fields.kind, fields.count, fields.flags, true) : kHeadMax;
    message.resize(random() % 3 == 0 ? std::min(head, message.size()) : random() % message.size());
    if (random() % 4 == 0) {
      for (std::byte& each : message) each = static_cast<std::byte>(random());
    }
    static_cast<void>(liar->send(*channel, message));  // full while its answers are not taken, which happens now and then
    for (Message answer; random() % 8 == 0 && liar->receive(answer);) liar->release(answer);
    if (i % 1000 == 0) {
      pair.a->request(0, kEcho, i);
      const uint32_t before = heard.count;
      pair.until([&] { return heard.count > before; });
      REQUIRE(heard.arguments == std::vector<uint32_t>{i});
    }
  }
  pair.stop();
  const std::byte guard{0x5A};
  CHECK(std::all_of(memory.begin(), memory.begin() + kGuard, [&](std::byte b) { return b == guard; }));
  CHECK(std::all_of(memory.end() - kGuard, memory.end(), [&](std::byte b) { return b == guard; }));
}

TEST_CASE("a child process that gives up what it inherited does not write into its parent's channels") {
  Pair pair(control::Path::local);
  pair.b->set_handler(kEcho, echo, nullptr);
  pair.b->set_handler(kSilent, [](Token&, void*) {}, nullptr);
  pair.start();
  pair.stop();
  Heard heard;
  pair.a->set_handler(kAnswer, hear, &heard);
  // b has handled these, and not told a of it yet.
  for (uint32_t i = 0; i < 3; ++i) REQUIRE(pair.a->request(0, kSilent, i) == Outcome::sent);
  for (int i = 0; i < 100 && pair.b->counters().handled < 3; ++i) REQUIRE(pair.b->poll() <= 3);
  REQUIRE(pair.b->counters().handled == 3);
  ChildProcess child([&] {
    pair.b.reset();
    pair.a.reset();
    return 0;
  });
  REQUIRE(child.wait() == 0);
  for (int i = 0; i < 100; ++i) REQUIRE(pair.a->poll() == 0);  // nothing has arrived
  for (uint32_t i = 1; i <= 200; ++i) {
    REQUIRE(pair.a->request(0, kEcho, i) == Outcome::sent);
    const Nanoseconds end = monotonic_now() + 10 * kSecond;
    while (heard.count != i && monotonic_now() < end) pair.b->poll(), pair.a->poll();
    REQUIRE(heard.count == i);
  }
}

TEST_CASE("typed handlers take what they say") {
  Pair pair(EITHER_PATH);
  sum = 0;
  pair.b->set_handler(kAdd, handler_of<add_four>());
  pair.a->set_handler(kSum, handler_of<take_sum>());
  pair.start();
  pair.a->request(0, kAdd, uint8_t{200}, int64_t{-1'000'000'000'000}, 0.5, 0.25f);
  pair.until([&] { return sum != 0; });
  CHECK(sum == 200.0 - 1e12 + 0.75);
}

TEST_CASE("a handler that runs without a message ends the wait of who has looked before") {
  Pair pair(control::Path::local, 4096);
  pair.start();
  uint32_t got = 0;
  pair.a->set_handler(kAnswer, [](Token&, void* context) { ++*static_cast<uint32_t*>(context); }, &got);
  std::vector<std::byte> memory(100);
  // b exposes its segment, so the get's handler runs without a message. No arrival could end a sleep.
  for (uint32_t i = 1; i <= 3; ++i) {
    REQUIRE(pair.a->get(0, kAnswer, 0, memory, {}) == Outcome::sent);
    Nanoseconds limit = kSecond;
    if (i == 2) {
      REQUIRE(pair.a->descriptor());
      CHECK_FALSE(pair.a->arm(limit));
    } else {
      CHECK(pair.a->wait(5 * kSecond, 0) == WaitOutcome::ready);
    }
    CHECK(got == i);
  }
}

TEST_CASE("a peer that ends without a message to return is work for arm(), which sees it first") {
  Pair pair(EITHER_PATH);
  pair.start();
  pair.stop();
  CHECK(!pair.a->close_reason(0));
  pair.b.reset();
  REQUIRE(pair.a->descriptor());
  Nanoseconds limit = kSecond;
  while (pair.a->is_open(0)) CHECK((!pair.a->arm(limit) || pair.a->is_open(0)));
}

TEST_CASE("who waits sleeps, and wakes when something is to be handled") {
  Pair pair(EITHER_PATH);
  Heard heard;
  pair.b->set_handler(kEcho, echo, nullptr);
  pair.a->set_handler(kAnswer, hear, &heard);
  pair.start();
  for (uint32_t i = 1; i <= 20; ++i) {
    pair.a->request(0, kEcho, i);
    while (heard.count != i) REQUIRE(pair.a->wait(60 * kSecond, 0) == WaitOutcome::ready);
  }
  CHECK(pair.a->flush(60 * kSecond));
  // At most acknowledgements may still come.
  while (pair.a->wait(50 * kMillisecond, 0) != WaitOutcome::timed_out) {
  }
}
