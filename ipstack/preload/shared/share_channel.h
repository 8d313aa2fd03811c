// share_channel.h - messages between two processes about sockets that both have, over a channel: a Unix socket pair of packets. The parent
// side has the sockets in its stack (socket_proxies.h). The child side inherited them, or got one by SCM_RIGHTS (parent_channels.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "ipstack/sockets/address.h"
#include "unet/base/time.h"

namespace unet::preload {

// To the parent side. take, move and take_unused have the descriptor that the bytes go to, fork another channel's, passed that of bytes
// which are carried already. A File::Pair follows passed; a DatagramHead and the datagram follow datagram.
struct ParentMessage {
  enum class Kind : uint32_t {
    take,         // the child uses the connection: carry its bytes
    take_unused,  // the same, but perhaps the child only has it because it did not close it
    end,          // shutdown() of a connection that was taken
    close,        // the child has closed the socket
    want,         // the child waits for a connection of the listener, or for datagrams
    took,         // the child has accepted a connection that it was given
    fork,         // a child of the child has all that it has
    datagram,     // a datagram that arrived there, and that its program does not read
    passed,       // a connection that arrived there, and that its program does not accept; it takes no more for now
    refused,      // a connection that it was given: the listener is closed there, or its program does not accept
    move,         // as take, but move the stream to the child if possible; answered by movable, moved or stays (MoveMessage)
    owned,        // the NI sends the child what arrives for the moving connection (MoveMessage)
  } kind = Kind::take;
  int32_t socket = -1;  // as the owner's stack numbers it
};

// The child waits for the answer until `until`, of CLOCK_MONOTONIC.
struct MoveMessage {
  ParentMessage said{};
  Nanoseconds until = 0;
};

// To the child side.
// - connection: an accepted connection, with the descriptor that its bytes pass through. The parent passes bytes once the child has taken
//   it; with `connection` < 0 they pass already.
// - datagram: a DatagramHead and the datagram follow.
// - part: which arrivals reach the child by its own claim (File::Part).
// - wanted: another process waits for one connection of that listener.
// - movable: the child can own the connection from now on.
// - moved: the message has a descriptor of memory with the stream (Stack::export_stream()).
// - stays: the parent goes on to pass the connection's bytes.
struct ChildMessage {
  enum class Kind : uint32_t { connection, datagram, part, wanted, movable, moved, stays } kind = Kind::connection;
  int32_t socket = -1, connection = -1;
  uint32_t part = 0;  // File::Part
  sockets::Address local{}, remote{};
};
struct DatagramHead {
  sockets::Address from{};
  ip::IpAddress to{};
  uint32_t segment = 0;
};
static_assert(std::is_trivially_copyable_v<ParentMessage> && std::is_trivially_copyable_v<MoveMessage> &&
              std::is_trivially_copyable_v<ChildMessage> && std::is_trivially_copyable_v<DatagramHead>);
constexpr int kMessagesAtOnce = 64;  // of a channel, before another's turn
constexpr size_t kShareMessageMax = sizeof(ChildMessage) + sizeof(DatagramHead) + 64 * 1024;

// Room for one message. The caller has the runtime's lock.
std::span<std::byte> message_memory() noexcept;

// Two ends of a channel, where programs do not look for descriptors. False: there is none to be had.
bool make_channel(int (&ends)[2]) noexcept;
// `descriptor` -1: none is sent. False: the other end is gone, or (without `may_wait`) has much unread.
bool send_on(int channel, const void* data, size_t size, int descriptor = -1, bool may_wait = false) noexcept;
// The size of the message, 0 at the end of the channel, or -errno. `descriptor` is the caller's then; -1: none came.
ssize_t receive_on(int channel, void* data, size_t size, int& descriptor) noexcept;
// Checks a descriptor that another process sent.
bool is_socket(int fd, int domain, int type) noexcept;

}  // namespace unet::preload
