#include "band_plan.h"

#include <algorithm>

namespace ltp {
namespace {

// The first i up to `most` with first + i · stride >= limit. Nearly always the answer is one of the ends: no division.
int64_t steps_to(int64_t first, int64_t stride, int64_t limit, int64_t most) {
  if (first >= limit) return 0;
  if (first + (most - 1) * stride < limit) return most;
  return (limit - first + stride - 1) / stride;
}

// Positions of a line of the output that one copy takes.
struct Piece {
  int64_t y, x, count, target;
};

std::vector<Piece> pieces_of(int64_t out_width, int64_t lanes, const Tile& tile) {
  std::vector<Piece> pieces;
  pieces.reserve(tile.vectors + up(tile.count, static_cast<size_t>(out_width)) + 1);
  const int64_t first = static_cast<int64_t>(tile.first), count = static_cast<int64_t>(tile.count);
  int64_t y = first / out_width, x = first % out_width;
  for (int64_t target = 0; target < count;) {
    const int64_t taken = std::min({lanes, out_width - x, count - target});
    pieces.push_back({y, x, taken, target});
    target += taken;
    x += taken;
    if (x == out_width) ++y, x = 0;
  }
  return pieces;
}

// What a piece reads of a line of the input, dx pixels on.
Copy read(const Piece& piece, int64_t dx, int64_t stride, int64_t width) {
  const int64_t source = piece.x * stride + dx;
  const int64_t from = steps_to(source, stride, 0, piece.count), to = steps_to(source, stride, width, piece.count);
  const uint16_t target = static_cast<uint16_t>(piece.target);
  if (from >= to) return {0, target, 0, 0, 0};
  const uint16_t lanes = static_cast<uint16_t>((1u << to) - (1u << from));
  return {source, target, lanes, static_cast<int16_t>(from), static_cast<int16_t>(to)};
}

}  // namespace

Window line_window(int64_t count) { return {1, count, count, {1, 1}, {1, 1}, {1, 1}, {0, 0}}; }

RowBand::RowBand(const Path& path, const Weights& weights, const Window& window, const Job& job, const float* input,
                 size_t plane)
    : path_(path), weights_(weights), filled_(job.filled) {
  if (filled_) return;
  plan(window, static_cast<size_t>(path.lanes), job.tile);
  task_.input = input;
  task_.plane = plane;
  task_.stride = static_cast<size_t>(window.strides[1]);
  task_.copies = copies_.data();
  task_.copy_begin = begin_.data();
  task_.places = begin_.size() - 1;
  task_.pitch = job.tile.pitch;
}

const float* RowBand::operator()(size_t block, float* band) {
  if (filled_) return band;
  task_.band = band;
  task_.columns = weights_.used(block);
  task_.column_count = weights_.used_count(block);
  path_.conv_band(task_);
  return band;
}

void RowBand::plan(const Window& window, size_t lanes, const Tile& tile) {
  const std::vector<Piece> pieces = pieces_of(window.out_width, static_cast<int64_t>(lanes), tile);
  const size_t columns = static_cast<size_t>(window.kernel[1]), places = static_cast<size_t>(window.kernel[0]) * columns;
  copies_.reserve(places * (pieces.size() + tile.vectors));
  begin_.reserve(places + 1);
  std::vector<Copy> reads;  // by column of the kernel, by piece: the same for all its rows
  reads.reserve(columns * pieces.size());
  for (int64_t kx = 0; kx < window.kernel[1]; ++kx) {
    const int64_t dx = kx * window.dilations[1] - window.before[1];
    for (const Piece& piece : pieces) reads.push_back(read(piece, dx, window.strides[1], window.width));
  }
  for (int64_t ky = 0; ky < window.kernel[0]; ++ky) {
    const int64_t dy = ky * window.dilations[0] - window.before[0];
    const Copy* next = reads.data();
    for (size_t kx = 0; kx < columns; ++kx) {
      for (const Piece& piece : pieces) {
        Copy copy = *next++;
        const int64_t y = piece.y * window.strides[0] + dy;
        if (copy.lanes && y >= 0 && y < window.height) {
          copy.source += y * window.width;
        } else {
          copy = {0, copy.target, 0, 0, 0};
        }
        copies_.push_back(copy);
      }
      for (size_t end = tile.count; end < tile.pitch; end += lanes) {
        copies_.push_back({0, static_cast<uint16_t>(end), 0, 0, 0});
      }
      begin_.push_back(static_cast<uint32_t>(copies_.size()));
    }
  }
}

std::vector<StripCopy> plan_strips(const Window& window, const Tile& tile, const Strips& strips) {
  const int64_t y = static_cast<int64_t>(tile.first) / window.out_width * window.strides[0] - window.before[0];
  const int64_t x = static_cast<int64_t>(tile.first) % window.out_width;
  const int64_t vectors = static_cast<int64_t>(tile.vectors + strips.more());
  std::vector<StripCopy> kinds;
  kinds.reserve(strips.first_lines().size() * static_cast<size_t>(window.kernel[1]));
  for (const int64_t line : strips.first_lines()) {
    const int64_t above = steps_to(y + line, window.strides[0], 0, vectors);
    const int64_t end = steps_to(y + line, window.strides[0], window.height, vectors);
    for (int64_t kx = 0; kx < window.kernel[1]; ++kx) {
      const int64_t dx = kx * window.dilations[1] - window.before[1];
      const Copy part = read({0, x, static_cast<int64_t>(tile.count), 0}, dx, window.strides[1], window.width);
      const int64_t source = part.source + (y + line + above * window.strides[0]) * window.width;
      kinds.push_back({source, part.lanes, part.from, part.to, static_cast<uint32_t>(above),
                       static_cast<uint32_t>(end - above)});
    }
  }
  return kinds;
}

}  // namespace ltp
