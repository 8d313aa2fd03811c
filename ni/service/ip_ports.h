// ip_ports.h - which endpoints claim which ports of IP (unet/ip.h), and which claims go together; used by IpControl.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ni/service/policy.h"
#include "unet/base/keyed_random.h"
#include "unet/base/result.h"
#include "unet/ip.h"

namespace unet::service {

class IpPorts {
 public:
  // `user`: claims with the same value are one user's.
  struct Record {
    uint32_t endpoint = 0;
    uint64_t user = 0;
    IpClaim claim;       // its port is chosen, and its group is that of the share it has joined
    uint64_t token = 0;  // the group that was asked for
  };

  // `seed`: of the ports that are chosen, which strangers shall not guess (RFC 6056); 0: from the kernel.
  explicit IpPorts(uint64_t seed) : random_(seed) {}

  // Takes the ports, or chooses them among those that `rights` allow. The address is known to be the NI's. Errors: already_exists
  // (EADDRINUSE), not_permitted (EACCES), quota_exceeded, invalid_argument.
  //
  // Two claims of a port go together if no packet fits both. They also do if one wants a certain peer's packets, the other any peer's, and
  // both are one user's: then the first gets that peer's. A group's claim goes together with all, but the same of the same endpoint.
  // All users share the places in a port's list and the groups: no user gets more than a part. Claims of one user and IpClaim::group go
  // together if they are alike: they are a share, with one place. A server that begins again while connections of the last one go on joins
  // the last one's share so (IpClaim::reuses).
  Result<IpClaimed> claim(uint32_t endpoint, uint64_t user, const IpClaim& wanted, const Rights& rights);
  // One of before a takeover; false: it makes no sense beside the others.
  bool resume(uint32_t number, const Record& record);
  void release(uint32_t number);
  // Of a share: whether it takes new flows. Errors: already_exists, if a member of another token does.
  Status set(uint32_t number, AcceptsNewFlows accepts_new_flows);

  const Record* at(uint32_t number) const;
  // The claim that answers connections to that port: one of any peer's packets; of that address before one of all addresses; of a share
  // the members that take new flows, round robin.
  struct Found {
    uint32_t endpoint = 0;
    bool shared = false;
  };
  std::optional<Found> find(uint8_t protocol, const ip::IpAddress& local, uint16_t port);
  // Some endpoint claims that port, for any packets.
  bool claims_any(uint8_t protocol, uint16_t port) const;
  const std::map<uint32_t, Record>& all() const noexcept { return claims_; }

 private:
  static uint32_t key(uint8_t protocol, uint32_t port) noexcept { return uint32_t{protocol} << 16 | port; }
  static uint32_t key(const IpClaim& claim, uint32_t i) noexcept {
    return key(claim.protocol, claim.port + i) | (claim.local.is_multicast() ? kOfGroups : 0);
  }
  uint64_t group_of(const Record& record) const;
  Status check(const Record& record) const;
  Status check_places(const Record& record, const std::vector<uint32_t>& list) const;
  Status check_shares(const Record& record, const Rights& rights) const;
  struct Places {
    uint32_t all = 0, own = 0;       // a share has one
    uint32_t members = 0;            // of the record's own share
  };
  Places places(const Record& record, const std::vector<uint32_t>& list) const;
  uint32_t next_in_turn(const std::vector<uint32_t>& list, const Record& of);
  Status check_group(const IpClaim& claim) const;
  Status choose(IpClaim& claim, const Rights& rights);
  uint32_t taken(const IpClaim& claim, uint32_t first) const;
  uint32_t& dynamic_of(uint8_t protocol) noexcept;
  void insert(uint32_t number, const Record& record);

  std::map<uint32_t, Record> claims_;                              // by number
  static constexpr uint32_t kOfGroups = 1u << 31;                  // groups' claims have lists of their own: they keep no port from others
  std::unordered_map<uint32_t, std::vector<uint32_t>> by_port_;    // numbers
  std::unordered_map<uint32_t, uint32_t> last_found_;                   // of ports that are shared: the claim that find() has chosen last
  std::vector<uint32_t> free_numbers_;
  uint32_t numbers_ = 0;                                           // used so far
  uint32_t ports_ = 0;                                             // of all claims
  std::map<std::array<uint8_t, 16>, std::map<uint64_t, uint32_t>> groups_;   // how many claims of each user it has
  std::array<uint32_t, 2> dynamic_{};                               // of TCP and of UDP: how many that choose() knows are claimed
  KeyedRandom random_;
};

// A claim that could be: protocol, range, families. Errors: invalid_argument.
Status check_ip_claim(const IpClaim& claim);

}  // namespace unet::service
