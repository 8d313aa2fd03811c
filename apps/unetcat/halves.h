// halves.h - both directions of a transfer, without I/O: how much may be sent, and which messages a peer may send; used by Transfer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "unet/base/bytes.h"
#include "unet/base/crc32c.h"

namespace unet::unetcat {

// Bytes that a sender may send before the receiver has written them to standard output. A receiver stores at most these. A local channel
// carries as many: 64 messages of 16 KiB.
constexpr uint64_t kWindow = 1024 * 1024;

// The rule that a peer's message breaks; nullptr: none.
using Breach = const char*;

// The digest and number of the bytes of one direction.
class Tally {
 public:
  void add(Bytes bytes, bool hash) noexcept {
    count_ += bytes.size();
    if (hash) crc_ = unet::crc32c(crc_, bytes.data(), bytes.size());
  }
  uint64_t count() const noexcept { return count_; }
  uint32_t crc32c() const noexcept { return ~crc_; }

 private:
  uint64_t count_ = 0;
  uint32_t crc_ = kCrc32cStart;
};

// From our standard input to the peer.
class Sending {
 public:
  uint64_t room() const noexcept { return granted_ - tally_.count(); }
  bool ended() const noexcept { return ended_; }
  bool confirmed() const noexcept { return confirmed_; }
  const Tally& tally() const noexcept { return tally_; }

  void add(Bytes bytes, bool hash) noexcept { tally_.add(bytes, hash); }  // at most room()
  void end() noexcept { ended_ = true; }
  Breach grant(uint64_t to) noexcept {
    if (to < granted_ || to > tally_.count() + kWindow) return "a grant of room that it cannot have";
    granted_ = to;
    return nullptr;
  }
  Breach done(uint64_t count) noexcept {
    if (!ended_ || confirmed_ || count != tally_.count()) return "a confirmation of bytes that were not sent";
    confirmed_ = true;
    return nullptr;
  }

 private:
  Tally tally_;
  uint64_t granted_ = kWindow;
  bool ended_ = false, confirmed_ = false;
};

// From the peer to our standard output.
class Receiving {
 public:
  bool ended() const noexcept { return ended_; }
  const Tally& tally() const noexcept { return tally_; }

  Breach data(uint64_t offset, uint64_t size) const noexcept {
    if (ended_) return "data after its end";
    if (offset != tally_.count()) return "data out of order";
    if (size > granted_ - tally_.count()) return "more data than it may send";
    return nullptr;
  }
  void add(Bytes bytes, bool hash) noexcept { tally_.add(bytes, hash); }  // if data() allows it
  Breach end(uint64_t count) noexcept {
    if (ended_) return "a second end";
    if (count != tally_.count()) return "an end after another number of bytes than it sent";
    ended_ = true;
    return nullptr;
  }
  // Returns the next grant if it is due, when `written` bytes have left. A grant for each message would cost as much as the data.
  std::optional<uint64_t> grant(uint64_t written) noexcept {
    if (ended_ || written + kWindow - granted_ < kWindow / 4) return std::nullopt;
    return granted_ = written + kWindow;
  }

 private:
  Tally tally_;
  uint64_t granted_ = kWindow;
  bool ended_ = false;
};

}  // namespace unet::unetcat
