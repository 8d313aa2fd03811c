// neighbours.h - which station of the link has an IP address: the neighbour cache of RFC 4861, 7.3, for IPv6 and, by ARP, for IPv4, as a
// machine without I/O and clock; used by the stack of a host.
//
//   nothing --resolve()--> incomplete --answer--> reachable --time--> stale --resolve()--> delay --5 s--> probe --3 questions--> nothing
//
// Who does not answer three questions is nothing again. An answer, or confirm(), makes each of the others reachable; another station, or a
// question of theirs from one, makes it stale (RFC 4861, appendix C).
//
// Whoever has a packet for a neighbour that is not resolved gives it to the entry, as a number; it comes back when the neighbour is known
// or given up, or when there is no room for it. The table does not grow: entries that others made and that nobody has used go first.
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
  Nanoseconds retransmit = kSecond;        // between questions; a router may say another (RFC 4861, 4.2)
  Nanoseconds reachable = 30 * kSecond;    // that an answer is believed; each entry's own is between half and one and a half of it
  Nanoseconds delay_first_probe = 5 * kSecond;
  uint32_t multicast_questions = 3, unicast_questions = 3;
  uint64_t seed = 1;                       // of the spread of `reachable`
};

struct NeighbourCounters {
  uint64_t questions = 0, resolved = 0, failed = 0;
  uint64_t packets_dropped = 0;  // of those that waited: no room, or the neighbour was given up
  uint64_t evicted = 0;          // entries, for others
  uint64_t no_place = 0;         // lookups that found none
};

class Neighbours {
 public:
  static constexpr uint32_t kWaitingMax = 3;  // packets of an entry (RFC 4861, 7.2.2 asks for one)
  enum class State : uint8_t { incomplete, reachable, stale, delay, probe };

  explicit Neighbours(const NeighbourOptions& options = {});

  // Where packets to `address`, a neighbour's, go. Nothing: it is being asked for, or there is no place (then nothing waits either).
  std::optional<MacAddress> resolve(const IpAddress& address, Nanoseconds now) noexcept;
  // A packet waits until resolve() has an answer. Returns the one that has to be dropped for it: the oldest of those that wait, or it
  // itself if the address is not being asked for.
  std::optional<uint32_t> wait(const IpAddress& address, uint32_t packet) noexcept;

  // An answer that was asked for: of ARP, or an advertisement with its flags (RFC 4861, 7.2.5). Without a station only flags count.
  void handle_answer(const IpAddress& address, const std::optional<MacAddress>& station, bool solicited, bool override_entry, bool router,
                     Nanoseconds now) noexcept;
  // They ask us, or a router advertises: so it is there, whether or not we reach it (RFC 4861, 7.2.3).
  void handle_question(const IpAddress& address, const MacAddress& station, Nanoseconds now) noexcept;
  // A higher layer has heard what only an answer can be (RFC 4861, 7.3.1).
  void confirm(const IpAddress& address, Nanoseconds now) noexcept;

  // An entry that is kept whatever happens; false: there is no place.
  bool set_static(const IpAddress& address, const MacAddress& station) noexcept;
  void remove(const IpAddress& address) noexcept;
  // All but the static ones: the link is another one.
  void forget() noexcept;

  struct Question {
    IpAddress target{};
    std::optional<MacAddress> station{};  // whom to ask; nothing: everybody (ARP), or the group of the address
  };
  // Each in turn until there is none; then nothing is due before next_event(), and perhaps nothing even then.
  bool poll_question(Nanoseconds now, Question& question) noexcept;
  struct Released {
    uint32_t packet = 0;
    bool failed = false;        // to be dropped, and its sender told that the host is unreachable
    IpAddress address{};
    MacAddress station{};
  };
  bool poll_released(Released& released) noexcept;
  Nanoseconds next_event() const noexcept { return next_; }

  void set_times(Nanoseconds reachable, Nanoseconds retransmit) noexcept;  // 0: as it is

  std::optional<State> state(const IpAddress& address) const noexcept;
  bool is_router(const IpAddress& address) const noexcept;
  uint32_t used() const noexcept { return used_; }
  const NeighbourCounters& counters() const noexcept { return counters_; }

 private:
  struct Entry {
    IpAddress address{};
    MacAddress station{};
    State state = State::incomplete;
    bool used = false, fixed = false, router = false, wanted = false;  // wanted: resolve() was called
    uint8_t asked = 0;                  // questions without an answer
    uint8_t waiting = 0;
    std::array<uint32_t, kWaitingMax> packets{};
    Nanoseconds due = ~Nanoseconds{0};  // when the state changes by itself, or the next question is due
    Nanoseconds last_used = 0;
  };

  uint32_t home_of(const IpAddress& address) const noexcept;
  Entry* find(const IpAddress& address) noexcept;
  const Entry* find(const IpAddress& address) const noexcept;
  Entry* open(const IpAddress& address, Nanoseconds now) noexcept;
  bool evict() noexcept;
  void erase(Entry& entry) noexcept;
  void set_due(Entry& entry, Nanoseconds due) noexcept;
  void become_reachable(Entry& entry, Nanoseconds now) noexcept;
  void become_stale(Entry& entry) noexcept;
  void release(Entry& entry, bool failed) noexcept;
  bool look_at(Entry& entry, Nanoseconds now, Question& question) noexcept;

  NeighbourOptions options_;
  std::vector<Entry> table_;       // by home_of(), with linear probing; a power of two, at most half of it used
  std::vector<Released> released_;
  uint32_t used_ = 0, cursor_ = 0;
  uint64_t random_;
  Nanoseconds next_ = ~Nanoseconds{0}, next_pass_ = ~Nanoseconds{0};
  NeighbourCounters counters_;
};

}  // namespace unet::ip
