// icmp.cc - parses and emits ICMP, with tables of the types and codes of both versions.
#include "unet/wire/icmp.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "unet/wire/checksum.h"

namespace unet::ip {
namespace {

struct IcmpHeader {
  uint8_t type, code;
  uint16_t checksum;  // result of checksum_fold()
  be16 first, second; // echo: id and sequence; IPv4's "fragmentation needed": 0 and the MTU
};
static_assert(sizeof(IcmpHeader) == kIcmpBytes);

struct Type {
  IcmpKind kind;
  uint8_t ipv4, ipv6;
};
constexpr uint8_t kFragmentationNeeded = 4;  // IPv4 reports "packet too big" by this code of "unreachable"
constexpr uint8_t kNone = 255;
constexpr uint8_t kSourceQuench = 4;  // an obsolete IPv4 error (RFC 6633)
constexpr uint8_t kFirstQuery6 = 128; // RFC 4443, 2.1: types below are errors
constexpr Type kTypes[] = {
    {IcmpKind::echo_request, 8, 128}, {IcmpKind::echo_reply, 0, 129},  {IcmpKind::unreachable, 3, 1},
    {IcmpKind::packet_too_big, 3, 2}, {IcmpKind::time_exceeded, 11, 3}, {IcmpKind::parameter_problem, 12, 4},
    {IcmpKind::redirect, 5, 137},
};

struct Code {
  Unreachable why;
  uint8_t ipv4, ipv6;
};
// RFC 792, RFC 1122 3.2.2.1, RFC 4443 3.1. The first row of a meaning is the one sent. IPv6 reports an unknown protocol as a parameter
// problem.
constexpr Code kCodes[] = {
    {Unreachable::network, 0, 0},     {Unreachable::host, 1, 3},       {Unreachable::protocol, 2, kNone},
    {Unreachable::port, 3, 4},        {Unreachable::prohibited, 13, 1}, {Unreachable::prohibited, 9, 5},
    {Unreachable::prohibited, 10, 6}, {Unreachable::network, 6, kNone}, {Unreachable::host, 7, kNone},
};

const Type* find_type(uint8_t type, bool ipv4) noexcept {
  const auto is_it = [&](const Type& each) { return (ipv4 ? each.ipv4 : each.ipv6) == type; };
  const auto* const at = std::find_if(std::begin(kTypes), std::end(kTypes), is_it);
  return at == std::end(kTypes) ? nullptr : at;
}

uint8_t type_of(IcmpKind kind, bool ipv4) noexcept {
  const auto* const at = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type& t) { return t.kind == kind; });
  return ipv4 ? at->ipv4 : at->ipv6;
}

Unreachable meaning(uint8_t code, bool ipv4) noexcept {
  const auto is_it = [&](const Code& each) { return (ipv4 ? each.ipv4 : each.ipv6) == code; };
  const auto* const at = std::find_if(std::begin(kCodes), std::end(kCodes), is_it);
  return at == std::end(kCodes) || code == kNone ? Unreachable::other : at->why;
}

uint8_t code_of(Unreachable why, bool ipv4) noexcept {
  const auto* const at = std::find_if(std::begin(kCodes), std::end(kCodes), [&](const Code& c) { return c.why == why; });
  return at == std::end(kCodes) ? 0 : ipv4 ? at->ipv4 : at->ipv6;
}

uint64_t start_of_sum(const IpAddress& from, const IpAddress& to, size_t size) noexcept {
  return from.is_ipv4() ? 0 : pseudo_header_sum(from, to, Protocol::kIcmp6, static_cast<uint32_t>(size));
}

}  // namespace

const char* name_of(IcmpError error) noexcept {
  constexpr std::array<const char*, static_cast<size_t>(IcmpError::count)> kNames{"none", "truncated", "bad_checksum"};
  return kNames[static_cast<size_t>(error)];
}

bool is_icmp_error(uint8_t type, bool ipv4) noexcept {
  const Type* const known = find_type(type, ipv4);
  if (known != nullptr) return known->kind >= IcmpKind::unreachable;
  return ipv4 ? type == kSourceQuench : type < kFirstQuery6;
}

