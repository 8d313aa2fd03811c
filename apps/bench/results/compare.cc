// compare.cc - values of rows, their intervals and verdicts, and the table of them.
#include "apps/bench/results/compare.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "unet/base/keyed_random.h"

namespace unet::bench {

namespace {

constexpr size_t kResamples = 2000;
constexpr uint64_t kSeed = 1;

struct RowKey {
  std::string bench, path, metric, unit;
  uint32_t size = 0;
  auto operator<=>(const RowKey&) const = default;
};

// Values of a row by reference, one for each run. The median has the empty name and comes last; bare drivers and limits come before the
// kernel, as they are steadier.
using Values = std::map<std::string, std::vector<double>, std::greater<>>;
using RowValues = std::map<RowKey, Values>;

bool has_our_code(const std::string& path) { return family_of(path) == Family::ours; }

// The median. An even number has two middle values, and this is their mean. median() takes the lower one, which leans if there are few.
double middle_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// A row has a record for each path that it is compared with. All have the same median.
RowValues rows_of(const Runs& runs) {
  RowValues rows;
  for (const std::vector<Point>& run : runs) {
    std::set<std::pair<RowKey, std::string>> seen;
    for (const Point& point : run) {
      const RowKey key{point.bench, point.path, point.metric, point.unit, point.size};
      Values& row = rows[key];
      const auto add = [&](const std::string& reference, double value) {
        if (!std::isnan(value) && seen.insert({key, reference}).second) row[reference].push_back(value);
      };
      add("", point.p50);
      if (has_our_code(point.baseline) || point.baseline == point.path) continue;
      add(point.baseline, point.bench == "kernels" ? 1 / point.ratio : point.ratio);  // a speed-up there, and its unit is of time
    }
  }
  return rows;
}

// The reference that enough runs of both sides have; else the one that most have.
std::string reference_of(const Values& before, const Values& after) {
  std::string best;
  size_t most = 0;
  for (const auto& [reference, values] : before) {
    const auto found = after.find(reference);
    if (found == after.end()) continue;
    const size_t count = std::min({kFilesMin, values.size(), found->second.size()});
    if (count > most) best = reference;
    most = std::max(most, count);
  }
  return best;
}

std::string name_of(const RowKey& key) {
  return key.bench + " " + key.path + (key.size == 0 ? "" : " " + std::to_string(key.size)) +
         (key.metric == key.bench || key.metric.empty() ? "" : " " + key.metric);
}

// What is better: 1 for large, -1 for small, 0 for neither.
int direction_of(const RowKey& key) {
  if (key.metric == "share") return 0;
  if (key.unit.ends_with("/s")) return 1;
  const std::array costs = {"ns", "ns/KiB", "s/GB", "%", "B"};
  return std::find(costs.begin(), costs.end(), key.unit) != costs.end() ? -1 : 0;
}

Verdict verdict_of(const Change& row, int direction, double noise) {
  const bool above = row.interval.low > 1 + noise, below = row.interval.high < 1 / (1 + noise);
  if (!above && !below) return Verdict::same;
  if (direction == 0 || !row.ours) return Verdict::moved;
  return above == (direction > 0) ? Verdict::faster : Verdict::slower;
}

std::string value_text(const Values& values, const std::string& reference, const std::string& unit) {
  const auto median = values.find("");
  if (median == values.end()) return "-";
  const std::string text = format_value(middle_of(median->second), unit);
  return reference.empty() ? text : text + ", " + format_ratio(middle_of(values.at(reference))) + " x";
}

// Whether a row of our code has figures only in the old files.
bool is_gone(const RowKey& key, const Values& before, const Values& after) {
  return has_our_code(key.path) && before.count("") != 0 && after.count("") == 0;
}

Change change_of(const RowKey& key, const Values& before, const Values& after, double noise) {
  const std::string reference = reference_of(before, after);
  Change row{.name = name_of(key),
             .reference = reference,
             .old_text = value_text(before, reference, key.unit),
             .new_text = value_text(after, reference, key.unit),
             .ours = has_our_code(key.path)};
  if (is_gone(key, before, after)) row.verdict = Verdict::gone;
  const auto old_values = before.find(reference), new_values = after.find(reference);
  if (old_values == before.end() || new_values == after.end()) return row;
  row.change = change_between(middle_of(old_values->second), middle_of(new_values->second));
  if (std::min(old_values->second.size(), new_values->second.size()) < kFilesMin) return row;
  row.interval = interval_of_change(old_values->second, new_values->second);
  row.verdict = verdict_of(row, direction_of(key), noise);
  return row;
}

// Large for a change to the worse.
double badness_of(const Change& row, int direction) {
  if (std::isnan(row.change)) return -INFINITY;
  const double change = std::log(row.change);
  return direction == 0 ? std::fabs(change) : -direction * change;
}

std::set<std::string> all_of(const Runs& runs, std::string Origin::*part) {
  std::set<std::string> found;
  for (const std::vector<Point>& run : runs) {
    for (const Point& point : run) found.insert(point.origin.*part);
  }
  found.erase("");
  return found;
}

template <typename List>
std::string joined_names(const List& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : "; ") + name;
  return text;
}

std::vector<std::string> notes_of(const Runs& before, const Runs& after) {
  std::vector<std::string> notes;
  std::set<std::string> machines = all_of(before, &Origin::machine);
  machines.merge(all_of(after, &Origin::machine));
  if (machines.size() > 1) notes.push_back("The files come from several machines: " + joined_names(machines) + ".");
  const std::set<std::string> old_commits = all_of(before, &Origin::commit), new_commits = all_of(after, &Origin::commit);
  if (old_commits.size() > 1) notes.push_back("The old files come from several commits: " + joined_names(old_commits) + ".");
  if (new_commits.size() > 1) notes.push_back("The new files come from several commits: " + joined_names(new_commits) + ".");
  for (const std::string& commit : old_commits) {
    if (new_commits.count(commit) != 0) notes.push_back("Both sides have files of commit " + commit + ".");
  }
  return notes;
}

std::string percent(double change) {
  if (std::isnan(change)) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", (change - 1) * 100);
  return text;
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::slower: return "slower";
    case Verdict::gone: return "gone";
    case Verdict::faster: return "faster";
    case Verdict::moved: return "moved";
    case Verdict::unknown: return "unknown";
    case Verdict::same: return "same";
  }
  return "";
}

