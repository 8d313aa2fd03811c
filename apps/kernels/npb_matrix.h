// npb_matrix.h - the sparse matrix of NPB's CG: a sum of products of sparse random vectors with themselves; used by npb_cg.
#pragma once

#include <cstdint>
#include <vector>

namespace unet::kernels {

struct NpbCgClass {
  uint32_t rows;
  uint32_t nonzeros;     // of a random vector
  uint32_t iterations;
  double shift;
  double zeta;           // published
};

// Rows [first, first + rows()) in compressed form: those elements of row i that are not 0 are number starts[i] and on.
struct SparseRows {
  std::vector<uint64_t> starts{0};
  std::vector<uint32_t> columns;
  std::vector<double> values;

  uint64_t rows() const noexcept { return starts.size() - 1; }
};

// The random vectors are a sequence, so every rank makes all of them, and keeps what its rows need.
SparseRows make_npb_matrix(const NpbCgClass& problem, uint64_t first, uint64_t rows);

}  // namespace unet::kernels
