// ports.cc - claims of ports, and their ends.
#include "ipstack/sockets/ports.h"

#include <cerrno>

#include "ipstack/ip/random.h"

namespace unet::sockets {

int Ports::take(const ip::IpAddress& local, uint16_t port, bool shared) { return take_shared(local, port, shared, 0, TakesNew::yes); }

int Ports::take_shared(const ip::IpAddress& local, uint16_t& port, bool shared, uint64_t group, TakesNew takes_new) {
  const auto at = bound_.find(port);
  if (at != bound_.end()) {
    Bound& bound = at->second;
    const bool joins = group != 0 && bound.joins && bound.group == group;
    if (bound.local != local || !(joins || (shared && bound.shared))) return EADDRINUSE;
    bound.shared = bound.shared && shared;
    bound.joins = joins;
    ++uses_[port];
    return 0;
  }
  if (uses_[port] != 0) return EADDRINUSE;
  Bound made{.local = local, .shared = shared, .group = group, .joins = group != 0, .takes_new = takes_new};
  if (in_pool_[port]) {  // ours already, as one whose number is taken again that bind() to port 0 gave; so no other process can have it
    made.of_pool = true;
  } else {
    const Network::Claimed claimed =
        network_.claim({.protocol = protocol_, .local = local, .takes_new = takes_new, .port = port, .group = group});
    if (claimed.error != 0) return claimed.error;
    made.claim = claimed.claim;
    port = claimed.port;
  }
  bound_[port] = made;
  uses_[port] = 1;
  return 0;
}

uint64_t Ports::group_of(uint16_t port) const noexcept {
  const auto at = bound_.find(port);
  return at == bound_.end() ? 0 : at->second.group;
}

void Ports::set_takes_new(uint16_t port, TakesNew takes_new) {
  const auto at = bound_.find(port);
  if (at == bound_.end() || at->second.group == 0 || at->second.takes_new == takes_new) return;
  at->second.takes_new = takes_new;
  if (!at->second.of_pool) network_.set_takes_new(at->second.claim, takes_new);
}

int Ports::take_free(uint16_t& port) {
  const auto unused = [this](uint16_t each) { return uses_[each] == 0; };
  const int error = take_any(ip::next_random(random_), unused, port);
  if (error == 0) bound_[port] = {.of_pool = true};
  return error;
}

void Ports::give_back(uint16_t port) {
  if (--uses_[port] != 0) return;
  const auto at = bound_.find(port);
  if (at == bound_.end()) return;
  if (!at->second.of_pool) network_.release(at->second.claim);
  bound_.erase(at);
}

int Ports::add_block() {
  const Network::Claimed claimed = network_.claim({.protocol = protocol_, .ports = kBlock});
  if (claimed.error != 0) return claimed.error == EADDRINUSE ? EADDRNOTAVAIL : claimed.error;
  const size_t before = pool_.size();
  for (uint16_t i = 0; i < kBlock; ++i) {
    pool_.push_back(static_cast<uint16_t>(claimed.port + i));
    in_pool_[pool_.back()] = true;
  }
  // Who can guess a connection's port can attack it more easily (RFC 6056).
  for (size_t i = pool_.size() - 1; i > before; --i) {
    std::swap(pool_[i], pool_[before + ip::next_random(random_) % (i - before + 1)]);
  }
  return 0;
}

}  // namespace unet::sockets
