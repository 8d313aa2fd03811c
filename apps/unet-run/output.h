// output.h - prints the output of processes line by line, each with the number of the rank in front (--label): "[2] text".
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
  // The ends to which a rank writes; its process duplicates them as standard output and standard error.
  struct Ends {
    Descriptor out, errors;
  };

  LabelledOutput() = default;
  LabelledOutput(const LabelledOutput&) = delete;
  LabelledOutput& operator=(const LabelledOutput&) = delete;
  ~LabelledOutput() { finish(); }

  // Makes pipes for the next rank. Call it before start(). Errors: those of pipe2(), such as too many descriptors.
  Result<Ends> add();

  // Starts the thread that prints. No fork may follow.
  Status start();

  // Returns when all output so far is printed. A process that still writes gets SIGPIPE.
  void finish() noexcept;

 private:
  static constexpr size_t kLineMax = 64 * 1024;  // bytes; a longer line is broken

  struct Stream {
    Descriptor from;
    int to;              // 1 or 2
    std::string label;
    std::string line;    // the unfinished line
  };
  void relay() noexcept;
  bool take(Stream& stream);
  static void print(Stream& stream, const char* text, size_t size);
  static bool write_all(int to, const std::string& text) noexcept;

  std::vector<Stream> streams_;   // output and errors of each rank
  std::array<Descriptor, 2> end_; // a pipe that finish() closes
  std::thread thread_;
};

}  // namespace unet::run
