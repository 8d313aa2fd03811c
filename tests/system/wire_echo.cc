// wire_echo.cc - a client of an echo server, on a channel that must outlive NIs: it asks again for a lost echo, and ends at any other
// fault. tests/system/takeover_wire.py runs it while NIs are replaced.
//
// Usage: wire_echo connect NAME@HOST | static NAME
//
// Prints "ready" when the channel is open, and a line for every 100 echoes. Ends with its standard input.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "unet/context.h"

namespace {

using namespace unet;

constexpr Nanoseconds kHang = 120 * kSecond;
constexpr Nanoseconds kAskAgain = 200 * kMillisecond;  // an echo may be lost with a killed NI
constexpr uint32_t kSizes[] = {8, 48, 49, 700, 1472, 1473, 5000, 20'000, 65'536};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "wire_echo: %s\n", why.c_str());
  std::exit(1);
}

template <typename T>
T take(Result<T> result) {
  if (!result) give_up(result.error().text);
  return std::move(*result);
}

bool told_to_end() {
  char byte;
  return ::read(0, &byte, 1) == 0;
}

class Echoes {
 public:
  Echoes(Endpoint& endpoint, Channel channel) : endpoint_(endpoint), channel_(channel) {}

  void run() {
    for (uint32_t number = 0; !told_to_end(); ++number) {
      compose(number, kSizes[number % std::size(kSizes)]);
      for (const Nanoseconds begin = monotonic_now(); !round_trip(number); ++asked_again_) {
        if (monotonic_now() - begin > kHang) give_up("no echo");
      }
      if ((number + 1) % 100 != 0) continue;
      std::printf("%u echoes, %u asked for again\n", number + 1, asked_again_);
      std::fflush(stdout);
    }
  }

 private:
  void compose(uint32_t number, uint32_t size) {
    data_.resize(size);
    for (size_t i = 0; i < size; ++i) data_[i] = std::byte(number * 131 + i * 7 + (i >> 8));
    std::memcpy(data_.data(), &number, sizeof number);
  }

  // False: no echo came in time.
  bool round_trip(uint32_t number) {
    while (true) {
      const SendOutcome outcome = endpoint_.send(channel_, data_);
      if (outcome == SendOutcome::sent) break;
      if (outcome != SendOutcome::full) give_up("send: " + std::string(to_string(outcome)));
      endpoint_.wait_room(channel_, kAskAgain);
    }
    const Nanoseconds begin = monotonic_now();
    while (monotonic_now() - begin < kAskAgain) {
      Message message;
      if (!endpoint_.receive(message)) {
        if (endpoint_.wait(kAskAgain) == WaitOutcome::disconnected) give_up("the network interface is gone");
        const auto event = endpoint_.next_event();
        if (event) give_up("the channel is closed, reason " + std::to_string(static_cast<uint32_t>(event->reason)));
        continue;
      }
      const Bytes bytes = message.bytes();
      uint32_t got = 0;
      std::memcpy(&got, bytes.data(), std::min(bytes.size(), sizeof got));
      const bool same = bytes.size() == data_.size() && std::memcmp(bytes.data(), data_.data(), data_.size()) == 0;
      endpoint_.release(message);
      if (same) return true;
      if (got >= number) give_up("an echo of " + std::to_string(number) + " is wrong");  // else a late one
    }
    return false;
  }

  Endpoint& endpoint_;
  Channel channel_;
  std::vector<std::byte> data_;
  uint32_t asked_again_ = 0;
};

Channel static_channel(Endpoint& endpoint, const char* name) {
  if (const Status bound = endpoint.bind(name); !bound) give_up(bound.error().text);
  while (true) {
    if (const auto event = endpoint.next_event()) return event->channel;
    if (endpoint.wait(kHang) != WaitOutcome::ready) give_up("no static channel");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) give_up("connect NAME@HOST, or static NAME");
  Context context = take(Context::open());
  const auto endpoint = take(context.create_endpoint());
  const bool fixed = std::string(argv[1]) == "static";
  const Channel channel = fixed ? static_channel(*endpoint, argv[2]) : take(endpoint->connect(argv[2], {.timeout = kHang}));
  std::printf("ready\n");
  std::fflush(stdout);
  ::fcntl(0, F_SETFL, ::fcntl(0, F_GETFL) | O_NONBLOCK);
  Echoes(*endpoint, channel).run();
  if (fixed) return 0;
  if (const Status closed = endpoint->close(channel); !closed) give_up(closed.error().text);
}
