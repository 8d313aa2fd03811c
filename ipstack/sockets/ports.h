// ports.h - the ports that a stack has claimed from its NI, and their use; used by the stack.
//
// A port for bind() is claimed alone; ports for connect() are claimed in blocks, so that most connections need no claim. Blocks, and ports
// in use when the stack ends, stay claimed until its network ends: the NI finishes connections only at claimed ports.
//
// A stack uses a port again as late as it can: while the interface has plenty of ports, each 64 connections take a further block, up to
// 1,024 ports. Blocks lie at random places, so the ports that one peer sees tell little of the others.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <vector>

#include "ipstack/sockets/network.h"
#include "unet/base/keyed_random.h"

namespace unet::sockets {

class Ports {
 public:
  Ports(Network& network, uint8_t protocol, uint64_t seed) : network_(network), protocol_(protocol), random_(seed) {}
  Ports(const Ports&) = delete;
  Ports& operator=(const Ports&) = delete;

  // The IP versions of the packets that a socket at all addresses gets.
  enum Families : uint8_t { kIpv4 = 1, kIpv6 = 2, kBoth = 3 };

  // Takes a port for one socket at `local` (unspecified: all addresses of `families`). Returns 0 or an errno; EADDRINUSE also if another
  // socket of this stack would get the packets, too. `shared`: sockets may share the port if all of them pass it.
  int take(const ip::IpAddress& local, uint16_t port, bool shared, Families families = kBoth);
  // take() for a member of a share (IpClaim::group): it goes together with other processes and our other sockets of this share, whatever
  // `shared` says. Port 0: the network interface chooses one. `accepts_new_flows`: for the claim, if this call makes one.
  int take_shared(const ip::IpAddress& local, uint16_t& port, bool shared, uint64_t group, AcceptsNewFlows accepts_new_flows,
                  Families families = kBoth);
  // The share (IpClaim::group) of the port at that address; 0: none.
  uint64_t group_of(const ip::IpAddress& local, uint16_t port) const noexcept;
  // Takes over a connection from another process of the share, now or a moment later. 0, or an errno.
  int own_flow(const Address& local, const Address& remote);
  // The address of the port's claim: `local`, or all addresses.
  ip::IpAddress claimed_at(const ip::IpAddress& local, uint16_t port) const noexcept;
  // Whether all sockets at the port and address are of one share.
  bool is_share(const ip::IpAddress& local, uint16_t port) const noexcept {
    const Bound* const bound = bound_at(local, port);
    return bound != nullptr && bound->joins;
  }
  // Sets whether this stack takes new flows at a shared port. It tells the NI only of changes.
  int set_accepts_new_flows(const ip::IpAddress& local, uint16_t port, AcceptsNewFlows accepts_new_flows);
  // Takes any free port at all addresses, for bind() to port 0. Returns 0 or an errno.
  int take_free(uint16_t& port);
  // Takes a port for a connection, which connections to other destinations may use, too: `free(port)` says whether it may be used. Returns
  // 0 or an errno. RFC 6056, 3.3.3: `offset` is a keyed hash of the destination, so that ports seen at one destination tell nothing about
  // another's. If many ports are in use, as by TIME-WAITs, it claims a further block before it tries all, as long as the NI has blocks.
  // `further`: tries a further block first.
  template <typename Free>
  int take_any(uint64_t offset, Free free, uint16_t& port, bool further = false) {
    if (!further) {
      const bool spreads = plenty_ && pool_.size() < kSpread && !is_new();
      if (spreads) static_cast<void>(add_block());
      if (is_new() && take_among(newest(), offset, kBlock, free, port)) return 0;
      if (take_among(0, offset, kInTurn, free, port) || take_somewhere(kTries, free, port)) return 0;
    }
    const int error = add_block();
    if (error == 0) return take_among(newest(), offset, kBlock, free, port) ? 0 : EADDRNOTAVAIL;
    return take_among(0, offset, pool_.size(), free, port) ? 0 : error;
  }
  // Counts one more socket at a taken port: a listener's connection.
  void use(const ip::IpAddress& local, uint16_t port);
  void give_back(const ip::IpAddress& local, uint16_t port);

 private:
  static constexpr uint16_t kBlock = 64;
  static constexpr size_t kInTurn = 8, kTries = 64;
  static constexpr size_t kSpread = 1024;  // up to so many ports are claimed for late reuse alone

  struct Bound {
    uint32_t claim = 0;
    ip::IpAddress local{};
    Families families = kBoth;  // only if `local` is unspecified
    uint32_t uses = 0;     // number of sockets
    bool shared = false;
    bool of_pool = false;  // from a block, to which it returns
    uint64_t group = 0;    // IpClaim::group of the claim
    bool joins = false;    // all its sockets are of that group
    AcceptsNewFlows accepts_new_flows = AcceptsNewFlows::yes;
  };
  size_t newest() const noexcept { return pool_.size() - kBlock; }  // first place of the newest block
  // Whether some ports of the newest block were not tried yet.
  bool is_new() const noexcept { return !pool_.empty() && next_ - block_since_ < kBlock; }
  // Tries up to `most` ports of the pool from place `first` on.
  template <typename Free>
  bool take_among(size_t first, uint64_t offset, size_t most, Free free, uint16_t& port) {
    const size_t count = pool_.size() - first;
    most = std::min(most, count);
    for (size_t i = 0; i < most; ++i) {
      if (take_one(pool_[first + (offset + next_++) % count], free, port)) return true;
    }
    return false;
  }
  // Tries ports at random places: ports to one destination lie side by side in the pool, so a random one is more often free than the next
  // one.
  template <typename Free>
  bool take_somewhere(size_t most, Free free, uint16_t& port) {
    uint64_t place = random_.next();
    for (size_t i = 0; i < std::min(most, pool_.size()); ++i) {
      if (take_one(pool_[(place >> 33) % pool_.size()], free, port)) return true;
      place = place * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
    }
    return false;
  }
  template <typename Free>
  bool take_one(uint16_t candidate, Free free, uint16_t& port) {
    if (is_bound(candidate) || !free(candidate)) return false;
    port = candidate;
    ++uses_[candidate];
    return true;
  }
  bool is_bound(uint16_t port) const { return bound_.count(port) != 0; }
  // The port's entry for that address, else for all addresses; nullptr: none.
  Bound* bound_at(const ip::IpAddress& local, uint16_t port);
  const Bound* bound_at(const ip::IpAddress& local, uint16_t port) const { return const_cast<Ports*>(this)->bound_at(local, port); }
  int add_block();

  Network& network_;
  const uint8_t protocol_;
  KeyedRandom random_;
  std::vector<uint16_t> pool_;            // ports of all blocks, for connections
  uint64_t next_ = 0;                     // next_ephemeral of RFC 6056
  uint64_t block_since_ = 0;              // next_ when the newest block was claimed
  bool plenty_ = false;                   // the NI had many free ports at the last claim (IpClaimed::plenty)
  std::vector<bool> in_pool_ = std::vector<bool>(65'536);
  std::vector<uint32_t> uses_ = std::vector<uint32_t>(65'536);  // number of sockets by port
  std::multimap<uint16_t, Bound> bound_;  // ports of bind(), one entry for each address
};

}  // namespace unet::sockets
