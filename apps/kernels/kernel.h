// kernel.h - what every Split-C kernel has: a command line, its time in two parts, and a report of all ranks; used by the programs here.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace unet::kernels {

struct CommonOptions {
  uint64_t seed = 1;
  uint32_t repeat = 3;         // times that it is measured
  bool verify = true;
  std::string json;            // file for the records; "-": stdout; empty: none
};

// Adds the options of all kernels to those that `app` has, and reads the command line. None: the program ends with `status`. Only rank 0
// prints.
struct Parsed {
  std::optional<CommonOptions> options;
  int status = 0;
};
Parsed parse(CLI::App& app, int argc, char** argv);

enum class Part : uint8_t { computation, communication };

// Where a rank's time goes: whatever passes between two calls belongs to the part that was entered before it.
class TimeSplit {
 public:
  void start(Part part);
  void enter(Part part);
  void stop() { enter(Part::computation); }
  double seconds(Part part) const noexcept { return seconds_[static_cast<size_t>(part)]; }

 private:
  Part part_ = Part::computation;
  double since_ = 0;
  std::array<double, 2> seconds_{};
};

// One run of a kernel, at this rank.
struct Run {
  double seconds = 0;                       // between two barriers: the same at all ranks, nearly
  TimeSplit time;
  uint64_t messages = 0, message_bytes = 0;   // that this rank has sent, and what it has read and written by them
  uint64_t direct = 0, direct_bytes = 0;
};

// Runs `body` between barriers, with `time` started as computation. Collective.
Run measure(const std::function<void(TimeSplit& time)>& body);

// The best of `options.repeat` runs, by rank 0's time. `before` makes each ready. Collective.
Run measure_best(const CommonOptions& options, const std::function<void()>& before, const std::function<void(TimeSplit& time)>& body);

struct Measurement {
  std::string kernel;            // "mm"
  std::string size;              // "4x4 blocks of 128x128"
  double operations = 0;         // of all ranks, for a rate; 0: none
  std::string operation;    // what they are: "flop", "keys"
  Run run;
  std::optional<uint64_t> wrong;   // elements that differ from the serial answer, at this rank; none: it was not verified
};

// Collective: rank 0 prints a line for each rank and writes the records. The program's exit status: 1 if anything is wrong.
int report(const CommonOptions& options, const Measurement& result);

}  // namespace unet::kernels
