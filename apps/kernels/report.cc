// report.cc - the measurements of a kernel as text and as records.
#include "apps/kernels/report.h"

#include <cstdio>
#include <fstream>
#include <iostream>

#include <nlohmann/json.hpp>

namespace unet::kernels {
namespace {

using Wide = unsigned long long;

uint64_t wrong_of_all(const std::vector<RankReport>& ranks) {
  uint64_t wrong = 0;
  for (const RankReport& each : ranks) wrong += each.wrong;
  return wrong;
}

void print_verdict(const Measurement& result, uint64_t wrong) {
  if (!result.wrong) {
    std::printf("  not verified\n");
  } else if (wrong == 0) {
    std::printf("  verified against %s\n", result.reference.c_str());
  } else {
    std::printf("  WRONG: %llu elements differ from %s\n", static_cast<Wide>(wrong), result.reference.c_str());
  }
}

void print(const Measurement& result, const JobKind& job, const std::vector<RankReport>& ranks) {
  std::printf("%s: %s, %u ranks, %s\n", result.kernel.c_str(), result.size.c_str(), job.ranks, job.path.c_str());
  std::printf("  rank   seconds   computing   communicating   messages   their bytes   direct   their bytes\n");
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankReport& each = ranks[rank];
    std::printf("  %4zu  %8.4f    %8.4f        %8.4f  %9llu  %12llu  %7llu  %12llu\n", rank, each.seconds, each.computation,
                each.communication, static_cast<Wide>(each.messages), static_cast<Wide>(each.message_bytes), static_cast<Wide>(each.direct),
                static_cast<Wide>(each.direct_bytes));
  }
  if (result.operations > 0) std::printf("  %.4g %s/s\n", result.operations / ranks[0].seconds, result.operation.c_str());
  for (const auto& [name, value] : result.facts) std::printf("  %s: %.13g\n", name.c_str(), value);
  print_verdict(result, wrong_of_all(ranks));
  std::fflush(stdout);
}

nlohmann::json records(const Measurement& result, const JobKind& job, const std::vector<RankReport>& ranks) {
  nlohmann::json facts = nlohmann::json::object();
  for (const auto& [name, value] : result.facts) facts[name] = value;
  nlohmann::json all = nlohmann::json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankReport& each = ranks[rank];
    all.push_back({{"kernel", result.kernel}, {"size", result.size}, {"ranks", job.ranks}, {"rank", rank}, {"path", job.path},
                   {"oversubscribed", job.oversubscribed}, {"seconds", each.seconds}, {"computation_s", each.computation},
                   {"communication_s", each.communication}, {"messages", each.messages}, {"message_bytes", each.message_bytes},
                   {"direct", each.direct}, {"direct_bytes", each.direct_bytes}, {"operations", result.operations},
                   {"operation", result.operation}, {"facts", facts}, {"verified", result.wrong.has_value()}, {"wrong", each.wrong}});
  }
  return all;
}

bool write_records(const std::string& file, const nlohmann::json& all) {
  if (file == "-") {
    std::cout << all.dump(2) << std::endl;
    return true;
  }
  std::ofstream out(file);
  out << all.dump(2) << '\n';
  out.close();
  if (!out) std::fprintf(stderr, "cannot write %s\n", file.c_str());
  return static_cast<bool>(out);
}

}  // namespace

void measure_best(const CommonOptions& options, const Work& work, const std::function<Run()>& measure,
                  const std::function<double(double seconds)>& agree, Measurement& result) {
  double least = 0;
  if (options.verify) result.wrong = 0;
  for (uint32_t i = 0; i < options.repeat; ++i) {
    work.begin();
    const Run run = measure();
    const double seconds = agree(run.seconds);
    if (i == 0 || seconds < least) {
      result.run = run;
      least = seconds;
    }
    if (options.verify) *result.wrong += work.count_wrong();
  }
}

bool publish(const CommonOptions& options, const Measurement& result, const JobKind& job, const std::vector<RankReport>& ranks) {
  if (options.json != "-") print(result, job, ranks);
  return options.json.empty() || write_records(options.json, records(result, job, ranks));
}

}  // namespace unet::kernels
