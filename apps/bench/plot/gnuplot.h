// gnuplot.h - a figure as a gnuplot script, data included; and running it.
#pragma once

#include <string>

#include "apps/bench/plot/figures.h"
#include "unet/base/result.h"

namespace unet::bench {

// `format` is svg or png; `file` is where the picture goes. Every curve has at least one value; some value of the figure is not NaN.
std::string gnuplot_script(const Figure& figure, const std::string& format, const std::string& file);

// Fails with the name of the package when there is no gnuplot, and otherwise with what gnuplot said.
Status run_gnuplot(const std::string& script);

}  // namespace unet::bench
