// am_storm.cc - one side of an exchange of Active Messages of all categories, which checks every byte, the order and the number of
// messages; tests/system/am_wires.py runs several over each kind of wire.
//
// Usage: am_storm serve NAME | am_storm ask NAME[@HOST] MESSAGES
//
// `serve` prints "ready" and serves one asker until SIGTERM. `ask` prints "asking", sends MESSAGES requests and gets (0: without end), and
// prints a line of JSON. Its status is 0 on success, 3 if the server is gone; then it prints what was returned. Both use $UNET_NI.
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "am/endpoint.h"
#include "unet/context.h"

namespace {

using namespace unet;

constexpr Nanoseconds kHang = 120 * kSecond;  // time without progress that counts as a hang
constexpr uint32_t kLongs = 4;                // places for long messages in the server's segment; one asker uses them
constexpr uint32_t kLongMost = 200'000;       // bytes of a long message
constexpr uint64_t kSegment = uint64_t{kLongs} * kLongMost;
constexpr uint8_t kShort = 1, kMedium = 2, kLong = 3, kDone = 4, kEchoed = 5, kGot = 6;
constexpr const char* kAskers = "asker/";      // prefix of askers' names

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "am_storm: %s\n", why.c_str());
  std::exit(1);
}

template <typename T>
T take(Result<T> result) {
  if (!result) give_up(result.error().text);
  return std::move(*result);
}

// ---- the contents of message `number`

std::byte byte_of(uint32_t number, size_t at) { return static_cast<std::byte>(number * 31 + at * 7 + (at >> 8)); }
uint32_t word_of(uint32_t number, uint32_t at) { return number * 2'654'435'761u + at; }

void compose(std::vector<std::byte>& bytes, uint32_t number) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_of(number, i);
}
bool is_right(Bytes bytes, uint32_t number) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != byte_of(number, i)) return false;
  }
  return true;
}
// The handler of the answer; 0: no answer. Long messages always get one, which tells the asker that it may reuse their place.
uint8_t answer_of(uint32_t number, uint8_t handler) {
  if (handler == kLong) return kDone;
  return number % 3 == 0 ? 0 : number % 3 == 1 && handler == kMedium ? kEchoed : kDone;
}

void say(const char* line) {
  std::puts(line);
  std::fflush(stdout);
}

std::atomic<bool> told_to_end{false};  // set by a signal handler

// ---- the serving side

class Server {
 public:
  explicit Server(am::Endpoint& endpoint) : endpoint_(endpoint) {
    endpoint_.set_handler(kShort, [](am::Token& token, void* self) { static_cast<Server*>(self)->on_request(token, kShort); }, this);
    endpoint_.set_handler(kMedium, [](am::Token& token, void* self) { static_cast<Server*>(self)->on_request(token, kMedium); }, this);
    endpoint_.set_handler(kLong, [](am::Token& token, void* self) { static_cast<Server*>(self)->on_request(token, kLong); }, this);
  }
  int run() {
    while (!told_to_end.load(std::memory_order_relaxed)) endpoint_.wait(50 * kMillisecond);
    return wrong_ ? 1 : 0;
  }

 private:
  void on_request(am::Token& token, uint8_t handler) {
    const uint32_t number = token.argument(0);
    uint32_t& expected = expected_[token.source()];
    require(number == expected, "message " + std::to_string(number) + " came where " + std::to_string(expected) + " was the next");
    expected = number + 1;
    // From another host, the name is what the first message on the channel said.
    require(token.source_name().starts_with(kAskers), "a message comes from '" + std::string(token.source_name()) + "'");
    for (uint32_t i = 1; i < token.arguments().size(); ++i) require(token.argument(i) == word_of(number, i), "an argument is wrong");
    require(is_right(token.payload(), number), "a payload of " + std::to_string(token.payload().size()) + " bytes is wrong");
    switch (answer_of(number, handler)) {
      case kDone: require(token.reply(kDone, number) == am::Outcome::sent, "a reply is not sent"); break;
      case kEchoed: {
        const uint32_t words[] = {number};
        require(token.reply_medium(kEchoed, token.payload(), words) == am::Outcome::sent, "a reply is not sent");
        break;
      }
      default: break;
    }
  }
  void require(bool condition, const std::string& what) {
    if (!condition && !wrong_) std::fprintf(stderr, "am_storm: %s\n", what.c_str());
    wrong_ = wrong_ || !condition;
  }

