// moved.h - the state of an established connection that another stack of the same host needs to continue it. Connection::save() makes the
// record, Connection::restore() takes it.
//
// The record crosses between processes in shared memory, so restore() trusts none of it. All times are of one clock of the host. The bytes
// to send and the bytes to read travel beside the record. Data behind gaps is dropped: the peer still has it (RFC 2018, 8).
#pragma once

#include <cstdint>
#include <type_traits>

#include "unet/base/time.h"

namespace unet::tcp {

// A new member needs save(), restore() and, if a peer process could lie with it, is_sound() (connection_move.cc).
struct MovedConnection {
  Nanoseconds first_sent_at = 0;      // when the oldest data in flight was sent
  Nanoseconds sent_at = 0, heard_at = 0, since = 0;  // as in Connection
  Nanoseconds rto_at = kNever;        // deadline of the retransmission timer, or of the persist timer
  Nanoseconds srtt = 0, rttvar = 0, least_rtt = 0;
  // Names of RFC 9293, 3.3.1.
  uint32_t snd_una = 0, snd_wnd = 0, snd_wnd_max = 0, snd_wl1 = 0, snd_wl2 = 0;
  uint32_t rcv_nxt = 0, rcv_wnd = 0;  // RCV.NXT without the peer's FIN
  uint32_t receive_limit = 0;         // bytes that the receive buffer has grown to
  uint32_t timestamp_offset = 0, ts_recent = 0, ts_recent_second = 0;
  uint32_t congestion_window = 0, threshold = 0;
  uint32_t unacknowledged = 0;        // bytes in flight, at the head of the bytes to send
  uint32_t lost = 0;                  // the last of these bytes: an RTO marked them lost
  uint32_t recovery_end = 0;          // bytes behind snd_una
  uint32_t to_send = 0;               // unacknowledged and unsent bytes
  uint32_t to_read = 0;               // received in order and not read
  uint16_t local_port = 0, remote_port = 0;
  uint16_t peer_mss = 0;
  uint16_t path_mss = 0;              // largest segment known to pass, counted as Options::mss
  uint8_t peer_scale = 0, our_scale = 0;
  uint8_t backoff = 0;
  uint8_t recovery = 0;               // 0: none, 1: fast, 2: after an RTO
  // Each is 0 or 1.
  uint8_t scales = 0, stamps = 0, sacks = 0;
  uint8_t ecn = 0, ecn_seen = 0, echo = 0, reduced = 0;
  uint8_t fin_received = 0;           // CLOSE-WAIT
  uint8_t persisting = 0;             // rto_at is the deadline of a zero-window probe
  uint8_t ack_due = 0;
  uint8_t unused[2] = {};
};
static_assert(std::is_trivially_copyable_v<MovedConnection> && std::has_unique_object_representations_v<MovedConnection>);

}  // namespace unet::tcp
