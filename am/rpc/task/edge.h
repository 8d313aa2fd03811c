// edge.h - one end of an edge between parent and child in a job: what waits to be sent, the windows of both directions, and signs of life.
#pragma once

#include <algorithm>
#include <deque>

#include "am/rpc/task/record.h"
#include "unet/base/time.h"

namespace unet::rpc {

constexpr Nanoseconds kAliveEvery = 2 * kSecond;    // an end sends something at least this often
constexpr Nanoseconds kSilenceMax = 10 * kSecond;   // an end that is silent for longer is lost

class Edge {
 public:
  Edge(uint64_t key, Links::Id link, Nanoseconds now) noexcept : key_(key), link_(link), heard_at_(now), said_at_(now) {}

  uint64_t key() const noexcept { return key_; }
  Links::Id link() const noexcept { return link_; }

  // ---- sending
  void push(RecordType type, uint32_t a = 0, uint32_t b = 0, Payload payload = {});
  // Sends what the link and the peer's window take.
  void flush(Links& links, Nanoseconds now);
  // The cost of bulk records that wait.
  uint32_t waiting() const noexcept { return waiting_; }
  bool all_sent() const noexcept { return urgent_.empty() && ordered_.empty(); }
  // Forgets bulk records and credits: the peer is about to end.
  void drop_bulk();

  // ---- receiving
  // Does the books of any record that came. False: the peer broke the protocol.
  bool hear(const TaskRecord& record, Nanoseconds now) noexcept;
  // The receiver is done with bulk records of this cost.
  void consumed(uint32_t cost);
  bool is_silent(Nanoseconds now) const noexcept { return now >= heard_at_ + kSilenceMax; }
  // When flush() has to say something. While a sign of life waits for the link, no other is due.
  Nanoseconds say_at() const noexcept { return urgent_.empty() ? said_at_ + kAliveEvery : kNever; }
  // When to look at the edge again.
  Nanoseconds due() const noexcept { return std::min(heard_at_ + kSilenceMax, say_at()); }

 private:
  static constexpr size_t kUrgentMax = 64;  // signals beyond are dropped, as the kernel merges them
  struct Item {
    RecordType type;
    uint32_t a, b;
    Payload payload;
    uint32_t cost() const noexcept { return is_bulk(type) ? cost_of(payload ? payload->size() : 0) : 0; }
  };
  bool send(Links& links, const Item& item, Nanoseconds now);

  uint64_t key_;
  Links::Id link_;
  std::deque<Item> urgent_, ordered_;
  uint32_t waiting_ = 0;
  uint32_t under_way_ = 0;    // cost of bulk records that the peer has not consumed
  uint32_t unconsumed_ = 0;   // cost of bulk records that we have not consumed
  uint32_t uncredited_ = 0;   // cost that we have consumed, and the peer does not know
  Nanoseconds heard_at_, said_at_;
};

}  // namespace unet::rpc
