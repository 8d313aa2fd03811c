// reassembly.h - IP packets of which some fragments have arrived (RFC 791, 3.2; RFC 8200, 4.5), as a machine without clock; used by the
// stack of a host.
//
// A place has room for the largest packet and a bit for each 8 bytes of it. The memory is made at the start and touched as packets come.
// Fragments that overlap, or contradict what was said before, end their packet (RFC 5722; so for IPv4, too): nobody sends such but to get
// past a filter. Its place stays until its time is over, so that what else comes of it does not begin anew. One sender has a share of the
// places at most, and when all are taken the oldest packet is given up.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "unet/base/time.h"
#include "unet/wire/ip.h"

namespace unet::ip {

struct ReassemblyOptions {
  uint32_t places = 64;                  // packets at a time, of 64 KiB each
  uint32_t per_sender = 16;              // of these
  Nanoseconds timeout = 60 * kSecond;    // from the first fragment on (RFC 1122, 3.3.2; RFC 8200, 4.5)
};

struct ReassemblyCounters {
  uint64_t fragments = 0, completed = 0, duplicates = 0;
  uint64_t refused = 0;     // packets: overlaps, two lengths, ECN that contradicts itself, a first fragment without all headers
  uint64_t late = 0;        // fragments of these
  uint64_t timed_out = 0;   // packets
  uint64_t overflow = 0;    // packets that were given up for others
};

class Reassembly {
 public:
  explicit Reassembly(const ReassemblyOptions& options = {});

  enum class Outcome : uint8_t { kept, complete, duplicate, refused, late };
  // Takes a fragment that parse_ip_packet() has let through. With `complete`, `whole` is the packet as if it had never been cut, for
  // parse_reassembled(); it lies in memory of this object until the next call. `problem` may be set with `refused`.
  Outcome add(const IpView& fragment, Nanoseconds now, IpView& whole, Problem& problem) noexcept;

  // Gives up one packet whose time is over; false: none is. True: `begun` is what had come of it from its beginning, whose sender is to be
  // told by time_exceeded, code 1 (RFC 1122, 3.3.2); its payload is empty if the first fragment is missing, then nobody is told.
  bool expire(Nanoseconds now, IpView& begun) noexcept;
  // When expire() has something to do; ~0: never.
  Nanoseconds next_event() const noexcept;

  uint32_t used() const noexcept { return used_; }
  const ReassemblyCounters& counters() const noexcept { return counters_; }

 private:
  static constexpr uint32_t kPayloadMax = 65535;
  static constexpr uint32_t kHeaderRoom = kIpv6Bytes;                // in front of the payload
  static constexpr uint32_t kWords = (kPayloadMax / kFragmentUnit + 64) / 64;  // of the bits

  struct Place {
    IpView first{};                       // the fields of the packet, of the first fragment as soon as it is there
    std::unique_ptr<std::byte[]> bytes;   // kHeaderRoom and kPayloadMax
    std::array<uint64_t, kWords> there{};
    Nanoseconds deadline = 0;
    uint32_t units = 0;                   // that are there
    uint32_t length = 0;                  // of the payload; 0: the last fragment is missing
    uint8_t ecn = 0;                      // bits 1 << codepoint that were seen
    bool used = false, refused = false, begun = false;
  };

  Place* find(const IpView& fragment) noexcept;
  Place* open(const IpView& fragment, Nanoseconds now) noexcept;
  Outcome refuse(Place& place) noexcept;
  void close(Place& place) noexcept;
  bool mark(Place& place, uint32_t first, uint32_t count) noexcept;
  bool is_there(const Place& place, uint32_t first, uint32_t count) const noexcept;
  IpView view_of(Place& place, uint32_t length) const noexcept;

  const ReassemblyOptions options_;
  std::vector<Place> places_;
  uint32_t used_ = 0;
  ReassemblyCounters counters_;
};

}  // namespace unet::ip
