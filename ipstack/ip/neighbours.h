// neighbours.h - the neighbour cache (RFC 4861, 7.3), for IPv6 and, by ARP, for IPv4, without I/O and clock; used by Host.
//
//   nothing --resolve()--> incomplete --answer--> reachable --time--> stale --resolve()--> delay --5 s--> probe --3 questions--> nothing
//
// A neighbour that does not answer three questions is removed. An answer, or confirm(), makes an entry reachable. Another station, or an
// unsolicited message from one, makes it stale (RFC 4861, appendix C).
//
// The caller gives packets for an unresolved neighbour to wait(), as numbers. poll_released() returns them when the neighbour is resolved
// or given up, or when its entry is evicted. The table does not grow: entries that were learned from others and never used are evicted
// first.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "unet/base/time.h"
#include "unet/wire/ethernet.h"

namespace unet::ip {

struct NeighbourOptions {
  uint32_t places = 512;
  Nanoseconds retransmit = kSecond;        // RetransTimer, between questions; a router may change it (RFC 4861, 4.2)
  // BaseReachableTime; each entry's own time is between half and one and a half of it.
  Nanoseconds reachable = 30 * kSecond;
  Nanoseconds delay_first_probe = 5 * kSecond;
  uint32_t multicast_questions = 3, unicast_questions = 3;
  uint64_t seed = 1;                       // randomizes `reachable`
};

struct NeighbourCounters {
  uint64_t questions = 0, resolved = 0, failed = 0;
  uint64_t packets_dropped = 0;  // waiting packets: no room, or the neighbour was given up
  uint64_t evicted = 0;          // entries that were replaced
};

class Neighbours {
 public:
  static constexpr uint32_t kWaitingMax = 3;  // packets per entry (RFC 4861, 7.2.2 requires one)
  enum class State : uint8_t { incomplete, reachable, stale, delay, probe };

  explicit Neighbours(const NeighbourOptions& options = {});

  // The station of neighbour `address`. nullopt: resolution is in progress.
  std::optional<MacAddress> resolve(const IpAddress& address, Nanoseconds now) noexcept;
  // Queues a packet until `address` is resolved. Returns a packet that must be dropped: the oldest one in a full queue, or `packet` itself
  // if resolution is not in progress.
  std::optional<uint32_t> wait(const IpAddress& address, uint32_t packet) noexcept;

  // An ARP reply, or a neighbour advertisement with its flags (RFC 4861, 7.2.5). Without a station only the flags count.
  void handle_answer(const IpAddress& address, const std::optional<MacAddress>& station, bool solicited, bool override_entry,
                     Nanoseconds now) noexcept;
  // An ARP request, a solicitation or an advertisement from a neighbour: creates or updates a stale entry (RFC 4861, 7.2.3).
  void handle_question(const IpAddress& address, const MacAddress& station, Nanoseconds now) noexcept;
  // Reachability confirmation by a higher layer (RFC 4861, 7.3.1).
  void confirm(const IpAddress& address, Nanoseconds now) noexcept;

  // Removes all entries: the link has changed.
  void forget() noexcept;

  struct Question {
    IpAddress target{};
    std::optional<MacAddress> station{};  // unicast destination; nullopt: broadcast (ARP), or the solicited-node group
  };
  // Returns the questions that are due, one per call. After false, none is due before next_event(), and perhaps none then.
  bool poll_question(Nanoseconds now, Question& question) noexcept;
  struct Released {
    uint32_t packet = 0;
    bool failed = false;        // drop the packet, and report the host unreachable to its sender
    IpAddress address{};
    MacAddress station{};
  };
  bool poll_released(Released& released) noexcept;
  Nanoseconds next_event() const noexcept { return next_; }

  void set_times(Nanoseconds reachable, Nanoseconds retransmit) noexcept;  // 0: unchanged

  std::optional<State> state(const IpAddress& address) const noexcept;
  uint32_t used() const noexcept { return used_; }
  const NeighbourCounters& counters() const noexcept { return counters_; }

 private:
  struct Entry {
    IpAddress address{};
    MacAddress station{};
    State state = State::incomplete;
    bool used = false, wanted = false;  // wanted: resolve() was called
    uint8_t asked = 0;                  // unanswered questions
    uint8_t waiting = 0;
    std::array<uint32_t, kWaitingMax> packets{};
    Nanoseconds due = ~Nanoseconds{0};  // next state change or question
    Nanoseconds last_used = 0;
  };

  uint32_t home_of(const IpAddress& address) const noexcept;
  Entry* find(const IpAddress& address) noexcept;
  const Entry* find(const IpAddress& address) const noexcept;
  Entry* open(const IpAddress& address, Nanoseconds now) noexcept;
  void evict() noexcept;
  void erase(Entry& entry) noexcept;
  void set_due(Entry& entry, Nanoseconds due) noexcept;
  void become_reachable(Entry& entry, Nanoseconds now) noexcept;
  void become_stale(Entry& entry) noexcept;
  void release(Entry& entry, bool failed) noexcept;
  bool poll_entry(Entry& entry, Nanoseconds now, Question& question) noexcept;

  NeighbourOptions options_;
  std::vector<Entry> table_;       // open addressing from home_of() with linear probing; a power of two, at most half full
  std::vector<Released> released_;
  uint32_t used_ = 0, cursor_ = 0;
  uint64_t random_;
  Nanoseconds next_ = ~Nanoseconds{0}, next_pass_ = ~Nanoseconds{0};
  NeighbourCounters counters_;
};

}  // namespace unet::ip
