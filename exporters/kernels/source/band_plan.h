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

struct BandPlan {
  std::vector<Copy> copies;
  std::vector<uint32_t> begin{0};  // by place of the kernel
  size_t stride = 1, pitch = 0;

  ConvBandTask task() const;  // without input, plane, columns and band
};

// Rows of columns, for a tile of vectors one after the other.
BandPlan plan_band(const Window& window, size_t lanes, const Tile& tile);

// By kind of strip, for a tile of vectors below each other.
std::vector<StripCopy> plan_strips(const Window& window, const Tile& tile, const Strips& strips);

}  // namespace ltp
