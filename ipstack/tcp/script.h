// script.h - a small language for tests of Connection, in the manner of packetdrill: what comes, what is called, what must leave and when.
//
// One step per line; `#` begins a comment. A step may begin with the time that passes before it: `+200ms`, `+1.5s`, `+0`.
//
//   set NAME VALUE            of Options, before anything else; times in milliseconds. Unlike elsewhere nagle, sack, timestamps and
//                             window_scaling are 0, ecn (1: passive, 2: on), forward_recovery, hystart and mtu_probing too, mss 1000,
//                             buffers 60000 and do not grow, congestion is NewReno, rto_min 200 ms. Also iss, irs, chunks, records,
//                             timestamp_offset, path (what limit_path() is told)
//                             `long_messages 0`: the times are those of single segments; `length_max N`: messages are seen uncut
//   established [win N]       a passive open that has taken 100 ms, so that the RTO is 300 ms;  `connected` an active one;
//                             `established_ecn` one that has asked for ECN
//   listen | connect | shutdown | close | abort [= ERROR]
//   fast_open [BYTES [MSS]]   a cookie of so many bytes;  `answer_fast_open valid | invalid [BYTES]` of a listener
//   send N [= M | = ERROR]    takes N bytes, or M of them
//   receive N [= M | = end | = ERROR]
//   mark_urgent               and `urgent N | none`: what take_urgent() says
//   < FLAGS FROM:TO [ack N] [win N] [urg N] [<OPTIONS>] [nots] [ect | ce]    a segment comes
//   > FLAGS FROM:TO [ack N] [win N] [urg N] [mss N] [<OPTIONS>] [ect]    a segment leaves, now or just then when the time has passed
//   state S | error E | readable N | writable N | cwnd N | ssthresh N | flight N | rto MS | clock MS | counter NAME N
//   info NAME VALUE           of Info, times in milliseconds;  `info NAME FROM..TO` a number between these
//   congestion NAME           set_congestion()
//   flow RATE RTT [drop N] [write N] [mark N]   for the time before it, which is not waited for otherwise: the application writes all it
//                             can, or N bytes each ms; what leaves passes a link of RATE bytes per second, and is acknowledged RTT ms
//                             later, with SACK; each Nth segment is lost or marked (the peer echoes that)
//   timer none | timer +TIME
//   ready WORDS               of readable writable connected ended closed, in this order
//   yields SEQUENCE [TS] yes | no    to a SYN
//   icmp ERROR | too_big MSS | path_error ERROR | under_way SEQUENCE yes | no
//   idle                      holds no chunk and no record
//   drain                     takes whatever leaves now
//
// FLAGS are of SFRPUEW. as tcpdump has them, or - for none. Sequence numbers count from either side's SYN, which is 0. OPTIONS are
// `mss N`, `sackOK`, `wscale N`, `ts [VALUE ECHO]`, `sack FROM:TO ...`, `bad` (one of a wrong length), `fo [BYTES]` (fast
// open), separated by commas;
// timestamps are milliseconds of the script.
// With timestamps agreed upon, segments that come have them by themselves unless it says nots, and those that leave must, with an echo
// of the last. Payload is a pattern of its place in the stream and is checked.
//
// What may leave is asked for after a segment has come and before time passes, so that several calls can be one step. Whatever leaves
// unasked is an error, and so is any chunk or record that is not given back in the end.
#pragma once

#include <string>

namespace unet::tcp::test {

// How much a connection may give at once: a segment, or a message of up to 64 KiB that hardware cuts. What reaches the wire is the same.
enum class Messages { segments, long_ones };

// Runs a script; returns "" or `FILE:LINE: expected ..., got ...`.
std::string run_script(const std::string& path, Messages messages);
std::string run_script(const std::string& name, const std::string& text, Messages messages = Messages::segments);

}  // namespace unet::tcp::test
