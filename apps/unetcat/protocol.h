// protocol.h - the Active Messages between two programs unetcat, and the reasons that they carry; used by Transfer.
//
//   connecting side                                 listening side
//   hello: version, flags                   -->
//                                           <--     heard: a Refusal, flags (the reply to hello)
//
// Then each direction with a receiver that takes data has its own flow control and its own end:
//
//   data: offset; the bytes are the payload -->
//                                           <--     grant: data may be sent up to this offset
//   end: number of bytes, crc32c            -->
//                                           <--     done: number of bytes, all of them written to standard output
//   abort: a Reason                         <->     the sender gives up
#pragma once

#include <cstdint>
#include <string_view>

namespace unet::unetcat {

constexpr uint32_t kVersion = 1;

// Indices of the handler tables of both sides.
constexpr uint8_t kHello = 1, kHeard = 2, kData = 3, kGrant = 4, kEnd = 5, kDone = 6, kAbort = 7;

// Flags of hello and heard: what the sender of the message does.
constexpr uint32_t kSendsOnly = 1, kReceivesOnly = 2, kHashes = 4;

// The answer to a hello.
enum class Refusal : uint32_t { none = 0, busy = 1, version = 2 };

// Why a side gives up.
enum class Reason : uint32_t { interrupted = 1, input = 2, output = 3, protocol = 4, digest = 5 };

constexpr std::string_view to_string(Reason reason) noexcept {
  switch (reason) {
    case Reason::interrupted: return "it was interrupted";
    case Reason::input: return "it cannot read its standard input";
    case Reason::output: return "it cannot write its standard output";
    case Reason::protocol: return "we broke the protocol, it says";
    case Reason::digest: return "the digest of what it received is another one";
  }
  return "for a reason that this release does not know";
}

}  // namespace unet::unetcat
