// transport.h - how a rank reaches the others by messages; implemented over Active Messages (am_transport.h) and by tests; used by Node.
//
// To each peer requests arrive exactly once and in order, and are handled in that order; so are the replies to them. `operation` is what a
// message is about, from 1 on; words are 32 bits.
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
constexpr uint32_t kWordsMax = 10;               // of a message that is one cache line
constexpr uint32_t kAnswerWordsMax = 4;
constexpr uint32_t kMediumBytesMax = 16 * 1024;

using Words = std::span<const uint32_t>;

struct Arrival {
  Rank from;
  uint8_t operation;
  bool is_request;
  Words words;
  Bytes payload;       // until the handler returns; of what went to a segment: there
};

// What a request's handler sends back; operation 0: nothing.
struct Answer {
  uint8_t operation = 0;
  uint8_t count = 0;
  std::array<uint32_t, kAnswerWordsMax> words{};
};

// Who handles what arrives: called from poll() and wait(), and from requests. It sends nothing but its answer.
class Receiver {
 public:
  virtual void handle(const Arrival& arrival, Answer& answer) = 0;
  // A message to `rank` could not be delivered: it "is gone", or what else is the matter with it.
  virtual void come_back(Rank rank, uint8_t operation, std::string_view what) = 0;

 protected:
  ~Receiver() = default;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual Rank rank() const noexcept = 0;
  virtual uint32_t size() const noexcept = 0;
  // Waits until all ranks can be reached, which takes part in theirs. Before it memory() is there; what others send meanwhile is handled.
  virtual Status connect() = 0;
  // The spread memory of this rank; zero at first. As much at all ranks.
  virtual MutableBytes memory() const noexcept = 0;
  // That of a direct peer, which is loaded from and stored to; empty: there are only messages.
  virtual MutableBytes memory_of(Rank rank) noexcept = 0;
  // Its process is on the same machine, and shares its cores.
  virtual bool is_near(Rank rank) const noexcept = 0;
  virtual void set_receiver(Receiver& receiver) noexcept = 0;

  // Requests. False: there is no room for one more to that rank, and nothing was done; by and by poll() and wait() make some. Not from a
  // handler. `to` is another rank. Those of many parts may wait for room themselves once they have begun.
  [[nodiscard]] virtual bool request(Rank to, uint8_t operation, Words words) = 0;
  [[nodiscard]] virtual bool request_medium(Rank to, uint8_t operation, Bytes payload, Words words) = 0;
  // Copies to `offset` of the peer's memory, then has `operation` handled there. `payload` is the caller's again at return.
  [[nodiscard]] virtual bool request_long(Rank to, uint8_t operation, uint64_t offset, Bytes payload, Words words) = 0;
  // Copies from `offset` of the peer's memory to `memory`, which stays until `operation` is handled here.
  [[nodiscard]] virtual bool request_get(Rank from, uint8_t operation, uint64_t offset, MutableBytes memory, Words words) = 0;

  // Handles what has arrived; returns how many messages that were.
  virtual uint32_t poll() = 0;
  // Sleeps until something may have arrived, at most `limit`; then poll().
  virtual void wait(Nanoseconds limit) = 0;
  virtual Nanoseconds now() const noexcept = 0;
  // Its process has ended or is lost.
  virtual bool is_gone(Rank rank) noexcept = 0;

  // Nothing more is requested. Waits until what was sent has left.
  virtual void finish() = 0;
  // Ends the whole job, and says why; `text` has no newline.
  [[noreturn]] virtual void end_job(const std::string& text) = 0;
};

}  // namespace unet::splitc
