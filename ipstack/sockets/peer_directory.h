// peer_directory.h - the local peers by port of this network interface, as far as the stack has asked; used by the stack.
//
// A set-associative cache of fixed size: the stack asks again for an entry that was replaced.
#pragma once

#include <cstdint>
#include <vector>

#include "ipstack/sockets/address.h"
#include "ipstack/sockets/flow_table.h"
#include "ipstack/sockets/network.h"
#include "unet/base/time.h"

namespace unet::sockets {

class PeerDirectory {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0}, kUnclaimed = kNone - 1;
  struct Entry {
    Address address{};
    uint8_t protocol = 0;
    bool asked = false;            // no answer has arrived yet
    bool shared = false;           // several processes share the port: each stream asks again, one at a time
    uint32_t local_peer = kNone;
    Nanoseconds until = 0;         // end of a negative answer's validity
  };

  PeerDirectory(Network& network, const FlowTable& flows) noexcept : network_(network), flows_(flows) {}

  // The entry, or nullptr. Asks nothing.
  Entry* find(uint8_t protocol, const Address& address) noexcept;
  // The entry, which says whether a peer is known or asked for; asks the network if it does not know. Valid until the next call.
  const Entry& look_up(uint8_t protocol, const Address& address, Nanoseconds now);
  // Enters an answer (Stack::handle_local_peer_found()). Returns whether it is for one stream alone.
  bool answer(uint8_t protocol, const Address& address, uint32_t local_peer, bool shared, Nanoseconds now) noexcept;
  // The channel to this peer is gone.
  void forget(uint32_t local_peer) noexcept;

 private:
  static constexpr size_t kWays = 8;  // entries of one hash value, of which the oldest is replaced
  std::vector<Entry>::iterator first_way(uint8_t protocol, const Address& address) noexcept;

  Network& network_;
  const FlowTable& flows_;            // for its keyed hash
  std::vector<Entry> entries_ = std::vector<Entry>(256 * kWays);
};

}  // namespace unet::sockets
