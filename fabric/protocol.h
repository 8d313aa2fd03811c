// protocol.h - what the endpoints of two processes tell each other by Active Messages; used by Peers, Sender and Receiver.
//
//   message      kind             words                                                         payload
//   hello        medium request   version                                                       Identity
//   welcome      medium reply     version, Answer                                               Identity
//   line         short request    Head, tag (if tagged), data (1 or 2 words, if any), bytes     -
//   eager        medium request   Head, token, tag, data                                        bytes
//   ready        short request    Head, length, address, token, tag, data                       -
//   go           short            sender's token, receiver's token                              -
//   piece        medium request   receiver's token, offset                                      bytes
//   share        short            sender's token, receiver's token, receiver's address            -
//   done         short            sender's token, error                                         -
//   pace         short            Pace                                                          -
//   write        medium request   Head, token, address, key, data                               bytes
//   write from   short request    Head, token, address, key, data, length, sender's address     -
//   read         short request    Head, token, address, key, length, own address (if shared)    -
//   granted      short reply      token, address                                                -
//   refused      short reply      token, error                                                  -
//   atomic       medium request   Head, token, what, count, address, key, data                  operands, compared data
//
// `ready` announces a message that is sent by rendezvous. The receiver reads it from the sender's memory (direct_copy.h), or asks for
// pieces by `go`; it ends both by `done`. `go` and `done` are replies if the receiver knows its buffer at once, else requests. Words of 64
// bits have their low half first. A read or an atomic operation is answered by a piece with all bytes, or, if it is long, by the address
// from which the reader copies them, or by several pieces. `share` asks the sender to help with a copy (shared_copy.h), and a read
// does so by its own address. The number of a copy is the token of its reader. Integers are in host byte order: all processors that U-Net
// knows have the same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unet::fabric {

constexpr uint32_t kProtocolVersion = 3;

struct Handlers {
  static constexpr uint8_t kHello = 1, kWelcome = 2, kLine = 3, kEager = 4, kReady = 5, kGo = 6, kPiece = 7, kDone = 8, kPace = 9;
  static constexpr uint8_t kWrite = 10, kWriteFrom = 11, kRead = 12, kGranted = 13, kRefused = 14, kAtomic = 15;
  static constexpr uint8_t kShare = 16;
};

// The low byte of a Head; the next byte is the length of a line's bytes.
struct MessageFlags {
  static constexpr uint8_t kTagged = 0x01;
  static constexpr uint8_t kData = 0x02;      // for the receiver's completion
  static constexpr uint8_t kWide = 0x04;      // line: the data take two words
  static constexpr uint8_t kAnswer = 0x08;    // eager: the sender waits for `done`
  static constexpr uint8_t kPieces = 0x10;    // the bytes cannot be copied from memory in one piece
  static constexpr uint8_t kKnown = 0x1F;
};

// Most words of a message that fits one cache line of a local channel.
constexpr uint32_t kLineWords = 10;

enum class Answer : uint32_t {
  accepted = 0,
  use_other = 1,       // both have opened a channel at the same time: the one of the lower name is used
  other_version = 2,
};

// Which messages a receiver takes from a peer, by what it stores of that peer's unexpected ones.
enum class Pace : uint32_t {
  early = 0,      // short ones with their bytes
  announced = 1,  // bytes that fit one line, or else announcements
  none = 2,       // none, until it says so
};

// How a process of the same host finds the memory of this one: `secret` is at `address` there.
struct Identity {
  uint64_t process;
  uint64_t address;
  uint64_t secret[2];
  int64_t copies;  // hello: a descriptor of the memory in which both claim parts of long copies; -1: there is none
};
static_assert(sizeof(Identity) == 40);

}  // namespace unet::fabric
