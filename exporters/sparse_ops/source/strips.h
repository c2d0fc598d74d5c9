// How columns of a convolution share the values that they are multiplied by.
//
// Places of a kernel that are below each other, a multiple of the stride apart, read the same pixels, some lines of the
// output later. Where the vectors of a tile are below each other too, that is some vectors later. So a band need not have
// a row for each place: a *strip* has the pixels that such places of one channel read, a vector for each line of the
// output, and each place begins some vectors into it. A kernel of 3 × 3 has three strips instead of nine rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tasks.h"
#include "weights.h"

namespace ltp {

class Strips {
 public:
  // Kernel, strides and dilations are (y, x).
  Strips(const Weights& weights, const std::array<int64_t, 2>& kernel, const std::array<int64_t, 2>& strides,
         const std::array<int64_t, 2>& dilations);

  size_t bytes() const;  // of memory

  // The kinds of strips: lines of the input, relative to that of an output's line, times columns of the kernel.
  const std::vector<int64_t>& first_lines() const { return first_lines_; }
  size_t more() const { return more_; }                // vectors of a strip beyond those of the tile
  size_t pitch() const { return kMaxVectors + more_; }  // vectors from one strip to the next

  // channel · kinds + kind, ascending in channels
  const uint32_t* of_block(size_t block) const { return strips_.data() + begin_[block]; }
  size_t count(size_t block) const { return begin_[block + 1] - begin_[block]; }
  size_t count() const { return strips_.size(); }
  size_t most() const { return most_; }  // of a block

  const uint32_t* begins() const { return begins_.data(); }  // by used column; see RowsTask

 private:
  std::vector<int64_t> first_lines_;
  std::vector<uint32_t> strips_;
  std::vector<size_t> begin_{0};  // by block
  std::vector<uint32_t> begins_;
  size_t more_ = 0, most_ = 0;
};

}  // namespace ltp
