// groups.h - claims of multicast groups' ports, one for all sockets of a stack; used by the stack.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "ipstack/sockets/network.h"
#include "unet/wire/ip.h"

namespace unet::sockets {

class Groups {
 public:
  explicit Groups(Network& network) : network_(network) {}
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // Claims the group's port for one more socket. Returns 0 or an errno.
  int take(const ip::IpAddress& group, uint16_t port) {
    const Key key{group.bytes, port};
    if (const auto at = all_.find(key); at != all_.end()) return ++at->second.uses, 0;
    const Network::Claimed claimed = network_.claim({.protocol = ip::Protocol::kUdp, .local = group, .port = port});
    if (claimed.error == 0) all_[key] = {claimed.claim, 1};
    return claimed.error;
  }
  void give_back(const ip::IpAddress& group, uint16_t port) {
    const auto at = all_.find({group.bytes, port});
    if (at == all_.end() || --at->second.uses != 0) return;
    network_.release(at->second.claim);
    all_.erase(at);
  }

 private:
  using Key = std::pair<std::array<uint8_t, 16>, uint16_t>;
  struct One {
    uint32_t claim = 0, uses = 0;
  };

  Network& network_;
  std::map<Key, One> all_;
};

}  // namespace unet::sockets
