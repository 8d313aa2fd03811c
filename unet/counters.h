// counters.h - the counters of endpoints, which their owners read in the segment, and of the engine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace unet {

// Counters of one endpoint, written by the engine. Each message or descriptor that is not delivered increments exactly one drop counter
// (from `first_drop` on).
enum class EndpointCounter : uint8_t {
  sent_messages,
  sent_bytes,
  received_messages,
  received_bytes,
  // Drops of messages that this endpoint sent.
  bad_send_descriptor,   // unknown kind, overlong length, fragment outside the segment
  unknown_channel,       // the channel is not, or no longer, one of this endpoint's
  bad_ip_message,        // an IP message shorter than its header, with unknown flags, or to be cut into too many packets
  bad_ip_header,         // the IP header: version, length, a fragment, IPv4 options
  bad_ip_protocol,       // neither TCP nor UDP
  bad_ip_transport,      // the TCP or UDP header: lengths
  bad_ip_source,         // the source is not, or not yet, an address of the NI
  bad_ip_port,           // the endpoint has not claimed the source port, or not for that peer
  ip_no_route,           // no route to the destination
  ip_too_big,            // too big for the path and may not be fragmented; an ICMP error reports it
  ip_no_buffer,          // too many packets wait for a neighbour that has not answered
  ip_many_neighbours,    // the user sends to too many unresolved neighbours
  ip_not_over,           // a SYN between the ports of a dead process's unfinished connection
  // Drops of messages to this endpoint.
  no_free_buffer,        // the free queue was empty
  receive_queue_full,    // the receive queue was full
  too_long,              // the message needs more memory than all receive buffers have
  too_fragmented,        // the free queue's buffers were too scattered for one receive descriptor
  bad_free_descriptor,   // the free queue named a buffer that does not exist, or that the NI already has
  duplicate_fragment,    // a fragment arrived twice
  fragment_mismatch,     // fragments of one message disagree about its length or kind
  reassembly_timeout,    // fragments missing for too long
  reassembly_overflow,   // too many messages of this endpoint, or of the NI, in reassembly at once
  put_no_region,         // a put came, but the endpoint exposes no region
  put_out_of_bounds,     // a put came for bytes outside the exposed region
  count
};
constexpr size_t kEndpointCounters = static_cast<size_t>(EndpointCounter::count);
static_assert(kEndpointCounters == 28, "segments and checkpoints change: raise kVersion (unet/control.h) and kJournalFormat");
constexpr EndpointCounter kFirstEndpointDrop = EndpointCounter::bad_send_descriptor;

constexpr std::array<std::string_view, kEndpointCounters> kEndpointCounterNames{
    "sent_messages", "sent_bytes", "received_messages", "received_bytes", "bad_send_descriptor", "unknown_channel",
    "bad_ip_message", "bad_ip_header", "bad_ip_protocol", "bad_ip_transport", "bad_ip_source", "bad_ip_port", "ip_no_route", "ip_too_big",
    "ip_no_buffer", "ip_many_neighbours", "ip_not_over", "no_free_buffer", "receive_queue_full", "too_long", "too_fragmented",
    "bad_free_descriptor", "duplicate_fragment", "fragment_mismatch", "reassembly_timeout", "reassembly_overflow", "put_no_region",
    "put_out_of_bounds"};
static_assert(!kEndpointCounterNames.back().empty(), "a name is missing");

// Counters of the NI itself, for frames that cannot be attributed to an endpoint.
enum class NiCounter : uint8_t {
  received_frames,
  received_bytes,
  transmitted_frames,
  transmitted_bytes,
  hairpin_messages,     // delivered between two endpoints of this NI without a wire
  wakeups,              // sleeping clients woken
  linked_frames,        // frames between this engine and ports or endpoints of other engines of this NI, sent or passed by this engine
  linked_bytes,
  ip_received,          // packets to claims that came over a wire; those that the host of a port handled have its counters
  ip_sent,              // IP packets that endpoints sent over a wire
  ip_same_ni,           // IP packets between two endpoints of this NI
  ip_left,              // TCP connections of ended processes that the NI closes for them
  ip_left_sent,         // segments sent to close those connections
  ip_left_owned,        // such connections that belong to a living process: nothing is done about them
  ip_owners_evicted,    // connections of shared ports with a forgotten owner: more than kIpOwnedFlowsMax exist
  ip_openings_evicted,  // the same for connections with a half-done handshake, or that are closing
  idle_ns,              // nanoseconds in which the engine's thread had no work: it polled, yielded or slept
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
  signal_overflow,      // signalling frames came faster than the service takes them
  transmit_overflow,    // the port did not take a signalling frame
  link_overflow,        // the other engine's queue has no room for the frame
  ip_bad_transport,     // TCP or UDP that is malformed or has a wrong checksum
  ip_unclaimed,         // IP packets that no endpoint claims; the sender gets an error, as far as a host sends one
  ip_left_overflow,     // connections of ended processes beyond kOrphanConnectionsMax: their peers learn of the end when they send again
  ip_left_unasked,      // dropped segments of such connections: too many unresolved hosts at a time for one user
  count
};
constexpr size_t kNiCounters = static_cast<size_t>(NiCounter::count);
constexpr NiCounter kFirstNiDrop = NiCounter::not_ours;

constexpr std::array<std::string_view, kNiCounters> kNiCounterNames{
    "received_frames", "received_bytes", "transmitted_frames", "transmitted_bytes", "hairpin_messages", "wakeups",
    "linked_frames", "linked_bytes", "ip_received", "ip_sent", "ip_same_ni", "ip_left", "ip_left_sent",
    "ip_left_owned", "ip_owners_evicted", "ip_openings_evicted", "idle_ns", "not_ours",
    "truncated", "bad_version", "bad_flags", "bad_length", "bad_crc", "unknown_tag", "wrong_source", "bad_signal",
    "signal_overflow", "transmit_overflow", "link_overflow", "ip_bad_transport", "ip_unclaimed", "ip_left_overflow",
    "ip_left_unasked"};
static_assert(!kNiCounterNames.back().empty(), "a name is missing");

// Resources that the engine holds for clients now. All are freed when the client ends, in any way.
enum class NiGauge : uint8_t {
  clients,
  endpoints,            // includes those that a port still reads from
  channels,             // ends of channels that go through the engine
  tags,                 // channel ends over a wire
  reassemblies,         // messages with some fragments received
  count
};
constexpr size_t kNiGauges = static_cast<size_t>(NiGauge::count);

constexpr std::array<std::string_view, kNiGauges> kNiGaugeNames{"clients", "endpoints", "channels", "tags", "reassemblies"};
static_assert(!kNiGaugeNames.back().empty(), "a name is missing");

}  // namespace unet
