// table.h - aligned columns; unetctl's output.
#pragma once

#include <string>
#include <vector>

namespace unet::unetctl {

// Rows of texts under a heading; columns of numbers only are set flush right.
class Table {
 public:
  explicit Table(std::vector<std::string> heading) : heading_(std::move(heading)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  // A line for each row; `nothing` if there are no rows.
  std::string text(const std::string& nothing) const;

 private:
  std::vector<std::string> heading_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace unet::unetctl
