// share_channel.h - messages between two processes about sockets that both have. A channel is a Unix socket pair of packets. The parent
// side has the sockets in its stack (socket_proxies.h); the child side inherited them, or received one by SCM_RIGHTS (parent_channels.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "ipstack/sockets/address.h"
#include "unet/base/time.h"

namespace unet::preload {

// To the parent side. A descriptor comes with some kinds. take, take_unused and move: the socket that the connection's bytes go to; fork:
// the end of a new channel; passed: the socket through which bytes are carried already. A File::Pair follows passed; a DatagramHead and the
// datagram follow datagram.
struct ParentMessage {
  enum class Kind : uint32_t {
    take,         // the child uses the connection: carry its bytes
    take_unused,  // as take, but the child has not used the connection, and may only have failed to close it
    end,          // the child called shutdown() for a connection that it took
    close,        // the child has closed the socket
    want,         // the child waits for a connection of the listener, or for datagrams
    took,         // the child has accepted a connection that the parent sent
    fork,         // the child forked: a new process has all of its sockets
    datagram,     // a datagram that arrived at the child, and that its program does not read
    passed,       // a connection that arrived at the child, and that its program does not accept: it is busy, or has closed the listener
    refused,      // the child returns a connection that the parent sent: its listener is closed, or its program does not accept
    move,         // as take, but the stream moves to the child if possible; the answer is movable, moved or stays (MoveMessage)
    owned,        // the NI now delivers the moving connection's segments to the child (MoveMessage)
  } kind = Kind::take;
  int32_t socket = -1;  // its number in the parent side's stack
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
// - moved: the message has a descriptor of memory with the stream (StreamMoves::export_stream()).
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
constexpr int kMessagesAtOnce = 64;  // most messages of a channel per turn
constexpr size_t kShareMessageMax = sizeof(ChildMessage) + sizeof(DatagramHead) + 64 * 1024;

// Room for one message. The caller has the runtime's lock.
std::span<std::byte> message_memory() noexcept;

// Makes a channel at high descriptor numbers, which programs do not use. False: no descriptors are free.
bool make_channel(int (&ends)[2]) noexcept;
// Sends a message; `descriptor` -1: without one. False: the other end is gone, or has too much unread and `may_wait` is false.
bool send_on(int channel, const void* data, size_t size, int descriptor = -1, bool may_wait = false) noexcept;
// Receives a message: its size, 0 at the end of the channel, or -errno. The caller owns `descriptor`; -1: none came.
ssize_t receive_on(int channel, void* data, size_t size, int& descriptor) noexcept;
// Checks a descriptor that another process sent.
bool is_socket(int fd, int domain, int type) noexcept;

}  // namespace unet::preload
