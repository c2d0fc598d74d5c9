// Four floats by the compiler's own vector types: any processor. This is also what the other forms have to provide.
// A file vec_*.h is included inside the namespace of its path, so it has no include guard and includes nothing.
struct Vec {
  static constexpr int kLanes = 4;
  static constexpr int kMaxSingle = 8, kMaxQuad = 3;  // vectors of a tile, by single weights and by blocks of four
  typedef float Reg __attribute__((vector_size(16)));

  static Reg broadcast(float value) { return Reg{value, value, value, value}; }
  static Reg load(const float* p) {  // at any address
    Reg v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static void store(float* p, Reg v) { __builtin_memcpy(p, &v, sizeof v); }
  // Store past the cache at the address of a whole vector; other threads see it after end_stream().
  static void stream(float* p, Reg v) { store(p, v); }
  static void end_stream() {}

  // Lane i is p[i] where bit i is set, else 0; nothing else is read, so p may point outside of an array.
  static Reg load_lanes(const float* p, uint16_t lanes) {
    if (lanes == 0xf) return load(p);
    Reg v = {0, 0, 0, 0};
    for (int i = 0; i < 4; ++i) {
      if (lanes >> i & 1) v[i] = p[i];
    }
    return v;
  }
  // Lane i is p[2 · i] where from <= i < to, else 0; nothing is read before or behind these.
  static Reg load_second(const float* p, int from, int to) {
    Reg v = {0, 0, 0, 0};
    for (int i = from; i < to; ++i) v[i] = p[2 * i];
    return v;
  }
  // Lane i is p[stride · i] where bit i is set, else 0; nothing else is read. What is read lies within 2³¹ floats.
  static Reg load_every(const float* p, uint16_t lanes, size_t stride) {
    Reg v = {0, 0, 0, 0};
    for (int i = 0; i < 4; ++i) {
      if (lanes >> i & 1) v[i] = p[static_cast<size_t>(i) * stride];
    }
    return v;
  }
  // Write the first `count` lanes and nothing else.
  static void store_some(float* p, int count, Reg v) {
    for (int i = 0; i < count; ++i) p[i] = v[i];
  }
  static Reg multiply_add(Reg a, Reg b, Reg c) { return a * b + c; }
  static Reg add(Reg a, Reg b) { return a + b; }
  // Not a number stays not a number: hence the order of the operands.
  static Reg clamp(Reg v, Reg low, Reg high) {
    v = v < low ? low : v;
    return v > high ? high : v;
  }
  // to[j][i] = from[i][j] for i, j < 4; pitches between lines.
  static void transpose4(const float* from, size_t from_pitch, float* to, size_t to_pitch) {
    for (size_t i = 0; i < 4; ++i) {
      for (size_t j = 0; j < 4; ++j) to[j * to_pitch + i] = from[i * from_pitch + j];
    }
  }
};
