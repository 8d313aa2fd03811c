// script.h - a script language for tests of Connection, like packetdrill: segments that arrive, calls, and segments that must leave.
//
// One step per line; `#` begins a comment. A step may begin with the time that passes before it: `+200ms`, `+1.5s`, `+0`.
//
//   set NAME VALUE            an Options field, at first or as a later setsockopt(); times in milliseconds. Defaults differ: nagle, sack,
//                             timestamps, window_scaling, ecn (1: passive, 2: on), forward_recovery, hystart and mtu_probing are 0. mss
//                             is 1000. Buffers are 60000 and do not grow. congestion is NewReno, rto_min 200 ms. Further names: iss, irs,
//                             chunks, records, timestamp_offset, cubic, bbr, dctcp, path (argument of limit_path()).
//                             `long_messages 0`: the times are those of single segments; `length_max N`: messages are seen uncut
//   established [win N]       a passive open with a handshake of 100 ms, so that the RTO is 300 ms;  `connected`: an active open;
//                             `established_ecn`: a passive open with ECN
//   listen | connect | shutdown | close | abort [= ERROR]
//   fast_open [BYTES [MSS]]   with a cookie of so many bytes;  `answer_fast_open valid | invalid [BYTES]` for a listener
//   send N [= M | = ERROR]    send() accepts N bytes, or M of them
//   receive N [= M | = end | = ERROR]
//   mark_urgent               and `urgent N | none`: what take_urgent() returns
//   < FLAGS FROM:TO [ack N] [win N] [urg N] [<OPTIONS>] [nots] [ect | ce]    a segment arrives
//   > FLAGS FROM:TO [ack N] [win N] [urg N] [mss N] [<OPTIONS>] [ect]    a segment leaves, now or exactly when the time has passed
//   state S | error E | readable N | writable N | cwnd N | ssthresh N | flight N | rto MS | clock MS | counter NAME N
//   info NAME VALUE           an Info field, times in milliseconds;  `info NAME FROM..TO`: a number in this range
//   congestion NAME           set_congestion()
//   flow RATE RTT [drop N] [write N] [mark N]   a bulk transfer for the time before the step. The application writes all it can, or N bytes
//                             per ms. Segments pass a link of RATE bytes per second and are acknowledged RTT ms later, with SACK. Each Nth
//                             segment is lost (drop) or CE-marked (mark; the peer echoes it)
//   timer none | timer +TIME
//   ready WORDS               of readable writable connected ended closed, in this order
//   yields SEQUENCE [TS] yes | no    whether TIME-WAIT yields to this SYN
//   icmp ERROR | too_big MSS | path_error ERROR | under_way SEQUENCE yes | no
//   idle                      no chunk and no record is in use
//   drain                     ignores all segments that leave now
//
// FLAGS are of SFRPUEW. as in tcpdump, or - for none. Sequence numbers count from each side's SYN, which is 0. OPTIONS are `mss N`,
// `sackOK`, `wscale N`, `ts [VALUE ECHO]`, `sack FROM:TO ...`, `bad` (an option with a wrong length), `fo [BYTES]` (fast open), separated
// by commas. Timestamps are milliseconds of the script. If timestamps are agreed on, arriving segments have them unless the line says nots,
// and segments that leave must have them, echoing the last one. The payload is a pattern of its place in the stream, and is checked.
//
// Segments that leave are collected after a segment has arrived and before time passes, so that several calls can be one step. A segment
// that no step expects is an error, and so is a chunk or record that is not returned to its pool at the end.
#pragma once

#include <string>

namespace unet::tcp::test {

// The most that poll_segment() may return at once: a segment, or a message of up to 64 KiB for TSO. The wire sees the same segments.
enum class Messages { segments, long_ones };

// Runs a script; returns "" or `FILE:LINE: expected ..., got ...`.
std::string run_script(const std::string& path, Messages messages);
std::string run_script(const std::string& name, const std::string& text, Messages messages = Messages::segments);

}  // namespace unet::tcp::test
