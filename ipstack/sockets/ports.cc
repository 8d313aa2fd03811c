// ports.cc - claims of ports, and their ends.
#include "ipstack/sockets/ports.h"

#include <cerrno>

#include "ipstack/ip/random.h"

namespace unet::sockets {

int Ports::take(const ip::IpAddress& local, uint16_t port, bool shared) {
  const auto at = bound_.find(port);
  if (at != bound_.end()) {
    if (!shared || !at->second.shared || at->second.local != local) return EADDRINUSE;
    ++uses_[port];
    return 0;
  }
  if (uses_[port] != 0) return EADDRINUSE;
  if (in_pool_[port]) {  // ours already, as one whose number is taken again that bind() to port 0 gave
    bound_[port] = {.local = local, .shared = shared, .of_pool = true};
    uses_[port] = 1;
    return 0;
  }
  const Network::Claimed claimed = network_.claim({.protocol = protocol_, .local = local, .port = port});
  if (claimed.error != 0) return claimed.error;
  bound_[port] = {claimed.claim, local, shared, false};
  uses_[port] = 1;
  return 0;
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
