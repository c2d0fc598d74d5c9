#include "band_plan.h"

#include <algorithm>

namespace ltp {
namespace {

// The first i up to `most` with first + i · stride >= limit. Nearly always the answer is one of the ends: no division.
int64_t steps_to(int64_t first, int64_t stride, int64_t limit, int64_t most) {
  if (first >= limit) return 0;
  if (first + (most - 1) * stride < limit) return most;
  return (limit - first + stride - 1) / stride;
}

// A part of a line of the output.
struct Line {
  int64_t y, x, count;
};

std::vector<Line> lines_of(int64_t out_width, int64_t first, int64_t count) {
  std::vector<Line> lines;
  int64_t y = first / out_width, x = first % out_width;
  for (; count > 0; ++y, x = 0) {
    lines.push_back({y, x, std::min(out_width - x, count)});
    count -= lines.back().count;
  }
  return lines;
}

}  // namespace

Window line_window(int64_t count) { return {1, count, count, {1, 1}, {1, 1}, {1, 1}, {0, 0}}; }

ConvBandTask BandPlan::task() const {
  ConvBandTask task = {};
  task.stride = stride;
  task.copies = copies.data();
  task.copy_begin = begin.data();
  task.places = begin.size() - 1;
  task.pitch = pitch;
  return task;
}

BandPlan plan_band(const Window& window, size_t lanes, const Job& job) {
  const std::vector<Line> lines =
      lines_of(window.out_width, static_cast<int64_t>(job.first), static_cast<int64_t>(job.count));
  const int64_t vector = static_cast<int64_t>(lanes), stride = window.strides[1];
  const size_t places = static_cast<size_t>(window.kernel[0] * window.kernel[1]);
  BandPlan plan = {{}, {0}, static_cast<size_t>(stride), job.pitch};
  plan.copies.reserve(places * (lines.size() + job.vectors));
  plan.begin.reserve(places + 1);
  const auto copy = [&](int64_t source, int64_t target, int64_t from, int64_t to) {
    plan.copies.push_back({source, static_cast<uint32_t>(target), static_cast<int16_t>(from), static_cast<int16_t>(to)});
  };
  for (int64_t ky = 0; ky < window.kernel[0]; ++ky) {
    for (int64_t kx = 0; kx < window.kernel[1]; ++kx) {
      const int64_t dy = ky * window.dilations[0] - window.before[0], dx = kx * window.dilations[1] - window.before[1];
      int64_t done = 0;
      for (const Line& line : lines) {
        const int64_t y = line.y * window.strides[0] + dy;
        const bool inside = y >= 0 && y < window.height;
        for (int64_t i = 0; i < line.count; i += vector) {
          const int64_t x = (line.x + i) * stride + dx, most = std::min(line.count - i, vector);
          const int64_t from = steps_to(x, stride, 0, most), to = steps_to(x, stride, window.width, most);
          if (inside && from < to) {
            copy(y * window.width + x, done + i, from, to);
          } else {
            copy(0, done + i, 0, 0);
          }
        }
        done += line.count;
      }
      for (; done < static_cast<int64_t>(job.pitch); done += vector) copy(0, done, 0, 0);
      plan.begin.push_back(static_cast<uint32_t>(plan.copies.size()));
    }
  }
  return plan;
}

}  // namespace ltp
