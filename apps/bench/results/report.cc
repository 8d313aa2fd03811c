// report.cc - JSON and tables.
#include "apps/bench/results/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "apps/bench/results/sizes.h"

namespace unet::bench {

namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string print_number(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string three_digits(double value) {
  const double size = std::fabs(value);
  return print_number(size < 9.995 ? "%.2f" : size < 99.95 ? "%.1f" : "%.0f", value);
}

template <typename T>
void add_unique(std::vector<T>& list, const T& item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

bool is_traffic(const Record& record) { return record.bench == "am-traffic" || record.bench == "tcp-traffic"; }

// The name of a table row: the path; in `endpoints` also the number of idle endpoints.
std::string row_name(const Record& record) {
  if (record.metric == kOwnMessages) return record.path + ", messages";
  for (const char* const category : {kShort, kMedium, kLong}) {
    if (record.metric == std::string("rtt") + category) return record.path + ", " + (category + 1);
  }
  if (record.bench == "am-incast") {
    const size_t from = record.metric.find('_') + 1;
    return record.metric.substr(from, record.metric.rfind('_') - from) + " senders";
  }
  if (record.bench == "kernels") return record.metric + ", " + record.path;
  if (record.bench == "tasks") return record.path + ", " + record.metric;
  if (record.bench == "sockets") return record.metric;
  if (record.bench == "mpi") return record.metric + (record.size != 0 ? ", " + format_size(record.size) : "");
  if (is_traffic(record) || record.bench == "rpc-scale" || record.bench == "ports" || record.bench == "fabric") {
    return record.path + ", " + record.metric;
  }
  if (record.bench == "many" || record.bench == "rpc-bindings") return record.path + ", " + std::to_string(record.size) + " idle";
  const size_t idle = record.metric.find("_idle");
  if (idle == std::string::npos) return record.path;
  return record.path + " + " + record.metric.substr(4, idle - 4) + " idle";
}

// A column is a size; of connections, which have none, a step; of fairness what is compared.
std::string column_name(const Record& record) {
  if (record.bench == "am-incast") return record.metric.substr(0, record.metric.find('_')) + ", " + format_size(record.size);
  if (record.bench == "sockets" || record.bench == "mpi") return record.path;
  if (record.bench == "kernels") return "P = " + std::to_string(record.size);
  if (record.bench == "tasks") return std::to_string(record.size) + " hosts";
  if (is_traffic(record)) return std::to_string(record.size) + " nodes";
  if (record.bench == "connections") return std::to_string(record.size) + " under way";
  if (record.bench == "rpc-scale") return "T = " + std::to_string(record.size);
  if (record.bench == "ipc-techniques") return record.metric + ", " + format_size(record.size);
  const bool emulated = record.bench == "emulated" && record.metric.rfind("rtt", 0) != 0;
  const std::array by_step = {"connect", "fairness", "restart", "logp", "am-loss",  "am-peers",
                              "splitc",  "fibers",   "rpc",     "rpc-cost", "many", "tcp-loss", "rpc-bindings", "rpc-death"};
  const bool steps = emulated || std::find(by_step.begin(), by_step.end(), record.bench) != by_step.end();
  return steps ? record.metric : format_size(record.size);
}

// A table of one figure: rows are paths.
template <typename Cell>
Rows matrix(const std::vector<Record>& records, const std::string& corner, Cell cell) {
  std::vector<std::string> names;
  std::vector<std::string> columns;
  for (const Record& record : records) {
    add_unique(names, row_name(record));
    add_unique(columns, column_name(record));
  }
  Rows rows{{corner}};
  rows[0].insert(rows[0].end(), columns.begin(), columns.end());
  for (const std::string& name : names) {
    std::vector<std::string> row{name};
    for (const std::string& column : columns) {
      const auto found = std::find_if(records.begin(), records.end(), [&](const Record& record) {
        return column_name(record) == column && row_name(record) == name;
      });
      row.push_back(found == records.end() ? "-" : cell(*found));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// The baseline of a row's ratio, as the title of its table names it. Rows with the same title share a table.
std::string compared_with(const Record& record) {
  if (record.bench == "splitc") return record.unit == "words/s" ? "words per round trip of " : "ratio to ";
  if (record.bench == "kernels") return "speed-up over " + (record.baseline == "serial" ? "the serial program" : record.baseline);
  if (record.bench == "rpc-cost") return "ratio to a cache-line round trip, or to what a difference is from";
  if (record.baseline.rfind("limit-", 0) == 0) {
    return record.unit == "msg/s" ? "messages per round trip of " : "ratio to ";
  }
  if (record.bench == "mpi") return record.baseline.empty() ? "" : "ratio to " + record.baseline;
  if (record.bench == "one-core" || record.bench == "rpc-scale") return "ratio to " + record.baseline;
  if (record.bench == "rpc") return record.baseline == "null" ? "ratio to the null call of the same path" : "ratio to " + record.baseline;
  if (record.bench == "ipc-techniques") return "ratio to the same with the technique: ";
  if (record.bench == "sockets") return record.baseline.empty() ? "" : "rates, times and processor time over the kernel sockets'";
  if (record.bench == "fairness") {
    return "ratio to the pair alone; _attack: to the same client without the attack; the pair's share of what the engine sends";
  }
  if (record.bench == "am-incast") return "goodput over the receiver's link, and p99 over one request alone";
  if (record.bench == "many") return "round trips over none idle; memory over the kernel's, busy polling";
  if (record.bench == "tasks") return "ratio to one host after another";
  if (is_traffic(record)) return record.baseline.empty() ? "" : "goodput over the receivers' links";
  if (record.bench == "engines") return "ratio to one engine with one port";
  if (record.baseline == kOwnMessages) return "ratio to messages of the same size over the same path";
  if (record.baseline == kWholeWire) return "ratio to the same path's goodput without loss";
  if (record.bench == "am-loss" || record.bench == "fibers") return "ratio to " + record.baseline;
  // A path of sockets may be compared with several of the kernel's and with bare frames: a table each.
  const bool sockets = record.bench.rfind("tcp-", 0) == 0 || record.bench.rfind("udp-", 0) == 0;
  if (sockets) return "ratio to " + record.baseline;
  if (record.baseline.rfind("kernel-", 0) == 0) return "ratio to ";
  if (record.baseline.rfind("raw-", 0) == 0) return "ratio to the bare driver on the same wire: ";
  if (record.baseline.empty()) return "";
  // The other kind of baseline has a name of several words.
  const bool path = record.baseline.find(' ') == std::string::npos;
  return path ? "ratio to raw U-Net on the same path: " : "ratio to the same path with no idle endpoint";
}

// The title of a table of ratios, with the names of the baselines in it.
std::string ratio_title(const std::vector<Record>& records, const std::string& kind) {
  if (kind.back() != ' ') return kind;
  std::vector<std::string> baselines;
  for (const Record& record : records) add_unique(baselines, record.baseline);
  std::string text;
  for (const std::string& baseline : baselines) text += (text.empty() ? "" : ", ") + baseline;
  return kind + text;
}

// A median, with the number of samples where it is small; "n=1" alone where too few slices were kept for a figure.
std::string median_text(const Record& record) {
  if (!record.has_figures()) return "n=" + std::to_string(record.slices - record.dropped - record.disturbed);
  const std::string text = format_value(record.summary.p50, record.unit);
  return record.summary.samples < kSlicesMin ? text + " (n=" + std::to_string(record.summary.samples) + ")" : text;
}

std::string dropped_line(const std::vector<Record>& records) {
  uint64_t slices = 0, dropped = 0, disturbed = 0;
  for (const Record& record : records) {
    slices += record.slices;
    dropped += record.dropped;
    disturbed += record.disturbed;
  }
  const bool empty = std::any_of(records.begin(), records.end(), [](const Record& record) { return !record.has_figures(); });
  std::string advice;
  if (empty) {
    advice = "n=0, 1 or 2 stands for a figure with fewer than " + std::to_string(kSlicesMin) +
             " slices behind it: measure while the machine is quiet, or longer (--seconds).\n";
  }
  if (records.front().bench == "sockets" || records.front().bench == "restart" || records.front().bench == "kernels" ||
      records.front().bench == "tasks" || records.front().bench == "mpi") {
    return advice;
  }
  return advice + "Of " + std::to_string(slices) + " slices " + std::to_string(dropped) +
          " were dropped because the limit moved by more than " + print_number("%.0f", kLimitTolerance * 100) +
         " % around them or was far from its median, and " + std::to_string(disturbed) + " because another process had one of the cores.\n";
}

}  // namespace

std::string format_ratio(std::optional<double> ratio) {
  if (!ratio) return "-";
  return *ratio != 0 && std::fabs(*ratio) < 0.01 ? print_number("%.4f", *ratio) : three_digits(*ratio);
}

std::string format_value(double value, const std::string& unit) {
  if (unit == "ns") {
    if (value > 0 && value < 9.95) return print_number("%.1f ns", value);
    if (value < 999.5) return print_number("%.0f ns", value);
    if (value < 999.5e3) return three_digits(value / 1e3) + " us";
    return three_digits(value / 1e6) + " ms";
  }
  if (unit == "msg/s" && value < 99.95e3) return three_digits(value / 1e3) + " k/s";
  if (unit == "msg/s" || unit == "words/s" || unit == "events/s") return three_digits(value / 1e6) + " M/s";
  if (unit == "conn/s" || unit == "req/s") return three_digits(value / 1e3) + " k/s";
  if (unit == "GB/s" && value < 0.0995) return three_digits(value * 1e3) + " MB/s";
  if (unit == "s/GB" && value < 0.9995) return three_digits(value * 1e3) + " ms/GB";
  if (unit == "%") return print_number("%.3f %%", value);
  return three_digits(value) + " " + unit;
}

std::string to_json(const std::vector<Record>& records, const Origin& origin) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Record& record : records) {
    nlohmann::ordered_json object;
    object["bench"] = record.bench;
    object["path"] = record.path;
    object["size"] = record.size;
    object["metric"] = record.metric;
    object["unit"] = record.unit;
    const bool measured = record.has_figures();  // null, not zero, without them
    const auto figure = [&](const char* name, std::optional<double> value) {
      object[name] = measured && value ? nlohmann::ordered_json(*value) : nullptr;
    };
    figure("p50", record.summary.p50);
    figure("p99", record.summary.p99);
    figure("p999", record.summary.p999);
    figure("mean", record.summary.mean);
    object["samples"] = record.summary.samples;
    figure("limit", record.limit);
    if (record.ratio) object["ratio"] = *record.ratio;
    else object["ratio"] = nullptr;
    object["baseline"] = record.baseline;
    const auto cpu = [&](const char* name, double value) { object[name] = record.cpu ? nlohmann::ordered_json(value) : nullptr; };
    const CpuUse use = record.cpu.value_or(CpuUse{});
    cpu("cpu", use.sum());
    cpu("cpu_a", use.a);
    cpu("cpu_b", use.b);
    cpu("cpu_services", use.services);
    if (record.distribution.empty()) object["distribution"] = nullptr;
    else object["distribution"] = record.distribution;
    if (record.timeline.empty()) object["timeline"] = nullptr;
    else object["timeline"] = record.timeline;
    object["command"] = record.command;
    object["setting"] = record.setting;
    object["slices"] = record.slices;
    object["dropped"] = record.dropped;
    object["disturbed"] = record.disturbed;
    object["machine"] = origin.machine;
    object["date"] = origin.date;
    object["commit"] = origin.commit;
    list.push_back(std::move(object));
  }
  return list.dump(1) + "\n";
}

std::string render_table(const Rows& rows, TableStyle style, bool numbers) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const bool markdown = style == TableStyle::markdown;
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    text += markdown ? "|" : "";
    for (size_t i = 0; i < rows[r].size(); ++i) {
      const bool last = i + 1 == rows[r].size() && !markdown;
      const std::string padding(widths[i] - rows[r][i].size(), ' ');
      text += markdown ? " " : "  ";
      text += i == 0 || !numbers ? rows[r][i] + (last ? "" : padding) : padding + rows[r][i];
      text += markdown ? " |" : "";
    }
    text += "\n";
    if (r != 0 || !markdown) continue;
    text += "|";
    for (size_t i = 0; i < rows[0].size(); ++i) text += i == 0 || !numbers ? "---|" : "---:|";
    text += "\n";
  }
  return text;
}

std::string to_short_table(const std::vector<Record>& records, TableStyle style) {
  if (records.empty()) return "";
  const std::string title = records.front().bench + ": median, and " + ratio_title(records, compared_with(records.back()));
  return title + "\n" + (style == TableStyle::markdown ? "\n" : "") +
         render_table(matrix(records, "path", [](const Record& record) {
                        return median_text(record) + (record.ratio ? ", " + format_ratio(record.ratio) + " x" : "");
                      }), style) +
         dropped_line(records);
}

std::string to_tables(const std::vector<Record>& records, TableStyle style) {
  if (records.empty()) return "";
  const std::string& bench = records.front().bench;
  const std::string& unit = records.front().unit;
  std::string text;
  const auto table = [&](const std::string& title, const Rows& rows) {
    text += title + "\n" + (style == TableStyle::markdown ? "\n" : "") + render_table(rows, style) + "\n";
  };
  const std::string corner = bench == "sockets" ? "figure" : "path";
  const auto tail = [&](std::optional<double> Summary::*member) {
    return matrix(records, corner, [&](const Record& record) {
      return record.summary.*member ? format_value(*(record.summary.*member), record.unit) : "-";
    });
  };
  std::vector<std::string> kinds;
  for (const Record& record : records) add_unique(kinds, compared_with(record));
  for (const std::string& kind : kinds) {
    if (kind.empty()) continue;
    std::vector<Record> of_kind;
    std::copy_if(records.begin(), records.end(), std::back_inserter(of_kind),
                 [&](const Record& record) { return compared_with(record) == kind; });
    table(bench + ": " + ratio_title(of_kind, kind),
          matrix(of_kind, corner, [](const Record& record) { return format_ratio(record.ratio); }));
  }
  table(bench + ": p50", matrix(records, corner, median_text));
  const auto any_has = [&](std::optional<double> Summary::*member) {
    return std::any_of(records.begin(), records.end(), [&](const Record& record) { return (record.summary.*member).has_value(); });
  };
  if (unit == "ns" && any_has(&Summary::p99)) table(bench + ": p99", tail(&Summary::p99));
  if (unit == "ns" && any_has(&Summary::p999)) table(bench + ": p999", tail(&Summary::p999));
  if (std::any_of(records.begin(), records.end(), [](const Record& record) { return record.cpu.has_value(); })) {
    table(bench + ": processor time of side A + side B + services", matrix(records, "path", [](const Record& record) {
            if (!record.cpu) return std::string("-");
            const auto& [a, b, services] = *record.cpu;
            const char* const unit = record.unit == "GB/s" ? "s/GB" : "ns";
            const std::string sides = format_value(a, unit) + " + " + format_value(b, unit);
            return services == 0 ? sides : sides + " + " + format_value(services, unit);
          }));
  }
  return text + dropped_line(records);
}

}  // namespace unet::bench
