// tcp_output.h - sends the segments of streams: gathers their payload, and delays small ones while others are under way; used by the stack.
#pragma once

#include <vector>

#include "ipstack/sockets/network.h"
#include "ipstack/sockets/slab.h"
#include "ipstack/sockets/socket.h"
#include "ipstack/sockets/stack_counters.h"
#include "ipstack/tcp/chunk_pool.h"
#include "ipstack/tcp/zero_copy_receive.h"
#include "unet/ip.h"
#include "unet/limits.h"
#include "unet/wire/ip.h"
#include "unet/wire/tcp.h"

namespace unet::sockets {

class TcpOutput {
 public:
  // Payload of the longest message, whatever its headers are.
  static constexpr uint32_t kPayloadMax = kMessageMax - sizeof(IpMessageHeader) - ip::kIpv6Bytes - ip::kTcpHeaderMax;

  TcpOutput(Network& network, tcp::ChunkPool& chunks, StackCounters& counters, Slab<Socket>& sockets, uint32_t chunk_bytes);

  // Sends all segments that the socket's connection has. False: the network takes no more now.
  bool send_all(uint32_t index, Nanoseconds now);
  // Sends one segment of the socket's connection; without a socket, one that has no data. `room`: reserved for that or more; if it is too
  // small, room is reserved anew. False: no room.
  bool send(const Socket* socket, const Address& from, const Address& to, const tcp::Segment& segment, MutableBytes room = {});

  // Streams with less data than a message holds, which wait for more while the network has other messages to take.
  bool has_held() const noexcept { return !held_.empty(); }
  uint64_t held_until() const noexcept { return held_until_; }  // value of Network::completed() that ends the wait
  // When the wait is over, calls advance(index) for each held stream. A stream that has sent meanwhile may be held again.
  template <typename Advance>
  void run_held(Advance advance) {
    if (network_.completed() < held_until_) return;
    const size_t count = held_.size();
    for (size_t i = 0; i < count; ++i) {
      const auto [index, from] = held_[i];
      if (!sockets_.has(index) || !sockets_[index].held) continue;
      sockets_[index].held = false;
      if (!sockets_[index].has_connection()) continue;
      if (sockets_[index].tcp.connection->send_next() == from) released_ = index;
      advance(index);
      released_ = kNone;
    }
    held_.erase(held_.begin(), held_.begin() + static_cast<ptrdiff_t>(count));
    held_until_ = network_.submitted();
  }

  std::vector<Bytes>& pieces() noexcept { return pieces_; }  // reused for the pieces of each message

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Held {
    uint32_t index;
    tcp::Sequence from;  // start of the data that waits
  };
  void hold(uint32_t index);

  Network& network_;
  tcp::ChunkPool& chunks_;
  StackCounters& counters_;
  Slab<Socket>& sockets_;
  std::vector<Bytes> pieces_;
  const bool holds_;
  std::vector<Held> held_;
  uint32_t released_ = kNone;  // the stream that must not be held now
  uint64_t held_until_ = 0;
};

}  // namespace unet::sockets
