// flow_owners.h - which member of a share (unet/ip.h) owns which TCP connection, learned from what members send; used by PortBindings.
//
// A flow is opening after a SYN-ACK was sent. It is established when exactly that sequence number was acknowledged, or when its owner has
// sent anything else. It is ending when its owner has sent a FIN or a reset, or the peer a reset. Forged SYNs only make openings. Each user
// has a bounded number of them, which evict each other and never an established flow.
//
// A flow has no owner any more when the claim is released: claims have lives, and a flow stores that of its owner.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "ni/engine/ni_counters.h"
#include "unet/limits.h"
#include "unet/wire/address.h"

namespace unet::engine {

// Both ends of a connection; `local` is the end of its owner.
struct IpFlow {
  ip::IpAddress local{}, remote{};
  uint16_t local_port = 0, remote_port = 0;

  bool operator==(const IpFlow&) const noexcept = default;
};
static_assert(sizeof(IpFlow) == 36);

// The fields of a TCP header that change a flow.
struct TcpSigns {
  uint8_t flags = 0;             // ip::TcpFlags
  uint32_t sequence = 0, acknowledgement = 0;

  bool any(uint8_t of) const noexcept { return (flags & of) != 0; }
};

class FlowOwners {
 public:
  enum class State : uint8_t { opening, established, ending };
  static constexpr uint32_t kEnd = ~uint32_t{0};

  // A claim in one life.
  struct Owner {
    uint32_t claim = kEnd, life = 0;
    bool operator==(const Owner&) const noexcept = default;
  };
  struct Entry {
    IpFlow flow;
    Owner owner;
    uint32_t begin = 0;                    // opening: sequence number of our SYN-ACK
    uint32_t next = kEnd;                  // next with the same hash, or next free
    uint32_t newer = kEnd, older = kEnd;   // list of the same user and state
    uint16_t user = 0;                     // index of users_
    State state = State::opening;
    bool fin_sent = false;
  };

  FlowOwners(uint64_t seed, NiCounters& counters) noexcept : seed_(seed), counters_(counters) {}

  // One number for all shares of a user; handle_send() takes it.
  uint16_t add_user(uint64_t user);
  // Keyed, so that peers cannot choose it.
  uint64_t hash(const IpFlow& flow) const noexcept;

  // nullptr: no known owner.
  Entry* find(uint64_t hash, const IpFlow& flow) noexcept;
  const Entry* find(uint64_t hash, const IpFlow& flow) const noexcept { return const_cast<FlowOwners*>(this)->find(hash, flow); }
  // `owner`, which may be a new one, has sent such a segment. `entry`: the result of find().
  void handle_send(Entry* entry, uint64_t hash, const IpFlow& flow, const Owner& owner, uint16_t user, const TcpSigns& signs) noexcept;
  // Such a segment arrived for the owner.
  void handle_arrival(Entry& entry, const TcpSigns& signs) noexcept;
  // The previous engine knew the flow as established.
  void resume(const IpFlow& flow, const Owner& owner, uint16_t user) noexcept;
  void forget(Entry& entry) noexcept { drop(index_of(entry)); }

  uint32_t size() const noexcept { return count_; }
  uint32_t size_of(uint16_t user, State state) const noexcept { return users_[user].lists[static_cast<size_t>(state)].count; }

 private:
  static constexpr uint32_t kBuckets = 128 * 1024;
  static constexpr uint32_t kBlock = 1024;   // entries allocated at a time, at fixed addresses

  struct List {
    uint32_t count = 0, oldest = kEnd, newest = kEnd;
  };
  struct User {
    uint64_t user = 0;
    std::array<List, 3> lists{};             // by state
    uint32_t count() const noexcept { return lists[0].count + lists[1].count + lists[2].count; }
  };

  Entry& at(uint32_t index) noexcept { return blocks_[index / kBlock][index % kBlock]; }
  List& list_of(const Entry& entry) noexcept { return users_[entry.user].lists[static_cast<size_t>(entry.state)]; }
  uint32_t index_of(const Entry& entry) noexcept;
  uint32_t make(uint64_t hash, const IpFlow& flow, uint16_t user, State state) noexcept;
  bool make_room(uint16_t user) noexcept;
  void drop(uint32_t index) noexcept;
  void link(uint32_t index) noexcept;
  void unlink(uint32_t index) noexcept;
  void move(Entry& entry, State state) noexcept;

  const uint64_t seed_;
  NiCounters& counters_;
  std::vector<User> users_;                  // never removed
  std::vector<uint32_t> buckets_;            // empty until there is a share
  std::vector<std::unique_ptr<Entry[]>> blocks_;
  uint32_t free_ = kEnd;
  uint32_t count_ = 0;
};

}  // namespace unet::engine
