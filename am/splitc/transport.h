// transport.h - how a rank reaches the others by messages; Active Messages (am_transport.h) and tests implement it; used by Node.
//
// Requests to a peer arrive exactly once and in order, and are handled in that order; so are the replies. `operation` is the kind of a
// message, from 1 on; words have 32 bits.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "am/splitc/global.h"
#include "unet/base/bytes.h"
#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::splitc {

constexpr uint32_t kOperationsMax = 32;
constexpr uint32_t kWordsMax = 10;               // words of a message that fits one cache line
constexpr uint32_t kAnswerWordsMax = 4;
constexpr uint32_t kMediumBytesMax = 16 * 1024;

using Words = std::span<const uint32_t>;

struct Arrival {
  Rank from;
  uint8_t operation;
  bool is_request;
  Words words;
  Bytes payload;       // valid until the handler returns; for a long message: in the segment
};

// The answer of a request's handler; operation 0: none.
struct Answer {
  uint8_t operation = 0;
  uint8_t count = 0;
  std::array<uint32_t, kAnswerWordsMax> words{};
};

// Handles arriving messages; called from poll(), wait() and the requests. A handler sends nothing but its answer.
class Receiver {
 public:
  virtual void handle(const Arrival& arrival, Answer& answer) = 0;
  // A message to `rank` could not be delivered; `what` says why ("is gone" ...).
  virtual void come_back(Rank rank, uint8_t operation, std::string_view what) = 0;

 protected:
  ~Receiver() = default;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual Rank rank() const noexcept = 0;
  virtual uint32_t size() const noexcept = 0;
  // Waits until all ranks can be reached; all call it. memory() exists before the call. Messages of others are handled meanwhile.
  virtual Status connect() = 0;
  // Returns the spread memory of this rank, zero at first, equally large at all ranks.
  virtual MutableBytes memory() const noexcept = 0;
  // Returns the memory of a direct peer, for loads and stores; empty if only messages reach the peer.
  virtual MutableBytes memory_of(Rank rank) noexcept = 0;
  // Returns true if its process shares this machine's cores.
  virtual bool is_near(Rank rank) const noexcept = 0;
  virtual void set_receiver(Receiver& receiver) noexcept = 0;

  // Requests to another rank. False: there is no room for the message and nothing was done; poll() and wait() make room in time. Not from a
  // handler. A request of many parts may wait for room itself once it has begun.
  [[nodiscard]] virtual bool request(Rank to, uint8_t operation, Words words) = 0;
  [[nodiscard]] virtual bool request_medium(Rank to, uint8_t operation, Bytes payload, Words words) = 0;
  // Copies to `offset` of the peer's memory, then the peer handles `operation`. The caller may reuse `payload` at return.
  [[nodiscard]] virtual bool request_long(Rank to, uint8_t operation, uint64_t offset, Bytes payload, Words words) = 0;
  // Copies from `offset` of the peer's memory to `memory`, which must exist until `operation` is handled here.
  [[nodiscard]] virtual bool request_get(Rank from, uint8_t operation, uint64_t offset, MutableBytes memory, Words words) = 0;

  // Handles messages that have arrived; returns their number.
  virtual uint32_t poll() = 0;
  // Sleeps up to `limit` until something may have arrived, then polls.
  virtual void wait(Nanoseconds limit) = 0;
  virtual Nanoseconds now() const noexcept = 0;
  // Returns true if its process has ended or is lost.
  virtual bool is_gone(Rank rank) noexcept = 0;

  // Waits until everything sent has left. No request follows.
  virtual void finish() = 0;
  // Ends the whole job and prints `text`, which has no newline.
  [[noreturn]] virtual void end_job(const std::string& text) = 0;
};

}  // namespace unet::splitc
