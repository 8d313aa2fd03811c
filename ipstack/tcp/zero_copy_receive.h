// zero_copy_receive.h - zero-copy receive: the data of a few messages stays in the network's buffers until the application reads it. It is
// copied after all if so much arrives that the network may need the buffers, or if nothing arrives and nothing is read. Used by
// ReceiveBuffer, and by the stack, which offers the messages (offer()).
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

class ZeroCopyReceive {
 public:
  static constexpr uint32_t kMost = 8;            // messages
  static constexpr uint32_t kLeast = 4096;        // bytes of data: less is copied
  static constexpr uint64_t kSpan = 768 * 1024;   // a message is copied once so many bytes have arrived after it
  static constexpr uint64_t kOfEach = 8192;       // each message counts so many bytes more
  static constexpr uint32_t kAhead = 512 * 1024;  // unread bytes of a stream beyond which intake stops for it
  static constexpr Nanoseconds kPatience = 500 * kMicrosecond;  // how long intake waits for the reader
  static constexpr Nanoseconds kStale = 2 * kMillisecond;

  static constexpr uint32_t kPiecesMore = 2 * kMost;  // of one stream: each may lie between two parts of a chunk

  explicit ZeroCopyReceive(uint32_t least = kLeast, uint64_t span = kSpan) noexcept : least_(least), span_(span) {}
  ZeroCopyReceive(const ZeroCopyReceive&) = delete;
  ZeroCopyReceive& operator=(const ZeroCopyReceive&) = delete;
  virtual ~ZeroCopyReceive() = default;

  // Offers an incoming message: until withdraw(), its data may be kept. Returns the number that it would have, below kMost + 1.
  uint32_t offer(Bytes message) noexcept {
    UNET_CHECK(offered_ == kNone);
    count(message.size());
    for (offered_ = 0; kept_[offered_].of != nullptr; ++offered_) {}
    message_ = message;
    return offered_;
  }
  // True: the message is kept; release() releases it, or already has.
  bool withdraw() noexcept {
    const bool kept = offered_ == kNone;
    offered_ = kNone;
    return kept;
  }
  // Counts an incoming message that is not offered.
  void count(size_t bytes) noexcept { came_ += bytes + kOfEach; }
  // Returns how many more messages to take in now. A reader gets no more than it soon reads, so that none must be copied. If it has not
  // read for kPatience, it may wait for something further back in the queue, and intake continues.
  uint32_t intake(Nanoseconds now) noexcept;
  // The oldest message must be copied now: call ReceiveBuffer::copy_oldest().
  bool is_late() const noexcept { return used_ != 0 && came_ - kept_[oldest()].came > span_; }
  // The oldest message must be copied while nothing arrives: the network may be out of buffers.
  bool is_stale() const noexcept { return used_ != 0 && now_ - std::max(read_at_, kept_[oldest()].at) > kStale; }

 protected:
  // The last data of this message was read or copied.
  virtual void release(uint32_t message) noexcept = 0;

 private:
  friend class ReceiveBuffer;

  static constexpr uint8_t kNone = 0xFF;

  struct Kept {
    ReceiveBuffer* of = nullptr;  // nullptr: unused
    ip::TcpSequence begin{};      // sequence number of `data` in the stream
    Bytes data{};                 // unread data
    uint32_t chunks = 0;          // chunks set aside for a copy of it
    uint64_t came = 0;            // came_ when it arrived
    Nanoseconds at = 0;           // when it arrived
    uint8_t next = kNone;         // next message of the same stream
  };

  bool is_offered(Bytes data) const noexcept {
    return offered_ != kNone && data.size() >= least_ && data.data() >= message_.data() &&
           data.data() + data.size() <= message_.data() + message_.size();
  }
  bool is_full() const noexcept { return used_ == kMost; }
  // Takes the offered message.
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
  std::array<Kept, kMost + 1> kept_{};  // one more than kMost: the offered one
  uint64_t came_ = 0;
  // Time of the last intake(), and when the application last read kept data, or data before it.
  Nanoseconds now_ = 0, read_at_ = 0;
  const ReceiveBuffer* last_ = nullptr;  // stream that data was last offered for
  Bytes message_{};
  uint8_t offered_ = kNone;
  uint8_t used_ = 0;
};

}  // namespace unet::tcp
