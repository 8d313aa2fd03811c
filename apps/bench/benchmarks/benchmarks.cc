// benchmarks.cc - the list of benchmarks.
#include "apps/bench/benchmarks/benchmarks.h"

#include <algorithm>
#include <utility>

#include "apps/bench/results/sizes.h"

namespace unet::bench {

namespace {

// The reason to leave out a path without this ability.
constexpr std::pair<Ability, const char*> kLacks[] = {
    {Ability::messages, "is measured in the benchmarks of its sockets only"},
    {Ability::tcp, "is not TCP sockets"},
    {Ability::udp, "is not UDP sockets"},
    {Ability::layer, "stands above no other path"},
    {Ability::idle_endpoints, "has no endpoints to add"},
    {Ability::emulated, "is not compared with emulated endpoints"},
    {Ability::sleeps, "never sleeps"},
};
constexpr Ability kLastOfLimits = Ability::layer;  // limits take part in benchmarks of this ability and of those before it

}  // namespace

const std::vector<Benchmark>& all_benchmarks() {
  static const std::vector<Benchmark> benchmarks = [] {
    std::vector<Benchmark> all = message_benchmarks();
    for (const auto& more : {simulated_benchmarks(), call_benchmarks()}) all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return benchmarks;
}

std::vector<Benchmark> message_benchmarks() {
  return {
      {.name = "rtt",
       .workload = Workload::rtt,
       .what = "round trip of one message",
       .detail =
           "A sends a message, B sends it back; one is under way at a time. Payload is written by the sender and read by the\n"
           "receiver. p50, mean and ratio come from slices in which batches of round trips are timed together (about 2 us each,\n"
           "so that reading the clock costs nothing); p99 and p999 from separate slices in which each is timed alone (about\n"
           "10 ns more each). Ratio: over limit-pingpong up to 64 B, over limit-echo above.",
       .metric = "rtt",
       .unit = "ns",
       .sizes = {8, 48, 1024, 8192, 65536},
       .limit = "limit-pingpong",
       .large_limit = "limit-echo"},
      {.name = "bandwidth",
       .workload = Workload::bandwidth,
       .what = "bytes per second of a one-way stream",
       .detail =
           "A sends messages back to back, B copies each into a buffer of its own. The clock runs from the first message, with every\n"
           "buffer on the way empty, until B has received the last; a path that may lose messages counts those that arrived. One\n"
           "figure per slice; p99 is what 99 in 100 slices reached. Ratio: over limit-memcpy at the same size.",
       .metric = "bandwidth",
       .unit = "GB/s",
       .sizes = {256, 1024, 4096, 16384, 65536},
       .limit = "limit-memcpy"},
      {.name = "rate",
       .workload = Workload::rate,
       .what = "small messages per second, one way",
       .detail =
           "As bandwidth, counted in messages; the sender has up to 32 messages ready at a time. Ratio: messages per cache-line\n"
           "round trip, that is rate x limit-pingpong; the field `limit` is that round trip in ns.",
       .metric = "rate",
       .unit = "msg/s",
       .relation = Relation::product,
       .sizes = {8, 48},
       .limit = "limit-pingpong"},
      {.name = "put",
       .workload = Workload::put,
       .what = "bytes per second written into memory that the other process exposed",
       .detail =
           "A writes messages to consecutive offsets of a 4 MiB region of B; B does nothing. Ratio: over limit-put (memcpy). Over a\n"
           "wire B's NI deposits them as B polls it, and what is lost does not count: the bytes that B's endpoint has counted, until\n"
           "B has said how many. Ratio there: over the bandwidth of messages of the same size on the same path in the same run,\n"
           "which stands beside it (metric bandwidth_of_messages).",
       .metric = "bandwidth",
       .unit = "GB/s",
       .sizes = {4096, 65536},
       .limit = "limit-put"},
      {.name = "wakeup",
       .workload = Workload::wakeup,
       .needs = {Ability::messages, Ability::sleeps},
       .what = "round trip to a receiver that has to be woken",
       .detail =
           "Side B sleeps until a message comes, as its path sleeps. Side A keeps its own core busy for 150 us, sends, and polls for\n"
           "the answer: each round trip holds one wake-up of a process on the other core. Ratio: over limit-eventfd.",
       .metric = "rtt",
       .unit = "ns",
       .sizes = {8},
       .limit = "limit-eventfd"},
      {.name = "tcp-rtt",
       .workload = Workload::rtt,
       .needs = {Ability::tcp},
       .what = "round trip of one message by TCP sockets",
       .detail =
           "As rtt: A sends, B sends back, both read the whole message. Our sockets: non-blocking calls of the BSD shape\n"
           "(ipstack/sockets/calls.h) in processes that poll. tcp-local: to an application of the same network interface, by a local\n"
           "channel. tcp-shared: the same by TCP itself, through the engine. tcp-memif, tcp-af_xdp, tcp-xdp: by TCP between two\n"
           "embedded network interfaces over a wire. raw-*-segments: bare DPDK on such a wire, with frames as long as TCP's.\n"
           "kernel-*: the kernel's sockets on loopback and on a veth pair. tcp-zero-copy-*: both sides write and check every byte of\n"
           "a message in place (stack.h: reserve(), commit(), gather(), consume()). tcp-made-*: they do so in buffers of their own,\n"
           "with send() and recv().\n"
           "Ratio: over limit-pingpong up to 64 B, over limit-echo above. Paths over wires have more ratios, in a table each: over\n"
           "the kernel's polling sockets on a veth pair with offloads, on one without, and over raw-*-segments. tcp-zero-copy-* are\n"
           "compared with tcp-made-*, and with applications that only number their messages.",
       .metric = "rtt",
       .unit = "ns",
       .sizes = {64, 1024, 16384},
       .limit = "limit-pingpong",
       .large_limit = "limit-echo"},
      {.name = "tcp-stream",
       .workload = Workload::bandwidth,
       .needs = {Ability::tcp},
       .what = "bytes per second of a one-way stream by TCP sockets",
       .detail =
           "As bandwidth; the size is that of the calls. Ratio: over the kernel's polling sockets on loopback (kernel-tcp-busy),\n"
           "with cubic, at the same size. Wires are compared as in tcp-rtt; raw-*-segments count the 1448 bytes of payload of TCP in\n"
           "a frame of 1500. tcp-*-to-kernel and -from-kernel: our socket at one end of a veth pair, Linux's TCP at the other.\n"
           "Processor time (`cpu`) is that of each side and of unetd, with the warm-up's share. A polling process uses all of its\n"
           "core. Time of the kernel's own threads is not in it.",
       .metric = "bandwidth",
       .unit = "GB/s",
       .sizes = {1024, 16384, 65536},
       .limit = "kernel-tcp-busy"},
      {.name = "tcp-loss",
       .method = Method::loss,
       .workload = Workload::lossy,
       .needs = {Ability::tcp},
       .own_paths = true,
       .what = "goodput of TCP sockets over a wire that loses, delays or reorders, beside the kernel's on the same wire",
       .detail =
           "The cable of am-loss, which drops a share of all frames in both directions; with a delay each frame is held by a process\n"
           "for so long, one way. late_1%: one frame in a hundred comes behind those that were sent after it, by 1 ms if the wire has a\n"
           "delay. Ours over net_af_packet, embedded at both ends, and the kernel's, each with cubic and with bbr, single segments of\n"
           "1500 bytes. Goodput: what B had in 0.4 to 5 s, after 0.1 to 2 s, each path in turn over a new connection. Ratio: over its\n"
           "own goodput on the whole wire; in further records over the kernel's. Processor time as in tcp-stream, of each side; ours\n"
           "poll. --seconds means nothing.",
       .metric = "goodput",
       .unit = "GB/s",
       .sizes = {16384},
       .limit = "kernel-tcp-cubic"},
      {.name = "sockets",
       .method = Method::programs,
       .workload = Workload::rtt,
       .own_paths = true,
       .what = "iperf3, sockperf, redis, nginx and PostgreSQL on our sockets, unmodified, beside the kernel's",
       .detail =
           "Client and server are programs of Debian's, each on its core, for a second, or for --seconds if that is more. Our\n"
           "sockets are used by unet-sockets. All programs run at each path in turn, in every repetition (--repeat).\n"
           "programs-local: both on one network interface; over the kernel's loopback. programs-to-kernel, -from-kernel: one of them\n"
           "on our sockets at its end of a veth pair; over kernel to kernel on such a pair. programs-own-*: the same without unetd,\n"
           "with the network interface inside the program, for programs of one process.\n"
           "iperf3-tcp: bytes that arrive. iperf3-udp-N: datagrams of N bytes that arrive, sent as fast as possible. sockperf-*:\n"
           "round trips of 64 B, both sides polling; -blocked: both sleep. redis-set-N, redis-get-N: requests of N clients, without\n"
           "pipelining. wrk: requests for a page of 1 KiB on 32 connections. pgbench: transactions of one row (-S -M prepared) on\n"
           "four connections, each with a process of PostgreSQL's.\n"
           "_p50, _p99: times of the requests. _cpu: processor time of client, server and unetd for each byte, datagram or request,\n"
           "from the start of the client; _cpu_client, _cpu_server: of one of them (the rest is unetd's). For sockperf all three are\n"
           "those between \"Starting test\" and \"Test end\" of its client, seen within 2 ms. Time of the kernel's own threads is not in\n"
           "it.\n"
           "redis-idle, nginx-idle: the server and unetd without requests (redis itself looks ten times a second, nginx does not).\n"
           "Ratio: over the kernel's figure in the same repetition.",
       .metric = "iperf3-tcp",
       .unit = "as each figure says"},
      {.name = "udp-rtt",
       .workload = Workload::rtt,
       .needs = {Ability::udp},
       .what = "round trip of one datagram by UDP sockets",
       .detail =
           "As tcp-rtt, with datagrams. udp-*-to-kernel and -from-kernel: ours at one end of a veth pair or of a tap, Linux's UDP at\n"
           "the other.",
       .metric = "rtt",
       .unit = "ns",
       .sizes = {64, 1024, 16384},
       .limit = "limit-pingpong",
       .large_limit = "limit-echo"},
      {.name = "udp-stream",
       .workload = Workload::rate,
       .needs = {Ability::udp},
       .what = "datagrams per second that arrive by UDP sockets, one way",
       .detail =
           "As rate; what arrives counts. Ratio: over the kernel's sockets on loopback that poll (kernel-udp-busy), with sendmmsg and\n"
           "recvmmsg, at the same size; of wires, and of paths to and from Linux's UDP, over those on a veth pair, as in tcp-rtt. Ours\n"
           "send and receive each datagram by a call of its own. On all wires and veth pairs a receiver that misses some waits 0.5 ms\n"
           "for them when the sender is done, which counts.",
       .metric = "rate",
       .unit = "msg/s",
       .sizes = {64, 1472},
       .limit = "kernel-udp-busy"},
      {.name = "connections",
       .workload = Workload::connections,
       .needs = {Ability::tcp},
       .what = "connections by TCP sockets per second: connect, a byte each way, close",
       .detail =
           "A connects and sends a byte, B accepts and sends one back, A reads it and closes, B reads the end and closes; with one\n"
           "under way at a time, and with 16 (`--size`), which both sides serve in turn. A's ports would soon be used up at one port\n"
           "of B, as those of connections that have just ended stay taken: B listens at 32. Connections end in order, as programs end\n"
           "them: where there is TIME-WAIT, it is A's. Ratio: over the kernel's sockets on loopback that poll (kernel-tcp-busy).",
       .metric = "rate",
       .unit = "conn/s",
       .sizes = {1, 16},
       .size_max = 64,
       .counts = "under way",
       .limit = "kernel-tcp-busy"},
      {.name = "many",
       .method = Method::many,
       .workload = Workload::rtt,
       .needs = {Ability::tcp},
       .what = "idle connections by TCP sockets: memory and time of each, and round trips of an active one beside them",
       .detail =
           "Each repetition has round trips of 64 B by one connection, then opens `--size` idle connections, repeats the round\n"
           "trips, and resets all connections. rtt: round trips beside idle connections; ratio: over those without, in the same\n"
           "repetition.\n"
           "open: time for each connection, from A's first connect() until B has accepted the last, 16 under way.\n"
           "client_memory, server_memory: bytes for each connection that A and B have allocated, or touched of shared memory.\n"
           "service_memory: growth of unetd (resident, not shared). kernel_memory: growth of Linux for both ends (Slab and\n"
           "VmallocUsed of /proc/meminfo; other processes change it, too, which matters little with 100,000 connections). memory:\n"
           "all of this, for one end; ratio: over kernel-tcp-busy, whose connections are in no epoll.\n"
           "B listens at 32 ports, because A has too few ports for one. Linux needs a file for each connection (ulimit -n; root\n"
           "raises it).",
       .metric = "rtt",
       .unit = "ns",
       .sizes = {1000, 10000, 100000},
       .size_max = 200000,
       .counts = "idle",
       .limit = "limit-pingpong"},
      {.name = "endpoints",
       .method = Method::endpoints,
       .workload = Workload::rtt,
       .needs = {Ability::messages, Ability::idle_endpoints},
       .what = "round trip of one active pair as idle endpoints are added",
       .detail =
           "rtt with 0, 16, 256 and 4096 idle endpoints (kernel: bound sockets) beside the active pair, in turn in every\n"
           "repetition. Ratio: over the same path with none added; the metric is called rtt_N_idle.",
       .metric = "rtt",
       .unit = "ns",
       .sizes = {8},
       .limit = "limit-pingpong",
       .large_limit = "limit-echo"},
      {.name = "idle",
       .method = Method::idle,
       .workload = Workload::idle,
       .needs = {Ability::messages, Ability::sleeps},
       .what = "processor time used while nothing happens",
       .detail =
           "Side B waits for a message, asleep as its path sleeps; side A sleeps for a second, then sends it. Counted: the processor\n"
           "time of both sides and of the processes that serve the path, as a share of one core. `wakeup` has the latency.",
       .metric = "cpu",
       .unit = "%",
       .sizes = {8},
       .limit = "limit-eventfd"},
      {.name = "connect",
       .method = Method::connect,
       .workload = Workload::connect,
       .what = "time to open an end and to connect it",
       .detail =
           "A opens an end (an endpoint; the kernel: socket()) and connects it to B, which accepts; then both close. Metrics: create,\n"
           "connect (until A's connect() and B's accept() have both returned) and total; closing is not timed. Paths that sleep: B\n"
           "sleeps in accept(), and the NI's engine too, as A waits 150 us before each connection. Others: B polls for a caller, and\n"
           "with U-Net yields its core between polls, because unetd needs one too. Ratio: over kernel-unix, step by step; a slice is\n"
           "dropped when the total of kernel-unix moved around it. Messages are not sent, so the memory of endpoint and channel is\n"
           "made and mapped, but not touched.",
       .metric = "total",
       .unit = "ns",
       .limit = "kernel-unix"},
      {.name = "fairness",
       .method = Method::fairness,
       .workload = Workload::rtt,
       .own_paths = true,
       .what = "a pair beside a client that floods, never reads or never returns buffers",
       .detail =
           "A well-behaved pair of endpoints of one unetd, beside a hostile client and alone. The engine has the other core. The\n"
           "hostile client belongs to another user if root starts unet-bench, else to the same user. It runs in the thread of the\n"
           "pair and sends a few messages each time the pair looks for its answer: on a core of its own it would measure the\n"
           "scheduler, not the NI.\n"
           "rtt_p50, rtt_p99: medians over slices of round trips timed one by one; ratio: over the pair alone in the same\n"
           "repetition.\n"
           "share: the pair's part of what the engine sends, by the engine's counters (half is fair). Both sides always have\n"
           "messages of one size in their send queues.\n"
           "sleeps*, wakes*: threads of the hostile client go to sleep before every 32nd round trip, which wakes them: p99 is a\n"
           "round trip with a wake-up. Round trips in which the engine itself wakes are not timed.\n"
           "setup-*: a round trip is a set-up, and the hostile client has a thread on the pair's core, which waits for the service.\n"
           "*_attack: the ratio to a control of the same repetition, a client that does the same without the attack: flood-largest\n"
           "punches no holes, flood-two scatters no buffers, sleeps lists its descriptor once, setup-asks is refused at once. The\n"
           "control costs what any busy client costs, processor time included.\n"
           "A slice in which the hostile client did nothing is an error.",
       .metric = "rtt_p99",
       .unit = "ns",
       .sizes = {48},
       .limit = "alone"},
      {.name = "emulated",
       .method = Method::emulated,
       .workload = Workload::rtt,
       .needs = {Ability::messages, Ability::emulated},
       .what = "endpoints without queues of their own: round trips, memory, and the time to make one",
       .detail =
           "Round trips as in `rtt`, between two processes: of emulated endpoints through unetd's engine (`emulated`) and on a local\n"
           "channel that they ask for (`emulated-local`), and of endpoints with queues through the engine (`shared-2p`). Ratio: over\n"
           "a Unix datagram socket that blocks; one that polls is measured, too. Once per repetition side A makes and ends 4096\n"
           "emulated endpoints.\n"
           "create: time for each. client_memory: bytes for each that side A has allocated. service_memory: growth of unetd for each\n"
           "(resident, not shared). rtt_N_idle: round trips with N idle endpoints beside the active pair.",
       .metric = "rtt",
       .unit = "ns",
       .sizes = {8, 1024},
       .limit = "kernel-unix-datagram"},
      {.name = "restart",
       .method = Method::restart,
       .workload = Workload::restart,
       .own_paths = true,
       .what = "how long messages stop when unetd is killed, upgraded, or stopped and started again",
       .detail =
           "64 endpoints send to each other in pairs through one unetd, as fast as each has its answers, beside 4 pairs on local\n"
           "channels; all in one thread. Then the network interface is killed (`unetd --takeover`), upgraded as by `unetctl upgrade`, or,\n"
           "for comparison, a unetd without --takeover is stopped and started and everything opened anew. blackout: the longest time\n"
           "between two messages that each endpoint received, from 20 ms before until at least 180 ms after; p50, p99 and p999 are of all\n"
           "endpoints and all times, blackout_max is the longest. local: the same of the local channels. `undisturbed`: the same\n"
           "without any of it. Four times in each repetition (--repeat), whatever --seconds says. The JSON has a timeline: messages in\n"
           "each millisecond, which `unet-bench plot` draws.",
       .metric = "blackout",
       .unit = "ns",
       .sizes = {8},
       .limit = "undisturbed"},
      {.name = "engines",
       .workload = Workload::rate,
       .own_paths = true,
       .what = "messages per second of two engine threads with a port each, over one",
       .detail =
           "One NI's engine, or two engines on the two cores. No process makes the load, because it would need a core: each port's\n"
           "driver gives the engine frames of small messages, takes those that it sends, and does in the engine's own thread what\n"
           "the endpoint's client would do (credit for what arrived, the next message into the send queue: a few stores). Counted:\n"
           "messages sent; as many arrive, through checksum, tag and receive queue, and none may be dropped. Endpoints stay with\n"
           "their engine, as they do when their channels are over its ports; nothing goes over links. Ratio: over one-engine, which\n"
           "sends half of its messages on either core.",
       .metric = "rate",
       .unit = "msg/s",
       .sizes = {8, 48},
       .limit = "one-engine"},
      {.name = "am-rtt",
       .workload = Workload::rtt,
       .needs = {Ability::messages, Ability::layer},
       .what = "round trip of an Active Message: a request whose handler replies",
       .detail =
           "A requests, B's handler replies in kind, A's handler takes the reply; one is under way at a time. Metrics: rtt_short\n"
           "(payload in up to 16 arguments), rtt_medium (payload copied out by either handler), rtt_long (deposited in the\n"
           "segment, where either handler looks at it), each at the sizes that the category has; rtt is the raw channel of the\n"
           "same path, in the same slices. Timed as `rtt`. Two records of each: ratio over the limit, and over the raw channel.",
       .metric = "rtt",
       .unit = "ns",
       .sizes = {8, 48, 64, 1024, 4096, 16384},
       .limit = "limit-pingpong",
       .large_limit = "limit-echo"},
      {.name = "am-rate",
       .workload = Workload::rate,
       .needs = {Ability::messages, Ability::layer},
       .what = "short requests per second, pipelined, one way",
       .detail =
           "A sends short requests as long as it has credits, B's handler takes them. Beside it the raw channel's small messages.\n"
           "Ratio: requests per cache-line round trip, as in `rate`; in a second record over the raw channel.",
       .metric = "rate",
       .unit = "msg/s",
       .relation = Relation::product,
       .sizes = {8, 48},
       .limit = "limit-pingpong"},
      {.name = "am-store",
       .workload = Workload::put,
       .needs = {Ability::messages, Ability::layer},
       .what = "bytes per second of long requests into the other's segment",
       .detail =
           "A sends long requests to consecutive offsets of B's segment of 4 MiB; B's handler counts them. The clock stops when\n"
           "the last was handled. Ratio: over limit-put (memcpy into memory that B has mapped); in a second record over raw\n"
           "U-Net's put on the same path, up to 64 KiB on wires.",
       .metric = "bandwidth",
       .unit = "GB/s",
       .sizes = {8, 64, 512, 2048, 4096, 16384, 65536, 262144, 1048576},
       .size_max = kSizeMax,
       .limit = "limit-put"},
      {.name = "am-get",
       .workload = Workload::get,
       .needs = {Ability::messages, Ability::layer},
       .what = "bytes per second of gets out of the other's segment",
       .detail =
           "A gets blocks from consecutive offsets of B's segment of 4 MiB, which B has just written, into one buffer, as many at\n"
           "a time as it has credits. The clock stops when A's handler has run for the last. Ratio: over limit-get (memcpy out of\n"
           "the same).",
       .metric = "bandwidth",
       .unit = "GB/s",
       .sizes = {8, 64, 512, 2048, 4096, 16384, 65536, 262144, 1048576},
       .size_max = kSizeMax,
       .limit = "limit-get"},
      {.name = "logp",
       .method = Method::logp,
       .workload = Workload::am_short,
       .needs = {Ability::messages, Ability::layer},
       .what = "the parameters of the LogP model: latency, overheads and gaps of Active Messages",
       .detail =
           "After Culler, Liu, Martin and Yoshikawa 1996, by short messages. o_send: what a request keeps the sender, in bursts of\n"
           "four. o_recv: what taking a reply does, when the four have arrived during a pause. L: half a round trip without both\n"
           "overheads (where memory is shared, the line that carries a message moves while its receiver reads it: that is in\n"
           "o_recv, and L may be 0 or less). g: time for each of a long stream of requests. G: time for 1 KiB of a stream of long\n"
           "requests of 64 KiB. All in the same few milliseconds. Ratio of L, o and g: over limit-pingpong.",
       .metric = "L",
       .unit = "ns",
       .sizes = {8},
       .size_max = 64,
       .limit = "limit-pingpong"},
      {.name = "am-loss",
       .method = Method::loss,
       .workload = Workload::lossy,
       .own_paths = true,
       .what = "goodput over a wire that loses frames, beside the kernel's TCP on the same wire",
       .detail =
           "A cable between two namespaces, on which a program in the kernel drops a share of all frames in both directions, for\n"
           "Active Messages (long requests over net_af_packet) and for TCP alike; late_1%: one frame in a hundred goes through\n"
           "another process, and comes behind those that were sent after it. Frames of 1500 bytes; TCP sends single segments, as\n"
           "else whole trains would be lost. Goodput: what B had in 400 ms, after 100 ms, each path in turn, TCP over a new\n"
           "connection each time. Ratio: over the path's own goodput without loss; in further records of Active Messages, over TCP\n"
           "with each congestion control. --seconds means nothing.",
       .metric = "goodput",
       .unit = "GB/s",
       .sizes = {16384},
       .limit = "kernel-tcp-cubic"},
      {.name = "am-peers",
       .method = Method::peers,
       .workload = Workload::am_peers,
       .needs = {Ability::messages, Ability::layer},
       .what = "memory of an Active Message peer that says nothing",
       .detail =
           "A maps B 64 times, as if there were 64 of B, and unmaps them; once per repetition, whatever --seconds says. For each\n"
           "peer: client_memory and peer_memory are what A and B have allocated, shared_memory what of the memory that both share\n"
           "A has touched, mapped_memory what there is of it, of which the kernel gives only what is touched, and service_memory\n"
           "what unetd has more (resident, not shared). Nothing is sent but what it takes to connect.",
       .metric = "client_memory",
       .unit = "B",
       .limit = "am-local"},
      {.name = "splitc",
       .method = Method::splitc,
       .workload = Workload::word_read,
       .own_paths = true,
       .what = "each access of Split-C, direct and by messages, over the limit of its kind",
       .detail =
           "Two ranks. read: side B writes 64 words, each in a line of its own that says where the next one is, then side A reads\n"
           "them one after the other. Direct: over limit-miss, which does so without Split-C; by messages: over the round trip of\n"
           "a short Active Message on the same path (am-local, am-memif). get, put, store: words of 8 bytes, as many at a time as\n"
           "the path takes, until sync() returns, or side B has the last that was stored; words per cache-line round trip.\n"
           "bulk_get, bulk_put: 64 KiB at consecutive offsets of 4 MiB, over memcpy (limit-get, limit-put). barrier: over the\n"
           "cache-line round trip. Each slice stands between two slices of what it is compared with; the field `limit` is that,\n"
           "`baseline` its name.",
       .metric = "read",
       .unit = "ns",
       .limit = "limit-pingpong",
       .more_limits = {"limit-miss", "limit-get", "limit-put"}},
      {.name = "fabric",
       .method = Method::fabric,
       .workload = Workload::rtt,
       .own_paths = true,
       .what = "operations of libfabric by our provider, and by those of libfabric, over the limit of their kind",
       .detail =
           "Two endpoints of type FI_EP_RDM, each in a process that polls. tagged: a message there and back, up to 64 KiB; over\n"
           "limit-pingpong up to 64 B, over limit-echo above. At 8 B: rate: messages, of which 64 are under way;\n"
           "fetch_add: an atomic operation and its result; add_rate: atomic operations without results, of which 64 are under way;\n"
           "rates in a cache-line round trip. From 4 KiB on: bandwidth: a stream into buffers that wait for it, over limit-memcpy;\n"
           "put, get: at consecutive offsets of 4 MiB, eight under way, over memcpy (limit-put, limit-get).",
       .metric = "tagged",
       .unit = "ns",
       .sizes = {8, 64, 4096, 65536, 1048576},
       .size_max = kSizeMax,
       .limit = "limit-pingpong",
       .large_limit = "limit-echo",
       .more_limits = {"limit-memcpy", "limit-put", "limit-get"}},
      {.name = "mpi",
       .method = Method::mpi,
       .own_paths = true,
       .what = "Open MPI over our provider of libfabric, and over its own transports",
       .detail =
           "mpirun starts two ranks, each on its core, on every path in turn, and eight ranks that share both cores. latency: half a\n"
           "round trip of 8 B. bandwidth, rate: 64 messages under way. allreduce: of doubles; allreduce_crowded: by eight ranks. mm,\n"
           "ssort, rsort, cg: the kernels by MPI with two ranks (apps/kernels/mpi). Ratio: over vader in the same repetition; ours has\n"
           "another record over UCX. mpi-xdp and mpi-tcp-veth: two ranks in two network namespaces, which needs root; ours over tcp.\n"
           "--seconds is for each figure.",
       .metric = "latency",
       .unit = "as each figure says"},
      {.name = "fibers",
       .method = Method::fibers,
       .workload = Workload::fibers,
       .own_paths = true,
       .what = "fork, join, yield, lock and ping-pong of user-level threads and of pthreads, over a procedure call",
       .detail =
           "After Table I of Bershad, Anderson, Lazowska and Levy 1991; all on the core of side A. fork: create a thread that does\n"
           "nothing, 32 in a row. fork_join: create one and wait for its end. yield: each of two threads lets the other one run.\n"
           "acquire_release: lock and unlock a mutex that is free. pingpong: a round trip of two threads by a mutex and two\n"
           "conditions. Each slice stands between two slices of a procedure call that is not inlined (procedure_call). Ratio: over\n"
           "that; in a further record of pthreads, over fibers.",
       .metric = "yield",
       .unit = "ns",
       .limit = "limit-call"},
      {.name = "tasks",
       .method = Method::tasks,
       .own_paths = true,
       .what = "tasks on many hosts: one after another, many at a time, or down a tree",
       .detail =
           "unet-run --hosts starts `true` on each host of a testbed in network namespaces, through their agents, which have no open\n"
           "links to each other. tasks-sim: the same launcher and agents in virtual time, where each host has a processor of its own.\n"
           "create: until all tasks run. page_in: the same with a file of 2 MiB that is brought along. Ratio: over one host after\n"
           "another, of the same kind and in the same repetition. Namespaces have up to 32 hosts and need root; --seconds means nothing.",
       .metric = "create",
       .unit = "ns",
       .sizes = {2, 8, 32, 128, 1024},
       .size_max = 1024,
       .counts = "hosts"},
  };
}

const Benchmark* find_benchmark(const std::string& name) {
  for (const Benchmark& benchmark : all_benchmarks()) {
    if (benchmark.name == name) return &benchmark;
  }
  return nullptr;
}

std::string Benchmark::size_text(uint32_t size) const {
  return counts.empty() ? format_size(size) : std::to_string(size) + " " + counts;
}

std::vector<uint32_t> sizes_of(const Benchmark& benchmark, const std::vector<uint32_t>& chosen) {
  if (benchmark.sizes.empty()) return {0};
  return chosen.empty() ? benchmark.sizes : chosen;
}

Status takes_part(const Benchmark& benchmark, const Path& path) {
  const PathInfo& info = path.info();
  if (benchmark.own_paths || !info.only.empty()) {
    const bool named = std::find(info.only.begin(), info.only.end(), benchmark.name) != info.only.end();
    return named ? Status{} : fail(Errc::unavailable, "is a path of other benchmarks");
  }
  for (const auto& [ability, why] : kLacks) {
    const bool of_limits = info.kind == Kind::limit && ability <= kLastOfLimits;
    if (benchmark.needs.has(ability) && !info.can(ability) && !of_limits) return fail(Errc::unavailable, why);
  }
  if (benchmark.method == Method::many) return path.supports(Workload::many, 0);
  Status can;
  for (uint32_t size : sizes_of(benchmark, {})) {
    can = path.supports(benchmark.workload, size);
    if (can) break;
  }
  return can;
}

}  // namespace unet::bench
