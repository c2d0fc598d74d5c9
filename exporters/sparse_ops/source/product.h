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

// Some vectors of positions of the output.
struct Tile {
  size_t first;         // position
  size_t vectors;       // 0 for a single position, which takes no vector
  size_t pitch;         // floats in these vectors, or 1
  size_t step;          // positions from one vector to the next
  size_t count, fewer;  // see RowsTask
};

// How the positions of an output are cut into tiles: into vectors of neighbours, one after the other, or, across > 0, into
// columns as wide as a vector.
struct Tiles {
  size_t lanes, count;
  size_t pitch;  // of the largest
  size_t across;
  size_t vectors, positions;  // one after the other: all of them. Below each other: those of a column, and the width

  Tile operator[](size_t nth) const;
};

// What a thread does at a time: some rows at a tile of one image and one group.
struct Job {
  size_t image, group;
  RowRange rows;
  Tile tile;
  float* band;        // of one block, or of all
  size_t band_pitch;  // floats from a block's band to the next one's; 0 where there is room for one
  bool filled;        // whether the band holds all blocks from the job before
  float* sums;        // [rows][pitch of the tile]
};

// The product of some groups of rows, each with some images.
struct Product {
  const Path& path;
  const std::vector<Weights>& groups;
  size_t images;
  bool keeps_sums;  // even of a single block

  Tiles in_line(size_t positions) const;
  Tiles below_each_other(size_t height, size_t width) const;
};

// Calls run(job) for all jobs of a product. bands: floats of the largest block of each group.
void for_each_job(const Product& product, const Tiles& tiles, const std::vector<size_t>& bands, const Parallel& parallel,
                  const std::function<void(const Job&)>& run);

// Floats of bands that have a row for each column.
std::vector<size_t> rows_of_columns(const Product& product, const Tiles& tiles);

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

// All blocks of one job, one after the other. fill(block, band) returns where the values of a block's columns are; unless
// job.filled, it first writes them there. begins: see RowsTask, by used column.
using Fill = std::function<const float*(size_t block, float* band)>;
void multiply(const Path& path, const Weights& weights, const Job& job, const Target& target, const uint32_t* begins,
              const Fill& fill);

}  // namespace ltp
