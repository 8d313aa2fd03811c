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
  // One claim. `user`: equal for all claims of one user.
  struct Record {
    uint32_t endpoint = 0;
    uint64_t user = 0;
    IpClaim claim;       // with the port that was chosen, and the group of the share that it has joined
    uint64_t token = 0;  // IpClaim::group of the request
  };

  // `seed`: randomizes chosen ports, so that remote hosts cannot guess them (RFC 6056); 0: takes a seed from the kernel.
  explicit IpPorts(uint64_t seed) : random_(seed) {}

  // Takes the ports, or chooses them among those that `rights` allow. The address is known to be the NI's. Errors: already_exists
  // (EADDRINUSE), not_permitted (EACCES), quota_exceeded, invalid_argument.
  //
  // Two claims of a port are compatible if no packet fits both. Two claims of one user are also compatible if one names a peer and the
  // other none: the first gets that peer's packets. A claim of a multicast group is compatible with all but the same claim of the same
  // endpoint. All users share the places in a port's list and the groups, and no user gets more than a part. Equal claims of one user with
  // one IpClaim::group form a share, which has one place. A restarted server thus joins the share of its predecessor, while connections of
  // the old one go on (IpClaim::reuses).
  Result<IpClaimed> claim(uint32_t endpoint, uint64_t user, const IpClaim& wanted, const Rights& rights);
  // Restores a claim after a takeover. False: it is invalid, or incompatible with the others.
  bool resume(uint32_t number, const Record& record);
  void release(uint32_t number);
  // Sets whether this member of a share takes new flows. Errors: already_exists, if a member of another token does.
  Status set(uint32_t number, AcceptsNewFlows accepts_new_flows);

  const Record* at(uint32_t number) const;
  // The claim that accepts connections to the port: one without a peer. A claim of that address comes before one of all addresses. In a
  // share, the members that take new flows have turns.
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
    uint32_t all = 0, own = 0;       // places in a port's list; a share has one
    uint32_t members = 0;            // members of the record's share
  };
  Places places(const Record& record, const std::vector<uint32_t>& list) const;
  uint32_t next_in_turn(const std::vector<uint32_t>& list, const Record& of);
  Status check_group(const IpClaim& claim) const;
  Status choose(IpClaim& claim, const Rights& rights);
  uint32_t taken(const IpClaim& claim, uint32_t first) const;
  uint32_t& dynamic_of(uint8_t protocol) noexcept;
  void insert(uint32_t number, const Record& record);

  std::map<uint32_t, Record> claims_;                              // by number
  static constexpr uint32_t kOfGroups = 1u << 31;                  // key bit: multicast claims have their own lists
  std::unordered_map<uint32_t, std::vector<uint32_t>> by_port_;    // numbers
  std::unordered_map<uint32_t, uint32_t> last_found_;                   // the claim that find() chose last, for each shared port
  std::vector<uint32_t> free_numbers_;
  uint32_t numbers_ = 0;                                           // numbers given so far
  uint32_t ports_ = 0;                                             // number of ports in all claims
  std::map<std::array<uint8_t, 16>, std::map<uint64_t, uint32_t>> groups_;   // claims of each user, by group
  std::array<uint32_t, 2> dynamic_{};                               // how many dynamic ports of TCP and of UDP are claimed
  KeyedRandom random_;
};

// Checks the protocol, the range and the address families of a claim. Errors: invalid_argument.
Status check_ip_claim(const IpClaim& claim);

}  // namespace unet::service
