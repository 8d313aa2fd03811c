// remote_output.h - writes the output of tasks on other hosts, as fast as its reader takes it, and never waits for that; used by RemoteRun.
#pragma once

#include <deque>
#include <string>

#include "unet/base/bytes.h"

namespace unet::run {

class RemoteOutput {
 public:
  // `to`: 1 or 2. `label`: each line gets the number of its rank in front.
  RemoteOutput(int to, bool label) : to_(to), label_(label) {}

  // A rank's text: whole lines, but for the last one of the rank and for very long ones.
  void add(uint32_t rank, Bytes text);
  uint64_t unwritten() const noexcept { return unwritten_; }
  int descriptor() const noexcept { return unwritten_ == 0 ? -1 : to_; }
  // Call it when the descriptor is writable. If it has no reader any more, forgets all.
  void write_some();
  // Waits until all is written.
  void finish();

 private:
  int to_;
  bool label_;
  bool closed_ = false;
  std::deque<std::string> texts_;
  size_t written_ = 0;      // of the first text
  uint64_t unwritten_ = 0;
};

}  // namespace unet::run
