// time_split.h - splits a rank's time into computation and communication; used by every kernel.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace unet::kernels {

enum class Part : uint8_t { computation, communication };

// Time between two calls counts for the part that the first one entered.
class TimeSplit {
 public:
  void start(Part part) {
    seconds_ = {};
    part_ = part;
    since_ = Clock::now();
  }
  void enter(Part part) {
    const Clock::time_point now = Clock::now();
    seconds_[static_cast<size_t>(part_)] += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    part_ = part;
  }
  void stop() { enter(Part::computation); }
  double seconds(Part part) const noexcept { return seconds_[static_cast<size_t>(part)]; }

 private:
  using Clock = std::chrono::steady_clock;
  Part part_ = Part::computation;
  Clock::time_point since_;
  std::array<double, 2> seconds_{};
};

}  // namespace unet::kernels
