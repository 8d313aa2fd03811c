// kept_messages.h - messages of the network whose data streams leave where it came until it is read, which saves a copy: a few at a time.
// They are copied after all when so much has come since that the network may want the memory, or when nothing comes and nobody reads;
// used by ReceiveBuffer, and by whoever brings the messages (offer()).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "unet/base/bytes.h"
#include "unet/base/check.h"
#include "unet/base/time.h"
#include "unet/wire/tcp.h"

namespace unet::tcp {

class ReceiveBuffer;

class KeptMessages {
 public:
  static constexpr uint32_t kMost = 8;            // messages
  static constexpr uint32_t kLeast = 4096;        // bytes of data: less is rather copied
  static constexpr uint64_t kSpan = 768 * 1024;   // bytes of messages that come while one is kept, of which each counts
  static constexpr uint64_t kOfEach = 8192;       // so many more
  static constexpr uint32_t kAhead = 512 * 1024;  // bytes that a stream has to read: more than that is not taken in for it
  static constexpr Nanoseconds kPatience = 500 * kMicrosecond;  // with whoever reads them
  static constexpr Nanoseconds kStale = 2 * kMillisecond;

  static constexpr uint32_t kPiecesMore = 2 * kMost;  // of a stream: each may stand between two parts of a chunk

  explicit KeptMessages(uint32_t least = kLeast, uint64_t span = kSpan) noexcept : least_(least), span_(span) {}
  KeptMessages(const KeptMessages&) = delete;
  KeptMessages& operator=(const KeptMessages&) = delete;
  virtual ~KeptMessages() = default;

  // A message that comes now: until withdraw() its data may be kept. Returns the number under which it would be, below kMost + 1.
  uint32_t offer(Bytes message) noexcept {
    UNET_CHECK(offered_ == kNone);
    count(message.size());
    for (offered_ = 0; kept_[offered_].of != nullptr; ++offered_) {}
    message_ = message;
    return offered_;
  }
  // True: it was kept, and is released by release(), or was already.
  bool withdraw() noexcept {
    const bool kept = offered_ == kNone;
    offered_ = kNone;
    return kept;
  }
  // A message that is not offered comes.
  void count(size_t bytes) noexcept { came_ += bytes + kOfEach; }
  // How many more are to be taken in now. Whoever reads them is not given more than he comes to soon, so that none has to be copied; who
  // has read none for a while may look for something else, which may be behind what comes.
  uint32_t intake(Nanoseconds now) noexcept;
  // The oldest is to be copied: ReceiveBuffer::copy_oldest().
  bool is_late() const noexcept { return used_ != 0 && came_ - kept_[oldest()].came > span_; }
  // Likewise, if nothing has come: perhaps because the network has no memory left.
  bool is_stale() const noexcept { return used_ != 0 && now_ - std::max(read_at_, kept_[oldest()].at) > kStale; }

 protected:
  // Nobody has data of this one any longer.
  virtual void release(uint32_t message) noexcept = 0;

 private:
  friend class ReceiveBuffer;

  static constexpr uint8_t kNone = 0xFF;

  struct Kept {
    ReceiveBuffer* of = nullptr;  // nullptr: unused
    ip::TcpSequence begin{};      // in the stream, of
    Bytes data{};                 // what is not read yet
    uint32_t chunks = 0;          // that are set aside for its copy
    uint64_t came = 0;            // before it
    Nanoseconds at = 0;           // when
    uint8_t next = kNone;         // of the same stream
  };

  bool is_offered(Bytes data) const noexcept {
    return offered_ != kNone && data.size() >= least_ && data.data() >= message_.data() &&
           data.data() + data.size() <= message_.data() + message_.size();
  }
  bool is_full() const noexcept { return used_ == kMost; }
  // The one that is offered.
  uint8_t take(ReceiveBuffer& of, ip::TcpSequence begin, Bytes data, uint32_t chunks) noexcept {
    const uint8_t taken = offered_;
    kept_[taken] = {.of = &of, .begin = begin, .data = data, .chunks = chunks, .came = came_, .at = now_};
    offered_ = kNone;
    ++used_;
    return taken;
  }
  void give_back(uint8_t number) noexcept {
    kept_[number].of = nullptr;
    --used_;
    release(number);
  }
  uint8_t oldest() const noexcept {
    uint8_t oldest = kNone;
    for (uint8_t i = 0; i < kept_.size(); ++i) {
      if (kept_[i].of != nullptr && (oldest == kNone || kept_[i].came < kept_[oldest].came)) oldest = i;
    }
    return oldest;
  }

  const uint32_t least_;
  const uint64_t span_;
  std::array<Kept, kMost + 1> kept_{};  // with room for the one that is offered
  uint64_t came_ = 0;
  Nanoseconds now_ = 0, read_at_ = 0;  // of the last intake(), and when one, or what is in front of one, was read
  const ReceiveBuffer* last_ = nullptr;  // that something was offered for
  Bytes message_{};
  uint8_t offered_ = kNone;
  uint8_t used_ = 0;
};

}  // namespace unet::tcp
