// table.cc - computes column widths, then the lines.
#include "apps/unetctl/table.h"

#include <algorithm>
#include <string_view>

namespace unet::unetctl {
namespace {

bool is_number(std::string_view text) {
  if (text.size() > 1 && std::string_view("kMGT%").find(text.back()) != std::string_view::npos) text.remove_suffix(1);
  return !text.empty() && text.find_first_not_of("0123456789.") == std::string_view::npos && std::count(text.begin(), text.end(), '.') < 2;
}

}  // namespace

std::string Table::text(const std::string& nothing, size_t columns) const {
  if (rows_.empty()) return nothing + "\n";
  std::vector<size_t> width(heading_.size());
  std::vector<bool> right(heading_.size(), true);
  for (size_t c = 0; c < heading_.size(); ++c) {
    width[c] = heading_[c].size();
    for (const auto& row : rows_) {
      width[c] = std::max(width[c], row[c].size());
      right[c] = right[c] && is_number(row[c]);
    }
  }
  width[0] = std::min(width[0], columns);
  size_t shown = 1;
  for (size_t used = width[0]; shown < width.size() && (used += 2 + width[shown]) <= columns;) ++shown;
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t c = 0; c < shown; ++c) {
      const std::string cell = cells[c].substr(0, width[c]), space(width[c] - cell.size(), ' ');
      text += (c == 0 ? "" : "  ") + (right[c] ? space + cell : cell + space);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line(heading_);
  for (const auto& row : rows_) line(row);
  return out;
}

}  // namespace unet::unetctl
