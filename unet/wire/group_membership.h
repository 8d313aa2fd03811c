// group_membership.h - the common part of IGMP (RFC 9776, 2236, 1112) and MLD (RFC 9777, 2710): queries to a host, and the records of its
// reports; used by ipstack/.
//
// Version numbers are IGMP's: MLDv1 corresponds to IGMPv2, MLDv2 to IGMPv3. A report of version 3 has the same form in both:
//
//   type 1 | 0 1 | checksum 2 | 0 2 | records 2 | of each: kind 1 | 0 1 | sources 2 | group 4 or 16 | sources, 4 or 16 each
#pragma once

#include <cstddef>
#include <cstdint>

#include "unet/base/bytes.h"
#include "unet/wire/address.h"

namespace unet::ip {

struct GroupMessage {
  enum class Kind : uint8_t {
    query,
    report,  // another host's, of an old version
    other    // not for hosts
  } kind = Kind::other;
  uint8_t version = 3;
  IpAddress group{};           // unspecified: all groups
  uint32_t response_ms = 0;    // of a query: time within which to answer
  uint8_t robustness = 0;      // 0: absent
  uint32_t interval_s = 0;     // between queries; 0: absent
  bool ipv4 = true;
  Bytes sources{};             // of a query: 4 or 16 bytes each; empty: all sources

  uint32_t source_count() const noexcept { return static_cast<uint32_t>(sources.size() / (ipv4 ? 4 : 16)); }
  IpAddress source(uint32_t index) const noexcept {
    return ipv4 ? ipv4_address(sources.data() + index * size_t{4}) : ipv6_address(sources.data() + index * size_t{16});
  }
};

// Record types (RFC 9776, 4.2.13).
enum class GroupRecord : uint8_t { is_include = 1, is_exclude = 2, to_include = 3, to_exclude = 4, allow = 5, block = 6 };

constexpr uint32_t kGroupReportBytes = 8;  // without records
constexpr uint32_t group_record_bytes(bool ipv4, uint32_t sources) noexcept { return 4 + (ipv4 ? 4 : 16) * (1 + sources); }

// Writes the records of a report, in sequence, into `room`, which is larger than kGroupReportBytes.
class GroupReportWriter {
 public:
  GroupReportWriter(MutableBytes room, bool ipv4) noexcept : room_(room), ipv4_(ipv4) {}

  bool has_room_for(uint32_t sources) const noexcept { return size_ + group_record_bytes(ipv4_, sources) <= room_.size(); }
  // Requires has_room_for(sources); then call append() once per source.
  void begin(GroupRecord record, const IpAddress& group, uint32_t sources) noexcept;
  void append(const IpAddress& source) noexcept;
  uint32_t records() const noexcept { return records_; }
  // Writes the header with its type, but no checksum; returns the size of the report.
  uint32_t finish(uint8_t type) noexcept;

 private:
  MutableBytes room_;
  bool ipv4_;
  uint32_t size_ = kGroupReportBytes, records_ = 0;
};

// Decodes a time of a query (RFC 9776, 4.1.1; RFC 9777, 5.1.3): small codes literally, large ones as mantissa and exponent.
constexpr uint32_t group_time(uint32_t code, uint32_t mantissa_bits) noexcept {
  const uint32_t top = 1u << (mantissa_bits + 3);
  if (code < top) return code;
  const uint32_t mantissa = code & ((1u << mantissa_bits) - 1), exponent = code >> mantissa_bits & 7;
  return (mantissa | 1u << mantissa_bits) << (exponent + 3);
}

}  // namespace unet::ip
