// stream_messages.h - messages of the IP channel that a stack's streams read in place; used by Stack.
#pragma once

#include <array>

#include "ipstack/sockets/network.h"
#include "ipstack/tcp/zero_copy_receive.h"

namespace unet::sockets {

class StreamMessages final : public tcp::ZeroCopyReceive {
 public:
  explicit StreamMessages(Network& network) noexcept : network_(network) {}

  void offer(const Message& message) noexcept { messages_[tcp::ZeroCopyReceive::offer(message.bytes())] = message; }
  // The messages' memory is not the network interface's any longer.
  void forget() noexcept { forgets_ = true; }

 private:
  void release(uint32_t message) noexcept override {
    if (!forgets_) network_.release(Network::kNoLocalPeer, messages_[message]);
  }

  Network& network_;
  std::array<Message, kMost + 1> messages_{};
  bool forgets_ = false;
};

}  // namespace unet::sockets
