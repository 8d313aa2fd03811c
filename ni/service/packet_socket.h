// packet_socket.h - the service's end of one control connection: whole packets, descriptors beside them, never blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <span>
#include <vector>

#include "unet/base/bytes.h"
#include "unet/mapping.h"

namespace unet::service {

class PacketSocket {
 public:
  PacketSocket() noexcept = default;
  explicit PacketSocket(Descriptor socket) noexcept : socket_(std::move(socket)) {}

  enum class Received { packet, nothing, closed, malformed };
  // One packet into `room`; `size` becomes its length. malformed: longer than the room, or with uninvited descriptors. `peek`: it
  // stays the next one until take().
  Received receive(MutableBytes room, size_t& size, bool peek = false) noexcept;
  void take() noexcept;

  // Sends a packet, or keeps it (with duplicates of the descriptors) until flush() can, if no more than `waiting_max` wait already. The
  // descriptors stay the caller's. no_descriptors: neither sent nor kept, as this process or the kernel has too many under way. broken: the
  // connection is broken, or the client does not read; drop it.
  enum class Outcome { sent, no_descriptors, broken };
  Outcome send(Bytes packet, std::initializer_list<int> descriptors, size_t waiting_max);

  // Keeps a packet for flush(), as above, even if it could be sent.
  Outcome keep(Bytes packet, std::span<const int> descriptors, size_t waiting_max);

  // keep() with descriptors that become ours.
  Outcome keep(Bytes packet, std::vector<Descriptor> descriptors, size_t waiting_max);

  // Sends kept packets while the socket has room, but not the last `leave`. no_descriptors: the kernel takes no descriptors now; try again
  // after a while, as no event will tell.
  Outcome flush(size_t leave = 0);

  bool waiting() const noexcept { return !waiting_.empty(); }
  size_t packets_waiting() const noexcept { return waiting_.size(); }

  // Upper bound of the sent descriptors that may be unread in the kernel, which tells when there are none, but not how many.
  size_t unread_descriptors() noexcept;
  int descriptor() const noexcept { return socket_.get(); }
  void close() noexcept;
  // Ends sending and receiving; the peer reads the packets sent so far, and then the end.
  void end() noexcept;

 private:
  struct Packet {
    std::vector<std::byte> bytes;
    std::vector<Descriptor> descriptors;
  };
  enum class Sent { yes, full, no_descriptors, broken };
  Sent send_now(Bytes packet, std::span<const int> descriptors) noexcept;

  Descriptor socket_;
  std::deque<Packet> waiting_;
  size_t unread_descriptors_ = 0;
};

}  // namespace unet::service
