// ports.h - the ports that a stack has of its network interface, and which of them are free; used by the stack.
//
// A port for bind() is asked for alone; ports for connect() come in blocks, so that most connections cost no question. Blocks, and what is
// still in use when the stack ends, stay until its network ends: by these claims the network interface knows what it is to finish.
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

  // Of which packets a socket at all addresses gets some.
  enum Families : uint8_t { kIpv4 = 1, kIpv6 = 2, kBoth = 3 };

  // The port for one socket at `local` (unspecified: all addresses, of `families`). 0, or an errno; EADDRINUSE also if packets to another
  // socket's of ours come to it, too. `shared`: a further socket may have it, if all that have it say so.
  int take(const ip::IpAddress& local, uint16_t port, bool shared, Families families = kBoth);
  // The same for one of a share (IpClaim::group), with other processes, and with others of ours that want the same, whatever else they
  // agree upon. Port 0: one that the network interface chooses. `accepts_new_flows`: of the claim, if it is made for this.
  int take_shared(const ip::IpAddress& local, uint16_t& port, bool shared, uint64_t group, AcceptsNewFlows accepts_new_flows,
                  Families families = kBoth);
  // Of which share the port is, at that address; 0: of none.
  uint64_t group_of(const ip::IpAddress& local, uint16_t port) const noexcept;
  // Of such a port: a connection that another process of the share has is ours from now on, or a moment later. 0, or an errno.
  int own_flow(const Address& local, const Address& remote);
  // The address of its claim: that one, or all.
  ip::IpAddress claimed_at(const ip::IpAddress& local, uint16_t port) const noexcept;
  // All that have it there are of one share.
  bool is_share(const ip::IpAddress& local, uint16_t port) const noexcept {
    const Bound* const bound = bound_at(local, port);
    return bound != nullptr && bound->joins;
  }
  // Whether we take new flows to that port, if others share it. Known: it is not said twice.
  int set_accepts_new_flows(const ip::IpAddress& local, uint16_t port, AcceptsNewFlows accepts_new_flows);
  // Any port, for bind() to port 0; of all addresses. 0, or an errno.
  int take_free(uint16_t& port);
  // One for a connection, which may be another connection's, too: `free(port)` says whether it may be used. 0, or an errno. RFC 6056,
  // 3.3.3: `offset` is a keyed hash of where it leads, so that who sees the ports of one place cannot tell those of another. Where many
  // are in use, as by TIME-WAITs, further ones are asked for rather than all looked at, until there are no further ones.
  // `further`: not of those that were asked for before, if there are others.
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
  // One more socket has a port that is taken: a connection of a listener's, at that address or at all.
  void use(const ip::IpAddress& local, uint16_t port);
  void give_back(const ip::IpAddress& local, uint16_t port);

 private:
  static constexpr uint16_t kBlock = 64;
  static constexpr size_t kInTurn = 8, kTries = 64;
  static constexpr size_t kSpread = 1024;  // ports of a stack that would do with fewer

  struct Bound {
    uint32_t claim = 0;
    ip::IpAddress local{};
    Families families = kBoth;  // if `local` is all addresses
    uint32_t uses = 0;     // sockets that have it
    bool shared = false;
    bool of_pool = false;  // it was one of a block's, and goes back there
    uint64_t group = 0;    // of its claim
    bool joins = false;    // all that have it are of that group
    AcceptsNewFlows accepts_new_flows = AcceptsNewFlows::yes;
  };
  size_t newest() const noexcept { return pool_.size() - kBlock; }  // where the newest block begins
  // Ports of the newest block have not all been looked at.
  bool is_new() const noexcept { return !pool_.empty() && next_ - block_since_ < kBlock; }
  // Among those from `first` on in the pool.
  template <typename Free>
  bool take_among(size_t first, uint64_t offset, size_t most, Free free, uint16_t& port) {
    const size_t count = pool_.size() - first;
    most = std::min(most, count);
    for (size_t i = 0; i < most; ++i) {
      if (take_one(pool_[first + (offset + next_++) % count], free, port)) return true;
    }
    return false;
  }
  // Ports that lead to one place lie beside each other in the pool: where many are in use, a port at any place is free more often
  // than the next.
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
  // Where it was bound to that address, or else to all; nullptr: nowhere.
  Bound* bound_at(const ip::IpAddress& local, uint16_t port);
  const Bound* bound_at(const ip::IpAddress& local, uint16_t port) const { return const_cast<Ports*>(this)->bound_at(local, port); }
  int add_block();

  Network& network_;
  const uint8_t protocol_;
  KeyedRandom random_;
  std::vector<uint16_t> pool_;            // of blocks, for connections
  uint64_t next_ = 0;                     // next_ephemeral of RFC 6056
  uint64_t block_since_ = 0;              // next_ when the newest block came
  bool plenty_ = false;                   // the network interface had many more ports then
  std::vector<bool> in_pool_ = std::vector<bool>(65'536);
  std::vector<uint32_t> uses_ = std::vector<uint32_t>(65'536);  // how many sockets have a port
  std::multimap<uint16_t, Bound> bound_;  // by bind(): to all addresses, or to some, each once
};

}  // namespace unet::sockets
