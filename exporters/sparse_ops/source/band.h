// How a band is filled, for any Vec. Included once by each path_*.cpp, inside its namespace and behind its Vec.

template <int kStride, class Part>  // a Copy or a StripCopy
inline Vec::Reg load_part(const float* p, const Part& part, size_t stride) {
  if constexpr (kStride == 1) return Vec::load_lanes(p, part.lanes);
  if constexpr (kStride == 2) return Vec::load_second(p, part.from, part.to);
  return Vec::load_every(p, part.lanes, stride);
}

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
      Vec::store(row + copy->target, load_part<kStride>(from, *copy, stride));
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

// The vectors of a strip lie one after the other and have the same lanes, so they need no plan each.
template <int kStride>
inline void copy_strips(const StripBandTask& task) {
  const size_t stride = task.stride, line = task.line;
  const Vec::Reg zero = Vec::broadcast(0);
  size_t channel = 0;
  for (size_t j = 0; j < task.strip_count; ++j) {
    while (task.strips[j] >= (channel + 1) * task.kind_count) ++channel;
    const StripCopy copy = task.kinds[task.strips[j] - channel * task.kind_count];
    const float* from = task.input + channel * task.plane + copy.source;
    float* to = task.band + j * task.pitch;
    float* const image = to + copy.above * Vec::kLanes;
    float* const below = image + copy.lines * Vec::kLanes;
    float* const end = to + task.vectors * Vec::kLanes;
    for (; to < image; to += Vec::kLanes) Vec::store(to, zero);
    for (; to < below; to += Vec::kLanes, from += line) Vec::store(to, load_part<kStride>(from, copy, stride));
    for (; to < end; to += Vec::kLanes) Vec::store(to, zero);
  }
}

void strip_band(const StripBandTask& task) {
  if (task.stride == 1) return copy_strips<1>(task);
  if (task.stride == 2) return copy_strips<2>(task);
  copy_strips<0>(task);
}

// to[j][i] = from[i][columns[j]], in squares of 4 × 4 where four columns are neighbours, up to four squares side by side so
// that a line of the cache is read once; else one by one.
void matrix_band(const MatrixBandTask& task) {
  for (size_t j = 0; j < task.column_count;) {
    const uint32_t* const columns = task.columns + j;
    const auto is_square = [&](size_t k) {  // they ascend
      return j + k + 4 <= task.column_count && columns[k + 3] - columns[k] == 3;
    };
    size_t squares = 0;
    while (squares < 4 && is_square(4 * squares)) ++squares;
    const size_t width = squares ? 4 * squares : 1;
    float* const to = task.band + j * task.pitch;
    const float* from = task.input;
    size_t i = 0;
    for (; squares && i + 4 <= task.count; i += 4, from += 4 * task.input_pitch) {
      for (size_t k = 0; k < width; k += 4) {
        Vec::transpose4(from + columns[k], task.input_pitch, to + k * task.pitch + i, task.pitch);
      }
    }
    for (; i < task.pitch; ++i, from += task.input_pitch) {
      for (size_t k = 0; k < width; ++k) to[k * task.pitch + i] = i < task.count ? from[columns[k]] : 0.0f;
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
