// counters.h - what is counted, by name: per endpoint (its owner reads them in the segment) and per NI.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace unet {

// Counters of one endpoint, written by the engine. Every message or descriptor that is not delivered raises exactly one
// of the drop counters (those from `first_drop` on).
enum class EndpointCounter : uint8_t {
  sent_messages,
  sent_bytes,
  received_messages,
  received_bytes,
  // Drops of what this endpoint wanted to send.
  bad_send_descriptor,   // unknown kind, overlong length, fragment outside the segment
  unknown_channel,       // the channel is not (or no longer) one of this endpoint's
  bad_ip_message,        // an IP message shorter than its header, with unknown flags, or to be cut into too many
  bad_ip_header,         // its IP header: version, length, a fragment, options of IPv4
  bad_ip_protocol,       // neither TCP nor UDP
  bad_ip_transport,      // its TCP or UDP header: lengths
  bad_ip_source,         // from an address that is not one of the NI's, or not yet
  bad_ip_port,           // from a port that the endpoint has not claimed, or not for that peer
  ip_no_route,           // there is no way to that address
  ip_too_big,            // for the path, and not to be cut: an ICMP error tells
  ip_no_buffer,          // too much waits for a neighbour that has not answered
  ip_many_neighbours,    // the user sends to too many that have to be asked for
  ip_not_over,           // a SYN between ports whose last connection, a dead process's, is not over yet
  // Drops of what was sent to this endpoint.
  no_free_buffer,        // the free queue was empty
  receive_queue_full,    // the receive queue was full
  too_long,              // the message needs more memory than all receive buffers have
  too_fragmented,        // the free queue gave buffers too scattered for one receive descriptor
  bad_free_descriptor,   // the free queue named a buffer that does not exist, or that the NI has already
  duplicate_fragment,    // a fragment arrived twice
  fragment_mismatch,     // fragments of one message disagree about its length or kind
  reassembly_timeout,    // fragments missing for too long
  reassembly_overflow,   // too many messages of this endpoint, or of the NI, in reassembly at once
  put_no_region,         // a put came, but no region is exposed
  put_out_of_bounds,     // a put came for bytes outside the exposed region
  count
};
constexpr size_t kEndpointCounters = static_cast<size_t>(EndpointCounter::count);
constexpr EndpointCounter kFirstEndpointDrop = EndpointCounter::bad_send_descriptor;

constexpr std::array<std::string_view, kEndpointCounters> kEndpointCounterNames{
    "sent_messages", "sent_bytes", "received_messages", "received_bytes", "bad_send_descriptor", "unknown_channel",
    "bad_ip_message", "bad_ip_header", "bad_ip_protocol", "bad_ip_transport", "bad_ip_source", "bad_ip_port", "ip_no_route", "ip_too_big",
    "ip_no_buffer", "ip_many_neighbours", "ip_not_over", "no_free_buffer", "receive_queue_full", "too_long", "too_fragmented",
    "bad_free_descriptor", "duplicate_fragment", "fragment_mismatch", "reassembly_timeout", "reassembly_overflow", "put_no_region",
    "put_out_of_bounds"};

// Counters of the NI itself: frames that no endpoint can be charged with.
enum class NiCounter : uint8_t {
  received_frames,
  received_bytes,
  transmitted_frames,
  transmitted_bytes,
  hairpin_messages,     // delivered between two endpoints of this NI without a wire
  wakeups,              // sleeping clients woken
  linked_frames,        // to and from ports of other engines of this NI, and to their endpoints: as this engine sent or passed them
  linked_bytes,
  ip_received,          // IP packets that came to claims over a wire; what the host of a port dealt with itself is in its own counters
  ip_sent,              // IP packets that endpoints sent over a wire
  ip_same_ni,           // delivered between two endpoints of this NI
  ip_left,              // TCP connections that processes left when they ended, and that are ended for them
  ip_left_sent,         // segments that were sent for that
  ip_left_owned,        // such connections that a living process has: nothing is done about them
  ip_owners_evicted,    // connections of shared ports of which it is forgotten whose they are: more than kIpOwnedFlowsMax are under way
  ip_openings_evicted,  // the same of those with a half-done handshake, or that end
  // Drops.
  not_ours,             // another Ethernet type, or not addressed to this port
  truncated,
  bad_version,
  bad_flags,
  bad_length,
  bad_crc,
  unknown_tag,
  wrong_source,         // the tag is known, but its channel belongs to another address or port
  bad_signal,           // a signalling frame that is malformed
  signal_overflow,      // signalling frames faster than the service takes them
  transmit_overflow,    // the port did not take a signalling frame
  link_overflow,        // a frame for an endpoint of another engine, which does not take so many
  ip_bad_transport,     // TCP or UDP that is malformed or has a wrong checksum
  ip_unclaimed,         // IP that no endpoint claims; its sender is told, as far as a host does
  ip_left_overflow,     // connections that processes left beyond kIpRemainsMax: their peers learn of it when they say something
  ip_left_unasked,      // segments for those to hosts of the link that nobody had asked for, too many at a time for one user
  count
};
constexpr size_t kNiCounters = static_cast<size_t>(NiCounter::count);
constexpr NiCounter kFirstNiDrop = NiCounter::not_ours;

constexpr std::array<std::string_view, kNiCounters> kNiCounterNames{
    "received_frames", "received_bytes", "transmitted_frames", "transmitted_bytes", "hairpin_messages", "wakeups",
    "linked_frames", "linked_bytes", "ip_received", "ip_sent", "ip_same_ni", "ip_left", "ip_left_sent",
    "ip_left_owned", "ip_owners_evicted", "ip_openings_evicted", "not_ours",
    "truncated", "bad_version", "bad_flags", "bad_length", "bad_crc", "unknown_tag", "wrong_source", "bad_signal",
    "signal_overflow", "transmit_overflow", "link_overflow", "ip_bad_transport", "ip_unclaimed", "ip_left_overflow",
    "ip_left_unasked"};

// What the engine holds for clients at the moment. All of it is given back when they end, however they end.
enum class NiGauge : uint8_t {
  clients,
  endpoints,            // also those that a port still reads from
  channels,             // ends of channels that go through the engine
  tags,                 // of them over a wire
  reassemblies,         // messages of which some fragments have arrived
  count
};
constexpr size_t kNiGauges = static_cast<size_t>(NiGauge::count);

constexpr std::array<std::string_view, kNiGauges> kNiGaugeNames{"clients", "endpoints", "channels", "tags", "reassemblies"};

}  // namespace unet
