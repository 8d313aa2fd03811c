// output.cc - JSON, CSV, and words that stand before a number.
#include "apps/bench/programs/output.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

namespace unet::bench {

namespace {

tl::unexpected<Error> not_understood(const char* program, const std::string& text) {
  return fail(Errc::protocol, std::string("cannot read what ") + program + " says: " + text);
}

// The number behind the first `words`, and the position of its end; nothing if there is none.
bool number_after(const std::string& text, const std::string& words, double& number, size_t* end = nullptr) {
  const size_t found = text.find(words);
  if (found == std::string::npos) return false;
  const char* const begin = text.c_str() + found + words.size();
  char* after = nullptr;
  number = std::strtod(begin, &after);
  if (end != nullptr) *end = static_cast<size_t>(after - text.c_str());
  return after != begin;
}

// "612.00us", "1.25ms", "2.00s", "1.02m", "1.50h", at the end of a line.
bool time_after(const std::string& text, const std::string& words, double& ns) {
  struct Unit {
    const char* name;
    double ns;
  };
  constexpr Unit kUnits[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
  size_t end = 0;
  if (!number_after(text, words, ns, &end) || !std::isfinite(ns)) return false;
  const std::string name = text.substr(end, std::min(text.find_first_of(" \n", end), text.size()) - end);
  for (const Unit& each : kUnits) {
    if (name != each.name) continue;
    ns *= each.ns;
    return true;
  }
  return false;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t at = 0; (at = line.find('"', at)) != std::string::npos;) {
    const size_t end = line.find('"', at + 1);
    if (end == std::string::npos) break;
    cells.push_back(line.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return cells;
}

}  // namespace

Result<Transferred> parse_iperf3(const std::string& text) {
  const size_t begin = text.find('{');
  const nlohmann::json told = nlohmann::json::parse(begin == std::string::npos ? "" : text.substr(begin), nullptr, false);
  if (!told.is_object()) return not_understood("iperf3", text);
  if (told.contains("error")) return fail(Errc::unavailable, "iperf3: " + told["error"].dump());
  const nlohmann::json received = told.value("end", nlohmann::json::object()).value("sum_received", nlohmann::json::object());
  const double packets = received.value("packets", 0.0), lost = received.value("lost_packets", 0.0);
  const Transferred transferred{received.value("bytes", 0.0), received.value("seconds", 0.0), packets - lost};
  if (transferred.bytes <= 0 || transferred.seconds <= 0) return not_understood("iperf3", text);
  return transferred;
}

Result<Answered> parse_sockperf(const std::string& text) {
  Answered answered;
  double seconds = 0;
  const size_t valid = text.find("[Valid Duration]");
  const std::string rest = valid == std::string::npos ? "" : text.substr(valid);
  const bool whole = number_after(rest, "RunTime=", seconds) && number_after(text, "ReceivedMessages=", answered.count) &&
                     number_after(rest, "percentile 50.000 =", answered.p50) && number_after(rest, "percentile 99.000 =", answered.p99);
  double measured = 0;
  if (!whole || !number_after(rest, "ReceivedMessages=", measured) || seconds <= 0) return not_understood("sockperf", text);
  answered.rate = measured / seconds;
  answered.p50 *= 1e3;
  answered.p99 *= 1e3;
  return answered;
}

Result<Answered> parse_redis_benchmark(const std::string& text, const std::string& command) {
  const size_t begin = text.find("\"" + command + "\"");
  const auto cells = begin == std::string::npos ? std::vector<std::string>{} : cells_of(text.substr(begin, text.find('\n', begin) - begin));
  // A line has command, rate, and times in ms: average, least, p50, p95, p99, greatest.
  if (cells.size() < 8) return not_understood("redis-benchmark", text);
  const auto number = [&](size_t i) { return std::strtod(cells[i].c_str(), nullptr); };
  if (number(1) <= 0) return not_understood("redis-benchmark", text);
  return Answered{.rate = number(1), .p50 = number(4) * 1e6, .p99 = number(6) * 1e6};
}

Result<Answered> parse_wrk(const std::string& text) {
  for (const char* const wrong : {"Non-2xx", "Socket errors"}) {
    if (text.find(wrong) != std::string::npos) return fail(Errc::protocol, "wrk was not served well: " + text);
  }
  Answered answered;
  const size_t counted = text.find(" requests in");
  const size_t line = counted == std::string::npos ? counted : text.rfind('\n', counted);
  // Above it are shares of threads, which may be of 94.50%, too.
  const size_t distribution = text.find("Latency Distribution");
  const std::string rest = distribution == std::string::npos ? "" : text.substr(distribution);
  const bool whole = line != std::string::npos && number_after(text, "Requests/sec:", answered.rate) &&
                     time_after(rest, " 50%", answered.p50) && time_after(rest, " 99%", answered.p99);
  if (!whole) return not_understood("wrk", text);
  answered.count = std::strtod(text.c_str() + line, nullptr);
  if (answered.count <= 0) return fail(Errc::protocol, "wrk had no answer");
  return answered;
}

Result<Answered> parse_pgbench(const std::string& text) {
  Answered answered;
  double failed = 0;
  const bool whole = number_after(text, "transactions actually processed:", answered.count) &&
                     number_after(text, "\ntps =", answered.rate) && number_after(text, "failed transactions:", failed);
  if (!whole) return not_understood("pgbench", text);
  if (answered.count <= 0 || failed > 0) return fail(Errc::protocol, "pgbench was not served well: " + text);
  return answered;
}

Result<std::vector<ProgramFigure>> parse_mpi(const std::string& text) {
  std::vector<ProgramFigure> figures;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    ProgramFigure figure;
    std::string more;
    if (words >> figure.metric >> figure.size >> figure.unit >> figure.value && !(words >> more)) figures.push_back(std::move(figure));
  }
  if (figures.empty()) return not_understood("bench_mpi", text);
  return figures;
}

Result<double> parse_kernel(const std::string& text) {
  const size_t begin = text.find("[\n");
  const nlohmann::json records = nlohmann::json::parse(begin == std::string::npos ? "" : text.substr(begin), nullptr, false);
  double slowest = 0;
  if (records.is_array()) {
    for (const nlohmann::json& record : records) slowest = std::max(slowest, record.value("seconds", 0.0));
  }
  if (slowest <= 0) return fail(Errc::protocol, "the kernel said no time: " + text);
  return slowest;
}

}  // namespace unet::bench
