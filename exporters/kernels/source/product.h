// Weights times bands, tile by tile, on the threads that the caller has.
#pragma once

#include <cstddef>
#include <functional>

#include "tasks.h"
#include "weights.h"

namespace ltp {

// Runs task(0) to task(count - 1) in any order, on any threads, and returns when all are done.
using Parallel = std::function<void(size_t count, const std::function<void(size_t)>& task)>;

struct Limits {
  float low, high;
};

// A part of the rows: some of those in fours, some of the single ones behind them.
struct RowRange {
  size_t quad_first, quad_last, single_first, single_last;
  size_t count() const { return 4 * (quad_last - quad_first) + single_last - single_first; }
};

// What a thread does at a time: some rows at some positions of one image and one group.
struct Job {
  size_t image, group;
  RowRange rows;
  size_t first, count;  // positions
  size_t vectors;       // that hold them; 0 for a single position, which takes no vector
  size_t pitch;         // floats in these vectors, or 1
  float* band;          // [column][pitch], and one more vector
  size_t band_blocks;   // that the band has room for: one, or all
  bool filled;          // whether the band holds all blocks from the job before
  float* sums;          // [rows][pitch]
};

// Cuts a product into jobs and calls run(job) for each of them. `keeps_sums`: even of a single block.
void for_each_job(const Path& path, const std::vector<Weights>& groups, size_t images, size_t positions, bool keeps_sums,
                  const Parallel& parallel, const std::function<void(const Job&)>& run);

// Where results go, and what is done with them in the same pass.
struct Target {
  float* out;  // of row 0 of the group at the job's first position; null: results stay in the job's sums
  size_t pitch;
  const float* residual;  // laid out as out, or null
  const float* bias;      // by row of the group, or null
  Limits limits;
  bool streams;  // see RowsTask
};

// Whether an output of rows of `pitch` floats is better written past the cache: it is too large to be there when the next
// layer reads it, and what is written by way of the cache is read first.
bool is_streamed(const Path& path, const float* out, size_t pitch, size_t floats);

// All blocks of one job, one after the other. `fill` has to fill the band of a block.
using Fill = std::function<void(size_t block, float* band)>;
void multiply(const Path& path, const Weights& weights, const Job& job, const Target& target, const Fill& fill);

}  // namespace ltp
