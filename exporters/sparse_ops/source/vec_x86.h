// What AVX2 and AVX-512 have in common. See vec_portable.h for what each function has to do.
struct X86 {
  static void end_stream() { _mm_sfence(); }
  static void transpose4(const float* from, size_t from_pitch, float* to, size_t to_pitch) {
    __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_pitch);
    __m128 c = _mm_loadu_ps(from + 2 * from_pitch), d = _mm_loadu_ps(from + 3 * from_pitch);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + to_pitch, b);
    _mm_storeu_ps(to + 2 * to_pitch, c);
    _mm_storeu_ps(to + 3 * to_pitch, d);
  }
};