  am::Endpoint& endpoint_;
  std::map<uint64_t, uint32_t> expected_;
  bool wrong_ = false;
};

int serve(const char* name) {
  Context context = take(Context::open({}, "am_storm"));
  const auto endpoint = take(am::Endpoint::create(context));
  take(endpoint->expose(kSegment));
  Server server(*endpoint);
  if (const Status bound = endpoint->bind(name); !bound) give_up(bound.error().text);
  say("ready");
  return server.run();
}

// ---- the asking side

class Asker {
 public:
  Asker(am::Endpoint& endpoint, uint32_t seed) : endpoint_(endpoint), random_(seed) {
    endpoint_.set_handler(kDone, [](am::Token& token, void* self) { static_cast<Asker*>(self)->on_answer(token, kDone); }, this);
    endpoint_.set_handler(kEchoed, [](am::Token& token, void* self) { static_cast<Asker*>(self)->on_answer(token, kEchoed); }, this);
    endpoint_.set_handler(kGot, [](am::Token& token, void* self) { static_cast<Asker*>(self)->on_got(token); }, this);
    endpoint_.set_error_handler([](am::Endpoint&, const am::Returned& returned, void* self) {
      ++static_cast<Asker*>(self)->came_back_[to_string(returned.status)];
    }, this);
  }

  int run(uint32_t messages) {
    for (uint32_t i = 0; (messages == 0 || i < messages) && came_back_.empty(); ++i) {
      // A get reads what the long message before it wrote; that message is handled before the get.
      if (last_was_long_ && dice(2) == 0) get();
      else request();
    }
    until([&] { return replies_ == replies_wanted_ && gets_ == gets_wanted_; });
    tell();
    return wrong_ ? 1 : came_back_.empty() ? 0 : 3;
  }

 private:
  uint32_t dice(uint32_t sides) { return static_cast<uint32_t>(random_() % sides); }
  // Sizes of every order of magnitude.
  uint32_t a_size(uint32_t most) { return 1 + dice(std::min(most, 1u << dice(19))); }

  // Waits for `done`, or until a message is returned.
  template <typename Done>
  void until(Done done) {
    uint64_t heard = 0;
    for (Nanoseconds since = monotonic_now(); came_back_.empty() && !done();) {
      if (std::exchange(heard, endpoint_.counters().handled) != endpoint_.counters().handled) since = monotonic_now();
      if (monotonic_now() - since > kHang) give_up("no progress: " + std::to_string(replies_wanted_ - replies_) + " replies missing");
      endpoint_.wait(50 * kMillisecond);
    }
  }

