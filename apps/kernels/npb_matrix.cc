// npb_matrix.cc - the sparse matrix of NPB's CG: A = sum over i of c^(i/n) v_i v_i^T, and c - shift on the diagonal, with c = 0.1.
#include "apps/kernels/npb_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "apps/kernels/npb.h"

namespace unet::kernels {
namespace {

constexpr double kCondition = 0.1;

struct Element {
  uint32_t place;
  double value;
};

// A place is the highest bits of a random number. If it is too large or already used, place and value are drawn again.
std::vector<Element> random_vector(NpbRandom& random, const NpbCgClass& problem) {
  const auto place_bits = static_cast<uint32_t>(std::bit_width(problem.rows - 1));
  std::vector<Element> vector;
  while (vector.size() < problem.nonzeros) {
    const double value = random.next();
    const auto place = static_cast<uint32_t>(random.next_bits() >> (NpbRandom::kBits - place_bits));
    const bool there = std::any_of(vector.begin(), vector.end(), [&](const Element& each) { return each.place == place; });
    if (place < problem.rows && !there) vector.push_back({place, value});
  }
  return vector;
}

// Sets element i of vector number i to one half.
void set_half(std::vector<Element>& vector, uint32_t i) {
  constexpr double kHalf = 0.5;
  const auto at = std::find_if(vector.begin(), vector.end(), [&](const Element& each) { return each.place == i; });
  if (at != vector.end()) {
    at->value = kHalf;
  } else {
    vector.push_back({i, kHalf});
  }
}

// Adds up products for the same place in the order of the vectors.
void append_row(SparseRows& matrix, std::vector<Element>& row) {
  std::stable_sort(row.begin(), row.end(), [](const Element& a, const Element& b) { return a.place < b.place; });
  for (size_t i = 0; i < row.size(); ++i) {
    if (i > 0 && row[i].place == row[i - 1].place) {
      matrix.values.back() += row[i].value;
    } else {
      matrix.columns.push_back(row[i].place);
      matrix.values.push_back(row[i].value);
    }
  }
  matrix.starts.push_back(matrix.values.size());
}

}  // namespace

SparseRows make_npb_matrix(const NpbCgClass& problem, uint64_t first, uint64_t rows) {
  NpbRandom random;
  random.skip(1);
  std::vector<std::vector<Element>> products(rows);
  const double ratio = std::pow(kCondition, 1.0 / problem.rows);
  double size = 1;
  for (uint32_t i = 0; i < problem.rows; ++i, size *= ratio) {
    std::vector<Element> vector = random_vector(random, problem);
    set_half(vector, i);
    for (const Element& a : vector) {
      if (a.place < first || a.place - first >= rows) continue;
      for (const Element& b : vector) {
        const double diagonal = a.place == i && b.place == i ? kCondition - problem.shift : 0;
        products[a.place - first].push_back({b.place, b.value * (size * a.value) + diagonal});
      }
    }
  }
  SparseRows matrix;
  for (std::vector<Element>& row : products) append_row(matrix, row);
  return matrix;
}

}  // namespace unet::kernels
