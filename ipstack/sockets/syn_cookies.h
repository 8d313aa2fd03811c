// syn_cookies.h - SYN cookies (RFC 4987, 3.6): handshakes without state, when too many are under way; used by the stack.
//
// A cookie is the initial sequence number: 24 bits of hash, 5 of time, 3 of the peer's MSS. Nothing is stored for a peer that gets one. As
// in Linux (net/ipv4/syncookies.c), the lowest bits of our timestamp, which the peer echoes, have the rest of its SYN: 4 bits of window
// scale, one of SACK. They are not hashed, as a peer that forges them harms only its own connection. Without timestamps, neither is used.
#pragma once

#include <vector>

#include "ipstack/sockets/flow_table.h"
#include "unet/base/time.h"
#include "unet/wire/tcp.h"

namespace unet::sockets {

class SynCookies {
 public:
  // later: the peer was sent a cookie, but this is not the ACK that echoes it, which was lost or reordered. Drop it: a reset would end a
  // good connection. A table of fixed size remembers such peers.
  enum class Answer : uint8_t { none, later, first };

  SynCookies(const HashKey& key, const FlowTable& flows) noexcept : key_(key), flows_(flows) {}

  // The initial sequence number of a SYN-ACK that is sent now.
  uint32_t make(const Address& local, const Address& remote, const ip::TcpView& syn, Nanoseconds now);
  // The newest timestamp that carries the SYN's options and is not ahead of the clock.
  static uint32_t timestamp(uint32_t clock, const ip::TcpOptions& syn) noexcept;
  // Whether cookies that were sent may still be answered.
  bool has_recent(Nanoseconds now) const noexcept;
  Answer check(const Address& local, const Address& remote, const ip::TcpView& segment, Nanoseconds now) const noexcept;
  // Call when the cookie's connection exists.
  void remove(const Address& local, const Address& remote) noexcept;
  // Reconstructs the peer's SYN from the ACK that answers a cookie.
  static ip::TcpView syn_of(const ip::TcpView& answer) noexcept;

 private:
  static constexpr uint32_t kSentMax = 4096;

  const HashKey& key_;
  const FlowTable& flows_;      // for its keyed hash
  Nanoseconds sent_at_ = 0;     // time of the last cookie; 0: none
  std::vector<uint32_t> sent_;  // hash table of the flows that were sent a cookie; empty: none was sent yet
};

}  // namespace unet::sockets
