// call_trust_test.cc - clients and servers with peers that lie in every word.
#include <time.h>

#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "am/rpc/client.h"
#include "am/rpc/server.h"
#include "am/test_world.h"

using namespace unet;
using namespace unet::rpc;

namespace {

constexpr Interface kTest{"test", 1};
constexpr Procedure<int(int, int)> kAdd{1};
constexpr Procedure<std::string(std::string_view)> kEcho{2};
constexpr Procedure<uint64_t(std::span<const std::byte>)> kCount{3};
constexpr Procedure<int()> kLater{4};
constexpr Procedure<std::vector<std::byte>(uint64_t)> kMake{5};

// Processor time of this thread.
Nanoseconds thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_nsec);
}

// A server, an honest client and a liar: an endpoint that sends and answers as it likes. One thread polls all.
struct Stage {
  explicit Stage(const ServerOptions& options = {.arguments_max = 1024 * 1024, .memory_max = 4 * 1024 * 1024}) {
    liar = world.make({.both_ways = true});
    auto made = Server::create(world.context, "server", options);
    REQUIRE(made);
    server = std::move(*made);
    server->provide(kTest, kAdd, [](int a, int b) { return a + b; });
    server->provide(kTest, kEcho, [](std::string_view text) { return std::string(text); });
    server->provide(kTest, kCount, [](std::span<const std::byte> bytes) { return uint64_t{bytes.size()}; });
    server->provide(kTest, kLater, [this](Response<int> response) { late.push_back(std::move(response)); });
    server->provide(kTest, kMake, [](uint64_t size) { return std::vector<std::byte>(size % (2 * 1024 * 1024)); });
    auto client_made = Client::create(world.context);
    REQUIRE(client_made);
    client = std::move(*client_made);
  }
  // Polls all until that is so; false after a time.
  template <typename Done>
  bool until(const Done& done) {
    for (const Nanoseconds end = monotonic_now() + 20 * kSecond; !done();) {
      if (monotonic_now() > end) return false;
      turn();
    }
    return true;
  }
  void turn() {
    server->poll();
    liar->poll();
    client->poll();
  }
  // Imports for the honest client from a server that needs turns meanwhile.
  Binding bind(std::string_view target = "server") {
    std::atomic<bool> bound{false};
    std::thread serves([&] {
      while (!bound) {
        server->poll();
        liar->poll();
      }
    });
    auto made = client->import(target, kTest, kSecond);
    bound = true;
    serves.join();
    if (!made) return {};
    return std::move(*made);
  }
  // Maps the server for the liar, which gets a binding in its own name.
  void connect_liar() {
    std::atomic<bool> mapped{false};
    std::thread serves([&] {
      while (!mapped) server->poll();
    });
    REQUIRE(liar->map(0, "server"));
    mapped = true;
    serves.join();
    liar->set_handler(kAnswerHandler, [](am::Token& token, void* stage) { static_cast<Stage*>(stage)->heard(token); }, this);
    liar->set_handler(kAnswerPieceHandler, [](am::Token&, void*) {}, nullptr);
    std::byte import[64];
    const std::byte* const end = encode<uint32_t, std::string_view>(import, 1u, std::string_view("test"));
    const std::array<uint32_t, 3> words{1, 0, CallHead{.procedure = Control::kImport, .flags = CallHead::kControl}.word()};
    REQUIRE(liar->request_medium(0, kCallHandler, {import, end}, words) == am::Outcome::sent);
    REQUIRE(until([&] { return binding != 0; }));
  }
  void heard(const am::Token& token) {
    WordReader words(token.arguments());
    const uint32_t id = words.take();
    last_status = static_cast<CallStatus>(AnswerHead::of(words.take()).status);
    if (id == 1 && binding == 0) binding = words.take();
    ++heard_answers;
  }
  CallStatus ask(std::span<const uint32_t> words, Bytes payload = {}, uint8_t handler = kCallHandler) {
    const uint32_t before = heard_answers;
    REQUIRE(liar->request_medium(0, handler, payload, words) == am::Outcome::sent);
    REQUIRE(until([&] { return heard_answers != before; }));
    return last_status;
  }
  bool honest_call_works() {
    Binding honest = bind();
    Call<int> call;
    honest.start(call, kAdd, 40, 2);
    return until([&] { return call.done(); }) && call.ok() && call.result() == 42;
  }

