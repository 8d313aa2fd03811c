// counters.h - statistics of all connections of one owner, with a named counter for each reason to drop.
#pragma once

#include <cstdint>

namespace unet::tcp {

struct Counters {
  uint64_t segments_in = 0, segments_out = 0;
  uint64_t retransmitted = 0;        // segments, as handed out: before TSO cuts them
  uint64_t timeouts = 0;             // retransmission timeouts of data
  uint64_t spurious = 0;             // of these timeouts, those that F-RTO found to be spurious
  uint64_t recoveries = 0;           // fast recoveries
  uint64_t tail_probes = 0, window_probes = 0, keep_alives = 0;
  uint64_t challenges = 0;           // challenge ACKs to a SYN, RST or ACK (RFC 5961)
  uint64_t resets_sent = 0, resets_received = 0;
  uint64_t urgent = 0;               // segments with an urgent pointer

  uint64_t marks = 0;                // segments with a CE mark
  uint64_t reductions = 0;           // window reductions after an ECN echo
  uint64_t path_errors = 0, too_big = 0;  // ICMP errors; "packet too big" that reduced the segment size
  uint64_t path_probes = 0, path_probes_lost = 0;  // path MTU probes; black_holes: reductions without an ICMP error
  uint64_t black_holes = 0;
  uint64_t malformed = 0;            // segments with an option of a wrong length, which was skipped

  // Segments, or parts of their payload, that were dropped, and why.
  uint64_t closed = 0;               // no connection: answered by a reset
  uint64_t not_syn = 0;              // segment without SYN for a listener
  uint64_t bad_handshake = 0;        // acknowledges what the handshake has not sent
  uint64_t out_of_window = 0;        // sequence number outside the receive window (RFC 9293, 3.10.7.4, first)
  uint64_t old_timestamp = 0;        // PAWS (RFC 7323, 5)
  uint64_t no_timestamp = 0;         // timestamps are agreed on, but missing
  uint64_t blind_reset = 0;          // RST in the window, but not at RCV.NXT (RFC 5961, 3.2)
  uint64_t blind_syn = 0;            // SYN for a synchronized connection (RFC 5961, 4.2)
  uint64_t no_ack = 0;               // neither SYN nor RST, and without ACK
  uint64_t bad_ack = 0;              // acknowledges unsent data, or is too old (RFC 5961, 5.2)
  uint64_t bad_sack = 0;             // SACK blocks outside the data in flight
  uint64_t duplicate = 0;            // data that had arrived before
  uint64_t beyond_end = 0;           // data behind the peer's FIN, or in a state that accepts none
  uint64_t no_memory = 0;            // no chunk for received data
  uint64_t too_many_gaps = 0;        // out of order, with kRangesMax ranges behind gaps already
  uint64_t reneged = 0;              // bytes out of order that were dropped for data in order
  uint64_t unanswered = 0;           // challenge ACKs suppressed by the limit
  uint64_t send_no_memory = 0;       // send() took less than the buffer allows, for lack of chunks
  uint64_t no_record = 0;            // no scoreboard record: sent data was merged with earlier data, or had to wait
  uint64_t undelivered = 0;          // data after close(): answered by a reset

  uint64_t undone = 0;               // of the recoveries, those undone: all retransmissions were needless
  uint64_t peer_reneged = 0;         // of the timeouts, those where the peer had reneged on SACKed data
};

}  // namespace unet::tcp
