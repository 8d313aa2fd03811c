// plot.cc - files in, pictures out.
#include "apps/bench/plot/plot.h"

#include <filesystem>

#include "apps/bench/plot/figures.h"
#include "apps/bench/plot/gnuplot.h"
#include "apps/bench/results/points.h"

namespace unet::bench {

Result<std::vector<std::string>> plot(const PlotOptions& options) {
  auto points = read_points(options.files);
  if (!points) return tl::unexpected(points.error());
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (!std::filesystem::is_directory(options.directory, error)) {
    return fail(Errc::invalid_argument, options.directory + " is not a directory, and cannot be made one");
  }
  std::vector<std::string> written;
  for (const Figure& figure : figures_of(*points, options.size)) {
    for (const std::string& format : options.formats) {
      const std::string file = (std::filesystem::path(options.directory) / (figure.name + "." + format)).string();
      if (auto drawn = run_gnuplot(gnuplot_script(figure, format, file)); !drawn) return tl::unexpected(drawn.error());
      written.push_back(file);
    }
  }
  return written;
}

}  // namespace unet::bench