  am::World world;
  std::unique_ptr<am::Endpoint> liar;
  std::unique_ptr<Server> server;
  std::unique_ptr<Client> client;
  std::vector<Response<int>> late;
  uint32_t binding = 0, heard_answers = 0;
  CallStatus last_status{};
};

std::array<uint32_t, 5> long_words(uint32_t id, uint32_t binding, uint64_t total) {
  const CallHead head{.procedure = 3, .flags = CallHead::kLong};
  return {id, binding, head.word(), static_cast<uint32_t>(total), static_cast<uint32_t>(total >> 32)};
}

}  // namespace

TEST_CASE("a server refuses calls by bindings that are not the caller's") {
  Stage stage;
  stage.connect_liar();
  Binding honest = stage.bind();
  Call<int> call;
  honest.start(call, kAdd, 1, 2);
  REQUIRE(stage.until([&] { return call.done(); }));
  const uint32_t add = CallHead{.procedure = 1, .length = 8}.word();
  for (const uint32_t binding : {0u, stage.binding + 1, stage.binding ^ (1u << 20), (1u << 20) | 1u, ~0u}) {
    const std::array<uint32_t, 5> words{7, binding, add, 1, 2};
    REQUIRE(stage.ask(words) == CallStatus::revoked);
  }
  const std::array<uint32_t, 5> words{7, stage.binding, add, 1, 2};
  REQUIRE(stage.ask(words) == CallStatus::ok);
}

TEST_CASE("a server refuses words that are missing, too many or false") {
  Stage stage;
  stage.connect_liar();
  const auto ask = [&](std::vector<uint32_t> words) { return stage.ask(words); };
  const uint32_t b = stage.binding;
  REQUIRE(ask({7}) == CallStatus::revoked);
  REQUIRE(ask({7, b, CallHead{.procedure = 1, .length = 8}.word()}) == CallStatus::bad_arguments);
  REQUIRE(ask({7, b, CallHead{.procedure = 1, .length = 8}.word(), 1}) == CallStatus::bad_arguments);
  REQUIRE(ask({7, b, CallHead{.procedure = 1, .length = 8}.word(), 1, 2, 3}) == CallStatus::bad_arguments);
  REQUIRE(ask({7, b, CallHead{.procedure = 1, .length = 255}.word(), 1, 2}) == CallStatus::bad_arguments);
  std::vector<uint32_t> full(am::kArgumentsMax, b);
  full[2] = CallHead{.procedure = 1, .length = 52}.word();
  REQUIRE(ask(full) == CallStatus::bad_arguments);
  REQUIRE(ask({7, b, CallHead{.procedure = 0xffff}.word()}) == CallStatus::no_procedure);
  REQUIRE(ask({7, b, CallHead{.procedure = 1, .flags = CallHead::kDeadline, .length = 8}.word(), 0, 1, 2}) == CallStatus::expired);
  REQUIRE(ask({7, b, CallHead{.procedure = 1, .flags = CallHead::kLong}.word(), 1}) == CallStatus::bad_arguments);
  REQUIRE(ask({7, b, CallHead{.procedure = Control::kImport, .flags = CallHead::kControl}.word()}) == CallStatus::bad_arguments);
  REQUIRE(stage.honest_call_works());
}

TEST_CASE("a call whose number its caller uses again is cancelled") {
  Stage stage;
  stage.connect_liar();
  const std::array<uint32_t, 3> words{7, stage.binding, CallHead{.procedure = 4}.word()};
  for (int i = 0; i < 2; ++i) REQUIRE(stage.liar->request_short(0, kCallHandler, words) == am::Outcome::sent);
  REQUIRE(stage.until([&] { return stage.late.size() == 2; }));
  REQUIRE(stage.late[0].cancelled());
  REQUIRE_FALSE(stage.late[1].cancelled());
}

