// How a band is filled, for any Vec. Included once by each path_*.cpp, inside its namespace and behind its Vec.

template <int kStride>
inline Vec::Reg load_copy(const float* p, const Copy& copy, size_t stride) {
  if constexpr (kStride == 1) {
    if (copy.to - copy.from == Vec::kLanes) return Vec::load(p);
    return Vec::load_window(p, copy.from, copy.to);
  }
  if constexpr (kStride == 2) return Vec::load_second(p, copy.from, copy.to);
  float lanes[Vec::kLanes] = {};
  for (int i = copy.from; i < copy.to; ++i) lanes[i] = p[static_cast<size_t>(i) * stride];
  return Vec::load(lanes);
}

constexpr int kSecondLevel = 2;                          // of the cache
constexpr uint32_t kVectorsPerLine = 16 / Vec::kLanes;  // of the cache

// While a tile is copied, the next tile of the channel is asked for: channels lie far apart, so that the processor does not
// see by itself what comes next. (Larger kernels read most pixels several times anyway.)
//
// Copies write whole vectors in ascending order: what one of them writes beyond its part is overwritten by the next, and
// what the last one writes beyond the row by the next row.
template <int kStride>
inline void copy_columns(const ConvBandTask& task) {
  size_t channel = 0;
  for (size_t j = 0; j < task.column_count; ++j) {
    while (task.columns[j] >= (channel + 1) * task.places) ++channel;  // ascending: no division
    const size_t place = task.columns[j] - channel * task.places;
    const float* const image = task.input + channel * task.plane;
    float* const row = task.band + j * task.pitch;
    for (uint32_t k = task.copy_begin[place]; k < task.copy_begin[place + 1]; ++k) {
      const Copy& copy = task.copies[k];
      const float* const from = image + copy.source;
      if (task.places == 1 && k % kVectorsPerLine == 0) __builtin_prefetch(from + task.pitch * task.stride, 0, kSecondLevel);
      Vec::store(row + copy.target, load_copy<kStride>(from, copy, task.stride));
    }
  }
}

void conv_band(const ConvBandTask& task) {
  if (task.stride == 1) return copy_columns<1>(task);
  if (task.stride == 2) return copy_columns<2>(task);
  copy_columns<0>(task);
}

// to[j][i] = from[i][columns[j]], in squares of 4 × 4 where four columns are neighbours; else one by one.
void matrix_band(const MatrixBandTask& task) {
  for (size_t j = 0; j < task.column_count;) {
    const uint32_t* const columns = task.columns + j;
    const bool four = j + 4 <= task.column_count && columns[3] - columns[0] == 3;  // they ascend
    const size_t width = four ? 4 : 1;
    float* const to = task.band + j * task.pitch;
    const float* from = task.input + columns[0];
    size_t i = 0;
    for (; four && i + 4 <= task.count; i += 4, from += 4 * task.input_pitch) {
      Vec::transpose4(from, task.input_pitch, to + i, task.pitch);
    }
    for (; i < task.pitch; ++i, from += task.input_pitch) {
      for (size_t k = 0; k < width; ++k) to[k * task.pitch + i] = i < task.count ? from[k] : 0.0f;
    }
    j += width;
  }
}

void transpose(const TransposeTask& task) {
  size_t i = 0;
  for (; i + 4 <= task.positions; i += 4) {
    size_t row = 0;
    for (; row + 4 <= task.rows; row += 4) {
      Vec::transpose4(task.from + row * task.from_pitch + i, task.from_pitch, task.to + i * task.to_pitch + row,
                      task.to_pitch);
    }
    for (; row < task.rows; ++row) {
      for (size_t k = i; k < i + 4; ++k) task.to[k * task.to_pitch + row] = task.from[row * task.from_pitch + k];
    }
  }
  for (; i < task.positions; ++i) {
    for (size_t row = 0; row < task.rows; ++row) {
      task.to[i * task.to_pitch + row] = task.from[row * task.from_pitch + i];
    }
  }
}
