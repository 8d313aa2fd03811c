// echo_client.cc - sends messages to an echo server, checks the echoes, and reports their round-trip times. echo_client.c: in C.
//
//   c++ -std=c++20 -o echo_client echo_client.cc $(pkg-config --cflags --libs unet)
//   ./echo_client --size 1000 echo          (echo_server.cc says how to start the server)
#include <getopt.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unet/context.h>
#include <vector>

namespace {

constexpr const char* kUsage =
    "usage: echo_client [OPTIONS] NAME[@HOST]\n"
    "\n"
    "Sends messages to the echo server NAME, one at a time, compares every echo with what was sent, and prints the round-trip\n"
    "time. Ends early with Ctrl-C.\n"
    "\n"
    "  -n, --count N       messages (default 10000)\n"
    "  -s, --size BYTES    bytes of each, 0 to 65536 (default 48)\n"
    "  -p, --path PATH     auto: memory of the two processes if the server is on this host, else the wire (default)\n"
    "                      local: memory of the two processes or an error\n"
    "                      ni: through the network interface, even on the same host\n"
    "  -w, --wait SECONDS  wait so long until a server has bound NAME (default 0)\n"
    "  -e, --emulated      with an endpoint that has no queues of its own; auto: the network interface, then, even on one host\n"
    "  -h, --help\n"
    "\n"
    "Try it:\n"
    "  unetd &\n"
    "  echo_server echo &\n"
    "  echo_client echo\n"
    "  echo_client --size 65536 --path ni echo\n";

// An echo counts as lost after this time. Less is too short: on a busy machine an echo waits for three other processes to get a core.
constexpr unet::Nanoseconds kLostAfter = 10 * unet::kSecond;
// The time after the first loss. The wire then loses messages, and a client that waited 10 s for each would seem to hang.
constexpr unet::Nanoseconds kLostAfterFirst = unet::kSecond / 10;

std::atomic<bool> stop_wanted{false};

void on_signal(int) { stop_wanted.store(true, std::memory_order_relaxed); }
bool stopped() { return stop_wanted.load(std::memory_order_relaxed); }

[[noreturn]] void give_up(const char* call, const std::string& why) {
  std::fprintf(stderr, "echo_client: %s: %s\n", call, why.c_str());
  std::exit(1);
}

// ---- the command line

struct Options {
  std::string target;
  uint32_t count = 10'000;
  uint32_t size = 48;
  bool emulated = false;
  unet::ConnectOptions connect;
};

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "echo_client: %s\n", why.c_str());
  std::exit(2);
}

uint32_t parse_number(const char* option, std::string_view text, uint32_t least, uint32_t most) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    refuse(std::string(option) + " '" + std::string(text) + "': a number from " + std::to_string(least) + " to " +
           std::to_string(most) + " is wanted");
  }
  return value;
}

unet::control::Path parse_path(std::string_view text) {
  if (text == "auto") return unet::control::Path::automatic;
  if (text == "local") return unet::control::Path::local;
  if (text == "ni") return unet::control::Path::ni;
  refuse("--path '" + std::string(text) + "': auto, local or ni is wanted");
}

Options parse_options(int argc, char** argv) {
  static const option known[] = {{"count", required_argument, nullptr, 'n'}, {"size", required_argument, nullptr, 's'},
                                 {"path", required_argument, nullptr, 'p'},  {"wait", required_argument, nullptr, 'w'},
                                 {"emulated", no_argument, nullptr, 'e'},    {"help", no_argument, nullptr, 'h'},
                                 {nullptr, 0, nullptr, 0}};
  Options options;
  for (int letter; (letter = getopt_long(argc, argv, "n:s:p:w:eh", known, nullptr)) != -1;) {
    switch (letter) {
      case 'n': options.count = parse_number("--count", optarg, 1, 10'000'000); break;
      case 's': options.size = parse_number("--size", optarg, 0, unet::kMessageMax); break;
      case 'p': options.connect.path = parse_path(optarg); break;
      case 'w': options.connect.wait = parse_number("--wait", optarg, 0, 3600) * unet::kSecond; break;
      case 'e': options.emulated = true; break;
      case 'h': std::fputs(kUsage, stdout); std::exit(0);
      default: refuse("echo_client --help says what is understood");
    }
  }
  if (optind + 1 != argc) refuse("one NAME is wanted, that of the server; echo_client --help says more");
  options.target = argv[optind];
  return options;
}

// ---- round trips

class EchoClient {
 public:
  EchoClient(unet::Endpoint& endpoint, unet::Channel channel, const Options& options)
      : endpoint_(endpoint), channel_(channel), options_(options), data_(options.size) {
    times_.reserve(options.count);
  }

