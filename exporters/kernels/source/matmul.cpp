#include "matmul.h"

#include "band_plan.h"

namespace ltp {

// The band is the transposed input; results are transposed back when all blocks are done. Until then they stay
// where the sums are: a row is read there before it is written.
void MatMul::run_right(const Path& path, const float* input, size_t count, const float* bias, Limits limits,
                       float* output, const Parallel& parallel) const {
  if (!count) return;
  const Weights& weights = weights_[0];
  const size_t outputs = weights.rows(), split = 4 * weights.quads().rows;
  for_each_job(path, weights_, 1, count, true, parallel, [&](const Job& job) {
    const RowRange& rows = job.rows;
    MatrixBandTask task = {};
    task.input = input + job.first * columns_;
    task.input_pitch = columns_;
    task.count = job.count;
    task.pitch = job.pitch;
    const auto fill = [&](size_t block, float* band) {
      task.band = band;
      task.columns = weights.used(block);
      task.column_count = weights.used_count(block);
      path.matrix_band(task);
    };
    const Target target = {nullptr, 0, nullptr, bias, limits, false};
    multiply(path, weights, job, target, fill);
    TransposeTask turn = {};
    turn.from_pitch = job.pitch;
    turn.to_pitch = outputs;
    turn.positions = job.count;
    turn.from = job.sums;
    turn.rows = 4 * (rows.quad_last - rows.quad_first);
    turn.to = output + job.first * outputs + 4 * rows.quad_first;
    path.transpose(turn);
    turn.from += turn.rows * job.pitch;
    turn.rows = rows.single_last - rows.single_first;
    turn.to = output + job.first * outputs + split + rows.single_first;
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
  for_each_job(path, weights_, matrices, count, false, parallel, [&](const Job& job) {
    const BandPlan plan = job.filled ? BandPlan{} : plan_band(window, static_cast<size_t>(path.lanes), job);
    ConvBandTask task = plan.task();
    task.input = input + job.image * columns_ * count;
    task.plane = count;
    float* const out = output + job.image * outputs * count + job.first;
    const Target target = {out, count, nullptr, nullptr, limits, streams};
    multiply(path, weights, job, target, [&](size_t block, float* band) {
      task.band = band;
      task.columns = weights.used(block);
      task.column_count = weights.used_count(block);
      path.conv_band(task);
    });
  });
}

}  // namespace ltp
