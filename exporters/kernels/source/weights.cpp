#include "weights.h"

#include <algorithm>
#include <stdexcept>

namespace ltp {
namespace {

// How many columns a block has. The band of few columns stays in the first-level cache, but each block reads and writes
// the sums of all rows once more, and a row that ends after a few entries is badly predicted. A load of a block of four
// feeds four multiply-adds, so it may as well come from the second-level cache. (Measured; the optimum is flat.)
struct BlockRule {
  double entries;  // of a row that are worth starting it for
  size_t least, most;
};
constexpr BlockRule kSingleRule = {16, 96, 4096}, kQuadRule = {64, 256, 4096};

// A block of four costs about as much as three single weights; the zeros in it are multiplied too.
constexpr double kQuadCost = 3;

size_t up(size_t a, size_t b) { return (a + b - 1) / b; }

template <size_t kHeight>
bool any(const float* at, size_t pitch) {
  bool found = false;
  for (size_t i = 0; i < kHeight; ++i) found |= at[i * pitch] != 0.0f;
  return found;
}

// Calls f(unit, column, address) for every place where one of kHeight neighbouring rows has a weight, in the order of
// the memory: walking across it would take many times as long.
template <size_t kHeight, class F>
void each(const Dense& dense, F f) {
  const size_t units = dense.rows / kHeight;
  if (dense.column_pitch <= dense.row_pitch) {
    for (size_t unit = 0; unit < units; ++unit) {
      const float* at = dense.data + unit * kHeight * dense.row_pitch;
      for (size_t column = 0; column < dense.columns; ++column, at += dense.column_pitch) {
        if (any<kHeight>(at, dense.row_pitch)) f(unit, column, at);
      }
    }
  } else {
    for (size_t column = 0; column < dense.columns; ++column) {
      const float* at = dense.data + column * dense.column_pitch;
      for (size_t unit = 0; unit < units; ++unit, at += kHeight * dense.row_pitch) {
        if (any<kHeight>(at, dense.row_pitch)) f(unit, column, at);
      }
    }
  }
}

// Count, sum up, place. Within a row entries are in the order of columns, whichever way the memory is walked.
template <size_t kHeight>
void fill(Weights::Part& part, const Dense& dense, const std::vector<uint32_t>& place, size_t block, size_t blocks) {
  part.height = kHeight;
  part.rows = dense.rows / kHeight;
  std::vector<uint32_t> next(blocks * (part.rows + 1) + 1, 0);
  const auto cell = [&](size_t unit, size_t column) { return place[column] / block * (part.rows + 1) + unit; };
  each<kHeight>(dense, [&](size_t unit, size_t column, const float*) { ++next[cell(unit, column) + 1]; });
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  part.columns.resize(next.back());
  part.values.resize(kHeight * next.back());
  part.begin.assign(next.begin(), next.end() - 1);
  each<kHeight>(dense, [&](size_t unit, size_t column, const float* at) {
    const size_t to = next[cell(unit, column)]++;
    part.columns[to] = static_cast<uint16_t>(place[column] % block);
    for (size_t i = 0; i < kHeight; ++i) part.values[to * kHeight + i] = at[i * dense.row_pitch];
  });
}

}  // namespace

Weights::Weights(const Dense& dense) : rows_(dense.rows) {
  std::vector<uint32_t> place(dense.columns, 0);  // first: has a weight; then: where among those that have
  each<1>(dense, [&](size_t, size_t column, const float*) {
    place[column] = 1;
    ++nonzeros_;
  });
  if (nonzeros_ > UINT32_MAX / 4 || dense.columns > UINT32_MAX) throw std::length_error("too many weights");
  for (size_t column = 0; column < dense.columns; ++column) {
    if (!place[column]) continue;
    place[column] = static_cast<uint32_t>(used_.size());
    used_.push_back(static_cast<uint32_t>(column));
  }
  Dense fours = dense, rest = dense;
  fours.rows = dense.rows / 4 * 4;
  size_t quads = 0;
  each<4>(fours, [&](size_t, size_t, const float*) { ++quads; });
  if (kQuadCost * static_cast<double>(quads) >= static_cast<double>(nonzeros_)) fours.rows = 0;
  if (!used_.empty()) {
    const BlockRule& rule = fours.rows ? kQuadRule : kSingleRule;
    const double cells = static_cast<double>(used_.size()) * static_cast<double>(rows_);
    const double wanted = rule.entries * cells / static_cast<double>(nonzeros_);
    const size_t columns = static_cast<size_t>(std::clamp<double>(wanted, rule.least, rule.most));
    block_ = up(used_.size(), up(used_.size(), columns));  // blocks of nearly the same size
    blocks_ = up(used_.size(), block_);
  }
  rest.data += fours.rows * dense.row_pitch;
  rest.rows -= fours.rows;
  fill<4>(quads_, fours, place, block_, blocks_);
  fill<1>(singles_, rest, place, block_, blocks_);
}

size_t Weights::used_count(size_t block) const { return std::min(block_, used_.size() - block * block_); }

size_t Weights::bytes() const {
  size_t total = used_.size() * sizeof used_[0];
  for (const Part* part : {&quads_, &singles_}) {
    total += part->begin.size() * sizeof part->begin[0] + part->columns.size() * sizeof part->columns[0] +
             part->values.size() * sizeof part->values[0];
  }
  return total;
}

}  // namespace ltp
