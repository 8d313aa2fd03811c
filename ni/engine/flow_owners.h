// flow_owners.h - which member of a share (unet/ip.h) has which connection of TCP, as far as members have sent on them; used by
// PortBindings.
//
// A flow is opening when a SYN with ACK has been sent, established when that was acknowledged by exactly its number or its owner has sent
// anything else, and ending when its owner has sent a FIN or a reset, or the peer a reset. So who forges SYNs makes openings, of which each
// user has a bounded number that push out each other, and nothing that has been established.
//
// What was an owner's is nobody's as soon as its claim is gone: claims have lives, and a flow knows that of its owner.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "ni/engine/ni_counters.h"
#include "unet/limits.h"
#include "unet/wire/address.h"

namespace unet::engine {

// Both ends of a connection, as its owner sees them.
struct IpFlow {
  ip::IpAddress local{}, remote{};
  uint16_t local_port = 0, remote_port = 0;

  bool operator==(const IpFlow&) const noexcept = default;
};
static_assert(sizeof(IpFlow) == 36);

// What a segment says about its connection.
struct TcpSigns {
  uint8_t flags = 0;             // ip::TcpFlags
  uint32_t sequence = 0, acknowledgement = 0;

  bool any(uint8_t of) const noexcept { return (flags & of) != 0; }
};

class FlowOwners {
 public:
  enum class State : uint8_t { opening, established, ending };
  static constexpr uint32_t kEnd = ~uint32_t{0};

  // A claim in one of its lives.
  struct Owner {
    uint32_t claim = kEnd, life = 0;
    bool operator==(const Owner&) const noexcept = default;
  };
  struct Entry {
    IpFlow flow;
    Owner owner;
    uint32_t begin = 0;                    // opening: the number of the SYN that was sent
    uint32_t next = kEnd;                  // with the same hash, or free
    uint32_t newer = kEnd, older = kEnd;   // of the same user and state
    uint16_t user = 0;                     // its place in users_
    State state = State::opening;
    bool fin_sent = false;
  };

  FlowOwners(uint64_t seed, NiCounters& counters) noexcept : seed_(seed), counters_(counters) {}

  // For what all of a user's shares have; the number that learn() wants.
  uint16_t add_user(uint64_t user);
  // Of both ends, and such that strangers cannot choose it.
  uint64_t hash(const IpFlow& flow) const noexcept;

  // nullptr: nobody has it that is known.
  Entry* find(uint64_t hash, const IpFlow& flow) noexcept;
  const Entry* find(uint64_t hash, const IpFlow& flow) const noexcept { return const_cast<FlowOwners*>(this)->find(hash, flow); }
  // Its owner, who may be another one than before, has sent such a segment. `entry`: what find() has said.
  void handle_send(Entry* entry, uint64_t hash, const IpFlow& flow, const Owner& owner, uint16_t user, const TcpSigns& signs) noexcept;
  // Such a segment came for its owner.
  void handle_arrival(Entry& entry, const TcpSigns& signs) noexcept;
  // An engine before this one knew it as established.
  void resume(const IpFlow& flow, const Owner& owner, uint16_t user) noexcept;
  void forget(Entry& entry) noexcept { drop(index_of(entry)); }

  uint32_t size() const noexcept { return count_; }
  uint32_t size_of(uint16_t user, State state) const noexcept { return users_[user].lists[static_cast<size_t>(state)].count; }

 private:
  static constexpr uint32_t kBuckets = 128 * 1024;
  static constexpr uint32_t kBlock = 1024;   // entries that are made at a time, at addresses that stay

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
  std::vector<User> users_;                  // they stay
  std::vector<uint32_t> buckets_;            // empty until there is a share
  std::vector<std::unique_ptr<Entry[]>> blocks_;
  uint32_t free_ = kEnd;
  uint32_t count_ = 0;
};

}  // namespace unet::engine
