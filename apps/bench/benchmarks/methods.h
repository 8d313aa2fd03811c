// methods.h - one function for each benchmark that has a method of its own; main.cc calls them.
#pragma once

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

using Records = Result<std::vector<Record>>;
using PathIndices = std::vector<size_t>;  // of a session

// Endpoints without queues beside a Unix datagram socket, and the cost of thousands of them.
Records measure_emulated(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// The cost of idle endpoints to the active pair.
Records measure_endpoints(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// A well-behaved pair alone, beside each kind of hostile client, and beside its control.
Records measure_fairness(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// Each operation of libfabric by each provider, beside the limit of its own kind.
Records measure_fabric(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// Each operation of fibers and of kernel threads, beside a procedure call.
Records measure_fibers(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// Processor time while nothing happens.
Records measure_idle(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// am-incast: many senders to one receiver, in a simulated network and virtual time.
Records measure_incast(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// A path's latency, overheads and gaps, in the terms of the LogP model.
Records measure_logp(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// `size` idle connections, and an active one beside them.
Records measure_many(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// am-peers: the memory of a peer that sends nothing.
Records measure_peers(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// How long messages stop when the network interface is replaced.
Records measure_restart(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// Each procedure call on each path, beside the limit of calls.
Records measure_rpc(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// The parts of a null call, some by difference.
Records measure_rpc_cost(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// Null calls of `size` fibers.
Records measure_rpc_scale(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// The workload server_death, a slice per repetition, and the longest time of all.
Records measure_rpc_death(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// Message ports: round trips, or streams, of each kind of flow.
Records measure_ports(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// Round trips that lack one technique, each beside those that have it.
Records measure_techniques(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);
// Each access of Split-C, beside the limit of its own kind.
Records measure_splitc(Session&, const Benchmark&, uint32_t size, const PathIndices& paths, const MeasureOptions&);

// am-traffic and tcp-traffic, which need no session: `sizes` are numbers of nodes.
Records measure_traffic(const Benchmark&, const std::vector<PathInfo>& paths, const std::vector<uint32_t>& sizes, const MeasureOptions&);

// The path of am-incast, and those of am-traffic, tcp-traffic and fibers.
void add_incast(Paths& paths);
void add_traffic(Paths& paths);
void add_fibers(Paths& paths);

}  // namespace unet::bench
