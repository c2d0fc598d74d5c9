// A layer's weights without their zeros, read once when the kernel is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ltp {

inline size_t up(size_t a, size_t b) { return (a + b - 1) / b; }  // a / b, rounded up

// A dense matrix of weights somewhere in memory: element (row, column) is data[row · row_pitch + column · column_pitch].
struct Dense {
  const float* data;
  size_t rows, columns;
  size_t row_pitch, column_pitch;
};

// Rows by blocks of columns. The form is seen from the zeros: single weights, or blocks of four weights that sit in four
// neighbouring rows at the same column. Columns without any weight are left out, so no band is filled for them.
class Weights {
 public:
  // few_positions: whether tiles will hardly fill a vector; then a band is small, and blocks may have more columns.
  explicit Weights(const Dense& dense, bool few_positions = false);

  // Entries in the order of blocks of columns, rows, columns. An entry is `height` weights, one in each of as many rows.
  struct Part {
    size_t height = 1;
    size_t rows = 0;                // in units of the height
    std::vector<uint32_t> begin;    // of row r in block b: at b · (rows + 1) + r; the next one is where it ends
    std::vector<uint16_t> columns;  // within the block
    std::vector<float> values;
  };

  size_t rows() const { return rows_; }
  size_t nonzeros() const { return nonzeros_; }
  size_t multiplied() const { return quads_.values.size() + singles_.values.size(); }  // with the zeros of blocks
  size_t bytes() const;  // of memory

  const Part& quads() const { return quads_; }      // rows 0 to 4 · quads().rows
  const Part& singles() const { return singles_; }  // the rows behind

  size_t block() const { return block_; }    // columns of a block, except the last
  size_t blocks() const { return blocks_; }
  const uint32_t* used(size_t block) const { return used_.data() + block * block_; }  // columns of the matrix
  size_t used_count(size_t block) const;
  size_t used_count() const { return used_.size(); }

 private:
  size_t rows_, nonzeros_ = 0, block_ = 1, blocks_ = 1;  // one empty block where there is no weight at all
  std::vector<uint32_t> used_;  // columns that have a weight, ascending
  Part quads_, singles_;
};

}  // namespace ltp
