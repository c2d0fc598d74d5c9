// Sixteen floats in a register. See vec_portable.h for what each function has to do.
struct Vec : X86 {
  static constexpr int kLanes = 16;
  static constexpr int kMaxSingle = 8, kMaxQuad = 6;  // vectors of a tile; 4 × 6 accumulators leave 8 of 32 registers
  using Reg = __m512;

  static Reg broadcast(float value) { return _mm512_set1_ps(value); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm512_storeu_ps(p, v); }
  static void stream(float* p, Reg v) { _mm512_stream_ps(p, v); }
  static Reg load_lanes(const float* p, uint16_t lanes) { return _mm512_maskz_loadu_ps(lanes, p); }
  static Reg load_second(const float* p, int from, int to) {
    const bool all = from == 0 && to == 16;  // nearly always
    const Reg a = all ? load(p) : load_lanes(p, mask(clip(2 * from), clip(2 * to - 1)));
    const Reg b = load_lanes(p + 16, all ? mask(0, 15) : mask(clip(2 * from - 16), clip(2 * to - 17)));
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, even, b);
  }
  static Reg load_every(const float* p, uint16_t lanes, size_t stride) {
    const __m512i nth = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i at = _mm512_mullo_epi32(nth, _mm512_set1_epi32(static_cast<int>(stride)));
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), lanes, at, p, sizeof(float));
  }
  static void store_some(float* p, int count, Reg v) { _mm512_mask_storeu_ps(p, mask(0, count), v); }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg clamp(Reg v, Reg low, Reg high) { return _mm512_min_ps(high, _mm512_max_ps(low, v)); }

 private:
  static __mmask16 mask(int from, int to) { return static_cast<__mmask16>((1u << to) - (1u << from)); }
  static int clip(int lane) { return lane < 0 ? 0 : lane > 16 ? 16 : lane; }
};
