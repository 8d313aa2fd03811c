// syn_cookies.h - SYN cookies (RFC 4987, 3.6): handshakes without state, when too many are under way; used by the stack.
//
// A cookie is the initial sequence number: 24 bits of hash, 5 of time, 3 of the peer's MSS. Nothing is stored for a peer that gets one. As
// in Linux (net/ipv4/syncookies.c), the lowest bits of our timestamp, which the peer echoes, have the rest of its SYN: 4 bits of window
// scale, one of SACK. They are not hashed, as a peer that forges them harms only its own connection. Without timestamps, neither is used.
#pragma once

#include "ipstack/sockets/keyed_hash.h"
#include "unet/base/time.h"
#include "unet/wire/tcp.h"

namespace unet::sockets {

class SynCookies {
 public:
  // first: the segment echoes a cookie. later: it does not, but its sender may have got one lately, and the ACK that echoes it was lost or
  // reordered. Drop it: a reset would end a good connection.
  enum class Answer : uint8_t { none, later, first };

  explicit SynCookies(const HashKey& key) noexcept : key_(key) {}

  // The initial sequence number of a SYN-ACK that is sent now.
  uint32_t make(const Address& local, const Address& remote, const ip::TcpView& syn, Nanoseconds now);
  // The newest timestamp that carries the SYN's options and is not ahead of the clock.
  static uint32_t timestamp(uint32_t clock, const ip::TcpOptions& syn) noexcept;
  // Whether cookies that were sent may still be answered.
  bool has_recent(Nanoseconds now) const noexcept;
  // Only while has_recent().
  Answer check(const Address& local, const Address& remote, const ip::TcpView& segment, Nanoseconds now) const noexcept;
  // Reconstructs the peer's SYN from the ACK that answers a cookie.
  static ip::TcpView syn_of(const ip::TcpView& answer) noexcept;

 private:
  // A peer with a cookie sends the beginning of its data again within this time after its first ACK was lost.
  static constexpr Nanoseconds kLate = 3 * kSecond;

  const HashKey& key_;
  Nanoseconds sent_at_ = 0;  // time of the last cookie; 0: none
};

}  // namespace unet::sockets
