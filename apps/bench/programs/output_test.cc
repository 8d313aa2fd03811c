// output_test.cc - what the programs print, as their versions in Debian 12 do.
#include "apps/bench/programs/output.h"

#include <catch2/catch.hpp>

namespace unet::bench::program_output_test {

TEST_CASE("program text: iperf3, a stream") {
  const auto told = parse_iperf3(R"(warning first
{"start": {}, "end": {"sum_sent": {"seconds": 1.0, "bytes": 5000}, "sum_received": {"seconds": 1.25, "bytes": 4000, "bits_per_second": 1}}}
)");
  REQUIRE(told);
  CHECK(told->bytes == 4000);
  CHECK(told->seconds == 1.25);
}

TEST_CASE("program text: iperf3, datagrams of which some were lost") {
  const auto told = parse_iperf3(R"({"end": {"sum_received": {"seconds": 1.0, "bytes": 6400, "packets": 150, "lost_packets": 50}}})");
  REQUIRE(told);
  CHECK(told->datagrams == 100);
}

TEST_CASE("program text: iperf3 that fails says why, and what is no JSON is not read") {
  CHECK(parse_iperf3(R"({"error": "unable to connect"})").error().text.find("unable to connect") != std::string::npos);
  CHECK(parse_iperf3("").error().code == Errc::protocol);
  CHECK(parse_iperf3("{").error().code == Errc::protocol);
  CHECK(parse_iperf3(R"({"end": {}})").error().code == Errc::protocol);
}

TEST_CASE("program text: sockperf") {
  const std::string text =
      "sockperf: Starting test...\n"
      "sockperf: [Total Run] RunTime=1.004 sec; Warm up time=400 msec; SentMessages=20001; ReceivedMessages=20000\n"
      "sockperf: [Valid Duration] RunTime=0.500 sec; SentMessages=10000; ReceivedMessages=10000\n"
      "sockperf: ---> percentile 99.900 =   80.125\n"
      "sockperf: ---> percentile 99.000 =   66.366\n"
      "sockperf: ---> percentile 50.000 =   39.987\n";
  const auto told = parse_sockperf(text);
  REQUIRE(told);
  CHECK(told->count == 20000);
  CHECK(told->rate == 20000);
  CHECK(told->p50 == Approx(39987));
  CHECK(told->p99 == Approx(66366));
  CHECK(parse_sockperf("sockperf: No messages were received from the server. Is the server down?").error().code == Errc::protocol);
  CHECK(parse_sockperf(text.substr(0, text.size() - 20)).error().code == Errc::protocol);
}

TEST_CASE("program text: redis-benchmark") {
  const std::string text =
      "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n"
      "\"SET\",\"40485.83\",\"0.022\",\"0.016\",\"0.023\",\"0.025\",\"0.039\",\"24.063\"\n"
      "\"GET\",\"38610.04\",\"0.023\",\"0.016\",\"0.024\",\"0.026\",\"0.041\",\"16.031\"\n";
  const auto get = parse_redis_benchmark(text, "GET");
  REQUIRE(get);
  CHECK(get->rate == Approx(38610.04));
  CHECK(get->p50 == Approx(24e3));
  CHECK(get->p99 == Approx(41e3));
  CHECK(parse_redis_benchmark(text, "SET")->p99 == Approx(39e3));
  CHECK(parse_redis_benchmark(text, "LPUSH").error().code == Errc::protocol);
  CHECK(parse_redis_benchmark("\"SET\",\"1\"", "SET").error().code == Errc::protocol);
}

TEST_CASE("program text: wrk") {
  const std::string text =
      "Running 1s test @ http://10.0.0.1:8300/page\n"
      "  1 threads and 32 connections\n"
      "  Latency Distribution\n"
      "     50%  612.00us\n"
      "     75%    1.02ms\n"
      "     99%    7.50ms\n"
      "  34718 requests in 1.10s, 43.04MB read\n"
      "Requests/sec:  31561.45\n"
      "Transfer/sec:     39.12MB\n";
  const auto told = parse_wrk(text);
  REQUIRE(told);
  CHECK(told->rate == Approx(31561.45));
  CHECK(told->count == 34718);
  CHECK(told->p50 == Approx(612e3));
  CHECK(told->p99 == Approx(7.5e6));
  CHECK(parse_wrk(text + "  Socket errors: connect 0, read 3, write 0, timeout 0\n").error().code == Errc::protocol);
  CHECK(parse_wrk("").error().code == Errc::protocol);
  const std::string nothing =
      "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n"
      "    Latency     0.00us    0.00us   0.00us    -nan%\n"
      "    Req/Sec     0.00      0.00     0.00      -nan%\n"
      "  Latency Distribution\n"
      "     50%    0.00us\n"
      "     99%    0.00us\n"
      "  0 requests in 1.00s, 0.00B read\n"
      "Requests/sec:      0.00\n";
  CHECK(parse_wrk(nothing).error().text == "wrk had no answer");
}

TEST_CASE("program text: wrk's shares of threads are no percentiles") {
  const std::string text =
      "Running 1s test @ http://10.0.0.1:8300/page\n"
      "  1 threads and 32 connections\n"
      "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n"
      "    Latency     1.15ms    2.83ms  41.10ms   94.50%\n"
      "    Req/Sec    99.50k     1.02M    1.20M    72.99%\n"
      "  Latency Distribution\n"
      "     50%  612.00us\n"
      "     99%    1.02m \n"
      "  104718 requests in 1.10s, 1.04GB read\n"
      "Requests/sec:  95198.18\n";
  const auto told = parse_wrk(text);
  REQUIRE(told);
  CHECK(told->p50 == Approx(612e3));
  CHECK(told->p99 == Approx(61.2e9));
  CHECK(told->count == 104718);
}

TEST_CASE("program text: pgbench") {
  const std::string text =
      "pgbench (15.18 (Debian 15.18-0+deb12u1))\n"
      "number of clients: 4\n"
      "number of transactions actually processed: 125258\n"
      "number of failed transactions: 0 (0.000%)\n"
      "latency average = 0.159 ms\n"
      "initial connection time = 9.342 ms\n"
      "tps = 25097.152813 (without initial connection time)\n";
  const auto told = parse_pgbench(text);
  REQUIRE(told);
  CHECK(told->count == 125258);
  CHECK(told->rate == Approx(25097.152813));
  CHECK(parse_pgbench(text.substr(0, text.find("tps"))).error().code == Errc::protocol);
  CHECK(parse_pgbench("pgbench: error: connection to server failed").error().code == Errc::protocol);
}

TEST_CASE("program text: bench_mpi, with other lines before its own") {
  const auto figures = parse_mpi("a warning of mpirun\nlatency 8 ns 340.5\nbandwidth 4096 GB/s 2.25\n");
  REQUIRE(figures);
  REQUIRE(figures->size() == 2);
  CHECK((*figures)[0].metric == "latency");
  CHECK((*figures)[0].unit == "ns");
  CHECK((*figures)[0].value == 340.5);
  CHECK((*figures)[1].size == 4096);
  CHECK(!parse_mpi("mpirun was unable to start\n"));
}

TEST_CASE("program text: a kernel takes as long as its slowest rank") {
  CHECK(parse_kernel("text before\n[\n {\"seconds\": 0.5}, {\"seconds\": 0.75}\n]\n") == 0.75);
  CHECK(!parse_kernel("[\n]\n"));
}

}  // namespace unet::bench::program_output_test
