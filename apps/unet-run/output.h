// output.h - what the processes print, line by line behind the number of the rank (--label): "[2] text".
#pragma once

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "unet/base/result.h"
#include "unet/mapping.h"

namespace unet::run {

class LabelledOutput {
 public:
  // Where a rank writes; its process has copies of them as standard output and standard error.
  struct Ends {
    Descriptor out, errors;
  };

  LabelledOutput() = default;
  LabelledOutput(const LabelledOutput&) = delete;
  LabelledOutput& operator=(const LabelledOutput&) = delete;
  ~LabelledOutput() { finish(); }

  // Pipes for the next rank. Before start(). Errors: those of pipe2(), as too many descriptors.
  Result<Ends> add();

  // A thread prints from now on: call it when nobody forks any longer.
  Status start();

  // What was written so far has been printed. Whoever is still there and writes gets SIGPIPE.
  void finish() noexcept;

 private:
  static constexpr size_t kLineMax = 64 * 1024;  // bytes; longer ones are broken

  struct Stream {
    Descriptor from;
    int to;              // 1 or 2
    std::string label;
    std::string line;    // that has not ended
  };
  void relay() noexcept;
  bool take(Stream& stream);
  static void print(Stream& stream, const char* text, size_t size);
  static bool write_all(int to, const std::string& text) noexcept;

  std::vector<Stream> streams_;   // the output and the errors of each rank
  std::array<Descriptor, 2> end_; // a pipe that finish() closes
  std::thread thread_;
};

}  // namespace unet::run
