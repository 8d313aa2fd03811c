// plot.h - `unet-bench plot`: pictures of what --json wrote, drawn by gnuplot. Reading, figures and script are a file each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unet/base/result.h"

namespace unet::bench {

struct PlotOptions {
  std::vector<std::string> files;                      // of records; "-" is stdin
  std::string directory = ".";                         // where the pictures go; made if it is not there
  std::vector<std::string> formats = {"svg", "png"};
  std::optional<uint32_t> size;                        // of distributions, in bytes; nothing: the smallest there is
};

// Draws every figure that the records allow, and returns the files written. Fails with one line that names the file and what
// is wrong with it, or the package that is missing; pictures drawn before stay.
Result<std::vector<std::string>> plot(const PlotOptions& options);

}  // namespace unet::bench
