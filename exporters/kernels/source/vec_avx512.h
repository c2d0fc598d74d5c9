// Sixteen floats in a register. See vec_portable.h for what each function has to do.
struct Vec {
  static constexpr int kLanes = 16;
  static constexpr int kMaxSingle = 8, kMaxQuad = 6;  // vectors of a tile; 4 × 6 accumulators leave 8 of 32 registers
  using Reg = __m512;

  static Reg broadcast(float value) { return _mm512_set1_ps(value); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm512_storeu_ps(p, v); }
  static Reg load_window(const float* p, int from, int to) {
    return _mm512_maskz_loadu_ps(mask(to) & ~mask(from), p);
  }
  static void store_some(float* p, int count, Reg v) { _mm512_mask_storeu_ps(p, mask(count), v); }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg clamp(Reg v, Reg low, Reg high) { return _mm512_min_ps(high, _mm512_max_ps(low, v)); }

 private:
  static __mmask16 mask(int count) { return static_cast<__mmask16>((1u << count) - 1u); }
};
