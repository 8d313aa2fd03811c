// simulated_benchmarks.cc - the benchmarks in virtual time, of networks that the machine does not have.
#include "apps/bench/benchmarks/benchmarks.h"

namespace unet::bench {

std::vector<Benchmark> simulated_benchmarks() {
  return {
      {.name = "am-incast",
       .method = Method::incast,
       .workload = Workload::incast,
       .own_paths = true,
       .what = "many senders to one receiver: goodput and delay, simulated",
       .detail =
           "The machine that does Active Messages' windows, acknowledgements and congestion control, between 2 to 128 senders and\n"
           "a receiver, in virtual time: links of 100 Gbit/s to one switch, 8 us for a round trip. All send requests of this size\n"
           "without end, for 5 ms. goodput_N_senders: what the receiver handled, ratio over its link. p99_N_senders: from when a\n"
           "request is first sent until it is handled, ratio over one request alone. Each repetition has another seed; --seconds\n"
           "means nothing, and nothing else is measured.",
       .metric = "goodput",
       .unit = "GB/s",
       .sizes = {1500, 4096},
       .limit = "am-sim"},
      {.name = "am-traffic",
       .method = Method::traffic,
       .own_paths = true,
       .what = "incast, permutation and all-to-all traffic over fat trees: goodput, p99, fairness, simulated",
       .detail =
           "The machine that does Active Messages' windows, acknowledgements and congestion control, on nodes of a simulated network,\n"
           "for 1 ms of virtual time after 1 ms. Requests of 4 KiB become due at random times, as many as need the load's share of\n"
           "the receivers' links. goodput: what a receiver handled in the mean, ratio over its link. p99: from when a request is due\n"
           "until it is handled. A request that still waits at the end counts with its age. So where goodput is below the load, p99\n"
           "would grow with the time simulated. fairness: Jain's index of the flows' bytes. Windows follow delay, also that of the\n"
           "queue at the sender's link, so switches mark no packets. One flow alone carries about 60 % of such a link.\n"
           "simulator_events: what this core simulates in a second; simulator_memory_per_node: resident memory, of the largest run.\n"
           "Not simulated: the time of hosts and handlers, receive buffers, queues of network cards, headers, and replies. Packets\n"
           "are lost only at full queues, and each flow is told the round trip time of the empty network.\n"
           "Each repetition has another seed; --seconds means nothing, and nothing else is measured.",
       .metric = "goodput",
       .unit = "GB/s",
       .sizes = {8, 32},
       .size_min = 2,
       .size_max = 64,
       .counts = "nodes"},
      {.name = "tcp-traffic",
       .method = Method::traffic,
       .own_paths = true,
       .what = "the patterns of am-traffic by our TCP, by ECN or by drops: goodput, p99, fairness, simulated",
       .detail =
           "The connections of our sockets, without sockets, on the networks of am-traffic, and the same requests. A flow is one\n"
           "connection. Each segment has a request and real headers. Where ports mark packets, connections agree on ECN (RFC 3168).\n"
           "A port marks what finds more than 128 KiB in its queue. Retransmissions and pure ACKs are not ECN-capable: above the\n"
           "threshold, the simulated port neither marks nor drops them. *-dctcp: with DCTCP (RFC 8257) in place of CUBIC. Figures as\n"
           "in am-traffic: a request ends when its last byte has been read. The retransmission time-out is at least 200 ms, longer\n"
           "than what is simulated: a flow that needs it stops.\n"
           "Not simulated: the time of hosts, queues of network cards, and receive buffers that fill.",
       .metric = "goodput",
       .unit = "GB/s",
       .sizes = {8, 32},
       .size_min = 2,
       .size_max = 64,
       .counts = "nodes"}};
}

}  // namespace unet::bench
