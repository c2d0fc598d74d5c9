// A two-dimensional convolution with sparse weights.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "band_plan.h"
#include "product.h"
#include "strips.h"

namespace ltp {

enum class AutoPad { kNotSet, kValid, kSameUpper, kSameLower };

struct ConvAttributes {
  std::array<int64_t, 2> strides{1, 1}, dilations{1, 1};
  std::array<int64_t, 4> pads{0, 0, 0, 0};  // top, left, bottom, right
  int64_t group = 1;
  AutoPad auto_pad = AutoPad::kNotSet;
};

class Conv {
 public:
  // Reads the weights [output channel][input channel of a group][height][width]. Throws std::invalid_argument where
  // they and the attributes do not fit.
  Conv(const ConvAttributes& attributes, const float* weights, const std::vector<int64_t>& dims);

  int64_t outputs() const { return outputs_; }

  // Dims of the output for [image][channel][height][width]. Throws std::invalid_argument.
  std::vector<int64_t> output_dims(const std::vector<int64_t>& input) const;

  // bias and residual may be null; dims are those of the input.
  void run(const Path& path, const float* input, const std::vector<int64_t>& dims, const float* bias,
           const float* residual, Limits limits, float* output, const Parallel& parallel) const;

 private:
  struct Frame {  // what depends on the size of the input
    int64_t height, width, top, left;
  };
  Frame frame(const std::vector<int64_t>& input) const;
  Window window(const std::vector<int64_t>& input, const Frame& out) const;
  bool one_to_one(const std::vector<int64_t>& input, const Frame& out) const;  // whether pixels are read where they are

  // What all jobs of a run have in common, and three ways to make their bands.
  struct Run;
  void in_place(const Run& run) const;
  void in_strips(const Run& run) const;
  void in_rows(const Run& run) const;
  bool pays_in_place(const Run& run) const;
  bool pays_in_strips(const Run& run) const;

  ConvAttributes attributes_;
  int64_t outputs_, channels_, kernel_y_, kernel_x_;  // channels of a group
  std::vector<Weights> groups_;
  std::vector<Strips> strips_;  // by group; none where they share too little
};

}  // namespace ltp
