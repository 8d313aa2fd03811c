// share_channel.h - messages between processes about sockets that both have, by a channel: a Unix socket pair of packets. The process whose
// sockets they are has one end (socket_proxies.h), a process that inherited them, or was passed one, the other (parent_channels.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "ipstack/sockets/address.h"
#include "unet/base/time.h"

namespace unet::preload {

// To the process that owns the socket. With take, move and take_unused comes the descriptor that the bytes are to be carried to, with fork
// another channel's, with passed that of the bytes, which are carried already; behind that stands a File::Pair, behind datagram a
// DatagramHead and the datagram.
struct ParentMessage {
  enum class Kind : uint32_t {
    take,         // a connection: it is to be used there
    take_unused,  // the same, but nobody may want it: a program has it because nobody closed it
    end,          // shutdown() of a connection that was taken
    close,        // it is closed there
    want,         // a listener or a datagram socket: a connection of it, or datagrams, are wanted
    took,         // a connection that was handed over: it is accepted
    fork,         // a child of the process has all that it had
    datagram,     // one that came there, and nobody there reads
    passed,       // a connection that came to a listener, and nobody there accepts: nor does it take any more for now
    refused,      // a connection that was handed over and is another's: the listener is closed there, or nobody there accepts
    move,         // as take, and the stream goes on there, if it can: `movable`, `moved` or `stays` answers (MoveMessage)
    owned,        // a connection that is to move: what comes of it comes there (MoveMessage)
  } kind = Kind::take;
  int32_t socket = -1;  // as the owner's stack numbers it
};

// An answer after `until`, of CLOCK_MONOTONIC, finds nobody that waits.
struct MoveMessage {
  ParentMessage said{};
  Nanoseconds until = 0;
};

// The other way, for a listener or a datagram socket that is served there. With a connection comes the descriptor of its bytes, which are
// carried when it is taken, or, with a `connection` below 0, are already; behind a datagram's stands a DatagramHead and the datagram. Part:
// how much of what comes it gets by its own claim. Wanted: another waits for a connection of that listener, once. Movable: a connection is
// to be owned there. Moved: with it comes a file in memory that has the stream (Stack::export_stream()). Stays: its bytes are carried.
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

// Room for one, of who has the runtime's lock.
std::span<std::byte> message_memory() noexcept;

// Two ends of a channel, where programs do not look for descriptors. False: there is none to be had.
bool make_channel(int (&ends)[2]) noexcept;
// `descriptor` -1: none goes along. False: the other end is gone, or (without `may_wait`) has much unread.
bool send_on(int channel, const void* data, size_t size, int descriptor = -1, bool may_wait = false) noexcept;
// The size of the message, 0 at the end of the channel, or -errno. `descriptor` is the caller's then; -1: none came.
ssize_t receive_on(int channel, void* data, size_t size, int& descriptor) noexcept;
// Whether a descriptor that came from elsewhere is what it should be.
bool is_socket(int fd, int domain, int type) noexcept;

}  // namespace unet::preload
