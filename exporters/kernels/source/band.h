// How a band is filled, for any Vec. Included once by each path_*.cpp, inside its namespace and behind its Vec.

inline int lanes_of(int64_t count) {
  return count < 0 ? 0 : count > Vec::kLanes ? Vec::kLanes : static_cast<int>(count);
}

// to[i] = from[i] where 0 <= i < count; zeros up to `pitch`, a multiple of the lanes.
inline void copy_row(const float* from, size_t count, float* to, size_t pitch) {
  for (size_t i = 0; i < pitch; i += Vec::kLanes) {
    const int64_t left = static_cast<int64_t>(count) - static_cast<int64_t>(i);
    Vec::store(to + i, left >= Vec::kLanes ? Vec::load(from + i) : Vec::load_window(from + i, 0, lanes_of(left)));
  }
}

// Values of `count` consecutive output pixels of one row of the image: to[i] = line[(x + i) · stride + offset], or zero
// where that is outside of [0, width). Whole vectors are written, so what is behind `count` is zero or of no meaning.
inline void copy_line(const float* line, int64_t width, int64_t x, int64_t stride, int64_t offset, int64_t count,
                      float* to) {
  if (stride == 1) {
    const int64_t first = x + offset;
    for (int64_t i = 0; i < count; i += Vec::kLanes) {
      const int64_t at = first + i;  // column of the image of lane 0
      Vec::store(to + i, Vec::load_window(line + at, lanes_of(-at), lanes_of(width - at)));
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = (x + i) * stride + offset;
    to[i] = at >= 0 && at < width ? line[at] : 0.0f;
  }
}

// A line may write a vector beyond the end of its part, so the band has room for one more vector at its end, and the
// parts of a row are written in ascending order: what a part spills is overwritten by the next part, row or by zeros.
void conv_band(const ConvBandTask& task) {
  const size_t plane = static_cast<size_t>(task.height * task.width);
  if (task.pointwise) {
    for (size_t j = 0; j < task.column_count; ++j) {
      copy_row(task.input + task.columns[j] * plane + task.position, task.count, task.band + j * task.pitch, task.pitch);
    }
    return;
  }
  const int64_t first_y = static_cast<int64_t>(task.position) / task.out_width;
  const int64_t first_x = static_cast<int64_t>(task.position) % task.out_width;
  const size_t taps = task.tap_count;
  size_t channel = 0;
  for (size_t j = 0; j < task.column_count; ++j) {
    while (task.columns[j] >= (channel + 1) * taps) ++channel;  // ascending: no division
    const Tap tap = task.taps[task.columns[j] - channel * taps];
    const float* const image = task.input + channel * plane;
    float* const to = task.band + j * task.pitch;
    int64_t y = first_y, x = first_x, done = 0;
    const int64_t count = static_cast<int64_t>(task.count);
    while (done < count) {
      const int64_t part = task.out_width - x < count - done ? task.out_width - x : count - done;
      const int64_t line = y * task.stride_y + tap.y;
      if (line >= 0 && line < task.height) {
        copy_line(image + line * task.width, task.width, x, task.stride_x, tap.x, part, to + done);
      } else {
        for (int64_t i = 0; i < part; ++i) to[done + i] = 0.0f;
      }
      done += part;
      x = 0;
      ++y;
    }
    for (size_t i = task.count; i < task.pitch; ++i) to[i] = 0.0f;
  }
}

// Eight columns at a time: then each line of the cache that is read is used for all of them.
void matrix_band(const MatrixBandTask& task) {
  constexpr size_t kColumns = 8;
  for (size_t j = 0; j < task.column_count; j += kColumns) {
    const size_t some = task.column_count - j < kColumns ? task.column_count - j : kColumns;
    for (size_t i = 0; i < task.count; ++i) {
      const float* const row = task.input + i * task.input_pitch;
      for (size_t k = 0; k < some; ++k) task.band[(j + k) * task.pitch + i] = row[task.columns[j + k]];
    }
    for (size_t k = 0; k < some; ++k) {
      for (size_t i = task.count; i < task.pitch; ++i) task.band[(j + k) * task.pitch + i] = 0.0f;
    }
  }
}

void transpose(const TransposeTask& task) {
  for (size_t i = 0; i < task.positions; ++i) {
    for (size_t row = 0; row < task.rows; ++row) {
      task.to[i * task.to_pitch + row] = task.from[row * task.from_pitch + i];
    }
  }
}
