// storm.h - a client that does set-up calls only, at random, as fast as it can: endpoints, names, channels, regions; for system tests.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/system/exchange.h"

namespace unet {

class Storm {
 public:
  Storm(std::string ni, uint32_t seed) : ni_(std::move(ni)), random_(seed) {}

  // Runs until the NI is gone.
  void run() {
    while (turn()) {}
  }

 private:
  static constexpr size_t kContexts = 2, kEndpoints = 4, kNames = 4;

  struct End {
    std::unique_ptr<Endpoint> endpoint;
    std::vector<Channel> channels;
    std::vector<uint64_t> pending;
  };

  uint32_t dice(uint32_t sides) { return static_cast<uint32_t>(random_() % sides); }
  std::string name() { return "storm" + std::to_string(dice(kNames)); }

  bool turn() {
    if (contexts_.size() < kContexts && (contexts_.empty() || dice(20) == 0)) {
      auto context = Context::open(ni_, "storm");
      if (!context && contexts_.empty()) return false;
      if (context) contexts_.push_back(std::move(*context));
    }
    Context& context = contexts_[dice(static_cast<uint32_t>(contexts_.size()))];
    if (!context.alive()) return false;
    if (ends_.size() < kEndpoints && (ends_.empty() || dice(4) == 0)) {
      if (auto endpoint = context.create_endpoint({.send_bytes = kMessageMax})) ends_.push_back({std::move(*endpoint), {}, {}});
      if (ends_.empty()) return true;
    }
    const uint32_t which = dice(static_cast<uint32_t>(ends_.size()));
    act(ends_[which], which);
    return true;
  }

  // Every call may legitimately fail.
  void act(End& end, uint32_t which) {
    Endpoint& e = *end.endpoint;
    switch (dice(12)) {
      case 0: static_cast<void>(e.bind(name())); break;
      case 1: static_cast<void>(e.unbind()); break;
      case 2: static_cast<void>(e.expose(1 + dice(100'000))); break;
      case 3: static_cast<void>(e.descriptor()); break;
      case 4: ends_.erase(ends_.begin() + static_cast<std::ptrdiff_t>(which)); return;
      case 5:
      case 6:
      case 7: start(end); break;
      case 8: close(end); break;
      case 9: use(end); break;
      default: break;
    }
    answer(end);
  }

  void start(End& end) {
    const auto path = static_cast<control::Path>(dice(3));
    const LocalOptions local{.depth = 4, .data_bytes = 4 * kMessageMax};
    // Some requests are never awaited.
    const auto pending = end.endpoint->start_connect(name(), {.path = path, .timeout = (1 + dice(20)) * kMillisecond, .local = local});
    if (pending && dice(4) != 0) end.pending.push_back(*pending);
  }
  void close(End& end) {
    if (end.channels.empty()) return;
    static_cast<void>(end.endpoint->close(end.channels.back()));
    end.channels.pop_back();
  }
  void use(End& end) {
    for (const Channel channel : end.channels) {
      static_cast<void>(end.endpoint->map_peer_region(channel));
      static_cast<void>(end.endpoint->put(channel, 0, content(0, 100), true));
      static_cast<void>(end.endpoint->send(channel, content(0, dice(5000))));
    }
  }

  void answer(End& end) {
    Endpoint& e = *end.endpoint;
    while (const auto request = e.next_request()) {
      if (dice(5) == 0) {
        static_cast<void>(e.reject(request->id));
      } else if (const auto channel = e.accept(request->id)) {
        end.channels.push_back(*channel);
      }
    }
    for (size_t i = 0; i < end.pending.size();) {
      const auto channel = e.poll_connect(end.pending[i]);
      if (!channel) {
        ++i;
        continue;
      }
      if (*channel) end.channels.push_back(**channel);
      end.pending.erase(end.pending.begin() + static_cast<std::ptrdiff_t>(i));
    }
    while (const auto event = e.next_event()) {
      if (dice(2) == 0) static_cast<void>(e.close(event->channel));
    }
    for (Message message; e.receive(message);) e.release(message);
  }

  std::string ni_;
  std::mt19937 random_;
  std::vector<Context> contexts_;
  std::vector<End> ends_;
};

}  // namespace unet
