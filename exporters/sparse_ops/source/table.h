// The functions of a path as a table. Included last by each path_*.cpp, inside its namespace. It is made by the compiler:
// code that made it at run time might itself use instructions that the processor does not have.

template <int kVectors>
constexpr void fill(Path& path) {
  if constexpr (kVectors > 0) {
    if constexpr (kVectors <= Vec::kMaxSingle) path.single[kVectors] = single_rows<kVectors>;
    if constexpr (kVectors <= Vec::kMaxQuad) path.quad[kVectors] = quad_rows<kVectors>;
    fill<kVectors - 1>(path);
  }
}

static_assert(Vec::kLanes <= 16 && Vec::kMaxQuad > 1);  // lanes are bits of 16, and half a tile is at least a vector

constexpr Path make_path(const char* name) {
  Path path = {};
  path.name = name;
  path.lanes = Vec::kLanes;
  path.max_single = Vec::kMaxSingle;
  path.max_quad = Vec::kMaxQuad;
  fill<kMaxVectors>(path);
  path.single[0] = single_point;
  path.quad[0] = quad_point;
  path.conv_band = conv_band;
  path.strip_band = strip_band;
  path.matrix_band = matrix_band;
  path.transpose = transpose;
  return path;
}
