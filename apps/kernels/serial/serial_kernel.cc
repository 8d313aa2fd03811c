// serial_kernel.cc - measuring and report of the serial programs.
#include "apps/kernels/serial/serial_kernel.h"

namespace unet::kernels {
namespace {

constexpr int kWrong = 1;

Run measure(const Work& work) {
  Run run;
  run.time.start(Part::computation);
  work.run(run.time);
  run.time.stop();
  run.seconds = run.time.seconds(Part::computation);
  return run;
}

}  // namespace

void measure_best(const CommonOptions& options, const Work& work, Measurement& result) {
  measure_best(options, work, [&] { return measure(work); }, [](double seconds) { return seconds; }, result);
}

int report(const CommonOptions& options, const Measurement& result) {
  const Run& run = result.run;
  const RankReport own{.seconds = run.seconds, .computation = run.time.seconds(Part::computation), .wrong = result.wrong.value_or(0)};
  const bool published = publish(options, result, {.ranks = 1, .path = "serial"}, {own});
  return published && own.wrong == 0 ? 0 : kWrong;
}

}  // namespace unet::kernels
