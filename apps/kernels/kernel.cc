// kernel.cc - command line, measuring and report of the kernels.
#include "apps/kernels/kernel.h"

#include <cstdio>
#include <fstream>
#include <iostream>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "am/splitc/splitc.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

constexpr int kWrong = 1, kUsage = 2;

// Of one rank, in two pieces that an exchange takes.
struct Times {
  double seconds, computation, communication;
  uint64_t wrong;
};
struct Traffic {
  uint64_t messages, message_bytes, direct, direct_bytes;
};
static_assert(sizeof(Times) <= sc::kCellBytes && sizeof(Traffic) <= sc::kCellBytes);

// By which way this rank reaches the others.
const char* path_name() {
  uint32_t direct = 0;
  for (sc::Rank rank = 0; rank < sc::procs(); ++rank) direct += sc::current_node->is_direct(rank) ? 1 : 0;
  if (direct == sc::procs()) return "direct";
  return direct == 1 ? "messages" : "mixed";  // itself is one
}

void print(const Measurement& result, const std::vector<Times>& times, const std::vector<Traffic>& traffic, bool verified) {
  std::printf("%s: %s, %u ranks, %s\n", result.kernel.c_str(), result.size.c_str(), sc::procs(), path_name());
  std::printf("  rank   seconds   computing   communicating   messages   their bytes   direct   their bytes\n");
  for (size_t rank = 0; rank < times.size(); ++rank) {
    std::printf("  %4zu  %8.4f    %8.4f        %8.4f  %9llu  %12llu  %7llu  %12llu\n", rank, times[rank].seconds, times[rank].computation,
                times[rank].communication, static_cast<unsigned long long>(traffic[rank].messages),
                static_cast<unsigned long long>(traffic[rank].message_bytes), static_cast<unsigned long long>(traffic[rank].direct),
                static_cast<unsigned long long>(traffic[rank].direct_bytes));
  }
  if (result.operations > 0) std::printf("  %.4g %s/s\n", result.operations / times[0].seconds, result.operation.c_str());
  uint64_t wrong = 0;
  for (const Times& each : times) wrong += each.wrong;
  if (!verified) {
    std::printf("  not verified\n");
  } else if (wrong == 0) {
    std::printf("  verified against the serial answer\n");
  } else {
    std::printf("  WRONG: %llu elements differ from the serial answer\n", static_cast<unsigned long long>(wrong));
  }
}

nlohmann::json records(const Measurement& result, const std::vector<Times>& times, const std::vector<Traffic>& traffic, bool verified) {
  nlohmann::json all = nlohmann::json::array();
  for (size_t rank = 0; rank < times.size(); ++rank) {
    all.push_back({{"kernel", result.kernel}, {"size", result.size}, {"ranks", sc::procs()}, {"rank", rank},
                   {"path", path_name()}, {"oversubscribed", sc::current_node->is_oversubscribed()},
                   {"seconds", times[rank].seconds}, {"computation_s", times[rank].computation},
                   {"communication_s", times[rank].communication}, {"messages", traffic[rank].messages},
                   {"message_bytes", traffic[rank].message_bytes}, {"direct", traffic[rank].direct},
                   {"direct_bytes", traffic[rank].direct_bytes}, {"operations", result.operations}, {"operation", result.operation},
                   {"verified", verified}, {"wrong", times[rank].wrong}});
  }
  return all;
}

bool write_records(const std::string& file, const nlohmann::json& all) {
  if (file == "-") {
    std::cout << all.dump(2) << '\n';
    return true;
  }
  std::ofstream out(file);
  out << all.dump(2) << '\n';
  out.close();
  if (!out) std::fprintf(stderr, "cannot write %s\n", file.c_str());
  return static_cast<bool>(out);
}

}  // namespace

Parsed parse(CLI::App& app, int argc, char** argv) {
  CommonOptions options;
  bool no_verify = false;
  app.add_option("--seed", options.seed, "of the input (default: 1)");
  app.add_option("--repeat", options.repeat, "times that it is measured, of which the best counts (default: 3)")
      ->check(CLI::Range(1u, 1000u));
  app.add_flag("--no-verify", no_verify, "do not compare with the serial answer");
  app.add_option("--json", options.json, "file for the records, one per rank; - for stdout");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    if (sc::my_proc() == 0) app.exit(help);
    return {};
  } catch (const CLI::ParseError& error) {
    if (sc::my_proc() == 0) std::fprintf(stderr, "%s: %s (--help lists the options)\n", argv[0], error.what());
    return {std::nullopt, kUsage};
  }
  options.verify = !no_verify;
  return {options, 0};
}

void TimeSplit::start(Part part) {
  seconds_ = {};
  part_ = part;
  since_ = sc::get_seconds();
}

void TimeSplit::enter(Part part) {
  const double now = sc::get_seconds();
  seconds_[static_cast<size_t>(part_)] += now - since_;
  since_ = now;
  part_ = part;
}

Run measure(const std::function<void(TimeSplit& time)>& body) {
  Run run;
  sc::barrier();
  const sc::Counters before = sc::current_node->counters();
  const double start = sc::get_seconds();
  run.time.start(Part::computation);
  body(run.time);
  run.time.enter(Part::communication);
  sc::barrier();
  run.time.stop();
  run.seconds = sc::get_seconds() - start;
  const sc::Counters& after = sc::current_node->counters();
  run.messages = after.messages - before.messages;
  run.message_bytes = after.message_bytes - before.message_bytes;
  run.direct = after.direct - before.direct;
  run.direct_bytes = after.direct_bytes - before.direct_bytes;
  return run;
}

Run measure_best(const CommonOptions& options, const std::function<void()>& before, const std::function<void(TimeSplit& time)>& body) {
  Run best;
  double least = 0;
  for (uint32_t i = 0; i < options.repeat; ++i) {
    before();
    const Run run = measure(body);
    const double seconds = sc::all_broadcast(run.seconds);
    if (i != 0 && seconds >= least) continue;
    best = run;
    least = seconds;
  }
  return best;
}

int report(const CommonOptions& options, const Measurement& result) {
  const Run& run = result.run;
  std::vector<Times> times(sc::procs());
  std::vector<Traffic> traffic(sc::procs());
  sc::all_gather(Times{run.seconds, run.time.seconds(Part::computation), run.time.seconds(Part::communication), result.wrong.value_or(0)},
                 std::span<Times>(times));
  sc::all_gather(Traffic{run.messages, run.message_bytes, run.direct, run.direct_bytes}, std::span<Traffic>(traffic));
  uint64_t wrong = 0;
  for (const Times& each : times) wrong += each.wrong;
  bool written = true;
  if (sc::my_proc() == 0) {
    const bool verified = result.wrong.has_value();
    if (options.json != "-") print(result, times, traffic, verified);
    if (!options.json.empty()) written = write_records(options.json, records(result, times, traffic, verified));
  }
  return wrong == 0 && sc::all_broadcast(written) ? 0 : kWrong;
}

}  // namespace unet::kernels
