// echo_server.cc - sends every message back to its sender; serves any number of clients. echo_server.c: in C.
//
//   c++ -std=c++20 -o echo_server echo_server.cc $(pkg-config --cflags --libs unet)
//   unetd &                                 (the network interface of this host; unetd --port ... gives it a wire)
//   ./echo_server echo                      and elsewhere: ./echo_client echo, or from another host ./echo_client echo@HOST
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unet/context.h>

namespace {

constexpr const char* kUsage =
    "usage: echo_server [--emulated] [NAME]\n"
    "\n"
    "Binds NAME (default: echo) at the network interface that UNET_NI names, else at the unetd of this host, and sends every\n"
    "message that arrives back by the channel it came by. Ends with Ctrl-C.\n"
    "\n"
    "  -e, --emulated      with an endpoint that has no queues of its own, as programs with thousands of them use\n"
    "  -h, --help\n"
    "\n"
    "Try it:\n"
    "  unetd &\n"
    "  echo_server echo &\n"
    "  echo_client --size 1000 echo\n";

std::atomic<bool> stop{false};

void on_signal(int) { stop.store(true, std::memory_order_relaxed); }

[[noreturn]] void give_up(const char* call, const unet::Error& error) {
  std::fprintf(stderr, "echo_server: %s: %s\n", call, error.text.c_str());
  std::exit(1);
}

struct Options {
  std::string name = "echo";
  bool emulated = false;
};

Options parse_options(int argc, char** argv) {
  Options options;
  int names = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--help" || word == "-h") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    }
    if (word == "--emulated" || word == "-e") {
      options.emulated = true;
    } else if (word.substr(0, 1) != "-" && names++ == 0) {
      options.name = word;
    } else {
      std::fprintf(stderr, "echo_server: '%s' is not understood; echo_server --help says what is\n", argv[i]);
      std::exit(2);
    }
  }
  return options;
}

class EchoServer {
 public:
  explicit EchoServer(unet::Endpoint& endpoint) : endpoint_(endpoint) {}

  // Does all pending work; returns false if there was no message.
  bool turn() {
    const bool busy = echo_messages();
    accept_clients();
    forget_clients();
    return busy;
  }

  void print() const {
    std::printf("%llu messages, %llu bytes, %llu clients, %llu echoes dropped\n", messages_, bytes_, clients_, dropped_);
  }

 private:
  // Echoes one batch of messages.
  bool echo_messages() {
    std::array<unet::Message, 32> batch;
    const uint32_t count = endpoint_.receive(batch);
    for (uint32_t i = 0; i < count; ++i) {
      const unet::Message& message = batch[i];
      // More messages follow at once, except after the last. An embedded network interface then sends them together.
      const bool more = i + 1 < count;
      if (endpoint_.send(message.channel, message.bytes(), more) == unet::SendOutcome::sent) {
        ++messages_;
        bytes_ += message.length;
      } else {
        // full: this client does not take its echoes. Waiting for it would make all others wait.
        // no_channel: it has left.
        ++dropped_;
      }
      endpoint_.release(message);
    }
    return count != 0;
  }

  void accept_clients() {
    while (const auto request = endpoint_.next_request()) {
      const unet::Result<unet::Channel> channel = endpoint_.accept(request->id);
      if (!channel) {
        // The client gave up meanwhile, or a limit is reached. Continue to serve the others.
        std::fprintf(stderr, "echo_server: %s was not accepted: %s\n", request->peer.c_str(), channel.error().text.c_str());
        continue;
      }
      ++clients_;
      std::printf("channel %u: %s\n", unsigned(*channel), request->peer.c_str());
      std::fflush(stdout);
    }
  }

  // A client that has left leaves us its channel's number: close the channel to release it.
  void forget_clients() {
    while (const auto event = endpoint_.next_event()) {
      if (event->kind == unet::ChannelEvent::Kind::closed) static_cast<void>(endpoint_.close(event->channel));
    }
  }

  unet::Endpoint& endpoint_;
  unsigned long long clients_ = 0, messages_ = 0, bytes_ = 0, dropped_ = 0;
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
  if (!context) give_up("open", context.error());
  auto endpoint = context->create_endpoint({.emulated = options.emulated ? 1u : 0u});
  if (!endpoint) give_up("create_endpoint", endpoint.error());
  if (const unet::Status bound = endpoint->bind(options.name); !bound) give_up("bind", bound.error());
  std::printf("echo server '%s' is ready\n", options.name.c_str());
  std::fflush(stdout);

  EchoServer server(*endpoint);
  while (!stop.load(std::memory_order_relaxed)) {
    if (server.turn()) continue;
    // Wait only a second, because a signal may come just before the wait.
    if (endpoint->wait(unet::kSecond) == unet::WaitOutcome::disconnected || !context->alive()) {
      std::fprintf(stderr, "echo_server: the network interface is gone\n");
      return 1;
    }
  }
  server.print();
}
