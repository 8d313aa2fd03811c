// reassembly.cc - places, their bitmaps, and reassembled packets.
#include "ipstack/ip/reassembly.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace unet::ip {
namespace {

constexpr uint8_t kEcnMask = 3, kNotEct = 1 << 0, kCe = 1 << 3;  // RFC 3168: codepoints 00 and 11, as bits of a set
constexpr uint32_t kTcpHeader = 20, kOtherHeader = 8;            // bytes

uint32_t units_of(size_t bytes) noexcept { return static_cast<uint32_t>((bytes + kFragmentUnit - 1) / kFragmentUnit); }

// RFC 7112: the first fragment of an IPv6 packet has all headers, including the transport header.
bool has_all_headers(const IpView& first) noexcept {
  if (first.ipv4) return true;
  IpView view = first;
  Problem ignored;
  const IpError error = parse_reassembled(first.protocol, first.packet, first.payload, view, ignored);
  if (error == IpError::truncated) return false;
  switch (view.protocol) {
    case Protocol::kTcp: return view.payload.size() >= kTcpHeader;
    case Protocol::kUdp: case Protocol::kIcmp6: return view.payload.size() >= kOtherHeader;
    default: return true;
  }
}

// RFC 3168, 5.3: CE on any fragment marks the packet. CE beside Not-ECT is a forgery.
bool contradicts(uint8_t seen) noexcept { return (seen & kCe) != 0 && (seen & kNotEct) != 0; }

}  // namespace

Reassembly::Reassembly(const ReassemblyOptions& options) : options_(options), places_(options.places) {
  // Uninitialized: a page uses no memory until a packet needs it.
  for (Place& place : places_) place.bytes.reset(new std::byte[kHeaderRoom + kPayloadMax]);
}

Reassembly::Place* Reassembly::find(const IpView& f) noexcept {
  const auto is_it = [&](const Place& p) {
    return p.used && p.first.id == f.id && p.first.ipv4 == f.ipv4 && p.first.from == f.from && p.first.to == f.to &&
           (!f.ipv4 || p.first.protocol == f.protocol);  // RFC 791 includes the protocol, RFC 8200 does not
  };
  const auto at = std::find_if(places_.begin(), places_.end(), is_it);
  return at == places_.end() ? nullptr : &*at;
}

Reassembly::Place* Reassembly::open(const IpView& fragment, Nanoseconds now) noexcept {
  if (places_.empty()) return nullptr;
  Place *free = nullptr, *oldest = nullptr, *oldest_of_sender = nullptr;
  uint32_t of_sender = 0;
  for (Place& place : places_) {
    if (!place.used) {
      free = &place;
      continue;
    }
    if (oldest == nullptr || place.deadline < oldest->deadline) oldest = &place;
    if (place.first.from != fragment.from) continue;
    ++of_sender;
    if (oldest_of_sender == nullptr || place.deadline < oldest_of_sender->deadline) oldest_of_sender = &place;
  }
  Place* place = free;
  if (of_sender != 0 && of_sender >= options_.per_sender) place = oldest_of_sender;
  else if (place == nullptr) place = oldest;
  if (place->used) {
    ++counters_.overflow;
    close(*place);
  }
  place->first = fragment;
  place->first.packet = place->first.payload = {};
  place->there = {};
  place->deadline = now + options_.timeout;
  place->units = place->length = 0;
  place->ecn = 0;
  place->refused = place->begun = false;
  place->used = true;
  ++used_;
  return place;
}

void Reassembly::close(Place& place) noexcept {
  place.used = false;
  --used_;
}

Reassembly::Outcome Reassembly::refuse(Place& place) noexcept {
  place.refused = true;
  ++counters_.refused;
  return Outcome::refused;
}

bool Reassembly::is_there(const Place& place, uint32_t first, uint32_t count) const noexcept {
  for (uint32_t i = first; i < first + count; ++i) {
    if ((place.there[i / 64] >> i % 64 & 1) == 0) return false;
  }
  return true;
}

// Sets the bits. False: some were set already (overlap).
bool Reassembly::mark(Place& place, uint32_t first, uint32_t count) noexcept {
  for (uint32_t i = first; i < first + count;) {
    const uint32_t in_word = std::min(64 - i % 64, first + count - i);
    const uint64_t bits = (in_word == 64 ? ~uint64_t{0} : (uint64_t{1} << in_word) - 1) << i % 64;
    if ((place.there[i / 64] & bits) != 0) return false;
    place.there[i / 64] |= bits;
    i += in_word;
  }
  place.units += count;
  return true;
}

