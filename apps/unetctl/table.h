// table.h - aligned columns; unetctl's output.
#pragma once

#include <string>
#include <vector>

namespace unet::unetctl {

// Rows of texts under a heading; columns of numbers only, such as 12 or 1.5k, are set flush right.
class Table {
 public:
  explicit Table(std::vector<std::string> heading) : heading_(std::move(heading)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  // A line for each row; `nothing` if there are no rows. A table wider than `columns` loses its last columns, and the first one is cut.
  std::string text(const std::string& nothing, size_t columns = ~size_t{0}) const;

 private:
  std::vector<std::string> heading_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace unet::unetctl
