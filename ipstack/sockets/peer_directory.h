// peer_directory.h - which local peer has which port of this network interface, as far as a stack has asked; used by the stack.
//
// A set-associative cache of fixed size: an entry that is not there is asked for again.
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
    bool asked = false;            // the answer has not come
    bool shared = false;           // several processes share the port: each stream asks anew, one after the other
    uint32_t local_peer = kNone;
    Nanoseconds until = 0;         // the answer that there is none holds until then
  };

  PeerDirectory(Network& network, const FlowTable& flows) noexcept : network_(network), flows_(flows) {}

  // The entry, or nullptr. Asks nothing.
  Entry* find(uint8_t protocol, const Address& address) noexcept;
  // The entry, which says whether a peer is known or asked for; asks the network if it does not know. Valid until the next call.
  const Entry& look_up(uint8_t protocol, const Address& address, Nanoseconds now);
  // The answer to the question (Stack::handle_local_peer_found()). Says whether the answer is for one stream alone.
  bool answer(uint8_t protocol, const Address& address, uint32_t local_peer, bool shared, Nanoseconds now) noexcept;
  // The channel to this peer is gone.
  void forget(uint32_t local_peer) noexcept;

 private:
  static constexpr size_t kWays = 8;  // entries that an address may have, by its hash: the oldest of them gives way
  std::vector<Entry>::iterator first_way(uint8_t protocol, const Address& address) noexcept;

  Network& network_;
  const FlowTable& flows_;            // for its keyed hash
  std::vector<Entry> entries_ = std::vector<Entry>(256 * kWays);
};

}  // namespace unet::sockets
