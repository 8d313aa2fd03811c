// message.h - what the two sides of a measurement between hosts say to each other; client.cc and server.cc use it.
// In the byte order of x86-64: both sides are this program. The wire may lose, repeat and reorder any of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "apps/bench/two_hosts/two_hosts.h"
#include "unet/base/bytes.h"

namespace unet::bench {

enum class Ask : uint32_t {
  echo = 0x756e6574,  // back it comes, as it is
  stream,             // is counted
  report,             // is answered with StreamReport
  echo_header,        // its header alone comes back
};

// At the front of every message.
struct AskHeader {
  Ask ask = Ask::echo;
  uint32_t run = 0;     // a stream or a series of echoes: what belongs to an older one is told by it
  uint64_t number = 0;  // echo: which
};
static_assert(sizeof(AskHeader) == kAcrossLeast);

// Counts of a server for the newest stream of one channel, by its own clock.
struct StreamReport {
  AskHeader header;
  uint64_t messages = 0;
  uint64_t bytes = 0;        // without those of the first message, with which the time begins
  uint64_t nanoseconds = 0;  // from the first message to the last
};
static_assert(sizeof(StreamReport) == 40);

// Nothing if the message is too short.
template <typename T>
std::optional<T> read_front(Bytes message) {
  if (message.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, message.data(), sizeof(T));
  return value;
}

// Says why a side ends; its exit status.
int complain(const std::string& text);

}  // namespace unet::bench