  void run() {
    for (uint32_t number = 0; number < options_.count && !stopped(); ++number) {
      for (size_t i = 0; i < data_.size(); ++i) data_[i] = std::byte(number * 131 + i * 7 + (i >> 8));
      if (!one_round_trip()) return;
    }
  }

  void print() {
    const bool local = endpoint_.kind(channel_) == unet::control::ChannelKind::local;
    std::printf("%zu echoes of %u bytes over %s: all bytes right; %u wrong, %u lost\n", times_.size(), options_.size,
                local ? "a local channel" : "the network interface", wrong_, lost_);
    if (times_.empty()) return;
    std::sort(times_.begin(), times_.end());
    const auto microseconds = [](unet::Nanoseconds time) { return static_cast<double>(time) / 1e3; };
    std::printf("round trip: p50 %.2f us, p99 %.2f us, least %.2f us\n", microseconds(times_[times_.size() / 2]),
                microseconds(times_[times_.size() * 99 / 100]), microseconds(times_[0]));
  }

  // Returns true if every echo came, or the user ended the run early.
  bool succeeded() const {
    return wrong_ == 0 && lost_ == 0 && !times_.empty() && (times_.size() == options_.count || stopped());
  }

 private:
  enum class Arrival { message, lost, end };

  // Returns false if no more echoes will come.
  bool one_round_trip() {
    const unet::Nanoseconds start = unet::monotonic_now();
    if (!send()) return false;
    while (true) {
      unet::Message echo;
      switch (wait_for_message(echo)) {
        case Arrival::end: return false;
        case Arrival::lost: count_lost(); return true;
        case Arrival::message: break;
      }
      const unet::Nanoseconds end = unet::monotonic_now();
      const unet::Bytes bytes = echo.bytes();
      const bool same = std::equal(bytes.begin(), bytes.end(), data_.begin(), data_.end());
      endpoint_.release(echo);
      if (same) {
        times_.push_back(end - start);
        return true;
      }
      // An echo that counted as lost may still come. Before any loss, these bytes are wrong.
      if (lost_ == 0) {
        ++wrong_;
        return true;
      }
    }
  }

  bool send() {
    unet::SendOutcome outcome;
    // A single message always finds room on a local channel. A network interface may be busy with other messages.
    while ((outcome = endpoint_.send(channel_, data_)) == unet::SendOutcome::full && !stopped()) {
      endpoint_.wait_room(channel_, unet::kSecond);
    }
    if (outcome == unet::SendOutcome::sent) return true;
    if (!stopped()) std::fprintf(stderr, "echo_client: send: %s\n", std::string(to_string(outcome)).c_str());
    return false;
  }

  void count_lost() {
    if (++lost_ == 1) {
      std::fprintf(stderr, "echo_client: no echo within 10 s: this wire loses messages. From now on, 0.1 s without one is a loss\n");
    }
    if (lost_ % 100 == 0) std::fprintf(stderr, "echo_client: %zu echoes came so far, %u are lost\n", times_.size(), lost_);
  }

  Arrival wait_for_message(unet::Message& message) {
    bool closed = false;
    const unet::Nanoseconds deadline = unet::monotonic_now() + (lost_ == 0 ? kLostAfter : kLostAfterFirst);
    while (!endpoint_.receive(message)) {
      if (closed) {
        std::fprintf(stderr, "echo_client: the server closed the channel\n");
        return Arrival::end;
      }
      const unet::Nanoseconds now = unet::monotonic_now();
      if (now >= deadline) return Arrival::lost;
      const unet::WaitOutcome outcome = endpoint_.wait(std::min(deadline - now, unet::kSecond));
      if (outcome == unet::WaitOutcome::disconnected || stopped()) return Arrival::end;
      // Messages that the server sent before it closed the channel are still there: look once more.
      const auto event = endpoint_.next_event();
      closed = event && event->kind == unet::ChannelEvent::Kind::closed;
    }
    return Arrival::message;
  }

  unet::Endpoint& endpoint_;
  unet::Channel channel_;
  const Options& options_;
  std::vector<std::byte> data_;
  std::vector<unet::Nanoseconds> times_;  // one per echo that came
  uint32_t wrong_ = 0, lost_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  // Without SA_RESTART, so that a signal ends wait().
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);

  unet::Result<unet::Context> context = unet::Context::open();
  if (!context) give_up("open", context.error().text);
  auto endpoint = context->create_endpoint({.emulated = options.emulated ? 1u : 0u});
  if (!endpoint) give_up("create_endpoint", endpoint.error().text);

  const unet::Result<unet::Channel> channel = endpoint->connect(options.target, options.connect);
  if (!channel) give_up("connect", channel.error().text);

  EchoClient client(*endpoint, *channel, options);
  client.run();
  client.print();
  return client.succeeded() ? 0 : 1;
}
