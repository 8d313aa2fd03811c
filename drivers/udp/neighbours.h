// neighbours.h - finds the station of an IP address: ARP (RFC 826) and neighbour discovery (RFC 4861) without I/O and clock; used by the
// udp wrapper.
//
// It answers questions for our own address, and asks for the addresses that are wanted. It asks again after kRenew, and at most every
// kAskEvery while no answer comes. It believes only stations that it has asked for. The number of neighbours is fixed at construction.
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
  static constexpr Nanoseconds kAskFirst = 50 * kMillisecond;  // before the second question to an unknown one; then doubled
  static constexpr Nanoseconds kAskEvery = kSecond;        // maximum of that interval, and the interval for a known neighbour
  static constexpr Nanoseconds kRenew = 30 * kSecond;
  static constexpr Nanoseconds kPassEvery = 10 * kMillisecond;  // minimum time between scans of all places; a first question comes sooner
  static constexpr uint32_t kUnanswered = 4;      // unanswered renewals after which a neighbour counts as gone
  static constexpr size_t kMessageMax = 14 + kIpv6Bytes + 32;
  struct Message {
    std::array<std::byte, kMessageMax> bytes{};
    uint32_t length = 0;
  };

  Neighbours(const DatagramAddress& own, uint32_t places);

  // Assigns the address to the place. With `mac` the address is known and never asked for.
  void set(uint32_t place, const IpAddress& ip, const std::optional<MacAddress>& mac) noexcept;
  void clear(uint32_t place) noexcept;
  bool known(uint32_t place) const noexcept { return places_[place].known; }
  const MacAddress& mac(uint32_t place) const noexcept { return places_[place].mac; }
  // The caller wants to send to this place: its address is asked for, and renewed for a while.
  void want(uint32_t place, Nanoseconds now) noexcept;
  // Keeps the address renewed without end, even if nothing is sent to it.
  void want_always(uint32_t place, Nanoseconds now) noexcept {
    places_[place].always = true;
    want(place, now);
  }

  // Handles a frame that is not a datagram for us. Returns true if a neighbour sent it; then `reply` is the frame to send, if not empty.
  // `changed` is the place with a new or changed address, or none.
  bool handle(Bytes frame, Nanoseconds now, Message& reply, std::optional<uint32_t>& changed) noexcept;

  // Writes the next question that is due. Returns false if none is due before next_event().
  bool ask(Message& question, Nanoseconds now) noexcept;
  Nanoseconds next_event() const noexcept { return next_; }

  uint64_t asked() const noexcept { return asked_; }
  uint64_t answered() const noexcept { return answered_; }

 private:
  struct Place {
    IpAddress ip{};
    MacAddress mac{};
    bool used = false, known = false, fixed = false, always = false;
    uint32_t asked = 0;                   // questions without an answer
    Nanoseconds next = ~Nanoseconds{0};   // time of the next question
    Nanoseconds wanted = 0;               // time of the last want()
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
  uint32_t cursor_ = 0;                         // position of the current pass
  Nanoseconds next_pass_ = ~Nanoseconds{0};     // the earliest event that this pass has found
  uint64_t asked_ = 0, answered_ = 0;
};

}  // namespace unet::drivers
