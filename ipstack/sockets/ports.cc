// ports.cc - claims of ports, and their ends.
#include "ipstack/sockets/ports.h"

#include <algorithm>
#include <cerrno>

namespace unet::sockets {

namespace {

Ports::Families families_of(const ip::IpAddress& local, Ports::Families families) noexcept {
  return local.is_unspecified() ? families : local.is_ipv4() ? Ports::kIpv4 : Ports::kIpv6;
}

}  // namespace

Ports::Bound* Ports::bound_at(const ip::IpAddress& local, uint16_t port) {
  const auto [first, last] = bound_.equal_range(port);
  Bound* all = nullptr;
  for (auto at = first; at != last; ++at) {
    if (at->second.local == local) return &at->second;
    if (at->second.local.is_unspecified()) all = &at->second;
  }
  return all;
}

int Ports::take(const ip::IpAddress& local, uint16_t port, bool shared, Families families) {
  return take_shared(local, port, shared, 0, AcceptsNewFlows::yes, families);
}

int Ports::take_shared(const ip::IpAddress& local, uint16_t& port, bool shared, uint64_t group, AcceptsNewFlows accepts_new_flows,
                       Families families) {
  families = families_of(local, families);
  Bound* same = nullptr;  // the entry with the same address
  const auto [first, last] = bound_.equal_range(port);
  for (auto at = first; at != last; ++at) {
    Bound& bound = at->second;
    const bool meets = bound.local == local || bound.local.is_unspecified() || local.is_unspecified();
    const bool joins = group != 0 && bound.joins && bound.group == group;
    const bool alike = bound.local == local && (joins || (shared && bound.shared));
    if (meets && (families_of(bound.local, bound.families) & families) != 0 && !alike) return EADDRINUSE;
    if (bound.local == local) same = &bound;
  }
  if (same != nullptr) {
    same->shared = same->shared && shared;
    same->joins = group != 0 && same->joins && same->group == group;
    same->families = static_cast<Families>(same->families | families);
    ++same->uses;
    ++uses_[port];
    return 0;
  }
  if (first == last && uses_[port] != 0) return EADDRINUSE;
  Bound made{.local = local, .families = families, .uses = 1, .shared = shared, .group = group, .joins = group != 0,
             .accepts_new_flows = accepts_new_flows};
  if (in_pool_[port]) {  // ours already, for example given by bind() to port 0 before; so no other process can have it
    made.of_pool = true;
  } else {
    const Network::Claimed claimed = network_.claim({.protocol = protocol_, .local = local, .accepts_new_flows = accepts_new_flows,
                                                     .port = port,
                                                     .group = group, .reuses = static_cast<uint8_t>(shared)});
    if (claimed.error != 0) return claimed.error;
    made.claim = claimed.claim;
    port = claimed.port;
  }
  bound_.emplace(port, made);
  ++uses_[port];
  return 0;
}

uint64_t Ports::group_of(const ip::IpAddress& local, uint16_t port) const noexcept {
  const Bound* const bound = bound_at(local, port);
  return bound == nullptr ? 0 : bound->group;
}

int Ports::own_flow(const Address& local, const Address& remote) {
  const Bound* const bound = bound_at(local.host, local.port);
  return bound == nullptr || bound->group == 0 || bound->of_pool ? EINVAL : network_.own_flow(bound->claim, local, remote);
}

ip::IpAddress Ports::claimed_at(const ip::IpAddress& local, uint16_t port) const noexcept {
  const Bound* const bound = bound_at(local, port);
  return bound == nullptr ? local : bound->local;
}

int Ports::set_accepts_new_flows(const ip::IpAddress& local, uint16_t port, AcceptsNewFlows accepts_new_flows) {
  Bound* const bound = bound_at(local, port);
  if (bound == nullptr || bound->group == 0 || bound->accepts_new_flows == accepts_new_flows) return 0;
  const int error = bound->of_pool ? 0 : network_.set_accepts_new_flows(bound->claim, accepts_new_flows);
  if (error != EADDRINUSE) bound->accepts_new_flows = accepts_new_flows;
  return error;
}

void Ports::use(const ip::IpAddress& local, uint16_t port) {
  ++uses_[port];
  if (Bound* const bound = bound_at(local, port)) ++bound->uses;
}

int Ports::take_free(uint16_t& port) {
  const auto unused = [this](uint16_t each) { return uses_[each] == 0; };
  const int error = take_any(random_.next(), unused, port);
  if (error == 0) bound_.emplace(port, Bound{.uses = 1, .of_pool = true});
  return error;
}

void Ports::give_back(const ip::IpAddress& local, uint16_t port) {
  --uses_[port];
  Bound* const bound = bound_at(local, port);
  if (bound == nullptr || --bound->uses != 0) return;
  if (!bound->of_pool) network_.release(bound->claim);
  const auto [first, last] = bound_.equal_range(port);
  bound_.erase(std::find_if(first, last, [&](const auto& each) { return &each.second == bound; }));
}

int Ports::add_block() {
  const Network::Claimed claimed = network_.claim({.protocol = protocol_, .ports = kBlock});
  plenty_ = claimed.error == 0 && claimed.plenty;
  if (claimed.error != 0) return claimed.error == EADDRINUSE ? EADDRNOTAVAIL : claimed.error;
  block_since_ = next_;
  const size_t before = pool_.size();
  for (uint16_t i = 0; i < kBlock; ++i) {
    pool_.push_back(static_cast<uint16_t>(claimed.port + i));
    in_pool_[pool_.back()] = true;
  }
  // A guessable port makes a connection easier to attack (RFC 6056).
  for (size_t i = pool_.size() - 1; i > before; --i) {
    std::swap(pool_[i], pool_[before + random_.below(static_cast<uint32_t>(i - before + 1))]);
  }
  return 0;
}

}  // namespace unet::sockets
