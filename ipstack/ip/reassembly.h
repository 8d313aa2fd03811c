// reassembly.h - IP reassembly (RFC 791, 3.2; RFC 8200, 4.5), without I/O and clock; used by Host.
//
// A place has room for the largest packet, and a bit for each 8 bytes of it. Its memory is allocated at the start, and pages are touched as
// fragments arrive. Fragments that overlap, or contradict earlier ones, end their packet (RFC 5722, here for IPv4, too): only attempts to
// pass a filter look like that. The place stays until its timeout, so that later fragments do not start anew. One sender gets a limited
// share of the places. When all are taken, the oldest packet is dropped.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "unet/base/time.h"
#include "unet/wire/ip.h"

namespace unet::ip {

struct ReassemblyOptions {
  uint32_t places = 64;                  // packets in reassembly, of 64 KiB each
  uint32_t per_sender = 16;              // limit of places per sender
  Nanoseconds timeout = 60 * kSecond;    // since the first fragment (RFC 1122, 3.3.2; RFC 8200, 4.5)
};

struct ReassemblyCounters {
  uint64_t fragments = 0, completed = 0, duplicates = 0;
  // Packets: overlaps, two lengths, contradictory ECN, or a first fragment without all headers.
  uint64_t refused = 0;
  uint64_t late = 0;        // fragments of refused packets
  uint64_t timed_out = 0;   // packets
  uint64_t overflow = 0;    // packets that were dropped for newer ones
};

class Reassembly {
 public:
  explicit Reassembly(const ReassemblyOptions& options = {});

  enum class Outcome : uint8_t { stored, complete, duplicate, refused, late };
  // Adds a fragment that parse_ip_packet() has accepted. If `complete`, `whole` is the reassembled packet, for parse_reassembled(). It lies
  // in memory of this object until the next call. `problem` may be set if `refused`.
  Outcome add(const IpView& fragment, Nanoseconds now, IpView& whole, Problem& problem) noexcept;

  // Removes one packet past its timeout; false: there is none. True: `begun` has the data from offset 0 on. Its sender must get an ICMP
  // time_exceeded, code 1 (RFC 1122, 3.3.2). Without the first fragment, the payload is empty and no error is sent.
  bool expire(Nanoseconds now, IpView& begun) noexcept;
  // When expire() is due; ~0: never.
  Nanoseconds next_event() const noexcept;

  uint32_t used() const noexcept { return used_; }
  const ReassemblyCounters& counters() const noexcept { return counters_; }

 private:
  static constexpr uint32_t kPayloadMax = 65535;
  static constexpr uint32_t kHeaderRoom = kIpv6Bytes;                // for a header in front of the payload
  static constexpr uint32_t kWords = (kPayloadMax / kFragmentUnit + 64) / 64;  // of the bitmap

  struct Place {
    IpView first{};                       // header fields: of the first fragment, once it is there
    std::unique_ptr<std::byte[]> bytes;   // kHeaderRoom plus kPayloadMax bytes
    std::array<uint64_t, kWords> there{};
    Nanoseconds deadline = 0;
    uint32_t units = 0;                   // units of 8 bytes received
    uint32_t length = 0;                  // payload length; 0: the last fragment is missing
    uint8_t ecn = 0;                      // set of the ECN codepoints seen, as 1 << codepoint
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
