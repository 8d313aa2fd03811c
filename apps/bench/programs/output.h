// output.h - what other programs print of their measurements, as numbers; programs/runs.cc asks.
#pragma once

#include <string>
#include <vector>

#include "apps/bench/programs/readings.h"
#include "unet/base/result.h"

namespace unet::bench {

// Rates are of a second, times in nanoseconds.
struct Transferred {  // iperf3 -J, at the receiver
  double bytes = 0;
  double seconds = 0;
  double datagrams = 0;
};
struct Answered {
  double count = 0;  // requests or round trips in all; 0: it does not say
  double rate = 0;
  double p50 = 0, p99 = 0;
};

Result<Transferred> parse_iperf3(const std::string& text);
// With --full-rtt.
Result<Answered> parse_sockperf(const std::string& text);
// redis-benchmark --csv, the row of a command ("SET").
Result<Answered> parse_redis_benchmark(const std::string& text, const std::string& command);
// With --latency.
Result<Answered> parse_wrk(const std::string& text);
// Without times.
Result<Answered> parse_pgbench(const std::string& text);
// The lines "METRIC BYTES UNIT VALUE" of bench_mpi.
Result<std::vector<ProgramFigure>> parse_mpi(const std::string& text);
// The seconds of the slowest rank, of the records that a kernel printed (--json -).
Result<double> parse_kernel(const std::string& text);

}  // namespace unet::bench