TEST_CASE("long arguments cost no more than they bring") {
  Stage stage;
  stage.connect_liar();
  const std::vector<std::byte> piece(kPayloadMax);
  REQUIRE(stage.ask(long_words(7, stage.binding, ~uint64_t{0}), piece) == CallStatus::too_long);
  REQUIRE(stage.ask(long_words(7, stage.binding, 0), piece) == CallStatus::bad_arguments);
  REQUIRE(stage.ask(long_words(7, stage.binding, 10), piece) == CallStatus::bad_arguments);
  REQUIRE(stage.ask(long_words(7, stage.binding, 100'000)) == CallStatus::bad_arguments);
  REQUIRE(stage.server->memory() == 0);
  // Calls that never get the rest of their arguments, until the memory is taken.
  CallStatus status = CallStatus::ok;
  for (uint32_t id = 100; id < 103; ++id) {
    const auto words = long_words(id, stage.binding, 1024 * 1024);
    if (id < 102) {
      REQUIRE(stage.liar->request_medium(0, kCallHandler, piece, words) == am::Outcome::sent);
    } else {
      status = stage.ask(words, piece);
    }
  }
  REQUIRE(status == CallStatus::overloaded);
  REQUIRE(stage.server->memory() == 2 * 1024 * 1024);  // half: another caller finds memory
  // A piece that does not continue the others ends its call.
  const std::array<uint32_t, 3> gap{100, 3 * kPayloadMax, 0};
  REQUIRE(stage.ask(gap, piece, kPieceHandler) == CallStatus::bad_arguments);
  // Pieces of no call are dropped. The end of the caller frees everything.
  REQUIRE(stage.liar->request_medium(0, kPieceHandler, piece, gap) == am::Outcome::sent);
  stage.liar.reset();
  stage.liar = stage.world.make({.both_ways = true});
  REQUIRE(stage.until([&] { return stage.server->memory() == 0; }));
  REQUIRE(stage.honest_call_works());
}

TEST_CASE("a binding that is revoked while its arguments come runs nothing") {
  Stage stage;
  stage.connect_liar();
  const std::vector<std::byte> piece(kPayloadMax);
  REQUIRE(stage.liar->request_medium(0, kCallHandler, piece, long_words(7, stage.binding, 2 * kPayloadMax)) == am::Outcome::sent);
  REQUIRE(stage.until([&] { return stage.server->memory() == 2 * kPayloadMax; }));
  const uint64_t ran = stage.server->counters().calls;
  REQUIRE(stage.server->revoke(kTest) == 1);
  const std::array<uint32_t, 3> last{7, kPayloadMax, 0};
  REQUIRE(stage.ask(last, piece, kPieceHandler) == CallStatus::revoked);
  REQUIRE(stage.server->memory() == 0);
  REQUIRE(stage.server->counters().calls == ran);
}

TEST_CASE("a caller that takes no answers keeps only its own memory") {
  Stage stage;
  stage.connect_liar();
  // Each asks for a long result, and the liar gives no credits: it does not poll.
  const uint32_t head = CallHead{.procedure = 5, .length = 8}.word();
  for (uint32_t id = 0; id < 60; ++id) {
    const std::array<uint32_t, 5> words{id, stage.binding, head, 1024 * 1024, 0};
    (void)stage.liar->request_now(0, kCallHandler, {}, words);
    stage.server->poll();
  }
  for (int i = 0; i < 1000; ++i) stage.server->poll();
  REQUIRE(stage.server->memory() <= 4 * 1024 * 1024 + 64 * 1024);
  REQUIRE(stage.server->counters().dropped_answers > 0);
}

TEST_CASE("a server survives random messages") {
  const uint32_t seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  Stage stage;
  stage.connect_liar();
  std::mt19937 random(seed);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  for (int i = 0; i < 5'000; ++i) {
    std::array<uint32_t, am::kArgumentsMax> words;
    for (uint32_t& word : words) word = below(4) == 0 ? static_cast<uint32_t>(random()) : below(20);
    if (below(4) != 0) words[1] = stage.binding;
    if (below(4) != 0) words[2] = CallHead{.procedure = static_cast<uint16_t>(below(8)), .flags = static_cast<uint8_t>(below(16)),
                                           .length = static_cast<uint8_t>(below(60))}.word();
    std::vector<std::byte> payload(below(3) == 0 ? below(kPayloadMax + 1) : below(40));
    for (std::byte& each : payload) each = static_cast<std::byte>(random());
    const std::span<const uint32_t> some(words.data(), below(am::kArgumentsMax + 1));
    const auto handler = static_cast<uint8_t>(1 + below(4));
    while (stage.liar->request_now(0, handler, payload, some) == am::Outcome::not_sent) stage.turn();
    if (stage.late.size() > 100) stage.late.clear();
  }
  REQUIRE(stage.until([&] { return stage.liar->has_credit(0); }));
  REQUIRE(stage.honest_call_works());
}

TEST_CASE("a client takes only answers of its own calls, once") {
  Stage stage;
  REQUIRE(stage.liar->bind("liar"));
  struct Liar {
    uint64_t source = 0;
    uint32_t id = 0;
    std::vector<std::vector<uint32_t>> answers;
  } lies;
  stage.liar->set_handler(kCallHandler, [](am::Token& token, void* context) {
    auto& liar = *static_cast<Liar*>(context);
    liar.source = token.source();
    liar.id = token.argument(0);
    if (CallHead::of(token.argument(2)).has(CallHead::kControl)) {
      token.reply(kAnswerHandler, liar.id, AnswerHead{.status = 0, .length = 4}.word(), 5u);
    } else if (!liar.answers.empty()) {
      std::vector<uint32_t> words = liar.answers.back();
      if (!words.empty() && words[0] == 0) words[0] = liar.id;
      token.reply_short(kAnswerHandler, words);
    }
  }, &lies);
  Binding binding = stage.bind("liar");
  REQUIRE(binding.is_open());
  const auto status_for = [&](std::vector<uint32_t> words) {
    lies.answers = {std::move(words)};
    Call<int> call;
    binding.start(call, kAdd, 1, 2);
    REQUIRE(stage.until([&] { return call.done(); }));
    return call.status();
  };
  REQUIRE(status_for({0, AnswerHead{.status = 0, .length = 4}.word(), 3}) == CallStatus::ok);
  REQUIRE(status_for({0, AnswerHead{.status = 0, .length = 4}.word()}) == CallStatus::bad_result);
  REQUIRE(status_for({0, AnswerHead{.status = 0, .length = 8}.word(), 1, 2}) == CallStatus::bad_result);
  REQUIRE(status_for({0, AnswerHead{.status = 0, .length = 255}.word(), 1}) == CallStatus::bad_result);
  REQUIRE(status_for({0, AnswerHead{.status = 200}.word()}) == CallStatus::bad_result);
  REQUIRE(status_for({0, AnswerHead{.status = 65}.word()}) == CallStatus::bad_result);
  REQUIRE(status_for({0}) == CallStatus::bad_result);
  // An answer to another call, and to none.
  const uint64_t strays = stage.client->counters().stray_answers;
  lies.answers = {{12345, 0}};
  Call<int> unanswered;
  binding.start(unanswered, kAdd, 1, 2);
  REQUIRE(stage.until([&] { return stage.client->counters().stray_answers == strays + 1; }));
  REQUIRE(!unanswered.done());
  // The same answer twice, as requests in the other direction, then pieces with false lengths.
  REQUIRE(stage.liar->map_back(9, lies.source));
  const std::array<uint32_t, 3> answer{lies.id, AnswerHead{.status = 0, .length = 4}.word(), 3};
  for (int i = 0; i < 2; ++i) REQUIRE(stage.liar->request_short(9, kAnswerHandler, answer) == am::Outcome::sent);
  REQUIRE(stage.until([&] { return stage.client->counters().stray_answers == strays + 2; }));
  REQUIRE(unanswered.ok());
  for (const auto& [total, offset] : {std::pair{~uint64_t{0}, uint64_t{0}}, {0, 0}, {100'000, 1}, {10, 0}}) {
    Call<int> call;
    binding.start(call, kAdd, 1, 2);
    lies.answers = {{54321, 0}};
    const uint32_t before = lies.id;
    REQUIRE(stage.until([&] { return lies.id != before; }));
    MessageWords words;
    words.add(lies.id);
    words.add_wide(total);
    words.add_wide(offset);
    const std::vector<std::byte> piece(100);
    REQUIRE(stage.liar->request_medium(9, kAnswerPieceHandler, piece, words) == am::Outcome::sent);
    REQUIRE(stage.until([&] { return call.done(); }));
    REQUIRE(call.status() == CallStatus::bad_result);
  }
}

TEST_CASE("a server that never answers and never polls cannot hold a call with a deadline") {
  Stage stage;
  stage.connect_liar();
  Binding binding = stage.bind();
  binding.set_timeout(50 * kMillisecond);
  // No turn for the server: after a window of calls there is no credit.
  std::vector<std::unique_ptr<Call<std::string>>> calls;
  const std::string text(10'000, 'x');
  const Nanoseconds start = monotonic_now();
  for (int i = 0; i < 80; ++i) {
    calls.push_back(std::make_unique<Call<std::string>>());
    binding.start(*calls.back(), kEcho, text);
  }
  for (const auto& call : calls) stage.client->wait_for(*call);
  for (const auto& call : calls) REQUIRE((call->status() == CallStatus::timed_out || call->status() == CallStatus::expired));
  REQUIRE(monotonic_now() - start < 3 * kSecond);
}

TEST_CASE("a server that gives no credit costs its client little processor time") {
  Stage stage;
  Binding binding = stage.bind();
  binding.set_timeout(200 * kMillisecond);
  const std::vector<std::byte> arguments(GENERATE(size_t{100}, size_t{1024} * 1024));  // short ones, and long ones
  std::vector<std::unique_ptr<Call<uint64_t>>> calls;
  Nanoseconds took = 0, worked = 0;
  for (int i = 0; i < 80 && took < 150 * kMillisecond; ++i) {  // no turn for the server: one of the calls waits for a credit
    calls.push_back(std::make_unique<Call<uint64_t>>());
    const Nanoseconds start = monotonic_now(), work_before = thread_time();
    binding.start(*calls.back(), kCount, arguments);
    took = monotonic_now() - start;
    worked = thread_time() - work_before;
  }
  CAPTURE(took, worked);
  REQUIRE(took >= 150 * kMillisecond);
  REQUIRE(worked < took / 6);
}

TEST_CASE("a wait for a short call does not poll for another call with long arguments") {
  Stage stage;
  Binding binding = stage.bind();
  const std::vector<std::byte> arguments(100'000);
  constexpr int kRounds = 50;
  Nanoseconds worked = 0;
  for (int i = 0; i < kRounds; ++i) {
    Call<uint64_t> with_long;
    binding.set_timeout(kNever);
    binding.start(with_long, kCount, arguments);
    REQUIRE(stage.until([&] { return with_long.done(); }));
    Call<int> unanswered;
    binding.set_timeout(2 * kMillisecond);
    binding.start(unanswered, kLater);
    const Nanoseconds before = thread_time();
    stage.client->wait_for(unanswered);
    worked += thread_time() - before;
    REQUIRE(unanswered.status() == CallStatus::timed_out);
  }
  CAPTURE(worked);
  REQUIRE(worked < kRounds * 150 * kMicrosecond);
}
