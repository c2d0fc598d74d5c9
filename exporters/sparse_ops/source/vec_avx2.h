// Eight floats in a register. See vec_portable.h for what each function has to do.
struct Vec : X86 {
  static constexpr int kLanes = 8;
  static constexpr int kMaxSingle = 8, kMaxQuad = 3;  // 4 × 3 accumulators leave 4 of 16 registers
  using Reg = __m256;

  static Reg broadcast(float value) { return _mm256_set1_ps(value); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm256_storeu_ps(p, v); }
  static void stream(float* p, Reg v) { _mm256_stream_ps(p, v); }
  static Reg load_lanes(const float* p, uint16_t lanes) {
    return lanes == 0xff ? load(p) : _mm256_maskload_ps(p, mask_of(lanes));
  }
  static Reg load_second(const float* p, int from, int to) {
    const Reg a = load_window(p, 2 * from, 2 * to - 1), b = load_window(p + 8, 2 * from - 8, 2 * to - 9);
    const __m256d halves = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));  // a0 a2 b0 b2, a4 a6 b4 b6
    return _mm256_castpd_ps(_mm256_permute4x64_pd(halves, 0xd8));
  }
  static Reg load_every(const float* p, uint16_t lanes, size_t stride) {
    const __m256i nth = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i at = _mm256_mullo_epi32(nth, _mm256_set1_epi32(static_cast<int>(stride)));
    return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), p, at, _mm256_castsi256_ps(mask_of(lanes)), sizeof(float));
  }
  static void store_some(float* p, int count, Reg v) { _mm256_maskstore_ps(p, mask(count), v); }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg clamp(Reg v, Reg low, Reg high) { return _mm256_min_ps(high, _mm256_max_ps(low, v)); }

 private:
  static Reg load_window(const float* p, int from, int to) {
    return _mm256_maskload_ps(p, _mm256_andnot_si256(mask(from), mask(to)));
  }
  static __m256i mask_of(uint16_t lanes) {
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(lanes), bits), bits);
  }
  static __m256i mask(int count) {  // the first `count` lanes
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};
