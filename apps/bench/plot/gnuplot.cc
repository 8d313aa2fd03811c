// gnuplot.cc - what the pictures look like.
#include "apps/bench/plot/gnuplot.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "apps/bench/machine/command.h"
#include "apps/bench/results/report.h"
#include "apps/bench/results/sizes.h"
#include "apps/bench/results/stats.h"

namespace unet::bench {

namespace {

// The palette of Okabe and Ito (2008), which people with any colour vision can tell apart; ours first.
constexpr std::array<const char*, 7> kColours = {"#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F6A00"};
constexpr const char* kLimitColour = "#000000";

std::string number(double value) {
  if (std::isnan(value)) return "NaN";  // gnuplot breaks the line there
  char text[32];
  std::snprintf(text, sizeof text, "%.8g", value);
  return text;
}

// A text of gnuplot's: between single quotes, a quote is written twice.
std::string in_quotes(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

std::string line_of(Family family, size_t index) {
  const std::string colour = family == Family::limit ? kLimitColour : kColours[index % kColours.size()];
  const char* dash = family == Family::ours ? "1" : family == Family::limit ? "3" : family == Family::raw ? "4" : "2";
  const char* width = family == Family::ours ? "2.5" : "1.5";
  return std::string(" lc rgb '") + colour + "' dt " + dash + " lw " + width;
}

// A label of a tic mark, which gnuplot takes for a format.
std::string tic(const std::string& text, double at) {
  std::string out;
  for (const char c : text) out += c == '%' ? std::string("%%") : std::string(1, c);
  return in_quotes(out) + " " + number(at);
}

// A block per curve: x y high.
std::string data_of(const Figure& figure) {
  std::string text;
  for (size_t i = 0; i < figure.curves.size(); ++i) {
    const Curve& curve = figure.curves[i];
    text += "$curve" + std::to_string(i) + " << END_OF_DATA\n";
    for (size_t k = 0; k < curve.values.size(); ++k) {
      const double high = curve.high.empty() ? curve.values[k].second : curve.high[k];
      text += number(curve.values[k].first) + " " + number(curve.values[k].second * figure.y_scale) + " " +
              number(high * figure.y_scale) + "\n";
    }
    text += "END_OF_DATA\n";
  }
  return text;
}

// Sizes stand at equal distances per doubling. An empty message has no logarithm: it stands where a byte would.
std::string size_axis(const Figure& figure) {
  std::set<uint32_t> sizes;
  for (const Curve& curve : figure.curves) {
    for (const auto& value : curve.values) sizes.insert(static_cast<uint32_t>(value.first));
  }
  std::string tics;
  double last = -10;
  for (const uint32_t size : sizes) {
    const double at = std::log2(std::max(size, 1u));
    if (at - last < 0.9) continue;  // labels would overlap
    last = at;
    tics += (tics.empty() ? "" : ", ") + tic(figure.over_ranks ? std::to_string(size) : format_size(size), std::max(size, 1u));
  }
  // A little room at both ends: a mark at the very edge is not drawn.
  return "set logscale x 2\nset xrange [" + number(std::max(*sizes.begin(), 1u) * 0.9) + ":" + number(*sizes.rbegin() * 1.15 + 1) +
         "]\nset xlabel '" + (figure.over_ranks ? "ranks" : "message size") + "'\nset xtics (" + tics + ")" +
         (figure.over_ranks ? "\n" : " rotate by -40\n");
}

std::string percentile_axis() {
  std::string tics;
  for (const double fraction : kDistribution) {
    if (fraction < 0.5 && fraction != kDistribution.front()) continue;
    tics += (tics.empty() ? "" : ", ") + tic(number(fraction * 100) + " %", -std::log10(1 - fraction));
  }
  return "set xrange [-0.1:4.15]\nset xlabel 'percentile'\nset xtics (" + tics + ")\n";
}

std::string time_axis() {
  return "set xrange [" + number(-double{kTimelineBefore}) + ":" + number(double{kTimelineBins} - kTimelineBefore) +
         "]\nset yrange [0:*]\nset xlabel 'ms since the network interface was replaced'\n" +
         "set arrow from 0, graph 0 to 0, graph 1 nohead lc rgb '#555555'\n";
}

// Names the sizes at which a curve has no figure.
std::string missing_text(const Figure& figure, const Curve& curve) {
  if (figure.kind != Figure::Kind::over_size) return "";
  std::string sizes;
  for (const auto& [x, y] : curve.values) {
    if (std::isnan(y)) sizes += (sizes.empty() ? "" : ", ") + (figure.over_ranks ? number(x) : format_size(static_cast<uint32_t>(x)));
  }
  return sizes.empty() ? "" : " (no figure: " + sizes + ")";
}

std::string plot_curves(const Figure& figure) {
  std::string text = "plot ";
  std::set<std::string> lines;
  for (size_t i = 0; i < figure.curves.size(); ++i) {
    const Curve& curve = figure.curves[i];
    const std::string data = "$curve" + std::to_string(i);
    const std::string x = figure.kind == Figure::Kind::over_size ? "($1 < 1 ? 1 : $1)" : "1";
    const std::string line = line_of(curve.family, curve.colour);
    text += i == 0 ? "" : ", \\\n  ";
    if (!curve.high.empty() && (curve.family == Family::ours || curve.family == Family::limit)) {  // of all, they hide each other
      const std::string colour = line.substr(0, line.find(" dt"));
      text += data + " using " + x + ":2:3 with filledcurves" + colour + " fs transparent solid 0.12 noborder notitle, \\\n  ";
    }
    const char* marks = figure.kind == Figure::Kind::timeline ? " with lines" : " with linespoints";
    // Curves of one line style differ in their points: several metrics of a path, or the eighth path.
    int point_type = 7;
    while (!lines.insert(line + std::to_string(point_type)).second) point_type += 2;
    const std::string points = figure.kind == Figure::Kind::timeline ? "" : " pt " + std::to_string(point_type) + " ps 0.5";
    text += data + " using " + x + ":2" + marks + line + points + " title " + in_quotes(curve.label + missing_text(figure, curve));
  }
  return text + "\n";
}

std::string plot_bars(const Figure& figure) {
  std::string tics, text = "plot ";
  for (size_t i = 0; i < figure.curves.size(); ++i) {
    const Curve& curve = figure.curves[i];
    const std::string at = std::to_string(i);
    const std::string colour = curve.family == Family::limit ? "#555555" : kColours[curve.colour % kColours.size()];
    const bool missing = std::isnan(curve.values.front().second);
    tics += (i == 0 ? "" : ", ") + tic(curve.label + (missing ? " (no figure)" : ""), static_cast<double>(i));
    if (missing) continue;
    text += (text.back() == ' ' ? "" : ", \\\n  ") + ("$curve" + at) + " using (" + at + "):2 with boxes lc rgb '" + colour +
            "' fs solid 0.8 notitle, \\\n  $curve" + at + " using (" + at + "):2:(sprintf('%.3g', $2)) with labels offset 0,0.6 notitle";
  }
  return "set boxwidth 0.6\nset xrange [-0.6:" + std::to_string(figure.curves.size()) + "-0.4]\nset xtics (" + tics +
         ") rotate by -35\nset yrange [0:*]\nset offsets 0, 0, graph 0.1, 0\n" + text + "\n";
}

}  // namespace

std::string gnuplot_script(const Figure& figure, const std::string& format, const std::string& file) {
  std::string text = format == "png" ? "set terminal pngcairo noenhanced size 1100,680 font 'sans,12' background rgb 'white'\n"
                                     : "set terminal svg noenhanced size 1100,680 font 'sans,14' background rgb 'white'\n";
  text += "set output " + in_quotes(file) + "\n" + data_of(figure);
  text += "set title " + in_quotes(figure.title) + "\nset ylabel " + in_quotes(figure.y_label) + "\n";
  if (!figure.note.empty()) {
    text += "set bmargin 7\nset label 1 " + in_quotes(figure.note) + " at screen 0.01, 0.02 font ',9' textcolor rgb '#555555'\n";
  }
  text += "set border 3 lc rgb '#555555'\nset grid ytics back lc rgb '#b8b8b8' lw 0.7 dt 1\nset tics nomirror\n";
  text += "set key outside right top vertical Left reverse samplen 2\n";
  if (figure.log_y) text += "set logscale y\nset format y '%g'\n";
  switch (figure.kind) {
    case Figure::Kind::over_size: return text + size_axis(figure) + plot_curves(figure);
    case Figure::Kind::distribution: return text + percentile_axis() + plot_curves(figure);
    case Figure::Kind::bars: return text + plot_bars(figure);
    case Figure::Kind::timeline: return text + time_axis() + plot_curves(figure);
  }
  return text;
}

Status run_gnuplot(const std::string& script) {
  if (!run_command({"gnuplot", "--version"})) {
    return fail(Errc::unavailable, "pictures are drawn by gnuplot, which is not installed: apt-get install gnuplot-nox");
  }
  std::string path = std::string(std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "/tmp") + "/unet-plot-XXXXXX";
  const int fd = mkstemp(path.data());
  if (fd < 0) return fail_errno("a temporary file at " + path, errno);
  const bool written = write(fd, script.data(), script.size()) == static_cast<ssize_t>(script.size());
  close(fd);
  Status status;
  if (!written) status = fail(Errc::system, "cannot write " + path + ": is the disk full?");
  else if (auto drawn = run_command({"gnuplot", path}); !drawn) status = tl::unexpected(drawn.error());
  unlink(path.c_str());
  return status;
}

}  // namespace unet::bench
