// own_addresses.h - the addresses of a host: the claim of each, how long it is valid, and which one is a packet's source. Used by Host.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ipstack/ip/address_claim.h"
#include "ipstack/ip/host_checkpoint.h"
#include "unet/base/keyed_hash.h"

namespace unet::ip {

struct OwnAddress {
  const IpAddress& address() const noexcept { return claim.address(); }
  bool is_assigned() const noexcept { return claim.state() == AddressClaim::State::assigned; }
  Nanoseconds next_event() const noexcept;

  AddressClaim claim;
  uint8_t prefix;
  Nanoseconds valid_until = kNever, preferred_until = kNever;
  bool of_router = false, of_dhcp = false, deprecated = false;
  bool made = false;                // by OwnAddresses::generate()
  uint8_t conflicts = 0;            // conflicts of earlier addresses generated for this network
  // After a conflict: when this address, or the next generated one, is claimed.
  Nanoseconds retry_at = kNever;
  bool holds_group = false;         // has joined the solicited-node group
};

class OwnAddresses {
 public:
  static constexpr size_t kMax = HostCheckpoint::kAddressesMax;
  static constexpr uint8_t kMadeBits = 64;  // prefix length of generated addresses

  // `key`: of generated addresses, see HostOptions::address_key.
  OwnAddresses(const MacAddress& station, const std::optional<HashKey>& key);

  auto begin() noexcept { return all_.begin(); }
  auto end() noexcept { return all_.end(); }
  auto begin() const noexcept { return all_.begin(); }
  auto end() const noexcept { return all_.end(); }
  size_t size() const noexcept { return all_.size(); }
  OwnAddress* find(const IpAddress& address) noexcept;
  const OwnAddress* find(const IpAddress& address) const noexcept { return const_cast<OwnAddresses*>(this)->find(address); }
  // Changes whenever the set of assigned addresses does.
  uint64_t changes() const noexcept { return changes_; }

  // There must be fewer than kMax.
  void add(const OwnAddress& address);
  void remove(OwnAddress& address) noexcept;
  void replace_claim(OwnAddress& address, const AddressClaim& claim) noexcept;
  // Call this after an event that `address.claim` has handled; its state was `before`. True: another host has the address.
  bool handle_claim_change(OwnAddress& address, AddressClaim::State before, Nanoseconds now) noexcept;

  // Generates an address in a network of kMadeBits (RFC 7217, 5): stable, but it does not reveal the station. `conflicts`: number of
  // earlier addresses generated there.
  IpAddress generate(const IpAddress& network, uint8_t conflicts) const noexcept;
  // Source address selection (RFC 6724, 5), in part. nullopt: none fits.
  std::optional<IpAddress> source_for(const IpAddress& to) const noexcept;
  // Returns whether `to` is the broadcast address of one of their networks.
  bool have_broadcast(const IpAddress& to) const noexcept;

  // Marks the addresses with an ended preferred lifetime.
  void deprecate(Nanoseconds now) noexcept;
  // Returns an address with an ended valid lifetime; nullptr if there is none.
  OwnAddress* find_ended(Nanoseconds now) noexcept;

 private:
  const MacAddress station_;
  const std::optional<HashKey> key_;
  std::vector<OwnAddress> all_;
  uint64_t changes_ = 0;
};

}  // namespace unet::ip
