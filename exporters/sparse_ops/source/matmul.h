// A product of a matrix with sparse weights.
#pragma once

#include <cstdint>
#include <vector>

#include "product.h"

namespace ltp {

// output[i][row] = Σ_column input[i][column] · weight(row, column) + bias[row]: weights, of one group, on the right of a
// matrix of `columns` columns.
void multiply_right(const Path& path, const std::vector<Weights>& weights, size_t columns, const float* input, size_t count,
                    const float* bias, Limits limits, float* output, const Parallel& parallel);

class MatMul {
 public:
  explicit MatMul(const Dense& weights, bool few_positions = false)
      : weights_{Weights(weights, few_positions)}, columns_(weights.columns) {}

  const Weights& weights() const { return weights_[0]; }
  size_t columns() const { return columns_; }  // what the input has to have

  void run_right(const Path& path, const float* input, size_t count, const float* bias, Limits limits, float* output,
                 const Parallel& parallel) const {
    multiply_right(path, weights_, columns_, input, count, bias, limits, output, parallel);
  }

  // output[m][row][i] = Σ_column weight(row, column) · input[m][column][i]: weights on the left of some matrices.
  void run_left(const Path& path, const float* input, size_t matrices, size_t count, Limits limits, float* output,
                const Parallel& parallel) const;

 private:
  std::vector<Weights> weights_;  // one; for_each_job takes several
  size_t columns_;
};

}  // namespace ltp
