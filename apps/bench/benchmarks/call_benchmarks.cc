// call_benchmarks.cc - the benchmarks of calls, and of what fast calls are made of.
#include "apps/bench/benchmarks/benchmarks.h"
#include "apps/bench/results/sizes.h"

namespace unet::bench {

std::vector<Benchmark> call_benchmarks() {
  return {
      {.name = "rpc",
       .method = Method::rpc,
       .workload = Workload::call,
       .own_paths = true,
       .what = "procedure calls of another process, ours beside gRPC, Cap'n Proto and pipes",
       .detail =
           "A calls, B's procedure runs, A has its result; one call at a time. LRPC's four tests: null; add (two words in, one out);\n"
           "big_in (200 B in); big_in_out (200 B in and out). in_4k, in_64k, in_8m: an argument of so many bytes, no result. Procedures\n"
           "look at their arguments where these are. rpc-grpc, rpc-capnp: gRPC's C++ and Cap'n Proto's RPC over a Unix socket, blocking,\n"
           "each with its server's threads on B's core. rpc-pipe: a pipe each way, blocking. *-one-core: both processes on one core.\n"
           "Ratio: over limit-rpc, a line each way between two cores with the argument copied in and out, in pieces of 64 KiB; on\n"
           "one core over limit-handoff. Ours has more records: big_in_out over its own null; null over a short Active Message and\n"
           "over a message of 8 B on the same path (am-NAME, NAME), over rpc-grpc and over rpc-capnp.",
       .metric = "null",
       .unit = "ns",
       .limit = "limit-rpc",
       .more_limits = {"limit-handoff"}},
      {.name = "rpc-rate",
       .workload = Workload::rate,
       .own_paths = true,
       .what = "null calls per second, many under way, of a server with one core",
       .detail =
           "A has 64 null calls under way, and starts another whenever the oldest has ended; B serves them from one thread. Ratio:\n"
           "calls per cache-line round trip, as in `rate`.",
       .metric = "rate",
       .unit = "msg/s",
       .relation = Relation::product,
       .limit = "limit-pingpong"},
      {.name = "rpc-cost",
       .method = Method::rpc_cost,
       .workload = Workload::call_part,
       .own_paths = true,
       .what = "the parts of a null call: channel, Active Message, call, stub; send, poll and receive of either side",
       .detail =
           "null: the whole call. By difference, in slices beside each other: channel: a message of 8 B and its answer on the raw\n"
           "channel, over a cache-line round trip. active_message: a short one and its reply, over that. call: the null call, over\n"
           "that. stub: add (two words encoded and decoded, and a result), over null. As in URPC's Table II, in bursts of four with one\n"
           "side at work at a time, each time divided by four: client_send: to start a call. client_poll, server_poll: a poll that\n"
           "finds nothing. client_receive: to take an answer. server_serve: to receive, dispatch and answer a call. Ratio: over a\n"
           "cache-line round trip, or over what a difference is from.",
       .metric = "null",
       .unit = "ns",
       .limit = "limit-pingpong"},
      {.name = "rpc-scale",
       .method = Method::rpc_scale,
       .workload = Workload::callers,
       .own_paths = true,
       .what = "null calls of many callers: latency and calls per second, with a server's core and without",
       .detail =
           "T fibers of one thread (--size), each of which makes null calls one after another: C = 1. rpc-local: the server has a core\n"
           "of its own, S = 1. rpc-one-core: it has none, S = 0, and needs that of its callers. More processors than two are not\n"
           "measured: a run has two cores. latency: of single calls. rate: of all callers. Ratio: over a null call of limit-rpc, or of\n"
           "limit-handoff; of rates, calls in the time of one of these. More than 32 callers have another record: their\n"
           "rate over that of 32.",
       .metric = "latency",
       .unit = "ns",
       .sizes = {1, 2, 4, 8, 16, 64, 10000},
       .counts = "callers",
       .limit = "limit-rpc",
       .more_limits = {"limit-handoff"}},
      {.name = "rpc-bindings",
       .method = Method::many,
       .workload = Workload::call,
       .own_paths = true,
       .what = "idle bindings to a server: memory and time of each, and null calls by another one",
       .detail =
           "As `many`, with bindings instead of connections: each repetition has null calls by one binding, then imports `--size` more\n"
           "from the same server, repeats the calls, and releases these bindings. null: beside idle bindings; ratio: over those\n"
           "without, in the same repetition. open: time to import each. memory: bytes of each, at one of both sides on average.",
       .metric = "null",
       .unit = "ns",
       .sizes = {20000},
       .size_max = 65000,
       .counts = "idle",
       .limit = "limit-rpc"},
      {.name = "rpc-death",
       .method = Method::rpc_death,
       .workload = Workload::server_death,
       .own_paths = true,
       .what = "time until a caller knows of the end of its server",
       .detail =
           "B kills a server (SIGKILL) where A has 64 calls under way, which A waits for in Client::wait_for(). lost: from the kill\n"
           "until the last call has ended with its error; lost_max: the longest of all, ten in each repetition.",
       .metric = "lost",
       .unit = "ns",
       .limit = "limit-rpc"},
      {.name = "ports",
       .method = Method::ports,
       .workload = Workload::rtt,
       .own_paths = true,
       .what = "message ports: request and answer, and long messages with a window, with one message and page by page",
       .detail =
           "A sends a message to a message port of B. Up to 64 B: B answers to a message port of A; one request at a time. Longer: a\n"
           "stream in one direction, of which B reads the number of each message where it lies. windowed: 32 messages under way.\n"
           "one_message: PortOptions::window = 1. stop_and_wait: a page at a time, as NORMA IPC. Ratio: of round trips over\n"
           "limit-pingpong, and in a further record over a short Active Message with its reply on the same path (am-NAME); of streams\n"
           "over limit-memcpy.",
       .metric = "windowed",
       .unit = "ns",
       .sizes = {8, 4096, 65536, kSizeMax},
       .size_max = kSizeMax,
       .limit = "limit-pingpong",
       .large_limit = "limit-memcpy"},
      {.name = "ipc-techniques",
       .method = Method::techniques,
       .workload = Workload::technique,
       .own_paths = true,
       .what = "the cost of each technique of fast IPC that is left out, as Liedtke's ladder for L3",
       .detail =
           "Round trips on a local channel of U-Net. Each row lacks one technique; ratio: over the same with it, in slices beside it.\n"
           "buffer: a message in a buffer that the slot describes, over one in the slot's cache line. several_sends: each part (4 B of\n"
           "8, 1 KiB of 4 KiB) in a message of its own, over one message that gathers them. two_copies: copied in and out, over\n"
           "composed and read in place. On one core: four_crossings: the sender's system call wakes the receiver, which sleeps by\n"
           "another, over one call that yields the core. scheduler: a receiver that polls until its time slice is over, over\n"
           "the hand-off by a wake-up. Both sides produce and look at all words.",
       .metric = "buffer",
       .unit = "ns",
       .sizes = {8, 4096},
       .limit = "ipc-local",
       .more_limits = {"ipc-one-core"}},
      {.name = "pipe",
       .workload = Workload::bandwidth,
       .own_paths = true,
       .what = "a file through two processes: by a pipe, by shared memory with semaphores, and by U-Net",
       .detail =
           "Side A reads a file of 4 MiB, which the kernel has in memory, again and again in blocks; side B writes the blocks to\n"
           "/dev/null. file-pipe and file-memory are the programs `piper` and `mem` of \"Pipes vs. shared memory\"; file-local reads and\n"
           "writes blocks in the memory of a local channel. *-one-core: both processes on one core. Ratio: over limit-file, where one\n"
           "process does all of it.",
       .metric = "bandwidth",
       .unit = "GB/s",
       .sizes = {8192},
       .limit = "limit-file"},
      {.name = "one-core",
       .workload = Workload::rtt,
       .own_paths = true,
       .what = "round trip of one message between two processes on one core",
       .detail =
           "As rtt, but side B works on the core of side A during a slice: each side must give the core to the other. am-one-core:\n"
           "short Active Messages of endpoints that wait in am::Endpoint::wait(). pipe-one-core: a pipe each way. Ratio: over\n"
           "limit-handoff, by which each process wakes the other (FUTEX_WAKE) and sleeps (FUTEX_WAIT).",
       .metric = "rtt",
       .unit = "ns",
       .sizes = {8},
       .size_max = 64,
       .limit = "limit-handoff"},
  };
}

}  // namespace unet::bench
