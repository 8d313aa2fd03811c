// local_peer_message.h - what stacks of one network interface tell each other by a local channel; private to ipstack/sockets.
//
// A channel loses nothing and keeps the order, so a stream needs neither numbers nor acknowledgements: only how much the reader has room
// for. All is in host order. A local peer may write anything: lengths are those of the message, numbers are looked up and compared.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "unet/base/bytes.h"

namespace unet::sockets {

struct PeerKind {
  static constexpr uint8_t kOpen = 1, kOpened = 2, kRefused = 3, kData = 4, kCredit = 5, kEnd = 6, kReset = 7, kDatagram = 8,
                           kNoPort = 9,  // the answer to a datagram for a port without a socket: its head
                           kHeaderOptions = 10,
                           // A stream moves to another stack of this network interface (stream_moves.cc): its end asks, the other end
                           // agrees and sends nothing until the stream goes on by its new end's channel.
                           kMove = 11, kAgreed = 12, kResume = 13;
};

struct PeerHeader {
  uint8_t kind = 0;
  uint8_t urgent = 0;   // of data: not 0 if its last byte is
  uint8_t moves = 0;    // of open and opened: not 0 if the sender answers kMove
  uint8_t reserved = 0;
  uint32_t socket = 0;  // the receiver's; of open the sender's
  uint32_t life = 0;    // which of those that had this number
};
static_assert(sizeof(PeerHeader) == 12);

struct PeerOpen {
  PeerHeader header{};
  uint32_t window = 0;  // bytes that may be sent back
  uint16_t from_port = 0, to_port = 0;
  std::array<uint8_t, 16> from{}, to{};
};

struct PeerOpened {
  PeerHeader header{};
  uint32_t socket = 0, life = 0;  // of the accepting end
  uint32_t window = 0;
};

struct PeerCredit {
  PeerHeader header{};
  uint32_t bytes = 0;  // that were read
};

struct PeerMove {
  PeerHeader header{};
  uint32_t reserved = 0;
  uint64_t token = 0;  // the new end proves by it that the stream is its own
};

struct PeerResume {
  PeerHeader header{};
  uint32_t socket = 0, life = 0;  // the new end
  uint32_t reserved = 0;
  uint64_t token = 0;
};

struct PeerDatagram {
  uint8_t kind = 0;
  uint8_t address_bytes = 0;  // 4 or 16: both addresses follow, the sender's first, and then the payload
  uint16_t segment = 0;
  uint16_t from_port = 0, to_port = 0;
};
static_assert(sizeof(PeerDatagram) == 8);
// Header options of the datagrams that follow on this channel, sent when they change; at first they are the defaults.
struct PeerHeaderOptions {
  uint8_t kind = 0;
  uint8_t hop_limit = 0, traffic_class = 0;
  uint8_t reserved[5] = {};
};
static_assert(sizeof(PeerHeaderOptions) == sizeof(PeerDatagram));

// False: `message` is too short, and `into` stays as it is.
template <typename T>
bool read_message(Bytes message, T& into) noexcept {
  if (message.size() < sizeof into) return false;
  std::memcpy(&into, message.data(), sizeof into);
  return true;
}
inline Bytes bytes_of(const auto& message) noexcept { return {reinterpret_cast<const std::byte*>(&message), sizeof message}; }

constexpr uint16_t kPrivilegedPorts = 1024;  // ports below are the superuser's
constexpr uint32_t kPeerDatagramHeadMax = sizeof(PeerDatagram) + 2 * 16;

}  // namespace unet::sockets
