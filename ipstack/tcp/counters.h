// counters.h - what the connections of one owner have done, and the name of every drop.
#pragma once

#include <cstdint>

namespace unet::tcp {

struct Counters {
  uint64_t segments_in = 0, segments_out = 0;
  uint64_t retransmitted = 0;        // segments, of whatever size they were handed out
  uint64_t timeouts = 0;             // retransmission time-outs of data
  uint64_t spurious = 0;             // of these time-outs, those that F-RTO found to be too early
  uint64_t recoveries = 0;           // fast ones
  uint64_t tail_probes = 0, window_probes = 0, keep_alives = 0;
  uint64_t challenges = 0;           // ACKs that ask whether a SYN, RST or ACK was meant (RFC 5961)
  uint64_t resets_sent = 0, resets_received = 0;
  uint64_t urgent = 0;               // segments with an urgent pointer

  uint64_t marks = 0;                // segments that came with a mark of congestion (CE)
  uint64_t reductions = 0;           // of windows, because the peer had seen one
  uint64_t path_errors = 0, too_big = 0;  // of ICMP; those that made segments smaller
  uint64_t path_probes = 0, path_probes_lost = 0;  // of whether longer segments pass; black_holes: times that shorter ones had to be tried
  uint64_t black_holes = 0;
  uint64_t malformed = 0;            // segments with an option of a wrong length, which was skipped

  // Segments that were dropped, or a part of their payload, and why.
  uint64_t closed = 0;               // no connection: answered by a reset
  uint64_t not_syn = 0;              // something other than a SYN for a listener
  uint64_t bad_handshake = 0;        // acknowledges what the handshake has not sent
  uint64_t out_of_window = 0;        // sequence number outside the receive window (RFC 9293, 3.10.7.4, first)
  uint64_t old_timestamp = 0;        // PAWS (RFC 7323, 5)
  uint64_t no_timestamp = 0;         // agreed upon, and missing
  uint64_t blind_reset = 0;          // RST in the window, but not at RCV.NXT (RFC 5961, 3.2)
  uint64_t blind_syn = 0;            // SYN for a synchronized connection (RFC 5961, 4.2)
  uint64_t no_ack = 0;               // neither SYN nor RST, and without ACK
  uint64_t bad_ack = 0;              // acknowledges what was not sent, or long ago (RFC 5961, 5.2)
  uint64_t bad_sack = 0;             // blocks outside what is on its way
  uint64_t duplicate = 0;            // data that had come before
  uint64_t beyond_end = 0;           // data behind the peer's FIN, or in a state that takes none
  uint64_t no_memory = 0;            // no chunk for data that came
  uint64_t too_many_gaps = 0;        // out of order, and kRangesMax pieces are kept already
  uint64_t reneged = 0;              // bytes that were kept out of order, and given up for data in order
  uint64_t unanswered = 0;           // challenges beyond the limit
  uint64_t send_no_memory = 0;       // send() took less than there was room for
  uint64_t no_record = 0;            // what was sent could not be told apart from what was sent before, or had to wait
  uint64_t undelivered = 0;          // data that came after close(): answered by a reset

  uint64_t undone = 0;               // of the recoveries, those that were for nothing: all that was sent again had been late
  uint64_t peer_reneged = 0;         // of the time-outs, those before which the peer had given up what it had told of by SACK
};

}  // namespace unet::tcp
