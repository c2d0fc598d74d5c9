#include "matmul.h"

#include "band_plan.h"

#include <functional>

namespace ltp {

// The band is the transposed input; results are transposed back when all blocks are done. Until then they stay
// where the sums are: a row is read there before it is written.
void multiply_right(const Path& path, const std::vector<Weights>& groups, size_t columns, const float* input, size_t count,
                    const float* bias, Limits limits, float* output, const Parallel& parallel) {
  if (!count) return;
  const Weights& weights = groups[0];
  const size_t outputs = weights.rows(), split = 4 * weights.quads().rows;
  const Product product = {path, groups, 1, true};
  const Tiles tiles = product.in_line(count);
  for_each_job(product, tiles, rows_of_columns(product, tiles), parallel, [&](const Job& job) {
    const Tile& tile = job.tile;
    const RowRange& rows = job.rows;
    MatrixBandTask task = {};
    task.input = input + tile.first * columns;
    task.input_pitch = columns;
    task.count = tile.count;
    task.pitch = tile.pitch;
    const auto fill = [&](size_t block, float* band) {
      if (job.filled) return band;
      task.band = band;
      task.columns = weights.used(block);
      task.column_count = weights.used_count(block);
      path.matrix_band(task);
      return band;
    };
    const Target target = {nullptr, 0, nullptr, bias, limits, false};
    multiply(path, weights, job, target, nullptr, fill);
    TransposeTask turn = {};
    turn.from_pitch = tile.pitch;
    turn.to_pitch = outputs;
    turn.positions = tile.count;
    turn.from = job.sums;
    turn.rows = 4 * (rows.quad_last - rows.quad_first);
    turn.to = output + tile.first * outputs + 4 * rows.quad_first;
    path.transpose(turn);
    turn.from += turn.rows * tile.pitch;
    turn.rows = rows.single_last - rows.single_first;
    turn.to = output + tile.first * outputs + split + rows.single_first;
    path.transpose(turn);
  });
}

void MatMul::run_left(const Path& path, const float* input, size_t matrices, size_t count, Limits limits,
                      float* output, const Parallel& parallel) const {
  if (!count || !matrices) return;
  const Weights& weights = weights_[0];
  const size_t outputs = weights.rows();
  const Window window = line_window(static_cast<int64_t>(count));
  const bool streams = is_streamed(path, output, count, matrices * outputs * count);
  const Product product = {path, weights_, matrices, false};
  const Tiles tiles = product.in_line(count);
  for_each_job(product, tiles, rows_of_columns(product, tiles), parallel, [&](const Job& job) {
    RowBand fill(path, weights, window, job, input + job.image * columns_ * count, count);
    float* const out = output + job.image * outputs * count + job.tile.first;
    const Target target = {out, count, nullptr, nullptr, limits, streams};
    multiply(path, weights, job, target, nullptr, std::ref(fill));
  });
}

}  // namespace ltp
