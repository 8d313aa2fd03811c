// npb_matrix.h - the sparse matrix of NPB's CG: a sum of products of sparse random vectors with themselves; used by npb_cg.
#pragma once

#include <cstdint>
#include <vector>

namespace unet::kernels {

struct NpbCgClass {
  uint32_t rows;
  uint32_t nonzeros;     // per random vector
  uint32_t iterations;
  double shift;
  double zeta;           // the published answer
};

// Rows [first, first + rows()) in compressed form: the nonzero elements of row i begin at number starts[i].
struct SparseRows {
  std::vector<uint64_t> starts{0};
  std::vector<uint32_t> columns;
  std::vector<double> values;

  uint64_t rows() const noexcept { return starts.size() - 1; }
};

// The random vectors form a sequence, so every rank makes all of them, and keeps the parts that its rows need.
SparseRows make_npb_matrix(const NpbCgClass& problem, uint64_t first, uint64_t rows);

}  // namespace unet::kernels