IpView Reassembly::view_of(Place& place, uint32_t length) const noexcept {
  IpView whole = place.first;
  const IpFields fields{.from = whole.from, .to = whole.to, .protocol = whole.protocol, .hop_limit = whole.hop_limit,
                        .traffic_class = whole.traffic_class, .dont_fragment = whole.dont_fragment, .id = whole.id,
                        .flow_label = whole.flow_label};
  std::byte* const payload = place.bytes.get() + kHeaderRoom;
  std::byte* const header = payload - ip_header_size(fields);
  // Fragments can exceed what a length field holds: the header then states the maximum.
  const auto room = static_cast<uint32_t>(kPayloadMax - (whole.ipv4 ? kIpv4Bytes : 0));
  const uint32_t size = emit_ip_header(header, fields, std::min(length, room));
  whole.packet = {header, size + length};
  whole.payload = {payload, length};
  whole.more_fragments = false;
  whole.offset = 0;
  whole.protocol_at = 6;
  return whole;
}

Reassembly::Outcome Reassembly::add(const IpView& fragment, Nanoseconds now, IpView& whole, Problem& problem) noexcept {
  problem = {};
  ++counters_.fragments;
  const auto length = static_cast<uint32_t>(fragment.payload.size());
  const uint32_t end = fragment.offset + length;
  Place* place = find(fragment);
  if (place == nullptr) place = open(fragment, now);
  if (place == nullptr || place->refused) {
    ++counters_.late;
    return Outcome::late;
  }
  if (length == 0 || end > kPayloadMax) return refuse(*place);
  if (fragment.offset == 0 && !has_all_headers(fragment)) {
    problem = {.code = 3, .pointer = 0, .report = true, .even_of_groups = false};  // RFC 7112, 6
    return refuse(*place);
  }
  // The last fragment fixes the packet's length: only once, and nothing may lie beyond.
  const bool last = !fragment.more_fragments;
  const uint32_t first_unit = fragment.offset / kFragmentUnit, units = units_of(length);
  if (place->length != 0 && (end > place->length || (last && end != place->length))) return refuse(*place);
  std::byte* const at = place->bytes.get() + kHeaderRoom + fragment.offset;
  if (is_there(*place, first_unit, units)) {
    // RFC 8200, 4.5: an exact duplicate is ignored, even if it covers two earlier fragments.
    if (std::memcmp(at, fragment.payload.data(), length) != 0) return refuse(*place);
    if (last && place->length == 0) return refuse(*place);  // earlier fragments said that these bytes were not the last
    ++counters_.duplicates;
    return Outcome::duplicate;
  }
  if (last) {
    // Did an earlier fragment lie beyond the end?
    for (uint32_t i = first_unit + units; place->length == 0 && i < kWords * 64; ++i) {
      if ((place->there[i / 64] >> i % 64 & 1) != 0) return refuse(*place);
    }
    place->length = end;
  }
  if (!mark(*place, first_unit, units)) return refuse(*place);
  std::memcpy(at, fragment.payload.data(), length);
  place->ecn = static_cast<uint8_t>(place->ecn | 1 << (fragment.traffic_class & kEcnMask));
  if (contradicts(place->ecn)) return refuse(*place);
  if (fragment.offset == 0) {
    place->begun = true;
    place->first = fragment;
    place->first.packet = place->first.payload = {};
  }
  if (place->length == 0 || place->units != units_of(place->length)) return Outcome::stored;
  if ((place->ecn & kCe) != 0) place->first.traffic_class |= kEcnMask;
  whole = view_of(*place, place->length);
  ++counters_.completed;
  close(*place);
  return Outcome::complete;
}

bool Reassembly::expire(Nanoseconds now, IpView& begun) noexcept {
  for (Place& place : places_) {
    if (!place.used || place.deadline > now) continue;
    if (!place.refused) ++counters_.timed_out;
    uint32_t units = 0;
    while (units < kWords * 64 && (place.there[units / 64] >> units % 64 & 1) != 0) ++units;
    const uint32_t length = place.length != 0 ? std::min(units * kFragmentUnit, place.length) : units * kFragmentUnit;
    begun = view_of(place, place.begun && !place.refused ? length : 0);
    close(place);
    return true;
  }
  return false;
}

Nanoseconds Reassembly::next_event() const noexcept {
  Nanoseconds next = ~Nanoseconds{0};
  for (const Place& place : places_) {
    if (place.used) next = std::min(next, place.deadline);
  }
  return next;
}

}  // namespace unet::ip