  void request() {
    const auto handler = static_cast<uint8_t>(kShort + dice(3));
    std::vector<uint32_t> words(1 + dice(am::kArgumentsMax));
    for (uint32_t i = 1; i < words.size(); ++i) words[i] = word_of(number_, i);
    words[0] = number_;
    payload_.resize(handler == kShort ? 0 : a_size(handler == kMedium ? am::kMediumMax : kLongMost));
    compose(payload_, number_);
    replies_wanted_ += answer_of(number_, handler) != 0;
    last_was_long_ = handler == kLong;
    am::Outcome outcome;
    if (handler == kShort) {
      outcome = endpoint_.request_short(0, handler, words);
    } else if (handler == kMedium) {
      outcome = endpoint_.request_medium(0, handler, payload_, words);
    } else {
      // Wait until the message that was at this place has been handled.
      until([&] { return longs_.size() < kLongs; });
      longs_.insert(number_);
      long_at_ = uint64_t{longs_begun_++ % kLongs} * kLongMost;
      long_number_ = number_;
      outcome = endpoint_.request_long(0, handler, long_at_, payload_, words);
    }
    require(outcome != am::Outcome::bad_call, "a request is not taken");
    ++number_;
  }
  void get() {
    // The memory stays in use until the get completes.
    until([&] { return gets_wanted_ - gets_ < kGets; });
    const uint32_t skip = dice(static_cast<uint32_t>(payload_.size()));
    Got& got = got_[gets_wanted_ % kGets];
    got.memory.assign(payload_.size() - skip, std::byte{0});
    got.number = long_number_;
    got.skip = skip;
    const uint32_t words[] = {gets_wanted_++};
    require(endpoint_.get(0, kGot, long_at_ + skip, got.memory, words) != am::Outcome::bad_call, "a get is not taken");
  }
  void on_answer(am::Token& token, uint8_t handler) {
    const uint32_t number = token.argument(0);
    // Requests without an answer are in between.
    require(number >= next_answer_ && number - next_answer_ <= 1, "an answer out of turn: " + std::to_string(number));
    next_answer_ = number + 1;
    require(handler == kDone || is_right(token.payload(), number), "an echo is wrong");
    longs_.erase(number);
    ++replies_;
  }
  void on_got(am::Token& token) {
    const uint32_t number = token.argument(0);
    require(number == gets_, "a get out of turn");
    const Got& got = got_[number % kGets];
    for (size_t i = 0; i < got.memory.size(); ++i) {
      if (got.memory[i] == byte_of(got.number, got.skip + i)) continue;
      require(false, "what was got is wrong");
      break;
    }
    ++gets_;
  }
  void require(bool condition, const std::string& what) {
    if (!condition && !wrong_) std::fprintf(stderr, "am_storm: %s\n", what.c_str());
    wrong_ = wrong_ || !condition;
  }
  void tell() const {
    std::string back;
    for (const auto& [status, count] : came_back_) {
      if (!back.empty()) back += ", ";
      back.append("\"").append(status).append("\": ").append(std::to_string(count));
    }
    const am::Flow* const flow = endpoint_.flow(0);
    const am::FlowCounters counters = flow != nullptr ? flow->counters() : am::FlowCounters{};
    std::printf("{\"requests\": %u, \"replies\": %u, \"gets\": %u, \"local\": %s, \"resent\": %llu, \"came_back\": {%s}}\n", number_,
                replies_, gets_, flow == nullptr ? "true" : "false", static_cast<unsigned long long>(counters.resent), back.c_str());
  }

  static constexpr uint32_t kGets = 4;
  struct Got {
    std::vector<std::byte> memory;
    uint32_t number = 0, skip = 0;
  };

  am::Endpoint& endpoint_;
  std::mt19937 random_;
  std::vector<std::byte> payload_;
  std::array<Got, kGets> got_;
  bool last_was_long_ = false;
  std::set<uint32_t> longs_;       // unanswered long messages
  uint32_t longs_begun_ = 0;
  uint64_t long_at_ = 0;           // place of the last long message
  uint32_t long_number_ = 0;
  uint32_t number_ = 0;            // of the next request
  uint32_t next_answer_ = 0;
  uint32_t replies_wanted_ = 0, replies_ = 0;
  uint32_t gets_wanted_ = 0, gets_ = 0;
  std::map<std::string_view, uint32_t> came_back_;
  bool wrong_ = false;
};

int ask(const char* target, uint32_t messages) {
  Context context = take(Context::open({}, "am_storm"));
  const auto endpoint = take(am::Endpoint::create(context));
  const std::string name = kAskers + std::to_string(::getpid());
  if (const Status bound = endpoint->bind(name); !bound) give_up(bound.error().text);
  if (const Status mapped = endpoint->map(0, target); !mapped) give_up(mapped.error().text);
  say("asking");
  return Asker(*endpoint, static_cast<uint32_t>(::getpid())).run(messages);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGTERM, [](int) { told_to_end.store(true, std::memory_order_relaxed); });
  if (argc == 3 && std::strcmp(argv[1], "serve") == 0) return serve(argv[2]);
  if (argc == 4 && std::strcmp(argv[1], "ask") == 0) return ask(argv[2], static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10)));
  std::fprintf(stderr, "usage: am_storm serve NAME | am_storm ask NAME[@HOST] MESSAGES\n");
  return 2;
}
