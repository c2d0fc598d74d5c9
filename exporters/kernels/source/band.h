// How a band is filled, for any Vec. Included once by each path_*.cpp, inside its namespace and behind its Vec.

template <int kStride>
inline Vec::Reg load_copy(const float* p, const Copy& copy, size_t stride) {
  if constexpr (kStride == 1) return Vec::load_lanes(p, copy.lanes);
  if constexpr (kStride == 2) return Vec::load_second(p, copy.from, copy.to);
  float lanes[Vec::kLanes] = {};
  for (int i = copy.from; i < copy.to; ++i) lanes[i] = p[static_cast<size_t>(i) * stride];
  return Vec::load(lanes);
}

constexpr int kSecondLevel = 2;  // of the cache

// kAhead: while a tile is copied, the next tile of the channel is asked for. Channels lie far apart, so that the processor
// does not see by itself what comes next.
//
// Copies write whole vectors in ascending order: what one of them writes beyond its part is overwritten by the next, and
// what the last one writes beyond the row by the next row. (What the loop needs of the task is taken out of it, because
// the compiler cannot know that writing floats leaves the task as it is.)
template <int kStride, bool kAhead>
inline void copy_columns(const ConvBandTask& task) {
  const size_t places = task.places, plane = task.plane, pitch = task.pitch, stride = task.stride;
  const uint32_t* const columns = task.columns;
  const uint32_t* const begin = task.copy_begin;
  const Copy* const copies = task.copies;
  if (!task.column_count) return;
  const size_t channel = columns[0] / places;
  size_t first = channel * places;  // column of the channel
  const float* image = task.input + channel * plane;
  float* row = task.band;
  const float* const behind = row + task.column_count * pitch;
  for (size_t j = 0; row < behind; ++j, row += pitch) {
    for (; columns[j] >= first + places; first += places) image += plane;  // ascending: no division
    const size_t place = columns[j] - first;
    const Copy* const end = copies + begin[place + 1];
    for (const Copy* copy = copies + begin[place]; copy < end; ++copy) {
      const float* const from = image + copy->source;
      if (kAhead && copy->target % kLineFloats == 0) __builtin_prefetch(from + pitch, 0, kSecondLevel);
      Vec::store(row + copy->target, load_copy<kStride>(from, *copy, stride));
    }
  }
}

// Larger kernels read most pixels several times, so nothing has to be asked for.
void conv_band(const ConvBandTask& task) {
  if (task.stride == 1 && task.places == 1) return copy_columns<1, true>(task);
  if (task.stride == 1) return copy_columns<1, false>(task);
  if (task.stride == 2) return copy_columns<2, false>(task);
  copy_columns<0, false>(task);
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
