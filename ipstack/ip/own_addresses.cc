// own_addresses.cc - changes of a host's addresses, and the choice of a source.
#include "ipstack/ip/own_addresses.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace unet::ip {
namespace {

constexpr Nanoseconds kRetryClaim = 60 * kSecond;  // RFC 5227, 1.1: RATE_LIMIT_INTERVAL
constexpr uint8_t kMakesMost = 3;                  // RFC 7217, IDGEN_RETRIES: further addresses after conflicts
constexpr Nanoseconds kMakeEvery = kSecond;        // RFC 7217, IDGEN_DELAY

uint32_t common_bits(const IpAddress& a, const IpAddress& b) noexcept {
  uint32_t bits = 0;
  while (bits < 128 && ((a.bytes[bits / 8] ^ b.bytes[bits / 8]) >> (7 - bits % 8) & 1) == 0) ++bits;
  return bits;
}

}  // namespace

Nanoseconds OwnAddress::next_event() const noexcept {
  return std::min({claim.next_event(), retry_at, valid_until, deprecated ? kNever : preferred_until});
}

OwnAddresses::OwnAddresses(const MacAddress& station, const std::optional<HashKey>& key) : station_(station), key_(key) {
  all_.reserve(kMax);
}

OwnAddress* OwnAddresses::find(const IpAddress& address) noexcept {
  const auto at = std::find_if(all_.begin(), all_.end(), [&](const OwnAddress& each) { return each.address() == address; });
  return at == all_.end() ? nullptr : &*at;
}

void OwnAddresses::add(const OwnAddress& address) {
  all_.push_back(address);
  if (address.is_assigned()) ++changes_;
}

void OwnAddresses::remove(OwnAddress& address) noexcept {
  if (address.is_assigned()) ++changes_;
  all_.erase(all_.begin() + (&address - all_.data()));
}

void OwnAddresses::replace_claim(OwnAddress& address, const AddressClaim& claim) noexcept {
  address.claim = claim;
  if (address.is_assigned()) ++changes_;
}

bool OwnAddresses::handle_claim_change(OwnAddress& address, AddressClaim::State before, Nanoseconds now) noexcept {
  const AddressClaim::State state = address.claim.state();
  if (state == before) return false;
  if (address.is_assigned() || before == AddressClaim::State::assigned) ++changes_;
  if (state != AddressClaim::State::conflict) return false;
  if (address.address().is_ipv4() && !address.of_dhcp) address.retry_at = now + kRetryClaim;
  if (address.made && key_ && address.conflicts < kMakesMost) address.retry_at = now + kMakeEvery;
  return true;
}

IpAddress OwnAddresses::generate(const IpAddress& network, uint8_t conflicts) const noexcept {
  IpAddress address = link_local(station_);
  std::memcpy(address.bytes.data(), network.bytes.data(), kMadeBits / 8);
  if (!key_) return address;
  std::array<uint64_t, 3> words{0, 0, conflicts};
  std::memcpy(&words[0], network.bytes.data(), kMadeBits / 8);
  std::memcpy(&words[1], station_.data(), station_.size());
  const uint64_t identifier = keyed_hash(*key_, words);
  std::memcpy(address.bytes.data() + kMadeBits / 8, &identifier, sizeof identifier);
  return address;
}

// Rule 2, the scope of the destination; rule 3, avoid deprecated addresses; rule 8, the longest common prefix.
std::optional<IpAddress> OwnAddresses::source_for(const IpAddress& to) const noexcept {
  const OwnAddress* best = nullptr;
  const bool local = to.is_link_local() || (to.is_multicast() && !to.is_ipv4() && (to.bytes[1] & 0x0F) <= 2);
  const auto rank = [&](const OwnAddress& each) {
    const bool scope = each.address().is_link_local() == local;
    return (scope ? 512u : 0u) + (each.deprecated ? 0u : 256u) + common_bits(each.address(), to);
  };
  for (const OwnAddress& each : all_) {
    if (!each.is_assigned() || each.address().is_ipv4() != to.is_ipv4()) continue;
    if (best == nullptr || rank(each) > rank(*best)) best = &each;
  }
  return best == nullptr ? std::nullopt : std::optional(best->address());
}

bool OwnAddresses::have_broadcast(const IpAddress& to) const noexcept {
  return std::any_of(all_.begin(), all_.end(), [&](const OwnAddress& each) {
    return is_directed_broadcast(to, each.address(), each.prefix);
  });
}

void OwnAddresses::deprecate(Nanoseconds now) noexcept {
  for (OwnAddress& each : all_) each.deprecated = each.deprecated || each.preferred_until <= now;
}

OwnAddress* OwnAddresses::find_ended(Nanoseconds now) noexcept {
  const auto at = std::find_if(all_.begin(), all_.end(), [&](const OwnAddress& each) { return each.valid_until <= now; });
  return at == all_.end() ? nullptr : &*at;
}

}  // namespace unet::ip
