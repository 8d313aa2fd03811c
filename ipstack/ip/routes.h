// routes.h - where a host's packets go: on-link prefixes, static routes, redirects, default routers; used by Host.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ipstack/ip/host_checkpoint.h"
#include "ipstack/ip/redirects.h"
#include "unet/base/time.h"
#include "unet/wire/address.h"

namespace unet::ip {

// A static route beyond the link. The longest prefix wins, also over a shorter on-link prefix.
struct HostRoute {
  IpAddress network{};
  uint8_t prefix = 0;   // length in bits, of 32 or 128; at least 1: the default route is a gateway
  IpAddress gateway{};  // must be a neighbour
  bool leads_to(const IpAddress& to) const noexcept { return same_network(to, network, prefix); }
};

class Routes {
 public:
  static constexpr uint32_t kPrefixesMax = HostCheckpoint::kPrefixesMax;

  Routes(std::vector<HostRoute> routes, std::optional<IpAddress> gateway4, std::optional<IpAddress> gateway6, uint64_t seed);

  bool is_on_link(const IpAddress& to) const noexcept;
  // For unicast packets to other hosts; nullopt: no route.
  std::optional<IpAddress> next_hop(const IpAddress& to, Nanoseconds now) const noexcept;
  const std::optional<IpAddress>& gateway4() const noexcept { return gateway4_; }
  const std::optional<IpAddress>& gateway6() const noexcept { return gateway6_; }
  Redirects& redirects() noexcept { return redirects_; }

  // The prefix of a configured or leased address, which stays until remove_prefix().
  void add_prefix(const IpAddress& address, uint8_t bits) noexcept;
  void remove_prefix(const IpAddress& address, uint8_t bits) noexcept;
  void set_gateway4(const std::optional<IpAddress>& gateway) noexcept { gateway4_ = gateway; }

  // By router advertisement. `most`: no new prefix if there are as many.
  void advertise_prefix(const IpAddress& prefix, uint8_t bits, Nanoseconds until, size_t most, Nanoseconds now) noexcept;
  // One default router: the first that advertises itself, until its lifetime ends. `until` <= now: it is none any more.
  void advertise_router(const IpAddress& router, Nanoseconds until, Nanoseconds now) noexcept;
  // False: it is not the default router by advertisement.
  bool withdraw_router(const IpAddress& router) noexcept;

  void expire(Nanoseconds now) noexcept;
  Nanoseconds next_event() const noexcept;

  // Prefixes and router by advertisement, for the next instance. restore() keeps what is already known.
  void save(HostCheckpoint& to, Nanoseconds now) const noexcept;
  void restore(const HostCheckpoint& from, size_t most_prefixes, Nanoseconds now) noexcept;

 private:
  struct OnLink {
    IpAddress prefix{};
    uint8_t bits = 0;
    Nanoseconds until = kNever;
    bool of_router = false;
  };

  OnLink* find(const IpAddress& prefix, uint8_t bits) noexcept;
  const HostRoute* static_route(const IpAddress& to) const noexcept;
  void use_configured_gateway6() noexcept;

  const std::vector<HostRoute> routes_;
  const std::optional<IpAddress> configured6_;
  std::vector<OnLink> on_link_;
  std::optional<IpAddress> gateway4_, gateway6_;
  Nanoseconds gateway6_until_ = kNever;  // kNever: configured
  Redirects redirects_;
};

}  // namespace unet::ip
