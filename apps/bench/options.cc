// options.cc - the command line, by CLI11; lists and numbers checked here.
#include "apps/bench/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <sstream>

#include "apps/bench/all_paths.h"
#include "apps/bench/benchmarks/benchmarks.h"
#include "apps/bench/benchmarks/loss.h"
#include "apps/bench/results/sizes.h"
#include "apps/version_option.h"

namespace unet::bench {

namespace {

constexpr double kSecondsMax = 3600;
constexpr double kSecondsOfRun = 0.5;
constexpr double kSecondsOfDemo = 0.3;
constexpr uint32_t kRepeatMax = 1000;
constexpr uint32_t kCountMax = 10'000'000;

constexpr const char* kDescription =
    "unet-bench measures how fast messages move between two processes: through U-Net, through the kernel, and at the\n"
    "machine's limit (a cache line handed back and forth, memcpy). Two pinned processes measure all paths in turn, in slices\n"
    "of milliseconds. So the ratios hold on a shared machine, although its absolute times do not.";

constexpr const char* kFooter =
    "Examples:\n"
    "  unet-bench demo                                         measure the main paths in about half a minute\n"
    "  unet-bench list                                         show the benchmarks and the paths\n"
    "  unet-bench info rtt                                     explain the figures of `rtt`\n"
    "  unet-bench run rtt --path 'local,kernel-*' --size 8,48,4K\n"
    "  unet-bench run bandwidth rate --json results.json --table markdown\n"
    "  unet-bench run sockets                                  iperf3, redis, nginx on our sockets and on the kernel's\n"
    "  unet-bench serve                                        on one host, and on another:\n"
    "  unet-bench across bench@HOST                            round trips and a stream between two unetds\n"
    "  unet-bench kernels --kernel cg,fft --ranks 1,2          parallel programs in Split-C, beside MPI\n"
    "  unet-bench plot results.json --directory pictures       draw the results as SVG and PNG\n"
    "  unet-bench compare --old old*.json --new new*.json      say what a change made slower; `compare --help` has the loop\n"
    "  unet-bench report --quick                               measure all themes in three minutes, and write a page\n"
    "  unet-bench compare monday tuesday                       reports side by side on a page\n"
    "Paths over veth pairs need root. Without it they are left out, and a line says so.";

constexpr const char* kCompareFooter =
    "Let the two builds take turns, so that both meet the same states of the machine:\n"
    "  for i in 1 2 3 4 5; do\n"
    "    build-old/apps/bench/unet-bench run rtt bandwidth rate --json old$i.json\n"
    "    build/apps/bench/unet-bench run rtt bandwidth rate --json new$i.json\n"
    "  done\n"
    "  unet-bench compare --old old*.json --new new*.json\n"
    "A report (`unet-bench report`) has several runs: one file of a side is enough. Reports without --old and --new are each compared\n"
    "with the first one, on a page.\n"
    "A row is compared by its ratio to a limit, the kernel or a bare driver of the same run, else by its median. Verdicts are slower,\n"
    "faster, same, unknown (figures in fewer than three files of a side), moved (neither is better, or no code of ours is in it),\n"
    "and gone (a row of ours has figures only in the old files).\n"
    "Exit status: 0 nothing is slower or gone; 1 something is; 2 no row of ours has figures in three files of each side, or wrong\n"
    "options or files.";

struct Raw {
  std::string paths, sizes, conditions, cores, table = "text", seconds, repeat = "5";
  std::string count = "0", wait = "0", only = "rtt,bandwidth";  // across
  std::string formats = "svg,png", plot_size;          // plot
  std::string noise = "1", page_directory = "comparison";  // compare
  std::vector<std::string> reports;                    // compare, as a page
  std::string kernels, ranks = "1,2,4,8";              // kernels
};

std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

// Names the known paths that begin as `pattern` does or contain it, a few at most.
std::string similar(const std::string& pattern, const std::vector<std::string>& known_paths) {
  constexpr size_t kMost = 6, kBeginning = 3;
  std::vector<std::string> found;
  for (const std::string& path : known_paths) {
    const bool is_like = path.find(pattern) != std::string::npos || path.compare(0, kBeginning, pattern, 0, kBeginning) == 0;
    if (is_like && found.size() < kMost) found.push_back(path);
  }
  return found.empty() ? "" : "; similar: " + joined(found);
}

std::vector<std::string> benchmark_names() {
  std::vector<std::string> names;
  for (const Benchmark& benchmark : all_benchmarks()) names.push_back(benchmark.name);
  return names;
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool has_condition(const std::string& name, const std::string& pattern) {
  const Benchmark* const benchmark = find_benchmark(name);
  if (benchmark == nullptr || benchmark->method != Method::loss) return false;
  const auto conditions = conditions_of(*benchmark);
  return std::any_of(conditions.begin(), conditions.end(), [&](const Condition& each) { return name_matches(pattern, each.name); });
}

Status check_names(const Options& options, const std::vector<std::string>& known_paths) {
  for (const std::string& name : options.names) {
    const bool path = options.action == Action::info && contains(known_paths, name);
    const Benchmark* benchmark = find_benchmark(name);
    if (benchmark != nullptr && benchmark->sizes.empty() && !options.sizes.empty()) {
      return fail(Errc::invalid_argument, "'" + name + "' has no sizes to choose: leave --size out");
    }
    const auto [smallest, largest] = std::minmax_element(options.sizes.begin(), options.sizes.end());
    if (benchmark != nullptr && !benchmark->counts.empty() && smallest != options.sizes.end() && *smallest < benchmark->size_min) {
      return fail(Errc::invalid_argument, "'" + name + "' needs at least " + std::to_string(benchmark->size_min) +
                                              ": --size says how many " + benchmark->counts);
    }
    if (benchmark != nullptr && largest != options.sizes.end() && *largest > benchmark->size_max) {
      return fail(Errc::invalid_argument, "'" + name + "' has sizes up to " + benchmark->size_text(benchmark->size_max));
    }
    if (benchmark != nullptr || path) continue;
    return fail(Errc::invalid_argument, "no benchmark '" + name + "'; there are " + joined(benchmark_names()) +
                                            (options.action == Action::info ? ", and the paths of `unet-bench list`" : ""));
  }
  for (const std::string& pattern : options.conditions) {
    const auto lacks = [&](const std::string& name) { return !has_condition(name, pattern); };
    const auto at = std::find_if(options.names.begin(), options.names.end(), lacks);
    if (at != options.names.end()) return fail(Errc::invalid_argument, "'" + *at + "' has no condition '" + pattern + "'; see `info`");
  }
  for (const std::string& pattern : options.paths) {
    const bool known = std::any_of(known_paths.begin(), known_paths.end(),
                                   [&](const std::string& path) { return name_matches(pattern, path); });
    if (known) continue;
    return fail(Errc::invalid_argument, "no path '" + pattern + "'" + similar(pattern, known_paths) + "; `unet-bench list` has all paths");
  }
  return {};
}

// A whole decimal number, CLI11's own conversion being silent about what follows it.
template <typename T>
Result<T> parse_number(const std::string& text, const std::string& what, T least, T most) {
  T value{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != text.data() + text.size() || !(value >= least && value <= most)) {
    std::ostringstream range;
    range << what << " '" << text << "' is not a number from " << least << " to " << most;
    return fail(Errc::invalid_argument, range.str());
  }
  return value;
}

Result<TableStyle> parse_table(const std::string& text) {
  if (text == "text") return TableStyle::text;
  if (text == "markdown") return TableStyle::markdown;
  return fail(Errc::invalid_argument, "--table '" + text + "' is neither text nor markdown");
}

// Options of all commands that measure.
Status take_measuring(const Raw& raw, Options& options) {
  if (!raw.cores.empty()) {
    auto cores = parse_cores(raw.cores);
    if (!cores) return tl::unexpected(cores.error());
    options.cores = *cores;
  }
  options.seconds = options.action == Action::demo ? kSecondsOfDemo : kSecondsOfRun;
  if (!raw.seconds.empty()) {
    auto seconds = parse_number<double>(raw.seconds, "--seconds", 0.01, kSecondsMax);
    if (!seconds) return tl::unexpected(seconds.error());
    options.seconds = *seconds;
  }
  auto repeat = parse_number<uint32_t>(raw.repeat, "--repeat", 1, kRepeatMax);
  if (!repeat) return tl::unexpected(repeat.error());
  options.repeat = *repeat;
  auto table = parse_table(raw.table);
  if (!table) return tl::unexpected(table.error());
  options.table = *table;
  return {};
}

Status take_raw(const Raw& raw, Options& options) {
  if (!raw.paths.empty()) {
    auto paths = parse_list(raw.paths, "paths");
    if (!paths) return tl::unexpected(paths.error());
    options.paths = *paths;
  }
  if (!raw.sizes.empty()) {
    auto sizes = parse_size_list(raw.sizes);
    if (!sizes) return tl::unexpected(sizes.error());
    options.sizes = *sizes;
  }
  if (!raw.conditions.empty()) {
    auto conditions = parse_list(raw.conditions, "conditions");
    if (!conditions) return tl::unexpected(conditions.error());
    options.conditions = *conditions;
  }
  return take_measuring(raw, options);
}

Status take_across(const Raw& raw, Options& options) {
  AcrossOptions& across = options.across;
  across.sizes = options.sizes.empty() ? std::vector<uint32_t>{48, 1024, 16384} : options.sizes;
  for (const uint32_t size : across.sizes) {
    if (size >= kAcrossLeast && size <= kMessageMax) continue;
    return fail(Errc::invalid_argument, "--size " + std::to_string(size) + ": from " + std::to_string(kAcrossLeast) + " to " +
                                            std::to_string(kMessageMax) + " between hosts");
  }
  auto count = parse_number<uint32_t>(raw.count, "--count", 0, kCountMax);
  if (!count) return tl::unexpected(count.error());
  auto wait = parse_number<uint32_t>(raw.wait, "--wait", 0, 3600);
  if (!wait) return tl::unexpected(wait.error());
  auto benches = parse_list(raw.only, "measurements");
  if (!benches) return tl::unexpected(benches.error());
  for (const std::string& bench : *benches) {
    if (std::find(kAcrossBenches.begin(), kAcrossBenches.end(), bench) != kAcrossBenches.end()) continue;
    return fail(Errc::invalid_argument, "--only '" + bench + "' is none of rtt, out and bandwidth");
  }
  across.benches = *benches;
  across.count = *count;
  across.wait = *wait;
  across.seconds = options.seconds;
  across.json = options.json;
  across.table = options.table;
  return {};
}

Status take_plot(const Raw& raw, PlotOptions& plot) {
  auto formats = parse_list(raw.formats, "formats");
  if (!formats) return tl::unexpected(formats.error());
  for (const std::string& format : *formats) {
    if (format != "svg" && format != "png") return fail(Errc::invalid_argument, "--format '" + format + "' is neither svg nor png");
  }
  plot.formats = *formats;
  if (raw.plot_size.empty()) return {};
  auto size = parse_size(raw.plot_size);
  if (!size) return tl::unexpected(size.error());
  plot.size = *size;
  return {};
}

// Reports on a page, or two sides of files.
Status take_compare(const Raw& raw, Options& options) {
  CompareOptions& compare = options.compare;
  const bool no_sides = compare.old_files.empty() && compare.new_files.empty();
  if (raw.reports.empty() ? compare.old_files.empty() || compare.new_files.empty() : !no_sides) {
    return fail(Errc::invalid_argument, "compare needs --old and --new with files, or reports alone; see unet-bench compare --help");
  }
  auto noise = parse_number<double>(raw.noise, "--noise", 0, 100);
  if (!noise) return tl::unexpected(noise.error());
  auto table = parse_table(raw.table);
  if (!table) return tl::unexpected(table.error());
  compare.noise = *noise / 100;
  compare.table = *table;
  if (raw.reports.empty()) return {};
  options.action = Action::page;
  options.page = {"compare", "--noise", raw.noise, "--directory", raw.page_directory, "--"};
  options.page.insert(options.page.end(), raw.reports.begin(), raw.reports.end());
  return {};
}

// Names that must be among `known`.
Result<std::vector<std::string>> parse_names(const std::string& text, const std::string& what, const std::vector<std::string>& known) {
  if (text.empty()) return std::vector<std::string>{};
  auto names = parse_list(text, what);
  if (!names) return names;
  for (const std::string& name : *names) {
    if (!contains(known, name)) return fail(Errc::invalid_argument, what + ": no '" + name + "'; there are " + joined(known));
  }
  return names;
}

Status take_kernels(const Raw& raw, Options& options) {
  KernelsOptions& kernels = options.kernels;
  auto names = parse_names(raw.kernels, "--kernel", kernel_names());
  if (!names) return tl::unexpected(names.error());
  auto paths = parse_names(raw.paths, "--path", kernel_paths());
  if (!paths) return tl::unexpected(paths.error());
  auto ranks = parse_list(raw.ranks, "--ranks");
  if (!ranks) return tl::unexpected(ranks.error());
  kernels.ranks.clear();
  for (const std::string& text : *ranks) {
    auto number = parse_number<uint32_t>(text, "--ranks", 1, kKernelRanksMax);
    if (!number) return tl::unexpected(number.error());
    kernels.ranks.push_back(*number);
  }
  if (auto taken = take_measuring(raw, options); !taken) return taken;
  kernels.kernels = *names;
  kernels.paths = *paths;
  kernels.repeat = options.repeat;
  kernels.cores = options.cores;
  kernels.json = options.json;
  kernels.table = options.table;
  kernels.command = options.command;
  return {};
}

// An option given as an empty text is malformed too; CLI11 lets it through.
std::string not_empty(const std::string& text) { return text.empty() ? "must not be empty" : ""; }

void add_cores(CLI::App& command, Raw& raw) {
  command.add_option("--cores", raw.cores, "the two cores, such as 0,1 (default: the first, and its nearest neighbour)")->check(not_empty);
}

void add_output_options(CLI::App& command, Raw& raw, Options& options) {
  command.add_option("--json", options.json, "write the results as JSON to this file, or to stdout instead of tables (-)")
      ->check(not_empty);
  command.add_option("--table", raw.table, "text or markdown");
}

void add_measuring_options(CLI::App& command, Raw& raw, Options& options) {
  command.add_option("--seconds", raw.seconds, "time for each path at each size, over all repetitions (default: 0.5, demo 0.3)")
      ->check(not_empty);
  command.add_option("--repeat", raw.repeat, "number of repetitions; results are their medians (default: 5)");
  add_cores(command, raw);
  add_output_options(command, raw, options);
}

void add_two_hosts(CLI::App& app, Raw& raw, Options& options) {
  CLI::App* serve = app.add_subcommand("serve", "answer at this host's unetd, for `across` on another host, until Ctrl-C");
  serve->add_option("NAME", options.serve_name, "name to bind (default: bench)")->check(not_empty);
  CLI::App* across = app.add_subcommand("across", "measure round trips and a stream to servers on other hosts; both sides sleep to wait");
  across->add_option("TARGET", options.across.targets, "NAME@HOST of servers, one after the other")->required();
  across->add_option("--only", raw.only, "what: rtt, out (round trips with a short way back), bandwidth (default: rtt,bandwidth)");
  across->add_option("--size", raw.sizes, "message sizes, 16 to 64K (default: 48,1K,16K)")->check(not_empty);
  across->add_option("--seconds", raw.seconds, "time for each measurement at each size (default: 0.5)")->check(not_empty);
  across->add_option("--count", raw.count, "number of round trips, instead of seconds");
  across->add_option("--wait", raw.wait, "seconds to wait for a server that is not there yet (default: 0)");
  add_output_options(*across, raw, options);
}

void add_plot(CLI::App& app, Raw& raw, Options& options) {
  CLI::App* plot = app.add_subcommand("plot", "draw the results of --json: curves over message size, distributions, bars");
  plot->add_option("FILE", options.plot.files, "files of results; - is standard input")->required();
  plot->add_option("--directory", options.plot.directory, "directory of the pictures (default: the working directory)")->check(not_empty);
  plot->add_option("--format", raw.formats, "svg, png or both (default: svg,png)")->check(not_empty);
  plot->add_option("--size", raw.plot_size, "message size of distributions (default: the smallest)")->check(not_empty);
}

void add_compare(CLI::App& app, Raw& raw, Options& options) {
  CLI::App* compare = app.add_subcommand("compare", "compare the --json files of two builds: did anything become slower?");
  compare->add_option("--old", options.compare.old_files, "files of the old build, one for each run: three or more, better five")
      ->check(not_empty);
  compare->add_option("--new", options.compare.new_files, "files of the new build")->check(not_empty);
  compare->add_option("REPORT", raw.reports, "reports to compare with the first of them, instead of --old and --new")->check(not_empty);
  compare->add_option("--directory", raw.page_directory, "of the page that compares reports (default: comparison)")->check(not_empty);
  compare->add_option("--json", options.compare.json, "write the comparison as JSON to this file, or to stdout instead of the table (-)")
      ->check(not_empty);
  compare->add_option("--noise", raw.noise, "percent; smaller changes are none (default: 1)")->check(not_empty);
  compare->add_flag("--all", options.compare.all, "list the rows that are the same or have no figures, too");
  compare->add_option("--table", raw.table, "text or markdown");
  compare->footer(kCompareFooter);
}

void add_kernels(CLI::App& app, Raw& raw, Options& options) {
  CLI::App* kernels = app.add_subcommand("kernels", "run parallel programs in Split-C, beside MPI: time and speed-up over ranks");
  kernels->add_option("--kernel", raw.kernels, "programs, from " + joined(kernel_names()) + " (default: all)")->check(not_empty);
  kernels->add_option("--path", raw.paths, "paths, from " + joined(kernel_paths()) + " (default: those of this machine)")->check(not_empty);
  kernels->add_option("--ranks", raw.ranks, "numbers of ranks (default: 1,2,4,8)")->check(not_empty);
  kernels->add_option("--repeat", raw.repeat, "number of jobs for each figure; results are their medians (default: 5)")->check(not_empty);
  add_cores(*kernels, raw);
  add_output_options(*kernels, raw, options);
}

}  // namespace

Result<Options> parse_options(int argc, const char* const* argv, const std::vector<std::string>& known_paths) {
  Options options;
  Raw raw;
  for (int i = 0; i < argc; ++i) options.command += (i == 0 ? "" : " ") + std::string(i == 0 ? "unet-bench" : argv[i]);

  CLI::App app(kDescription, "unet-bench");
  app.require_subcommand(1);
  apps::add_version(app, "unet-bench");
  CLI::App* list = app.add_subcommand("list", "show the benchmarks and the paths");
  CLI::App* info = app.add_subcommand("info", "explain benchmarks, or the set-up of paths");
  info->add_option("NAME", options.names, "benchmarks or paths")->required();
  CLI::App* run = app.add_subcommand("run", "measure benchmarks");
  run->add_option("NAME", options.names, "benchmarks: " + joined(benchmark_names()))->required();
  run->add_option("--path", raw.paths, "paths, separated by commas; * and ? stand for any text (default: all)")->check(not_empty);
  run->add_option("--size", raw.sizes, "message sizes, such as 8,48,4K (default: see `info`)")->check(not_empty);
  run->add_option("--condition", raw.conditions, "conditions of the wire of am-loss and tcp-loss, written as paths are (default: all)")
      ->check(not_empty);
  add_measuring_options(*run, raw, options);
  CLI::App* demo = app.add_subcommand("demo", "measure rtt, bandwidth and rate of U-Net, the limit and the kernel in half a minute");
  add_measuring_options(*demo, raw, options);
  demo->add_flag("--full", options.full, "whole tables: percentiles, slices, and how each path is set");
  add_two_hosts(app, raw, options);
  add_plot(app, raw, options);
  add_compare(app, raw, options);
  add_kernels(app, raw, options);
  CLI::App* report = app.add_subcommand("report", "measure this machine, and write a page with all figures, or draw one again");
  report->prefix_command()->set_help_flag();  // unet-report has its options
  app.footer(kFooter);  // last: subcommands made later would have it, too

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    options.help = app.help();
    return options;
  } catch (const CLI::CallForVersion& version) {
    options.help = std::string(version.what()) + "\n";
    return options;
  } catch (const CLI::ParseError& error) {
    if (argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty()) {
      return fail(Errc::invalid_argument,
                  "no command '" + std::string(argv[1]) +
                      "'; there are list, info, run, demo, serve, across, kernels, plot, compare and report");
    }
    return fail(Errc::invalid_argument, std::string(error.what()) + "; see unet-bench --help");
  }
  options.action = list->parsed() ? Action::list : info->parsed() ? Action::info : run->parsed() ? Action::run : Action::demo;
  if (app.got_subcommand("serve")) options.action = Action::serve;
  if (app.got_subcommand("across")) options.action = Action::across;
  if (app.got_subcommand("plot")) {
    options.action = Action::plot;
    if (auto taken = take_plot(raw, options.plot); !taken) return tl::unexpected(taken.error());
    return options;
  }
  if (report->parsed()) {
    options.action = Action::page;
    options.page = report->remaining();
    options.page.insert(options.page.begin(), "report");
    return options;
  }
  if (app.got_subcommand("compare")) {
    options.action = Action::compare;
    if (auto taken = take_compare(raw, options); !taken) return tl::unexpected(taken.error());
    return options;
  }
  if (app.got_subcommand("kernels")) {
    options.action = Action::kernels;
    if (auto taken = take_kernels(raw, options); !taken) return tl::unexpected(taken.error());
    return options;
  }
  if (auto taken = take_raw(raw, options); !taken) return tl::unexpected(taken.error());
  if (options.action == Action::across) {
    if (auto taken = take_across(raw, options); !taken) return tl::unexpected(taken.error());
  }
  if (auto checked = check_names(options, known_paths); !checked) return tl::unexpected(checked.error());
  return options;
}

}  // namespace unet::bench
