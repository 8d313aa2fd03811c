// stack_counters.h - what happened to a stack, by name; part of stack.h.
#pragma once

#include <cstdint>

namespace unet::sockets {

// A stack's counters, beside TCP's own (tcp::Counters).
struct StackCounters {
  uint64_t messages_in = 0, messages_out = 0;
  uint64_t bad_message = 0;        // not an IpMessageHeader and a packet
  uint64_t bad_packet = 0;         // IP's header
  uint64_t bad_segment = 0;        // TCP's
  uint64_t bad_checksum = 0;
  uint64_t bad_datagram = 0;
  uint64_t bad_icmp = 0;
  uint64_t no_socket = 0;          // for a port without a socket
  uint64_t queue_full = 0;         // datagrams for which a socket had no room
  uint64_t icmp_unknown = 0;       // an error about what no socket has sent
  uint64_t connections_in = 0, connections_out = 0;
  uint64_t listen_overflow = 0;    // SYNs that a full backlog dropped
  uint64_t cookies_sent = 0, cookies_taken = 0, cookies_bad = 0;
  uint64_t fast_open_in = 0;       // connections that came with a cookie of ours, and were open at once
  uint64_t fast_open_bad = 0;      // SYNs with a cookie that is not ours
  uint64_t fast_open_overflow = 0; // that had to finish their handshakes first, as too many had not
  uint64_t fast_open_learned = 0;  // cookies that servers have given
  uint64_t fast_open_avoided = 0;  // times that such a SYN had to be sent again as a plain one
  uint64_t time_waits = 0;         // connections that lost their sockets in TIME-WAIT; of these:
  uint64_t time_waits_evicted = 0; // that ended early, for want of room
  uint64_t time_waits_reused = 0;  // connect() has taken their pair of ports
  uint64_t ports_not_over = 0;     // that connect() chose, and the network interface held a connection of, of a process that is gone
  uint64_t no_room = 0;            // times that a message had to wait
  uint64_t near_in = 0, near_out = 0;  // streams by a local peer's channel, both ways
  uint64_t near_refused = 0;       // that went by TCP then
  uint64_t near_bad = 0;           // messages of a local peer that are none, or beyond what it may send
  uint64_t moved_out = 0, moved_in = 0;  // streams that went to another stack, and came from one
};

}  // namespace unet::sockets
