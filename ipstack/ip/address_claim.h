// address_claim.h - whether an address is ours alone: duplicate address detection of IPv6 (RFC 4862, 5.4) and conflict detection of IPv4
// (RFC 5227), as a machine without I/O and clock; used by the stack of a host.
//
//            probes, each unanswered                  announcements                      a conflict, once in 10 s: defended
//   tentative ------------------------> (announcing) -------------> assigned ----------------------------------------------> assigned
//       |                                                              | another within 10 s
//       +---- somebody has it, or asks for it at the same time ----> conflict <--+
//
// Of IPv6 one probe is sent and nothing is announced; a conflict of an assigned address is not for this machine there: two
// advertisements quarrel in the neighbours' caches, and the address stays.
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

  // Begins at once; `seed` spreads hosts that start together (RFC 5227, 2.1.1; RFC 4862, 5.4.2). `probe`: false where it is known that
  // the address is ours: then it is assigned at once.
  AddressClaim(const IpAddress& address, const MacAddress& own, bool probe, uint64_t seed, Nanoseconds now) noexcept;

  const IpAddress& address() const noexcept { return address_; }
  State state() const noexcept { return state_; }

  // Somebody says that he has `sender` (ARP's sender; the target of an advertisement), or asks for it as we do: `probe`. Frames of our own
  // station are none.
  void handle_claim(const IpAddress& sender, const MacAddress& station, Nanoseconds now) noexcept;
  void handle_probe(const IpAddress& target, const MacAddress& station, Nanoseconds now) noexcept;

  // What to send now; false: nothing before next_event().
  bool poll_message(Nanoseconds now, Message& message) noexcept;
  Nanoseconds next_event() const noexcept { return next_; }

 private:
  Nanoseconds random(Nanoseconds from, Nanoseconds to) noexcept;

  IpAddress address_;
  MacAddress own_;
  State state_ = State::tentative;
  uint32_t probes_ = 0, announcements_ = 0;  // that were sent
  uint64_t random_;
  Nanoseconds next_ = 0;
  Nanoseconds defended_ = 0;                 // last; 0: never
};

}  // namespace unet::ip
