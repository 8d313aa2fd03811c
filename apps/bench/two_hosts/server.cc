// server.cc - `unet-bench serve`: sends echoes back, counts streams, answers what it counted.
#include <cstdio>
#include <vector>

#include "apps/bench/machine/end_signals.h"
#include "apps/bench/two_hosts/message.h"
#include "unet/context.h"

namespace unet::bench {

namespace {

class Server {
 public:
  explicit Server(Endpoint& endpoint) : endpoint_(endpoint) {}

  // Does what there is to do; false if there was no message.
  bool poll() {
    Message batch[32];
    const uint32_t count = endpoint_.receive(batch);
    for (uint32_t i = 0; i < count; ++i) {
      answer(batch[i], i + 1 < count);
      endpoint_.release(batch[i]);
    }
    while (const auto request = endpoint_.next_request()) take(request->id);
    while (const auto event = endpoint_.next_event()) {
      if (event->kind == ChannelEvent::Kind::closed) (void)endpoint_.close(event->channel);
    }
    return count != 0;
  }

 private:
  struct Stream {
    StreamReport counted;
    Nanoseconds begin = 0;
  };

  // The limits of an endpoint bound the channels, and so the list.
  void take(RequestId request) {
    const Result<Channel> channel = endpoint_.accept(request);
    if (!channel) return;  // the client gave up meanwhile
    const auto index = static_cast<size_t>(*channel);
    if (index >= streams_.size()) streams_.resize(index + 1);
    streams_[index] = {};
  }

  // An answer for which there is no room is dropped, as a wire would: the client asks again or counts a loss.
  void answer(const Message& message, bool more) {
    const auto header = read_front<AskHeader>(message.bytes());
    const auto index = static_cast<size_t>(message.channel);
    if (!header || index >= streams_.size()) return;
    switch (header->ask) {
      case Ask::echo: (void)endpoint_.send(message.channel, message.bytes(), more); return;
      case Ask::echo_header: (void)endpoint_.send(message.channel, message.bytes().first(sizeof(AskHeader)), more); return;
      case Ask::stream: count(streams_[index], *header, message.length); return;
      case Ask::report: report(message.channel, streams_[index], *header); return;
    }
  }

  static void count(Stream& stream, const AskHeader& header, uint32_t length) {
    const Nanoseconds now = monotonic_now();
    if (stream.counted.messages != 0 && header.run < stream.counted.header.run) return;  // late
    if (stream.counted.messages == 0 || header.run != stream.counted.header.run) {
      stream.counted = {.header = {.ask = Ask::report, .run = header.run}, .messages = 1};
      stream.begin = now;
      return;
    }
    ++stream.counted.messages;
    stream.counted.bytes += length;
    stream.counted.nanoseconds = now - stream.begin;
  }

  // Nothing of that run has come: a report of zeros.
  void report(Channel channel, const Stream& stream, const AskHeader& header) {
    StreamReport report{.header = header};
    if (stream.counted.header.run == header.run) report = stream.counted;
    (void)endpoint_.send(channel, Bytes(reinterpret_cast<const std::byte*>(&report), sizeof report));
  }

  Endpoint& endpoint_;
  std::vector<Stream> streams_;  // by channel
};

}  // namespace

int serve(const std::string& name) {
  catch_end_signals();
  Result<Context> context = Context::open({}, "unet-bench");
  if (!context) return complain(context.error().text);
  auto endpoint = context->create_endpoint({.send_depth = 256, .receive_depth = 1024, .buffers = 1024});
  if (!endpoint) return complain(endpoint.error().text);
  if (Status bound = endpoint->bind(name); !bound) return complain(bound.error().text);
  std::printf("unet-bench: serving '%s'\n", name.c_str());
  std::fflush(stdout);

  Server server(*endpoint);
  while (!end_wanted()) {
    if (server.poll()) continue;
    // Not for ever: a signal that comes just before the wait is seen after a second.
    if (endpoint->wait(kSecond) == WaitOutcome::disconnected || !context->alive()) return complain("the network interface is gone");
  }
  return 0;
}

}  // namespace unet::bench
