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
constexpr BlockRule kSingleRule = {16, 96, 4096}, kFewRule = {64, 96, 4096}, kQuadRule = {64, 256, 4096};

// A block of four costs about as much as three single weights; the zeros in it are multiplied too.
constexpr double kQuadCost = 3;

// Which elements are not zero, a bit for each, in the order of the memory: lines of rows, or of columns. The dense matrix
// is read once for it; all that follows goes over the bits.
class Bits {
 public:
  explicit Bits(const Dense& dense) : by_rows_(dense.column_pitch <= dense.row_pitch) {
    const size_t lines = by_rows_ ? dense.rows : dense.columns, length = by_rows_ ? dense.columns : dense.rows;
    const size_t line_pitch = by_rows_ ? dense.row_pitch : dense.column_pitch;
    const size_t pitch = by_rows_ ? dense.column_pitch : dense.row_pitch;
    words_ = up(length, 64);
    bits_.assign(lines * words_, 0);
    for (size_t line = 0; line < lines; ++line) {
      const float* at = dense.data + line * line_pitch;
      for (size_t i = 0; i < words_; ++i) {
        const size_t count = std::min<size_t>(64, length - 64 * i);
        uint64_t word = 0;
        for (size_t k = 0; k < count; ++k, at += pitch) word |= static_cast<uint64_t>(*at != 0.0f) << k;
        bits_[line * words_ + i] = word;
      }
    }
  }

  // Calls f(unit, column) for every place where one of kHeight neighbouring rows has a weight, of rows `first` (a
  // multiple of kHeight) to `last`, in the order of the memory: walking across it would take many times as long.
  template <size_t kHeight, class F>
  void each(size_t first, size_t last, F f) const {
    if (by_rows_) {
      for (size_t row = first; row + kHeight <= last; row += kHeight) {
        for (size_t i = 0; i < words_; ++i) {
          uint64_t word = 0;
          for (size_t k = 0; k < kHeight; ++k) word |= bits_[(row + k) * words_ + i];
          for (; word; word &= word - 1) f((row - first) / kHeight, 64 * i + lowest(word));
        }
      }
      return;
    }
    for (size_t column = 0; column * words_ < bits_.size(); ++column) {
      for (size_t i = 0; i < words_; ++i) {
        uint64_t word = bits_[column * words_ + i];
        if (kHeight == 4) word = (word | word >> 1 | word >> 2 | word >> 3) & 0x1111111111111111u;
        for (; word; word &= word - 1) {
          const size_t row = 64 * i + lowest(word);
          if (row >= first && row + kHeight <= last) f((row - first) / kHeight, column);
        }
      }
    }
  }

 private:
  static size_t lowest(uint64_t word) { return static_cast<size_t>(__builtin_ctzll(word)); }

  bool by_rows_;
  size_t words_;  // of a line
  std::vector<uint64_t> bits_;
};

// Count, sum up, place. Within a row entries are in the order of columns, whichever way the memory is walked.
template <size_t kHeight>
void fill(Weights::Part& part, const Dense& dense, const Bits& bits, size_t first, size_t last,
          const std::vector<uint32_t>& place, size_t block, size_t blocks) {
  part.height = kHeight;
  part.rows = (last - first) / kHeight;
  std::vector<uint32_t> next(blocks * (part.rows + 1) + 1, 0);
  const auto cell = [&](size_t unit, size_t column) { return place[column] / block * (part.rows + 1) + unit; };
  bits.each<kHeight>(first, last, [&](size_t unit, size_t column) { ++next[cell(unit, column) + 1]; });
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  part.columns.resize(next.back());
  part.values.resize(kHeight * next.back());
  part.begin.assign(next.begin(), next.end() - 1);
  bits.each<kHeight>(first, last, [&](size_t unit, size_t column) {
    const size_t to = next[cell(unit, column)]++;
    const float* const at = dense.data + (first + unit * kHeight) * dense.row_pitch + column * dense.column_pitch;
    part.columns[to] = static_cast<uint16_t>(place[column] % block);
    for (size_t i = 0; i < kHeight; ++i) part.values[to * kHeight + i] = at[i * dense.row_pitch];
  });
}

}  // namespace

Weights::Weights(const Dense& dense, bool few_positions) : rows_(dense.rows) {
  const Bits bits(dense);
  std::vector<uint32_t> place(dense.columns, 0);  // first: has a weight; then: where among those that have
  size_t fours = rows_ / 4 * 4, in_fours = 0, quads = 0;  // rows that may be taken in fours, their weights, their blocks
  bits.each<1>(0, rows_, [&](size_t row, size_t column) {
    place[column] = 1;
    ++nonzeros_;
    in_fours += row < fours;
  });
  if (nonzeros_ > UINT32_MAX / 4 || dense.columns > UINT32_MAX) throw std::length_error("too many weights");
  for (size_t column = 0; column < dense.columns; ++column) {
    if (!place[column]) continue;
    place[column] = static_cast<uint32_t>(used_.size());
    used_.push_back(static_cast<uint32_t>(column));
  }
  bits.each<4>(0, fours, [&](size_t, size_t) { ++quads; });
  if (kQuadCost * static_cast<double>(quads) >= static_cast<double>(in_fours)) fours = 0;
  if (!used_.empty()) {
    const BlockRule& rule = fours ? kQuadRule : few_positions ? kFewRule : kSingleRule;
    const double cells = static_cast<double>(used_.size()) * static_cast<double>(rows_);
    const double wanted = rule.entries * cells / static_cast<double>(nonzeros_);
    const size_t columns = static_cast<size_t>(std::clamp<double>(wanted, rule.least, rule.most));
    block_ = up(used_.size(), up(used_.size(), columns));  // blocks of nearly the same size
    blocks_ = up(used_.size(), block_);
  }
  fill<4>(quads_, dense, bits, 0, fours, place, block_, blocks_);
  fill<1>(singles_, dense, bits, fours, rows_, place, block_, blocks_);
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
