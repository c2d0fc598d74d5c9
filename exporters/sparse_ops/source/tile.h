// The inner loops, for any Vec. Included once by each path_*.cpp, inside its namespace and behind its Vec.

// Functions that take the sums of a row must be inlined: else the sums have an address, and are written to it at each step.
#define LTP_INLINE __attribute__((always_inline)) inline

// The sums of a row so far.
template <int kVectors>
LTP_INLINE void start(const RowsTask& task, size_t row, Vec::Reg (&sum)[kVectors]) {
  const Vec::Reg bias = Vec::broadcast(task.bias && task.starts ? task.bias[row] : 0.0f);
  const float* const from = task.sums + row * kVectors * Vec::kLanes;
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) sum[i] = task.starts ? bias : Vec::load(from + i * Vec::kLanes);
}

// Results of a row. Residual and limits are applied in registers, because a pass of their own over the output would cost
// as much as many of the products.
template <int kVectors>
LTP_INLINE void finish(const RowsTask& task, size_t row, const Vec::Reg (&sum)[kVectors]) {
  const Vec::Reg low = Vec::broadcast(task.low), high = Vec::broadcast(task.high);
  float* const out = task.out + row * task.out_pitch;
  const float* const residual = task.residual ? task.residual + row * task.out_pitch : nullptr;
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    const size_t at = static_cast<size_t>(i) * task.step;
    const int left = static_cast<int>(task.count) - i * static_cast<int>(task.fewer);
    Vec::Reg v = sum[i];
    if (left >= Vec::kLanes) {
      if (residual) v = Vec::add(v, Vec::load(residual + at));
      v = Vec::clamp(v, low, high);
      task.streams ? Vec::stream(out + at, v) : Vec::store(out + at, v);
    } else if (left > 0) {
      if (residual) v = Vec::add(v, Vec::load_lanes(residual + at, static_cast<uint16_t>((1u << left) - 1)));
      Vec::store_some(out + at, left, Vec::clamp(v, low, high));
    }
  }
}

template <int kVectors>
LTP_INLINE void stop(const RowsTask& task, size_t row, const Vec::Reg (&sum)[kVectors]) {
  if (task.ends) return finish<kVectors>(task, row, sum);
  float* const to = task.sums + row * kVectors * Vec::kLanes;
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) Vec::store(to + i * Vec::kLanes, sum[i]);
}

// Where the values of an entry's column are.
template <int kVectors, bool kStrips>
inline const float* values_of(const RowsTask& task, uint32_t entry) {
  const size_t column = task.columns[entry];
  return task.band + (kStrips ? task.begins[column] : column * kVectors) * Vec::kLanes;
}

// Single weights: each is multiplied by the band's row of its column. The sums of a row stay in registers, so a
// multiply-add costs one load; that load is the limit, and the reason why a band should fit the first-level cache.
template <int kVectors, bool kStrips>
inline void single_rows_of(const RowsTask& task) {
  for (size_t row = 0; row < task.rows; ++row) {
    Vec::Reg sum[kVectors];
    start<kVectors>(task, row, sum);
    const uint32_t end = task.begin[row + 1];
    for (uint32_t j = task.begin[row]; j < end; ++j) {
      const Vec::Reg weight = Vec::broadcast(task.values[j]);
      const float* const x = values_of<kVectors, kStrips>(task, j);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) sum[i] = Vec::multiply_add(weight, Vec::load(x + i * Vec::kLanes), sum[i]);
    }
    stop<kVectors>(task, row, sum);
  }
  if (task.streams && task.ends) Vec::end_stream();
}

template <int kVectors>
void single_rows(const RowsTask& task) {
  task.begins ? single_rows_of<kVectors, true>(task) : single_rows_of<kVectors, false>(task);
}

// Blocks of four weights, one in each of four neighbouring rows: one load feeds four multiply-adds.
template <int kVectors, bool kStrips>
inline void quad_rows_of(const RowsTask& task) {
  for (size_t quad = 0; quad < task.rows; ++quad) {
    Vec::Reg sum[4][kVectors];
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; ++k) start<kVectors>(task, 4 * quad + k, sum[k]);
    const uint32_t end = task.begin[quad + 1];
    for (uint32_t j = task.begin[quad]; j < end; ++j) {
      const float* const weights = task.values + size_t{4} * j;
      const float* const from = values_of<kVectors, kStrips>(task, j);
      Vec::Reg x[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) x[i] = Vec::load(from + i * Vec::kLanes);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const Vec::Reg weight = Vec::broadcast(weights[k]);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) sum[k][i] = Vec::multiply_add(weight, x[i], sum[k][i]);
      }
    }
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; ++k) stop<kVectors>(task, 4 * quad + k, sum[k]);
  }
  if (task.streams && task.ends) Vec::end_stream();
}

template <int kVectors>
void quad_rows(const RowsTask& task) {
  task.begins ? quad_rows_of<kVectors, true>(task) : quad_rows_of<kVectors, false>(task);
}

// A single position: the result of a matrix's only row, or an image of one pixel. Vectors would be filled by one value
// and wait for each other's sums, so the sum of a row is taken in four parts.
inline void stop_point(const RowsTask& task, size_t row, float sum) {
  if (!task.ends) {
    task.sums[row] = sum;
    return;
  }
  if (task.residual) sum += task.residual[row * task.out_pitch];
  sum = sum < task.low ? task.low : sum;
  task.out[row * task.out_pitch] = sum > task.high ? task.high : sum;
}

inline float start_point(const RowsTask& task, size_t row) {
  return !task.starts ? task.sums[row] : task.bias ? task.bias[row] : 0.0f;
}

inline void single_point(const RowsTask& task) {
  const float* const x = task.band;
  for (size_t row = 0; row < task.rows; ++row) {
    float sum[4] = {start_point(task, row), 0, 0, 0};
    uint32_t j = task.begin[row];
    const uint32_t end = task.begin[row + 1];
    for (; j + 4 <= end; j += 4) {
#pragma GCC unroll 4
      for (uint32_t i = 0; i < 4; ++i) sum[i] += task.values[j + i] * x[task.columns[j + i]];
    }
    for (; j < end; ++j) sum[0] += task.values[j] * x[task.columns[j]];
    stop_point(task, row, (sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
}

inline void quad_point(const RowsTask& task) {
  const float* const x = task.band;
  for (size_t quad = 0; quad < task.rows; ++quad) {
    float sum[4];
    for (size_t k = 0; k < 4; ++k) sum[k] = start_point(task, 4 * quad + k);
    for (uint32_t j = task.begin[quad]; j < task.begin[quad + 1]; ++j) {
#pragma GCC unroll 4
      for (size_t k = 0; k < 4; ++k) sum[k] += task.values[size_t{4} * j + k] * x[task.columns[j]];
    }
    for (size_t k = 0; k < 4; ++k) stop_point(task, 4 * quad + k, sum[k]);
  }
}

#undef LTP_INLINE
