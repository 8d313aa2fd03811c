// call_message.h - the Active Messages of calls: handler numbers, words and limits; used by Client and Server.
//
//   request   call id | binding | head | [deadline] | [total, 2 words] | arguments
//   piece     call id | offset, 2 words; payload: the next bytes of long arguments
//   answer    call id | head | result, or the number of a failure
//   piece     call id | total, 2 words | offset, 2 words; payload: the next bytes of a long result
//
// Arguments or a result that fit stand behind the words in the same cache line; longer ones are the payload. An answer is the reply of the
// request's handler. A late answer is a request on the same channel in the other direction (am::Options::both_ways), with the same words.
// The peer writes every word: each is checked where it is read.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "am/local_link.h"
#include "am/rpc/codec.h"
#include "unet/base/bytes.h"

namespace unet::rpc {

// The number of a call or a binding: an index in the lower bits, and above it how often the index was used.
constexpr uint32_t kIndexBits = 20;
constexpr uint32_t kIndexMask = (1u << kIndexBits) - 1;

// Handlers of a server, then those of a client.
constexpr uint8_t kCallHandler = 1, kPieceHandler = 2;
constexpr uint8_t kAnswerHandler = 3, kAnswerPieceHandler = 4;

constexpr uint32_t kInlineArguments = 4 * (am::kLineArguments - 3);  // bytes of arguments in a request's line
constexpr uint32_t kInlineResult = 4 * (am::kLineArguments - 2);     // bytes of a result in an answer's line
constexpr uint32_t kPayloadMax = am::kMediumMax;                     // bytes of arguments or a result in one message

// The third word of a request. Each part has a word here: a load of one word over several narrower stores would wait until these have left
// the core, behind the slots of earlier messages.
struct CallHead {
  static constexpr uint8_t kOneWay = 1;    // no answer
  static constexpr uint8_t kDeadline = 2;  // a word with microseconds follows
  static constexpr uint8_t kLong = 4;      // two words with the total length follow; the payload is the beginning
  static constexpr uint8_t kControl = 8;   // the procedure is one of Control

  uint32_t procedure = 0;  // 16 bits
  uint32_t flags = 0;      // 8 bits
  uint32_t length = 0;     // 8 bits: bytes of arguments behind the words; 0 if they are the payload

  uint32_t word() const noexcept { return procedure | flags << 16 | length << 24; }
  static CallHead of(uint32_t word) noexcept { return {word & 0xFFFF, word >> 16 & 0xFF, word >> 24}; }
  bool has(uint8_t flag) const noexcept { return (flags & flag) != 0; }
};

// Procedures of the server itself.
struct Control {
  static constexpr uint16_t kImport = 0;   // arguments: version (4 bytes), name; result: binding (4 bytes)
  static constexpr uint16_t kRelease = 1;  // ends `binding`; one way
  static constexpr uint16_t kCancel = 2;   // cancels the call with this id; one way
};

// The second word of an answer.
struct AnswerHead {
  uint8_t status = 0;
  uint8_t length = 0;  // bytes of the result behind the words; 0 if it is the payload

  uint32_t word() const noexcept { return status | uint32_t{length} << 8; }
  static AnswerHead of(uint32_t word) noexcept { return {static_cast<uint8_t>(word), static_cast<uint8_t>(word >> 8)}; }
};

// Returns whether values of these types may need no more bytes than that.
template <typename... Values>
constexpr bool fit(size_t bytes) noexcept {
  if constexpr (kIsFixed<Values...>) {
    return kFixedSize<Values...> <= bytes;
  } else {
    return true;
  }
}

// The words of one message, as they grow.
class MessageWords {
 public:
  MessageWords() noexcept {}  // leaves the words unset, also in an aggregate
  void add(uint32_t word) noexcept { words_[count_++] = word; }
  void add_wide(uint64_t value) noexcept {
    add(static_cast<uint32_t>(value));
    add(static_cast<uint32_t>(value >> 32));
  }
  // Returns room for `bytes` behind the words, which become part of them. The caller knows that they fit.
  std::byte* add_bytes(size_t bytes) noexcept {
    auto* const at = reinterpret_cast<std::byte*>(words_.data() + count_);
    if (bytes % 4 != 0) words_[count_ + bytes / 4] = 0;
    count_ += static_cast<uint32_t>((bytes + 3) / 4);
    return at;
  }
  uint32_t size() const noexcept { return count_; }
  operator std::span<const uint32_t>() const noexcept { return {words_.data(), count_}; }

 private:
  uint32_t count_ = 0;
  std::array<uint32_t, am::kArgumentsMax> words_;
};

// Reads the words of a message one after another; `ok()` is false once one was missing.
class WordReader {
 public:
  explicit WordReader(std::span<const uint32_t> words) noexcept : words_(words) {}
  uint32_t take() noexcept {
    if (at_ < words_.size()) return words_[at_++];
    ok_ = false;
    return 0;
  }
  uint64_t take_wide() noexcept {
    const uint64_t low = take();
    return low | uint64_t{take()} << 32;
  }
  // Returns the rest as bytes, the first `length` of them.
  Bytes take_bytes(size_t length) noexcept {
    const Bytes rest = as_bytes(reinterpret_cast<const char*>(words_.data() + at_), (words_.size() - at_) * 4);
    if (length <= rest.size() && rest.size() - length < 4) return rest.first(length);
    ok_ = false;
    return {};
  }
  bool ok() const noexcept { return ok_; }

 private:
  std::span<const uint32_t> words_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace unet::rpc
