// address_claim.h - duplicate address detection of IPv6 (RFC 4862, 5.4) and address conflict detection of IPv4 (RFC 5227), without I/O and
// clock; used by Host.
//
//            probes, each unanswered                  announcements                      a conflict, once in 10 s: defended
//   tentative ------------------------> (announcing) -------------> assigned ----------------------------------------------> assigned
//       |                                                              | another within 10 s
//       +---- another host has it, or probes at the same time ----> conflict <--+
//
// IPv6 sends one probe and announces nothing. A conflict of an assigned IPv6 address is ignored: two advertisements then compete in the
// neighbours' caches, and the address stays.
#pragma once

#include <cstdint>

#include "unet/base/time.h"
#include "unet/wire/ethernet.h"

namespace unet::ip {

class AddressClaim {
 public:
  enum class State : uint8_t { tentative, assigned, conflict };
  enum class Message : uint8_t {
    probe,     // IPv4: an ARP request from 0.0.0.0; IPv6: a neighbour solicitation from ::
    announce,  // IPv4: an ARP request for the address from itself
  };

  // Begins at once. `seed` spreads hosts that start together (RFC 5227, 2.1.1; RFC 4862, 5.4.2). `probe`: false if the address is known to
  // be ours; it is then assigned at once.
  AddressClaim(const IpAddress& address, const MacAddress& own, bool probe, uint64_t seed, Nanoseconds now) noexcept;

  const IpAddress& address() const noexcept { return address_; }
  State state() const noexcept { return state_; }

  // handle_claim(): another station uses `sender` (ARP's sender address, or the target of an advertisement). handle_probe(): another
  // station probes for `target`. Frames of our own station are ignored.
  void handle_claim(const IpAddress& sender, const MacAddress& station, Nanoseconds now) noexcept;
  void handle_probe(const IpAddress& target, const MacAddress& station, Nanoseconds now) noexcept;

  // The message to send now; false: none before next_event().
  bool poll_message(Nanoseconds now, Message& message) noexcept;
  Nanoseconds next_event() const noexcept { return next_; }

 private:
  Nanoseconds random(Nanoseconds from, Nanoseconds to) noexcept;

  IpAddress address_;
  MacAddress own_;
  State state_ = State::tentative;
  uint32_t probes_ = 0, announcements_ = 0;  // sent so far
  uint64_t random_;
  Nanoseconds next_ = 0;
  Nanoseconds defended_ = 0;                 // last defence; 0: never
};

}  // namespace unet::ip
