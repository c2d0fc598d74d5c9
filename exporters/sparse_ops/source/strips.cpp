#include "strips.h"

#include <algorithm>

namespace ltp {

Strips::Strips(const Weights& weights, const std::array<int64_t, 2>& kernel, const std::array<int64_t, 2>& strides,
               const std::array<int64_t, 2>& dilations) {
  struct Row {
    size_t first, later;  // which of the first lines, and vectors behind it
  };
  std::vector<Row> rows;  // of the kernel
  for (int64_t ky = 0; ky < kernel[0]; ++ky) {
    const int64_t line = ky * dilations[0], first = line % strides[0];
    const auto found = std::find(first_lines_.begin(), first_lines_.end(), first);
    rows.push_back({static_cast<size_t>(found - first_lines_.begin()), static_cast<size_t>(line / strides[0])});
    if (found == first_lines_.end()) first_lines_.push_back(first);
    more_ = std::max(more_, rows.back().later);
  }
  const size_t width = static_cast<size_t>(kernel[1]), places = rows.size() * width;
  const size_t kinds = first_lines_.size() * width;
  std::vector<size_t> nth(kinds);  // strip of the block, from 1 on; 0: none of this channel yet
  for (size_t block = 0; block < weights.blocks(); ++block) {
    size_t last = SIZE_MAX;  // channel
    for (size_t i = 0; i < weights.used_count(block); ++i) {
      const size_t column = weights.used(block)[i], channel = column / places, place = column % places;
      if (channel != last) std::fill(nth.begin(), nth.end(), 0);
      last = channel;
      const Row& row = rows[place / width];
      const size_t kind = row.first * width + place % width;
      if (!nth[kind]) {
        strips_.push_back(static_cast<uint32_t>(channel * kinds + kind));
        nth[kind] = strips_.size() - begin_.back();
      }
      begins_.push_back(static_cast<uint32_t>((nth[kind] - 1) * pitch() + row.later));
    }
    most_ = std::max(most_, strips_.size() - begin_.back());
    begin_.push_back(strips_.size());
  }
}

size_t Strips::bytes() const { return strips_.size() * sizeof strips_[0] + begins_.size() * sizeof begins_[0]; }

}  // namespace ltp
