// datagram_queue.h - received datagrams that wait for the application, in one ring of bytes; used by the stack.
//
// A payload byte is copied once, into the ring, and once more when the application takes it. The ring is made with the first datagram.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "ipstack/sockets/address.h"
#include "unet/base/bytes.h"
#include "unet/base/time.h"

namespace unet::sockets {

constexpr uint8_t kHopLimit = 64;  // the host's default

// The fields of an IP header that a datagram's sender may choose and its receiver may ask for.
struct HeaderOptions {
  uint8_t hop_limit = kHopLimit, traffic_class = 0;
  friend bool operator==(const HeaderOptions&, const HeaderOptions&) = default;
};

class DatagramQueue {
 public:
  // A datagram. `segment` (not 0): it is several datagrams of that size that arrived together; the last may be shorter.
  struct Datagram {
    Address from{};
    ip::IpAddress to{};
    uint32_t segment = 0;
    Bytes payload{};  // lies in the ring until pop()
    HeaderOptions header_options{};
    Nanoseconds came = 0;
    uint32_t lost = 0;  // datagrams that the socket has lost before this one
  };

  // False: no room. `lost`: datagrams lost so far for lack of room.
  bool push(uint32_t bytes_max, const Datagram& datagram, uint32_t lost = 0) {
    if (memory_ == nullptr) {
      size_ = std::max(bytes_max, 2 * kLargest);
      memory_.reset(new std::byte[size_]);
    }
    const auto payload = static_cast<uint32_t>(datagram.payload.size());
    const uint32_t bytes = room_for(payload);
    const bool wraps = tail_ >= head_ && size_ - tail_ < bytes;
    if (count_ != 0 && (tail_ == head_ || (tail_ < head_ ? head_ - tail_ < bytes : wraps && head_ < bytes))) return false;
    if (wraps) {
      if (count_ == 0) head_ = 0;
      else if (size_ - tail_ >= sizeof(Head)) new (memory_.get() + tail_) Head{};
      tail_ = 0;
    }
    // Makes the head in place: a load of a wide word waits for all narrow stores that it covers.
    new (memory_.get() + tail_) Head{.bytes = bytes, .payload = payload, .lost = lost, .segment = static_cast<uint16_t>(datagram.segment),
                                     .header_options = datagram.header_options, .came = datagram.came, .from = datagram.from,
                                     .to = datagram.to};
    if (payload != 0) std::memcpy(memory_.get() + tail_ + sizeof(Head), datagram.payload.data(), payload);
    tail_ += bytes;
    if (tail_ == size_) tail_ = 0;
    ++count_;
    waiting_ += payload;
    return true;
  }

  bool empty() const noexcept { return count_ == 0; }
  uint32_t waiting_bytes() const noexcept { return waiting_; }
  // The oldest datagram. Call only if the queue is not empty.
  Datagram front() noexcept {
    skip();
    const Head& head = head_at(head_);
    const Bytes payload{memory_.get() + head_ + sizeof(Head), head.payload};
    return head.datagram(payload.subspan(taken_));
  }
  // Finds the datagram for a peek that skips `skip` bytes of all waiting payload, as Linux's SO_PEEK_OFF counts; an empty datagram is found
  // once. `skip` becomes the bytes to skip in that datagram. False: there is none. `together`: datagrams that arrived together count as
  // one.
  bool find(uint32_t& skip, bool together, Datagram& found) noexcept {
    uint32_t at = head_, taken = taken_;
    for (uint32_t i = 0; i < count_; ++i, taken = 0) {
      at = place_of(at);
      Head& head = head_at(at);
      Bytes left = Bytes(memory_.get() + at + sizeof(Head), head.payload).subspan(taken);
      do {
        const bool several = !together && head.segment != 0 && left.size() > head.segment;
        const Bytes first = several ? left.first(head.segment) : left;
        if (skip < first.size() || (skip == 0 && !head.peeked)) {
          head.peeked = first.empty();
          found = head.datagram(first);
          return true;
        }
        skip -= static_cast<uint32_t>(first.size());
        left = left.subspan(first.size());
      } while (!left.empty());
      at += head.bytes;
      if (at == size_) at = 0;
    }
    return false;
  }
  // Removes the first of several datagrams that arrived together.
  void pop_segment(uint32_t bytes) noexcept {
    taken_ += bytes;
    waiting_ -= bytes;
  }
  void pop() noexcept {
    skip();
    const Head& head = head_at(head_);
    waiting_ -= head.payload - taken_;
    taken_ = 0;
    head_ += head.bytes;
    if (head_ == size_) head_ = 0;
    --count_;
  }

 private:
  struct Head {
    uint32_t bytes = 0;  // size of the record; 0: the next record is at the ring's beginning
    uint32_t payload = 0, lost = 0;
    uint16_t segment = 0;
    HeaderOptions header_options{};
    Nanoseconds came = 0;
    Address from{};
    ip::IpAddress to{};
    bool peeked = false;  // an empty datagram that find() has returned

    Datagram datagram(Bytes data) const noexcept { return {from, to, segment, data, header_options, came, lost}; }
  };
  static_assert(sizeof(Head) == 64 && alignof(Head) == 8);  // the alignment of records
  static constexpr uint32_t kLargest = 64 * 1024 + sizeof(Head) + 8;

  static uint32_t room_for(uint32_t payload) noexcept { return (payload + static_cast<uint32_t>(sizeof(Head)) + 7) & ~7u; }
  Head& head_at(uint32_t at) const noexcept { return *std::launder(reinterpret_cast<Head*>(memory_.get() + at)); }
  // The place of the record at `at`, or the ring's beginning if the ring continues there.
  uint32_t place_of(uint32_t at) const noexcept {
    uint32_t bytes = 0;
    if (size_ - at >= sizeof(Head)) std::memcpy(&bytes, memory_.get() + at + offsetof(Head, bytes), sizeof bytes);
    return bytes == 0 ? 0 : at;
  }
  void skip() noexcept { head_ = place_of(head_); }

  std::unique_ptr<std::byte[]> memory_;
  uint32_t size_ = 0, head_ = 0, tail_ = 0, count_ = 0, waiting_ = 0;
  uint32_t taken_ = 0;  // bytes taken of the oldest
};

}  // namespace unet::sockets