IcmpError parse_icmp(const IpView& packet, IcmpView& view) noexcept {
  const Bytes bytes = packet.payload;
  if (bytes.size() < kIcmpBytes) return IcmpError::truncated;
  if (checksum_fold(checksum_add(start_of_sum(packet.from, packet.to, bytes.size()), bytes)) != 0) return IcmpError::bad_checksum;
  IcmpHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  view = {.type = header.type, .code = header.code, .rest = bytes.subspan(kIcmpBytes)};
  const uint32_t word = uint32_t{header.first} << 16 | header.second;
  const Type* const type = find_type(header.type, packet.ipv4);
  view.kind = type == nullptr ? IcmpKind::other : type->kind;
  if (packet.ipv4 && view.kind == IcmpKind::unreachable && header.code == kFragmentationNeeded) view.kind = IcmpKind::packet_too_big;
  view.error = is_icmp_error(header.type, packet.ipv4);
  switch (view.kind) {
    case IcmpKind::echo_request: case IcmpKind::echo_reply:
      view.id = header.first;
      view.sequence = header.second;
      break;
    case IcmpKind::unreachable: view.why = meaning(header.code, packet.ipv4); break;
    case IcmpKind::packet_too_big: view.mtu = packet.ipv4 ? uint16_t{header.second} : word; break;
    case IcmpKind::parameter_problem: view.pointer = packet.ipv4 ? word >> 24 : word; break;
    case IcmpKind::other:
      if (!view.error) view.rest = bytes.subspan(4);
      break;
    case IcmpKind::time_exceeded: case IcmpKind::redirect: break;
  }
  return IcmpError::none;
}

void sum_icmp(std::byte* message, size_t size, const IpAddress& from, const IpAddress& to) noexcept {
  std::memset(message + offsetof(IcmpHeader, checksum), 0, 2);
  const uint16_t checksum = checksum_fold(checksum_add(start_of_sum(from, to, size), message, size));
  std::memcpy(message + offsetof(IcmpHeader, checksum), &checksum, sizeof checksum);
}

void emit_echo(std::byte* to, const IpAddress& from, const IpAddress& peer, bool reply, uint16_t id, uint16_t sequence,
               Bytes data) noexcept {
  IcmpHeader header{.type = type_of(reply ? IcmpKind::echo_reply : IcmpKind::echo_request, from.is_ipv4()), .code = 0, .checksum = 0,
                    .first = id, .second = sequence};
  const uint64_t sum = start_of_sum(from, peer, kIcmpBytes + data.size());
  header.checksum = checksum_fold(checksum_add(checksum_add(sum, &header, sizeof header), data));
  std::memcpy(to, &header, sizeof header);
}

uint32_t emit_icmp_error(std::byte* to, const IpAddress& from, const IpAddress& peer, const IcmpErrorFields& fields,
                         Bytes about) noexcept {
  const bool ipv4 = from.is_ipv4();
  IcmpHeader header{};
  header.type = type_of(fields.kind, ipv4);
  header.code = fields.code;
  if (fields.kind == IcmpKind::unreachable) header.code = code_of(fields.why, ipv4);
  if (fields.kind == IcmpKind::packet_too_big) header.code = ipv4 ? kFragmentationNeeded : 0;
  // IPv4's pointer is the first byte of the word, its MTU the last two; those of IPv6 take all four.
  const uint32_t word = !ipv4 || fields.kind != IcmpKind::parameter_problem ? fields.value : fields.value << 24;
  header.first = static_cast<uint16_t>(word >> 16);
  header.second = static_cast<uint16_t>(word);
  std::memcpy(to, &header, sizeof header);
  const size_t quoted = std::min<size_t>(about.size(), ipv4 ? kIcmpQuote4Max : kIcmpQuote6Max);
  if (quoted != 0) std::memcpy(to + kIcmpBytes, about.data(), quoted);
  const size_t size = kIcmpBytes + quoted;
  sum_icmp(to, size, from, peer);
  return static_cast<uint32_t>(size);
}

}  // namespace unet::ip
