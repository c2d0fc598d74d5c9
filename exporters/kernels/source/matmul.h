// A product of a matrix with sparse weights.
#pragma once

#include <cstdint>
#include <vector>

#include "product.h"

namespace ltp {

class MatMul {
 public:
  explicit MatMul(const Dense& weights) : weights_{Weights(weights)}, columns_(weights.columns) {}

  const Weights& weights() const { return weights_[0]; }
  size_t columns() const { return columns_; }  // what the input has to have

  // output[i][row] = Σ_column input[i][column] · weight(row, column) + bias[row]: weights on the right of a matrix.
  void run_right(const Path& path, const float* input, size_t count, const float* bias, Limits limits, float* output,
                 const Parallel& parallel) const;

  // output[m][row][i] = Σ_column weight(row, column) · input[m][column][i]: weights on the left of some matrices.
  void run_left(const Path& path, const float* input, size_t matrices, size_t count, Limits limits, float* output,
                const Parallel& parallel) const;

 private:
  std::vector<Weights> weights_;  // one; for_each_job takes several
  size_t columns_;
};

}  // namespace ltp
