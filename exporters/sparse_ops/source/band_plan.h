// Which pixels the positions of a tile read: worked out once for a tile, used for all its channels.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "product.h"
#include "strips.h"

namespace ltp {

// How a convolution goes over an image; pairs are (y, x).
struct Window {
  int64_t height, width, out_width;
  std::array<int64_t, 2> kernel, strides, dilations, before;  // before: padding at the top, on the left
};

// One line whose positions are those of the output.
Window line_window(int64_t count);

// Fills the band of a job, whose tile is of vectors one after the other, with a row for each column. Nothing where the job
// has it filled.
class RowBand {
 public:
  RowBand(const Path& path, const Weights& weights, const Window& window, const Job& job, const float* input, size_t plane);
  RowBand(const RowBand&) = delete;  // the task refers to the plan
  RowBand& operator=(const RowBand&) = delete;
  const float* operator()(size_t block, float* band);

 private:
  void plan(const Window& window, size_t lanes, const Tile& tile);

  const Path& path_;
  const Weights& weights_;
  const bool filled_;
  std::vector<Copy> copies_;
  std::vector<uint32_t> begin_{0};  // by place of the kernel
  ConvBandTask task_ = {};
};

// By kind of strip, for a tile of vectors below each other.
std::vector<StripCopy> plan_strips(const Window& window, const Tile& tile, const Strips& strips);

}  // namespace ltp
