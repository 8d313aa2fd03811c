// edges.h - a grid dealt to ranks in strips of rows: passing edge rows to both neighbours; used by cg and stencil.
//
// Each rank's piece of the grid holds a row of the rank above, its own rows, and a row of the rank below.
#pragma once

#include <cstdint>

#include "am/splitc/splitc.h"
#include "apps/kernels/partition.h"

namespace unet::kernels {

// Stores this rank's first and last row into its neighbours' pieces: 0, 1 or 2 rows of `side` elements.
inline void store_edges(const splitc::Spread<double>& grid, const Partition& strips, uint64_t side) {
  const splitc::Rank me = splitc::my_proc();
  const double* const own = grid.mine(0).data();
  if (me > 0) {
    const uint64_t row_there = strips.size(me - 1) + 1;
    splitc::bulk_store(grid.on(me - 1) + static_cast<int64_t>(row_there * side), own + side, side);
  }
  if (me + 1 < splitc::procs()) splitc::bulk_store(grid.on(me + 1), own + strips.size(me) * side, side);
}

}  // namespace unet::kernels
