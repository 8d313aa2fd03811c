// time_split.h - splits a rank's time into computation and communication; used by every kernel.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace unet::kernels {

enum class Part : uint8_t { computation, communication };

// Returns the seconds of this machine's steady clock.
inline double steady_seconds() noexcept {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Time between two calls counts for the part that the first one entered. `clock` returns seconds: those of a simulated rank are its own.
class TimeSplit {
 public:
  TimeSplit() = default;
  explicit TimeSplit(double (*clock)() noexcept) : clock_(clock) {}

  void start(Part part) {
    seconds_ = {};
    part_ = part;
    since_ = clock_();
  }
  void enter(Part part) {
    const double now = clock_();
    seconds_[static_cast<size_t>(part_)] += now - since_;
    since_ = now;
    part_ = part;
  }
  void stop() { enter(Part::computation); }
  double seconds(Part part) const noexcept { return seconds_[static_cast<size_t>(part)]; }

 private:
  double (*clock_)() noexcept = steady_seconds;
  Part part_ = Part::computation;
  double since_ = 0;
  std::array<double, 2> seconds_{};
};

}  // namespace unet::kernels