std::string rows_text(size_t count) { return std::to_string(count) + (count == 1 ? " row" : " rows"); }

std::string result_in_words(const Comparison& comparison) {
  const auto count = [&](Verdict verdict) { return std::to_string(count_of(comparison, verdict)); };
  const size_t slower = count_of(comparison, Verdict::slower), gone = count_of(comparison, Verdict::gone);
  const std::string lost =
      gone == 0 ? "" : rows_text(gone) + (gone == 1 ? " of ours has" : " of ours have") + " figures only in the old files";
  if (conclusion_of(comparison) == Conclusion::undecided) {
    return "Nothing is known: no row of ours has figures in " + std::to_string(kFilesMin) + " files of each side" +
           (gone == 0 ? "." : ", and " + lost + ".");
  }
  const std::string others = count(Verdict::faster) + " faster, " + count(Verdict::moved) + " moved, " + count(Verdict::same) +
                             " the same, " + count(Verdict::unknown) + " unknown.";
  if (slower == 0) return "Nothing became slower" + (gone == 0 ? "" : ", but " + lost) + ": " + others;
  return rows_text(slower) + " became slower" + (gone == 0 ? "" : ", and " + lost) + "; " + others +
         " Measure such rows again: with three files a side chance makes 3 to 5 rows in a hundred slower, with five or more about one.";
}

}  // namespace

double change_between(double before, double after) { return before == after ? 1 : after / before; }

Interval interval_of_change(const std::vector<double>& before, const std::vector<double>& after) {
  constexpr size_t kTail = kResamples / 40;  // 2.5 % on each side
  KeyedRandom random(kSeed);
  const auto draw = [&](const std::vector<double>& values) {
    std::vector<double> drawn(values.size());
    for (double& value : drawn) value = values[random.below(static_cast<uint32_t>(values.size()))];
    return middle_of(std::move(drawn));
  };
  std::vector<double> changes(kResamples);
  for (double& change : changes) {
    const double new_value = draw(after);  // the order of draws decides the result
    change = change_between(draw(before), new_value);
  }
  std::sort(changes.begin(), changes.end());
  return {changes[kTail], changes[kResamples - 1 - kTail]};
}

Comparison compare(const Runs& before, const Runs& after, double noise) {
  const Values no_values;
  Comparison comparison;
  const RowValues old_rows = rows_of(before), new_rows = rows_of(after);
  std::multimap<std::pair<Verdict, double>, Change> sorted;
  for (const auto& [key, row] : old_rows) {
    const auto found = new_rows.find(key);
    const Values& new_row = found == new_rows.end() ? no_values : found->second;
    if (found == new_rows.end() && !is_gone(key, row, new_row)) {
      comparison.only_old.push_back(name_of(key));
      continue;
    }
    Change change = change_of(key, row, new_row, noise);
    const double badness = badness_of(change, direction_of(key));
    sorted.insert({{change.verdict, -badness}, std::move(change)});
  }
  for (const auto& [key, row] : new_rows) {
    if (old_rows.count(key) == 0) comparison.only_new.push_back(name_of(key));
  }
  for (auto& [order, change] : sorted) comparison.rows.push_back(std::move(change));
  comparison.notes = notes_of(before, after);
  return comparison;
}

