// neighbours.h - which station of the wire has an IP address: ARP (RFC 826) and neighbour discovery (RFC 4861) as a machine without
// I/O and clock; used by the udp wrapper.
//
// It answers questions for our own address, and asks for the addresses that are wanted: again after kRenew, and when an answer is
// missing every kAskEvery at most. Only who was asked for is believed; the number of neighbours is fixed at the beginning.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "drivers/udp/datagram.h"
#include "unet/base/time.h"
#include "unet/wire/arp.h"

namespace unet::drivers {

class Neighbours {
 public:
  static constexpr Nanoseconds kAskFirst = 50 * kMillisecond;  // until the second question about an unknown one, then twice as long
  static constexpr Nanoseconds kAskEvery = kSecond;        // and until the next question about a known one
  static constexpr Nanoseconds kRenew = 30 * kSecond;
  static constexpr Nanoseconds kPassEvery = 10 * kMillisecond;  // all places are looked at no more often, but for a first question
  static constexpr uint32_t kUnanswered = 4;      // renewals without an answer until a neighbour is taken for gone
  static constexpr size_t kMessageMax = 14 + kIpv6Bytes + 32;
  struct Message {
    std::array<std::byte, kMessageMax> bytes{};
    uint32_t length = 0;
  };

  Neighbours(const DatagramAddress& own, uint32_t places);

  // The place is for this address from now on; `mac`: nobody is asked.
  void set(uint32_t place, const IpAddress& ip, const std::optional<MacAddress>& mac) noexcept;
  void clear(uint32_t place) noexcept;
  bool known(uint32_t place) const noexcept { return places_[place].known; }
  const MacAddress& mac(uint32_t place) const noexcept { return places_[place].mac; }
  // Somebody wants to send there: it is asked for, and kept.
  void want(uint32_t place, Nanoseconds now) noexcept;
  // Likewise without end, whoever sends.
  void want_always(uint32_t place, Nanoseconds now) noexcept {
    places_[place].always = true;
    want(place, now);
  }

  // A frame that is no datagram for us. True: it was a neighbour's; `reply` has what to send, if anything. `changed` is the place
  // whose address became known or another, or none.
  bool handle(Bytes frame, Nanoseconds now, Message& reply, std::optional<uint32_t>& changed) noexcept;

  // Writes the next question that is due; false: none is before next_event().
  bool ask(Message& question, Nanoseconds now) noexcept;
  Nanoseconds next_event() const noexcept { return next_; }

  uint64_t asked() const noexcept { return asked_; }
  uint64_t answered() const noexcept { return answered_; }

 private:
  struct Place {
    IpAddress ip{};
    MacAddress mac{};
    bool used = false, known = false, fixed = false, always = false;
    uint32_t asked = 0;                   // without an answer
    Nanoseconds next = ~Nanoseconds{0};   // question
    Nanoseconds wanted = 0;               // last
  };

  bool handle_arp(Bytes packet, Nanoseconds now, Message& reply, std::optional<uint32_t>& changed) noexcept;
  bool handle_discovery(Bytes bytes, const MacAddress& station, Nanoseconds now, Message& reply,
                        std::optional<uint32_t>& changed) noexcept;
  std::optional<uint32_t> learn(const IpAddress& ip, const MacAddress& mac, Nanoseconds now, bool answer) noexcept;
  void emit_question(Message& question, const Place& place) const noexcept;
  void emit_arp(Message& message, ip::ArpOperation operation, const MacAddress& to, const MacAddress& target,
                const IpAddress& ip) const noexcept;
  void emit_discovery(Message& message, bool answer, const MacAddress& to, const IpAddress& to_ip, const IpAddress& target,
                      bool solicited) const noexcept;

  size_t hash(const IpAddress& ip) const noexcept;
  void insert(uint32_t place) noexcept;

  const DatagramAddress own_;
  std::vector<Place> places_;
  std::vector<uint32_t> table_;  // used places by address, with linear probing; at most half full
  const uint64_t multiplier_;
  Nanoseconds next_ = ~Nanoseconds{0};
  uint32_t cursor_ = 0;                         // of the pass under way
  Nanoseconds next_pass_ = ~Nanoseconds{0};     // what it has found so far
  uint64_t asked_ = 0, answered_ = 0;
};

}  // namespace unet::drivers
