// Four floats in a register of aarch64. See vec_portable.h for what each function has to do.
struct Vec {
  static constexpr int kLanes = 4;
  static constexpr int kMaxSingle = 8, kMaxQuad = 6;  // 4 × 6 accumulators leave 8 of 32 registers
  using Reg = float32x4_t;

  static Reg broadcast(float value) { return vdupq_n_f32(value); }
  static Reg load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, Reg v) { vst1q_f32(p, v); }
  static void stream(float* p, Reg v) { store(p, v); }
  static void end_stream() {}
  static Reg load_lanes(const float* p, uint16_t lanes) {
    if (lanes == 0xf) return load(p);
    float values[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4; ++i) {
      if (lanes >> i & 1) values[i] = p[i];
    }
    return vld1q_f32(values);
  }
  static Reg load_second(const float* p, int from, int to) {
    float lanes[4] = {0, 0, 0, 0};
    for (int i = from; i < to; ++i) lanes[i] = p[2 * i];
    return vld1q_f32(lanes);
  }
  static Reg load_every(const float* p, uint16_t lanes, size_t stride) {
    float values[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4; ++i) {
      if (lanes >> i & 1) values[i] = p[static_cast<size_t>(i) * stride];
    }
    return vld1q_f32(values);
  }
  static void store_some(float* p, int count, Reg v) {
    float lanes[4];
    vst1q_f32(lanes, v);
    for (int i = 0; i < count; ++i) p[i] = lanes[i];
  }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return vfmaq_f32(c, a, b); }
  static Reg add(Reg a, Reg b) { return vaddq_f32(a, b); }
  static Reg clamp(Reg v, Reg low, Reg high) { return vminq_f32(high, vmaxq_f32(low, v)); }
  static void transpose4(const float* from, size_t from_pitch, float* to, size_t to_pitch) {
    const float32x4x2_t ab = vtrnq_f32(vld1q_f32(from), vld1q_f32(from + from_pitch));
    const float32x4x2_t cd = vtrnq_f32(vld1q_f32(from + 2 * from_pitch), vld1q_f32(from + 3 * from_pitch));
    vst1q_f32(to, vcombine_f32(vget_low_f32(ab.val[0]), vget_low_f32(cd.val[0])));
    vst1q_f32(to + to_pitch, vcombine_f32(vget_low_f32(ab.val[1]), vget_low_f32(cd.val[1])));
    vst1q_f32(to + 2 * to_pitch, vcombine_f32(vget_high_f32(ab.val[0]), vget_high_f32(cd.val[0])));
    vst1q_f32(to + 3 * to_pitch, vcombine_f32(vget_high_f32(ab.val[1]), vget_high_f32(cd.val[1])));
  }
};