size_t count_of(const Comparison& comparison, Verdict verdict) {
  return static_cast<size_t>(std::count_if(comparison.rows.begin(), comparison.rows.end(),
                                           [&](const Change& row) { return row.verdict == verdict; }));
}

Conclusion conclusion_of(const Comparison& comparison) {
  const auto is_decided = [](const Change& row) { return row.ours && row.verdict != Verdict::unknown && row.verdict != Verdict::gone; };
  if (std::none_of(comparison.rows.begin(), comparison.rows.end(), is_decided)) return Conclusion::undecided;
  return count_of(comparison, Verdict::slower) + count_of(comparison, Verdict::gone) == 0 ? Conclusion::passed : Conclusion::failed;
}

std::string to_text(const Comparison& comparison, const CompareOptions& options) {
  const auto has_no_change = [](const Change& row) { return row.verdict == Verdict::unknown && std::isnan(row.change); };
  std::vector<std::vector<std::string>> table{{"row", "over", "old", "new", "change", "95 % interval", "verdict"}};
  for (const Change& row : comparison.rows) {
    if (!options.all && (row.verdict == Verdict::same || has_no_change(row))) continue;
    const bool known = !std::isnan(row.interval.low);
    table.push_back({row.name, row.reference.empty() ? "-" : row.reference, row.old_text, row.new_text, percent(row.change),
                     known ? percent(row.interval.low) + " to " + percent(row.interval.high) : "-", name_of(row.verdict)});
  }
  std::string text = table.size() > 1 ? render_table(table, options.table) + "\n" : "";
  const size_t same = count_of(comparison, Verdict::same);
  if (same != 0 && !options.all) text += rows_text(same) + " with the verdict `same` not shown (--all shows all).\n";
  const auto empty = std::count_if(comparison.rows.begin(), comparison.rows.end(), has_no_change);
  if (empty != 0 && !options.all) text += rows_text(static_cast<size_t>(empty)) + " without figures on a side not shown.\n";
  if (!comparison.only_old.empty()) text += "Only in the old files: " + joined_names(comparison.only_old) + ".\n";
  if (!comparison.only_new.empty()) text += "Only in the new files: " + joined_names(comparison.only_new) + ".\n";
  for (const std::string& note : comparison.notes) text += note + "\n";
  const auto is_control = [](const Change& row) { return !row.ours && row.verdict != Verdict::unknown; };
  const auto controls = std::count_if(comparison.rows.begin(), comparison.rows.end(), is_control);
  const auto moved = std::count_if(comparison.rows.begin(), comparison.rows.end(),
                                   [](const Change& row) { return !row.ours && row.verdict == Verdict::moved; });
  if (controls != 0) {
    text += "Control: " + std::to_string(moved) + " of " + rows_text(static_cast<size_t>(controls)) + " without code of ours moved.\n";
  }
  return text + result_in_words(comparison) + "\n";
}

std::string to_json(const Comparison& comparison) {
  const auto figure = [](double value) { return std::isfinite(value) ? nlohmann::ordered_json(value) : nullptr; };
  nlohmann::ordered_json object{{"rows", nlohmann::ordered_json::array()}};
  for (const Change& row : comparison.rows) {
    object["rows"].push_back({{"name", row.name},
                              {"reference", row.reference},
                              {"old", row.old_text},
                              {"new", row.new_text},
                              {"change", figure(row.change)},
                              {"low", figure(row.interval.low)},
                              {"high", figure(row.interval.high)},
                              {"verdict", name_of(row.verdict)},
                              {"ours", row.ours}});
  }
  object["only_old"] = comparison.only_old;
  object["only_new"] = comparison.only_new;
  object["notes"] = comparison.notes;
  object["result"] = result_in_words(comparison);
  return object.dump(1) + "\n";
}

Result<Comparison> compare_files(const CompareOptions& options) {
  const auto read = [](const std::vector<std::string>& files) -> Result<Runs> {
    Runs runs;
    std::set<std::filesystem::path> seen;
    std::error_code error;
    for (const std::string& file : files) {
      std::filesystem::path path = std::filesystem::weakly_canonical(file, error);
      if (error) path = file;
      const bool is_new = seen.insert(path).second;
      if (!is_new) return fail(Errc::invalid_argument, file + " is named twice: each run of a build has its own file");
      auto of_file = read_file_runs(file);
      if (!of_file) return of_file;
      std::move(of_file->begin(), of_file->end(), std::back_inserter(runs));
    }
    return runs;
  };
  auto before = read(options.old_files);
  if (!before) return tl::unexpected(before.error());
  auto after = read(options.new_files);
  if (!after) return tl::unexpected(after.error());
  return compare(*before, *after, options.noise);
}

}  // namespace unet::bench
